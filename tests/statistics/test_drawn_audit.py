"""An audit of quantiles that are drawn: what sessions draw and count, held against its price.

An adversary knows two files that differ in one record. Whatever a session measures for a median is taken from its
record: which blocks may be drawn, at what scale, and which ranges are counted. Records are counted by plain loops, and
what the service asks its noise for must be the law of the draws by their definition. How far one record moves that law
and the counts, at the ledger's order, may be no more than was charged. Counts must have the noise that their record
states.

Wrong alarms have probability below 1e-6 a test.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from app.bootstrap.noise import SystemNoise
from app.measurements.noise import Law, Sampler
from app.measurements.strategies.drawn import DrawnQuantiles
from app.policies.quantiles import Quantile
from app.spaces.tensor import Array
from tests.kit.noise import Noise, Scaled
from tests.kit.world import World, make_world, transcript_of
from tests.sessions.test_direct_audit import alarms

pytestmark = pytest.mark.statistical

NUMBER, PLACES = 20_000, 10_000
RANDOM = np.random.default_rng(11)
SPEC: dict[str, Any] = {
    "kind": "table",
    "records_public": True,
    "attributes": [
        {"name": "part", "size": 3},
        {"name": "income", "lower": 0, "upper": PLACES - 1, "grid": 1, "bins": 50, "missing": True, "outside": "clamp"},
        {"name": "job", "size": 400},
    ],
    "budget": {"epsilon": 4.0, "delta": 1e-6},
}
RECORDS = [
    (int(p), "" if none else str(int(i)), int(j))
    for p, i, none, j in zip(
        RANDOM.integers(0, 3, NUMBER),
        RANDOM.integers(0, PLACES, NUMBER),
        RANDOM.random(NUMBER) < 0.1,
        RANDOM.integers(0, 400, NUMBER),
        strict=True,
    )
]
QUESTION: dict[str, Any] = {"type": "quantile", "of": "income", "q": 0.5, "group_by": ["part"]}
#: At either end of the range, within it, beyond it, near the median, and without a value.
MORE = [(1, "0", 0), (1, "9999", 399), (1, "4990", 7), (1, "123456", 7), (2, "2480", 7), (1, "", 7)]


@dataclass
class Asked(Noise):
    """No noise; the law of every draw that it is asked for."""

    laws: list[np.ndarray] = field(default_factory=list)

    def choose(self, scores: Any, scale: Any) -> int:
        self.laws.append(log_softmax(np.asarray(scores) / float(scale)))
        return super().choose(scores, scale)


def measured(world: World, name: str, questions: int, q: float | list[float] = 0.5) -> dict[str, Any]:
    """The record of what a session measures for quantiles of each part, else the median."""
    content = "part,income,job\n" + "".join(f"{p},{i},{j}\n" for p, i, j in RECORDS)
    world.register_file(SPEC | {"name": name}, "d.csv", content.encode())
    ann = world.analyst("ann")
    asked = {"mechanism": {"construction": "evidence"}, "epsilon": 4.0, "max_updates": None}
    id = world.open(ann, name, **asked, max_queries=questions)
    world.ask(ann, id, QUESTION | {"q": q})
    lines = map(json.loads, transcript_of(world.built.services, id))
    (found,) = (line for line in lines if line["record"] == "measurement" and "quantiles" in line["measurement"])
    return dict(found)


def placed(records: list[tuple[int, str, int]]) -> np.ndarray:
    """How many records of each part have each number, or none."""
    table = np.zeros((3, PLACES + 1), np.int64)
    for group, number, _ in records:
        table[group, PLACES if number == "" else min(int(number), PLACES - 1)] += 1
    return table


def blocks(told: dict[str, Any]) -> np.ndarray:
    """Where blocks begin."""
    begins: list[int] = []
    for first, after in pairwise(told["marks"]):
        count = min(told["blocks"], after - first)
        begins += [first + k * (after - first) // count for k in range(count)]
    return np.array(begins)


def laws(told: dict[str, Any], table: np.ndarray) -> Iterator[np.ndarray]:
    """Of the draw of each part and level the logarithms of all probabilities."""
    begins = blocks(told)
    for own in table:
        numbers = own[:PLACES]
        before = np.append(0, np.cumsum(numbers))[begins]
        upto = np.append(before[1:], numbers.sum())
        for level in told["levels"]:
            goal = numbers.sum() * level / 10**6
            yield log_softmax(-np.maximum(np.maximum(before - goal, goal - upto), 0.0) / float(told["scale"]))


def losses(folder: Path, questions: int, q: float | list[float] = 0.5) -> tuple[float, float]:
    """What one of the records tells at worst, and what was charged."""
    seen = Asked()
    world = make_world(folder, noise=seen)
    try:
        line = measured(world, "d", questions, q)
        order = float(world.built.services.datasets.public("d").budget.order)
    finally:
        world.stop()
    told, noise, table = line["measurement"]["quantiles"], line["measurement"]["noise"], placed(RECORDS)
    for own, asked in zip(laws(told, table), seen.laws, strict=True):
        np.testing.assert_allclose(own, asked, rtol=1e-9)
    scale, worst = float(noise["scale"]), 0.0
    # A record moves one range by one: two-sided geometric noise, or Gaussian noise.
    counts = order / (2 * scale**2)
    if noise["kind"] == "laplace":
        ways = math.exp((order - 1) / scale) * order + math.exp(-order / scale) * (order - 1)
        counts = math.log(ways / (2 * order - 1)) / (order - 1)
    for one in MORE:
        pairs = list(zip(laws(told, table), laws(told, placed([*RECORDS, one])), strict=True))
        for way in (pairs, [(q, p) for p, q in pairs]):
            drawn = sum(float(logsumexp(order * p + (1 - order) * q)) / (order - 1) for p, q in way)
            worst = max(worst, drawn + counts)
    return worst, float(line["cost"]["renyi"])


@pytest.mark.parametrize("q", [0.5, [0.25, 0.5, 0.75]])
@pytest.mark.parametrize("questions", [1, 60])
def test_a_record_is_hidden(tmp_path: Path, questions: int, q: float | list[float]) -> None:
    """With pure noise, and with Gaussian noise; of one level, and of three at once. Would catch what the fault below
    does, blocks that are no function of the record, draws by other scores than their definition, and levels that are
    not paid for."""
    lost, charged = losses(tmp_path, questions, q)
    assert 0.5 * charged <= lost <= charged


def test_a_price_of_one_level_for_three_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the draws of three levels are charged, and scaled, as one level's would be; they are near each
    other, so that one record is about the worst for all."""
    honest, shared = DrawnQuantiles.events, Quantile._shared
    monkeypatch.setattr(DrawnQuantiles, "events", lambda own, noise, near: honest(own, noise, near)[:-2])
    monkeypatch.setattr(Quantile, "_shared", lambda own, share, farthest: shared(own, share, farthest[:1]))
    lost, charged = losses(tmp_path, 1, [0.49, 0.5, 0.51])
    assert lost > charged


