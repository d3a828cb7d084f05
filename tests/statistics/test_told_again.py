"""What is told of a statistic again, and of what noise made impossible: values lie within their intervals.

They would catch an interval that is gone where the value is there, one beside its value, and one of no width where
nothing is certain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.curator.mechanisms.protocol import Target
from app.declarations.errors import CuratorError
from app.spaces.records import RecordsTensor
from benchmarks.research.coverage_played import Drawn, Played, Setting

pytestmark = [pytest.mark.unit, pytest.mark.slow]

ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "sex", "size": 2},
    {"name": "age", "lower": 0, "upper": 99, "grid": 1, "bins": 5},
    {"name": "kids", "lower": 0, "upper": 10, "grid": 1},
    {"name": "units", "lower": 0, "upper": 40, "grid": 1, "missing": True},
]
STATISTICS: list[dict[str, Any]] = [
    {"type": "mean", "of": "age"},
    {"type": "variance", "of": "kids", "group_by": ["sex"]},
    {"type": "ratio", "of": "kids", "per": "age"},
    {"type": "share", "of": {"kids": {"ge": 1}}, "group_by": ["age"]},
    {"type": "share", "of": {"kids": {"ge": 4}}, "where": {"sex": 1}},
    {"type": "quantile", "of": "kids", "q": [0.1, 0.5, 0.99]},
    {"type": "quantile", "of": "units", "q": 0.5, "group_by": ["sex"]},
]
MORE = [{"type": "marginal", "attributes": ["kids", "sex"]}, {"type": "marginal", "attributes": ["age"]}]


def played(seed: int, number: int, *, pure: bool) -> Played:
    rng = np.random.default_rng(3)
    kids = np.minimum(rng.poisson(0.4, number), 10)
    columns = [rng.integers(0, 2, number), rng.integers(0, 100, number), kids, rng.integers(0, 42, number)]
    asked = {"epsilon": 1, "mechanism": {"construction": "evidence"}} | ({"max_queries": 9} if pure else {})
    data = RecordsTensor(tuple(columns), (2, 100, 11, 42))
    setting = Setting.of({"kind": "table", "attributes": ATTRIBUTES}, data, asked, delta=1e-9, pure=pure)
    return Played(setting, Drawn(np.random.default_rng(seed)))


def check(told: Any) -> int:
    """Each value has an interval around it, which is no point but where all is certain; how many there are."""
    there = ~np.isnan(told.values)
    lows, highs = told.accuracy.lows[there], told.accuracy.highs[there]
    assert not np.isnan(lows).any()
    assert not np.isnan(highs).any()
    assert (lows <= told.values[there]).all()
    assert (told.values[there] <= highs).all()
    return int(there.sum())


@pytest.mark.parametrize("pure", [True, False], ids=["pure", "gaussian"])
@pytest.mark.parametrize("number", [30, 600])
def test_values_lie_within_their_intervals(number: int, pure: bool) -> None:
    """Told first, told again after more was measured, and told of another confidence."""
    told = 0
    for seed in range(12):
        session = played(seed, number, pure=pure)
        for words in STATISTICS:
            try:
                check(session.ask(words))
            except CuratorError:
                continue  # too little is left
            for other in MORE:
                session.ask(other)
            told += check(session.ask(words))
            for confidence in (0.5, 0.999):
                check(session.ask(words, Target(confidence=confidence)))
    assert told > 5


def test_a_share_below_none_is_no_certain_one() -> None:
    """Noise may leave less than no part of a group. Would catch an interval of nothing but 0, which says that nobody
    is there."""
    points = 0
    for seed in range(30):
        told = played(seed, 600, pure=False).ask(STATISTICS[3])
        there = ~np.isnan(told.values)
        points += int((told.accuracy.lows[there] == told.accuracy.highs[there]).sum())
    assert not points


@pytest.mark.parametrize("group", [None, ["sex"]])
def test_what_conditions_on_the_numbers_exclude_is_not_told(group: list[str] | None) -> None:
    """Of ages from 20 to 24 none is another. Would catch a mean that nobody of those asked about can have, and margins
    as wide as all that was declared."""
    asked: dict[str, Any] = {"of": "age", "where": {"age": {"ge": 20, "lt": 25}}} | (
        {"group_by": group} if group else {}
    )
    told = 0
    for seed in range(10):
        session = played(seed, 600, pure=bool(seed % 2))
        for kind, (least, most) in (("mean", (20, 24)), ("quantile", (20, 24)), ("variance", (0, 4))):
            answer = session.ask({"type": kind, **asked} | ({"q": 0.3} if kind == "quantile" else {}))
            told += check(answer)
            there = ~np.isnan(answer.values)
            for numbers in (answer.values, answer.accuracy.lows, answer.accuracy.highs):
                assert ((least <= numbers[there]) & (numbers[there] <= most)).all()
    assert told > 5
