"""Renyi costs against oracles that share no code with them: mpmath formulas, sums and integrals of the
noise itself."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.privacy.costs import (
    ConditionalRelease,
    DiscreteGaussianAnswer,
    DiscreteLaplaceAnswer,
    ExponentialChoice,
    PureStep,
    pure_cost,
    renyi_cost,
)
from app.privacy.errors import InfiniteCost, InvalidBudget, InvalidEvent
from app.privacy.ledger import Amounts

pytestmark = pytest.mark.unit

ORDERS = st.decimals(min_value="1.001", max_value="500", places=3)
SCALES = st.fractions(min_value=Fraction(1, 64), max_value=10**9, max_denominator=10**6)
RELEASES = st.sampled_from(["single", "race"])


def precise(value: Fraction | Decimal | int) -> mpmath.mpf:
    number = Fraction(value)
    return mpmath.mpf(number.numerator) / number.denominator


def ln_v(e0: mpmath.mpf, a: mpmath.mpf, release: str) -> mpmath.mpf | None:
    """ln V_a as printed in the theorem; None where infinite."""
    if release == "single":
        inside, linear = 1 + mpmath.exp(e0) - mpmath.exp(a * e0), (1 - a) * e0
    else:
        inside, linear = 1 - a * (1 - mpmath.exp(-e0)), -a * e0
    return None if inside <= 0 else linear - mpmath.log(inside)


@given(SCALES, ORDERS, RELEASES)
def test_conditional_release_is_the_formula_rounded_up(scale: Fraction, order: Decimal, release: str) -> None:
    """Would catch a wrong formula, cancellation (naive floats lose 8e-5 at e0 = 1e-7) and rounding
    downwards."""
    with mpmath.workdps(200):
        value = ln_v(1 / precise(scale), precise(order), release)
        if value is None:
            with pytest.raises(InfiniteCost):
                renyi_cost(ConditionalRelease(scale, release), order)
            return
        truth = value / (precise(order) - 1)
        try:
            cost = renyi_cost(ConditionalRelease(scale, release), order)
        except InfiniteCost:
            # Refused within 1e-15 of the pole: then e^(-(a-1) cost) is that small.
            assert value > 30
            return
        assert 0 <= precise(cost) - truth <= mpmath.mpf("1.001e-24")


@pytest.mark.parametrize("release", ["single", "race"])
def test_the_pole_is_refused(release: str) -> None:
    """The last finite order and the first infinite one for e0 = 1/10, from both sides of the condition."""
    with mpmath.workdps(50):
        e0 = mpmath.mpf("0.1")
        pole = mpmath.log(1 + mpmath.exp(e0)) / e0 if release == "single" else 1 / (1 - mpmath.exp(-e0))
    below, above = (
        Decimal(str(pole * (1 - mpmath.mpf("1e-9")))),
        Decimal(str(pole * (1 + mpmath.mpf("1e-9")))),
    )
    assert renyi_cost(ConditionalRelease(10, release), below).is_finite()
    with pytest.raises(InfiniteCost):
        renyi_cost(ConditionalRelease(10, release), above)


@given(SCALES, ORDERS, RELEASES)
def test_less_noise_costs_more(scale: Fraction, order: Decimal, release: str) -> None:
    try:
        dear = renyi_cost(ConditionalRelease(scale, release), order)
    except InfiniteCost:
        return
    assert renyi_cost(ConditionalRelease(scale * Fraction(101, 100), release), order) <= dear


@given(st.fractions(min_value=2, max_value=10**6, max_denominator=1000), ORDERS)
def test_a_race_costs_less_than_single_and_no_less_than_one_plain_answer(scale: Fraction, order: Decimal) -> None:
    """The race pays about a e0^2/2, a plain Laplace answer's; single about twice that."""
    try:
        race = renyi_cost(ConditionalRelease(scale, "race"), order)
        single = renyi_cost(ConditionalRelease(scale, "single"), order)
    except InfiniteCost:
        return
    plain = renyi_cost(DiscreteLaplaceAnswer(scale * 1000, 1000), order)
    assert plain <= race <= single


