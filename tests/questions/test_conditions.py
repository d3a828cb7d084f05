"""Conditions with all, any and not against a judge that looks at each cell, from the words and declaration alone."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from app.constructions import dense
from app.declarations.conditions import MOST_CONDITIONS
from app.declarations.errors import InvalidDataset
from app.declarations.spec import parse_spec
from app.estimation.tables.residuals import Residuals
from app.measurements.noise import Noise
from app.measurements.pieces import Counts
from app.spaces import records as records_module
from app.spaces.counts import CellCounts
from app.spaces.dense import CountsTensor
from app.spaces.errors import InvalidQuery
from app.spaces.queries import linear as linear_module
from app.spaces.queries.linear import CompiledLocal, CompiledProduct, CompiledZero
from app.spaces.queries.marginal import CompiledMarginal
from app.spaces.queries.registry import from_canonical
from app.spaces.records import RecordsTensor
from app.spaces.tensor import DenseTensor
from tests.kit.strategies import BUDGET, Universe, Words, universe

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [
            {"name": "age", "lower": 15, "upper": 55, "bins": 4},
            {"name": "sex", "values": ["female", "male"]},
            {"name": "class", "size": 3},
            {"name": "not_", "size": 2},
        ],
        "budget": BUDGET,
    }
)
EDGES = [15, 25, 35, 45, 55]


@st.composite
def leaves(draw: st.DrawFn) -> Words:
    match draw(st.sampled_from(["age", "sex", "class", "not_"])):
        case "age":
            low = draw(st.integers(0, 3))
            high = draw(st.integers(low + 1, 4))
            upper = {"le": 55} if high == 4 else {"lt": EDGES[high]}
            return {"age": draw(st.sampled_from([{"ge": EDGES[low]} | upper, {"between": [EDGES[low], EDGES[high]]}]))}
        case "sex":
            return {"sex": draw(st.sampled_from(["female", ["male"], {"in": ["female", "male"]}]))}
        case "class":
            return {"class": draw(st.sampled_from([0, [1, 2], {"gt": 0}, {"le": 1}, {"ge": 1, "lt": 2}]))}
    return {"not_": draw(st.sampled_from([0, {"equals": 1}]))}


def expressions() -> st.SearchStrategy[Words]:
    def joined(parts: tuple[Words, ...]) -> Words:
        """One object of several, the last of two conditions on one attribute kept: the judge reads the same."""
        return {name: condition for part in parts for name, condition in part.items()}

    return st.recursive(
        leaves(),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"all": parts}),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"any": parts}),
            inner.map(lambda part: {"not": part}),
            st.tuples(inner, inner).map(joined),
        ),
        max_leaves=8,
    )


def satisfies(where: Words, cell: tuple[int, ...]) -> bool:
    """Whether the records of a cell satisfy the words."""
    for name, condition in where.items():
        match name:
            case "all":
                held = all(satisfies(part, cell) for part in condition)
            case "any":
                held = any(satisfies(part, cell) for part in condition)
            case "not":
                held = not satisfies(condition, cell)
            case _:
                held = _holds(name, condition, cell)
        if not held:
            return False
    return True


def _holds(name: str, condition: Any, cell: tuple[int, ...]) -> bool:
    age, sex, code, flag = cell
    if name == "age":
        low, high = condition.get("between", [condition.get("ge"), condition.get("lt", condition.get("le"))])
        return bool(low <= EDGES[age] and EDGES[age + 1] <= high)
    value: Any = {"sex": ["female", "male"][sex], "class": code, "not_": flag}[name]
    if not isinstance(condition, dict):
        return value in condition if isinstance(condition, list) else value == condition
    tests = {
        "in": lambda v: value in v,
        "equals": lambda v: value == v,
        "ge": lambda v: value >= v,
        "gt": lambda v: value > v,
        "le": lambda v: value <= v,
        "lt": lambda v: value < v,
    }
    return all(tests[word](bound) for word, bound in condition.items())


def predicate(where: Words) -> Words:
    return {"type": "predicate", "where": where}


def chosen(where: Words) -> np.ndarray:
    return np.array([satisfies(where, cell) for cell in TABLE.cells]).reshape(TABLE.space.shape)


def is_product(weights: np.ndarray) -> bool:
    supports = [weights.any(axis=tuple(j for j in range(weights.ndim) if j != i)).sum() for i in range(weights.ndim)]
    return int(np.prod(supports)) == weights.sum()


@pytest.mark.slow
@settings(max_examples=300)
@given(expressions(), st.integers(0, 10**6), st.sampled_from([linear_module.BLOCK, 5, 1]))
def test_any_expression_selects_what_it_says(where: Words, seed: int, block: int) -> None:
    """Exact answers in every layout of the data, and all that constructions ask of a query, in parts of any size. Would
    catch a connective that is read as another, axes in another order, and cells that lie in two parts or none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_module, "BLOCK", block)
        weights, query = chosen(where), TABLE.compiled(predicate(where))
        rng = np.random.default_rng(seed)
        x = rng.integers(0, 3, TABLE.space.shape)
        rows = np.repeat(np.argwhere(np.ones_like(x)), x.reshape(-1), axis=0).astype(np.uint8)
        records = RecordsTensor([np.ascontiguousarray(column) for column in rows.T], TABLE.space.shape)
        for data in (*TABLE.tensors(x), records):
            assert query.exact(data) == int(x[weights].sum()) << query.grid_bits
        h = rng.uniform(0.1, 4, TABLE.space.shape)
        assert query.rounding == 0
        assert query.is_zero == (not weights.any())
        assert query.range == (float(weights.min()), float(weights.max()))
        assert query.norm2sq == pytest.approx(weights.sum())
        assert query.inner(DenseTensor(h)) == pytest.approx(h[weights].sum())
        assert np.array_equal(dense.integers(query), weights.astype(int) << query.grid_bits)
        levels, masses = dense.levels(query, DenseTensor(h))
        assert levels @ masses == pytest.approx(h[weights].sum())
        added, scaled = h.copy(), h.copy()
        dense.add_to(query, added, 0.5)
        np.testing.assert_allclose(added, h + 0.5 * weights)
        dense.scale_exp(query, scaled, 2.0, 2.5)
        np.testing.assert_allclose(scaled, h * np.exp(np.minimum(2.0 * weights - 2.5, 0)))


