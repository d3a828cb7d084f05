"""Matrices: what their declaration fixes, exactness at the bounds, and what a session may know of them.

The properties that hold for every kind of space (compiled weights, exact answers, sensitivity, canonical forms) are
tested on matrices too, in the suites beside this one.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from app.constructions.base import PublicFacts
from app.constructions.dense import matrix_of
from app.constructions.mechanism import FkMechanism
from app.constructions.registry import construct
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.facts import grid_of, measure
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.errors import InvalidDataset
from app.declarations.spec import parse_spec
from app.spaces.errors import InvalidQuery
from app.spaces.factory import space_of
from app.spaces.queries.registry import parse_query

pytestmark = pytest.mark.unit

RATINGS = {
    "name": "ratings",
    "kind": "matrix",
    "rows": 4,
    "columns": 3,
    "lower": 0,
    "upper": 5,
    "grid": 2.0**-10,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}


def space(**changes: Any):
    return space_of(parse_spec(RATINGS | changes))


def dataset(**changes: Any) -> PublicDataset:
    return PublicDataset(parse_spec(RATINGS | changes))


def session(construction: str, **changes: Any):
    words = {"dataset": "ratings", "mechanism": {"construction": construction}, "epsilon": 1.0, "max_queries": 100}
    return parse_request(words | changes)


def test_the_declaration_fixes_unit_bounds_and_capacity() -> None:
    """Would catch a gamma that is the upper bound alone, and a capacity of signed sums."""
    plain, signed = space(), space(lower=-8, upper=2)
    assert (plain.unit, plain.capacity, plain.signed, plain.largest) == (5, 60, False, 5)
    assert (signed.unit, signed.capacity, signed.signed, signed.largest) == (10, 96, True, 8)
    assert space(lower=-0.5, upper=0.25).unit == Fraction(3, 4)
    assert plain.capacity_units == 60 * 1024
    assert plain.names == ("row", "column")


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 2**25, "columns": 2**25},
        {"rows": 2**20, "columns": 2**20, "upper": 2**10},
        {"rows": 2**20, "columns": 2**6, "upper": 2**20, "grid": 2.0**-20},
    ],
)
def test_sums_that_leave_exact_arithmetic_are_refused_at_registration(changes: Any) -> None:
    """Would catch a matrix whose row sums overflow 64 bits, or whose answers have no exact grid, being taken."""
    with pytest.raises(InvalidDataset):
        space(**changes)


@pytest.mark.slow
@given(st.data())
def test_extreme_entries_of_either_sign_sum_exactly(d) -> None:
    """Would catch an overflow or a rounded partial sum where every entry is at a bound, in any layout, on weighted
    and on 0/1 axes: capacity as large as it may be, entries that nearly cancel."""
    bits = d.draw(st.sampled_from([0, 10, 20]))
    top = 2.0 ** d.draw(st.integers(0, 20))
    # 24 cells: four bits and a half.
    most = min(46, 59 - bits) - 5 - math.log2(top)
    assert most >= 0
    s = space(rows=6, columns=4, lower=-top, upper=top, grid=2.0**-bits)
    s = s.with_capacity(24 * int(top) << d.draw(st.integers(0, int(most))))
    whole = int(top) << bits
    entries = d.draw(st.lists(st.sampled_from([-whole, whole, 1 - whole, 0]), min_size=24, max_size=24))
    x = np.array(entries, dtype=np.int64).reshape(6, 4)
    weight = st.one_of(st.sampled_from([-1.0, 1.0, 0.0, 1 / 3, -1 + 2.0**-20]), st.floats(-1, 1))
    u, v = (np.array(d.draw(st.lists(weight, min_size=n, max_size=n))) for n in (6, 4))
    dense = np.array(d.draw(st.lists(weight, min_size=24, max_size=24)))
    for words in (
        {"type": "rank_one", "left": u.tolist(), "right": v.tolist()},
        {"type": "dense", "weights": dense.tolist()},
        {"type": "sparse", "indices": [0, 7, 23], "weights": dense[:3].tolist()},
        {"type": "cut", "left": "all", "right": [0, 2]},
    ):
        query = parse_query(words).compiled(s)
        weights = matrix_of(query, (6, 4))
        truth = sum(
            Fraction(float(w)) * entry for w, entry in zip(weights.reshape(-1), x.reshape(-1).tolist(), strict=True)
        )
        for tensor in (s.tensor(x), s.tensor(csr_array(x))):
            assert query.exact(tensor) == truth * 2**query.grid_bits


@given(st.integers(0, 2**20), st.integers(0, 2**20), st.integers(0, 13))
def test_a_gamma_between_two_answers_is_rounded_up(first: int, second: int, scale: int) -> None:
    """Would catch noise calibrated to gamma where the answer grid is coarser than the data's: rounding may move two
    answers one whole unit further apart than gamma."""
    s = space(rows=1, columns=1, lower=0, upper=1 - 2.0**-20, grid=2.0**-20).with_capacity(2 ** (26 + scale))
    assert s.answer_bits < 20
    query = parse_query({"type": "cut", "left": "all", "right": "all"}).compiled(s)
    values = [
        Fraction(s.to_answer_grid(query.exact(s.tensor(np.array([[min(x, 2**20 - 1)]]))), query), 2**s.answer_bits)
        for x in (first, second)
    ]
    assert s.sensitivity > s.unit
    assert abs(values[0] - values[1]) <= s.sensitivity
    assert (s.sensitivity * 2**s.answer_bits).denominator == 1


def test_that_rounding_is_attained() -> None:
    """The two ends of the interval land ``sensitivity`` apart: the rounded-up gamma is not merely cautious."""
    s = space(rows=1, columns=1, lower=0, upper=1 - 2.0**-20, grid=2.0**-20).with_capacity(2**39)
    query = parse_query({"type": "cut", "left": "all", "right": "all"}).compiled(s)
    low, high = (s.to_answer_grid(query.exact(s.tensor(np.array([[x]]))), query) for x in (0, 2**20 - 1))
    assert Fraction(high - low, 2**s.answer_bits) == s.sensitivity > s.unit


def test_a_plan_pays_for_the_rounded_gamma() -> None:
    """Would catch a noise scale of unit/e0 where sensitivity/e0 is due: the same plan on a coarser answer grid must
    be louder by just that ratio."""
    # 2^20 cells of up to 2^8: 28 bits of capacity leave 18 for answers, the data have 20.
    coarse = dataset(rows=2**10, columns=2**10, lower=0, upper=256 - 2.0**-20, grid=2.0**-20)
    fine = dataset(rows=2, columns=2, lower=0, upper=256 - 2.0**-20, grid=2.0**-20)
    assert coarse.space.answer_bits == 18
    plans = [make_plan(d, session("fk", max_updates=10)) for d in (coarse, fine)]
    assert plans[0].cost_per_update == plans[1].cost_per_update
    ratio = plans[0].scale / plans[1].scale
    assert ratio == coarse.space.sensitivity / fine.space.unit
    assert ratio > 1


class TestBlocks:
    """Block sums are cuts, block means rank-one queries with weights 1/|rows| and 1/|columns|."""

    x = np.arange(12).reshape(4, 3) * 400 + 3

    def test_sum(self) -> None:
        """Would catch rows and columns that are swapped."""
        query = parse_query({"type": "cut", "left": [1, 3], "right": [2]}).compiled(space())
        assert query.exact(space().tensor(self.x)) == int(self.x[[1, 3], 2].sum())
        assert query.rounding == 0

    @pytest.mark.parametrize("shape", [(2, 3), (1, 3), (4, 3), (3, 2)])
    def test_mean(self, shape: tuple[int, int]) -> None:
        """Would catch a rounding bound that is too small, and one that adds up what each axis moves as if the other
        weighed one: thirds are off by 2^-b/3 on every one of the block's cells, each of which weighs little."""
        s, (rows, columns) = space(), shape
        u, v = np.zeros(4), np.zeros(3)
        u[:rows], v[:columns] = 1 / rows, 1 / columns
        query = parse_query({"type": "rank_one", "left": u.tolist(), "right": v.tolist()}).compiled(s)
        exact = Fraction(query.exact(s.tensor(self.x)), 2 ** (query.grid_bits + s.data_bits))
        mean = Fraction(int(self.x[:rows, :columns].sum()), rows * columns * 1024)
        total = Fraction(int(np.abs(self.x[:rows, :columns]).sum()), 1024)
        assert abs(exact - mean) <= Fraction(query.rounding) * total * Fraction(1 + 1e-9)  # a third is no float
        bits = s.axis_bits(2) if query.grid_bits > 20 else 20
        separate = 2.0 ** -(bits + 1) * (1 / rows + 1 / columns)
        assert query.rounding <= separate * (1 + 1e-9)

    def test_nodes_are_numbers(self) -> None:
        """Would catch labels, negative and too large positions being taken."""
        for side in (["a"], [-1], [4], [1.0]):
            with pytest.raises(InvalidQuery):
                parse_query({"type": "cut", "left": side, "right": "all"}).compiled(space())
        with pytest.raises(InvalidQuery, match="does not fit a matrix"):
            parse_query({"type": "elements", "weights": {"a": 1.0}}).compiled(space())


