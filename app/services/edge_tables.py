"""Values of cells of a graph or a matrix, and of degrees, as tables, with the names that the declaration has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from app.measurements.noise import BitArray
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
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


def degree_table(space: Space, degrees: Degrees, values: FloatArray) -> pa.Table:
    """A row for each degree: ``node`` and ``degree``; where sources and targets are told apart, with a ``side``.

    Args:
        space: that has the nodes.
        degrees: what was measured.
        values: one a degree.
    """
    rows, columns = degrees.edges.shape
    labels = space.labels if isinstance(space, GraphSpace) else (None, None)
    sides = [("source", rows, labels[0]), ("target", columns, labels[1])][: 1 if degrees.cells == rows else 2]
    # One column holds the nodes of both sides: where any have labels, numbers are text too.
    text = any(names is not None for _, _, names in sides)
    nodes = [pa.array(range(size) if names is None else names) for _, size, names in sides]
    told = {"side": pa.array([name for name, size, _ in sides for _ in range(size)])} if len(sides) > 1 else {}
    node = pa.concat_arrays([each.cast(pa.string()) if text else each for each in nodes])
    return pa.table(told | {"node": node, "degree": pa.array(values)})
