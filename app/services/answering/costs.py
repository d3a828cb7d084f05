"""The time and memory that a question may take, by its words and public facts before anything is computed for it; and
who has lately asked what took long all the same.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from app.services.query_bodies import DenseBody
from app.spaces.space import Space

#: Values, nodes or weights that are listed in a question from which it is costly.
LISTED = 1 << 12
#: Combinations of values of the attributes that are named from which it is: of a session on evidence, which plans over
#: all their subsets; of others where each is a number of the answer, and where it is not.
EVIDENCE_CELLS, NUMBERS, CELLS = 1 << 8, 1 << 10, 1 << 16
#: The length of the sides of a graph or a matrix from which each question is.
NODES = 1 << 15
#: Processor time of a question that was not taken for costly, from which its sender is taken to ask more of the kind;
#: for how long; and how many such are remembered.
SLOW_SECONDS, REMEMBERED_SECONDS, REMEMBERED = 0.03, 20.0, 1 << 10
#: Of the types of parsed JSON those that hold others, and those of which nothing is named.
_HOLDING, _NO_WORDS = (dict, list), frozenset((int, float, bool, type(None)))


def seems_costly(space: Space, asked: Any, *, on_evidence: bool) -> bool:
    """Whether a question may take tens of milliseconds. It is told in microseconds, whatever was sent."""
    if isinstance(asked, DenseBody):
        return space.cells >= CELLS
    if not isinstance(asked, dict):
        return False  # it is refused
    words = _words(asked)
    if words is None:
        return True
    if space.kind != "table":
        return sum(space.shape) >= NODES
    cells = math.prod([size for name, size in zip(space.names, space.shape, strict=True) if name in words])
    if on_evidence:
        return cells >= EVIDENCE_CELLS
    return cells >= (NUMBERS if "attributes" in words or "group_by" in words else CELLS)


def _words(asked: Any) -> set[str] | None:
    """The names and strings in a question; None when it lists many things."""
    words: set[str] = set()
    waiting, listed = [asked], 0
    while waiting:
        part = waiting.pop()
        listed += len(part)
        if listed > LISTED:
            return None
        inner = part
        if type(part) is dict:
            words.update(part)
            inner = part.values()
        if _NO_WORDS.issuperset(map(type, inner)):
            continue
        for each in inner:
            if type(each) is str:
                words.add(each)
            elif isinstance(each, _HOLDING):
                waiting.append(each)
    return words


class SlowAskers:
    """Principals who have lately asked what took long. One thread's own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, actor: str) -> bool:
        until = self._until.get(actor)
        return until is not None and self._clock() < until

    def note(self, actor: str, seconds: float) -> None:
        """A question of this principal took so much of a processor."""
        if seconds < SLOW_SECONDS:
            return
        self._until[actor] = self._clock() + REMEMBERED_SECONDS
        self._until.move_to_end(actor)
        while len(self._until) > REMEMBERED:
            self._until.popitem(last=False)
