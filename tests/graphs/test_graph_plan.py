"""Plans of sessions that answer from evidence of a graph or a matrix: how they pay, what they hold, what has no plan.

All of it follows from what is public. Prices are found again here from the noise alone, by the events of the books.
"""

from __future__ import annotations

import math
import re
import time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.feasibility import find_plan
from app.curator.opening import Header, Opening, Pins
from app.curator.planners.graph import MOST_NODES, GraphPlan
from app.curator.planning import chosen, make_plan
from app.curator.request import SessionRequest, parse_request
from app.declarations.spec import parse_spec
from app.measurements.noise import BitFlips
from app.measurements.strategies.asked import Asked
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer, RandomisedResponse
from app.privacy.ledger import Account, Amounts, total
from tests.kit.patience import patience

pytestmark = pytest.mark.unit

BUDGET = {"epsilon": 1.0, "delta": 1e-9}
DIRECTED = {"kind": "graph", "nodes": 50, "directed": True}
UNDIRECTED = {"kind": "graph", "nodes": 50}
BIPARTITE = {"kind": "bipartite", "left": 40, "right": 60}
WEIGHTED = {"kind": "graph", "nodes": 50, "weighted": True, "grid": 0.25}
MATRIX = {"kind": "matrix", "rows": 30, "columns": 20, "lower": -1, "upper": 2, "grid": 0.5}
KINDS: list[dict[str, Any]] = [DIRECTED, UNDIRECTED, BIPARTITE, WEIGHTED, MATRIX]


def dataset(declared: dict[str, Any], *, fresh: bool = True, **more: Any) -> PublicDataset:
    """A data set whose budget nothing was ever taken of, or of which something was."""
    spec = parse_spec({"name": "g", "budget": BUDGET, **declared, **more})
    return PublicDataset(spec, left=Account(PublicDataset(spec).budget).whole if fresh else None)


def request(**words: Any) -> SessionRequest:
    mechanism = {"construction": words.pop("mechanism", "evidence")}
    return parse_request({"dataset": "g", "epsilon": Decimal("0.5"), "mechanism": mechanism} | words)


def planned(data: PublicDataset, **words: Any) -> GraphPlan:
    plan = make_plan(data, request(**words))
    assert isinstance(plan, GraphPlan)
    return plan


def told(plan: GraphPlan) -> dict[str, Any]:
    return plan.document()


def paid(plan: GraphPlan, order: Decimal, cells: int, by: Fraction) -> list[Amounts]:
    """What the plan's noise costs where ``cells`` cells move by ``by`` each, all at one node: the sum of all cells
    moves by all of that at once."""
    found = []
    for buy in plan.buys:
        noise = buy.noise
        if isinstance(noise, BitFlips):
            found.append(Amounts.of(RandomisedResponse(noise.probability), order).times(cells))
            continue
        units, whole = Fraction(noise.scale) * (1 << noise.bits), isinstance(buy.strategy, Degrees)
        moved = int(by * (1 << noise.bits))
        assert moved == by * (1 << noise.bits)
        gamma = cells * moved
        if isinstance(buy.strategy, Asked):
            of_all = DiscreteGaussianAnswer(units, gamma**2)
            found.append(Amounts.of(of_all if noise.kind == "gaussian" else DiscreteLaplaceAnswer(units, gamma), order))
        elif noise.kind == "gaussian":
            square = cells * moved**2 + (gamma**2 if whole else 0)
            found.append(Amounts.of(DiscreteGaussianAnswer(units, square), order))
        else:
            own = Amounts.of(DiscreteLaplaceAnswer(units, moved), order).times(cells)
            found.append(own.plus(Amounts.of(DiscreteLaplaceAnswer(units, gamma), order)) if whole else own)
    return found


#: Of what is declared: epsilon, questions, whether anything was ever taken of the budget; and the mode.
MODES = [
    ("0.5", 10, True, "degrees"),
    ("0.5", 400, True, "degrees"),
    ("0.5", None, True, "degrees"),
    ("0.02", 5, True, "degrees"),
    ("1", 3, True, "laplace"),
    ("1", 3, False, "degrees"),
    ("0.5", 3, True, "degrees"),
    ("1", 5000, True, "edges"),
    ("1", None, True, "degrees"),
]


