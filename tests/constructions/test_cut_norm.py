"""Cut norms: what is found is never above the truth, what is certified never below it, and both are near."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.linalg import hadamard
from scipy.sparse import csr_array

from app.geometry.cut_norm import Bordered, CutNorm, Relaxation, certified_bound, cut_norm, cut_value
from benchmarks.research.undirected_cuts import UNDIRECTED, UNDIRECTED_SHIFT, undirected_cut_norm, undirected_cut_value

pytestmark = pytest.mark.unit

#: What an edge counts between labels none, S, T, both, written down by its definition.
COUNTS = np.array(
    [
        [float(bool((i & 1 and j & 2) or (j & 1 and i & 2))) for j in range(4)] for i in range(4)
    ]  # bits of labels: in S, in T
)


def exact(matrix: np.ndarray) -> float:
    """The cut norm by all sets of rows: the best columns are those with sums of one sign."""
    sets = np.array(list(itertools.product([0.0, 1.0], repeat=matrix.shape[0])))
    sums = sets @ matrix
    return float(max(np.maximum(sums, 0).sum(axis=1).max(), np.maximum(-sums, 0).sum(axis=1).max()))


def exact_undirected(matrix: np.ndarray) -> float:
    """The undirected cut norm by all labels."""
    labels = np.array(list(itertools.product(range(4), repeat=len(matrix))))
    counted = COUNTS[labels[:, :, None], labels[:, None, :]]
    return float(np.abs(np.einsum("kij,ij->k", counted, matrix)).max()) / 2


def check(found: CutNorm, matrix: np.ndarray, truth: float) -> bool:
    """The bounds hold, and the sets have the value they are said to have; whether they are the best."""
    assert found.lower <= truth * (1 + 1e-12)
    assert truth <= found.upper
    assert found.left.dtype == found.right.dtype == np.bool_
    assert (len(found.left), len(found.right)) == matrix.shape
    return found.lower >= truth * (1 - 1e-12)


def small(rng: np.random.Generator, case: int, symmetric: bool = False) -> np.ndarray:
    rows, columns = (rng.integers(1, 6),) * 2 if symmetric else rng.integers(1, 9, 2)
    matrix = rng.integers(-2, 3, (rows, columns)) * 1.0 if case % 2 else rng.normal(size=(rows, columns))
    if case % 5 == 0:
        matrix *= 10.0 ** rng.integers(-200, 200)
    return np.triu(matrix, 1) + np.triu(matrix, 1).T if symmetric else matrix


@pytest.mark.slow
def test_exhaustively() -> None:
    """Of small matrices of many scales, all sets were tried: the bounds hold, and all but a few times the sets are the
    best. Would catch a border with a wrong sign, a factor other than 4, a bound without its scale, a search that
    stops early."""
    rng = np.random.default_rng(1)
    best = []
    for case in range(60):
        matrix = small(rng, case)
        found = cut_norm(matrix, kicks=1)
        best.append(check(found, matrix, exact(matrix)))
        inside = matrix[np.ix_(found.left, found.right)]
        assert found.lower == abs(math.fsum(inside.ravel()))
    assert sum(best) >= 59


@settings(max_examples=15, deadline=None)
@given(hnp.arrays(np.float64, (12, 3), elements=st.floats(-1e3, 1e3)))
def test_any_entries(matrix: np.ndarray) -> None:
    """Whatever the entries, subnormal and all alike included, the bounds hold. Would catch a division by zero, and
    rounding that is not in the bound."""
    check(cut_norm(matrix, kicks=0), matrix, exact(matrix))


@pytest.mark.slow
def test_undirected_exhaustively() -> None:
    """Would catch pairs counted twice where the sets overlap, and a constant that is too small."""
    rng = np.random.default_rng(2)
    best = []
    for case in range(40):
        matrix = small(rng, case, symmetric=True)
        found = undirected_cut_norm(matrix)
        best.append(check(found, matrix, exact_undirected(matrix)))
    assert sum(best) >= 39


def test_undirected_value() -> None:
    """A pair counts once, by the definition pair by pair. Would catch the overlap counted twice."""
    rng = np.random.default_rng(3)
    matrix = np.triu(rng.normal(size=(7, 7)), 1)
    matrix += matrix.T
    for _ in range(20):
        s, t = rng.random((2, 7)) < 0.6
        pairs = itertools.combinations(range(7), 2)
        total = sum(matrix[i, j] for i, j in pairs if (s[i] and t[j]) or (t[i] and s[j]))
        assert undirected_cut_value(matrix, s, t) == pytest.approx(abs(total), abs=1e-12)
        assert undirected_cut_value(csr_array(matrix), s, t) == pytest.approx(abs(total), abs=1e-12)


def test_constant_of_undirected_cuts() -> None:
    """The shift makes what was said of it: K + f 1' + 1 f' = P - N, both positive semidefinite, the
    diagonal of P + N below a quarter of the constant. Would catch a constant or a shift that proves nothing."""
    shift = np.array(UNDIRECTED_SHIFT)
    split = np.array(
        [
            [0.26487, -0.0440, -0.0440, -0.07555],
            [-0.0440, 0.26487, -0.23513, -0.03034],
            [-0.0440, -0.23513, 0.26487, -0.03034],
            [-0.07555, -0.03034, -0.03034, 0.26487],
        ]
    )
    shifted = COUNTS / 2 + shift[:, None] + shift
    slack = UNDIRECTED / 4 - split.diagonal().max()
    assert slack > 0
    room = slack * np.eye(4)
    assert np.linalg.eigvalsh(split + room - shifted).min() >= 0
    assert np.linalg.eigvalsh(split + room + shifted).min() >= 0


def test_all_ones() -> None:
    """Everything is the best set, and the bound is the value itself. Would catch rows taken for columns."""
    found = cut_norm(np.ones((5, 9)), kicks=0)
    assert found.lower == 45
    assert found.left.all()
    assert found.right.all()
    assert found.upper == pytest.approx(45, rel=1e-4)


def test_block_of_signs() -> None:
    """A block of +1 among -1 of the same total is found whole."""
    left, right = np.arange(40) < 20, np.arange(30) % 2 == 0
    matrix = np.where(left[:, None] == right, 1.0, -1.0)
    found = cut_norm(matrix, kicks=0)
    assert found.lower == 300
    assert found.upper == pytest.approx(300, rel=1e-4)


@pytest.mark.parametrize("size", [8, 16])
def test_hadamard(size: int) -> None:
    """Of a Hadamard matrix without its first row and column, whose sums are -1, the bordered one is the Hadamard matrix
    but for its corner, which is lower by n: the relaxation's value is n^(3/2) + n, quartered. The norm is below it
    for 8 (Grothendieck's gap, which a search that calls its value a bound would hide), and equal for 16, where
    regular Hadamard matrices are."""
    matrix = hadamard(size).astype(np.float64)[1:, 1:]
    found = cut_norm(matrix)
    if size == 8:
        assert check(found, matrix, exact(matrix))
    assert found.upper == pytest.approx((size**1.5 + size) / 4, rel=1e-4)
    assert (found.lower < 0.99 * found.upper) == (size == 8)


def test_bound_is_the_dual() -> None:
    """What certifies is feasible: with mpmath's eigenvalues of the exact bordered matrix, the multipliers that give the
    bound make diag(l, -B; -B', m) positive semidefinite once they are scaled by it. Would catch a
    Cholesky     decomposition of something else."""
    rng = np.random.default_rng(4)
    matrix = rng.normal(size=(5, 4))
    bordered = np.block([[matrix, -matrix.sum(1)[:, None]], [-matrix.sum(0), matrix.sum()]])
    rows, columns = rng.uniform(0.5, 2, 6), rng.uniform(0.5, 2, 5)
    bound = certified_bound(matrix, rows, columns)
    # The dual's value (sum l + sum m)/8 equals the bound for multipliers c l, d m of equal sums.
    ours = np.concatenate([rows * 4 * bound / rows.sum(), columns * 4 * bound / columns.sum()])
    block = np.diag(ours) - np.block([[np.zeros((6, 6)), bordered], [bordered.T, np.zeros((5, 5))]])
    least = min(mpmath.eigsy(mpmath.matrix(block.tolist()), eigvals_only=True))
    assert -1e-14 < least < 1e-3


def test_wrong_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix that only its smallest part keeps from being positive definite is not passed: a shift below the largest
    eigenvalue by a thousandth makes a bound below the truth, which the checks of this file would find."""
    matrix = np.ones((6, 6))
    truth = certified_bound(matrix, np.ones(7), np.ones(7))
    monkeypatch.setattr("app.geometry.cut_norm._least_shift", lambda gram: float(np.linalg.eigvalsh(gram)[-1]) * 0.99)
    assert certified_bound(matrix, np.ones(7), np.ones(7)) < 0.999 * truth
    with pytest.raises(AssertionError):
        check(cut_norm(matrix), matrix, 36.0)


@pytest.mark.parametrize("multipliers", ["ones", "random", "one large"])
def test_bound_of_any_multipliers(multipliers: str) -> None:
    """No multipliers make a bound below the truth. Would catch a bound that trusts the relaxation."""
    rng = np.random.default_rng(5)
    for _ in range(10):
        matrix = rng.uniform(-1, 1, (7, 9))
        rows, columns = np.ones(8), np.ones(10)
        if multipliers == "random":
            rows, columns = rng.exponential(size=8), rng.exponential(size=10)
        if multipliers == "one large":
            rows[2], columns[:-1] = 1e9, 0.0
        assert certified_bound(matrix, rows, columns) >= exact(matrix)


def test_sparse() -> None:
    """A sparse matrix is as its array, the longer side first or not, and given as it may be."""
    rng = np.random.default_rng(6)
    matrix = np.where(rng.random((30, 50)) < 0.1, rng.integers(-3, 4, (30, 50)), 0).astype(np.float64)
    for given_matrix in (matrix, matrix.T):
        dense, sparse = cut_norm(given_matrix, kicks=1), cut_norm(csr_array(given_matrix).tocoo(), kicks=1)
        assert sparse.lower == pytest.approx(dense.lower, rel=0.03)
        assert sparse.upper == pytest.approx(dense.upper, rel=1e-3)
        assert sparse.lower == cut_value(given_matrix, sparse.left, sparse.right)


@pytest.mark.slow
def test_middle_size() -> None:
    """Of independent signs the sets are within 15% of the bound, which is the relaxation's value to a thousandth: the
    two differ by what the relaxation loses, and by nothing else. Would catch a relaxation that is not solved, a
    shift that is far too large, sets that are not improved."""
    rng = np.random.default_rng(7)
    matrix = rng.choice([-1.0, 1.0], (100, 100))
    done: list[float] = []
    found = cut_norm(matrix, kicks=2, progress=done.append)
    assert found.upper <= 1.15 * found.lower
    assert done == sorted(done)
    assert done[-1] == 1.0
    bordered = Bordered(matrix)
    relaxation = Relaxation(bordered.shape, rng)
    value = relaxation.improve(bordered, 300) / 4
    assert value * (1 - 1e-5) <= found.upper <= value * (1 + 1e-3)
    few = cut_norm(matrix, sweeps=3, kicks=0)
    assert found.upper < few.upper < 1.3 * found.upper


def test_the_same_again() -> None:
    """The seed decides the sets. Would catch chance from elsewhere."""
    matrix = np.random.default_rng(8).normal(size=(40, 40))
    one, two = cut_norm(matrix, seed=3), cut_norm(matrix, seed=3)
    assert (one.lower, one.upper) == (two.lower, two.upper)
    assert np.array_equal(one.left, two.left)


def test_nothing() -> None:
    """Matrices of zeros, and without rows or columns, have the norm zero."""
    for shape in [(3, 4), (0, 4), (3, 0)]:
        found = cut_norm(np.zeros(shape))
        assert (found.lower, found.upper) == (0, 0)
        assert (len(found.left), len(found.right)) == shape


@pytest.mark.parametrize("matrix", [np.ones(3), np.array([[np.nan]]), np.array([[1.0, np.inf]])])
def test_refused(matrix: np.ndarray) -> None:
    with pytest.raises(ValueError):
        cut_norm(matrix)


@pytest.mark.parametrize("matrix", [np.ones((2, 3)), np.eye(2), np.array([[0.0, 1.0], [2.0, 0.0]])])
def test_refused_undirected(matrix: np.ndarray) -> None:
    with pytest.raises(ValueError):
        undirected_cut_norm(matrix)
