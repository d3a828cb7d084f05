"""Drafts of declarations of tables: what an admin might declare, guessed from a summary of the file's columns.

A draft is made of private data. It is for the admin's eyes alone, who puts public knowledge in the place of what was
guessed before anything is registered: nothing here is kept, logged, or repeated in an error.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, get_args

from pydantic import ValidationError

from app.declarations.attributes import CONNECTIVES, MAX_NUMBERS, Attribute
from app.declarations.spec import MOST_ATTRIBUTES, NAME, Encoding

#: A column of more different texts, or of longer ones, is no attribute of a draft: nobody declares so many by hand.
MOST_LABELS, MOST_CHARACTERS = 100, 128
#: Whole numbers of no more different values are categories or codes, of more they are numbers.
MOST_CODES = 20
#: Decimals that are told apart; numbers with more are measured ones, for which a grid is chosen.
MOST_DECIMALS = 9
#: Bins of a drafted attribute at most; mostly there are at least half as many.
MOST_BINS = 20
#: Dates that lie further apart are kept by month.
MOST_DAYS = 3 * 366
#: A column of as many records, each with a value of its own, tells them apart.
LEAST_TOLD_APART = 20
#: The budget of a draft, which an admin must decide on.
PLACEHOLDER: Mapping[str, float] = {"epsilon": 1.0, "delta": 1e-9}
PLACEHOLDER_NOTE = (
    "budget: epsilon 1 and delta 1e-9 only hold the place: decide how much may be spent before you register, as it "
    "never changes afterwards"
)
#: What an admin is told of every draft.
DRAFTED_WARNING = (
    "the draft was made by reading the private file, and a declaration is public: a rare category, an extreme value or "
    "a date in it can tell of one person. Put in their place what is known without the data: whole code lists, bounds "
    "that any such data keep"
)
#: Names of columns that tell people apart, as their words are written.
_PEOPLE = re.compile(
    r"(?:^|[^a-z])(?:id|ids|uid|uuid|guid|ssn|pid|person|patient|people|user|customer|client|member|subject|employee|"
    r"student|household|participant|respondent)(?:$|[^a-z])"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class Numbers:
    """A summary of a column of numbers.

    Attributes:
        least: the least of them.
        largest: the largest.
        decimals: so many are written behind the point at most; None for more than :data:`MOST_DECIMALS`.
        few: the different ones, in order; None for more than :data:`MOST_LABELS`.
    """

    least: float = field(repr=False)
    largest: float = field(repr=False)
    decimals: int | None
    few: tuple[float, ...] | None = field(repr=False)

    @property
    def whole(self) -> bool:
        """Whether all are integers."""
        return self.decimals == 0


#: How cells may be written that are no numbers or dates as they stand, and what to do about it.
WRITTEN: Mapping[str, str] = {
    "days": "its cells look like dates that are written another way: write them as 2024-12-31",
    "thousands": "its cells look like numbers with separators of thousands: write them without",
    "units": "its cells look like numbers with a unit: write the numbers alone",
}


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """The facts of one column that a draft needs. Private: no representation has a value.

    Attributes:
        name: of the column.
        filled: cells with a value.
        empty: whether there are cells without one.
        labels: the different texts, in order; None for more than :data:`MOST_LABELS`, or ones that are too long.
        numbers: where every filled cell is a number.
        dates: the first and the last, where every filled cell is an ISO date.
        written: which of :data:`WRITTEN` every filled cell is, where they are no numbers or dates as they stand; None
            where they are none of these.
    """

    name: str
    filled: int = field(repr=False)
    empty: bool = field(repr=False)
    labels: tuple[str, ...] | None = field(default=None, repr=False)
    numbers: Numbers | None = field(default=None, repr=False)
    dates: tuple[datetime.date, datetime.date] | None = field(default=None, repr=False)
    written: str | None = None

    @property
    def many(self) -> bool:
        """Whether it has too many different values for categories."""
        return self._different is None or (self.filled > LEAST_TOLD_APART and self._different == self.filled)

    @property
    def _different(self) -> int | None:
        few = self.labels if self.numbers is None else self.numbers.few
        return None if few is None else len(few)


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a file that a declaration states.

    Attributes:
        names: of columns that it must have.
        encoding: of text; None for UTF-8.
        null_values: words that stand for no value.
    """

    names: tuple[str, ...] = ()
    encoding: str | None = None
    null_values: tuple[str, ...] = ()

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Layout:
        """The layout that a declaration states, as far as it states it soundly."""
        attributes, encoding, nulls = (declared.get(name) for name in ("attributes", "encoding", "null_values"))
        named = [item["name"] for item in _objects(attributes) if isinstance(item.get("name"), str)]
        words = [word for word in nulls if isinstance(word, str)] if isinstance(nulls, list) else []
        return cls(tuple(named), encoding if encoding in get_args(Encoding) else None, tuple(words))


