"""Questions that released degrees tell: sessions that measure nothing else say so, and their intervals hold."""

from __future__ import annotations

import json

import numpy as np
import pytest

from app.curator.dataset import PublicDataset
from app.curator.mechanisms.protocol import Answer
from app.declarations.spec import parse_spec
from app.measurements.packing import unpacked_numbers
from app.privacy.ledger import Account
from app.spaces.dense import CountsTensor
from tests.audit.playing import PlayingGraphs, judged
from tests.kit.forger import Document
from tests.kit.noise import Seeded

pytestmark = [pytest.mark.unit, pytest.mark.slow]

NODES, SESSIONS = 60, 150
BUDGET = {"epsilon": 0.2, "delta": 1e-9}
SPECS: dict[str, Document] = {
    "directed": {"kind": "graph", "nodes": NODES, "directed": True},
    "undirected": {"kind": "graph", "nodes": NODES},
}
EVERYTHING: Document = {"type": "cut", "left": "all", "right": "all"}


def ring(*, directed: bool) -> np.ndarray:
    """Each node has an edge to the next six; of an undirected graph all have twelve, but for a hub that has all."""
    after = (np.arange(NODES)[None] - np.arange(NODES)[:, None]) % NODES
    cells = ((after >= 1) & (after <= 6)).astype(np.int64)
    cells[0, 1:] = 1
    return cells if directed else np.maximum(cells, cells.T)


class Degrees(PlayingGraphs):
    """A session that pays for degrees and the sum of all cells, and for nothing after."""

    def __init__(self, kind: str, seed: int) -> None:
        spec = parse_spec({"name": "g", "budget": BUDGET, **SPECS[kind]})
        self.kind, self.drawn = kind, Seeded(np.random.default_rng([5, seed]))
        self.cells = CountsTensor(ring(directed=kind == "directed"))
        dataset = PublicDataset(spec, left=Account(PublicDataset(spec).budget).whole)
        self.open(dataset, {"dataset": "g", "epsilon": 0.2, "max_queries": 200})

    def released(self) -> tuple[np.ndarray, float]:
        """Degrees as they were released, and the scale of their noise."""
        degrees = next(
            told for told in (json.loads(line)["measurement"] for line in self.lines[1:]) if "degrees" in told
        )
        values = unpacked_numbers(degrees["values"], NODES if self.kind == "undirected" else 2 * NODES)
        return values.astype(float), float(degrees["noise"]["scale"])


def alone(node: int) -> Document:
    """All edges of a node, or that leave it."""
    return {"type": "cut", "left": [node], "right": [other for other in range(NODES) if other != node]}


def holds(answer: Answer, truth: float) -> bool:
    assert answer.accuracy is not None
    assert answer.accuracy.lows[0] <= answer.accuracy.values[0] <= answer.accuracy.highs[0]
    return bool(answer.accuracy.lows[0] - 1e-9 <= truth <= answer.accuracy.highs[0] + 1e-9)


@pytest.mark.parametrize("kind", SPECS)
def test_intervals_of_degrees_hold(kind: str) -> None:
    """Of a hub, of a common node, of half of the rows of a directed graph and of all cells at once 95% hold, or nearly.
    Would catch the shrunk degree of a hub with the interval of what is expected, which holds half as often."""
    truth, half = ring(directed=kind == "directed"), list(range(NODES // 2))
    asked = [(alone(0), float(NODES - 1)), (alone(7), float(truth[7].sum()))]
    if kind == "directed":
        asked.append(({"type": "cut", "left": half, "right": "all"}, float(truth[half].sum())))
        asked.append(({"type": "cut", "left": "all", "right": [3]}, float(truth[:, 3].sum())))
    asked.append((EVERYTHING, float(truth.sum()) / (2 if kind == "undirected" else 1)))
    sessions = [Degrees(kind, seed) for seed in range(SESSIONS)]
    for words, value in asked:
        answers = [session.ask(words) for session in sessions]
        assert all(each.accuracy is not None and each.accuracy.unbiased.all() for each in answers)
        assert 0.9 <= np.mean([holds(each, value) for each in answers]) <= 0.99


@pytest.mark.parametrize("kind", SPECS)
def test_a_degree_is_the_number_that_was_released(kind: str) -> None:
    """The middle of its interval, which reaches as far as Laplace noise of the scale that was paid for. Would catch a
    row taken for a column, and a normal law."""
    for seed in range(5):
        session = Degrees(kind, seed)
        released, scale = session.released()
        for node in (0, 7, 31):
            accuracy = session.ask(alone(node)).accuracy
            assert accuracy is not None
            assert accuracy.linear is not None
            assert accuracy.linear[0] == pytest.approx(released[node], abs=1e-6)
            middle = float(np.clip(released[node], 0, NODES - 1))
            reach = scale * np.log(20)
            assert accuracy.highs[0] == pytest.approx(min(middle + reach, NODES - 1), abs=1)
            assert accuracy.lows[0] == pytest.approx(max(middle - reach, 0), abs=1)


def test_several_nodes_of_an_undirected_graph_are_the_models() -> None:
    """An edge between two of them is in the degrees of both. Would catch a sum of degrees in its place."""
    accuracy = Degrees("undirected", 0).ask({"type": "cut", "left": [1, 2, 3], "right": "all"}).accuracy
    assert accuracy is not None
    assert not accuracy.unbiased.any()


def test_the_greatest_of_degrees_that_are_alike() -> None:
    """Who asks for the node whose released degree is the greatest, of 40 that are alike, is told too much: intervals
    hold where it is said that the question was chosen. Would catch one quantile for all of them."""
    plain, chosen = [], []
    for seed in range(60):
        # Both have the same noise.
        one, other = Degrees("undirected", seed), Degrees("undirected", seed)
        released, _ = one.released()
        node = 10 + int(np.argmax(released[10:50]))
        words, truth = alone(node), float(ring(directed=False)[node].sum())
        plain.append(holds(one.ask(words), truth))
        chosen.append(holds(other.ask(words, adaptive=True), truth))
    assert np.mean(plain) < 0.6
    assert np.mean(chosen) >= 0.93


@pytest.mark.parametrize("kind", SPECS)
def test_such_a_session_replays(kind: str) -> None:
    """Would catch values that hang on what is not recorded."""
    session = Degrees(kind, 999)
    for words in (alone(0), EVERYTHING, alone(4), {"type": "cut", "left": [1, 2], "right": "all"}):
        session.ask(words)
        session.ask(words, adaptive=True)
    verdict = judged(session.transcript())
    assert verdict.ok, (verdict.problem, verdict.sequence)
