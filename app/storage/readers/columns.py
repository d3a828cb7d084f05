"""Columns of CSV, text and Parquet files, in batches: strings or typed values from the file, numbers for
the readers.

Text is parsed by pyarrow as strings alone: type inference would depend on the data, and a failed
conversion would speak of the value. Numbers are then cast a column at a time.
"""

import contextlib
import csv
import io
import mmap
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset

#: Text parsed at a time; no record may be longer.
BLOCK_BYTES = 1 << 23
BATCH_ROWS = 1 << 17
#: Rows of a Parquet file decoded at a time, and cells: fewer rows of many columns.
BATCH_CELLS = 1 << 20
_HEAD_BYTES = 1 << 20
#: Whatever pyarrow makes of a damaged Parquet file.
_DAMAGE = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
)
#: What pyarrow says of strings that it has not as a dictionary, and how many rows of such are had at a time.
_UNDECODED, _WRITTEN_ROWS = "Not yet implemented", 1 << 12
#: Old timestamps (INT96) have days of millions of years: counted in nanoseconds they would wrap around into others.
_TIMES = {"coerce_int96_timestamp_unit": "ms"}
#: Text whose blanks are put together at a time.
_SPACED_BYTES = 1 << 18
#: Bytes without a quote that are looked through at a time: nobody else runs meanwhile.
_NEAR = 1 << 23
_SAVED = 'save the file as UTF-8, or declare what a table\'s is in, such as "encoding": "cp1252"'
_NO_RECORDS = "the file holds a header and no records"
_DAMAGED = "the file is not Parquet, or is truncated or damaged: write it again"
_BLANK = re.compile(r"(?:[ \t]*[\r\n])*")
_MARKS = {" ": "[ \t]"}
#: What a decimal is written with that need not be: zeros at its end, and of zero an exponent.
_SHORT = ((r"^-?0(E-[0-9]+)$", "0"), (r"(\.[0-9]*[1-9])0+(E|$)", r"\1\2"), (r"\.0+(E|$)", r"\1"))
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """Consecutive rows.

    Attributes:
        first: number of the first row, from 1.
        columns: one Arrow array for each wanted column, in the order asked for.
    """

    first: int
    columns: list[Any]

    def __len__(self) -> int:
        return len(self.columns[0])


# ---------------------------------------------------------------------------------------------------- columns


