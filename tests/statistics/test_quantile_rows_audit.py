"""An audit of rows over ranges: what sessions measure for quantiles, held against its price.

An adversary knows two files that differ in one record. What a session measures for quantiles is counted in both by
plain loops, which are held against what is released without noise. Noise of the recorded scale on each value then tells
the files apart, at the ledger's order, by what the sum of the squared differences says: all rows that a record moves
count together. That may be no more than was charged.
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
from app.measurements.rows import Rows, Sensitivity
from app.spaces.partition import Partition
from tests.kit.noise import Noise, Scaled
from tests.kit.world import World, make_world, transcript_of
from tests.sessions.test_direct_audit import alarms

pytestmark = pytest.mark.statistical

NUMBER = 20_000
RANDOM = np.random.default_rng(11)
SPEC: dict[str, Any] = {
    "kind": "table",
    "records_public": False,
    "attributes": [
        {"name": "part", "size": 6},
        {"name": "income", "lower": 0, "upper": 9999, "grid": 1, "bins": 50, "missing": True, "outside": "clamp"},
        {"name": "job", "size": 400},
    ],
    "budget": {"epsilon": 4.0, "delta": 1e-6},
}
RECORDS = [
    (int(p), "" if none else str(int(i)), int(j))
    for p, i, none, j in zip(
        RANDOM.integers(0, 6, NUMBER),
        RANDOM.integers(0, 10_000, NUMBER),
        RANDOM.random(NUMBER) < 0.1,
        RANDOM.integers(0, 400, NUMBER),
        strict=True,
    )
]
#: Of groups, which the opening tells nothing of; the second so far from the first that whatever the noise these tell
#: hardly anything of them.
QUESTIONS: list[dict[str, Any]] = [
    {"type": "quantile", "of": "income", "q": [0.4, 0.6], "group_by": ["part"]},
    {"type": "quantile", "of": "income", "q": [0.1, 0.9], "group_by": ["part"]},
]
#: How many questions are declared: so many are paid with Gaussian noise.
DECLARED = 60
#: At either end of the range, within it, beyond it, and without a value.
MORE = [(3, "0", 0), (3, "9999", 399), (3, "5000", 7), (3, "2480", 7), (3, "123456", 7), (3, "", 7)]
#: Along the range.
EVERYWHERE = [(3, str(number), 0) for number in range(0, 10_000, 50)]


def measured(world: World, name: str, records: list[tuple[int, str, int]]) -> list[dict[str, Any]]:
    """The records of what a session measures for quantiles, each of it rows with Gaussian noise."""
    content = "part,income,job\n" + "".join(f"{p},{i},{j}\n" for p, i, j in records)
    world.register_file(SPEC | {"name": name}, "d.csv", content.encode())
    ann = world.analyst("ann")
    asked = {"mechanism": {"construction": "evidence"}, "epsilon": 4.0, "max_updates": None}
    id = world.open(ann, name, **asked, max_queries=DECLARED)
    for question in QUESTIONS:
        world.ask(ann, id, question)
    lines = map(json.loads, transcript_of(world.built.services, id))
    found = [line for line in lines if line["record"] == "measurement" and "strategy" in line["measurement"]]
    assert len(found) == len(QUESTIONS)
    assert all("rows" in part for line in found for part in line["measurement"]["strategy"])
    assert {line["measurement"]["noise"]["kind"] for line in found} == {"gaussian"}
    return found


def counted(part: dict[str, Any], records: list[tuple[int, str, int]]) -> np.ndarray:
    """The values of a part, record by record: each is in the cell of its part and its income, and moves every row by
    what that weighs the cell by."""
    marginal, rows = part["marginal"], Rows.read(part["rows"])
    assert marginal["attributes"] == [0, 1]
    income = Partition.read(marginal["partitions"][-1], marginal["sizes"][-1])
    cells = np.zeros(rows.cells, np.int64)
    for group, number, _ in records:
        place = 10_000 if number == "" else min(int(number), 9_999)
        cells[group * income.cells + int(income.labels[place])] += 1
    values = np.zeros(rows.count, np.int64)
    for row in range(rows.count):
        own = slice(rows.starts[row], rows.starts[row + 1])
        values[row] = sum(w * cells[c] for w, c in zip(rows.weights[own], rows.columns[own], strict=True))
    return values * part["multiplier"]


def losses(folder: Path, more: list[tuple[int, str, int]]) -> list[tuple[Fraction, Fraction]]:
    """Of every measurement what one of these records tells at worst, and what was charged for it."""
    world = make_world(folder, noise=Noise())
    try:
        lines = measured(world, "d", RECORDS)
        order = Fraction(world.built.services.datasets.public("d").budget.order)
    finally:
        world.stop()
    found = []
    for line in lines:
        (part,), scale = line["measurement"]["strategy"], Fraction(line["measurement"]["noise"]["scale"])
        assert counted(part, RECORDS).tolist() == line["measurement"]["values"]
        squares = [int(np.square(counted(part, [one]).astype(object)).sum()) for one in more]
        found.append((order * max(squares) / (2 * scale**2), Fraction(line["cost"]["renyi"])))
    return found


def test_a_record_is_hidden_and_the_price_is_what_it_tells(tmp_path: Path) -> None:
    """Would catch what the fault below does, and rows that are charged for more than any record moves them by."""
    for lost, charged in losses(tmp_path, MORE):
        assert charged * Fraction(99, 100) <= lost <= charged


def test_rows_that_are_not_charged_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: every other row is left out of what a record moves the values by."""

    def of_some(rows: Rows) -> Sensitivity:
        some = np.abs(rows.matrix.toarray()[::2])
        return Sensitivity(int(some.sum(axis=0).max()), int((some**2).sum(axis=0).max()))

    monkeypatch.setattr(Rows, "sensitivity", property(of_some))
    assert any(lost > charged for lost, charged in losses(tmp_path, EVERYWHERE))


def left(folder: Path, noise: SystemNoise) -> np.ndarray:
    """What is left of all measured values when what was counted is taken off, in units of the scale of each, over
    several sessions; an even number of them."""
    world, found = make_world(folder, noise=noise), []
    try:
        for line in (line for k in range(3) for line in measured(world, f"d{k}", RECORDS)):
            (part,), scale = line["measurement"]["strategy"], float(line["measurement"]["noise"]["scale"])
            found.append((np.array(line["measurement"]["values"]) - counted(part, RECORDS)) / scale)
    finally:
        world.stop()
    noise_left = np.concatenate(found)
    return noise_left[: len(noise_left) // 2 * 2]


def test_every_value_has_the_noise_that_its_record_states(tmp_path: Path) -> None:
    """Would catch noise that rows share, and noise of another scale than is paid for."""
    noise = left(tmp_path, SystemNoise())
    assert len(noise) >= 200
    assert alarms(noise, "gaussian") == []


def test_noise_that_is_30_percent_too_small_is_found(tmp_path: Path) -> None:
    assert "size" in alarms(left(tmp_path, Scaled(Fraction(7, 10))), "gaussian")