# The rounds themselves: Laplace noise, a threshold, true values in place of the supremum over all e0-DP
# pairs.


def laplace_cdf(x: mpmath.mpf, b: mpmath.mpf) -> mpmath.mpf:
    return mpmath.exp(x / b) / 2 if x < 0 else 1 - mpmath.exp(-x / b) / 2


def round_moments(
    v: mpmath.mpf, w: mpmath.mpf, b: mpmath.mpf, T: mpmath.mpf, a: mpmath.mpf
) -> tuple[mpmath.mpf, mpmath.mpf]:
    """(H, N) of one single round, hypothesis 0, private value v under P and w under Q, by integration."""

    def density(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.exp(-(a * abs(x - v) + (1 - a) * abs(x - w)) / b) / (2 * b)

    far = 60 * b
    right = sorted({T, *(x for x in (v, w) if x > T), T + abs(v) + abs(w) + far})
    left = sorted({-T, *(x for x in (v, w) if x < -T), -T - abs(v) - abs(w) - far})
    hit = mpmath.quad(density, right) + mpmath.quad(density, left)
    miss_p = laplace_cdf(T - v, b) - laplace_cdf(-T - v, b)
    miss_q = laplace_cdf(T - w, b) - laplace_cdf(-T - w, b)
    return hit, miss_p**a * miss_q ** (1 - a)


@pytest.mark.slow
@pytest.mark.parametrize(("order", "threshold"), [(2, 3), (2, 40), (4, 3), (6, 40)])
def test_single_pays_for_true_laplace_rounds(order: int, threshold: int) -> None:
    """H + V N <= V at every gap, both directions; nearly an equality at the worst gap, so the cost is
    not slack either.

    Would catch a cost of plain answers (half as much), a forgotten miss term, or the two directions
    mixed up.
    """
    with mpmath.workdps(30):
        b, T, a = mpmath.mpf(10), mpmath.mpf(threshold), mpmath.mpf(order)
        paid = precise(renyi_cost(ConditionalRelease(10), Decimal(order))) * (a - 1)
        worst = mpmath.mpf(0)
        for gap in (
            0,
            1,
            threshold - 1,
            threshold - 0.5,
            threshold,
            threshold + 0.5,
            threshold + 1,
            threshold + 9,
        ):
            # Values below the hypothesis are these in a mirror.
            for step in (1, -1, 0.25):
                v, w = mpmath.mpf(gap), mpmath.mpf(gap + step)
                for first, second in ((v, w), (w, v)):
                    hit, miss = round_moments(first, second, b, T, a)
                    assert hit + mpmath.exp(paid) * miss <= mpmath.exp(paid) * (1 + mpmath.mpf("1e-18"))
                    worst = max(worst, mpmath.log(hit / (1 - miss)) if miss < 1 else mpmath.mpf(0))
        if threshold == 40:
            assert worst >= mpmath.mpf("0.85") * paid


@given(
    st.integers(2, 12),
    st.floats(0.01, 0.2),
    st.lists(st.tuples(st.floats(0.001, 1), st.floats(-1, 1), st.booleans()), min_size=2, max_size=6),
)
def test_single_pays_for_any_conditional_release(order: int, e0: float, cells: list[tuple[float, float, bool]]) -> None:
    """Random e0-DP pairs on a few outcomes, some of them hits, the others together the miss.

    Would catch a supremum taken over too few rounds: losses reach +-e0 in any pattern.
    """
    q = [mass for mass, _, _ in cells]
    q = [mass / sum(q) for mass in q]
    # Shift the losses until P has mass 1; clip to [-e0, e0] so that the pair stays e0-DP.
    low, high = -2.0, 2.0

    def losses(shift: float) -> list[float]:
        return [e0 * min(1.0, max(-1.0, tilt + shift)) for _, tilt, _ in cells]

    for _ in range(80):
        middle = (low + high) / 2
        total = sum(mass * math.exp(loss) for mass, loss in zip(q, losses(middle), strict=True))
        low, high = (low, middle) if total > 1 else (middle, high)
    pairs = [
        (mass * mpmath.exp(loss), mass, hit) for mass, loss, (_, _, hit) in zip(q, losses(low), cells, strict=True)
    ]
    hits = sum(p**order * q ** (1 - order) for p, q, hit in pairs if hit)
    # A miss is one outcome: which cell it came from stays inside.
    miss_p, miss_q = (sum(pair[side] for pair in pairs if not pair[2]) for side in (0, 1))
    misses = miss_p**order * miss_q ** (1 - order) if miss_q > 0 else 0
    try:
        paid = renyi_cost(ConditionalRelease(Fraction(1) / Fraction(e0)), Decimal(order))
    except InfiniteCost:
        return
    V = mpmath.exp(precise(paid) * (order - 1))
    assert hits + V * misses <= V * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("order", [2, 6])
@pytest.mark.parametrize("mean", [4, 25])
def test_race_pays_for_true_poisson_races(order: int, mean: int) -> None:
    """A race of rate `mean` with the arrival time revealed (which tells more than the answer), by
    integration over values.

    A hit at time s with value u has density phi(u) exp(-s h), h the total hazard, and a miss probability
    exp(-mean h).
    """
    with mpmath.workdps(30):
        b, a, M = mpmath.mpf(10), mpmath.mpf(order), mpmath.mpf(mean)
        paid = precise(renyi_cost(ConditionalRelease(10, "race"), Decimal(order))) * (a - 1)
        V, worst = mpmath.exp(paid), mpmath.mpf(0)
        for T in (mpmath.mpf(2), mpmath.mpf(30)):
            for gap in (0, T - 1, T - 0.5, T, T + 1, T + 20):
                for step in (1, -1):
                    v, w = mpmath.mpf(gap), mpmath.mpf(gap + step)
                    hit, _ = round_moments(v, w, b, T, a)
                    hazard_p = 1 - (laplace_cdf(T - v, b) - laplace_cdf(-T - v, b))
                    hazard_q = 1 - (laplace_cdf(T - w, b) - laplace_cdf(-T - w, b))
                    decay = a * hazard_p + (1 - a) * hazard_q
                    miss = mpmath.exp(-M * decay)
                    moment = hit * (1 - miss) / decay
                    assert moment + V * miss <= V * (1 + mpmath.mpf("1e-18"))
                    worst = max(worst, mpmath.log(moment / (1 - miss)))
        assert worst >= mpmath.mpf("0.85") * paid


# Plain answers.


@given(st.fractions(Fraction(1, 8), 300), st.integers(1, 40))
def test_pure_costs_are_the_largest_ratios(scale: Fraction, shift: int) -> None:
    """Of two shifted laws, over all integers between and around them; rounded up to 1e-24. Would catch the reciprocal,
    a cost of one unit's shift, and an epsilon said of noise that has none, or of a test whose misses are free."""
    event = DiscreteLaplaceAnswer(scale, shift)
    worst = max(abs(Fraction(abs(k - shift)) - abs(k)) for k in range(-2, shift + 3)) / scale
    assert 0 <= Fraction(pure_cost(event) or 0) - worst < Fraction(1, 10**24)
    assert 0 <= Fraction(pure_cost(PureStep(worst)) or 0) - worst < Fraction(1, 10**24)
    assert pure_cost(DiscreteGaussianAnswer(scale, shift)) is None
    assert pure_cost(ConditionalRelease(scale)) is pure_cost(ConditionalRelease(scale, "race")) is None
    for order in (Decimal(2), Decimal(200)):
        assert renyi_cost(event, order) <= worst + Fraction(1, 10**23)
        assert Amounts.of(event, order) == Amounts(renyi_cost(event, order), pure_cost(event))


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.fractions(min_value=Fraction(1, 2), max_value=30, max_denominator=50),
    st.integers(1, 40),
    st.decimals(min_value="1.01", max_value="30", places=2),
)
def test_discrete_laplace_is_the_sum_over_the_integers(scale: Fraction, sensitivity: int, order: Decimal) -> None:
    """Brute force: sum p(k)^a p(k-D)^(1-a) until nothing is left. Would catch the continuous formula (1%
    too low here)."""
    with mpmath.workdps(50):
        s, a = precise(scale), precise(order)
        reach = int(130 * s) + sensitivity + 2
        normal = (1 - mpmath.exp(-1 / s)) / (1 + mpmath.exp(-1 / s))
        # Exponents -(a|k| + (1-a)|k-D|)/s fall by 1/s a step on either side of [0, D]; the tails are
        # 1e-56 of the sum.
        total = mpmath.fsum(
            mpmath.exp(-(a * abs(k) + (1 - a) * abs(k - sensitivity)) / s) for k in range(-reach, reach + 1)
        )
        truth = mpmath.log(normal * total) / (a - 1)
        cost = renyi_cost(DiscreteLaplaceAnswer(scale, sensitivity), order)
        assert -mpmath.mpf("1e-40") <= precise(cost) - truth <= mpmath.mpf("1.001e-24")


