"""When quantiles are drawn, what is shown of them, and how often their intervals hold."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from app.estimation.tables.residuals import Residuals, imagined
from app.measurements.pieces import pieces_of
from app.measurements.record import Measurement
from app.measurements.strategies.drawn import DrawnQuantiles
from app.policies.foretelling import Foretelling
from app.policies.quantiles import DRAWN_PART, Place, Quantile, _around
from app.policies.statistics import Statistics
from app.policies.table import Policy, Wanted
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Groups, Product, Question
from tests.evidence.asking import Asking
from tests.kit.noise import Seeded
from tests.statistics.test_statistics_policy import AXIS, RENYI, World, means

pytestmark = pytest.mark.unit

PARTS, NUMBERS = 3, 400


def table(each: int, parts: int = PARTS, seed: int = 1, missing: bool = False) -> np.ndarray:
    """Groups of so many records each, whose numbers crowd at the lower end, each group's elsewhere; on some round
    numbers more than beside them."""
    rng = np.random.default_rng(seed)
    found = np.zeros((parts, NUMBERS + missing, 1))
    for part in range(parts):
        own = np.clip(rng.lognormal(3.5 + 0.4 * part, 0.8, each), 0, NUMBERS - 1).astype(int)
        own = np.where(rng.random(each) < 0.3, own // 10 * 10, own)
        found[part, :, 0] = np.bincount(own, minlength=NUMBERS + missing)
    if missing:
        found[:, -1] = each // 10
    return found


def asking(world: World, levels: tuple[float, ...] = (0.5,), question: Question | None = None) -> Asking:
    question = Cells(Marginal.of(world.table.shape, {0: None})) if question is None else question
    return Asking.of("quantile", question, (AXIS, NUMBERS, 0.0, 1.0), levels)


def bought(
    counts: np.ndarray, levels: tuple[float, ...] = (0.5,), *, pure: bool = True, question: Question | None = None
) -> tuple[World, Wanted]:
    """What a first quantile buys, where the numbers of records by group are known."""
    world = World.of(counts, NUMBERS, False, means(1.0, pure=pure, questions=1 if pure else 40))
    world.add(np.random.default_rng(1), None, Marginal.of(counts.shape, {0: None}), 3.0)
    buy = world.statistics.decide(asking(world, levels, question), 1.0 if pure else RENYI, None, 0.95)
    assert buy is not None
    return world, buy


def is_drawn(counts: np.ndarray, *more: Any, **words: Any) -> bool:
    return isinstance(bought(counts, *more, **words)[1].strategy, DrawnQuantiles)


def test_a_quantile_of_large_groups_is_drawn() -> None:
    """By group and of all, of pure and of Gaussian noise, and where some have no number. Would catch a rule that never
    holds, and draws of groups where the tails of the range would be drawn as often."""
    assert is_drawn(table(20_000))
    assert is_drawn(table(20_000), pure=False)
    assert is_drawn(table(20_000, missing=True))
    assert is_drawn(table(20_000), (0.9,))
    assert not is_drawn(table(60))
    some = table(20_000)
    some[1] = table(60)[1]
    assert not is_drawn(some)
    assert not is_drawn(table(600), (0.999,))


def test_several_levels_are_drawn_at_once() -> None:
    """Would catch a level that is left out, and a draw where the farthest level lies in the tails, though others do
    not."""
    for pure in (True, False):
        strategy = bought(table(20_000), (0.25, 0.5, 0.75), pure=pure)[1].strategy
        assert isinstance(strategy, DrawnQuantiles)
        assert strategy.levels == (250_000, 500_000, 750_000)
    assert not is_drawn(table(600), (0.5, 0.999))


def test_levels_that_are_nearly_the_same_are_counted() -> None:
    """0.3 and 0.1 + 0.2, which are one level in what is drawn. Would catch an answer that fails each time."""
    assert not is_drawn(table(20_000), (0.3, 0.1 + 0.2))
    assert not is_drawn(table(20_000), (0.25, 0.5, 0.5000000000005))


def test_many_levels_look_at_no_more_blocks_than_a_few() -> None:
    """Of 300,000 numbers, and of 19 levels. Would catch a draw that takes seconds."""
    places = 300_000
    policy = Policy(Residuals((places,), 1_000_000.0), means(8.0, pure=True, questions=1))
    asked = Asking.of(
        "quantile", Product.over({}), (0, places, 0.0, 1.0), tuple(np.round(np.arange(0.05, 0.96, 0.05), 2).tolist())
    )
    buy = Statistics(policy, {}).decide(asked, 8.0, None, 0.95)
    assert buy is not None
    assert isinstance(buy.strategy, DrawnQuantiles)
    assert 1 << 18 < buy.strategy.parts[0].marginal.cells * len(asked.levels) <= 1 << 19


def test_ranges_of_very_many_records_are_cut_as_fast() -> None:
    """Of a thousand million records noise hides so few that ranges might be counted by the million, for each level.
    Would catch a plan of a hundred levels that takes a minute."""
    within = np.linspace(0, 1, 10_001)[1:]
    ends = _around(within, [Place(0.5, 0.5, 1.0, 1e-9)])
    assert 1_000 < len(ends) < 10_000


@pytest.mark.parametrize("spread", [1.0, 0.1])
def test_several_quantiles_are_told_by_the_same_ranges(spread: float) -> None:
    """Quartiles that may lie anywhere take hardly more ranges than a median, and none of them short; those that are
    known better are told finely, each. Would catch ranges that are cut for each level by itself, and have three times
    the noise together."""
    within, hidden = np.linspace(0, 1, 100_001)[1:], 0.005
    levels = (0.25, 0.5, 0.75)
    ends = _around(within, [Place(level, level, spread, hidden) for level in levels])
    median = _around(within, [Place(0.5, 0.5, spread, hidden)])
    assert (np.diff(within[ends]) > 3.9 * hidden).all()
    assert len(ends) < (2 if spread == 1 else 3) * len(median)
    for level in levels:
        assert np.abs(within[ends] - level).min() < (0.001 if spread < 1 else 0.03)


def test_under_a_condition_on_the_numbers_themselves_they_are_counted() -> None:
    inside = np.zeros(NUMBERS)
    inside[:100] = 1
    counts = table(20_000)
    world = World.of(counts, NUMBERS, False, means(1.0, pure=True, questions=1))
    cut = Partition.of(inside)
    world.add(np.random.default_rng(1), None, Marginal.of(counts.shape, {0: None, AXIS: cut}), 3.0)
    buy = world.statistics.decide(asking(world, question=Product.over({AXIS: inside})), 1.0, None, 0.95)
    assert buy is not None
    assert not isinstance(buy.strategy, DrawnQuantiles)


def test_under_a_condition_one_group_is_drawn_for() -> None:
    """The records that satisfy it, and not the others. Would catch ranges that are cut for records nobody asks for."""
    _, buy = bought(table(20_000), question=Product.over({0: np.array([0.0, 1.0, 0.0])}))
    assert isinstance(buy.strategy, DrawnQuantiles)
    assert [near is None for near in buy.strategy.near] == [True, False]


def test_records_of_several_cells_are_counted() -> None:
    """A condition of several alternatives: draws of each say nothing of all. Would catch a draw that is paid for and
    never shown."""
    counts = np.stack([table(20_000)] * 2, axis=2).reshape(PARTS, NUMBERS, 2)
    world = World.of(counts, NUMBERS, False, means(1.0, pure=True, questions=1))
    world.add(np.random.default_rng(1), None, Marginal.of(counts.shape, {0: None, 2: None}), 3.0)
    whole = Marginal.of(counts.shape, {0: None, 2: None})
    either = Groups(whole, np.array([[0, 0], [0, -1], [-1, -1]]), ())
    buy = world.statistics.decide(asking(world, question=either), 1.0, None, 0.95)
    assert buy is not None
    assert not isinstance(buy.strategy, DrawnQuantiles)


@pytest.mark.parametrize("levels", [(0.5,), (0.25, 0.5, 0.75)])
def test_first_quantiles_of_few_numbers_are_counted(levels: tuple[float, ...]) -> None:
    """Of 25,000 records where nobody knows how they are spread: whatever lies in a range of two of 50 numbers, it is
    told to the number, and a draw tells no more. Amounts may crowd in one range. Would catch ages that are taken to
    crowd as amounts do, and draws of parts of a number."""
    for places, drawn in ((50, False), (5_000, True)):
        policy = Policy(Residuals((2, places, 2), 25_000.0), means(1.0, pure=True, questions=3))
        policy.mode = "laplace"
        asked = Asking.of("quantile", Product.over({}), (AXIS, places, 0.0, 1.0), levels)
        buy = Statistics(policy, {}).decide(asked, 1.0, None, 0.95)
        assert buy is not None
        assert isinstance(buy.strategy, DrawnQuantiles) == drawn


def test_the_last_quantile_is_drawn_sooner() -> None:
    """With the same share a median is drawn where nothing comes after it, and counted where a question does, or nobody
    said how many there are; quartiles are counted. Would catch a rule that looks at how many were declared, and counts
    for later questions that there are none of."""
    for asked, declared, levels in ((0, 1, 1), (1, 2, 1), (0, 2, 1), (0, None, 1), (0, 1, 3)):
        policy = Policy(Residuals((2, 50, 2), 25_000.0), means(1.0, pure=True, questions=declared))
        policy.mode, question = "laplace", Product.over({})
        for _ in range(asked):
            policy.note(question, paid=True)
        left = 0.2 / (policy.share(question, 1.0))
        words = Asking.of("quantile", question, (AXIS, 50, 0.0, 1.0), (0.5, 0.25, 0.75)[:levels])
        buy = Statistics(policy, {}).decide(words, left, None, 0.95)
        assert buy is not None
        assert isinstance(buy.strategy, DrawnQuantiles) == (declared == asked + 1 and levels == 1)


@pytest.mark.parametrize(("level", "drawn"), [(1 - 0.7, True), (0.3, True), (0.5000004, False), (1e-7, False)])
def test_levels_are_drawn_for_as_they_are_asked(level: float, drawn: bool) -> None:
    """However they were computed; those of more digits are counted. Would catch a draw that is taken for another
    level's, and never shown."""
    counts = table(20_000)
    world, buy = bought(counts, (level,))
    assert isinstance(buy.strategy, DrawnQuantiles) == drawn
    if drawn:
        learnt(world, buy, np.random.default_rng(4))
        found = Quantile(world.policy, {}, asking(world, (level,)))._distributions()
        assert found is not None
        assert all(one._drawn(level)[1] < math.inf for one in found)


