"""Norms that a session buys: sensitivity against neighbours by brute force, measured values, sizes that are refused."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from app.curator.dataset import Bought, PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.facts import NORM_BITS, grid_of, measure, unmeasurable
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.geometry.norms import Norm
from tests.kit.strategies import BUDGET, Universe, universe

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x", "size": 4}, {"name": "y", "size": 3}],
        "capacity": 1000,
        "budget": BUDGET,
    }
)
BIPARTITE = universe({"name": "b", "kind": "bipartite", "left": 4, "right": 5, "budget": BUDGET})
GRAPH = universe({"name": "g", "kind": "graph", "nodes": 5, "budget": BUDGET})
WEIGHTED = universe({"name": "w", "kind": "graph", "nodes": 5, "weighted": True, "grid": 0.25, "budget": BUDGET})
MATRIX = universe(
    {"name": "m", "kind": "matrix", "rows": 4, "columns": 3, "lower": -1, "upper": 2, "grid": 0.25, "budget": BUDGET}
)
FACTS = ["lp:1.0", "lp:1.1", "lp:2.0", "group:rows:1.2", "group:columns:1.9", "schatten:1.05", "schatten:1.7", "mass"]
UNIVERSES = [TABLE, BIPARTITE, GRAPH, WEIGHTED, MATRIX]
# No mass of signed entries is ever bought.
PAIRS = [(u, fact) for u in UNIVERSES for fact in FACTS if (u, fact) != (MATRIX, "mass")]
measured = pytest.mark.parametrize(("u", "fact"), PAIRS, ids=[f"{u.declared['name']}-{fact}" for u, fact in PAIRS])


def units(u: Universe, rng: np.random.Generator) -> dict[tuple[int, ...], int]:
    """Random data in data units."""
    low, high = {"table": (0, 9), "matrix": (-4, 9)}.get(u.declared["kind"], (0, 2 if u.space.data_bits == 0 else 5))
    return {cell: int(rng.integers(low, high)) for cell in u.cells}


def neighbour(u: Universe, x: dict[tuple[int, ...], int], rng: np.random.Generator) -> dict[tuple[int, ...], int]:
    """One record, edge or entry changed by as much as the relation allows."""
    cell = u.cells[rng.integers(len(u.cells))]
    scale = 1 << u.space.data_bits
    if u.declared["kind"] == "table":
        return {**x, cell: x[cell] + 1}
    if u.declared["kind"] == "matrix":
        return {**x, cell: 2 * scale if x[cell] < scale // 2 else -scale}
    return {**x, cell: 0 if x[cell] > scale // 2 else scale}


@pytest.mark.slow
@measured
def test_neighbours_differ_by_the_sensitivity_at_most(u: Universe, fact: str) -> None:
    """Over random data and the largest single change. On empty data a change of one edge moves most: there the bound is
    nearly attained, so a sensitivity that forgets the factor 2^(1/p) of undirected graphs fails."""
    bits, sensitivity = grid_of(u.space, fact)
    rng = np.random.default_rng(1)
    largest = 0
    for i in range(60):
        x = units(u, rng) if i % 3 else dict.fromkeys(u.cells, 0)
        y = neighbour(u, x, rng)
        values = [measure(u.space, u.space.tensor(u.array(data)), fact) for data in (x, y)]
        largest = max(largest, abs(values[0] - values[1]))
    assert largest <= sensitivity
    # Two units of it are for rounding and errors; from empty data a matrix' entry goes up to its upper bound.
    step = 2 / 3 if u is MATRIX else 1
    assert largest >= step * (sensitivity - 2) - 2
    assert bits <= (NORM_BITS if fact != "mass" else u.space.data_bits)


@measured
def test_measured_value(u: Universe, fact: str) -> None:
    """The norm of the data in counts, to half a grid unit; sparse and dense alike."""
    rng = np.random.default_rng(2)
    bits, _ = grid_of(u.space, fact)
    for _ in range(10):
        array = u.array(units(u, rng))
        found = measure(u.space, u.space.tensor(array), fact)
        counts = np.ldexp(array.astype(float), -u.space.data_bits)
        if fact == "mass":
            expected = counts.sum() / (2 if u.undirected else 1)
        else:
            norm = Norm.parse(fact)
            expected = norm.of(counts, 2 if u.undirected and norm.family == "lp" else 1)
        assert abs(math.ldexp(found, -bits) - expected) <= 0.51 * 2.0**-bits
        if len(u.space.shape) == 2 and u.declared["kind"] != "table":
            assert measure(u.space, u.space.tensor(csr_array(array)), fact) == pytest.approx(found, abs=1)


def test_grids_get_coarser_with_size() -> None:
    """At capacities where float64 could not tell 2^-10 of a norm, fewer bits are claimed; at last none, and refused."""
    found = []
    for capacity in (10**3, 10**9, 2**36):
        u = universe({**TABLE.declared, "capacity": capacity})
        bits, sensitivity = grid_of(u.space, "lp:1.1")
        assert sensitivity == (1 << bits) + 2
        found.append(bits)
    assert found[0] == NORM_BITS > found[-1]
    wide = universe(
        {
            "name": "w",
            "kind": "table",
            "attributes": [{"name": "x", "size": 2**20}, {"name": "y", "size": 4}],
            "capacity": 2**40,
            "budget": BUDGET,
        }
    )
    reason = unmeasurable(wide.space, "group:columns:1.1")
    assert reason is not None
    assert "float64" in reason


def test_singular_values_of_large_matrices_are_refused() -> None:
    u = universe({"name": "b", "kind": "bipartite", "left": 6000, "right": 6000, "budget": BUDGET})
    reason = unmeasurable(u.space, "schatten:1.2")
    assert reason is not None
    assert "6,000 by 6,000" in reason
    assert unmeasurable(u.space, "group:rows:1.2") is None
    assert grid_of(u.space, "group:rows:1.2")[0] > 0


# ------------------------------------------------------------------------------------------------------------- plans


def public(u: Universe, records: float | None = None) -> PublicDataset:
    return PublicDataset(parse_spec({**u.declared, "records_public": records is not None}), records)


def asked(mechanism: dict[str, Any], **changes: Any) -> Any:
    return parse_request(
        {"dataset": "d", "mechanism": mechanism, "max_queries": 10, "max_updates": 5, "epsilon": 1.0, **changes}
    )


LP = {"construction": "md", "potential": "lp", "p": 1.5}


def test_a_ball_is_bought_with_a_twentieth() -> None:
    """The purchase names the norm, is paid for from the share, and its noise has the norm's sensitivity."""
    dataset = public(BIPARTITE)
    plan = make_plan(dataset, asked({**LP, "ball_p": "auto"}))
    assert plan.purchase is not None
    assert plan.purchase.fact == "lp:1.5"
    assert plan.purchase.cost <= plan.reserved / 20
    assert plan.purchase.cost > plan.reserved / 21
    assert plan.purchase.scale_units == Fraction(1026) / Fraction(plan.purchase.epsilon)
    assert plan.cost_per_update * 5 + plan.purchase.cost <= plan.reserved
    # Known from then on: the next session pays for its updates alone.
    assert make_plan(dataset.with_bought("lp:1.5", Bought(4.0, 1.0)), asked({**LP, "ball_p": "auto"})).purchase is None


