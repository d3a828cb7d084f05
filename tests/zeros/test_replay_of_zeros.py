"""Replay of sessions on tables with structural zeros: honest transcripts replay, and whoever changes a zero is found
out though every hash agrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.spaces.records import RecordsTensor
from tests.audit.playing import judged
from tests.evidence.test_replay_of_evidence import Player
from tests.kit.forger import Document
from tests.kit.replays import Replays
from tests.zeros.tables import SIZES, SPEC, people

pytestmark = [pytest.mark.unit, pytest.mark.slow]

CHILD: Document = {"type": "predicate", "where": {"age": {"lt": 20}, "marital": "married"}}
QUESTIONS: list[Document] = [
    CHILD,
    {"type": "marginal", "attributes": ["age", "marital"]},
    {"type": "marginal", "attributes": ["district"], "where": {"state": 2}},
    {"type": "marginal", "attributes": ["district"], "where": {"state": 2, "district": [0, 1]}},
    {"type": "share", "of": {"other": 1}, "where": {"marital": "married"}, "group_by": ["age"]},
    {"type": "predicate", "where": {"any": [{"state": 0, "district": 5}, {"state": 1, "district": 0}]}},
    CHILD,
    {"type": "predicate", "where": {"any": [CHILD["where"], {"other": 1}]}},
]


def played(seed: int = 0, **words: Any) -> Player:
    """A session that was asked these."""
    data = RecordsTensor([column.astype(np.uint8) for column in people().T], SIZES)
    player = Player(spec=SPEC, data=data, seed=seed, max_queries=9, **words)
    for question in QUESTIONS:
        player.ask(question)
    return player


@pytest.mark.parametrize("words", [{}, {"epsilon": 0.05}])
def test_honest_sessions_replay(words: Document) -> None:
    """Free zeros, tables with some and statistics by them. Catches a rule that an honest session breaks."""
    verdict = judged(played(**words).transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


@pytest.fixture(scope="module")
def honest() -> Replays:
    return Replays(played().transcript())


def zeros_of(documents: list[Document]) -> list[Document]:
    found: list[Document] = documents[0]["dataset"]["domain"]["zeros"]
    return found


def none(documents: list[Document]) -> None:
    del documents[0]["dataset"]["domain"]["zeros"]


def fewer(documents: list[Document]) -> None:
    del zeros_of(documents)[0]


def more(documents: list[Document]) -> None:
    zeros_of(documents).append({"age": {"ge": 20, "lt": 30}, "marital": "widowed"})


def other(documents: list[Document]) -> None:
    zeros_of(documents)[0]["age"] = {"lt": 10}


def contradicted(documents: list[Document]) -> None:
    zeros_of(documents).append({})


def value(documents: list[Document]) -> None:
    for document in documents:
        if document.get("record") == "answer" and document.get("value") == 0:
            document["value"] = 3.0
            return
    raise AssertionError("no answer of 0")


def cell(documents: list[Document]) -> None:
    for document in documents:
        if document.get("record") == "answer" and len(document.get("values", [])) == 30:
            assert document["values"][1] == 0
            document["values"][1] = 1.0
            return
    raise AssertionError("no table")


@pytest.mark.parametrize("forge", [none, fewer, more, other, contradicted, value, cell])
def test_forgeries_are_refused(honest: Replays, forge: Callable[[list[Document]], None]) -> None:
    """Zeros left out, added, changed; a value of what cannot be. Catches an audit that takes them on trust."""
    documents = honest.documents()
    forge(documents)
    assert not honest.forged(documents).ok
