"""What the suites of constructions are held on: small private data on every space, every construction that serves it.

A construction joins by a row. The data are small, so that an adversary can look for the worst query by brute force,
and what an answer should be is told cell by cell.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from app.constructions.base import (
    BOUNDED_STEPS,
    Construction,
    DenseHypothesis,
    Hypothesis,
    ListedHypothesis,
    MeasuredQuery,
    PublicFacts,
)
from app.constructions.mechanism import Iterative, parse_mechanism
from app.constructions.registry import construct
from app.declarations.spec import parse_spec
from app.spaces.factory import space_of
from app.spaces.queries.elements import CompiledElements
from app.spaces.queries.linear import CompiledPair
from app.spaces.queries.registry import parse_query
from app.spaces.query import Query
from app.spaces.space import Space
from tests.kit.strategies import BUDGET, Universe, Words, asked, universe

Vector = npt.NDArray[np.float64]
IntVector = npt.NDArray[np.int64]

# ---------------------------------------------------------------------------------------------- the private data

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x", "size": 3}, {"name": "y", "size": 3}],
        "budget": BUDGET,
    }
)
BIPARTITE = universe({"name": "b", "kind": "bipartite", "left": 3, "right": 4, "budget": BUDGET})
DIRECTED = universe({"name": "d", "kind": "graph", "nodes": 3, "directed": True, "budget": BUDGET})
GRAPH = universe({"name": "g", "kind": "graph", "nodes": 5, "weighted": True, "grid": 0.25, "budget": BUDGET})
_ENTRIES = {"kind": "matrix", "rows": 3, "columns": 4, "upper": 3, "grid": 0.25, "budget": BUDGET}
RATINGS = universe({"name": "r", "lower": 0, **_ENTRIES})
SIGNED = universe({"name": "s", "lower": -3, **_ENTRIES})

# For the median mechanism, which keeps all small databases over the universe.
LINE = universe({"name": "l", "kind": "table", "attributes": [{"name": "x", "size": 3}], "budget": BUDGET})
SQUARE = universe(
    {
        "name": "q",
        "kind": "table",
        "attributes": [{"name": "x", "size": 2}, {"name": "y", "size": 2}],
        "budget": BUDGET,
    }
)
TRIANGLE = universe({"name": "p", "kind": "graph", "nodes": 3, "budget": BUDGET})

WORDS = space_of(parse_spec({"name": "w", "kind": "multiset", "budget": BUDGET}))


@dataclass(frozen=True, eq=False)
class Cells:
    """Private counts, in data units, over a finite universe."""

    u: Universe
    data: dict[tuple[int, ...], int]
    label: str = ""

    @property
    def name(self) -> str:
        return str(self.u.declared["name"]) + self.label

    @property
    def space(self) -> Space:
        return self.u.space

    @property
    def declared(self) -> Words:
        return self.u.declared

    @property
    def mass(self) -> float:
        return math.ldexp(sum(self.data.values()), -self.space.data_bits)

    @property
    def size(self) -> float:
        """The sum of absolute entries."""
        return math.ldexp(sum(map(abs, self.data.values())), -self.space.data_bits)

    @cached_property
    def places(self) -> tuple[IntVector, ...]:
        """Where the cells of the universe stand in an array."""
        return tuple(np.array(self.u.cells).T)

    @cached_property
    def vector(self) -> Vector:
        """The data in counts, by cell of the universe."""
        return np.array([math.ldexp(self.data.get(cell, 0), -self.space.data_bits) for cell in self.u.cells])

    @cached_property
    def private(self) -> Any:
        """The data as the service holds them."""
        return self.space.tensor(self.u.array(self.data))

    def exact(self, query: Query) -> int:
        """<f, x> in units of the query's grid and the data's."""
        return query.exact(self.private)

    def truth(self, query: Query) -> float:
        """<f, x> in counts, from the exact integers."""
        if query.digest not in self._truths:
            bits = query.grid_bits + self.space.data_bits
            self._truths[query.digest] = float(Fraction(self.exact(query), 1 << bits))
        return self._truths[query.digest]

    @cached_property
    def _truths(self) -> dict[bytes, float]:
        """The answers to queries that were asked for."""
        return {}

    def meant(self, words: Words) -> Fraction:
        """What the words ask of the data, exactly, by no code of the service."""
        key = str(self.u.declared), repr(words)
        if key not in _ASKED:
            _ASKED[key] = asked(self.u, words)
        return sum((_ASKED[key].get(c, 0) * v for c, v in self.data.items() if v), Fraction(0)) / (
            1 << self.space.data_bits
        )

    def compiled(self, words: Words) -> Query:
        return self.u.compiled(words)

    def forms(self) -> list[Query]:
        """One weighted and one 0/1 query of every form the space takes."""
        return _forms(self.u)

    @property
    def pool(self) -> list[Words]:
        """What an adversary chooses from."""
        return _pool(self.u)[0]

    def worst(self) -> list[Query]:
        """The same, compiled."""
        return _pool(self.u)[1]

    def weights(self, query: Query) -> Vector:
        """The weight of every cell of the universe, told by exact answers on single cells."""
        return _weights(self.u, query)

    def listed(self, hypothesis: Hypothesis) -> Vector:
        """The hypothesis by cell of the universe."""
        assert isinstance(hypothesis, DenseHypothesis)
        return np.asarray(hypothesis.array[self.places])

    def spread(self, cells: Vector) -> Vector:
        """Numbers by cell as an array of the space's shape, symmetric where the graph is undirected."""
        array = np.zeros(self.space.shape)
        array[self.places] = cells
        return array + array.T if self.u.undirected else array

    def total(self, hypothesis: Hypothesis) -> float:
        """The hypothesis' mass."""
        return float(self.listed(hypothesis).sum())


