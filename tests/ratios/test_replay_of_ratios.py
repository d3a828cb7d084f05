"""Replay of ratios: honest transcripts replay, and whoever changes one is found out though every hash agrees."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest

from app.privacy.ledger import Amounts
from tests.audit.playing import judged
from tests.kit.forger import Document
from tests.kit.replays import Replays
from tests.statistics.test_replay_of_statistics import (
    PERSONS,
    largest,
    of,
    own,
    played,
    replays,
    replays_in_any_order,
    without_measurement,
)

pytestmark = [pytest.mark.unit, pytest.mark.slow]

GROUPS = {"type": "ratio", "of": "income", "per": "age", "group_by": ["region"]}
MIXED = {"type": "ratio", "of": "age", "per": "income", "where": {"any": [{"sex": 1}, {"age": {"ge": 65}}]}}
#: Nobody has the last job.
NOBODY = {"type": "ratio", "of": "income", "per": "age", "where": {"job": 5, "region": 8}}
QUESTIONS: list[Document] = [
    {"type": "ratio", "of": "income", "per": "age"},
    GROUPS,
    {"type": "predicate", "where": {"income": {"lt": 10_000}, "sex": 0}},
    MIXED,
    NOBODY,
    {"type": "ratio", "of": "income", "per": "age", "where": {"sex": 0, "all": [{"sex": 1}]}},
    {"type": "mean", "of": "income", "group_by": ["sex"]},
    {"type": "ratio", "of": "income", "per": "age", "where": {"region": 3}},
    GROUPS,
]


@pytest.fixture(scope="module")
def honest() -> Replays:
    return Replays(played(QUESTIONS).transcript())


def test_an_honest_session_replays() -> None:
    """With moments that were measured, free answers, a cached one and one that nobody can give; what is spent is what
    the measurements cost. Catches a rule that an honest session breaks."""
    replays(played(QUESTIONS), cached=1, nobody=2, bought=3)


@pytest.mark.parametrize("seed", range(4))
def test_honest_sessions_replay_whatever_the_noise(seed: int) -> None:
    """Questions in another order and other noise each time. Catches decisions that hang on what is not recorded."""
    replays_in_any_order(QUESTIONS, seed)


def test_persons_are_paid_for_with_all_of_their_records() -> None:
    """Where a person has three records a price is that of noise a third as large, for each moment. Catches a price of
    one record."""
    player = played(QUESTIONS, spec=PERSONS)
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    order, paid = Decimal(player.session.plan.order), 0
    for line in own(player):
        told = line["measurement"]
        if "strategy" in told and told["noise"]["kind"] == "gaussian":
            squared = sum((3 * part["multiplier"] * largest(part["moment"])) ** 2 for part in told["strategy"])
            due = order * squared / (2 * Decimal(told["noise"]["scale"]) ** 2)
            assert 0 <= Decimal(line["cost"]["renyi"]) - due < Decimal("2e-24")
            paid += 1
    assert paid >= 3


def test_a_pure_session_replays() -> None:
    """All of an untouched budget for one question, with Laplace noise. Catches noise of the other sum."""
    player = played([GROUPS], epsilon=1.0, max_queries=1, left=Amounts(Decimal("0.4"), Decimal(1)))
    assert player.session.plan.regime == "pure"
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    parts = [part["moment"] for m in own(player) if m["sequence"] for part in m["measurement"]["strategy"]]
    assert {moment["axis"] for moment in parts if moment is not None} == {1, 3}


# ---------------------------------------------------------------------------------------------- the forger


def value_flipped(documents: list[Document]) -> None:
    answer = of(documents, MIXED)[0]
    answer["value"] = 1 / answer["value"]
    answer["value"] = round(answer["value"] * 2**30) / 2**30


def value_moved(documents: list[Document]) -> None:
    of(documents, GROUPS)[0]["values"][2] += 32.0


def value_for_null(documents: list[Document]) -> None:
    of(documents, NOBODY)[0]["value"] = 512.0


def released_moved(documents: list[Document]) -> None:
    told = of(documents, GROUPS)[1]["measurement"]
    told["values"] = [value + 40 * round(float(told["noise"]["scale"])) for value in told["values"]]


def price(documents: list[Document]) -> None:
    of(documents, GROUPS)[1]["cost"]["renyi"] = "1E-24"


def scale(documents: list[Document]) -> None:
    noise = of(documents, GROUPS)[1]["measurement"]["noise"]
    noise["scale"] = str(Decimal(noise["scale"]) / 2)


def words(documents: list[Document]) -> None:
    """The ratio of other numbers."""
    of(documents, GROUPS)[0]["asked"] = GROUPS | {"of": "age", "per": "income"}


def sums_turned(documents: list[Document]) -> None:
    query = of(documents, GROUPS)[0]["query"]
    query["of"], query["per"] = query["per"], query["of"]


def same_sums(documents: list[Document]) -> None:
    of(documents, GROUPS)[0]["query"]["per"] = 3


def no_numbers(documents: list[Document]) -> None:
    of(documents, GROUPS)[0]["query"]["per"] = 0


def no_such_attribute(documents: list[Document]) -> None:
    of(documents, GROUPS)[0]["query"]["of"] = 17


def part_dropped(documents: list[Document]) -> None:
    """One moment is enough for two."""
    told = of(documents, GROUPS)[1]["measurement"]
    last = told["strategy"].pop()["marginal"]
    cells = np.prod(
        [n if p is None else max(p) + 1 for n, p in zip(last["sizes"], last["partitions"], strict=True)], dtype=int
    )
    del told["values"][-int(cells) :]


def no_measurement(documents: list[Document]) -> None:
    without_measurement(documents, GROUPS)


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (value_flipped, "does not follow"),
        (value_moved, "does not follow"),
        (value_for_null, "a value where none follows"),
        (released_moved, "does not follow"),
        (price, "cost is not that of its noise"),
        (scale, "not the one that was due"),
        (words, "does not compile to the recorded query"),
        (sums_turned, "does not compile to the recorded query"),
        (same_sums, "two attributes"),
        (no_numbers, "on a grid"),
        (no_such_attribute, "on a grid"),
        (part_dropped, "not the one that was due"),
        (no_measurement, "source that it cannot have"),
    ],
)
def test_a_forgery_is_found_out(honest: Replays, forge: Callable[[list[Document]], None], problem: str) -> None:
    """A flipped value among them, and a price that is less than that of its noise."""
    documents = honest.documents()
    forge(documents)
    verdict = honest.forged(documents)
    assert not verdict.ok
    assert problem in str(verdict.problem)