@pytest.mark.slow
@settings(max_examples=200)
@given(expressions())
def test_the_form_follows_from_the_cells_alone(where: Words) -> None:
    """A product is the query of its attributes' conditions, nothing is nothing, and all else names the attributes that
    matter and no more. Would catch one question that is paid for twice."""
    weights, query = chosen(where), TABLE.compiled(predicate(where))
    if not weights.any():
        assert isinstance(query, CompiledZero)
    elif is_product(weights):
        assert isinstance(query, CompiledProduct)
        array = {"type": "dense", "weights": weights.astype(float).tolist()}
        assert TABLE.compiled(array).digest == query.digest
    else:
        matters = [
            axis
            for axis in range(weights.ndim)
            if not np.array_equal(weights, np.broadcast_to(weights.take([0], axis), weights.shape))
        ]
        if len(matters) == weights.ndim:
            assert TABLE.compiled({"type": "dense", "weights": weights.astype(float).tolist()}).digest == query.digest
        else:
            assert isinstance(query, CompiledLocal)
            assert list(query.axes) == matters
    assert rfc8785.dumps(query.canonical) == query.canonical_bytes
    blobs = {} if query.blob is None else {query.canonical["sha256"]: query.blob}
    again = from_canonical(TABLE.space, orjson.loads(query.canonical_bytes), blobs)
    assert again.digest == query.digest
    assert TABLE.compiled(predicate({"not": {"not": where}})).digest == query.digest
    de_morgan = {"not": {"any": [{"not": where}, {"not": {"all": [where]}}]}}
    assert TABLE.compiled(predicate(de_morgan)).digest == query.digest


