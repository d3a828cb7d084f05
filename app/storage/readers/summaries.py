"""Summaries of the columns of a file, of which declarations of tables are drafted.

A file is read as registration reads it, a batch at a time. Of a column no more is kept than its extremes and up to
:data:`~app.declarations.drafts.MOST_LABELS` different values.
"""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.declarations.attributes import day
from app.declarations.drafts import MOST_CHARACTERS, MOST_DECIMALS, MOST_LABELS, ColumnSummary, Layout, Numbers
from app.declarations.errors import InvalidDataset
from app.storage.readers.coders import DECIMAL_COMMA, TIME
from app.storage.readers.columns import (
    is_text,
    nested_columns,
    numbers,
    parquet_columns,
    repeated,
    text_layout,
    trimmed,
)
from app.storage.readers.encodings import utf8
from app.storage.readers.excel import ExcelSheet
from app.storage.readers.named import SEPARATORS, named_columns

#: Columns of a file that is summarised: each takes some twenty kilobytes.
MOST_COLUMNS = 1000
#: Texts that are numbers and are not meant so: codes with leading zeros.
_PADDED = r"^[+-]?0[0-9]"
_SEPARATED = r"[+-]?[0-9]{1,3}([.,'\x{00a0}\x{2019}\x{202f} ][0-9]{3})+([.,][0-9]+)?"
_DAY = r"[0-9]{1,2}[./-][0-9]{1,2}[./-]([0-9]{2}|[0-9]{4})"
_UNIT = r"(%|‰|€|\$|£|¥|[A-Z]{3})"
#: Of :data:`~app.declarations.drafts.WRITTEN` how every cell of a column is written, and how at least one is.
_FORMS = {
    "days": (both := rf"^({_DAY}|[0-9]{{4}}[./-][0-9]{{1,2}}[./-][0-9]{{1,2}}\.?)$", both),
    "thousands": (rf"^({_SEPARATED}|[+-]?[0-9]{{1,3}}([.,][0-9]+)?)$", rf"^{_SEPARATED}$"),
    "units": (both := rf"^({_UNIT} ?[+-]?[0-9][0-9.,]*|[+-]?[0-9][0-9.,]* ?{_UNIT})$", both),
}


def column_names(suffix: str, path: Path, layout: Layout, memory_limit: int) -> tuple[str, ...] | None:
    """Names of the columns of a table's file, as its first line or its schema has them; None for an array of counts.

    Args:
        suffix: the ending of the file's name.
        path: where it lies.
        layout: what is declared of it.
        memory_limit: bytes that a part of the file may unpack to.

    Raises:
        InvalidDataset: when the file cannot be read.
    """
    if suffix == ".parquet":
        return tuple(parquet_columns(path))
    if suffix == ".xlsx":
        return tuple(ExcelSheet(path, memory_limit).names)
    if suffix not in SEPARATORS:
        return None
    with utf8(path, layout.encoding, memory_limit) as readable:
        return text_layout(readable, SEPARATORS[suffix], layout.names).fields


def summarise(suffix: str, path: Path, layout: Layout, memory_limit: int) -> tuple[ColumnSummary, ...]:
    """Summaries of the columns that the layout names, in its order; arguments as for :func:`column_names`.

    Raises:
        InvalidDataset: when the file cannot be read to its end, or has two columns of one name, or too many.
    """
    names = layout.names
    if len(names) > MOST_COLUMNS:
        raise InvalidDataset(
            f"the file has more than {MOST_COLUMNS:,} columns: name those that matter in the spec's attributes"
        )
    if len(set(names)) < len(names):
        # Not by its name: without a header it is a value.
        first, second = repeated(names)
        raise InvalidDataset(
            f"columns {first} and {second} of the file have one name: its first line must name each column"
        )
    nested = nested_columns(path) if suffix == ".parquet" else frozenset()
    found = {name: _Column(name, layout.null_values) for name in names}
    read = [name for name in names if name not in nested]
    for name in nested.intersection(names):
        found[name].give_up()
    if read:
        with utf8(path, layout.encoding if suffix in SEPARATORS else None, memory_limit) as readable:
            file = named_columns(suffix, readable, read, max_rows=None, memory_limit=memory_limit)
            for batch in file.batches:
                for name, column in zip(read, batch.columns, strict=True):
                    found[name].add(column, decimal_comma=file.separator == ";")
    return tuple(column.summary() for column in found.values())


