"""Ratios against least squares over all cells, mpmath, brute force over records and noise, and other statistics."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.estimation.intervals import Estimates
from app.estimation.tables.residuals import Residuals
from app.measurements.pieces import Counts
from app.measurements.strategies.tables import Moment
from app.policies.ratios import Ratio
from app.policies.statistics import Statistics
from app.policies.table import Funds, OutOfReach, Policy, Wanted
from app.spaces.errors import InvalidQuery
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.ratio import CompiledRatio
from app.spaces.queries.statistic import CompiledStatistic
from tests.evidence.tables import least_variance, matrix, measured
from tests.kit.strategies import BUDGET, Words, universe
from tests.statistics.test_statistics_policy import source

pytestmark = [pytest.mark.unit, pytest.mark.slow]

ORDER, RENYI = 30.0, 0.428
NORMAL = 1.959963984540054
NAMES = ["sex", "pay", "hours", "city"]
PAY, HOURS = 1, 2


class Table:
    """A table whose pay is 0, 2, 4 or 6, and whose hours are 1, 2 or 3; some may have no value."""

    def __init__(self, *, no_pay: bool, no_hours: bool) -> None:
        self.missing = {PAY: no_pay, HOURS: no_hours}
        self.sizes = (2, 4 + no_pay, 3 + no_hours, 2)
        attributes: list[Words] = [
            {"name": "sex", "values": ["f", "m"]},
            {"name": "pay", "lower": 0, "upper": 6, "grid": 2, "missing": no_pay},
            {"name": "hours", "lower": 1, "upper": 3, "grid": 1, "missing": no_hours},
            {"name": "city", "size": 2},
        ]
        self.everybody = {axis: self.rows(axis, np.ones(math.prod(self.sizes), bool))[1] for axis in (PAY, HOURS)}
        self.universe = universe({"name": "t", "kind": "table", "attributes": attributes, "budget": BUDGET})

    def asked(self, kind: str, of: str, **words: Any) -> Any:
        return self.universe.compiled({"type": kind, "of": of} | words)

    def ratio(self, of: str = "pay", per: str = "hours", **words: Any) -> CompiledRatio:
        query = self.asked("ratio", of, per=per, **words)
        assert isinstance(query, CompiledRatio)
        return query

    def number(self, axis: int, place: int) -> int | None:
        """The number of a value; None where it is none."""
        if axis == PAY:
            return 2 * place if place < 4 else None
        return place + 1 if place < 3 else None

    def rows(self, axis: int, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What each cell of the table adds to the number of records with a value, and to their grid steps from the
        middle, of those that are kept. A plain loop."""
        middle = {PAY: 1, HOURS: 1}[axis]
        count, steps = np.zeros(len(kept)), np.zeros(len(kept))
        for column, record in enumerate(np.ndindex(*self.sizes)):
            if kept[column] and self.number(axis, record[axis]) is not None:
                count[column], steps[column] = 1, record[axis] - middle
        return count, steps

    def kept(self, where: Words, group: dict[str, int]) -> np.ndarray:
        """Which cells satisfy conditions, and are of a group."""
        return np.array([self._satisfies(r, where) and self._satisfies(r, group) for r in np.ndindex(*self.sizes)])

    def _satisfies(self, record: tuple[int, ...], where: Words) -> bool:
        for name, said in where.items():
            if name == "any":
                holds = any(self._satisfies(record, one) for one in said)
            elif name == "not":
                holds = not self._satisfies(record, said)
            elif name in ("pay", "hours"):
                axis = NAMES.index(name)
                number = self.number(axis, record[axis])
                holds = number is None if said is None else number is not None and number >= said["ge"]
            else:
                holds = record[NAMES.index(name)] == {"f": 0, "m": 1}.get(said, said)
            if not holds:
                return False
        return True


TABLES = {(pay, hours): Table(no_pay=pay, no_hours=hours) for pay, hours in itertools.product((False, True), repeat=2)}
PLAIN = TABLES[False, False]
WHERE: list[Words] = [
    {},
    {"sex": "f"},
    {"pay": {"ge": 2}},
    {"hours": {"ge": 2}, "city": 0},
    {"any": [{"sex": "f"}, {"city": 1}]},
    {"not": {"hours": {"ge": 3}}},
]
GROUPS: list[list[str]] = [[], ["sex"], ["city", "sex"]]


def funds(epsilon: float = 1.0, **more: Any) -> Funds:
    return Funds(ORDER, RENYI * epsilon, epsilon, **({"pure": False, "questions": 20} | more))