#: Of each universe, by its declaration: what adversaries choose from, a query of each form, the weights of a query, its
#: pairs as queries, and what words ask.
_POOLS: dict[str, tuple[list[Words], list[Query]]] = {}
_FORMS: dict[str, list[Query]] = {}
_WEIGHTS: dict[tuple[str, bytes], Vector] = {}
_PAIRS: dict[str, list[Query]] = {}
_ASKED: dict[tuple[str, str], dict[tuple[int, ...], Fraction]] = {}


def _pool(u: Universe) -> tuple[list[Words], list[Query]]:
    key = str(u.declared)
    if key not in _POOLS:
        found = {q.digest: (words, q) for words in worst_queries(u) if not (q := u.compiled(words)).is_zero}
        _POOLS[key] = [words for words, _ in found.values()], [q for _, q in found.values()]
    return _POOLS[key]


def _forms(u: Universe) -> list[Query]:
    key = str(u.declared)
    if key not in _FORMS:
        _FORMS[key] = [u.compiled(words) for words in every_form(u)]
    return _FORMS[key]


def _weights(u: Universe, query: Query) -> Vector:
    key = str(u.declared), query.digest
    if key not in _WEIGHTS:
        weights = u.weights(query)
        _WEIGHTS[key] = np.array([float(weights[cell]) for cell in u.cells])
    return _WEIGHTS[key]


def _pairs(u: Universe) -> list[Query]:
    """Every pair of nodes as a cut within these two."""
    key = str(u.declared)
    if key not in _PAIRS:
        _PAIRS[key] = [u.compiled({"type": "cut", "left": list(cell), "right": list(cell)}) for cell in u.cells]
    return _PAIRS[key]


@dataclass(frozen=True, eq=False)
class Matrix(Cells):
    """Private counts over a matrix too large for all of its queries: those in use are compiled with :meth:`ask`."""

    def ask(self, words: Words) -> Query:
        """A cut or a rank-one query, its weights told from its words."""
        query = self.u.compiled(words)
        sides = []
        for side, length in zip((words["left"], words["right"]), self.space.shape, strict=True):
            cut = words["type"] == "cut"
            sides.append(np.isin(np.arange(length), side).astype(float) if cut else np.array(side))
        one = np.outer(*sides)
        weights = 1 - (1 - one) * (1 - one.T) if self.u.undirected else one
        _WEIGHTS[str(self.u.declared), query.digest] = weights[self.places]
        return query