def test_discrete_laplace_on_a_fine_grid_is_the_continuous_formula() -> None:
    """Mironov 2017, table II, at D = 2^20 grid units: the large sum in closed form."""
    with mpmath.workdps(60):
        e0, a = 1 / mpmath.mpf(50), mpmath.mpf(20)
        truth = mpmath.log(a / (2 * a - 1) * mpmath.exp((a - 1) * e0) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * e0))
        cost = renyi_cost(DiscreteLaplaceAnswer(50 * 2**20, 2**20), Decimal(20))
        assert abs(precise(cost) * (a - 1) / truth - 1) < 1e-9


@given(
    st.fractions(min_value=1, max_value=10**6, max_denominator=100),
    st.integers(1, 1000),
    st.integers(1, 1000),
    ORDERS,
)
def test_a_laplace_shift_spread_over_coordinates_costs_no_more(
    scale: Fraction, first: int, second: int, order: Decimal
) -> None:
    """What lets a vector answer be charged by its L1 sensitivity."""
    apart = sum(renyi_cost(DiscreteLaplaceAnswer(scale, part), order) for part in (first, second))
    assert apart <= renyi_cost(DiscreteLaplaceAnswer(scale, first + second), order) + Decimal("2e-24")


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "shift"), [(Fraction(1, 2), 1), (3, 2), (Fraction(25, 2), 7)])
@pytest.mark.parametrize("order", ["1.5", "2", "9"])
def test_discrete_gaussian_covers_the_sum_over_the_integers(sigma: Fraction, shift: int, order: str) -> None:
    with mpmath.workdps(40):
        s, a = precise(Fraction(sigma)), mpmath.mpf(order)
        reach = range(-600, 601)
        normal = mpmath.fsum(mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s**2)) for k in reach)
        total = mpmath.fsum(
            mpmath.exp(-(a * mpmath.mpf(k) ** 2 + (1 - a) * mpmath.mpf(k - shift) ** 2) / (2 * s**2)) for k in reach
        )
        truth = mpmath.log(total / normal) / (a - 1)
        cost = precise(renyi_cost(DiscreteGaussianAnswer(sigma, shift**2), Decimal(order)))
        assert truth <= cost + mpmath.mpf("1e-30")
        if sigma > 1:
            assert cost <= truth * (1 + mpmath.mpf("1e-6"))