@pytest.mark.slow
@pytest.mark.parametrize("declared", KINDS, ids=["directed", "undirected", "bipartite", "weighted", "matrix"])
@pytest.mark.parametrize(("epsilon", "questions", "fresh", "mode"), MODES)
def test_the_mode_follows_from_what_is_public(
    declared: dict[str, Any], epsilon: str, questions: int | None, fresh: bool, mode: str
) -> None:
    """Few questions of all of an untouched budget are measured one by one, very many of a small graph by its edges, and
    all others by degrees first; a header tells the same plan from its words alone. Would catch a plan that depends on
    anything that a header does not say, and pure noise where other noise was ever taken.
    """
    data, words = dataset(declared, fresh=fresh), {"epsilon": Decimal(epsilon)}
    asked = request(**words if questions is None else {**words, "max_queries": questions})
    plan = make_plan(data, asked)
    assert isinstance(plan, GraphPlan)
    assert plan.mode == mode
    opening = Opening(data, asked, plan, evidence=Pins((), ()))
    read = PublicDataset.from_descriptor(opening.document()["dataset"])
    again = SessionRequest.from_document(opening.document()["mechanism"], "g")
    assert rfc8785.dumps(told(make_plan(read, again))) == rfc8785.dumps(told(plan))  # type: ignore[arg-type]
    assert told(plan)["max_queries"] == questions
    assert plan.reply()["how"]


def test_the_mode_of_very_many_nodes() -> None:
    """A million nodes and ten million edges: the plan says degrees, is made in no time and takes the memory of its
    nodes. Would catch a plan that looks at cells, and one that measures them."""
    for declared in ({"nodes": 10**6, "kind": "graph"}, {"kind": "bipartite", "left": 10**6, "right": 10**5}):
        data, started = dataset(declared), time.perf_counter()
        plan = planned(data, max_queries=1000, epsilon=Decimal(1))
        assert time.perf_counter() - started < patience(1)
        assert plan.mode == "degrees"
        degrees, everything = plan.buys
        assert everything.strategy.cells == 1
        assert degrees.strategy.cells == sum(data.space.shape) - (declared["kind"] == "graph") * 10**6
        with pytest.raises(PlanInfeasible, match=r"measures every cell.*use evidence"):
            find_plan(data, request(mechanism="histogram", max_queries=10))


@pytest.mark.slow
@pytest.mark.parametrize("declared", KINDS, ids=["directed", "undirected", "bipartite", "weighted", "matrix"])
@pytest.mark.parametrize("mechanism", ["evidence", "histogram"])
@given(
    epsilon=st.decimals("0.01", "1", places=3),
    questions=st.one_of(st.none(), st.integers(1, 10**5)),
    fresh=st.booleans(),
)
@settings(max_examples=12, deadline=None)
def test_what_is_held_is_enough_and_no_more_than_the_share(
    declared: dict[str, Any], mechanism: str, epsilon: Decimal, questions: int | None, fresh: bool
) -> None:
    """Prices are what the noise costs by the events of the books, and what the opening buys is within what is held;
    this is the share of the one sum, or, where all that is left is taken, epsilon in the other. Would catch a price
    that is no price of its noise, noise for half of what a degree's edge moves, and a hold beyond the share.
    """
    data = dataset(declared, fresh=fresh)
    words = {"epsilon": epsilon, "mechanism": mechanism} | ({} if questions is None else {"max_queries": questions})
    plan = planned(data, **words)
    space = data.space
    assert [buy.price for buy in plan.buys] == paid(plan, data.budget.order, 1, Fraction(space.unit))
    assert [type(buy.strategy) for buy in plan.buys] == {
        "degrees": [Degrees, Asked],
        "edges": [Edges, Degrees],
        "sums": [Degrees, Asked],
        "laplace": [],
    }[plan.mode]
    plan.holds.minus(total(buy.price for buy in plan.buys))  # would raise
    whole = fresh and epsilon == 1
    share = data.share(epsilon)
    if plan.regime == "renyi":
        assert (plan.reserved, plan.reserved_pure) == (share, None)
        assert plan.reserved <= data.budget.share(epsilon)
    else:
        assert whole
        assert plan.reserved_pure == epsilon
        assert all(buy.price.pure is not None for buy in plan.buys)
        assert plan.epsilon_alone <= epsilon
    assert plan.mode != "laplace" or (whole and questions is not None)
    assert 0 < plan.question_error < math.inf
    if plan.mode == "edges":
        # The share is used: a little more noise would be a little cheaper, and four digits are few.
        spent = total(buy.price for buy in plan.buys)
        assert (spent.pure or 0) > Decimal("0.99") if plan.regime == "pure" else spent.renyi > share * Decimal("0.99")
    elif plan.mode == "degrees":
        few = Fraction(1, 20) + Fraction(questions or 10**9, 50_000)
        for buy, most in zip(plan.buys, (min(few, Fraction(3, 20)), Fraction(1, 50)), strict=True):
            assert Fraction("0.99") * most < Fraction(buy.price.renyi) / Fraction(share) <= most


