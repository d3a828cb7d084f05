"""An audit of shares: all counts that were measured for them, held against their records, and how often intervals hold.

A session with noise of its own is asked shares alone, of a table that the audit knows. It counts every cell of every
measurement anew, record by record. What is left, in units of the scale that the record states, must be independent
draws of the stated law (:mod:`tests.sessions.test_direct_audit`), and what was charged must be the price of that
law, by a formula of this file's own. Wrong alarms have probability below 1e-6 a test.

Intervals of sessions that were played again and again with noise from a seed must hold as often as they say: less would
mislead, and more would mean that the covariance of a part and the whole is left out.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.curator.dataset import PublicDataset
from app.curator.planners.table import funds_of, residuals_of
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.measurements.pieces import pieces_of
from app.measurements.record import Measurement
from app.policies.kinds import Known
from app.policies.shares import Share
from app.policies.statistics import Statistics
from app.policies.table import Policy, Wanted
from app.spaces.queries.registry import parse_query
from app.spaces.queries.share import CompiledShare
from app.spaces.records import RecordsTensor
from tests.kit.noise import Scaled
from tests.kit.world import World, make_world, transcript_of
from tests.sessions.test_direct_audit import alarms

pytestmark = pytest.mark.statistical

NUMBER = 4000
RANDOM = np.random.default_rng(4)
SEX, REGION = RANDOM.integers(0, 2, NUMBER), np.minimum(RANDOM.geometric(0.1, NUMBER) - 1, 39)
AGE, JOB = RANDOM.integers(0, 80, NUMBER), RANDOM.integers(0, 300, NUMBER)
PLACES = [SEX, REGION, AGE, JOB]
CONTENT = "sex,region,age,job\n" + "".join(f"{s},{r},{a},{j}\n" for s, r, a, j in zip(*PLACES, strict=True))
SPEC: dict[str, Any] = {
    "name": "d",
    "kind": "table",
    "records_public": True,
    "attributes": [
        {"name": "sex", "size": 2},
        {"name": "region", "size": 40},
        {"name": "age", "size": 80},
        {"name": "job", "size": 300},
    ],
    "budget": {"epsilon": 2.0, "delta": 1e-6},
}
OLD = {"between": [60, 79]}
QUESTIONS: list[dict[str, Any]] = [
    {"type": "share", **words}
    for words in (
        {"of": {"age": OLD}, "group_by": ["region", "sex"]},
        {"of": {"job": {"between": [0, 99]}}, "group_by": ["region"]},
        {"of": {"age": OLD, "job": {"between": [0, 99]}}, "group_by": ["region"]},
        {"of": {"not": {"sex": 0, "age": {"between": [0, 19]}}}, "group_by": ["region"]},
        {"of": {"sex": 0}, "where": {"any": [{"age": OLD}, {"job": {"between": [200, 299]}}]}, "group_by": ["region"]},
        {"of": {"job": {"between": [250, 299]}}, "where": {"age": OLD}, "group_by": ["region", "sex"]},
    )
]


def counted(part: dict[str, Any]) -> np.ndarray:
    """The numbers of records in all cells of a part, with the record's own description of it."""
    marginal, shape, cell = part["marginal"], [], np.zeros(NUMBER, np.int64)
    for axis, size, labels in zip(marginal["attributes"], marginal["sizes"], marginal["partitions"], strict=True):
        cells = np.arange(size) if labels is None else np.array(labels)
        shape.append(cells.max() + 1)
        cell = cell * shape[-1] + cells[PLACES[axis]]
    return np.bincount(cell, minlength=int(np.prod(shape, dtype=np.int64))) * part["multiplier"]


def released(folder: Path, noise: SystemNoise, *, replayed: bool = False) -> np.ndarray:
    """What is left of all that was measured for shares, in units of its record's scale."""
    world: World = make_world(folder, noise=noise)
    try:
        world.register_file(SPEC, "d.csv", CONTENT.encode())
        ann = world.analyst("ann")
        asked = {"mechanism": {"construction": "evidence"}, "epsilon": 2.0, "max_updates": None}
        id = world.open(ann, "d", **asked, max_queries=80)
        for question in QUESTIONS:
            world.ask(ann, id, question)
        order = world.built.services.datasets.public("d").budget.order
        left = []
        for line in map(json.loads, transcript_of(world.built.services, id)):
            if line["record"] != "measurement" or not line["sequence"]:
                continue
            told = line["measurement"]
            parts = told.get("strategy") or [{"marginal": told["marginal"], "moment": None, "multiplier": 1}]
            # Nothing but counts.
            assert all(part["moment"] is None and not {"residual", "rows"} & part.keys() for part in parts)
            assert told["noise"]["kind"] == "gaussian"
            scale = Fraction(told["noise"]["scale"])
            truth = np.concatenate([counted(part) for part in parts])
            left.append((np.array(told["values"]) - truth) / float(scale))
            due = Fraction(order) * sum(part["multiplier"] ** 2 for part in parts) / (2 * scale**2)
            assert 0 <= Fraction(line["cost"]["renyi"]) - due <= Fraction(1, 10**24)
        if replayed:
            world.audit()
    finally:
        world.stop()
    assert len(left) >= 5
    return np.concatenate(left)


