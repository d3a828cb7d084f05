"""A column of a table becomes positions on its attribute's axis, one way a kind of attribute.

What is outside of a declaration is so for one of three reasons: a number or date is beyond a bound, and may be moved to
it; a cell is empty, and may have a place of its own; or it is not what is declared, and has none.
"""

import contextlib
import datetime
import re
from abc import ABC, abstractmethod
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.declarations.attributes import Attribute, Kind, day
from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec
from app.storage.readers.columns import is_text, numbers, positions, texts, trimmed, whole
from app.storage.readers.report import Coded, Rule

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Where a value is that has no place: not what is declared, below the least, above the largest.
_OUTSIDE, _BELOW, _ABOVE = -1, -2, -3
#: Days are told apart by NumPy's datetime64, which counts them from here.
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_NO_DAY = np.iinfo(np.int64).min
#: No day of the calendar is as far from the epoch, and no file of days means one that is.
_FAR = 10_000_000
#: What may follow a date, and is cut off.
TIME = re.compile(r"[T ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?( ?(Z|UTC|[+-]\d{2}(:?\d{2})?))?")
#: Dates after and before all that have a year of four digits, as databases write them.
_IN_A_YEAR = rf"-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])(?:{TIME.pattern})?"
_AFTER = re.compile(rf"infinity|[0-9]{{5,7}}{_IN_A_YEAR}")
_BEFORE = re.compile(rf"-infinity|[0-9]{{4,7}}{_IN_A_YEAR} BC")
#: A number as it is written where fields are separated by semicolons.
DECIMAL_COMMA = r"^[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?$"
_WHOLE = r"^([+-]?[0-9]+)(\.0*)?$"


class Coder(ABC):
    """Finds the positions of one attribute's values; made by :func:`coder_of`.

    Args:
        attribute: what is declared.
        spec: of the table, whose ``outside`` holds where the attribute has none, and whose ``null_values`` are read as
            empty cells.
        decimal_comma: whether ``3,5`` is a number.
    """

    def __init__(self, attribute: Attribute, spec: TableSpec, *, decimal_comma: bool) -> None:
        self.attribute = attribute
        self._name = f'attribute "{attribute.name}"'
        self._comma = decimal_comma
        self._commas = self._points = False
        self._clamps = attribute.outside == "clamp"
        self._empty = attribute.places if attribute.missing else _OUTSIDE
        self._nulls = None if spec.null_values is None else pa.array(spec.null_values, pa.large_string())
        outside = spec.outside if attribute.outside in (None, "clamp") else attribute.outside
        expected = self._expected() + (", or an empty cell" if attribute.missing else "")
        self.rule = Rule(attribute.name, expected, outside == "refuse", attribute.places if attribute.missing else None)

    def __call__(self, column: Any) -> Coded:
        """The positions of a column's values.

        Raises:
            InvalidDataset: when the column is of a type that holds no such values at all.
        """
        if pa.types.is_dictionary(column.type):
            # Cells that repeat a long string are never written out.
            known = self(column.dictionary)
            codes = column.indices.fill_null(len(known.places)).to_numpy(zero_copy_only=False)
            return Coded(np.append(known.places, self._empty)[codes], np.append(known.clamped, False)[codes])
        found = self._places(column)
        clamped = np.zeros(len(found), np.bool_)
        if self._clamps:
            clamped = found < _OUTSIDE
            found = np.where(found == _BELOW, 0, np.where(found == _ABOVE, self.attribute.places - 1, found))
        empty = self._said_empty(column)
        if (found < 0).any():
            # A declared category may be white space.
            empty |= (found < 0) & _blank(column)
        found = np.where(empty, self._empty, np.maximum(found, _OUTSIDE))
        return Coded(found, clamped & ~empty)

    def check(self) -> None:
        """Refuse what the file shows as a whole.

        Raises:
            InvalidDataset: when some numbers are written with decimal commas and others with points: one of them means
                thousands.
        """
        if self._commas and self._points:
            raise InvalidDataset(
                f"{self._name}: some numbers are written with a comma and others with a point: write all decimals "
                "alike, and no separators of thousands",
                attribute=self.attribute.name,
            )

    def _said_empty(self, column: Any) -> Mask:
        """Cells with one of the words that are declared to mean that there is no value, whatever they look like."""
        if self._nulls is None or pa.types.is_temporal(column.type):
            return np.zeros(len(column), np.bool_)
        return _true(pc.is_in(pc.utf8_trim_whitespace(texts(column, self._name)), value_set=self._nulls))

    def _numbers(self, column: Any) -> NDArray[np.float64]:
        """The numbers of a column; NaN for none."""
        if self._comma and is_text(column.type):
            cells = trimmed(column)
            commas = pc.match_substring_regex(cells, DECIMAL_COMMA)
            if pc.any(commas).as_py():
                self._commas = True
                column = pc.if_else(commas, pc.replace_substring(cells, ",", "."), cells)
            values = numbers(column, self._name)
            self._points |= bool((_true(pc.match_substring(cells, ".")) & ~np.isnan(values)).any())
            return values
        return numbers(column, self._name)

    @abstractmethod
    def _places(self, column: Any) -> Places:
        """The positions of a column's values, or why they have none; a cell without a value has none."""

    @abstractmethod
    def _expected(self) -> str:
        """The expected kind of a value, as a refusal says it."""


