"""Bregman projections against generic solvers and against the conditions that characterise them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from app.geometry.norms import auto_exponent, conjugate, vector_norm
from app.geometry.potentials import Entropy, Group, Potential, Power, Schatten, SquaredNorm, tilted_line
from app.geometry.projections import magnitudes_onto_ball, onto_ball, onto_halfspace, solve

SHAPE = (3, 2)
SQUARED: list[SquaredNorm] = [
    Power(2.0),
    Power(1.4),
    Power(auto_exponent(1000)),
    Group(1.3, "rows"),
    Group(1.6, "columns"),
    Schatten(1.25),
    Schatten(2.0),
]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def generic_halfspace(potential: Potential, theta: np.ndarray, f: np.ndarray, target: float) -> float:
    """The least D(z; h) on the half-space, by SLSQP from several starts (on the simplex for the entropy)."""
    h = potential.inverse(theta)
    side = np.sign(target - np.vdot(f, h))
    constraints: list = [{"type": "ineq", "fun": lambda z: side * (f.reshape(-1) @ z - target)}]
    bounds = None
    if isinstance(potential, Entropy):
        constraints.append({"type": "eq", "fun": lambda z: z.sum() - potential.mass})
        bounds = [(1e-12, potential.mass)] * f.size
    link = potential.link(h)
    best = np.inf
    rng = np.random.default_rng(0)
    for _ in range(4):
        start = h.reshape(-1) + 0.1 * np.abs(h).max() * rng.normal(size=f.size)
        found = minimize(
            lambda z: potential.value(z.reshape(SHAPE)) - float(np.vdot(link, z)),
            np.abs(start) if bounds else start,
            jac=lambda z: (potential.link(z.reshape(SHAPE)) - link).reshape(-1),
            bounds=bounds,
            constraints=constraints,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        z = found.x
        if side * (f.reshape(-1) @ z - target) >= -1e-8:
            best = min(
                best, potential.value(z.reshape(SHAPE)) - potential.value(h) - float(np.vdot(link, z - h.reshape(-1)))
            )
    return best


@pytest.mark.parametrize("potential", [Entropy(5.0), *SQUARED], ids=repr)
def test_halfspace(potential: Potential, rng: np.random.Generator) -> None:
    """The projection meets the edge, and no feasible point the generic solver finds is nearer (to 1e-6)."""
    for _ in range(8):
        theta = rng.normal(size=SHAPE)
        f = rng.uniform(-1, 1, size=SHAPE)
        h = potential.inverse(theta)
        reach = f.max() * 5.0 if isinstance(potential, Entropy) else np.vdot(f, h) + 3 * np.abs(h).max()
        target = float(np.vdot(f, h) + rng.uniform(0.1, 0.9) * (reach - np.vdot(f, h)))
        z = potential.inverse(onto_halfspace(potential, theta, f, target))
        assert float(np.vdot(f, z)) == pytest.approx(target, rel=1e-10, abs=1e-10)
        mine, other = potential.divergence(z, h), generic_halfspace(potential, theta, f, target)
        assert mine <= other + 1e-6 * (1 + mine)
        assert mine >= other - 1e-5 * (1 + mine)


def test_halfspace_moves_at_least_as_far_as_the_gap(rng: np.random.Generator) -> None:
    """D(z; h) >= mu gap^2/(2 zeta^2): the progress every update makes, on which the bound of updates rests."""
    for potential in (Entropy(5.0), *SQUARED):
        for _ in range(20):
            theta, f = rng.normal(size=SHAPE), rng.uniform(-1, 1, size=SHAPE)
            h = potential.inverse(theta)
            gap = rng.uniform(0.01, 0.5) * (f.max() * 5 - np.vdot(f, h) if isinstance(potential, Entropy) else 1)
            z = potential.inverse(onto_halfspace(potential, theta, f, float(np.vdot(f, h) + gap)))
            least = potential.mu * gap**2 / (2 * potential.dual_norm(f) ** 2)
            assert potential.divergence(z, h) >= least * (1 - 1e-6)


def test_nothing_to_project(rng: np.random.Generator) -> None:
    theta = rng.normal(size=SHAPE)
    assert onto_halfspace(Power(1.5), theta, np.zeros(SHAPE), 3.0) is theta
    f = np.ones(SHAPE)
    assert onto_halfspace(Entropy(5.0), theta, f, 4.0) is theta


@pytest.mark.parametrize("p", [1.05, 1.3, 1.7, 2.0])
@pytest.mark.parametrize("ball_p", [1.0, 1.02, 1.3, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("copies", [1, 2])
def test_ball_is_optimal(p: float, ball_p: float, copies: int, rng: np.random.Generator) -> None:
    """First-order optimality: y lies on the ball and the gradient there, link(y) - link(m), is least at y.

    Over a ball of radius R the least of <g, x> is -R ||g||_dual, so optimality is one equation, exact for any
    convex problem: independent of how y was found. Catches a wrong multiplier, s, or scalar equation.
    """
    potential = Power(p, multiplicity=copies)
    for size in (1, 2, 7, 60):
        m = np.repeat(np.abs(rng.normal(size=size)) * 10.0 ** rng.uniform(-3, 3, size=size), copies)
        radius = float(rng.uniform(0.05, 0.98)) * vector_norm(m, ball_p, copies)
        y = magnitudes_onto_ball(m, p, ball_p, radius, copies)
        assert bool(np.all(y >= 0))
        assert vector_norm(y, ball_p, copies) == pytest.approx(radius, rel=1e-9)
        g = potential.link(y) - potential.link(m)
        assert potential.inner(g, y) == pytest.approx(-radius * vector_norm(g, conjugate(ball_p), copies), rel=1e-6)


@pytest.mark.parametrize("potential", SQUARED, ids=repr)
@pytest.mark.parametrize("ball_p", [1.2, 2.0])
def test_ball_against_a_generic_solver(potential: SquaredNorm, ball_p: float, rng: np.random.Generator) -> None:
    """Whole arrays, directions included: keeping signs, rows' directions and singular vectors is optimal."""

    def size(y: np.ndarray) -> float:
        return vector_norm(potential.split(y.reshape(SHAPE))[0], ball_p)

    for _ in range(3):
        z = rng.normal(size=SHAPE)
        radius = 0.6 * size(z)
        y = onto_ball(potential, z, ball_p, radius)
        link = potential.link(z)
        found = minimize(
            lambda v: potential.value(v.reshape(SHAPE)) - float(np.vdot(link, v)),  # noqa: B023
            0.5 * z.reshape(-1),
            jac=lambda v: (potential.link(v.reshape(SHAPE)) - link).reshape(-1),  # noqa: B023
            constraints=[{"type": "ineq", "fun": lambda v: radius**2 - size(v) ** 2}],  # noqa: B023
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 2000},
        )
        value = potential.value(y) - float(np.vdot(link, y))
        assert size(y) <= radius * (1 + 1e-9)
        assert value <= found.fun + 1e-6 * (1 + abs(found.fun))
        assert value == pytest.approx(found.fun, rel=1e-5)
        assert y == pytest.approx(found.x.reshape(SHAPE), abs=2e-4 * np.abs(z).max())


