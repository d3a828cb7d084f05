"""Replay of counts by a hierarchy: honest transcripts replay, and whoever changes one is found out.

Played and forged as in :mod:`tests.evidence.test_replay_of_evidence`: every hash agrees, and the content alone can
betray the forger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.spaces.queries.request import WANTED
from app.spaces.records import RecordsTensor
from tests.audit.playing import judged
from tests.evidence.test_replay_of_evidence import Player
from tests.kit.forger import Document
from tests.kit.replays import Replays

#: Each plays and replays sessions of many fits.
pytestmark = [pytest.mark.unit, pytest.mark.slow]

SIZES = (24, 3, 4000, 300)
GROUPS = {"x": {f"x{k}": [f"v{j}" for j in range(k, 16, 4)] for k in range(4)}, "y": [f"v{j}" for j in range(16, 24)]}
SPEC: Document = {
    "name": "places",
    "kind": "table",
    "attributes": [
        {"name": "place", "values": [f"v{j}" for j in range(24)], "levels": GROUPS},
        {"name": "sex", "size": 3},
        {"name": "job", "size": 4000},
        {"name": "code", "size": 300},
    ],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
}
TREE = {"type": "hierarchy", "attribute": "place"}
QUESTIONS: list[Document] = [
    {"type": "predicate", "where": {"place": ["v1", "v5"]}},
    {**TREE, "within": 150.0},
    {"type": "marginal", "attributes": ["place"], "within": 600.0},
    {**TREE, "where": {"sex": 1}, "within": 200.0},
    {**TREE, "within": 150.0},
    {**TREE, "within": 90.0, "confidence": 0.9},
    {**TREE, "where": {"sex": [0, 1]}, "within": 400.0, "adaptive": True},
    {"type": "predicate", "where": {"place": ["v16", "v17"], "sex": 2}},
]


def places(number: int = 20_000) -> RecordsTensor:
    rng = np.random.default_rng(8)
    columns = [np.minimum(rng.integers(0, n, number), rng.integers(0, n, number)) for n in SIZES]
    return RecordsTensor([c.astype(np.min_scalar_type(n)) for c, n in zip(columns, SIZES, strict=True)], SIZES)


DATA = places()


def played(questions: list[Document] = QUESTIONS, **words: Any) -> Player:
    player = Player(**({"spec": SPEC, "data": DATA, "max_queries": 60, "epsilon": 0.9} | words))
    for question in questions:
        target = {name: question[name] for name in WANTED & question.keys()}
        player.ask({name: said for name, said in question.items() if name not in target}, **target)
    return player


@pytest.fixture(scope="module")
def honest() -> Replays:
    return Replays(played().transcript())


def own(documents: list[Document]) -> list[int]:
    """Where hierarchies were measured."""
    return [k for k, d in enumerate(documents) if d["record"] == "measurement" and "hierarchy" in d["measurement"]]


def test_an_honest_session_replays(honest: Replays) -> None:
    """With trees that were bought, refined and asked again, of all records and of some. Catches a rule that an honest
    session breaks."""
    verdict = honest.verdict(honest.honest)
    assert verdict.ok
    assert len(own(honest.documents())) >= 3
    assert verdict.summary["cached_answers"] == 1


def test_persons_with_other_noise() -> None:
    """Two records a person, so that every multiplier counts twice, and noise from another seed."""
    spec = SPEC | {"unit": {"column": "who", "max_records": 2}}
    verdict = judged(played(QUESTIONS[:5], seed=1, spec=spec).transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


def flipped(told: Document) -> None:
    told["measurement"]["values"][3] += 1 << 12


def divided(told: Document) -> None:
    told["measurement"]["hierarchy"][0]["multiplier"] += 1


def renamed(told: Document) -> None:
    told["measurement"]["strategy"] = told["measurement"].pop("hierarchy")


def cheaper(told: Document) -> None:
    told["cost"]["renyi"] = told["cost"]["renyi"].replace("0.0", "0.00", 1)


def moved(told: Document) -> None:
    told["measurement"]["values"].reverse()


@pytest.mark.parametrize("forge", [flipped, divided, renamed, cheaper, moved])
def test_a_changed_measurement_is_found(honest: Replays, forge: Callable[[Document], None]) -> None:
    """A value, a division of the price, a name, the price, and values that change places. Catches answers that are not
    held against what was measured for them."""
    documents = honest.documents()
    forge(documents[own(documents)[0]])
    assert not honest.forged(documents).ok


def test_answers_that_do_not_add_up_are_found(honest: Replays) -> None:
    """One unit of one node."""
    documents = honest.documents()
    place = next(k for k, d in enumerate(documents) if d["record"] == "answer" and len(d.get("values", [])) > 24)
    documents[place]["values"][2] += 2.0**-10
    assert not honest.forged(documents).ok