def numbers(column: Any, where: str) -> NDArray[np.float64]:
    """The column as float64; NaN where a cell is empty or no number, as true and false are none. Text as in CSV:
    decimal, exponent allowed. Decimals are the floats that their text is, correctly rounded: what is written alike is
    one number whichever file it is in.

    Raises:
        InvalidDataset: naming ``where``, when the column's type holds no numbers at all (dates, lists).
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        codes = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        decoded = numbers(column.dictionary, where) if len(column.dictionary) else np.full(1, np.nan)
        return np.where(column.is_valid().to_numpy(zero_copy_only=False), decoded[codes], np.nan)
    if is_text(kind):
        try:
            values = pc.cast(column, pa.float64())
        except pa.ArrowInvalid:
            cells = trimmed(column)
            values = pc.cast(pc.if_else(pc.match_substring_regex(cells, _NUMBER), cells, None), pa.float64())
    elif pa.types.is_decimal(kind):
        # Arrow's own cast multiplies by a power of ten, and is off by a last digit.
        values = pc.cast(pc.cast(column, pa.string()), pa.float64())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values = pc.cast(column, pa.float64(), safe=False)
    elif pa.types.is_null(kind) or pa.types.is_boolean(kind):
        return np.full(len(column), np.nan)
    else:
        raise InvalidDataset(f"{where}: a column of numbers or strings is needed, this one is of type {kind}")
    return np.asarray(values.to_numpy(zero_copy_only=False), np.float64)


def texts(column: Any, where: str) -> Any:
    """A column that is no dictionary as an Arrow array of strings; null where a cell is missing. Numbers are as short
    as they can be written: 3.0 and 3.00 are "3". A number that is not finite is missing.

    Raises:
        InvalidDataset: naming ``where``, for types that have no plain text (dates, lists).
    """
    kind = column.type
    if is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return pc.cast(column, pa.large_string())
    if pa.types.is_floating(kind):
        values = pc.cast(column, pa.float64(), safe=False)
        values = pc.if_else(pc.is_finite(values), values, None)
        is_whole = pc.and_(pc.equal(values, pc.floor(values)), pc.less(pc.abs(values), 2.0**63))
        integers = pc.cast(pc.cast(pc.if_else(is_whole, values, None), pa.int64(), safe=False), pa.large_string())
        return pc.if_else(is_whole, integers, pc.cast(values, pa.large_string()))
    if pa.types.is_decimal(kind):
        if kind.scale < 0:
            column = pc.cast(column, pa.decimal256(76, 0))
        written = pc.cast(column, pa.large_string())
        for pattern, short in _SHORT:
            written = pc.replace_substring_regex(written, pattern, short)
        return written
    raise InvalidDataset(f"{where}: a column of numbers or strings is needed, this one is of type {kind}")


def positions(column: Any, words: Any, where: str, *, trim: bool = False) -> NDArray[np.int64]:
    """Where each cell stands among the strings ``words``; -1 where it does not, or is missing.

    A dictionary is looked up as such: cells that repeat a long string are never written out.

    Args:
        column: an Arrow array.
        words: an Arrow array of strings.
        where: what messages call the column.
        trim: whether white space around a cell is left out.

    Raises:
        InvalidDataset: as :func:`texts` does.
    """
    if pa.types.is_dictionary(column.type):
        known = positions(column.dictionary, words, where, trim=trim)
        codes = column.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
        return np.asarray(np.append(known, -1)[codes], np.int64)
    written = texts(column, where)
    found = pc.index_in(pc.utf8_trim_whitespace(written) if trim else written, value_set=words)
    return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def whole(values: NDArray[np.float64], upper: int) -> NDArray[np.int64]:
    """Integers where ``values`` are whole and in [0, upper); -1 elsewhere, NaN included."""
    fits = (values >= 0) & (values < upper) & (values == np.floor(values))
    return np.where(fits, values, -1.0).astype(np.int64)


def trimmed(column: Any) -> Any:
    """A column of strings without the white space of ASCII around them."""
    return pc.ascii_trim_whitespace(pc.cast(column, pa.large_string()))


def is_text(kind: Any) -> bool:
    """Whether a type is of strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


# ------------------------------------------------------------------------------------------------------- text


@dataclass(frozen=True)
class TextLayout:
    """How a text file is laid out.

    Attributes:
        separator: of its fields.
        fields: of the first record.
        lines: up to this record and including it.
    """

    separator: str
    fields: tuple[str, ...]
    lines: int


