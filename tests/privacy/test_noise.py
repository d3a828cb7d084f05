"""Noise: the right distribution at no smaller a scale, each value once, nothing left behind."""

import copy
import math
import os
import pickle
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy import stats

from app.privacy.errors import InvalidEvent
from app.privacy.noise import (
    GREATEST_GAUSSIAN_SCALE,
    GREATEST_LAPLACE_SCALE,
    Choice,
    DiscreteGaussian,
    DiscreteLaplace,
    Integers,
    NoiseBlock,
)
from tests.kit import audits

pytestmark = pytest.mark.unit


class Counting:
    """1, 2, 3, ...: every value unlike every other, and never 0."""

    def __init__(self) -> None:
        self.next = 1

    def take(self, n: int) -> Integers:
        values = np.arange(self.next, self.next + n, dtype=np.int64)
        self.next += n
        return values


# Samplers. False alarms of the statistical tests below have probability under 1e-9.


def laplace_statistic(values: Integers, scale: float) -> float:
    """Mean |k| over its expectation, in standard deviations of that mean."""
    r = math.exp(-1 / scale)
    mean = 2 * r / (1 - r**2)
    second = 2 * r / (1 - r) ** 2
    return float((np.abs(values).mean() - mean) / math.sqrt((second - mean**2) / len(values)))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [Fraction(3, 2), Fraction(78801), Fraction(2**20) * 75])
def test_laplace_scale_and_symmetry(scale: Fraction) -> None:
    """Accepts the noise as it is, rejects the same values taken for a scale 30% off in either direction."""
    values = DiscreteLaplace(scale).take(40_000)
    assert values.shape == (40_000,)
    assert values.dtype == np.int64
    assert abs(laplace_statistic(values, float(scale))) < 6.5
    assert laplace_statistic(values, float(scale) * 1.3) < -6.5
    assert laplace_statistic(values, float(scale) * 0.7) > 6.5
    assert abs(int((values > 0).sum()) - int((values < 0).sum())) < 6.5 * math.sqrt(40_000)


Law = Callable[[Fraction, int], Integers]


@pytest.mark.slow
@pytest.mark.parametrize(
    "law",
    [lambda scale, n: DiscreteLaplace(scale).take(n), lambda scale, n: audits.laplace(scale, n, default_rng(1))],
    ids=["shipped", "of audits"],
)
@pytest.mark.parametrize(("scale", "number"), [(Fraction(1), 60_000), (Fraction(4), 30_000)])
def test_laplace_frequencies(law: Law, scale: Fraction, number: int) -> None:
    """Each of the most frequent integers as often as its probability says: would catch rounded
    continuous noise."""
    values, r = law(scale, number), math.exp(-1 / scale)
    for k in range(-4, 5):
        p = (1 - r) / (1 + r) * r ** abs(k)
        assert abs(int((values == k).sum()) - number * p) < 6.5 * math.sqrt(number * p * (1 - p))


@pytest.mark.slow
@pytest.mark.parametrize(
    "law",
    [lambda scale, n: DiscreteGaussian(scale).take(n), lambda scale, n: audits.gaussian(scale, n, default_rng(1))],
    ids=["shipped", "of audits"],
)
def test_gaussian_frequencies(law: Law) -> None:
    """The same."""
    values, every = law(Fraction(2), 30_000), np.arange(-40, 41)
    whole = np.exp(-(every**2) / 8).sum()
    for k in range(-4, 5):
        p = math.exp(-(k**2) / 8) / whole
        assert abs(int((values == k).sum()) - 30_000 * p) < 6.5 * math.sqrt(30_000 * p * (1 - p))


def test_gaussian_scale() -> None:
    values = DiscreteGaussian(50).take(20_000).astype(float)
    deviation = (values**2).mean() / 50**2 - 1
    assert abs(deviation) < 6.5 * math.sqrt(2 / 20_000)
    assert abs((values**2).mean() / 35**2 - 1) > 6.5 * math.sqrt(2 / 20_000)


