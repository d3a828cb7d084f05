"""An audit of a node of one side as the unit: two graphs, of which one has all edges of a node more.

The node has far more edges than are kept of any, and others have too many as well, so that some of theirs are left out.
The adversary knows the key by which edges are ranked (what is promised holds for each key), hence both graphs, and asks
how much more the one is like itself than like the other: a weight of 1 or -1 on every cell in which they differ.
Whatever the mechanism, an event may be e^epsilon times as likely in the one world as in the other, and no more but for
delta. The planted faults make that fail.

Questions go through the whole service, once for each graph and without noise: of the law and the scale that it asked
for as many stories are drawn as the audit wants. Releases of all cells are planned and measured by the service's parts,
with real noise. Wrong alarms have probability below 1e-6 a test.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.curator.dataset import PublicDataset
from app.curator.feasibility import find_plan
from app.curator.planners.cells import EdgePlan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.measurements.noise import BitFlips
from app.measurements.pricing import Adjacency
from app.measurements.strategies.edges import Edges
from app.privacy.ledger import Account
from app.services.measuring import measured_all
from app.spaces.dense import CountsTensor
from app.storage import readers
from app.storage.private_data import CsrData, DenseData
from app.storage.readers import edges, read_private
from app.storage.readers.sides import kept_of_each
from tests.kit.audits import proven_delta
from tests.kit.noise import Asked, drawn
from tests.kit.world import make_world

pytestmark = pytest.mark.statistical

EPSILON, DELTA, MOST = 1.0, 1e-6, 8
LEFT, RIGHT = 30, 200
STORIES = 3000
SPEC: dict[str, Any] = {
    "kind": "bipartite",
    "left": LEFT,
    "right": RIGHT,
    "weighted": False,
    "unit": {"side": "left", "max_edges": MOST},
    "budget": {"epsilon": EPSILON, "delta": DELTA},
}
KEY = b"known to everybody" * 2
RANDOM = np.random.default_rng(1)
OTHERS = [f"{node + 1},{end}" for node, end in RANDOM.integers(0, (LEFT - 1, RIGHT), (600, 2))]
NEW = [f"0,{end}" for end in range(RIGHT)]
FILES = ["\n".join([*more, *OTHERS]).encode() for more in (NEW, [])]


@pytest.fixture(autouse=True)
def _known_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges are ranked by a key that the adversary knows."""
    monkeypatch.setattr(edges, "kept_of_each", lambda nodes, ends, most, _: kept_of_each(nodes, ends, most, KEY[:32]))


def kept(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Both graphs, as the reader makes them."""
    found = []
    for content in FILES:
        path = folder / "known.csv"
        path.write_bytes(content)
        data = read_private(parse_spec({**SPEC, "name": "g"}), path.name, path, memory_limit=1 << 30).data
        assert isinstance(data, DenseData | CsrData)
        array = data.array if isinstance(data, DenseData) else data.matrix().toarray()
        found.append(array.astype(np.int64))
    return found[0], found[1]


def asked(folder: Path, first: np.ndarray, second: np.ndarray) -> float:
    """Delta found by a question that is measured on its own, with all of epsilon."""
    telling = np.sign(first - second)
    between = float(((first + second) * telling).sum()) / 2
    places = np.flatnonzero(telling)
    question = {"type": "sparse", "indices": places.tolist(), "weights": telling.reshape(-1)[places].tolist()}
    words = {"mechanism": {"construction": "laplace"}, "epsilon": EPSILON, "max_queries": 1, "max_updates": None}
    world, counts = make_world(folder / "data", noise=Asked(), readers=readers), []
    try:
        ann = world.analyst("ann")
        for side, content in enumerate(FILES):
            world.register_file({**SPEC, "name": f"d{side}"}, "d.csv", content)
            id = world.open(ann, f"d{side}", **words)
            world.noise.asked.clear()
            value = world.ask(ann, id, question)["value"]
            ((law, scale, _),) = world.noise.asked
            unit = world.built.services.sessions.get(ann, id)["plan"]["noise_scale"] / float(scale)
            counts.append(int((value + drawn(law, scale, STORIES) * unit > between).sum()))
    finally:
        world.stop()
    return proven_delta(EPSILON, [(counts[0], counts[1])], STORIES, STORIES)


def released(_: Path, first: np.ndarray, second: np.ndarray) -> float:
    """Delta found by a release of all cells, with all of epsilon, in coins."""
    spec = parse_spec({**SPEC, "name": "g"})
    left = Account(PublicDataset(spec).budget).whole
    words = {
        "dataset": "g",
        "epsilon": Decimal(str(EPSILON)),
        "max_queries": 1,
        "mechanism": {"construction": "workload", "method": "auto", "workload": {"cuts": "all"}, "options": {}},
    }
    plan = find_plan(PublicDataset(spec, left=left), parse_request(words))
    assert isinstance(plan, EdgePlan)
    assert isinstance(plan.buy.noise, BitFlips)
    telling, noise, counts = np.sign(first - second).reshape(-1), SystemNoise(), []
    for graph in (first, second):
        seen = np.zeros(2 * MOST + 1, int)
        for _ in range(STORIES):
            (made,) = measured_all(noise, None, CountsTensor(graph.astype(np.int8)), [plan.buy])
            assert isinstance(made.measurement.strategy, Edges)
            seen[int(made.measurement.units.astype(int) @ telling) + MOST] += 1
        counts.append(seen)
    events = [(int(counts[0][n:].sum()), int(counts[1][n:].sum())) for n in range(2 * MOST + 1)]
    return proven_delta(EPSILON, events, STORIES, STORIES)


def audit(folder: Path, release: Callable[..., float]) -> float:
    """Delta found at epsilon."""
    return release(folder, *kept(folder))


@pytest.mark.parametrize("release", [asked, released])
def test_a_node_is_hidden(tmp_path: Path, release: Callable[..., float]) -> None:
    """Would catch what the faults below do."""
    first, second = kept(tmp_path)
    assert np.abs(first - second).sum() == MOST
    assert first.sum(axis=1).max() == MOST
    assert audit(tmp_path, release) <= DELTA


# Planted faults. Each must be found.


def test_edges_beyond_the_cap_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All edges are kept, and noise is that for eight."""
    monkeypatch.setattr(edges, "kept_of_each", lambda nodes, *_: np.ones(len(nodes), dtype=bool))
    assert audit(tmp_path, asked) > DELTA


def test_a_rank_by_positions_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges are ranked by where they stand in the place of their ends. Of no node are too many kept; but other ones
    are, of every node, when one is put before them."""

    def by_position(nodes: np.ndarray, _: np.ndarray, most: int, __: bytes) -> np.ndarray:
        return kept_of_each(nodes, np.arange(len(nodes)), most, KEY[:32])

    monkeypatch.setattr(edges, "kept_of_each", by_position)
    first, second = kept(tmp_path)
    assert abs(int(first.sum()) - int(second.sum())) == MOST
    assert audit(tmp_path, asked) > DELTA


def test_coins_for_one_edge_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release is priced as if neighbours differed in one bit."""

    events = Edges.events
    monkeypatch.setattr(
        Edges, "events", lambda cells, noise, adjacency: events(cells, noise, Adjacency(adjacency.sensitivity))
    )
    assert audit(tmp_path, released) > DELTA
