"""Exact reaches of sums of noises: against enumeration, a finer transform, and closed forms."""

from __future__ import annotations

import math
from decimal import Decimal

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from app.estimation.tails import LEAST_MISSED, Term, norm_quantile, normal_quantile, quantile, reach
from app.measurements.noise import Noise, NoiseKind

pytestmark = pytest.mark.unit

#: Kind, scale, weight, and how many.
Part = tuple[NoiseKind, float, float, int]
kinds = st.sampled_from(("laplace", "gaussian"))
confidences = st.sampled_from((0.5, 0.8, 0.95, 0.99, 0.999))


def noise(kind: NoiseKind, scale: float, bits: int = 0) -> Noise:
    return Noise(kind, Decimal(repr(scale)), bits)


def terms(parts: list[Part]) -> list[Term]:
    return [Term.of(noise(kind, scale), np.full(many, weight)) for kind, scale, weight, many in parts]


def masses(kind: NoiseKind, scale: float) -> np.ndarray:
    """The law on 0, 1, 2, ... steps, as its definition says."""
    k = np.arange(math.ceil(60 * scale) + 2)
    weights = np.exp(-k / scale) if kind == "laplace" else np.exp(-(k**2) / (2 * scale**2))
    return weights / (2 * weights.sum() - weights[0])


def deviation(parts: list[Part]) -> float:
    squares = 0.0
    for kind, scale, weight, many in parts:
        law = masses(kind, scale)
        squares += many * weight**2 * 2 * float(law @ np.arange(len(law)) ** 2)
    return math.sqrt(squares)


def finely(parts: list[Part], confidence: float, points: int = 1 << 18) -> float:
    """The reach by rounding every noise to a lattice some eight times finer than the one under test."""
    step = (60 * deviation(parts) + 60 * max(weight for _, _, weight, _ in parts)) / points
    found = np.ones(points // 2 + 1)
    for kind, scale, weight, many in parts:
        law = masses(kind, scale)
        places = np.rint(np.arange(len(law)) * weight / step).astype(int) % points
        found *= (2 * np.fft.rfft(np.bincount(places, weights=law, minlength=points)).real - law[0]) ** many
    half = np.fft.irfft(found, points)[: points // 2].copy()
    half[1:] *= 2
    return int(np.searchsorted(np.cumsum(half), confidence)) * step


def enumerated(parts: list[Part], confidence: float) -> float:
    """The reach by adding up all values that the noises can have."""
    values, chances = np.zeros(1), np.ones(1)
    for kind, scale, weight, many in parts:
        law = masses(kind, scale)
        law = law[law > 1e-13]
        own = np.concatenate([law[:0:-1], law])
        places = weight * np.arange(1 - len(law), len(law))
        for _ in range(many):
            sums, which = np.unique(np.add.outer(values, places).round(9), return_inverse=True)
            chances = np.bincount(which.reshape(-1), weights=np.multiply.outer(chances, own).reshape(-1))
            values = sums
    sizes, which = np.unique(np.abs(values), return_inverse=True)
    return float(sizes[np.searchsorted(np.cumsum(np.bincount(which, weights=chances)), confidence)])


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.99, 0.999])
@pytest.mark.parametrize(
    "parts",
    [
        [("laplace", 1.0, 1.0, 1)],
        [("laplace", 0.25, 1.0, 2)],
        [("gaussian", 0.7, 1.0, 1)],
        [("gaussian", 3.0, 1.0, 2), ("laplace", 1.0, 2.0, 1)],
        [("laplace", 10.0, 1.0, 3)],
    ],
)
def test_a_reach_on_one_lattice_is_that_of_enumeration(parts: list[Part], confidence: float) -> None:
    assert reach(terms(parts), confidence) == pytest.approx(enumerated(parts, confidence), abs=1e-6)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize(
    "parts",
    [
        [("laplace", 1.0, 0.7, 1), ("laplace", 1.0, 0.3183, 1)],
        [("gaussian", 1.3, 0.71, 2), ("laplace", 0.6, 0.33, 1)],
        [("laplace", 2.0, 0.6181, 1), ("gaussian", 1.0, 0.4142, 2)],
    ],
)
def test_a_reach_off_every_lattice_is_no_less_and_hardly_more(parts: list[Part], confidence: float) -> None:
    least = enumerated(parts, confidence)
    assert least <= reach(terms(parts), confidence) <= least + 0.015 * deviation(parts)


@pytest.mark.parametrize("exponent", [-980, -600, 600])
@pytest.mark.parametrize("confidence", [0.95, 1 - LEAST_MISSED / 2])
@pytest.mark.parametrize(
    "parts",
    [[("gaussian", 1e9, 1.0, 3), ("gaussian", 1e9, 0.7, 1)], [("laplace", 2.0, 0.6181, 2), ("laplace", 1.0, 1, 1)]],
)
def test_a_reach_is_that_of_other_weights_but_for_their_size(
    parts: list[Part], confidence: float, exponent: int
) -> None:
    """Catches squares of weights that are nothing or infinite: noise of them was told step by step, in gigabytes."""
    resized = [(kind, scale, math.ldexp(weight, exponent), many) for kind, scale, weight, many in parts]
    found = math.ldexp(reach(terms(resized), confidence), -exponent)
    # Whether steps are whole ones is told by their size, and what rounding may have done is added where they are not.
    assert found == pytest.approx(reach(terms(parts), confidence), rel=3e-9)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(kinds, st.floats(0.07, 4.0), st.floats(0.02, 1.0), st.sampled_from((1, 2, 9))),
        min_size=1,
        max_size=30,
    ),
    confidences,
)
@settings(max_examples=12, deadline=None)
def test_whatever_is_summed_a_reach_is_no_less_than_it_is_and_little_more(parts: list[Part], confidence: float) -> None:
    least, most = finely(parts, confidence), max(weight for _, _, weight, _ in parts)
    # The finer lattice is no oracle of less than its own rounding.
    slack = 4e-3 * deviation(parts) + 2e-3 * most
    assert least - slack <= reach(terms(parts), confidence) <= least + 0.1 * deviation(parts) + most


