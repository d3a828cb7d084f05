"""Graphs of a million nodes: what is made of them grows with their edges and nodes, and never with pairs of nodes.

Memory is measured, not time: it tells the same on every machine. A square of a million has 10^12 cells, so anything
of its size fails at once; beside that, arrays of the nodes are counted in tens of megabytes and edges in some hundred
bytes each while they are read. `benchmarks/service/graph_scale.py` measures ten million edges, and times.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from app.declarations.spec import parse_spec
from app.measurements.strategies.degrees import Degrees
from app.spaces.factory import space_of
from app.spaces.queries.registry import parse_query
from app.storage.private_data import CsrData
from app.storage.readers import read_private

pytestmark = [pytest.mark.unit, pytest.mark.slow]

NODES, EDGES = 10**6, 3 * 10**5
BUDGET = {"epsilon": 1.0, "delta": 1e-9}
MB = 1 << 20
GRAPHS: list[dict[str, Any]] = [
    {"kind": "graph", "nodes": NODES, "loops": "drop"},
    {"kind": "graph", "nodes": NODES, "loops": "drop", "directed": True},
    {"kind": "bipartite", "left": NODES, "right": NODES, "unit": {"side": "right", "max_edges": 1}},
]


def peak(work: Callable[[], Any]) -> tuple[float, Any]:
    """The most memory that a call held, in MB, and what it returns."""
    tracemalloc.start()
    try:
        found = work()
        return tracemalloc.get_traced_memory()[1] / MB, found
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("large") / "edges.csv"
    pyarrow.csv.write_csv(pa.table({end: rng.integers(0, NODES, EDGES) for end in "ab"}), path)
    return path


@pytest.mark.parametrize("words", GRAPHS, ids=["undirected", "directed", "side"])
def test_memory_grows_with_edges_and_nodes(words: dict[str, Any], file: Path) -> None:
    """Reading, a cut of a hundred thousand nodes a side, and all degrees. Would catch a matrix of all pairs, a list of
    Python's own for edges, which takes some hundred bytes for each number, and a degree for each pair of node and
    edge."""
    spec = parse_spec({"name": "g", "budget": BUDGET, "weighted": False, **words})
    taken, read = peak(lambda: read_private(spec, file.name, file, memory_limit=256 * MB))
    assert isinstance(read.data, CsrData)
    assert taken < 80
    space = space_of(spec)
    tensor = space.tensor(read.data.matrix())
    sides = [np.random.default_rng(side).choice(NODES, 10**5, replace=False).tolist() for side in (1, 2)]
    asked = parse_query({"type": "cut", "left": sides[0], "right": sides[1]})
    taken, query = peak(lambda: asked.compiled(space))
    assert taken < 60
    taken, exact = peak(lambda: query.exact(tensor))
    assert taken < 10
    inside = [np.isin(np.arange(NODES), side) for side in sides]
    rows, columns = tensor.matrix.tocoo().coords  # type: ignore[union-attr]
    crossing = inside[0][rows] & inside[1][columns]
    if words["kind"] == "graph" and not words.get("directed"):
        crossing = (crossing | (inside[1][rows] & inside[0][columns])) & (rows < columns)
    assert exact == crossing.sum()
    taken, degrees = peak(lambda: Degrees.of(space).exact(None, tensor))
    assert taken < 60
    assert degrees.sum() == 2 * read.data.mass
