"""Statistics as they are compiled: which words are one question, its written form, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from app.spaces.errors import InvalidQuery
from app.spaces.queries.marginal import CompiledMarginal
from app.spaces.queries.registry import from_canonical, parse_query
from app.spaces.queries.statistic import CompiledStatistic
from tests.kit.strategies import BUDGET, Words, universe

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [
            {"name": "sex", "values": ["f", "m"]},
            {"name": "age", "lower": 15, "upper": 30, "grid": 1, "bins": 3},
            {"name": "pay", "lower": -2, "upper": 6, "grid": 0.5, "missing": True},
            {"name": "day", "dates": ["2020-01-01", "2020-03-31"], "by": "month"},
            {"name": "class", "size": 3},
            {"name": "weight", "lower": 0, "upper": 100, "bins": 4},
        ],
        "budget": BUDGET,
    }
)
GRAPH = universe({"name": "g", "kind": "graph", "nodes": 4, "budget": BUDGET})
KINDS = ["sum", "mean", "variance", "quantile"]
GROUPS = ["sex", "age", "pay", "day", "class"]
WHERE: list[Words] = [
    {},
    {"sex": "f"},
    {"pay": {"ge": 0}},
    {"pay": None},
    {"pay": [0, 0.5]},
    {"class": [0, 2], "sex": ["m"]},
    {"any": [{"sex": "f"}, {"class": 1}]},
    {"not": {"sex": "f", "pay": {"lt": 1}}},
]


def compiled(words: Words) -> CompiledStatistic:
    query = TABLE.compiled(words)
    assert isinstance(query, CompiledStatistic)
    return query


@st.composite
def asked(draw: st.DrawFn) -> Words:
    kind = draw(st.sampled_from(KINDS))
    words: Words = {"type": kind, "of": draw(st.sampled_from(["age", "pay"])), "where": draw(st.sampled_from(WHERE))}
    if kind == "quantile":
        words["q"] = draw(st.sampled_from([0.5, [0.5], [0.25, 0.5, 0.9], [1 / 3], [1e-9, 0.999999]]))
    if draw(st.booleans()):
        words["group_by"] = draw(st.lists(st.sampled_from(GROUPS), unique=True, max_size=3))
        if "class" in words["group_by"] and draw(st.booleans()):
            words["bins"] = {"class": [0, 2, 3]}
    return words


def taken(words: Words) -> CompiledStatistic | None:
    """The question; None where it is refused for groups: conditions that are no product, or too few cells."""
    try:
        return compiled(words)
    except InvalidQuery:
        assert words.get("group_by")
        return None


@pytest.mark.slow
@settings(max_examples=300)
@given(asked())
def test_a_form_read_back_is_the_same_question(words: Words) -> None:
    """Would catch a form that loses the attribute, the groups, the conditions or a level, and one that the RFC 8785
    library writes otherwise."""
    query = taken(words)
    if query is None:
        return
    assert rfc8785.dumps(query.canonical) == query.canonical_bytes
    again = from_canonical(TABLE.space, orjson.loads(query.canonical_bytes), {})
    assert isinstance(again, CompiledStatistic)
    assert again.canonical_bytes == query.canonical_bytes
    assert again.digest == query.digest
    fields = ("kind", "axis", "low", "step", "places", "levels", "answer_bits", "numbers", "is_zero")
    assert [getattr(again, f) for f in fields] == [getattr(query, f) for f in fields]


@pytest.mark.slow
@settings(max_examples=200)
@given(asked(), st.data())
def test_two_orders_of_groups_are_one_question(words: Words, d: st.DataObject) -> None:
    """And numbers are told in the order that was asked: the last attribute changes first, and levels before it. Would
    catch a repeated question that is paid for again, and groups under the labels of others."""
    query = taken(words)
    if query is None or not words.get("group_by"):
        return
    other = words | {"group_by": d.draw(st.permutations(words["group_by"]))}
    turned = compiled(other)
    assert turned.digest == query.digest
    axes = [len(axis["labels"]) for axis in query.labels]
    names = [axis["attribute"] for axis in query.labels]
    levels = ["q"] if len(query.levels) > 1 else []
    assert names == words["group_by"] + levels
    order = [names.index(name) for name in other["group_by"] + levels]
    values = np.arange(float(query.numbers))
    told = query.ordered(values).reshape(axes).transpose(order).reshape(-1)
    assert turned.ordered(values).tolist() == told.tolist()


def test_the_order_that_is_told() -> None:
    """By hand: values come group by group in the order of the table, and for each group a level after the other."""
    words = {"type": "quantile", "of": "age", "q": [0.2, 0.8], "group_by": ["class", "sex"]}
    query = compiled(words)
    # Of sex f, m (each class 0, 1, 2), two levels: f0 is 0 and 1, f1 is 2 and 3, m0 is 6 and 7.
    assert query.ordered(np.arange(12.0)).tolist() == [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]
    assert query.labels[-1] == {"attribute": "q", "labels": [0.2, 0.8]}
    assert [axis["attribute"] for axis in query.labels] == ["class", "sex", "q"]


@pytest.mark.parametrize(
    "spellings",
    [
        [
            {"of": "age"},
            {"of": "age", "where": {}},
            {"of": "age", "group_by": []},
            {"of": "age", "where": {"age": {"ge": 15}}},
        ],
        [
            {"of": "age", "where": {"sex": "f"}},
            {"of": "age", "where": {"sex": ["f"]}},
            {"of": "age", "where": {"not": {"sex": "m"}}},
            {"of": "age", "where": {"any": [{"sex": "f"}, {"sex": "f", "class": 1}]}},
        ],
        # Records without a value are none of them, said or not.
        [
            {"of": "pay"},
            {"of": "pay", "where": {"pay": {"ge": -2}}},
            {"of": "pay", "where": {"pay": {"le": 6}}},
            {"of": "pay", "where": {"not": {"pay": None}}},
            {"of": "pay", "where": {"pay": {"between": [-2, 6]}}},
        ],
        [
            {"of": "pay", "where": {"pay": {"gt": 0}}},
            {"of": "pay", "where": {"pay": {"ge": 0.5}}},
            {"of": "pay", "where": {"pay": {"ge": 0.3}}},
            {"of": "pay", "where": {"not": {"pay": {"le": 0}}}},
        ],
        [
            {"of": "pay", "group_by": ["class"], "where": {"sex": "f", "pay": {"gt": 0}}},
            {"of": "pay", "group_by": ["class"], "where": {"sex": "f", "not": {"pay": {"le": 0}}}},
            {
                "of": "pay",
                "group_by": ["class"],
                "where": {"any": [{"sex": "f"}], "pay": [None, *np.arange(0.5, 6.5, 0.5)]},
            },
        ],
        [
            {"of": "age", "group_by": ["day"]},
            {"of": "age", "group_by": ["day"], "bins": {"day": ["2020-01", "2020-02", "2020-03", "2020-04"]}},
            {"of": "age", "group_by": ["day"], "where": {"day": {"ge": "2020"}}},
        ],
        [
            {"of": "age", "group_by": ["class"], "where": {"class": [0, 1]}},
            {"of": "age", "group_by": ["class"], "bins": {"class": [0, 1, 2]}},
        ],
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_spellings_of_one_question(spellings: list[Words], kind: str) -> None:
    """Would catch a question that is paid for twice because it was spelled otherwise."""
    levels = {"q": 0.5} if kind == "quantile" else {}
    assert len({compiled({"type": kind, **words, **levels}).digest for words in spellings}) == 1


def test_different_questions() -> None:
    """Would catch two questions that are given one answer."""
    words: list[Words] = [{"type": kind, "of": of} for kind in KINDS[:3] for of in ("age", "pay")]
    words += [{"type": "quantile", "of": "age", "q": q} for q in (0.5, 0.25, [0.25, 0.5], 0.5000000001)]
    words += [
        {"type": "sum", "of": "age", "where": {"sex": "f"}},
        {"type": "sum", "of": "age", "where": {"pay": {"ge": -2}}},
        {"type": "sum", "of": "age", "where": {"pay": None}},
        {"type": "sum", "of": "age", "group_by": ["sex"]},
        {"type": "sum", "of": "age", "group_by": ["sex"], "where": {"class": 0}},
        {"type": "sum", "of": "age", "group_by": ["class"], "bins": {"class": [0, 1, 3]}},
    ]
    assert len({compiled(w).digest for w in words}) == len(words)
    one, several = ({"type": "quantile", "of": "age", "q": q} for q in (0.5, [0.5]))
    assert compiled(one).digest == compiled(several).digest


def test_what_is_asked() -> None:
    """Would catch another attribute, grid or level, and records without a value among those that are asked of."""
    query = compiled({"type": "quantile", "of": "pay", "q": [0.25, 0.5], "group_by": ["sex"]})
    assert (query.kind, query.axis, query.low, query.high) == ("quantile", 2, -2.0, 6.0)
    assert (query.step, query.places, query.levels, query.numbers) == (0.5, 17, (0.25, 0.5), 4)
    assert isinstance(query.base, CompiledMarginal)
    counts = np.zeros(TABLE.space.shape, np.int64)
    counts[0, 0, 17, 0, 0, 0] = 5
    counts[1, 0, 3, 0, 0, 0] = 7
    assert np.asarray(query.base.exact(TABLE.space.tensor(counts))).tolist() == [0, 7]


@pytest.mark.parametrize("kind", KINDS)
def test_nobody(kind: str) -> None:
    """Conditions that nobody can satisfy: the sum is zero, and there is no mean. Would catch a question that is paid
    for nothing."""
    levels = {"q": 0.5} if kind == "quantile" else {}
    for where in ({"pay": None}, {"sex": "f", "not": {"sex": "f"}}, {"all": [{"age": 15}, {"age": 16}]}):
        query = compiled({"type": kind, "of": "pay", "where": where, **levels})
        assert query.base.is_zero
        assert query.is_zero == (kind == "sum")
        assert query.canonical["base"] == {"type": "zero"}


@given(
    st.integers(0, 3), st.sampled_from([1, 2**31 - 1, 10**6]), st.integers(-(2**40), 2**40), st.integers(1, 2**20 - 1)
)
def test_answers_fit_their_grid(kind: int, capacity: int, low: int, places: int) -> None:
    """The largest answer that there can be is a 64-bit integer on its grid, and is told to ten digits or so. Would
    catch a sum that overflows, and one that is told too coarsely."""
    high = min(low + places, 2**40)
    words = {"name": "n", "lower": min(low, high - 1), "upper": high, "grid": 1}
    words["lower"] = max(words["lower"], high - 2**20 + 2)
    one = universe({"name": "t", "kind": "table", "capacity": capacity, "attributes": [words], "budget": BUDGET})
    query = one.compiled({"type": KINDS[kind], "of": "n"} | ({"q": 0.5} if kind == 3 else {}))
    assert isinstance(query, CompiledStatistic)
    largest = max(abs(words["lower"]), abs(high))
    largest = {0: largest * capacity, 2: (high - words["lower"]) ** 2}.get(kind, largest)
    units = largest * 2**query.answer_bits if query.answer_bits >= 0 else largest / 2**-query.answer_bits
    assert 2**48 < units <= 2**50


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"type": "mean", "of": "wage"}, "wage"),
        ({"type": "mean", "of": "page"}, "did you mean 'age'"),
        (
            {"type": "mean", "of": "sex"},
            "sex: a mean is of numbers on a grid, and this attribute is",
        ),
        ({"type": "sum", "of": "day"}, "day: a sum is of numbers on a grid"),
        ({"type": "variance", "of": "class"}, "class: a variance is of numbers on a grid"),
        ({"type": "quantile", "of": "weight", "q": 0.5}, "weight: a quantile is of numbers on a grid"),
        ({"type": "mean"}, "of"),
        ({"type": "mean", "of": 3}, "of"),
        ({"type": "mean", "of": "age", "q": 0.5}, "q"),
        ({"type": "quantile", "of": "age"}, "q"),
        ({"type": "quantile", "of": "age", "q": 0}, "q: a quantile's q lies between 0 and 1"),
        ({"type": "quantile", "of": "age", "q": 1}, "q: a quantile's q lies between 0 and 1"),
        ({"type": "quantile", "of": "age", "q": -0.5}, "q: a quantile's q lies between 0 and 1"),
        ({"type": "quantile", "of": "age", "q": [0.5, 1.5]}, "q: a quantile's q lies between 0 and 1"),
        ({"type": "quantile", "of": "age", "q": [0.5, 0.25]}, "q: several q ascend"),
        ({"type": "quantile", "of": "age", "q": [0.5, 0.5]}, "q: several q ascend"),
        (
            {"type": "quantile", "of": "age", "q": [1e-300, 0.5]},
            "q: a quantile's q lies between 0 and 1, at least 1e-09",
        ),
        ({"type": "quantile", "of": "age", "q": 1 - 1e-12}, "q: a quantile's q lies between 0 and 1, at least 1e-09"),
        ({"type": "quantile", "of": "age", "q": [0.5, 0.5 + 1e-12]}, "each at least 1e-09 above the one before"),
        ({"type": "quantile", "of": "age", "q": []}, "q"),
        ({"type": "quantile", "of": "age", "q": "half"}, "q"),
        ({"type": "quantile", "of": "age", "q": True}, "q"),
        ({"type": "quantile", "of": "age", "q": [k / 200 for k in range(1, 120)]}, "q"),
        ({"type": "mean", "of": "age", "group_by": ["sex", "sex"]}, "group_by: attributes must be distinct"),
        ({"type": "mean", "of": "age", "group_by": ["six"]}, "did you mean 'sex'"),
        ({"type": "mean", "of": "age", "group_by": "sex"}, "group_by"),
        (
            {"type": "mean", "of": "age", "group_by": ["sex"], "bins": {"class": [0, 3]}},
            "bins are of attributes that are grouped by",
        ),
        ({"type": "mean", "of": "age", "bins": {"age": [15, 30]}}, "bins are of attributes that are grouped by"),
        ({"type": "mean", "of": "age", "group_by": ["class"], "bins": {"class": [0]}}, "bins"),
        ({"type": "mean", "of": "age", "group_by": ["class"], "bins": {"class": [0, 4]}}, "class: bins of codes"),
        ({"type": "mean", "of": "age", "where": {"pay": 0.3}}, "pay: 0.3 is not on the grid of 0.5: 0 and 0.5 are"),
        ({"type": "mean", "of": "age", "where": {"age": None}}, "age: null: every record has a value"),
        ({"type": "mean", "of": "age", "wher": {}}, "wher"),
        ({"type": "mean", "of": "age", "within": 0}, "within"),
        ({"type": "median", "of": "age"}, "type"),
        ({"type": "mean", "of": "age", "group_by": ["sex"], "where": {"sex": "f"}}, "group_by: a single group is left"),
    ],
)
def test_what_is_refused(words: Words, says: str) -> None:
    """With a text that names the field and what is allowed. Would catch nonsense that is answered."""
    with pytest.raises(InvalidQuery) as refused:
        parse_query(words).compiled(TABLE.space)
    assert says in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_of_data_have_no_statistics(kind: str) -> None:
    """Would catch a mean of edges."""
    words = {"type": kind, "of": "age"} | ({"q": 0.5} if kind == "quantile" else {})
    with pytest.raises(InvalidQuery, match=f"a {kind} query does not fit a graph data set"):
        GRAPH.compiled(words)


FORM = {
    "type": "quantile",
    "of": 1,
    "q": ["0.25", "0.5"],
    "base": {"type": "marginal", "axes": [[0, {"range": [0, 2]}]], "where": [[4, {"range": [0, 1]}]]},
}


def test_the_form_that_is_damaged_below_is_canonical() -> None:
    assert from_canonical(TABLE.space, FORM, {}).canonical == FORM


@pytest.mark.parametrize(
    "change",
    [
        {"of": 0},
        {"of": 5},
        {"of": 6},
        {"of": -1},
        {"of": "age"},
        {"of": True},
        {"of": None},
        {"of": 1.0},
        {"q": []},
        {"q": None},
        {"q": "0.5"},
        {"q": 0.5},
        {"q": ["0.5", "0.25"]},
        {"q": ["0.5", "0.5"]},
        {"q": ["0"]},
        {"q": ["1"]},
        {"q": ["nan"]},
        {"q": ["inf"]},
        {"q": ["x"]},
        {"q": ["0.50"]},
        {"q": [0.5]},
        {"q": ["5e-1"]},
        {"type": "mean"},
        {"type": "median"},
        {"bits": 3},
        {"base": None},
        {"base": {}},
        {"base": {"type": "quantile", "of": 1, "q": ["0.5"], "base": {"type": "zero"}}},
        {"base": {"type": "sparse", "indices": [0], "weights": [1], "bits": 20}},
        {"base": {"type": "marginal", "axes": [], "where": []}},
        {"base": {"type": "product", "axes": [[0, {"bits": 20, "weights": [1, 2]}]], "bits": 20}},
    ],
)
def test_what_is_not_canonical_is_refused(change: Words) -> None:
    """An audit reads these from a stranger's file. Would catch a second form of one question, an attribute without
    numbers, a level out of range, weights that are no counts, and anything that ends in another exception."""
    with pytest.raises(InvalidQuery):
        from_canonical(TABLE.space, {**FORM, **change}, {})


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-2, 17) | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["of", "q", "base", "type", "axes"]), inner)
        ),
        max_leaves=10,
    ),
    st.sampled_from(["of", "q", "base", "type"]),
)
def test_no_form_ends_in_another_exception(part: Any, place: str) -> None:
    """Whatever stands in a file, the reader refuses it or takes it."""
    form: Any = FORM | {place: part}
    try:
        query = from_canonical(TABLE.space, form, {})
    except InvalidQuery:
        return
    assert query.canonical == form


def test_conditions_on_every_attribute() -> None:
    """Combinations of values of all attributes are told as those of some are. Would catch a question that is answered
    and recorded, and cannot be read back."""
    attributes = [{"name": "sex", "values": ["f", "m"]}, {"name": "age", "lower": 15, "upper": 30, "grid": 1}]
    few = universe({"name": "t", "kind": "table", "attributes": attributes, "budget": BUDGET})
    query = few.compiled({"type": "mean", "of": "age", "where": {"any": [{"sex": "f"}, {"age": {"lt": 20}}]}})
    again = from_canonical(few.space, orjson.loads(query.canonical_bytes), {})
    assert again.digest == query.digest
    # Women of any age, and men of 15 to 19.
    assert query.canonical["base"] == {"axes": [0, 1], "ranges": [0, 21], "type": "local"}
