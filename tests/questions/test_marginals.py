"""Marginals against records that are counted by hand, from the words and the declaration alone."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from app.spaces.errors import InvalidQuery
from app.spaces.queries import marginal as marginal_module
from app.spaces.queries.marginal import CompiledMarginal
from app.spaces.queries.registry import from_canonical, parse_query
from app.spaces.query import LinearQuery
from app.spaces.records import RecordsTensor
from tests.kit.strategies import BUDGET, Universe, Words, bin_edges, conditions, tables, universe

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [
            {"name": "age", "lower": 15, "upper": 95, "bins": 16},
            {"name": "sex", "values": ["female", "male"]},
            {"name": "class", "size": 4},
            {"name": "one", "size": 1},
            {"name": "width", "edges": [0, 0.1, 0.25, 1]},
        ],
        "budget": BUDGET,
    }
)


def marginal(u: Universe, words: Words) -> CompiledMarginal:
    query = u.compiled({"type": "marginal"} | words)
    assert isinstance(query, CompiledMarginal)
    return query


def labels(query: CompiledMarginal) -> list[tuple[str, list[Any]]]:
    return [(asked.name, list(asked.labels)) for asked in query.asked]


# ------------------------------------------------------------------------------------------- what is asked, by hand


@st.composite
def questions(draw: st.DrawFn) -> tuple[Universe, Words]:
    u = draw(tables())
    declared = u.declared["attributes"]
    chosen = draw(st.lists(st.sampled_from(declared), unique_by=lambda a: a["name"], min_size=1))
    words: Words = {"attributes": [a["name"] for a in chosen]}
    bins = {}
    for a in chosen:
        if "values" not in a and draw(st.booleans()):
            edges = list(range(a["size"] + 1)) if "size" in a else [float(e) for e in bin_edges(a)]
            bins[a["name"]] = sorted(draw(st.lists(st.sampled_from(edges), unique=True, min_size=2)))
    conditioned = draw(st.lists(st.sampled_from(declared), unique_by=lambda a: a["name"]))
    return u, words | {"bins": bins, "where": {a["name"]: draw(conditions(a)) for a in conditioned}}


def _holds(attribute: Words, condition: Words, place: int) -> bool:
    if "size" in attribute or "values" in attribute:
        value = place if "size" in attribute else attribute["values"][place]
        if "between" in condition:
            return bool(condition["between"][0] <= value <= condition["between"][1])
        return value in condition.get("in", [condition.get("equals")])
    edges = bin_edges(attribute)
    low, high = (Fraction(repr(v)) for v in condition["between"])
    return low <= edges[place] and edges[place + 1] <= high


def _cell(attribute: Words, words: Words, place: int) -> Any:
    """What tells a value's cell from others, None where it is not counted."""
    if attribute["name"] not in words["bins"]:
        return place
    edges = [Fraction(repr(e)) for e in words["bins"][attribute["name"]]]
    low = Fraction(place) if "size" in attribute else bin_edges(attribute)[place]
    return next((i for i, (a, b) in enumerate(itertools.pairwise(edges)) if a <= low < b), None)


def counted(u: Universe, words: Words, rows: list[tuple[int, ...]]) -> list[int]:
    """The counts of the answer, row by row: cells that no value allowed by the conditions falls into are left out."""
    declared = {a["name"]: (axis, a) for axis, a in enumerate(u.declared["attributes"])}

    def kept(name: str, place: int) -> Any:
        attribute = declared[name][1]
        condition = words["where"].get(name)
        if condition is not None and not _holds(attribute, condition, place):
            return None
        return _cell(attribute, words, place) if name in words["attributes"] else True

    axes = []
    for name in words["attributes"]:
        found = [kept(name, place) for place in range(u.space.shape[declared[name][0]])]
        axes.append(sorted({cell for cell in found if cell is not None}))
    counts = dict.fromkeys(itertools.product(*axes), 0)
    others = [name for name in words["where"] if name not in words["attributes"]]
    for row in rows:
        cell = tuple(kept(name, row[declared[name][0]]) for name in words["attributes"])
        if None not in cell and all(kept(name, row[declared[name][0]]) for name in others):
            counts[cell] += 1
    return list(counts.values())


