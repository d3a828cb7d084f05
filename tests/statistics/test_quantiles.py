"""Distributions from counts of ranges, against generic least squares and by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom

from app.estimation.tables.quantiles import MOST_RANGES, Distribution, Ranges, distributions, ranges_of
from app.estimation.tables.spread import ANYHOW, Expected
from app.estimation.tails import Term, reach
from app.measurements.noise import Noise
from app.spaces.partition import Partition

pytestmark = pytest.mark.unit

PLACES = 9
#: Noise of a variance of one, nearly normal; and noise whose tails are longer.
ONE = Noise("gaussian", Decimal(1), 10)
LAPLACE = Noise("laplace", Decimal(2), 0)


def some_ranges(rng: np.random.Generator, groups: int, *, weighed: bool = False) -> Ranges:
    inner = np.sort(rng.choice(np.arange(1, PLACES), int(rng.integers(1, PLACES - 1)), replace=False))
    ends = np.append(inner, PLACES)
    weights = rng.integers(-3, 4, (int(rng.integers(1, 6)), len(ends))).astype(float) if weighed else None
    shape = groups, len(ends) if weights is None else len(weights)
    return Ranges(ends, rng.normal(40, 20, shape), rng.integers(1, 9, shape).astype(float), ONE, weights=weights)


@given(st.integers(0, 10**6), st.booleans())
def test_against_least_squares(seed: int, public: bool) -> None:
    """Every number below that is told, with its covariances, and that nothing is told which is not determined. Would
    catch a range that is counted in another, a wrong weight, and a total that is not taken to be exact."""
    rng = np.random.default_rng(seed)
    groups = 1 if public else 2
    measured = [some_ranges(rng, groups, weighed=rng.random() < 0.5) for _ in range(int(rng.integers(1, 4)))]
    found = distributions(measured, PLACES, 300.0 if public else None, np.ones(PLACES))
    for group, one in enumerate(found):
        rows, values, variances = [], [], []
        for m in measured:
            begins = [0, *m.ends[:-1]]
            for k, weights in enumerate(np.eye(len(m.ends)) if m.weights is None else m.weights):
                row = np.zeros(PLACES)
                for first, stop, weight in zip(begins, m.ends, weights, strict=True):
                    row[first:stop] = weight
                rows.append(row)
                values.append(m.values[group, k])
                variances.append(m.variances[group, k])
        if public:
            rows.append(np.ones(PLACES))
            values.append(300.0)
            variances.append(1e-9)
        matrix, weights = np.array(rows), 1 / np.sqrt(np.array(variances))
        solution = np.linalg.pinv(matrix * weights[:, None], rcond=1e-7)
        estimate = solution @ (np.array(values) * weights)
        lower = np.tril(np.ones((PLACES, PLACES)))
        determined = [np.linalg.matrix_rank(np.vstack([matrix, row])) == np.linalg.matrix_rank(matrix) for row in lower]
        assert one.ends.tolist() == [0, *(np.flatnonzero(determined) + 1).tolist()]
        assert one.below[1:] == pytest.approx((lower @ estimate)[determined], abs=1e-3)
        spread = (lower @ solution @ solution.T @ lower.T)[np.ix_(determined, determined)]
        assert one.covariance[1:, 1:] == pytest.approx(spread, abs=1e-3)
        contrast = lower[determined] - 0.3 * lower[-1]
        expected = np.sqrt(np.einsum("ij,jk,ik->i", contrast, solution @ solution.T, contrast))
        assert one.errors(0.3)[1:] == pytest.approx(expected, abs=1e-2)


def test_of_very_many_ends_those_of_sums_with_weights_are_kept() -> None:
    """Would catch sums over ranges that are no longer told apart, and such a sum that is dropped for counts."""
    places, rng = 1000, np.random.default_rng(3)
    counts = Ranges(np.arange(1, places + 1), rng.normal(5, 1, (1, places)), np.ones((1, places)), ONE)
    ends = np.array([123, 517, places])
    sums = Ranges(ends, np.array([[5000.0]]), np.full((1, 1), 1e-6), ONE, weights=np.array([[1.0, -1.0, 2.0]]))
    (found,) = distributions([counts, sums], places, None, np.ones(places))
    assert len(found.ends) <= MOST_RANGES + len(ends) + 1
    assert set(ends.tolist()) <= set(found.ends.tolist())
    below = dict(zip(found.ends.tolist(), found.below.tolist(), strict=True))
    inside = [below[123], below[517] - below[123], below[places] - below[517]]
    assert float(np.array([1.0, -1.0, 2.0]) @ inside) == pytest.approx(5000.0, abs=0.01)


EXACT = Distribution(np.array([0, 2, 5, 9]), np.array([0.0, 10.0, 40.0, 100.0]), np.zeros((4, 4)))


@pytest.mark.parametrize(
    ("level", "place", "interval"),
    [(0.05, 0, (0, 1)), (0.1, 1, (0, 4)), (0.2, 2, (2, 4)), (0.3, 3, (2, 4)), (0.99, 8, (5, 8))],
)
def test_quantiles_without_noise(level: float, place: int, interval: tuple[int, int]) -> None:
    """By hand: the least place up to which there is that part of the records, spread evenly between ends. Would catch
    an end that belongs to the other range."""
    assert EXACT.quantiles([level], Expected(np.ones(9), ANYHOW, 100.0)) == [place]
    assert EXACT.interval(level, 0.95) == interval


@pytest.mark.parametrize(("variance", "weights"), [(3.9, (1, 0)), (16, (1, 1)), (48, (1, 3)), (65, (0, 1))])
def test_what_was_drawn_and_what_was_counted_is_shown_as_their_mean(
    variance: float, weights: tuple[float, float]
) -> None:
    """By the inverse of their variances, unless one is more than four times the other. A hundred records lie evenly on
    a hundred numbers; the number below the middle was counted with a variance of 16, and the quantile drawn at 61.
    Would catch a value that throws away half of what was paid, and weights of the wrong one."""
    covariance = np.diag([0.0, 16.0, 0.0])
    found = Distribution(np.array([0, 50, 100]), np.array([0.0, 50.0, 100.0]), covariance, drawn=((0.5, 61, variance),))
    shown = found.quantiles([0.5], Expected(np.ones(100), ANYHOW, 100.0))
    assert shown == [round(float(np.average([61, 49], weights=weights)))]


@pytest.mark.slow
def test_intervals_hold() -> None:
    """Of noisy counts of a known distribution nominal 95% intervals hold the quantile in 93% or more of 600 draws.
    Would catch errors that are too small; a planted one of half the size is found."""
    rng = np.random.default_rng(3)
    truth = rng.multinomial(2000, np.full(60, 1 / 60))
    place = int(np.searchsorted(np.cumsum(truth), 0.4 * truth.sum()))
    held = {1.0: 0, 0.5: 0}
    for _ in range(600):
        ends = np.append(np.sort(rng.choice(np.arange(15, 35), 12, replace=False)), 60)
        sums = np.add.reduceat(truth, np.append(0, ends[:-1])) + rng.normal(0, 30, len(ends))
        for told in held:
            noise = Noise("gaussian", Decimal(30 * told), 0)
            variances = np.full((1, len(ends)), noise.variance)
            (found,) = distributions([Ranges(ends, sums[None], variances, noise)], 60, None, np.ones(60))
            low, high = found.interval(0.4, 0.95)
            held[told] += low <= place <= high
    assert held[1.0] >= 0.93 * 600
    assert held[0.5] < 0.93 * 600


@pytest.mark.slow
@pytest.mark.parametrize(("empty", "scale", "confidence"), [(40, 8, 0.8), (1, 1, 0.99)])
def test_intervals_hold_where_they_may_miss_most(empty: int, scale: int, confidence: float) -> None:
    """The quantile lies behind ranges without records, at each of whose ends just not enough are below: of 600 draws no
    more are missed than may be, by an exact test at 1e-4. Would catch an interval that ends where noise lets any of the
    numbers below pass the part: of 40 that is one in more than half of the draws."""
    rng, noise = np.random.default_rng(8), Noise("laplace", Decimal(scale), 0)
    truth = np.append(np.append(60, np.zeros(empty, np.int64)), 61)
    ends, places = np.arange(1, len(truth) + 1), len(truth)
    held, draws, ratio = 0, 600, -math.expm1(-1 / scale)
    drawn = truth + rng.geometric(ratio, (draws, places)) - rng.geometric(ratio, (draws, places))
    for values in drawn:
        measured = Ranges(ends, values[None].astype(float), np.full((1, places), noise.variance), noise)
        (found,) = distributions([measured], places, None, np.ones(places))
        low, high = found.interval(0.5, confidence)
        held += low <= places - 1 <= high
    assert binom.cdf(held, draws, confidence) > 1e-4


@given(st.integers(0, 10**6), st.sampled_from([0.5, 0.95, 0.999]))
def test_an_interval_is_all_that_may_be(seed: int, confidence: float) -> None:
    """Against every range looked at by itself, with weights of the noise by generic least squares. Would catch noise
    that is weighed in another order, ends that are passed over unseen, and a total that has no part in the noise."""
    rng = np.random.default_rng(seed)
    measured = [
        replace(each, variances=np.rint(each.variances) * LAPLACE.variance, noise=LAPLACE)
        for each in (some_ranges(rng, 1) for _ in range(int(rng.integers(1, 3))))
    ]
    (found,) = distributions(measured, PLACES, None, np.ones(PLACES))
    ends = np.unique(np.concatenate([m.ends for m in measured]))
    rows = np.concatenate([(np.searchsorted(m.ends, ends)[None] == np.arange(len(m.ends))[:, None]) for m in measured])
    variances = np.concatenate([m.variances[0] for m in measured])
    values = np.concatenate([m.values[0] for m in measured])
    scale = np.sqrt(variances)
    solution = np.linalg.pinv(rows / scale[:, None], rcond=1e-9) / scale
    below = np.tril(np.ones((len(ends), len(ends)))) @ solution
    told = [int(np.searchsorted(ends, end)) for end in found.ends[1:]]
    over, reaches = [0.0], [0.0]
    for k in told:
        weights = below[k] - 0.3 * below[-1]
        weights[np.abs(weights) < 1e-9] = 0.0
        over.append(float(weights @ values))
        counts = np.rint(variances / LAPLACE.variance).astype(np.int64)
        reaches.append(reach([Term(LAPLACE, np.round(weights, 9), counts)], confidence) if k != told[-1] else 0.0)
    # The first number is none, and the last is all: no noise puts a quantile beyond them.
    last = len(over) - 1
    may = [
        k
        for k in range(1, last + 1)
        if (k == last or over[k] + reaches[k] >= 0) and (k == 1 or over[k - 1] - reaches[k - 1] <= 0)
    ]
    assume(may)
    expected = int(found.ends[may[0] - 1]), int(found.ends[may[-1]]) - 1
    near = min((abs(abs(o) - r) for o, r in zip(over[1:-1], reaches[1:-1], strict=True)), default=1.0)
    assume(near > 1e-3)
    assert found.interval(0.3, confidence) == expected


def test_many_ends_are_merged() -> None:
    """Would catch work that grows with the cube of the number of values, and ends dropped with their counts."""
    places = 3000
    counts = np.arange(places, dtype=np.float64)
    measured = [Ranges(np.arange(1, places + 1), counts[None], np.ones((1, places)), ONE)]
    (found,) = distributions(measured, places, None, np.ones(places))
    assert len(found.ends) <= MOST_RANGES + 2
    assert found.below == pytest.approx(np.append(0, np.cumsum(counts))[found.ends], rel=1e-6)


def test_ranges_of_partitions() -> None:
    """Would catch cells that are no ranges taken for such, and a place without a value counted among the numbers."""
    assert ranges_of(Partition.of(np.array([0, 0, 1, 2, 2, 3])), 5).tolist() == [2, 3, 5]  # type: ignore[union-attr]
    assert ranges_of(Partition.of(np.array([0, 1, 0])), 3) is None
