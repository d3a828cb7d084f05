"""Shares against counts of records one by one, mpmath, brute force over noise, and their own symmetries."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.estimation.intervals import Estimates
from app.estimation.tables.residuals import Residuals
from app.measurements.noise_search import LEAST_SCALE
from app.measurements.pieces import pieces_of
from app.measurements.record import Measurement
from app.policies.statistics import Statistics
from app.policies.table import Funds, OutOfReach, Policy, Wanted
from app.spaces.errors import InvalidQuery
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.share import CompiledShare
from tests.evidence.tables import least_squares, matrix, measured
from tests.kit.strategies import BUDGET, Words, universe

pytestmark = [pytest.mark.unit, pytest.mark.slow]

ORDER, RENYI = 30.0, 0.428
NORMAL = 1.959963984540054
SIZES = (2, 4, 3, 2)
TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [
            {"name": "sex", "values": ["f", "m"]},
            {"name": "age", "size": 4},
            {"name": "job", "size": 3},
            {"name": "city", "size": 2},
        ],
        "budget": BUDGET,
    }
)
OF: list[Words] = [
    {"sex": "f"},
    {"age": [1, 2]},
    {"sex": "f", "job": 0},
    {"sex": "m", "age": [0, 1], "job": [0, 2]},
    {"any": [{"sex": "f"}, {"job": 1}]},
    {"not": {"age": 0, "city": 1}},
    {"age": [0, 1], "any": [{"sex": "f"}, {"age": 0, "job": 2}]},
]
WHERE: list[Words] = [{}, {"city": 0}, {"age": [0, 1, 2]}, {"any": [{"city": 1}, {"sex": "m", "job": [0, 1]}]}]
GROUPS: list[list[str]] = [[], ["job"], ["age"], ["job", "city"], ["city", "age"]]


def means(epsilon: float = 1.0, **more: Any) -> Funds:
    return Funds(ORDER, RENYI * epsilon, epsilon, **({"pure": False, "questions": 20} | more))


def share(of: Words, where: Words | None = None, group_by: list[str] | None = None, **more: Any) -> CompiledShare:
    words: Words = {"type": "share", "of": of, "where": where or {}, "group_by": group_by or [], **more}
    query = TABLE.compiled(words)
    assert isinstance(query, CompiledShare)
    return query


def satisfies(record: tuple[int, ...], where: Words) -> bool:
    """Whether a record satisfies conditions, from the words. One attribute after the other."""
    for name, said in where.items():
        if name == "any":
            holds = any(satisfies(record, one) for one in said)
        elif name == "not":
            holds = not satisfies(record, said)
        else:
            place = ["sex", "age", "job", "city"].index(name)
            values = said if isinstance(said, list) else [said]
            holds = record[place] in [{"f": 0, "m": 1}.get(v, v) for v in values]
        if not holds:
            return False
    return True


def counted(of: Words, where: Words, groups: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The 0/1 rows over all cells of the table that N and A of each group sum. A plain loop."""
    places = [["sex", "age", "job", "city"].index(name) for name in groups]
    order = list(itertools.product(*(range(SIZES[p]) for p in places)))
    count = np.zeros((len(order), math.prod(SIZES)))
    part = np.zeros_like(count)
    for column, record in enumerate(np.ndindex(*SIZES)):
        group = order.index(tuple(record[p] for p in places))
        if satisfies(record, where):
            count[group, column] = 1
            part[group, column] = satisfies(record, of)
    # Of values that no record may have there are no groups; of combinations that none may have there are.
    nobody = ~count.any(axis=1).reshape([SIZES[p] for p in places])
    none = [nobody.all(axis=tuple(k for k in range(len(places)) if k != axis)) for axis in range(len(places))]
    there = [not any(none[k][value] for k, value in enumerate(group)) for group in order]
    return count[there], part[there]