@pytest.mark.slow
@settings(max_examples=300)
@given(
    expressions(),
    st.sampled_from([["age"], ["sex", "class"], ["not_", "age"]]),
    st.sampled_from([None, [15, 35, 55], [25, 45]]),
    st.integers(0, 10**6),
)
def test_marginals_take_any_conditions(where: Words, attributes: list[str], edges: Any, seed: int) -> None:
    """Counts of the records of each cell that satisfy the words, by every layout of the data; cells that nothing can
    fall into are left out, and equal counts have one form. Would catch a restriction that is made larger or smaller
    than it was asked, and one that is put on the wrong axis."""
    bins = {"age": edges} if edges is not None and "age" in attributes else {}
    asked = {"type": "marginal", "attributes": attributes, "where": where, "bins": bins}
    places = [TABLE.space.names.index(name) for name in attributes]

    def cell(place: int, value: int) -> int | None:
        if place or not bins:
            return value
        return next((k for k, edge in enumerate(edges[1:]) if edges[k] <= EDGES[value] < edge), None)

    weights = chosen(where)
    told: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for x in TABLE.cells:
        found = tuple(cell(place, x[place]) for place in places)
        if weights[x] and None not in found:
            told.setdefault(found, set()).add(x)  # type: ignore[arg-type]
    kept = [sorted({found[k] for found in told}) for k in range(len(places))]
    if not told or np.prod([len(k) for k in kept]) < 2:
        with pytest.raises(InvalidQuery, match=r"two cells|selects none"):
            TABLE.compiled(asked)
        return
    query = TABLE.compiled(asked)
    assert isinstance(query, CompiledMarginal)
    counts = np.random.default_rng(seed).integers(0, 3, TABLE.space.shape)
    expected = [sum(counts[x] for x in told.get(found, ())) for found in itertools.product(*kept)]
    rows = np.repeat(np.stack(np.indices(counts.shape)).reshape(4, -1), counts.reshape(-1), axis=1)
    records = RecordsTensor([row.astype(np.uint8) for row in rows], counts.shape)
    for data in (CountsTensor(counts), records):
        assert query.ordered(query.exact(data)).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records_module, "MOST_CELLS", 0)
        patch.setattr(records_module, "PART", 7)
        assert query.ordered(query.exact(records)).tolist() == expected
    assert rfc8785.dumps(query.canonical) == query.canonical_bytes
    assert from_canonical(TABLE.space, orjson.loads(query.canonical_bytes), {}).digest == query.digest
    # The same cells spelled out one by one, and with more where nothing is counted.
    age, sex, code, flag = TABLE.space.shape
    spelled = [
        {
            "age": {"between": [EDGES[x[0]], EDGES[x[0] + 1]]},
            "sex": ["female", "male"][x[1]],
            "class": x[2],
            "not_": x[3],
        }
        for x in np.ndindex(age, sex, code, flag)
        if weights[x] or any(cell(place, x[place]) is None for place in places)
    ]
    assert TABLE.compiled({**asked, "where": {"any": spelled}}).digest == query.digest


@pytest.mark.slow
@settings(max_examples=150)
@given(expressions(), st.sampled_from([["age"], ["sex", "class"], ["not_", "age"]]), st.integers(0, 10**6))
def test_marginals_with_any_conditions_are_questions(where: Words, attributes: list[str], seed: int) -> None:
    """Of counts of the cells that are told apart the answers are those of the data, noise adds up as it must, and a
    measurement of them tells each answer. Would catch a sum that takes in what was not selected."""
    try:
        query = TABLE.compiled({"type": "marginal", "attributes": attributes, "where": where})
    except InvalidQuery:
        return
    assert isinstance(query, CompiledMarginal)
    question = query.question
    counts = np.random.default_rng(seed).integers(0, 9, TABLE.space.shape)
    marginal = question.marginal_of(TABLE.space.shape)
    exact = next(CountsTensor(counts).tell([CellCounts.of(marginal)]))
    partitions = [marginal.partition(k) for k in range(len(marginal.attributes))]
    answers = query.selected(question.of(exact.astype(float), partitions))
    assert answers.tolist() == query.exact(CountsTensor(counts)).tolist()
    residuals = Residuals(TABLE.space.shape)
    residuals.add(Counts(marginal, Noise("gaussian", Decimal(3), 0), exact))
    known = residuals.unbiased(question)
    assert query.selected(known.values).tolist() == pytest.approx(answers.tolist())
    cells = query.selected(question.of(np.ones(exact.shape), partitions))
    assert query.selected(known.variances) == pytest.approx(9 * cells)
    assert cells.max() == question.merged


