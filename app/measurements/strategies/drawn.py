"""Quantiles that are drawn, and the numbers of records in ranges that are cut around what was drawn.

For each group and level the exponential mechanism (McSherry and Talwar 2007) draws one of an attribute's numbers: it
prefers those below which about the right part of the group's records lies. It knows where a quantile is to the last
digit, but not how well that is known. So the same measurement counts the records in a few ranges, which end near what
was drawn: where these ends are follows from the draws and from public things alone. Counts tell intervals, and they are
counts like any others afterwards.

Groups share no record, so that their draws cost what one does; levels and counts compose. (docs/privacy.md, 9.11)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from app.bisection import least_integer
from app.measurements.noise import Law, Sampler, written
from app.measurements.pricing import Adjacency, Events
from app.measurements.strategies.tables import EXACT_BITS, MOST_PLACES, Draws, Likely, Part, TableStrategy, Told
from app.measurements.strategy import Strategy
from app.privacy.costs import ExponentialChoice
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal, Partition, read_integers
from app.spaces.space import Space
from app.spaces.tensor import Array, FloatArray, IntArray

#: Levels are told to so many digits after the point.
LEVEL_DIGITS = 6
#: One in so many parts of the records between two marks is how far ends of ranges are told.
UNIT = 1 << 20
#: There are at most so many marks, draws, ranges, and blocks of numbers, all groups together, one of which is drawn.
MOST_MARKS, MOST_DRAWS, MOST_RANGES, MOST_BLOCKS = 256, 1 << 9, 256, 1 << 17
#: And so many blocks are looked at for all levels together, half a second.
MOST_SCORES = 1 << 19
#: Each range is so much wider than the one before it on the way from what was drawn, and from the sixth on.
_WIDER, _WIDE, _FEW = (3, 2), (2, 1), 5
#: In the place of what is drawn where nothing is.
_NONE = -1
#: The least and the greatest scale of a draw, in records.
_LEAST_SCALE, _GREATEST_SCALE = Decimal("1e-6"), Decimal(1 << 40)


@dataclass(frozen=True)
class DrawnQuantiles(TableStrategy):
    """The strategy of quantiles that are drawn.

    Attributes:
        parts: one: the records of each group, block by block of the numbers, which are looked at and not released.
        axis: the attribute of the numbers.
        places: how many numbers it has; behind them there may be a place for records that have none.
        levels: the parts of the records that lie below, in units of 10^-6.
        scale: of a draw, in records: a block is as likely as another to which the quantile is ``scale`` records nearer,
            divided by e.
        marks: places that divide the numbers into parts of about as many records, from 0 to the number of all.
        blocks: how many blocks there are between two marks at most; what is drawn is the middle of one.
        near: how much lies between what was drawn and the end of the first range on either side, in units of 1/UNIT of
            what lies between two marks, for each group; None of one that is not drawn for.
        most: there are at most so many ranges.

    Raises:
        ValueError: when it is none.
    """

    axis: int
    places: int
    levels: tuple[int, ...]
    scale: Decimal
    marks: tuple[int, ...]
    blocks: int
    near: tuple[int | None, ...]
    most: int

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = (self.axis, self.places, self.blocks, self.most, *self.levels, *self.marks, *filter(None, self.near))
        if any(type(number) is not int for number in numbers) or not isinstance(self.scale, Decimal):
            raise ValueError("quantiles are drawn of whole places, at a decimal scale")
        if self.marks[-1] != self.places or self.places < 2:
            raise ValueError("marks and blocks divide all numbers")
        if not (self.levels and _ascends((0, *self.levels, 10**LEVEL_DIGITS))):
            raise ValueError("levels ascend between zero and one")
        if len(self.levels) * self.groups.cells > MOST_DRAWS:
            raise ValueError(f"at most {MOST_DRAWS:,} quantiles are drawn")
        if not self.scale.is_finite() or not _LEAST_SCALE <= self.scale <= _GREATEST_SCALE:
            raise ValueError("the scale of a draw is out of range")
        fine, own = self.parts[0].marginal, self.parts == (Part(self.parts[0].marginal),)
        if not own or self.axis not in fine.attributes or fine.cells > MOST_BLOCKS:
            raise ValueError(f"quantiles are drawn of the numbers of records in at most {MOST_BLOCKS:,} blocks")
        if fine.cells * len(self.levels) > MOST_SCORES:
            raise ValueError(f"at most {MOST_SCORES:,} blocks are looked at for all levels")
        if fine.partition(self._along) != _divided(self._size, self._starts):
            raise ValueError("blocks are those between marks")
        steps = [near for near in self.near if near is not None]
        if len(self.near) != self.groups.cells or not steps or not 0 < min(steps) <= max(steps) <= MOST_MARKS * UNIT:
            raise ValueError("ranges are cut around the draws of groups")
        if not 2 <= self.most <= MOST_RANGES:
            raise ValueError(f"there are from 2 to {MOST_RANGES} ranges")

    @classmethod
    def of_groups(
        cls, groups: Marginal, axis: int, size: int, marks: tuple[int, ...], blocks: int, **others: Any
    ) -> DrawnQuantiles:
        """Of an attribute with so many values, in these groups.

        Raises:
            ValueError: when it is none.
        """
        if axis in groups.attributes:
            raise ValueError("groups are not told apart by the numbers that are drawn")
        if not (2 <= len(marks) <= MOST_MARKS + 1 and marks[0] == 0 and _ascends(marks) and size - marks[-1] in (0, 1)):
            raise ValueError("marks ascend from the first number to behind the last")
        # Held against what there may be before any is made.
        if blocks < 1 or _count(marks, blocks) * groups.cells > MOST_BLOCKS:
            raise ValueError(f"quantiles are drawn of the numbers of records in at most {MOST_BLOCKS:,} blocks")
        sizes, cells = dict(zip(groups.attributes, groups.sizes, strict=True)), _cells(groups)
        starts = _starts(marks, blocks, marks[-1] < size)
        fine = Marginal.of(sizes | {axis: size}, cells | {axis: _divided(size, starts)})
        return cls((Part(fine),), axis=axis, marks=marks, blocks=blocks, **others)

    @property
    def plain(self) -> None:
        """It is no counts of a marginal that was chosen before."""
        return None

    @property
    def tag(self) -> str:
        return "quantiles"

    @property
    def _along(self) -> int:
        """The place of the numbers among the attributes."""
        return self.parts[0].marginal.attributes.index(self.axis)

    @property
    def _size(self) -> int:
        """How many values the attribute has, with the one of records that have no number."""
        return self.parts[0].marginal.sizes[self._along]

    @lazy
    def _starts(self) -> IntArray:
        """Where blocks begin, and behind them where the values are that are no numbers."""
        return _starts(self.marks, self.blocks, self.places < self._size)

    @property
    def _missing(self) -> int:
        """One where records may have no number."""
        return self._size - self.places

    @lazy
    def groups(self) -> Marginal:
        """The groups that numbers are drawn for."""
        fine = self.parts[0].marginal
        return fine.onto(frozenset(fine.attributes) - {self.axis})

    @lazy
    def _drawn(self) -> IntArray:
        """The groups that are drawn for."""
        return np.array([group for group, near in enumerate(self.near) if near is not None], np.int64)

    @property
    def _counted(self) -> tuple[int, int]:
        """The numbers of groups, and of ranges of each at most."""
        return self.groups.cells, self.most + self._missing

    @lazy
    def cells(self) -> int:
        """What was drawn, a place a level for each group, and then the counts of its ranges."""
        groups, ranges = self._counted
        return groups * (len(self.levels) + ranges)

    def is_exact(self, capacity: int) -> bool:
        # Scores are records in units of the levels.
        return bool((10**LEVEL_DIGITS * max(capacity, 1)).bit_length() < EXACT_BITS)

    def events(self, noise: Law, adjacency: Adjacency) -> Events:
        """A record moves the score of a block by at most ``max(q, 1 - q)`` in its own group, and none in another: the
        draws of all groups together are one of bounded range, whichever groups a unit's records are in."""
        farthest = [Fraction(max(level, 10**LEVEL_DIGITS - level), 10**LEVEL_DIGITS) for level in self.levels]
        moved = 2 * adjacency.gamma / Fraction(self.scale)
        return (*super().events(noise, adjacency), *((ExponentialChoice(moved * far), 1) for far in farthest))

    def exact_of(self, space: Space, told: Sequence[Any]) -> IntArray:
        """The numbers of records, a row a group, a column a block."""
        counts: IntArray = np.moveaxis(told[0], self._along, -1)
        return counts.reshape(-1)

    def released(self, exact: Array, noise: Law, sampler: Sampler) -> Array:
        """Draws, and counts of ranges with noise."""
        own, unit = exact.reshape(self.groups.cells, -1), 10**LEVEL_DIGITS
        here = own[:, : own.shape[1] - self._missing]
        upto, middles = np.cumsum(here, axis=1), self._middles
        draws = np.full((len(own), len(self.levels)), _NONE)
        for group in self._drawn:
            before, below = upto[group] - here[group], upto[group]
            for k, level in enumerate(self.levels):
                goal = level * int(below[-1])
                score = np.minimum(np.minimum(goal - unit * before, unit * below - goal), 0)
                draws[group, k] = middles[sampler.choose(score, Fraction(self.scale) * unit)]
        # Draws of two levels may cross, and are the nearer to what they stand for in order.
        draws.sort(axis=1)
        counts = np.add.reduceat(own, np.searchsorted(self._starts, self._begins(draws)), axis=1)
        noisy = np.zeros(self._counted, np.int64)
        noisy[:, : counts.shape[1]] = noise.on(counts.reshape(-1), sampler).reshape(counts.shape)
        return np.concatenate([draws.reshape(-1), noisy.reshape(-1)])

    @property
    def _middles(self) -> IntArray:
        """The middle of each block."""
        starts = self._starts[: len(self._starts) - self._missing]
        return np.asarray((starts + np.append(starts[1:], self.places) - 1) // 2)

    def check_units(self, units: Array) -> None:
        super().check_units(units)
        draws, counts = self._split(units)
        own = draws[self._drawn]
        if not np.isin(own, self._middles).all() or np.count_nonzero(draws != _NONE) > own.size:
            raise ValueError("what was drawn is the middle of a block")
        if bool((np.diff(own, axis=1) < 0).any()):
            raise ValueError("what was drawn ascends with the levels")
        if bool(counts[:, len(self._begins(draws)) :].any()):
            raise ValueError("more counts than ranges")

    def _split(self, units: Array) -> tuple[IntArray, IntArray]:
        """What was drawn, a row a group, and what was counted."""
        groups, levels = self.groups.cells, len(self.levels)
        return units[: groups * levels].reshape(groups, levels), units[groups * levels :].reshape(self._counted)

    def told(self, units: IntArray) -> list[Told]:
        draws, counts = self._split(units)
        begins = self._begins(draws)
        part, along = self._ranges(begins), self._along
        shape = (*part.shape[:along], *part.shape[along + 1 :], len(begins))
        values = np.moveaxis(counts[:, : len(begins)].reshape(shape), -1, along)
        return [(part, values, self._draws(draws))]

    def likely(self, expected: Callable[[Marginal], FloatArray]) -> list[Likely]:
        """As if the quantiles of what is expected were drawn."""
        own = np.moveaxis(expected(self.parts[0].marginal), self._along, -1).reshape(self.groups.cells, -1)
        upto = np.cumsum(own[:, : own.shape[1] - self._missing], axis=1)
        goals = upto[:, -1:] * np.array(self.levels) / 10**LEVEL_DIGITS
        draws = np.full(goals.shape, _NONE)
        for group in self._drawn:
            draws[group] = self._middles[np.searchsorted(upto[group, :-1], goals[group])]
        return [(self._ranges(self._begins(draws)), self._draws(draws))]

    def _draws(self, draws: IntArray) -> Draws:
        return Draws(self.axis, tuple(level / 10**LEVEL_DIGITS for level in self.levels), draws, float(self.scale))

    def _ranges(self, begins: IntArray) -> Part:
        """The counts of groups, and of ranges that begin there within each."""
        fine = self.parts[0].marginal
        sizes = dict(zip(fine.attributes, fine.sizes, strict=True))
        return Part(Marginal.of(sizes, _cells(fine) | {self.axis: Partition.runs(self._size, begins)}))

    def _begins(self, draws: IntArray) -> IntArray:
        """Where ranges begin, which are cut around what was drawn: fine near it, and ever coarser. Of too many ends
        evenly many are left out."""
        marks, whole = np.array(self.marks), (len(self.marks) - 1) * UNIT
        draws = draws[self._drawn]
        cells = np.searchsorted(marks, draws, side="right") - 1
        # How much lies below the middle of what was drawn.
        middles = cells * UNIT + (2 * (draws - marks[cells]) + 1) * UNIT // (2 * (marks[cells + 1] - marks[cells]))
        goals = []
        for group, own in zip(self._drawn, middles, strict=True):
            offsets = _offsets(self.near[group] or 0, whole)
            goals += [(own[:, None] - offsets).reshape(-1), (own[:, None] + offsets).reshape(-1)]
        wanted = np.concatenate(goals)
        cells, parts = np.divmod(wanted[(wanted > 0) & (wanted < whole)], UNIT)
        ends = marks[cells] + (parts * (marks[cells + 1] - marks[cells]) + UNIT // 2) // UNIT
        starts = self._starts[: len(self._starts) - self._missing]
        inner = np.unique(starts[np.searchsorted(starts, ends[ends <= starts[-1]])])
        inner = inner[inner > 0]
        if not len(inner):
            inner = starts[len(starts) // 2 :][:1]
        if len(inner) >= self.most:
            inner = inner[np.arange(self.most - 1) * (len(inner) - 1) // max(self.most - 2, 1)]
        return np.concatenate([[0], inner, [self.places] * self._missing]).astype(np.int64)

    def describe(self, space: Space) -> dict[str, Any]:
        """The attribute, the groups, the levels, and how far off draws are."""
        return {
            "type": self.tag,
            "of": space.names[self.axis],
            "attributes": [space.names[a] for a in self.groups.attributes],
            "levels": [level / 10**LEVEL_DIGITS for level in self.levels],
            "scale": float(self.scale),
            "cells": self.cells,
        }

    def document(self) -> Any:
        return {
            "axis": self.axis,
            "blocks": self.blocks,
            "groups": self.groups.document(),
            "levels": list(self.levels),
            "marks": list(self.marks),
            "most": self.most,
            "near": list(self.near),
            "places": self.places,
            "scale": written(self.scale),
            "size": self._size,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> DrawnQuantiles:  # type: ignore[override]
        try:
            scale = Decimal(document["scale"])
        except InvalidOperation as error:
            raise ValueError("a scale is a decimal") from error
        if not 1 < document["size"] <= MOST_PLACES:
            raise ValueError("an attribute has two values or more, and not too many")
        found = cls.of_groups(
            Marginal.read(document["groups"]),
            document["axis"],
            document["size"],
            tuple(read_integers(document["marks"]).tolist()),
            document["blocks"],
            places=document["places"],
            levels=tuple(document["levels"]),
            scale=scale,
            near=tuple(document["near"]),
            most=document["most"],
        )
        if found.document() != document:
            raise ValueError("not the document of drawn quantiles")
        return found

    @classmethod
    def readers(cls) -> Mapping[str, Callable[[Any], Strategy]]:
        return {"quantiles": cls.read}


def _cells(marginal: Marginal) -> dict[int, Partition | None]:
    """The partition of each attribute of a marginal."""
    return dict(zip(marginal.attributes, marginal.partitions, strict=True))


def most_blocks(marks: Sequence[int], groups: int, levels: int) -> int:
    """The most blocks between two marks that so many groups and levels have few enough of; 0 where none are few enough.

    All numbers are blocks by themselves where that is possible.
    """
    widest = max(after - first for first, after in pairwise(marks))
    allowed = min(MOST_BLOCKS, MOST_SCORES // levels) // groups - 1
    return least_integer(lambda blocks: _count(marks, blocks) > allowed, 0, widest + 1) - 1


def _ascends(numbers: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _count(marks: Sequence[int], blocks: int) -> int:
    """How many blocks there are."""
    return sum(min(blocks, after - first) for first, after in pairwise(marks))


def _starts(marks: Sequence[int], blocks: int, missing: bool) -> IntArray:
    """Where blocks begin: between two marks so many, or each number by itself where there are no more."""
    found = [
        first + np.arange(min(blocks, after - first)) * (after - first) // min(blocks, after - first)
        for first, after in pairwise(marks)
    ]
    return np.concatenate([*found, [marks[-1]] * missing]).astype(np.int64)


def _divided(size: int, starts: IntArray) -> Partition:
    """The partition of an attribute's values into blocks."""
    return Partition.singles(size) if len(starts) == size else Partition.runs(size, starts)


def _offsets(step: int, whole: int) -> IntArray:
    """How far from what was drawn ranges end, up to so many units."""
    found: list[int] = []
    while step < whole:
        found.append(step)
        more, of = _WIDER if len(found) < _FEW else _WIDE
        step = step * more // of + 1
    return np.array(found, dtype=np.int64)