class _Codes(Coder):
    """Integers from 0; of two of them false and true as well."""

    def _places(self, column: Any) -> Places:
        found = whole(self._numbers(column), self.attribute.places)
        return _or_truth(found, column, false=0, true=1) if self.attribute.places == 2 else found

    def _expected(self) -> str:
        return f"an integer code from 0 to {self.attribute.places - 1}"


class _Integers(Coder):
    """Categories that are all integers."""

    def __init__(self, attribute: Attribute, spec: TableSpec, *, decimal_comma: bool) -> None:
        super().__init__(attribute, spec, decimal_comma=decimal_comma)
        declared = np.array(attribute.values, np.float64)
        self._order = np.argsort(declared)
        self._sorted = declared[self._order]
        self._truth = self._sorted.tolist() == [0, 1]

    def _places(self, column: Any) -> Places:
        values = self._numbers(column)
        place = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
        found = np.where(self._sorted[place] == values, self._order[place], _OUTSIDE).astype(np.int64)
        return _or_truth(found, column, *map(int, self._order)) if self._truth else found

    def _expected(self) -> str:
        return "one of the declared values, spelled alike"


class _Words(Coder):
    """Categories, some of them strings: a cell is one when it is spelled alike. Beside that 21.0 is 21, and if there
    are two, false and true, they are so in any case of letters.
    """

    def __init__(self, attribute: Attribute, spec: TableSpec, *, decimal_comma: bool) -> None:
        super().__init__(attribute, spec, decimal_comma=decimal_comma)
        assert attribute.values is not None
        words = [str(value) for value in attribute.values]
        self._words = pa.array(words, pa.large_string())
        self._whole = any(re.fullmatch(r"[+-]?[0-9]+", word) for word in words)
        lower = [word.lower() for word in words]
        self._truth = [lower.index("false"), lower.index("true")] if sorted(lower) == ["false", "true"] else None

    def _places(self, column: Any) -> Places:
        found = positions(column, self._words, self._name)
        if self._whole and is_text(column.type) and (found < 0).any():
            cells = trimmed(column)
            # White space belongs to a word, and to no number.
            numbers = pc.if_else(pc.match_substring_regex(cells, _WHOLE), cells, None)
            short = pc.replace_substring_regex(numbers, _WHOLE, r"\1")
            found = np.where(found < 0, positions(short, self._words, self._name), found)
        return found if self._truth is None else _or_truth(found, column, *self._truth)

    def _expected(self) -> str:
        return "one of the declared values, spelled alike"


