"""What is foretold of the time that releases take. `python -m benchmarks.service.release_times` measures both."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from app.curator.dataset import PublicDataset
from app.curator.planners.workload import WorkloadPlan
from app.curator.planning import make_plan
from app.curator.release_effort import SECONDS, amounts, expected_seconds
from app.curator.request import SessionRequest, parse_request
from app.curator.workload_comparison import ways_of
from app.declarations.spec import parse_spec
from app.patience import while_wanted
from app.services.release_request import parse_release
from tests.kit.patience import patience

pytestmark = pytest.mark.unit

BUDGET = {"epsilon": 10.0, "delta": 1e-6}


def table(*sizes: int) -> PublicDataset:
    attributes = [{"name": f"a{number}", "size": size} for number, size in enumerate(sizes)]
    spec = {"name": "d", "kind": "table", "attributes": attributes, "records_public": True, "budget": BUDGET}
    return PublicDataset(parse_spec(spec), records=1e4)


def graph(nodes: int) -> PublicDataset:
    return PublicDataset(parse_spec({"name": "d", "kind": "graph", "nodes": nodes, "budget": BUDGET}), records=None)


def asked(workload: dict[str, Any], method: str = "auto", **options: Any) -> SessionRequest:
    words = {"dataset": "d", "method": method, "workload": workload, "epsilon": 1, **options}
    return parse_request(parse_release(words).session())


def foretold(dataset: PublicDataset, request: SessionRequest) -> float:
    plan = make_plan(dataset, request)
    assert isinstance(plan, WorkloadPlan)
    told = amounts(dataset, request, plan)
    assert set(told) <= set(SECONDS)
    assert all(number >= 0 for number in told.values())
    return expected_seconds(dataset, request, plan)


@pytest.mark.parametrize(
    "method", ["histogram", "gaussian", "projection", "factorization", "synthetic_table", "iterative_construction"]
)
def test_more_cells_take_longer(method: str) -> None:
    """Catches a method that nothing is foretold of, and sizes that it leaves out."""
    request = asked({"marginals": 2}, method)
    times = [foretold(table(*[size] * 4), request) for size in (2, 6, 12)]
    assert times == sorted(times)
    assert SECONDS["start"] <= times[0] < times[-1] < math.inf


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("histogram", {}),
        ("synthetic_graph", {}),
        ("synthetic_graph", {"geometry": "cut_norm"}),
        ("iterative_construction", {}),
    ],
)
def test_more_nodes_take_longer(method: str, options: dict[str, Any]) -> None:
    request = asked({"cuts": "all"}, method, **options)
    times = [foretold(graph(nodes), request) for nodes in (20, 100, 500)]
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_quick_and_long_ones_are_told_apart() -> None:
    """What took half an hour, and what takes a moment. Catches constants that are off by tens."""
    assert foretold(table(8, 8, 8), asked({"marginals": 2}, "synthetic_table")) < 10
    assert foretold(table(64, 64, 64, 16), asked({"marginals": 2}, "synthetic_table")) > 300
    assert foretold(graph(2000), asked({"cuts": "all"}, "synthetic_graph", geometry="cut_norm")) > 120


class Gone(Exception):
    """Nobody waits any more."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "workload"),
    [
        ([4] * 36, {"marginals": 3}),
        ([2] * 16, {"marginals": 6}),
        ([1500], {"ranges": "a0"}),
        (
            [10] * 6,
            {
                "queries": [
                    {"type": "predicate", "where": {"any": [{f"a{k}": (i + k) % 9} for k in range(4)]}}
                    for i in range(400)
                ]
            },
        ),
    ],
    ids=["triples", "sextuples", "ranges", "any"],
)
def test_long_plans_can_be_given_up(sizes: list[int], workload: dict[str, Any]) -> None:
    """Each takes a minute or more. Catches a search that goes on for minutes when its time is over."""
    dataset, request, begun = table(*sizes), asked(workload), time.perf_counter()

    def check() -> None:
        if time.perf_counter() - begun > 0.5:
            raise Gone

    with while_wanted(check), pytest.raises(Gone):
        ways_of(dataset, request)
    assert time.perf_counter() - begun < patience(15)
