"""What is said to err least, beside the numbers of what it was chosen over."""

from __future__ import annotations

import itertools
import re

import pytest

from app.curator.comparison import weigh
from app.curator.dataset import PublicDataset
from app.curator.plan import Plan
from app.curator.planners.graph import MOST_NODES
from app.curator.planning import chosen, make_plan
from app.curator.request import parse_request
from app.curator.workload_comparison import NEARER, chosen_method, ways_of
from app.declarations.spec import parse_spec
from app.services.release_request import parse_release

pytestmark = pytest.mark.unit

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
SUPERLATIVE = re.compile(r"\b(no other|least|best|never (errs|worse))\b")
#: Noise is rounded up to what can be drawn.
NEAR = 1 + 1e-6


def table(*sizes: int) -> PublicDataset:
    attributes = [{"name": f"a{place}", "size": size} for place, size in enumerate(sizes)]
    words = {"name": "t", "kind": "table", "attributes": attributes, "records_public": True, "budget": BUDGET}
    return PublicDataset(parse_spec(words), 1000)


def large_graph() -> PublicDataset:
    words = {"name": "t", "kind": "bipartite", "left": MOST_NODES + 1, "right": 3, "budget": BUDGET}
    return PublicDataset(parse_spec(words), None)


DATASETS = {
    "two cells": table(2),
    "a line": table(64),
    "three attributes": table(2, 5, 4),
    "a large graph": large_graph(),
}


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("max_queries", [None, 1, 2, 5, 50, 1000])
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_a_chosen_mechanism_is_called_best_only_where_no_other_number_is_smaller(
    name: str, max_queries: int | None, epsilon: float
) -> None:
    """What a plan's reply says of the choice against the errors of the noise on every answer, which stand beside it or
    in the plans of others. Catches a superlative that a number contradicts."""
    dataset = DATASETS[name]
    asked = {"dataset": "t", "epsilon": epsilon}
    if max_queries is not None or dataset.space.kind != "table":
        asked["max_queries"] = max_queries or 10
    request, why = chosen(dataset, parse_request(asked))
    assert why is not None
    if SUPERLATIVE.search(why) is None:
        return
    plan = make_plan(dataset, request)
    expected = plan.expected_errors(dataset, request)
    mine = [*expected.values()] if expected else [plan.standard_error] if isinstance(plan, Plan) else []
    others = [make_plan(dataset, request.with_mechanism(other)) for other in ("gaussian", "laplace")]
    told = [other.standard_error for other in others if isinstance(other, Plan)]
    told.append(weigh(dataset, [request], [plan]).gaussian.sigma)
    assert mine
    assert all(error is not None and each is not None for error, each in itertools.product(mine, told))
    assert max(error for error in mine if error) <= min(each for each in told if each) * NEAR


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DATASETS if name != "a large graph"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0])
@pytest.mark.parametrize(
    "workload", [{"marginals": 1}, {"marginals": 2}, {"queries": [{"type": "marginal", "attributes": ["a0"]}]}]
)
def test_a_chosen_method_is_not_contradicted_by_the_list(
    name: str, epsilon: float, workload: dict[str, object]
) -> None:
    """The method of a release that is said to err least against all that the list of ways foretells. Where another
    has a smaller number, the words say by which part of its own the chosen one was ordered. Catches them left out."""
    dataset = DATASETS[name]
    if workload == {"marginals": 2} and len(dataset.space.shape) < 2:
        return
    body = {"dataset": "t", "workload": workload, "epsilon": epsilon}
    request = parse_request(parse_release(body).session())
    ways = ways_of(dataset, request)
    best = ways.best
    assert best is not None
    assert best.expected is not None
    _, why = chosen_method(dataset, request)
    assert f"{best.expected.rms:.4g}" in why
    smaller = [
        way.name
        for way in ways.ways
        if not way.interactive and way.expected is not None and way.expected.rms * NEAR < best.expected.rms
    ]
    if smaller:
        assert f"at most {NEARER[best.name]:g} of it" in why
