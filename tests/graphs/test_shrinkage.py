"""Numbers behind noisy ones: against Bayes' rule on a fine grid, and by what is known of the numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.estimation.graphs import shrinkage
from app.estimation.graphs.shrinkage import posterior

pytestmark = pytest.mark.unit


def found_prior(noisy: np.ndarray, variance: float, most: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mixture that the posterior is of: weights, centres and deviations of normal laws."""
    deviation = math.sqrt(variance)
    centres, widths = shrinkage._components(deviation, min(max(float(noisy.max()), deviation), most))
    return shrinkage._weights(noisy, variance, centres, widths), centres, widths


def by_grid(at: float, variance: float, prior: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Mean and variance of the number behind a noisy one, by sums over a grid."""
    weights, centres, widths = prior
    grid = np.linspace(-6 * widths[0], centres[-1] + 6 * widths[-1], 40_001)
    density = np.zeros(len(grid))
    for weight, centre, width in zip(weights, centres, widths, strict=True):
        if weight > 1e-14:
            density += weight / width * np.exp(-0.5 * ((grid - centre) / width) ** 2)
    density *= np.exp(-0.5 * (at - grid) ** 2 / variance)
    density /= density.sum()
    mean = float(density @ grid)
    return mean, float(density @ (grid - mean) ** 2)


def numbers(rng: np.random.Generator, shape: str, count: int) -> np.ndarray:
    if shape == "normal":
        return np.clip(rng.normal(40, 6, count), 0, None)
    if shape == "two":
        return np.where(rng.random(count) < 0.4, 20.0, 60.0) + rng.normal(0, 1, count)
    if shape == "tail":
        return np.minimum(3 * (rng.pareto(1.3, count) + 1), 2000)
    return np.full(count, 25.0)


SHAPES = ["normal", "two", "tail", "same"]


@pytest.mark.slow
@settings(max_examples=8)
@given(st.sampled_from(SHAPES), st.sampled_from([2.0, 30.0, 400.0]), st.integers(0, 10**6))
def test_the_posterior_is_that_of_the_mixture(shape: str, variance: float, seed: int) -> None:
    """Means and variances are those of Bayes' rule on a grid, and a mean grows with its noisy number by the variance
    over that of the noise. Would catch widths left out, weights of another noisy number, and a slope that is something
    else.
    """
    rng = np.random.default_rng(seed)
    noisy = numbers(rng, shape, 60) + rng.normal(0, math.sqrt(variance), 60)
    found, prior = posterior(noisy, variance, 1e6), found_prior(noisy, variance, 1e6)
    for k in range(0, 60, 20):
        mean, spread = by_grid(noisy[k], variance, prior)
        step = 0.01 * math.sqrt(variance)
        up, down = (by_grid(noisy[k] + by, variance, prior)[0] for by in (step, -step))
        assert found.means[k] == pytest.approx(max(mean, 0), abs=1e-3 * math.sqrt(variance))
        if found.slopes[k] < 1:
            assert found.slopes[k] == pytest.approx(spread / variance, rel=0.01, abs=1e-3)
            assert found.slopes[k] == pytest.approx((up - down) / (2 * step), rel=0.01, abs=1e-3)


@pytest.mark.parametrize("variance", [10.0, 100.0])
def test_weights_are_of_the_greatest_likelihood(variance: float) -> None:
    """At the greatest likelihood of a mixture no other component would make it larger: the mean of its density over
    that of the mixture is one at most, and one where there is weight. Would catch steps that end too early.
    """
    rng = np.random.default_rng(11)
    noisy = numbers(rng, "two", 1500) + rng.normal(0, math.sqrt(variance), 1500)
    weights, centres, widths = found_prior(noisy, variance, 1e6)
    assert weights.sum() == pytest.approx(1)
    spread = widths**2 + variance
    density = np.exp(-0.5 * (noisy[:, None] - centres) ** 2 / spread) / np.sqrt(spread)
    gain = (density / (density @ weights)[:, None]).mean(axis=0)
    assert gain.max() < 1.02
    assert gain @ weights == pytest.approx(1, abs=1e-6)


def linear(noisy: np.ndarray, variance: float) -> np.ndarray:
    """Linear shrinkage to the mean."""
    share = max(0.0, 1 - variance / float(noisy.var()))
    return float(noisy.mean()) + share * (noisy - noisy.mean())


def test_a_normal_population_is_shrunk_linearly() -> None:
    """Would catch a prior that fits the noise too."""
    rng = np.random.default_rng(2)
    truth = rng.normal(200, 10, 20_000)
    noisy = truth + rng.normal(0, 10, 20_000)
    found = posterior(noisy, 100.0, 1e6)
    assert np.sqrt(((found.means - linear(noisy, 100.0)) ** 2).mean()) < 1.0
    middle = np.abs(noisy - 200) < 15
    assert found.slopes[middle].mean() == pytest.approx(0.5, abs=0.04)


def test_two_kinds_are_told_apart() -> None:
    """Nodes of two groups are each drawn to their own. Would catch one mean for all."""
    rng = np.random.default_rng(3)
    truth = np.repeat([30.0, 90.0], 500)
    found = posterior(truth + rng.normal(0, 10, 1000), 100.0, 999.0)
    assert np.sqrt(((found.means - truth) ** 2).mean()) < 4
    assert np.median(found.means[:500]) == pytest.approx(30, abs=2)
    assert np.median(found.means[500:]) == pytest.approx(90, abs=2)


def test_a_tail_is_kept() -> None:
    """A hub among small degrees is what it was measured as, and about as uncertain as its noise. Would catch shrinkage
    by the same part everywhere, and components that end before the largest number.
    """
    rng = np.random.default_rng(4)
    truth = np.concatenate([np.full(2000, 10.0), [3000.0, 50_000.0]])
    noisy = truth + rng.normal(0, 8, len(truth))
    found = posterior(noisy, 64.0, 1e6)
    assert found.means[-2:] == pytest.approx(noisy[-2:], abs=12)
    assert found.slopes[-2:] == pytest.approx([1, 1], abs=0.1)
    assert found.slopes[:2000].mean() < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("variance", [9.0, 225.0])
def test_errors_are_as_small_and_as_large_as_told(shape: str, variance: float) -> None:
    """On seeded draws of several kinds: the squared error is hardly more than that of linear shrinkage, nowhere more
    than without any, and on average what the posterior's variance says, or where numbers are all alike some less, as
    components are that far apart. Would catch a prior that is wrong for a kind, and deviations that are too small.
    """
    rng = np.random.default_rng([5, SHAPES.index(shape), int(variance)])
    truth = numbers(rng, shape, 4000)
    noisy = truth + rng.normal(0, math.sqrt(variance), 4000)
    found = posterior(noisy, variance, 1e6)
    error = float(((found.means - truth) ** 2).mean())
    assert error <= 1.05 * float(((linear(noisy, variance) - truth) ** 2).mean()) + 0.01 * variance
    assert error <= variance
    told = float((found.slopes * variance).mean())
    assert error <= 1.12 * told
    assert told <= 1.12 * error + (0.09 if shape in ("same", "two") else 0.01) * variance


@pytest.mark.parametrize("count", [30, 100, 300, 1000])
@pytest.mark.parametrize("spread", [3.0, 30.0, 90.0])
def test_few_numbers_are_no_kinds_of_their_own(count: int, spread: float) -> None:
    """Numbers that lie anywhere, few for their range: errors are hardly larger than the noise, and not far larger than
    told. Would catch weights that are fitted until each noisy number is certain by itself.
    """
    error = told = 0.0
    for seed in range(1000 // count + 4):
        rng = np.random.default_rng([seed, count])
        truth = rng.uniform(5, 5 + spread, count)
        found = posterior(truth + rng.normal(0, 1, count), 1.0, 1e6)
        error += float(((found.means - truth) ** 2).mean())
        told += float(found.slopes.mean())
    assert error <= 1.2 * (1000 // count + 4)
    assert error <= 1.6 * told


@pytest.mark.slow
def test_many_numbers_are_binned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights from bins are those from all numbers, nearly. Would catch bins that count the same where they are not,
    and means for the bins alone.
    """
    rng = np.random.default_rng(6)
    truth = numbers(rng, "tail", 7001)
    noisy = truth + rng.normal(0, 5, 7001)
    binned = posterior(noisy, 25.0, 1e6)
    monkeypatch.setattr(shrinkage, "_BINS", 10_000)
    exact = posterior(noisy, 25.0, 1e6)
    assert len(binned.means) == 7001
    assert np.abs(binned.means - exact.means).mean() < 0.02
    assert np.abs(binned.slopes - exact.slopes).mean() < 0.01


@given(
    st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=30),
    st.sampled_from([1e-3, 1.0, 1e4]),
    st.sampled_from([1.0, 50.0, 1e5]),
)
def test_numbers_and_slopes_keep_their_bounds(noisy: list[float], variance: float, most: float) -> None:
    """Would catch a number below zero or beyond the most, and one that is none, where all noisy ones are far out."""
    found = posterior(np.array(noisy), variance, most)
    assert ((found.means >= 0) & (found.means <= most)).all()
    assert ((found.slopes >= 0) & (found.slopes <= 1)).all()


def test_without_noise_numbers_are_what_they_are() -> None:
    """Would catch a division by zero, and nothing at all."""
    found = posterior(np.array([-1.0, 3.0, 12.0]), 0.0, 10.0)
    assert found.means.tolist() == [0.0, 3.0, 10.0]
    assert found.slopes.tolist() == [1.0, 1.0, 1.0]
    assert len(posterior(np.zeros(0), 4.0, 10.0).means) == 0


def test_the_same_numbers_have_the_same_posterior() -> None:
    """To the last bit, and but for rounding in another order. Would catch anything drawn: policies are made again."""
    rng = np.random.default_rng(7)
    noisy = rng.normal(30, 10, 500)
    first, again = posterior(noisy, 64.0, 99.0), posterior(noisy.copy(), 64.0, 99.0)
    assert first.means.tobytes() == again.means.tobytes()
    turned = posterior(noisy[::-1], 64.0, 99.0)
    assert turned.means[::-1] == pytest.approx(first.means, rel=1e-9)