def groups_of(table: Table, words: Words) -> list[dict[str, int]]:
    """The groups in the order asked."""
    names = words.get("group_by", [])
    sizes = [table.sizes[NAMES.index(name)] for name in names]
    return [dict(zip(names, places, strict=True)) for places in itertools.product(*map(range, sizes))]


class World:
    """Counts of a table, and what was measured of them."""

    def __init__(self, table: Table, seed: int, public: bool = False, allowed: Funds | None = None) -> None:
        self.table, self.rng = table, np.random.default_rng(seed)
        self.counts = self.rng.integers(40, 120, table.sizes)
        self.residuals = Residuals(table.sizes, float(self.counts.sum()) if public else None)
        self.policy = Policy(self.residuals, allowed or funds())
        self.moments: dict[Moment, Residuals] = {}
        self.closed: dict[int | None, list[Counts]] = {None: [], PAY: [], HOURS: []}
        self.apart: dict[int | None, list[Counts]] = {None: [], PAY: [], HOURS: []}

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.policy, self.moments)

    def add(self, of: int | None, marginal: Marginal, sigma: float, by: int = 1) -> None:
        """Measure counts, or the moment of an attribute."""
        weights = np.ones(self.counts.size)
        if of is not None:
            weights = self.table.everybody[of]
        exact = _matrix(self.table.sizes, marginal) @ (self.counts.reshape(-1) * weights)
        values = exact + (self.rng.normal(0, sigma / by, exact.shape) if sigma > 1e-6 else 0.0)
        units = measured(marginal, sigma, values * by)
        made, into = Counts(marginal, units.noise, units.units, by), self.residuals
        if of is not None:
            places = self.table.sizes[of] - self.table.missing[of]
            into = self.moments.setdefault(Moment(of, places, 1), Residuals(self.table.sizes))
        (self.closed if into.add(made) else self.apart)[of].append(made)

    def learn(self, buy: Wanted) -> None:
        """Take in what was bought."""
        for part in buy.strategy.parts:
            of = None if part.moment is None else part.moment.axis
            self.add(of, part.marginal, math.sqrt(buy.noise.variance), part.multiplier)

    def valued(self, axis: int, groups: dict[int, Partition | None]) -> Marginal:
        """Groups, and in them those with a value of an attribute, where others may have none."""
        if self.table.missing[axis]:
            size = self.table.sizes[axis]
            groups = groups | {axis: Partition.of((np.arange(size) == size - 1).astype(int))}
        return Marginal.of(self.table.sizes, groups)

    def told(self, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of records with hours, the steps of these, those of pay, and the records with pay, and their
        covariances: from each independent source by least squares over all cells, then by least variance."""
        (hours, hour_steps), (pays, pay_steps) = (self.table.rows(axis, kept) for axis in (HOURS, PAY))
        counted = [(0, hours), (1, hour_steps), (2, pay_steps)]
        if not np.array_equal(hours, pays):
            counted.append((3, pays))
        counted = [(k, row) for k, row in counted if k in (0, 3) or self.residuals.told_singly({1: HOURS, 2: PAY}[k])]
        sizes = self.table.sizes
        found = [source(sizes, self.closed[None], self.residuals.public_total, counted)]
        found += [source(sizes, [m], None, counted, apart=True) for m in self.apart[None]]
        for k, of, row in ((1, HOURS, hours), (2, PAY, pays)):
            found.append(source(sizes, self.closed[of], None, [(k, row)]))
            found += [source(sizes, [m], None, [(k, row)], apart=True) for m in self.apart[of]]
        values, covariances = least_variance(found, 4)
        if np.array_equal(hours, pays):
            values[3], covariances[3], covariances[:, 3] = values[0], covariances[0], covariances[:, 0]
            covariances[3, 3] = covariances[0, 0]
        return values, covariances


#: Matrices are made by plain loops.
_matrix = functools.cache(matrix)


def sums(numbers: Any) -> tuple[Any, Any]:
    """Pay and hours of records and grid steps, from the declaration: pay is 2 + 2u and hours are 2 + u."""
    records, hours, pay, paid = numbers
    return 2 * paid + 2 * pay, 2 * records + hours


def in_order(query: CompiledStatistic, found: Estimates) -> list[np.ndarray]:
    """Values, errors and ends in the order that was asked."""
    arrays = (found.linear, found.linear_errors, found.lows, found.highs)
    return [query.ordered(a) for a in arrays]  # type: ignore[arg-type]


def fieller(a: Any, b: Any, va: Any, vb: Any, c: Any) -> tuple[float, float]:
    """All r with (a - r b)^2 <= z^2 (va - 2 r c + r^2 vb), by the roots of a polynomial to fifty digits."""
    with mpmath.workdps(50):
        z = mpmath.mpf(NORMAL)
        lead, half, rest = b**2 - z**2 * vb, a * b - z**2 * c, a**2 - z**2 * va
        root = mpmath.sqrt(max(half**2 - lead * rest, 0))
        return float((half - root) / lead), float((half + root) / lead)


def evidence(world: World, which: int) -> None:
    """Moments beside counts of groups, of single numbers that tell of both sums, of what no closed form takes in."""
    sizes = world.table.sizes
    every: dict[int, Partition | None] = dict.fromkeys((0, 3))
    singles = Marginal.of(sizes, every | dict.fromkeys((PAY, HOURS)))
    match which:
        case 0:
            world.add(None, singles, 3.0)
        case 1:
            world.add(None, singles, 6.0)
            world.add(PAY, world.valued(PAY, every), 9.0)
            world.add(HOURS, world.valued(HOURS, every), 5.0)
        case 2:
            for axis in (PAY, HOURS):
                world.add(None, world.valued(axis, every), 4.0)
                world.add(axis, world.valued(axis, every), 8.0)
        case 3:
            world.add(None, Marginal.of(sizes, every | dict.fromkeys([PAY])), 4.0)
            world.add(None, singles, 5.0)
            world.add(HOURS, singles, 2.0, by=3)
        case 4:
            world.add(None, singles, 4.0)
            world.add(None, Marginal.of(sizes, {HOURS: None}), 2.0)
            world.add(PAY, singles, 8.0)
            world.add(PAY, Marginal.of(sizes, {PAY: None, HOURS: None}), 2.0)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(TABLES)),
    st.sampled_from(WHERE),
    st.sampled_from(GROUPS),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 1000),
)
def test_values_errors_and_intervals(
    which: tuple[bool, bool], where: Words, groups: list[str], measured_of: int, public: bool, seed: int
) -> None:
    """Both sums by least squares over all cells, the delta method by differentiating with fifty digits, and Fieller's
    interval by its roots. Would catch a covariance of the two sums that is left out, records without a value that
    count, a middle that is not added back, and the two sums in each other's place."""
    table = TABLES[which]
    # Of a single group there is no table.
    assume(where.keys().isdisjoint(groups))
    world = World(table, seed, public)
    evidence(world, measured_of)
    words: Words = {"where": where, "group_by": groups}
    query = table.ratio(**words)
    found = world.statistics.shown(query, 0.95, False)
    (hours, _), (pay, _) = (table.rows(axis, table.kept(where, {})) for axis in (HOURS, PAY))
    # Where whoever has pay has hours no more than 6 of pay are of one hour.
    most = 6.0 if (hours[pay > 0] > 0).all() else math.inf
    for group, *shown in zip(groups_of(table, words), *in_order(query, found), strict=True):
        kept = table.kept(where, group)
        if not kept.any():
            assert np.isnan(shown).all()
            continue
        values, covariances = world.told(kept)
        if np.isnan(covariances).any():
            # Moments of all are no moments of some of the numbers.
            assert measured_of == 2
            assert "pay" in str(where) or "hours" in str(where)
            assert not found.unbiased.all()
            continue
        numbers = [mpmath.mpf(float(v)) for v in values]
        a, b = sums(numbers)
        onto = np.array([[0, 0, 2, 2], [2, 1, 0, 0]])
        (va, c), (_, vb) = (onto @ covariances @ onto.T).tolist()
        slope = np.array([float(mpmath.diff(_quotient, tuple(numbers), derivative)) for derivative in _FIRST])
        low, high = fieller(a, b, mpmath.mpf(va), mpmath.mpf(vb), mpmath.mpf(c))
        assert shown[0] == pytest.approx(float(a / b), rel=1e-6)
        assert shown[1] == pytest.approx(math.sqrt(max(slope @ covariances @ slope, 0)), rel=1e-4, abs=1e-7)
        assert shown[2] == pytest.approx(max(low, 0), rel=1e-4, abs=1e-6)
        assert shown[3] == pytest.approx(min(high, most), rel=1e-4, abs=1e-6)


def _quotient(*numbers: Any) -> Any:
    above, below = sums(numbers)
    return above / below


#: The first derivative by each of four numbers.
_FIRST = [tuple(int(j == k) for j in range(4)) for k in range(4)]


def exact_ratio(world: World, of: str, per: str, kept: np.ndarray) -> Fraction | None:
    """The quotient of two sums, record by record."""
    above, below = (
        sum(
            int(count) * (world.table.number(NAMES.index(name), record[NAMES.index(name)]) or 0)
            for record, count, own in zip(np.ndindex(*world.table.sizes), world.counts.reshape(-1), kept, strict=True)
            if own
        )
        for name in (of, per)
    )
    return None if below == 0 else Fraction(above, below)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(TABLES)),
    st.sampled_from(WHERE),
    st.sampled_from(GROUPS),
    st.sampled_from([("pay", "hours"), ("hours", "pay")]),
    st.booleans(),
    st.integers(0, 1000),
)
def test_without_noise_it_is_the_quotient(
    which: tuple[bool, bool], where: Words, groups: list[str], names: tuple[str, str], singly: bool, seed: int
) -> None:
    """Record by record, from single numbers and from moments. Would catch a weight that is not that of the declaration,
    and a group under the labels of another."""
    table = TABLES[which]
    assume(where.keys().isdisjoint(groups))
    world, words = World(table, seed), {"where": where, "group_by": groups}
    every: dict[int, Partition | None] = dict.fromkeys(range(4))
    world.add(None, Marginal.of(table.sizes, every), 1e-7)
    if not singly:
        for axis in (PAY, HOURS):
            world.add(axis, Marginal.of(table.sizes, every), 1e-7)
    query = table.ratio(*names, **words)
    shown = in_order(query, world.statistics.shown(query, 0.95, False))[0]
    for group, value in zip(groups_of(table, words), shown, strict=True):
        truth = exact_ratio(world, *names, table.kept(where, group))
        assert np.isnan(value) if truth is None else value == pytest.approx(float(truth), rel=1e-7)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(TABLES)), st.integers(0, 4), st.integers(0, 1000))
