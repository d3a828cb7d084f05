"""The ridge dual against a generic optimiser of the primal problem, by each way of solving a Newton step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_array
from scipy.special import logsumexp, rel_entr

from app.estimation.tables import dual
from app.estimation.tables.dual import Dual

pytestmark = pytest.mark.unit


def problem(seed: int, cells: int, values: int) -> tuple[np.ndarray, np.ndarray, float, np.ndarray, np.ndarray]:
    """Every group of four values counts all cells once; released values are far off, some of them negative."""
    rng = np.random.default_rng(seed)
    total = float(rng.choice([3.0, 100.0, 5000.0]))
    counted = np.concatenate([np.eye(4)[:, rng.integers(0, 4, cells)] for _ in range(values // 4)])
    base = rng.dirichlet(np.full(cells, 0.5)) + 1e-6
    base /= base.sum()
    y = counted @ rng.dirichlet(np.full(cells, 0.3)) * total + rng.normal(0, total / 4, values)
    y += np.repeat([(total - part.sum()) / 4 for part in np.split(y, values // 4)], 4)
    ridge = rng.choice([0.1, 1.0, 10.0]) * rng.uniform(0.5, 2, values) * np.sqrt(total)
    return counted, base, total, y, ridge


@given(st.integers(0, 10**6), st.sampled_from([(5, 4), (4, 12), (9, 8), (30, 16)]))
def test_fitted_counts_are_the_least_of_the_primal(seed: int, size: tuple[int, int]) -> None:
    """Weak duality as a certificate: whatever the counts p that sum to n, and whatever theta,

        sum p ln(p/(n b)) + 1/2 sum (y - W p)^2/ridge  >=  <theta, y> - n ln Z(theta) - 1/2 sum ridge theta^2,

    since ``off^2/(2 ridge)`` is the most of ``theta off - ridge theta^2/2``. Where both sides meet, both are optimal.
    Would catch a wrong sign or factor of the ridge, a total that is forgotten, and steps that end elsewhere.
    """
    counted, base, total, y, ridge = problem(seed, *size)
    found = Dual(csc_array(counted), base, total, y, ridge).solve(np.zeros(len(y)), np.full(len(y), 1e-8))
    theta, fitted = found.value
    assert fitted.sum() == pytest.approx(total)
    off = y - counted @ fitted
    assert off == pytest.approx(ridge * theta, abs=1e-7)
    above = float(rel_entr(fitted, total * base).sum() + 0.5 * np.sum(off * off / ridge))
    below = float(theta @ y - total * logsumexp(counted.T @ theta, b=base) - 0.5 * np.sum(ridge * theta**2))
    assert below == pytest.approx(above, rel=1e-9, abs=1e-9 * total)


@pytest.mark.parametrize("size", [(40, 12), (12, 40), (30, 32)])
def test_all_ways_of_a_step_agree(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """By values, by cells and by iteration, to the tolerance. Would catch a system that is not the second derivative in
    one of them: Newton's method then crawls or stops."""
    counted, base, total, y, ridge = problem(3, *size)
    found = []
    for factored in (1024, 0):
        monkeypatch.setattr(dual, "_FACTORED", factored)
        found.append(Dual(csc_array(counted), base, total, y, ridge).solve(np.zeros(len(y)), np.full(len(y), 1e-8)))
    assert found[0].value[1] == pytest.approx(found[1].value[1], abs=1e-6)


@pytest.mark.parametrize("size", [(40, 12), (12, 40)])
def test_steps_are_newton_s(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each solver inverts the matrix of second derivatives, made here by differences of the gradient."""
    counted, base, total, y, ridge = problem(4, *size)
    task = Dual(csc_array(counted), base, total, y, ridge)
    theta = np.random.default_rng(0).normal(0, 0.1, len(y))
    _, fitted, gradient, _ = task._at(theta)
    hessian = np.stack([(task._at(theta + 1e-5 * e)[2] - task._at(theta - 1e-5 * e)[2]) / 2e-5 for e in np.eye(len(y))])
    monkeypatch.setattr(dual, "_SOLVED", 1e-10)
    for solver in (task._by_values(fitted), task._by_cells(fitted), task._by_iteration(fitted)):
        assert hessian @ solver(gradient) == pytest.approx(gradient, abs=1e-5 * np.abs(gradient).max())


def test_from_far_away() -> None:
    """Any start ends at the same counts. Would catch steps that are not damped."""
    counted, base, total, y, ridge = problem(5, 9, 8)
    task, tolerance = Dual(csc_array(counted), base, total, y, ridge), np.full(8, 1e-8)
    near = task.solve(np.zeros(8), tolerance).value[1]
    for seed in range(20):
        far = np.random.default_rng(seed).normal(0, 30, 8)
        assert task.solve(far, tolerance).value[1] == pytest.approx(near, abs=1e-6)


def test_the_least_that_float64_can_tell_is_enough() -> None:
    """A tolerance of nothing ends where rounding does, not in a refusal or an endless search."""
    counted, base, total, y, ridge = problem(6, 9, 8)
    theta, fitted = Dual(csc_array(counted), base, total, y, ridge).solve(np.zeros(8), np.zeros(8)).value
    assert counted @ fitted - y + ridge * theta == pytest.approx(np.zeros(8), abs=1e-12 * total)


def test_what_does_not_converge_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a fit that ends too early and says nothing."""
    counted, base, total, y, ridge = problem(6, 9, 8)
    monkeypatch.setattr(dual, "_MOST_STEPS", 2)
    found = Dual(csc_array(counted), base, total, y, ridge).solve(np.zeros(8), np.full(8, 1e-8))
    assert found.reason == "steps"
    assert found.gap > 1


def test_what_has_no_solution_in_floating_point_is_told() -> None:
    """Two values of the same cell and a ridge that rounds away: the second pivot is exactly zero. Would catch a failed
    factor that leaves as an error of whatever library found it."""
    counted = np.array([[1.0, 0.0], [1.0, 0.0]])
    task = Dual(csc_array(counted), np.full(2, 0.5), 16.0, np.array([3.0, 4.0]), np.full(2, 1e-300))
    found = task.solve(np.zeros(2), np.full(2, 1e-9))
    assert found.reason == "singular"
    assert not found.converged
