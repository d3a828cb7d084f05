"""The secret number of comparisons: the Poisson law cut at its end, and nothing shown of it."""

from decimal import Decimal

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.privacy.race import SAMPLER_DISTANCE, PoissonCounts

pytestmark = pytest.mark.unit


@settings(max_examples=25)
@given(st.decimals(1, 120, places=3), st.integers(1, 300))
def test_the_table_is_the_poisson_law_within_the_stated_distance(mean: Decimal, cut: int) -> None:
    """Each threshold is the distribution function of mpmath, to 128 bits: a table shifted by one place would show."""
    thresholds = PoissonCounts(mean, cut)._thresholds
    with mpmath.workdps(80):
        rate, total, distance = mpmath.mpf(str(mean)), mpmath.mpf(0), mpmath.mpf(0)
        for n in range(cut):
            total += mpmath.exp(-rate) * rate**n / mpmath.factorial(n)
            distance += abs(mpmath.mpf(thresholds[n]) / 2**128 - total)
        # Moving the distribution function by d_n at each n moves the law by at most their sum.
        assert distance <= mpmath.mpf(SAMPLER_DISTANCE.numerator) / SAMPLER_DISTANCE.denominator
    assert len(thresholds) == cut
    assert thresholds == sorted(thresholds)


@pytest.mark.parametrize(("mean", "cut"), [("4", 40), ("21.5", 90), ("21.5", 20)])
def test_draws_have_the_mean_and_never_pass_the_cut(mean: str, cut: int) -> None:
    """Mean of min(N, cut) within 6.5 standard deviations (P < 1e-9 of a wrong alarm)."""
    counts = PoissonCounts(Decimal(mean), cut)
    drawn = np.array([counts.take() for _ in range(8_000)])
    weights = np.array(
        [float(mpmath.exp(-mpmath.mpf(mean)) * mpmath.mpf(mean) ** n / mpmath.factorial(n)) for n in range(cut)]
    )
    expected = float((weights * np.arange(cut)).sum() + cut * (1 - weights.sum()))
    assert drawn.min() >= 0
    assert drawn.max() <= cut
    assert abs(drawn.mean() - expected) < 6.5 * np.sqrt(float(mean) / len(drawn))


@pytest.mark.parametrize(("mean", "cut"), [("0", 5), ("-1", 5), ("4", 0), ("4", 2**15)])
def test_tables_without_meaning_are_refused(mean: str, cut: int) -> None:
    with pytest.raises(ValueError):
        PoissonCounts(Decimal(mean), cut)


def test_the_representation_shows_the_cut_alone() -> None:
    assert repr(PoissonCounts(Decimal(4), 33)) == "PoissonCounts(cut=33)"
