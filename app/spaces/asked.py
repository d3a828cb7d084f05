"""Exact counts of records that stay where they are: what was counted there once answers from memory, and what was not
is counted by whoever has the time.

Whoever holds the records is asked for counts by classes of values and for nothing else: along each attribute that a
tally depends on, values that it treats alike are one class, and every record is in one class of each. So a condition is
a class of its own and never a filter, and no work depends on whether anybody satisfies it. What was told is kept, and
whatever follows from it is summed here.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from app.spaces.counts import CellCounts, Contraction, NotCounted, Tally, not_offered
from app.spaces.partition import Partition
from app.spaces.tensor import Array, Axis, IntArray, Members

#: The most classes that are asked for at once: what comes back takes some MiB, however many records there are.
MOST_CLASSES = 1 << 20
#: Weights are classes too, so that the same counts serve other questions, while these are no more; else they are added
#: up where the records are.
MOST_WEIGHED = 1 << 12
#: Counts that are asked together are asked as one while their classes together are no more.
MOST_TOGETHER = 1 << 15
#: What others wait for meanwhile comes along where it adds no pass: of what is asked within so many seconds, and of so
#: many counts.
GATHERED_SECONDS, MOST_GATHERED = 0.05, 256
#: Bytes of all counts of a data set that stay in memory.
HELD_BYTES = 64 << 20


class KeptCounts(Protocol):
    """Counts that were told once, durably; each by the name of what was asked (:func:`name_of`)."""

    def others(self, known: Sequence[str]) -> Iterator[CellCounts]:
        """Those that are kept beside the known ones, as they were asked."""

    def load(self, name: str) -> IntArray | None:
        """One of them as a flat array; None where it is not kept."""

    def keep(self, asked: CellCounts, counts: IntArray) -> None:
        """Keep one."""


class AskedCounts:
    """The private numbers of a table whose records stay where they are; see :class:`app.spaces.counts.ExactCounts`.

    Args:
        shape: how many values each attribute has.
        records: how many records there are.
        ask: has counts by classes counted where the records are, in the order asked: arrays of their shapes. It may
            take minutes.
        kept: what was told before.
        seconds: after which whoever waits for more goes on, however long it takes; 0 where nobody declared it.
        place: where they are counted, as :class:`~app.spaces.counts.NotCounted` has it.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        records: int,
        ask: Callable[[Sequence[CellCounts]], list[IntArray]],
        kept: KeptCounts,
        seconds: float = 0.0,
        place: str = "",
    ) -> None:
        self.shape, self._records, self._ask, self._kept = shape, records, ask, kept
        self._seconds, self._place = seconds, place
        self._known: dict[str, CellCounts] = {}
        self._arrays: OrderedDict[str, IntArray] = OrderedDict()
        #: What somebody waits for, or gave up.
        self._wanted: OrderedDict[str, CellCounts] = OrderedDict()
        self._lock, self._asking = threading.RLock(), threading.Lock()
        self._learn()

    def __repr__(self) -> str:
        return f"AskedCounts(shape={self.shape})"

    @property
    def nbytes(self) -> int:
        """Bytes of the counts in memory."""
        with self._lock:
            return sum(array.nbytes for array in self._arrays.values())

    def offers(self, tally: Tally) -> bool:
        """Whether it depends on few enough classes of values."""
        return self._classes(tally) is not None

    def _classes(self, tally: Tally) -> CellCounts | None:
        """The counts by classes that a tally follows from; None where it is not offered."""
        if not isinstance(tally, CellCounts | Contraction) or not tally.fits(self.shape):
            return None
        return classes_of(_counted_by(tally), self.shape)

    def tell(self, asked: Sequence[Tally]) -> Iterator[Any]:
        """The numbers of tallies, one after another as they are taken.

        Raises:
            NotOffered: before anything is counted, when one of them is not offered.
            NotCounted: before anything is told, when some of it was not counted yet.
        """
        classes = [self._classes(tally) for tally in asked]
        found: list[tuple[Tally, CellCounts, IntArray]] = []
        lacking: list[CellCounts] = []
        for tally, needed in zip(asked, classes, strict=True):
            if needed is None:
                raise not_offered()
            counts = self._found(needed)
            if counts is None:
                lacking.append(needed)
            else:
                found.append((tally, needed, counts))
        if lacking:
            with self._lock:
                self._wanted.update((name_of(needed), needed) for needed in lacking)
                while len(self._wanted) > MOST_GATHERED:
                    self._wanted.popitem(last=False)
            raise NotCounted(lambda: self._count(lacking), self._seconds, self._place)
        return (_told(tally, needed, counts) for tally, needed, counts in found)

    def _found(self, needed: CellCounts) -> IntArray | None:
        """The counts of classes, from what is known; None where they do not follow from it."""
        if not needed.axes and needed.plain:
            return np.array(self._records, np.int64)
        with self._lock:
            for name in [name for name, known in self._known.items() if _covers(known, needed)]:
                counts = self._held(name)
                if counts is not None:
                    return _coarsened(self._known[name], needed, counts)
        return None

    def _held(self, name: str) -> IntArray | None:
        """Known counts, in their shape."""
        counts = self._arrays.get(name)
        if counts is None:
            loaded = self._kept.load(name)
            if loaded is None:  # it was kept in memory alone
                del self._known[name]
                return None
            counts = loaded.reshape(self._known[name].shape)
            self._hold(name, counts)
        self._arrays.move_to_end(name)
        return counts

    def _hold(self, name: str, counts: IntArray) -> None:
        self._arrays[name] = counts
        while self.nbytes > HELD_BYTES and len(self._arrays) > 1:
            self._arrays.popitem(last=False)

    def _learn(self) -> None:
        """Take in what was kept by others."""
        for asked in self._kept.others(tuple(self._known)):
            with self._lock:
                self._known[name_of(asked)] = asked

    def _count(self, lacking: Sequence[CellCounts]) -> None:
        """Have these counted and keep them; one call at a time, so that what two wait for is counted once."""
        with self._asking:
            self._learn()
            due = covering([needed for needed in lacking if self._found(needed) is None])
            if not due:
                return
            time.sleep(GATHERED_SECONDS)
            self._gather(due)
            for asked, counts in zip(due, self._ask(due), strict=True):
                self._kept.keep(asked, counts)
                with self._lock:
                    name = name_of(asked)
                    self._known[name] = asked
                    self._hold(name, counts)

    def _gather(self, due: list[CellCounts]) -> None:
        """Let what others wait for follow from what is due, as far as that makes it no more."""
        with self._lock:
            wanted, self._wanted = self._wanted, OrderedDict()
        for name, needed in wanted.items():
            if self._found(needed) is None and not _joins(due, needed):
                with self._lock:
                    self._wanted[name] = needed