@given(st.decimals(min_value="0.001", max_value="20", places=3), ORDERS)
def test_a_pure_step_covers_randomised_response(epsilon: Decimal, order: Decimal) -> None:
    """Randomised response is the worst of all e-DP mechanisms."""
    with mpmath.workdps(60):
        e, a = precise(epsilon), precise(order)
        keep = mpmath.exp(e) / (1 + mpmath.exp(e))
        moment = keep**a * (1 - keep) ** (1 - a) + (1 - keep) ** a * keep ** (1 - a)
        assert mpmath.log(moment) / (a - 1) <= precise(renyi_cost(PureStep(epsilon), order)) <= e + mpmath.mpf("1e-24")


@given(
    st.lists(st.integers(-8, 8), min_size=2, max_size=5),
    st.data(),
    st.decimals(min_value="0.01", max_value="6", places=2),
    ORDERS,
)
def test_a_choice_covers_the_exponential_mechanism(
    scores: list[int], data: st.DataObject, epsilon: Decimal, order: Decimal
) -> None:
    """The divergence of the law itself, for scores that moved by up to D = 3 each. Would catch a bound that leaves out
    that some scores rise where others fall, as for scores that only rise.
    """
    moved = data.draw(st.lists(st.integers(-3, 3), min_size=len(scores), max_size=len(scores)))
    with mpmath.workdps(60):
        divergence = _chosen(scores, [s + m for s, m in zip(scores, moved, strict=True)], precise(epsilon), 3, order)
        assert divergence <= precise(renyi_cost(ExponentialChoice(epsilon), order)) + mpmath.mpf("1e-40")