def _objects(items: Any) -> list[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


@dataclass(frozen=True, slots=True)
class Draft:
    """A declaration as JSON, which need not be sound yet, and what to tell of how it came about."""

    spec: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...]


def name_of(text: str, otherwise: str = "dataset") -> str:
    """A usable name of a data set that resembles a text, such as the stem of a file's name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:64].rstrip("._-")
    return name if NAME.fullmatch(name) else otherwise


def to_draft(declared: Mapping[str, Any], columns: Sequence[str] | None) -> list[str] | None:
    """The columns that a draft must be made of: all but that of a unit where a table declares no attributes, else those
    of attributes that say nothing but their name (and whether they may be without a value). None where there are such
    and ``columns``, the file's, are not known.
    """
    attributes, unit = declared.get("attributes"), declared.get("unit")
    if attributes is None:
        person = unit.get("column") if isinstance(unit, Mapping) else None
        return None if columns is None else [name for name in columns if name != person]
    if not isinstance(attributes, list):
        return []
    names = [item["name"] for item in attributes if _says_nothing(item) and isinstance(item["name"], str)]
    if names and columns is None:
        return None
    return [name for name in dict.fromkeys(names) if name in (columns or ())]


def _says_nothing(item: Any) -> bool:
    return isinstance(item, Mapping) and "name" in item and item.keys() <= {"name", "missing", "outside"}


def completed(declared: Mapping[str, Any], stem: str, summaries: Sequence[ColumnSummary]) -> Draft:
    """A table's declaration with what it leaves out: name, kind, budget, and attributes drafted from the file.

    Args:
        declared: what there is of the declaration, parsed JSON of any soundness.
        stem: of the file's name.
        summaries: of the columns that :func:`to_draft` names.
    """
    notes: list[str] = []
    known = {summary.name: summary for summary in summaries}
    attributes = declared.get("attributes")
    if attributes is None:
        attributes = [{"name": summary.name} for summary in summaries]
    if isinstance(attributes, list):
        found: list[Any] = []
        for item in attributes:
            summary = known.get(item["name"]) if _says_nothing(item) and isinstance(item["name"], str) else None
            if summary is None:
                found.append(item)
                continue
            fields, told = attribute_of(summary)
            notes += [f'column "{summary.name[:MOST_CHARACTERS]}": {note}' for note in told]
            if fields is not None:
                found.append({**fields, **item})
        attributes = found
    if declared.get("attributes") is None and len(attributes) > MOST_ATTRIBUTES:
        notes.append(
            f"a table has at most {MOST_ATTRIBUTES} attributes: the last {len(attributes) - MOST_ATTRIBUTES} columns "
            "are left out"
        )
        attributes = attributes[:MOST_ATTRIBUTES]
    spec = {"name": name_of(stem), "kind": "table", "attributes": attributes, "budget": dict(PLACEHOLDER)}
    if "budget" not in declared:
        notes.append(PLACEHOLDER_NOTE)
    return Draft({**spec, **declared, "attributes": attributes}, tuple(notes))


def attribute_of(summary: ColumnSummary) -> tuple[dict[str, Any] | None, list[str]]:
    """The attribute that a column may be, as JSON, and what to tell of it; None where it is left out."""
    name = summary.name
    if not name or len(name) > 128 or name != name.strip() or name in CONNECTIVES:
        return None, ["left out: no attribute can have this name"]
    if not summary.filled:
        return None, ["left out: it has no values"]
    try:
        fields, notes = _fields(summary)
        if fields is None:
            return None, notes
        made = {"name": name, **fields, **({"missing": True} if summary.empty else {})}
        Attribute.model_validate(made)
    except (ValidationError, OverflowError):
        return None, ["left out: its numbers are too many, too large or too fine: declare bounds and bins yourself"]
    return made, notes


def _fields(summary: ColumnSummary) -> tuple[dict[str, Any] | None, list[str]]:
    numbers, labels = summary.numbers, summary.labels
    words = _HUMP.sub("_", summary.name).lower()
    if summary.many and summary.dates is None and (numbers is None or numbers.whole) and _PEOPLE.search(words):
        return None, [
            "left out: it seems to tell people apart. If one of them may have several records, declare it as the unit, "
            'with the most records that anybody may have: "unit": {"column": ..., "max_records": ...}'
        ]
    if summary.dates is not None:
        return _dates(*summary.dates), []
    if numbers is not None:
        if numbers.whole and numbers.few is not None and len(numbers.few) <= MOST_CODES:
            return _codes([int(number) for number in numbers.few]), []
        return rounded(numbers)
    if labels is None or summary.many:
        if summary.written is not None:
            return None, [f"left out: {WRITTEN[summary.written]}"]
        return None, [
            "left out: free text or an identifier, too many different texts for categories. Declare the categories "
            "yourself if there is a public list of them"
        ]
    return {"values": _spelled(labels)}, [] if summary.written is None else [WRITTEN[summary.written]]


def _codes(few: list[int]) -> dict[str, Any]:
    """Whole numbers that are 0 to some n are codes, others are values."""
    if few == list(range(len(few))) or few == [1]:
        # One of two codes may have no record yet.
        return {"size": max(2, len(few))}
    return {"values": few}


def _spelled(labels: Sequence[str]) -> list[str]:
    """Labels; of Booleans both, whichever there are, as any spelling of them is read."""
    if {label.strip().lower() for label in labels} <= {"false", "true"}:
        return ["false", "true"]
    return list(labels)


def _dates(first: datetime.date, last: datetime.date) -> dict[str, Any]:
    """Whole months of days, or whole years of months."""
    if (last - first).days <= MOST_DAYS:
        # The last day of a month is the one before the first day of the next.
        after = datetime.date(last.year + last.month // 12, last.month % 12 + 1, 1) if last.year < 9999 else None
        end = after - datetime.timedelta(1) if after is not None else datetime.date.max
        return {"dates": [first.replace(day=1).isoformat(), end.isoformat()], "by": "day"}
    return {"dates": [f"{first.year:04}-01-01", f"{last.year:04}-12-31"], "by": "month"}


def rounded(numbers: Numbers) -> tuple[dict[str, Any], list[str]]:
    """Bounds, grid and bins for numbers: bounds that are round and outside of all of them."""
    least, largest = (Fraction(Decimal(repr(bound))) for bound in (numbers.least, numbers.largest))
    grid = None if numbers.decimals is None else Fraction(1, 10**numbers.decimals)
    width = bin_width(least, largest, grid)
    lower, upper = math.floor(least / width) * width, math.ceil(largest / width) * width
    if upper == lower:
        upper += width
    return numeric(lower, upper, grid)


def numeric(lower: Fraction, upper: Fraction, grid: Fraction | None) -> tuple[dict[str, Any], list[str]]:
    """An attribute of numbers with these bounds: bins between them, and a grid where there can be one.

    Args:
        lower: the least number.
        upper: the largest, above it.
        grid: the step on which numbers are written; None where it is not known.
    """
    notes: list[str] = []
    width = bin_width(lower, upper, grid)
    fine = grid or _power(width) / 1000
    while grid is None and not _whole((upper - lower) / fine) and (upper - lower) / fine * 10 < MAX_NUMBERS:
        fine /= 10
    while (upper - lower) / fine >= MAX_NUMBERS:
        fine *= 10
    if grid is None or fine > grid:
        notes.append(f"numbers are rounded to a grid of {plain(fine)}: declare another if you know a better one")
    fields: dict[str, Any] = {"lower": plain(lower), "upper": plain(upper)}
    between = range(math.floor(lower / width) + 1, math.ceil(upper / width))
    edges = [lower, *(step * width for step in between), upper]
    if len(edges) > 2 and any(edge != lower + step * width for step, edge in enumerate(edges)):
        binned: dict[str, Any] = {"edges": [plain(edge) for edge in edges]}
    else:
        binned = {"bins": len(edges) - 1}
    on_grid = {**fields, "grid": plain(fine), **binned}
    if _sound(on_grid):
        return on_grid, notes
    return {**fields, **binned}, ["its numbers are kept by their bins alone: they lie on no grid that can be declared"]


def _sound(fields: Mapping[str, Any]) -> bool:
    try:
        Attribute.model_validate({"name": "numbers", **fields})
    except ValidationError:
        return False
    return True


def bin_width(lower: Fraction, upper: Fraction, grid: Fraction | None) -> Fraction:
    """One, two or five times a power of ten, the least that makes no more than :data:`MOST_BINS` bins of a range, and
    none below its grid.
    """
    span = upper - lower
    least = max(span / MOST_BINS, grid or Fraction(0))
    # All numbers are one: any width will do that is small beside it.
    width = _power(least or abs(upper) / MOST_BINS or Fraction(1))
    for factor in (1, 2, 5, 10, 20):
        if factor * width < least:
            continue
        if math.ceil(upper / (factor * width)) - math.floor(lower / (factor * width)) <= MOST_BINS:
            return factor * width
    return 50 * width


def _whole(number: Fraction) -> bool:
    return number.denominator == 1


def _power(number: Fraction) -> Fraction:
    """The largest power of ten that is not above a number."""
    exponent = len(str(number.numerator)) - len(str(number.denominator))
    power = Fraction(10) ** exponent
    return power if power <= number else power / 10


def plain(number: Fraction) -> int | float:
    """A number as JSON writes the nearest one.

    Raises:
        OverflowError: when it is beyond all floats.
    """
    return number.numerator if _whole(number) and abs(number) < 2**53 else float(number)
