"""Blocks against sums that are added up edge by edge, from the words and the declaration alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import orjson
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from app.spaces import dense, sparse
from app.spaces.errors import InvalidQuery
from app.spaces.queries import blocks
from app.spaces.queries.blocks import CompiledBlocks
from app.spaces.queries.registry import from_canonical, parse_query
from tests.kit.strategies import BUDGET, Universe, Words, bipartites, data, graphs, matrices, neighbours, universe

pytestmark = pytest.mark.unit

DIRECTED = universe({"name": "g", "kind": "graph", "nodes": 6, "directed": True, "budget": BUDGET})
FRIENDS = universe({"name": "g", "kind": "graph", "nodes": 6, "budget": BUDGET})
NAMED = universe({"name": "g", "kind": "graph", "nodes": 3, "labels": ["ann", "ben", "7"], "budget": BUDGET})
LIKES = universe({"name": "b", "kind": "bipartite", "left": 3, "right": 4, "budget": BUDGET})
RATINGS = universe({"name": "m", "kind": "matrix", "rows": 3, "columns": 4, "lower": -1, "upper": 1, "budget": BUDGET})


def asked(u: Universe, words: Words) -> CompiledBlocks:
    query = u.compiled({"type": "blocks"} | words)
    assert isinstance(query, CompiledBlocks)
    return query


# ------------------------------------------------------------------------------------------- what is asked, by hand


def names_of(u: Universe, side: int) -> list[Any]:
    """What nodes of a side are called in queries."""
    field = {"graph": "labels", "bipartite": ("left_labels", "right_labels")[side]}.get(u.declared["kind"], "")
    return list(u.declared.get(field, range(u.space.shape[side])))


@st.composite
def groups(draw: st.DrawFn, u: Universe, side: int, labels: Iterable[str] | None = None) -> Words:
    """Disjoint groups of nodes, in any order, one node twice in its own now and then."""
    nodes = draw(st.permutations(names_of(u, side)))
    names = list(labels or draw(st.lists(st.sampled_from(["a", "b", "", "é"]), min_size=1, unique=True)))[: len(nodes)]
    found: Words = {name: [nodes[k]] for k, name in enumerate(names)}
    for node in nodes[len(names) :]:
        chosen = draw(st.sampled_from([*names, None]))
        if chosen is not None:
            found[chosen].append(node)
    for name in names:
        found[name] += found[name][: draw(st.integers(0, 1))]
    return found


@st.composite
def questions(draw: st.DrawFn) -> tuple[Universe, Words]:
    u = draw(st.one_of(graphs(), bipartites(), matrices()))
    words: Words = {"left": draw(groups(u, 0))}
    only = draw(st.booleans())
    if u.undirected or (u.declared["kind"] == "graph" and draw(st.booleans())):
        if draw(st.booleans()):
            words["right"] = dict(draw(st.permutations(list(words["left"].items()))))
    elif only:
        few = min(len(words["left"]), u.space.shape[1])
        words["left"] = dict(itertools.islice(words["left"].items(), few))
        words["right"] = draw(groups(u, 1, draw(st.permutations(list(words["left"])))))
    else:
        words["right"] = draw(groups(u, 1))
    return u, words | ({"only": "within"} if only else {})


def expected(u: Universe, words: Words, x: dict[tuple[int, ...], int]) -> list[int]:
    """The numbers of the answer, one a combination of labels in the order of the words."""
    left, right = words["left"], words.get("right", words["left"])
    rows, columns = names_of(u, 0), names_of(u, 1)
    pairs = [(a, a) for a in left] if "only" in words else list(itertools.product(left, right))
    totals = []
    for a, b in pairs:
        total = 0
        for (i, j), value in x.items():
            counts = rows[i] in left[a] and columns[j] in right[b]
            if u.undirected:
                counts = counts or (rows[j] in left[a] and columns[i] in right[b])
            total += value * counts
        totals.append(total)
    return totals


def compiled_or_too_few(u: Universe, words: Words) -> CompiledBlocks | None:
    """None where the words ask for a single number, which is refused."""
    distinct = len(words["left"]) if "only" in words else len(words["left"]) * len(words.get("right", words["left"]))
    if distinct > 1:
        return asked(u, words)
    with pytest.raises(InvalidQuery, match="with a cut"):
        asked(u, words)
    return None


@pytest.mark.slow
@settings(max_examples=400)
@given(st.data())
def test_sums_are_those_of_the_edges(d: st.DataObject) -> None:
    """In every layout of the data and in the order of the words. Would catch rows for columns, an edge within a group
    of an undirected graph that counts twice, a node in no group that counts, and labels on other groups' numbers."""
    u, words = d.draw(questions())
    query = compiled_or_too_few(u, words)
    if query is None:
        return
    x = d.draw(data(u))
    truth = expected(u, words, x)
    for tensor in u.tensors(u.array(x)):
        exact = query.exact(tensor)
        assert exact.dtype == np.int64
        assert exact.shape == (query.numbers,)
        assert query.ordered(exact).tolist() == truth
    sides = ["group"] if "only" in words else ["left", "right"]
    told = [(axis["attribute"], axis["labels"]) for axis in query.labels]
    right = words.get("right", words["left"])
    assert told == list(zip(sides, ([*words["left"]], [*right]), strict=False))


