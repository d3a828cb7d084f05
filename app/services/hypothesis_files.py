"""Hypotheses as files: an array (.npy), or a table (Arrow stream, Parquet)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.lib import format as npy

from app.constructions.base import DenseHypothesis, Hypothesis

Format = Literal["npy", "arrow", "parquet"]

#: Cells or elements that are written at a time.
_ROWS = 1 << 16


class Sink(Protocol):
    """Where a file is written to."""

    def write(self, data: Any, /) -> int:
        """Add bytes at the end."""


class _UnclosedFile:
    """A sink as a file that libraries write to. To close it has no effect: the sink is its owner's."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self.write = sink.write

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Leave the sink open."""


def write_hypothesis(
    sink: Sink,
    hypothesis: Hypothesis,
    names: Iterable[str],
    format: Format,
    facts: Mapping[str, str],
    check: Callable[[], None],
) -> None:
    """Write a hypothesis block by block.

    Args:
        sink: where to.
        hypothesis: what to write.
        names: names of its axes, which are columns of a table.
        format: ``npy`` writes an array, the others a table. Only a dense hypothesis can be an array.
        facts: about the hypothesis; they become the metadata of a table.
        check: called before each block; what it raises ends the work.
    """
    if isinstance(hypothesis, DenseHypothesis) and format == "npy":
        _write_array(sink, hypothesis.array, check)
        return
    if isinstance(hypothesis, DenseHypothesis):
        blocks, schema = _cells(hypothesis.array, tuple(names))
    else:
        blocks, schema = _elements(hypothesis)
    schema = schema.with_metadata(facts)
    file = pa.PythonFile(_UnclosedFile(sink), mode="w")
    writer: Any = pq.ParquetWriter(file, schema) if format == "parquet" else pa.ipc.new_stream(file, schema)
    with writer:
        for block in blocks:
            check()
            writer.write_batch(pa.record_batch(block, schema=schema))


def _write_array(sink: Sink, array: Any, check: Callable[[], None]) -> None:
    npy.write_array_header_1_0(sink, {"descr": "<f8", "fortran_order": False, "shape": array.shape})
    if not array.size:
        return
    # In the order of the cells, whatever the array's order in memory, and without a copy of all of it.
    blocks: Any = np.nditer(array, ["external_loop", "buffered"], ["readonly"], "<f8", "C", buffersize=_ROWS)
    for block in blocks:
        check()
        sink.write(np.ascontiguousarray(block))


def _cells(array: Any, names: tuple[str, ...]) -> tuple[Iterator[list[Any]], pa.Schema]:
    """Blocks of a table with one row a cell: its code along every axis, and its count."""
    count = "count"
    while count in names:
        count += "_"
    schema = pa.schema([*((name, pa.int32()) for name in names), (count, pa.float64())])

    def blocks() -> Iterator[list[Any]]:
        for start in range(0, array.size, _ROWS):
            codes = np.unravel_index(np.arange(start, min(start + _ROWS, array.size)), array.shape)
            yield [*(code.astype(np.int32) for code in codes), array[codes]]

    return blocks(), schema


def _elements(hypothesis: Any) -> tuple[Iterator[list[Any]], pa.Schema]:
    """Blocks of a table with one row an element that the hypothesis lists."""
    elements, counts = hypothesis.elements, hypothesis.counts
    schema = pa.schema([("element", pa.large_string()), ("count", pa.float64())])
    ranges = (slice(start, start + _ROWS) for start in range(0, len(elements), _ROWS))
    return ([elements[part], counts[part]] for part in ranges), schema
