"""Cuts and rank-one queries: what they weigh, against weights written out over all cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.declarations.spec import parse_spec
from app.measurements.strategies.edges import CellKind, Edges
from app.spaces.cuts import FEW
from app.spaces.dense import CountsTensor
from app.spaces.factory import space_of
from app.spaces.queries.linear import CompiledProduct
from app.spaces.queries.registry import from_canonical, parse_query
from app.spaces.space import Space
from app.spaces.tensor import Axis
from tests.graphs.graphs import KINDS, cut, data, eighths, question, shapes, vector, weights

pytestmark = pytest.mark.unit

BUDGET = {"epsilon": 1, "delta": 1e-9}
SPACES: dict[str, tuple[CellKind, dict[str, Any]]] = {
    "directed": ("arcs", {"kind": "graph", "nodes": 7, "directed": True}),
    "undirected": ("pairs", {"kind": "graph", "nodes": 7, "directed": False}),
    "bipartite": ("all", {"kind": "bipartite", "left": 7, "right": 5}),
    "matrix": ("all", {"kind": "matrix", "rows": 7, "columns": 5, "lower": -1, "upper": 2}),
}


def space(name: str) -> tuple[Space, CellKind]:
    kind, declared = SPACES[name]
    return space_of(parse_spec(declared | {"name": "g", "budget": BUDGET})), kind


def written(kind: CellKind, s: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The weights of two sides as they were asked for, by the definition of the query."""
    return weights(cut(kind, *(eighths(np.rint(8 * each).astype(np.int64)) for each in (s, t))))


@given(st.sampled_from(KINDS), st.booleans(), st.integers(0, 10**6), st.data())
def test_what_a_question_weighs(kind: CellKind, real: bool, seed: int, drawn: st.DataObject) -> None:
    """Sums, squares, bounds, sums by node and products are those of the weights of all cells. Would catch loops that
    count, an edge between both sides that counts twice, bounds with the signs of one side alone, and a largest weight
    that is passed.
    """
    shape = drawn.draw(shapes(kind))
    rng = np.random.default_rng(seed)
    asked = question(rng, kind, shape, real=real)
    on = weights(asked)
    assert asked.weight == pytest.approx(on.sum(), abs=1e-9)
    assert asked.square == pytest.approx((on**2).sum(), abs=1e-9)
    told = np.sort(np.abs(on[np.abs(on) > 1e-12]))
    assert asked.few == (pytest.approx(told.tolist(), abs=1e-8) if len(told) <= FEW else ())
    if len(told):
        many, peak = asked.weighed
        assert many >= len(told)
        assert many / peak <= (on**2).sum() / told[-1] ** 2 + 1e-6
        assert real or (many, peak) == (len(told), 1.0)
    assert asked.bounds == pytest.approx((np.minimum(on, 0).sum(), np.maximum(on, 0).sum()), abs=1e-9)
    rows, columns = asked.incident()
    if kind == "pairs":
        on = on + on.T
    assert rows == pytest.approx(on.sum(axis=1), abs=1e-9)
    assert columns == pytest.approx(on.sum(axis=0), abs=1e-9)
    matrix = data(rng, kind, shape)
    by_terms = sum(c * (vector(a) @ matrix @ vector(b)) for c, a, b in asked.terms)
    assert by_terms == pytest.approx((weights(asked) * matrix).sum(), abs=1e-9)


@given(st.booleans(), st.integers(0, 10**6))
def test_what_a_side_weighs(real: bool, seed: int) -> None:
    """Would catch places that are not those of the weights, and a set that weighs by anything but one."""
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 12))
    held, values = rng.integers(-4, 5, length), rng.normal(size=length)
    chosen = np.flatnonzero(held)
    axis = Axis(length, slice(0, length), held, 2) if real else Axis(length, chosen)
    made, on = axis, held / 4 if real else (held != 0).astype(float)
    assert made.real_vector().tolist() == on.tolist()
    assert made.places.tolist() == chosen.tolist()
    assert (made.total, made.square) == (on.sum(), (on**2).sum())
    assert made.summed(values) == pytest.approx(on @ values)
    assert made.parts == (on[on < 0].sum(), on[on > 0].sum())


def test_the_side_of_everyone() -> None:
    """Would catch an axis that was left out taken for one without nodes."""
    (found,) = CompiledProduct((None, Axis(5, slice(0, 5))), 0.0, (6, 5)).cuts
    assert [side.real_vector().tolist() for side in (found.left, found.right)] == [[1.0] * 6, [1.0] * 5]


