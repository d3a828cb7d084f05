"""An audit of sums, means, variances and quantiles: everything that was measured for them, held against its record.

A session with noise of its own is asked statistics of a table that the audit knows. It computes every part of every
measurement anew, record by record, by the definition of the moments. What is left, in units of the scale that the
record states, must be independent draws of the stated law (:mod:`tests.sessions.test_direct_audit`), part by part
and all together, and what was charged must be the price of that law, by a formula of this file's own.

Beside it an adversary, who knows two files that differ in one record at a bound of the declared range, or beyond it:
whatever is released may be at most e^epsilon times as likely with the one as with the other. Where a moment is charged
as a count is, or records beyond the bounds are kept as they are, he finds out.

Wrong alarms have probability below 1e-6 a test.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.measurements.strategies.tables import Moment, TableStrategy
from app.spaces.counts import ExactCounts
from app.spaces.space import Space
from tests.kit.audits import proven_delta
from tests.kit.noise import Asked, Scaled, drawn
from tests.kit.world import AUDITOR, World, make_world, transcript_of
from tests.sessions.test_direct_audit import alarms

pytestmark = pytest.mark.statistical

NUMBER = 4000
RANDOM = np.random.default_rng(3)
SEX, REGION = RANDOM.integers(0, 2, NUMBER), RANDOM.integers(0, 40, NUMBER)
AGE = np.clip(RANDOM.normal(45 + 5 * SEX, 17, NUMBER), 15, 95).round().astype(int)
INCOME = np.clip(RANDOM.lognormal(9.0, 0.7, NUMBER), 0, 50_000).round(-2).astype(int)
NONE = RANDOM.random(NUMBER) < 0.1
SPEC: dict[str, Any] = {
    "name": "d",
    "kind": "table",
    "records_public": True,
    "attributes": [
        {"name": "sex", "size": 2},
        {"name": "region", "size": 40},
        {"name": "age", "lower": 15, "upper": 95, "grid": 1, "bins": 16, "role": "weight"},
        {"name": "income", "lower": 0, "upper": 50_000, "grid": 100, "bins": 20, "missing": True},
        {"name": "job", "size": 500},
    ],
    "budget": {"epsilon": 2.0, "delta": 1e-6},
}
#: Each record by the places of its values: an income that is not there is the last.
PLACES = [SEX, REGION, AGE - 15, np.where(NONE, 501, INCOME // 100), np.arange(NUMBER) % 500]
CONTENT = "sex,region,age,income,job\n" + "".join(
    f"{s},{r},{a},{'' if none else i},{j}\n"
    for s, r, a, i, none, j in zip(SEX, REGION, AGE, INCOME, NONE, PLACES[4], strict=True)
)
QUESTIONS = [
    {"type": kind, "of": of, "group_by": groups}
    for groups in (["region"], ["sex", "region"])
    for of in ("age", "income")
    for kind in ("mean", "variance", "sum")
] + [{"type": "quantile", "of": of, "q": [0.25, 0.5], "group_by": ["region"]} for of in ("age", "income")]


class Shared(SystemNoise):
    """A planted fault: what is drawn for a part is used again for the next."""

    def gaussian(self, scale: Any, ahead: int = 1024) -> Any:
        return _Again(super().gaussian(scale, ahead))


class _Again:
    low = False

    def __init__(self, source: Any) -> None:
        self._source = source

    def take(self, n: int) -> Any:
        drawn = self._source.take(n)
        # Parts of a measurement have equally many cells here; two, or three.
        parts = 3 if n % 3 == 0 else 2
        return np.tile(drawn[: n // parts], parts) if n % parts == 0 else drawn


def weight(moment: dict[str, int] | None, place: np.ndarray) -> np.ndarray:
    """What each record adds, by the definition of the moments in docs/privacy.md; nothing where it has no value."""
    if moment is None:
        return np.ones(len(place), np.int64)
    u = place - (moment["places"] - 1) // 2
    half = moment["places"] // 2
    assert half**2 < 2**30  # so that squares are not divided
    weights = {0: np.ones_like(u), 1: u, 2: u * u - half**2 // 2}[moment["power"]]
    return np.where(place == moment["places"], 0, weights)


def exact(part: dict[str, Any]) -> np.ndarray:
    """The sums over all cells of a part, with the record's own description of it."""
    marginal, moment = part["marginal"], part["moment"]
    shape, cell = [], np.zeros(NUMBER, np.int64)
    for axis, size, labels in zip(marginal["attributes"], marginal["sizes"], marginal["partitions"], strict=True):
        cells = np.arange(size) if labels is None else np.array(labels)
        shape.append(cells.max() + 1)
        cell = cell * shape[-1] + cells[PLACES[axis]]
    added = weight(moment, PLACES[moment["axis"]] if moment else cell)
    if moment and "times" in moment:
        added = added * (moment["times"]["least"] + PLACES[moment["times"]["axis"]])
    found = np.zeros(int(np.prod(shape, dtype=np.int64)), np.int64)
    np.add.at(found, cell, added)
    return found * part["multiplier"]