def test_very_many_groups_are_counted() -> None:
    """Of a few numbers each, and large. Would catch draws that take seconds, and a refusal where there are more groups
    than ranges."""
    counts = np.full((600, 4, 1), 5000.0)
    world = World.of(counts, 4, False, means(8.0, pure=True, questions=1))
    world.add(np.random.default_rng(1), None, Marginal.of(counts.shape, {0: None}), 3.0)
    question = Cells(Marginal.of(counts.shape, {0: None}))
    asked = Asking.of("quantile", question, (AXIS, 4, 0.0, 1.0), (0.5,))
    buy = world.statistics.decide(asked, 8.0, None, 0.95)
    assert buy is not None
    assert not isinstance(buy.strategy, DrawnQuantiles)


def test_deciding_takes_little_memory() -> None:
    """Of a hundred groups and 200,000 numbers, which some do not have: what is decided on is the groups. Would catch an
    array of all numbers for each."""
    places = 200_000
    shape = (100, places + 1, 1)
    residuals = Residuals(shape, 2_000_000.0)
    policy = Policy(residuals, means(8.0, pure=True, questions=1))
    valued = Marginal.of(shape, {0: None, AXIS: Partition.runs(places + 1, [0, places])})
    told = np.full(valued.shape, 20_000.0)
    residuals.add(imagined(valued, 1.0, told))
    question = Groups(valued, np.stack([np.arange(100), np.full(100, -1)], axis=1), (100,))
    asked = Asking.of("quantile", question, (AXIS, places, 0.0, 1.0), (0.5,))
    tracemalloc.start()
    try:
        buy = Statistics(policy, {}).decide(asked, 8.0, None, 0.95)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert buy is not None
    assert isinstance(buy.strategy, DrawnQuantiles)
    assert peak < 80 << 20


