"""Replay of weighted questions: honest transcripts replay, and whoever changes one is found out though every hash
agrees."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest

from app.privacy.ledger import Amounts
from app.spaces.records import RecordsTensor
from tests.audit.playing import judged
from tests.evidence.test_replay_of_evidence import Player
from tests.kit.forger import Document
from tests.kit.replays import Replays
from tests.statistics.test_replay_of_statistics import (
    SPEC,
    of,
    own,
    played,
    replays,
    squares,
    without_measurement,
)

pytestmark = [pytest.mark.unit, pytest.mark.slow]

#: Ages are weights.
WEIGHED = SPEC | {
    "attributes": [one | {"role": "weight"} if one["name"] == "age" else one for one in SPEC["attributes"]]
}
PERSONS = WEIGHED | {"unit": {"column": "who", "max_records": 3}}
MEAN = {"type": "mean", "of": "income", "group_by": ["region"], "weighted": True}
MEDIAN = {"type": "quantile", "of": "income", "q": 0.5, "where": {"sex": 1}, "weighted": True}
SHARE = {"type": "share", "of": {"sex": 1}, "group_by": ["region"], "weighted": True}
#: Nobody has the last job.
NOBODY = {"type": "mean", "of": "income", "where": {"job": 5, "region": 8}, "weighted": True}
QUESTIONS: list[Document] = [
    {"type": "predicate", "where": {"sex": 1}, "weighted": True},
    {"type": "predicate", "where": {"sex": 1}},
    MEAN,
    {"type": "mean", "of": "income", "group_by": ["region"]},
    SHARE,
    {"type": "share", "of": {"any": [{"sex": 1}, {"age": {"ge": 60}}]}, "where": {"region": [1, 2]}, "weighted": True},
    NOBODY,
    MEDIAN,
    {"type": "quantile", "of": "income", "q": 0.5, "where": {"sex": 1}},
    {"type": "marginal", "attributes": ["region"], "weighted": True},
    {"type": "sum", "of": "age", "where": {"sex": 1}},
    MEAN,
]


@pytest.fixture(scope="module")
def honest() -> Replays:
    return Replays(played(QUESTIONS, spec=WEIGHED).transcript())


def test_an_honest_session_replays() -> None:
    """With products that were measured, free answers, cached ones and one that nobody can give; what is spent is what
    the measurements cost. Catches a rule that an honest session breaks, and a weighted question that is taken for the
    one without weights."""
    replays(played(QUESTIONS, spec=WEIGHED), cached=2, nobody=1, bought=3)


@pytest.mark.parametrize("seed", range(3))
def test_honest_sessions_replay_whatever_the_noise(seed: int) -> None:
    """Other noise and shares of the budget each time. Catches decisions that hang on what is not recorded."""
    verdict = judged(played(QUESTIONS[::-1], spec=WEIGHED, seed=seed, epsilon=[0.05, 0.2, 1.0][seed]).transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


def test_persons_are_paid_for_with_all_of_their_records() -> None:
    """Where a person has three records, each of the largest weight. Catches a price of one record, or of a number
    without its weight."""
    player = played(QUESTIONS, spec=PERSONS)
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
    order, products = Decimal(player.session.plan.order), 0
    for line in own(player):
        told = line["measurement"]
        if "strategy" in told and told["noise"]["kind"] == "gaussian":
            squared = sum((3 * part["multiplier"]) ** 2 * squares(part) for part in told["strategy"])
            due = order * squared / (2 * Decimal(told["noise"]["scale"]) ** 2)
            assert 0 <= Decimal(line["cost"]["renyi"]) - due < Decimal("2e-24")
            products += any(part["moment"] and "times" in part["moment"] for part in told["strategy"])
    assert products >= 1


@pytest.mark.parametrize("question", [MEAN, SHARE, MEDIAN])
def test_pure_sessions_replay(question: Document) -> None:
    """All of an untouched budget for one question, with Laplace noise."""
    player = played([question], spec=WEIGHED, epsilon=1.0, max_queries=1, left=Amounts(Decimal("0.4"), Decimal(1)))
    assert player.session.plan.regime == "pure"
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


def test_the_whole_table_tells_weights() -> None:
    """A session that measured all cells answers weighted questions free. Catches a whole table of which weighted
    questions are not told."""
    attributes = [SPEC["attributes"][0], {"name": "age", "lower": 2, "upper": 12, "grid": 1, "role": "weight"}]
    attributes.append({"name": "pay", "lower": 0, "upper": 6, "grid": 1})
    rng = np.random.default_rng(2)
    data = RecordsTensor([rng.integers(0, n, 5000).astype(np.uint8) for n in (2, 11, 7)], (2, 11, 7))
    player = Player(spec=SPEC | {"attributes": attributes}, data=data, mechanism={"construction": "histogram"})
    questions: list[Document] = [
        {"type": "share", "of": {"sex": 1}, "weighted": True},
        {"type": "mean", "of": "pay", "where": {"sex": 1}, "weighted": True},
        {"type": "quantile", "of": "pay", "q": [0.5, 0.75], "where": {"sex": 1}, "weighted": True},
        {"type": "predicate", "where": {"sex": 1}, "weighted": True},
    ]
    answers = [player.ask(question) for question in questions]
    assert {answer.source for answer in answers} == {"estimate"}
    assert all(answer.accuracy is not None and answer.accuracy.unbiased.all() for answer in answers)
    verdict = judged(player.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


# ---------------------------------------------------------------------------------------------- the forger


def value_moved(documents: list[Document]) -> None:
    of(documents, MEAN)[0]["values"][2] += 32.0


def value_for_null(documents: list[Document]) -> None:
    of(documents, NOBODY)[0]["value"] = 512.0


def released_moved(documents: list[Document]) -> None:
    told = of(documents, MEAN)[1]["measurement"]
    told["values"] = [value + 40 * round(float(told["noise"]["scale"])) for value in told["values"]]


def price(documents: list[Document]) -> None:
    of(documents, MEAN)[1]["cost"]["renyi"] = "1E-24"


def without_weights(documents: list[Document]) -> None:
    """The words of the mean that is not weighted."""
    of(documents, MEAN)[0]["asked"] = {k: v for k, v in MEAN.items() if k != "weighted"}


def other_weight(documents: list[Document]) -> None:
    of(documents, SHARE)[0]["query"]["weight"] = 3


def median_without_weight(documents: list[Document]) -> None:
    of(documents, MEDIAN)[0]["query"].pop("weight")


def median_moved(documents: list[Document]) -> None:
    of(documents, MEDIAN)[0]["value"] += 4_000.0


def form_without_weight(documents: list[Document]) -> None:
    del of(documents, MEAN)[0]["query"]["weight"]


def lighter(documents: list[Document]) -> None:
    """Products with smaller weights than are declared, which cost less."""
    told = of(documents, MEAN)[1]["measurement"]["strategy"]
    for part in told:
        if part["moment"] and "times" in part["moment"]:
            part["moment"]["times"]["least"] = 1


def product_dropped(documents: list[Document]) -> None:
    """Numbers are summed without their weights."""
    for part in of(documents, MEAN)[1]["measurement"]["strategy"]:
        if part["moment"]:
            part["moment"].pop("times", None)


def no_measurement(documents: list[Document]) -> None:
    without_measurement(documents, MEAN)


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (value_moved, "does not follow"),
        (value_for_null, "a value where none follows"),
        (released_moved, "does not follow"),
        (price, "cost is not that of its noise"),
        (without_weights, "does not compile to the recorded query"),
        (other_weight, "not the canonical form"),
        (median_without_weight, "does not compile to the recorded query"),
        (median_moved, "does not follow"),
        (form_without_weight, "does not compile to the recorded query"),
        (lighter, "not the one that was due"),
        (product_dropped, "not the one that was due"),
        (no_measurement, "source that it cannot have"),
    ],
)
def test_a_forgery_is_found_out(honest: Replays, forge: Callable[[list[Document]], None], problem: str) -> None:
    """Weights that are left out of the words, the form, or the price among them."""
    documents = honest.documents()
    forge(documents)
    verdict = honest.forged(documents)
    assert not verdict.ok
    assert problem in str(verdict.problem)