def test_counts_have_the_noise_that_their_records_state(tmp_path: Path) -> None:
    """Some thousand values. Catches noise of another scale or law than stated and paid for, a price that is not that of
    the counts, and anything else than counts."""
    left = released(tmp_path, SystemNoise(), replayed=True)
    assert len(left) > 800
    assert alarms(left, "gaussian") == []


def test_noise_30_percent_too_small_is_found(tmp_path: Path) -> None:
    assert "size" in alarms(released(tmp_path, Scaled(Fraction(7, 10))), "gaussian")


# How often intervals hold.

COVERED: list[dict[str, Any]] = [
    {"type": "share", "of": {"age": OLD}, "group_by": ["sex"]},
    {"type": "share", "of": {"age": {"between": [0, 59]}, "job": {"between": [0, 199]}}, "where": {"sex": 1}},
    {"type": "share", "of": {"any": [{"sex": 0}, {"age": OLD}]}, "where": {"region": [0, 1, 2]}},
    {"type": "share", "of": {"sex": 0}, "where": {"age": OLD, "region": {"between": [0, 4]}}},
    {"type": "share", "of": {"age": OLD}, "where": {"region": {"between": [10, 39]}}, "group_by": ["sex"]},
]
TRUTHS: list[list[float]] = [
    [float((AGE >= 60)[s == SEX].mean()) for s in range(2)],
    [float(((AGE < 60) & (JOB < 200))[SEX == 1].mean())],
    [float(((SEX == 0) | (AGE >= 60))[REGION < 3].mean())],
    [float((SEX == 0)[(AGE >= 60) & (REGION < 5)].mean())],
    [float((AGE >= 60)[(s == SEX) & (REGION >= 10)].mean()) for s in range(2)],
]
DRAWS = 100


def held(epsilon: float, confidence: float) -> float:
    """The part of intervals that hold what is true, of sessions that buy the same with other noise."""
    spec = parse_spec(SPEC | {"budget": {"epsilon": epsilon, "delta": 1e-9}})
    dataset = PublicDataset(spec, records=float(NUMBER))
    request = parse_request(
        {"dataset": "d", "mechanism": {"construction": "evidence"}, "epsilon": epsilon, "max_queries": 30}
    )
    data, means = RecordsTensor(PLACES, dataset.space.shape), funds_of(dataset, request)
    asked, rng = [], np.random.default_rng(7)
    for words in COVERED:
        query = parse_query(words).compiled(dataset.space)
        assert isinstance(query, CompiledShare)
        asked.append(query)

    def learn(policy: Policy, buy: Wanted) -> None:
        exact = buy.strategy.exact(dataset.space, data)
        drawn = np.rint(rng.normal(0, float(buy.noise.scale), len(exact))).astype(np.int64)
        for _, piece in pieces_of(Measurement(buy.strategy, buy.noise, exact + drawn)):
            policy.residuals.add(piece)

    policy = Policy(residuals_of(dataset.space, dataset.records), means)
    bought = policy.opening()
    for buy in bought:
        learn(policy, buy)
    for share in asked:
        wanted = Statistics(policy, {}).decide(share, float(means.renyi) / 2, None, confidence)
        if wanted is not None:
            bought.append(wanted)
            learn(policy, wanted)
        policy.note(share.question, paid=wanted is not None)
    found: list[bool] = []
    for _ in range(DRAWS):
        policy = Policy(residuals_of(dataset.space, dataset.records), means)
        for buy in bought:
            learn(policy, buy)
        for share, truth in zip(asked, TRUTHS, strict=True):
            shown = Statistics(policy, {}).shown(share, confidence, False)
            assert shown.unbiased.all()
            there = ~np.isnan(shown.values)
            found += ((shown.lows <= truth) & (truth <= shown.highs))[there].tolist()
    assert len(found) > 6 * DRAWS
    return float(np.mean(found))


@pytest.mark.parametrize(("epsilon", "confidence"), [(0.3, 0.8), (1.0, 0.95)])
def test_intervals_hold(epsilon: float, confidence: float) -> None:
    """Of seven hundred, which share some noise."""
    assert abs(held(epsilon, confidence) - confidence) < 0.025


def test_a_part_that_is_taken_for_independent_of_the_whole_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: intervals from variances alone, without the covariance of the two numbers."""
    proper = Share.known

    def alone(share: Share) -> Known:
        known = proper(share)
        known.joint.covariances[:, [0, 1], [1, 0]] = 0.0
        return known

    monkeypatch.setattr(Share, "known", alone)
    assert held(1.0, 0.8) > 0.83
