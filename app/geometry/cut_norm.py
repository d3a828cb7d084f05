"""Cut norms of matrices, with sets that are nearly best and a certificate that no others are much better.

The cut norm of A is the largest ``|A(S, T)|``, where ``A(S, T)`` is the sum of ``a_ij`` over i in S and j in T (Frieze,
Kannan 1999). It is hard to compute; what is found here lies between two numbers that are certain.

Alon and Naor (2006, section 3) border A with a row and a column that make all sums zero. Of the bordered matrix B, with
``x = +-1`` on S and elsewhere, and y likewise for T, ``x' B y = 4 B(S, T)``, and S and T may be replaced by their
complements so that neither has a node of the border: ``max x' B y`` over signs is 4 times the cut norm of A.

* **From below**: ``max sum b_ij <u_i, v_j>`` over unit vectors, the semidefinite relaxation, by setting all u, then all
  v, to what is best given the others (Burer, Monteiro 2003; the vectors are short). Random hyperplanes make signs of
  vectors, which are then improved: the best x for y, the best y for x, until nothing moves.
* **From above**: with positive numbers p and q, and ``G_ij = p_i b_ij q_j``,
  ``|x' B y| = |sum_ij (x_i / p_i) G_ij (y_j / q_j)| <= ||G|| (sum 1/p_i^2)^(1/2) (sum 1/q_j^2)^(1/2)``, with the
  largest singular value ||G||. At the optimum of the relaxation ``1/p_i^2 = ||sum_j b_ij v_j||`` (and likewise q) makes
  ||G|| one and the bound the relaxation's value: these are its multipliers. The bound holds for any p and q.
  ``||G||^2 <= s`` is shown by a Cholesky decomposition of ``s - G'G`` that succeeds (Rump 2006), with room for all
  rounding; so is the rounding of the border.

By Grothendieck's inequality the relaxation is below 1.783 times the cut norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cholesky
from scipy.sparse import csr_array, issparse

from app.bisection import least_factor
from app.geometry.norms import FloatArray
from app.patience import Progress

BoolArray: TypeAlias = npt.NDArray[np.bool_]
#: The search is made in single precision: only what is certified, and the value of the sets found, need more.
SingleArray: TypeAlias = npt.NDArray[np.float32]
#: Told the part that is done, from 0 to 1.

#: Length of the relaxation's vectors.
RANK = 16
#: Signs that are improved at a time.
TRIALS = 64
#: Rounds of improvement that start from the best signs so far, some of them turned over.
KICKS = 8
#: The relaxation is solved when this many sweeps add less than ``GAIN`` of its value.
SWEEPS_BETWEEN, GAIN = 10, 1e-6
#: The most times that all signs of one side are set anew in one round.
_MOVES = 100
#: Part of the mean multiplier that every multiplier is raised to: those of rows of zeros are zero.
_LEAST_MULTIPLIER = 2.0**-24
#: How near to the least the bound of ||G||^2 is sought, as a factor.
_ACCURACY = 1 + 2.0**-16
#: Rows that the Gram matrix is summed over at a time.
_BAND = 1024
#: The unit roundoff of double precision.
_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, eq=False)
class CutNorm:
    """Certified bounds of a cut norm: ``lower <= cut norm <= upper``.

    Attributes:
        lower: ``|A(left, right)|``, the correctly rounded sum of the entries.
        upper: a bound that holds whatever the search found, rounding included.
        left: the set S, one flag a row.
        right: the set T, one flag a column.
    """

    lower: float
    upper: float
    left: BoolArray
    right: BoolArray


class Bordered:
    """A matrix with the row and the column that make all its sums zero, for products in single precision.

    The border is never stored with the matrix, which stays sparse where it is.

    Args:
        matrix: dense or CSR; its entries should be of the order of 1.
    """

    def __init__(self, matrix: Any) -> None:
        self.shape = (matrix.shape[0] + 1, matrix.shape[1] + 1)
        self._rows = np.asarray(matrix.sum(axis=1), dtype=np.float32)
        self._columns = np.asarray(matrix.sum(axis=0), dtype=np.float32)
        self._total = np.float32(self._rows.sum(dtype=np.float64))
        self._matrix = matrix.astype(np.float32)
        self._transposed = self._matrix.T.tocsr() if issparse(matrix) else self._matrix.T

    def times(self, columns: SingleArray) -> SingleArray:
        """``B V`` for a matrix V of columns."""
        inner, last = columns[:-1], columns[-1]
        above = self._matrix @ inner - np.multiply.outer(self._rows, last)
        return np.vstack([above, self._total * last - self._columns @ inner])

    def transposed_times(self, columns: SingleArray) -> SingleArray:
        """``B' U`` for a matrix U of columns."""
        inner, last = columns[:-1], columns[-1]
        above = self._transposed @ inner - np.multiply.outer(self._columns, last)
        return np.vstack([above, self._total * last - self._rows @ inner])


