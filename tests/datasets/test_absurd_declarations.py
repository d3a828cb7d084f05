"""Declarations of absurd sizes, and what is planned, asked and made up of them, take no memory to speak of.

An attribute may have 2^31 values, a side of a graph 2^26 nodes. Whoever may send a request could end the server, or
have the system end it, if something as long as that were made for a plan or a question. What grows with a declaration
is held against a limit before it is made, and all else is ranges and short lists.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from app.curator.dataset import PublicDataset
from app.curator.opening import Opening, Pins
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.declarations.attributes import Attribute
from app.declarations.conditions import Condition
from app.declarations.errors import CuratorError
from app.declarations.spec import parse_spec
from app.services.dummy_records import dummy_table
from app.services.measuring import measured_all
from app.services.plans import Plans
from app.services.query_bodies import compiled
from app.spaces.counts import ExactCounts
from app.spaces.factory import space_of
from app.spaces.partition import Partition
from app.spaces.queries.marginal import CompiledMarginal
from app.spaces.queries.registry import from_canonical
from app.spaces.query import Query
from app.spaces.records import RecordsTensor
from app.spaces.space import Space
from app.spaces.sparse import SparseTensor
from app.spaces.values import values_of

pytestmark = pytest.mark.adversarial

JSON = dict[str, Any]
#: The memory limit, which no single step may pass, whatever was declared.
LIMIT = 128 << 20
HUGE = 2**31 - 1
SIZES = (1, 2, 3, 7, 1000, 2**12 + 1, 2**16, 2**18, 2**20, 2**22, 2**24, HUGE)
RECORDS = 300


@contextmanager
def bounded(most: int = LIMIT) -> Iterator[None]:
    """What is made within takes no more at any moment; NumPy tells of all its arrays, touched or not."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= most, f"{peak:,} bytes"


def declared(kind: str, **parts: Any) -> JSON:
    return {"name": "d", "kind": kind, "records_public": True, "budget": {"epsilon": 1, "delta": 1e-6}, **parts}


def attributes() -> st.SearchStrategy[JSON]:
    def dated(first: int, years: int, by: str) -> JSON:
        return {"dates": [f"{first:04}-01-01", f"{min(first + years, 9999):04}-12-31"], "by": by}

    codes = st.sampled_from(SIZES).map(lambda size: {"size": size})
    unit = st.integers(2, 10**6).map(lambda upper: {"lower": 0, "upper": upper})
    bins = st.sampled_from([2, 100, 2**12]).map(lambda n: {"lower": -1, "upper": 2**30, "bins": n})
    grid = st.sampled_from([1, 100, 2**12, 2**20 - 2]).map(lambda n: {"lower": 0, "upper": n, "grid": 1})
    fine = st.sampled_from([2, 64, 2**12]).map(lambda n: {"lower": 0, "upper": 2**40 - 2**20, "grid": 2**20, "bins": n})
    dates = st.builds(dated, st.integers(1, 9998), st.integers(0, 2800), st.sampled_from(["day", "month", "year"]))
    texts = st.just({"values": ["x" * 100_000, *map(str, range(1000))]})
    kinds = st.one_of(codes, unit, bins, grid, fine, dates, texts)
    return st.tuples(kinds, st.sampled_from([{}, {"missing": True}])).map(lambda pair: pair[0] | pair[1])


def tables() -> st.SearchStrategy[JSON]:
    found = st.lists(attributes(), min_size=1, max_size=12)
    return found.map(lambda own: declared("table", attributes=[{"name": f"a{i}", **a} for i, a in enumerate(own)]))


def graphs() -> st.SearchStrategy[JSON]:
    sides = st.sampled_from([2, 1000, 2**16, 2**20, 2**26, HUGE])
    return st.one_of(
        st.tuples(sides, st.booleans()).map(lambda g: declared("graph", nodes=g[0], directed=g[1])),
        st.tuples(sides, sides).map(lambda g: declared("bipartite", left=g[0], right=g[1])),
        st.tuples(sides, sides).map(lambda g: declared("matrix", rows=g[0], columns=g[1], lower=0, upper=1, absent=0)),
    )


