"""The bound of all cuts at once, against the exact law of sums of noise and against all cuts of small graphs."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from app.measurements.noise import BitFlips, Noise
from app.measurements.record import Measurement
from app.measurements.strategies.edges import Edges
from app.releases.cut_bounds import Term, all_cuts_bound, rounded_up
from app.releases.edge_results import combined

pytestmark = pytest.mark.unit

FLIPS = BitFlips(round(2**53 / (1 + math.e)))
RARE = BitFlips(2**53 // 1000)
LAPLACE, GAUSSIAN = Noise("laplace", Decimal(3), 0), Noise("gaussian", Decimal(2), 0)


def law(noise: Noise | BitFlips, bit: int) -> tuple[npt.NDArray[np.float64], float, float]:
    """Probabilities of the error of a cell on a grid, its step and where it begins."""
    if isinstance(noise, BitFlips):
        p = float(noise.probability)
        step = 1 / (1 - 2 * p)
        chance = 1 - p if bit else p
        return np.array([1 - chance, chance]), step, -p * step - bit
    reach = 80 * int(noise.scale)
    values = np.arange(-reach, reach + 1.0)
    scale = float(noise.scale)
    weights = np.exp(-np.abs(values) / scale if noise.kind == "laplace" else -(values**2) / (2 * scale**2))
    return weights / weights.sum(), 1.0, -float(reach)


@pytest.mark.parametrize("noise", [FLIPS, RARE, LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("cells", [1, 30])
@pytest.mark.parametrize("bit", [0, 1])
def test_a_cut_passes_its_bound_as_rarely_as_is_said(noise: Noise | BitFlips, cells: int, bit: int) -> None:
    """Exactly: the sum of so many errors passes the bound with a probability of at most beta divided by the number of
    cuts, and would pass three fifths of it more often. Would catch a wrong cumulant, a variance in its place, a bound
    of one side, and one that is so wide that it says nothing.
    """
    edges, beta = Edges((5, 6), "all"), 0.05
    bound = all_cuts_bound(edges, [Term(noise)], beta, cells)
    one, step, begin = law(noise, bit)
    size = cells * (len(one) - 1) + 1
    spectrum = np.fft.rfft(one, 2 * size)
    many = np.maximum(np.fft.irfft(spectrum**cells, 2 * size)[:size], 0)
    errors = cells * begin + step * np.arange(size)
    allowed = beta / 2**11
    assert many[np.abs(errors) > bound].sum() <= allowed
    if cells > 1 and noise is not RARE:
        assert many[np.abs(errors) > 0.6 * bound].sum() > allowed


def test_all_cuts_of_small_graphs() -> None:
    """Of every graph of four nodes, no cut and no rank-one query passes the bound in more than a part beta of draws.
    Would catch cuts that are not counted, and a pair of an undirected graph that a cut can count twice.
    """
    rng, beta = np.random.default_rng(4), 0.05
    edges = Edges((4, 4), "pairs")
    rows, columns = edges.ends()
    sets = np.array(list(itertools.product([0, 1], repeat=4)), dtype=np.float64)
    soft = rng.random((2, 50, 4))
    for left, right in ((sets, sets), soft):
        one = left[:, None, rows] * right[None, :, columns]
        other = left[:, None, columns] * right[None, :, rows]
        weights = (1 - (1 - one) * (1 - other)).reshape(-1, edges.cells)
        assert weights.max() <= 1
        draws = rng.laplace(0, 3, (3000, edges.cells))
        worst = np.abs(draws @ weights.T).max(axis=1)
        broken = int((worst > all_cuts_bound(edges, [Term(LAPLACE)], beta)).sum())
        assert stats.binom(3000, beta).sf(broken) > 1e-9


def test_averages_are_unbiased_and_their_bound_is_their_own() -> None:
    """Measurements are averaged by precision, and the bound is that of the average: of two alike that of noise of half
    the variance. Would catch equal weights, and a bound of the first alone.
    """
    edges, rng = Edges((30, 30), "arcs"), np.random.default_rng(2)
    made = [
        Measurement(edges, noise, np.rint(rng.normal(7, float(noise.scale), edges.cells)).astype(np.int64))
        for noise in (GAUSSIAN, Noise("gaussian", Decimal(4), 0))
    ]
    found = combined(made)
    assert 1 / found.variance == pytest.approx(1 / 4 + 1 / 16)
    assert found.values == pytest.approx((made[0].values * 4 + made[1].values) / 5)
    own = all_cuts_bound(edges, found.terms, 0.05)
    assert own == pytest.approx(all_cuts_bound(edges, [Term(GAUSSIAN)], 0.05) * math.sqrt(0.8), rel=1e-4)
    both = combined([made[0], made[0]])
    assert all_cuts_bound(edges, both.terms, 0.05) == pytest.approx(
        all_cuts_bound(edges, [Term(GAUSSIAN)], 0.05) / math.sqrt(2), rel=1e-4
    )


def test_a_smaller_probability_and_larger_cuts_have_larger_bounds() -> None:
    """Would catch a bound that falls where it should grow; and of Gaussian noise the closed form holds."""
    edges = Edges((50, 70), "all")
    bounds = [all_cuts_bound(edges, [Term(LAPLACE)], beta) for beta in (0.5, 0.05, 1e-9)]
    assert bounds == sorted(bounds)
    sizes = [all_cuts_bound(edges, [Term(FLIPS)], 0.05, cells) for cells in (1, 10, 1000, 3500)]
    assert sizes == sorted(sizes)
    logarithm = 120 * math.log(2) + math.log(2 / 0.05)
    closed = math.sqrt(2 * 3500 * 4 * logarithm)
    assert closed <= all_cuts_bound(edges, [Term(GAUSSIAN)], 0.05) <= closed * (1 + 1e-3)


@pytest.mark.parametrize(("value", "shown"), [(1.0, 1.0), (1.0000001, 1.00001), (123456.7, 123457.0), (0.25, 0.25)])
def test_what_is_stated_is_rounded_up(value: float, shown: float) -> None:
    """Would catch a bound that is stated as less than it is."""
    assert rounded_up(value) == shown
