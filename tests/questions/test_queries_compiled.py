"""Compiled queries against exact fractions from the words, on small spaces of every kind."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.constructions import dense
from app.spaces import tensor as tensor_module
from app.spaces.queries import linear as linear_module
from app.spaces.queries.linear import CompiledPair, CompiledProduct
from app.spaces.tensor import BLOCK, DenseTensor, LowRankTensor
from tests.kit.strategies import (
    BUDGET,
    Universe,
    Words,
    answer,
    asked,
    data,
    graphs,
    neighbours,
    queries,
    universe,
    universes,
)

pytestmark = pytest.mark.unit

Cells = dict[tuple[int, ...], Fraction]


def _numbers(words: Any) -> set[float]:
    """All weights that stand in a query's words."""
    if isinstance(words, dict):
        return set().union(*(_numbers(v) for k, v in words.items() if k != "indices"))
    if isinstance(words, list):
        return set().union(*(_numbers(v) for v in words))
    return {words} if isinstance(words, float | int) else set()


# Forms that small random spaces hardly ever take: lists of few cells among many, and weights that all round away.
MANY = universe({"name": "g", "kind": "graph", "nodes": 9, "budget": BUDGET})
WIDE = universe({"name": "b", "kind": "bipartite", "left": 6, "right": 7, "budget": BUDGET})
DEEP = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": f"x{i}", "size": n} for i, n in enumerate((4, 3, 4))],
        "budget": BUDGET,
    }
)
TINY = 4e-7
RARE: list[tuple[Universe, Words]] = [
    (MANY, {"type": "sparse", "indices": [[1, 0], [2, 7], [8, 3]], "weights": [0.5, -1.0, 0.25]}),
    (MANY, {"type": "sparse", "indices": [[1, 0], [2, 7]], "weights": [1.0, 1.0]}),
    (MANY, {"type": "cut", "left": [1, 4, 5, 8], "right": [0, 4, 5, 6]}),
    (MANY, {"type": "rank_one", "left": [0.1 * i for i in range(9)], "right": [1 - 0.1 * i for i in range(9)]}),
    (WIDE, {"type": "sparse", "indices": [[0, 1], [5, 6], [3, 3]], "weights": [0.5, -1.0, 0.25]}),
    (WIDE, {"type": "cut", "left": [0, 2, 5], "right": [1, 2, 6]}),
    (DEEP, {"type": "sparse", "indices": [[0, 1, 2], [3, 2, 1], [3, 2, 3]], "weights": [0.5, -1.0, 0.25]}),
    (DEEP, {"type": "product", "weights": {"x0": [1, 0, 1, 1], "x1": [0.5, -0.25, 1.0], "x2": [1, 0, 1, 0]}}),
    (DEEP, {"type": "product", "weights": {"x0": [TINY] * 4}}),
    (DEEP, {"type": "product", "weights": {"x0": [TINY] * 4, "x1": [1 - TINY] * 3}}),
    (DEEP, {"type": "sparse", "indices": [3, 4], "weights": [TINY, -TINY]}),
    (WIDE, {"type": "dense", "weights": [TINY] * 42}),
    (MANY, {"type": "rank_one", "left": [TINY] * 9, "right": [1.0] * 9}),
    (MANY, {"type": "rank_one", "left": [TINY] * 9, "right": [0.5] * 9}),
    (MANY, {"type": "rank_one", "left": [1 - TINY] * 9, "right": [TINY, *[1.0] * 8]}),
]


@st.composite
def questions(draw: st.DrawFn, spaces: st.SearchStrategy[Universe] | None = None):
    if spaces is None and draw(st.integers(0, 3)) == 3:
        return draw(st.sampled_from(RARE))
    u = draw(universes() if spaces is None else spaces)
    return u, draw(queries(u))


def real_array(u: Universe, weights: Cells) -> np.ndarray:
    """Weights as a float array of the space's shape; every one of them is exact in float64 here."""
    array = np.zeros(u.space.shape)
    for cell, weight in weights.items():
        array[cell] = float(weight)
        if u.undirected:
            array[cell[::-1]] = float(weight)
    return array


def hypotheses(u: Universe):
    """Float hypotheses of the space: of an undirected graph symmetric with zero diagonal."""

    def shaped(seed: int) -> np.ndarray:
        array = np.random.default_rng(seed).uniform(-4, 4, u.space.shape).round(3)
        if u.undirected:
            array = np.triu(array, 1)
            array = array + array.T
        return array

    return st.integers(0, 10**6).map(shaped)


@pytest.mark.parametrize(("u", "words"), [r for r in RARE if r[1]["type"] != "cut"])
def test_rare_forms_state_their_rounding(u: Universe, words: Words) -> None:
    """Would catch weights that are told to be exact because all of them rounded away."""
    query = u.compiled(words)
    compiled, wanted = u.weights(query), asked(u, words)
    worst = max(abs(compiled[c] - wanted[c]) for c in u.cells)
    assert worst <= Fraction(query.rounding) * (1 + Fraction(1, 10**12))
    assert (query.rounding > 0) == (worst > 0)


