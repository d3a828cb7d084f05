"""Bregman projections against generic solvers and against the conditions that characterise them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.optimize import LinearConstraint, linprog, minimize, root

from app.geometry.norms import auto_exponent, conjugate, vector_norm
from app.geometry.potentials import tilted_line
from app.geometry.projections import magnitudes_onto_ball, solve
from tests.constructions.potentials import (
    Entropy,
    Group,
    Potential,
    Power,
    Schatten,
    SquaredNorm,
    onto_ball,
    onto_halfspace,
)

pytestmark = pytest.mark.unit

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


def generic_halfspace(potential: Potential, theta: np.ndarray, f: np.ndarray, target: float) -> np.ndarray:
    """``argmin D(z; h)`` where ``<f, z> = target`` (on the simplex for the entropy): quasi-Newton steps in the null
    space of the equations, from a point that has nothing to do with the projection."""
    link = potential.link(potential.inverse(theta))
    if isinstance(potential, Power) and potential.p < 1.3:
        return by_conditions(potential.p, link, f, target)
    rows, values = [f.reshape(-1)], [target]
    start = np.linalg.lstsq(np.array(rows), np.array(values))[0]
    if isinstance(potential, Entropy):
        rows, values = [*rows, np.ones(f.size)], [*values, potential.mass]
        # The point of the simplex whose least mass is largest.
        room = linprog(
            np.append(np.zeros(f.size), -1.0),
            A_eq=np.hstack([np.array(rows), np.zeros((2, 1))]),
            b_eq=values,
            A_ub=np.hstack([-np.eye(f.size), np.ones((f.size, 1))]),
            b_ub=np.zeros(f.size),
        )
        start = room.x[:-1]
    free = null_space(np.array(rows))

    def lagrangian(u: np.ndarray) -> tuple[float, np.ndarray]:
        z = (start + free @ u).reshape(SHAPE)
        if isinstance(potential, Entropy) and z.min() <= 0:
            return np.inf, np.zeros(len(u))
        return potential.value(z) - float(np.vdot(link, z)), free.T @ (potential.link(z) - link).reshape(-1)

    return polished(lagrangian, np.zeros(free.shape[1]), lambda u: (start + free @ u).reshape(SHAPE))


def by_conditions(p: float, link: np.ndarray, f: np.ndarray, target: float) -> np.ndarray:
    """The same for l_p with p near 1, whose gradient is too steep at zero for steps in z: the conditions of the least
    point, ``2/(p-1) ||z||_p^(2-p) w - rate f = link`` and ``<f, z> = target``, in ``w = sgn(z) |z|^(p-1)``."""
    flat, given = f.reshape(-1), link.reshape(-1)

    def at(w: np.ndarray) -> np.ndarray:
        return np.copysign(np.abs(w) ** (1 / (p - 1)), w)

    def conditions(unknown: np.ndarray) -> np.ndarray:
        w, rate = unknown[:-1], unknown[-1]
        size = float((np.abs(w) ** (p / (p - 1))).sum() ** (1 / p))
        return np.append(2 / (p - 1) * size ** (2 - p) * w - rate * flat - given, flat @ at(w) - target)

    found = None
    for shrunk in (1.0, 0.3, 3.0, 0.1, 10.0):
        found = root(conditions, np.append(shrunk * given, 0.0), tol=1e-14, method="lm")
        if np.abs(found.fun).max() <= 1e-9:
            return at(found.x[:-1]).reshape(f.shape)
    raise AssertionError(found)


def polished(
    lagrangian: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    point: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """The least point: BFGS, then a root of the gradient by Powell's method, as line searches stop short of it."""
    found = minimize(lagrangian, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 10_000})
    better = root(lambda u: lagrangian(u)[1], found.x, tol=1e-14)
    gradients = [float(np.abs(lagrangian(u)[1]).max()) for u in (found.x, better.x)]
    assert min(gradients) <= 1e-7
    return point(better.x if gradients[1] <= gradients[0] else found.x)