def records(u: Universe) -> st.SearchStrategy[list[tuple[int, ...]]]:
    return st.lists(st.tuples(*(st.integers(0, n - 1) for n in u.space.shape)), max_size=25)


def compiled_or_too_few(u: Universe, words: Words) -> CompiledMarginal | None:
    """None where the words leave less than two cells, which is refused."""
    if len(counted(u, words, [])) >= 2:
        return marginal(u, words)
    with pytest.raises(InvalidQuery, match=r"two cells|selects none"):
        marginal(u, words)
    return None


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_counts_are_those_of_the_records(d: st.DataObject) -> None:
    """In every layout of the data and in the order of the words. Would catch cells of another axis, a bin that lost
    its first or last value, a condition on an attribute that is asked for too, sums in too narrow a type."""
    u, words = d.draw(questions())
    query = compiled_or_too_few(u, words)
    if query is None:
        return
    rows = d.draw(records(u))
    counts = np.zeros(u.space.shape, np.int64)
    for row in rows:
        counts[row] += 1
    columns = np.array(rows, np.uint8).reshape(len(rows), len(u.space.shape)).T
    truth = counted(u, words, rows)
    assert query.numbers == len(truth) == np.prod([len(asked.labels) for asked in query.asked])
    for data in (*u.tensors(counts), RecordsTensor([np.ascontiguousarray(c) for c in columns], u.space.shape)):
        exact = query.exact(data)
        assert exact.dtype == np.int64
        assert query.ordered(exact).tolist() == truth
        units = u.space.to_answer_grid(exact, query)
        assert units.tolist() == [int(v) << u.space.answer_bits for v in exact]


@given(st.data())
def test_one_record_moves_one_number_by_one(d: st.DataObject) -> None:
    """What the price of a marginal rests on. Would catch overlapping cells."""
    u, words = d.draw(questions())
    query = compiled_or_too_few(u, words)
    if query is None:
        return
    for cell in u.cells:
        single = np.zeros(u.space.shape, dtype=np.int64)
        single[cell] = 1
        found = query.exact(u.space.tensor(single)).tolist()
        assert sorted(found)[:-1] == [0] * (len(found) - 1)
        assert max(found) <= 1
    assert query.range == (0, 1)


@given(st.data())
def test_a_form_read_back_is_the_same_question(d: st.DataObject) -> None:
    """Would catch a form that loses something, one that the RFC 8785 library writes otherwise, and numbers in another
    order: what was released once is given again as it was."""
    u, words = d.draw(questions())
    query = compiled_or_too_few(u, words)
    if query is None:
        return
    assert rfc8785.dumps(query.canonical) == query.canonical_bytes
    again = from_canonical(u.space, orjson.loads(query.canonical_bytes), {})
    assert isinstance(again, CompiledMarginal)
    assert again.canonical_bytes == query.canonical_bytes
    x = np.arange(np.prod(u.space.shape)).reshape(u.space.shape) % 97
    assert np.array_equal(again.exact(u.space.tensor(x)), query.exact(u.space.tensor(x)))
    assert dict(labels(again)).items() <= dict(labels(query)).items()


@given(st.data())
def test_two_orders_are_one_question(d: st.DataObject) -> None:
    """Would catch a repeated question that is paid for again, and numbers told in an order that was not asked."""
    u, words = d.draw(questions())
    query = compiled_or_too_few(u, words)
    if query is None:
        return
    other = words | {"attributes": d.draw(st.permutations(words["attributes"]))}
    assert marginal(u, other).digest == query.digest
    x = u.space.tensor(np.arange(np.prod(u.space.shape)).reshape(u.space.shape) % 89)
    shape = [len(asked.labels) for asked in query.asked]
    places = [words["attributes"].index(name) for name in other["attributes"]]
    told = query.ordered(query.exact(x)).reshape(shape).transpose(places).reshape(-1)
    assert marginal(u, other).ordered(query.exact(x)).tolist() == told.tolist()


