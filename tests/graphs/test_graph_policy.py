"""The policy of cuts: what shares add up to, what is paid for, and what is shown."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.estimation.graphs.cells import EdgeValues, Sums
from app.estimation.graphs.scales import Scales
from app.measurements.strategies.edges import CellKind
from app.policies import graph as module
from app.policies.graph import EARLY, FEW, FIRST, PAID_FROM, REACH, GraphFunds, GraphPolicy, Learnt, Prediction, Shown
from app.spaces.cuts import CutQuestion
from tests.graphs.graphs import KINDS, cut, data, nodes, question, weights

pytestmark = pytest.mark.unit

FUNDS = GraphFunds("degrees", 200)
SHAPE = (12, 12)
#: The part of independent noise's error that a session has at most.
BETTER = 0.9


def sums(rng: np.random.Generator, kind: CellKind, matrix: np.ndarray, variance: float) -> Sums:
    rows, columns = (matrix.sum(axis=k) + rng.normal(0, math.sqrt(variance), matrix.shape[1 - k]) for k in (1, 0))
    return Sums(rows, rows if kind == "pairs" else columns, variance, variance)


def made(
    rng: np.random.Generator, kind: CellKind = "arcs", funds: GraphFunds = FUNDS, *, edges: float = 0.0
) -> tuple[GraphPolicy, np.ndarray, Learnt]:
    """A policy with degrees, and with edges of a variance where one is given; the data, and what was learnt of it."""
    matrix = data(rng, kind, SHAPE)
    learnt = Learnt(degrees=[sums(rng, kind, matrix, 2.0)])
    if edges:
        learnt.edges.append((matrix.astype(np.float32), edges))
    return GraphPolicy(kind, SHAPE, funds, learnt), matrix, learnt


class One(NamedTuple):
    """What is shown of a single question."""

    value: float
    unbiased: float
    error: float
    deviation: float


def one(found: Shown) -> One:
    return One(*(float(each.item()) for each in (found.values, found.unbiased, found.errors, found.deviations)))


def shown(policy: GraphPolicy, asked: CutQuestion, name: Hashable) -> One:
    return one(policy.shown([asked], [name]))


def variance_of(policy: GraphPolicy, name: Hashable, *asked: CutQuestion) -> float:
    return float(policy.unbiased(asked, [name])[1].item())


def asked_of(rng: np.random.Generator, kind: CellKind = "arcs") -> CutQuestion:
    """A question that degrees alone do not tell: no side is of nearly all nodes."""
    while True:
        asked = question(rng, kind, SHAPE, least=4)
        if max(len(side.places) for side in (asked.left, asked.right)) < min(SHAPE) - 2:
            return asked


@given(st.integers(1, 300), st.sampled_from(["degrees", "laplace"]), st.integers(0, 10**6))
def test_shares_add_up_to_the_whole(count: int, mode: str, seed: int) -> None:
    """Whichever questions are paid, no more than the whole is, and all of it where the last one is; what is left by one
    question is for all that follow. Would catch shares of the whole in place of what is left, and a last share that
    leaves something over.
    """
    rng = np.random.default_rng(seed)
    policy, _, _ = made(rng, funds=GraphFunds(mode, count))  # type: ignore[arg-type]
    paid = rng.random(count) < rng.choice([0.1, 0.7, 1.0])
    ahead = np.arange(count) + EARLY + FEW / count
    planned = np.ones(count) if mode == "laplace" else 1 / ahead
    left = 1.0
    for k in range(count):
        part = policy.part()
        assert 0 < part <= 1
        # As planned for all that are still to come.
        assert part == pytest.approx(planned[k] / planned[k:].sum())
        if paid[k]:
            left -= part * left
        policy.note()
    assert left >= -1e-12
    assert left <= 1e-12 or not paid[-1]
    # What comes after the declared questions takes what is left, and there is always a next share.
    assert policy.part() == 1
    policy.note()
    assert policy.part() == 1


def test_early_questions_get_more() -> None:
    """Of many questions far more, of few next to nothing more. Would catch shares that grow, and that all are alike."""
    rng = np.random.default_rng(1)
    for count, least, most in ((10, 1.0, 1.01), (100, 1.05, 1.15), (10_000, 40, 60)):
        policy, _, _ = made(rng, funds=replace(FUNDS, questions=count))
        first, left = policy.part(), 1.0
        for _ in range(count - 1):
            left -= left * policy.part()
            policy.note()
        assert least < first / (left * policy.part()) < most


@pytest.mark.parametrize("mode", ["degrees", "laplace"])
def test_undeclared_questions_never_run_out(mode: str) -> None:
    """After thousands something is left, of which a share is worth drawing. Would catch a whole that is spent at the
    hundredth question, and shares that fall off by a factor each.
    """
    rng = np.random.default_rng(2)
    policy, _, _ = made(rng, funds=GraphFunds(mode, None))  # type: ignore[arg-type]
    left = 1.0
    for k in range(3000):
        part = policy.part()
        assert 0 < part < 0.02
        left -= left * part
        if k in (99, 999, 2999):
            assert left * part > 0.01 / (k + 1) ** 2
        policy.note()
    assert left > 0


def test_what_nothing_foretells_has_a_large_share_of_an_unknown_number() -> None:
    """A fifth at first, and less with each purchase; not where the number was declared. Would catch degrees in a
    session of unknown length that get the hundredth of it that is enough for cuts.
    """
    rng = np.random.default_rng(4)
    policy, _, _ = made(rng, funds=GraphFunds("degrees", None))
    left = 1.0
    for n in range(1, 300):
        assert policy.part(alone=True) >= 1 / (n + 4)
        assert n > 90 or policy.part(alone=True) == pytest.approx(1 / (n + 4))
        left -= left * policy.part(alone=True)
        policy.record_all((), (), np.array([]), 1.0)
    assert left > 0
    declared, _, _ = made(rng, funds=GraphFunds("degrees", 100))
    assert declared.part(alone=True) == declared.part() < 0.02


def test_first_questions_are_paid() -> None:
    """However well they are known. Would catch a policy that never learns by how much its predictions are off, and one
    that pays for what it knows for ever.
    """
    rng = np.random.default_rng(3)
    policy, _, _ = made(rng)
    asked = asked_of(rng)
    low, high = asked.bounds
    sure = Prediction((low + high) / 2, 1e-3)
    for _ in range(FIRST):
        assert policy.worth(asked, sure, 1.0)
        policy.note()
    assert not policy.worth(asked, sure, 1.0)


@given(st.floats(0.01, 30), st.floats(0.01, 30), st.floats(0, 1), st.floats(0, 2))
@settings(max_examples=60)
def test_what_is_known_well_enough_is_free(error: float, deviation: float, place: float, slack: float) -> None:
    """After the first ones: paid where the standard error, as it is leaned on, passes a part of what is bought, and
    where the noise is not more than the answer can be. Would catch variances compared with deviations, and noise that
    says less than the bounds do.
    """
    rng = np.random.default_rng(4)
    policy, _, _ = made(rng)
    for _ in range(FIRST):
        policy.note()
    asked = asked_of(rng)
    low, high = asked.bounds
    value = low + place * (high - low)
    told = policy.worth(asked, Prediction(value, error), deviation**2, slack)
    possible = max(value - low, high - value) > PAID_FROM * deviation
    assert told == (possible and (1 + slack) * error > PAID_FROM * deviation)
    # Of the first ones too.
    policy, _, _ = made(rng)
    assert policy.worth(asked, Prediction(value, error), deviation**2) == possible


def test_edges_are_paid_at_once() -> None:
    """Would catch a session on edges that pays again, and first questions that are paid beside edges though known."""
    rng = np.random.default_rng(5)
    policy, _, _ = made(rng, funds=replace(FUNDS, mode="edges"), edges=1.0)
    assert not policy.worth(asked_of(rng), Prediction(5, 100.0), 1.0)
    policy, _, _ = made(rng, edges=1.0)
    assert not policy.worth(asked_of(rng), Prediction(5, 0.01), 1.0)
    assert policy.worth(asked_of(rng), Prediction(5, 1.0), 1.0)


@settings(max_examples=60)
@given(st.sampled_from(KINDS), st.booleans(), st.floats(-300, 300), st.floats(0.01, 1e5), st.integers(0, 10**6))
def test_a_measured_value_moves_the_answer(
    kind: CellKind, kept: bool, value: float, variance: float, seed: int
) -> None:
    """Towards what was measured, to within a reach of its noise where bounds let it, whether there is room to keep the
    measurement or not. Would catch an answer that stays where it was, one beyond the measured value, and a measurement
    that counts twice.
    """
    rng = np.random.default_rng(seed)
    policy, _, _ = made(rng, kind)
    asked = asked_of(rng, kind)
    low, high = asked.bounds
    before = shown(policy, asked, "a")
    assert math.isnan(before.unbiased)
    assert before.error == math.inf
    assert low <= before.value <= high
    expected = policy.predicted(asked)
    assert (expected.value, expected.standard_error) == (before.value, pytest.approx(before.deviation))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.estimation.graphs.cut_posterior.MOST_KEPT", 1500 if kept else 0)
        policy.record(asked, "a", expected, value, variance)
    assert policy.posterior.kept == kept
    after = shown(policy, asked, "a")
    assert after.unbiased == pytest.approx(value)
    assert after.error == pytest.approx(math.sqrt(variance))
    assert low <= after.value <= high
    # As far as it is known beside: the mean by all scales of what was foretold, held within reach.
    scales, told = Scales(), (value - before.value, before.deviation**2, variance)
    scales.learn(*told)
    mean = before.value + scales.posterior(*told)[0]
    mean = min(max(mean, value - REACH * math.sqrt(variance)), value + REACH * math.sqrt(variance))
    assert after.value == pytest.approx(min(max(mean, low), high), rel=1e-3, abs=0.02)
    # What was measured of one moves none that was not.
    other = asked_of(rng, kind)
    assert shown(policy, other, "b").value == _held(policy.posterior.known(other).mean, other.bounds)


def test_what_is_measured_again_is_the_posteriors() -> None:
    """Scales are of predictions that know nothing of the question. Would catch a second measurement that is taken for a
    first one, and a first one's answer that stays when a second came.
    """
    rng = np.random.default_rng(8)
    policy, _, _ = made(rng)
    asked = asked_of(rng)
    for value in (30.0, 28.0):
        policy.record(asked, "a", policy.predicted(asked), value, 60.0)
    found, reach = shown(policy, asked, "a"), REACH * math.sqrt(60.0 / 2)
    mean = _held(policy.posterior.known(asked).mean, (29.0 - reach, 29.0 + reach))
    assert found.value == pytest.approx(_held(mean, asked.bounds))


def _held(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(-50, 200), st.floats(0.1, 100)), min_size=1, max_size=8))
def test_measurements_of_a_question_are_averaged(told: list[tuple[float, float]]) -> None:
    """The unbiased value is the mean by precision, however it was measured: alone or with others. Would catch the last
    one that stands for all, and weights by deviations.
    """
    rng = np.random.default_rng(6)
    policy, _, _ = made(rng)
    asked = asked_of(rng)
    assert variance_of(policy, "a", asked) == math.inf
    for k, (value, variance) in enumerate(told):
        if k % 2:
            policy.record_all([asked, asked_of(rng)], ["a", "b"], np.array([value, 3.0]), variance)
        else:
            policy.record(asked, "a", policy.predicted(asked), value, variance)
    values, variances = np.array(told).T
    found = shown(policy, asked, "a")
    assert found.unbiased == pytest.approx(np.average(values, weights=1 / variances))
    assert found.error == pytest.approx((1 / variances).sum() ** -0.5)
    assert variance_of(policy, "a", asked) == pytest.approx(1 / (1 / variances).sum())
    assert variance_of(policy, "a") == variance_of(policy, "a", asked)
    alone = one(policy.alone(["a"], (np.array([-1000]), np.array([1000]))))
    assert (alone.value, alone.error) == (pytest.approx(found.unbiased), pytest.approx(found.error))
    assert policy.alone(["a"], (np.zeros(1), np.zeros(1))).values == 0


@pytest.mark.parametrize("kind", KINDS)
def test_edges_tell_the_unbiased_value(kind: CellKind) -> None:
    """The value by all cells and degrees, and with a measurement of its own the mean by precision. Would catch degrees
    that are left out, and several measurements of cells or of degrees of which one is.
    """
    rng = np.random.default_rng(7)
    matrix = data(rng, kind, SHAPE)
    cells = [(data(rng, kind, SHAPE).astype(np.float32), 2.0), (matrix.astype(np.float32), 6.0)]
    degrees = [sums(rng, kind, matrix, 3.0), sums(rng, kind, matrix, 1.0)]
    policy = GraphPolicy(kind, SHAPE, replace(FUNDS, mode="edges"), Learnt(degrees, cells))
    mean = (0.75 * cells[0][0] + 0.25 * cells[1][0]).astype(np.float32)
    rows, columns = (0.25 * degrees[0][k] + 0.75 * degrees[1][k] for k in (0, 1))
    values = EdgeValues(kind, mean, 1.5, Sums(rows, columns, 0.75, 0.75))
    for _ in range(10):
        asked = asked_of(rng, kind)
        value, variance = values.of(asked)
        found = shown(policy, asked, "a")
        assert found.unbiased == pytest.approx(value, rel=1e-4, abs=1e-3)
        assert found.error == pytest.approx(math.sqrt(variance), rel=1e-6)
        policy.note(asked)
    policy.record(asked, "a", policy.predicted(asked), value + 4.0, variance)
    assert shown(policy, asked, "a").unbiased == pytest.approx(value + 2.0, rel=1e-4, abs=1e-3)
    assert variance_of(policy, "a", asked) == pytest.approx(variance / 2)


def test_questions_that_weigh_nothing_are_answered() -> None:
    """Of a node and itself there is no cell. Would catch a division by its variance."""
    rng = np.random.default_rng(8)
    one = nodes(12, np.array([3]))
    for edges in (0.0, 1.0):
        policy, _, _ = made(rng, edges=edges)
        loop = cut("arcs", one, one)
        found = shown(policy, loop, "loop")
        assert found.value == 0
        assert math.isnan(found.unbiased)
        policy.note(loop)
        assert not policy.worth(loop, policy.predicted(loop), 1.0)


def test_cuts_of_earlier_sessions_are_learnt() -> None:
    """They are known as if they had been measured in this one, and factors are found from them. Values that are no cuts
    are known by name. Would catch names and values out of step, and a second session that pays for what is known.
    """
    rng = np.random.default_rng(9)
    policy, matrix, learnt = made(rng)
    questions = [asked_of(rng) for _ in range(40)]
    values = np.array([(weights(each) * matrix).sum() for each in questions]) + rng.normal(0, 0.5, 40)
    half = [questions[:20], list(range(20)), values[:20], 0.25], [questions[20:], list(range(20, 40)), values[20:], 0.5]
    learnt.asked = [tuple(each) for each in half]  # type: ignore[misc]
    learnt.asked.append(([], ["degrees", "more"], np.array([7.0, 8.0]), 1.0))
    later = GraphPolicy("arcs", SHAPE, FUNDS, learnt)
    assert later.posterior.kept == 40
    assert later.part() == policy.part()
    for k in (0, 19, 20, 39):
        found = shown(later, questions[k], k)
        assert found.unbiased == pytest.approx(values[k])
        assert found.error == pytest.approx(math.sqrt(0.25 if k < 20 else 0.5))
        assert found.deviation < shown(policy, questions[k], k).deviation
    assert later.alone(["more"], (np.zeros(1), np.full(1, 100.0))).values == 8.0
    before, after = (
        [abs(p.predicted(q).value - v) for q, v in zip(questions, values, strict=True)] for p in (policy, later)
    )
    assert np.mean(after) < 0.5 * np.mean(before)
    again = GraphPolicy("arcs", SHAPE, FUNDS, learnt)
    assert again.predicted(questions[3]) == later.predicted(questions[3])
    again.posterior.refit()
    assert (again.posterior.factor, again.posterior.shape_factor) == (
        later.posterior.factor,
        later.posterior.shape_factor,
    )


def test_questions_of_two_kinds_are_told_apart() -> None:
    """Among questions about one structure, from which predictions are far off, those about random nodes are predicted
    as well as they were found to be: their errors do not grow by the others', and noise that is larger than they are
    off by is not paid for. Would catch scales that are learnt from all questions alike.
    """
    rng, size = np.random.default_rng(12), 60
    matrix = (rng.random((size, size)) < 0.3).astype(float)
    degrees = Sums(matrix.sum(axis=1), matrix.sum(axis=0), 1.0, 1.0)
    policy = GraphPolicy("arcs", (size, size), GraphFunds("degrees", 500), Learnt([degrees]))
    half = rng.random(size) < 0.5

    def asked(*, alike: bool) -> CutQuestion:
        sides = [(half ^ (rng.random(size) < 0.05)) if alike else rng.random(size) < 0.5 for _ in range(2)]
        return cut("arcs", *(nodes(size, np.flatnonzero(side)) for side in sides))

    for k in range(240):
        one = asked(alike=k % 2 == 0)
        mean = policy.posterior.expected.value(one)
        policy.record(one, k, policy.predicted(one), mean + (150.0 * (-1) ** (k // 2) if k % 2 == 0 else 0.0), 100.0)
    structured, random = asked(alike=True), asked(alike=False)
    deviations = {each: policy.posterior.known(each).deviation for each in (structured, random)}
    assert policy.predicted(structured).standard_error == pytest.approx(deviations[structured])
    assert policy.predicted(random).standard_error < 0.6 * deviations[random]
    assert shown(policy, random, "new").deviation < 0.6 * policy.kappa * deviations[random]


def test_surprises_widen_what_is_told() -> None:
    """Predictions that were off by far more than told are told wider, never narrower than the posterior says, and it is
    forgotten when they are right again. Would catch noise that counts as surprise, and one outlier that counts for
    ever.
    """
    rng = np.random.default_rng(10)
    policy, _, _ = made(rng)
    asked = asked_of(rng)
    assert policy.kappa == 1
    for k in range(30):
        policy.record(asked, k, Prediction(20.0, 2.0), 20.0 + rng.normal(0, 6), 36.0)
        assert 1 <= policy.kappa < 1.5
    before = policy.kappa
    for k in range(30):
        policy.record(asked, 30 + k, Prediction(20.0, 2.0), 35.0, 1.0)
    assert before < policy.kappa <= 2
    assert policy.kappa > 1.5
    known = policy.posterior.known(asked).deviation
    assert shown(policy, asked, "other").deviation == pytest.approx(policy.kappa * known)
    for k in range(60):
        policy.record(asked, 60 + k, Prediction(20.0, 2.0), 20.0, 1.0)
    assert policy.kappa == 1
    policy.record(asked, "certain", Prediction(20.0, 0.0), 90.0, 1.0)
    assert policy.kappa == 1


def test_pure_measurements_stand_alone() -> None:
    """Of questions paid one by one nothing is learnt for others. Would catch factors from Laplace noise."""
    rng = np.random.default_rng(11)
    policy, _, _ = made(rng, funds=replace(FUNDS, mode="laplace"))
    for k in range(6):
        asked = asked_of(rng)
        policy.record(asked, k, policy.predicted(asked), 9.0, 1.0)
        assert shown(policy, asked, k).unbiased == 9.0
    assert policy.posterior.kept == 0


def test_factors_are_found_beside_edges() -> None:
    """Cells that differ from what degrees let expect by far more than chance are seen in what edges say. Would catch a
    factor that is never found where nothing is paid for.
    """
    rng = np.random.default_rng(12)
    groups = np.arange(12) % 2
    matrix = np.where(groups[:, None] == groups, 1.0, 0.0)
    np.fill_diagonal(matrix, 0)
    learnt = Learnt([sums(rng, "arcs", matrix, 0.1)], [(matrix.astype(np.float32), 0.05)])
    policy = GraphPolicy("arcs", SHAPE, replace(FUNDS, mode="edges"), learnt)
    start = policy.posterior.factor
    for k in range(4 * module._REFIT):
        side = nodes(12, np.flatnonzero(groups == k % 2))
        policy.note(cut("arcs", side, side))
    assert policy.posterior.factor > start


def block_model(rng: np.random.Generator) -> np.ndarray:
    """An undirected graph of three groups, some nodes with far more edges than others."""
    n, groups = 150, np.arange(150) % 3
    active = rng.gamma(4, 0.25, n)
    chance = np.minimum(1, np.outer(active, active) * np.where(groups[:, None] == groups, 0.25, 0.06))
    upper = np.triu(rng.random((n, n)) < chance, 1).astype(float)
    return upper + upper.T


@pytest.mark.slow
def test_sessions_err_less_than_noise_alone_and_intervals_hold() -> None:
    """150 cuts of a block model, some of them of whole groups; all is paid from one budget, degrees among it. The root
    mean square error is below that of independent Gaussian noise for each question at the same price, and 95%
    intervals, of the unbiased value where there is one, hold. Would catch a covariance that is wrong for real graphs,
    deviations that are too small, and budget that is not used.
    """
    errors, held, count = [], 0, 150
    # Of all of it a number that moves by one gets noise of variance 4: each of as many as there are 4 for each of them.
    whole, alone = 1 / 4, math.sqrt(4 * count)
    for seed in range(5):
        rng = np.random.default_rng([13, seed])
        matrix = block_model(rng)
        # A fifth for degrees, of which an edge moves two.
        degrees, left, paid = sums(rng, "pairs", matrix, 2 / (0.2 * whole)), 0.8 * whole, 0
        policy = GraphPolicy("pairs", (150, 150), replace(FUNDS, questions=count), Learnt(degrees=[degrees]))
        for k in range(count):
            if k % 5 == 0:
                sides = [np.flatnonzero(np.arange(150) % 3 == g) for g in rng.integers(0, 3, 2)]
            else:
                sides = [np.flatnonzero(rng.random(150) < rng.uniform(0.1, 0.6)) for _ in range(2)]
            both = np.intersect1d(*sides)
            asked = cut("pairs", *(nodes(150, s) for s in sides))
            truth = float(matrix[np.ix_(*sides)].sum() - matrix[np.ix_(both, both)].sum() / 2)
            share = left * policy.part()
            prediction = policy.predicted(asked)
            if policy.worth(asked, prediction, 1 / share):
                left -= share
                paid += 1
                policy.record(asked, k, prediction, truth + rng.normal(0, math.sqrt(1 / share)), 1 / share)
            else:
                policy.note(asked)
            found = shown(policy, asked, k)
            known = math.isfinite(found.error)
            centre, error = (found.unbiased, found.error) if known else (found.value, found.deviation)
            held += abs(centre - truth) <= 1.96 * error
            errors.append(found.value - truth)
        assert left >= 0
        assert paid >= FIRST
    assert math.sqrt(np.mean(np.square(errors))) < BETTER * alone
    assert held >= 0.9 * len(errors)
