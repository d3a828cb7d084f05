"""An audit of evidence sessions on graphs: what is measured for questions, through the whole service with real noise.

Blocks and a histogram of degrees are asked in sessions that spend all of epsilon on one question with pure noise. Each
pair of nodes, or each node, is a story of its own, which one edge tells: what is released of it hangs on no other, and
noise is drawn for each number alone. The adversary counts how often what was released speaks for the edge. By the
promise of the session no event may be e^epsilon times as likely with an edge as without, but for delta. The service
measures each graph once, without noise; of the law and the scale that it asked for as many stories are drawn as the
audit wants.

Cuts, degrees of all nodes and the sum of all cells are held against what their records state: what is left of each must
be an independent draw from the stated law (see :mod:`tests.sessions.test_direct_audit`), and its price that of the
law, found here by how far an edge moves what was measured.

The planted faults make that fail. Wrong alarms have a probability below 1e-6 a test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.measurements.noise import Noise
from app.measurements.strategies.asked import Asked
from app.measurements.strategies.degrees import Degrees
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer
from app.privacy.ledger import Amounts
from app.spaces.queries.degrees import CompiledDegrees
from tests.kit.audits import proven_delta
from tests.kit.noise import Asked as Silent
from tests.kit.noise import Scaled, drawn
from tests.kit.service import npy, unique
from tests.kit.world import AUDITOR, World, make_world, open_session
from tests.sessions.test_direct_audit import alarms

pytestmark = pytest.mark.statistical

EPSILON, DELTA = 1.0, 1e-6
BUDGET = {"epsilon": EPSILON, "delta": DELTA}
#: Pairs of nodes; and nodes on the left, of which each has a degree of its own; so often released.
PAIRS, NODES, TIMES = 1000, 200, 70
STORIES = 6 * PAIRS
BLOCKS = {"type": "blocks", "left": {str(k): [2 * k, 2 * k + 1] for k in range(PAIRS)}, "only": "within"}
DEGREES = {"type": "degrees", "side": "left", "bins": list(range(2 * NODES))}


def released(world: World, name: str) -> list[tuple[dict[str, Any], Any]]:
    """All measurements of a data set: what the list says of each, and the release."""
    shown, items, after = world.built.services.measurements, [], "0"
    while after is not None:
        page = shown.list(AUDITOR, name, int(after), 1000)
        items, after = items + page.items, page.after
    return [(item, shown.get(AUDITOR, name, item["id"]).release) for item in items]


@contextmanager
def audited(folder: Path, noise: Any) -> Iterator[World]:
    """One service for all sessions of a case; their books are held against each other in the end."""
    world: World = make_world(folder, noise=noise)
    try:
        yield world
        world.audit()
    finally:
        world.stop()


def told(
    world: World, spec: dict[str, Any], file: str, data: bytes, question: Any, times: int, factor: Fraction
) -> Any:
    """What is released, so many times, for a question on which all of epsilon is spent, of a data set of its own."""
    name = unique("g")
    world.register_file({**spec, "budget": BUDGET, "name": name}, file, data)
    ann = world.analyst("ann")
    words = {"mechanism": {"construction": "evidence"}, "epsilon": EPSILON, "max_queries": 1, "max_updates": None}
    id = world.open(ann, name, **words)
    assert world.built.services.sessions.get(ann, id)["plan"]["mode"] == "laplace"
    world.noise.asked.clear()
    answer = world.ask(ann, id, question)
    assert answer["source"] == "measurement"
    assert 0.99 * EPSILON < answer["charged_epsilon"] <= EPSILON
    ((_, release),) = released(world, name)
    assert isinstance(release.strategy, Asked)
    assert release.noise.kind == "laplace"
    values = np.asarray(release.values).reshape(-1)
    # A draw of its own for each number, all of one law.
    ((law, scale),) = {(law, scale) for law, scale, _ in world.noise.asked}
    assert sum(n for _, _, n in world.noise.asked) == len(values)
    noise = drawn(law, Fraction(scale) * factor, times * len(values)).reshape(times, -1)
    return (values + np.ldexp(noise, -release.noise.bits)).reshape(-1)


def delta_of_blocks(folder: Path, factor: Fraction) -> float:
    """By pairs that are joined, or joined to others."""
    worlds, spec = [], {"kind": "graph", "nodes": 2 * PAIRS}
    with audited(folder, Silent()) as world:
        for other in (1, 3):
            edges = "".join(f"{2 * k} {(2 * k + other) % (2 * PAIRS)}\n" for k in range(PAIRS))
            worlds.append(told(world, spec, "g.txt", edges.encode(), BLOCKS, STORIES // PAIRS, factor))
    thresholds = np.arange(-1, 4.5, 0.5)
    events = [(int((worlds[0] >= t).sum()), int((worlds[1] >= t).sum())) for t in thresholds]
    return proven_delta(EPSILON, events, STORIES, STORIES)


def delta_of_degrees(folder: Path, factor: Fraction) -> float:
    """By nodes on the left of which the k-th has 2k neighbours, or one more: so that it is the only one in its bin, or
    in the next."""
    worlds, spec = [], {"kind": "bipartite", "left": NODES, "right": 2 * NODES}
    with audited(folder, Silent()) as world:
        for more in (1, 0):
            data = npy((np.arange(2 * NODES) < 2 * np.arange(NODES)[:, None] + more).astype(np.uint8))
            values = told(world, spec, "g.npy", data, DEGREES, TIMES, factor)
            worlds.append((values[0::2], values[1::2]))
    events = []
    for t in (0.0, 0.5, 1.0):
        counts = [int(((values[1] >= 1 - t) & (values[0] <= t)).sum()) for values in worlds]
        events.append((counts[0], counts[1]))
    return proven_delta(EPSILON, events, TIMES * NODES, TIMES * NODES)


@pytest.mark.parametrize("delta_of", [delta_of_blocks, delta_of_degrees])
def test_an_edge_is_hidden(tmp_path: Path, delta_of: Callable[[Path, Fraction], float]) -> None:
    """Would catch what the faults below do, and noise that is shared out among the numbers of a question."""
    assert delta_of(tmp_path, Fraction(1)) <= DELTA


@pytest.mark.parametrize("delta_of", [delta_of_blocks, delta_of_degrees])
def test_too_little_noise_is_found(tmp_path: Path, delta_of: Callable[[Path, Fraction], float]) -> None:
    """The audits find noise that is 30% too small."""
    assert delta_of(tmp_path, Fraction(7, 10)) > DELTA


def test_a_histogram_of_degrees_charged_as_a_sum_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that leaves one bin and enters another moves two numbers."""
    monkeypatch.setattr(CompiledDegrees, "l1", lambda _, gamma, side=None: gamma)
    assert delta_of_degrees(tmp_path, Fraction(1)) > DELTA