class _Bins(Coder):
    """Numbers in half-open bins, the last one closed."""

    def __init__(self, attribute: Attribute, spec: TableSpec, *, decimal_comma: bool) -> None:
        # Correctly rounded, as the values are when parsed: what is written alike falls together.
        edge_at, count = attribute.edge_at(), attribute.bin_count + 1
        self._edges = np.fromiter((float(edge_at(i)) for i in range(count)), np.float64, count)
        super().__init__(attribute, spec, decimal_comma=decimal_comma)

    def _places(self, column: Any) -> Places:
        values, edges = self._numbers(column), self._edges
        place = np.searchsorted(edges, values, side="right") - 1
        place = np.where(values == edges[-1], len(edges) - 2, place)
        return _bounded(place, values, edges[0], edges[-1])

    def _expected(self) -> str:
        return _number_from(self._edges[0], self._edges[-1])


class _Numbers(Coder):
    """Numbers on a grid, each rounded to the nearest, and halves up."""

    def __init__(self, attribute: Attribute, spec: TableSpec, *, decimal_comma: bool) -> None:
        self._low, self._high = attribute.bounds
        self._step = attribute.step
        super().__init__(attribute, spec, decimal_comma=decimal_comma)

    def _places(self, column: Any) -> Places:
        values = self._numbers(column)
        low, high, step = float(self._low), float(self._high), float(self._step)
        inside = np.where((values >= low) & (values <= high), values, low)
        steps = (inside - low) / step
        place = np.floor(steps + 0.5)
        # What is written as a half need not be one in binary, and the other way round: 0.15 in steps of 0.1.
        error = (np.abs(inside) + abs(low)) / step * 2.0**-50 + steps * 2.0**-50 + 2.0**-50
        doubtful = np.flatnonzero(np.abs(steps - np.floor(steps) - 0.5) <= error)
        if len(doubtful):
            distinct, back = np.unique(inside[doubtful], return_inverse=True)
            place[doubtful] = np.array([self._exact(value) for value in distinct.tolist()], np.float64)[back]
        return _bounded(place, values, low, high)

    def _exact(self, value: float) -> int:
        """The place of a number, by the decimal that it is written as."""
        return int((Fraction(Decimal(repr(value))) - self._low) / self._step + Fraction(1, 2))

    def _expected(self) -> str:
        return _number_from(float(self._low), float(self._high))


