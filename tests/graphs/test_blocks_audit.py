"""An audit of blocks: edges within pairs of nodes, against the same pairs without.

One question of a session that spends all of epsilon on it asks of thousands of pairs at once, through the whole service
with real noise. Each number is a story of its own: a pair with its edge, or without. The adversary counts how often a
number passed a threshold. By the promise of the session no event may be e^epsilon times as likely with an edge as
without, but for delta. A planted fault makes that fail. Wrong alarms have a probability below 1e-6 a test.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.spaces.counts import ExactCounts
from app.spaces.queries.blocks import CompiledBlocks
from app.spaces.tensor import IntArray
from tests.kit.audits import proven_delta
from tests.kit.world import World, make_world

pytestmark = pytest.mark.statistical

EPSILON, DELTA, STORIES = 1.0, 1e-6, 5000
SPEC = {"kind": "graph", "nodes": 2 * STORIES, "budget": {"epsilon": EPSILON, "delta": DELTA}}
QUESTION = {"type": "blocks", "left": {str(k): [2 * k, 2 * k + 1] for k in range(STORIES)}, "only": "within"}
#: The first and the second world: the other node that the first one of a pair is joined to.
JOINED, APART = 1, 3


def told(folder: Path, other: int) -> np.ndarray:
    """The numbers of all pairs."""
    world: World = make_world(folder, noise=SystemNoise())
    try:
        edges = "".join(f"{2 * k} {(2 * k + other) % (2 * STORIES)}\n" for k in range(STORIES))
        world.register_file({**SPEC, "name": "g"}, "g.txt", edges.encode())
        ann = world.analyst("ann")
        asked = {"mechanism": {"construction": "laplace"}, "epsilon": EPSILON, "max_queries": 1, "max_updates": None}
        answer = world.ask(ann, world.open(ann, "g", **asked), QUESTION)
        world.audit()
    finally:
        world.stop()
    return np.array(answer["values"])


def delta_of(folder: Path) -> float:
    """What the adversary proves of delta at the session's epsilon."""
    worlds = [told(folder / str(other), other) for other in (JOINED, APART)]
    thresholds = np.arange(-1, 4.5, 0.5)
    events = [(int((worlds[0] >= t).sum()), int((worlds[1] >= t).sum())) for t in thresholds]
    return proven_delta(EPSILON, events, STORIES, STORIES)


def test_an_edge_is_hidden(tmp_path: Path) -> None:
    """Would catch noise that is shared out among the numbers, and an edge that counts for both of its ends."""
    assert delta_of(tmp_path) <= DELTA


def test_edges_counted_at_both_ends_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit finds an edge of an undirected graph that counts twice within its group."""
    exact = CompiledBlocks.exact

    def twice(self: CompiledBlocks, data: ExactCounts) -> IntArray:
        return 2 * exact(self, data)

    monkeypatch.setattr(CompiledBlocks, "exact", twice)
    assert delta_of(tmp_path) > DELTA