@pytest.mark.parametrize("block", [BLOCK, 5, 1])
@pytest.mark.parametrize(("u", "words"), RARE)
def test_rare_forms_keep_every_law(u: Universe, words: Words, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the properties below ask of drawn queries, of each of these for certain: would catch a mirrored cell that
    is forgotten, a block that is paired up, a list of cells that is read in another order. In parts of few cells too,
    as large spaces have many: would catch cells that are left out or taken twice where one part ends."""
    monkeypatch.setattr(linear_module, "BLOCK", block)
    monkeypatch.setattr(tensor_module, "BLOCK", block)
    query, rng = u.compiled(words), np.random.default_rng(3)
    weights = real_array(u, u.weights(query))
    assert query.range == (min(weights[c] for c in u.cells), max(weights[c] for c in u.cells))
    assert query.norm2sq == pytest.approx(sum(weights[c] ** 2 for c in u.cells), rel=1e-12)
    h = rng.uniform(0.1, 4, u.space.shape)
    if u.undirected:
        h = np.triu(h, 1) + np.triu(h, 1).T
    truth = sum(weights[c] * h[c] for c in u.cells)
    assert query.inner(DenseTensor(h)) == pytest.approx(truth, rel=1e-12, abs=1e-12)
    levels, masses = dense.levels(query, DenseTensor(h))
    assert levels @ masses == pytest.approx(truth, rel=1e-12, abs=1e-12)
    array = h.copy()
    dense.add_to(query, array, 0.375)
    np.testing.assert_allclose(array, h + 0.375 * weights, atol=1e-12)
    for rate, top in ((2.0, 2.5), (-1.5, 0.25), (90.0, 95.0), (-2.0, -3.0), (900.0, 901.0)):
        array = h.copy()
        dense.scale_exp(query, array, rate, top)
        np.testing.assert_allclose(array, h * np.exp(np.minimum(rate * weights - top, 0)), rtol=1e-12, atol=1e-300)
    x = {cell: int(v) for cell, v in zip(u.cells, rng.integers(0, 50, len(u.cells)), strict=True)}
    for tensor in u.tensors(u.array(x)):
        assert query.exact(tensor) == answer(u.weights(query), x) * (1 << query.grid_bits)


@given(questions())
def test_compiled_weights_are_the_asked_ones_but_for_the_stated_rounding(question) -> None:
    """Would catch a weight on the wrong cell, an undirected pair counted twice, a stated rounding that is too small
    (also for queries whose every weight rounds to nothing), 0/1 weights that are not exact, and weights that
    rounding pushes out of [-1, 1], which would break the sensitivity."""
    u, words = question
    query = u.compiled(words)
    compiled, wanted = u.weights(query), asked(u, words)
    worst = max(abs(compiled[c] - wanted[c]) for c in u.cells)
    assert worst <= Fraction(query.rounding) * (1 + Fraction(1, 10**12))
    assert all(abs(w) <= 1 for w in compiled.values())
    if u.undirected and words["type"] in ("cut", "rank_one"):
        assert all(w >= 0 for w in compiled.values())
    if words["type"] in ("predicate", "cut") or _numbers(words) <= {0, 1}:
        assert compiled == wanted
        assert query.rounding == 0


@given(st.data())
def test_exact_answers_are_python_integers_own(d) -> None:
    """Would catch an overflow, a lost or doubled cell, a float where an integer is meant, in any layout of the data,
    and a rounding bound that does not hold for the answer."""
    u, words = d.draw(questions())
    x = d.draw(data(u))
    query = u.compiled(words)
    weights = u.weights(query)
    truth = answer(weights, x) * (1 << query.grid_bits)
    assert truth.denominator == 1
    for tensor in u.tensors(u.array(x)):
        exact = query.exact(tensor)
        assert isinstance(exact, int)
        assert exact == truth
    slack = Fraction(query.rounding) * (1 + Fraction(1, 10**12)) * sum(map(abs, x.values()))
    assert abs(answer(asked(u, words), x) - answer(weights, x)) <= slack


@given(st.data())
def test_integers_are_the_weights(d) -> None:
    """Would catch a weight on the wrong cell of the array, a mirrored one left out, and a diagonal that weighs."""
    u, words = d.draw(questions())
    query = u.compiled(words)
    array = dense.integers(query)
    assert array.shape == u.space.shape
    for cell, weight in u.weights(query).items():
        assert int(array[cell]) == weight * 2**query.grid_bits
        if u.undirected:
            assert array[cell[::-1]] == array[cell]
    assert not u.undirected or not np.diagonal(array).any()


@given(st.data())
def test_range_and_norm_are_those_of_the_weights(d) -> None:
    """Would catch a range over the touched cells alone, a diagonal or mirrored cell counted in the norm, and a zero
    query that is not told as such (its answer would be paid for)."""
    u, words = d.draw(questions())
    query = u.compiled(words)
    weights = u.weights(query).values()
    assert query.range == (float(min(weights)), float(max(weights)))
    assert query.norm2sq == pytest.approx(float(sum(w * w for w in weights)), rel=1e-12, abs=1e-12)
    assert query.is_zero == (not any(weights))


@given(st.data())
def test_inner_products_with_hypotheses(d) -> None:
    """Would catch a stored diagonal or mirrored cell that shows in a hypothesis' answer, on dense and low-rank ones."""
    u, words = d.draw(questions())
    query, h = u.compiled(words), d.draw(hypotheses(u))
    weights = u.weights(query)
    truth = float(sum(weights[c] * Fraction(float(h[c])) for c in u.cells))
    assert query.inner(DenseTensor(h)) == pytest.approx(truth, rel=1e-11, abs=1e-11)


@pytest.mark.slow
@given(st.data())
def test_a_low_rank_hypothesis_answers_as_the_matrix_it_stands_for(d) -> None:
    """Would catch an undirected diagonal that is not taken out, terms lost when the store grows, and gathered
    entries that differ from the matrix."""
    u, words = d.draw(questions(universes().filter(lambda v: v.declared["kind"] != "table")))
    query = u.compiled(words)
    rows, columns = u.space.shape
    low = LowRankTensor((rows, columns), symmetric=u.undirected)
    matrix = np.zeros((rows, columns))
    small = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 0.75])
    for _ in range(d.draw(st.sampled_from([0, 1, 3, 9, 20]))):
        left = np.array(d.draw(st.lists(small, min_size=rows, max_size=rows)))
        right = np.array(d.draw(st.lists(small, min_size=columns, max_size=columns)))
        for a, b in ((left, right), (right, left)) if u.undirected else ((left, right),):
            low.add(0.25, a, b)
            matrix += 0.25 * np.outer(a, b)
    if u.undirected:
        np.fill_diagonal(matrix, 0.0)
    weights = u.weights(query)
    truth = sum(float(weights[c]) * matrix[c] for c in u.cells)
    assert query.inner(low) == pytest.approx(truth, rel=1e-11, abs=1e-11)
    np.testing.assert_allclose(low.dense(), matrix, atol=1e-12)