def told(query: CompiledShare, found: Estimates) -> list[np.ndarray]:
    """Values, errors and ends in the order that was asked."""
    return [query.ordered(a) for a in (found.linear, found.linear_errors, found.lows, found.highs)]  # type: ignore[arg-type]


def known(seed: int, marginals: list[dict[int, Partition | None]], public: bool, sigma: float = 2.0) -> Policy:
    """What was released of a table of some thousand records."""
    rng = np.random.default_rng(seed)
    table = rng.integers(40, 120, SIZES)
    residuals = Residuals(SIZES, float(table.sum()) if public else None)
    for k, cells in enumerate(marginals):
        marginal = Marginal.of(SIZES, cells)
        own = sigma * (1 + k)
        residuals.add(measured(marginal, own, matrix(SIZES, marginal) @ table.reshape(-1) + rng.normal(0, own)))
    return Policy(residuals, means())


def measured_of(policy: Policy) -> tuple[np.ndarray, np.ndarray, np.ndarray, float | None]:
    """Rows of all cells that were measured, their variances and values, and the public total."""
    own = policy.residuals.measurements
    rows = np.concatenate([matrix(SIZES, m.marginal) for m in own])
    variances = np.concatenate([np.full(m.marginal.cells, m.variance) for m in own])
    return rows, variances, np.concatenate([m.values.reshape(-1) for m in own]), policy.residuals.public_total


EVERY: dict[int, Partition | None] = dict.fromkeys(range(4))
EVIDENCE: list[list[dict[int, Partition | None]]] = [
    [EVERY],
    [EVERY, {0: None}, {1: None, 2: None}, {}],
    [{0: None}, {3: None}, EVERY, {1: None, 3: None}],
]


def fieller(a: Any, n: Any, va: Any, vn: Any, c: Any) -> tuple[float, float]:
    """All r with (a - r n)^2 <= z^2 (va - 2 r c + r^2 vn), by the roots of a polynomial to fifty digits."""
    with mpmath.workdps(50):
        z = mpmath.mpf(NORMAL)
        lead, half, rest = n**2 - z**2 * vn, a * n - z**2 * c, a**2 - z**2 * va
        root = mpmath.sqrt(max(half**2 - lead * rest, 0))
        return float((half - root) / lead), float((half + root) / lead)


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(OF),
    st.sampled_from(WHERE),
    st.sampled_from(GROUPS),
    st.sampled_from(EVIDENCE),
    st.booleans(),
    st.integers(0, 1000),
)
def test_values_errors_and_intervals(
    of: Words, where: Words, groups: list[str], evidence: list[Any], public: bool, seed: int
) -> None:
    """Of every form: N and A by least squares over all cells of the table, the delta method by differentiating with
    fifty digits, and Fieller's interval by its roots. Would catch a covariance that is left out or is that of another
    group, a condition that is dropped, and a share of all in place of that of a group."""
    try:
        query = share(of, where, groups)
    except InvalidQuery:
        assume(False)
    policy = known(seed, evidence, public)
    found = Statistics(policy, {}).shown(query, 0.95, False)
    own = policy.residuals.measurements
    _, variances, released, total = measured_of(policy)
    for k, (count, part, *shown) in enumerate(zip(*counted(of, where, groups), *told(query, found), strict=True)):
        if not count.any():
            assert np.isnan(shown[0]), k
            continue
        on = [least_squares(SIZES, own, total, row) for row in (count, part)]
        assert all(o is not None for o in on), k
        values, noise = np.append(released, total or 0.0), np.append(variances, 0.0)
        n, a = (mpmath.mpf(float(o[0] @ values)) for o in on)  # type: ignore[index]
        vn, va, c = (
            mpmath.mpf(float(np.sum(on[i][0] * on[j][0] * noise)))  # type: ignore[index]
            for i, j in ((0, 0), (1, 1), (0, 1))
        )
        by_n, by_a = mpmath.diff(lambda x: a / x, n), mpmath.diff(lambda x: x / n, a)  # noqa: B023
        error = mpmath.sqrt(max(by_n**2 * vn + 2 * by_n * by_a * c + by_a**2 * va, 0))
        low, high = fieller(a, n, va, vn, c)
        assert shown[0] == pytest.approx(float(a / n), rel=1e-7, abs=1e-9)
        assert shown[1] == pytest.approx(float(error), rel=1e-4, abs=1e-7)
        # Noise of a fine grid reaches hardly farther than the normal law.
        assert shown[2] == pytest.approx(max(low, 0), rel=1e-4, abs=1e-5)
        assert shown[3] == pytest.approx(min(high, 1), rel=1e-4, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(OF),
    st.sampled_from(WHERE),
    st.sampled_from(GROUPS),
    st.sampled_from(EVIDENCE),
    st.booleans(),
    st.booleans(),
)
def test_the_rest_is_what_is_left(
    of: Words, where: Words, groups: list[str], evidence: list[Any], public: bool, adaptive: bool
) -> None:
    """The share of some and that of all others add to one, their errors are the same and their intervals the mirror of
    each other. Would catch a rest with noise of its own."""
    try:
        one, other = share(of, where, groups), share({"not": of}, where, groups)
    except InvalidQuery:
        assume(False)
    statistics = Statistics(known(5, evidence, public), {})
    shown = [statistics.shown(q, 0.95, adaptive) for q in (one, other)]
    first, second = (told(q, s) for q, s in zip((one, other), shown, strict=True))
    values = [q.ordered(s.values) for q, s in zip((one, other), shown, strict=True)]
    assert np.nansum(np.abs(values[0] + values[1] - 1)) == pytest.approx(0, abs=1e-6)
    there = ~np.isnan(first[0])
    assert there.any()
    assert (first[0] + second[0])[there] == pytest.approx(1, abs=1e-8)
    assert first[1] == pytest.approx(second[1], rel=1e-5, abs=1e-7, nan_ok=True)
    assert first[2] == pytest.approx(1 - second[3], abs=1e-6, nan_ok=True)
    assert first[3] == pytest.approx(1 - second[2], abs=1e-6, nan_ok=True)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(OF), st.sampled_from([WHERE[0], *WHERE[2:]]), st.sampled_from(EVIDENCE))
