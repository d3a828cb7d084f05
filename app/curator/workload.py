"""Releases as sessions: everything is measured at the opening, and nothing is asked."""

from __future__ import annotations

from collections.abc import Sequence

from app.constructions.base import CellConstruction
from app.curator.evidence import Evidence, EvidenceMechanism
from app.curator.mechanisms import Measured, State
from app.curator.opening import Opening
from app.curator.planners.rounds import construction_of
from app.curator.planners.workload import WorkloadPlan
from app.declarations.errors import InvalidRequest
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.tables import TableStrategy
from app.measurements.strategy import Strategy
from app.releases.rounds import Hypothesis, Rounds
from app.spaces.query import Query


class WorkloadMechanism(EvidenceMechanism):
    """What a release measures, and what it takes in.

    Args:
        opening: of the session; its plan is that of a release.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        plan = opening.plan
        assert isinstance(plan, WorkloadPlan)
        self._release = plan

    def purchases(self, state: State) -> Sequence[Purchase[Strategy]]:
        """What the plan names."""
        return self._release.buys

    @property
    def rounds(self) -> Rounds | None:
        """The rounds behind these purchases; None where there are none."""
        return None if self._release.iterations is None else self._release.iterations.rounds

    @property
    def in_rounds(self) -> bool:
        """Whether there are rounds behind these purchases, which choose what they measure."""
        return self.rounds is not None

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

    def construction(self, made: Sequence[Measurement[TableStrategy]]) -> CellConstruction:
        """What keeps the hypothesis of the rounds; ``made`` as of :meth:`hypothesis`."""
        return construction_of(self._opening.dataset, self._opening.request, tuple(made))

    def follows(self, state: State, measured: Measured) -> bool:
        """Whether a measurement may be that of the next round: of a candidate, on the terms of the plan.

        Whether the round's choice led to it cannot be told without the data, nor with them, as it was drawn.
        """
        rounds = self.rounds
        if rounds is None or state.updates >= self._plan.max_updates:
            return False
        return rounds.admits(measured.table) and measured.price == rounds.price

    def pin(self, state: State, measured: Measured) -> None:
        """Take in what was measured; what rounds measure, and what is no table's, is used when all is over.

        Raises:
            ValueError: when it is of another data set.
        """
        if self.rounds is None and isinstance(measured.release.strategy, TableStrategy):
            super().pin(state, measured)
            return
        measured.release.strategy.check(self._space)
        known: Evidence = state.hypothesis
        known.left = known.left.minus(measured.price)

    def admit(self, query: Query) -> None:
        """Refuse every query.

        Raises:
            InvalidRequest: naming what serves.
        """
        raise InvalidRequest(
            "a release is asked nothing: read its data, or open a session, which starts from what was measured for it"
        )