@given(st.data())
def test_adding_a_query_into_arrays_and_terms(d) -> None:
    """Would catch a block that pairs index arrays up instead of crossing them, a missing mirrored cell, a diagonal
    that is written to, and rank-one terms that are not the query."""
    u, words = d.draw(questions())
    query, h = u.compiled(words), d.draw(hypotheses(u))
    wanted = h + 0.375 * real_array(u, u.weights(query))
    array = h.copy()
    dense.add_to(query, array, 0.375)
    np.testing.assert_allclose(array, wanted, atol=1e-12)
    if isinstance(query, CompiledProduct | CompiledPair) and len(u.space.shape) == 2:
        terms = LowRankTensor(u.space.shape, symmetric=u.undirected)
        dense.add_terms(query, terms, 0.375)
        np.testing.assert_allclose(terms.dense(), wanted - h, atol=1e-12)


@given(st.data())
def test_levels_are_the_masses_at_each_weight(d) -> None:
    """Would catch masses at wrong weights: the normaliser of multiplicative weights would be off."""
    u, words = d.draw(questions())
    query, h = u.compiled(words), np.abs(d.draw(hypotheses(u)))
    weights = u.weights(query)
    levels, masses = dense.levels(query, DenseTensor(h))
    assert levels.shape == masses.shape
    touched = sum(float(h[c]) for c in u.cells if weights[c])
    for power in (1, 2, 3):
        truth = sum(float(weights[c]) ** power * float(h[c]) for c in u.cells)
        assert float((levels**power) @ masses) == pytest.approx(truth, rel=1e-10, abs=1e-10)
    assert float(masses[levels != 0].sum()) == pytest.approx(touched, rel=1e-10, abs=1e-10)


@given(
    st.data(),
    st.one_of(st.floats(-3, 3), st.sampled_from([-1e6, -800.0, 90.0, 800.0, 1e6])),
    st.one_of(st.floats(-3, 3), st.sampled_from([-1e6, 60.0, 100.0, 800.0, 1e6])),
)
def test_exponential_scaling(d, rate: float, top: float) -> None:
    """Would catch a mirrored cell that is scaled once, untouched cells left out of the shift, exponents that overflow,
    and a cell whose small mass is lost on the way though its own factor is one."""
    u, words = d.draw(questions())
    query, h = u.compiled(words), np.abs(d.draw(hypotheses(u)))
    exponents = np.minimum(rate * real_array(u, u.weights(query)) - top, 0.0)
    array = h.copy()
    dense.scale_exp(query, array, rate, top)
    np.testing.assert_allclose(array, h * np.exp(exponents), rtol=1e-12, atol=1e-300)


