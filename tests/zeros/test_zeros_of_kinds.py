"""Hierarchies and statistics of numbers on a table with structural zeros."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from app.spaces.records import RecordsTensor
from tests.audit.playing import judged
from tests.evidence.test_replay_of_evidence import Player
from tests.kit.forger import Document

pytestmark = [pytest.mark.unit, pytest.mark.slow]

SPEC: Document = {
    "name": "incomes",
    "kind": "table",
    "attributes": [
        {"name": "age", "size": 4},
        {
            "name": "work",
            "values": ["none", "shop", "farm", "office"],
            "levels": {"idle": ["none"], "work": {"manual": ["shop", "farm"], "other": ["office"]}},
        },
        {"name": "income", "lower": 0, "upper": 1000, "grid": 10, "bins": 10},
    ],
    "zeros": [{"age": 0, "work": ["shop", "farm", "office"]}, {"work": "none", "income": {"gt": 500}}],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
}
SIZES = (4, 4, 101)


def player(seed: int, **words: Any) -> Player:
    rng = np.random.default_rng(3)
    age = rng.integers(0, 4, 3000)
    work = np.where(age == 0, 0, rng.integers(0, 4, 3000))
    income = np.where(work == 0, rng.integers(0, 51, 3000), rng.integers(20, 101, 3000))
    data = RecordsTensor([column.astype(np.uint8) for column in (age, work, income)], SIZES)
    return Player(spec=SPEC, data=data, seed=seed, max_queries=12, **words)


def answer(playing: Player, asked: Document) -> Document:
    before = len(playing.lines)
    playing.ask(asked)
    told = [json.loads(line) for line in playing.lines[before:]]
    found: Document = next(line for line in told if line["record"] == "answer")
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mechanism", ["evidence", "histogram"])
def test_hierarchies_add_up_with_zeros(seed: int, mechanism: str) -> None:
    """Counts of groups of which some cannot be, after other questions and before. Catches groups that are not the sums
    of their parts once some of these are set to 0, and one of them that is not."""
    playing = player(seed, mechanism={"construction": mechanism})
    playing.ask({"type": "marginal", "attributes": ["age", "work"]})
    names = ["idle", "none", "work", "manual", "shop", "farm", "other", "office"]
    for where in ({"age": 0}, {"income": {"gt": 500}}, {}):
        asked = {"type": "hierarchy", "attribute": "work", "where": where}
        own = dict(zip(names, answer(playing, asked)["values"], strict=True))
        assert own["work"] == own["manual"] + own["other"]
        assert own["manual"] == own["shop"] + own["farm"]
        assert own["idle"] == own["none"]
        if where == {"age": 0}:
            assert own["work"] == own["manual"] == own["shop"] == own["office"] == 0
            assert own["none"] > 0
        if where == {"income": {"gt": 500}}:
            assert own["none"] == 0
            assert own["office"] > 0
    verdict = judged(playing.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)


@pytest.mark.parametrize("seed", range(3))
def test_statistics_by_groups_that_cannot_be(seed: int) -> None:
    """Means of groups of nobody are none, sums are 0, and those of others are told. Catches a mean of noise, and a
    division by a number that is known to be 0."""
    playing = player(seed)
    playing.ask({"type": "marginal", "attributes": ["age", "work"]})
    for kind in ("mean", "variance", "sum"):
        found = answer(
            playing, {"type": kind, "of": "income", "where": {"work": ["shop", "office"]}, "group_by": ["age"]}
        )
        if kind == "sum":
            assert found["values"][0] == 0
        else:
            assert found["values"][0] is None
        assert found["values"][2] is not None
    found = answer(
        playing, {"type": "quantile", "of": "income", "q": 0.5, "where": {"work": "shop"}, "group_by": ["age"]}
    )
    assert found["values"][0] is None
    found = answer(playing, {"type": "sum", "of": "income", "where": {"age": 0, "work": "shop"}})
    assert found["value"] == 0
    verdict = judged(playing.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