def largest(part: dict[str, Any]) -> int:
    """What one record moves a part by at most: every place is tried."""
    moment = part["moment"]
    most = 1 if moment is None else int(np.abs(weight(moment, np.arange(moment["places"]))).max())
    if moment and "times" in moment:
        most *= moment["times"]["least"] + moment["times"]["places"] - 1
    return int(part["multiplier"]) * most


def released(
    folder: Path, noise: SystemNoise, *, replayed: bool = False, questions: Sequence[dict[str, Any]] = QUESTIONS
) -> list[np.ndarray]:
    """What is left of every part that was measured for statistics, in units of its record's scale."""
    world: World = make_world(folder, noise=noise)
    try:
        world.register_file(SPEC, "d.csv", CONTENT.encode())
        ann = world.analyst("ann")
        asked = {"mechanism": {"construction": "evidence"}, "epsilon": 2.0, "max_updates": None}
        id = world.open(ann, "d", **asked, max_queries=len(questions))
        for question in questions:
            world.ask(ann, id, question)
        order = world.built.services.datasets.public("d").budget.order
        left, moments = [], 0
        for line in map(json.loads, transcript_of(world.built.services, id)):
            if line["record"] != "measurement" or not line["sequence"]:
                continue
            told = line["measurement"]
            parts = told.get("strategy") or [{"marginal": told["marginal"], "moment": None, "multiplier": 1}]
            assert told["noise"]["kind"] == "gaussian"
            if any("rows" in part for part in parts):
                continue  # for a quantile, where what was released says so: test_quantile_rows_audit.py has them
            scale, start = Fraction(told["noise"]["scale"]), 0
            for part in parts:
                truth = exact(part)
                values = np.array(told["values"][start : start + len(truth)])
                left.append((values - truth) / float(scale))
                start += len(truth)
                moments += part["moment"] is not None
            assert start == len(told["values"])
            due = Fraction(order) * sum(largest(part) ** 2 for part in parts) / (2 * scale**2)
            assert 0 <= Fraction(line["cost"]["renyi"]) - due <= Fraction(1, 10**24)
            listed = world.built.services.measurements.list(AUDITOR, "d", 0, 1000).items
            assert line["cost"] in [item["cost"] for item in listed]
        if replayed:
            world.audit()
    finally:
        world.stop()
    assert moments > 8
    return left


def test_every_part_has_the_noise_that_its_record_states(tmp_path: Path) -> None:
    """Some two thousand values. Catches noise of another scale or law than stated and paid for, a part that is not
    multiplied as its record says, a moment other than by definition, and noise that parts share."""
    left = released(tmp_path, SystemNoise(), replayed=True)
    assert sum(map(len, left)) > 1500
    assert alarms(np.concatenate(left), "gaussian") == []
    for part in left:
        assert "size" not in alarms(part, "gaussian")
    assert not shared(left)


def shared(left: list[np.ndarray]) -> bool:
    """Whether parts that follow each other have noise in common: whole parts of continuous noise are never alike."""
    return any(len(a) == len(b) and np.allclose(a, b) for a, b in itertools.pairwise(left))