def test_a_choice_costs_hardly_more_than_the_worst_one() -> None:
    """Two candidates alike, one of which rises while the other falls, at a small epsilon: the bound is attained but for
    a part of a hundredth. Would catch a bound that is a quarter too large, and the worst case being left out above.
    """
    epsilon, order = Decimal("0.01"), Decimal(20)
    with mpmath.workdps(60):
        found = _chosen([0, 0], [3, -3], precise(epsilon), 3, order)
        cost = precise(renyi_cost(ExponentialChoice(epsilon), order))
    assert found <= cost <= mpmath.mpf("1.01") * found
    assert pure_cost(ExponentialChoice(epsilon)) == epsilon


def _chosen(first: list[int], second: list[int], epsilon: Any, most: int, order: Decimal) -> Any:
    """Renyi divergence between draws of the exponential mechanism for scores that move by up to ``most``."""
    a = precise(order)
    p, q = ([mpmath.exp(epsilon * s / (2 * most)) for s in scores] for scores in (first, second))
    moment = mpmath.fsum((x / mpmath.fsum(p)) ** a * (y / mpmath.fsum(q)) ** (1 - a) for x, y in zip(p, q, strict=True))
    return mpmath.log(moment) / (a - 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConditionalRelease(75.15),  # type: ignore[arg-type]
        lambda: ConditionalRelease(0),
        lambda: ConditionalRelease(Fraction(1, 65)),
        lambda: ConditionalRelease(True),
        lambda: ConditionalRelease(Decimal("NaN")),
        lambda: ConditionalRelease(Decimal("Infinity")),
        lambda: ConditionalRelease(2, "both"),  # type: ignore[arg-type]
        lambda: DiscreteLaplaceAnswer(10, 0),
        lambda: DiscreteLaplaceAnswer(10, Fraction(3, 2)),  # type: ignore[arg-type]
        lambda: DiscreteLaplaceAnswer(-1, 1),
        lambda: DiscreteGaussianAnswer(0, 1),
        lambda: DiscreteGaussianAnswer(1, -1),
        lambda: PureStep(0),
        lambda: ExponentialChoice(0),
    ],
)
def test_descriptions_without_meaning_are_refused(make: object) -> None:
    with pytest.raises(InvalidEvent):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("order", [Decimal(1), Decimal("NaN"), Decimal("Infinity"), Decimal("1e13"), 2, 2.0])
def test_orders_without_meaning_are_refused(order: Decimal) -> None:
    with pytest.raises(InvalidBudget):
        renyi_cost(ConditionalRelease(10), order)
