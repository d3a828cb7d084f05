"""Cut norms of undirected graphs, by those of directed ones.

In a symmetric matrix with a zero diagonal, ``cut(S, T)`` counts the entry of a pair once when one end is in S and the
other in T: ``A(S, T) - A(S & T, S & T)/2``. With the labels none, S alone, T alone and both it is ``sum_ij K(l_i, l_j)
a_ij``; K is 1/2 for two different labels that are not none, and for both and both; otherwise zero. On B of
:mod:`app.geometry.cut_norm`, whose sums are zero, a function of one label added to K changes nothing. With f of
``UNDIRECTED_SHIFT`` the matrix ``K + f 1' + 1 f'`` is the difference of two positive semidefinite matrices whose sum
has a diagonal below ``UNDIRECTED/4``. So it is a matrix of products of vectors of at most that squared length, and the
bound from above holds with these vectors in place of the signs: ``cut(S, T)`` is at most ``UNDIRECTED`` times the bound
of A's cut norm. (Writing a cut as four of ``A(S, T)`` gives 5/4.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from app.geometry.cut_norm import KICKS, BoolArray, CutNorm, cut_norm
from app.spaces.tensor import IntArray

#: An undirected cut is at most this many times the bound of the cut norm, and the function of labels that shows it: of
#: none, S alone, T alone, both.
UNDIRECTED, UNDIRECTED_SHIFT = 1.06, (0.1139, -0.1289, -0.1289, -0.3084)
#: Whether an edge counts between two labels: none, S alone, T alone, both.
_PARTNERS = np.array([[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 1]], dtype=np.float64)


def undirected_cut_norm(
    matrix: Any,
    *,
    sweeps: int = 200,
    kicks: int = KICKS,
    certified: bool = True,
    seed: int = 0,
) -> CutNorm:
    """Sets S and T of nearly the largest undirected ``|cut(S, T)|``, in which every pair counts once, and a bound.

    The sets start from those of ``cut_norm`` and change by the best move of one node at a time.

    Args:
        matrix: n x n, symmetric, with a zero diagonal; an array or a sparse array.
        sweeps: as in ``cut_norm``.
        certified: as in ``cut_norm``.
        kicks: as in ``cut_norm``; and eight times as many rounds of moves from labels of which some were drawn anew.
        seed: as in ``cut_norm``.

    Raises:
        ValueError: when the matrix is not symmetric with a zero diagonal, or an entry is not finite.
    """
    given = csr_array(matrix, dtype=np.float64) if issparse(matrix) else np.asarray(matrix, dtype=np.float64)
    if given.shape[0] != given.shape[1] or abs(given - given.T).max() != 0 or np.any(given.diagonal() != 0):
        raise ValueError("an undirected cut is of a symmetric matrix with a zero diagonal")
    found = cut_norm(given, sweeps=sweeps, kicks=kicks, certified=certified, seed=seed)
    rng = np.random.default_rng([seed, 1])
    best, most = max(
        (_moved(given, _labels(found.left, found.right), sign) for sign in (1.0, -1.0)), key=lambda m: m[1]
    )
    for kick in range(8 * kicks):
        turned = rng.random(len(best)) < 0.5 ** (1 + kick // 2 % 5)
        labels, value = _moved(given, np.where(turned, rng.integers(0, 4, len(best)), best), (-1.0) ** kick)
        if value > most:
            best, most = labels, value
    left, right = (best & 1) != 0, (best & 2) != 0
    upper = math.nextafter(UNDIRECTED * found.upper, math.inf)
    return CutNorm(undirected_cut_value(given, left, right), upper, left, right)


def undirected_cut_value(matrix: Any, left: BoolArray, right: BoolArray) -> float:
    """``|cut(left, right)|`` of a symmetric matrix with a zero diagonal, rounded once."""
    both = left & right
    return abs(math.fsum([*_entries(matrix, left, right), *(-0.5 * entry for entry in _entries(matrix, both, both))]))


def _entries(matrix: Any, left: BoolArray, right: BoolArray) -> list[float]:
    inside = matrix[left][:, right]
    found: list[float] = (inside.data if issparse(inside) else inside).ravel().tolist()
    return found


def _labels(left: BoolArray, right: BoolArray) -> IntArray:
    """A label a node: 1 in S, 2 in T, 3 in both, 0 in neither."""
    return left.astype(np.int64) + 2 * right.astype(np.int64)


def _moved(matrix: Any, labels: IntArray, sign: float) -> tuple[IntArray, float]:
    """Labels after the best moves of one node at a time, until none adds to the sign times the cut; and that."""
    labels = labels.copy()
    nodes = np.arange(len(labels))
    # A column a label: what a node with it adds to the cut. The diagonal is zero, so its own label does not matter.
    sums = sign * (matrix @ _PARTNERS[labels])
    least = 1e-9 * (float(np.abs(sums).max()) or 1.0)
    for _ in range(20 * len(labels)):
        gains = sums - sums[nodes, labels][:, None]
        node, label = divmod(int(gains.argmax()), 4)
        if gains[node, label] <= least:
            break
        row = matrix[[node]].toarray()[0] if issparse(matrix) else matrix[node]
        sums += sign * np.multiply.outer(row, _PARTNERS[label] - _PARTNERS[labels[node]])
        labels[node] = label
    return labels, float(sums[nodes, labels].sum()) / 2
