"""The form of a state outside of memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from app.spaces.tensor import Array


@dataclass(frozen=True)
class Dump:
    """A state as named arrays of numbers, which keep every bit, and JSON for the little that is no number.

    The arrays are the state's own, not copies: they are to be written before the state changes. Whoever loads a dump
    owns them from there on. Their memory order is part of them, as sums depend on it in their last bits. Names of parts
    within parts are joined by a dot.
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    words: dict[str, Any] = field(default_factory=dict)

    def within(self, name: str) -> Self:
        """The same as a part of something larger."""
        return type(self)(
            {f"{name}.{key}": array for key, array in self.arrays.items()},
            {f"{name}.{key}": word for key, word in self.words.items()},
        )

    def part(self, name: str) -> Self:
        """The part that :meth:`within` made."""
        head = f"{name}."
        return type(self)(
            {key.removeprefix(head): array for key, array in self.arrays.items() if key.startswith(head)},
            {key.removeprefix(head): word for key, word in self.words.items() if key.startswith(head)},
        )

    def __or__(self, other: Dump) -> Self:
        return type(self)({**self.arrays, **other.arrays}, {**self.words, **other.words})


def numbers(*values: float) -> Array:
    """A few numbers as an array."""
    return np.array(values, dtype=np.float64)