@pytest.mark.parametrize("potential", SQUARED, ids=repr)
def test_ball_of_the_same_norm_scales(potential: SquaredNorm, rng: np.random.Generator) -> None:
    z = rng.normal(size=SHAPE)
    radius = 0.3 * potential.norm(z)
    assert onto_ball(potential, z, potential.p, radius) == pytest.approx(0.3 * z)
    assert onto_ball(potential, z, potential.p, 2 * potential.norm(z)) == pytest.approx(z)
    assert not onto_ball(potential, z, potential.p, 0.0).any()


def test_generalised_pythagoras(rng: np.random.Generator) -> None:
    """D(x; y) + D(y; z) <= D(x; z) for every x of the ball: a projection never moves away from the data."""
    for potential in SQUARED:
        for ball_p in (1.0, 1.5, 2.0):
            z, x = rng.normal(size=SHAPE), rng.normal(size=SHAPE)
            x *= 0.5 / vector_norm(potential.split(x)[0], ball_p)
            y = onto_ball(potential, z, ball_p, 0.5)
            assert potential.divergence(x, y) + potential.divergence(y, z) <= potential.divergence(x, z) * (1 + 1e-6)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 13.0, 27.0])
@pytest.mark.parametrize("root", [1e-12, 1e-3, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_solve_from_far_away(exponent: float, root: float, side: float) -> None:
    """Roots many orders of magnitude from the first guess, of lines as flat as those of p near 1; few evaluations."""
    calls = 0

    def line(rate: float) -> tuple[float, float]:
        nonlocal calls
        calls += 1
        t = abs(rate) / root
        value = t if t > 1e10 else (t**exponent if t <= 1 else 1 + exponent * (t - 1))
        slope = (exponent * t ** (exponent - 1) if t <= 1 else exponent) / root
        return float(np.sign(rate)) * value * 5.0, slope * 5.0

    rate = solve(line, side * 5.0, side * 1.0)
    assert rate == pytest.approx(side * root, rel=1e-10)
    assert calls <= 60


def test_solve_stops_where_the_line_stays_below() -> None:
    """A target out of reach ends the search instead of looping."""
    line = tilted_line(np.array([1.0]), np.array([2.0]), 3.0)
    rate = solve(line, 5.1, 1.0)
    assert rate > 30


def test_linear_constraints_agree(rng: np.random.Generator) -> None:
    """Two oracles of different make: trust-constr on the l_p half-space problem."""
    potential = Power(1.5)
    theta, f = rng.normal(size=4), rng.uniform(size=4)
    h = potential.inverse(theta)
    target = float(f @ h) + 1.0
    z = potential.inverse(onto_halfspace(potential, theta, f, target))
    found = minimize(
        lambda v: potential.value(v) - float(theta @ v),
        h,
        jac=lambda v: potential.link(v) - theta,
        constraints=[LinearConstraint(f, target, np.inf)],
        method="trust-constr",
        options={"gtol": 1e-10, "xtol": 1e-12, "maxiter": 3000},
    )
    assert z == pytest.approx(found.x, abs=1e-5)
