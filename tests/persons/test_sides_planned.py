"""A node of one side as the unit: what neighbours that differ in m edges of a node make of plans, prices, descriptors.

Prices of releases are held against the Renyi divergence of the joint law of all that is released, over all outcomes, at
every pair of neighbours of a small graph. That would catch bits, cells or degrees that are charged for one edge, and
noise that is larger than it has to be.
"""

from __future__ import annotations

import itertools
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import rfc8785

from app.curator.dataset import PublicDataset
from app.curator.facts import grid_of
from app.curator.mechanisms.graph import GraphMechanism
from app.curator.mechanisms.protocol import Buy, Target
from app.curator.opening import Opening, Pins
from app.curator.planners.cells import EdgePlan
from app.curator.planners.power import PowerPlan
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.measurements.noise import FLIP_BITS, BitFlips, Noise
from app.measurements.pricing import Adjacency
from app.measurements.record import Purchase
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer, renyi_cost
from app.spaces.dense import CountsTensor
from app.spaces.queries.degrees import CompiledDegrees
from app.spaces.queries.registry import parse_query

pytestmark = [pytest.mark.unit, pytest.mark.slow]

MOST = 5


def dataset(most: int | None, **more: Any) -> PublicDataset:
    """A bipartite graph whose unit is a node of the left with so many edges, or an edge."""
    declared: dict[str, Any] = {
        "name": "g",
        "kind": "bipartite",
        "left": 40,
        "right": 60,
        "weighted": False,
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "records_public": True,
    } | more
    if most is not None:
        declared["unit"] = {"side": "left", "max_edges": most}
    return PublicDataset(parse_spec(declared), 200.0)


def directed(most: int) -> PublicDataset:
    """A directed graph whose unit is a node with so many edges that leave it."""
    declared = {"name": "g", "kind": "graph", "directed": True, "nodes": 50, "budget": {"epsilon": 1.0, "delta": 1e-6}}
    return PublicDataset(parse_spec(declared | {"unit": {"side": "source", "max_edges": most}}))


def request(mechanism: dict[str, Any], **more: Any) -> Any:
    asked = {"dataset": "g", "mechanism": mechanism, "epsilon": 1.0, "max_queries": 100}
    return parse_request(asked | more)


SESSIONS = [
    ({"construction": "mw"}, {"max_updates": 20}),
    ({"construction": "mw"}, {"max_updates": 20, "release": "race"}),
    ({"construction": "fk"}, {"max_updates": 20}),
    ({"construction": "md", "potential": "lp"}, {"max_updates": 20}),
    ({"construction": "laplace"}, {}),
    ({"construction": "gaussian"}, {}),
]


@pytest.mark.parametrize(("mechanism", "more"), SESSIONS)
def test_plans_of_sessions_grow_with_the_edges_of_a_node(mechanism: dict[str, Any], more: dict[str, Any]) -> None:
    """A node with one edge as the unit makes the plan that an edge makes, and one with five makes five times the noise,
    bounds and errors, for the same budget. Would catch a mechanism that takes gamma of a graph to be one."""
    asked = request(mechanism, **more)
    edge, one, five = (make_plan(dataset(most), asked).document() for most in (None, 1, MOST))
    assert edge == one
    grown = [
        name
        for name in ("noise_scale", "measured_scale", "error_bound", "threshold", "standard_error")
        if one.get(name) is not None
    ]
    assert grown
    for name in grown:
        assert five[name] == pytest.approx(MOST * one[name], rel=0.01), name
    for name in ("reserved", "max_updates", "regime"):
        assert one.get(name) == five.get(name)


def release(most: int | None, method: str, epsilon: float = 1.0, **more: Any) -> Any:
    words = {"construction": "workload", "method": method, "workload": {"cuts": "all"}, "options": {}}
    return make_plan(dataset(most, **more), request(words, epsilon=epsilon, max_queries=1))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", ["histogram", "synthetic_graph"])
def test_releases_pay_for_every_edge_of_a_node(method: str, weighted: bool) -> None:
    """The variance of what is released of a cell grows by at least the five edges that a node has and by no more than
    five times that, and what is paid stays the same. Would catch a release that is charged for one edge, and
    one that takes all edges to be in one cell, by which Gaussian noise would have twenty-five times the variance."""
    budget = {"epsilon": 1.0, "delta": 1e-6}
    edge, one, five = (release(most, method, weighted=weighted, budget=budget) for most in (None, 1, MOST))
    assert all(isinstance(plan, EdgePlan) for plan in (edge, one, five))
    assert edge.document() == one.document()
    assert weighted or five.buy.noise.kind == "flips"
    assert MOST <= (five.cell_error / one.cell_error) ** 2 <= 1.1 * MOST**2
    assert float(five.price.renyi) <= float(dataset(MOST).share(Decimal(1))) or five.price.pure is not None


