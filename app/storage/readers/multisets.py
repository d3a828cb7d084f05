"""Multisets of strings: distinct elements with their counts, sorted for look-up."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset
from app.declarations.spec import DEFAULT_CAPACITY, MultisetSpec
from app.storage.private_data import ElementsData
from app.storage.readers.columns import numbers, texts, whole
from app.storage.readers.named import named_columns
from app.storage.readers.sums import exact_sum
from app.storage.readers.types import integer_type

_MERGE_BYTES = 1 << 27


def read_multiset(spec: MultisetSpec, suffix: str, path: Path, memory_limit: int) -> ElementsData:
    """A multiset from columns ``element`` and, unless every row counts 1, ``count`` (CSV, text, Parquet).

    Elements are compared byte for byte in UTF-8, without any normalisation; the counts of an element in
    several rows add up; an element whose counts are all 0 is not kept.
    """
    capacity = spec.capacity or DEFAULT_CAPACITY
    dtype = integer_type(0, capacity)
    file = named_columns(
        suffix,
        path,
        ("element",),
        ("count",),
        max_rows=None,
        memory_limit=memory_limit,
    )
    mass = waiting = 0
    parts: list[pa.Table] = []
    for batch in file.batches:
        elements, codes = _coded(batch.columns[0])
        empty = np.append(pc.fill_null(pc.equal(pc.binary_length(elements), 0), True), True)[codes]
        if empty.any():
            row = batch.first + int(np.argmax(empty))
            raise InvalidDataset(f'row {row}: "element" is empty', row=row)
        if "count" in file.names:
            counts = whole(numbers(batch.columns[1], "count"), capacity + 1)
            if (counts < 0).any():
                row = batch.first + int(np.argmax(counts < 0))
                raise InvalidDataset(
                    f'row {row}: "count" must be a whole number from 0 to the capacity of {capacity}', row=row
                )
        else:
            counts = np.ones(len(batch), np.int64)
        mass += exact_sum(counts)
        if mass > capacity:
            raise InvalidDataset(f"the counts add up to more than the declared capacity of {capacity}")
        totals = np.zeros(len(elements), np.int64)
        np.add.at(totals, codes, counts)
        parts.append(pa.table({"element": elements, "count": totals}))
        waiting += parts[-1].nbytes
        if waiting >= _MERGE_BYTES:
            parts = [_merged(parts)]
            if parts[0].nbytes > memory_limit:
                raise InvalidDataset(_too_large(memory_limit))
            waiting = 0
    table = _merged(parts)
    table = table.filter(pc.greater(table["count"], 0))
    # Arrow orders strings by their bytes, as ``ElementsData`` promises.
    table = table.take(pc.sort_indices(table["element"]))
    if table.nbytes > memory_limit:
        raise InvalidDataset(_too_large(memory_limit))
    if not len(table):
        return ElementsData(np.zeros(0, np.uint8), np.zeros(1, np.int64), np.zeros(0, dtype), mass)
    elements = table["element"].combine_chunks()
    _, offsets, blob = elements.buffers()
    offset = np.frombuffer(offsets, np.int64, len(elements) + 1, elements.offset * 8)
    used = np.frombuffer(blob, np.uint8)[offset[0] : offset[-1]]
    return ElementsData(used, offset - offset[0], table["count"].to_numpy().astype(dtype), mass)


def _coded(column: Any) -> tuple[Any, NDArray[np.int64]]:
    """The strings of a batch and, for each row, which one it has; a missing one counts as one more than
    there are.

    A dictionary stays one: rows that repeat a long string never write it out.
    """
    if not pa.types.is_dictionary(column.type):
        elements = texts(column, "element")
        return elements, np.arange(len(elements))
    elements = texts(column.dictionary, "element")
    codes = column.indices.fill_null(len(elements)).to_numpy(zero_copy_only=False)
    return elements, codes.astype(np.int64)


def _too_large(memory_limit: int) -> str:
    return f"the distinct elements take more memory than the limit of {memory_limit} bytes"


def _merged(parts: list[pa.Table]) -> pa.Table:
    """One row an element, its counts added."""
    grouped = pa.concat_tables(parts).group_by("element").aggregate([("count", "sum")])
    return grouped.rename_columns({"count_sum": "count"}).select(["element", "count"])
