"""What answers and updates take in memory beside the private data: at most three arrays of the universe's size, and at
most what a construction says that they take.
"""

from __future__ import annotations

import ctypes
import math
import tracemalloc
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.constructions import base
from app.constructions.base import Construction, MeasuredQuery, PublicFacts
from app.constructions.mechanism import parse_mechanism
from app.constructions.mirror import form as form_module
from app.constructions.mirror import schatten
from app.constructions.registry import construct
from app.declarations.spec import parse_spec
from app.geometry import norms, potentials, spectral
from app.spaces import sparse
from app.spaces import tensor as tensor_module
from app.spaces.factory import space_of
from app.spaces.queries import linear as linear_module
from app.spaces.queries.cells import dense_of
from app.spaces.queries.registry import parse_query
from app.spaces.query import Query
from app.spaces.space import Space
from tests.kit.strategies import BUDGET

#: Hundreds of updates of large arrays, each traced.
pytestmark = [pytest.mark.unit, pytest.mark.slow]

SIDE = 500
CELLS = SIDE * SIDE
#: What is worked on at a time, marginals and the like, in bytes.
SMALL = 625_000
#: How many cells are worked on at a time, and the room that is stated for it: where each is read.
PARTS = {
    "PIECE": (norms, potentials, spectral),
    "BLOCK": (tensor_module, linear_module, sparse),
    "PARTS_BYTES": (base, form_module, schatten),
}
SPECS: dict[str, dict[str, Any]] = {
    "table": {"kind": "table", "attributes": [{"name": "a", "size": SIDE}, {"name": "b", "size": SIDE}]},
    "bipartite": {"kind": "bipartite", "left": SIDE, "right": SIDE},
    "graph": {"kind": "graph", "nodes": SIDE},
}
RAMP = np.linspace(0.1, 1, SIDE)
THIRD = list(range(0, SIDE, 3))
MECHANISMS = {
    "mw": {"construction": "mw"},
    "fk": {"construction": "fk"},
    "lp": {"construction": "md", "potential": "lp", "ball_p": "none"},
    "group": {"construction": "md", "potential": "group", "axis": "rows", "ball_p": "none"},
    "lp in a ball": {"construction": "md", "potential": "lp", "p": 1.5, "ball_p": 1.25},
}
REFITS = {f"{name} refit": MECHANISMS[name] | {"step": "refit"} for name in ("mw", "fk", "lp", "group")}
MECHANISMS |= REFITS
FORMS = ("dense", "sparse", "block", "nearly all", "weighed")
VALUES = (6e5, 4e5, 3e5)
MOST_ARRAYS = 3.0


def forms_of(mechanism: str) -> tuple[str, ...]:
    """What is asked of a mechanism: what is drawn back into a ball is an array, whatever forms it was learnt from."""
    if mechanism == "lp in a ball":
        return ("weighed", "block")
    return (*FORMS, "mixed") if mechanism in REFITS else FORMS


#: A construction knows of a query only its form, whatever kind of data it is of: each is asked all forms of a table,
#: and two, one of which refits, those of the other kinds.
ROWS = [
    (mechanism, kind, form)
    for mechanism in MECHANISMS
    for kind in (SPECS if mechanism in ("lp", "group refit") else ("table",))
    for form in forms_of(mechanism)
]


@cache
def space(kind: str) -> Space:
    return space_of(parse_spec({"name": "d", "budget": BUDGET, **SPECS[kind]}))


def query(kind: str, form: str, place: int) -> Query:
    """A query of a form; those of other places differ from it."""
    ramp, some = (RAMP ** (place + 1)).tolist(), list(range(0, SIDE, 2 + place))
    most = [i for i in range(SIDE) if i != 10 * (place + 1)]
    match form:
        case "mixed":
            return query(kind, ("weighed", "dense", "block")[place], place)
        case "dense":
            weights = np.add.outer(ramp, RAMP) / 2
            weights = (weights + weights.T) / 2
            np.fill_diagonal(weights, 0.0)
            return dense_of(space(kind), weights)
        case "sparse":
            cells = [[i, i + 1] for i in range(100 * place, 100 * place + 250)]
            words: dict[str, Any] = {"type": "sparse", "indices": cells, "weights": [1.0] * 250}
        case "block" if kind == "table":
            words = {"type": "predicate", "where": {"a": {"in": some}, "b": {"in": THIRD}}}
        case "block":
            words = {"type": "cut", "left": some, "right": THIRD}
        case "nearly all" if kind == "table":
            words = {"type": "predicate", "where": {"a": {"in": most}, "b": {"in": most}}}
        case "nearly all":
            words = {"type": "cut", "left": most, "right": most}
        case _ if kind == "table":
            words = {"type": "product", "weights": {"a": ramp, "b": RAMP.tolist()}}
        case _:
            words = {"type": "rank_one", "left": ramp, "right": RAMP.tolist()}
    return parse_query(words).compiled(space(kind))


