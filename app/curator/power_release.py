"""Iterative constructions of graphs and matrices as sessions: rounds of the power method, and nothing is asked."""

from __future__ import annotations

from app.constructions.dumps import Dump
from app.curator.evidence import Evidence
from app.curator.mechanisms import Measured, State
from app.curator.opening import Opening
from app.curator.planners.power import PowerPlan
from app.curator.workload import WorkloadMechanism
from app.estimation.tables.residuals import Residuals
from app.measurements.strategies.products import Products
from app.releases.power import PowerRounds

#: What a round holds of a cell, in bytes: hypothesis, query, and data in 64 bits each, and what they are made of.
_CELL_BYTES = 32


class PowerMechanism(WorkloadMechanism):
    """What rounds of the power method measure. Of what was measured it keeps what is left to pay with: the values are
    in the records, from which the release is made.

    Args:
        opening: of the session; its plan is that of such a release.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        assert isinstance(opening.plan, PowerPlan)
        self._power = opening.plan

    @property
    def power(self) -> PowerRounds:
        """The terms of the rounds."""
        return self._power.power

    @property
    def in_rounds(self) -> bool:
        """What is measured in a round depends on the rounds before."""
        return True

    def start(self, dump: Dump | None = None) -> State:
        """The whole share is left. There are no attributes to count by."""
        return State(Evidence(Residuals(()), self._power.holds))

    def follows(self, state: State, measured: Measured) -> bool:
        """Whether a measurement may be the next of the rounds: of the side that is due, on the terms of the plan."""
        release = measured.release
        if not isinstance(release.strategy, Products) or state.updates >= self._plan.max_updates:
            return False
        return self.power.admits(state.updates, release.of(Products), measured.price)

    def nbytes(self, updates: int) -> int:
        """What the rounds take."""
        return _CELL_BYTES * self._space.cells