@given(st.data())
def test_one_edge_moves_one_number(d: st.DataObject) -> None:
    """By no more than it changes, whatever the groups: what the noise of all numbers rests on. Would catch an edge that
    is in two blocks."""
    u, words = d.draw(questions())
    query = compiled_or_too_few(u, words)
    if query is None:
        return
    x, y = d.draw(neighbours(u))
    changed = max(abs(x[cell] - y[cell]) for cell in x)
    first, second = (query.exact(u.space.tensor(u.array(each))) for each in (x, y))
    moved = np.abs(first - second)
    assert np.count_nonzero(moved) <= 1
    assert moved.sum() <= changed


@given(st.data())
def test_blocks_of_everyone_add_up_to_all_edges(d: st.DataObject) -> None:
    """Each entry is counted in exactly one number, where every node is in a group."""
    u = d.draw(st.one_of(graphs(), bipartites(), matrices()))
    halves = [
        {"a": names[::2], "b": names[1::2]} if len(names) > 1 else {"a": names}
        for names in (names_of(u, 0), names_of(u, 1))
    ]
    words: Words = {"left": halves[0]} | ({} if u.declared["kind"] == "graph" else {"right": halves[1]})
    query = compiled_or_too_few(u, words)
    if query is not None:
        x = d.draw(data(u))
        assert query.exact(u.space.tensor(u.array(x))).sum() == sum(x.values())


@given(st.data())
def test_equal_sums_are_one_question(d: st.DataObject) -> None:
    """However groups are called and ordered, and their nodes; and the form is read back as the same question. Would
    catch a charge for the same sums asked in another order, and a transcript that nobody can replay."""
    u, words = d.draw(questions())
    query = compiled_or_too_few(u, words)
    if query is None:
        return
    assert rfc8785.dumps(query.canonical) == query.canonical_bytes
    renamed = {name: f"other {k}" for k, name in enumerate({**words["left"], **words.get("right", {})})}
    other = dict(words)
    for side in ("left", "right"):
        if side in words:
            order = d.draw(st.permutations(list(words[side])))
            other[side] = {renamed[name]: d.draw(st.permutations(words[side][name])) for name in order}
    again = asked(u, other)
    assert again.canonical_bytes == query.canonical_bytes
    back = from_canonical(u.space, orjson.loads(query.canonical_bytes), {})
    assert isinstance(back, CompiledBlocks)
    assert back.canonical_bytes == query.canonical_bytes
    x = u.space.tensor(u.array(d.draw(data(u))))
    for same in (again, back):
        assert same.numbers == query.numbers
        assert (same.exact(x) == query.exact(x)).all()
        assert (same.norm2sq, same.range, same.is_zero) == (query.norm2sq, query.range, query.is_zero)
    assert len(back.ordered(np.arange(back.numbers))) == np.prod([len(axis["labels"]) for axis in back.labels])


@given(st.data())
def test_weights_are_told_of(d: st.DataObject) -> None:
    """The sum of squared weights and whether there are any, counted cell by cell."""
    u, words = d.draw(questions())
    query = compiled_or_too_few(u, words)
    if query is None:
        return
    total = 0
    for cell in u.cells:
        total += int(query.exact(u.space.tensor(u.array({cell: 1}))).sum())
    assert query.norm2sq == total
    assert query.is_zero == (total == 0)


# ------------------------------------------------------------------------------------------------------ by hand


def test_the_numbers_of_an_undirected_graph() -> None:
    """One for each unordered pair of groups, which stands at both places of the table."""
    query = asked(FRIENDS, {"left": {"b": [4, 2], "a": [0, 1], "c": [3]}})
    x = FRIENDS.array({(0, 1): 1, (0, 2): 1, (1, 4): 1, (2, 3): 1, (0, 5): 1})
    assert query.numbers == 6
    for tensor in FRIENDS.tensors(x):
        assert query.ordered(query.exact(tensor)).reshape(3, 3).tolist() == [[0, 2, 1], [2, 1, 0], [1, 0, 0]]
    assert query.canonical == {"left": {"cells": [0, 0, 1, 2, 1, -1]}, "type": "blocks"}