def test_an_attribute_may_be_named_nearly_as_a_word() -> None:
    """Would catch a field of the program that hides an attribute."""
    query = TABLE.compiled(predicate({"not_": 1}))
    assert query.canonical == {"type": "product", "axes": [[3, {"range": [1, 2]}]]}


@pytest.mark.parametrize("name", ["all", "any", "not"])
def test_no_attribute_is_named_as_a_word(name: str) -> None:
    """Would catch conditions that can be read in two ways."""
    spec = {"name": "t", "kind": "table", "attributes": [{"name": name, "size": 2}], "budget": BUDGET}
    with pytest.raises(InvalidDataset, match="words of conditions"):
        parse_spec(spec)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ({"all": []}, "where.all"),
        ({"any": []}, "where.any"),
        ({"any": None}, "where.any"),
        ({"any": {"sex": "male"}}, "where.any"),
        ({"any": ["male"]}, "where.any.0"),
        ({"any": [[]] * 5000}, "where.any.0"),
        ({"not": None}, "where.not: must be conditions"),
        ({"not": "male"}, "where.not"),
        ({"not": [{"sex": "male"}]}, "where.not"),
        ({"not": {"sex": {"like": "m"}}}, "where.not.sex"),
        ({"any": [{"sex": "male"}, {"height": 1}]}, "unknown attribute 'height'"),
        ({"any": [{"sex": "male"}, {"sex": "other"}]}, "sex: not one of the declared values"),
        ({"any": [{"age": {"ge": 16}}]}, "age: ge must fall on bin edges"),
    ],
)
def test_what_cannot_be_read_is_refused(where: Words, says: str) -> None:
    """Would catch a connective of nothing, which would be everything or nothing."""
    with pytest.raises(InvalidQuery, match=says):
        TABLE.compiled(predicate(where))


def test_deep_conditions_are_refused() -> None:
    """Would catch a recursion that ends the process."""
    where: Words = {"sex": "male"}
    for _ in range(2000):
        where = {"not": where}
    with pytest.raises(InvalidQuery):
        TABLE.compiled(predicate(where))


def wide(*lengths: int) -> Universe:
    attributes = [{"name": f"x{i}", "size": n} for i, n in enumerate(lengths)]
    return universe({"name": "w", "kind": "table", "attributes": attributes, "budget": BUDGET})


def test_expressions_that_are_too_large_are_refused_before_anything_is_made() -> None:
    """Would catch an array of all combinations, made only to be refused, and conditions that take minutes together."""
    u = wide(2**31 - 1, 2**20, 2, 3)
    with pytest.raises(InvalidQuery, match=r"2,251,799,812,636,672 combinations.*at most 1,048,576"):
        u.compiled(predicate({"any": [{"x0": 5}, {"x1": 5}]}))
    with pytest.raises(InvalidQuery, match="2,097,152 combinations"):
        u.compiled(predicate({"any": [{"x1": 5}, {"x2": 1}]}))
    with pytest.raises(InvalidQuery, match="name fewer attributes"):
        u.compiled({"type": "marginal", "attributes": ["x2"], "where": {"not": {"x0": 5}}})
    many: list[Any] = [{"x2": 1}] * (MOST_CONDITIONS + 1)
    for connective in ("any", "all"):
        with pytest.raises(InvalidQuery, match="at most 256 conditions"):
            u.compiled(predicate({connective: many}))
        with pytest.raises(InvalidQuery, match="at most 256 conditions"):
            u.compiled({"type": "marginal", "attributes": ["x3"], "where": {connective: many}})
        assert u.compiled(predicate({connective: many[1:]})).digest == u.compiled(predicate({"x2": 1})).digest
        # Nothing is looked at before it is counted: not even whether they are conditions, nor those that name nothing.
        for part in ({}, {"x2": {"no": "such"}}, {"any": [{"x2": 1}] * 2}, {"not": {"not": {}}}):
            with pytest.raises(InvalidQuery, match="at most 256 conditions"):
                u.compiled(predicate({"x3": 1, "not": {connective: [part] * 100_000}}))
    largest = wide(2**19, 2, 3)
    query = largest.compiled(predicate({"any": [{"x0": {"ge": 5}}, {"x1": 1}]}))
    assert query.canonical == {"type": "local", "axes": [0, 1], "ranges": [1, 2, 3, 4, 5, 6, 7, 8, 9, 2**20]}
    assert from_canonical(largest.space, query.canonical, {}).digest == query.digest