@pytest.mark.parametrize("levels", [(0.5,), (0.25, 0.5, 0.75), (0.1, 0.5)])
def test_the_price_is_divided_as_is_said(levels: tuple[float, ...]) -> None:
    """Of pure noise: the part that draws, which all levels share, and the rest. Would catch a part that is paid twice,
    or not used, and levels that each take all of it."""
    world, buy = bought(table(20_000), levels)
    assert isinstance(buy.strategy, DrawnQuantiles)
    share = world.policy.share(asking(world).question, 1.0)
    # A block is as likely as another by a factor of e where its score is a scale higher; a record moves scores so far.
    told = sum(2 * max(level, 1 - level) for level in levels) / float(buy.strategy.scale)
    assert told == pytest.approx(DRAWN_PART * share, rel=0.01)
    assert 1 / float(buy.noise.scale) == pytest.approx((1 - DRAWN_PART) * share, rel=0.01)


@pytest.mark.parametrize("levels", [(0.5,), (0.25, 0.5, 0.75)])
def test_a_share_of_gaussian_noise_is_used_and_not_passed(levels: tuple[float, ...]) -> None:
    """By the bound on the divergence of a draw of bounded range, a eps^2 / 8 at order a, and that of Gaussian noise."""
    world, buy = bought(table(20_000), levels, pure=False)
    assert isinstance(buy.strategy, DrawnQuantiles)
    order, share = float(world.policy.funds.order), world.policy.share(asking(world).question, RENYI)
    moved = [2 * max(level, 1 - level) / float(buy.strategy.scale) for level in levels]
    paid = order * (sum(one**2 for one in moved) / 8 + 1 / (2 * buy.noise.variance))
    assert 0.98 * share <= paid <= share * (1 + 1e-9)


