"""What an upload holds by a plain reading of it: Python's own numbers, a reader of text sign by sign, no batches.

An oracle for files that were damaged at random. It follows the words of the documents: it says what a file that is
taken must come to, and ``NoReading`` of a file that may not be taken.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Callable, Iterable
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow.parquet as pq

JSON = dict[str, Any]
Cell = str | int | float | None
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
DEFAULT_CAPACITY = 2**31 - 1
_DECIMAL_COMMA = re.compile(r"([+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?)", re.ASCII)
MARKS = {".csv": ",;\t", ".tsv": "\t", ".txt": "\t,; "}


class NoReading(Exception):
    """The file is not what the declaration says."""


def demand(holds: object) -> None:
    """Stop where a rule is broken."""
    if not holds:
        raise NoReading


# ----------------------------------------------------------------------------------------------------- text


def fields_of(text: str, separator: str) -> list[list[str]]:
    """RFC 4180: the records of a text, whose lines end in ``\\n``; a quoted field ends with its quote."""
    records: list[list[str]] = [[""]]
    state = "start"
    for sign in text:
        if state == "quoted":
            if sign == '"':
                state = "quote"
            else:
                records[-1][-1] += sign
        elif sign == separator:
            records[-1].append("")
            state = "start"
        elif sign == "\n":
            records.append([""])
            state = "start"
        elif state == "start" and sign == '"':
            state = "quoted"
        elif state == "quote":
            demand(sign == '"')
            records[-1][-1] += sign
            state = "quoted"
        else:
            records[-1][-1] += sign
            state = "plain"
    demand(state != "quoted")
    if records[-1] == [""] and state == "start":
        records.pop()
    return records


def text_of(data: bytes) -> str:
    """The text of a file, its lines ended in one way. Columns that are not asked for may be in another encoding."""
    text = data.decode("utf-8-sig", "surrogateescape")
    return text.lstrip("\r\n \t").replace("\r\n", "\n").replace("\r", "\n")


def head_of(text: str, separator: str) -> list[str]:
    """The fields of the first record, which may go over several lines; none where it cannot be read."""
    lines = text.split("\n")
    for count in range(1, len(lines) + 1):
        with contextlib.suppress(NoReading):
            return [field.strip() for field in fields_of("\n".join(lines[:count]), separator)[0]]
    return []


def table_of(data: bytes, marks: str, wanted: Iterable[str] = ()) -> tuple[list[str], list[list[Cell]]]:
    """The first record's fields, and all records with it. That one of ``marks`` separates them by which the most of the
    ``wanted`` are fields; among equals the first that is in the first line.
    """
    text = text_of(data)
    demand(text)
    line = text.partition("\n")[0]
    within = [mark for mark in marks if mark in line or (mark == " " and "\t" in line)]
    order = sorted(marks, key=lambda mark: within[:1] != [mark])
    separator = max(order, key=lambda mark: len(set(wanted) & set(head_of(text, mark))))
    if separator == " ":
        text = "\n".join(re.sub("[ \t]+", " ", row).strip(" ") for row in text.split("\n"))
    head, *rows = fields_of(text, separator)
    # An empty line is no record, but in a file of one column a record of an empty cell.
    if len(head) > 1:
        rows = [row for row in rows if row != [""]]
    demand(all(len(row) == len(head) for row in rows))
    if separator == ";":
        rows = [[_DECIMAL_COMMA.sub(r"\1.\2", cell) if _is_comma(cell) else cell for cell in row] for row in rows]
    return [name.strip() for name in head], [list(head), *rows]


def _is_comma(cell: Cell) -> bool:
    """Whether a cell is a number with a decimal comma; no category in these tests looks like one."""
    return isinstance(cell, str) and _DECIMAL_COMMA.fullmatch(cell.strip()) is not None


def parquet_of(data: bytes, wanted: Iterable[str] | None = None) -> tuple[list[str], list[list[Cell]]]:
    """Column names and rows of a Parquet file: as many as its footer says. Columns that are not ``wanted`` may be
    damaged, and are empty here.
    """
    try:
        stored = pq.read_schema(io.BytesIO(data)).names
        names = [name.strip() for name in stored]
        stated = pq.read_metadata(io.BytesIO(data)).num_rows
        columns: list[list[Cell]] = []
        for name in stored:
            if wanted is None or name.strip() in wanted:
                columns.append(pq.read_table(io.BytesIO(data), columns=[name], use_threads=False)[name].to_pylist())
            else:
                columns.append([None] * stated)
    except Exception:
        raise NoReading from None
    demand(len(set(names)) == len(names))
    demand(all(len(column) == stated for column in columns))
    return names, [list(names), *(list(row) for row in zip(*columns, strict=True))]


def number(cell: Cell) -> float:
    """The number in a cell; NaN where there is none."""
    if isinstance(cell, str):
        cell = cell.strip(" \t\n\v\f\r")
        return float(cell) if _NUMBER.fullmatch(cell) else math.nan
    return math.nan if cell is None else float(cell)


def whole(cell: Cell, upper: int) -> int:
    """The whole number in [0, upper) in a cell; -1 where there is none."""
    value = number(cell)
    return int(value) if 0 <= value < upper and value == int(value) else -1


def word(cell: Cell) -> str | None:
    """The text in a cell; whole floats read as integers."""
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else None
    return None if cell is None else str(cell)


def columns_of(suffix: str, data: bytes, wanted: Iterable[str]) -> list[list[Cell]]:
    """The named columns of every record, in the order asked for."""
    wanted = list(wanted)
    names, rows = parquet_of(data, wanted) if suffix == ".parquet" else table_of(data, MARKS[suffix], wanted)
    demand(all(names.count(name) == 1 for name in wanted))
    demand(len(rows) > 1)
    places = [names.index(name) for name in wanted]
    return [[row[place] for place in places] for row in rows[1:]]


def array_of(data: bytes, suffix: str, shape: tuple[int, ...]) -> list[Any]:
    """The entries of an array of that shape, as Python's numbers."""
    try:
        found = np.load(io.BytesIO(data), allow_pickle=False)
        if suffix == ".npz":
            (name,) = found.files
            found = found[name]
        entries = found.reshape(-1).tolist()
    except Exception:
        raise NoReading from None
    demand(found.shape == shape and found.dtype.kind in "biuf")
    return list(entries)