def test_a_universe_beyond_all_counting() -> None:
    """Would catch anything that is made of all cells."""
    u = wide(*[8] * 50)
    query = u.compiled(predicate({"any": [{"x3": 1}, {"x40": [2, 3]}], "x7": {"lt": 4}}))
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, 8, 500).astype(np.uint8) for _ in range(50)]
    truth = sum((a == 1 or b in (2, 3)) and c < 4 for a, b, c in zip(columns[3], columns[40], columns[7], strict=True))
    assert query.exact(RecordsTensor(columns, u.space.shape)) == truth
    assert query.norm2sq == (8 * 8 * 8 - 7 * 6 * 8) // 2 * 8.0**47


FORM = {"type": "local", "axes": [0, 1], "ranges": [1, 4, 6, 7]}


@pytest.mark.parametrize(
    "form",
    [
        {"type": "local", "axes": [0, 1]},
        {"type": "local", "ranges": [1, 4, 6, 7]},
        FORM | {"bits": 0},
        FORM | {"axes": []},
        FORM | {"axes": 5},
        FORM | {"axes": ["0", 1]},
        FORM | {"axes": [False, 1]},
        FORM | {"axes": [[], 1]},
        FORM | {"axes": [1, 0]},
        FORM | {"axes": [0, 0]},
        FORM | {"axes": [0, 4]},
        FORM | {"axes": [-1, 1]},
        FORM | {"axes": [0]},  # a product
        FORM | {"axes": [0, 1, 2, 3]},  # every attribute: cells
        FORM | {"ranges": []},
        FORM | {"ranges": [0, 8]},  # everything
        FORM | {"ranges": [0, 4]},  # a product
        FORM | {"ranges": [1, 4, 6]},
        FORM | {"ranges": [1, 4, 4, 7]},
        FORM | {"ranges": [4, 1, 6, 7]},
        FORM | {"ranges": [-1, 4, 6, 7]},
        FORM | {"ranges": [1, 4, 6, 9]},
        FORM | {"ranges": [1, 4, 6, 10**30]},
        FORM | {"ranges": [1.5, 4, 6, 7]},
        FORM | {"ranges": ["1", "4", "6", "7"]},
        FORM | {"ranges": [[1, 4], [6, 7]]},
        FORM | {"ranges": 5},
        FORM | {"axes": [0, 1, 2], "ranges": [3, 12, 18, 21]},  # the class does not matter
    ],
)
def test_what_is_not_canonical_is_refused(form: Any) -> None:
    """An audit reads these from a stranger's file: would catch a second form of one query, a range outside, and
    anything that ends in another exception or fills the memory."""
    assert from_canonical(TABLE.space, FORM, {}).canonical == FORM
    with pytest.raises(InvalidQuery):
        from_canonical(TABLE.space, form, {})


def test_forms_of_other_data_are_refused() -> None:
    """Would catch combinations of values of what has none."""
    graph = universe({"name": "g", "kind": "graph", "nodes": 4, "directed": True, "budget": BUDGET})
    with pytest.raises(InvalidQuery):
        from_canonical(graph.space, {"type": "local", "axes": [0], "ranges": [1, 2, 3, 4]}, {})


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-2, 9) | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["axes", "ranges"]),
)
def test_no_form_ends_in_another_exception(part: Any, place: str) -> None:
    """Whatever stands in a file, the reader refuses it or takes it."""
    form = FORM | {place: part}
    try:
        query = from_canonical(TABLE.space, form, {})
    except InvalidQuery:
        return
    assert query.canonical == form
