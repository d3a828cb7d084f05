"""An audit of distances from both ends: a pure session's sums and means by group, held against their price.

An adversary knows two files that differ in one record. All that a session measures is taken from both without noise;
noise of the recorded scale on each value then tells them apart by ``exp(sum of |difference|/scale)`` at most, and by
that exactly where he is lucky. That may be no more than the session was charged, and in all no more than its epsilon.
The same releases must have the noise that their records state, of its own for each value.

Wrong alarms have probability below 1e-6 a test.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.measurements.strategies.tables import Moment
from tests.kit.noise import Noise, Scaled
from tests.kit.world import World, make_world, transcript_of
from tests.sessions.test_direct_audit import alarms

pytestmark = pytest.mark.statistical

GROUPS, NUMBER = 60, 3000
EPSILON = Fraction(1)
SPEC: dict[str, Any] = {
    "kind": "table",
    "records_public": False,
    "attributes": [
        {"name": "region", "size": GROUPS},
        {"name": "income", "lower": 0, "upper": 1000, "grid": 10, "bins": 10, "missing": True, "outside": "clamp"},
        {"name": "age", "lower": 15, "upper": 94, "grid": 1, "bins": 10},
    ],
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
RANDOM = np.random.default_rng(5)
RECORDS = [
    (int(r), "" if none else str(10 * int(i)), int(a))
    for r, i, none, a in zip(
        RANDOM.integers(0, GROUPS, NUMBER),
        RANDOM.integers(0, 101, NUMBER),
        RANDOM.random(NUMBER) < 0.1,
        RANDOM.integers(15, 95, NUMBER),
        strict=True,
    )
]
QUESTIONS: list[dict[str, Any]] = [
    {"type": "mean", "of": "income", "group_by": ["region"]},
    {"type": "sum", "of": "age", "group_by": ["region"]},
    {"type": "variance", "of": "age", "group_by": ["region"], "where": {"income": {"ge": 0}}},
]


def content(records: list[tuple[int, str, int]]) -> bytes:
    return ("region,income,age\n" + "".join(f"{r},{i},{a}\n" for r, i, a in records)).encode()


def measured(world: World, name: str, records: list[tuple[int, str, int]]) -> list[dict[str, Any]]:
    """The records of all measurements of a session of the whole budget; some are distances from both ends."""
    world.register_file(SPEC | {"name": name}, "d.csv", content(records))
    ann = world.analyst("ann")
    asked = {"mechanism": {"construction": "evidence"}, "epsilon": float(EPSILON), "max_updates": None}
    id = world.open(ann, name, **asked, max_queries=len(QUESTIONS))
    for question in QUESTIONS:
        world.ask(ann, id, question)
    lines = map(json.loads, transcript_of(world.built.services, id))
    found = [line for line in lines if line["record"] == "measurement"]
    ends = [
        part["moment"]["end"]
        for line in found
        for part in line["measurement"].get("strategy", ())
        if part["moment"] and "end" in part["moment"]
    ]
    assert {"least", "greatest"} == set(ends)
    assert {line["measurement"]["noise"]["kind"] for line in found} == {"laplace"}
    return found


def losses(folder: Path, more: tuple[int, str, int]) -> list[tuple[Fraction, Fraction]]:
    """Of every measurement what a record tells at worst, and what was charged for it."""
    world = make_world(folder, noise=Noise())
    try:
        without, beside = measured(world, "without", RECORDS), measured(world, "beside", [*RECORDS, more])
    finally:
        world.stop()
    found = []
    for one, other in zip(without, beside, strict=True):
        assert one["measurement"].get("strategy") == other["measurement"].get("strategy")
        assert one["cost"] == other["cost"]
        values = [np.array(line["measurement"]["values"]) for line in (one, other)]
        moved = int(np.abs(values[1] - values[0]).sum())
        found.append((moved / Fraction(one["measurement"]["noise"]["scale"]), Fraction(one["cost"]["pure"])))
    return found


#: At either end of the range, within it, beyond it, and without a value.
MORE = [(7, "0", 15), (7, "1000", 94), (7, "370", 40), (7, "999999", 94), (7, "", 15)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[list[tuple[Fraction, Fraction]]]:
    return [losses(tmp_path_factory.mktemp("ends"), more) for more in MORE]


@pytest.mark.parametrize("place", range(len(MORE)))
def test_a_record_is_hidden(found: list[list[tuple[Fraction, Fraction]]], place: int) -> None:
    """Would catch what the fault below does."""
    assert all(lost <= charged for lost, charged in found[place])
    assert sum(charged for _, charged in found[place]) <= EPSILON


def test_the_price_is_what_the_worst_record_tells(found: list[list[tuple[Fraction, Fraction]]]) -> None:
    """Would catch distances from both ends that are charged each by itself: half of the budget would buy nothing."""
    worst = [max(each) for each in zip(*found, strict=True)]
    assert all(lost >= charged * Fraction(999, 1000) for lost, charged in worst[:2])


def test_distances_from_one_end_twice_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the steps of both parts are counted from the least number, and the parts are charged once."""
    proper = Moment.__dict__["weights"].__get__

    def from_one_end(moment: Moment) -> Any:
        weights = proper(moment, Moment)
        return weights[::-1] if moment.end == "greatest" else weights

    monkeypatch.setattr(Moment, "weights", property(from_one_end))
    assert any(lost > charged for lost, charged in losses(tmp_path, (7, "1000", 94)))


def left(folder: Path, noise: SystemNoise) -> np.ndarray:
    """What is left of all measured values when those of a session without noise are taken off, in units of the scales:
    what a session measures does not depend on the values here, as the first questions are each of something else."""
    found = []
    for name, source in (("noisy", noise), ("exact", Noise())):
        world = make_world(folder / name, noise=source)
        try:
            found.append(measured(world, "d", RECORDS)[:2])
        finally:
            world.stop()
    values = [[np.array(line["measurement"]["values"]) for line in lines] for lines in found]
    scales = [float(line["measurement"]["noise"]["scale"]) for line in found[0]]
    assert scales == [float(line["measurement"]["noise"]["scale"]) for line in found[1]]
    return np.concatenate([(a - b) / scale for a, b, scale in zip(*values, scales, strict=True)])


def test_every_value_has_the_noise_that_its_record_states(tmp_path: Path) -> None:
    """Would catch noise that two parts share, and noise of another scale than is paid for."""
    found = left(tmp_path, SystemNoise())
    assert len(found) >= 4 * GROUPS
    assert alarms(found, "laplace") == []


def test_noise_half_as_large_is_found(tmp_path: Path) -> None:
    assert "size" in alarms(left(tmp_path, Scaled(Fraction(1, 2))), "laplace")
