"""Factors of a matrix of low rank: few terms, and an honest word on what they leave out."""

from __future__ import annotations

import numpy as np
import pytest

from app.geometry.spectral import Factors, factors

pytestmark = pytest.mark.unit

UNIT = 2.0**-20
SHAPES = [(60, 90), (90, 60), (64, 64)]


def of_rank(rank: int, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """A matrix of this rank with entries in [-1, 1]."""
    matrix = rng.normal(size=(shape[0], rank)) @ rng.normal(size=(rank, shape[1]))
    return matrix / np.abs(matrix).max()


def check(found: Factors | None, matrix: np.ndarray) -> Factors:
    """What the factors say of themselves is so."""
    assert found is not None
    rest = matrix - found.left @ found.right.T
    assert found.largest == pytest.approx(np.abs(rest).max(), rel=1e-6, abs=1e-14)
    assert found.length == pytest.approx(np.linalg.norm(rest), rel=1e-6, abs=1e-13)
    assert found.dense() == pytest.approx(matrix, abs=found.largest * (1 + 1e-6) + 1e-14)
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rank", [1, 3, 11, 15])
def test_rounded_to_a_grid(rank: int, shape: tuple[int, int]) -> None:
    """Of a matrix of low rank whose entries were rounded, which has full rank, the terms are those of the matrix
    before, and no entry is off by a unit of the grid. Would catch a range too narrow for the rank, a threshold that
    takes rounding for terms, a difference that is estimated."""
    matrix = of_rank(rank, shape, np.random.default_rng(rank))
    rounded = np.rint(matrix / UNIT) * UNIT
    found = check(factors(rounded, UNIT / 2, 15), rounded)
    assert found.rank == rank
    assert 0 < found.largest < UNIT


@pytest.mark.parametrize("shape", SHAPES)
def test_exact(shape: tuple[int, int]) -> None:
    """Entries that need no rounding are there to the last bits."""
    rng = np.random.default_rng(5)
    matrix = np.outer(rng.integers(0, 2, shape[0]), rng.integers(0, 2, shape[1])) + np.outer(
        rng.integers(0, 2, shape[0]), rng.integers(-1, 2, shape[1])
    )
    found = check(factors(matrix / 2, UNIT / 2, 15), matrix / 2)
    assert found.rank == 2
    assert found.largest < 1e-14


@pytest.mark.parametrize("shape", SHAPES)
def test_too_many_terms(shape: tuple[int, int]) -> None:
    """No factors for one term too many, for random entries, or for a few that stick out of a matrix of low rank."""
    rng = np.random.default_rng(6)
    assert factors(of_rank(16, shape, rng), UNIT / 2, 15) is None
    assert factors(rng.uniform(-1, 1, shape), UNIT / 2, 15) is None
    diagonal = of_rank(2, shape, rng) / 2
    np.fill_diagonal(diagonal, 1.0)
    assert factors(diagonal, UNIT / 2, 15) is None


def test_the_same_every_time() -> None:
    """A replay learns to the last bit what was learnt."""
    matrix = np.rint(of_rank(4, (64, 64), np.random.default_rng(7)) / UNIT) * UNIT
    one, other = factors(matrix, UNIT / 2, 15), factors(matrix.copy(), UNIT / 2, 15)
    assert one is not None
    assert other is not None
    assert one.left.tobytes() == other.left.tobytes()
    assert one.right.tobytes() == other.right.tobytes()


def test_hardly_anything() -> None:
    """Entries below the threshold altogether still make a term: nothing is not a query."""
    matrix = np.zeros((40, 40))
    matrix[3, 4] = UNIT
    assert check(factors(matrix, UNIT / 2, 10), matrix).rank == 1
