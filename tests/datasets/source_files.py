"""Tables on a disk, and what a plain reading makes of them: one record after the other, by the contract's words."""

from __future__ import annotations

import datetime
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

JSON = dict[str, Any]

BUDGET = {"epsilon": 1.0, "delta": 1e-9}
#: Names and labels that mean something to an engine or a reader of files.
HOSTILE = (
    "a", "A b", 'q"', "it's", "c0", "p0", "cell", "n", "records", "count(*)",
    "x'); DROP TYPE e0; --", "é", "ﬀ", "null", "NaN", "%s", "{}", "$1", "a.b", "filename", "file_row_number", "\\", "🜁",
    "line\nbreak", "select", "/etc/passwd", "e0",
)  # fmt: skip
_INTS = {
    pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64,
    pa.uint8(): 8, pa.uint16(): 16, pa.uint32(): 32, pa.uint64(): 64,
}  # fmt: skip
_TYPES = [pa.date32(), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")]


@dataclass
class Column:
    """An attribute as it is declared, the type of its column, and values that a record may have there."""

    declared: JSON
    type: Any
    values: st.SearchStrategy[Any]
    kept: st.SearchStrategy[Any]


@dataclass
class Found:
    """What is made of records: how many there are of each cell, and how often each attribute was outside, clamped or
    without a value.
    """

    cells: Counter[tuple[int, ...]] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)
    clamped: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    moved: int = 0


def declare(attributes: Sequence[JSON], *files: str, **more: Any) -> JSON:
    """A declaration that names files, or with none of an upload."""
    source = {"source": {"type": "parquet", "files": list(files)}} if files else {}
    return {"name": "visits", "kind": "table", "budget": BUDGET, "attributes": list(attributes), **source, **more}


def write(path: Path, columns: Mapping[str, Any], **how: Any) -> Path:
    """A Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path, **how)
    return path


def count(columns: Sequence[JSON], records: Sequence[Sequence[Any]]) -> Found:
    """Each record by itself."""
    found = Found()
    for record in records:
        cell, moved = [], False
        for attribute, value in zip(columns, record, strict=True):
            name, length = attribute["name"], places(attribute)
            place = place_of(attribute, value)
            if place is None and attribute.get("missing") and is_gap(attribute, value):
                place = length
                found.missing[name] += 1
            elif place in ("below", "above") and attribute.get("outside") == "clamp":
                place, moved = (0 if place == "below" else length - 1), True
                found.clamped[name] += 1
            elif not isinstance(place, int):
                found.outside[name] += 1
            cell.append(place)
        found.moved += moved
        found.cells[tuple(cell)] += 1  # type: ignore[arg-type]
    return found


def is_gap(attribute: JSON, value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def edges_of(attribute: JSON) -> list[float]:
    if "edges" in attribute:
        return [float(edge) for edge in attribute["edges"]]
    low, high = Fraction(str(attribute["lower"])), Fraction(str(attribute["upper"]))
    bins = attribute.get("bins") or int(high - low)
    return [float(low + (high - low) * i / bins) for i in range(bins + 1)]


def period(attribute: JSON, date: datetime.date) -> int:
    return {"day": date.toordinal(), "month": 12 * date.year + date.month, "year": date.year}[attribute["by"]]


def places(attribute: JSON) -> int:
    if "size" in attribute:
        return int(attribute["size"])
    if "values" in attribute:
        return len(attribute["values"])
    if "dates" in attribute:
        first, last = (period(attribute, datetime.date.fromisoformat(text)) for text in attribute["dates"])
        return last - first + 1
    if "grid" in attribute:
        return int((attribute["upper"] - attribute["lower"]) / attribute["grid"]) + 1
    return len(edges_of(attribute)) - 1


def place_of(attribute: JSON, value: Any) -> int | str | None:
    """Where a value belongs; on which side of the domain it is; or None where it is neither."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if "size" in attribute:
        return int(value) if 0 <= value < attribute["size"] else None
    if "values" in attribute:
        words = [str(word) for word in attribute["values"]]
        if isinstance(value, bool):
            words, value = [word.lower() for word in words], str(value).lower()
            if sorted(words) == ["0", "1"]:
                value = {"false": "0", "true": "1"}[value]
        return words.index(str(value)) if str(value) in words else None
    if "dates" in attribute:
        date = value.date() if isinstance(value, datetime.datetime) else value
        first = period(attribute, datetime.date.fromisoformat(attribute["dates"][0]))
        place = period(attribute, date) - first
        return "below" if place < 0 else "above" if place >= places(attribute) else place
    if "grid" in attribute:
        if not attribute["lower"] <= value <= attribute["upper"]:
            return "below" if value < attribute["lower"] else "above"
        return math.floor(Fraction(value - attribute["lower"], attribute["grid"]) + Fraction(1, 2))
    edges = edges_of(attribute)
    if not edges[0] <= value <= edges[-1]:
        return "below" if value < edges[0] else "above"
    return min(bisect_right(edges, value), len(edges) - 1) - 1


