"""The private numbers of a data set as they are asked: only while they are what was registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from app.spaces.counts import ExactCounts, Tally


class RegisteredCounts:
    """Exact counts that are told after a look whether the data are what was registered: each time, or once for all that
    is asked together.

    Args:
        counts: the numbers.
        check: that look; raises Unavailable when they are gone, or are others.
    """

    def __init__(self, counts: ExactCounts, check: Callable[[], None]) -> None:
        self._counts, self.check = counts, check

    @property
    def nbytes(self) -> int:
        """Bytes that they take in memory, with what was made of them and is kept."""
        return self._counts.nbytes

    def offers(self, tally: Tally) -> bool:
        """Whether such numbers are told."""
        return self._counts.offers(tally)

    def checked(self) -> ExactCounts:
        """The numbers after a look, for whoever asks many times within moments.

        Raises:
            Unavailable: when the data are not what was registered.
        """
        self.check()
        return self._counts

    def tell(self, asked: Sequence[Tally]) -> Iterator[Any]:
        """The numbers of tallies, one after another as they are taken.

        Raises:
            Unavailable: before anything is counted, when the data are not what was registered.
            NotOffered: before anything is counted, when one of them is not offered.
            NotCounted: before anything is told, when some of it must be counted elsewhere first.
        """
        return self.checked().tell(asked)
