"""How records are most likely spread, against regression on what makes up the difference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.estimation.tables.spread import ANYHOW, AS_ALL, Expected, Leeway, likely
from app.spaces.tensor import FloatArray

pytestmark = pytest.mark.unit

EVERYBODY = 1500.0


def told(
    masses: FloatArray, below: FloatArray, covariance: FloatArray, leeway: Leeway, records: float = EVERYBODY
) -> FloatArray:
    """The likely parts, of ranges of one number each."""
    return likely(Expected(masses, leeway, records), np.arange(1, len(masses) + 1), below, covariance)


BOTH = pytest.mark.parametrize("leeway", [ANYHOW, AS_ALL])


def factors(masses: FloatArray, leeway: Leeway, hidden: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """The expected parts below the ends of ranges, and what independent normal numbers of variance one are multiplied
    by for the difference: those of a shift and a stretch, and of a bridge. That is a walk whose steps have the
    variances of the ranges, less what ties its end to zero.
    """
    parts = (1 - leeway.even) * masses / masses.sum() + leeway.even / len(masses)
    ends = np.cumsum(parts)[:-1]
    smooth = [math.sqrt(leeway.smooth) * ends * (1 - ends)]
    smooth.append(math.sqrt(4 * leeway.smooth) * ends * (1 - ends) * (1 - 2 * ends))
    walk = np.tri(len(ends), len(parts)) - ends[:, None]
    return ends, np.hstack([np.array(smooth).T, walk * np.sqrt((leeway.rough + leeway.doubt * hidden) * parts)])


def less_its_part(ends: FloatArray) -> FloatArray:
    """Rows that tell the number below each end less its part of the total."""
    return np.hstack([np.eye(len(ends)), -ends[:, None]])


@given(st.integers(0, 10**6), st.booleans(), st.floats(0.01, 8), st.floats(1e-3, 3), st.floats(0, 9), st.floats(0, 1))
def test_against_regression(seed: int, public: bool, smooth: float, rough: float, doubt: float, even: float) -> None:
    """The oracle finds the factors by ridge regression, with the total as one more unknown of which nothing is
    expected; no covariance of a difference is in it. Would catch a wrong covariance, noise of the total that is left
    out, and a wrong part of what was counted."""
    rng, leeway = np.random.default_rng(seed), Leeway(smooth, rough, doubt, even)
    size = int(rng.integers(2, 9))
    masses = rng.dirichlet(np.full(size, 0.7)) + 1e-2
    root = np.tri(size) @ np.diag(rng.uniform(1, 300, size))
    true = np.cumsum(1000 * rng.dirichlet(np.ones(size)))
    if public:
        root[-1] = 0
    below, covariance = true + root @ rng.normal(size=size), root @ root.T
    total, (ends, _) = max(below[-1], math.sqrt(covariance[-1, -1]), 1.0), factors(masses, leeway)
    # What noise hides of this group, in all groups together, as a part of all records.
    ratios = [e @ covariance @ e / (p * (1 - p)) for p, e in zip(ends, less_its_part(ends), strict=True)]
    hidden = float(np.median(ratios)) / (total * max(total, EVERYBODY))
    ends, moved = factors(masses, leeway, hidden)
    # Below an end there is its part of an unknown total, and the factors' part of about as many.
    design = np.vstack([np.hstack([ends[:, None], total * moved]), np.append(1.0, np.zeros(moved.shape[1]))])
    known = np.linalg.inv(covariance + (1e-7 * np.eye(size) if public else 0))
    ridge = np.diag(np.append(0.0, np.ones(moved.shape[1])))
    found = np.linalg.solve(design.T @ known @ design + ridge, design.T @ known @ below)
    expected = np.clip(ends + moved @ found[1:], 0, 1)
    assert told(masses, below, covariance, leeway) == pytest.approx(expected, abs=1e-4)


@BOTH
def test_great_noise_leaves_what_is_expected_and_none_what_was_counted(leeway: Leeway) -> None:
    """Would catch a spread that nothing was told of, and one that is not believed where it is exact."""
    masses, below = np.array([0.2, 0.3, 0.5]), np.array([700.0, 800.0, 1000.0])
    noise = np.tri(3) @ np.tri(3).T
    ends, _ = factors(masses, leeway)
    assert told(masses, below, 1e12 * noise, leeway) == pytest.approx(ends, abs=1e-3)
    assert told(masses, below, 1e-9 * noise, leeway) == pytest.approx([0.7, 0.8], abs=1e-6)


def believed(counts: FloatArray, records: float) -> float:
    """What part of the difference below the middle of twenty ranges is taken to be true, of a group of which fifty
    records are expected in each, with noise of fifteen."""
    below, noise = np.cumsum(counts), 15.0**2 * np.tri(20) @ np.tri(20).T
    moved = told(np.full(20, 0.05), below, noise, AS_ALL, records)[9] - 0.5
    return float(moved / (below[9] / below[-1] - 0.5))


SHIFTED, ODD = np.repeat([70.0, 30.0], 10), np.full(20, 50.0)
ODD[9] += 60
ODD[10] -= 60


def test_a_group_that_is_shifted_is_believed_more_than_one_number_that_sticks_out() -> None:
    """Would catch a leeway that does not tell a group that is elsewhere from noise: a bridge alone believes both alike,
    where as many are below the middle."""
    assert believed(ODD, 1e5) < 0.8 * believed(SHIFTED, 1e5) < 0.8


def test_what_is_expected_is_doubted_where_it_was_counted_with_the_same_noise() -> None:
    """Of a small group of many records, and of one that has most of all. Would catch noise in what is expected that is
    taken for how records are spread."""
    assert believed(ODD, 1e5) + 0.15 < believed(ODD, 1_100)


@BOTH
def test_ranges_that_nobody_is_expected_in(leeway: Leeway) -> None:
    """Would catch what was counted surely, and is not believed where hardly any records are expected, as within bounds
    that are far too wide."""
    masses = np.array([1e-15, 0.0, 1.0, 1e-17])
    below = np.array([500.0, 900.0, 1000.0, 1000.0])
    found = told(masses, below, np.tri(4) @ np.tri(4).T, leeway)
    assert found[:2] == pytest.approx([0.5, 0.9], abs=0.05)


def test_a_group_whose_counted_total_is_nothing_or_less() -> None:
    """Would catch a division by a total that noise made nothing or less."""
    masses, noise = np.array([0.2, 0.3, 0.5]), 400.0 * np.tri(3) @ np.tri(3).T
    for total in (0.0, -30.0):
        found = told(masses, np.array([10.0, -20.0, total]), noise, AS_ALL)
        assert np.all((found >= 0) & (found <= 1))
