"""Norms against their definitions, and the inequalities that make them pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from app.geometry.norms import Norm, auto_exponent, conjugate, vector_norm

pytestmark = pytest.mark.unit

NORMS = [
    Norm("lp", 1.0),
    Norm("lp", 1.3),
    Norm("group", 1.2, "rows"),
    Norm("group", 1.7, "columns"),
    Norm("schatten", 1.1),
]
MATRICES = arrays(np.float64, (4, 3), elements=st.integers(-50, 50).map(float))


def by_definition(norm: Norm, x: np.ndarray) -> float:
    """JT12 definitions 1 and 2, entry by entry; singular values from the eigenvalues of X'X."""
    if norm.family == "lp":
        sizes = [abs(v) for row in x for v in row]
    elif norm.family == "group":
        lines = x if norm.side == "rows" else x.T
        sizes = [math.sqrt(sum(v * v for v in line)) for line in lines]
    else:
        sizes = [math.sqrt(max(0.0, v)) for v in np.linalg.eigvalsh(x.T @ x)]
    return sum(s**norm.p for s in sizes) ** (1 / norm.p)


@pytest.mark.parametrize("norm", NORMS, ids=lambda n: n.name)
@given(x=MATRICES)
def test_definition(norm: Norm, x: np.ndarray) -> None:
    """Catches a wrong axis, exponent or root, on dense and on compressed arrays."""
    expected = by_definition(norm, x)
    # Squaring in the oracle costs it half of its digits where singular values are small.
    tolerance = 1e-6 * (1 + np.abs(x).max()) if norm.family == "schatten" else 1e-12 * (1 + expected)
    assert abs(norm.of(x) - expected) <= tolerance
    assert norm.of(csr_array(x)) == pytest.approx(norm.of(x), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("norm", NORMS, ids=lambda n: n.name)
def test_unit(norm: Norm) -> None:
    """A single entry 1 has length 1: what makes gamma the sensitivity of every one of these norms."""
    for cell in ((0, 0), (2, 1), (3, 2)):
        unit = np.zeros((4, 3))
        unit[cell] = 1
        assert norm.of(unit) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("norm", NORMS, ids=lambda n: n.name)
@given(x=MATRICES, y=MATRICES)
def test_moves_at_most_the_l1_distance(norm: Norm, x: np.ndarray, y: np.ndarray) -> None:
    """The triangle inequality through unit vectors, on which buying a norm rests."""
    assert abs(norm.of(x) - norm.of(y)) <= np.abs(x - y).sum() * (1 + 1e-12) + 1e-9


@pytest.mark.parametrize("norm", NORMS, ids=lambda n: n.name)
def test_name(norm: Norm) -> None:
    assert Norm.parse(norm.name) == norm


@pytest.mark.parametrize(
    "name", ["", "lp", "lp:x", "lp:0.5", "lp:nan", "lp:inf", "group:1.5", "group:diagonal:1.5", "mass"]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ValueError):
        Norm.parse(name)


def test_extreme_sizes() -> None:
    """Powers of sizes near the ends of the range neither overflow nor vanish."""
    assert vector_norm(np.array([3e300, 4e300]), 2) == pytest.approx(5e300)
    assert vector_norm(np.array([3e-300, 4e-300]), 2) == pytest.approx(5e-300)
    assert vector_norm(np.array([1e200] * 8), 28.0) == pytest.approx(1e200 * 8 ** (1 / 28))
    assert vector_norm(np.zeros(3), 1.5) == 0
    assert vector_norm(np.array([1.0, -2.0]), math.inf) == 2


def test_copies_count_once() -> None:
    """A symmetric matrix spells each pair twice; its norm is that of the pairs."""
    pairs = np.array([1.0, 2.0, 3.0])
    full = np.zeros((3, 3))
    full[np.triu_indices(3, 1)] = pairs
    full += full.T
    for p in (1.0, 1.4, 2.0):
        assert vector_norm(full, p, copies=2) == pytest.approx(vector_norm(pairs, p))


@given(count=st.integers(1, 2**40))
def test_auto(count: int) -> None:
    """q = max(2, ln count): the l_q norm of magnitudes is at most e times their largest from 8 of them on."""
    p = auto_exponent(count)
    assert 1 < p <= 2
    assert conjugate(p) == pytest.approx(max(2.0, math.log(count)))
    assert count ** (1 / conjugate(p)) <= math.e * (1 + 1e-12)
