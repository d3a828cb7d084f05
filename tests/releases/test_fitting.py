"""Whole tables from noisy marginals: against the same problems written out, and what must hold of any answer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import Decimal

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from app.estimation.tables.residuals import Residuals
from app.measurements.noise import Noise
from app.measurements.pieces import Counts
from app.releases.fitting import KnownResidual, _nearest, combined, fit, known_of, projection, residuals_of, spread_of
from app.spaces.partition import Marginal
from app.spaces.questions import Cells
from app.spaces.tensor import FloatArray

pytestmark = pytest.mark.unit

SIZES = (2, 3, 2)


def table(sizes: Sequence[int] = SIZES, seed: int = 1, records: float = 600.0) -> FloatArray:
    """Counts with interactions of all orders."""
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.dirichlet(np.full(math.prod(sizes), 0.7)).reshape(sizes) * records).astype(float)


def survey(sizes: Sequence[int], seed: int = 6, records: float = 2000.0) -> FloatArray:
    """Counts as surveys have them: uneven single attributes, clear dependence of pairs, little beyond."""
    rng = np.random.default_rng(seed)
    logarithms = np.zeros(sizes)
    for order, deviation in ((1, 1.2), (2, 0.5), (3, 0.1)):
        for chosen in itertools.combinations(range(len(sizes)), order):
            logarithms = logarithms + rng.normal(0, deviation, [n if a in chosen else 1 for a, n in enumerate(sizes)])
    cells = np.exp(logarithms)
    return rng.poisson(records * cells / cells.sum()).astype(float)


def marginals(counts: FloatArray, order: int, deviation: float, seed: int = 2) -> list[KnownResidual]:
    """All marginals of an order, measured with noise, as residuals."""
    rng = np.random.default_rng(seed)
    found = []
    for chosen in itertools.combinations(range(counts.ndim), order):
        exact = counts.sum(axis=tuple(a for a in range(counts.ndim) if a not in chosen))
        found += residuals_of(chosen, exact + rng.normal(0, deviation, exact.shape), deviation**2)
    return combined(found)


def centred(values: FloatArray) -> FloatArray:
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values


def seen(counts: FloatArray, attributes: Sequence[int]) -> FloatArray:
    """The residual of a table, by its definition."""
    return centred(counts.sum(axis=tuple(a for a in range(counts.ndim) if a not in attributes)))


def sorted_like(known: Sequence[KnownResidual], others: Sequence[KnownResidual]) -> list[KnownResidual]:
    """The residuals in the order in which others have the same attributes."""
    by_attributes = {k.attributes: k for k in known}
    return [by_attributes[k.attributes] for k in others]


def distance(counts: FloatArray, known: Sequence[KnownResidual]) -> float:
    """Half of the weighted squares, by the definition."""
    return 0.5 * sum(
        k.precision * float(np.square(seen(counts, k.attributes) - centred(k.values)).sum()) for k in known
    )


def test_a_marginal_as_residuals_is_what_generalised_least_squares_makes_of_it() -> None:
    """Against the closed form that answers questions. Would catch merged cells counted into a precision the wrong way
    round, and an average that is not by precision."""
    rng = np.random.default_rng(3)
    residuals, known = Residuals((3, 2, 4)), []
    for attributes, deviation in (((0, 1), 2.0), ((1, 2), 5.0), ((0, 1, 2), 9.0)):
        values = rng.normal(50, 20, [(3, 2, 4)[a] for a in attributes]).round()
        marginal = Marginal.of((3, 2, 4), dict.fromkeys(attributes))
        residuals.add(Counts(marginal, Noise("gaussian", Decimal(deviation), 0), values.astype(np.int64)))
        known += residuals_of(attributes, values, deviation**2)
    for k, same in zip(combined(known_of(residuals)), sorted_like(combined(known), known_of(residuals)), strict=True):
        assert k.precision == pytest.approx(same.precision)
        assert np.allclose(centred(k.values), centred(same.values))
    expected = residuals.unbiased(Cells(Marginal.of((3, 2, 4), dict.fromkeys((0, 1)))))
    total, variance = np.zeros((3, 2)), 0.0
    for k in combined(known):
        if set(k.attributes) <= {0, 1}:
            shape = [n if a in k.attributes else 1 for a, n in ((0, 3), (1, 2))]
            spread = 6 / math.prod(shape)
            total = total + centred(k.values).reshape(shape) / spread if k.attributes else total + k.values / 6
            freedom = math.prod((3, 2)[a] - 1 for a in k.attributes) / math.prod(shape)
            variance += freedom / k.precision / spread**2
    assert np.allclose(total, expected.values)
    assert np.allclose(variance, expected.variances)


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [1.0, 15.0, 200.0])
def test_the_fit_is_the_mode_written_out(deviation: float) -> None:
    """Against a general search over effects that are tables in their own right, one for each set of attributes, with
    its data and its prior by their definitions. Would catch coefficients of other sets, a prior of another scale, a
    gradient that leaves something out, a search that ends early."""
    counts = table()
    total, known = float(counts.sum()), marginals(counts, 2, deviation)
    base = np.random.default_rng(4).dirichlet(np.full(12, 3.0)).reshape(SIZES)
    sets = [k for k in known if k.attributes]
    shapes = [tuple(SIZES[a] for a in k.attributes) for k in sets]
    ends = np.cumsum([math.prod(s) for s in shapes])[:-1]

    def made(flat: FloatArray) -> FloatArray:
        logarithms = np.log(base)
        for k, part, shape in zip(sets, np.split(flat, ends), shapes, strict=True):
            effect = centred(part.reshape(shape))
            logarithms = logarithms + effect.reshape([n if a in k.attributes else 1 for a, n in enumerate(SIZES)])
        cells = np.exp(logarithms - logarithms.max())
        return np.asarray(total * cells / cells.sum())

    def level(flat: FloatArray) -> float:
        parts = zip(sets, np.split(flat, ends), strict=True)
        prior = sum(float(part @ part) / spread_of(len(k.attributes)) ** 2 for k, part in parts)
        return distance(made(flat), sets) + 0.5 * prior

    size = sum(math.prod(s) for s in shapes)
    found = fit(SIZES, known, total, base, evaluations=3000)
    searched = minimize(level, np.zeros(size), method="BFGS", options={"gtol": 1e-6, "maxiter": 2000})
    assert found.counts == pytest.approx(made(searched.x), abs=2e-2 * deviation**0.5)
    misses = 2 * distance(found.counts, sets) / sum(math.prod(n - 1 for n in shape) for shape in shapes)
    assert found.discrepancy == pytest.approx(misses)


@pytest.mark.slow
def test_without_noise_the_fit_has_the_measured_marginals() -> None:
    """Would catch a pull to the base that does not give way to data."""
    counts = table((3, 4, 2, 2), records=5000) + 5
    found = fit(counts.shape, marginals(counts, 2, 1e-3), float(counts.sum()), evaluations=3000)
    for pair in itertools.combinations(range(4), 2):
        exact = counts.sum(axis=tuple(a for a in range(4) if a not in pair))
        assert found.marginal(pair) == pytest.approx(exact, abs=2.0)


def test_the_fit_is_nearer_than_the_projection_and_that_than_what_was_measured() -> None:
    """A survey of four attributes, all marginals of three of them measured. Would catch a prior that hurts."""
    counts = survey((4, 5, 6, 3))
    known = marginals(counts, 3, 12.0)
    total = float(counts.sum())

    def error(found: FloatArray) -> float:
        triples = itertools.combinations(range(4), 3)
        squares = [np.square(seen_marginal(found, t) - seen_marginal(counts, t)).reshape(-1) for t in triples]
        return math.sqrt(float(np.concatenate(squares).mean()))

    def seen_marginal(of: FloatArray, attributes: Sequence[int]) -> FloatArray:
        return of.sum(axis=tuple(a for a in range(4) if a not in attributes))

    near = error(projection(counts.shape, known, total).counts)
    best = error(fit(counts.shape, known, total).counts)
    assert best < 0.9 * near
    assert near < 0.9 * 12.0


@pytest.mark.slow
@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("deviation", [2.0, 100.0])
def test_the_projection_is_the_least(at_most: bool, deviation: float) -> None:
    """Against a conic solver on the problem written out. Would catch a weight that is not the precision, a slack that
    marginals count, a gap that is no bound."""
    counts = table()
    known = marginals(counts, 2, deviation)
    total = float(counts.sum()) * (1.5 if at_most else 1.0)
    variables = cvxpy.Variable(12, nonneg=True)
    terms = []
    for k in known:
        if not k.attributes and not at_most:
            continue
        rows = np.stack([seen(cell.reshape(SIZES), k.attributes).reshape(-1) for cell in np.eye(12)], axis=1)
        terms.append(k.precision * cvxpy.sum_squares(rows @ variables - centred(k.values).reshape(-1)))
    bound = cvxpy.sum(variables) <= total if at_most else cvxpy.sum(variables) == total
    least = cvxpy.Problem(cvxpy.Minimize(0.5 * sum(terms)), [bound]).solve(solver="CLARABEL")
    found = projection(SIZES, known, total, at_most=at_most, tolerance=1e-7, evaluations=20_000)
    assert found.distance == pytest.approx(least, abs=1e-4 + 1e-6 * least)
    assert found.distance - found.gap <= least + 1e-6
    assert found.counts.sum() + found.slack == pytest.approx(total)


@pytest.mark.slow
@given(st.integers(0, 10_000), st.floats(0.5, 300.0), st.booleans())
@settings(max_examples=20, deadline=None)
def test_what_holds_of_any_measurement(seed: int, deviation: float, at_most: bool) -> None:
    """No negative count, the right total, and no random table nearer than the gap admits. Would catch a projection off
    the simplex, exponents that overflow, a gap at another point than the one returned."""
    counts = table(seed=seed % 7)
    known = marginals(counts, 1 + seed % 3, deviation, seed=seed)
    total = float(counts.sum())
    fitted = fit(SIZES, known, total, evaluations=50)
    assert fitted.counts.min() > 0
    assert fitted.counts.sum() == pytest.approx(total)
    near = projection(SIZES, known, total, at_most=at_most, evaluations=60)
    assert near.counts.min() >= 0
    assert near.slack >= 0
    assert near.counts.sum() + near.slack == pytest.approx(total)
    used = [k for k in known if k.attributes or at_most]
    assert near.distance == pytest.approx(distance(near.counts, used))
    rng = np.random.default_rng(seed)
    for concentration in (0.1, 1.0, 10.0):
        other = total * rng.dirichlet(np.full(12, concentration)).reshape(SIZES)
        assert distance(other, used) >= near.distance - near.gap - 1e-6
    # The truth is as near as any.
    assert distance(counts, used) >= near.distance - near.gap - 1e-6


def test_nothing_measured_is_the_base() -> None:
    """Would catch a search that fails where there is nothing to search for."""
    base = np.arange(1.0, 13.0).reshape(SIZES)
    assert fit(SIZES, [], 78.0, base).counts == pytest.approx(base)
    assert fit(SIZES, [], 24.0).counts == pytest.approx(np.full(SIZES, 2.0))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("values", "total"),
    [([-1.0, 1.2], 2.2), ([-6 / 11, 3 / 11], 9 / 11), ([2 / 11, 6 / 11], 4 / 11), ([0.1, 0.1, 0.7], 0.6)],
)
def test_values_that_lie_at_the_level_end_the_search(values: list[float], total: float) -> None:
    """What is subtracted comes out as one of the values, above which rounding lets it fall and rise. Against the level
    at which the sum is the total, by hand: nothing is left of all but the largest. Would catch a search without end: it
    held up the projection of a table without records."""
    found = _nearest(np.array(values), total)
    assert found == pytest.approx(np.where(np.array(values) == max(values), total, 0.0))


def test_extremes() -> None:
    """Values far from any table, and precise. Would catch overflow, and a share of zero whose logarithm is taken."""
    known = [KnownResidual((0,), np.array([-1e7, 1e7]), 4.0), KnownResidual((1, 2), np.full((3, 2), -1e5), 1e-9)]
    found = fit(SIZES, known, 10.0)
    assert np.isfinite(found.counts).all()
    assert found.marginal((0,))[1] == pytest.approx(10.0, abs=0.01)


def test_progress_and_refusals() -> None:
    """Would catch residuals of another table taken for this one's, and a table that no memory holds."""
    told: list[float] = []
    counts = table()
    fit(SIZES, marginals(counts, 2, 3.0), float(counts.sum()), progress=told.append)
    assert told
    assert told == sorted(told)
    assert told[-1] <= 1
    for attributes, shape in (((3,), (2,)), ((0,), (3,)), ((0, 1), (2, 2))):
        with pytest.raises(ValueError, match="not those of this table"):
            fit(SIZES, [KnownResidual(attributes, np.zeros(shape), 1.0)], 10.0)
    with pytest.raises(ValueError, match="not held"):
        projection([2] * 23, [], 10.0)
    with pytest.raises(ValueError, match="positive"):
        fit(SIZES, [], 0.0)
    with pytest.raises(ValueError, match="positive"):
        fit(SIZES, [], 1.0, np.zeros(SIZES))
    with pytest.raises(ValueError, match="ascend"):
        KnownResidual((1, 0), np.zeros((2, 2)), 1.0)
    with pytest.raises(ValueError, match="precision"):
        KnownResidual((0,), np.zeros(2), 0.0)