def test_groups_in_another_order(of: Words, where: Words, evidence: list[Any]) -> None:
    """Two orders of groups are one question, told in the order that was asked, and each group is what it is when it is
    asked alone. Would catch a group under the labels of another."""
    try:
        one, other = share(of, where, ["job", "city"]), share(of, where, ["city", "job"])
    except InvalidQuery:
        assume(False)
    assert one.digest == other.digest
    statistics = Statistics(known(9, evidence, False), {})
    first, second = (told(q, statistics.shown(q, 0.95, False)) for q in (one, other))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(np.reshape(a, (3, 2)).T.reshape(-1), b)
    for place, (job, city) in enumerate(itertools.product(range(3), range(2))):
        if np.isnan(first[0][place]):
            continue
        try:
            alone = share(of, {"all": [where, {"job": job, "city": city}]})
        except InvalidQuery:
            assert first[1][place] == pytest.approx(0, abs=1e-9)
            continue
        shown = told(alone, statistics.shown(alone, 0.95, False))
        assert [own[place] for own in first] == pytest.approx([own[0] for own in shown], rel=1e-6, abs=1e-7)


def test_every_noise_there_is() -> None:
    """Of two cells with whole-numbered noise of a law every fourth outcome, weighed for all: the interval of the share
    holds the truth as often as it says, of the deviation that it says. Would catch an interval for independent numbers,
    which is too wide here, or one of the numerator alone, which is too narrow."""
    sigma, rest, part = 6.0, 260, 140
    steps = np.arange(-40, 41)
    law = np.exp(-(steps**2) / (2 * sigma**2))
    law /= law.sum()
    query = share({"sex": "f"})
    asked = query
    held, spread, mean = 0.0, 0.0, 0.0
    for (x, p), (y, q) in itertools.product(zip(steps[::4], law[::4], strict=True), repeat=2):
        residuals = Residuals(SIZES)
        residuals.add(measured(Marginal.of(SIZES, {0: None}), sigma, np.array([part + x, rest + y])))
        found = Statistics(Policy(residuals, means()), {}).shown(asked, 0.95, False)
        weight, truth = 16 * p * q, part / (part + rest)
        held += weight * float(found.lows[0] <= truth <= found.highs[0])
        mean += weight * float(found.values[0])
        spread += weight * float(found.values[0] - truth) ** 2
    assert mean == pytest.approx(truth, abs=1e-3)
    assert held == pytest.approx(0.95, abs=0.006)
    assert math.sqrt(spread) == pytest.approx(sigma * math.hypot(part, rest) / (part + rest) ** 2, rel=0.02)


