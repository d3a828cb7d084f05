"""Structural zeros: what they say of cells of marginals and of questions, held against the universe cell by cell."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.declarations.errors import InvalidDataset
from app.declarations.spec import parse_spec, problems_of, written
from app.estimation.tables.residuals import Residuals
from app.spaces.errors import InvalidQuery
from app.spaces.factory import space_of
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.registry import from_canonical, parse_query
from app.spaces.questions import Cells
from app.spaces.table import TableSpace
from app.spaces.zeros import Zeros, raked
from tests.zeros.schemas import NAMES, Document, declared, plain, possible_of, satisfied, schemas

pytestmark = pytest.mark.unit


def space_with(sizes: tuple[int, ...], zeros: list[Document]) -> TableSpace:
    """The space of a declaration that holds."""
    try:
        found = space_of(parse_spec(declared(sizes, zeros)))
    except InvalidDataset:
        # Nothing is left, or a zero is of no combination.
        none = [not possible_of([zero], sizes).all() for zero in zeros]
        assert not possible_of(zeros, sizes).any() or not all(none)
        assume(False)
    assert isinstance(found, TableSpace)
    return found


@st.composite
def divided(draw: st.DrawFn, size: int) -> Partition:
    return Partition.of(np.array(draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))))


def boxes(axes: tuple[int, ...], cells: list[Partition], possible: Any) -> Any:
    """Which cells of a marginal hold a possible cell of the universe, by looking at each."""
    found = np.zeros([own.cells for own in cells], bool)
    for cell in np.argwhere(possible):
        found[tuple(int(own.labels[cell[axis]]) for axis, own in zip(axes, cells, strict=True))] = True
    return found


@given(data=st.data(), schema=schemas())
@settings(deadline=None, max_examples=50)
def test_impossible_cells_are_exactly_those(
    data: st.DataObject, schema: tuple[tuple[int, ...], list[Document]]
) -> None:
    """Of any marginal in any cells: would catch a cell that is taken for impossible and is not, one that several zeros
    leave nothing of only together, or with attributes that are not named, and zeros of other attributes that matter."""
    sizes, zeros = schema
    space, possible = space_with(sizes, zeros), possible_of(zeros, sizes)
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1))))
    cells = [data.draw(divided(sizes[axis])) for axis in axes]
    expected = boxes(axes, cells, possible)
    found = space.zeros.possible(axes, cells)
    assert (found is None) == bool(expected.all())
    assert found is None or np.array_equal(found, expected)
    # What zeros tell apart is enough to know of every single value.
    told = space.zeros.cells(axes)
    coarse = [told.get(axis, Partition.of(np.zeros(sizes[axis]))) for axis in axes]
    singles = boxes(axes, [Partition.singles(sizes[axis]) for axis in axes], possible)
    assert np.array_equal(boxes(axes, coarse, possible)[np.ix_(*(own.labels for own in coarse))], singles)


@given(data=st.data(), schema=schemas())
@settings(deadline=None, max_examples=50)
def test_tables_of_coarser_cells_have_the_same_zeros(
    data: st.DataObject, schema: tuple[tuple[int, ...], list[Document]]
) -> None:
    """Some attributes in some cells as a table of its own: records that cannot be are found, and so is what may be
    added to the values of others. Would catch records of such a table that stand for nothing that can be."""
    sizes, zeros = schema
    space, possible = space_with(sizes, zeros), possible_of(zeros, sizes)
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1))))
    cells = [data.draw(divided(sizes[axis])) for axis in axes]
    expected = boxes(axes, cells, possible)
    own = space.zeros.over(axes, cells)
    codes = np.array(list(np.ndindex(expected.shape)))
    assert np.array_equal(own.violated(codes), ~expected.reshape(-1))
    order = data.draw(st.permutations(range(len(axes))))
    for count, place in enumerate(order):
        known = order[:count]
        left = tuple(k for k in range(len(axes)) if k not in (*known, place))
        reachable = expected.any(axis=left, keepdims=True)
        choices = own.choices(codes, place, known)
        before = expected.any(axis=tuple(k for k in range(len(axes)) if k not in known), keepdims=True)
        for row, code in enumerate(codes):
            if not before[tuple(int(code[k]) if k in known else 0 for k in range(len(axes)))]:
                continue  # what a record has already cannot be
            index = [0 if k in left else int(code[k]) for k in range(len(axes))]
            for value in range(cells[place].cells):
                index[place] = value
                assert (choices is None or choices.of()[row, value]) == reachable[tuple(index)]


@given(data=st.data(), schema=schemas())
@settings(deadline=None, max_examples=50)
def test_questions_are_known_to_be_zero_exactly(
    data: st.DataObject, schema: tuple[tuple[int, ...], list[Document]]
) -> None:
    """Counts under conditions of any form, and each cell of a marginal among them: 0 whatever the records where no
    possible record is counted, and nowhere else. The form that a transcript holds is read as the same. Would catch an
    answer of 0 that need not be, one that is paid for, and a form that an auditor reads otherwise."""
    sizes, zeros = schema
    space, possible = space_with(sizes, zeros), possible_of(zeros, sizes)
    where = data.draw(
        st.one_of(plain(sizes), st.builds(lambda one: {"any": one}, st.lists(plain(sizes), min_size=2, max_size=2)))
    )
    records = [dict(zip(NAMES, map(int, cell), strict=False)) for cell in np.ndindex(sizes)]
    asked = [record for record in records if satisfied(where, record)]
    counted = [record for record in asked if possible[tuple(record.values())]]
    query = parse_query({"type": "predicate", "where": where}).compiled(space)
    if query.canonical["type"] != "zero":
        assert query.is_zero == (not counted)
        blob = query.blob
        blobs = {} if blob is None else {hashlib.sha256(blob).hexdigest(): blob}
        assert from_canonical(space, query.canonical, blobs).is_zero == query.is_zero
    named = data.draw(st.lists(st.sampled_from(NAMES[: len(sizes)]), min_size=1, unique=True))
    try:
        query = parse_query({"type": "marginal", "attributes": named, "where": where}).compiled(space)
    except InvalidQuery:
        # It has a single cell, or none.
        return
    assert query.is_zero == (not counted)
    assert from_canonical(space, query.canonical, {}).is_zero == query.is_zero
    found = space.zeros.impossible(query.question)
    flat = np.zeros(query.numbers) if found is None else query.selected(found.astype(float))
    labels = [axis["labels"] for axis in query.labels]
    order = [axis["attribute"] for axis in query.labels]
    for told, cell in zip(query.ordered(flat), itertools.product(*labels), strict=True):
        told_of = [r for r in asked if all(r[name] == value for name, value in zip(order, cell, strict=True))]
        if told_of:  # else the conditions leave nothing, whatever is declared
            assert bool(told) == (not any(possible[tuple(r.values())] for r in told_of))


def test_declarations_are_written_as_they_are_read() -> None:
    """Null, lists, any and not: would catch a header that an auditor reads as other zeros."""
    spec = declared((3, 3), [{"a": [0, 1], "b": 2}, {"a": {"le": 0}, "not": {"any": [{"b": 1}, {"b": None}]}}])
    spec["attributes"][1]["missing"] = True
    first = written(parse_spec(spec))
    assert first["zeros"][1]["not"]["any"][1] == {"b": {"equals": None}}
    assert written(parse_spec(first)) == first
    one, other = (space_of(parse_spec(each)) for each in (spec, first))
    assert isinstance(one, TableSpace)
    assert isinstance(other, TableSpace)
    for mine, theirs in zip(one.zeros.families, other.zeros.families, strict=True):
        assert np.array_equal(mine.possible, theirs.possible)
        assert mine.classes == theirs.classes


@pytest.mark.parametrize(
    ("zeros", "problem"),
    [
        ([{}], "zeros: together they leave no record that can be"),
        ([{"a": {"le": 1}}, {"a": 2}], "zeros: together they leave no record that can be"),
        ([{"a": 1}, {"e": 1}], "zeros.1: unknown attribute 'e'"),
        ([{"a": 7}], "zeros.0: a: codes are the integers 0..2"),
        ([{"a": 1, "not": {"a": 1}}], "zeros.0: no combination of values satisfies it: leave it out"),
        ([], "zeros: must not be empty"),
        ("a", "zeros: must be a list"),
        ([None], "zeros.0: must be an object"),
        ([{"a": 1}] * 257, "zeros: must have at most 256 items"),
        ([{"a": {"ge": 1, "gt": 0}}], "zeros.0.a: give at most one of ge and gt"),
    ],
)
def test_wrong_zeros_are_refused(zeros: Any, problem: str) -> None:
    """Before anything is read, in words that say which and what to change."""
    with pytest.raises(InvalidDataset) as refused:
        space_of(parse_spec(declared((3, 3), zeros)))
    assert problem in refused.value.detail


def test_too_many_combinations_are_refused() -> None:
    """A chain of attributes that are looked at together takes as much as their classes' product: would catch a
    declaration that takes all memory."""
    names = [f"v{k}" for k in range(20)]
    spec = declared((2, 2), [{one: 1, other: 1} for one, other in itertools.pairwise(names)])
    spec["attributes"] = [{"name": name, "size": 3} for name in names]
    with pytest.raises(InvalidDataset, match="combinations apart"):
        space_of(parse_spec(spec))


def test_too_much_to_look_at_is_refused() -> None:
    """Each zero by itself is looked at on a million combinations at most, and so many zeros might be: would catch a
    declaration that keeps a process busy for minutes, whenever it is read."""
    spec = declared((2, 2), [{"any": [{"a": k}, {"b": k}]} for k in range(200)])
    spec["attributes"] = [{"name": name, "size": 1000} for name in "ab"]
    with pytest.raises(InvalidDataset, match=r"zeros\.16: at most 16,777,216 values"):
        space_of(parse_spec(spec))
    few = space_of(parse_spec({**spec, "zeros": spec["zeros"][:16]}))
    again = space_of(parse_spec({**spec, "zeros": spec["zeros"][:16]}))
    assert isinstance(few, TableSpace)
    assert isinstance(again, TableSpace)
    assert few.zeros is again.zeros


def test_zeros_of_huge_tables_are_cheap() -> None:
    """Fifty attributes of a thousand values, and counties of states: would catch a look at the universe, and wrong
    cells of it."""
    attributes = [{"name": f"v{k}", "size": 1000} for k in range(48)]
    attributes += [{"name": "state", "size": 50}, {"name": "county", "size": 3000}]
    zeros = [{"state": s, "not": {"county": {"ge": 60 * s, "le": 60 * s + 59}}} for s in range(50)]
    zeros += [{f"v{k}": {"le": 9}, f"v{k + 1}": {"ge": 990}} for k in range(0, 48, 2)]
    space = space_of(parse_spec({**declared((2, 2), zeros), "attributes": attributes}))
    assert isinstance(space, TableSpace)
    possible = space.zeros.possible((48, 49), [Partition.singles(50), Partition.singles(3000)])
    assert possible is not None
    assert np.array_equal(possible, np.arange(3000)[None, :] // 60 == np.arange(50)[:, None])
    everything = {f"v{k}": {"le": 5} for k in range(48)}
    assert not parse_query({"type": "predicate", "where": everything}).compiled(space).is_zero
    assert parse_query({"type": "predicate", "where": everything | {"v1": 995}}).compiled(space).is_zero


def test_columns_are_not_called_as_zeros_are_told() -> None:
    """A report has one entry a name: would catch an attribute whose tally is that of a zero."""
    spec = declared((3, 3), [{"a": 1, "b": 1}])
    spec["attributes"].append({"name": "zeros.0", "size": 2})
    with pytest.raises(InvalidDataset, match="call no column so"):
        parse_spec(spec)


def test_zeros_of_a_wrong_attribute_are_not_told_twice() -> None:
    """A check of a declaration leaves a wrong attribute out to look at the others: zeros of it are
    no further problem."""
    spec = declared((3, 3), [{"a": 1, "b": 1}])
    spec["attributes"][0]["size"] = 0
    found, problems = problems_of(spec)
    assert found is not None
    assert len(problems) == 1


@given(schema=schemas(), seed=st.integers(0, 9))
@settings(deadline=None, max_examples=50)
def test_raked_shares_keep_zeros_and_one_way_shares(schema: tuple[tuple[int, ...], list[Document]], seed: int) -> None:
    """Of shares of a table without impossible cells, so that there is one with these: would catch mass on a zero, and
    one-way shares that are lost."""
    sizes, zeros = schema
    possible = possible_of(zeros, sizes)
    assume(possible.any())
    truth = np.random.default_rng(seed).random(sizes) * possible
    truth /= truth.sum()
    targets = [truth.sum(axis=tuple(k for k in range(len(sizes)) if k != axis)) for axis in range(len(sizes))]
    product = np.ones(())
    for target in targets:
        product = product[..., None] * target
    found = raked(product * possible, targets)
    assert (found[~possible] == 0).all()
    for axis, target in enumerate(targets):
        sums = found.sum(axis=tuple(k for k in range(len(sizes)) if k != axis))
        assert sums == pytest.approx(target, abs=1e-4)


def test_none_is_declared_by_default() -> None:
    """Would catch zeros where nobody declared any."""
    residuals = Residuals((3, 4))
    assert not residuals.zeros
    assert residuals.zeros.impossible(Cells(Marginal.of((3, 4), {0: None}))) is None
    assert Zeros.of([]).possible((0,), (Partition.singles(3),)) is None
