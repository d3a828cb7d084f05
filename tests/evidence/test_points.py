"""Intervals at the bounds of what is possible: noise goes far beyond them, and no interval may become a point there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.curator.mechanisms.protocol import Target
from app.spaces.dense import CountsTensor
from app.spaces.records import RecordsTensor
from benchmarks.research.coverage_played import Drawn, Played, Setting

pytestmark = pytest.mark.statistical

RNG = np.random.default_rng(5)
GROUPS = (RNG.choice(8, 1000, p=[0.005, 0.005, 0.01, 0.01, 0.02, 0.05, 0.1, 0.8]), RNG.integers(0, 2, 1000))
EACH = np.bincount(GROUPS[0] * 2 + GROUPS[1], minlength=16)


def groups(asked: dict[str, Any], *, pure: bool = False) -> Setting:
    """A thousand records in sixteen cells, most of which hold few."""
    declared = {"kind": "table", "attributes": [{"name": "g", "size": 8}, {"name": "f", "size": 2}]}
    data = RecordsTensor(GROUPS, (8, 2))
    return Setting.of(declared | {"records_public": True}, data, asked, delta=1e-9, records=1000.0, pure=pure)


@pytest.mark.parametrize("construction", ["gaussian", "laplace"])
def test_values_of_single_measurements_lie_in_their_intervals(construction: str) -> None:
    """Also those below zero, and with no wider ones. Would catch an interval from 0 to 0 about records that there are,
    and one on the other side of zero than its value."""
    asked = {"mechanism": {"construction": construction}, "epsilon": 0.1, "max_queries": 10}
    setting = groups(asked, pure=construction == "laplace")
    held, below = [], 0
    for seed in range(40):
        told = Played(setting, Drawn(np.random.default_rng(seed))).ask(
            {"type": "marginal", "attributes": ["g", "f"]}, Target(confidence=0.95)
        )
        assert told.accuracy is not None
        lows, highs = told.accuracy.lows, told.accuracy.highs
        assert ((lows <= told.values) & (told.values <= highs)).all()
        assert (highs > lows).all()
        arm = (highs - told.values)[told.values >= 0].max()
        assert ((highs - lows <= 2 * arm + 1e-6) | (told.values < -2 * arm)).all()
        held += ((lows <= EACH) & (highs >= EACH)).tolist()
        below += int((told.values < 0).sum())
    assert below > 50
    assert np.mean(held) > 0.93


def test_graphs_have_no_points() -> None:
    """Of a sparse graph's number of edges. Would catch an interval about a value that no graph has, cut to a point."""
    rng = np.random.default_rng(2)
    edges = np.triu(rng.random((30, 30)) < 0.05, 1).astype(np.int64)
    data, true = CountsTensor(edges + edges.T), float(edges.sum())
    asked = {"mechanism": {"construction": "evidence"}, "epsilon": 0.1}
    setting = Setting.of({"kind": "graph", "nodes": 30}, data, asked, delta=1e-9)
    held = []
    for seed in range(60):
        told = Played(setting, Drawn(np.random.default_rng(seed))).ask(
            {"type": "cut", "left": "all", "right": "all"}, Target(confidence=0.8)
        )
        assert told.accuracy is not None
        (low,), (high,) = told.accuracy.lows, told.accuracy.highs
        assert high - low > 1
        held.append(low <= true <= high)
    assert np.mean(held) > 0.65


def test_more_confidence_is_no_narrower() -> None:
    """Of sums by group. Would catch ends that jump where a bound is passed."""
    columns = (*GROUPS[:1], np.random.default_rng(6).integers(0, 51, 1000))
    attributes = [{"name": "g", "size": 8}, {"name": "v", "lower": 0, "upper": 50, "grid": 1}]
    asked = {"mechanism": {"construction": "evidence"}, "epsilon": 0.1, "max_queries": 60}
    data = RecordsTensor(columns, (8, 51))
    setting = Setting.of({"kind": "table", "attributes": attributes}, data, asked, delta=1e-9)
    for seed in range(25):
        session, before = Played(setting, Drawn(np.random.default_rng(seed))), None
        for confidence in (0.8, 0.95, 0.99, 0.999):
            told = session.ask({"type": "sum", "of": "v", "group_by": ["g"]}, Target(confidence=confidence))
            assert told.accuracy is not None
            lows, highs = told.accuracy.lows, told.accuracy.highs
            assert (highs > lows).all()
            if before is not None:
                assert (lows <= before[0] + 1e-6).all()
                assert (highs >= before[1] - 1e-6).all()
            before = lows, highs