class Relaxation:
    """Vectors of the relaxation ``max sum b_ij <u_i, v_j>``: one of length 1 for every row and every column of B.

    They may be kept while the matrix changes a little, and improved for what it has become.
    """

    def __init__(self, shape: tuple[int, int], rng: np.random.Generator) -> None:
        """Random vectors for a matrix of this shape, border included."""
        rows, columns = shape
        self.left = np.zeros((rows, RANK), dtype=np.float32)
        self.right, _ = _unit(rng.standard_normal((columns, RANK), dtype=np.float32))
        self.row_lengths: FloatArray = np.zeros(rows)
        self.column_lengths: FloatArray = np.zeros(columns)

    def improve(self, matrix: Bordered, sweeps: int, progress: Progress | None = None) -> float:
        """Set all u, then all v, to the best given the others, until it adds nothing; the value of the relaxation.

        ``row_lengths`` and ``column_lengths`` are then the multipliers, ``||sum_j b_ij v_j||`` of every row and
        ``||sum_i b_ij u_i||`` of every column.
        """
        value, before = 0.0, 0.0
        for sweep in range(1, sweeps + 1):
            self.left, _ = _unit(matrix.times(self.right))
            self.right, self.column_lengths = _unit(matrix.transposed_times(self.left))
            value = float(self.column_lengths.sum())
            if sweep % SWEEPS_BETWEEN == 0:
                if progress is not None:
                    progress(sweep / sweeps)
                if value - before <= GAIN * value:
                    break
                before = value
        self.row_lengths = _unit(matrix.times(self.right))[1]
        return value

    def signs(self, trials: int, rng: np.random.Generator) -> SingleArray:
        """Signs of the columns' vectors to one side or the other of random hyperplanes, a column a hyperplane."""
        return _signs(self.right @ rng.standard_normal((RANK, trials), dtype=np.float32))