def test_spellings_of_one_question() -> None:
    """Bins as declared, conditions that hold for all, comparisons for ranges, a single cell for a condition."""
    for spellings in (
        [{"attributes": ["sex"]}, {"attributes": ["sex", "one"]}, {"attributes": ["sex"], "where": {"one": 0}}],
        [{"attributes": ["sex"]}, {"attributes": ["sex"], "where": {"class": [0, 1, 2, 3], "age": {"ge": 15}}}],
        [{"attributes": ["class"]}, {"attributes": ["class"], "bins": {"class": [0, 1, 2, 3, 4]}}],
        [{"attributes": ["age"]}, {"attributes": ["age"], "bins": {"age": list(range(15, 96, 5))}}],
        [
            {"attributes": ["age"], "bins": {"age": [30, 45, 60]}},
            {"attributes": ["age"], "bins": {"age": [15, 30, 45, 60, 95]}, "where": {"age": {"ge": 30, "lt": 60}}},
            {"attributes": ["age"], "bins": {"age": [30, 45, 95]}, "where": {"age": {"between": [30, 60]}}},
        ],
        [
            {"attributes": ["age"], "where": {"sex": "male"}},
            {"attributes": ["age", "sex"], "where": {"sex": ["male"]}},
            {"attributes": ["sex", "age"], "where": {"sex": {"equals": "male"}}},
        ],
        [
            {"attributes": ["sex"], "where": {"class": {"gt": 0, "le": 2}}},
            {"attributes": ["sex"], "where": {"class": {"ge": 1, "lt": 3}}},
            {"attributes": ["sex"], "where": {"class": {"between": [1, 2]}}},
            {"attributes": ["sex", "class"], "bins": {"class": [1, 3]}},
        ],
    ):
        assert len({marginal(TABLE, words).digest for words in spellings}) == 1, spellings


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            {"attributes": ["sex", "age"], "bins": {"age": [15, 30, 95]}},
            [("sex", ["female", "male"]), ("age", ["[15, 30)", "[30, 95]"])],
        ),
        ({"attributes": ["class"], "where": {"class": [0, 3]}}, [("class", [0, 3])]),
        (
            {"attributes": ["class", "one"], "bins": {"class": [0, 1, 4]}},
            [("class", ["[0, 1)", "[1, 4)"]), ("one", [0])],
        ),
        ({"attributes": ["width"]}, [("width", ["[0, 0.1)", "[0.1, 0.25)", "[0.25, 1]"])]),
        (
            {"attributes": ["class"], "bins": {"class": [0, 3, 4]}, "where": {"class": [0, 2, 3]}},
            [("class", ["[0, 1), [2, 3)", "[3, 4)"])],
        ),
        (
            {"attributes": ["age"], "bins": {"age": [15, 45, 60, 95]}, "where": {"age": {"ge": 30, "lt": 50}}},
            [("age", ["[30, 45)", "[45, 50)"])],
        ),
    ],
)
def test_labels(words: Words, told: Any) -> None:
    """Would catch a label that says more than the cell counts, the last bin open, and a code told as a range."""
    assert labels(marginal(TABLE, words)) == told


# ------------------------------------------------------------------------------------------------- limits, forms


WIDE = universe(
    {
        "name": "w",
        "kind": "table",
        "attributes": [{"name": f"x{i}", "size": 2**11} for i in range(3)] + [{"name": "long", "size": 2**31 - 1}],
        "budget": BUDGET,
    }
)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"attributes": ["x0", "x1"]}, "4,194,304 cells, and at most 65,536"),
        ({"attributes": ["long"], "bins": {"long": [0, 5, 9]}}, "2,147,483,647 declared values"),
        ({"attributes": ["x0", "long"], "where": {"long": {"in": [5, 7]}}}, "declared values"),
    ],
)
def test_marginals_that_are_too_large_are_refused_before_anything_is_made(words: Words, says: str) -> None:
    """Would catch an array of all values of a long attribute, made only to be refused."""
    with pytest.raises(InvalidQuery, match=says) as refused:
        marginal(WIDE, words)
    assert "name fewer attributes" in refused.value.detail