def text_layout(path: Path, separators: str, names: Sequence[str] = ()) -> TextLayout:
    """The layout that the first record which is not blank shows.

    Fields are separated by that one of ``separators`` by which most of ``names`` are fields; among equals by the first
    that the record contains, or by the first of all where it contains none.

    Raises:
        InvalidDataset: when the file is not UTF-8 text or holds nothing but blank lines.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in head:
        raise InvalidDataset(
            "the file is not text in UTF-8: save it as such (UTF-16 is read of a table that declares it as its "
            "encoding, binary files are not)"
        )
    # An encoding error far below is found by the parser, with its row; half a character at the cut is none.
    text = head.decode("utf-8-sig", "replace")
    # Of the first line that holds anything white space stays: tabs may separate fields without a name.
    stripped = text[len(_BLANK.match(text)[0]) :]  # type: ignore[index]
    if not stripped.strip():
        raise InvalidDataset("the file holds nothing but blank lines")
    blank = len(re.findall(r"\r\n|\r|\n", text[: len(text) - len(stripped)]))
    line = re.split(r"[\r\n]", stripped, maxsplit=1)[0]
    if "\ufffd" in line:
        raise InvalidDataset(f"the first line is not valid UTF-8: {_SAVED}")
    likely = next((mark for mark in separators if re.search(_MARKS.get(mark, mark), line)), separators[0])
    layouts = [_layout(stripped, line, blank, mark) for mark in [likely, *separators.replace(likely, "")]]
    known = [layout for layout in layouts if layout is not None]
    if not known or (not names and layouts[0] is None):
        raise InvalidDataset("the first line cannot be read: check its quotes and its length")
    return max(known, key=lambda layout: len(set(names).intersection(layout.fields)))


def _layout(text: str, line: str, blank: int, separator: str) -> TextLayout | None:
    """The layout of a text by one separator; None where its first record cannot be read so."""
    if separator == " ":
        text = re.sub(r"[ \t]+", " ", line).strip(" ")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    with contextlib.suppress(csv.Error, StopIteration):
        fields = tuple(field.strip() for field in next(reader))
        return TextLayout(separator, fields, blank + reader.line_num) if fields else None
    return None


def text_batches(path: Path, separator: str, width: int, wanted: Sequence[int], *, skip_lines: int) -> Iterator[Batch]:
    """The columns at positions ``wanted`` of a text file whose records have ``width`` fields, after
    ``skip_lines`` lines.

    Separator " " stands for any run of blanks and tabs. Blank lines are skipped, except in a file of one
    column, where such a line is a missing cell.

    Raises:
        InvalidDataset: for a record of another width, text that is not UTF-8, a quoted field that does not end with
            its quote, a record longer than a block.
    """
    _check_quotes(path, separator)
    names = [str(position) for position in range(width)]
    with path.open("rb") as raw:
        source: Any = pa.PythonFile(_SingleSpaced(raw), "r") if separator == " " else raw
        reading = pa.csv.ReadOptions(
            use_threads=False,
            block_size=BLOCK_BYTES,
            skip_rows=skip_lines,
            column_names=names,
            encoding="utf8",
        )
        parsing = pa.csv.ParseOptions(
            delimiter=separator,
            newlines_in_values=True,
            ignore_empty_lines=width > 1,
        )
        kept = [names[position] for position in wanted]
        converting = pa.csv.ConvertOptions(
            include_columns=kept, column_types=dict.fromkeys(kept, pa.string()), check_utf8=True
        )
        first = 1
        message = ""
        try:
            with pa.csv.open_csv(
                source, read_options=reading, parse_options=parsing, convert_options=converting
            ) as reader:
                for batch in reader:
                    if len(batch):
                        yield Batch(first, batch.columns)
                        first += len(batch)
        except pa.ArrowInvalid as error:
            message = str(error)
    if message:
        raise _text_problem(message, width, first, skip_lines)
    if first == 1:
        raise InvalidDataset(_NO_RECORDS)


def _check_quotes(path: Path, separator: str) -> None:
    """Refuse a file in which a field that begins with a quote does not end with one.

    The parser reads such a field on to the next quote, across lines, or to the end of the file: the records in between
    would be lost, unnoticed where the column is not asked for. (A quote within a field that begins otherwise is a
    character like any other.)

    Raises:
        InvalidDataset: naming the line.
    """
    marks = rb" \t\r\n" if separator == " " else separator.encode() + rb"\r\n"
    begins = rb"(?:(?<![^%b])|(?<=\A\xef\xbb\xbf))" % marks
    text = rb'[^"]{0,%d}+' % _NEAR
    quoted = rb'"%b(?:""%b)*+"(?![^%b])' % (text, text, marks)
    # Some at once, as a call for each would take several times as long.
    fields = re.compile(rb'(?:(?:%b%b|(?!%b)")(?:[^"]{0,999}+(?="))?+){1,999}+' % (begins, quoted, begins))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        place = content.find(b'"')
        while place >= 0:
            found = fields.match(content, place)
            if found is None:
                end = b"\n" if content.find(b"\n") >= 0 else b"\r"
                steps = range(0, place, _NEAR)
                line = 1 + sum(content[start : min(start + _NEAR, place)].count(end) for start in steps)
                raise InvalidDataset(
                    f"a quote in line {line} begins a field and does not end it within {_NEAR >> 20} MiB: close it at "
                    "the field's end, double quotes within, or remove it",
                    line=line,
                )
            place = content.find(b'"', found.end())


def _text_problem(message: str, width: int, first: int, skipped: int) -> InvalidDataset:
    """The meaning of pyarrow's message, in words that carry no value: only row numbers are taken from it.

    A handler of uneven rows would be given the same numbers, but pyarrow decodes the row for it first, and where that
    fails prints a byte of the row to standard error.
    """
    uneven = re.match(r"CSV parse error: (?:Row #(\d+): )?Expected \d+ columns, got (\d+)", message)
    if uneven:
        number, actual = uneven[1] and int(uneven[1]), int(uneven[2])
        where = f"row {number - skipped}" if number else f"a row after row {first - 1}"
        hint = " (a quote that is not closed joins lines)" if actual < width else ""
        plural = "s" * (actual != 1)
        return InvalidDataset(f"{where} has {actual} field{plural}, the first line has {width}{hint}")
    if "UTF8" in message or "UTF-8" in message:
        found = re.search(r"Row #(\d+)", message)
        where = f"row {int(found[1]) - skipped}" if found else f"a row after row {first - 1}"
        return InvalidDataset(f"{where} is not valid UTF-8: {_SAVED}")
    if "Could not skip" in message or "Empty CSV" in message:
        return InvalidDataset(_NO_RECORDS)
    if "straddling" in message or "block" in message:
        return InvalidDataset(
            f"a record after row {first - 1} is longer than {BLOCK_BYTES >> 20} MiB: is a quote not closed?"
        )
    return InvalidDataset(f"the text after row {first - 1} cannot be read as separated columns")


class _SingleSpaced(io.RawIOBase):
    """A text stream in which every run of blanks and tabs is one blank, and none stands at either end of a
    line.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(BLOCK_BYTES), b""))
        while not self._rest:
            # Not more at once: where little but ends of lines is left, every line becomes an object.
            lines = self._raw.read(_SPACED_BYTES)
            if not lines:
                return b""
            # Whole lines, so that no run of blanks is cut in two.
            lines = re.sub(rb"[ \t]+", b" ", lines + self._raw.readline())
            lines = re.sub(rb" ?([\r\n]+) ?", rb"\1", lines)
            self._rest = lines.strip(b" ")
        part, self._rest = self._rest[:size], self._rest[size:]
        return part


