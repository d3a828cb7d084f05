"""Attributes of tables as they are declared: categories, codes, bins, numbers on a grid, dates.

Every attribute is an axis: a place for each of its values, and one more, the last, where records without a value are
kept if the declaration says that there may be such.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import chain, pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from app.declarations.models import Model, Number, Whole

#: What stands beside attributes in conditions.
CONNECTIVES = ("all", "any", "not")
#: No declared axis is longer than this, so that sizes stay plain integers everywhere.
MAX_AXIS = 2**31 - 1
#: The most numbers on the grid of one attribute, and the most bins or dates.
MAX_NUMBERS = 1 << 20
#: The most steps of its grid that a weight may be: times a number on a grid it is a 64-bit integer still.
MAX_WEIGHT = 1 << 31
#: The largest number that may be declared on a grid: a sum of 2^40 of them is a 64-bit float still.
_LARGEST = 2**40
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

#: Groups of categories lie within one another at most so deep.
MAX_LEVELS = 32

#: What an attribute is: what tells its values apart.
Kind = Literal["codes", "categories", "bins", "numbers", "dates"]


def check_trimmed(names: tuple[str, ...], what: str) -> None:
    """Files are read without the white space around names: two that differ in nothing else would be one."""
    if any(name != name.strip() for name in names):
        raise ValueError(f"{what} must not begin or end with white space")


def branches(levels: Any, groups: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The categories of a tree of groups, each behind the names of the groups that it is in, the largest first.

    Raises:
        ValueError: when a group holds anything but a list of categories or further groups, or they are too deep.
    """
    if not isinstance(levels, dict | list | tuple) or not levels:
        raise ValueError("levels: a group holds a list of values, or an object of further groups, and not nothing")
    if len(groups) > MAX_LEVELS:
        raise ValueError(f"levels: groups lie within one another at most {MAX_LEVELS} deep")
    if isinstance(levels, dict):
        for name, group in levels.items():
            yield from branches(group, (*groups, name))
    else:
        yield from ((groups, value) for value in levels)