@pytest.mark.parametrize("declared", [UNDIRECTED, BIPARTITE, MATRIX])
def test_little_to_pay_with_buys_sums(declared: dict[str, Any]) -> None:
    """A small graph whose whole budget is a tenth: all of it, as pure noise, goes to degrees and to the total, each at
    its price, and nothing is left over. Would catch a price that is no price of its noise, and Gaussian noise in a
    session that is held to be pure.
    """
    data = dataset(declared, budget={"epsilon": 0.1, "delta": 1e-9})
    plan = planned(data, epsilon=Decimal("0.1"), max_queries=400)
    assert plan.mode == "sums"
    assert [type(buy.strategy) for buy in plan.buys] == [Degrees, Asked]
    assert all(buy.noise.kind == "laplace" for buy in plan.buys)
    degrees, everything = (buy.price for buy in plan.buys)
    assert [buy.price for buy in plan.buys] == paid(plan, data.budget.order, 1, Fraction(data.space.unit))
    assert (plan.regime, plan.reserved_pure) == ("pure", Decimal("0.1"))
    assert degrees.pure is not None
    assert everything.pure is not None
    assert Decimal("0.0989") < degrees.pure + everything.pure <= Decimal("0.1")
    # With more to pay with, or of a larger graph, questions are paid for.
    assert planned(dataset(declared), epsilon=Decimal(1), max_queries=400).mode != "sums"
    large = {"kind": "graph", "nodes": 2000}
    data = dataset(large, budget={"epsilon": 0.1, "delta": 1e-9})
    assert planned(data, epsilon=Decimal("0.1"), max_queries=400).mode == "degrees"


def test_a_wish_for_accuracy_buys_nothing_at_the_opening() -> None:
    """And takes neither cells nor pure noise of its own. Would catch a session that pays before anybody asked."""
    for words in ({"max_queries": 3, "epsilon": Decimal(1)}, {"max_queries": 10**5}, {}):
        plan = planned(dataset(UNDIRECTED), within=20.0, **words)
        assert (plan.mode, plan.buys, plan.regime) == ("degrees", (), "renyi")
        assert plan.question_error == 10


@pytest.mark.parametrize(
    ("declared", "words", "says"),
    [
        (UNDIRECTED, {"contract": True, "max_queries": 9}, "leave it out, or use a construction (mw, fk, md)"),
        (MATRIX, {"contract": True, "max_queries": 9}, "this is a matrix"),
        (UNDIRECTED, {"max_updates": 5}, "takes no max_updates"),
        (UNDIRECTED, {"mechanism": "histogram", "max_updates": 5}, "histogram takes no max_updates"),
        (DIRECTED, {"calibration": "exact"}, "leave both out"),
        (DIRECTED, {"calibration": "jt2012"}, "leave both out"),
        (BIPARTITE, {"release": "race"}, "leave both out"),
        ({**BIPARTITE, "right": MOST_NODES + 1}, {}, "there are 4,194,305: use gaussian or laplace"),
        ({**MATRIX, "rows": MOST_NODES + 1}, {"mechanism": "histogram"}, "use gaussian or laplace"),
        ({"kind": "graph", "nodes": 5794}, {"mechanism": "histogram"}, "16,777,216 of bits"),
        ({**MATRIX, "rows": 2049, "columns": 2048}, {"mechanism": "histogram"}, "4,194,304 of numbers"),
        (UNDIRECTED, {"epsilon": Decimal("1e-27")}, "share"),
    ],
)
def test_what_has_no_plan_says_why(declared: dict[str, Any], words: dict[str, Any], says: str) -> None:
    """Would catch a refusal that is an error, that names nothing else, and a limit that is off by one."""
    data = dataset(declared)
    with pytest.raises(PlanInfeasible, match=re.escape(says)):
        find_plan(data, request(**words))
    with pytest.raises(PlanInfeasible, match=r".{20}"):
        make_plan(data, request(**words))


