"""Direct mechanisms: noise that costs what was reserved and no less, bounds that hold, and nothing else is told."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible, UpdatesExhausted
from app.curator.mechanisms.direct import DirectMeasurement
from app.curator.mechanisms.protocol import Answer, Measure
from app.curator.opening import Opening
from app.curator.plan import Plan
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.declarations.errors import InvalidDataset, InvalidRequest
from app.declarations.spec import parse_spec
from app.privacy.errors import InvalidBudget
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts
from tests.kit.strategies import BUDGET, released, universe

pytestmark = pytest.mark.unit

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


def opening(
    law: str, declared: dict[str, Any] | None = None, *, left: tuple[str, str] | None = None, **more: Any
) -> Opening:
    """A session as planned; ``left`` is what is left of both sums of the budget, where all of it may be taken."""
    dataset = PublicDataset(parse_spec(TABLE.declared | {"records_public": True} | (declared or {})), 10**6)
    if left is not None:
        renyi = dataset.budget.total * Decimal(left[0])
        dataset = replace(dataset, left=Amounts(floor_to(renyi), Decimal(left[1])))
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
    with pytest.raises(InvalidRequest, match="unknown field"):
        opening("gaussian", mechanism={"construction": "gaussian", **more})


class TestAllThatIsLeft:
    """A session of Laplace noise that takes all that is left of a budget from which only pure noise was paid."""

    def test_one_question(self) -> None:
        """For epsilon 1 the noise has scale 1, and costs all of epsilon and no more. Would catch noise that is still
        that of the other sum, of twice the deviation, and a price of another scale than the noise's."""
        plan, by_renyi = (opening("laplace", left=left, epsilon=1, max_queries=1).plan for left in (("1", "1"), None))
        assert plan.scale == 1
        assert plan.standard_error == pytest.approx(math.sqrt(2), rel=1e-6)
        assert by_renyi.standard_error is not None
        assert by_renyi.standard_error > 2 * math.sqrt(2)
        assert (plan.regime, plan.reserved_pure, plan.cost_per_update_pure) == ("pure", 1, 1)
        assert plan.reserved == plan.cost_per_update > by_renyi.reserved
        assert (by_renyi.regime, plan.epsilon_alone) == ("renyi", min(plan.epsilon_alone, 1))

    @pytest.mark.slow
    @mpmath.workdps(60)
    @pytest.mark.parametrize("epsilon", ["1", "0.3", "0.000001"])
    @pytest.mark.parametrize("queries", [1, 2, 3, 7, 19])
    def test_both_sums_are_charged_what_the_noise_is(self, epsilon: str, queries: int) -> None:
        """By a sum over the integers and by the definition. Would catch k answers that pass epsilon, as those of three
        thirds rounded up do, noise beyond what epsilon pays for, and a session that reserves less than it charges."""
        declared = {"capacity": 2**40, "records_public": False}
        plan = opening("laplace", declared, left=("0", epsilon), epsilon=float(epsilon), max_queries=queries).plan
        sensitivity, scale = 1 << plan.answer_bits, units_of(plan)
        assert (plan.regime, plan.reserved_pure) == ("pure", Decimal(epsilon))
        assert plan.cost_per_update_pure is not None
        assert 0 <= Fraction(plan.cost_per_update_pure) - sensitivity / scale < Fraction(1, 10**24)
        assert Fraction(plan.cost_per_update_pure) * queries <= Fraction(epsilon)
        assert sensitivity / (scale - Fraction(1, 1 << 16)) * queries >= Fraction(epsilon) * (1 - Fraction(1, 10**15))
        due = laplace_cost(scale, sensitivity, plan.order)
        cost = mpmath.mpf(str(plan.cost_per_update))
        assert 0 <= cost - due <= mpmath.mpf(10) ** -24 + due * mpmath.mpf(10) ** -30
        assert plan.reserved == plan.cost_per_update * queries

    @pytest.mark.parametrize(
        ("law", "left", "asked"),
        [
            ("laplace", ("1", "1"), {"epsilon": 1, "max_queries": 1000}),
            ("laplace", ("1", "1"), {"epsilon": 0.5, "max_queries": 1}),
            ("laplace", ("0.4", "0.500000000001"), {"epsilon": 0.5, "max_queries": 1}),
            ("gaussian", ("1", "1"), {"epsilon": 1, "max_queries": 1}),
        ],
        ids=["many questions", "half of it", "almost all of it", "other noise"],
    )
    def test_otherwise_the_session_is_like_any(self, law: str, left: tuple[str, str], asked: dict[str, Any]) -> None:
        """Would catch more noise than need be for many questions, a part of epsilon that is taken as if it were all,
        and noise that is not pure in a session that says it is."""
        plan = opening(law, left=left, **asked).plan
        assert plan == opening(law, **asked).plan
        assert plan.regime == "renyi"
        if law == "gaussian":
            assert plan.holds.pure is plan.price.pure is None
        else:
            assert plan.holds.pure == plan.price.times(plan.max_queries).pure

    def test_it_takes_no_more_of_the_other_sum_than_is_left_there(self) -> None:
        """Where less is left of the other sum, many questions still go by that one. Would catch a plan that the budget
        does not hold, though another of the same epsilon would do."""
        for queries, regime in ((1, "pure"), (10**4, "renyi")):
            plan = opening("laplace", left=("0.25", "0.7"), epsilon=0.7, max_queries=queries).plan
            assert plan.regime == regime
            if regime == "renyi":
                assert plan.reserved <= opening("laplace", epsilon=0.25, max_queries=queries).plan.reserved
        nothing = opening("laplace", left=("0", "0.7"), epsilon=0.7, max_queries=10**4).plan
        assert (nothing.regime, nothing.reserved_pure) == ("pure", Decimal("0.7"))

    @pytest.mark.parametrize(
        "left",
        [
            {"renyi": "0.1", "pure": 1.5},
            {"renyi": "0.1", "pure": 0},
            {"renyi": "0.1", "pure": -0.5},
            {"renyi": "-0.1", "pure": 0.5},
            {"renyi": "NaN", "pure": 0.5},
            {"renyi": "1e-25", "pure": 0.5},
        ],
    )
    def test_a_descriptor_that_makes_no_sense(self, left: dict[str, Any]) -> None:
        """Would catch a header with more than the whole budget left."""
        document = opening("laplace", left=("1", "1"), epsilon=1).document()["dataset"]
        assert document["left"]["pure"] == 1
        PublicDataset.from_descriptor(document)
        with pytest.raises((InvalidDataset, InvalidBudget)):
            PublicDataset.from_descriptor({**document, "left": left})


class TestSession:
    @pytest.mark.parametrize("law", LAWS)
    def test_every_question_is_measured_once(self, law: str) -> None:
        """On the plan's noise and price. Would catch a question that is answered from nothing, one that is paid for
        twice, and a bound that is not the plan's."""
        made = opening(law, max_queries=2)
        session, plan = Session(made), made.plan
        due = session.consider(QUERY)
        assert isinstance(due, Measure)
        assert (due.noise.law, due.noise.scale) == (law, plan.noise_scale_units)
        assert due.price == plan.price
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
            session.exported()
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