def test_records_are_counted_in_the_cells_at_once() -> None:
    """Would catch an array of all combinations of the values that are named: here 8 billion."""
    query = marginal(
        WIDE, {"attributes": ["x0", "x1"], "bins": {"x0": [0, 9, 2048], "x1": [4, 9]}, "where": {"x2": [1, 3]}}
    )
    rows = np.array([[3, 5, 1, 0], [3, 5, 2, 0], [2047, 8, 3, 0], [9, 4, 1, 7], [9, 9, 1, 0], [9, 3, 1, 0]], np.uint16)
    assert query.exact(RecordsTensor(list(rows.T), WIDE.space.shape)).tolist() == [1, 2]


def test_the_largest_marginals() -> None:
    """Would catch a bound that is off by one: as many cells as are allowed are."""
    query = marginal(WIDE, {"attributes": ["x0", "x1"], "bins": {"x0": list(range(0, 2049, 64))}})
    assert query.numbers == marginal_module.MOST_NUMBERS
    assert query.exact(RecordsTensor([np.array([5, 5, 2047], np.uint16)] * 4, WIDE.space.shape)).sum() == 3
    assert from_canonical(WIDE.space, query.canonical, {}).digest == query.digest


FORM = {
    "type": "marginal",
    "axes": [[0, {"edges": [0, 3, 16]}], [2, {"in": [0, 2]}]],
    "where": [[1, {"range": [0, 1]}], [4, {"in": [0, 2]}]],
}


def axis(form: Any) -> dict[str, Any]:
    return {**FORM, "axes": [FORM["axes"][0], [2, form]]}


def test_the_form_that_is_damaged_below_is_canonical() -> None:
    assert from_canonical(TABLE.space, FORM, {}).canonical == FORM
    merged = axis({"cells": [0, 1, 0, -1]})
    assert from_canonical(TABLE.space, merged, {}).canonical == merged


@pytest.mark.parametrize(
    "form",
    [
        {k: v for k, v in FORM.items() if k != "where"},
        {k: v for k, v in FORM.items() if k != "axes"},
        FORM | {"bits": 0},
        FORM | {"axes": []},
        FORM | {"axes": 5},
        FORM | {"axes": [5]},
        FORM | {"axes": FORM["axes"][::-1]},
        FORM | {"axes": FORM["axes"] + FORM["axes"][:1]},
        FORM | {"axes": [[5, {"range": [0, 2]}]]},
        FORM | {"axes": [[-1, {"range": [0, 2]}]]},
        FORM | {"axes": [["0", {"range": [0, 2]}]]},
        FORM | {"axes": [[True, {"range": [0, 2]}]]},
        FORM | {"axes": [[[], {"range": [0, 2]}]]},
        FORM | {"axes": [[1, {"range": [0, 2]}]]},  # a condition on it too
        FORM | {"where": FORM["where"][::-1]},
        FORM | {"where": [[1, {"range": [0, 2]}]]},  # all of it
        FORM | {"where": [[1, {"in": []}]]},
        FORM | {"where": [[1, {"in": [0]}]]},  # contiguous: a range
        FORM | {"where": [[1, {"range": [0, 3]}]]},
        FORM | {"where": [[1, 5]]},
        axis(5),
        axis({}),
        axis([]),
        axis({"range": [0, 1]}),  # a single cell: a condition
        axis({"range": [0, 5]}),
        axis({"range": [-1, 2]}),
        axis({"range": [0, 10**15]}),
        axis({"in": [0, 1]}),
        axis({"in": [2, 0]}),
        axis({"in": [0, 0]}),
        axis({"in": [0, 4]}),
        axis({"in": [0, 2], "edges": [0, 1, 2]}),
        axis({"edges": []}),
        axis({"edges": [0]}),
        axis({"edges": 5}),
        axis({"edges": [0, 4]}),
        axis({"edges": [0, 1, 2]}),  # every value by itself: a range
        axis({"edges": [0, 2, 2, 4]}),
        axis({"edges": [2, 0, 4]}),
        axis({"edges": [-1, 2, 4]}),
        axis({"edges": [0, 2, 5]}),
        axis({"edges": [0.5, 2, 4]}),
        axis({"edges": [0, 2, 10**30]}),
        axis({"edges": [[0, 2], [3, 4]]}),
        axis({"cells": [0, 0, 1, 1]}),  # bins
        axis({"cells": [0, -1, 1, -1]}),  # a list
        axis({"cells": [1, 0, 1, -1]}),  # numbered otherwise
        axis({"cells": [0, 2, 0, -1]}),
        axis({"cells": [0, 1, 0]}),
        axis({"cells": [0, 1, 0, -2]}),
        axis({"cells": [-1, -1, -1, -1]}),
        axis({"cells": [0, 0, 0, -1]}),
        axis({"cells": [0, 1, 0, 10**6]}),
        axis({"cells": [0, 1, 0, "x"]}),
        axis({"cells": [0, 1.5, 0, -1]}),
    ],
)
def test_what_is_not_canonical_is_refused(form: Any) -> None:
    """An audit reads these from a stranger's file: would catch a second form of one question, a single cell that is no
    condition, an index outside, and anything that ends in another exception or fills the memory."""
    with pytest.raises(InvalidQuery):
        from_canonical(TABLE.space, form, {})


