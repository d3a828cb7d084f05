"""Plans side by side, and the Gaussian line that they have to beat."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from app.curator.comparison import MOST_MECHANISMS, Comparison, compare, independent_gaussian, parse_comparison
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Plan
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.errors import InvalidRequest
from app.declarations.spec import parse_spec
from app.privacy.costs import DiscreteGaussianAnswer, renyi_cost

pytestmark = pytest.mark.unit

RECORDS = 1_000_000
WORDS: dict[str, Any] = {
    "name": "d",
    "kind": "table",
    "attributes": [{"name": "a", "size": 32}, {"name": "b", "size": 32}],
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
DATA = PublicDataset(parse_spec(WORDS), RECORDS)
MECHANISMS = [
    {"construction": "fk"},
    {"construction": "mw"},
    {"construction": "md", "potential": "lp"},
    {"construction": "mw", "step": "full"},
]


def asked(mechanisms: Any = MECHANISMS, **changes: Any) -> dict[str, Any]:
    words = {"dataset": "d", "mechanisms": mechanisms, "epsilon": 1.0, "max_queries": 1000, **changes}
    return {name: value for name, value in words.items() if value is not None}


def compared(dataset: PublicDataset = DATA, **changes: Any) -> Comparison:
    return compare(dataset, parse_comparison(asked(**changes)), lambda request: make_plan(dataset, request))


def render(error: Any) -> dict[str, Any]:
    return {"type": error.code, "detail": error.detail}


def test_each_has_the_plan_that_it_would_have_alone() -> None:
    found = compared(max_updates=20)
    for mechanism, outcome in zip(MECHANISMS, found.outcomes, strict=True):
        alone = asked(None, mechanism=mechanism, max_updates=20)
        assert outcome == make_plan(DATA, parse_request(alone))


def test_the_best_of_guaranteed_plans_has_the_least_error() -> None:
    """Guaranteed plans differ by the constructions' bounds; what has no plan stands in its place with the reason."""
    found = compared()
    bounds = [o.error_bound if isinstance(o, Plan) else math.inf for o in found.outcomes]
    assert found.best == int(np.argmin(bounds)) == 1
    assert [math.inf if certain is None else certain for certain in found.certain] == bounds
    document = found.document(render)
    assert [sorted(entry) for entry in document["plans"]][1] == ["certain_error", "mechanism", "plan"]
    assert [sorted(entry) for entry in document["plans"]][3] == ["mechanism", "problem"]
    assert document["plans"][3]["problem"]["type"] == "plan-infeasible"
    assert "no bound" in document["plans"][3]["problem"]["detail"]
    assert document["plans"][2]["mechanism"]["potential"] == "lp"
    assert document["best"] == 1
    assert set(document["independent_gaussian"]) == {"sigma", "error_bound", "better"}


GRAPH = PublicDataset(
    parse_spec(
        {
            "name": "d",
            "kind": "graph",
            "nodes": 1000,
            "directed": True,
            "records_public": True,
            "budget": {"epsilon": 1.0, "delta": 1e-6},
        }
    ),
    20_000,
)
ON_GRAPHS: list[dict[str, Any]] = [
    {"construction": "md", "potential": "schatten"},
    {"construction": "fk"},
    {"construction": "mw"},
    {"construction": "mw", "step": "refit"},
    {"construction": "fk", "step": "full"},
    {"construction": "mw", "step": "paper"},
    {"construction": "smw", "sparsity": 2},
]
MASS = 20_000


def least_certain(plan: Plan, numerator: float) -> float:
    """With ``numerator/alpha^2`` updates at worst: the error of the least alpha at which they are below B + 1. With
    L = alpha (T = 2L) that is alpha + 2L."""
    alpha = plan.progress
    return max(alpha, math.sqrt(numerator / (plan.max_updates + 1))) + 2 * plan.noise_bound


