"""Inner products with kept vectors, against dense arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.estimation.graphs import columns
from app.estimation.graphs.columns import Columns
from tests.graphs.graphs import nodes, side, vector

pytestmark = pytest.mark.unit


def check(rng: np.random.Generator, length: int, count: int, real: float) -> None:
    kept, held = Columns(length), []
    for k in range(count):
        one = side(rng, length, real=rng.random() < real)
        assert kept.has_room(one)
        kept.add(one)
        held.append(vector(one))
        assert kept.count == k + 1
    weightings = rng.normal(size=(int(rng.integers(1, 4)), length))
    for asked in (side(rng, length), side(rng, length, real=True)):
        found = kept.products(asked, weightings)
        assert found.shape == (len(weightings), count)
        if count:
            expected = (weightings * vector(asked)) @ np.stack(held, axis=1)
            assert found == pytest.approx(expected, abs=1e-9)


@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(0, 12), st.sampled_from([0.0, 0.3, 1.0]))
def test_products_are_those_of_dense_vectors(seed: int, length: int, count: int, real: float) -> None:
    """Sets and real vectors in any order, under several weightings. Would catch results in the order of their kinds,
    and a bit of one set read as that of another.
    """
    check(np.random.default_rng(seed), length, count, real)


@pytest.mark.parametrize("count", [63, 64, 65, 128, 129, 300])
def test_room_grows(count: int) -> None:
    """Would catch bits that are lost where more columns of them are made."""
    check(np.random.default_rng(count), 30, count, 0.1)


@pytest.mark.parametrize("block", [1, 24, 100, 4096])
def test_rows_are_taken_some_at_a_time(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch rows between two blocks that are left out or counted twice."""
    monkeypatch.setattr(columns, "_BLOCK", block)
    check(np.random.default_rng(block), 57, 20, 0.2)


def test_there_is_room_for_some_real_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of ten nodes are 240 bytes. Would catch sets that are refused with them, and one vector too many."""
    monkeypatch.setattr(columns, "MOST_REAL", 240)
    kept, rng = Columns(10), np.random.default_rng(1)
    for _ in range(3):
        assert kept.has_room(side(rng, 10, real=True))
        kept.add(side(rng, 10, real=True))
    assert not kept.has_room(side(rng, 10, real=True))
    assert kept.has_room(side(rng, 10))
    assert kept.nbytes == 240


def test_sets_take_a_bit_a_node() -> None:
    """Of 64 sets over a thousand nodes there are 8,000 bytes. Would catch one that is written out."""
    kept = Columns(1000)
    for k in range(64):
        kept.add(nodes(1000, np.arange(k, 1000)))
    assert kept.nbytes == 8000
