"""Weighted shares and means against least squares over all cells, mpmath, and brute force over records and noise."""

from __future__ import annotations

import functools
import itertools
import math
import time
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.estimation.tables.residuals import Residuals
from app.measurements.pieces import Counts
from app.measurements.strategies.tables import Moment, Times
from app.policies.statistics import Statistics
from app.policies.table import Funds, OutOfReach, Policy, Wanted
from app.spaces.errors import InvalidQuery
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.statistic import CompiledStatistic
from tests.evidence.tables import least_variance, matrix, measured
from tests.kit.patience import patience
from tests.kit.strategies import BUDGET, Words, universe
from tests.ratios.test_ratios_policy import fieller
from tests.statistics.test_statistics_policy import source

pytestmark = [pytest.mark.unit, pytest.mark.slow]

ORDER, RENYI = 30.0, 0.428
NAMES, SIZES = ["sex", "pay", "weight", "city"], (2, 5, 4, 2)
PAY, WEIGHT = 1, 2
#: Pay is 0, 2, 4 or 6, or there is none; weights are from 1 to 4.
UNIVERSE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [
            {"name": "sex", "values": ["f", "m"]},
            {"name": "pay", "lower": 0, "upper": 6, "grid": 2, "missing": True},
            {"name": "weight", "lower": 1, "upper": 4, "grid": 1, "role": "weight"},
            {"name": "city", "size": 2},
        ],
        "budget": BUDGET,
    }
)
WEIGHTS, PRODUCTS = Moment(WEIGHT, 4, 1), Moment(PAY, 4, 1, Times(WEIGHT, 1, 4))
WEIGHED = Moment(PAY, 4, 0, Times(WEIGHT, 1, 4))
WHERE: list[Words] = [
    {},
    {"sex": "f"},
    {"pay": {"ge": 2}},
    {"weight": {"ge": 2}, "city": 0},
    {"any": [{"sex": "f"}, {"city": 1}]},
    {"not": {"weight": {"ge": 3}}},
]
PARTS: list[Words] = [{"sex": "f"}, {"pay": {"ge": 2}, "sex": "m"}, {"any": [{"sex": "f"}, {"weight": {"ge": 3}}]}]
GROUPS: list[list[str]] = [[], ["city"], ["city", "sex"]]
CELLS = list(np.ndindex(*SIZES))
#: Of each cell the weight of its records, their weight from the middle, and what they add to the sum of products.
W = np.array([cell[WEIGHT] + 1 for cell in CELLS])
U = np.array([cell[WEIGHT] - 1 for cell in CELLS])
V = np.array([(cell[WEIGHT] + 1) * (cell[PAY] - 1) if cell[PAY] < 4 else 0 for cell in CELLS])
PAID = np.array([cell[PAY] < 4 for cell in CELLS])


def satisfies(cell: tuple[int, ...], where: Words) -> bool:
    for name, said in where.items():
        if name == "any":
            holds = any(satisfies(cell, one) for one in said)
        elif name == "not":
            holds = not satisfies(cell, said)
        else:
            place = cell[NAMES.index(name)]
            number = {"pay": 2 * place if place < 4 else None, "weight": place + 1}.get(name, place)
            holds = (
                number is not None and number >= said["ge"]
                if isinstance(said, dict)
                else number == {"f": 0, "m": 1}.get(said, said)
            )
        if not holds:
            return False
    return True


def kept(*where: Words) -> np.ndarray:
    return np.array([all(satisfies(cell, one) for one in where) for cell in CELLS])


def asked(words: Words) -> CompiledStatistic:
    query = UNIVERSE.compiled(words | {"weighted": True})
    assert isinstance(query, CompiledStatistic)
    return query


def groups_of(words: Words) -> list[Words]:
    """The groups in the order asked."""
    names = words.get("group_by", [])
    places = itertools.product(*(range(SIZES[NAMES.index(name)]) for name in names))
    return [dict(zip(names, place, strict=True)) for place in places]


def rows_of(words: Words, group: Words) -> tuple[np.ndarray, np.ndarray]:
    """Which cells are of the sum below, and which of the one above."""
    below = kept(words["where"], group)
    return (below, below & kept(words["of"])) if words["type"] == "share" else (below & PAID, below & PAID)


def truth(counts: np.ndarray, words: Words, group: Words) -> Fraction | None:
    """Record by record."""
    below, above = rows_of(words, group)
    whole = int((counts * W)[below].sum())
    if not whole:
        return None
    if words["type"] == "share":
        return Fraction(int((counts * W)[above].sum()), whole)
    pay = np.array([2 * cell[PAY] for cell in CELLS])
    return Fraction(int((counts * W * pay)[above].sum()), whole)


