"""What the tests of cuts share: questions drawn at random, and their weights written out over all cells."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from app.measurements.strategies.edges import CellKind
from app.spaces.cuts import CutQuestion
from app.spaces.tensor import Axis, FloatArray

KINDS: tuple[CellKind, ...] = ("all", "arcs", "pairs")


@st.composite
def shapes(draw: st.DrawFn, kind: CellKind, most: int = 7) -> tuple[int, int]:
    """Rows and columns of a small matrix."""
    rows = draw(st.integers(1 if kind == "all" else 2, most))
    return rows, draw(st.integers(1, most)) if kind == "all" else rows


def cells(kind: CellKind, shape: tuple[int, int]) -> np.ndarray:
    """Which entries are cells: of pairs those above the diagonal."""
    made = np.zeros(shape, bool)
    for i, j in np.ndindex(shape):
        made[i, j] = kind == "all" or (i < j if kind == "pairs" else i != j)
    return made


def nodes(length: int, chosen: np.ndarray) -> Axis:
    """A set of nodes."""
    return Axis(length, chosen)


def eighths(weights: np.ndarray) -> Axis:
    """Weights of every node, in eighths."""
    return Axis(len(weights), slice(0, len(weights)), weights, 3)


def side(rng: np.random.Generator, length: int, *, real: bool = False, least: int = 0) -> Axis:
    """A set of nodes, or weights in eighths: of these some are negative."""
    chosen = np.sort(rng.choice(length, int(rng.integers(least, length + 1)), replace=False))
    if not real:
        return nodes(length, chosen)
    made = np.zeros(length, np.int64)
    made[chosen] = rng.integers(-8, 9, len(chosen))
    return eighths(made)


def cut(kind: CellKind, left: Axis, right: Axis) -> CutQuestion:
    """What two sides ask, both sets or both with weights."""
    if kind != "pairs":
        return CutQuestion(left, right, loops=kind == "all")
    if left.weights is None or right.weights is None:
        return CutQuestion(left, right, nodes(left.length, np.intersect1d(left.places, right.places)), loops=False)
    return CutQuestion(left, right, Axis(left.length, left.index, left.weights * right.weights, 6), loops=False)


def question(
    rng: np.random.Generator, kind: CellKind, shape: tuple[int, int], *, real: bool = False, least: int = 0
) -> CutQuestion:
    """A cut, or where ``real`` a rank-one query; of pairs its weights are not negative."""
    left, right = (side(rng, n, real=real, least=least) for n in shape)
    if kind == "pairs" and real:
        left, right = (eighths(np.abs(each.vector())) for each in (left, right))
    return cut(kind, left, right)


def vector(side: Axis) -> FloatArray:
    """The weights of a side on every node. A plain loop."""
    made = np.zeros(side.length)
    for node in range(side.length):
        if side.weights is not None:
            made[node] = side.weights[node] / 2**side.bits
    if side.weights is None:
        made[side.index] = 1.0
    return made


def kind_of(asked: CutQuestion) -> CellKind:
    """Which entries a question counts."""
    return "pairs" if asked.both is not None else "all" if asked.loops else "arcs"


def weights(asked: CutQuestion) -> FloatArray:
    """What a question weighs every cell by, from its two sides. A plain loop.

    Of pairs an edge between the sides is counted once, and the weight of a rank-one query is what it is by the
    definition of that: ``s_i t_j + t_i s_j - s_i t_i s_j t_j``.
    """
    s, t = vector(asked.left), vector(asked.right)
    made = np.zeros((len(s), len(t)))
    for i, j in zip(*np.nonzero(cells(kind_of(asked), made.shape)), strict=True):
        made[i, j] = s[i] * t[j]
        if asked.both is not None:
            made[i, j] += t[i] * s[j] - s[i] * t[i] * s[j] * t[j]
    return made


def data(rng: np.random.Generator, kind: CellKind, shape: tuple[int, int]) -> FloatArray:
    """A matrix of cells in eighths: symmetric of pairs, and zero where there is no cell."""
    made = np.where(cells(kind, shape), rng.integers(0, 9, shape) / 8, 0.0)
    return made + made.T if kind == "pairs" else made
