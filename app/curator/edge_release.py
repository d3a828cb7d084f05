"""Releases of graphs and matrices as sessions: all cells are measured once, and nothing is asked."""

from __future__ import annotations

from app.constructions.dumps import Dump
from app.curator.evidence import Evidence
from app.curator.mechanisms import State
from app.curator.opening import Opening
from app.curator.planners.cells import EdgePlan
from app.curator.workload import WorkloadMechanism
from app.estimation.tables.residuals import Residuals

#: What measuring a cell takes for a while, in bytes: a bit and what it is turned over by; a number, its noise as the
#: sampler's list and as an array, and their sum.
_BIT_BYTES, _NUMBER_BYTES = 8, 64


class EdgeMechanism(WorkloadMechanism):
    """What a release of all cells measures. Of what was measured it keeps what is left to pay with: the values are in
    the records, from which the release is made.

    Args:
        opening: of the session; its plan is that of such a release.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        assert isinstance(opening.plan, EdgePlan)
        self._edges = opening.plan

    def start(self, dump: Dump | None = None) -> State:
        """The whole share is left. There are no attributes to count by."""
        return State(Evidence(Residuals(()), self._edges.holds))

    def nbytes(self, updates: int) -> int:
        """What measuring takes."""
        return sum(
            (_BIT_BYTES if buy.noise.kind == "flips" else _NUMBER_BYTES) * buy.strategy.cells
            for buy in self._edges.buys
        )