def test_small_shares_buy_noise_for_the_root_of_the_edges() -> None:
    """By the Renyi sum noise of cells is Gaussian, or coins that are about as good, and grow like the root of m: of the
    five cells that move none moves by more than one. Would catch a sensitivity of 25 in squares."""
    for weighted, near in ((False, 0.1), (True, 0.005)):
        one, five = (release(most, "histogram", 0.05, weighted=weighted) for most in (1, MOST))
        assert five.cell_error / one.cell_error == pytest.approx(MOST**0.5, rel=near)


def test_rounds_of_the_power_method_grow_with_the_edges() -> None:
    """As edges of one node are one sum. Would catch products that are priced for one edge."""
    words = {"construction": "workload", "method": "iterative_construction", "workload": {"cuts": "all"}}
    plans = [make_plan(dataset(most), request(words | {"options": {"rounds": 2}}, max_queries=1)) for most in (1, MOST)]
    assert all(isinstance(plan, PowerPlan) for plan in plans)
    one, five = (plan.document() for plan in plans)
    assert five["noise_scale"] == pytest.approx(MOST * one["noise_scale"], rel=1e-2)


def test_evidence_costs_what_a_node_can_move() -> None:
    """The degrees and the sum of all cells that an opening buys, and the measurements of a cut and of the numbers of
    nodes by degree, against the cost of noise where a node's five edges move: a sum and a cut by all five, nodes of its
    own side by one, those of the other by five. Would catch a price, and so a charge, for one edge, and sides that are
    mistaken for each other."""
    data, asked = dataset(MOST), request({"construction": "evidence"}, max_queries=10)
    order, unit = data.budget.order, 1 << data.space.answer_bits
    mechanism = GraphMechanism(Opening(data, asked, make_plan(data, asked), evidence=Pins((), ())))
    state = mechanism.start()
    buy, everything = mechanism.purchases(state)
    assert buy.strategy == Degrees.of(data.space)
    assert buy.price == Purchase.at(buy.strategy, buy.noise, Adjacency(1, MOST), order).price
    assert isinstance(everything.noise, Noise)
    units = Fraction(everything.noise.scale) * unit
    assert everything.price.renyi == renyi_cost(DiscreteGaussianAnswer(units, (MOST * unit) ** 2), order)
    for query, absolute, squared, within in (
        ({"type": "cut", "left": list(range(20)), "right": list(range(30))}, MOST, MOST**2, 50.0),
        ({"type": "degrees", "side": "left", "bins": [0, 2, 4]}, 2, 2, None),
        ({"type": "degrees", "side": "right", "bins": [0, 2, 4]}, 2 * MOST, 2 * MOST**2, None),
    ):
        due = mechanism.decide(state, parse_query(query).compiled(data.space), Target(within=within))
        assert isinstance(due, Buy)
        law, scale = due.purchase.noise.kind, Fraction(due.purchase.noise.scale) * unit
        event = (
            DiscreteLaplaceAnswer(scale, absolute * unit)
            if law == "laplace"
            else DiscreteGaussianAnswer(scale, squared * unit**2)
        )
        assert due.price.renyi == renyi_cost(event, order)


def test_a_bought_number_of_edges_moves_by_a_nodes() -> None:
    """Of weighted edges, too, in units of their grid. Would catch a mass that is bought with noise for one edge."""
    assert grid_of(dataset(MOST).space, "mass") == (0, MOST)
    assert grid_of(dataset(MOST, weighted=True, grid=0.25).space, "mass") == (2, 4 * MOST)
    assert grid_of(dataset(MOST).space, "lp:2.0")[1] >= MOST * 2 ** grid_of(dataset(MOST).space, "lp:2.0")[0]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (dataset(MOST), "one node of the left side with all of up to 5 edges added or removed"),
        (directed(MOST), "one node with all of up to 5 edges that leave it added or removed"),
    ],
)
def test_the_descriptor_says_whose_edges_are_hidden(data: PublicDataset, told: str) -> None:
    """And a header reads it back; without a unit nothing of it is written. Would catch a descriptor that a replay reads
    as one of single edges."""
    document = data.descriptor()
    assert (document["privacy_unit"], document["gamma"]) == (told, 5.0)
    assert document["domain"]["unit"]["max_edges"] == 5
    read = PublicDataset.from_descriptor(document)
    assert read.space == data.space
    assert read.space.unit == 5
    assert rfc8785.dumps(read.descriptor()) == rfc8785.dumps(document)
    plain = dataset(None).descriptor()
    assert (plain["privacy_unit"], plain["gamma"]) == ("one edge added or removed, or its weight changed", 1.0)
    assert "unit" not in plain["domain"]


# Prices, against the divergence of the joint law.


def law(kind: str, scale: int) -> dict[int, mpmath.mpf]:
    """Discrete noise as it is defined, out to where nothing is left of it in 25 digits."""
    reach = 70 * scale if kind == "laplace" else 25 * scale
    weights = {
        n: mpmath.exp(-mpmath.mpf(abs(n)) / scale if kind == "laplace" else -mpmath.mpf(n * n) / (2 * scale * scale))
        for n in range(-reach, reach + 1)
    }
    whole = mpmath.fsum(weights.values())
    return {n: weight / whole for n, weight in weights.items()}


