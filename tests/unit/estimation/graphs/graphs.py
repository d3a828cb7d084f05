"""What the tests of cuts share: questions drawn at random, and their weights written out over all cells."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from app.estimation.graphs.cuts import CutQuestion, Side
from app.measurements.strategies.edges import CellKind
from app.spaces.tensor import FloatArray

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


def side(rng: np.random.Generator, length: int, *, real: bool = False, least: int = 0) -> Side:
    """A set of nodes, or weights in eighths: of these some are negative."""
    chosen = np.sort(rng.choice(length, int(rng.integers(least, length + 1)), replace=False))
    return Side(length, chosen, rng.integers(-8, 9, len(chosen)) / 8 if real else None)


def question(
    rng: np.random.Generator, kind: CellKind, shape: tuple[int, int], *, real: bool = False, least: int = 0
) -> CutQuestion:
    """A cut, or where ``real`` a rank-one query; of pairs its weights are not negative."""
    left, right = (side(rng, n, real=real, least=least) for n in shape)
    if kind != "pairs":
        return CutQuestion(kind, left, right)
    if not real:
        return CutQuestion(kind, left, right, Side(shape[0], np.intersect1d(left.places, right.places)))
    s, t = (Side(shape[0], each.places, np.abs(each.own)) for each in (left, right))
    both = s.vector * t.vector
    places = np.flatnonzero(both)
    return CutQuestion(kind, s, t, Side(shape[0], places, both[places]))


def vector(side: Side) -> FloatArray:
    """The weights of a side on every node. A plain loop."""
    made = np.zeros(side.length)
    for k, place in enumerate(side.places):
        made[place] = 1.0 if side.weights is None else side.weights[k]
    return made


def weights(asked: CutQuestion) -> FloatArray:
    """What a question weighs every cell by, from its two sides. A plain loop.

    Of pairs an edge between the sides is counted once, and the weight of a rank-one query is what it is by the
    definition of that: ``s_i t_j + t_i s_j - s_i t_i s_j t_j``.
    """
    s, t = vector(asked.left), vector(asked.right)
    made = np.zeros((len(s), len(t)))
    for i, j in zip(*np.nonzero(cells(asked.kind, made.shape)), strict=True):
        made[i, j] = s[i] * t[j]
        if asked.kind == "pairs":
            made[i, j] += t[i] * s[j] - s[i] * t[i] * s[j] * t[j]
    return made


def data(rng: np.random.Generator, kind: CellKind, shape: tuple[int, int]) -> FloatArray:
    """A matrix of cells in eighths: symmetric of pairs, and zero where there is no cell."""
    made = np.where(cells(kind, shape), rng.integers(0, 9, shape) / 8, 0.0)
    return made + made.T if kind == "pairs" else made