class TestPublicFacts:
    """Shape and bounds are public, the sum of the entries is not."""

    def test_the_mass_is_never_public(self) -> None:
        """Would catch ``records_public`` publishing the sum of the entries, which one entry moves by gamma."""
        assert not parse_spec(RATINGS | {"records_public": True}).mass_public

    def test_mw_refuses_entries_that_may_be_negative(self) -> None:
        """Would catch a simplex over data that is no mass, whose update bound would be false."""
        with pytest.raises(PlanInfeasible, match="negative"):
            make_plan(dataset(lower=-1), session("mw", max_updates=5))
        plan = make_plan(dataset(), session("mw", max_updates=5))
        assert plan.purchase is not None
        assert plan.purchase.fact == "mass"

    def test_the_bought_mass_moves_by_gamma(self) -> None:
        """Would catch a sensitivity of one record."""
        s = space()
        bits, sensitivity = grid_of(s, "mass")
        x = np.full((4, 3), 5 * 1024)
        y = x.copy()
        y[2, 1] = 0
        moved = measure(s, s.tensor(x), "mass") - measure(s, s.tensor(y), "mass")
        assert Fraction(moved, 2**bits) == s.unit
        assert sensitivity == moved

    @given(st.data())
    def test_fk_bounds_the_norm_from_the_declaration(self, d) -> None:
        """Would catch a bound on ||x||_2^2 below what the data can have, with and without a known mass."""
        low, high = sorted(d.draw(st.lists(st.integers(-9, 9), min_size=2, max_size=2, unique=True)))
        s = space(lower=low, upper=high, grid=1.0)
        x = np.array(d.draw(st.lists(st.integers(low, high), min_size=12, max_size=12)))
        assert float(x @ x) <= s.norm2sq_bound(None)
        if low >= 0:
            assert float(x @ x) <= s.norm2sq_bound(float(x.sum())) <= s.norm2sq_bound(None)

    def test_fk_has_a_bound_without_buying_anything(self) -> None:
        """Would catch a guaranteed plan that asks for a mass it does not need."""
        fk = construct(FkMechanism(construction="fk"), space(lower=-8), PublicFacts(), 2.0, 10)
        assert fk.bound(2.0) == 12 * 64 * 12 / 4
        large = dataset(rows=300, columns=400, upper=1, budget={"epsilon": 1000, "delta": 0.01})
        plan = make_plan(large, session("fk", epsilon=1000.0, max_queries=10))
        assert plan.purchase is None
        assert plan.guaranteed
        assert plan.update_bound is not None
        assert plan.update_bound <= plan.max_updates

    def test_an_infeasible_plan_says_what_would_do(self) -> None:
        """Would catch advice to bring more records, which a matrix has not."""
        with pytest.raises(PlanInfeasible) as refusal:
            make_plan(dataset(), session("fk"))
        assert refusal.value.extra["records"] is None
        assert refusal.value.extra["epsilon"] is None or refusal.value.extra["epsilon"] > 1

    def test_the_descriptor_reads_back(self) -> None:
        """Would catch bounds that change on their way through a transcript's header."""
        for changes in ({}, {"lower": -2.5}, {"absent": 0, "grid": 0.25}):
            found = dataset(**changes)
            again = PublicDataset.from_descriptor(found.descriptor())
            assert again.space == found.space
            assert again.budget.epsilon == Decimal(1)
            assert found.descriptor()["gamma"] == float(found.space.unit)
            assert "records" not in found.descriptor()