def test_it_is_the_quotient_of_the_sums(which: tuple[bool, bool], measured_of: int, seed: int) -> None:
    """As these are told by themselves from the same evidence, where what is known of one is no news of the other. The
    inverse ratio is the inverse, and its interval the inverse of the interval. Would catch a sum that is known worse
    beside the other."""
    table = TABLES[which]
    world = World(table, seed)
    evidence(world, measured_of)
    world.policy.mode = "free"
    found = {}
    for of, per in (("pay", "hours"), ("hours", "pay")):
        query = table.ratio(of, per, group_by=["sex"])
        found[of] = in_order(query, world.statistics.shown(query, 0.95, False))
    assert found["pay"][0] == pytest.approx(1 / found["hours"][0], rel=1e-6)
    inside = (found["pay"][2] > 0.01) & (found["pay"][3] < 5.9)
    assert inside.any()
    assert found["pay"][2][inside] == pytest.approx(1 / found["hours"][3][inside], rel=1e-4)
    if measured_of == 0:
        sums = [
            world.statistics.shown(table.asked("sum", of, group_by=["sex"]), 0.95, False) for of in ("pay", "hours")
        ]
        assert found["pay"][0] == pytest.approx(sums[0].linear / sums[1].linear, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 4), st.integers(-3, 3), st.integers(1, 4), st.integers(-2, 3), st.integers(1, 4), st.integers(0, 99)
)
def test_what_declared_numbers_make_possible(
    missing: int, low: int, places: int, per_low: int, per_places: int, seed: int
) -> None:
    """Of all records at random none has a ratio beyond the ends, which single records attain where both values are
    there; with no bound above zero below there is no end. Would catch an end that cuts off what may be."""
    attributes: list[Words] = [
        {"name": "of", "lower": low, "upper": low + places, "grid": 1, "missing": missing % 2 == 1},
        {"name": "per", "lower": per_low, "upper": per_low + per_places, "grid": 1, "missing": missing // 2 == 1},
    ]
    table = universe({"name": "t", "kind": "table", "attributes": attributes, "budget": BUDGET})
    query = table.compiled({"type": "ratio", "of": "of", "per": "per"})
    assert isinstance(query, CompiledRatio)
    sizes = table.space.shape
    policy = Policy(Residuals(sizes), funds())
    least, most = _kind(policy, query).possible(None)
    rng, seen = np.random.default_rng(seed), []
    of, per = (np.arange(n + 1) + start for n, start in ((places, low), (per_places, per_low)))
    counts = [rng.integers(0, 3, sizes) * (rng.random(sizes) < 0.4) for _ in range(40)]
    counts += [np.eye(1, math.prod(sizes), k, dtype=int).reshape(sizes) for k in range(math.prod(sizes))]
    for table_of in counts:
        above, below = table_of.sum(axis=1)[: places + 1] @ of, table_of.sum(axis=0)[: per_places + 1] @ per
        if below > 0:
            seen.append(above / below)
    assert all(least - 1e-12 <= ratio <= most + 1e-12 for ratio in seen)
    if per_low > 0 and not missing:
        assert (least, most) == pytest.approx((min(seen), max(seen)))
    if per_low < 0:
        assert (least, most) == (-math.inf, math.inf)


def _kind(policy: Policy, query: CompiledRatio) -> Ratio:
    return Ratio(policy, {}, query)


def test_where_the_sum_below_may_be_zero() -> None:
    """No value where its interval holds zero, however many records there are, and however small the noise of their
    number: numbers below zero and above cancel. Would catch a rule by the number of records."""
    attributes: list[Words] = [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "of", "lower": 0, "upper": 4, "grid": 1},
        {"name": "per", "lower": -2, "upper": 2, "grid": 1},
    ]
    table = universe({"name": "t", "kind": "table", "attributes": attributes, "budget": BUDGET})
    counts = np.zeros((2, 5, 5))
    counts[0, 3, [0, 4]] = 500, 501
    counts[1, 3, [0, 4]] = 500, 100
    residuals = Residuals(table.space.shape)
    marginal = Marginal.of(table.space.shape, dict.fromkeys(range(3)))
    residuals.add(measured(marginal, 2.0, counts.reshape(-1)))
    query = table.compiled({"type": "ratio", "of": "of", "per": "per", "group_by": ["sex"]})
    found = Statistics(Policy(residuals, funds()), {}).shown(query, 0.95, False)
    assert [np.isnan(a).tolist() for a in (found.values, found.lows, found.standard_errors)] == [[True, False]] * 3
    assert found.lows[1] < -1800 / 800 < found.highs[1] < 0