def units_of(value: float, bits: int) -> int:
    """A value in units of 2^-bits, halves to even."""
    return round(Fraction(value) * 2**bits)


# ----------------------------------------------------------------------------------------------------- kinds


def mass_of(spec: JSON, filename: str, data: bytes) -> Fraction:
    """The sum of the absolute entries that a file makes, in counts.

    Raises:
        NoReading: when the file is not what was declared.
    """
    suffix = "." + filename.rpartition(".")[2].lower()
    kinds: dict[str, Callable[[JSON, str, bytes], Fraction]] = {
        "table": _table, "multiset": _multiset, "matrix": _matrix, "graph": _graph, "bipartite": _graph,
    }  # fmt: skip
    return kinds[spec["kind"]](spec, suffix, data)


def length_of(attribute: JSON) -> int:
    """Places of an attribute's axis."""
    missing = bool(attribute.get("missing"))
    if "grid" in attribute:
        return round((attribute["upper"] - attribute["lower"]) / attribute["grid"]) + 1 + missing
    if "dates" in attribute:
        first, last = (date.fromisoformat(text) for text in attribute["dates"])
        return 12 * (last.year - first.year) + last.month - first.month + 1 + missing
    return (attribute.get("size") or len(attribute.get("values", ())) or attribute["bins"]) + missing


def _month(cell: Cell) -> int | None:
    """The month of a date, alone, with its day, or with a time behind it; None where there is none."""
    found = re.fullmatch(
        r"([0-9]{4}-[0-9]{2})(?:(-[0-9]{2})([T ][0-9]{2}:[0-9]{2}.*)?)?", str(word(cell) or "").strip()
    )
    try:
        day = date.fromisoformat(found[1] + (found[2] or "-01")) if found else None
    except ValueError:
        day = None
    return None if day is None else 12 * day.year + day.month


def _within(attribute: JSON, cell: Cell) -> bool:
    if attribute.get("missing") and (cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())):
        return True
    if "dates" in attribute:
        month = _month(cell)
        ends = [_month(text) for text in attribute["dates"]]
        return month is not None and ends[0] <= month <= ends[1]
    if attribute.get("outside") == "clamp":
        return math.isfinite(number(cell))
    if "size" in attribute:
        return whole(cell, attribute["size"]) >= 0
    if "values" in attribute:
        values = attribute["values"]
        if all(isinstance(value, int) for value in values):
            return number(cell) in values
        return word(cell) in [str(value) for value in values]
    return bool(attribute["lower"] <= number(cell) <= attribute["upper"])


def _table(spec: JSON, suffix: str, data: bytes) -> Fraction:
    attributes, capacity = spec["attributes"], spec.get("capacity", DEFAULT_CAPACITY)
    if suffix in (".npy", ".npz"):
        shape = tuple(map(length_of, attributes))
        counts = array_of(data, suffix, shape)
        demand(all(0 <= count <= capacity and count == int(count) for count in counts))
        total = sum(map(int, counts))
    else:
        rows = columns_of(suffix, data, [a["name"] for a in attributes])
        inside = [all(_within(a, c) for a, c in zip(attributes, row, strict=True)) for row in rows]
        demand(spec.get("outside") == "drop" or all(inside))
        total = sum(inside)
        # Nothing that could be kept: the declaration is of another file.
        demand(total)
    demand(total <= capacity)
    return Fraction(total)


