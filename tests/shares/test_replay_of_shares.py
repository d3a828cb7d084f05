"""Replay of shares: honest transcripts replay, and whoever changes one is found out though every hash agrees."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from tests.audit.playing import judged
from tests.kit.forger import Document
from tests.kit.replays import Replays
from tests.statistics.test_replay_of_statistics import (
    PERSONS,
    of,
    own,
    played,
    replays,
    replays_in_any_order,
    without_measurement,
)

pytestmark = [pytest.mark.unit, pytest.mark.slow]

GROUPS = {"type": "share", "of": {"income": {"ge": 20_000}, "age": {"lt": 50}}, "group_by": ["region"]}
MIXED = {"type": "share", "of": {"any": [{"sex": 1}, {"age": {"ge": 65}}]}, "where": {"not": {"region": 0, "sex": 0}}}
#: Nobody has the last job.
NOBODY = {"type": "share", "of": {"sex": 1}, "where": {"job": 5, "region": 8}}
QUESTIONS: list[Document] = [
    {"type": "share", "of": {"income": None}},
    GROUPS,
    {"type": "predicate", "where": {"income": {"lt": 10_000}, "sex": 0}},
    MIXED,
    NOBODY,
    {"type": "share", "of": {"sex": 1}, "where": {"sex": 0, "all": [{"sex": 1}]}},
    {"type": "mean", "of": "income", "group_by": ["sex"]},
    {"type": "share", "of": {"income": {"ge": 20_000}}, "where": {"region": 3}},
    GROUPS,
]


@pytest.fixture(scope="module")
def honest() -> Replays:
    return Replays(played(QUESTIONS).transcript())


def test_an_honest_session_replays() -> None:
    """With counts that were measured, free answers, a cached one and one that nobody can give; what is spent is what
    the measurements cost. Catches a rule that an honest session breaks."""
    replays(played(QUESTIONS), cached=1, nobody=2, bought=3)


@pytest.mark.parametrize("seed", range(4))
def test_honest_sessions_replay_whatever_the_noise(seed: int) -> None:
    """Questions in another order and other noise each time. Catches decisions that hang on what is not recorded."""
    replays_in_any_order(QUESTIONS, seed)


def test_persons_are_paid_for_with_all_of_their_records() -> None:
    """Where a person has three records a price is that of noise a third as large. Catches a price of one record."""
    player = played(QUESTIONS, spec=PERSONS)
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    order = Decimal(player.session.plan.order)
    for line in own(player):
        told = line["measurement"]
        parts = told.get("strategy", [{"multiplier": 1}])
        squared = sum((3 * part["multiplier"]) ** 2 for part in parts)
        if told["noise"]["kind"] == "gaussian" and all(part.get("moment") is None for part in parts):
            due = order * squared / (2 * Decimal(told["noise"]["scale"]) ** 2)
            assert 0 <= Decimal(line["cost"]["renyi"]) - due < Decimal("2e-24")


# ---------------------------------------------------------------------------------------------- the forger


def value_flipped(documents: list[Document]) -> None:
    answer = of(documents, MIXED)[0]
    answer["value"] = 1 - answer["value"]


def value_moved(documents: list[Document]) -> None:
    of(documents, GROUPS)[0]["values"][2] += 2.0**-7


def value_for_null(documents: list[Document]) -> None:
    of(documents, NOBODY)[0]["value"] = 0.5


def released_moved(documents: list[Document]) -> None:
    told = of(documents, GROUPS)[1]["measurement"]
    told["values"][0] += 40 * round(float(told["noise"]["scale"]))


def price(documents: list[Document]) -> None:
    of(documents, GROUPS)[1]["cost"]["renyi"] = "1E-24"


def scale(documents: list[Document]) -> None:
    noise = of(documents, GROUPS)[1]["measurement"]["noise"]
    noise["scale"] = str(Decimal(noise["scale"]) / 2)


def words(documents: list[Document]) -> None:
    """The share of others."""
    of(documents, GROUPS)[0]["asked"] = GROUPS | {"of": {"income": {"ge": 30_000}, "age": {"lt": 50}}}


def part(documents: list[Document]) -> None:
    """Both forms say that all were asked for."""
    of(documents, GROUPS)[0]["query"]["of"] = {"axes": [], "type": "product"}


def kind(documents: list[Document]) -> None:
    of(documents, GROUPS)[0]["query"]["type"] = "mean"


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
        (part, "whatever the records are"),
        (kind, "canonical"),
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