class Attribute(Model):
    """One attribute of a table.

    Integer codes have a ``size``, categories their ``values``, which ``levels`` may put into groups within groups: an
    object of groups by name, each a list of categories or an object of further groups. Numbers lie between ``lower``
    and ``upper``: in half-open bins, the last one closed (``bins`` makes equal ones, ``edges`` names them all; with
    integer bounds and neither they are one unit wide), or with a ``grid``, on which each is kept as it is and both
    bounds are values; bins are then how such an attribute is counted where nothing else is asked. Dates lie between
    two, both of which are values, and are kept ``by`` day, month or year.
    """

    name: str = Field(min_length=1, max_length=128)
    size: Whole | None = Field(default=None, ge=1, le=MAX_AXIS, description="integer codes 0..size-1")
    values: Annotated[tuple[str | int, ...], Field(fail_fast=True)] | None = Field(
        default=None, min_length=1, max_length=1_000_000, description="categories"
    )
    levels: dict[str, Any] | None = Field(
        default=None, description="groups of all categories by name, each a list of values or an object of groups"
    )
    lower: Number | None = Field(default=None, description="the least number")
    upper: Number | None = Field(default=None, description="the largest number")
    grid: Number | None = Field(default=None, gt=0, description="numbers are kept as whole multiples of it from lower")
    bins: Whole | None = Field(default=None, ge=1, le=1_000_000, description="so many bins of equal width")
    edges: Annotated[tuple[Number, ...], Field(fail_fast=True)] | None = Field(
        default=None, min_length=2, max_length=1_000_001, description="the edges of all bins"
    )
    dates: tuple[str, str] | None = Field(default=None, description="the first and the last date, YYYY-MM-DD")
    by: Literal["day", "month", "year"] | None = Field(default=None, description="what dates are told apart by")
    missing: Literal[True] | None = Field(default=None, description="whether a record may be without a value")
    role: Literal["weight"] | None = Field(
        default=None,
        description="weight: the attribute is how many a record stands for, in questions that are weighted",
    )
    outside: Literal["clamp", "drop", "refuse"] | None = Field(
        default=None,
        description="what becomes of a value outside of the declaration: numbers and dates are moved to the nearest "
        "bound (clamp), the record is left out (drop), or the file is refused; left out: what the table says",
    )
    column: str | None = Field(
        default=None, min_length=1, max_length=128, description="of a source: the column, where it has another name"
    )

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        check_trimmed((value,), "an attribute's name")
        if value in CONNECTIVES:
            raise ValueError(f"{', '.join(CONNECTIVES)} are words of conditions: name the attribute otherwise")
        return value

    @field_validator("values", mode="before")
    @classmethod
    def _categories(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and any(isinstance(v, bool | float) for v in value):
            raise ValueError("categories are strings or integers")
        if isinstance(value, list | tuple) and any(isinstance(v, int) and abs(v) >= 2**53 for v in value):
            raise ValueError("integers from 2^53 on are no JSON numbers: declare them as strings")
        return value

    @field_validator("missing", mode="before")
    @classmethod
    def _missing(cls, value: Any) -> Any:
        # One written form: what is not so is not said.
        return None if value is False else value

    @field_validator("dates")
    @classmethod
    def _dates(cls, value: tuple[str, str] | None) -> tuple[str, str] | None:
        if value is not None:
            for text in value:
                day(text)
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        numeric = any(v is not None for v in (self.lower, self.upper, self.grid, self.bins, self.edges))
        if (self.size is not None) + (self.values is not None) + (self.dates is not None) + numeric != 1:
            raise ValueError("give exactly one of size, values, or lower and upper (or edges), or dates")
        if self.values is not None and len(set(map(str, self.values))) != len(self.values):
            raise ValueError("values must be distinct")
        if (self.dates is None) != (self.by is None):
            raise ValueError("dates are given with by: day, month or year")
        if numeric:
            self._check_numeric()
        if self.dates is not None and not 0 < self.places <= MAX_NUMBERS:
            raise ValueError(f"dates: the first, then the last, and no more than {MAX_NUMBERS:,} apart")
        if self.levels is not None:
            self._check_levels(self.levels)
        if self.role is not None:
            self._check_weight()
        if self.outside == "clamp" and not (numeric or self.dates is not None):
            raise ValueError("outside: only numbers and dates have a nearest bound: use drop or refuse")
        return self

    def _check_weight(self) -> None:
        if self.kind != "numbers":
            raise ValueError("role: a weight is a number on a grid: declare lower, upper and grid")
        if self.bounds[0] < 0 or self.bounds[0] % self.step:
            raise ValueError("role: a weight is not negative, and a whole multiple of grid: change lower")
        if self.bounds[1] / self.step > MAX_WEIGHT:
            raise ValueError(f"role: a weight is at most {MAX_WEIGHT:,} times grid: declare a coarser grid")
        if self.missing:
            raise ValueError("role: every record has a weight: leave missing out, and records without one are outside")

    def _check_levels(self, levels: dict[str, Any]) -> None:
        if self.values is None:
            raise ValueError("levels: groups are of categories: declare them as values, or leave levels out")
        ways = list(branches(levels))
        found = [value for _, value in ways if isinstance(value, str | int) and not isinstance(value, bool)]
        if len(found) < len(ways) or not set(found) <= set(self.values):
            raise ValueError("levels: a list holds what is not among values: add it there, or take it out of the list")
        if len(set(found)) < len(found):
            raise ValueError("levels: a value is listed more than once: each is in one group")
        if len(found) < len(self.values):
            left = set(self.values).difference(found)
            number = next(k for k, value in enumerate(self.values) if value in left)
            raise ValueError(f"levels: values.{number} is in no group, of {len(left):,} such: put each value into one")
        # Groups by where they are: each has a name of its own, and answers tell nodes by the names that lead to them.
        groups = {names[:depth] for names, _ in ways for depth in range(1, len(names) + 1)}
        names = [group[-1] for group in groups]
        check_trimmed(tuple(names), "levels: the name of a group")
        if any(not name or "/" in name for name in names):
            raise ValueError('levels: a group has a name, and none with "/", which joins names in answers')
        if len(set(names)) < len(names) or not set(map(str, self.values)).isdisjoint(names):
            raise ValueError("levels: a group is called as another group or a value is: call it otherwise")
        largest = Counter(names[0] for names, _ in ways)
        if len(largest) < 2 or max(largest.values()) < 2:
            raise ValueError(
                "levels: one group of all values, or none of several, says nothing that values do not: name groups "
                "that divide the values, or leave levels out"
            )

    def _check_numeric(self) -> None:
        if self.edges is not None:
            if self.bins is not None:
                raise ValueError("give bins or edges, not both")
            if any(b <= a for a, b in pairwise(self.edges)):
                raise ValueError("edges must increase strictly")
            for pair in pairwise(self.edges):
                _check_told_apart(pair[1] - pair[0], *pair)
            if self.lower not in (None, self.edges[0]) or self.upper not in (None, self.edges[-1]):
                raise ValueError("lower and upper must be the first and the last edge")
        else:
            if self.lower is None or self.upper is None:
                raise ValueError("a numeric attribute needs lower and upper, or edges")
            if self.upper <= self.lower:
                raise ValueError("upper must be above lower")
        if self.grid is not None:
            self._check_grid()
        elif self.bins is None and self.edges is None:
            assert self.lower is not None
            assert self.upper is not None
            if self.lower != int(self.lower) or self.upper != int(self.upper):
                raise ValueError("bins or edges are needed unless lower and upper are integers")
            if self.upper - self.lower > 1_000_000:
                raise ValueError("more than 1,000,000 unit bins: declare bins or edges")
            _check_told_apart(Decimal(1), self.lower, self.upper)
        elif self.bins is not None:
            assert self.lower is not None
            assert self.upper is not None
            _check_told_apart((self.upper - self.lower) / self.bins, self.lower, self.upper)

    def _check_grid(self) -> None:
        low, high = self.bounds
        steps = (high - low) / self.step
        if steps.denominator != 1:
            raise ValueError("upper must be a whole number of grid steps above lower")
        if steps >= MAX_NUMBERS:
            raise ValueError(f"more than {MAX_NUMBERS:,} numbers on the grid: declare a coarser grid")
        if max(abs(low), abs(high)) > _LARGEST or self.step < Fraction(1, 2**30):
            raise ValueError("numbers on a grid lie within 2^40, and their grid is 2^-30 at least: use other units")
        if self.bins is not None or self.edges is not None:
            edge_at, step = self.edge_at(), self.step
            places = (-((low - edge_at(i)) // step) for i in range(self.bin_count))
            if any(b <= a for a, b in pairwise(chain(places, [int(steps) + 1]))):
                raise ValueError("a bin holds no number of the grid: declare fewer or wider bins")

    @property
    def kind(self) -> Kind:
        """The kind of its values."""
        if self.size is not None:
            return "codes"
        if self.values is not None:
            return "categories"
        if self.dates is not None:
            return "dates"
        return "bins" if self.grid is None else "numbers"

    @property
    def unit_bins(self) -> bool:
        """Whether its bins are one wide, between integers."""
        return self.kind == "bins" and self.bins is None and self.edges is None

    @property
    def length(self) -> int:
        """Number of places along this attribute's axis, that of records without a value included."""
        return self.places + bool(self.missing)

    @property
    def places(self) -> int:
        """Number of declared values."""
        if self.size is not None:
            return self.size
        if self.values is not None:
            return len(self.values)
        if self.dates is not None:
            first, last = (self.period(day(text)) for text in self.dates)
            return last - first + 1
        if self.grid is not None:
            low, high = self.bounds
            return int((high - low) / self.step) + 1
        if self.edges is not None:
            return len(self.edges) - 1
        if self.bins is not None:
            return self.bins
        low, high = self.bounds
        return int(high - low)

    @property
    def bounds(self) -> tuple[Fraction, Fraction]:
        """The least and the largest number of a numeric attribute."""
        if self.edges is not None:
            return Fraction(self.edges[0]), Fraction(self.edges[-1])
        assert self.lower is not None
        assert self.upper is not None
        return Fraction(self.lower), Fraction(self.upper)

    @property
    def step(self) -> Fraction:
        """The grid of an attribute of kind ``numbers``."""
        assert self.grid is not None
        return Fraction(self.grid)

    @property
    def bin_count(self) -> int:
        """Number of declared bins of a numeric attribute; none on a grid without bins."""
        if self.edges is not None:
            return len(self.edges) - 1
        return self.bins or (0 if self.grid is not None else self.places)

    def edge_at(self) -> Callable[[int], Fraction]:
        """A function that gives the exact edges of the declared bins, of which there are one more than bins, by their
        numbers.

        They may be a million: all of them at once take hundreds of megabytes.
        """
        edges = self.edges
        if edges is not None:
            return partial(_listed, edges)
        low, high = self.bounds
        width = (high - low) / self.bin_count
        return partial(_even, low, width)

    def period(self, date: datetime.date) -> int:
        """The number of the day, month or year that a date lies in."""
        if self.by == "day":
            return date.toordinal()
        return date.year * 12 + date.month - 1 if self.by == "month" else date.year

    def begins(self, period: int) -> datetime.date:
        """The first day of the period of a number."""
        if self.by == "day":
            return datetime.date.fromordinal(period)
        return datetime.date(period // 12, period % 12 + 1, 1) if self.by == "month" else datetime.date(period, 1, 1)


# Not within a method: a release's declaration goes to another process.
def _listed(edges: tuple[Number, ...], number: int) -> Fraction:
    return Fraction(edges[number])


def _even(low: Fraction, width: Fraction, number: int) -> Fraction:
    return low + number * width


def _check_told_apart(width: Decimal, lower: Decimal, upper: Decimal) -> None:
    """Refuse a bin that is so narrow that numbers beside it are rounded into it.

    Raises:
        ValueError: saying so.
    """
    if width < max(abs(lower), abs(upper)) / 2**48:
        raise ValueError("bins are narrower than numbers can tell apart: declare fewer, or of smaller numbers")


def day(text: str) -> datetime.date:
    """The day that a text says as YYYY-MM-DD.

    Raises:
        ValueError: when it says none.
    """
    try:
        # The week of a year is a date of the standard, too, and of as many characters.
        if not _DAY.fullmatch(text):
            raise ValueError
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError("a date is written as 2020-01-31") from None
