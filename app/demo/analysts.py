"""Analysts that choose queries by what was released so far. They know only public facts.

An analyst is a generator: it yields a query and is sent the answer. It never ends by itself.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.demo.data import Axis, Codes, Flags

Floats = NDArray[np.float64]

Where = dict[str, tuple[int, int]]
PredicateAnalyst = Generator[Where, float, None]
CutAnalyst = Generator[tuple[Flags, Flags], float, None]


def _parts(axis: Axis, where: Where) -> list[tuple[int, int]]:
    """The ranges that a question may be narrowed to on one axis: halves if it is ordered, else its cells."""
    low, high = where.get(axis.name, (0, axis.cells))
    if high - low < 2:
        return []
    if axis.ordered:
        middle = (low + high) // 2
        return [(low, middle), (middle, high)]
    return [(cell, cell + 1) for cell in range(low, high)]


@dataclass(order=True)
class _Lead:
    """A predicate worth narrowing; the most surprising first."""

    rank: float
    order: int
    where: Where
    answer: float
    untried: list[str]


def drill_down(axes: Sequence[Axis], records: int, rng: np.random.Generator) -> PredicateAnalyst:
    """Follow surprises: narrow the predicates whose answers differ most from what independence predicts.

    Every attribute's cells are asked first. From then on the most surprising predicate is narrowed by an
    attribute it does not pin down yet; each part's answer is compared with its parent's answer times the
    part's own share of all records, and the difference is the part's surprise. No question is asked twice.
    """
    by_name = {axis.name: axis for axis in axes}
    shares = {axis.name: np.full(axis.cells, 1.0 / axis.cells) for axis in axes}
    asked: set[tuple[tuple[str, tuple[int, int]], ...]] = set()
    orders = itertools.count()
    leads: list[_Lead] = []

    def lead(where: Where, answer: float, surprise: float) -> None:
        untried = [axis.name for axis in axes if _parts(axis, where)]
        if untried:
            rng.shuffle(untried)
            heapq.heappush(leads, _Lead(-surprise, next(orders), where, answer, untried))

    for axis in axes:
        for cell in range(axis.cells):
            where = {axis.name: (cell, cell + 1)}
            asked.add(tuple(where.items()))
            answer = yield where
            shares[axis.name][cell] = max(answer, 1.0) / records
            lead(where, answer, answer / 2)

    while True:
        if not leads:  # every predicate has been asked: begin again
            asked.clear()
            lead({}, float(records), float(records))
        parent = heapq.heappop(leads)
        axis = by_name[parent.untried.pop()]
        if parent.untried:
            parent.rank /= 2
            heapq.heappush(leads, parent)
        low, high = parent.where.get(axis.name, (0, axis.cells))
        whole = shares[axis.name][low:high].sum()
        for part in _parts(axis, parent.where):
            where = {**parent.where, axis.name: part}
            key = tuple(sorted(where.items()))
            if key in asked:
                continue
            asked.add(key)
            answer = yield where
            expected = parent.answer * shares[axis.name][slice(*part)].sum() / whole
            lead(where, answer, abs(answer - expected))


def grow_cuts(left: int, right: int, rng: np.random.Generator) -> CutAnalyst:
    """Hunt for the cuts that a graph of even density would explain least.

    The first answer gives the density. A hunt starts from all nodes, or from a random interval on either
    side; then an interval of one side joins or leaves the cut, and the change is kept when it moves the
    answer further from ``density * |S||T|``, upward or downward as the hunt goes. Intervals shrink while
    nothing is found; after the smallest a new hunt starts. Numbers of nodes often mean something (age, place
    in a crawl), so intervals of them are worth a question. No cut is asked twice, so the graph must have more
    of them than will be asked.
    """
    known: dict[tuple[bytes, bytes], float] = {}
    total = yield np.ones(left, dtype=bool), np.ones(right, dtype=bool)
    density = total / (left * right)
    for hunt in itertools.count():
        sign = -1 if hunt % 2 else 1
        lengths = left, right
        if hunt < 2:
            sides = [np.ones(length, dtype=bool) for length in lengths]
        else:
            sides = [_interval(length, int(rng.integers(length // 4, length)), rng) for length in lengths]
        best = 0.0
        size = max(lengths) // 2
        while size >= max(lengths) // 64:
            found = False
            for _ in range(8):
                side = int(rng.integers(2))
                changed = list(sides)
                block = _interval(lengths[side], min(size, lengths[side]), rng)
                inside = bool(rng.integers(2))
                changed[side] = sides[side] | block if inside else sides[side] & ~block
                if (changed[side] == sides[side]).all():
                    continue
                cut = changed[0].tobytes(), changed[1].tobytes()
                if cut not in known:
                    known[cut] = yield changed[0], changed[1]
                answer = known[cut]
                surprise = sign * (answer - density * float(changed[0].sum()) * float(changed[1].sum()))
                if surprise > best:
                    sides, best, found = changed, surprise, True
            if not found:
                size //= 2


def _interval(length: int, size: int, rng: np.random.Generator) -> Flags:
    """A random run of ``size`` consecutive nodes."""
    start = int(rng.integers(length - size + 1))
    mask = np.zeros(length, dtype=bool)
    mask[start : start + size] = True
    return mask


def degree_cuts(degrees: tuple[Floats, Floats], rng: np.random.Generator) -> CutAnalyst:
    """Cuts between the nodes above a threshold on either side, or below it.

    Args:
        degrees: those released, of sources and of targets.
        rng: draws thresholds among these.
    """
    while True:
        sides = []
        for side in degrees:
            above = side >= np.quantile(side, rng.uniform(0.05, 0.95))
            sides.append(above if rng.integers(3) else ~above)
        yield sides[0], sides[1]


def group_cuts(groups: Codes, rng: np.random.Generator) -> CutAnalyst:
    """Cuts within some of the groups, or from some of them to others.

    Args:
        groups: the number of each node's group, known from elsewhere.
        rng: draws two groups or more, up to half of them.
    """
    count = int(groups.max()) + 1
    while True:
        left, right = (rng.permutation(count)[: int(rng.integers(2, count // 2 + 1))] for _ in range(2))
        yield np.isin(groups, left), np.isin(groups, left if rng.integers(2) else right)


class Told:
    """An analyst's guess from all that it was told of a graph: one of every pair of nodes.

    The guess begins with what released degrees let expect. Each answer moves the pairs of its cut alike, so that they
    add up to it (Frieze, Kannan 1999).

    Attributes:
        degrees: those released, of sources and of targets.
        moved: what answers moved the guess by, a row a source and a column a target.
    """

    def __init__(self, degrees: tuple[Floats, Floats]) -> None:
        self.degrees = degrees
        out, into = (np.maximum(side, 0.0) for side in degrees)
        self._expected = np.outer(out, into) / max(float(out.sum() + into.sum()) / 2, 1.0)
        self.moved = np.zeros_like(self._expected)

    def guess(self, left: Flags, right: Flags) -> float:
        """The guess of a cut."""
        pairs = np.ix_(left, right)
        return float(self._expected[pairs].sum() + self.moved[pairs].sum())

    def learn(self, left: Flags, right: Flags, answer: float) -> None:
        """Take in the answer to a cut neither side of which is empty."""
        pairs = float(left.sum()) * float(right.sum())
        self.moved[np.ix_(left, right)] += (answer - self.guess(left, right)) / pairs


def spectral_cuts(told: Told, rng: np.random.Generator) -> CutAnalyst:
    """Cuts along the leading singular vectors of what answers have told beyond degrees.

    Args:
        told: which somebody keeps up to date.
        rng: chooses among the first three pairs of vectors, their signs, and thresholds.
    """
    side = told.moved.shape[1]
    vectors = rng.normal(size=(side, 3))
    while True:
        # A power step from the vectors before is enough, as one answer changes little.
        left = np.linalg.qr(told.moved @ vectors)[0]
        vectors = np.linalg.qr(told.moved.T @ left)[0]
        which, sign = int(rng.integers(3)), int(rng.choice([-1, 1]))
        s, t = (sign * pair[:, which] for pair in (left, vectors))
        yield s >= np.quantile(s, rng.uniform(0.5, 0.9)), t >= np.quantile(t, rng.uniform(0.5, 0.9))
