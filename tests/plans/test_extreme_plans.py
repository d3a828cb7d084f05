"""Plans at the ends of what may be declared: every one is a plan or a refusal with words."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from app.curator.calibration import noise_scales
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Plan
from app.curator.planning import make_plan
from app.curator.request import SessionRequest, parse_request
from app.declarations.spec import parse_spec
from app.privacy.poisson import cut_delta, distance_delta, session_part
from app.privacy.race import SAMPLER_DISTANCE

pytestmark = pytest.mark.unit

RECORDS = 1000


def dataset(epsilon: float, delta: float, **state: Any) -> PublicDataset:
    words = {
        "name": "d",
        "kind": "table",
        "attributes": [{"name": "a", "size": 10}],
        "records_public": True,
        "budget": {"epsilon": epsilon, "delta": delta},
    }
    return PublicDataset(parse_spec(words), RECORDS, **state)


def request(**changes: Any) -> SessionRequest:
    return parse_request(
        {"dataset": "d", "mechanism": {"construction": "mw"}, "max_queries": 10, "max_updates": 5, **changes}
    )


def test_a_race_at_any_epsilon_is_planned_or_refused() -> None:
    """Catches e^epsilon in a float, which overflows above 709: an error nobody has words for. From some epsilon on
    e^epsilon times the sampler's 2^-112 passes what was set aside.
    """
    assert make_plan(dataset(20, 1e-6), request(epsilon=20, release="race")).race is not None
    for epsilon in (100, 700, 710, 1000):
        with pytest.raises(PlanInfeasible, match="set aside"):
            make_plan(dataset(epsilon, 1e-6), request(epsilon=epsilon, release="race"))


@pytest.mark.parametrize(("epsilon", "delta", "changes"), [(1e-6, 1e-12, {}), (1.0, 1e-6, {"max_updates": 2000})])
def test_a_comparison_that_a_calibration_has_no_answer_to_is_empty(
    epsilon: float, delta: float, changes: dict[str, Any]
) -> None:
    """Catches a plan that fails because another calibration, shown for comparison, has no scale for it."""
    public = dataset(epsilon, delta)
    asked = request(epsilon=epsilon / 10**6, **changes)
    plan = make_plan(public, asked)
    scales = noise_scales(public, asked, plan)
    assert set(scales) == {"rdp", "race", "exact", "jt2012", "gru2011"}
    assert scales["rdp"] == float(plan.scale)
    assert all(scale is None or scale > 0 for scale in scales.values())


def race(queries: int, updates: int, ordinal: int) -> Plan:
    public = dataset(1.0, 1e-6, race_sessions=ordinal - 1)
    return make_plan(public, request(epsilon=0.01, release="race", max_queries=queries, max_updates=updates))


@pytest.mark.parametrize("ordinal", [1, 2, 1000])
@pytest.mark.parametrize(("queries", "updates"), [(1, 1), (10, 5), (10, 10**6), (10**9, 10)])
def test_a_session_pays_for_every_draw_it_may_make(queries: int, updates: int, ordinal: int) -> None:
    """A forfeited round draws without being a query: catches a cut paid for the queries alone, one off by one, and a
    sampler whose own distance nobody pays for.
    """
    plan = race(queries, updates, ordinal)
    assert plan.race is not None
    part = session_part(Fraction(1, 10**6) / 1000, ordinal)

    def cost(cut: int) -> Fraction:
        tail, own = cut_delta(plan.race.mean, cut, queries + updates, 1), distance_delta(SAMPLER_DISTANCE, 1, 1)
        return Fraction(tail) + (queries + updates) * Fraction(own)

    assert cost(plan.race.cut) <= part < cost(plan.race.cut - 1)


def test_later_sessions_have_less_to_pay_with() -> None:
    """Catches an ordinal that does not enter the plan."""
    cuts = [race(1000, 10, ordinal).race for ordinal in (1, 10, 100, 1000)]
    assert [c.cut for c in cuts if c is not None] == sorted({c.cut for c in cuts if c is not None})