def test_a_draw_of_half_the_scale_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: numbers are drawn as if a record moved scores by half of what it does."""
    honest = DrawnQuantiles.released

    class Half:
        def __init__(self, sampler: Sampler) -> None:
            self._sampler = sampler

        def __getattr__(self, law: str) -> Any:
            return getattr(self._sampler, law)

        def choose(self, scores: Any, scale: Any) -> int:
            return self._sampler.choose(scores, scale / 2)

    def released(strategy: DrawnQuantiles, exact: Array, noise: Law, sampler: Sampler) -> Array:
        return honest(strategy, exact, noise, Half(sampler))

    monkeypatch.setattr(DrawnQuantiles, "released", released)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        losses(tmp_path, 60)


def left(folder: Path, noise: SystemNoise) -> np.ndarray:
    """What is left of all counts when what was counted is taken off, in units of their scale, over several sessions; an
    even number of them."""
    world, found = make_world(folder, noise=noise), []
    try:
        for k in range(4):
            line = measured(world, f"d{k}", 60)
            told, values = line["measurement"]["quantiles"], line["measurement"]["values"]
            strategy = DrawnQuantiles.read(told)
            ((part, counts, _),) = strategy.told(np.array(values))
            labels = part.marginal.partition(1).labels
            exact = np.array([np.bincount(labels, own) for own in placed(RECORDS)])
            assert line["measurement"]["noise"]["kind"] == "gaussian"
            found.append((counts - exact).reshape(-1) / float(line["measurement"]["noise"]["scale"]))
    finally:
        world.stop()
    noise_left = np.concatenate(found)
    return noise_left[: len(noise_left) // 2 * 2]


def test_every_count_has_the_noise_that_its_record_states(tmp_path: Path) -> None:
    """Would catch noise that depends on what was drawn, and noise of another scale than is paid for."""
    noise = left(tmp_path, SystemNoise())
    assert len(noise) >= 200
    assert alarms(noise, "gaussian") == []


def test_noise_30_percent_too_small_is_found(tmp_path: Path) -> None:
    assert "size" in alarms(left(tmp_path, Scaled(Fraction(7, 10))), "gaussian")
