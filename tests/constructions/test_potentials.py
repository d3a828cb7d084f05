"""Potentials: gradients against finite differences, conjugacy, strong convexity, and the slopes of lines."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize

from app.geometry.norms import auto_exponent
from tests.constructions.potentials import Entropy, Group, Potential, Power, Schatten, SquaredNorm

pytestmark = pytest.mark.unit

SHAPE = (4, 3)
SQUARED: list[SquaredNorm] = [
    Power(2.0),
    Power(1.5),
    Power(auto_exponent(10**5)),
    Group(1.3, "rows"),
    Group(auto_exponent(400), "columns"),
    Group(2.0, "rows"),
    Schatten(1.2),
    Schatten(1.8),
    Schatten(2.0),
]
ALL: list[Potential] = [Entropy(7.0), *SQUARED]


def point(potential: Potential, rng: np.random.Generator) -> np.ndarray:
    """A random point of the potential's domain."""
    if isinstance(potential, Entropy):
        z = rng.dirichlet(np.ones(12)).reshape(SHAPE)
        return z * potential.mass
    return rng.normal(size=SHAPE) * 10.0 ** rng.integers(-2, 3)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def ids(potential: Potential) -> str:
    return repr(potential)


#: Weights of a central difference that is exact up to the sixth power of the step.
_SIXTH = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}