# ---------------------------------------------------------------------------------------------------- Parquet


def parquet_columns(path: Path) -> list[str]:
    """Names of the columns of a Parquet file, without white space around them.

    Raises:
        InvalidDataset: when it is no Parquet file, or a truncated one, or when two columns have one name: they are read
            by their names.
    """
    names = None
    with contextlib.suppress(*_DAMAGE), pa.parquet.ParquetFile(path, memory_map=False) as file:
        names = [str(name).strip() for name in file.schema_arrow.names]
    if names is None:
        raise InvalidDataset(_DAMAGED)
    if len(set(names)) < len(names):
        first, second = repeated(names)
        raise InvalidDataset(f"columns {first} and {second} of the file have one name: rename one")
    return names


def repeated(names: Sequence[str]) -> tuple[int, int]:
    """The numbers, from 1, of the first name that stood before and of where it did. Some name stands twice."""
    places: dict[str, int] = {}
    for place, name in enumerate(names, 1):
        before = places.setdefault(name, place)
        if before != place:
            return before, place
    raise AssertionError("all names differ")


def nested_columns(path: Path) -> frozenset[str]:
    """Names of the columns of a Parquet file that hold lists or structures, which no reader takes.

    Raises:
        InvalidDataset: when it is no Parquet file, or a truncated one.
    """
    with contextlib.suppress(*_DAMAGE), pa.parquet.ParquetFile(path, memory_map=False) as file:
        return frozenset(str(field.name).strip() for field in file.schema_arrow if pa.types.is_nested(field.type))
    raise InvalidDataset(_DAMAGED)