def cut_norm(
    matrix: Any,
    *,
    sweeps: int = 200,
    kicks: int = KICKS,
    certified: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> CutNorm:
    """Sets S and T of nearly the largest ``|A(S, T)|``, and a bound that no sets pass.

    Time is that of some hundred products of the matrix with 16 to 64 columns, and of ``m n^2`` operations for the
    bound, n the smaller side: memory is ``8 n^2`` bytes beside a few copies of the matrix.

    Args:
        matrix: m x n real numbers, an array or a sparse array.
        sweeps: the most sweeps of the relaxation, at least 1. After few the bound is that of the largest singular value
            with the multipliers so far: it holds as well, and is some percent higher after five.
        kicks: rounds of local search that start from the best sets so far.
        certified: False leaves out the bound, which is then infinite: it takes most of the time that large matrices do.
        seed: of the random vectors and hyperplanes; the same for the same result.
        progress: told the part that is done.

    Raises:
        ValueError: when the matrix has not two axes, or an entry is not finite.
    """
    given = _checked(matrix)
    rows, columns = given.shape
    scale = _scale(given)
    if scale == 0.0:
        return CutNorm(0.0, 0.0, np.zeros(rows, dtype=np.bool_), np.zeros(columns, dtype=np.bool_))
    rng = np.random.default_rng(seed)
    scaled = given * (1 / scale)
    bordered = Bordered(scaled)
    relaxation = Relaxation(bordered.shape, rng)
    relaxation.improve(bordered, sweeps, _part(progress, 0.0, 0.4))
    signs = rounded(bordered, relaxation, rng, kicks=kicks, progress=_part(progress, 0.4, 0.6))
    left, right = _settled(scaled, signs)
    upper = math.inf
    if certified:
        upper = scale * certified_bound(scaled, relaxation.row_lengths, relaxation.column_lengths)
    if progress is not None:
        progress(1.0)
    return CutNorm(cut_value(given, left, right), math.nextafter(upper, math.inf), left, right)


def rounded(
    matrix: Bordered,
    relaxation: Relaxation,
    rng: np.random.Generator,
    *,
    kicks: int = KICKS,
    trials: int = TRIALS,
    progress: Progress | None = None,
) -> SingleArray:
    """Signs y of the columns of B for which ``max_x x' B y`` is the largest found.

    The first round rounds the relaxation's vectors. Each later one turns over a twentieth to a fifth of the best signs.
    """
    best, most = np.ones(matrix.shape[1], dtype=np.float32), -math.inf
    for kick in range(kicks + 1):
        if kick == 0:
            signs = relaxation.signs(trials, rng)
        else:
            turned = rng.random((len(best), trials)) < np.linspace(0.05, 0.2, trials)
            signs = np.where(turned, -best[:, None], best[:, None])
        _, signs, values = settle(matrix, signs, _MOVES)
        found = int(values.argmax())
        if values[found] > most:
            best, most = signs[:, found].copy(), float(values[found])
        if progress is not None:
            progress((kick + 1) / (kicks + 1))
    return best


def settle(matrix: Bordered, signs: SingleArray, moves: int) -> tuple[SingleArray, SingleArray, FloatArray]:
    """The best signs of the rows for those of the columns, and conversely, until nothing moves or ``moves`` times.

    Returns:
        Signs x of the rows, signs y of the columns, both a column a trial, and their ``x' B y``: at least 0.
    """
    for _ in range(moves):
        rows = _signs(matrix.times(signs))
        products = matrix.transposed_times(rows)
        moved = _signs(products)
        values = np.abs(products).sum(axis=0, dtype=np.float64)
        if np.array_equal(moved, signs):
            break
        signs = moved
    return rows, signs, values


def random_signs(shape: tuple[int, int], rng: np.random.Generator) -> SingleArray:
    """Independent fair signs."""
    return _signs(rng.standard_normal(shape, dtype=np.float32))


def _settled(matrix: Any, signs: SingleArray) -> tuple[BoolArray, BoolArray]:
    """Sets of signs of the columns of B, improved in double precision until their value does not rise."""
    right: BoolArray = signs[:-1] != signs[-1]
    left: BoolArray = np.zeros(matrix.shape[0], dtype=np.bool_)
    value = -math.inf
    while True:
        sums = matrix @ right.astype(np.float64)
        positive = float(sums[sums > 0].sum()) > -float(sums[sums < 0].sum())
        candidate = sums > 0 if positive else sums < 0
        across = matrix.T @ candidate.astype(np.float64)
        found = across > 0 if positive else across < 0
        reached = abs(float(across[found].sum()))
        if not reached > value:
            return left, right
        left, right, value = candidate, found, reached


def cut_value(matrix: Any, left: BoolArray, right: BoolArray) -> float:
    """``|A(left, right)|``: the sum of the entries, rounded once."""
    return abs(math.fsum(_entries(matrix, left, right)))


def _entries(matrix: Any, left: BoolArray, right: BoolArray) -> list[float]:
    inside = matrix[left][:, right]
    found: list[float] = (inside.data if issparse(inside) else inside).ravel().tolist()
    return found


def certified_bound(matrix: Any, rows: FloatArray, columns: FloatArray) -> float:
    """An upper bound of the cut norm from multipliers of the rows and columns of the bordered matrix.

    Any multipliers give a bound that holds; those of the relaxation's optimum give its value. Rounding is in the
    bound: of the border (``gamma_(m+n)`` of the sum of magnitudes for each of its three parts), of G and of the Gram
    matrix (``gamma_m ||G||_F^2``), of the Cholesky decomposition (``gamma_(n+1)`` of the trace: Rump 2006), and of what
    is summed here. Each is taken twice.

    Args:
        matrix: m x n, an array or a CSR array, whose largest entry is about 1: nothing that matters then underflows.
        rows: m + 1 numbers, at least 0 and not all 0, the border's last.
        columns: n + 1 of them.
    """
    if matrix.shape[0] < matrix.shape[1]:
        matrix, rows, columns = matrix.T, columns, rows
    if issparse(matrix):
        matrix = matrix.tocsr()
    m, n = matrix.shape
    p = 1 / np.sqrt(np.maximum(rows, _LEAST_MULTIPLIER * rows.mean()))
    q = 1 / np.sqrt(np.maximum(columns, _LEAST_MULTIPLIER * columns.mean()))
    gram = _gram(matrix, p, q)
    square = float(np.trace(gram)) * (1 + 4 * (m + n + 4) * _ROUNDOFF)
    shown = _least_shift(gram)
    size = n + 1
    norm = math.sqrt(shown * (1 + 4 * size * (size + 2) * _ROUNDOFF) + 2 * (m + 2) * _ROUNDOFF * square)
    norm += 8 * _ROUNDOFF * math.sqrt(square)
    sums = math.sqrt(float(np.sum(1 / p**2)) * float(np.sum(1 / q**2))) * (1 + 4 * (m + n + 8) * _ROUNDOFF)
    border = 6 * (m + n + 2) * _ROUNDOFF * float(abs(matrix).sum())
    return float((norm * sums + border) / 4 * (1 + 16 * _ROUNDOFF))


def _gram(matrix: Any, p: FloatArray, q: FloatArray) -> FloatArray:
    """``G' G`` with ``G_ij = p_i b_ij q_j``, B the bordered matrix."""
    m, n = matrix.shape
    rows = np.asarray(matrix.sum(axis=1), dtype=np.float64)
    columns = np.asarray(matrix.sum(axis=0), dtype=np.float64)
    gram = np.zeros((n + 1, n + 1))
    for start in range(0, m, _BAND):
        part = matrix[start : start + _BAND]
        band = np.column_stack([part.toarray() if issparse(part) else part, -rows[start : start + _BAND]])
        band *= p[start : start + len(band), None] * q
        gram += band.T @ band
    last = np.append(-columns, rows.sum()) * (p[-1] * q)
    gram += np.multiply.outer(last, last)
    return gram


def _least_shift(gram: FloatArray) -> float:
    """Nearly the least s for which the Cholesky decomposition of ``s - K`` succeeds."""

    def holds(shift: float) -> bool:
        shifted = -gram
        shifted[np.diag_indices(len(gram))] += shift
        try:
            cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return False
        return True

    # Powers of K from a fixed start come close to its largest eigenvalue from below.
    vector = 1 + np.arange(len(gram)) % 7 / 7
    low = float(gram.diagonal().max())
    for _ in range(100):
        vector = gram @ vector
        length = float(np.linalg.norm(vector))
        if length == 0.0:
            break
        vector /= length
        low = max(low, float(vector @ (gram @ vector)))
    high = step = _ACCURACY
    while not holds(low * high):
        step *= step
        high *= step
    found = least_factor(lambda factor: holds(low * factor), high / step, high, _ACCURACY)
    return low * (high if found is None else found)


def _checked(matrix: Any) -> Any:
    given = csr_array(matrix, dtype=np.float64) if issparse(matrix) else np.asarray(matrix, dtype=np.float64)
    if given.ndim != 2:
        raise ValueError("a cut norm is that of a matrix")
    entries = given.data if issparse(given) else given
    if not np.all(np.isfinite(entries)):
        raise ValueError("the entries of the matrix must be finite")
    return given


def _scale(matrix: Any) -> float:
    """The power of two above the largest magnitude; 0 of a matrix of zeros."""
    entries = matrix.data if issparse(matrix) else matrix
    largest = float(np.abs(entries).max()) if entries.size else 0.0
    return math.ldexp(1.0, math.frexp(largest)[1]) if largest else 0.0


def _unit(vectors: SingleArray) -> tuple[SingleArray, FloatArray]:
    """Rows divided by their lengths, and these; a row of zeros stays one."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return vectors / np.asarray(np.where(lengths > 0, lengths, 1), dtype=np.float32)[:, None], lengths.astype(
        np.float64
    )


def _signs(values: SingleArray) -> SingleArray:
    return np.where(values >= 0, np.float32(1), np.float32(-1))


def _part(progress: Progress | None, start: float, end: float) -> Progress | None:
    """The progress of one part of the work, as that of the whole."""
    if progress is None:
        return None
    return lambda done: progress(start + (end - start) * done)
