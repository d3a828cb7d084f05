"""Openings: one written form, read by one reader, and a mechanism that looks at nothing else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
import pytest

from app.audit import writing
from app.constructions.multiplicative_weights import WeightsState
from app.curator import opening as module
from app.curator.dataset import Bought, PublicDataset
from app.curator.errors import UpdatesExhausted
from app.curator.mechanisms.oqr import Learnt, OnlineQueryResponse
from app.curator.mechanisms.protocol import GREATEST_ANSWER, NO_TARGET, Answer, Test
from app.curator.opening import Header, Opening
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.privacy.ledger import NOTHING, Amounts
from app.services import openings
from app.services.openings import opening_of
from app.spaces.tensor import DenseTensor
from tests.kit.strategies import BUDGET, universe

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x0", "size": 4}, {"name": "x1", "lower": 0, "upper": 1, "edges": [0, 0.25, 1]}],
        "budget": BUDGET,
    }
)


def planned(records_known: int | None = 10**6, bought: Bought | None = None, **more: Any) -> Opening:
    public = {"records_public": records_known is not None}
    dataset = PublicDataset(parse_spec({**TABLE.declared, **public}), records_known)
    asked = {"dataset": "t", "mechanism": {"construction": "mw"}, "epsilon": 0.5, "max_queries": 1000}
    request = parse_request(asked | more)
    return Opening(dataset, request, make_plan(dataset, request), bought)


def header(opening: Opening) -> bytes:
    return writing.header(session="a1", opening=opening.document(), opened_at="2026-01-01T00:00:00Z")


@pytest.mark.parametrize("bought", [False, True])
def test_what_is_written_is_read_again(bought: bool) -> None:
    """Everything that answers follow from, through the canonical bytes. Would catch a field that is written and not
    read, and a purchase that is public before the session, or not even after it."""
    made = planned(None, Bought(3000.0, 40.0), max_updates=5) if bought else planned()
    read = Header.read(header(made))
    assert (read.session, read.opened_at) == ("a1", "2026-01-01T00:00:00Z")
    again = read.opening()
    assert (again.dataset, again.request, again.plan, again.bought) == (
        made.dataset,
        made.request,
        made.plan,
        made.bought,
    )
    assert header(again) == header(made)
    assert again.dataset.facts.mass == (None if bought else 10**6)
    assert again.prior.facts.mass == (3000.0 if bought else 10**6)
    assert read.plan.reserved == made.plan.reserved
    assert read.plan.fixed_price
    assert (read.plan.max_updates, read.plan.max_queries) == (made.plan.max_updates, made.plan.max_queries)
    assert read.bound_status() == made.plan.bound_status


def test_a_session_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For its lane, for its memory and for its state: would catch a plan that is made for each of them."""
    made, plans = header(planned(max_updates=7)), []
    right = module.find_plan
    monkeypatch.setattr(module, "find_plan", lambda *about: (plans.append(1), right(*about))[1])
    openings._kept.clear()
    first = opening_of(bytes(bytearray(made)))
    assert opening_of(bytes(bytearray(made))) is first
    assert plans == [1]


def test_a_header_that_lacks_a_field_is_none() -> None:
    document = orjson.loads(header(planned()))
    del document["plan"]
    with pytest.raises(KeyError):
        Header.of(document)


class TestOnlineQueryResponse:
    def test_terms_and_bounds_are_the_plans(self) -> None:
        """Would catch a test on other terms than those that were promised and are paid for."""
        opening = planned()
        mechanism, plan = OnlineQueryResponse(opening), opening.plan
        state = mechanism.start()
        query = TABLE.compiled({"type": "predicate", "where": {"x0": {"equals": 1}}})
        due = mechanism.decide(state, query, NO_TARGET)
        assert isinstance(due, Test)
        assert (due.noise.law, due.noise.scale) == ("laplace", plan.noise_scale_units)
        assert due.price == Amounts(plan.cost_per_update, None)
        again = mechanism.decide(state, query, NO_TARGET)
        assert isinstance(again, Test)
        assert again.noise is due.noise
        assert (due.threshold, due.race) == (plan.threshold_units, plan.race)
        assert due.error_bound == plan.error_bound
        assert due.hypothesis.tolist() == [250_000 << plan.answer_bits]

    def test_an_answer_is_bound_untested_once_all_is_learnt(self) -> None:
        """Would catch a promise of a hypothesis that was never held against the data, and one of forfeits."""
        opening = planned()
        mechanism = OnlineQueryResponse(opening)
        state = mechanism.start()
        query = TABLE.compiled({"type": "predicate", "where": {"x0": {"equals": 1}}})
        most = opening.plan.update_bound
        assert most is not None
        assert mechanism.own(state, query).tolist() == [250_000 << opening.plan.answer_bits]
        state.updates = most
        state.forfeits = 1
        with pytest.raises(UpdatesExhausted):
            mechanism.decide(state, query, NO_TARGET)
        state.forfeits = 0
        due = mechanism.decide(state, query, NO_TARGET)
        assert isinstance(due, Answer)
        assert due.error_bound == mechanism.error_bound(query)

    def test_learning_and_forfeiting(self) -> None:
        """Would catch a forfeit that teaches, and a value that is learnt in other units."""
        opening = planned(max_updates=5)
        mechanism = OnlineQueryResponse(opening)
        query = TABLE.compiled({"type": "predicate", "where": {"x0": {"equals": 1}}})
        state, bits = mechanism.start(), opening.plan.answer_bits
        state.forfeit(NOTHING)
        assert (state.updates, state.forfeits) == (1, 1)
        assert mechanism.own(state, query).tolist() == [250_000 << bits]
        mechanism.learn(state, query, Answer(np.array([600_000 << bits]), "measurement", None))
        (own,) = mechanism.own(state, query).tolist()
        assert math.ldexp(own, -bits) == pytest.approx(600_000 - opening.plan.noise_bound, rel=1e-6)

    def test_values_are_held_within_what_can_be_played(self) -> None:
        """Would catch a difference that leaves 64 bits."""
        mechanism = OnlineQueryResponse(planned())
        query = TABLE.compiled({"type": "predicate", "where": {"x0": {"equals": 1}}})
        for value in (1e300, -1e300):
            state = Learnt(WeightsState(DenseTensor(np.full((4, 2), value)), 0.0))
            (units,) = mechanism.own(state, query).tolist()
            assert abs(units) == GREATEST_ANSWER
