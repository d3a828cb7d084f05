"""Hypotheses as files: the same bytes as in one piece, made without a second copy in memory."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.constructions.base import DenseHypothesis, ListedHypothesis
from app.services import hypothesis_files
from app.services.exports import Export, ExportSpace
from app.services.hypothesis_files import Format, write_hypothesis

pytestmark = pytest.mark.unit

SHAPES = [(1,), (5,), (3, 4, 5), (hypothesis_files._ROWS,), (hypothesis_files._ROWS + 1,), (257, 3, 129), (2, 0, 3)]


def nothing(*_: Any) -> None:
    """Nobody hears of it."""


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Export]:
    made = ExportSpace(tmp_path / "exports", 1 << 30, 1 << 30, nothing).open("ann")
    yield made
    made.close()


def read(export: Export) -> bytes:
    return b"".join(export.parts())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f8", "<f4", ">f8", "<i8"])
def test_an_array_is_what_numpy_saves(export: Export, shape: tuple[int, ...], order: Any, kind: str) -> None:
    """Whatever its layout in memory, around the sizes of blocks. Would catch cells in another order, a block that is
    left out, and a header that says something else."""
    array = np.asarray(np.random.default_rng(1).integers(-9, 9, shape).astype(kind), order=order)
    write_hypothesis(export, DenseHypothesis(array), (), "npy", {}, nothing)
    expected = io.BytesIO()
    np.save(expected, np.ascontiguousarray(array, "<f8"))
    assert export.size == len(expected.getvalue())
    found = read(export)
    np.testing.assert_array_equal(np.load(io.BytesIO(found)), array)
    assert found[-8 * array.size :] == expected.getvalue()[-8 * array.size :]


def table(format: Format, content: bytes) -> pa.Table:
    if format == "parquet":
        return pq.read_table(io.BytesIO(content))
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_a_table_has_a_row_a_cell(export: Export, shape: tuple[int, ...], order: Any, format: Format) -> None:
    """Codes along every axis beside the count. Would catch axes that are swapped, and rows that are lost or told twice
    between blocks."""
    array = np.asarray(np.random.default_rng(1).random(shape), order=order)
    names = ("count", "count_", "c")[: len(shape)]
    write_hypothesis(export, DenseHypothesis(array), names, format, {"session": "s"}, nothing)
    found = table(format, read(export))
    count = "count" + "_" * min(2, len(shape))
    assert found.column_names == [*names, count]
    assert found.schema.metadata[b"session"] == b"s"
    assert {str(found.schema.field(name).type) for name in names} == {"int32"}
    np.testing.assert_array_equal(found[count].to_numpy(), array.reshape(-1, order="C"))
    for name, codes in zip(names, np.indices(shape), strict=True):
        np.testing.assert_array_equal(found[name].to_numpy(), codes.reshape(-1))


@pytest.mark.parametrize("format", ["arrow", "parquet"])
@pytest.mark.parametrize("count", [0, 1, hypothesis_files._ROWS, hypothesis_files._ROWS + 1])
def test_a_table_has_a_row_an_element(export: Export, format: Format, count: int) -> None:
    elements = tuple(f"é{number}" for number in range(count))
    listed = ListedHypothesis(elements, np.arange(count) / 4, 1.0)
    write_hypothesis(export, listed, (), format, {}, nothing)
    found = table(format, read(export))
    assert found["element"].to_pylist() == list(elements)
    assert found["count"].to_pylist() == [number / 4 for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["npy", "arrow", "parquet"])
def test_no_second_one_is_made_in_memory(export: Export, format: Format) -> None:
    """32 MB in the other layout. Would catch an array that is laid out anew, columns of all cells, and a buffer of the
    whole reply."""
    array = np.asfortranarray(np.random.default_rng(1).random((1024, 4096)))
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    try:
        write_hypothesis(export, DenseHypothesis(array), ("a", "b"), format, {}, nothing)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert export.size >= array.nbytes
    assert peak < array.nbytes / 4
    assert pa.total_allocated_bytes() - arrow < array.nbytes / 4


@pytest.mark.parametrize("format", ["npy", "arrow", "parquet"])
def test_who_is_not_waited_for_is_not_written_for(export: Export, format: Format) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        write_hypothesis(export, DenseHypothesis(np.zeros((10, hypothesis_files._ROWS))), ("a", "b"), format, {}, check)
    assert export.size < 3 * 16 * hypothesis_files._ROWS
