"""What is said to err least, beside the numbers of what it was chosen over."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.curator.comparison import weigh
from app.curator.dataset import PublicDataset
from app.curator.plan import Plan
from app.curator.planners.graph import MOST_NODES
from app.curator.planning import chosen, make_plan
from app.curator.request import parse_request
from app.curator.workload_comparison import NEARER, chosen_method, ways_of
from app.declarations.errors import CuratorError
from app.declarations.spec import parse_spec
from app.services.plans import Plans
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
    expected = plan.expectation(dataset, request)
    mine = [expected.error] if expected else [plan.standard_error] if isinstance(plan, Plan) else []
    others = [make_plan(dataset, request.with_mechanism(other)) for other in ("gaussian", "laplace")]
    told = [other.standard_error for other in others if isinstance(other, Plan)]
    told.append(weigh(dataset, [request], [plan]).gaussian.sigma)
    assert mine
    assert all(error is not None and each is not None for error, each in itertools.product(mine, told))
    assert max(error for error in mine if error) <= min(each for each in told if each) * NEAR


KINDS: dict[str, dict[str, Any]] = {
    "table": {"attributes": [{"name": "a", "size": 2}, {"name": "x", "lower": 0, "upper": 9, "grid": 1}]},
    "graph": {"nodes": 40},
    "bipartite": {"left": 50, "right": 40},
    "matrix": {"rows": 30, "columns": 20, "lower": -1, "upper": 1},
    "multiset": {"capacity": 1000},
}


@settings(max_examples=60)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    public=st.booleans(),
    epsilon=st.sampled_from([0.01, 0.3, 1.0]),
    max_queries=st.sampled_from([None, 1, 15, 100, 10_000]),
    mechanism=st.sampled_from([None, "evidence", "histogram", "gaussian", "laplace", "mw"]),
    contract=st.booleans(),
)
@example("table", True, 1.0, 10_000, None, False)
@example("table", True, 1.0, 15, "gaussian", False)
@example("graph", False, 0.3, 15, "laplace", False)
@example("multiset", False, 1.0, 100, None, False)
def test_sentences_of_a_reply_agree_with_its_numbers(
    kind: str, public: bool, epsilon: float, max_queries: int | None, mechanism: str | None, contract: bool
) -> None:
    """What a plan's reply says of the noise that it has to beat, as it is printed: "A against B" and "beats" name the
    smaller number first, a number of queries from which a session pays off is above the one that was planned for,
    and ``better`` is what the numbers beside it are. Catches a sentence about noise that is said to be better than
    itself, and a flag that calls noise better of which the reply foretells a larger error."""
    words = {"name": "t", "kind": kind, "records_public": public, "budget": BUDGET, **KINDS[kind]}
    dataset = PublicDataset(parse_spec(words), 1000 if public and kind != "matrix" else None)
    asked: dict[str, Any] = {"dataset": "t", "epsilon": epsilon, **({"max_updates": 5} if mechanism == "mw" else {})}
    asked |= {} if max_queries is None else {"max_queries": max_queries}
    asked |= {} if mechanism is None else {"mechanism": {"construction": mechanism}}
    asked |= {"contract": True} if contract else {}
    try:
        reply = Plans(Alone(dataset), memory_limit=1 << 30, release_seconds=60.0, render=dict).plan(asked)  # type: ignore[arg-type]
    except CuratorError:
        return
    line, advice = reply["independent_gaussian"], reply["advice"]
    for pattern in (r"([\d.e+]+) against ([\d.e+]+)", r"bound, ([\d.e+]+), beats the ([\d.e+]+) of"):
        for smaller, larger in re.findall(pattern, advice):
            assert float(smaller) < float(larger), advice
    for enough in re.findall(r"from some ([\d.e+]+) queries", advice):
        assert float(enough) > asked["max_queries"], advice
    told = reply["expected_standard_errors"]
    if reply["error_bound"] is not None:
        assert line["better"] <= (line["error_bound"] < reply["error_bound"])
        assert not ("is better" in advice and not line["better"])
    elif told is not None:
        single = [told[kind] for kind in ("one_attribute", "two_attributes", "cell", "cut") if kind in told]
        assert line["better"] is (line["sigma"] < max(single))
    if reply["why"] is not None and SUPERLATIVE.search(reply["why"]):
        assert told is None


class Alone:
    """Data sets of which there is one."""

    def __init__(self, dataset: PublicDataset) -> None:
        self._dataset = dataset

    def public(self, name: str) -> PublicDataset:
        return self._dataset


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


@pytest.mark.parametrize("kind", ["graph", "bipartite", "matrix"])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("asked", ["cuts", "rank_one"])
def test_a_chosen_method_of_a_graph_is_not_contradicted(kind: str, epsilon: float, asked: str) -> None:
    """Of all cuts: no release of which less is foretold is in the list, and the words speak of those alone of which
    anything is. Catches a method said to err least of some whose errors nobody knows."""
    dataset = PublicDataset(parse_spec({"name": "t", "kind": kind, "budget": BUDGET, **KINDS[kind]}), None)
    body = {"dataset": "t", "workload": {asked: "all"}, "epsilon": epsilon}
    try:
        request = parse_request(parse_release(body).session())
        ways = ways_of(dataset, request)
    except CuratorError:
        return
    _, why = chosen_method(dataset, request)
    told = [way.expected.rms for way in ways.ways if not way.interactive and way.expected is not None]
    best = ways.best
    if best is None or best.expected is None:
        assert SUPERLATIVE.search(why) is None
        return
    assert best.expected.rms <= min(told) * NEAR
    assert "least of the methods whose errors are foretold" in why