def classes_of(tally: CellCounts, shape: Sequence[int]) -> CellCounts | None:
    """The counts by classes, of every record, that a tally of data of this shape follows from: values that it treats
    alike are one class. None where there would be more than :data:`MOST_CLASSES`.
    """
    weighed = _classified(tally, shape, tally.factors)
    if math.prod(weighed.shape) <= MOST_WEIGHED or not tally.factors:
        needed = weighed
    else:
        needed = replace(_classified(tally, shape, ()), factors=tally.factors)
    return needed if math.prod(needed.shape) <= MOST_CLASSES else None


def covering(asked: Sequence[CellCounts]) -> list[CellCounts]:
    """Fewer counts by classes from which those asked follow: those that together have few classes become one."""
    groups: list[CellCounts] = []
    # The longest first: short ones find room beside them.
    for each in sorted({name_of(each): each for each in asked}.values(), key=lambda one: -math.prod(one.shape)):
        if not _joins(groups, each):
            groups.append(each)
    return groups


def _joins(groups: list[CellCounts], each: CellCounts) -> bool:
    """Whether counts follow from one of several groups, or do once that is a little finer, which it then becomes."""
    for number, group in enumerate(groups):
        together = group if _covers(group, each) else _together(group, each)
        if together is not None:
            groups[number] = together
            return True
    return False