def test_noise_30_percent_too_small_is_found(tmp_path: Path) -> None:
    assert "size" in alarms(np.concatenate(released(tmp_path, Scaled(Fraction(7, 10)))), "gaussian")


def test_one_draw_for_two_parts_is_found(tmp_path: Path) -> None:
    assert shared(released(tmp_path, Shared()))


# An adversary with two files. Each is released from once, without noise; what is drawn of the law and scale that the
# service asked for makes the other stories.

EPSILON, DELTA, SAMPLES = 1.0, 1e-6, 4000
FEW: dict[str, Any] = {
    "kind": "table",
    "records_public": False,
    "attributes": [
        {"name": "income", "lower": 0, "upper": 1000, "grid": 1, "bins": 10, "outside": "clamp"},
        {"name": "job", "size": 50},
    ],
    "budget": {"epsilon": EPSILON, "delta": DELTA},
}
OTHERS = "income,job\n" + "".join(f"{17 * k % 1001},{k % 50}\n" for k in range(300))


def told(world: World, name: str) -> np.ndarray:
    """All of a budget is spent on a sum; what is released of the moment beyond that of the others, whom he knows, in
    units of what a record adds to it."""
    ann = world.analyst("ann")
    asked = {"mechanism": {"construction": "evidence"}, "epsilon": EPSILON, "max_updates": None}
    id = world.open(ann, name, **asked, max_queries=1)
    world.ask(ann, id, {"type": "sum", "of": "income"})
    for line in map(json.loads, transcript_of(world.built.services, id)):
        if line["record"] != "measurement":
            continue
        # The count of all may stand before it, in one cell.
        for place, part in enumerate(line["measurement"].get("strategy", ())):
            assert part["marginal"]["attributes"] == []
            if part["moment"] is not None:
                law, scale, _ = world.noise.asked[-1]
                values = line["measurement"]["values"][place] + drawn(law, scale, SAMPLES)
                # From the middle of the range, or from its least number.
                start = {"least": 0}[part["moment"]["end"]] if "end" in part["moment"] else 500
                return np.asarray(values / part["multiplier"]) - sum(17 * k % 1001 - start for k in range(300))
    raise AssertionError("no moment was measured")


def delta_found(folder: Path, record: str) -> float:
    """Delta at epsilon that is proven by releases from files with and without a record."""
    world, values = make_world(folder / "data", noise=Asked()), []
    try:
        for side, more in enumerate([f"{record},3\n", ""]):
            world.register_file({**FEW, "name": f"d{side}"}, "d.csv", (OTHERS + more).encode())
            values.append(told(world, f"d{side}"))
    finally:
        world.stop()
    events = [tuple(int((side > above).sum()) for side in values) for above in (250, 500, 2_000, 20_000)]
    return proven_delta(EPSILON, [(first, second) for first, second in events], SAMPLES, SAMPLES)


@pytest.mark.parametrize("record", ["1000", "1000000"])
def test_a_record_is_hidden(record: str, tmp_path: Path) -> None:
    """At the upper bound, and far beyond it, where it is moved to the bound. Would catch what the faults below do."""
    assert delta_found(tmp_path, record) <= DELTA


def test_a_moment_that_is_charged_as_a_count_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the largest weight is taken for 1."""
    monkeypatch.setattr(Moment, "largest", 1)
    assert delta_found(tmp_path, "1000") > DELTA


def test_a_record_that_is_not_moved_to_the_bound_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: numbers are summed as they stand in the file, as were they moved to a bound only where they
    are shown. The one beyond the bound adds all that it is."""
    proper = TableStrategy.exact

    def as_they_stand(strategy: TableStrategy, space: Space, data: ExactCounts) -> np.ndarray:
        found, start = proper(strategy, space, data), 0
        for part in strategy.parts:
            if part.moment is not None and int(data.marginal(())) > 300:
                found[start] += part.multiplier * (1_000_000 - 1000)
            start += part.marginal.cells
        return found

    monkeypatch.setattr(TableStrategy, "exact", as_they_stand)
    assert delta_found(tmp_path, "1000000") > DELTA
