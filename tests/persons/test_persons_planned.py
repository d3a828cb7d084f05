"""Persons as the unit: what neighbours that are m records apart make of plans, prices and descriptors."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
import rfc8785

from app.curator.dataset import PublicDataset
from app.curator.facts import grid_of
from app.curator.mechanisms.protocol import Buy, Target
from app.curator.mechanisms.table import TableMechanism
from app.curator.opening import Opening, Pins
from app.curator.planners.table import TablePlan
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.measurements.strategies.tables import TableStrategy
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer, renyi_cost
from app.privacy.exactness import ceil_to
from app.spaces.queries.registry import parse_query

pytestmark = [pytest.mark.unit, pytest.mark.slow]

MOST = 5


def dataset(most: int | None, **more: Any) -> PublicDataset:
    """A table whose unit is a person with so many records, or a record."""
    declared: dict[str, Any] = {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x", "size": 64}, {"name": "y", "size": 8}],
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "records_public": True,
    }
    if most is not None:
        declared["unit"] = {"column": "who", "max_records": most}
    return PublicDataset(parse_spec(declared | more), 1_000_000.0)


def request(construction: str, **more: Any) -> Any:
    asked = {"dataset": "t", "mechanism": {"construction": construction}, "epsilon": 1.0, "max_queries": 100}
    return parse_request(asked | more)


MECHANISMS = [
    ("mw", {"max_updates": 20}),
    ("mw", {"max_updates": 20, "release": "race"}),
    ("mw", {"max_updates": 20, "calibration": "exact"}),
    ("mw", {"max_updates": 20, "calibration": "jt2012"}),
    ("mw", {"max_updates": 20, "calibration": "gru2011"}),
    ("fk", {"max_updates": 20}),
    ("laplace", {}),
    ("gaussian", {}),
    ("evidence", {}),
    ("evidence", {"max_queries": 10}),
    ("histogram", {}),
    ("evidence", {"contract": True}),
    ("evidence", {"contract": True, "release": "race"}),
]


@pytest.mark.parametrize(("construction", "more"), MECHANISMS)
def test_plans_grow_with_the_records_of_a_person(construction: str, more: dict[str, Any]) -> None:
    """Of every mechanism: a person with one record as the unit makes the plan that a record makes, and one with five
    makes five times the noise, the bounds and the errors to expect, for the same budget. Would catch a
    mechanism that takes gamma to be one. Bounds are whole units and scales have some digits: to a hundredth."""
    asked = request(construction, **more)
    record, one, five = (dataset(most) for most in (None, 1, MOST))
    plans = [make_plan(data, asked) for data in (record, one, five)]
    assert plans[0].document() == plans[1].document()
    single, several = plans[1].document(), plans[2].document()
    grown = ["noise_scale", "measured_scale", "error_bound", "threshold", "standard_error"]
    for name in grown:
        if single.get(name) is not None:
            assert several[name] == pytest.approx(MOST * single[name], rel=0.01), name
    for name in ("reserved", "max_updates", "mode", "regime"):
        assert single.get(name) == several.get(name)
    assert several["epsilon_alone"] == pytest.approx(single["epsilon_alone"], rel=1e-9)
    if isinstance(plans[2], TablePlan):
        told = [plan.expectation(data, asked) for plan, data in zip(plans[1:], (one, five), strict=True)]
        errors = [None if each is None else each.errors for each in told]
        assert errors[0] is not None
        assert errors[1] == pytest.approx({name: MOST * error for name, error in errors[0].items()}, rel=0.02)
    else:
        assert any(single.get(name) is not None for name in grown)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_what_is_bought_costs_what_a_person_can_move(kind: str) -> None:
    """The purchases of an opening and the measurement of a question, against the cost of noise whose counts move by
    five. Would catch a price, and so a charge, for one record."""
    data = dataset(MOST)
    # Few questions of a large budget are where Laplace noise is the cheaper one.
    asked = request("evidence", max_queries=300 if kind == "gaussian" else 2)
    if kind == "laplace":
        data = dataset(MOST, budget={"epsilon": 30.0, "delta": 1e-6})
        asked = request("evidence", epsilon=30.0, max_queries=2)
    opening = Opening(data, asked, make_plan(data, asked), evidence=Pins((), ()))
    mechanism = TableMechanism(opening)
    state = mechanism.start()
    found = [(buy.noise.kind, Fraction(buy.noise.scale), buy.price) for buy in mechanism.purchases(state)]
    question = parse_query({"type": "predicate", "where": {"x": {"in": [1, 5]}}}).compiled(data.space)
    due = mechanism.decide(state, question, Target(within=400.0 if kind == "gaussian" else None))
    if isinstance(due, Buy):
        found.append((due.purchase.noise.kind, Fraction(due.purchase.noise.scale), due.price))
    assert kind in {law for law, _, _ in found}
    for law, scale, price in found:
        event = DiscreteLaplaceAnswer(scale, MOST) if law == "laplace" else DiscreteGaussianAnswer(scale, MOST**2)
        assert price.renyi == renyi_cost(event, data.budget.order)
        assert price.pure in (None, ceil_to(MOST / scale))


def test_sums_of_numbers_cost_what_a_person_can_move() -> None:
    """A sum of numbers from 0 to 90 is measured about 45, from which a record is 45 away at most, and five are 225;
    the count that is measured with it moves by its own multiple. Would catch a moment that is priced, or scaled, for
    one record."""
    found = []
    for most in (1, MOST):
        numbers = [{"name": "x", "size": 64}, {"name": "n", "lower": 0, "upper": 90, "grid": 1}]
        data, asked = dataset(most, attributes=numbers), request("evidence", max_queries=300)
        mechanism = TableMechanism(Opening(data, asked, make_plan(data, asked), evidence=Pins((), ())))
        question = parse_query({"type": "sum", "of": "n", "where": {"x": {"in": [1, 5]}}}).compiled(data.space)
        due = mechanism.decide(mechanism.start(), question, Target())
        assert isinstance(due, Buy)
        strategy, noise = due.purchase.strategy, due.purchase.noise
        assert isinstance(strategy, TableStrategy)
        assert noise.kind == "gaussian"
        assert max(sensitivity.absolute for sensitivity in strategy.sensitivity) == 45
        sensitivity = sum(most**2 * one.squared for one in strategy.sensitivity)
        assert due.price.renyi == renyi_cost(
            DiscreteGaussianAnswer(Fraction(noise.scale), sensitivity), data.budget.order
        )
        found.append(float(noise.scale))
    assert found[1] == pytest.approx(MOST * found[0], rel=1e-3)


def test_a_bought_number_of_records_moves_by_a_persons() -> None:
    """Would catch a number of records that is bought with noise for one."""
    assert grid_of(dataset(MOST).space, "mass") == (0, MOST)


def test_the_descriptor_says_whose_records_are_hidden() -> None:
    """And a header reads it back; without a unit nothing of it is written. Would catch a descriptor that a replay reads
    as one of single records."""
    document = dataset(MOST).descriptor()
    assert document["privacy_unit"] == 'one person ("who") with all of up to 5 records added or removed'
    assert (document["gamma"], document["domain"]["unit"]) == (5.0, {"column": "who", "max_records": 5})
    read = PublicDataset.from_descriptor(document)
    assert read.space.unit == 5
    assert rfc8785.dumps(read.descriptor()) == rfc8785.dumps(document)
    plain = dataset(None).descriptor()
    assert (plain["privacy_unit"], plain["gamma"]) == ("one record added or removed", 1.0)
    assert "unit" not in plain["domain"]


def test_shares_are_those_of_any_data_set() -> None:
    """The budget does not depend on who is hidden. Would catch an amount that is divided by m as well as noise
    multiplied."""
    assert dataset(MOST).share(Decimal("0.5")) == dataset(None).share(Decimal("0.5"))
