"""All cells of a marginal learnt at once, against the updates one after another that they stand for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.constructions.base import MarginalConstruction, MeasuredQuery, PublicFacts
from app.constructions.frieze_kannan import FriezeKannan
from app.constructions.multiplicative_weights import MultiplicativeWeights
from app.declarations.spec import parse_spec
from app.spaces.factory import space_of
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.weights import product

pytestmark = pytest.mark.unit

SIZES = (2, 5, 3)
SPACE = space_of(
    parse_spec(
        {
            "name": "table",
            "kind": "table",
            "budget": {"epsilon": 1, "delta": 1e-6},
            "attributes": [{"name": f"a{k}", "size": size} for k, size in enumerate(SIZES)],
        }
    )
)
MARGINALS = [
    Marginal.of(SIZES, {}),
    Marginal.of(SIZES, {1: None}),
    Marginal.of(SIZES, {0: None, 2: None}),
    Marginal.of(SIZES, {0: None, 1: Partition.of(np.array([0, 1, 0, 2, 1]))}),
    Marginal.of(SIZES, dict.fromkeys(range(3))),
]
CONSTRUCTIONS: list[MarginalConstruction] = [
    MultiplicativeWeights(SPACE, PublicFacts(600.0), "projection", 1.0),
    MultiplicativeWeights(SPACE, PublicFacts(600.0, padded=True), "projection", 1.0),
    FriezeKannan(SPACE, PublicFacts(), "projection", 1.0),
]


def counted(table: Any, marginal: Marginal) -> Any:
    """What a marginal counts of a table, cell by cell."""
    counts = np.zeros(marginal.shape)
    for place in np.ndindex(table.shape):
        cell = [marginal.partition(k).labels[place[a]] for k, a in enumerate(marginal.attributes)]
        counts[tuple(cell)] += table[place]
    return counts


def one_by_one(construction: MarginalConstruction, state: Any, marginal: Marginal, values: Any, bound: float) -> None:
    gaps = np.abs(values - counted(construction.dense(state), marginal))
    for cell in sorted(np.ndindex(values.shape), key=lambda cell: -gaps[cell]):
        if gaps[cell] > bound:
            members = {
                a: np.flatnonzero(marginal.partition(k).labels == cell[k]) for k, a in enumerate(marginal.attributes)
            }
            query = product(SPACE, members)
            construction.update(state, MeasuredQuery(query, float(values[cell]), bound))


@pytest.mark.parametrize("construction", CONSTRUCTIONS, ids=["weights", "padded", "euclidean"])
@settings(max_examples=30)
@given(data=st.data())
def test_all_cells_at_once_are_the_updates_of_each(construction: MarginalConstruction, data: st.DataObject) -> None:
    """Values far off, over several marginals. Would catch an order that
    is another, a cell moved by an update before it and taken for what it was, a slack cell that is forgotten,
    and cells of an attribute that are taken for its values.
    """
    ours, theirs = construction.start(), construction.start()
    for step in range(data.draw(st.integers(1, 4))):
        marginal = data.draw(st.sampled_from(MARGINALS))
        listed = data.draw(st.lists(st.integers(20, 400), min_size=marginal.cells, max_size=marginal.cells))
        # No two gaps are alike, and none is what an update before has left: else a last digit decides what comes next.
        values = np.array(listed).reshape(marginal.shape) + np.arange(marginal.cells).reshape(marginal.shape) / 97
        bound = data.draw(st.sampled_from([0.5, 7.0, 60.0])) + step / 89
        construction.learn_cells(ours, marginal, counted(construction.dense(ours), marginal), values, bound)
        one_by_one(construction, theirs, marginal, values, bound)
        assert construction.dense(ours) == pytest.approx(construction.dense(theirs), rel=1e-6)
        assert getattr(ours, "slack", 0.0) == pytest.approx(getattr(theirs, "slack", 0.0), rel=1e-6)


@pytest.mark.parametrize("construction", CONSTRUCTIONS, ids=["weights", "padded", "euclidean"])
@pytest.mark.parametrize("listed", [[-80.0, 190, 130, 170, 90], [800.0, 119, 121, 118, 122]])
def test_values_beyond_what_a_cell_can_hold(construction: MarginalConstruction, listed: list[float]) -> None:
    """Below zero, and beyond the mass. Would catch odds of a cell that has none or all."""
    states, marginal, values = [construction.start(), construction.start()], MARGINALS[1], np.array(listed)
    present = counted(construction.dense(states[0]), marginal)
    construction.learn_cells(states[0], marginal, present, values, 4.0)
    one_by_one(construction, states[1], marginal, values, 4.0)
    assert construction.dense(states[0]) == pytest.approx(construction.dense(states[1]), rel=1e-6)


def test_cells_that_have_lost_all_their_mass_are_learnt_as_one_by_one() -> None:
    """A row without mass is said to hold half of the records. Would catch a division by it."""
    construction = CONSTRUCTIONS[0]
    states = [construction.start(), construction.start()]
    for state in states:
        state.tensor.array[0] = 0.0
        state.tensor.array[1] = 600 / 15
        state.tensor.touch()
    marginal, values = Marginal.of(SIZES, {0: None}), np.array([300.0, 299.0])
    construction.learn_cells(states[0], marginal, np.array([0.0, 600.0]), values, 1.0)
    one_by_one(construction, states[1], marginal, values, 1.0)
    assert construction.dense(states[0]) == pytest.approx(construction.dense(states[1]))
    assert math.isclose(float(construction.dense(states[0]).sum()), 600)