def test_within_groups_of_two_sides() -> None:
    """The numbers of groups to the left, whatever the order of those to the right."""
    words = {"left": {"a": [2], "b": [0]}, "right": {"b": [3, 1], "a": [0]}, "only": "within"}
    query = asked(LIKES, words)
    x = LIKES.array({(2, 0): 1, (0, 3): 1, (0, 1): 1, (2, 3): 1, (1, 1): 1})
    assert query.labels == [{"attribute": "group", "labels": ["a", "b"]}]
    assert query.ordered(query.exact(LIKES.space.tensor(x))).tolist() == [1, 2]
    assert query.canonical["right"] == {"cells": [1, 0, -1, 0]}


def test_everyone_is_a_group() -> None:
    """As the sides of cuts are."""
    query = asked(LIKES, {"left": {"one": [0], "two": [1]}, "right": {"any": "all"}})
    assert query.exact(LIKES.space.tensor(np.ones((3, 4), np.int64))).tolist() == [4, 4]


def test_a_question_without_weights() -> None:
    """Nothing is within single nodes of an undirected graph: such a question is answered without noise."""
    query = asked(FRIENDS, {"left": {"a": [0], "b": [1]}, "only": "within"})
    assert query.is_zero
    assert query.range == (0.0, 0.0)
    assert not asked(FRIENDS, {"left": {"a": [0], "b": [1]}}).is_zero


def test_sums_are_exact_beyond_floats() -> None:
    """In both layouts. Would catch sums in floats, which end at 2^53, or in the narrow integers of the data."""
    u = universe(
        {"name": "m", "kind": "matrix", "rows": 600, "columns": 500, "lower": 0, "upper": 2**20, "grid": 2.0**-20}
        | {"budget": BUDGET}
    )
    x = np.full((600, 500), 2**40 - 1, np.int64)
    groups = {"left": {"a": [*range(599)], "b": [599]}, "right": {"a": "all"}}
    for tensor in (u.space.tensor(x), u.space.tensor(csr_array(x))):
        assert asked(u, groups).exact(tensor).tolist() == [599 * 500 * (2**40 - 1), 500 * (2**40 - 1)]
        within = groups | {"right": {"a": [*range(1, 500)], "b": [0]}, "only": "within"}
        assert asked(u, within).exact(tensor).tolist() == [599 * 499 * (2**40 - 1), 2**40 - 1]