@pytest.mark.slow
def test_many_weights_are_no_less_and_hardly_more() -> None:
    rng = np.random.default_rng(3)
    weights = rng.uniform(0.1, 1, 200)
    parts: list[Part] = [("laplace", 8.0, float(w), 1) for w in weights]
    for confidence in (0.8, 0.95, 0.999):
        least = finely(parts, confidence, 1 << 17)
        found = reach([Term.of(noise("laplace", 8.0), weights)], confidence)
        assert least * 0.999 <= found <= 1.012 * least


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99, 0.999, 1 - 1e-6, 1 - 1e-8])
def test_one_smooth_noise_has_the_quantile_of_its_law(confidence: float) -> None:
    laplace, gaussian = noise("laplace", 1e6), noise("gaussian", 1e6)
    one = np.ones(1)
    assert reach([Term.of(laplace, one)], confidence) == pytest.approx(-1e6 * math.log1p(-confidence), rel=0.01)
    assert reach([Term.of(gaussian, one)], confidence) == pytest.approx(1e6 * normal_quantile(confidence), rel=0.01)
    assert reach([Term.of(laplace, one)], confidence) >= -1e6 * math.log1p(-confidence)


def test_of_very_many_noises_the_quantile_is_the_normal_one() -> None:
    found = quantile([Term.of(noise("laplace", 20.0), np.ones(1), repeated=10**6)], 0.99)
    assert normal_quantile(0.99) <= found <= normal_quantile(0.99) * 1.003


def test_a_sum_of_laplace_noises_is_that_of_their_characteristic_function() -> None:
    # The law of a sum of three continuous Laplace noises by numerical inversion in many digits.
    scales, confidence = (100.0, 60.0, 25.0), 0.99
    found = reach([Term.of(noise("laplace", 4096.0), np.array(scales) / 4096)], confidence)

    def within(r: float) -> float:
        def integrand(t: float) -> float:
            return mpmath.sin(r * t) / t / mpmath.fprod(1 + (b * t) ** 2 for b in scales)

        return float(2 / mpmath.pi * mpmath.quad(integrand, [0, 0.02, 0.1, 0.5, 2]))

    assert confidence <= within(found) <= confidence + 5e-4


@pytest.mark.parametrize("missed", [1e-9, 1e-10, 1e-14])
def test_what_is_hardly_ever_missed_is_bounded(missed: float) -> None:
    assert LEAST_MISSED == 1e-9
    parts = [Term.of(noise("laplace", 5.0), np.ones(1))]
    exact = math.ceil(5.0 * math.log(2 / (1 + math.exp(-1 / 5.0)) / missed)) - 1
    assert exact <= reach(parts, 1 - missed) <= 1.35 * exact
    assert reach([Term.of(noise("gaussian", 5.0), np.ones(1))], 1 - missed) >= 5 * stats.norm.isf(missed / 2)


def test_multipliers_grids_and_counts_are_those_of_what_was_measured() -> None:
    one = reach([Term.of(noise("laplace", 1.5), np.ones(3))], 0.95)
    assert reach([Term.of(noise("laplace", 1.5), np.ones(1), repeated=3)], 0.95) == pytest.approx(one)
    assert reach([Term.of(noise("laplace", 1.5), np.full(3, -2.0))], 0.95) == pytest.approx(2 * one)
    assert reach([Term.of(noise("laplace", 1.5), np.ones(3), multiplier=4)], 0.95) == pytest.approx(one / 4)
    assert reach([Term.of(noise("laplace", 0.1875, bits=3), np.ones(3))], 0.95) == pytest.approx(one / 8)


def test_nothing_reaches_nowhere_and_a_confidence_lies_between_zero_and_one() -> None:
    assert reach([], 0.95) == 0.0
    assert reach([Term.of(noise("laplace", 1.0), np.zeros(3))], 0.95) == 0.0
    assert quantile([], 0.95) == normal_quantile(0.95)
    for confidence in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="confidence"):
            reach([], confidence)
        with pytest.raises(ValueError, match="confidence"):
            normal_quantile(confidence)


@pytest.mark.parametrize("many", [1, 2, 4])
@pytest.mark.parametrize("scale", [2.0, 2.3, 3.0, 5.0])
def test_the_norm_of_few_noises_on_a_lattice(scale: float, many: int) -> None:
    """The norm of few discrete Gaussian noises, whose law is enumerated: what is said to be exceeded with a probability
    is. Would catch the quantile of chi, which one noise of two steps exceeds .077 of the time where .05 is said."""
    places = np.arange(-40, 41)
    law = np.exp(-np.square(places) / (2 * scale**2))
    squares = np.bincount(np.square(places), weights=law / law.sum())
    whole = squares
    for _ in range(many - 1):
        whole = np.convolve(whole, squares)
    noise = Noise("gaussian", Decimal(repr(scale)), 0)
    for missed in (0.2, 0.05, 0.01, 0.001):
        told = norm_quantile(0, [(noise, 1, many)], missed)
        assert float(whole[math.floor((told * scale) ** 2 * (1 + 1e-9)) + 1 :].sum()) <= missed
        assert told <= norm_quantile(many, [], missed) + 0.5 / scale + 1e-9
