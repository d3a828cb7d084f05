"""An audit of ratios: all that was measured for them, held against its record, and how often intervals hold.

What is released is held against its records as that of other statistics is, in
:mod:`tests.statistics.test_statistics_audit`: every part is computed anew, record by record, and what is left must be
draws of the stated law, which was charged.

Intervals of one purchase, released again and again, must hold as often as they say: less would mislead, and more would
mean that what the noise of both sums has in common is left out.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.estimation.tables.joint import Joint
from app.policies import ratios
from app.spaces.partition import Marginal
from app.spaces.tensor import FloatArray
from tests.kit.noise import Scaled
from tests.ratios.test_ratios_policy import HOURS, PAY, RENYI, TABLES, World, exact_ratio, funds, groups_of
from tests.sessions.test_direct_audit import alarms
from tests.statistics.test_statistics_audit import released, shared

pytestmark = pytest.mark.statistical

QUESTIONS: list[dict[str, Any]] = [
    {"type": "ratio", "of": of, "per": per, **words}
    for of, per in (("income", "age"), ("age", "income"))
    for words in (
        {"group_by": ["region"]},
        {"group_by": ["region", "sex"]},
        {"group_by": ["region"], "where": {"income": {"ge": 5000}}},
        {"group_by": ["region"], "where": {"any": [{"sex": 1}, {"age": {"lt": 40}}]}},
        {"group_by": ["region", "sex"], "where": {"age": {"ge": 50}}},
        {"group_by": ["region"], "where": {"sex": 1, "age": {"lt": 50}}},
        {"group_by": ["region"], "where": {"job": {"between": [0, 249]}}},
    )
]


def test_every_part_has_the_noise_that_its_record_states(tmp_path: Path) -> None:
    """Some thousand values. Catches noise of another scale than stated and paid for, a price of one of the moments
    alone, and noise that they share."""
    left = released(tmp_path, SystemNoise(), replayed=True, questions=QUESTIONS)
    assert sum(map(len, left)) > 1000
    assert alarms(np.concatenate(left), "gaussian") == []
    assert not shared(left)


def test_noise_30_percent_too_small_is_found(tmp_path: Path) -> None:
    left = released(tmp_path, Scaled(Fraction(7, 10)), questions=QUESTIONS)
    assert "size" in alarms(np.concatenate(left), "gaussian")


# How often intervals hold.


def held(confidence: float, *, bought: bool, missing: bool) -> float:
    """The part of intervals that hold what is true, of the ratios of four groups in 150 draws of the noise: of a
    purchase that a session makes, or of numbers of records that are known far worse than the moments beside them."""
    table = TABLES[missing, missing]
    words: dict[str, Any] = {"group_by": ["city", "sex"]}
    query, first = table.ratio(**words), World(table, 1)
    truth = [exact_ratio(first, "pay", "hours", table.kept({}, group)) for group in groups_of(table, words)]
    true = np.array([float(one) for one in truth if one is not None])
    buy = first.statistics.decide(query, RENYI, None, confidence)
    assert buy is not None
    groups = dict.fromkeys((0, 3))
    found = []
    for draw in range(150):
        world = World(table, 1, allowed=funds())
        world.rng = np.random.default_rng(draw)
        if bought:
            world.learn(buy)
        for axis, sigma in () if bought else ((PAY, 6.0), (HOURS, 6.0)):
            world.add(axis, world.valued(axis, groups), sigma)
        world.add(None, Marginal.of(table.sizes, groups | dict.fromkeys((PAY, HOURS) if missing else ())), 20.0)
        shown = world.statistics.shown(query, confidence, False)
        assert shown.unbiased.all()
        lows, highs = query.ordered(shown.lows), query.ordered(shown.highs)
        found += ((lows <= true) & (true <= highs)).tolist()
    assert len(found) == 600
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("confidence", "bought", "missing"), [(0.8, True, False), (0.95, True, True), (0.8, False, False)]
)
def test_intervals_hold(confidence: float, bought: bool, missing: bool) -> None:
    """Of six hundred, within three standard deviations."""
    assert (
        abs(held(confidence, bought=bought, missing=missing) - confidence)
        < 3.1 * (confidence * (1 - confidence) / 600) ** 0.5
    )


def test_sums_that_are_taken_for_independent_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: intervals from the variances of the two sums, as if the number of records were not in both."""
    proper = ratios.fieller_mean

    def alone(known: Joint, reach: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        covariances = known.covariances.copy()
        covariances[:, [0, 1], [1, 0]] = 0.0
        return proper(Joint(known.values, covariances), reach)

    monkeypatch.setattr(ratios, "fieller_mean", alone)
    assert held(0.8, bought=False, missing=False) > 0.86
