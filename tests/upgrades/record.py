"""Writes a small database at the present revision as text, for the tests of upgrades from it.

``python -m tests.upgrades.record`` when a revision is added (CONTRIBUTING.md): ``revisions/<revision>`` then holds

- ``database.sql``: what SQLite would be told to make the database again;
- ``facts.json``: the files beside it in base64, what was asked in which session, and what was answered.

A folder that was part of a release is never written again: it is what users have.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from tests.integration.world import ADMIN, HIT, SHAPE, make_world, query, wait

REVISIONS = Path(__file__).with_name("revisions")
GRAPH = {
    "kind": "graph",
    "nodes": 6,
    "directed": False,
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
WORDS = {"kind": "multiset", "budget": {"epsilon": 1.0, "delta": 1e-6}}


def record(folder: Path) -> dict[str, Any]:
    """A service with something of everything, stopped; what was asked in its open sessions."""
    world = make_world(folder)
    services = world.built.services
    asked: dict[str, list[Any]] = {}

    def ask(id: str, words: dict[str, Any], noise: float = 0) -> None:
        world.noise.script.append(noise)
        answer = world.ask(ann, id, words, key=f"{id}-{len(asked.setdefault(id, []))}")
        asked[id].append([words, answer["value"], answer["error_bound"], answer["sequence"]])

    ann = world.analyst("ann")
    services.principals.revoke(ADMIN, world.analyst("bob").name)
    for name in ("table", "gone", "left"):
        world.register(name)
    world.register("unknown-mass", records_public=False)
    edges, elements = "\n".join(["0,1", "1,2", "2,3", "3,4"]), "\n".join(["element,count", "the,50", "a,30"])
    world.register_file({**GRAPH, "name": "graph"}, "edges.csv", edges.encode())
    world.register_file({**WORDS, "name": "words"}, "words.csv", elements.encode())
    services.datasets.grant(ADMIN, "table", "ann", 0.9)

    first = world.open(ann, "table")
    dense = {"type": "dense", "weights": np.linspace(-1, 1, SHAPE[0] * SHAPE[1]).reshape(SHAPE).tolist()}
    for words, noise in ((query(0), HIT), (query(1), 0), (query(0), 0), (dense, HIT), (query(2, 3), 0)):
        ask(first, words, noise)
    world.ask(ann, first, {**query(3), "unverified": True})
    with_forfeit = world.open(ann, "table", mechanism={"construction": "fk"}, epsilon=0.1)
    ask(with_forfeit, query(0), HIT)
    world.noise.before = _fail
    refused = world.submit(ann, with_forfeit, query(1))
    assert refused.waiter.wait(30)
    assert refused.error is not None
    world.noise.before = lambda: None
    ask(with_forfeit, query(2))
    ask(world.open(ann, "table", release="race", epsilon=0.1), query(1), HIT)
    closed = world.open(ann, "table", epsilon=0.05)
    world.noise.script.append(HIT)
    world.ask(ann, closed, query(0))
    world.close(ann, closed, key="close")
    ask(world.open(ann, "unknown-mass"), query(1))
    ask(world.open(ann, "graph"), {"type": "cut", "left": [0, 1, 2], "right": "all"})
    smw = {"construction": "smw", "sparsity": 2}
    ask(world.open(ann, "words", mechanism=smw), {"type": "elements", "weights": {"the": 1.0}})
    world.open(ann, "gone")
    services.datasets.retire(ADMIN, "gone")
    exact = world.open(ann, "left", calibration="exact", epsilon=1.0)
    wait(world.submit(ann, exact, query(0)))
    world.close(ann, exact)
    world.audit()
    assert any(entry["record"] == "forfeit" for entry in world.entries(with_forfeit))
    world.stop()
    return asked


def _fail() -> None:
    raise ZeroDivisionError


def main() -> None:
    """Record the present revision."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        asked = record(folder)
        with closing(sqlite3.connect(folder / "curator.sqlite3")) as database:
            (revision,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
            dump = "\n".join(database.iterdump()) + "\n"
        files = {
            str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode()
            for kind in ("vault", "keys")
            for path in sorted((folder / kind).iterdir())
            if path.suffix != ".lock"
        }
    target = REVISIONS / revision
    target.mkdir(parents=True, exist_ok=True)
    (target / "database.sql").write_text(dump)
    (target / "facts.json").write_text(json.dumps({"files": files, "asked": asked}, indent=1) + "\n")
    print(f"wrote {target}")  # noqa: T201


if __name__ == "__main__":
    main()
