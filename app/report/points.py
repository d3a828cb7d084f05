"""A long sequence thinned to what a plot can show, and bounded: with its first, last, least and greatest items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Stretches that are kept at least, once there are more items; twice as many are merged in pairs.
STRETCHES = 100


class Thinned(Generic[T]):
    """Items in their order, of which at most ``8 * STRETCHES`` are kept: the first, the last, a least and a greatest
    one of each of a number of stretches of one length, which doubles whenever there are too many.

    Args:
        height: what is plotted of an item; it decides what is least and greatest.
    """

    def __init__(self, height: Callable[[T], Any]) -> None:
        self._height = height
        #: Of each stretch the first, a least, a greatest and the last item: number, height, item.
        self._stretches: list[list[tuple[int, Any, T]]] = []
        self._length, self.count = 1, 0

    def add(self, item: T) -> None:
        """Take in the next item."""
        height = self._height(item)
        point = (self.count, height, item)
        if self.count % self._length:
            stretch = self._stretches[-1]
            stretch[3] = point
            if height < stretch[1][1]:
                stretch[1] = point
            elif height > stretch[2][1]:
                stretch[2] = point
        else:
            if len(self._stretches) == 2 * STRETCHES:
                halves = zip(self._stretches[::2], self._stretches[1::2], strict=True)
                self._stretches = [_merged(left, right) for left, right in halves]
                self._length *= 2
            self._stretches.append([point] * 4)
        self.count += 1

    def items(self) -> list[T]:
        """Those that are kept, in their order."""
        points = {number: item for stretch in self._stretches for number, _, item in stretch}
        return [points[number] for number in sorted(points)]


def _merged(left: list[tuple[int, Any, T]], right: list[tuple[int, Any, T]]) -> list[tuple[int, Any, T]]:
    least = right[1] if right[1][1] < left[1][1] else left[1]
    greatest = right[2] if right[2][1] > left[2][1] else left[2]
    return [left[0], least, greatest, right[3]]