def learnt(world: World, buy: Wanted, rng: np.random.Generator, stretch: float = 1.0) -> None:
    """Take in what was bought, with noise that is so much larger than is told."""
    assert isinstance(buy.strategy, DrawnQuantiles)
    marginal = buy.strategy.parts[0].marginal
    cells = world.table[:, :, 0].astype(np.int64)
    assert marginal.shape == cells.shape
    noise = replace(buy.noise, scale=buy.noise.scale * Decimal(stretch))
    units = buy.strategy.released(cells.reshape(-1), noise, Seeded(rng))
    for _, piece in pieces_of(Measurement(buy.strategy, buy.noise, units)):
        world.residuals.add(piece)


@pytest.mark.parametrize("levels", [(0.5,), (0.25, 0.5, 0.75)])
@pytest.mark.parametrize("pure", [True, False])
def test_what_was_drawn_is_not_drawn_again_for_as_much(pure: bool, levels: tuple[float, ...]) -> None:
    """In another session that pays as much: several levels that share what draws may be counted there, now that it is
    known where, but seldom. For nine times as much they are bought again. Would catch a rule that looks at the counts
    beside the draws alone, which have three tenths of the price, and one that never buys what is known a little."""
    world, _ = bought(table(20_000), levels, pure=pure)
    # So little that draws are off by more than a number.
    share = (0.05 if len(levels) == 1 else 0.15) if pure else RENYI / (40 if len(levels) == 1 else 5)
    buy = world.statistics.decide(asking(world, levels), share, None, 0.95)
    assert buy is not None
    counted = 0
    for seed in range(8):
        again = World.of(world.table, NUMBERS, False, means(1.0, pure=pure, questions=1 if pure else 40))
        again.add(np.random.default_rng(seed), None, Marginal.of(world.table.shape, {0: None}), 3.0)
        learnt(again, buy, np.random.default_rng(seed))
        other = again.statistics.decide(asking(again, levels), share, None, 0.95)
        assert other is None or not isinstance(other.strategy, DrawnQuantiles)
        counted += other is not None
        assert again.statistics.decide(asking(again, levels), 9 * share, None, 0.95) is not None
    assert counted <= (2 if len(levels) > 1 else 0)