class _Column:
    """Gathers what is known of one column; what it can no longer be is dropped."""

    def __init__(self, name: str, null_values: Sequence[str]) -> None:
        self._name = name
        # An empty text is no value either.
        self._nulls = pa.array(["", *null_values], pa.large_string())
        self._filled = 0
        self._empty = False
        self._labels: set[str] | None = set()
        self._few: set[float] | None = set()
        self._extremes: tuple[float, float] | None = None
        self._decimals: int | None = 0
        self._days: tuple[datetime.date, datetime.date] | None = None
        self._may_be_numbers = self._may_be_dates = True
        self._forms, self._seen = set(_FORMS), set[str]()

    def give_up(self) -> None:
        """It holds values of no kind that can be drafted."""
        self._filled = self._filled or 1
        self._labels = None
        self._may_be_numbers = self._may_be_dates = False
        self._forms.clear()

    def add(self, column: Any, *, decimal_comma: bool) -> None:
        """Cells, as an Arrow array; whether ``3,5`` is a number."""
        counted = pc.value_counts(column)
        values, counts = counted.field("values"), counted.field("counts")
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        kind = values.type
        textual = is_text(kind)
        if textual:
            values = pc.cast(values, pa.large_string())
            there = pc.and_(values.is_valid(), pc.invert(pc.is_in(pc.utf8_trim_whitespace(values), self._nulls)))
        elif pa.types.is_floating(kind):
            there = pc.invert(pc.is_nan(values)).fill_null(False)
        else:
            there = values.is_valid()
        self._empty |= not pc.all(there, min_count=0).as_py()
        values, counts = values.filter(there), counts.filter(there)
        if not len(values):
            return
        self._filled += pc.sum(counts).as_py()
        if textual:
            self._add_texts(values, decimal_comma)
        elif pa.types.is_boolean(kind):
            self._may_be_numbers = self._may_be_dates = False
            self._add_labels(pc.cast(values, pa.large_string()))
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            self._labels, self._may_be_dates = None, False
            self._add_numbers(numbers(values, self._name))
        elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            self._labels, self._may_be_numbers = None, False
            self._add_days(pc.cast(values, pa.date32(), safe=False).to_pylist())
        else:
            self.give_up()

    def _add_texts(self, values: Any, decimal_comma: bool) -> None:
        self._add_labels(values)
        if self._forms:
            self._look_at_forms(trimmed(values))
        if self._may_be_numbers:
            cells = trimmed(values)
            if pc.any(pc.match_substring_regex(cells, _PADDED)).as_py():
                self._may_be_numbers = False
            elif decimal_comma:
                commas = pc.match_substring_regex(cells, DECIMAL_COMMA)
                self._add_numbers(numbers(pc.if_else(commas, pc.replace_substring(cells, ",", "."), cells), self._name))
            else:
                self._add_numbers(numbers(values, self._name))
        if self._may_be_dates:
            try:
                self._add_days([_day(text) for text in values.to_pylist()])
            except ValueError:
                self._may_be_dates = False

    def _look_at_forms(self, cells: Any) -> None:
        for form in tuple(self._forms):
            every, some = _FORMS[form]
            if not pc.all(pc.match_substring_regex(cells, every)).as_py():
                self._forms.discard(form)
            elif form not in self._seen and pc.any(pc.match_substring_regex(cells, some)).as_py():
                self._seen.add(form)

    def _add_labels(self, values: Any) -> None:
        if self._labels is None:
            return
        if len(values) > MOST_LABELS or pc.max(pc.utf8_length(values)).as_py() > MOST_CHARACTERS:
            self._labels = None
            return
        self._labels.update(values.to_pylist())
        if len(self._labels) > MOST_LABELS:
            self._labels = None

    def _add_numbers(self, values: NDArray[np.float64]) -> None:
        if not self._may_be_numbers:
            return
        if not np.isfinite(values).all():
            self._may_be_numbers = False
            return
        least, largest = float(values.min()), float(values.max())
        if self._extremes is not None:
            least, largest = min(least, self._extremes[0]), max(largest, self._extremes[1])
        # Zero has one sign.
        self._extremes = least + 0.0, largest + 0.0
        self._decimals = _decimals(values, self._decimals)
        if self._few is not None:
            different = np.unique(values)
            self._few = None if len(different) > MOST_LABELS else self._few.union((different + 0.0).tolist())
            if self._few is not None and len(self._few) > MOST_LABELS:
                self._few = None

    def _add_days(self, days: list[datetime.date]) -> None:
        if self._may_be_dates:
            found = [*days, *(self._days or ())]
            self._days = min(found), max(found)

    def summary(self) -> ColumnSummary:
        """The summary so far."""
        held = None
        if self._may_be_numbers and self._extremes is not None:
            few = None if self._few is None else tuple(sorted(self._few))
            held = Numbers(*self._extremes, decimals=self._decimals, few=few)
        dates = self._days if self._may_be_dates else None
        plain = held is not None or dates is not None
        forms = [] if plain else [form for form in _FORMS if form in self._forms & self._seen]
        return ColumnSummary(
            self._name,
            self._filled,
            self._empty,
            labels=None if self._labels is None else tuple(sorted(self._labels)),
            numbers=held,
            dates=dates,
            written=forms[0] if forms else None,
        )


def _day(text: str) -> datetime.date:
    """The day of a text, with or without a time.

    Raises:
        ValueError: when it says none.
    """
    date, time = text.strip()[:10], text.strip()[10:]
    if time and not TIME.fullmatch(time):
        raise ValueError
    return day(date)


def _decimals(values: NDArray[np.float64], least: int | None) -> int | None:
    """How many decimals numbers are written with, from so many up; None for more than are told apart."""
    if least is None:
        return None
    # A number of so many decimals is the float nearest to it, which rounding to as many gives.
    return next((n for n in range(least, MOST_DECIMALS + 1) if (np.round(values, n) == values).all()), None)
