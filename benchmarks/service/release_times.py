"""How long work on releases takes, beside what is foretold of it (`app/curator/release_effort.py`).

Run `python -m benchmarks.service.release_times` (some minutes), or with names of methods for these alone. Each row is a
release that is measured, with the service's noise, and made into data in this process: its amounts, what it took to
draw and to make, and what was foretold of both. Data are made up; the times do not depend on them but by how soon a
search ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from app.bootstrap.noise import SystemNoise
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.mechanisms.release import job_of
from app.curator.opening import Opening, Pins
from app.curator.planners.workload import WorkloadPlan
from app.curator.planning import make_plan
from app.curator.release_effort import amounts, expected_seconds
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.releases.finishing import finish
from app.services.release_measuring import Ready, measured_for
from app.services.release_request import parse_release
from app.spaces.counts import ExactCounts
from app.spaces.dense import CountsTensor
from app.spaces.records import RecordsTensor
from benchmarks.harness import report

RECORDS = 100_000
#: Sizes of attributes, workloads, and methods.
TABLES: list[tuple[tuple[int, ...], dict[str, Any], tuple[str, ...]]] = [
    ((8, 8, 8, 8), {"marginals": 2}, ("histogram", "gaussian", "factorization", "projection", "synthetic_table")),
    ((20, 20, 20), {"marginals": 2}, ("projection", "synthetic_table", "iterative_construction")),
    ((10,) * 5, {"marginals": 3}, ("gaussian", "factorization", "projection", "synthetic_table")),
    ((16,) * 5, {"marginals": 2}, ("projection", "synthetic_table")),
    ((10,) * 12, {"marginals": 2}, ("gaussian", "factorization", "synthetic_table")),
    ((100, 100, 100), {"marginals": 2}, ("gaussian", "synthetic_table")),
    ((512,), {"ranges": "a0"}, ("factorization", "synthetic_table", "iterative_construction")),
]
#: Nodes and options of graphs.
GRAPHS: list[tuple[int, str, dict[str, Any]]] = [
    (300, "histogram", {}),
    (1000, "histogram", {}),
    (300, "synthetic_graph", {}),
    (1000, "synthetic_graph", {}),
    (2000, "synthetic_graph", {}),
    (300, "synthetic_graph", {"geometry": "cut_norm"}),
    (1000, "synthetic_graph", {"geometry": "cut_norm"}),
    (1000, "iterative_construction", {}),
]


def cases() -> Iterator[tuple[str, dict[str, Any], dict[str, Any], ExactCounts, float]]:
    """Name, declaration, release, data, and the number of records."""
    rng = np.random.default_rng(1)
    budget = {"epsilon": 10.0, "delta": 1e-6}
    for sizes, workload, methods in TABLES:
        attributes = [{"name": f"a{number}", "size": size} for number, size in enumerate(sizes)]
        spec = {"name": "d", "kind": "table", "attributes": attributes, "records_public": True, "budget": budget}
        columns = [np.minimum(rng.geometric(0.3, RECORDS) - 1, size - 1).astype(np.uint16) for size in sizes]
        for method in methods:
            asked = {"dataset": "d", "method": method, "workload": workload, "epsilon": 1}
            yield f"{sizes} {workload}", spec, asked, RecordsTensor(columns, sizes), float(RECORDS)
    for nodes, method, options in GRAPHS:
        spec = {"name": "d", "kind": "graph", "nodes": nodes, "budget": budget}
        edges = np.triu(rng.random((nodes, nodes)) < 0.02, 1)
        asked = {"dataset": "d", "method": method, "workload": {"cuts": "all"}, "epsilon": 1, **options}
        yield f"{nodes} nodes {options or ''}", spec, asked, CountsTensor((edges | edges.T).astype(np.int64)), 0.0


def main() -> None:
    rows: list[list[Any]] = []
    for name, declared, asked, data, records in cases():
        if sys.argv[1:] and asked["method"] not in sys.argv[1:]:
            continue
        request = parse_request(parse_release(asked).session())
        dataset = PublicDataset(parse_spec(declared), records=records or None)
        try:
            plan = make_plan(dataset, request)
        except PlanInfeasible as error:
            print(f"{name} {asked['method']}: {error}", file=sys.stderr)
            continue
        assert isinstance(plan, WorkloadPlan)
        opening = Opening(dataset, request, plan, None, Pins((), ()))
        begun = time.perf_counter()
        made = [each.measurement for each in measured_for(Ready(opening, [], data), SystemNoise())]
        drawn = time.perf_counter() - begun
        job = job_of(opening, [], made, seed=1)
        begun = time.perf_counter()
        finish(job, lambda _: None)
        fitted = time.perf_counter() - begun
        told = {kind: f"{number:.3g}" for kind, number in amounts(dataset, request, plan).items()}
        rows.append([asked["method"], name, drawn, fitted, expected_seconds(dataset, request, plan), str(told)])
        print(*rows[-1], flush=True)
    report(
        "release_times",
        "How long work on releases takes",
        ["method", "release", "drawn s", "made s", "foretold s", "amounts"],
        rows,
    )


if __name__ == "__main__":
    main()
