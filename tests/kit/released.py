"""Releases that were measured, one of each kind of method, ready to be finished."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import orjson

from app.bootstrap.noise import SystemNoise
from app.curator.dataset import PublicDataset
from app.curator.opening import Opening, Pins
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.services.release_measuring import Ready, measured_for
from app.services.release_request import parse_release
from app.services.release_tasks import Task
from app.spaces.counts import ExactCounts
from app.spaces.dense import CountsTensor

_BUDGET = {"epsilon": 10.0, "delta": 1e-6}
_TABLE: dict[str, Any] = {
    "name": "d",
    "kind": "table",
    "budget": _BUDGET,
    "attributes": [{"name": f"a{number}", "size": size} for number, size in enumerate((3, 4, 5))],
}
_MARGINALS = {"workload": {"marginals": 1}}
_CUTS = {"workload": {"cuts": "all"}}
#: Method and whatever else decides of the kind of result: the declaration, and what is asked.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gaussian": (_TABLE, {"method": "gaussian", **_MARGINALS}),
    "projection": (_TABLE, {"method": "projection", "workload": {"marginals": 2}}),
    "synthetic table": (_TABLE, {"method": "synthetic_table", **_MARGINALS}),
    "publication": (_TABLE, {"method": "publication", **_MARGINALS}),
    "ranges": (_TABLE, {"method": "factorization", "workload": {"ranges": "a2"}}),
    "rounds": (_TABLE | {"records_public": True}, {"method": "iterative_construction", "rounds": 3, **_MARGINALS}),
    "rounds after the total": (_TABLE, {"method": "iterative_construction", "rounds": 3, **_MARGINALS}),
}


def _graph(nodes: int) -> dict[str, Any]:
    return {"name": "d", "kind": "graph", "nodes": nodes, "budget": _BUDGET}


CASES |= {
    "bits": (_graph(30), {"method": "histogram", **_CUTS}),
    "synthetic graph": (_graph(30), {"method": "synthetic_graph", **_CUTS}),
    "power": (_graph(30), {"method": "iterative_construction", "rounds": 2, **_CUTS}),
}


@dataclass(frozen=True)
class Released:
    """A release: its opening, the records of its measurements, and the task to finish it."""

    opening: Opening
    lines: list[bytes]
    task: Task


@cache
def released(case: str) -> Released:
    """One of :data:`CASES`, measured with the system's noise on made-up records, once."""
    return measured(*CASES[case])


def measured(declared: dict[str, Any], asked: dict[str, Any]) -> Released:
    """A release that was measured on made-up records."""
    rng = np.random.default_rng(1)
    if declared["kind"] == "table":
        counts = rng.integers(0, 50, [each["size"] for each in declared["attributes"]])
    else:
        arcs = np.triu(rng.random((declared["nodes"],) * 2) < 0.2, 1)
        counts = (arcs | arcs.T).astype(np.int64)
    request = parse_request(parse_release({"dataset": "d", "epsilon": 1, **asked}).session())
    records = float(counts.sum()) if declared.get("records_public") else None
    dataset = PublicDataset(parse_spec(declared), records=records)
    opening = Opening(dataset, request, make_plan(dataset, request), None, Pins((), ()))
    exact: ExactCounts = CountsTensor(counts)
    made = measured_for(Ready(opening, [], exact), SystemNoise())
    lines = [orjson.dumps({"measurement": each.measurement.document()}) for each in made]
    return Released(opening, lines, Task.of(opening.document(), [], lines, seed=7))
