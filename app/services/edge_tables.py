"""Values of the cells of a graph or a matrix as tables, with the names that the declaration has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from app.evidence.edges import BitArray, Edges
from app.spaces.graph import GraphSpace
from app.spaces.space import Space
from app.spaces.tensor import FloatArray


def edge_table(
    space: Space, edges: Edges, values: FloatArray, bits: BitArray | None = None, *, sparse: bool = False
) -> pa.Table:
    """A row for each cell, row by row: ``source``, ``target`` and ``weight``, of a matrix ``row``, ``column`` and
    ``value``.

    Ends are told by their labels where these are declared, else by their numbers. Of an undirected graph each pair of
    nodes has one row.

    Args:
        space: that has the cells.
        edges: the cells.
        values: one a cell.
        bits: what was released of each, where bits were: a column ``bit``.
        sparse: whether cells of value zero have no row.
    """
    listed = np.flatnonzero(values) if sparse else slice(None)
    labels = space.labels if isinstance(space, GraphSpace) else (None, None)
    *names, value = ("row", "column", "value") if space.kind == "matrix" else ("source", "target", "weight")
    columns = {}
    for name, end, called in zip(names, edges.ends(), labels, strict=True):
        numbers = pa.array(end[listed])
        columns[name] = numbers if called is None else pa.DictionaryArray.from_arrays(numbers, pa.array(called))
    columns[value] = pa.array(values[listed])
    if bits is not None:
        columns["bit"] = pa.array(bits[listed])
    return pa.table(columns)