def moves(ends: int, most: int, units: int) -> list[np.ndarray]:
    """What one node of the left can bring: weights up to so many units on at most so many of its ends."""
    found = itertools.product(range(units + 1), repeat=ends)
    return [np.array([own, [0] * ends]) for own in found if np.count_nonzero(own) <= most]


@pytest.mark.parametrize(("kind", "scale"), [("laplace", 3), ("gaussian", 2)])
@pytest.mark.parametrize(("most", "units"), [(2, 1), (3, 1), (2, 2)])
@pytest.mark.parametrize("what", ["cells", "degrees"])
def test_the_price_is_no_less_than_the_divergence(kind: Any, scale: int, most: int, units: int, what: str) -> None:
    """Over every set of weights that a node may have on three ends: the price of all cells, or of all degrees, is not
    below the divergence and is reached; the pure price is the largest ratio. Would catch degrees that are charged for
    the node's own alone, or for twice its move, and cells that are charged for one edge."""
    edges, order, a = Edges((2, 3), "all"), Decimal("2.5"), mpmath.mpf("2.5")
    noise, adjacency = Noise(kind, Decimal(scale), 0), Adjacency(units, most)
    shifts = set()
    for sensitivity in moves(3, most, units):
        seen = sensitivity.reshape(-1) if what == "cells" else Degrees(edges).exact(None, CountsTensor(sensitivity))
        shifts.add(tuple(sorted(abs(seen).tolist())))
    price = Purchase.at(edges if what == "cells" else Degrees(edges), noise, adjacency, order).price
    with mpmath.workdps(25):
        chances = law(kind, scale)

        def divergence(shift: int) -> mpmath.mpf:
            both = ((p, chances.get(n - shift)) for n, p in chances.items())
            return mpmath.log(mpmath.fsum(p**a * q ** (1 - a) for p, q in both if q is not None)) / (a - 1)

        each = {shift: divergence(shift) for shift in range(most * units + 1)}
        worst = max(mpmath.fsum(each[shift] for shift in move) for move in shifts)
        assert worst - mpmath.mpf("1e-15") <= float(price.renyi)
        assert float(price.renyi) == pytest.approx(float(worst), rel=1e-9)
    if kind == "laplace":
        assert price.pure is not None
        largest = Fraction(max(sum(move) for move in shifts), scale)
        assert 0 <= Fraction(price.pure) - largest < Fraction(1, 10**20)
    else:
        assert price.pure is None


def test_numbers_of_nodes_by_degree_move_as_is_said() -> None:
    """By brute force over every graph of two nodes with three ends and a third node's edges: how many nodes of either
    side have which degree moves by no more than it is priced for, in L1 and in the square of L2, and by as much. Would
    catch the side of the unit taken for the other, and one node's move charged for that of its neighbours."""
    most, edges = 2, (0, 1, 2)
    for axis, nodes in ((0, 2), (1, 3)):
        asked, found = CompiledDegrees(axis, edges, nodes), []
        for own, others in itertools.product(moves(3, most, 1), moves(3, 3, 1)):
            counts = [asked.exact(CountsTensor(graph)) for graph in (own + others[::-1], others[::-1])]
            found.append(counts[0] - counts[1])
        assert max(int(np.abs(each).sum()) for each in found) == asked.l1(most, "left")
        assert max(int(each @ each) for each in found) == asked.squared(most, "left")


@pytest.mark.parametrize("most", [1, 2, 4])
def test_bits_of_a_node_cost_as_many_coins(most: int) -> None:
    """The divergence of the joint law of four released bits, over all sixteen outcomes, where as many as are kept
    differ, and the largest ratio: both prices are these, rounded up. Would catch coins charged for one edge."""
    coin, a = BitFlips((1 << FLIP_BITS) // 5), mpmath.mpf(3)
    price = Purchase.at(Edges((2, 2), "all"), coin, Adjacency(1, most), Decimal(3)).price
    with mpmath.workdps(40):
        p = mpmath.mpf(coin.flips) / 2**FLIP_BITS

        def chance(outcome: tuple[int, ...], bits: tuple[int, ...]) -> mpmath.mpf:
            return mpmath.fprod(p if seen != bit else 1 - p for seen, bit in zip(outcome, bits, strict=True))

        mine, none = (1,) * most + (0,) * (4 - most), (0,) * 4
        outcomes = list(itertools.product((0, 1), repeat=4))
        moment = mpmath.fsum(chance(o, mine) ** a * chance(o, none) ** (1 - a) for o in outcomes)
        worst = mpmath.log(moment) / (a - 1)
        ratio = max(mpmath.log(chance(o, mine) / chance(o, none)) for o in outcomes)
        assert price.pure is not None
        for paid, true in ((price.renyi, worst), (price.pure, ratio)):
            assert 0 <= mpmath.mpf(str(paid)) - true <= mpmath.mpf("1e-22")