class _Dates(Coder):
    """Days, months or years: dates as text, of which a time is cut off, or as a type of their own."""

    def __init__(self, attribute: Attribute, spec: TableSpec, *, decimal_comma: bool) -> None:
        assert attribute.dates is not None
        self._bounds = attribute.dates
        # Counted as NumPy counts them, from the same day, month or year.
        self._unit = {"day": "D", "month": "M", "year": "Y"}[attribute.by or "day"]
        self._zero = int(np.datetime64(attribute.dates[0], "D").astype(f"M8[{self._unit}]").astype(np.int64))
        super().__init__(attribute, spec, decimal_comma=decimal_comma)

    def _places(self, column: Any) -> Places:
        days = self._typed(column) if pa.types.is_temporal(column.type) else self._written(column)
        known = days != _NO_DAY
        held = np.clip(np.where(known, days, 0), -_FAR, _FAR)
        place = held.astype("M8[D]").astype(f"M8[{self._unit}]").astype(np.int64) - self._zero
        place = np.where(place < 0, _BELOW, np.where(place >= self.attribute.places, _ABOVE, place))
        return np.where(known, place, _OUTSIDE).astype(np.int64)

    def _typed(self, column: Any) -> Places:
        """Days from the epoch of a column of dates or times."""
        kind = column.type
        if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            raise InvalidDataset(f"{self._name}: a column of dates is needed, this one is of type {kind}")
        known = column.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_date32(kind):
            days = np.asarray(column.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        else:
            unit = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[getattr(kind, "unit", "ms")]
            days = np.asarray(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), np.int64) // unit
            if getattr(kind, "tz", None) is not None:
                # The day that it was where it was written down. Arrow would wrap what is far from any day.
                near = np.abs(days) < _FAR
                try:
                    local = pc.if_else(pa.array(near), column, None).cast(pa.date32()).cast(pa.int32()).fill_null(0)
                except pa.ArrowInvalid:
                    raise InvalidDataset(
                        f"{self._name}: nothing is known of the time zone that the file's times are in: write the file "
                        "with times in UTC, or with dates"
                    ) from None
                days = np.where(near, local.to_numpy(zero_copy_only=False), days)
        return np.where(known, days, _NO_DAY)

    def _written(self, column: Any) -> Places:
        """Days from the epoch of a column of texts, each distinct one read once."""
        coded = texts(column, self._name).dictionary_encode()
        known = [self._day(text) for text in coded.dictionary.to_pylist()]
        codes = coded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*known, _NO_DAY], np.int64)[codes])

    def _day(self, text: str) -> int:
        text = text.strip()
        if self.attribute.by == "year" and re.fullmatch(r"[0-9]{4}", text):
            text += "-01"
        if self.attribute.by != "day" and re.fullmatch(r"[0-9]{4}-[0-9]{2}", text):
            text += "-01"
        date, time = text[:10], text[10:]
        with contextlib.suppress(ValueError):
            if not time or TIME.fullmatch(time):
                return day(date).toordinal() - _EPOCH
        if _AFTER.fullmatch(text):
            return _FAR
        return -_FAR if _BEFORE.fullmatch(text) else _NO_DAY

    def _expected(self) -> str:
        return "a date from {} to {}, written as 2020-01-31".format(*self._bounds)


_CODERS: dict[Kind, type[Coder]] = {
    "codes": _Codes,
    "categories": _Words,
    "bins": _Bins,
    "numbers": _Numbers,
    "dates": _Dates,
}


def coder_of(attribute: Attribute, spec: TableSpec, *, decimal_comma: bool = False) -> Coder:
    """The coder of one attribute of a table; arguments as :class:`Coder` has them."""
    integers = attribute.values is not None and all(isinstance(value, int) for value in attribute.values)
    kind = _Integers if integers else _CODERS[attribute.kind]
    return kind(attribute, spec, decimal_comma=decimal_comma)


def _true(column: Any) -> Mask:
    """Where a column of Booleans is true, and not missing."""
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _blank(column: Any) -> Mask:
    """Cells that are missing, hold nothing but white space, or are no number in a column of numbers."""
    missing: Mask = column.is_null().to_numpy(zero_copy_only=False)
    if is_text(column.type):
        return missing | _true(pc.equal(pc.utf8_trim_whitespace(pc.cast(column, pa.large_string())), ""))
    return missing | _true(pc.is_nan(column)) if pa.types.is_floating(column.type) else missing


def _or_truth(found: Places, column: Any, false: int, true: int) -> Places:
    """Places found, and those of false and true in any case of letters."""
    if not (found < 0).any() or not (is_text(column.type) or pa.types.is_boolean(column.type)):
        return found
    word = pc.utf8_lower(trimmed(pc.cast(column, pa.large_string())))
    found = np.where((found < 0) & _true(pc.equal(word, "false")), false, found)
    return np.where((found < 0) & _true(pc.equal(word, "true")), true, found)


def _bounded(place: NDArray[Any], values: NDArray[np.float64], low: float, high: float) -> Places:
    """Places of the numbers within bounds, both of which are; a number that is not finite has no nearest bound."""
    finite = np.isfinite(values)
    place = np.where(finite, place, _OUTSIDE)
    place = np.where(finite & (values < low), _BELOW, place)
    return np.where(finite & (values > high), _ABOVE, place).astype(np.int64)


def _number_from(low: float, high: float) -> str:
    return f"a number from {low:.15g} to {high:.15g}, without separators of thousands"
