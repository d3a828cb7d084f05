"""Moments that are multiplied by the numbers of another attribute, against plain loops over records."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.measurements.rows import Sensitivity
from app.measurements.strategies.tables import Moment, Part, TableStrategy, Times
from app.spaces.dense import CountsTensor
from app.spaces.partition import Marginal
from app.spaces.records import RecordsTensor
from tests.kit.strategies import universe

pytestmark = pytest.mark.unit

SPEC: dict[str, Any] = {
    "name": "t",
    "kind": "table",
    "budget": {"epsilon": 1.0, "delta": 1e-9},
    "attributes": [
        {"name": "city", "size": 3},
        {"name": "pay", "lower": -4, "upper": 6, "grid": 2, "missing": True},
        {"name": "weight", "lower": 1.5, "upper": 4, "grid": 0.5, "role": "weight"},
    ],
}
SIZES, WEIGHT = (3, 7, 6), Times(2, 3, 6)


@given(st.integers(2, 200), st.integers(0, 2**31 - 1), st.integers(2, 200), st.sampled_from([0, 1, 2]))
def test_the_largest_is_that_of_all_pairs(places: int, least: int, weights: int, power: Any) -> None:
    """Of every number with every weight. Catches a sensitivity that forgets the weight, or takes a typical one."""
    moment = Moment(0, places, power, Times(1, least, weights))
    most = max(abs(weight * (least + k)) for weight in moment.weights.tolist() for k in range(weights))
    assert moment.largest == most
    assert Part(Marginal.of((places, weights), {}), moment, 3).sensitivity == Sensitivity(3 * most, 9 * most**2)


@pytest.mark.parametrize("power", [0, 1, 2])
def test_sums_are_those_of_the_records(power: Any) -> None:
    """Of held records and of counts of all cells. Catches a record without a value that counts, and a weight that is
    counted from the middle of its range."""
    rng = np.random.default_rng(power)
    rows = np.stack([rng.integers(0, n, 500) for n in SIZES])
    strategy = TableStrategy((Part(Marginal.of(SIZES, {0: None}), Moment(1, 6, power, WEIGHT), 2),))
    space = universe(SPEC).space
    strategy.check(space)
    expected = [0, 0, 0]
    for city, pay, weight in rows.T.tolist():
        if pay < 6:
            u = pay - 2
            expected[city] += 2 * (3 + weight) * (1, u, u * u - 4)[power]
    entries = np.zeros(SIZES, np.int64)
    np.add.at(entries, tuple(rows), 1)
    for data in (CountsTensor(entries), RecordsTensor(tuple(rows.astype(np.uint8)), SIZES)):
        told = list(data.tell(strategy.tallies(space)))
        assert strategy.exact_of(space, told).tolist() == expected


def test_documents() -> None:
    """Through JSON text and back; what is no such moment is refused. Catches a weight that is not written."""
    moment = Moment(1, 6, 1, WEIGHT)
    document = json.loads(json.dumps(moment.document()))
    assert Moment.read(document) == moment
    assert Moment(1, 6, 1).document() == {"axis": 1, "places": 6, "power": 1}
    wrong: list[Any] = [
        {**document, "times": None},
        {**document, "times": {**document["times"], "axis": 1}},
        {**document, "times": {**document["times"], "least": -1}},
        {**document, "times": {**document["times"], "least": 1.5}},
        {**document, "times": {**document["times"], "places": 1}},
        {**document, "times": {**document["times"], "more": 1}},
        {**document, "times": {**document["times"], "least": 2**31}},
        {**document, "more": 1},
        {"axis": 1, "places": 6, "power": 0},
    ]
    for one in wrong:
        with pytest.raises((ValueError, TypeError, KeyError)):
            Moment.read(one)


@pytest.mark.parametrize("times", [Times(2, 3, 4), Times(3, 3, 6), Times(0, 3, 6)])
def test_weights_are_of_the_table(times: Times) -> None:
    """Catches weights of an attribute that is not there, or of one with other numbers."""
    with pytest.raises(ValueError, match="of this table"):
        TableStrategy((Part(Marginal.of(SIZES, {}), Moment(1, 6, 1, times)),)).check(universe(SPEC).space)