def test_where_there_may_be_nobody() -> None:
    """As with means there is no share, whose interval could be of any width."""
    for count, there in ((3.0, False), (30.0, True)):
        residuals = Residuals(SIZES)
        residuals.add(measured(Marginal.of(SIZES, {0: None}), 2.0, np.array([count, count / 2])))
        found = Statistics(Policy(residuals, means()), {}).shown(share({"sex": "f"}), 0.95, False)
        assert [bool(np.isnan(a).any()) for a in (found.values, found.lows, found.standard_errors)] == [not there] * 3


# What is bought.


def learn(policy: Policy, buy: Wanted, table: np.ndarray, rng: np.random.Generator) -> None:
    """Take in what was bought."""
    values: list[np.ndarray] = []
    for part in buy.strategy.parts:
        exact = matrix(SIZES, part.marginal) @ table.reshape(-1) * part.multiplier
        scale = math.sqrt(buy.noise.variance)
        drawn = rng.laplace(0, scale / math.sqrt(2), exact.shape) if buy.noise.kind == "laplace" else None
        values.append(np.rint(exact + (rng.normal(0, scale, exact.shape) if drawn is None else drawn)))
    units = np.concatenate(values).astype(np.int64) << buy.noise.bits
    for _, piece in pieces_of(Measurement(buy.strategy, buy.noise, units)):
        policy.residuals.add(piece)


def begun(table: np.ndarray, public: bool = True, **more: Any) -> Policy:
    return Policy(Residuals(SIZES, float(table.sum()) if public else None), means(**more))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(OF), st.sampled_from(WHERE), st.sampled_from(GROUPS))
def test_what_is_bought_is_worth_it(of: Words, where: Words, groups: list[str]) -> None:
    """Counts alone, of the cells that the question tells apart, at the price that the share may have; then every group
    is known without a model, and nothing more is bought at that price. Would catch a purchase of moments, one that does
    not tell of the question, and a question that is paid for twice."""
    try:
        query = share(of, where, groups)
    except InvalidQuery:
        assume(False)
    table = np.random.default_rng(1).integers(400, 900, SIZES)
    policy = begun(table)
    statistics, asked = Statistics(policy, {}), query
    buy = statistics.decide(asked, RENYI, None, 0.95)
    assert buy is not None
    assert all(part.counts for part in buy.strategy.parts)
    assert buy.strategy.parts[0].marginal == asked.question.marginal_of(SIZES)
    price = policy.share(asked.question, RENYI)
    paid = sum(ORDER * part.multiplier**2 / (2 * float(buy.noise.scale) ** 2) for part in buy.strategy.parts)
    assert 0.98 * price < paid <= price * (1 + 1e-9)
    learn(policy, buy, table, np.random.default_rng(2))
    found = statistics.shown(asked, 0.95, False)
    assert found.unbiased.all()
    count, part = (rows @ table.reshape(-1) for rows in counted(of, where, groups))
    values, errors, _, _ = told(query, found)
    there = count > 0
    assert np.isnan(values[~there]).all()
    assert (np.abs(values[there] - part[there] / count[there]) <= 8 * errors[there] + 1e-9).all()
    assert statistics.decide(asked, RENYI / 4, None, 0.95) is None