class World:
    """Counts of a table, and what was measured of them."""

    def __init__(self, seed: int, **more: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.counts = self.rng.integers(30, 90, len(CELLS))
        self.residuals = Residuals(SIZES)
        funds = Funds(ORDER, RENYI, 1.0, **({"pure": False, "questions": 20} | more))
        self.policy = Policy(self.residuals, funds)
        self.moments: dict[Moment, Residuals] = {}
        self.told: dict[Moment | None, list[Counts]] = {None: [], WEIGHTS: [], PRODUCTS: [], WEIGHED: []}
        self.apart: dict[Moment | None, list[Counts]] = {None: [], WEIGHTS: [], PRODUCTS: [], WEIGHED: []}

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.policy, self.moments)

    def add(self, moment: Moment | None, marginal: Marginal, sigma: float, by: int = 1) -> None:
        added = {None: np.ones(len(CELLS)), WEIGHTS: U, PRODUCTS: V, WEIGHED: W * PAID}[moment]
        exact = _matrix(SIZES, marginal) @ (self.counts * added)
        values = exact + (self.rng.normal(0, sigma / by, exact.shape) if sigma > 1e-6 else 0.0)
        units = measured(marginal, sigma, values * by)
        made = Counts(marginal, units.noise, units.units, by)
        into = self.residuals if moment is None else self.moments.setdefault(moment, self.residuals.untold())
        (self.told if into.add(made) else self.apart)[moment].append(made)

    def learn(self, buy: Wanted) -> None:
        """Take in what was bought."""
        for part in buy.strategy.parts:
            self.add(part.moment, part.marginal, math.sqrt(buy.noise.variance), part.multiplier)

    def numbers(self, words: Words, group: Words) -> tuple[np.ndarray, np.ndarray]:
        """The numbers that are summed and their covariances, from counts, from moments of weights and of products by
        least squares over all cells, then by least variance."""
        below, above = rows_of(words, group)
        if words["type"] == "share":
            rows = {None: {0: below, 3: above}, WEIGHTS: {1: below, 2: above}}
            singly = {0: below, 1: below * U, 2: above * U, 3: above}
        else:
            rows = {None: {0: below}, WEIGHTS: {1: below}, PRODUCTS: {2: below}}
            singly = {0: below, 1: below * U, 2: below * V}
        found = []
        for moment, own in ((None, singly), *((moment, rows.get(moment, {})) for moment in (WEIGHTS, PRODUCTS))):
            asked_for = [(k, row.astype(float)) for k, row in own.items()]
            if self.told[moment]:
                found.append(source(SIZES, self.told[moment], None, asked_for))
            found += [source(SIZES, [one], None, asked_for, apart=True) for one in self.apart[moment]]
        return least_variance(found, len(singly))


_matrix = functools.cache(matrix)
#: The weights of the numbers in the sum below and the one above: weights are 2 + u, pay is 2 + 2v.
ONTO = {"share": np.array([[2, 1, 0, 0], [0, 0, 1, 2]]), "mean": np.array([[2, 1, 0], [0, 0, 2]])}


def evidence(world: World, which: int) -> None:
    """Single numbers alone, moments beside these, and moments beside counts of groups."""
    singles = Marginal.of(SIZES, dict.fromkeys(range(4)))
    paid = Partition.of(np.array([0, 0, 0, 0, 1]))
    groups = Marginal.of(SIZES, {0: None, 3: None, PAY: paid})
    match which:
        case 0:
            world.add(None, singles, 3.0)
        case 1:
            world.add(None, singles, 6.0)
            world.add(WEIGHTS, groups, 7.0)
            world.add(PRODUCTS, groups, 9.0, by=2)
        case 2:
            world.add(None, groups, 4.0)
            world.add(WEIGHTS, groups, 8.0)
            world.add(PRODUCTS, groups, 12.0)
        case 3:
            world.add(None, singles, 4.0)
            world.add(WEIGHTS, singles, 5.0)
            world.add(PRODUCTS, singles, 5.0)
            world.add(WEIGHTS, groups, 6.0)


QUESTIONS = st.one_of(
    st.builds(lambda of: {"type": "share", "of": of}, st.sampled_from(PARTS)), st.just({"type": "mean", "of": "pay"})
)