@given(st.fractions(min_value=Fraction(1, 1000), max_value=GREATEST_LAPLACE_SCALE))
def test_the_float_scale_is_never_smaller(scale: Fraction) -> None:
    used = DiscreteLaplace(scale).scale
    assert Fraction(used) >= scale
    assert Fraction(math.nextafter(used, 0)) < scale


def test_decimals_are_scales_too() -> None:
    assert Fraction(DiscreteLaplace(Decimal("0.1")).scale) >= Fraction(1, 10)


@pytest.mark.parametrize("scale", [0, -1, Decimal("NaN"), 0.5, GREATEST_LAPLACE_SCALE + 1, Fraction(2**63)])
def test_scales_that_could_saturate_or_mean_nothing_are_refused(scale: Fraction) -> None:
    with pytest.raises(InvalidEvent):
        DiscreteLaplace(scale)
    with pytest.raises(InvalidEvent):
        DiscreteGaussian(scale if not isinstance(scale, Fraction) else GREATEST_GAUSSIAN_SCALE + 1)


def test_saturation_is_out_of_reach() -> None:
    """The stated tail at the greatest scales."""
    assert math.exp(-(2**62) / float(GREATEST_LAPLACE_SCALE)) * 2 < 2**-255
    assert math.exp(-((2**62 / float(GREATEST_GAUSSIAN_SCALE)) ** 2) / 2) * 2 < 2**-280


# Blocks.


@given(st.integers(1, 50), st.lists(st.one_of(st.integers(0, 120), st.none()), max_size=30))
def test_each_value_is_handed_out_once_and_in_full(size: int, moves: list[int | None]) -> None:
    """Takes of any size between refills (None): no value twice, none in the block after it left."""
    block = NoiseBlock(Counting(), size)
    seen: list[int] = []
    for move in moves:
        if move is None:
            block.refill()
            continue
        taken = block.take(move)
        assert taken.shape == (move,)
        assert taken.flags.owndata
        seen += taken.tolist()
        assert not set(seen) & set(block._values.tolist())
    assert 0 not in seen
    assert len(seen) == len(set(seen))


def test_taken_places_hold_zero() -> None:
    block = NoiseBlock(Counting(), 5)
    block.take(3)
    assert block._values.tolist() == [0, 0, 0, 4, 5]


def test_refill_draws_one_spare_block() -> None:
    source = Counting()
    block = NoiseBlock(source, 10)
    assert block.refill()
    assert not block.refill()
    assert source.next == 11
    assert block.take(10).tolist() == list(range(1, 11))
    assert source.next == 11
    assert block.take(1).tolist() == [11]


def test_threads_share_a_block_without_sharing_a_value() -> None:
    """Four takers and one refiller at once."""
    block, results, stop = NoiseBlock(Counting(), 64), [], threading.Event()
    results = [[] for _ in range(4)]

    def refill() -> None:
        while not stop.is_set():
            block.refill()

    def take(mine: list[int]) -> None:
        for _ in range(800):
            mine.extend(block.take(7).tolist())

    background = threading.Thread(target=refill)
    takers = [threading.Thread(target=take, args=(mine,)) for mine in results]
    for thread in (background, *takers):
        thread.start()
    for thread in takers:
        thread.join()
    stop.set()
    background.join()
    everything = [value for mine in results for value in mine]
    assert len(everything) == 4 * 800 * 7
    assert len(set(everything)) == len(everything)
    assert 0 not in everything


def test_contents_are_shown_and_copied_nowhere() -> None:
    block = NoiseBlock(Counting(), 3)
    block.refill()
    assert repr(block) == str(block) == "NoiseBlock(size=3)"
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copying(block)