def name_of(asked: CellCounts) -> str:
    """The name of what is asked: a SHA-256 of what it says."""
    return hashlib.sha256(json.dumps(document(asked)).encode()).hexdigest()


def document(asked: CellCounts) -> Any:
    """Counts by classes as JSON, which :func:`read` reads."""
    return {
        "axes": asked.axes,
        "classes": [None if cells is None else [cells.size, cells.document()] for cells in asked.cells],
        "shape": asked.shape,
        "factors": [[axis, weights.tolist()] for axis, weights in asked.factors],
    }


def read(told: Any) -> CellCounts:
    """Counts by classes from JSON.

    Raises:
        ValueError, KeyError, TypeError: when it is none.
    """
    return CellCounts(
        tuple(told["axes"]),
        tuple(None if each is None else Partition.read(each[1], each[0]) for each in told["classes"]),
        tuple(told["shape"]),
        factors=tuple((axis, np.array(weights, np.int64)) for axis, weights in told["factors"]),
    )


def _counted_by(tally: Tally) -> CellCounts:
    """A contraction as the sum of a weight over the records that are selected; counts in cells as they are."""
    if isinstance(tally, CellCounts):
        return tally
    assert isinstance(tally, Contraction)
    named = [(number, axis) for number, axis in enumerate(tally.axes) if axis is not None]
    return CellCounts(
        (),
        (),
        (),
        where=tuple((number, axis.index) for number, axis in named if axis.weights is None),
        factors=tuple((number, axis.weights) for number, axis in named if axis.weights is not None),
    )


def _classified(tally: CellCounts, shape: Sequence[int], factors: Sequence[tuple[int, IntArray]]) -> CellCounts:
    """Counts by the classes of all attributes that a tally depends on, by some of its factors among others."""
    partitions, selected, weights = dict(zip(tally.axes, tally.cells, strict=True)), dict(tally.where), dict(factors)
    together = () if tally.among is None else tally.among[0]
    axes = tuple(sorted({*tally.axes, *selected, *together, *weights}))
    cells: list[Partition | None] = []
    for axis in axes:
        length = shape[axis]
        told: list[Array] = []
        if axis in partitions:
            own = partitions[axis]
            told.append(np.arange(length) if own is None else own.labels)
        if axis in selected:
            told.append(Axis(length, selected[axis]).at(np.arange(length)))
        if axis in weights:
            told.append(np.append(weights[axis], np.zeros(length - len(weights[axis]), np.int64)))
        if axis in together:
            assert tally.among is not None
            slices = np.moveaxis(tally.among[1], together.index(axis), 0).reshape(length, -1)
            told.append(np.unique(slices, axis=0, return_inverse=True)[1].reshape(-1))
        classes = Partition.of(_joined(told))
        cells.append(None if classes.cells == length else classes)
    return CellCounts(axes, tuple(cells), tuple(_lengths(axes, cells, shape)))


def _joined(told: Sequence[Array]) -> Array:
    """A label for each combination of labels."""
    joined = np.asarray(told[0])
    for labels in told[1:]:
        _, first = np.unique(joined, return_inverse=True)
        distinct, second = np.unique(labels, return_inverse=True)
        joined = first * len(distinct) + second
    return joined


def _lengths(axes: Sequence[int], cells: Sequence[Partition | None], shape: Sequence[int]) -> Iterator[int]:
    return (shape[axis] if own is None else own.cells for axis, own in zip(axes, cells, strict=True))