@st.composite
def questions(draw: st.DrawFn) -> Words:
    words = draw(QUESTIONS) | {"where": draw(st.sampled_from(WHERE)), "group_by": draw(st.sampled_from(GROUPS))}
    # Of a single group there is no table, and a share of all or none is none.
    assume(words["where"].keys().isdisjoint(words["group_by"]))
    try:
        asked(words)
    except InvalidQuery as refused:
        assume("whatever the records are" not in str(refused))
        raise
    return words


@settings(max_examples=120, deadline=None)
@given(questions(), st.integers(0, 3), st.integers(0, 1000))
def test_values_errors_and_intervals(words: Words, measured_of: int, seed: int) -> None:
    """Both sums by least squares over all cells, errors by the delta method, and Fieller's interval by its roots to
    fifty digits. Catches a covariance of two sums of one moment that is left out, records without a value that count, a
    middle that is not added back, and a weight that is counted once."""
    world = World(seed)
    evidence(world, measured_of)
    query = asked(words)
    found = world.statistics.shown(query, 0.95, False)
    arrays = [query.ordered(a) for a in (found.linear, found.linear_errors, found.lows, found.highs)]  # type: ignore
    least, most, middle = (0, 1, 0) if words["type"] == "share" else (0, 6, 2)
    for group, *shown in zip(groups_of(words), *arrays, strict=True):
        below, above = rows_of(words, group)
        if not above.any():
            assert shown[0] == 0 if below.any() else np.isnan(shown).all()
            continue
        values, covariances = world.numbers(words, group)
        if np.isnan(covariances).any():
            assert measured_of == 2
            assert not found.unbiased.all()
            continue
        onto = ONTO[words["type"]]
        (b, a), ((vb, c), (_, va)) = onto @ values, (onto @ covariances @ onto.T).tolist()
        low, high = fieller(*(mpmath.mpf(float(n)) for n in (a, b, va, vb, c)))
        error = math.sqrt(max(va - 2 * a / b * c + (a / b) ** 2 * vb, 0)) / b
        assert shown[0] == pytest.approx(middle + a / b, rel=1e-6, abs=1e-9)
        assert shown[1] == pytest.approx(error, rel=1e-4, abs=1e-7)
        assert shown[2] == pytest.approx(max(middle + low, least), rel=1e-4, abs=1e-6)
        assert shown[3] == pytest.approx(min(middle + high, most), rel=1e-4, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(questions(), st.booleans(), st.integers(0, 1000))
def test_without_noise_it_is_the_quotient(words: Words, singly: bool, seed: int) -> None:
    """Record by record, from single numbers and from moments. Catches a weight that is not that of the declaration, and
    a group under the labels of another."""
    world = World(seed)
    singles = Marginal.of(SIZES, dict.fromkeys(range(4)))
    world.add(None, singles, 1e-7)
    if not singly:
        world.add(WEIGHTS, singles, 1e-7)
        world.add(PRODUCTS, singles, 1e-7)
    query = asked(words)
    linear = world.statistics.shown(query, 0.95, False).linear
    assert linear is not None
    for group, value in zip(groups_of(words), query.ordered(linear), strict=True):
        true = truth(world.counts, words, group)
        assert np.isnan(value) if true is None else value == pytest.approx(float(true), rel=1e-7, abs=1e-9)


BUYING: list[Words] = [
    {"type": "share", "of": {"sex": "f"}, "where": {}, "group_by": ["city"]},
    {"type": "share", "of": {"pay": {"ge": 4}}, "where": {"sex": "m"}, "group_by": []},
    {"type": "mean", "of": "pay", "where": {}, "group_by": ["city", "sex"]},
    {"type": "mean", "of": "pay", "where": {"any": [{"sex": "f"}, {"city": 1}]}, "group_by": []},
]


@pytest.mark.parametrize("words", BUYING)
def test_what_is_bought_is_worth_it(words: Words) -> None:
    """What is bought for a question of a table of which nothing is known answers it, within what a careful user has
    for the price: noise on the sum of weights of each cell and, of means, on the sum of products, at the best of ten
    divisions. Catches a division of the price that starves a sum, and a moment that is bought twice."""
    world = World(5, questions=1)
    query = asked(words)
    buy = world.statistics.decide(query, world.policy.total, None, 0.95)
    assert buy is not None
    assert world.policy.price(buy.noise, buy.strategy.sensitivity) <= RENYI * (1 + 1e-6)
    moments = [part.moment for part in buy.strategy.parts if part.moment is not None]
    assert len(set(moments)) == len(moments) == (1 if words["type"] == "share" else 2)
    world.learn(buy)
    found = world.statistics.shown(query, 0.95, False)
    assert found.unbiased.all()
    errors = found.linear_errors
    assert errors is not None
    careful = []
    for group in groups_of(words):
        below, above = rows_of(words, group)
        whole, own = (world.counts * W)[below].sum(), (world.counts * W)[above].sum()
        # The largest product of a weight and of pay from its middle, in units of pay.
        extent, ratio = (16.0, (2 * world.counts * V)[below].sum() / whole) if words["type"] == "mean" else (0, 0.0)
        best = math.inf
        for part in np.arange(1, 10) / 10:
            if words["type"] == "share":
                r, noise = own / whole, (4.0, 4.0)
                variances = [(1 - r) ** 2, r**2]
            else:
                noise = (4.0 / math.sqrt(part), extent / math.sqrt(1 - part))
                variances = [ratio**2, 1.0]
            scale = math.sqrt(ORDER / (2 * RENYI))
            best = min(
                best, math.sqrt(sum(v * (s * scale) ** 2 for v, s in zip(variances, noise, strict=True))) / whole
            )
        careful.append(best)
    # What is joined by any is a sum of three cells, which later questions tell apart.
    cells = 3 if "any" in words["where"] else 1
    assert math.sqrt(np.mean(np.square(errors))) <= 1.2 * math.sqrt(cells) * math.sqrt(np.mean(np.square(careful)))


def test_a_weighted_mean_serves_weighted_counts() -> None:
    """What was measured of the sum of weights below serves sums of weights and weighted shares. Catches moments that
    are bought again for another question of the same sums."""
    world = World(3)
    words = {"type": "mean", "of": "pay", "where": {}, "group_by": ["city", "sex"]}
    buy = world.statistics.decide(asked(words), RENYI / 4, None, 0.95)
    assert buy is not None
    world.learn(buy)
    paid = {"not": {"pay": None}}
    total = UNIVERSE.compiled({"type": "predicate", "where": paid, "weighted": True})
    known = world.statistics.shown(total, 0.95, False)  # type: ignore[arg-type]
    assert known.unbiased.all()
    share = asked({"type": "share", "of": {"sex": "f"}, "where": paid, "group_by": ["city"]})
    assert world.statistics.shown(share, 0.95, False).unbiased.all()


@pytest.mark.parametrize("words", BUYING[1:3])
def test_the_least_that_is_accurate_enough(words: Words) -> None:
    """Half the width that was asked for, at less than all; what cannot be paid is refused. Catches a width in other
    units."""
    world = World(8)
    world.add(None, Marginal.of(SIZES, {0: None}), 5.0)
    within = 0.4 if words["type"] == "mean" else 0.05
    buy = world.statistics.decide(asked(words), RENYI, within, 0.95)
    assert buy is not None
    assert world.policy.price(buy.noise, buy.strategy.sensitivity) < RENYI
    world.learn(buy)
    found = world.statistics.shown(asked(words), 0.95, False)
    assert 0.3 * within < float((found.highs - found.lows).max()) / 2 < 1.6 * within
    with pytest.raises(OutOfReach):
        world.statistics.decide(asked(words), RENYI, within / 1e4, 0.95)


# How often intervals hold.


@pytest.mark.parametrize("words", [BUYING[0], BUYING[2]])
def test_intervals_hold(words: Words) -> None:
    """Of what a session buys, released again and again, within three standard deviations of what they say. Catches
    intervals that take sums of one moment for independent, or weights for known."""
    query, found = asked(words), []
    first = World(1)
    true = np.array(
        [float(one) for group in groups_of(words) if (one := truth(first.counts, words, group)) is not None]
    )
    buy = first.statistics.decide(query, RENYI, None, 0.8)
    assert buy is not None
    draws = 600 // len(true)
    for draw in range(draws):
        world = World(1)
        world.rng = np.random.default_rng(draw)
        world.learn(buy)
        shown = world.statistics.shown(query, 0.8, False)
        lows, highs = query.ordered(shown.lows), query.ordered(shown.highs)
        found += ((lows <= true) & (true <= highs)).tolist()
    assert abs(np.mean(found) - 0.8) < 3.1 * (0.16 / len(found)) ** 0.5


# Quantiles.


def true_quantile(counts: np.ndarray, where: Words, level: float) -> float | None:
    """The least pay at which the weights up to it are the part of all, or more."""
    below = [int((counts * W)[kept(where) & (np.array([cell[PAY] for cell in CELLS]) == k)].sum()) for k in range(4)]
    sums = np.cumsum(below)
    return None if not sums[-1] else 2.0 * int(np.searchsorted(sums, Fraction(level) * int(sums[-1])))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(WHERE),
    st.sampled_from(GROUPS),
    st.sampled_from([0.2, 0.5, 0.85]),
    st.booleans(),
    st.integers(0, 99),
)
def test_quantiles_without_noise(where: Words, groups: list[str], level: float, singly: bool, seed: int) -> None:
    """From sums of weights over single numbers, and from counts of records of each weight: the true ones. Catches
    records that count once, and a weight that is counted from the middle."""
    assume(where.keys().isdisjoint(groups))
    world, singles = World(seed), Marginal.of(SIZES, dict.fromkeys(range(4)))
    world.add(None if singly else WEIGHED, singles, 1e-7)
    words = {"type": "quantile", "of": "pay", "q": level, "where": where, "group_by": groups}
    query = asked(words)
    shown = world.statistics.shown(query, 0.95, False)
    assert shown.unbiased.all()
    for group, value in zip(groups_of(words), query.ordered(shown.values), strict=True):
        true = true_quantile(world.counts, where | group, level)
        assert np.isnan(value) if true is None else value == true


