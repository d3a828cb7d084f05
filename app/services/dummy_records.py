"""Dummy data: made-up records that are drawn from a declaration alone.

Whoever writes a program against a data set tries it on these first. They look like the data and say nothing of them:
each record is drawn by itself, each value evenly from what is declared and may be beside the others, and equal
declarations and seeds give equal bytes. Chance here protects nothing, so that it comes from a seed.
"""

from __future__ import annotations

import hashlib
import io
from typing import Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from app.declarations.attributes import Attribute, day
from app.declarations.errors import InvalidRequest
from app.declarations.spec import BipartiteSpec, GraphSpec, MatrixSpec, MultisetSpec, Spec, TableSpec, written
from app.spaces.factory import zeros_of
from app.spaces.tensor import Array, FloatArray, IntArray

DummyFormat = Literal["csv", "arrow", "parquet"]

#: Records by default, and at most.
RECORDS, MOST_RECORDS = 1000, 100_000
#: Seeds are below this.
SEEDS = 2**63
#: The part of values that are missing where some may be.
MISSING = 0.05
#: How many different elements a made-up multiset has.
ELEMENTS = 100


def dummy_table(spec: Spec, records: int = RECORDS, seed: int = 0) -> pa.Table:
    """Made-up records as a file of this kind of data has them: a column an attribute, or the columns of a list.

    Edges and entries of a matrix are distinct, so that there may be fewer.

    Raises:
        InvalidRequest: unless records are 1 to ``MOST_RECORDS``, and the seed an integer from 0 below 2^63.
    """
    if not 1 <= records <= MOST_RECORDS:
        raise InvalidRequest(f"records: 1 to {MOST_RECORDS:,}")
    if not 0 <= seed < SEEDS:
        raise InvalidRequest("seed: an integer from 0 below 2^63")
    return drawn(spec, records, seed)