def _multiset(spec: JSON, suffix: str, data: bytes) -> Fraction:
    capacity, total = spec.get("capacity", DEFAULT_CAPACITY), 0
    demand(suffix == ".parquet" or suffix in MARKS)
    names, _ = parquet_of(data, ()) if suffix == ".parquet" else table_of(data, MARKS[suffix], ["element"])
    counted = "count" in names
    for row in columns_of(suffix, data, ["element", "count"] if counted else ["element"]):
        demand(word(row[0]))
        count = whole(row[1], capacity + 1) if counted else 1
        demand(count >= 0)
        total += count
    demand(total <= capacity)
    return Fraction(total)


def _matrix(spec: JSON, suffix: str, data: bytes) -> Fraction:
    rows, columns, low, high = spec["rows"], spec["columns"], spec["lower"], spec["upper"]
    bits = -round(math.log2(spec.get("grid", 2.0**-10)))
    cells: dict[tuple[int, int], int] = {}
    wide = False
    if suffix == ".parquet":
        names, _ = parquet_of(data, ())
        wide = not {"row", "column", "value"} <= set(names)
        if wide:
            _, table = parquet_of(data)
            demand(len(names) == columns)
            demand(len(table) == rows + 1)
            cells = {(i, j): _entry(c, low, high, bits) for i, row in enumerate(table[1:]) for j, c in enumerate(row)}
    if suffix in (".npy", ".npz"):
        entries = array_of(data, suffix, (rows, columns))
        cells = {divmod(i, columns): _entry(entry, low, high, bits) for i, entry in enumerate(entries)}
    elif not wide:
        demand("absent" in spec)
        for row, column, value in columns_of(suffix, data, ["row", "column", "value"]):
            place, entry = (whole(row, rows), whole(column, columns)), _entry(value, low, high, bits)
            demand(min(place) >= 0)
            demand(cells.setdefault(place, entry) == entry)
    missing = rows * columns - len(cells)
    absent = units_of(spec["absent"], bits) if missing else 0
    return Fraction(sum(map(abs, cells.values())) + missing * abs(absent), 2**bits)


def _entry(cell: Cell, low: float, high: float, bits: int) -> int:
    demand(low <= number(cell) <= high)
    return units_of(number(cell), bits)


def _graph(spec: JSON, suffix: str, data: bytes) -> Fraction:
    two_sided = spec["kind"] == "bipartite"
    shape = (spec["left"], spec["right"]) if two_sided else (spec["nodes"], spec["nodes"])
    labels = [spec.get("left_labels"), spec.get("right_labels")] if two_sided else [spec.get("labels")] * 2
    undirected = not two_sided and not spec.get("directed", False)
    weighted, bits = spec.get("weighted"), -round(math.log2(spec.get("grid", 2.0**-10)))
    found: list[tuple[int, int, float]] = []
    if suffix in (".npy", ".npz"):
        entries = array_of(data, suffix, shape)
        found = [(*divmod(i, shape[1]), weight) for i, weight in enumerate(entries)]
        demand(all(0 <= weight <= 1 for weight in entries))
        demand(weighted or all(weight in (0, 1) for weight in entries))
        if undirected:
            demand(all(entries[j * shape[1] + i] == weight for i, j, weight in found if i != j))
        found = [edge for edge in found if edge[2]]
    else:
        head, rows = parquet_of(data) if suffix == ".parquet" else table_of(data, ",; ")
        width = len(head)
        demand(width in (2, 3))
        demand(width == 2 or weighted is not False)
        weighted = width == 3 if weighted is None else weighted
        if suffix == ".parquet" or not any(_is_node(names, field) for names, field in zip(labels, head, strict=False)):
            rows = rows[1:]
        demand(rows)
        for row in rows:
            left, right = (_node(names, n, cell) for names, n, cell in zip(labels, shape, row[:2], strict=True))
            weight = number(row[2]) if width == 3 else 1.0
            demand(0 <= weight <= 1)
            found.append((left, right, weight))
    edges: dict[tuple[int, int], int] = {}
    for left, right, weight in found:
        if not two_sided and left == right:
            demand(spec.get("loops") == "drop")
            continue
        units = units_of(weight, bits if weighted else 0)
        place = (min(left, right), max(left, right)) if undirected else (left, right)
        demand(edges.setdefault(place, units) == units)
    return Fraction(sum(edges.values()), 2**bits if weighted else 1)


def _is_node(labels: list[str] | None, field: str) -> bool:
    return field in labels if labels is not None else math.isfinite(number(field))


def _node(labels: list[str] | None, length: int, cell: Cell) -> int:
    if labels is None:
        place = whole(cell, length)
        demand(place >= 0)
        return place
    name = (word(cell) or "").strip()
    demand(name in labels)
    return labels.index(name)
