"""Replay of quantiles that are drawn: honest transcripts replay, and whoever changes one is found out.

Played and forged as in :mod:`tests.evidence.test_replay_of_evidence`: every hash agrees, and the content alone can
betray the forger.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from app.audit.replay import Verdict
from app.privacy.ledger import Amounts
from tests.audit.playing import judged
from tests.evidence.test_replay_of_evidence import Player
from tests.kit.forger import Document, resealed
from tests.kit.replays import Replays
from tests.statistics.test_replay_of_statistics import PERSONS, people, played

pytestmark = [pytest.mark.unit, pytest.mark.slow]

MEDIAN: Document = {"type": "quantile", "of": "income", "q": 0.5, "group_by": ["sex"]}
QUESTIONS: list[Document] = [
    MEDIAN,
    MEDIAN | {"q": 0.9},
    {"type": "quantile", "of": "income", "q": 0.5, "where": {"sex": 1, "region": [0, 1, 2, 3]}},
    {"type": "quantile", "of": "income", "q": [0.25, 0.5]},
    {"type": "share", "of": {"income": {"ge": 20_000}}, "group_by": ["sex"]},
    {"type": "mean", "of": "income"},
    MEDIAN,
    MEDIAN | {"group_by": ["region"]},
]


def drawn(player: Player) -> list[Document]:
    """What was drawn, in the order of the questions."""
    told = [json.loads(line) for line in player.lines if b'"quantiles":' in line]
    return [each for each in told if each["record"] == "measurement"]


def holds(player: Player, draws: int) -> Verdict:
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    assert len(drawn(player)) >= draws
    return verdict


@pytest.fixture(scope="module")
def honest() -> Replays:
    return Replays(played(QUESTIONS, epsilon=1.0, max_queries=30).transcript())


@pytest.mark.parametrize("seed", range(3))
def test_honest_sessions_replay(seed: int) -> None:
    """Of Gaussian noise, whatever it is. Catches ranges that another process cuts elsewhere, and a decision that the
    records do not tell."""
    holds(played(QUESTIONS[seed:], seed=seed, epsilon=1.0, max_queries=30), draws=2)


def test_pure_sessions_replay() -> None:
    """The epsilons of draws and counts add up to no more than the session's."""
    player = played([MEDIAN], epsilon=1.0, max_queries=1, left=Amounts(Decimal("0.4"), Decimal(1)))
    holds(player, draws=1)
    assert player.session.plan.regime == "pure"
    (told,) = drawn(player)
    assert Decimal("0.9") < Decimal(told["cost"]["pure"]) <= 1


def test_persons_are_paid_for_with_all_of_their_records() -> None:
    """Three records a person: a draw is charged thrice as much as one of a record is."""
    player = played(QUESTIONS[:3], spec=PERSONS, data=people(100_000), epsilon=1.0, max_queries=5)
    holds(player, draws=1)


def test_they_serve_later_questions_as_counts() -> None:
    """A second question on the same groups finds the counts of the first."""
    (share,) = (q for q in QUESTIONS if q["type"] == "share")
    player = played([MEDIAN, share], epsilon=1.0, max_queries=30)
    holds(player, draws=1)


def first(documents: list[Document]) -> Document:
    """The first draws."""
    return next(d for d in documents if d["record"] == "measurement" and "quantiles" in d["measurement"])


def another_place(documents: list[Document]) -> None:
    first(documents)["measurement"]["values"][0] += 1


def no_place(documents: list[Document]) -> None:
    first(documents)["measurement"]["values"][0] = 10**6


def another_count(documents: list[Document]) -> None:
    first(documents)["measurement"]["values"][8] += 1 << 10


def scale(documents: list[Document]) -> None:
    told = first(documents)["measurement"]["quantiles"]
    told["scale"] = str(Decimal(told["scale"]) / 2)


def noise(documents: list[Document]) -> None:
    told = first(documents)["measurement"]["noise"]
    told["scale"] = str(Decimal(told["scale"]) / 2)


def near(documents: list[Document]) -> None:
    first(documents)["measurement"]["quantiles"]["near"][1] += 1


def marks(documents: list[Document]) -> None:
    told: list[int] = first(documents)["measurement"]["quantiles"]["marks"]
    told.pop(next(k for k in range(1, len(told) - 1) if told[k + 1] - told[k] > 1))


def price(documents: list[Document]) -> None:
    """As if draws were free."""
    cost = first(documents)["cost"]
    cost["renyi"] = str((Decimal(cost["renyi"]) * 3 / 10).quantize(Decimal("1e-24")))


def counts(documents: list[Document]) -> None:
    """A quantile that is told without its draw."""
    answer = next(d for d in documents if d.get("asked") == MEDIAN)
    answer["values"][0] += 100.0


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (another_place, "does not follow"),
        (no_place, ""),
        (another_count, "does not follow"),
        (scale, "not the one that was due"),
        (noise, "not the one that was due"),
        (near, "not the one that was due"),
        (marks, "not the one that was due"),
        (price, "cost is not that of its noise"),
        (counts, "does not follow"),
    ],
)
def test_a_forgery_is_found_out(honest: Replays, forge: Callable[[list[Document]], None], problem: str) -> None:
    """Each would catch the rule that is broken by it, were that missing."""
    documents: list[Any] = honest.documents()
    forge(documents)
    lines = resealed(documents, count=False, updates=False)
    assert sorted(lines) != sorted(honest.honest)
    verdict = honest.verdict(lines)
    assert not verdict.ok
    assert problem in (verdict.problem or ""), verdict.problem
