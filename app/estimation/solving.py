"""Results of solvers: the value, why they ended, and how near it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

#: Why a search ended: it met its tolerance, it was out of steps, no step led down, or a system had no solution in
#: floating point.
Reason = Literal["converged", "steps", "no descent", "singular"]


@dataclass(frozen=True, eq=False)
class Solved(Generic[T]):
    """The last value, why the solver ended, and how near that is.

    Attributes:
        value: what was looked for, or as near as the search came.
        reason: why it ended.
        gap: how far the value is from meeting the tolerance, as a multiple of that: at most 1 where it does.
    """

    value: T
    reason: Reason
    gap: float

    @property
    def converged(self) -> bool:
        """Whether the value is what was looked for."""
        return self.reason == "converged"