def test_data_larger_than_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of rows and of entries meet within groups. Would catch sums that lose what a part begins or ends with."""
    rng = np.random.default_rng(3)
    u = universe({"name": "g", "kind": "graph", "nodes": 50, "directed": True, "budget": BUDGET})
    x = rng.integers(0, 2, (50, 50))
    np.fill_diagonal(x, 0)
    labels = rng.integers(-1, 4, 50)
    left = {str(k): np.flatnonzero(labels == k).tolist() for k in range(4)}
    whole = [[int(x[np.ix_(left[a], left[b])].sum()) for b in left] for a in left]
    for part in (1, 60, 130, 10**6):
        for module in (dense, sparse):
            monkeypatch.setattr(module, "_PART", part)
        for tensor in (u.space.tensor(x), u.space.tensor(csr_array(x))):
            every = asked(u, {"left": left})
            assert every.ordered(every.exact(tensor)).tolist() == np.ravel(whole).tolist()
            within = asked(u, {"left": left, "only": "within"})
            assert within.ordered(within.exact(tensor)).tolist() == [whole[k][k] for k in range(4)]


@pytest.mark.parametrize(
    ("u", "words", "says"),
    [
        (FRIENDS, {"left": {"a": [0, 1], "b": [1, 2]}}, r"left\.b: node 1 is in another group"),
        (NAMED, {"left": {"a": ["ann"], "b": ["ben", "ann"]}}, r"left\.b: node 'ann' is in another group"),
        (LIKES, {"left": {"a": [0]}, "right": {"a": "all", "b": [2]}}, r"right\.b: node 2 is in another group"),
        (RATINGS, {"left": {"a": [0], "b": "all"}, "right": {"a": [0]}}, r"left\.b: node 0 is in another group"),
        (NAMED, {"left": {"a": ["ann"], "b": ["nobody"]}}, r"left\.b: not one of the declared labels"),
        (NAMED, {"left": {"a": [0], "b": [1]}}, r"left\.a: not one of the declared labels"),
        (FRIENDS, {"left": {"a": [0], "b": [6]}}, r"left\.b: nodes are the integers 0\.\.5"),
        (RATINGS, {"left": {"a": [0]}, "right": {"a": [0], "b": [4]}}, r"right\.b: columns are the integers 0\.\.3"),
        (FRIENDS, {"left": {"a": [0], "b": []}}, r"left\.b: must not be empty"),
        (FRIENDS, {"left": {}}, "left: must not be empty"),
        (FRIENDS, {"left": {"a": "any"}}, r"left\.a"),
        (FRIENDS, {"left": [[0], [1]]}, "left: must be an object"),
        (FRIENDS, {"left": {"a": [0]}}, "two numbers or more"),
        (LIKES, {"left": {"a": [0]}, "right": {"a": [0]}}, "two numbers or more"),
        (LIKES, {"left": {"a": [0], "b": [1]}, "right": {}}, "right: must not be empty"),
        (LIKES, {"left": {"a": [0], "b": [1]}}, "right: must be given"),
        (RATINGS, {"left": {"a": [0], "b": [1]}, "only": "within"}, "right: must be given"),
        (FRIENDS, {"left": {"a": [0], "b": [1]}, "right": {"a": [0], "b": [2]}}, "the same groups as left"),
        (FRIENDS, {"left": {"a": [0], "b": [1]}, "right": {"a": [1], "b": [0]}}, "the same groups as left"),
        (FRIENDS, {"left": {"a": [0], "b": [1]}, "right": {"a": [0]}}, "'b' is on one side alone"),
        (DIRECTED, {"left": {"a": [0]}, "right": {"c": [1]}, "only": "within"}, "'a' is on one side alone"),
        (DIRECTED, {"left": {"a": [0], "b": [1]}, "only": "across"}, "only: must be 'within'"),
        (DIRECTED, {"left": {"a": [0], "b": [1]}, "where": {}}, "unknown field"),
    ],
)
def test_what_is_refused(u: Universe, words: Words, says: str) -> None:
    """Before anything is drawn, with what to change."""
    with pytest.raises(InvalidQuery, match=says):
        asked(u, words)


@pytest.mark.slow
def test_too_many_numbers() -> None:
    """Refused before anything is made of them; those of an undirected graph are counted once a pair."""
    nodes = {"name": "g", "kind": "graph", "nodes": 70_000, "budget": BUDGET}
    undirected, directed = universe(nodes), universe(nodes | {"directed": True})
    for u, most in ((undirected, 361), (directed, 256)):
        assert asked(u, {"left": {str(k): [k] for k in range(most)}}).numbers <= blocks.MOST_NUMBERS
        with pytest.raises(InvalidQuery, match="at most 65,536"):
            asked(u, {"left": {str(k): [k] for k in range(most + 1)}})
        within = {str(k): [k, k + 1] for k in range(0, 2 * 65_537 % 70_000, 2)}
        assert asked(u, {"left": within, "only": "within"}).numbers == len(within)
    with pytest.raises(InvalidQuery, match="at most 65,536"):
        asked(directed, {"left": {str(k): [k] for k in range(65_537)}, "only": "within"})


@pytest.mark.parametrize("kind", ["table", "multiset"])
def test_other_data_have_none(kind: str) -> None:
    """Tables and multisets say so."""
    spec: Words = {"name": "t", "kind": kind, "budget": BUDGET}
    u = universe(spec | ({"attributes": [{"name": "a", "size": 2}]} if kind == "table" else {}))
    with pytest.raises(InvalidQuery, match=f"blocks query does not fit a {kind}"):
        parse_query({"type": "blocks", "left": {"a": [0], "b": [1]}}).compiled(u.space)


@pytest.mark.parametrize(
    ("u", "form"),
    [
        (FRIENDS, {"left": {"cells": [0, 0, 1, 2, 1, -1]}, "right": {"range": [0, 2]}}),
        (FRIENDS, {"left": {"cells": [1, 0, -1, -1, -1, -1]}}),
        (FRIENDS, {"left": {"cells": [-1] * 6}}),
        (FRIENDS, {"left": {"cells": [0, 1]}}),
        (FRIENDS, {"left": {"cells": [0, 0, 0, -1, -1, -1]}}),
        (FRIENDS, {"left": {"in": [0, 7]}}),
        (FRIENDS, {"left": {"range": [0, 2]}, "only": "across"}),
        (FRIENDS, {"left": {"range": [0, 2]}, "only": None}),
        (FRIENDS, {}),
        (LIKES, {"left": {"range": [0, 2]}}),
        (LIKES, {"left": {"range": [0, 2]}, "right": {"cells": [1, 1, 0, 0]}}),
        (LIKES, {"left": {"range": [0, 2]}, "right": {"range": [0, 3]}, "only": "within"}),
        (LIKES, {"left": {"range": [0, 2]}, "right": {"cells": [0, 0, 2, 2]}, "only": "within"}),
        (RATINGS, {"left": {"range": [0, 1]}, "right": {"range": [2, 3]}}),
        (RATINGS, {"left": {"range": [0, 1]}, "right": 7}),
    ],
)
def test_other_forms_are_none(u: Universe, form: Words) -> None:
    """What no question compiles to is refused. Would catch a second form of the same question."""
    with pytest.raises(InvalidQuery):
        from_canonical(u.space, {"type": "blocks"} | form, {})