def _integers(draw: st.DrawFn, low: int, high: int) -> tuple[Any, st.SearchStrategy[Any], st.SearchStrategy[Any]]:
    """A type of integers that holds both bounds, all its values, and those within the bounds."""
    limits = {
        kind: (0, 2**bits - 1) if pa.types.is_unsigned_integer(kind) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for kind, bits in _INTS.items()
    }
    kind = draw(st.sampled_from([kind for kind, (least, most) in limits.items() if least <= low and high <= most]))
    least, most = limits[kind]
    near = st.integers(max(least, low - 2), min(most, high + 2))
    return kind, near | st.sampled_from([least, most]), st.integers(low, high)


@st.composite
def columns(draw: st.DrawFn) -> Column:
    """An attribute of any kind that is counted, without its name."""
    kind = draw(st.sampled_from(["codes", "bits", "words", "whole", "truth", "unit", "bins", "grid", "dates"]))
    declared: JSON
    match kind:
        case "codes":
            declared = {"size": draw(st.integers(1, 6))}
            type, values, kept = _integers(draw, 0, declared["size"] - 1)
        case "bits":
            declared, type, values = {"size": 2}, pa.bool_(), st.booleans()
            kept = values
        case "words":
            labels = draw(
                st.lists(
                    st.sampled_from([*HOSTILE, "", " ", "21", "true", "x\0y"]), min_size=1, max_size=6, unique=True
                )
            )
            declared, type = {"values": labels}, draw(st.sampled_from([pa.string(), pa.large_string()]))
            kept = st.sampled_from(labels)
            values = st.sampled_from([*HOSTILE, "", "0", "TRUE", labels[0].upper(), labels[0] + " "]) | kept
        case "whole":
            numbers = draw(st.lists(st.integers(-5, 90), min_size=1, max_size=5, unique=True))
            declared = {"values": numbers}
            type, values, _ = _integers(draw, min(numbers), max(numbers))
            kept = st.sampled_from(numbers)
        case "truth":
            labels = draw(st.permutations(draw(st.sampled_from([["false", "true"], ["False", "TRUE"], [0, 1]]))))
            declared, type, values = {"values": labels}, pa.bool_(), st.booleans()
            kept = values
        case "unit":
            low = draw(st.integers(-9, 9))
            declared = {"lower": low, "upper": low + draw(st.integers(1, 9))}
            type, values, kept = _integers(draw, low, declared["upper"])
        case "grid":
            low, step = draw(st.integers(-9, 9)), draw(st.integers(1, 4))
            declared = {"lower": low, "upper": low + step * draw(st.integers(1, 6)), "grid": step}
            type, values, kept = _integers(draw, low, declared["upper"])
        case "bins":
            if draw(st.booleans()):
                tenths = draw(st.lists(st.integers(-50, 50), min_size=2, max_size=8, unique=True))
                declared = {"edges": sorted(tenth / 10 for tenth in tenths)}
            else:
                start = draw(st.integers(-50, 50)) / 10
                declared = {"lower": start, "upper": start + draw(st.integers(1, 40)), "bins": draw(st.integers(1, 9))}
            edges = edges_of(declared)
            width = draw(st.sampled_from([32, 64]))
            type = pa.float32() if width == 32 else pa.float64()
            exact = [e for e in edges if width == 64 or e == _single(e)]
            least, most = math.nextafter(edges[0], math.inf), math.nextafter(edges[-1], -math.inf)
            kept = st.sampled_from(exact) if exact else st.just(_single((least + most) / 2))
            kept |= st.integers(1, 9).map(lambda n: _single(least + (most - least) * n / 10))
            kept = kept.filter(lambda v: edges[0] <= v <= edges[-1])
            near = [math.nextafter(e, side) for e in edges for side in (-math.inf, math.inf)]
            values = st.floats(width=width) | kept | (st.sampled_from(near) if width == 64 else st.just(-0.0))  # type: ignore[arg-type]
        case _:
            first = draw(st.dates(datetime.date(1900, 1, 1), datetime.date(2050, 1, 1)))
            last = first + datetime.timedelta(days=draw(st.integers(0, 800)))
            declared = {
                "dates": [first.isoformat(), last.isoformat()],
                "by": draw(st.sampled_from(["day", "month", "year"])),
            }
            type = draw(st.sampled_from(_TYPES))
            kept, values = st.dates(first, last), st.dates(datetime.date(1700, 1, 1), datetime.date(2250, 1, 1))
            if type != pa.date32():
                hour = datetime.time(23, 59, 59)
                kept, values = (all.map(lambda d: datetime.datetime.combine(d, hour)) for all in (kept, values))
    if draw(st.booleans()):
        declared["missing"] = True
        kept = st.none() | (st.just(math.nan) | kept if kind == "bins" else kept)
    if kind in ("unit", "grid", "bins", "dates") and draw(st.booleans()):
        declared["outside"] = "clamp"
    return Column(declared, type, st.none() | values, kept)


def _single(value: float) -> float:
    """The nearest float of 32 bits."""
    return float(pa.array([value], pa.float32())[0].as_py())