@dataclass(frozen=True, eq=False)
class Elements:
    """A private multiset of strings: a universe without an end."""

    data: dict[str, int]
    label: str = ""
    space = WORDS
    declared: ClassVar[Words] = {"name": "w", "kind": "multiset", "budget": BUDGET}

    @property
    def name(self) -> str:
        return f"w{self.label}"

    @property
    def mass(self) -> float:
        return float(sum(self.data.values()))

    size = mass

    def compiled(self, words: Words) -> Query:
        return parse_query(words).compiled(WORDS)

    @staticmethod
    def weights(query: Query) -> dict[str, float]:
        assert isinstance(query, CompiledElements)
        return dict(zip(query.elements, query.real.tolist(), strict=True))

    def exact(self, query: Query) -> int:
        """Whole counts and dyadic weights: exact."""
        assert isinstance(query, CompiledElements)
        whole = np.ldexp(query.real, query.grid_bits)
        return sum(int(w) * self.data.get(e, 0) for w, e in zip(whole, query.elements, strict=True))

    def truth(self, query: Query) -> float:
        return sum(weight * self.data.get(element, 0) for element, weight in self.weights(query).items())

    def meant(self, words: Words) -> Fraction:
        """What the words ask of the data, exactly."""
        return sum((Fraction(w) * self.data.get(e, 0) for e, w in words["weights"].items()), Fraction(0))

    def forms(self) -> list[Query]:
        """Elements that are there and that are not, counted and weighed."""
        asked_for = [{"the": 1.0}, {"the": 1.0, "of": 1.0}, {"of": 0.5, "and": -0.75}, {"and": 1.0, "absent": 1.0}]
        return [self.compiled({"type": "elements", "weights": weights}) for weights in asked_for]

    @property
    def pool(self) -> list[Words]:
        """All sets of up to three of six elements, added or taken off; and weights that no grid holds."""
        names = [*self.data, "absent", "nobody"][:6]
        sets = [chosen for size in (1, 2, 3) for chosen in itertools.combinations(names, size)]
        signs = [s for size in (2, 3) for s in itertools.product((1.0, -1.0), repeat=size) if -1.0 in s and s[0] == 1.0]
        weighed = [dict.fromkeys(chosen, 1.0) for chosen in sets]
        weighed += [dict(zip(c, s, strict=True)) for c in sets for s in signs if len(c) == len(s)]
        weighed += [{names[0]: 1 / 3, names[-1]: -0.7}, {names[0]: 0.5, names[1]: -0.75}]
        return [{"type": "elements", "weights": weights} for weights in weighed]

    def worst(self) -> list[Query]:
        """The same, compiled."""
        return [self.compiled(words) for words in self.pool]

    def total(self, hypothesis: Hypothesis) -> float:
        """The mass of the elements that it tells apart."""
        assert isinstance(hypothesis, ListedHypothesis)
        return float(hypothesis.counts.sum())


SKEWED = Cells(TABLE, {cell: 40 if cell == (0, 0) else cell[0] + 2 * cell[1] for cell in TABLE.cells})
EDGES = Cells(BIPARTITE, {cell: int(sum(cell) % 3 > 0) for cell in BIPARTITE.cells})
ARCS = Cells(DIRECTED, {(0, 1): 1, (2, 0): 1, (1, 0): 1})
QUARTERS = Cells(GRAPH, {cell: (3 * cell[0] + cell[1]) % 5 for cell in GRAPH.cells})
STARS = Cells(RATINGS, {cell: (5 * cell[0] + 7 * cell[1]) % 13 for cell in RATINGS.cells})
EITHER = Cells(SIGNED, {cell: 12 if sum(cell) % 3 else -8 for cell in SIGNED.cells})
THREE = Cells(LINE, {(0,): 3, (1,): 0, (2,): 0})
FOUR = Cells(SQUARE, {(0, 0): 2, (1, 1): 1})
TWO = Cells(TRIANGLE, {(0, 1): 1, (1, 2): 1})
COUNTS = Elements({"the": 42, "of": 21, "and": 12, "é": 4})

SPACES = (SKEWED, EDGES, ARCS, QUARTERS, STARS, EITHER)

# ------------------------------------------------------------------------------------------------------ the rows


