"""Releases as sessions: what the plan names is measured, then what rounds choose, and nothing is asked."""

from __future__ import annotations

from collections.abc import Sequence

from app.constructions.base import MarginalConstruction
from app.curator.mechanisms.protocol import Measured, PayingState, Pinning, SessionMechanism
from app.curator.opening import Opening
from app.curator.planners.rounds import construction_of
from app.curator.planners.workload import WorkloadPlan
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.tables import TableStrategy
from app.measurements.strategy import Strategy
from app.releases.rounds import Hypothesis


class ReleaseMechanism(SessionMechanism[PayingState], Pinning[PayingState]):
    """What a release measures. Of what was measured it keeps what is left to pay with: the values are in the records,
    from which the release is made.

    Args:
        opening: of the session; its plan is that of a release.
    """

    def __init__(self, opening: Opening) -> None:
        assert isinstance(opening.plan, WorkloadPlan)
        self._opening, self._plan, self._space = opening, opening.plan, opening.dataset.space

    def start(self) -> PayingState:
        """The whole share is left."""
        return PayingState(self._plan.holds)

    def pin(self, state: PayingState, measured: Measured) -> None:
        """Hold what was measured against the data set, and pay for it."""
        measured.release.strategy.check(self._space)
        state.left = state.left.minus(measured.price)

    def purchases(self, state: PayingState) -> Sequence[Purchase[Strategy]]:
        """What the plan names."""
        return self._plan.buys

    def follows(self, state: PayingState, measured: Measured) -> bool:
        """Whether a measurement may be that of the next round, on the terms of the plan.

        Whether what the round chose led to it cannot be told without the data, nor with them, as it was drawn.
        """
        if state.updates >= self._plan.max_updates:
            return False
        return self._plan.admits(state.updates, measured.release, measured.price)

    def nbytes(self, updates: int) -> int:
        """What measuring takes."""
        return self._plan.measuring_bytes(self._space)

    def hypothesis(
        self, known: Sequence[Measurement[TableStrategy]], made: Sequence[Measurement[TableStrategy]]
    ) -> Hypothesis:
        """What the first round is held against.

        Args:
            known: what was measured of the data set before the release.
            made: what was measured for the release before the rounds.
        """
        hypothesis = Hypothesis(self.construction(made))
        for release in known:
            hypothesis.learn(release)
        return hypothesis

    def construction(self, made: Sequence[Measurement[TableStrategy]]) -> MarginalConstruction:
        """What keeps the hypothesis of the rounds; ``made`` as of :meth:`hypothesis`."""
        return construction_of(self._opening.dataset, self._opening.request, tuple(made))
