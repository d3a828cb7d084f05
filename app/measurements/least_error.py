"""Rows that are optimised for questions which are known ahead: the matrices of the matrix mechanism.

Questions are a matrix F over the cells of a table, and what is measured is another one, M, with noise of standard
deviation s; every question is answered by least squares, at a total squared error of ``s^2 tr F (M'M)^-1 F'`` (Li, Hay,
Rastogi, Miklau, McGregor 2010, "Optimizing linear counting queries under differential privacy"). M is chosen for the
least of it, where what a record moves M x by is held: its L2 norm for Gaussian noise, its L1 norm for Laplace.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, eigh
from scipy.optimize import minimize
from scipy.sparse import csr_array

from app.patience import still_wanted
from app.spaces.tensor import FloatArray

#: How far the error of an optimised strategy for Gaussian noise is above the least possible, at most, as a part of it,
#: and in how many steps that is tried.
_GAP, _MOST_STEPS = 1e-3, 40
#: Directions that the questions do not ask for are given this part of the largest, and cells this part of their price.
_LEAST_SEEN, _FIRM = 1e-10, 1e-4
#: For Laplace noise: steps of the search, and one weighted row beside single cells for so many of these
#: (and as many rows as that, where there are fewer cells).
_LAPLACE_STEPS, _CELLS_A_ROW = 200, 16
#: Weights of columns of norm one are rounded to so many bits.
_BITS = 12


def hierarchy(cells: int, branching: int) -> csr_array:
    """The sums of runs of 1, b, b^2, ... neighbouring cells, as far as these are less than all, and that of all."""
    runs = [1]
    while runs[-1] < cells:
        runs.append(runs[-1] * branching)
    lengths = [-(-cells // run) for run in runs]
    place = np.arange(cells)
    numbers = np.concatenate([place // run + sum(lengths[:k]) for k, run in enumerate(runs)])
    columns = np.tile(place, len(runs))
    return csr_array((np.ones(len(columns), np.int64), (numbers, columns)), shape=(sum(lengths), cells))


def least_error(gram: FloatArray) -> FloatArray:
    """The matrix M with columns of length one for which ``tr F (M'M)^-1 F'`` is least, to a thousandth or so.

    In ``X = M'M`` this is convex: the least ``tr (G X^-1)``, ``G = F'F``, with ones on the diagonal of X. With
    multipliers l of these ``X = L^-1/2 (L^1/2 G L^1/2)^1/2 L^-1/2``, L the diagonal matrix of l, and any l shows that
    no error is less than ``(tr (L^1/2 G L^1/2)^1/2)^2 / sum of l`` (weak duality). A multiplier is changed by the
    square of its place on the diagonal of X, which is exact where G is diagonal; where that brings the error no nearer
    to the bound, by less. The search ends where they are within a thousandth.

    Args:
        gram: G, symmetric, positive semidefinite, not zero.

    Returns:
        M, upper triangular.
    """
    size = len(gram)
    gram = gram / float(np.trace(gram)) * size
    multipliers, power = np.ones(size), 2.0
    best, least, bound = gram, math.inf, 0.0
    for _ in range(_MOST_STEPS):
        still_wanted()
        root = np.sqrt(multipliers)
        levels, vectors = eigh(gram * root * root[:, None], check_finite=False)
        bound = max(bound, float(np.sqrt(np.maximum(levels, 0)).sum()) ** 2 / float(multipliers.sum()))
        # What no question asks for is seen a little, so that X has an inverse.
        levels = np.sqrt(np.maximum(levels, _LEAST_SEEN * levels[-1]))
        x = (vectors * levels) @ vectors.T / root / root[:, None]
        scale = np.sqrt(x.diagonal())
        scaled = x / scale / scale[:, None]
        # The inverse is known by the same eigenvectors: X needs no factors, which might not be found in floating point.
        seen = vectors * (root * scale)[:, None]
        error = float((((gram @ seen) * seen).sum(axis=0) / levels).sum())
        if error < least:
            best, least = scaled, error
        else:
            power = max(power / 2, 0.25)
        if least <= bound * (1 + _GAP):
            break
        multipliers = multipliers * x.diagonal() ** power
    best[np.diag_indices(size)] += _FIRM
    return np.asarray(cholesky(best / (1 + _FIRM), check_finite=False))


def least_error_pure(gram: FloatArray) -> FloatArray:
    """A matrix M with columns of L1 norm one for which ``tr F (M'M)^-1 F'`` is small: single cells and some more rows.

    ``M = [1; T] E^-1`` with T not negative, p rows by cells, and E the diagonal matrix of ``1 + sum of a column of T``
    (McKenna, Miklau, Hay, Machanavajjhala 2018, "Optimizing error of high-dimensional statistical queries under
    differential privacy": p-identity strategies). The error is ``tr (H (1 + T'T)^-1)``, ``H = E G E``: with
    ``S = 1 + TT'``, ``U = S^-1 T`` and ``V = U H`` that is ``tr H - sum of V * T``; its derivative by T at fixed E is
    ``-2 (V - V T' U)``, and by e_j ``2 (g_jj e_j - (sum of T_j V_j)/e_j)``. The search is by L-BFGS, from a
    hierarchy of sums and from a random start, the same one on all machines: a local optimum.

    Args:
        gram: G, symmetric, positive semidefinite, not zero.
    """
    size = len(gram)
    gram = gram / float(np.trace(gram)) * size
    rows = max(min(size, _CELLS_A_ROW), -(-size // _CELLS_A_ROW))
    raw = np.random.Philox(key=1).random_raw(rows * size) >> np.uint64(11)
    starts = [np.ldexp(raw.astype(np.float64), -53)]
    if size > 2:
        branching = min(_CELLS_A_ROW, size - 1)
        sums = hierarchy(size, branching).toarray().astype(np.float64)[size:]
        starts.append(sums)
    options = {"maxiter": _LAPLACE_STEPS, "maxfun": 2 * _LAPLACE_STEPS, "maxcor": 20}
    found = [
        minimize(
            _pure_error,
            s.reshape(-1),
            (gram,),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None)] * s.size,
            options=options,
        )
        for s in starts
    ]
    t = min(found, key=lambda f: float(f.fun)).x.reshape(-1, size)
    return np.asarray(np.concatenate([np.eye(size), t]) / (1 + t.sum(axis=0)))


def _pure_error(flat: FloatArray, gram: FloatArray) -> tuple[float, FloatArray]:
    """The error of :func:`least_error_pure` and its derivative, at T row by row."""
    size, diagonal = len(gram), gram.diagonal()
    t = flat.reshape(-1, size)
    e = 1 + t.sum(axis=0)
    system = t @ t.T
    system[np.diag_indices(len(t))] += 1
    u = cho_solve(cho_factor(system, check_finite=False), t, check_finite=False)
    w = (u * e) @ gram
    v = w * e
    slope = -2 * (v - (v @ t.T) @ u) + 2 * (diagonal * e - (t * w).sum(axis=0))
    return float((diagonal * e * e).sum() - (v * t).sum()), slope.reshape(-1)


def rounded(matrix: FloatArray) -> FloatArray:
    """A matrix with columns of norm one in whole numbers, in units of 2^-12."""
    return np.rint(np.ldexp(matrix, _BITS))