# Cuts and degrees of all nodes, against what their records state.

#: Of the session below: how many cuts are asked and, as some are answered by what is known, how many must be measured
#: for faults of their noise to be found.
NODES_OF_CUTS, CUTS, MEASURED = 150, 220, 80
GRAPH = (np.random.default_rng(1).random((NODES_OF_CUTS, NODES_OF_CUTS)) < 0.2) & ~np.eye(NODES_OF_CUTS, dtype=bool)


def oracle(noise: Noise, absolute: int, squared: int, order: Decimal) -> Amounts:
    """What noise costs where neighbours differ by so much in L1, and by so much in the square of L2, in counts."""
    unit = 1 << noise.bits
    scale = Fraction(noise.scale) * unit
    if noise.kind == "gaussian":
        return Amounts.of(DiscreteGaussianAnswer(scale, squared * unit**2), order)
    return Amounts.of(DiscreteLaplaceAnswer(scale, absolute * unit), order)


def kept(folder: Path, noise: SystemNoise, cuts: int = CUTS) -> list[str]:
    """What is wrong with a session that measured all degrees, the sum of all cells and then cuts: a price, the number
    of cuts, or the draws."""
    world, wrong, left, spent = make_world(folder, noise=noise), [], [], Decimal(0)
    rng, cells = np.random.default_rng(2), GRAPH.astype(np.int64)
    try:
        spec = {"kind": "graph", "nodes": NODES_OF_CUTS, "directed": True, "budget": {"epsilon": 2.0, "delta": DELTA}}
        world.register_file({**spec, "name": "g"}, "g.npy", npy(GRAPH.astype(np.uint8)))
        ann = world.analyst("ann")
        # Of so many cuts the edges would be the better bargain: their number is not declared.
        asked = {"dataset": "g", "mechanism": {"construction": "evidence"}, "epsilon": 2.0}
        id = str(json.loads(open_session(world.built.services, ann, asked, None))["id"])
        assert world.built.services.sessions.get(ann, id)["plan"]["mode"] == "degrees"
        truths = [int(cells.sum())]
        for number in range(1, cuts + 1):
            sides = [np.flatnonzero(rng.random(NODES_OF_CUTS) < 0.5) for _ in range(2)]
            answer = world.ask(ann, id, {"type": "cut", "left": sides[0].tolist(), "right": sides[1].tolist()})
            if answer["source"] == "measurement":
                truths.append(int(cells[np.ix_(*sides)].sum()))
            assert number == answer["sequence"]
        order = world.built.services.datasets.public("g").budget.order
        measured = iter(truths)
        for item, release in released(world, "g"):
            if isinstance(release.strategy, Degrees):
                exact, sensitivity = np.concatenate([cells.sum(axis=1), cells.sum(axis=0)]), 2
            else:
                exact, sensitivity = np.array([next(measured)]), 1
            price = oracle(release.noise, sensitivity, sensitivity, order)
            if item["cost"] != price.document():
                wrong.append("price")
            if release.noise.kind != "gaussian":
                wrong.append("law")
            left.append((np.asarray(release.values) - exact) / float(release.noise.scale))
            spent += Amounts.read(item["cost"]).renyi
        assert next(measured, None) is None
        assert Decimal(world.built.services.sessions.get(ann, id)["spent"]) == spent
        world.audit()
    finally:
        world.stop()
    if cuts == CUTS and len(left) < 2 + MEASURED:
        wrong.append("few")
    for draws in (np.concatenate(left), np.concatenate(left[1:])):
        wrong += alarms(draws[len(draws) % 2 :], "gaussian")  # which looks at pairs
    return wrong