@pytest.mark.parametrize("within", [0.05, 0.005])
@pytest.mark.parametrize("groups", [[], ["job"]])
def test_the_least_that_is_accurate_enough(within: float, groups: list[str]) -> None:
    """Every interval is as narrow as is wished, with little to spare, in units of the share; then it is free. Would
    catch a width in counts, and noise that is far smaller than it had to be."""
    table = np.random.default_rng(1).integers(400, 900, SIZES)
    policy = begun(table)
    query = share({"sex": "f", "age": [0, 1]}, {"city": 0}, groups)
    asked, statistics = query, Statistics(policy, {})
    buy = statistics.decide(asked, 1e6, within, 0.95)
    assert buy is not None
    assert float(buy.noise.scale) > LEAST_SCALE
    learn(policy, buy, table, np.random.default_rng(2))
    found = statistics.shown(asked, 0.95, False)
    arms = np.maximum(found.highs - found.values, found.values - found.lows)
    assert 0.6 * within < arms.max() <= 1.1 * within
    assert statistics.decide(asked, 1e6, 1.2 * within, 0.95) is None
    with pytest.raises(OutOfReach):
        statistics.decide(asked, 1e-9, 1e-6, 0.95)


def test_a_part_goes_to_groups_where_the_rest_is_many_cells() -> None:
    """Of four conditions that most records satisfy the rest is fifteen cells, whose noise is less where groups are
    counted beside them; of one condition it is a single cell, and nothing is."""
    attributes = [{"name": name, "values": ["n", "y"]} for name in "abcdg"]
    space = universe({"name": "t", "kind": "table", "attributes": attributes, "budget": BUDGET})
    residuals = Residuals((2,) * 5)
    # All but the last is known well already, so that most satisfy them.
    for axis in range(4):
        residuals.add(measured(Marginal.of((2,) * 5, {axis: None}), 1.0, np.array([300.0, 9700.0])))
    statistics = Statistics(Policy(residuals, means()), {})
    many = {"type": "share", "of": dict.fromkeys("abcd", "y"), "where": {"g": "y"}}
    one = {"type": "share", "of": {"a": "y"}, "where": {"g": "y"}}
    found = {}
    for name, words in (("many", many), ("one", one)):
        query = space.compiled(words)
        assert isinstance(query, CompiledShare)
        buy = statistics.decide(query, RENYI, None, 0.95)
        assert buy is not None
        found[name] = [part.marginal.attributes for part in buy.strategy.parts]
    assert found == {"many": [(0, 1, 2, 3, 4), (4,)], "one": [(0, 4)]}


def test_nothing_measured_and_nothing_left() -> None:
    """A share that cannot be paid is like its counts as a model tells them, and says so. Would catch a division by what
    is not known."""
    table = np.random.default_rng(1).integers(400, 900, SIZES)
    policy = begun(table)
    for axis in range(4):
        marginal = Marginal.of(SIZES, {axis: None})
        policy.residuals.add(measured(marginal, 2.0, matrix(SIZES, marginal) @ table.reshape(-1)))
    statistics = Statistics(policy, {})
    for of, where, groups in itertools.product(OF[2:], WHERE[:2], GROUPS[:2]):
        try:
            query = share(of, where, groups)
        except InvalidQuery:
            continue
        asked = query
        assert statistics.decide(asked, 0.0, None, 0.95) is None
        found = statistics.shown(asked, 0.95, False)
        assert not found.unbiased.all()
        count, part = (rows @ table.reshape(-1) for rows in counted(of, where, groups))
        assert query.ordered(found.values) == pytest.approx(part / count, abs=0.1)
        assert ((found.lows >= 0) & (found.lows <= found.values) & (found.values <= found.highs)).all()
