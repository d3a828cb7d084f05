"""The data sets of the papers' applications: imbalanced and power-law graphs, low-rank matrices, histograms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from app.curator.dataset import PublicDataset
from app.declarations.spec import parse_spec
from benchmarks.research.applications_play import FloatArray, IntArray, Private

#: Failure probability of the guarantee throughout.
DELTA = 1e-6
#: Entries of matrices are whole numbers of this part.
MATRIX_GRID = 2.0**-10


def imbalanced_degrees(nodes: int) -> IntArray:
    """JT12 section 4.1: the first V^(3/4) left nodes are joined to all, the others to V^(1/2)."""
    degrees = np.full(nodes, round(nodes**0.5), dtype=np.int64)
    degrees[: round(nodes**0.75)] = nodes
    return degrees


def power_law_degrees(nodes: int, beta: float) -> IntArray:
    """JT12 section 4.1: about ``i^-beta/sum_j j^-beta`` of the V left nodes have degree i, from 1 to V."""
    shares = np.arange(1, nodes + 1, dtype=np.float64) ** -beta
    reached = np.cumsum(shares) / shares.sum()
    return 1 + np.searchsorted(reached, (np.arange(nodes) + 0.5) / nodes)


def bipartite(degrees: IntArray, rng: np.random.Generator, nested: bool = False) -> IntArray:
    """A V by V adjacency matrix; each left node joins random right nodes, or (``nested``) the first ones."""
    nodes = len(degrees)
    matrix = np.zeros((nodes, nodes), dtype=np.int64)
    for row, degree in enumerate(degrees.tolist()):
        matrix[row, np.arange(degree) if nested else rng.choice(nodes, degree, replace=False)] = 1
    return matrix


def low_rank(rows: int, columns: int, rank: int, rng: np.random.Generator) -> FloatArray:
    """A random matrix of the rank, its entries within [-1/2, 1/2] (so that gamma is 1) and on the grid.

    Rounding to the grid adds noise of about a thousandth of the entries, of full rank.
    """
    product = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
    scaled: FloatArray = np.rint(product / (2 * np.abs(product).max()) / MATRIX_GRID) * MATRIX_GRID
    return scaled


def skewed(records: int, cells: int, support: int, rng: np.random.Generator) -> IntArray:
    """A histogram of the records over ``support`` random cells, the i-th largest count about 1/i of the largest."""
    shares = 1 / np.arange(1, support + 1)
    counts = np.floor(records * shares / shares.sum()).astype(np.int64)
    counts[0] += records - int(counts.sum())
    histogram = np.zeros(cells, dtype=np.int64)
    histogram[rng.choice(cells, support, replace=False)] = counts
    return histogram


def declared(epsilon: float, **rest: Any) -> Any:
    """A declaration with the budget of all these benchmarks."""
    return parse_spec({"name": "data", "budget": {"epsilon": epsilon, "delta": DELTA}, **rest})


def _private(spec: Any, units: npt.NDArray[np.int64], bits: int = 0) -> Private:
    public = PublicDataset(spec, records=float(units.sum()) if spec.records_public else None)
    # Stored in the narrowest type, as the service does.
    narrow = units.astype(np.min_scalar_type(-int(np.abs(units).max()) - 1))
    return Private(public, public.space.tensor(narrow), np.ldexp(units.astype(np.float64), -bits))


def graph_data(matrix: IntArray, epsilon: float) -> Private:
    """A bipartite graph whose number of edges is public."""
    left, right = matrix.shape
    return _private(declared(epsilon, kind="bipartite", left=left, right=right, records_public=True), matrix)


def directed_data(matrix: IntArray, epsilon: float) -> Private:
    """A directed graph whose number of edges is public."""
    spec = declared(epsilon, kind="graph", nodes=len(matrix), directed=True, records_public=True)
    return _private(spec, matrix)


def matrix_data(matrix: FloatArray, epsilon: float) -> Private:
    """A matrix with entries in [-1/2, 1/2]."""
    rows, columns = matrix.shape
    bits = round(-math.log2(MATRIX_GRID))
    units = np.rint(np.ldexp(matrix, bits)).astype(np.int64)
    spec = declared(epsilon, kind="matrix", rows=rows, columns=columns, lower=-0.5, upper=0.5, grid=MATRIX_GRID)
    return _private(spec, units, bits)


def table_data(counts: IntArray, epsilon: float) -> Private:
    """A table whose number of records is public, one attribute an axis of the counts."""
    attributes = [{"name": f"a{i}", "size": length} for i, length in enumerate(counts.shape)]
    return _private(declared(epsilon, kind="table", attributes=attributes, records_public=True), counts)
