"""The common part of sessions that answer from everything that was measured: each measurement is a record of its own,
the state is made of the transcript alone, and there is no hypothesis that answers by itself.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from app.curator.errors import PlanInfeasible
from app.curator.expectation import Expectation
from app.curator.mechanisms.protocol import (
    GREATEST_ANSWER,
    NO_VALUE,
    Answer,
    AnsweringMechanism,
    Measured,
    PayingState,
    Pinning,
    Source,
    Target,
    Units,
)
from app.curator.opening import Opening
from app.curator.plan import EvidencePlan, SessionPlan
from app.estimation.intervals import Estimates
from app.policies.table import OutOfReach
from app.spaces.query import Query
from app.spaces.tensor import FloatArray

P = TypeVar("P", bound=PayingState)


class RecordedMechanism(AnsweringMechanism[P], Pinning[P]):
    """The part of a mechanism that is the same whatever is measured.

    Args:
        opening: of the session.
    """

    instead = "every answer from evidence says how well it is known"

    def __init__(self, opening: Opening) -> None:
        self._opening, self._space = opening, opening.dataset.space
        self._bits = opening.plan.answer_bits
        self._farthest = math.ldexp(GREATEST_ANSWER, -self._bits)
        self._target = Target(opening.request.within, opening.request.confidence)

    def expectation(self, state: P, made: Sequence[Measured]) -> Expectation | None:
        """What to expect of a session that has been asked nothing, which takes in what was measured at its opening."""
        return self._opening.plan.expectation(self._opening.dataset, self._opening.request)

    @abstractmethod
    def show(self, state: P, query: Query, units: Units, target: Target) -> Estimates:
        """How well values that were given before are known by now."""

    def again(self, state: P, query: Query, given: Units, bound: float | None, target: Target) -> Answer | None:
        """A first answer stands unless a narrower interval is asked for than the one there is.

        Of a question that was asked before, that is the interval which holds for a question that was not chosen by
        noise: who repeats a request pays once.
        """
        target = replace(self._targeted(target), adaptive=False)
        if target.within is not None and not query.is_zero:
            found = self.show(state, query, given, target)
            # Where there is no value there is nothing to know better.
            if bool((found.highs - found.lows > 2 * target.within).any()):
                return None
        return Answer(given, "cached", bound)

    @staticmethod
    def _unbought(answer: Answer, plan: EvidencePlan) -> Answer:
        """An estimate, for which nothing is bought. In a session without a share every number of it must follow from
        what was measured of it: what only a model tells is what others buy.

        Raises:
            PlanInfeasible: when it does not.
        """
        if plan.free and answer.accuracy is not None and not bool(answer.accuracy.unbiased.all()):
            raise _untold()
        return answer

    def _targeted(self, target: Target) -> Target:
        """The target of a question, or else of its session."""
        return target.over(self._target)

    def _grid(self, values: FloatArray, bits: int | None = None) -> Units:
        """Values on the answer grid, or one of so many bits; of what is far beyond all data the end of it."""
        bits = self._bits if bits is None else bits
        farthest, none = math.ldexp(GREATEST_ANSWER, -bits), np.isnan(values)
        held = np.clip(np.where(none, 0.0, values), -farthest, farthest)
        return np.where(none, NO_VALUE, np.rint(np.ldexp(held, bits)).astype(np.int64))

    def _told(
        self, query: Query, source: Source, found: Estimates, bits: int | None = None, measured: Measured | None = None
    ) -> Answer:
        """The answer that tells estimates: their values on the answer grid, or one of so many bits, with intervals that
        hold these."""
        units = query.adding(self._grid(found.values, bits))
        values = self._numbers(query, units, bits).reshape(np.shape(found.lows))
        return Answer(units, source, None, accuracy=found.holding(values), measured=measured)

    def _numbers(self, query: Query, units: Units, bits: int | None = None) -> FloatArray:
        """What units of the answer grid, or of one of so many bits, tell of a query; NaN of no value."""
        return np.where(units == NO_VALUE, np.nan, query.told(self._real(units, bits)))

    def _unit(self, value: float) -> int:
        """A standard error on the answer grid."""
        return round(math.ldexp(min(value, self._farthest), self._bits))

    def _real(self, units: Any, bits: int | None = None) -> FloatArray:
        """Whole units of the answer grid, or of one of so many bits, in counts."""
        return np.ldexp(np.asarray(units, np.float64), -(self._bits if bits is None else bits))


def _untold() -> PlanInfeasible:
    """The refusal of what only a purchase would tell, in a session that buys nothing."""
    return PlanInfeasible(
        "what was measured of the data set does not tell this, or not so well, and a session of epsilon 0 buys "
        "nothing: ask for what was measured (GET /v1/datasets/{name}/measurements), or open a session with an epsilon",
        left=0.0,
    )


def out_of_reach(error: OutOfReach, plan: SessionPlan, query: Query | None = None) -> PlanInfeasible:
    """The refusal of what cannot be paid, in epsilon; of a query with the group that makes it dear, if there is one."""
    holds = plan.holds
    if not plan.epsilon:
        return _untold()
    each = float(plan.epsilon) / float(holds.renyi if holds.pure is None else holds.pure)
    left = max(0.0, error.left) * each
    if not math.isfinite(error.needed):
        return PlanInfeasible("no noise is so small: ask for a wider interval", left=left)
    needed = error.needed * each
    group = None if query is None or error.dearest is None else _cell(query, error.dearest)
    named = "" if group is None else ", ".join(f"{name} {_called(label)}" for name, label in group.items())
    return PlanInfeasible(
        f"the accuracy asked for takes {needed:.4g} of epsilon, and the session has {left:.4g} left: ask for less, "
        + (f"leave out the group whose interval reaches farthest ({named}), " if named else "")
        + "or open a session with a larger share",
        needed=needed,
        left=left,
        **({} if group is None else {"group": group}),
    )


def _cell(query: Query, place: int) -> dict[str, Any] | None:
    """What the axes call a cell of an answer, by its place among the answers of the question; None where the answer has
    no axes, or it is none of its cells.
    """
    axes = query.labels
    shown = query.ordered(query.selected(np.arange(math.prod(query.question.shape)).reshape(query.question.shape)))
    found = np.flatnonzero(shown == place)
    if not axes or not len(found):
        return None
    cell = np.unravel_index(int(found[0]), [len(axis["labels"]) for axis in axes])
    return {axis["attribute"]: axis["labels"][code] for axis, code in zip(axes, cell, strict=True)}


def _called(label: Any) -> str:
    return "without a value" if label is None else str(label)