def test_forms_that_are_too_large_are_refused() -> None:
    """Would catch a stranger's file that makes the reader count what no session would."""
    every = {"range": [0, 2048]}
    for form in ([[0, every], [1, every]], [[0, every], [3, {"edges": [0, 5, 9]}]]):
        with pytest.raises(InvalidQuery, match="name fewer attributes"):
            from_canonical(WIDE.space, {"type": "marginal", "axes": form, "where": []}, {})


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-2, 17) | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["axes", "where", "in", "range", "edges", "cells"]), inner)
        ),
        max_leaves=12,
    ),
    st.sampled_from(["axes", "where", "axis", "all"]),
)
def test_no_form_ends_in_another_exception(part: Any, place: str) -> None:
    """Whatever stands in a file, the reader refuses it or takes it."""
    form: Any = axis(part) if place == "axis" else FORM | {place: part}
    if place == "all" and isinstance(part, dict):
        form = part | {"type": "marginal"}
    try:
        query = from_canonical(TABLE.space, form, {})
    except InvalidQuery:
        return
    assert query.canonical == form


def test_a_marginal_is_no_single_sum() -> None:
    """Would catch a marginal that is taken for a sum where numbers are made of hypotheses."""
    query = marginal(TABLE, {"attributes": ["sex"]})
    single = TABLE.compiled({"type": "predicate", "where": {}})
    assert (query.numbers, single.numbers) == (2, 1)
    assert (isinstance(query, LinearQuery), isinstance(single, LinearQuery)) == (False, True)


def test_a_universe_beyond_all_counting() -> None:
    """Would catch a number that no float holds where an answer does not need it."""
    attributes = [{"name": f"x{i}", "size": 2**31 - 1} for i in range(59)] + [{"name": "y", "size": 3}]
    huge = universe({"name": "h", "kind": "table", "attributes": attributes, "budget": BUDGET})
    query = marginal(huge, {"attributes": ["y"]})
    assert query.canonical == {"type": "marginal", "axes": [[59, {"range": [0, 3]}]], "where": []}


def test_words_that_are_compiled_are_not_changed() -> None:
    """Would catch a request that remembers what was made of it."""
    asked = {"type": "marginal", "attributes": ["age"], "where": {"sex": "male"}}
    before = orjson.dumps(asked)
    parse_query(asked)
    assert orjson.dumps(asked) == before
