"""Direct mechanisms: noise that costs what was reserved and no less, bounds that hold, and nothing else is told."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible, UpdatesExhausted
from app.curator.mechanisms import Answer, DirectMeasurement, Measure
from app.curator.opening import Opening
from app.curator.plan import Plan
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.spaces.errors import InvalidRequest
from app.spaces.spec import parse_spec
from tests.strategies import BUDGET, released, universe

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x0", "size": 4}, {"name": "x1", "size": 3}],
        "budget": BUDGET,
    }
)
LAWS = ["laplace", "gaussian"]
QUERY = TABLE.compiled({"type": "predicate", "where": {"x0": {"equals": 1}}})


def opening(law: str, declared: dict[str, Any] | None = None, **more: Any) -> Opening:
    dataset = PublicDataset(parse_spec(TABLE.declared | (declared or {})), 10**6)
    asked = {"dataset": "t", "mechanism": {"construction": law}, "epsilon": 0.5, "max_queries": 100}
    request = parse_request(asked | more)
    return Opening(dataset, request, make_plan(dataset, request))


def units_of(plan: Plan) -> Fraction:
    return plan.scale * (1 << plan.answer_bits)


def laplace_cost(scale: Fraction, shift: int, order: Decimal) -> mpmath.mpf:
    """The Renyi divergence of discrete Laplace noise and the same noise shifted, the three geometric sums in full."""
    with mpmath.workdps(60):
        a, b = mpmath.mpf(str(order)), mpmath.mpf(scale.numerator) / scale.denominator
        r = mpmath.exp(-1 / b)
        p0 = (1 - r) / (1 + r)
        # Left of both, between them, and right of both: the ratio p/q is e^(s/b), changes by e^2 a unit, and e^(-s/b).
        outside = r / (1 - r)
        left = p0 * (1 + outside) * mpmath.exp((a - 1) * shift / b)
        right = p0 * mpmath.exp(-shift / b) * (1 + outside) * mpmath.exp(-(a - 1) * shift / b)
        between = mpmath.fsum(
            p0 * mpmath.exp(-k / b) * mpmath.exp((a - 1) * (shift - 2 * k) / b) for k in range(1, shift)
        )
        return mpmath.log(left + between + right) / (a - 1)


def test_gaussian_noise_costs_its_share() -> None:
    """Of k answers each costs a s^2 / (2 sigma^2), rounded up. Would catch a share that k answers pass, more noise than
    a whole sixteenth of a unit's 4096th part beyond what it pays for, and a bought variance of another size."""
    for queries in (1, 7, 1000):
        plan = opening("gaussian", max_queries=queries).plan
        sigma, order = units_of(plan), Fraction(plan.order)
        sensitivity = 1 << plan.answer_bits
        exact = order * sensitivity**2 / (2 * sigma**2)
        assert 0 <= Fraction(plan.cost_per_update) - exact <= Fraction(1, 10**24)
        assert plan.cost_per_update * queries <= plan.reserved
        less = sigma - Fraction(1, 1 << 16)
        assert order * sensitivity**2 / (2 * less**2) * queries > Fraction(plan.reserved) * (1 - Fraction(1, 10**15))


@mpmath.workdps(60)
def test_laplace_noise_costs_its_share() -> None:
    """On a grid of few units, where every term can be added up. Would catch a cost at another order, sensitivity or
    scale, and noise beyond what the share pays for."""
    for queries in (1, 7, 300):
        plan = opening("laplace", {"capacity": 2**40, "records_public": False}, max_queries=queries).plan
        sensitivity, scale = 1 << plan.answer_bits, units_of(plan)
        assert sensitivity <= 32
        due = laplace_cost(scale, sensitivity, plan.order)
        cost = mpmath.mpf(str(plan.cost_per_update))
        assert 0 <= cost - due <= mpmath.mpf(10) ** -24 + due * mpmath.mpf(10) ** -30
        assert plan.cost_per_update * queries <= plan.reserved
        less = laplace_cost(scale - Fraction(1, 1 << 16), sensitivity, plan.order)
        assert less * queries > mpmath.mpf(str(plan.reserved)) * (1 - mpmath.mpf(10) ** -15)


@pytest.mark.parametrize("beta", [0.5, 0.05, 1e-6])
@pytest.mark.parametrize("law", LAWS)
def test_bounds_hold_and_are_no_idle_talk(law: str, beta: float) -> None:
    """The chance that one of k noises passes L, by the law's own tail. Would catch a bound for one answer that is said
    of all of them, and the tail of another law."""
    plan = opening(law, max_queries=50, beta=beta).plan
    scale, most = float(units_of(plan)), plan.noise_bound_units - 1
    if law == "laplace":
        beyond = 2 * math.exp(-(most + 1) / scale) / (1 + math.exp(-1 / scale))
    else:
        beyond = math.erfc(most / (scale * math.sqrt(2)))
    assert 50 * beyond <= beta
    assert 50 * beyond >= beta / 40
    assert plan.error_bound == plan.noise_bound