def test_a_forked_process_is_refused() -> None:
    """Otherwise parent and child would answer with the same noise."""
    block = NoiseBlock(Counting(), 3)
    block.take(1)
    child = os.fork()
    if child == 0:
        try:
            block.take(1)
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert block.take(1).tolist() == [2]


def test_a_source_that_gives_too_little_is_refused() -> None:
    class Short:
        def take(self, n: int) -> Integers:
            return np.zeros(n - 1, dtype=np.int64)

    with pytest.raises(ValueError):
        NoiseBlock(Short(), 4).take(1)
    with pytest.raises(ValueError):
        NoiseBlock(Counting(), 0)


# Choices. The false alarm of the first test has a probability of 1e-9.


@pytest.mark.slow
def test_choices_have_the_law_of_the_exponential_mechanism() -> None:
    """Against probabilities in proportion to exp(score/scale), far from zero, and a tie shared evenly. Rejects the same
    draws taken for a scale 40% off in either direction, and for the law of noise with exponential tails.
    """
    scores, scale, draws = np.array([0, 3, 7, 7, -9, 12]), Fraction(13, 2), 6_000
    choice = Choice(scale)
    found = np.bincount([choice.of(scores + 2**40) for _ in range(draws)], minlength=len(scores))

    def wrong(law: Any) -> float:
        return float(stats.chisquare(found, draws * law / law.sum()).pvalue)

    assert wrong(np.exp(scores / float(scale))) > 1e-9
    assert wrong(np.exp(scores / float(scale) / 1.4)) < 1e-9
    assert wrong(np.exp(scores / float(scale) * 1.4)) < 1e-9
    assert wrong(_permuted_and_flipped(scores, float(scale))) < 1e-9


def _permuted_and_flipped(scores: Any, scale: float) -> Any:
    """The law of the largest score with exponential noise on each, by its integral over that noise."""
    grid = np.linspace(0, 60 * scale, 20_001) + float(scores.min())
    below = np.array([np.clip(1 - np.exp(-(grid - s) / scale), 0, 1) for s in scores])
    law = []
    for i, own in enumerate(scores):
        density = np.where(grid >= own, np.exp(-(grid - own) / scale) / scale, 0.0)
        law.append(np.trapezoid(density * np.delete(below, i, axis=0).prod(axis=0), grid))
    return np.array(law)


def test_a_choice_among_scores_far_apart_is_the_greatest() -> None:
    """At the ends of 64 bits no difference is lost. Would catch scores that are rounded on their way."""
    far = np.array([2**60 - 1, 2**60, -(2**62)])
    assert {Choice(Fraction(1, 50)).of(far) for _ in range(20)} == {1}
    assert Choice(1).of(np.array([-5])) == 0


def test_scores_take_the_same_room_whatever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """And differ as they did. Would catch a draw among many scores of nothing that is faster than one among others:
    half of the records at either end, and the same with one record more, were told apart by it in four of five pairs.
    """
    told: list[list[int]] = []
    choice = Choice(3)
    monkeypatch.setattr(choice, "_measure", lambda scores: told.append(scores) or 0)
    given = [[0] * 3, [0, -500_000, -500_000], [7, 2**60, -(2**60) + 1], [2**62, 2**61 + 1], [-(2**62)]]
    for scores in given:
        assert choice.of(np.array(scores)) == 0
    assert {sys.getsizeof(score) for scores in told for score in scores} == {sys.getsizeof(2**60)}
    for scores, moved in zip(given, told, strict=True):
        assert [score - scores[0] for score in scores] == [score - moved[0] for score in moved]
    far = [2**61, -(2**62)]
    choice.of(np.array(far))
    assert told[-1] == far


@pytest.mark.parametrize("scale", [0, -1, Fraction(2**62) + 1, Decimal("NaN")])
def test_a_choice_takes_a_positive_scale_within_64_bits(scale: Any) -> None:
    """Would catch a choice without noise."""
    with pytest.raises(InvalidEvent):
        Choice(scale)