def test_limits_are_reached() -> None:
    """The largest graphs of each kind have plans. Would catch a limit that is off by one to the other side."""
    assert planned(dataset({**BIPARTITE, "right": MOST_NODES})).mode == "degrees"
    assert planned(dataset({"kind": "graph", "nodes": 5793}), mechanism="histogram").mode == "edges"
    assert planned(dataset({**MATRIX, "rows": 2048, "columns": 2048}), mechanism="histogram").mode == "edges"


def test_what_is_chosen_where_nothing_is_said() -> None:
    """Evidence as long as degrees can be measured, in words that name the kind; beyond that noise on each question.
    Would catch a choice that has no plan."""
    for declared in KINDS:
        data = dataset(declared)
        settled, why = chosen(data, request(mechanism="auto", max_queries=100))
        assert settled.mechanism.construction == "evidence"
        assert "cuts together" in (why or "")
        assert isinstance(make_plan(data, settled), GraphPlan)
    huge = dataset({**BIPARTITE, "right": MOST_NODES + 1})
    settled, _ = chosen(huge, request(mechanism="auto", max_queries=100))
    assert settled.mechanism.construction in ("gaussian", "laplace")
    make_plan(huge, settled)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_node_as_the_unit(side: str) -> None:
    """Neighbours differ in up to m edges of one node: degrees get noise for its own degree, which moves by m, and m
    others, the sum of all cells noise for m, and a question is expected to err m times as much; all of the share is
    worth no more. Would catch a plan that takes an edge for the unit."""
    m = 6
    one, many = (
        dataset(BIPARTITE, weighted=False, unit={"side": side, "max_edges": most}, fresh=False) for most in (1, m)
    )
    first, second = planned(one, max_queries=8), planned(many, max_queries=8)
    assert second.question_error == pytest.approx(m * first.question_error, rel=1e-5)
    noises = [buy.noise for plan in (first, second) for buy in plan.buys]
    assert [noise.kind for noise in noises] == ["gaussian"] * 4
    assert noises[2].variance / noises[0].variance == pytest.approx((m**2 + m) / 2, rel=5e-3)
    assert noises[3].variance / noises[1].variance == pytest.approx(m**2, rel=5e-3)
    assert [buy.price for buy in second.buys] == paid(second, many.budget.order, m, Fraction(1))
    assert second.holds == first.holds
    cells = planned(dataset(BIPARTITE, unit={"side": side, "max_edges": m}), mechanism="histogram", epsilon=Decimal(1))
    assert [buy.price for buy in cells.buys] == paid(cells, many.budget.order, m, Fraction(1))
    assert cells.reserved_pure == 1
    assert [type(buy.strategy) for buy in cells.buys] == [Edges, Degrees]
    assert isinstance(cells.buys[0].noise, BitFlips)


def test_a_header_reads_back() -> None:
    """With everything that the plan says, and no number of questions where none was declared. Would catch a header
    that a service cannot read again."""
    for words in ({}, {"max_queries": 7}, {"max_queries": 7, "start": "nothing", "share": False}, {"within": 3.5}):
        asked, data = request(**words), dataset(UNDIRECTED)
        plan = make_plan(data, asked)
        document = Opening(data, asked, plan, evidence=Pins((), ())).document()
        header = Header.read(
            rfc8785.dumps(
                {"format": 1, "record": "header", "session": "s", "opened_at": "2026-01-01T00:00:00Z"} | document
            )
        )
        stated = header.document["plan"]
        assert stated == plan.document()
        assert stated["max_queries"] == words.get("max_queries")