@pytest.mark.slow
@pytest.mark.parametrize("potential", [Entropy(5.0), *SQUARED], ids=repr)
def test_halfspace(potential: Potential, rng: np.random.Generator) -> None:
    """The projection meets the edge, and is the point that the generic solver finds, to 1e-6. Would catch a step along
    anything but the query, and a link or an inverse with another constant."""
    for _ in range(8):
        theta = rng.normal(size=SHAPE)
        f = rng.uniform(-1, 1, size=SHAPE)
        h = potential.inverse(theta)
        reach = f.max() * 5.0 if isinstance(potential, Entropy) else np.vdot(f, h) + 3 * np.abs(h).max()
        target = float(np.vdot(f, h) + rng.uniform(0.1, 0.9) * (reach - np.vdot(f, h)))
        z = potential.inverse(onto_halfspace(potential, theta, f, target))
        assert float(np.vdot(f, z)) == pytest.approx(target, rel=1e-10, abs=1e-10)
        other = generic_halfspace(potential, theta, f, target)
        assert potential.divergence(z, h) == pytest.approx(potential.divergence(other, h), rel=1e-6, abs=1e-9)
        assert z == pytest.approx(other, rel=1e-6, abs=1e-6 * np.abs(other).max())


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("p", [1.001, 1.05, 1.5, 2.0])
@pytest.mark.parametrize("ball_p", [1.0, 1.0005, 1.2, 1.7, 2.0])
@pytest.mark.parametrize("times", [3.0, 1e3, 1e12, 1e25])
def test_ball_from_far_outside(p: float, ball_p: float, times: float, rng: np.random.Generator) -> None:
    """The same optimality for points many radii away, and the least p there is. Noise takes hypotheses so far. Catches
    powers that leave float64 in the search. (Coordinates of y may, whose links do not: those are left out.)
    """
    potential = Power(p)
    for size in (1, 2, 7, 60):
        m = np.abs(rng.normal(size=size)) * 10.0 ** rng.uniform(-3, 3, size=size)
        radius = vector_norm(m, ball_p) / times
        y = magnitudes_onto_ball(m, p, ball_p, radius)
        assert vector_norm(y, ball_p) == pytest.approx(radius, rel=1e-9)
        g = (potential.link(y) - potential.link(m))[y > 0]
        assert float(g @ y[y > 0]) == pytest.approx(-radius * vector_norm(g, conjugate(ball_p)), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("potential", SQUARED, ids=repr)
@pytest.mark.parametrize("ball_p", [1.2, 1.7, 2.0])
def test_ball_against_a_generic_solver(potential: SquaredNorm, ball_p: float, rng: np.random.Generator) -> None:
    """Whole arrays, directions included, to 1e-6: keeping signs, rows' directions and singular vectors is optimal. The
    solver walks on the sphere, of which it knows the norm and the norm's gradient alone."""
    for _ in range(3):
        z = rng.normal(size=SHAPE)
        radius = 0.6 * vector_norm(potential.split(z)[0], ball_p)
        y, link = onto_ball(potential, z, ball_p, radius), potential.link(z)

        def on_sphere(v: np.ndarray) -> np.ndarray:
            v = v.reshape(SHAPE)
            return v * (radius / vector_norm(potential.split(v)[0], ball_p))  # noqa: B023

        def lagrangian(v: np.ndarray) -> tuple[float, np.ndarray]:
            magnitudes, rebuild = potential.split(v.reshape(SHAPE))
            size = vector_norm(magnitudes, ball_p)
            point = on_sphere(v)
            pull = potential.link(point) - link  # noqa: B023
            away = rebuild((magnitudes / size) ** (ball_p - 1))
            slope = (radius / size) * (pull - float(np.vdot(pull, v)) / size * away)  # noqa: B023
            return potential.value(point) - float(np.vdot(link, point)), slope.reshape(-1)  # noqa: B023

        # Not from z: its direction is near the solution's.
        start = z + 0.4 * np.abs(z).max() * rng.normal(size=SHAPE)
        other = polished(lagrangian, start.reshape(-1), on_sphere)
        values = [potential.value(v) - float(np.vdot(link, v)) for v in (y, other)]
        assert vector_norm(potential.split(y)[0], ball_p) <= radius * (1 + 1e-9)
        assert values[0] == pytest.approx(values[1], rel=1e-6)
        assert y == pytest.approx(other, rel=1e-6, abs=1e-6 * np.abs(other).max())


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