#: Openings that measure the sum of all cells, each anew.
OPENINGS = 60


def kept_of_totals(folder: Path, noise: SystemNoise, openings: int = OPENINGS) -> list[str]:
    """What is wrong with the sum of all cells in sessions that start from nothing: a price, or the draws."""
    world, wrong, left = make_world(folder, noise=noise), [], []
    try:
        spec = {"kind": "graph", "nodes": NODES_OF_CUTS, "directed": True, "budget": {"epsilon": 2.0, "delta": DELTA}}
        world.register_file({**spec, "name": "g"}, "g.npy", npy(GRAPH.astype(np.uint8)))
        ann = world.analyst("ann")
        asked = {"dataset": "g", "mechanism": {"construction": "evidence"}, "epsilon": 0.01, "start": "nothing"}
        for _ in range(openings):
            id = str(json.loads(open_session(world.built.services, ann, asked, None))["id"])
            world.close(ann, id)
        order = world.built.services.datasets.public("g").budget.order
        for item, release in released(world, "g"):
            if isinstance(release.strategy, Asked):
                if item["cost"] != oracle(release.noise, 1, 1, order).document():
                    wrong.append("price")
                if release.noise.kind != "gaussian":
                    wrong.append("law")
                left.append((float(release.values[0]) - int(GRAPH.sum())) / float(release.noise.scale))
        world.audit()
    finally:
        world.stop()
    assert len(left) == openings
    return wrong + alarms(np.array(left), "gaussian")


def test_the_sum_of_all_cells_has_the_noise_that_is_stated_and_paid(tmp_path: Path) -> None:
    """Of very many openings, as each measures it once. Catches what the faults below do, and noise of degrees that is
    used again."""
    assert kept_of_totals(tmp_path, SystemNoise()) == []


def test_stated_noise_of_the_sum_of_all_cells_that_is_not_drawn_is_found(tmp_path: Path) -> None:
    """Noise that is a third as large: it is missed with a probability below 1e-9."""
    assert "size" in kept_of_totals(tmp_path, Scaled(Fraction(1, 3)))


def test_a_sum_of_all_cells_that_is_charged_too_little_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if an edge moved it by half."""

    sensitivity = Asked.sensitivity
    monkeypatch.setattr(Asked, "sensitivity", lambda *asked: tuple(n // 2 for n in sensitivity(*asked)))
    assert "price" in kept_of_totals(tmp_path, SystemNoise(), 2)


def test_what_is_measured_has_the_noise_that_is_stated_and_paid(tmp_path: Path) -> None:
    """Degrees of all nodes, the sum of all cells, and more than a hundred cuts. Catches noise of another scale or law
    than stated, noise that is used twice, and a price of other noise."""
    assert kept(tmp_path, SystemNoise()) == []


def test_stated_noise_that_is_not_drawn_is_found(tmp_path: Path) -> None:
    """Noise that is 30% too small."""
    assert "size" in kept(tmp_path, Scaled(Fraction(7, 10)))


def test_degrees_charged_for_one_end_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edge is counted by the degrees of both of its ends."""

    monkeypatch.setattr(Degrees, "events", lambda degrees, noise, adjacency: degrees.edges.events(noise, adjacency))
    assert "price" in kept(tmp_path, SystemNoise(), 9)


def test_cuts_that_are_charged_too_little_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if an edge moved them by half."""
    sensitivity = Asked.sensitivity
    monkeypatch.setattr(Asked, "sensitivity", lambda *asked: tuple(n // 2 for n in sensitivity(*asked)))
    assert "price" in kept(tmp_path, SystemNoise(), 9)