def taught(construction: Construction, asked: Sequence[Query], values: Sequence[float]) -> tuple[int, int, list[float]]:
    """What a session takes in memory while it is asked and learns: at the end, at most, and each time beside the state
    before it as a part of what the construction had said. Its queries are here before it is: their own memory does
    not count.
    """
    shares, most = [], 0
    tracemalloc.start()
    try:
        state = construction.start()
        for known, value in zip(asked, values, strict=True):
            stated = construction.working_bytes(state, known)
            most = max(most, tracemalloc.get_traced_memory()[1])
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            construction.answer(state, known)
            construction.update(state, MeasuredQuery(known, value, 500.0))
            shares.append((tracemalloc.get_traced_memory()[1] - before) / stated)
        held, last = tracemalloc.get_traced_memory()
        return held, max(most, last), shares
    finally:
        tracemalloc.stop()


def learning(mechanism: str, kind: str, form: str) -> tuple[float, float]:
    """The most memory that a session takes, in arrays of float64 over the universe, and its largest share of what was
    said: the less of two times, where it is too much. All threads of a process are traced together, so that what the
    process does besides, an import or the thread of another test, adds to what a session takes, and takes nothing away.
    """
    asked = [query(kind, form, place) for place in range(len(VALUES))]
    chosen = parse_mechanism(MECHANISMS[mechanism])
    arrays = share = math.inf
    for _ in range(2):
        construction = construct(chosen, space(kind), PublicFacts(1e6, norms={"lp:1.25": 1e4}), 1000.0, 100)
        _, most, shares = taught(construction, asked, VALUES)
        arrays, share = min(arrays, (most - SMALL) / (8 * CELLS)), min(share, max(shares))
        if arrays <= MOST_ARRAYS and share <= 1.0:
            break
    return arrays, share