@pytest.mark.parametrize("bought", [True, False])
def test_intervals_of_quantiles_hold(bought: bool) -> None:
    """Of what a session buys, or of noisy counts of each weight, at least as often as they say. Catches noise that is
    taken for that of records which count once."""
    first, held = World(1), []
    words = {"type": "quantile", "of": "pay", "q": 0.5, "where": {}, "group_by": ["city", "sex"]}
    query = asked(words)
    true = [true_quantile(first.counts, group, 0.5) for group in groups_of(words)]
    buy = first.statistics.decide(query, RENYI / 100, None, 0.8)
    assert buy is not None
    assert [part.moment for part in buy.strategy.parts] == [WEIGHED]
    assert buy.strategy.sensitivity[0].absolute == 4
    for draw in range(150):
        world = World(1)
        world.rng = np.random.default_rng(draw)
        if bought:
            world.learn(buy)
        else:
            world.add(None, Marginal.of(SIZES, dict.fromkeys(range(4))), 60.0)
        shown = world.statistics.shown(query, 0.8, False)
        found = zip(query.ordered(shown.lows), query.ordered(shown.highs), true, strict=True)
        held += [low <= value <= high for low, high, value in found if not np.isnan(low)]
        if draw == 0:
            assert (shown.highs > shown.lows).any()
    assert len(held) > 200
    assert np.mean(held) > 0.8 - 3.1 * (0.16 / len(held)) ** 0.5