def conditions(spec: JSON, draw: st.DrawFn) -> JSON:
    """Some conditions, most of which fit their attributes."""
    where: JSON = {}
    for attribute in draw(st.lists(st.sampled_from(spec["attributes"]), max_size=3)):
        top = attribute.get("size", attribute.get("upper", 2)) - 1
        value = st.integers(0, max(top, 0))
        kind = draw(st.sampled_from(["equals", "in", "ge", "lt", "between"]))
        values: Any = draw(st.lists(value, min_size=1, max_size=4)) if kind == "in" else draw(value)
        if kind == "between":
            values = sorted([values, draw(value)])
        if "dates" in attribute:
            values = attribute["dates"] if kind in ("in", "between") else attribute["dates"][0]
        where[attribute["name"]] = {kind: values}
    form = draw(st.sampled_from(["plain", "any", "not"]))
    if not where or form == "plain":
        return where
    return {"any": [{name: c} for name, c in where.items()]} if form == "any" else {"not": where}


@st.composite
def of_tables(draw: st.DrawFn) -> tuple[JSON, list[JSON]]:
    spec = draw(tables())
    names = [a["name"] for a in spec["attributes"]]
    asked = []
    for _ in range(4):
        where = conditions(spec, draw)
        some = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
        kind = draw(st.sampled_from(["predicate", "marginal", "bins", "product", "sparse", "mean", "quantile"]))
        if kind == "product":
            asked.append({"type": "product", "weights": {some[0]: [0.5] * 3}})
        elif kind == "sparse":
            asked.append({"type": "sparse", "indices": [0, 5], "weights": [0.5, 1]})
        elif kind == "predicate":
            asked.append({"type": kind, "where": where})
        elif kind in ("marginal", "bins"):
            bins = {some[0]: [0, 1, 2]} if kind == "bins" else {}
            asked.append({"type": "marginal", "attributes": some, "where": where, "bins": bins})
        else:
            levels = {"q": 0.5} if kind == "quantile" else {}
            asked.append({"type": kind, "of": some[0], "group_by": some[1:], "where": where, **levels})
    return spec, asked


@st.composite
def of_graphs(draw: st.DrawFn) -> tuple[JSON, list[JSON]]:
    spec = draw(graphs())
    side = st.one_of(st.just("all"), st.lists(st.integers(0, 1), min_size=1, max_size=2, unique=True))
    cut = {"type": "cut", "left": draw(side), "right": draw(side)}
    blocks: JSON = {"type": "blocks", "left": {"one": [0], "two": [1]}, "right": {"one": [0], "two": [1]}}
    degrees: JSON = {"type": "degrees", **draw(st.sampled_from([{}, {"side": "left"}, {"side": "right"}]))}
    return spec, [cut, blocks, degrees, {"type": "sparse", "indices": [[0, 1]], "weights": [0.5]}]


def mechanisms() -> list[JSON]:
    few: JSON = {"max_queries": 10}
    found: list[JSON] = [few, {}, {**few, "contract": True}, {**few, "within": 50.0}]
    found += [{**few, "mechanism": {"construction": name}} for name in ("histogram", "laplace")]
    found += [{**few, "max_updates": 3, "mechanism": {"construction": name}} for name in ("mw", "fk")]
    return [{"dataset": "d", "epsilon": 0.1, **each} for each in found]


def workloads(kind: str, name: str) -> list[JSON]:
    told: list[JSON] = [{"marginals": 1}, {"marginals": 2}, {"ranges": name}]
    told.append({"queries": [{"type": "predicate", "where": {name: {"ge": 1}}}]})
    return told if kind == "table" else [{"cuts": "all"}, {"rank_one": "all"}]


class _Datasets:
    """The one data set there is."""

    def __init__(self, dataset: PublicDataset) -> None:
        self._dataset = dataset

    def public(self, name: str) -> PublicDataset:
        return self._dataset


def plans_of(dataset: PublicDataset) -> Plans:
    """What plans, which looks at nothing but what is public."""
    datasets = cast(Any, _Datasets(dataset))
    return Plans(datasets, memory_limit=LIMIT, release_seconds=60.0, render=lambda error: {"detail": error.detail})