# What is bought.


@pytest.mark.parametrize("which", sorted(TABLES))
@pytest.mark.parametrize("words", [{}, {"group_by": ["sex"]}, {"where": {"city": 0, "pay": {"ge": 2}}}])
def test_what_is_bought_is_worth_it(which: tuple[bool, bool], words: Words) -> None:
    """Moments of the two attributes, and counts beside them, in one purchase at the price of the question; then every
    group is known without a model, sums and means of both are, and nothing more is bought. Would catch a purchase that
    does not tell of the question, one that is paid for twice, and moments that serve nothing else."""
    table = TABLES[which]
    world = World(table, 1, public=True)
    query = table.ratio(**words)
    buy = world.statistics.decide(query, RENYI, None, 0.95)
    assert buy is not None
    assert {part.moment.axis for part in buy.strategy.parts if part.moment is not None} == {PAY, HOURS}
    price = world.policy.share(query.question, RENYI)
    squares = sum(sensitivity.squared for sensitivity in buy.strategy.sensitivity)
    paid = ORDER * squares / (2 * float(buy.noise.scale) ** 2)
    assert 0.98 * price < paid <= price * (1 + 1e-9)
    world.learn(buy)
    world.policy.note(query.question, paid=True)
    found = world.statistics.shown(query, 0.95, False)
    there = ~np.isnan(found.values)
    assert there.any()
    assert found.unbiased.all()
    truths = [
        float(exact_ratio(world, "pay", "hours", table.kept(words.get("where", {}), group)) or 0)
        for group in groups_of(table, words)
    ]
    errors = query.ordered(found.linear_errors)
    assert (np.abs(query.ordered(found.linear) - truths)[there] <= 6 * errors[there]).all()
    assert world.statistics.decide(query, RENYI / 4, None, 0.95) is None
    # Beside counts the same moments tell of either attribute alone.
    world.add(None, query.question.marginal, 3.0)
    for kind, of in itertools.product(("sum", "mean"), ("pay", "hours")):
        assert world.statistics.shown(table.asked(kind, of, **words), 0.95, False).unbiased.all()


