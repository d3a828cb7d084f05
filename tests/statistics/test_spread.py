"""How records are most likely spread, against the same posterior in covariances that nobody made simpler."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from app.estimation.tables.spread import ANYHOW, AS_ALL, Widths, likely
from app.spaces.tensor import FloatArray

pytestmark = pytest.mark.unit

FIXED = st.floats(1e-3, 30).map(lambda width: Widths(np.array([width]), np.zeros(1), 0.25))


def counted(seed: int, *, public: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Expected parts of some ranges, numbers below their ends, and the covariance of these."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 9))
    masses, true = rng.dirichlet(np.full(size, 0.7)) + 1e-3, 1000 * rng.dirichlet(np.ones(size))
    masses /= masses.sum()
    root = np.tri(size) @ np.diag(rng.uniform(1, 300, size)) @ rng.normal(size=(size, size))
    if public:
        root[-1] = 0
    covariance = root @ root.T
    noise = root @ rng.normal(size=size)
    return masses, np.cumsum(true) + noise, covariance


def model(masses: FloatArray, below: FloatArray, covariance: FloatArray, width: float) -> tuple[FloatArray, float]:
    """The posterior mean of the parts and the density of what was counted, by matrices over all ends at once: of
    numbers less their expected part of the total, which no total has a part in."""
    ends = np.cumsum(0.75 * masses + 0.25 / len(masses))[:-1]
    bridge = width * (np.minimum.outer(ends, ends) - np.outer(ends, ends))
    contrast = np.hstack([np.eye(len(ends)), -ends[:, None]])
    total = max(below[-1], math.sqrt(covariance[-1, -1]), 1.0)
    off, noise = contrast @ below / total, contrast @ covariance @ contrast.T / total**2
    mean = ends + bridge @ np.linalg.solve(bridge + noise, off)
    density = multivariate_normal(np.zeros(len(ends)), bridge + noise, allow_singular=True).logpdf(off)
    return np.clip(mean, 0, 1), float(density)


@given(st.integers(0, 10**6), st.booleans(), FIXED)
def test_one_width(seed: int, public: bool, widths: Widths) -> None:
    """Would catch a covariance of the bridge that is another, noise of the total that is left out, and a wrong part of
    what was counted."""
    masses, below, covariance = counted(seed, public=public)
    expected, _ = model(masses, below, covariance, float(widths.variances[0]))
    assert likely(masses, below, covariance, widths) == pytest.approx(expected, abs=1e-6)


@given(st.integers(0, 10**6), st.booleans())
def test_several_widths_weigh_by_how_likely_they_are(seed: int, public: bool) -> None:
    """Would catch a width that weighs by anything but what was counted and what was thought of it before."""
    masses, below, covariance = counted(seed, public=public)
    widths = Widths(np.array([0.02, 0.3, 4.0]), np.log([0.5, 0.3, 0.2]), 0.25)
    means, densities = zip(*(model(masses, below, covariance, w) for w in widths.variances), strict=True)
    weights = np.exp(np.array(densities) - max(densities)) * [0.5, 0.3, 0.2]
    mean = weights / weights.sum() @ np.array(means)
    found = likely(masses, below, covariance, widths)
    # Of parts beyond the ends the mean is taken before they are cut off.
    inside = np.all([(m > 0) & (m < 1) for m in means], axis=0)
    assert found[inside] == pytest.approx(mean[inside], abs=1e-6)


@pytest.mark.parametrize("widths", [ANYHOW, AS_ALL])
def test_great_noise_leaves_what_is_expected_and_none_what_was_counted(widths: Widths) -> None:
    """Would catch a spread that nothing was told of, and one that is not believed where it is exact."""
    masses, below = np.array([0.2, 0.3, 0.5]), np.array([700.0, 800.0, 1000.0])
    noise = np.tri(3) @ np.tri(3).T
    expected = np.cumsum((1 - widths.even) * masses + widths.even / 3)[:-1]
    assert likely(masses, below, 1e12 * noise, widths) == pytest.approx(expected, abs=0.01)
    assert likely(masses, below, 1e-9 * noise, widths) == pytest.approx([0.7, 0.8], abs=1e-6)


def test_what_was_counted_tells_how_far_a_group_is_from_all() -> None:
    """The same noise in the second of two ranges, of groups that are elsewhere as all records are and of one that is
    not. Would catch widths that nothing is learnt of."""
    masses = np.full(20, 0.05)
    noise = 15.0**2 * np.tri(20) @ np.tri(20).T
    off = np.zeros(20)
    off[1] = 60
    alike = np.cumsum(50 + off)
    apart = np.cumsum(np.repeat([95.0, 5.0], 10) + off)
    moved = [likely(masses, each, noise, AS_ALL)[1] for each in (alike, apart)]
    raw = [each[1] / each[-1] for each in (alike, apart)]
    shrunk = [(part - 0.1) / (counted - 0.1) for part, counted in zip(moved, raw, strict=True)]
    assert shrunk[0] < 0.6 < 0.8 < shrunk[1] < 1.1


@pytest.mark.parametrize("widths", [ANYHOW, AS_ALL])
def test_ranges_that_nobody_is_expected_in(widths: Widths) -> None:
    """Would catch what was counted surely, and is not believed where hardly any records are expected, as within bounds
    that are far too wide."""
    masses = np.array([1e-15, 0.0, 1.0, 1e-17])
    below = np.array([500.0, 900.0, 1000.0, 1000.0])
    found = likely(masses, below, np.tri(4) @ np.tri(4).T, widths)
    assert np.isfinite(found).all()
    assert found[:2] == pytest.approx([0.5, 0.9], abs=0.05)
