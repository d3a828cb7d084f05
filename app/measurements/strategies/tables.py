"""Strategies: what one measurement releases, a vector of whole numbers with noise of one law and scale.

A strategy has parts. Each is a marginal, and in each of its cells either the number of records or a moment of a number
that the records have: the sum of a weight that depends on the number alone. Or it is combinations of the numbers of
records: contrasts, which sum to zero along each axis, or sums with whole weights, one for each row of a matrix. A part
is multiplied by a whole number before noise is added, which divides what the budget buys among parts: what a record
moves it by is the multiplier times what it moves the numbers by. A measurement of several parts is their composition:
what it costs is the sum of what each would cost by itself with the same noise.

The number of records and the sum of an attribute beside each other are such a strategy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from app.measurements.noise import Law
from app.measurements.pricing import Adjacency, Events, answer
from app.measurements.rows import Rows, Sensitivity, centred, contrast_sensitivity
from app.measurements.strategy import Strategy
from app.spaces.counts import CellCounts, Tally
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal
from app.spaces.space import Space
from app.spaces.tensor import FloatArray, IntArray

#: Bits of the largest weight of a second moment: times a multiplier sums over 2^31 records are 64-bit integers still.
_MOST_WEIGHT_BITS = 26
#: An attribute has at most so many numbers, and weights of records are at most so many steps.
MOST_PLACES, _MOST_TIMES = 1 << 21, 1 << 31
#: A multiplier takes at most so many bits, and a strategy has at most so many parts.
_MOST_MULTIPLIER_BITS, _MOST_PARTS = 40, 128
#: Rows are over at most so many cells: estimates from them take a matrix of cells by cells.
MOST_ROW_CELLS = 1 << 11
#: Multipliers that are to have a ratio to one another are so large that rounding hardly changes it.
_FINE = 16
#: Sums of whole numbers stay below this power of two.
EXACT_BITS = 62


@dataclass(frozen=True)
class Times:
    """Numbers of an attribute on a grid that are whole multiples of its step, and not negative: weights of records.

    Attributes:
        axis: of the attribute.
        least: its least number, in steps.
        places: how many numbers it has.

    Raises:
        ValueError: for numbers that no attribute has, or that are 2^31 steps or more.
    """

    axis: int
    least: int
    places: int

    def __post_init__(self) -> None:
        if not (self.axis >= 0 and 0 <= self.least < _MOST_TIMES and 2 <= self.places <= MOST_PLACES):
            raise ValueError("weights are numbers of an attribute that are not negative")

    @property
    def weights(self) -> IntArray:
        """Each number, in steps."""
        return self.least + np.arange(self.places, dtype=np.int64)

    @property
    def largest(self) -> int:
        """The largest of them."""
        return self.least + self.places - 1

    def document(self) -> dict[str, int]:
        """As JSON."""
        return {"axis": self.axis, "least": self.least, "places": self.places}


@dataclass(frozen=True)
class Moment:
    """A weight of every number of an attribute on a grid, whole and fixed by the declaration alone.

    With u the number of grid steps from the middle of the declared range and h the largest of these, the first moment
    weighs u, and the second one u^2 less half of h^2, divided by a power of two where that would take more than 26
    bits, and rounded. So the largest weight is h and about half of h^2. Records without a value weigh nothing. A record
    may weigh as many times as much as its number of another attribute says; the moment of power 0, which weighs one,
    is there to be multiplied so. The steps of the first moment may be counted from an end of the range, too: beside
    those from the other end they tell the number of records and the sum of u, and a record adds to both together as
    many steps as there are from end to end.

    Attributes:
        axis: of the attribute.
        places: how many numbers there are; behind them an axis may have a place for records without a value.
        power: 0, 1 or 2.
        times: the numbers of another attribute by which each record's weight is multiplied.
        end: the end of the range that steps are counted from, the least number or the greatest; None for the middle.

    Raises:
        ValueError: for another power, a number of places that no attribute has, one attribute twice, or an end of what
            is no first moment of one attribute.
    """

    axis: int
    places: int
    power: Literal[0, 1, 2]
    times: Times | None = None
    end: Literal["least", "greatest"] | None = None

    def __post_init__(self) -> None:
        powers = (1, 2) if self.times is None else (0, 1, 2)
        if self.power not in powers or not 2 <= self.places <= MOST_PLACES or self.axis < 0:
            raise ValueError("a moment is the first or the second of an attribute of two numbers or more")
        if self.times is not None and self.times.axis == self.axis:
            raise ValueError("a moment is weighed by the numbers of another attribute")
        if self.end not in (None, "least", "greatest") or (self.end and (self.power != 1 or self.times is not None)):
            raise ValueError("first moments alone are counted from the least or the greatest number")

    @property
    def opposite(self) -> Moment | None:
        """What counts steps from the other end; None where this counts from the middle."""
        if self.end is None:
            return None
        return replace(self, end="least" if self.end == "greatest" else "greatest")

    @property
    def middle(self) -> int:
        """The place that u is counted from."""
        return (self.places - 1) // 2

    @property
    def half(self) -> int:
        """h: the most grid steps between a number and the middle."""
        return self.places - 1 - self.middle

    @property
    def offset(self) -> int:
        """The number that is taken off squares before they are weights."""
        return self.half**2 // 2 if self.power == 2 else 0

    @property
    def shift(self) -> int:
        """Weights are in units of 2^shift."""
        return max(0, (self.half**2).bit_length() - 1 - _MOST_WEIGHT_BITS) if self.power == 2 else 0

    @lazy
    def weights(self) -> IntArray:
        """The weight of each number, in units of 2^shift."""
        steps = np.arange(self.places, dtype=np.int64)
        if self.end is None:
            steps -= self.middle
        elif self.end == "greatest":
            steps = steps[::-1]
        weights = steps**self.power - self.offset
        if self.shift:
            weights = (weights + (1 << (self.shift - 1))) >> self.shift
        weights.setflags(write=False)
        return weights

    @property
    def factors(self) -> tuple[tuple[int, IntArray], ...]:
        """The attributes whose numbers a record is weighed by, each with its weights: it weighs their product."""
        own = (self.axis, self.weights)
        return (own,) if self.times is None else (own, (self.times.axis, self.times.weights))

    @lazy
    def largest(self) -> int:
        """The largest absolute product of weights: what one record adds to a sum, or takes from it, at most."""
        return int(np.abs(self.weights).max()) * (1 if self.times is None else self.times.largest)

    def describe(self, space: Space) -> dict[str, Any]:
        """The attribute and the power, what it is multiplied by, and the end that steps are counted from."""
        told: dict[str, Any] = {"of": space.names[self.axis], "moment": self.power}
        if self.end is not None:
            told["from"] = self.end
        return told if self.times is None else told | {"times": space.names[self.times.axis]}

    def document(self) -> dict[str, Any]:
        """The moment as JSON."""
        document: dict[str, Any] = {"axis": self.axis, "places": self.places, "power": self.power}
        if self.end is not None:
            document["end"] = self.end
        return document if self.times is None else document | {"times": self.times.document()}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Moment:
        """The moment of a document.

        Raises:
            KeyError, TypeError, ValueError: when it is none.
        """
        own = {name: document[name] for name in ("axis", "places", "power")}
        times = {name: document["times"][name] for name in ("axis", "least", "places")} if "times" in document else None
        if any(type(value) is not int for value in (*own.values(), *(times or {}).values())):
            raise ValueError("not the document of a moment")
        moment = cls(**own, times=None if times is None else Times(**times), end=document.get("end"))
        if moment.document() != document:
            raise ValueError("not the document of a moment")
        return moment


@dataclass(frozen=True)
class Part:
    """Numbers of records in the cells of a marginal, or a moment or combinations of them, times a whole number.

    Attributes:
        marginal: whose cells are told apart.
        moment: what is summed in place of records.
        multiplier: what all values are multiplied by.
        residual: whether the numbers are made to sum to zero along each axis: with n cells along an axis they are
            multiplied by n, and the sum along the axis is taken off.
        rows: the whole weights of sums over all cells, row by row, that are released in place of the numbers.

    Raises:
        ValueError: for a multiplier that is not positive or takes more than 40 bits, for more than one of a moment,
            contrasts and rows, for contrasts of no attribute, and for rows over other cells or too many.
    """

    marginal: Marginal
    moment: Moment | None = None
    multiplier: int = 1
    residual: bool = False
    rows: Rows | None = None

    def __post_init__(self) -> None:
        if type(self.multiplier) is not int or not 0 < self.multiplier < 1 << _MOST_MULTIPLIER_BITS:
            raise ValueError("a multiplier is a positive whole number")
        if (self.moment is not None) + self.residual + (self.rows is not None) > 1:
            raise ValueError("a part is counts, a moment, contrasts or rows")
        if self.residual and not self.marginal.attributes:
            raise ValueError("contrasts are of a marginal of one attribute or more")
        if self.rows is not None and not self.marginal.cells == self.rows.cells <= MOST_ROW_CELLS:
            raise ValueError(f"rows are over the cells of their marginal, at most {MOST_ROW_CELLS}")

    @property
    def counts(self) -> bool:
        """Whether it is the numbers of records as they are, but for the multiplier."""
        return self.moment is None and not self.residual and self.rows is None

    @property
    def cells(self) -> int:
        """Number of values that are released."""
        return self.marginal.cells if self.rows is None else self.rows.count

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is released."""
        return self.marginal.shape if self.rows is None else (self.rows.count,)

    @lazy
    def sensitivity(self) -> Sensitivity:
        """The sensitivity of the values to one record, in the units that are released. Exact: of counts and moments it
        is in one cell.
        """
        if self.residual:
            one = contrast_sensitivity(self.marginal)
        elif self.rows is not None:
            one = self.rows.sensitivity
        else:
            most = 1 if self.moment is None else self.moment.largest
            one = Sensitivity(most, most**2)
        return Sensitivity(self.multiplier * one.absolute, self.multiplier**2 * one.squared)

    def against(self, other: Part) -> bool:
        """Whether it counts steps from one end of a range, and another part from the other."""
        return self.moment is not None and self.moment.end is not None and other.moment == self.moment.opposite

    def describe(self, space: Space) -> dict[str, Any]:
        """Of moments the attribute and the power, of rows how many there are."""
        names = [space.names[a] for a in self.marginal.attributes]
        shown: dict[str, Any] = {"attributes": names, "multiplier": self.multiplier}
        if self.residual:
            shown["residual"] = True
        elif self.rows is not None:
            shown["rows"] = self.rows.count
        moment = self.moment
        return shown if moment is None else shown | moment.describe(space)

    def document(self) -> dict[str, Any]:
        """The part as JSON."""
        moment = None if self.moment is None else self.moment.document()
        document = {"marginal": self.marginal.document(), "moment": moment, "multiplier": self.multiplier}
        if self.residual:
            document["residual"] = True
        return document if self.rows is None else document | {"rows": self.rows.document()}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Part:
        """The part of a document.

        Raises:
            KeyError, TypeError, ValueError: when it is none.
        """
        moment, residual = document["moment"], "residual" in document
        if residual and document["residual"] is not True:
            raise ValueError("what is no contrast does not say so")
        return cls(
            Marginal.read(document["marginal"]),
            None if moment is None else Moment.read(moment),
            document["multiplier"],
            residual,
            Rows.read(document["rows"]) if "rows" in document else None,
        )


