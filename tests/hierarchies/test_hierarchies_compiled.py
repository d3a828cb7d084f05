"""Questions about hierarchies: the tree of a declaration, counts of its nodes, their one form and its reading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.declarations.attributes import MAX_LEVELS, branches
from app.declarations.errors import InvalidDataset
from app.declarations.spec import parse_spec
from app.spaces.dense import CountsTensor
from app.spaces.errors import InvalidQuery
from app.spaces.factory import space_of
from app.spaces.queries.hierarchy import CompiledHierarchy
from app.spaces.queries.registry import from_canonical, is_table, parse_query
from app.spaces.space import Space

pytestmark = pytest.mark.unit


def space(values: list[Any], levels: Any, missing: bool = False) -> Space:
    place = {"name": "place", "values": values, "levels": levels, "missing": missing}
    attributes = [place, {"name": "sex", "values": ["f", "m", "x"]}]
    budget = {"epsilon": 1.0, "delta": 1e-9}
    return space_of(parse_spec({"name": "d", "kind": "table", "attributes": attributes, "budget": budget}))


def compiled(of: Space, **where: Any) -> CompiledHierarchy:
    query = parse_query({"type": "hierarchy", "attribute": "place", "where": where}).compiled(of)
    assert isinstance(query, CompiledHierarchy)
    return query


@st.composite
def declared(draw: st.DrawFn) -> tuple[list[Any], Any, bool]:
    """Values and a tree over them, groups in any order and of any depth, some of one value."""
    size = draw(st.integers(3, 9))
    values: list[Any] = [f"v{k}" if k % 2 else k for k in range(size)]
    names = iter(range(1000))

    def group(kept: list[Any], depth: int) -> Any:
        if depth == 3 or not draw(st.booleans()):
            return kept
        cut = draw(st.integers(1, len(kept)))
        parts = [part for part in (kept[:cut], kept[cut:]) if part]
        return {f"g{next(names)}": group(part, depth + 1) for part in parts}

    order = draw(st.permutations(values))
    cut = draw(st.integers(2, size - 1))
    return values, {"top": group(order[:cut], 1), "more": group(order[cut:], 1)}, draw(st.booleans())


@settings(deadline=None)
@given(declared(), st.integers(0, 9))
def test_each_node_counts_what_its_path_names(world: tuple[list[Any], Any, bool], seed: int) -> None:
    """By the names that lead to it, whatever the order of the declaration's members. Catches nodes that stand beside
    the names of others, and groups that miss a category."""
    values, levels, missing = world
    of = space(values, levels, missing)
    counts = np.random.default_rng(seed).integers(0, 50, (len(values) + missing, 3))
    ways = {value: "/".join([*groups, str(value)]) for groups, value in branches(levels)}
    for where, kept in (({}, slice(None)), ({"sex": ["f", "x"]}, [0, 2])):
        query = compiled(of, **where)
        (axis,) = query.labels
        own = counts[:, kept].sum(axis=1)
        found = dict(zip(axis["labels"], np.asarray(query.exact(CountsTensor(counts))).tolist(), strict=True))
        assert len(found) == query.numbers
        for path, count in found.items():
            within = [
                k
                for k, value in enumerate(values)
                if path is not None and (ways[value] == path or ways[value].startswith(path + "/"))
            ]
            assert count == own[within].sum() if path is not None else own[-1]
        assert query.adding(query.exact(CountsTensor(counts))).tolist() == list(found.values())
        # The question of all records, of which these are chosen, has the same answers.
        asked = query.question
        whole = counts if where else counts.sum(axis=1)
        if where:
            whole = np.stack([counts[:, [0, 2]].sum(axis=1), counts[:, 1]], axis=1)
        assert query.selected(asked.of(whole.astype(float), asked.partitions)).tolist() == list(found.values())


@settings(deadline=None)
@given(declared())
def test_the_form_is_read_back_and_the_order_of_members_is_nobodys(world: tuple[list[Any], Any, bool]) -> None:
    """Canonical JSON sorts members: what follows from them must not move with them."""

    def turned(group: Any) -> Any:
        if isinstance(group, dict):
            return {name: turned(group[name]) for name in reversed(group)}
        return list(reversed(group))

    values, levels, missing = world
    query, other = compiled(space(values, levels, missing)), compiled(space(values, turned(levels), missing))
    assert query.labels == other.labels
    assert np.array_equal(query.tree.nodes, other.tree.nodes)
    assert from_canonical(space(values, levels, missing), query.canonical, {}).digest == query.digest == other.digest


def test_what_is_asked_of_no_values_at_all() -> None:
    """Forms that no words compile to are refused, as those of a marginal are."""
    of = space(["a", "b", "c"], {"x": ["a", "b"], "y": ["c"]})
    form = compiled(of).canonical
    for wrong in (
        {**form, "base": {**form["base"], "axes": [[1, {"range": [0, 3]}]]}},
        {**form, "base": {**form["base"], "axes": [[0, {"range": [0, 2]}]]}},
        {**form, "base": {**form["base"], "axes": [[0, {"range": [0, 3]}], [1, {"range": [0, 3]}]]}},
        {"type": "hierarchy"},
        {**form, "base": {"type": "marginal"}},
        {**form, "levels": 2},
        {**form, "base": 3},
    ):
        with pytest.raises(InvalidQuery):
            from_canonical(of, wrong, {})
    graph = {"name": "g", "kind": "graph", "nodes": 3, "directed": True, "budget": {"epsilon": 1.0, "delta": 1e-9}}
    asked, other = parse_query({"type": "hierarchy", "attribute": "place"}), space_of(parse_spec(graph))
    with pytest.raises(InvalidQuery, match="graph"):
        asked.compiled(other)
    assert is_table({"type": "hierarchy"})
    assert not is_table({"type": ["hierarchy"]})


def test_groups_may_lie_deep_and_not_deeper() -> None:
    """Catches a declaration that ends the interpreter's stack, or a measurement of more parts than there may be."""

    def nested(depth: int) -> Any:
        group: Any = ["a", "b"]
        for k in range(depth - 1):
            group = {f"g{k}": group}
        return {"x": group, "y": ["c"]}

    assert compiled(space(["a", "b", "c"], nested(MAX_LEVELS))).numbers == MAX_LEVELS + 4
    with pytest.raises(InvalidDataset, match="deep"):
        space(["a", "b", "c"], nested(MAX_LEVELS + 1))
    with pytest.raises(InvalidDataset, match="deep"):
        space(["a", "b", "c"], nested(150))
