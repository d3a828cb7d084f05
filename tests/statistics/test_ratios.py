"""Intervals of means and variances against everything that lies within the noise of what is known, drawn at random."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from app.estimation.tables.joint import Joint
from app.estimation.tables.ratios import fieller_mean, variances_of

pytestmark = pytest.mark.unit

LEAST, MOST = -10.0, 12.0


@st.composite
def groups(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """N, S and Q of a group and the covariance of their noise, of any rank, with N clear of zero."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.sampled_from([20.0, 200.0, 5000.0]))
    u = rng.uniform(LEAST, MOST) + rng.uniform(0, 6) * rng.normal(size=1000)
    u = np.clip(u, LEAST, MOST)
    root = rng.normal(size=(3, draw(st.integers(1, 3)))) * np.array([1.0, 8.0, 60.0])[:, None]
    root *= draw(st.sampled_from([0.02, 0.1, 0.3])) * n / max(1.0, float(np.abs(root[0]).max())) / 4
    return n * np.array([1.0, u.mean(), np.square(u).mean()]), root @ root.T


def within(known: np.ndarray, covariance: np.ndarray, reach: float) -> np.ndarray:
    """Points on the ellipsoid of so many standard deviations, those of smallest and largest variance looked at again
    more closely. They are on its surface, as a variance has no extreme within it."""
    rng = np.random.default_rng(7)
    levels, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(levels, 0.0))
    drawn = rng.normal(size=(20_000, 3))
    for spread in (0.1, 0.01):
        drawn /= np.linalg.norm(drawn, axis=1)[:, None]
        n, s, q = (known + reach * drawn @ root.T).T
        variance = np.where(n > 0, q / n - np.square(s / n), 0.0)
        ends = drawn[np.concatenate([np.argsort(variance)[:30], np.argsort(variance)[-30:]])]
        drawn = np.concatenate([ends, np.repeat(ends, 200, axis=0) + spread * rng.normal(size=(12_000, 3))])
    drawn /= np.linalg.norm(drawn, axis=1)[:, None]
    return np.asarray(known + reach * drawn @ root.T)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(groups(), st.sampled_from([1.0, 1.96, 2.8]))
def test_variances_are_those_within_the_noise(group: tuple[np.ndarray, np.ndarray], reach: float) -> None:
    """Would catch an end that only some of what may be reaches, a local one, a wrong power of the mean, covariances
    that are left out. Where means beyond all numbers are within the noise, of which none is tried, the lower end may be
    higher and the upper one too."""
    known, covariance = group
    told = Joint(known[None], covariance[None])
    linear, lows, highs = (float(x[0]) for x in variances_of(told, reach, LEAST, MOST, curved=False))
    assert linear == pytest.approx(known[2] / known[0] - (known[1] / known[0]) ** 2, rel=1e-9, abs=1e-9)
    n, s, q = within(known, covariance, reach).T
    assert (n > 0).all()
    found = q / n - np.square(s / n)
    slack = 1e-3 * (found.max() - found.min()) + 1e-6
    ends = fieller_mean(told, reach)
    if float(ends[0][0]) >= LEAST and float(ends[1][0]) <= MOST:
        assert lows == pytest.approx(found.min(), abs=slack)
        assert highs == pytest.approx(found.max(), abs=slack)
    inside = (s / n >= LEAST) & (s / n <= MOST)
    if inside.any():
        assert lows <= found[inside].min() + slack
        assert highs >= found[inside].max() - slack
    assert s.max() / n[s.argmax()] <= float(ends[1][0]) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("curvature", [0.0, 0.5, 2.0, 8.0, 100.0])
def test_the_ellipsoid_meets_the_surface_as_often_as_it_should(curvature: float) -> None:
    """Of 20,000 draws, at 95%: at least .947, whatever the curvature, and no more than .975. N is all but exact, so
    that the surface is a parabola. Would catch a reach that is too small where noise is no small part of N."""
    rng = np.random.default_rng(1)
    n, draws, second = 100.0, 20_000, 3.0
    first = np.sqrt(curvature * n * second / 2)
    truth = np.array([n, 0.0, 4.0 * n])
    values = truth + rng.normal(size=(draws, 3)) * np.array([1e-6, first, second])
    covariances = np.broadcast_to(np.diag([1e-12, first**2, second**2]), (draws, 3, 3))
    _, lows, highs = variances_of(Joint(values, covariances), float(norm.ppf(0.975)), -1e9, 1e9)
    held = float(np.mean((lows <= 4.0) & (highs >= 4.0)))
    assert 0.947 <= held <= 0.975


@pytest.mark.parametrize("quantile", [1e-3, 1.0, 9.0, 300.0])
def test_any_quantile_has_a_wider_one(quantile: float) -> None:
    """Of an interval for questions that were chosen it may be very large. Would catch probabilities that vanish."""
    told = Joint(np.array([[1e6, 0.0, 4e6]]), np.diag([1.0, 1.0, 1.0])[None])
    linear, lows, highs = variances_of(told, quantile, LEAST, MOST)
    assert lows[0] < linear[0] < highs[0]
    assert highs[0] - lows[0] == pytest.approx(2 * quantile * np.sqrt(17) / 1e6, rel=1e-2)