@dataclass(frozen=True, eq=False)
class Row:
    """A mechanism on data.

    ``mass_kept`` says that the hypothesis' mass is the facts' own; ``queries`` how many will be asked; ``coarse`` how
    many noise bounds of its adversary make the data's mass (a set of databases grows fast with it).
    """

    mechanism: dict[str, Any]
    of: Cells | Elements
    padding: float = 0.0
    mass_kept: bool = False
    queries: int = 1000
    coarse: float = 20.0
    norms: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        told = "-".join(str(v) for v in self.mechanism.values() if v != "none")
        return f"{told}-{self.of.name}{'-padded' if self.padding else ''}"

    @property
    def parsed(self) -> Iterative:
        return parse_mechanism(self.mechanism)

    @property
    def construction(self) -> str:
        return str(self.mechanism["construction"])

    @property
    def step(self) -> str:
        return str(self.mechanism["step"])

    @property
    def simplex(self) -> bool:
        """Whether the hypothesis is a mass, spread over cells or elements."""
        return self.parsed.entropic

    @property
    def bounded(self) -> bool:
        """Whether a number is known that updates never pass."""
        return self.step in BOUNDED_STEPS and not self.mechanism.get("sampled")

    @property
    def single(self) -> bool:
        """Whether answers are those of one hypothesis, and no medians over many."""
        return self.construction != "median"

    @property
    def ball(self) -> bool:
        """Whether the hypothesis is drawn back into a ball after each update."""
        return self.construction == "md" and not self.simplex and self.mechanism.get("ball_p") != "none"

    @property
    def tight(self) -> bool:
        """Whether an update's answer is exactly the edge of the certified half-space. (A ball takes it off again.)"""
        return self.step == "projection" and self.single and not self.ball

    @property
    def unlike_export(self) -> bool:
        """Whether there is more to the hypothesis than the universe holds: a diagonal that pair queries meet."""
        return self.mechanism.get("potential") == "schatten" and self.of.space.symmetric

    @property
    def mass(self) -> float:
        return self.of.mass

    @property
    def facts(self) -> PublicFacts:
        return PublicFacts(self.mass + self.padding, padded=self.padding > 0, norms=self.norms)

    def make(self, progress: float) -> Construction:
        return construct(self.parsed, self.of.space, self.facts, progress, self.queries)


def rows() -> Iterable[Row]:
    for step in ("projection", "paper"):
        yield from entropic({"construction": "mw", "step": step})
        entropy = {"construction": "md", "step": step, "potential": "entropy"}
        if step == "paper":
            yield from entropic(entropy)
        else:
            yield Row(entropy, STARS, mass_kept=True)
            yield Row(entropy, QUARTERS, padding=3.0)
        # What an exponent is found from is all that it has of its own: a number of cells, or one of rows.
        yield from mirrors(step, "auto", (QUARTERS, STARS))
        yield from mirrors(step, 1.5, SPACES)
        yield from balls(step)
        smw = {"construction": "smw", "step": step, "sparsity": 3}
        yield Row(smw, COUNTS, coarse=16.0)
        yield Row(smw, COUNTS, padding=9.0, coarse=16.0)
        yield from medians(step)
    for step in ("full", "refit"):
        # Mirror descent's entropy differs from these in the paper's step alone.
        yield from entropic({"construction": "mw", "step": step})
        yield Row({"construction": "md", "step": step, "potential": "entropy"}, QUARTERS, padding=3.0)
        # A full step is a projection to another target; a refit sees weights of cells, of one sign or both.
        yield from mirrors(step, 1.5, (SKEWED, QUARTERS, EITHER))


def entropic(mechanism: dict[str, Any]) -> Iterator[Row]:
    """The weights of cells: every space whose entries have one sign."""
    for of in SPACES:
        if not of.space.signed:
            yield Row(mechanism, of, mass_kept=True)
    yield Row(mechanism, SKEWED, padding=25.0)
    yield Row(mechanism, QUARTERS, padding=3.0)
    yield Row(mechanism, STARS, padding=4.0)


def mirrors(step: str, p: Any, spaces: Sequence[Cells]) -> Iterator[Row]:
    """Frieze/Kannan, and mirror descent in each geometry without a ball."""
    md = {"construction": "md", "step": step, "ball_p": "none"}
    for of in spaces:
        if p != "auto":
            yield Row({"construction": "fk", "step": step}, of)
        yield Row({**md, "potential": "lp", "p": p}, of)
        yield Row({**md, "potential": "group", "axis": "rows", "p": p}, of)
        yield Row({**md, "potential": "group", "axis": "columns", "p": p}, of)
        yield Row({**md, "potential": "schatten", "p": p}, of)


def balls(step: str) -> Iterator[Row]:
    """Norms that are public, or that were bought, hold the hypothesis in: the potential's own, and another."""
    md = {"construction": "md", "step": step, "p": 1.5}
    yield Row({**md, "potential": "lp"}, ARCS)
    yield Row({**md, "potential": "lp", "ball_p": 1.25}, STARS, norms={"lp:1.25": 40.0})
    yield Row({**md, "potential": "lp"}, EITHER, norms={"lp:1.5": 16.0})
    yield Row({**md, "potential": "group", "axis": "rows", "ball_p": 1.25}, EDGES, norms={"group:rows:1.25": 6.0})
    yield Row({**md, "potential": "group", "axis": "columns"}, SKEWED, norms={"group:columns:1.5": 60.0})
    yield Row({**md, "potential": "schatten"}, EITHER, norms={"schatten:1.5": 14.0})
    yield Row({**md, "potential": "schatten", "ball_p": 1.75}, QUARTERS, norms={"schatten:1.75": 5.0})