def numeric_gradient(function: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    """Differences of sixth order, right to ten digits or so where the function is smooth within a hundredth."""
    gradient, step = np.zeros(at.size), 3e-3
    for i in range(at.size):
        for times, weight in _SIXTH.items():
            for side in (1, -1):
                moved = at.reshape(-1).copy()
                moved[i] += side * times * step
                gradient[i] += side * weight * function(moved.reshape(at.shape)) / step
    return gradient.reshape(at.shape)


def smooth_point(potential: Potential, rng: np.random.Generator) -> np.ndarray:
    """Magnitudes between 0.5 and 2: of a power near one the derivatives grow without bound at zero."""
    z = rng.uniform(0.5, 2.0, SHAPE)
    if isinstance(potential, Schatten):
        left, _, right = np.linalg.svd(rng.normal(size=SHAPE), full_matrices=False)
        return (left * rng.uniform(0.5, 2.0, min(SHAPE))) @ right
    return z if isinstance(potential, Entropy) else z * rng.choice([-1.0, 1.0], SHAPE)


@pytest.mark.parametrize("potential", ALL, ids=ids)
def test_link_is_the_gradient(potential: Potential, rng: np.random.Generator) -> None:
    """Catches a wrong constant, exponent or norm factor in any link."""
    for _ in range(10):
        z = smooth_point(potential, rng)
        link = potential.link(z)
        assert link == pytest.approx(numeric_gradient(potential.value, z), rel=1e-7, abs=1e-7 * np.abs(link).max())


@pytest.mark.parametrize("potential", ALL, ids=ids)
def test_inverse_is_the_gradient_of_the_conjugate(potential: Potential, rng: np.random.Generator) -> None:
    for _ in range(10):
        theta = smooth_point(potential, rng)
        inverse = potential.inverse(theta)
        numeric = numeric_gradient(potential.conjugate_value, theta)
        assert inverse == pytest.approx(numeric, rel=1e-7, abs=1e-7 * np.abs(inverse).max())


@pytest.mark.parametrize("potential", ALL, ids=ids)
def test_inverse_of_link(potential: Potential, rng: np.random.Generator) -> None:
    for _ in range(20):
        z = point(potential, rng)
        assert potential.inverse(potential.link(z)) == pytest.approx(z, rel=1e-9, abs=1e-11 * np.abs(z).max())


@pytest.mark.parametrize("potential", ALL, ids=ids)
def test_fenchel(potential: Potential, rng: np.random.Generator) -> None:
    """Psi(z) + Psi*(link z) = <link z, z>: the value and its conjugate belong together."""
    for _ in range(20):
        z = point(potential, rng)
        theta = potential.link(z)
        assert potential.value(z) + potential.conjugate_value(theta) == pytest.approx(
            float(np.vdot(theta, z)), rel=1e-10, abs=1e-9
        )


@pytest.mark.slow
@pytest.mark.parametrize("potential", ALL, ids=ids)
def test_strong_convexity(potential: Potential, rng: np.random.Generator) -> None:
    """D(x; h) >= mu/2 ||x - h||^2: the modulus that steps and bounds rest on. A mu twice too large fails."""
    tightest = math.inf
    for _ in range(300):
        h = point(potential, rng)
        x = point(potential, rng) if rng.random() < 0.5 else h + 1e-3 * np.abs(h).max() * rng.normal(size=SHAPE)
        if isinstance(potential, Entropy):
            x = np.abs(x) / np.abs(x).sum() * potential.mass
        distance = potential.norm(x - h)
        gap = potential.divergence(x, h) / (potential.mu / 2 * distance**2)
        tightest = min(tightest, gap)
    assert tightest >= 1 - 1e-6
    if isinstance(potential, SquaredNorm) and potential.p == 2:
        assert tightest == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("potential", ALL, ids=ids)
def test_dual_norm(potential: Potential, rng: np.random.Generator) -> None:
    """<f, z> <= ||f||* ||z||, and some z attains it (for the entropy among zero-sum z: differences of masses)."""
    for _ in range(20):
        f = rng.normal(size=SHAPE)
        if isinstance(potential, Entropy):
            z = np.zeros(SHAPE)
            z[np.unravel_index(f.argmax(), SHAPE)], z[np.unravel_index(f.argmin(), SHAPE)] = 1.0, -1.0
        else:
            z = potential.inverse(f)
        assert float(np.vdot(f, z)) == pytest.approx(potential.dual_norm(f) * potential.norm(z), rel=1e-10)
        other = rng.normal(size=SHAPE)
        other -= other.mean()
        assert float(np.vdot(f, other)) <= potential.dual_norm(f) * potential.norm(other) * (1 + 1e-12)


@pytest.mark.parametrize("potential", ALL, ids=ids)
def test_line(potential: Potential, rng: np.random.Generator) -> None:
    """A line's value is <f, inverse(theta + rate f)> and its slope the derivative of that (central differences)."""
    for _ in range(20):
        theta, f = rng.normal(size=SHAPE), rng.uniform(-1, 1, size=SHAPE)
        if rng.random() < 0.5:
            f[rng.random(SHAPE) < 0.5] = 0.0
            f[0, 0] = 1.0
        line = potential.line(theta, f)
        for rate in (-2.0, -0.1, 0.3, 4.0):
            value, slope = line(rate)
            assert value == pytest.approx(float(np.vdot(f, potential.inverse(theta + rate * f))), rel=1e-9, abs=1e-10)
            width = 1e-5
            numeric = (line(rate + width)[0] - line(rate - width)[0]) / (2 * width)
            assert slope == pytest.approx(numeric, rel=1e-4, abs=1e-6)
            assert slope >= -1e-12


def test_line_of_nearly_equal_singular_values() -> None:
    """The divided differences at multiple singular values are derivatives, not 0/0."""
    rng = np.random.default_rng(1)
    theta, f = np.eye(4) + 1e-9 * rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    line = Schatten(1.3).line(theta, f)
    width = 1e-4
    numeric = (line(width)[0] - line(-width)[0]) / (2 * width)
    assert line(0.0)[1] == pytest.approx(numeric, rel=1e-5)


def test_pairs() -> None:
    """On a symmetric matrix the l_p potential is that of the pairs i < j, in value, link and lines."""
    rng = np.random.default_rng(2)
    upper = np.triu_indices(5, 1)

    def full(v: np.ndarray) -> np.ndarray:
        m = np.zeros((5, 5))
        m[upper] = v
        return m + m.T

    z, f = rng.normal(size=10), rng.uniform(size=10)
    pairs, matrix = Power(1.3), Power(1.3, multiplicity=2)
    assert matrix.value(full(z)) == pytest.approx(pairs.value(z))
    assert matrix.link(full(z))[upper] == pytest.approx(pairs.link(z))
    assert matrix.inverse(full(z))[upper] == pytest.approx(pairs.inverse(z))
    assert matrix.dual_norm(full(f)) == pytest.approx(pairs.dual_norm(f))
    assert matrix.line(full(z), full(f))(0.7) == pytest.approx(pairs.line(z, f)(0.7))


@pytest.mark.parametrize("potential", SQUARED, ids=ids)
def test_zero(potential: SquaredNorm) -> None:
    zero = np.zeros(SHAPE)
    assert potential.value(zero) == potential.conjugate_value(zero) == 0
    assert not potential.link(zero).any()
    assert not potential.inverse(zero).any()


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_sizes(scale: float) -> None:
    """Powers with q = 28 of very large or small numbers: magnitudes are divided by the largest first."""
    rng = np.random.default_rng(3)
    potential = Power(auto_exponent(2**40))
    theta = rng.normal(size=50)
    assert potential.inverse(theta * scale) / scale == pytest.approx(potential.inverse(theta), rel=1e-12)
    assert potential.link(theta * scale) / scale == pytest.approx(potential.link(theta), rel=1e-12)
    value, slope = potential.line(theta * scale, np.ones(50))(0.5 * scale)
    expected = potential.line(theta, np.ones(50))(0.5)
    assert (value / scale, slope) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("p", [1.2, 1.6, 2.0])
def test_value_is_the_largest_of_its_conjugate(p: float) -> None:
    """Psi* by its definition, with a generic optimiser."""
    theta, potential = np.random.default_rng(4).normal(size=4), Power(p)
    found = minimize(lambda z: potential.value(z) - theta @ z, np.full(4, 0.1), method="BFGS", options={"gtol": 1e-10})
    assert -found.fun == pytest.approx(potential.conjugate_value(theta), rel=1e-6)
