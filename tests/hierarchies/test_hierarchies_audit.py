"""An audit of counts by a hierarchy: all that was measured, held against its record, and how often intervals hold.

The audit knows the table, and counts each level of the record's own tree anew, by the labels that the record has. What
is left, in units of the scale that it states, must be independent draws of the stated law
(:mod:`tests.sessions.test_direct_audit`), level by level and all together, and what was charged must be the price of
that law, by a formula of this file's own.

Wrong alarms have probability below 1e-6 a test.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from app.bootstrap.noise import SystemNoise
from app.declarations.spec import parse_spec
from app.estimation.tables.residuals import Residuals
from app.measurements.noise import Noise, NoiseKind
from app.measurements.pieces import counts_in
from app.measurements.record import Measurement, serving
from app.measurements.strategies.tables import TableStrategy
from app.spaces.factory import space_of
from app.spaces.queries.registry import parse_query
from app.spaces.questions import Nested
from tests.kit.noise import Scaled
from tests.kit.world import World, make_world, transcript_of
from tests.sessions.test_direct_audit import alarms

pytestmark = pytest.mark.statistical

NUMBER, PLACES = 4000, 200
RANDOM = np.random.default_rng(3)
PLACE, SEX = (
    np.minimum(RANDOM.integers(0, PLACES, NUMBER), RANDOM.integers(0, PLACES, NUMBER)),
    RANDOM.integers(0, 2, NUMBER),
)
JOB = np.arange(NUMBER) % 3000
#: Four parts of unlike sizes, one of them divided once more, in odd and even ones.
CUTS = {"north": range(20), "south": range(20, 100), "east": range(100, 110)}
LEVELS: dict[str, Any] = {name: [f"p{k}" for k in kept] for name, kept in CUTS.items()}
LEVELS["west"] = {half: [f"p{k}" for k in range(110 + odd, PLACES, 2)] for odd, half in enumerate(("even", "odd"))}
SPEC: dict[str, Any] = {
    "name": "d",
    "kind": "table",
    "attributes": [
        {"name": "place", "values": [f"p{k}" for k in range(PLACES)], "levels": LEVELS},
        {"name": "sex", "size": 2},
        {"name": "job", "size": 3000},
        {"name": "code", "size": 200},
    ],
    "budget": {"epsilon": 4.0, "delta": 1e-6},
}
CONTENT = "place,sex,job,code\n" + "".join(f"p{p},{s},{j},{j % 200}\n" for p, s, j in zip(PLACE, SEX, JOB, strict=True))
COLUMNS = [PLACE, SEX]
QUESTIONS = [
    {"type": "hierarchy", "attribute": "place", "within": within, "where": where}
    for within in (120.0, 80.0)
    for where in ({}, {"sex": 1})
]


def released(folder: Path, noise: SystemNoise, *, replayed: bool = False) -> list[np.ndarray]:
    """What is left of every level that was measured, in units of its record's scale."""
    world: World = make_world(folder, noise=noise)
    try:
        world.register_file(SPEC, "d.csv", CONTENT.encode())
        ann = world.analyst("ann")
        asked = {"mechanism": {"construction": "evidence"}, "epsilon": 4.0, "max_updates": None, "within": 200.0}
        id = world.open(ann, "d", **asked)
        for question in QUESTIONS:
            world.ask(ann, id, question)
        order = world.built.services.datasets.public("d").budget.order
        left = []
        for line in map(json.loads, transcript_of(world.built.services, id)):
            if line["record"] != "measurement" or "hierarchy" not in line["measurement"]:
                continue
            told, start = line["measurement"], 0
            assert told["noise"]["kind"] == "gaussian"
            scale = Fraction(told["noise"]["scale"])
            for part in told["hierarchy"]:
                cell, cells = np.zeros(NUMBER, np.int64), 1
                marginal = part["marginal"]
                for axis, size, labels in zip(
                    marginal["attributes"], marginal["sizes"], marginal["partitions"], strict=True
                ):
                    own = np.arange(size) if labels is None else np.array(labels)
                    cell, cells = cell * (own.max() + 1) + own[COLUMNS[axis]], cells * int(own.max() + 1)
                truth = np.bincount(cell, minlength=cells) * part["multiplier"]
                left.append((np.array(told["values"][start : start + cells]) - truth) / float(scale))
                start += cells
            assert start == len(told["values"])
            due = Fraction(order) * sum(part["multiplier"] ** 2 for part in told["hierarchy"]) / (2 * scale**2)
            assert 0 <= Fraction(line["cost"]["renyi"]) - due <= Fraction(1, 10**24)
        if replayed:
            world.audit()
    finally:
        world.stop()
    return left


def test_every_level_has_the_noise_that_its_record_states(tmp_path: Path) -> None:
    """Some thousand values. Catches noise of another scale or law than stated and paid for, a level that is not counted
    or multiplied as its record says, and noise that levels share."""
    left = released(tmp_path, SystemNoise(), replayed=True)
    assert len(left) >= 4
    assert sum(map(len, left)) > 800
    assert alarms(np.concatenate(left), "gaussian") == []
    for level in left:
        assert len(level) < 8 or "size" not in alarms(level, "gaussian")


def test_noise_30_percent_too_small_is_found(tmp_path: Path) -> None:
    """Planted: less noise than the record states."""
    assert "size" in alarms(np.concatenate(released(tmp_path, Scaled(Fraction(7, 10)))), "gaussian")


def drawn(question: Nested, strategy: TableStrategy, noise: Noise, rng: np.random.Generator) -> Residuals:
    """What is known of a table of zeros after a measurement of it."""
    draw, cells = rng.laplace if noise.kind == "laplace" else rng.normal, strategy.cells
    known = Residuals(question.sizes)
    for counts in counts_in(Measurement(strategy, noise, np.rint(draw(0, float(noise.scale), cells)).astype(np.int64))):
        known.add(counts)
    return known


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("division", range(3))
def test_intervals_hold_and_errors_are_those_that_are_stated(kind: NoiseKind, division: int) -> None:
    """Trees measured again and again: of each node's intervals 95% hold, or more, and errors are in squares as large as
    their variances say. Catches a variance of a node that forgets its parent or its parts."""
    spec = {**SPEC, "attributes": SPEC["attributes"][:1]}
    query = parse_query({"type": "hierarchy", "attribute": "place"}).compiled(space_of(parse_spec(spec)))
    question = query.question
    assert isinstance(question, Nested)
    strategy, noise, rounds = serving(question)[division], Noise(kind, Decimal(400), 0), 150
    rng = np.random.default_rng(division)
    held, squares = np.zeros(question.shape), np.zeros(question.shape)
    for _ in range(rounds):
        known = drawn(question, strategy, noise, rng)
        found = known.unbiased(question)
        held += np.abs(found.values) <= known.reaches(question, found, 0.95)
        squares += found.values**2 / found.variances
    # Nodes are not independent, rounds are: the least of all nodes is held against what chance leaves of each.
    nodes = math.prod(question.shape)
    assert held.min() >= stats.binom(rounds, 0.95).ppf(1e-6 / nodes)
    if kind == "gaussian":
        assert held.mean() / rounds == pytest.approx(0.95, abs=0.01)
        assert squares.max() < stats.chi2(rounds).isf(1e-6 / nodes)
        assert squares.min() > stats.chi2(rounds).ppf(1e-6 / nodes)
    assert squares.mean() / rounds == pytest.approx(1, abs=0.05)