def medians(step: str) -> Iterator[Row]:
    for sampled in (False, True):
        median = {"construction": "median", "step": step, "sampled": sampled}
        yield Row(median, THREE, mass_kept=True, queries=8, coarse=10.0)
        yield Row(median, THREE, padding=0.25, queries=8, coarse=8.0)
        yield Row(median, FOUR, mass_kept=True, queries=8, coarse=8.0)
        yield Row(median, TWO, mass_kept=True, queries=8, coarse=16.0)


ROWS = list(rows())


def only(holds: Callable[[Row], bool]) -> pytest.MarkDecorator:
    """The rows a rule is about; for the others there is nothing to hold."""
    chosen = [r for r in ROWS if holds(r)]
    return pytest.mark.parametrize("row", chosen, ids=[r.name for r in chosen])


every = only(lambda _: True)


def spread(holds: Callable[[Row], bool]) -> pytest.MarkDecorator:
    """Of those rows two of each mechanism, on spaces that take turns: for rules whose cases repeat one another, as a
    mechanism's code and a space's meet in updates and answers, which other rules hold on all rows."""
    mechanisms: dict[tuple[Any, ...], list[Row]] = {}
    for row in filter(holds, ROWS):
        mechanisms.setdefault(tuple(row.mechanism.items()), []).append(row)
    chosen = {
        of[(place + half) % len(of)] for place, of in enumerate(mechanisms.values()) for half in (0, len(of) // 2)
    }
    return only(lambda row: row in chosen)


# --------------------------------------------------------------------------------------------------- the queries


def every_form(u: Universe) -> list[Words]:
    """One weighted and one 0/1 query of every form the space takes."""
    cells, shape = u.cells, u.space.shape
    ramp = np.zeros(shape)
    for i, cell in enumerate(cells):
        ramp[cell] = (i - 2) / len(cells)
        if u.undirected:
            ramp[cell[::-1]] = ramp[cell]
    found: list[Words] = [
        {"type": "sparse", "indices": [list(cells[1]), list(cells[-1])], "weights": [1.0, 1.0]},
        {"type": "sparse", "indices": [list(cells[0]), list(cells[2])], "weights": [0.5, -0.75]},
        {"type": "dense", "weights": ramp.tolist()},
        {"type": "dense", "weights": np.abs(ramp).tolist()},
    ]
    if u.declared["kind"] == "table":
        last = shape[0] - 1
        found += [
            {"type": "predicate", "where": {"x": {"in": [0, last]}}},
            {"type": "product", "weights": {"x": [-0.5, 0.25, 1.0][: shape[0]]}},
        ]
        if len(shape) == 2:
            found += [
                {"type": "predicate", "where": {"x": {"equals": 1}, "y": {"between": [0, 1]}}},
                {
                    "type": "product",
                    "weights": {"x": [-0.5, 0.25, 1.0][: shape[0]], "y": [0.125, 0.5, 0.75][: shape[1]]},
                },
            ]
    else:
        low = 0.0 if u.undirected else -1.0
        found += [
            {"type": "cut", "left": [0, 2], "right": [1, 2]},
            {"type": "cut", "left": [0], "right": "all"},
            {"type": "rank_one", "left": np.linspace(low, 1, shape[0]).tolist(), "right": [0.5] * shape[1]},
            {"type": "rank_one", "left": [1.0] * shape[0], "right": np.linspace(1, low, shape[1]).tolist()},
        ]
    return found


def worst_queries(u: Universe) -> list[Words]:
    """What an adversary chooses from: all predicates or cuts, all products of signs, a few weighted forms."""
    shape = u.space.shape
    subsets = [[[i for i in range(n) if mask >> i & 1] for mask in range(1, 2**n)] for n in shape]
    words: list[Words] = []
    for sides in itertools.product(*subsets):
        if u.declared["kind"] == "table":
            words.append(
                {"type": "predicate", "where": {n: {"in": side} for n, side in zip("xy", sides, strict=False)}}
            )
        elif not u.undirected or sides[0] <= sides[1]:
            words.append({"type": "cut", "left": sides[0], "right": sides[1]})
    # A query and its opposite have opposite gaps: the first sign is plus.
    sides_of_signs = [[(1.0, *s) for s in itertools.product((1.0, -1.0), repeat=n - 1)] for n in shape]
    if u.undirected:
        for s in sides_of_signs[0]:
            words.append({"type": "dense", "weights": (np.outer(s, s) - np.eye(len(s))).tolist()})
    else:
        words += [signed_product(u, [list(s) for s in signs]) for signs in itertools.product(*sides_of_signs)]
    return [*words, *every_form(u)]


def signed_product(u: Universe, sides: list[list[float]]) -> Words:
    """A product of weights along the axes, in the space's own words."""
    if u.declared["kind"] == "table":
        return {"type": "product", "weights": dict(zip("xy", sides, strict=False))}
    return {"type": "rank_one", "left": sides[0], "right": sides[1]}


# ------------------------------------------------------------------------------------- hypotheses and what they say


def counts(hypothesis: Hypothesis) -> Vector:
    """All numbers of a hypothesis."""
    if isinstance(hypothesis, DenseHypothesis):
        return hypothesis.array
    return np.append(hypothesis.counts, hypothesis.other)


def diagonal_weights(query: Query, nodes: int) -> Vector:
    """What a query of an undirected graph, seen as the matrix ``(u v' + v u' - w w')/2``, weighs the diagonal."""
    if not isinstance(query, CompiledPair):
        return np.zeros(nodes)
    u, v, w = (axis.real_vector() for axis in (query.left, query.right, query.both))
    result: Vector = u * v - w**2 / 2
    return result


def told_diagonal(of: Cells, construction: Construction, state: Any) -> Vector:
    """The diagonal of an undirected graph's hypothesis, told by answers: that of the pair {i, j} as a cut within its
    two nodes is ``h_ij + (h_ii + h_jj)/2``, and h_ij is exported."""
    sides = np.zeros((len(of.u.cells), of.space.shape[0]))
    for nodes in of.places:
        sides[np.arange(len(sides)), nodes] = 0.5
    answers = np.array([construction.answer(state, pair) for pair in _pairs(of.u)])
    return np.asarray(np.linalg.lstsq(sides, answers - of.listed(construction.export(state)), rcond=None)[0])


class Teller:
    """What a public hypothesis answers to some queries, counted cell by cell (or element by element) from its export.

    Of mirror descent in Schatten geometry an undirected graph's hypothesis has a diagonal, which is not exported;
    answers tell it, and it is counted where a query's matrix meets it.
    """

    def __init__(self, row: Row, queries: list[Query]) -> None:
        self.row, self.queries = row, queries
        if isinstance(row.of, Cells):
            self.weights = np.stack([row.of.weights(query) for query in queries])
            if row.unlike_export:
                self.diagonals = np.stack([diagonal_weights(query, row.of.space.shape[0]) for query in queries])
        else:
            listed = [row.of.weights(query) for query in queries]
            self.names = sorted(set().union(*listed))
            self.weights = np.array([[weights.get(name, 0.0) for name in self.names] for weights in listed])

    def __call__(self, construction: Construction, state: Any) -> Vector:
        of, h = self.row.of, construction.export(state)
        if isinstance(of, Elements):
            assert isinstance(h, ListedHypothesis)
            known = dict(zip(h.elements, h.counts.tolist(), strict=True))
            return np.asarray(self.weights @ np.array([known.get(name, h.other) for name in self.names]))
        answers: Vector = self.weights @ of.listed(h)
        if self.row.unlike_export:
            answers += self.diagonals @ told_diagonal(of, construction, state)
        return answers


def digest(construction: Construction, state: Any) -> bytes:
    """Every bit of a state, as it would be kept."""
    dump = construction.dump(state)
    arrays = (f"{name}{array.dtype}{array.shape}".encode() + array.tobytes() for name, array in dump.arrays.items())
    return repr(dump.words).encode() + b"".join(arrays)


def played(row: Row, progress: float) -> tuple[Construction, Any, list[MeasuredQuery]]:
    """A construction after updates on every form in turn, with measurements on either side of the truth."""
    construction = row.make(progress)
    state, taken = construction.start(), []
    forms = row.of.forms()
    for i in range(25):
        query = forms[i % len(forms)]
        value = row.of.truth(query) + ((i * 7) % 5 - 2) * 0.3
        if abs(value - construction.answer(state, query)) > 0.7:
            taken.append(MeasuredQuery(query, value, 0.6))
            construction.update(state, taken[-1])
    return construction, state, taken


#: The same, played once: for those who only look at the state.
seen = cache(played)


def with_step(row: Row, step: str) -> Row:
    """The same row with another step."""
    return replace(row, mechanism={**row.mechanism, "step": step})