@pytest.mark.parametrize("which", sorted(TABLES))
def test_what_was_measured_for_sums_serves(which: tuple[bool, bool]) -> None:
    """Ratios are free where both sums by group are known. Would catch moments that are bought twice."""
    table = TABLES[which]
    world = World(table, 3)
    for axis in (PAY, HOURS):
        world.add(None, world.valued(axis, {0: None}), 3.0)
        world.add(axis, world.valued(axis, {0: None}), 5.0)
    for words in ({"group_by": ["sex"]}, {}, {"where": {"sex": "f"}}):
        query = table.ratio(**words)
        found = world.statistics.shown(query, 0.95, False)
        assert found.unbiased.all()
        assert world.statistics.decide(query, RENYI / 50, None, 0.95) is None
    assert found.linear is not None
    assert found.linear_errors is not None
    truth = float(exact_ratio(world, "pay", "hours", table.kept({"sex": "f"}, {})) or 0)
    assert abs(found.linear[0] - truth) < 5 * found.linear_errors[0]


@pytest.mark.parametrize("within", [0.2, 0.02])
@pytest.mark.parametrize("groups", [[], ["sex"]])
@pytest.mark.parametrize("which", [(False, False), (True, True)])
def test_the_least_that_is_accurate_enough(which: tuple[bool, bool], within: float, groups: list[str]) -> None:
    """Every interval is about as narrow as is wished, in units of the ratio; then it is free. Would catch a width in
    units of the sums, and noise that is far smaller than it had to be."""
    table = TABLES[which]
    world = World(table, 5)
    world.add(None, Marginal.of(table.sizes, dict.fromkeys((0, 3))), 20.0)
    query, statistics = table.ratio(group_by=groups), world.statistics
    buy = statistics.decide(query, 1e6, within, 0.95)
    assert buy is not None
    world.learn(buy)
    found = statistics.shown(query, 0.95, False)
    arms = np.maximum(found.highs - found.values, found.values - found.lows)
    # What it is likely to be is told by nothing but bounds, where no moment was measured.
    assert 0.2 * within < arms.max() <= 2.5 * within
    buy = statistics.decide(query, 1e6, within, 0.95)
    if buy is not None:
        world.learn(buy)
        found = statistics.shown(query, 0.95, False)
        arms = np.maximum(found.highs - found.values, found.values - found.lows)
    assert arms.max() <= 1.15 * within
    assert statistics.decide(query, 1e6, 1.3 * within, 0.95) is None
    with pytest.raises(OutOfReach):
        statistics.decide(query, 1e-9, 1e-6, 0.95)