@pytest.fixture
def quarter_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts as large beside these universes as the program's own are beside universes of four times the cells."""
    for name, modules in PARTS.items():
        for module in modules:
            monkeypatch.setattr(module, name, getattr(module, name) // 4)


def most_arrays(mechanism: str, kind: str, form: str) -> float:
    return learning(mechanism, kind, form)[0]


@pytest.mark.usefixtures("quarter_parts")
@pytest.mark.parametrize(("mechanism", "kind", "form"), ROWS)
def test_at_most_three_arrays_and_what_was_said(mechanism: str, kind: str, form: str) -> None:
    """Would catch an expression over all cells that makes an array for each of its operations, a refit that spells
    queries in arrays of their own, and an update that takes more than is held ready for it before noise is drawn."""
    arrays, share = learning(mechanism, kind, form)
    assert arrays <= MOST_ARRAYS
    assert share <= 1.0


@pytest.mark.usefixtures("quarter_parts")
@pytest.mark.parametrize("mechanism", ["mw", "lp"])
def test_the_parts_are_what_keeps_it(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: where arrays are worked on whole, it shows."""
    monkeypatch.setattr(norms, "PIECE", CELLS)
    assert most_arrays(mechanism, "table", "weighed") > 3.5


def few_terms(form: str) -> Query:
    """A query of a matrix that is few rank-one terms: cells of a few rows, or dense weights of rank two, rounded."""
    if form == "sparse":
        cells = [[i, j] for i in range(0, 50, 10) for j in range(100)]
        words = {"type": "sparse", "indices": cells, "weights": [1.0] * len(cells)}
        return parse_query(words).compiled(space("bipartite"))
    if form == "dense":
        return dense_of(space("bipartite"), np.add.outer(RAMP, RAMP) / 3)
    return query("bipartite", form, 0)


@pytest.mark.usefixtures("quarter_parts")
@pytest.mark.parametrize("form", ["dense", "sparse", "block", "weighed"])
def test_the_schatten_norm_of_few_terms(form: str) -> None:
    """Three arrays at most while a query is learnt, next to nothing afterwards. Would catch a state that becomes whole
    matrices at the first query that is no product."""
    asked = few_terms(form)
    chosen = parse_mechanism({"construction": "md", "potential": "schatten", "ball_p": "none"})
    construction = construct(chosen, space("bipartite"), PublicFacts(1e6), 1000.0, 100)
    held, most, shares = taught(construction, [asked, asked], (9e4, 3e4))
    assert most <= 3.0 * 8 * CELLS + SMALL
    assert held <= 0.1 * 8 * CELLS + SMALL
    assert max(shares) <= 1.0


def resident(name: str) -> int:
    """A figure of this process' memory, in bytes, as the system has it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) << 10


def test_the_schatten_norm_of_full_rank() -> None:
    """What decompositions work in is in no account of Python's: the system is asked. Would catch an update that takes
    more than is held ready for it."""
    side = 300
    here = space_of(parse_spec({"name": "d", "budget": BUDGET, "kind": "bipartite", "left": side, "right": side}))
    asked = dense_of(here, np.random.default_rng(5).uniform(-1, 1, (side, side)))
    chosen = parse_mechanism({"construction": "md", "potential": "schatten", "ball_p": "none"})
    construction = construct(chosen, here, PublicFacts(1e6), 1000.0, 100)
    state = construction.start()
    construction.answer(state, asked)
    stated = construction.working_bytes(state, asked)
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    construction.update(state, MeasuredQuery(asked, 9e4, 500.0))
    taken = resident("VmHWM") - before
    assert stated / 4 < taken <= stated


SMALL_UNIVERSES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "median": ({"construction": "median"}, {"kind": "table", "attributes": [{"name": "a", "size": 4}]}),
    "sampled": (
        {"construction": "median", "sampled": True},
        {"kind": "table", "attributes": [{"name": "a", "size": 12}]},
    ),
    "smw": ({"construction": "smw", "sparsity": 200}, {"kind": "multiset"}),
}


@pytest.mark.parametrize("name", SMALL_UNIVERSES)
def test_constructions_of_their_own_kind(name: str) -> None:
    """Sets of databases, samples of points, and slots that are given out. Would catch one that takes more while it
    learns than is held ready for it."""
    mechanism, declared = SMALL_UNIVERSES[name]
    here = space_of(parse_spec({"name": "d", "budget": BUDGET, **declared}))
    chosen = parse_mechanism(mechanism)
    construction = construct(chosen, here, PublicFacts(3000.0), 1500.0 if name == "median" else 100.0, 50)
    assert construction.infeasible is None
    asked = []
    for place in range(12):
        if name == "smw":
            words: dict[str, Any] = {"type": "elements", "weights": {f"w{place}-{i}": 1.0 for i in range(200)}}
        else:
            size = declared["attributes"][0]["size"]
            words = {"type": "predicate", "where": {"a": {"in": [i for i in range(size) if i % (2 + place % 3)]}}}
        asked.append(parse_query(words).compiled(here))
    _, _, shares = taught(construction, asked, [2000.0 if place % 2 else 300.0 for place in range(12)])
    assert max(shares) <= 1.0


@pytest.mark.usefixtures("quarter_parts")
@pytest.mark.parametrize("mechanism", ["lp refit", "group refit"])
def test_the_parts_of_queries_are_what_keeps_it(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: where queries are spelled whole, it shows."""
    monkeypatch.setattr(linear_module, "BLOCK", CELLS)
    assert most_arrays(mechanism, "table", "weighed") > 3.5


@pytest.mark.usefixtures("quarter_parts")
def test_the_parts_of_blocks_are_what_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: where the cells of two lists are copied whole for a sum, it shows."""
    monkeypatch.setattr(tensor_module, "BLOCK", CELLS)
    assert most_arrays("mw refit", "table", "block") > 3.0
