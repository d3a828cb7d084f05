"""A mixture of scales: against Bayes' rule on a grid, the optimum of its likelihood, and questions of two kinds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from app.estimation.graphs import scales as module
from app.estimation.graphs.scales import LOOKED, PRIOR, SQUARES, Scales

pytestmark = pytest.mark.unit

residuals = st.floats(-30, 30)
variances = st.floats(0.01, 100)


def learnt(rng: np.random.Generator, deviations: np.ndarray, foretold: float, noise: float) -> Scales:
    found = Scales()
    for deviation in deviations:
        found.learn(float(rng.normal(0, math.sqrt(deviation**2 + noise))), foretold, noise)
    return found


def moved(scales: Scales, residual: float, foretold: float, noise: float) -> float:
    return scales.posterior(residual, foretold, noise)[0]


def by_grid(scales: Scales, residual: float, foretold: float, noise: float) -> tuple[float, float]:
    """The posterior's mean and variance by sums over a fine grid; what is not off at all has a point's mass."""
    top = 12 * math.sqrt(4 * foretold + noise) + abs(residual)
    grid = np.linspace(-top, top, 400_001)
    density = np.zeros(len(grid))
    for weight, square in zip(scales.weights, SQUARES, strict=True):
        if square:
            variance = square * foretold
            density += weight * np.exp(-0.5 * grid**2 / variance) / math.sqrt(2 * math.pi * variance)
        else:
            density[len(grid) // 2] += weight / (grid[1] - grid[0])
    density *= np.exp(-0.5 * (residual - grid) ** 2 / noise)
    density /= density.sum()
    mean = float(density @ grid)
    return mean, float(density @ (grid - mean) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("residual", [-7.0, -0.4, 0.0, 1.0, 3.0, 25.0])
@pytest.mark.parametrize("foretold", [0.5, 9.0])
def test_the_posterior_is_that_of_bayes_rule(residual: float, foretold: float) -> None:
    """Would catch likelihoods without the noise or without their normalization, and shrinkage the wrong way round."""
    scales = learnt(np.random.default_rng(1), np.repeat([0.1, 3.0], 40), foretold, 2.0)
    told = scales.posterior(residual, foretold, 2.0)
    assert told == pytest.approx(by_grid(scales, residual, foretold, 2.0), abs=2e-3 * max(1.0, residual**2))


def test_weights_are_the_likeliest() -> None:
    """After many questions no other weights have a higher posterior density, by a general optimizer. Would catch counts
    that are not of the mixture, a prior that is forgotten or taken twice, and too few steps.
    """
    rng, foretold, noise = np.random.default_rng(2), 4.0, 1.0
    values = rng.normal(0, np.sqrt(np.where(rng.random(300) < 0.7, 0.01, 8.0) + noise))
    scales = Scales()
    for value in values.tolist():
        scales.learn(value, foretold, noise)
    totals = SQUARES * foretold + noise
    densities = np.exp(-0.5 * values[:, None] ** 2 / totals) / np.sqrt(totals)

    def against(logits: np.ndarray) -> float:
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        return -float(np.log(densities @ weights).sum() + PRIOR @ np.log(weights))

    best = minimize(against, np.log(PRIOR), method="BFGS")
    assert against(np.log(scales.weights)) == pytest.approx(best.fun, abs=0.02)


@given(residuals, variances, variances)
def test_nothing_is_drawn_beyond_its_measurement(residual: float, foretold: float, noise: float) -> None:
    """Nor away from it, and alike to both sides. Would catch a sign, and a part above one."""
    found, variance = Scales().posterior(residual, foretold, noise)
    assert 0 <= found * math.copysign(1, residual) <= abs(residual)
    assert variance > 0
    assert Scales().posterior(-residual, foretold, noise) == (-found, variance)


def test_before_anything_is_measured_it_is_about_the_plain_posterior() -> None:
    """Would catch a prior that distrusts predictions of which nothing is known yet."""
    for foretold, noise, residual in ((4.0, 1.0, 2.0), (1.0, 1.0, 1.0), (0.5, 2.0, -2.0)):
        plain = foretold / (foretold + noise) * residual
        assert moved(Scales(), residual, foretold, noise) == pytest.approx(plain, rel=0.4)


def test_questions_of_two_kinds_err_less() -> None:
    """Where two thirds are as foretold to a tenth and the others are off by far, shown values err a sixth less than by
    one scale, though that is the right one of all together. Would catch weights that are not learnt.
    """
    rng, noise, count = np.random.default_rng(3), 1.0, 600
    narrow = rng.random(count) < 2 / 3
    truths = rng.normal(0, np.where(narrow, 0.1, 4.0))
    foretold = float(np.mean(truths**2))
    measured = truths + rng.normal(0, math.sqrt(noise), count)
    scales, mixed = Scales(), []
    for value in measured.tolist():
        scales.learn(value, foretold, noise)
        mixed.append(moved(scales, value, foretold, noise))
    plain = foretold / (foretold + noise) * measured
    assert np.mean((np.array(mixed) - truths) ** 2) < 0.85**2 * np.mean((plain - truths) ** 2)


def test_questions_of_one_kind_lose_nothing_to_speak_of() -> None:
    """Would catch a mixture that sees few and many in plain normal numbers."""
    rng, noise, count = np.random.default_rng(4), 1.0, 600
    truths = rng.normal(0, 1.5, count)
    measured = truths + rng.normal(0, 1, count)
    scales, mixed = Scales(), []
    for value in measured.tolist():
        scales.learn(value, 2.25, noise)
        mixed.append(moved(scales, value, 2.25, noise))
    plain = 2.25 / 3.25 * measured
    assert np.mean((np.array(mixed) - truths) ** 2) < 1.05 * np.mean((plain - truths) ** 2)


def test_a_bounded_past_is_looked_at() -> None:
    """Would catch memory that grows with the questions."""
    scales = learnt(np.random.default_rng(5), np.ones(LOOKED + 50), 1.0, 1.0)
    assert len(scales._likelihoods) == LOOKED
    assert module.LOOKED == LOOKED
    assert scales.weights.sum() == pytest.approx(1)