def test_nothing_measured_and_nothing_left() -> None:
    """A ratio that cannot be paid is like that of all records as a model tells it, and says so. Would catch a division
    by what is not known."""
    table = TABLES[True, True]
    world = World(table, 1)
    for axis in range(4):
        world.add(None, Marginal.of(table.sizes, {axis: None}), 2.0)
    for words in ({"group_by": ["sex"]}, {"where": {"sex": "f"}}):
        query = table.ratio(**words)
        assert world.statistics.decide(query, 0.0, None, 0.95) is None
        found = world.statistics.shown(query, 0.95, False)
        assert not found.unbiased.all()
        truths = [
            float(exact_ratio(world, "pay", "hours", table.kept(words.get("where", {}), group)) or 0)
            for group in groups_of(table, words)
        ]
        assert query.ordered(found.values) == pytest.approx(truths, abs=0.3)
        assert ((found.lows >= 0) & (found.lows <= found.values) & (found.values <= found.highs)).all()


def test_wider_where_questions_are_chosen() -> None:
    """Would catch an interval of a question that was chosen by what was released that is no wider than of another."""
    world = World(PLAIN, 2)
    evidence(world, 1)
    query = PLAIN.ratio(group_by=["sex"])
    plain, chosen = (world.statistics.shown(query, 0.95, adaptive) for adaptive in (False, True))
    assert (chosen.highs - chosen.lows > 1.3 * (plain.highs - plain.lows)).all()


BAD: list[tuple[Words, str]] = [
    ({"where": {"pay": None}}, "of: no record that satisfies the conditions has a value of pay"),
    ({"where": {"hours": None}}, "per: no record that satisfies the conditions has a value of hours"),
]


@pytest.mark.parametrize(("words", "says"), BAD)
def test_what_is_the_same_whatever_the_data_are(words: Words, says: str) -> None:
    """Would catch a question that is paid for although its answer is known."""
    with pytest.raises(InvalidQuery, match=says):
        TABLES[True, True].ratio(**words)