def _told(tally: Tally, needed: CellCounts, counts: IntArray) -> Any:
    """The numbers of a tally from the counts of its classes: each class is told by its least value."""
    asked = _counted_by(tally)
    classes = {axis: own for axis, own in zip(needed.axes, needed.cells, strict=True) if own is not None}
    summed = {axis for axis, _ in needed.factors}
    among = asked.among
    if among is not None:
        axes, selection = among
        for place, axis in enumerate(axes):
            selection = selection.take(classes[axis].members, axis=place) if axis in classes else selection
        among = axes, selection
    by_classes = CellCounts(
        asked.axes,
        tuple(
            own if own is None or axis not in classes else Partition.some(own.at(classes[axis].members))
            for axis, own in zip(asked.axes, asked.cells, strict=True)
        ),
        asked.shape,
        tuple((axis, _chosen(chosen, classes.get(axis))) for axis, chosen in asked.where),
        among,
        tuple((axis, _weights(weights, classes.get(axis))) for axis, weights in asked.factors if axis not in summed),
    )
    numbers = by_classes.of_marginal(counts)
    return int(numbers) if isinstance(tally, Contraction) else numbers


def _chosen(chosen: Members, classes: Partition | None) -> Members:
    """The classes whose values are chosen."""
    return chosen if classes is None else np.flatnonzero(Axis(classes.size, chosen).at(classes.members))


def _weights(weights: IntArray, classes: Partition | None) -> IntArray:
    """The weights of classes; values beyond those that are named weigh nothing."""
    if classes is None:
        return weights
    least = classes.members
    return np.where(least < len(weights), weights[np.minimum(least, len(weights) - 1)], 0)


def _same_factors(one: CellCounts, other: CellCounts) -> bool:
    return len(one.factors) == len(other.factors) and all(
        mine == theirs and np.array_equal(weights, others)
        for (mine, weights), (theirs, others) in zip(one.factors, other.factors, strict=True)
    )


def _covers(known: CellCounts, needed: CellCounts) -> bool:
    """Whether counts follow from known ones."""
    classes = dict(zip(known.axes, known.cells, strict=True))
    if not classes.keys() >= set(needed.axes) or not _same_factors(known, needed):
        return False
    for axis, own in zip(needed.axes, needed.cells, strict=True):
        finer = classes[axis]
        if finer is not None and (own is None or not finer.refines(own)):
            return False
    return True


def _coarsened(known: CellCounts, needed: CellCounts, counts: IntArray) -> IntArray:
    """Counts that follow from known ones."""
    wanted = dict(zip(needed.axes, needed.cells, strict=True))
    for place, (axis, finer) in reversed(list(enumerate(zip(known.axes, known.cells, strict=True)))):
        if axis not in wanted:
            counts = counts.sum(axis=place, dtype=np.int64)
            continue
        own = wanted[axis]
        if own is not None and own != finer:
            counts = (own if finer is None else own.over(finer)).summed(counts, place)
    return np.asarray(counts, np.int64)


def _together(one: CellCounts, other: CellCounts) -> CellCounts | None:
    """Counts from which two follow; None where they would be of too many classes."""
    if not _same_factors(one, other):
        return None
    classes = dict(zip(one.axes, zip(one.cells, one.shape, strict=True), strict=True))
    for axis, cells, length in zip(other.axes, other.cells, other.shape, strict=True):
        known = classes.get(axis)
        if known is None:
            classes[axis] = cells, length
        elif known[0] is not None and cells is None:
            classes[axis] = None, length
        elif known[0] is not None and cells is not None and known[0] != cells:
            met = known[0].met(cells)
            classes[axis] = (None if met.cells == met.size else met), met.cells
    if math.prod(length for _, length in classes.values()) > MOST_TOGETHER:
        return None
    axes = tuple(sorted(classes))
    return replace(
        one, axes=axes, cells=tuple(classes[axis][0] for axis in axes), shape=tuple(classes[axis][1] for axis in axes)
    )