def test_the_best_for_given_updates_goes_furthest() -> None:
    """All plans with 20 updates have one noise and one error bound. What they keep for all queries is the formulas'
    of MATHEMATICS 5, by hand: mw 2 n^2 ln d (paper: twice that), fk ||x||^2 |X| with ||x||^2 <= n; nothing where there
    is no bound. Would catch the first of the request as the best, and a step without a bound."""
    found = compared(GRAPH, mechanisms=ON_GRAPHS, max_updates=20)
    plans = [o for o in found.outcomes if isinstance(o, Plan)]
    assert len({p.error_bound for p in plans}) == 1
    by = dict(zip(["schatten", "fk", "mw", "refit", "full", "paper", "smw"], found.certain, strict=True))
    entropy, energy = 2 * MASS**2 * math.log(GRAPH.space.size), float(MASS * GRAPH.space.size)
    assert by["mw"] == pytest.approx(least_certain(plans[0], entropy), rel=1e-5)
    assert by["paper"] == pytest.approx(least_certain(plans[0], 2 * entropy), rel=1e-5)
    assert by["fk"] == pytest.approx(least_certain(plans[0], energy), rel=1e-5)
    assert (by["refit"], by["full"], by["smw"]) == (None, None, None)
    assert by["schatten"] is not None
    assert by["mw"] is not None
    assert by["fk"] is not None
    assert by["schatten"] > by["fk"]
    assert ON_GRAPHS[found.best or 0] == ({"construction": "mw"} if entropy < energy else {"construction": "fk"})


@pytest.mark.slow
@pytest.mark.parametrize("updates", [1, 20, 5000, 10**6, None])
@pytest.mark.parametrize("records", [20_000, None])
def test_the_order_of_the_request_does_not_matter(updates: int | None, records: float | None) -> None:
    """Whatever stands first. Would catch a tie that the place decides."""
    data = GRAPH
    if records is None:
        data = PublicDataset(parse_spec({**GRAPH.spec.model_dump(mode="json"), "records_public": False}))
    named = set()
    for shift in range(len(ON_GRAPHS)):
        for order in (1, -1):
            mechanisms = (ON_GRAPHS[shift:] + ON_GRAPHS[:shift])[::order]
            found = compared(data, mechanisms=mechanisms, max_updates=updates)
            named.add(None if found.best is None else json.dumps(mechanisms[found.best]))
            assert found.advice == compared(data, mechanisms=ON_GRAPHS, max_updates=updates).advice
    assert len(named) == 1


def test_enough_updates_keep_the_error_bound_itself() -> None:
    """Where the bound is within the updates asked for, the plan's own error is what it keeps, and of several such the
    one that needs the fewest updates is named."""
    probe = compared(mechanisms=[ON_GRAPHS[5], ON_GRAPHS[2]], max_updates=50_000, max_queries=10**9)
    plans = [o for o in probe.outcomes if isinstance(o, Plan)]
    assert probe.certain == [p.error_bound for p in plans]
    bounds = [p.update_bound for p in plans]
    assert None not in bounds
    assert probe.best == bounds.index(min(b for b in bounds if b is not None))
    assert "for all queries" in probe.advice


@pytest.mark.parametrize("first", ["mw", "fk"])
def test_a_mass_that_is_not_public_counts_as_the_largest(first: str) -> None:
    """mw buys its mass and fk does not: neither wins for that. Both are held to the largest mass that there can be,
    where fk's bound is the lesser. Would catch one that is last, or first, because its bound is not known yet."""
    declared = {**GRAPH.spec.model_dump(mode="json"), "records_public": False}
    data = PublicDataset(parse_spec(declared))
    both = [{"construction": first}, {"construction": "fk" if first == "mw" else "mw"}]
    found = compared(data, mechanisms=both, max_updates=20)
    by = {m["construction"]: (o, c) for m, o, c in zip(both, found.outcomes, found.certain, strict=True)}
    mw, kept = by["mw"]
    assert isinstance(mw, Plan)
    assert mw.bound_status == "fact-unknown"
    capacity = data.space.capacity
    assert kept == pytest.approx(least_certain(mw, 2 * capacity**2 * math.log(data.space.size + 1)), rel=1e-5)
    fk, kept = by["fk"]
    assert isinstance(fk, Plan)
    assert kept == pytest.approx(least_certain(fk, float(capacity * data.space.size)), rel=1e-5)
    assert both[found.best or 0] == {"construction": "fk"}


def test_steps_without_a_bound_come_last() -> None:
    """Alone they are the best there is, and the advice says that nothing is promised; beside any other they are not."""
    alone = compared(GRAPH, mechanisms=[ON_GRAPHS[3]], max_updates=20, max_queries=10**9)
    assert alone.best == 0
    assert "Nothing promises" in alone.advice
    assert compared(GRAPH, mechanisms=[ON_GRAPHS[3], ON_GRAPHS[0]], max_updates=20).best == 1