def private(space: Space) -> ExactCounts:
    """A few records, or a few edges."""
    rng = np.random.default_rng(3)
    if space.kind == "table":
        return RecordsTensor(
            [rng.integers(0, n, RECORDS).astype(np.min_scalar_type(n)) for n in space.shape], space.shape
        )
    both = [0, 1], [1, 0]
    return SparseTensor(csr_array((np.ones(2, np.int8), both), shape=space.shape))


def used(query: Query, space: Space, data: ExactCounts) -> None:
    """All that is done with a question that was compiled."""
    with suppress(TypeError):
        assert np.all(np.isfinite(np.asarray(query.exact(data), np.float64)))
    with suppress(TypeError):
        assert query.range[0] <= query.range[1]
    assert from_canonical(space, query.canonical, {}).canonical_bytes == query.canonical_bytes
    assert isinstance(query.labels, list)


class _Silent:
    """Noise of zero."""

    low = False

    def laplace(self, scale: Any, ahead: int = 1024) -> _Silent:
        return self

    gaussian = laplace

    def take(self, count: int) -> Any:
        return np.zeros(count, np.int64)


def answered(dataset: PublicDataset, asked: Sequence[JSON], data: ExactCounts, *, contract: bool) -> None:
    """An evidence session from its opening on, where there is a plan of one."""
    request = parse_request({"dataset": "d", "max_queries": 10, "epsilon": 0.5, "contract": contract})
    request = plans_of(dataset).opening(dataset, request)[0].request
    session = Session(Opening(dataset, request, make_plan(dataset, request), evidence=Pins((), ())))
    if sum(math.prod(buy.strategy.parts[0].marginal.shape) for buy in session.purchases()) > 1 << 16:
        return
    for measured in measured_all(cast(Any, _Silent()), dataset.space, data, session.purchases()):
        session.pin(measured)
    for words in asked:
        with suppress(CuratorError):
            session.consider(compiled(dataset.space, words, LIMIT).query, unverified=False)


def all_done(spec: JSON, asked: list[JSON]) -> None:
    with bounded():
        try:
            dataset = PublicDataset(parse_spec(spec), float(RECORDS))
            space = space_of(dataset.spec)
        except CuratorError:
            return
    plans = plans_of(dataset)
    for body in mechanisms():
        with bounded(), suppress(CuratorError):
            plans.plan(body)
    name = spec["attributes"][0]["name"] if space.kind == "table" else ""
    for workload in workloads(space.kind, name):
        with bounded(), suppress(CuratorError):
            plans.ways({"dataset": "d", "epsilon": 0.1, "workload": workload})
    with bounded():
        dummy_table(dataset.spec)
    if space.kind != "table" and max(space.shape) > 2**20:
        return  # the data themselves take as much, whatever is asked
    data = private(space)
    for words in asked:
        with bounded(), suppress(CuratorError):
            used(compiled(space, words, LIMIT).query, space, data)
    if space.kind == "table":
        for contract in (False, True):
            with bounded(), suppress(CuratorError):
                answered(dataset, asked, data, contract=contract)


ONE_HUGE = declared("table", attributes=[{"name": "a0", "size": HUGE}, {"name": "a1", "size": 3}])
QUESTIONS: list[JSON] = [
    {"type": "predicate", "where": {"a0": {"ge": 5}}},
    {"type": "predicate", "where": {"a0": {"in": [5, 9, HUGE - 1]}, "a1": 1}},
    {"type": "marginal", "attributes": ["a1"], "where": {"a0": {"between": [5, 2**30]}}},
    {"type": "marginal", "attributes": ["a0"], "bins": {"a0": [0, 1000, HUGE]}},
    {"type": "product", "weights": {"a1": [0.5, 0.5, 0.5]}},
]


@settings(max_examples=3, deadline=None)
@given(of_tables())
@example((ONE_HUGE, QUESTIONS))
@example((declared("table", attributes=[{"name": "a0", "size": 2**20}, {"name": "a1", "size": 3}]), QUESTIONS))
def test_tables(case: tuple[JSON, list[JSON]]) -> None:
    """Would catch an array as long as an attribute: 17 GB of one with 2^31 values, from a plan that all may ask for."""
    all_done(*case)