@dataclass(frozen=True, eq=False)
class Draws:
    """Quantiles that were drawn by the exponential mechanism.

    Attributes:
        axis: the attribute of the numbers.
        levels: the parts of the records that lie below.
        places: what was drawn: a row a group, row by row of the marginal's other attributes, a column a level; -1 of
            groups that were not drawn for.
        scale: of the draws, in records.
    """

    axis: int
    levels: tuple[float, ...]
    places: IntArray
    scale: float

    def of(self, group: int) -> Iterator[tuple[float, int, float]]:
        """Of a group each level that was drawn for, what was drawn, and the variance of the number of records below."""
        for level, place in zip(self.levels, self.places[group].tolist(), strict=True):
            if place >= 0:
                yield level, place, 2 * self.scale**2


#: A part that was released, its values in its own shape, and what was drawn with them.
Told = tuple[Part, IntArray, Draws | None]
#: The same of what is likely to be released.
Likely = tuple[Part, Draws | None]


@dataclass(frozen=True)
class TableStrategy(Strategy):
    """The strategy of a table's parts: the cells of each, one part after another.

    Raises:
        ValueError: when it has no parts, or too many.
    """

    parts: tuple[Part, ...]
    listed = True

    def __post_init__(self) -> None:
        if not 0 < len(self.parts) <= _MOST_PARTS:
            raise ValueError(f"a strategy has from 1 to {_MOST_PARTS} parts")

    @classmethod
    def of(cls, marginal: Marginal) -> TableStrategy:
        """The numbers of records in the cells of a marginal."""
        return cls((Part(marginal),))

    @property
    def plain(self) -> Marginal | None:
        """The marginal whose records are counted, where that is all."""
        only = self.parts[0]
        return only.marginal if len(self.parts) == 1 and only.counts and only.multiplier == 1 else None

    @property
    def tag(self) -> str:
        """Counts of one marginal are written as such."""
        return "strategy" if self.plain is None else "marginal"

    @lazy
    def cells(self) -> int:
        """Number of values that are released, one part after another, each row by row."""
        return sum(part.cells for part in self.parts)

    @property
    def sensitivity(self) -> tuple[Sensitivity, ...]:
        """For each part what one record moves it by at most. Two that count steps from either end of a range stand in
        one place: what a record adds to the one more it adds to the other less, and it moves both together by no more
        than the larger of them can be moved. (docs/privacy.md, 9.4)
        """
        found: list[Sensitivity] = []
        left = list(self.parts)
        while left:
            part = left.pop(0)
            other = next((k for k, each in enumerate(left) if part.against(each)), None)
            both = [part.sensitivity] if other is None else [part.sensitivity, left.pop(other).sensitivity]
            found.append(Sensitivity(max(each.absolute for each in both), max(each.squared for each in both)))
        return tuple(found)

    def is_exact(self, capacity: int) -> bool:
        """Whether sums over so many records are 64-bit integers with room to spare, and all that they are made of: no
        partial sum, nor a number on the way to contrasts, passes what all records together move the values by."""
        return all((part.sensitivity.absolute * max(capacity, 1)).bit_length() < EXACT_BITS for part in self.parts)

    def check(self, space: Space) -> None:
        """Raise ValueError unless it is one of this table."""
        sizes = space.shape
        if space.kind != "table":
            raise ValueError("a graph or a matrix has no attributes to count by")
        for part in self.parts:
            own, moment = part.marginal, part.moment
            if any(a >= len(sizes) or sizes[a] != n for a, n in zip(own.attributes, own.sizes, strict=True)):
                raise ValueError("attributes are not those of this table")
            for axis, weights in () if moment is None else moment.factors:
                if axis >= len(sizes) or sizes[axis] not in (len(weights), len(weights) + 1):
                    raise ValueError("a moment is of an attribute of this table")

    def tallies(self, space: Space) -> tuple[Tally, ...]:
        """One a part."""
        return tuple(
            CellCounts.of(part.marginal, () if part.moment is None else part.moment.factors) for part in self.parts
        )

    def exact_of(self, space: Space, told: Sequence[Any]) -> IntArray:
        """The parts one after another, each row by row."""
        values = []
        for part, exact in zip(self.parts, told, strict=True):
            if part.residual:
                exact = centred(exact)
            elif part.rows is not None:
                exact = part.rows.matrix @ exact.reshape(-1)
            values.append(exact.reshape(-1) * part.multiplier)
        return np.concatenate(values)

    def told(self, units: IntArray) -> list[Told]:
        """What released values tell: parts that are independent of one another."""
        ends = list(itertools.accumulate(part.cells for part in self.parts))[:-1]
        each = zip(self.parts, np.split(units, ends), strict=True)
        return [(part, values.reshape(part.shape), None) for part, values in each]

    def likely(self, expected: Callable[[Marginal], FloatArray]) -> list[Likely]:
        """What is likely to be told, where so many records are expected in the cells of a marginal."""
        return [(part, None) for part in self.parts]

    def events(self, noise: Law, adjacency: Adjacency) -> Events:
        """Neighbours differ in at most gamma records: a part, or two that count from either end, moves by at most gamma
        times what one record moves it by, in L1 and in L2, by the triangle inequality. These compose (docs/privacy.md,
        9.4 and 9.5).
        """
        gamma = adjacency.gamma
        if noise.kind == "gaussian":
            return ((answer(noise, 0, gamma**2 * sum(sensitivity.squared for sensitivity in self.sensitivity)), 1),)
        return tuple((answer(noise, gamma * sensitivity.absolute, 0), 1) for sensitivity in self.sensitivity)

    def describe(self, space: Space) -> dict[str, Any]:
        """The attributes that are counted by, or the parts."""
        if self.plain is not None:
            shown: dict[str, Any] = {"type": "marginal", "attributes": [space.names[a] for a in self.plain.attributes]}
        else:
            shown = {"type": "parts", "parts": [part.describe(space) for part in self.parts]}
        return shown | {"cells": self.cells}

    def document(self) -> Any:
        """As JSON: the parts, or the marginal."""
        return [part.document() for part in self.parts] if self.plain is None else self.plain.document()

    @classmethod
    def read(cls, document: Sequence[Mapping[str, Any]]) -> TableStrategy:
        """The strategy of these parts.

        Raises:
            KeyError, TypeError, ValueError: when there is none.
        """
        strategy = cls(tuple(Part.read(part) for part in document))
        if strategy.plain is not None:
            raise ValueError("counts of one marginal are written as such")
        return strategy

    @classmethod
    def readers(cls) -> Mapping[str, Callable[[Any], Strategy]]:
        return {"marginal": cls.read_marginal, "strategy": cls.read}

    @classmethod
    def read_marginal(cls, document: Mapping[str, Any]) -> TableStrategy:
        """The counts of a marginal.

        Raises:
            ValueError: when it is none.
        """
        return cls.of(Marginal.read(document))


def shares(largest: Sequence[int], parts: Sequence[float]) -> tuple[int, ...]:
    """The multipliers with which parts get about these shares of what a measurement costs, to a tenth or so.

    They are as small as that allows: sums of what is multiplied must stay 64-bit integers.

    Args:
        largest: what one record moves each part by at most, before it is multiplied.
        parts: positive.
    """
    wanted = [math.sqrt(share) / most for share, most in zip(parts, largest, strict=True)]
    ratios = [ratio / min(wanted) for ratio in wanted]
    others = [ratio for ratio in ratios if ratio > 1]
    least = math.ceil(_FINE / min(others)) if others else 1
    return tuple(round(least * ratio) for ratio in ratios)