@given(st.data())
def test_one_privacy_unit_moves_an_answer_by_at_most_gamma_grid_units(d) -> None:
    """Would catch a sensitivity above gamma, from rounding weights, from rounding to the answer grid, from an edge
    that counts twice, and an answer grid that gamma is no whole number of."""
    u = d.draw(universes())
    words = d.draw(queries(u))
    query, (x, y) = u.compiled(words), d.draw(neighbours(u))
    space = u.space
    first, second = (space.to_answer_grid(query.exact(space.tensor(u.array(v))), query) for v in (x, y))
    assert space.sensitivity == space.unit
    assert (space.unit * 2**space.answer_bits).denominator == 1
    assert abs(first - second) <= space.unit * 2**space.answer_bits


@pytest.mark.slow
@given(st.data())
def test_the_answer_grid_rounds_to_the_nearest(d) -> None:
    """Would catch a shift in the wrong direction or by the data's own bits, and rounding by more than half a unit."""
    u, words = d.draw(questions())
    query, x = u.compiled(words), d.draw(data(u))
    space = u.space
    exact = query.exact(space.tensor(u.array(x)))
    truth = Fraction(exact, 2 ** (query.grid_bits + space.data_bits))
    grid = Fraction(space.to_answer_grid(exact, query), 2**space.answer_bits)
    assert abs(grid - truth) <= Fraction(1, 2 ** (space.answer_bits + 1))
    if query.grid_bits + space.data_bits <= space.answer_bits:
        assert grid == truth


@given(st.data())
def test_undirected_rank_one_weights_stay_in_the_unit_interval(d) -> None:
    """Near u = v = 1, where the two products and w = u*v nearly cancel. Would catch a w rounded further than the sides
    allow, which takes weights out of [0, 1], and a stated rounding that leaves one of the four roundings out."""
    u = d.draw(graphs(directed=False))
    n = u.space.shape[0]
    bits = u.space.axis_bits(2)
    near = st.integers(0, 3).map(lambda k: 1 - (k + 0.49) * 2.0**-bits)
    near = st.one_of(near, st.floats(0, 1), st.integers(0, 5).map(lambda k: k * 2.0**-bits * 0.51))
    sides = [d.draw(st.lists(near, min_size=n, max_size=n)) for _ in range(2)]
    words = {"type": "rank_one", "left": sides[0], "right": sides[1]}
    query = u.compiled(words)
    weights, wanted = u.weights(query), asked(u, words)
    assert all(0 <= w <= 1 for w in weights.values())
    worst = max(abs(weights[c] - wanted[c]) for c in u.cells)
    assert worst <= Fraction(query.rounding) * (1 + Fraction(1, 10**12))
    assert query.rounding <= 6 * 2.0**-bits


@settings(max_examples=60)
@given(graphs(directed=False), st.data())
def test_a_cut_of_an_undirected_graph_counts_each_edge_once(u: Universe, d) -> None:
    """The published formula: half of s t' + t s' - (s*t)(s*t)' on the symmetric matrix; weight 1 and never 2."""
    n = u.space.shape[0]
    s, t = (np.array(d.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))) for _ in range(2))
    names = u.declared.get("labels", list(range(n)))
    x = u.array(d.draw(data(u)))
    query = u.compiled(
        {"type": "cut", "left": [names[i] for i in np.flatnonzero(s)], "right": [names[i] for i in np.flatnonzero(t)]}
    )
    both = s * t
    formula = np.outer(s, t) + np.outer(t, s) - np.outer(both, both)
    assert set(np.unique(formula)) <= {0, 1}
    assert 2 * query.exact(u.space.tensor(x)) == int((formula * x).sum())


@pytest.mark.slow
@given(st.data())
def test_what_was_asked_before_never_shows_in_an_exact_answer(d) -> None:
    """The store of marginals is a cache: would catch one that is contracted over the wrong axes, is narrowed from a
    marginal that had summed a needed axis away, or overflows a narrow type."""
    u = d.draw(universes())
    asked_ = d.draw(st.lists(queries(u), min_size=2, max_size=6))
    x = u.array(d.draw(data(u)))
    compiled = [u.compiled(w) for w in asked_]
    fresh = [q.exact(u.space.tensor(x)) for q in compiled]
    for shared in u.tensors(x):
        order = d.draw(st.permutations(range(len(compiled))))
        for i in [*order, *order]:
            assert compiled[i].exact(shared) == fresh[i]
