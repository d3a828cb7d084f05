"""Intervals of questions that were chosen by what was released: analysts who know the truth, and with it all noise, ask
where it is worst. Each scenario is seeded, and a few dozen sessions long: nominal 95% intervals that held in fewer than
51 of 60 would be found too narrow by chance once in a thousand times.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from app.curator.mechanisms.protocol import Target
from app.estimation.tables.residuals import Residuals
from app.estimation.tails import normal_quantile
from app.measurements.noise import Noise, NoiseKind
from app.measurements.pieces import Counts
from app.measurements.strategies.tables import Moment
from app.policies.statistics import Statistics
from app.policies.table import Bought, Policy, Wanted
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Local, Product, Question
from benchmarks.research.coverage_data import graph
from benchmarks.research.coverage_played import Drawn, Played, Setting
from tests.evidence.asking import Asking
from tests.evidence.test_table_policy import Session, drawn, funds

pytestmark = pytest.mark.statistical

SESSIONS, HELD = 60, 51


def released(table: np.ndarray, cells: list[tuple[int, ...]], kind: NoiseKind, scale: float, seed: int) -> Policy:
    """A policy that has nothing left to measure with, over these marginals."""
    residuals, rng = Residuals(table.shape), np.random.default_rng(seed)
    for axes in cells:
        marginal = Marginal.of(table.shape, dict.fromkeys(axes))
        residuals.add(drawn(table, Wanted.of(marginal, Noise(kind, Decimal(repr(scale)), 0)), rng))
    return Policy(residuals, funds(questions=100))


def holds(
    policy: Policy, table: np.ndarray, asked: Question, *, adaptive: bool, confidence: float = 0.95
) -> np.ndarray:
    shown = policy.shown(asked, None, confidence, adaptive=adaptive)
    outside = tuple(a for a in range(table.ndim) if a not in asked.attributes)
    exact = asked.of(table.sum(axis=outside).astype(float), [Partition.singles(n) for n in asked.sizes])
    return np.asarray((shown.lows <= exact + 1e-9) & (exact - 1e-9 <= shown.highs))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("counted", [[(0,)], [(0, 1)], [(0,), (0, 1)]])
def test_those_above_their_median(kind: NoiseKind, counted: list[tuple[int, ...]]) -> None:
    """Even values, of which those that look high are asked for together. Would catch a dimension of the cells that the
    question tells apart: it covers none."""
    table, held, plain = np.full((60, 3), 40), 0, 0
    for seed in range(SESSIONS):
        policy = released(table, counted, kind, 12.0, seed)
        values = policy.residuals.unbiased(Cells(Marginal.of(table.shape, {0: None}))).values
        asked = Product.over({0: values > np.median(values)})
        held += bool(holds(policy, table, asked, adaptive=True))
        plain += bool(holds(policy, table, asked, adaptive=False))
    assert held >= HELD
    assert plain <= SESSIONS // 10


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_worst_cells_of_all_pairs(kind: NoiseKind) -> None:
    """Of all pairs of attributes the one on which the cells that look high err most: it is chosen which attributes are
    asked for, too."""
    table, held, plain = np.full((3, 4, 2, 5), 10), 0, 0
    pairs = list(itertools.combinations(range(4), 2))
    for seed in range(SESSIONS):
        policy = released(table, pairs, kind, 3.0, seed)
        found: list[tuple[float, Question]] = []
        for pair in pairs:
            told = policy.residuals.unbiased(Cells(Marginal.of(table.shape, dict.fromkeys(pair))))
            noise = told.values - table.sum(axis=tuple(a for a in range(4) if a not in pair))
            asked = Local.over(pair, noise > 0)
            deviation = float(policy.residuals.unbiased(asked).standard_errors)
            if deviation > 0:
                found.append((float((noise * (noise > 0)).sum()) / deviation, asked))
        worst = max(found, key=lambda each: each[0])[1]
        held += bool(holds(policy, table, worst, adaptive=True))
        plain += bool(holds(policy, table, worst, adaptive=False))
    assert held >= HELD
    assert plain <= SESSIONS // 2


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_worst_cell_of_a_table_of_laplace_noise(confidence: float) -> None:
    """The single cell that errs most, of all that were measured with noise of long tails."""
    table, held = np.full((8, 9), 50), 0
    for seed in range(SESSIONS):
        policy = released(table, [(0, 1)], "laplace", 4.0, seed)
        told = policy.residuals.unbiased(Cells(Marginal.of(table.shape, {0: None, 1: None}))).values
        place = np.unravel_index(np.argmax(np.abs(told - table)), table.shape)
        asked = Product.over({a: np.arange(n) == place[a] for a, n in enumerate(table.shape)})
        held += bool(holds(policy, table, asked, adaptive=True, confidence=confidence))
    assert held >= confidence * SESSIONS - 3.1 * math.sqrt(SESSIONS * confidence * (1 - confidence))


def test_what_is_measured_for_a_chosen_question_is_not_chosen() -> None:
    """Where something is left to pay with the interval is that of new noise: as wide as one measurement's, not as all
    that could be asked, and it holds. Would catch old noise in an interval that counts new noise alone."""
    table, held, narrow, sessions = np.full((60, 3), 40), 0, 0, 30
    for seed in range(sessions):
        session = Session(table, replace(funds(questions=3), renyi=0.3), seed)
        session.ask(Cells(Marginal.of(table.shape, {0: None})))
        values = session.policy.residuals.unbiased(Cells(Marginal.of(table.shape, {0: None}))).values
        asked = Product.over({0: values > np.median(values)})
        prediction, buy = session.policy.decide(asked, float(session.left), within=60.0, adaptive=True)
        assert buy is not None
        bought = Bought(prediction, session._made(buy))
        session.policy.record(asked, bought)
        shown = session.policy.shown(asked, bought, 0.95, adaptive=True)
        exact = float(table.sum(axis=1)[values > np.median(values)].sum())
        held += float(shown.lows) <= exact <= float(shown.highs)
        narrow += float(shown.highs - shown.lows) <= 2 * 60.0
    # Fewer than 24 of 30 would be, by chance, two times in a thousand.
    assert held >= 24
    assert narrow == sessions


@pytest.mark.parametrize("public", [True, False])
def test_what_a_model_says_of_what_it_chose(public: bool) -> None:
    """Even records, counted in ranges with as much noise as records: of single numbers the fit alone says something,
    and those that it finds high are asked for together. Would catch the model's deviations, which the same noise made:
    so asked its own interval hardly ever holds. There is something that is bought, where there is a budget.
    """
    table, held, plain = np.full((50, 2), 40), 0, 0
    arms: list[np.ndarray] = []
    errors: list[np.ndarray] = []
    ranges = Marginal.of(table.shape, {0: Partition.runs(50, np.arange(0, 50, 5))})
    single = Cells(Marginal.of(table.shape, {0: None}))
    for seed in range(SESSIONS):
        residuals, rng = Residuals(table.shape, float(table.sum()) if public else None), np.random.default_rng(seed)
        residuals.add(drawn(table, Wanted.of(ranges, Noise("gaussian", Decimal(400), 0)), rng))
        policy = Policy(residuals, funds(questions=100))
        highest = np.argsort(-policy.shown(single, None, 0.95).values, kind="stable")[:23]
        asked = Product.over({0: np.isin(np.arange(50), highest)})
        told = policy.shown(asked, None, 0.95, adaptive=True)
        assert not told.unbiased.any()
        assert np.isfinite(told.highs).all()
        arms.append(np.maximum(told.values - told.lows, told.highs - told.values))
        errors.append(told.standard_errors)
        held += bool(holds(policy, table, asked, adaptive=True))
        plain += bool(holds(policy, table, asked, adaptive=False))
        assert policy.decide(asked, 1e-3, adaptive=True)[1] is not None
    assert held >= HELD
    # The standard error says the same as the interval.
    assert np.allclose(np.array(errors) * normal_quantile(0.95), arms)
    assert plain <= 2 * SESSIONS // 3


def test_what_a_model_says_of_statistics_of_what_it_chose() -> None:
    """Means and quantiles of groups that were never counted, and are told by the counts of all. Would catch a model's
    interval of a group that it may have chosen."""
    table = np.full((6, 12), 5)
    residuals, rng = Residuals(table.shape, float(table.sum())), np.random.default_rng(1)
    for axis in (0, 1):
        marginal = Marginal.of(table.shape, {axis: None})
        residuals.add(drawn(table, Wanted.of(marginal, Noise("gaussian", Decimal(3), 0)), rng))
    asked_of = Cells(Marginal.of(table.shape, {0: None}))
    for kind, least, most in (("mean", 0.0, 11.0), ("variance", 0.0, 5.5**2), ("sum", 0.0, 11.0 * table.sum())):
        asked = Asking.of(kind, asked_of, (1, 12, 0.0, 1.0))
        shown = Statistics(Policy(residuals, funds(questions=100)), {}).shown(asked, 0.95, True)
        there = ~shown.unbiased & ~np.isnan(shown.values)
        assert there.any(), kind
        assert np.array_equal(shown.lows[there], np.full(int(there.sum()), least)), kind
        assert np.array_equal(shown.highs[there], np.full(int(there.sum()), most)), kind


def test_a_mean_of_those_that_look_high() -> None:
    """Groups are chosen by the noise of what their numbers come to. Would catch moments that count for nothing."""
    groups, places, held, plain = 40, 5, 0, 0
    table = np.full((groups, places), 30)
    for seed in range(SESSIONS):
        rng = np.random.default_rng(seed)
        residuals = Residuals(table.shape)
        marginal = Marginal.of(table.shape, {0: None})
        residuals.add(drawn(table, Wanted.of(marginal, Noise("gaussian", Decimal(10), 0)), rng))
        moment = Moment(1, places, 1)
        exact = (table * moment.weights[None, :]).sum(axis=1)
        noise = np.rint(rng.normal(0, 60, groups)).astype(np.int64)
        known = Residuals(table.shape)
        known.add(Counts(marginal, Noise("gaussian", Decimal(60), 0), exact + noise))
        asked_of = Product.over({0: noise > 0})
        asked = Asking.of("mean", asked_of, (1, places, 0.0, 1.0))
        statistics = Statistics(Policy(residuals, funds(questions=100)), {moment: known})
        truth = float((table * np.arange(places)).sum() / table.sum())
        for adaptive in (True, False):
            shown = statistics.shown(asked, 0.95, adaptive)
            inside = bool(shown.lows[0] <= truth <= shown.highs[0])
            held, plain = held + (inside and adaptive), plain + (inside and not adaptive)
    assert held >= HELD
    assert plain <= SESSIONS // 3


@pytest.mark.parametrize(("construction", "pure"), [("gaussian", False), ("laplace", True), ("evidence", False)])
def test_the_worst_of_many_cuts(construction: str, pure: bool) -> None:
    """Of forty cuts, each measured by itself, the one that errs most is asked for again. Would catch the plain quantile
    of a number that was picked by its noise."""
    world, held, plain, rng = graph("even"), 0, 0, np.random.default_rng(5)
    sides = [np.split(rng.permutation(16), 2) for _ in range(40)]
    cuts = [{"type": "cut", "left": left.tolist(), "right": right.tolist()} for left, right in sides]
    truths = [float(world.entries[np.ix_(left, right)].sum()) for left, right in sides]
    # Noise stays within what a cut can be: about what cannot be intervals are wider than the noise.
    asked = {"epsilon": 20.0, "max_queries": 60, "mechanism": {"construction": construction}}
    setting = Setting.of(world.declared, world.data, asked, delta=1e-9, pure=pure)
    # Fewer than 16 of 20 would be, by chance, three times in ten thousand.
    sessions, enough = (20, 16) if construction == "evidence" else (SESSIONS, HELD)
    for seed in range(sessions):
        played = Played(setting, Drawn(np.random.default_rng(seed)))
        errors = []
        for words, truth in zip(cuts, truths, strict=True):
            told = played.ask(words)
            assert told.accuracy is not None
            linear = told.values if told.accuracy.linear is None else told.accuracy.linear
            errors.append(abs(float(np.nan_to_num(linear[0], nan=truth)) - truth))
        worst = int(np.argmax(errors))
        for adaptive in (True, False):
            told = played.ask(cuts[worst], Target(adaptive=adaptive))
            assert told.accuracy is not None
            truth = truths[worst]
            inside = bool(told.accuracy.lows[0] <= truth <= told.accuracy.highs[0])
            held, plain = held + (inside and adaptive), plain + (inside and not adaptive)
    assert held >= enough
    assert plain <= sessions // 4


def test_an_accuracy_of_a_cut_that_was_chosen_by_edges() -> None:
    """Others measured all pairs. Who splits the nodes where these err most, and wishes for an accuracy that intervals
    of all cuts do not have, is told of a measurement of that cut within it. Would catch an accuracy that is taken for
    met because any single cut is known as well, and edges that count as if nobody had chosen by them."""
    world, held, sessions, within = graph("even"), 0, 20, 14.0
    opened = [
        Setting.of(world.declared, world.data, {"epsilon": epsilon, **asked}, delta=1e-9)
        for epsilon, asked in (
            (4.0, {"max_queries": 60, "mechanism": {"construction": "histogram"}}),
            (4.0, {"max_queries": 3, "mechanism": {"construction": "evidence"}}),
        )
    ]
    for seed in range(sessions):
        noise, rng = Drawn(np.random.default_rng(seed)), np.random.default_rng(1000 + seed)
        first, played = (Played(setting, noise) for setting in opened)
        known = first.session.state.learnt.edges  # type: ignore[union-attr]
        played.session.state.learnt.edges.extend(known)  # type: ignore[union-attr]
        played.session.state.noises.extend(first.session.state.noises)  # type: ignore[union-attr]
        off = np.triu(known[0][0] - world.entries, 1)
        off = off + off.T
        one = rng.random(len(off)) < 0.5
        while True:
            gains = np.where(one, 1, -1) * (off @ one - off @ ~one)
            if gains.max() <= 1e-9:
                break
            one[np.argmax(gains)] ^= True
        left, right = np.flatnonzero(one), np.flatnonzero(~one)
        words = {"type": "cut", "left": left.tolist(), "right": right.tolist()}
        told = played.ask(words, Target(within=within, adaptive=True)).accuracy
        assert told is not None
        assert told.highs[0] - told.lows[0] <= 2 * within + 1e-9
        assert told.lows[0] <= told.values[0] <= told.highs[0]
        held += bool(told.lows[0] <= world.entries[np.ix_(left, right)].sum() <= told.highs[0])
    # Fewer than 16 of 20 would be, by chance, three times in a thousand.
    assert held >= 16
