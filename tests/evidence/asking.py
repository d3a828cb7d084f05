"""Statistics of any question of a table, without the words that ask it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from app.spaces.queries.linear import CompiledZero
from app.spaces.queries.statistic import StatisticOfNumbers
from app.spaces.questions import Question
from app.spaces.tensor import IntArray


class Asking(StatisticOfNumbers):
    """A statistic of what a question counts, of all its answers or of those at some places."""

    @property
    def question(self) -> Question:
        return self._question

    @property
    def groups(self) -> IntArray:
        return self._groups

    @classmethod
    def of(
        cls,
        kind: str,
        question: Question,
        grid: tuple[int, int, float, float],
        levels: tuple[float, ...] = (),
        chosen: Sequence[int] | None = None,
    ) -> Asking:
        """Of an attribute with this number, so many places, the least number and the step."""
        axis, places, low, step = grid
        asked = cls(kind, axis, low, step, places, CompiledZero(()), levels, (), 0)
        own = range(math.prod(question.shape)) if chosen is None else chosen
        vars(asked).update(_question=question, _groups=np.array(own, np.int64))
        return asked