@pytest.mark.parametrize(
    "first",
    [{"type": "predicate", "where": {"region": 0}}, {"type": "mean", "of": "v", "group_by": ["region"]}],
    ids=["count", "mean"],
)
def test_noise_that_contradicts_zeros_leaves_doubt(first: dict[str, Any]) -> None:
    """Children are single: where noise counted fewer adults than married ones, nobody would be left to be a single
    adult. Would catch a cell that records can be in, told as none with no doubt, and free."""
    rng = np.random.default_rng(7)
    adult = (rng.random(300) < 0.8).astype(int)
    marital = np.where(adult == 1, rng.choice(3, 300, p=[0.12, 0.7, 0.18]), 0)
    columns = (adult, marital, rng.integers(0, 8, 300), rng.integers(0, 51, 300))
    attributes = [
        {"name": "adult", "size": 2},
        {"name": "marital", "size": 3},
        {"name": "region", "size": 8},
        {"name": "v", "lower": 0, "upper": 50, "grid": 1},
    ]
    declared = {"kind": "table", "attributes": attributes, "zeros": [{"adult": 0, "marital": [1, 2]}]}
    data = RecordsTensor(columns, (2, 3, 8, 51))
    asked = {"mechanism": {"construction": "evidence"}, "epsilon": 0.1}
    setting = Setting.of(declared, data, asked, delta=1e-9)
    true = np.bincount((adult * 3 + marital) * 8 + columns[2], minlength=48)
    questions: list[tuple[dict[str, Any], np.ndarray]] = [
        ({"type": "predicate", "where": {"adult": 1, "marital": 0}}, true[24:32].sum()),
        ({"type": "marginal", "attributes": ["adult", "marital", "region"]}, true),
    ]
    held = []
    for seed in range(25):
        session = Played(setting, Drawn(np.random.default_rng(seed)))
        session.ask(first)
        for words, truth in questions:
            told = session.ask(words, Target(confidence=0.95))
            assert told.accuracy is not None
            lows, highs = told.accuracy.lows, told.accuracy.highs
            assert not ((highs - lows < 0.5) & (truth >= 3)).any()
            held += ((lows <= truth) & (truth <= highs)).tolist()
    assert np.mean(held) > 0.93


@pytest.mark.parametrize(("records", "epsilon"), [(50, 0.1), (200, 0.1)])
def test_noise_beyond_all_records_leaves_no_points(records: int, epsilon: float) -> None:
    """Of six attributes of thirty values, whose one-way counts are noise alone. Would catch a prior that grows by the
    noise of each attribute until nothing is left of the digits of a posterior: answers of no width, free and wrong, and
    questions that end in an error."""
    rng = np.random.default_rng(3)
    sizes = (30,) * 6
    columns = tuple(rng.integers(0, 30, records) for _ in sizes)
    declared = {
        "kind": "table",
        "attributes": [{"name": f"b{k}", "size": 30} for k in range(6)],
        "records_public": True,
    }
    asked = {"mechanism": {"construction": "evidence"}, "epsilon": epsilon}
    setting = Setting.of(declared, RecordsTensor(columns, sizes), asked, delta=1e-9, records=float(records))
    models = 0
    for seed in range(8):
        session, drawn = Played(setting, Drawn(np.random.default_rng([seed, 5]))), np.random.default_rng(seed)
        for _ in range(12):
            of = drawn.choice(6, int(drawn.integers(3, 7)), replace=False)
            halves = {int(k): drawn.choice(30, 15, replace=False) for k in of}
            true = int(np.all([np.isin(columns[k], half) for k, half in halves.items()], axis=0).sum())
            where = {f"b{k}": sorted(half.tolist()) for k, half in halves.items()}
            told = session.ask({"type": "predicate", "where": where}, Target(confidence=0.95))
            assert told.accuracy is not None
            (low,), (high,), (unbiased,) = told.accuracy.lows, told.accuracy.highs, told.accuracy.unbiased
            models += not unbiased
            assert high - low > 1
            assert unbiased or low <= true <= high
    assert models
