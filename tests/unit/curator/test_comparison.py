"""Plans side by side, and the Gaussian line that they have to beat."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from app.curator.comparison import MOST_MECHANISMS, Comparison, compare, independent_gaussian, parse_comparison
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.planner import Plan, make_plan
from app.curator.request import parse_request
from app.privacy.costs import DiscreteGaussianAnswer, renyi_cost
from app.spaces.errors import InvalidRequest
from app.spaces.spec import parse_spec

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
    return compare(dataset, parse_comparison(asked(**changes)))


def render(error: Any) -> dict[str, Any]:
    return {"type": error.code, "detail": error.detail}


def test_each_has_the_plan_that_it_would_have_alone() -> None:
    found = compared(max_updates=20)
    for mechanism, outcome in zip(MECHANISMS, found.outcomes, strict=True):
        alone = asked(None, mechanism=mechanism, max_updates=20)
        assert outcome == make_plan(DATA, parse_request(alone))


def test_best_is_the_least_error() -> None:
    """Guaranteed plans differ by the constructions' bounds; what has no plan stands in its place with the reason."""
    found = compared()
    bounds = [o.error_bound if isinstance(o, Plan) else math.inf for o in found.outcomes]
    assert found.best == int(np.argmin(bounds)) == 1
    document = found.document(render)
    assert [sorted(entry) for entry in document["plans"]][1] == ["mechanism", "plan"]
    assert document["plans"][3]["problem"]["type"] == "plan-infeasible"
    assert "no bound" in document["plans"][3]["problem"]["detail"]
    assert document["plans"][2]["mechanism"]["potential"] == "lp"
    assert document["best"] == 1
    assert set(document["independent_gaussian"]) == {"sigma", "error_bound"}


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
