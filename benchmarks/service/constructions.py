"""How long an update and an answer of each construction take, beside one pass over as much memory.

Run `python -m benchmarks.service.constructions` (a minute or two; `--quick` takes small universes alone and writes
nothing). The pass is a sum over d float64 numbers in the same process, so the ratios say how many passes an operation
is worth.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from app.constructions.base import Construction, MeasuredQuery, PublicFacts
from app.constructions.mechanism import iterative, parse_mechanism
from app.constructions.registry import construct
from app.declarations.spec import parse_spec
from app.spaces.factory import space_of
from app.spaces.queries.cells import SparseQuery, dense_of
from app.spaces.queries.elements import ElementsQuery
from app.spaces.queries.weights import product
from app.spaces.query import LinearQuery, Query, linear
from app.spaces.space import Space
from benchmarks.harness import RESULTS, report

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
#: Mass of every data set, in counts; updates are made at gaps of a twentieth of it.
MASS = 1e6
#: Updates timed, and how often an answer is.
UPDATES = 5
ANSWERS = 9


def table(axes: int) -> Space:
    """A table of ten values an attribute."""
    attributes = [{"name": f"a{i}", "size": 10} for i in range(axes)]
    return space_of(parse_spec({"name": "t", "kind": "table", "attributes": attributes, "budget": BUDGET}))


def bipartite(nodes: int) -> Space:
    """A square bipartite graph."""
    return space_of(parse_spec({"name": "g", "kind": "bipartite", "left": nodes, "right": nodes, "budget": BUDGET}))


def multiset() -> Space:
    """All strings."""
    return space_of(parse_spec({"name": "m", "kind": "multiset", "budget": BUDGET}))


def predicate(space: Space, rng: np.random.Generator) -> Query:
    """Half of the values of two attributes."""
    first, second = rng.choice(len(space.shape), 2, replace=False).tolist()
    return product(space, {i: np.sort(rng.choice(10, 5, replace=False)) for i in (first, second)})


def cut(space: Space, rng: np.random.Generator) -> Query:
    """Half of the nodes of either side."""
    return product(space, {i: np.sort(rng.choice(n, n // 2, replace=False)) for i, n in enumerate(space.shape)})


def dense(space: Space, rng: np.random.Generator) -> Query:
    """A random weight for every cell."""
    return dense_of(space, rng.uniform(-1.0, 1.0, space.shape))


def dense_of_rank_5(space: Space, rng: np.random.Generator) -> Query:
    """A weight for every cell, a sum of five products, rounded to the grid as all weights are."""
    rows, columns = space.shape
    weights = rng.uniform(-1.0, 1.0, (rows, 5)) @ rng.uniform(-1.0, 1.0, (5, columns))
    return dense_of(space, weights / np.abs(weights).max())


def sparse(space: Space, rng: np.random.Generator) -> Query:
    """Forty cells in each of six rows."""
    rows, columns = space.shape
    cells = [(i, j) for i in rng.choice(rows, 6, False).tolist() for j in rng.choice(columns, 40, False).tolist()]
    return SparseQuery(type="sparse", indices=cells, weights=rng.uniform(-1.0, 1.0, len(cells)).tolist()).compiled(
        space
    )


def elements(space: Space, rng: np.random.Generator) -> Query:
    """Sixteen of a million strings."""
    return ElementsQuery(type="elements", weights={str(e): 1.0 for e in rng.integers(0, 10**6, 16)}).compiled(space)


@dataclass(frozen=True)
class Case:
    """A construction on a universe, with the queries it is asked; ``before`` updates come first."""

    name: str
    mechanism: dict[str, Any]
    space: Callable[[], Space]
    query: Callable[[Space, np.random.Generator], Query]
    before: int = 0


def _cases(sizes: Sequence[int]) -> Iterator[Case]:
    tables = {10**4: 4, 10**6: 6, 10**7: 7}
    sides = {10**4: 100, 10**6: 1000, 10**7: 3162}
    group = {"construction": "md", "potential": "group", "axis": "rows"}
    schatten = {"construction": "md", "potential": "schatten"}
    for d in sizes:
        for name, mechanism in (
            ("mw", {"construction": "mw"}),
            ("fk", {"construction": "fk"}),
            ("md lp", {"construction": "md", "potential": "lp"}),
        ):
            for query in (predicate, dense):
                yield Case(name, mechanism, lambda d=d: table(tables[d]), query)  # type: ignore[misc]
        graph = lambda d=d: bipartite(sides[d])  # noqa: E731
        yield Case("mw", {"construction": "mw"}, graph, cut)
        yield Case("fk", {"construction": "fk"}, graph, cut, before=16)
        yield Case("md group", group, graph, cut)
        yield Case("md group", group, graph, dense)
        yield Case("md schatten", schatten, graph, cut, before=16)
        if d > 10**4:
            yield Case("md schatten, after 256", schatten, graph, cut, before=256)
        yield Case("md schatten", schatten, graph, sparse)
        yield Case("md schatten", schatten, graph, dense_of_rank_5)
        if d <= 10**6:
            # Some five decompositions of the whole matrix an update: of ten million cells, a minute.
            yield Case("md schatten", schatten, graph, dense)
    yield Case("smw", {"construction": "smw", "sparsity": 16}, multiset, elements, before=16)
    # The sampled median mechanism is offered up to 4,096 cells, the exact one for a handful.
    yield Case("median, sampled", {"construction": "median", "sampled": True}, lambda: table(3), predicate)


def _milliseconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begun)


def one_pass(d: int) -> float:
    """Milliseconds of a sum over d float64 numbers."""
    array = np.full(d, 0.5)
    return float(np.median([_milliseconds(array.sum) for _ in range(2 * ANSWERS + 1)]))


def measure(case: Case) -> list[Any]:
    """A row: universe, times and ratios. Queries are compiled before the clock starts; each update has its own."""
    rng = np.random.default_rng(0)
    space = case.space()
    construction: Construction = construct(
        iterative(parse_mechanism(case.mechanism)), space, PublicFacts(mass=MASS), MASS / 100, 10**6
    )
    state = construction.start()

    def learn(query: LinearQuery) -> float:
        present = construction.answer(state, query)
        # Towards where there is room, whatever has been learnt.
        sign = 1.0 if present < MASS / 4 else -1.0
        measurement = MeasuredQuery(query, present + sign * MASS / 20, MASS / 100)
        return _milliseconds(partial(construction.update, state, measurement))

    for _ in range(case.before):
        learn(linear(case.query(space, rng)))
    updates, first, later = [], [], []
    for _ in range(UPDATES):
        query, other = linear(case.query(space, rng)), linear(case.query(space, rng))
        updates.append(learn(query))
        answer = partial(construction.answer, state, other)
        first.append(_milliseconds(answer))
        later += [_milliseconds(answer) for _ in range(ANSWERS)]
    cells = space.size if space.extent != "unbounded" else None
    passed = None if cells is None else one_pass(cells)
    update, fresh, known = (float(np.median(times)) for times in (updates, first, later))
    return [
        case.name,
        case.query.__name__.replace("_", " "),
        "unbounded" if cells is None else f"{cells:,}",
        "" if passed is None else passed,
        update,
        "" if passed is None else update / passed,
        fresh,
        "" if passed is None else fresh / passed,
        known,
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.constructions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only universes of 10^4 cells; writes nothing")
    quick = parser.parse_args(arguments).quick
    report(
        "constructions",
        "Constructions: milliseconds beside one pass over d float64 numbers, and how many passes they are worth",
        [
            "construction",
            "query",
            "cells d",
            "one pass",
            "update",
            "passes",
            "answer after it",
            "passes",
            "the same again",
        ],
        [measure(case) for case in _cases([10**4] if quick else [10**4, 10**6, 10**7])],
        folder=None if quick else RESULTS,
    )


if __name__ == "__main__":
    main()