@pytest.mark.parametrize("levels", [(0.5,), (0.25, 0.5, 0.75)])
@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize("stretch", [1.0, 1.5])
def test_intervals_hold(pure: bool, stretch: float, levels: tuple[float, ...]) -> None:
    """Over 200 draws by three groups: quantiles are in 93% of nominal 95% intervals or more, and what is known of the
    number below an end is off by as much as is said. The planted fault is noise of a larger deviation than is told: it
    is seen in the latter. Would catch intervals that take what was drawn for known."""
    counts = table(20_000)
    _, buy = bought(counts, levels, pure=pure)
    below = np.cumsum(counts[:, :, 0], axis=1)
    truth = np.array([int(np.searchsorted(own, level * own[-1])) for own in below for level in levels])
    rng, held, squares, off = np.random.default_rng(7), [], [], []
    for _ in range(200):
        world = World.of(counts, NUMBERS, False, means(1.0, pure=pure, questions=1 if pure else 40))
        learnt(world, buy, rng, stretch)
        asked = asking(world, levels)
        shown = world.statistics.shown(asked, 0.95, False)
        held += ((shown.lows <= truth) & (truth <= shown.highs)).tolist()
        assert ((shown.lows <= shown.values) & (shown.values <= shown.highs)).all()
        off += np.abs(shown.values - truth).tolist()
        found = Quantile(world.policy, {}, asked)._distributions()
        assert found is not None
        for one, own in zip(found, below, strict=True):
            end = int(np.abs(one.below - one.total / 2)[1:-1].argmin()) + 1
            left = one.below[end] - one.total / 2 - (own[one.ends[end] - 1] - own[-1] / 2)
            squares.append((left / one.errors(0.5)[end]) ** 2)
    within = abs(float(np.mean(squares)) - 1) < 0.35
    assert within == (stretch == 1)
    if within:
        assert np.mean(held) >= 0.93
        assert np.mean(off) < 1.5


def test_draws_that_cross_are_shown_in_order() -> None:
    """What was drawn for three levels comes in the opposite order, within what counts tell. Would catch a first
    quartile above the median."""
    counts = table(20_000)
    levels = (0.49, 0.5, 0.51)
    _, buy = bought(counts, levels)
    assert isinstance(buy.strategy, DrawnQuantiles)
    medians = [int(np.searchsorted(np.cumsum(own), own.sum() / 2)) for own in counts[:, :, 0]]
    places = iter([median + step for median in medians for step in (1, 0, -1)])

    class Told(Seeded):
        def choose(self, _scores: Any, _scale: Any) -> int:
            return next(places)

    world = World.of(counts, NUMBERS, False, means(1.0, pure=True, questions=1))
    exact = counts[:, :, 0].astype(np.int64).reshape(-1)
    units = buy.strategy.released(exact, buy.noise, Told(np.random.default_rng(3)))
    for _, piece in pieces_of(Measurement(buy.strategy, buy.noise, units)):
        world.residuals.add(piece)
    shown = world.statistics.shown(asking(world, levels), 0.95, False).values.reshape(PARTS, len(levels))
    assert (np.diff(shown, axis=1) >= 0).all()
    assert shown[:, 1].tolist() == medians
    assert (np.diff(shown, axis=1) > 0).any()


def test_a_draw_is_shown_where_counts_know_it_no_better() -> None:
    """And never outside of what counts tell: one that counts exclude is moved to their end."""
    counts = table(20_000)
    _, buy = bought(counts)
    for place, kept in ((None, True), (NUMBERS - 1, False)):
        world = World.of(counts, NUMBERS, False, means(1.0, pure=True, questions=1))

        class Told(Seeded):
            def choose(self, scores: Any, scale: Any) -> int:
                return super().choose(scores, scale) if place is None else place  # noqa: B023

        assert isinstance(buy.strategy, DrawnQuantiles)
        exact = counts[:, :, 0].astype(np.int64).reshape(-1)
        units = buy.strategy.released(exact, buy.noise, Told(np.random.default_rng(3)))
        ((_, piece),) = pieces_of(Measurement(buy.strategy, buy.noise, units))
        world.residuals.add(piece)
        shown = world.statistics.shown(asking(world), 0.95, False)
        draws = piece.draws.places[:, 0]  # type: ignore[union-attr]
        assert (shown.values == draws).all() == kept
        assert (shown.values <= shown.highs).all()
        assert kept or (shown.highs < NUMBERS - 1).all()


def test_the_reach_is_foretold() -> None:
    """Half widths as if what is expected were drawn and counted: within a factor of two of those that come of it.
    Would catch a price that says of every number that it may be anywhere, or that all of them are counted."""
    counts = table(20_000)
    world, buy = bought(counts)
    foretold = Foretelling(world.policy, (), 1.0).reaches(asking(world), buy, 0.95)
    learnt(world, buy, np.random.default_rng(2))
    shown = world.statistics.shown(asking(world), 0.95, False)
    arms = (shown.highs - shown.lows) / 2
    assert not np.isnan(foretold).any()
    assert math.exp(abs(float(np.log((foretold + 0.5) / (arms + 0.5)).mean()))) < 2