def drawn(spec: Spec, records: int, seed: int) -> pa.Table:
    """The same, of any number of records."""
    document = orjson.dumps([written(spec), seed], option=orjson.OPT_SORT_KEYS)
    key = int.from_bytes(hashlib.sha256(document).digest()[:16], "little")
    rng = np.random.Generator(np.random.Philox(key=key))
    match spec:
        case TableSpec():
            places = _possible(spec, records, rng) if spec.zeros else None
            named = {
                attribute.name: _column(attribute, records, rng, None if places is None else places[:, axis])
                for axis, attribute in enumerate(spec.attributes)
            }
            if spec.unit is not None:
                # As many of each person as are kept.
                owners = (np.arange(records) // spec.unit.max_records).tolist()
                named[spec.unit.column] = pa.array([f"person{owner}" for owner in owners])
            return pa.table(named)
        case GraphSpec():
            # Of all pairs of different nodes, each end as likely.
            first, step = rng.integers(0, spec.nodes, records), rng.integers(1, spec.nodes, records)
            second = (first + step) % spec.nodes
            if not spec.directed:
                first, second = np.minimum(first, second), np.maximum(first, second)
            rows, columns = _distinct(first, second, spec.nodes)
            if spec.unit is not None:
                rows, columns = _within_cap(rows, columns, rows, spec.unit.max_edges, rng)
            ends = _ends(("source", rows, spec.labels), ("target", columns, spec.labels))
            return pa.table(ends | _weights(spec, len(rows), rng))
        case BipartiteSpec():
            left, right = rng.integers(0, spec.left, records), rng.integers(0, spec.right, records)
            rows, columns = _distinct(left, right, spec.right)
            if spec.unit is not None:
                nodes = rows if spec.unit.side == "left" else columns
                rows, columns = _within_cap(rows, columns, nodes, spec.unit.max_edges, rng)
            ends = _ends(("left", rows, spec.left_labels), ("right", columns, spec.right_labels))
            return pa.table(ends | _weights(spec, len(rows), rng))
        case MatrixSpec():
            rows, columns = _distinct(
                rng.integers(0, spec.rows, records), rng.integers(0, spec.columns, records), spec.columns
            )
            low, high = (int(bound * 2**spec.data_bits) for bound in (spec.lower, spec.upper))
            values = np.ldexp(rng.integers(low, high + 1, len(rows)).astype(np.float64), -spec.data_bits)
            return pa.table({"row": rows, "column": columns, "value": values})
        case MultisetSpec():
            elements, counts = np.unique(rng.integers(0, ELEMENTS, records), return_counts=True)
            return pa.table({"element": [f"element{e}" for e in elements.tolist()], "count": counts})


def mass_of(spec: Spec, table: pa.Table) -> float:
    """The number of records, edges (by weight) or elements in such a table of this declaration."""
    if isinstance(spec, MultisetSpec) or (isinstance(spec, GraphSpec | BipartiteSpec) and spec.weighted):
        return float(table.column(table.num_columns - 1).to_numpy().sum())
    return float(len(table))


def readable(spec: Spec) -> Spec:
    """The declaration by which such a table is read: of a matrix what is not in the list has some value."""
    if isinstance(spec, MatrixSpec) and spec.absent is None:
        return spec.model_copy(update={"absent": spec.lower})
    return spec


def encoded(table: pa.Table, form: DummyFormat) -> bytes:
    """A table as the bytes of a file; dates and missing values in CSV as uploads have them."""
    sink = io.BytesIO()
    if form == "csv":
        pyarrow.csv.write_csv(table, sink, pyarrow.csv.WriteOptions(quoting_style="needed"))
    elif form == "parquet":
        pq.write_table(table, sink)
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def _possible(spec: TableSpec, records: int, rng: np.random.Generator) -> IntArray:
    """Places of values that are not declared not to occur together, one after another, evenly among those that are
    left; behind the last of an attribute's is that of no value."""
    zeros = zeros_of(spec)
    codes = np.zeros((records, len(spec.attributes)), np.int64)
    for axis, attribute in enumerate(spec.attributes):
        codes[:, axis] = rng.integers(0, attribute.places, records)
        if attribute.missing:
            codes[rng.random(records) < MISSING, axis] = attribute.places
        choices = zeros.choices(codes, axis, range(axis))
        if choices is not None:
            for record in choices.wrong(codes[:, axis]).tolist():
                codes[record, axis] = rng.choice(np.flatnonzero(choices.of(np.array([record]))[0]))
    return codes


def _column(attribute: Attribute, records: int, rng: np.random.Generator, given: IntArray | None = None) -> pa.Array:
    places = rng.integers(0, attribute.places, records) if given is None else np.minimum(given, attribute.places - 1)
    if attribute.values is not None:
        mixed = len({type(value) for value in attribute.values}) > 1
        # Not an array of NumPy, in which every text is as long as the longest.
        column = pa.array([str(v) if mixed else v for v in attribute.values]).take(pa.array(places))
    else:
        column = pa.array(_values(attribute, places, rng))
    if not attribute.missing:
        return column
    without = rng.random(records) < MISSING if given is None else given == attribute.places
    return pc.if_else(pa.array(without), pa.scalar(None, column.type), column)


def _values(attribute: Attribute, places: IntArray, rng: np.random.Generator) -> Array:
    """A value at each place of an attribute without categories."""
    if attribute.kind == "codes":
        return places
    if attribute.kind == "dates":
        assert attribute.dates is not None
        zero = attribute.period(day(attribute.dates[0]))
        first = np.datetime64(attribute.dates[0], "D")
        days = np.array([np.datetime64(attribute.begins(zero + int(place)), "D") for place in places])
        # The first month or year may begin before the first day.
        dates: Array = np.maximum(days, first)
        return dates
    if attribute.kind == "numbers":
        low, step = attribute.bounds[0], attribute.step
        if low.denominator == step.denominator == 1:
            return int(low) + places * int(step)
        found: FloatArray = np.array([float(low + int(place) * step) for place in places])
        return found
    edge_at, count = attribute.edge_at(), attribute.bin_count + 1
    if all(edge_at(i).denominator == 1 for i in range(count)):
        whole = np.fromiter((int(edge_at(i)) for i in range(count)), np.int64, count)
        return rng.integers(whole[places], whole[places + 1])
    ends = np.fromiter((float(edge_at(i)) for i in range(count)), np.float64, count)
    # Rounding must not reach the next bin.
    inside = ends[places] + rng.random(len(places)) * (ends[places + 1] - ends[places])
    within: FloatArray = np.clip(inside, ends[places], np.nextafter(ends[places + 1], -np.inf))
    return within


def _distinct(rows: IntArray, columns: IntArray, width: int) -> tuple[IntArray, IntArray]:
    """Different cells of a matrix of so many columns, in order."""
    found = np.unique(rows * width + columns)
    return found // width, found % width


def _within_cap(
    rows: IntArray, columns: IntArray, nodes: IntArray, most: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Of each node as many edges as are kept, in order; ``nodes`` are the ends that edges belong to."""
    shuffled = rng.permutation(len(nodes))
    order = shuffled[np.argsort(nodes[shuffled], kind="stable")]
    sorted_nodes = nodes[order]
    places = np.arange(len(nodes)) - np.searchsorted(sorted_nodes, sorted_nodes)
    kept = np.sort(order[places < most])
    return rows[kept], columns[kept]


def _ends(*sides: tuple[str, IntArray, tuple[str, ...] | None]) -> dict[str, pa.Array]:
    """The two columns of a list of edges: ids or labels, under names that are no labels, so that they are a header."""
    taken = {label for _, _, labels in sides for label in labels or ()}
    ends: dict[str, pa.Array] = {}
    for name, ids, labels in sides:
        while name in taken:
            name += "_"
        ends[name] = pa.array(ids) if labels is None else pa.array(labels).take(pa.array(ids))
    return ends


def _weights(spec: GraphSpec | BipartiteSpec, count: int, rng: np.random.Generator) -> dict[str, FloatArray]:
    """A column of weights on the grid, where edges have such."""
    if not spec.weighted:
        return {}
    units = rng.integers(1, 2**spec.data_bits + 1, count)
    return {"weight": np.ldexp(units.astype(np.float64), -spec.data_bits)}