@pytest.mark.parametrize("name", SPACES)
@given(seed=st.integers(0, 10**6))
def test_the_question_of_a_cut(name: str, seed: int) -> None:
    """A cut as it is asked for, compiled and read, weighs the edges between its sides once. Would catch a node alone on
    its side that is lost where it is written on both, contiguous sides, and one side taken for the other.
    """
    where, kind = space(name)
    rng = np.random.default_rng(seed)
    chosen = [np.flatnonzero(rng.random(n) < rng.choice([0.2, 0.6, 1.0])) for n in where.shape]
    query = parse_query({"type": "cut", "left": chosen[0].tolist(), "right": chosen[1].tolist()}).compiled(where)
    expected = written(
        kind, *(np.isin(np.arange(n), each).astype(float) for n, each in zip(where.shape, chosen, strict=True))
    )
    if query.is_zero:
        assert not expected.any()
        return
    (found,) = query.cuts
    assert weights(found).tolist() == expected.tolist()
    assert found.weight == query.norm2sq if kind != "arcs" else found.weight <= query.norm2sq


@pytest.mark.parametrize("name", SPACES)
@given(seed=st.integers(0, 10**6))
def test_the_question_of_a_rank_one_query(name: str, seed: int) -> None:
    """Real weights come through as they were asked for. Would catch weights in units of their grid, and of an
    undirected graph a product that is taken off once too little.
    """
    where, kind = space(name)
    rng = np.random.default_rng(seed)
    u, v = (rng.integers(0 if kind == "pairs" else -8, 9, n) / 8 for n in where.shape)
    query = parse_query({"type": "rank_one", "left": u.tolist(), "right": v.tolist()}).compiled(where)
    if query.is_zero:
        return
    (found,), expected = query.cuts, written(kind, u, v)
    on = sum(c * np.outer(vector(a), vector(b)) for c, a, b in found.terms)
    assert isinstance(on, np.ndarray)
    if kind == "pairs":
        on = np.triu(on + on.T, 1)
    elif kind == "arcs":
        np.fill_diagonal(on, 0)
    assert on == pytest.approx(expected, abs=1e-12)
    assert found.weight == pytest.approx(expected.sum(), abs=1e-9)
    assert found.square == pytest.approx((expected**2).sum(), abs=1e-9)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("within", [False, True])
@given(seed=st.integers(0, 10**6))
def test_the_questions_of_blocks(name: str, within: bool, seed: int) -> None:
    """One question for each number, in the order of the numbers, each weighing the cells that its number counts: the
    exact answers of the query are those of the weights. Would catch blocks in another order, a pair within a group that
    counts twice, groups that are paired by the order in which they were named,
    and a query that asks something else when it is read back.
    """
    where, kind = space(name)
    rng = np.random.default_rng(seed)
    # No group is empty, some nodes are in none.
    labels = [rng.permutation(np.append([0, 1, 2], rng.integers(-1, 3, n - 3))) for n in where.shape]
    groups = [{f"g{k}": np.flatnonzero(each == k).tolist() for k in rng.permutation(3)} for each in labels]
    asked: dict[str, Any] = {"type": "blocks", "left": groups[0]}
    if kind != "pairs":
        asked["right"] = groups[1]
    if within:
        asked["only"] = "within"
    query = parse_query(asked).compiled(where)
    questions = query.cuts
    assert len(questions) == query.numbers
    again = from_canonical(where, query.canonical, {}).cuts
    assert [each.name for each in again] == [each.name for each in questions]
    matrix = np.where(data(rng, kind, Edges.of(where).shape) > 0.5, 1, 0)
    found = [int((weights(each) * matrix).sum()) for each in questions]
    assert found == np.atleast_1d(query.exact(CountsTensor(matrix))).tolist()
    for each in questions:
        assert each.weight == pytest.approx(weights(each).sum())
        assert each.square == pytest.approx((weights(each) ** 2).sum())


@pytest.mark.parametrize("asked", [{"type": "cut", "left": [], "right": [1]}, {"type": "degrees", "side": "out"}])
def test_what_is_no_cut_asks_none(asked: dict[str, Any]) -> None:
    """Would catch a query without sides that is taken for a cut."""
    where, _ = space("directed")
    assert parse_query(asked).compiled(where).cuts == ()