def test_wider_where_questions_are_chosen() -> None:
    """Catches an interval that does not heed that its question was chosen."""
    world = World(2)
    evidence(world, 1)
    query = asked(BUYING[2])
    plain, chosen = (world.statistics.shown(query, 0.95, adaptive) for adaptive in (False, True))
    assert ((chosen.highs - chosen.lows) > (plain.highs - plain.lows) * 1.5).all()


def test_long_grids_that_were_counted_singly() -> None:
    """Numbers and weights of which a thousand each were counted one by one are not told apart together, in a million
    cells of each group: within a second, and from the moments that were measured. Catches memory that nobody holds."""
    space = universe(
        {
            "name": "t",
            "kind": "table",
            "attributes": [
                {"name": "region", "size": 20},
                {"name": "pay", "lower": 0, "upper": 999, "grid": 1},
                {"name": "weight", "lower": 1, "upper": 1000, "grid": 1, "role": "weight"},
            ],
            "budget": BUDGET,
        }
    )
    sizes = (20, 1000, 1000)
    residuals, moments = Residuals(sizes), {}
    for axis in (1, 2):
        marginal = Marginal.of(sizes, {axis: None})
        residuals.add(measured(marginal, 2.0, np.full(1000, 5.0)))
    groups = Marginal.of(sizes, {0: None})
    residuals.add(measured(groups, 2.0, np.full(20, 250.0)))
    for moment in (Moment(2, 1000, 1), Moment(1, 1000, 1, Times(2, 1, 1000))):
        moments[moment] = Residuals(sizes)
        moments[moment].add(measured(groups, 900.0 * (1 if moment.times is None else 500), np.full(20, 1000.0)))
    policy = Policy(residuals, Funds(ORDER, RENYI, 1.0, pure=False, questions=20))
    query = space.compiled({"type": "mean", "of": "pay", "group_by": ["region"], "weighted": True})
    assert isinstance(query, CompiledStatistic)
    begun = time.perf_counter()
    shown = Statistics(policy, moments).shown(query, 0.95, False)
    assert time.perf_counter() - begun < patience(2)
    assert shown.unbiased.all()