@pytest.mark.parametrize("mechanism", [LP, {**LP, "ball_p": "none"}, {**LP, "step": "full"}, {**LP, "step": "refit"}])
def test_a_best_effort_session_without_a_ball_buys_nothing(mechanism: dict[str, Any]) -> None:
    plan = make_plan(public(TABLE), asked(mechanism))
    assert plan.purchase is None
    assert not plan.guaranteed
    assert plan.update_bound is None


def test_what_is_public_is_not_bought() -> None:
    """Of an unweighted graph whose edges are counted in public every l_p norm is known; group norms are not."""
    dataset = public(GRAPH, 6)
    assert make_plan(dataset, asked({**LP, "ball_p": "auto"})).purchase is None
    assert make_plan(public(WEIGHTED, 6), asked({**LP, "ball_p": "auto"})).purchase is not None
    group = {"construction": "md", "potential": "group", "axis": "rows", "ball_p": "auto"}
    assert make_plan(dataset, asked(group)).purchase is not None


def test_guaranteed_plans_come_after_the_purchase() -> None:
    """Refused before, with what to do; after it the bound rests on the bought norm and pays for its failure."""
    mechanism = {"construction": "md", "potential": "group", "axis": "rows", "p": 1.5, "ball_p": "auto"}
    big = universe(
        {"name": "b", "kind": "bipartite", "left": 300, "right": 300, "budget": {"epsilon": 100, "delta": 1e-4}}
    )
    guaranteed = asked(mechanism, max_updates=None, epsilon=100, max_queries=2, beta=0.5)
    with pytest.raises(PlanInfeasible, match="ball_p"):
        make_plan(public(big), guaranteed)
    plan = make_plan(public(big).with_bought("group:rows:1.5", Bought(2000.0, 1.0)), guaranteed)
    assert plan.guaranteed
    assert plan.update_bound is not None
    assert plan.update_bound <= plan.max_updates
    # A norm that is only implied by the number of edges serves too, without ball_p.
    implied = {**mechanism, "ball_p": None}
    found = make_plan(public(big, 80_000), asked(implied, max_updates=None, epsilon=100, max_queries=2, beta=0.5))
    assert found.guaranteed


@pytest.mark.parametrize("step", ["full", "refit"])
@pytest.mark.parametrize("mechanism", [{"construction": "mw"}, {"construction": "fk"}, LP])
def test_steps_without_a_bound_are_best_effort(mechanism: dict[str, Any], step: str) -> None:
    dataset = public(GRAPH, 6)
    plan = make_plan(dataset, asked({**mechanism, "step": step}))
    assert not plan.guaranteed
    assert plan.document()["update_bound"] is None
    with pytest.raises(PlanInfeasible, match="no bound"):
        make_plan(dataset, asked({**mechanism, "step": step}, max_updates=None))


def test_plans_are_the_same_for_neighbouring_data() -> None:
    """A plan reads public facts alone: nothing of the data is at hand here. That it can be computed says it."""
    plan = make_plan(public(MATRIX), asked({**LP, "ball_p": 1.2}))
    assert plan.purchase is not None
    assert plan.purchase.sensitivity == 3 * 1024 + 2
    assert Decimal(str(plan.document()["purchase"]["lp:1.2"]["epsilon"])) == plan.purchase.epsilon