def test_what_a_plan_says_of_its_bound() -> None:
    """The label beside an ``update_bound`` that is null tells why; full and refit tell no step size."""
    found = compared(GRAPH, mechanisms=ON_GRAPHS[1:6], max_updates=20)
    told = [
        (p.bound_status, p.update_bound is None, p.step_size is None) for p in found.outcomes if isinstance(p, Plan)
    ]
    assert told == [
        ("bound", False, False),
        ("bound", False, False),
        ("no-worst-case-bound", True, True),
        ("no-worst-case-bound", True, True),
        ("bound", False, False),
    ]
    sampled = [{"construction": "median", "sampled": True}]
    (plan,) = compared(mechanisms=sampled, max_updates=20).outcomes
    assert isinstance(plan, Plan)
    assert (plan.bound_status, plan.reply()["bound_status"]) == ("no-worst-case-bound",) * 2
    (far,) = compared(GRAPH, mechanisms=ON_GRAPHS[1:2], max_updates=1, max_queries=1, beta=0.5).outcomes
    assert isinstance(far, Plan)
    assert MASS * GRAPH.space.size / far.progress**2 > 10**7
    assert (far.update_bound, far.bound_status) == (None, "above-limit")


@pytest.mark.parametrize("queries", [1, 37, 10**6])
def test_the_share_pays_for_every_gaussian_answer(queries: int) -> None:
    """k answers at the kernel's own price of a discrete Gaussian answer are within the share, and a standard deviation
    a millionth smaller is not: catches a lost factor of k, 2 or the order."""
    share = DATA.budget.share(Decimal("0.25"))
    gaussian = independent_gaussian(DATA, share, queries, 0.05)

    def price(sigma: float) -> Fraction:
        units = sigma * 2.0**DATA.space.answer_bits
        one = renyi_cost(DiscreteGaussianAnswer(Fraction(units), 4**DATA.space.answer_bits), DATA.budget.order)
        return queries * Fraction(one)

    assert price(gaussian.sigma) <= Fraction(share)
    assert price(gaussian.sigma * (1 - 1e-6)) > Fraction(share)


def test_gaussian_errors_keep_their_bound() -> None:
    """1,000 answers, 4,000 times: the part of the times that some error passes the bound is below beta. The union bound
    is loose by a little, so that beta's half would be passed: catches a bound for one answer instead of all."""
    gaussian = independent_gaussian(DATA, DATA.budget.share(Decimal(1)), 1000, 0.05)
    rng = np.random.default_rng(0)
    errors = np.abs(rng.normal(0, gaussian.sigma, (4000, 1000))).max(axis=1)
    assert float((errors > gaussian.error_bound).mean()) <= 0.05
    one = gaussian.sigma * math.sqrt(2 * math.log(2 / 0.05))
    assert float((errors > one).mean()) > 0.5


def test_advice_tells_what_is_better() -> None:
    """Few queries: noise on each; many: a session. In between the advice names about where they meet."""
    few = compared(max_queries=10, max_updates=50)
    assert isinstance(few.outcomes[0], Plan)
    assert few.gaussian.error_bound < few.outcomes[0].error_bound
    assert "is better" in few.advice
    many = compared(max_queries=10**6, max_updates=50)
    assert "beats" in many.advice
    assert "50 updates" in many.advice
    assert few.line()["independent_gaussian"]["better"]
    assert not many.line()["independent_gaussian"]["better"]
    crossing = float(few.advice.split("from some ")[1].split(" ")[0])
    near = compared(max_queries=round(crossing), max_updates=50)
    assert isinstance(near.outcomes[0], Plan)
    assert near.gaussian.error_bound == pytest.approx(near.outcomes[0].error_bound, rel=0.6)
    assert "for all queries" in compared(max_queries=10**9).advice


def test_advice_where_nothing_helps() -> None:
    small = PublicDataset(parse_spec(WORDS), 20)
    assert "answering 0" in compared(small, max_updates=50).advice
    none = compared(small)
    assert none.best is None
    assert "None of the mechanisms" in none.advice
    assert "max_updates" in none.advice


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"mechanism": {"construction": "mw"}}, "not both"),
        ({"mechanisms": []}, "1 to"),
        ({"mechanisms": {"construction": "mw"}}, "list"),
        ({"mechanisms": [{"construction": "mw"}] * (MOST_MECHANISMS + 1)}, "1 to"),
        ({"mechanisms": [{"construction": "mw"}, {"construction": "md"}]}, "mechanisms.1"),
        ({"mechanisms": [{"construction": "mw"}, 3]}, "mechanisms.1"),
        ({"epsilon": 0}, "epsilon"),
        ({"queries": 3}, "queries"),
    ],
)
def test_words_that_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        parse_comparison({**asked(), **changes})


def test_a_share_that_nobody_could_have_is_refused() -> None:
    with pytest.raises(PlanInfeasible):
        compared(epsilon=1e-28)