def _decoded(
    path: Path, names: Sequence[str], repeated: Sequence[str], max_rows: int | None, memory_limit: int
) -> Iterator[list[Any]]:
    """Some rows of a Parquet file after others, by columns, of which some are dictionaries.

    Raises:
        InvalidDataset: when it passes a bound.
        OSError: when it has other rows than its footer counts; for other damage any of :data:`_DAMAGE`.
    """
    with pa.parquet.ParquetFile(
        path, memory_map=False, read_dictionary=repeated, page_checksum_verification=True, **_TIMES
    ) as file:
        if max_rows is not None and file.metadata.num_rows > max_rows:
            raise InvalidDataset(f"the file has more rows than the declared capacity of {max_rows}")
        for group in range(file.metadata.num_row_groups):
            # The whole group's size: asking for a column's aborts the process when the footer is damaged.
            if file.metadata.row_group(group).total_byte_size > memory_limit:
                raise InvalidDataset("a row group unpacks beyond the memory limit: write smaller row groups")
        is_long = any(is_text(file.schema_arrow.field(name).type) for name in names)
        most = _WRITTEN_ROWS if is_long else BATCH_ROWS
        told = 0
        for batch in file.iter_batches(batch_size=max(1, min(most, BATCH_CELLS // len(names))), columns=names):
            columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
            for column in columns:
                column.validate(full=True)  # unlike CSV, nothing has looked at the encoding yet
            yield columns
            told += len(batch)
        # A damaged page may end early, and nothing else says that it did.
        if told != file.metadata.num_rows:
            raise OSError("other rows than are counted")


def _repeats(path: Path, name: str) -> bool:
    """Whether a column of strings can be had as a dictionary: not where each is told by what it shares with the one
    before, or where all lengths stand together."""
    try:
        for _ in _decoded(path, [name], [name], None, sys.maxsize):
            pass
    except OSError as error:
        if _UNDECODED not in str(error):
            raise
        return False
    return True


def parquet_batches(
    path: Path, wanted: Sequence[int], *, max_rows: int | None, memory_limit: int, may_be_empty: bool = False
) -> Iterator[Batch]:
    """The columns at positions ``wanted`` of a file whose columns' names differ.

    Args:
        path: of the file.
        wanted: positions, from 0.
        max_rows: the most rows that the file may have; None for no bound.
        memory_limit: bytes that a group of rows may unpack to.
        may_be_empty: whether it may have no rows, as one of several files.

    Raises:
        InvalidDataset: when the file passes a bound or is damaged, which includes other rows than its footer counts.
    """
    complete, first = False, 1
    with contextlib.suppress(*_DAMAGE):
        with pa.parquet.ParquetFile(path, memory_map=False, **_TIMES) as file:
            fields = [file.schema_arrow.field(position) for position in wanted]
        if any(pa.types.is_nested(field.type) for field in fields):
            raise InvalidDataset("a column of lists or structures cannot be read: flatten it")
        names = [field.name for field in fields]
        # Repeated strings stay a dictionary: a few bytes must not unpack to gigabytes.
        strings = [field.name for field in fields if is_text(field.type)]
        while not complete:
            seen = 1
            try:
                for batch in _decoded(path, names, strings, max_rows, memory_limit):
                    columns = [column.slice(max(0, first - seen)) for column in batch]
                    seen += len(batch[0])
                    if seen > first:
                        yield Batch(first, columns)
                        first = seen
                complete = True
            except OSError as error:
                if _UNDECODED not in str(error):
                    raise
                left = [name for name in strings if _repeats(path, name)]
                if left == strings:
                    raise
                strings = left
    if not complete:
        raise InvalidDataset(_DAMAGED)
    if first == 1 and not may_be_empty:
        raise InvalidDataset(_NO_RECORDS)