@settings(max_examples=3, deadline=None)
@given(of_graphs())
@example((declared("bipartite", left=2**26, right=4), []))
@example((declared("graph", nodes=2**20), [{"type": "cut", "left": "all", "right": [1]}]))
def test_graphs(case: tuple[JSON, list[JSON]]) -> None:
    """Would catch an array of all nodes for a question of a few, beyond what was counted before."""
    all_done(*case)


def test_few_values_of_a_huge_attribute_are_asked_at_once() -> None:
    """They are searched for or compared, against a plain loop over the records. Would catch such questions refused for
    the attribute's size, a range off by one, and codes beyond a list that are taken for its last one."""
    space = space_of(parse_spec(ONE_HUGE))
    codes = np.array([0, 5, 6, 9, 2**30, HUGE - 1, HUGE - 1], np.uint32)
    others = np.array([1, 1, 2, 1, 1, 1, 0], np.uint8)
    data = RecordsTensor([codes, others], space.shape)
    pairs = list(zip(codes.tolist(), others.tolist(), strict=True))
    with bounded(1 << 20):
        told = [np.asarray(compiled(space, words, 1 << 20).query.exact(data)).tolist() for words in QUESTIONS[:3]]
    assert told[0] == sum(a >= 5 for a, _ in pairs)
    assert told[1] == sum(a in (5, 9, HUGE - 1) and b == 1 for a, b in pairs)
    assert told[2] == [sum(b == cell and 5 <= a <= 2**30 for a, b in pairs) for cell in range(3)]


def test_what_would_take_too_much_is_refused_by_its_size() -> None:
    """Held against the limit before it is made, and the refusal says what to change. Would catch a question that is
    refused by running out of memory."""
    spec = declared("table", attributes=[{"name": "a0", "size": 2**21}, {"name": "a1", "size": 3}])
    space = space_of(parse_spec(spec))
    words = {"type": "marginal", "attributes": ["a0"], "bins": {"a0": [0, 1000, 2**21]}}
    assert isinstance(compiled(space, words, LIMIT).query, CompiledMarginal)
    with bounded(1 << 20), pytest.raises(CuratorError, match="name fewer attributes, or shorter ones"):
        compiled(space, words, 64 << 20)
    plans = plans_of(PublicDataset(parse_spec(spec), 100.0))
    with bounded(1 << 20), pytest.raises(CuratorError, match="CURATOR_MEMORY_LIMIT"):
        plans.plan({"dataset": "d", "epsilon": 0.1, "max_queries": 5})
    with bounded(1 << 20), pytest.raises(CuratorError, match="CURATOR_MEMORY_LIMIT"):
        plans.ways({"dataset": "d", "epsilon": 0.1, "workload": {"marginals": 1}})


def test_a_million_bins_are_made_as_they_are_looked_at() -> None:
    """Would catch an exact fraction for each edge, twice: half a gigabyte for every attribute that is declared so."""
    values = values_of(Attribute.model_validate({"name": "a", "lower": 0, "upper": 1, "bins": 10**6}))
    with bounded(1 << 20):
        found = values.members(Condition.model_validate({"between": [0.25, 0.5]}))
        with pytest.raises(CuratorError, match=r"must fall on bin edges, which are 0, 1e-06, .* and 999,981 more"):
            values.members(Condition.model_validate({"ge": 1e-7}))
    assert found == slice(250_000, 500_000)


@pytest.mark.parametrize("size", [4097, 2**20, 2**22])
def test_partitions_take_what_they_tell_apart(size: int) -> None:
    """Would catch a cell for each value, kept by every question and every measurement: 32 MB for a range."""
    whole: list[Callable[[], Partition]] = [
        lambda: Partition.singles(size),
        lambda: Partition.runs(size, [0, 5, size - 1]),
        lambda: Partition.runs(size, [0, 5]).met(Partition.runs(size, [0, 9])),
    ]
    Partition.singles.cache_clear()
    tracemalloc.start()
    kept = [make() for make in whole]
    held = [p.refines(kept[1]) for p in kept]
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held == [True, True, False]
    assert now < 1 << 17
    assert peak < 1 << 17
    assert [p.cells for p in kept] == [size, 3, 3]
    assert kept[1].labels.tolist()[4:6] == [0, 1]