@pytest.mark.parametrize("law", LAWS)
def test_standard_errors_are_those_of_the_law(law: str) -> None:
    """Would catch the scale of Laplace noise taken for its deviation."""
    plan = opening(law, {"capacity": 2**40, "records_public": False}, max_queries=3).plan
    scale = float(units_of(plan))
    values = np.arange(-60 * round(scale + 1), 60 * round(scale + 1) + 1)
    weights = np.exp(-np.abs(values) / scale) if law == "laplace" else np.exp(-(values**2) / (2 * scale**2))
    deviation = math.ldexp(math.sqrt(float(weights @ values**2 / weights.sum())), -plan.answer_bits)
    assert plan.standard_error == pytest.approx(deviation, rel=1e-9 if law == "laplace" else 1e-3)
    assert plan.standard_error >= deviation * (1 - 1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_what_a_plan_says(law: str) -> None:
    plan = opening(law).plan
    document = plan.document()
    assert (document["noise"], document["threshold"], document["progress"]) == (law, None, None)
    assert (plan.max_updates, plan.update_bound, plan.bound_status, plan.guaranteed) == (100, 100, "bound", True)
    assert Decimal(0) < plan.epsilon_alone <= 1


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"max_updates": 3}, "no max_updates"),
        ({"calibration": "jt2012"}, "calibrated by rdp"),
        ({"release": "race"}, "its release is single"),
        ({"epsilon": 1e-15, "max_queries": 10**9}, "raise epsilon"),
    ],
)
@pytest.mark.parametrize("law", LAWS)
def test_what_has_no_meaning_is_refused(law: str, asked: dict[str, Any], says: str) -> None:
    """Would catch a parameter that is taken and does nothing."""
    with pytest.raises(PlanInfeasible, match=says):
        opening(law, **asked)


@pytest.mark.parametrize("more", [{"step": "paper"}, {"step": "projection"}, {"p": 1.5}, {"sparsity": 2}])
def test_parameters_of_constructions_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="belongs to"):
        opening("gaussian", mechanism={"construction": "gaussian", **more})


class TestSession:
    @pytest.mark.parametrize("law", LAWS)
    def test_every_question_is_measured_once(self, law: str) -> None:
        """On the plan's noise and price. Would catch a question that is answered from nothing, one that is paid for
        twice, and a bound that is not the plan's."""
        made = opening(law, max_queries=2)
        session, plan = Session(made), made.plan
        due = session.consider(QUERY)
        assert isinstance(due, Measure)
        assert (due.terms.noise.law, due.terms.noise.scale) == (law, plan.noise_scale_units)
        assert due.terms.price == plan.price
        assert due.error_bound == plan.error_bound
        session.record(QUERY, released(77, "measurement", due.error_bound))
        assert (session.updates_used, session.queries_left) == (1, 1)
        again = session.consider(QUERY)
        assert isinstance(again, Answer)
        assert (again.source, again.units.tolist()) == ("cached", [77])
        known = session.accuracy(QUERY, again)
        assert known is not None
        assert known.standard_errors.tolist() == [plan.standard_error]
        assert known.unbiased.all()
        assert session.dump().arrays.keys() == {"digests", "bounds", "starts", "sizes", "units"}
        resumed = Session(made, state=session.dump())
        assert (resumed.updates_used, resumed.queries_left) == (1, 1)

    def test_there_is_no_hypothesis(self) -> None:
        """Would catch an answer made up where an unverified one is asked for."""
        session = Session(opening("laplace"))
        with pytest.raises(InvalidRequest, match="leave unverified out"):
            session.consider(QUERY, unverified=True)
        with pytest.raises(InvalidRequest, match="no hypothesis"):
            session.mechanism.export(session.state)
        nothing = session.consider(TABLE.compiled({"type": "sparse", "indices": [], "weights": []}))
        assert isinstance(nothing, Answer)
        assert (nothing.units.tolist(), nothing.source) == ([0], "hypothesis")

    def test_forfeits_use_what_questions_were_to_be_paid_from(self) -> None:
        """Would catch a measurement beyond the reservation."""
        made = opening("gaussian", max_queries=2)
        session = Session(made)
        session.forfeit()
        session.forfeit()
        with pytest.raises(UpdatesExhausted, match="open another session"):
            session.consider(QUERY)
        assert isinstance(session.mechanism, DirectMeasurement)
        assert session.updates_left == 0
