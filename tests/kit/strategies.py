"""Small spaces, private data, neighbours and queries, with answers that no code of the service had a hand in.

:func:`asked` expands a query's words cell by cell into exact fractions; it reads the contract's words and the
declaration, never the compiler. Everything is small enough for plain Python to be the judge.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csr_array

from app.curator.mechanisms.protocol import Answer, Source
from app.declarations.spec import parse_spec
from app.spaces.factory import space_of
from app.spaces.queries.registry import parse_query
from app.spaces.query import Query
from app.spaces.space import Space
from app.storage.readers.types import integer_type

BUDGET = {"epsilon": 1.0, "delta": 1e-6}

#: Weights worth asking: 0 and 1, dyadic ones (exact on any grid), ones that round, ones that round to nothing.
UNIT_WEIGHTS = st.one_of(
    st.sampled_from([0.0, 1.0, 0.5, 0.25, 1 / 3, 1e-9, 1 - 2.0**-21, 2.0**-20, 2.0**-21, 5e-324]),
    st.floats(0, 1),
)
WEIGHTS = st.one_of(UNIT_WEIGHTS, UNIT_WEIGHTS.map(lambda w: -w))

Words = dict[str, Any]


def bits(length: int) -> st.SearchStrategy[list[float]]:
    """Any 0/1 vector, each as likely as another: lists of draws would nearly always be short on ones."""
    return st.integers(0, 2**length - 1).map(lambda mask: [float(mask >> i & 1) for i in range(length)])


def reals(length: int, low: float) -> st.SearchStrategy[list[float]]:
    """Ordinary weights in [low, 1], some of them 0 and 1, half of the time eighths; or a list of odd ones."""

    def ordinary(seed: int) -> list[float]:
        random = Random(seed)
        eighths = random.random() < 0.5
        drawn = [random.choice([0.0, 1.0, *(random.uniform(low, 1) for _ in range(3))]) for _ in range(length)]
        return [round(8 * w) / 8 for w in drawn] if eighths else drawn

    odd = st.lists(UNIT_WEIGHTS if low == 0 else WEIGHTS, min_size=length, max_size=length)
    return st.one_of(st.integers(0, 10**6).map(ordinary), odd)


@dataclass(frozen=True)
class Universe:
    """A declaration, the space the service makes of it, and its cells as tuples."""

    declared: Words
    space: Space

    def __repr__(self) -> str:
        return f"Universe({self.declared!r})"

    @property
    def undirected(self) -> bool:
        return self.declared["kind"] == "graph" and not self.declared.get("directed", False)

    @cached_property
    def cells(self) -> list[tuple[int, ...]]:
        """The universe: of an undirected graph the pairs i < j."""
        cells = itertools.product(*(range(n) for n in self.space.shape))
        return [c for c in cells if c[0] < c[1]] if self.undirected else list(cells)

    def compiled(self, words: Words) -> Query:
        return parse_query(words).compiled(self.space)

    def weights(self, query: Query) -> dict[tuple[int, ...], Fraction]:
        """What a compiled query weighs each cell, told by its exact answers on single cells."""
        grid = 1 << query.grid_bits
        return {cell: Fraction(query.exact(single), grid) for cell, single in self._singles.items()}

    @cached_property
    def _singles(self) -> dict[tuple[int, ...], Any]:
        """For each cell the private data in which it alone holds one unit."""
        return {cell: self.space.tensor(self.array({cell: 1})) for cell in self.cells}

    def array(self, values: dict[tuple[int, ...], int]) -> np.ndarray:
        """The private array that holds these data units."""
        array = np.zeros(self.space.shape, dtype=np.int64)
        for cell, value in values.items():
            array[cell] = value
            if self.undirected:
                array[cell[::-1]] = value
        return array

    def tensors(self, array: np.ndarray) -> list[Any]:
        """The array in every layout the vault may hold it in."""
        narrow = array.astype(integer_type(int(array.min(initial=0)), int(array.max(initial=0))))
        found = [self.space.tensor(array), self.space.tensor(narrow), self.space.tensor(array.astype(np.float64))]
        if array.ndim == 2 and self.space.kind != "table":
            found.append(self.space.tensor(csr_array(narrow)))
        # Float arrays are hypotheses: only integers are private data.
        return [t for t in found if getattr(t, "exact", True)]


def universe(declared: Words) -> Universe:
    return Universe(declared, space_of(parse_spec(declared)))


# ------------------------------------------------------------------------------------------------ declarations


@st.composite
def attributes(draw: st.DrawFn, name: str) -> Words:
    match draw(st.sampled_from(["size", "values", "integers", "bins", "edges"])):
        case "size":
            return {"name": name, "size": draw(st.sampled_from([3, 4, 2, 1]))}
        case "values":
            pool = st.lists(
                st.one_of(st.sampled_from(["a", "b", "cé", "", "10"]), st.integers(0, 9)),
                min_size=1,
                max_size=4,
                unique_by=str,
            )
            return {"name": name, "values": draw(pool)}
        case "integers":
            lower = draw(st.integers(-3, 3))
            return {"name": name, "lower": lower, "upper": lower + draw(st.integers(1, 4))}
        case "bins":
            bins = draw(st.integers(1, 4))
            lower = draw(st.integers(-2, 2)) / 10
            return {"name": name, "lower": lower, "upper": round(lower + bins / 10, 10), "bins": bins}
        case _:
            edges = draw(st.lists(st.integers(-9, 9), min_size=2, max_size=5, unique=True))
            return {"name": name, "edges": [e / 10 for e in sorted(edges)]}


@st.composite
def tables(draw: st.DrawFn) -> Universe:
    count = draw(st.sampled_from([2, 3, 1]))
    declared: Words = {
        "name": "t",
        "kind": "table",
        "attributes": [draw(attributes(f"x{i}")) for i in range(count)],
        "budget": BUDGET,
    }
    capacity = draw(st.sampled_from([None, 50, 2**20, 2**33, 2**40]))
    return universe(declared if capacity is None else declared | {"capacity": capacity})


def _grids(draw: st.DrawFn) -> Words:
    if not draw(st.booleans()):
        return {}
    return {"weighted": True, "grid": draw(st.sampled_from([1.0, 0.25, 2.0**-10, 2.0**-20]))}


@st.composite
def bipartites(draw: st.DrawFn) -> Universe:
    left, right = draw(st.sampled_from([4, 3, 5, 2, 1])), draw(st.sampled_from([3, 4, 5, 2, 1]))
    declared = {"name": "b", "kind": "bipartite", "left": left, "right": right, "budget": BUDGET} | _grids(draw)
    if draw(st.booleans()):
        declared |= {"left_labels": [f"u{i}" for i in range(left)], "right_labels": [f"é{i}" for i in range(right)]}
    return universe(declared)


@st.composite
def graphs(draw: st.DrawFn, directed: bool | None = None) -> Universe:
    nodes = draw(st.sampled_from([5, 4, 3, 6, 2]))
    directed = draw(st.booleans()) if directed is None else directed
    declared = {"name": "g", "kind": "graph", "nodes": nodes, "directed": directed, "budget": BUDGET} | _grids(draw)
    if draw(st.booleans()):
        declared["labels"] = [str(10 * i) for i in range(nodes)]
    return universe(declared)


@st.composite
def matrices(draw: st.DrawFn) -> Universe:
    grid = draw(st.sampled_from([1.0, 0.25, 2.0**-10, 2.0**-20]))
    whole = round(1 / grid)
    lower, upper = sorted(draw(st.lists(st.integers(-5 * whole, 5 * whole), min_size=2, max_size=2, unique=True)))
    shape = {"rows": draw(st.integers(1, 5)), "columns": draw(st.integers(1, 5))}
    bounds = {"lower": lower * grid, "upper": upper * grid, "grid": grid}
    return universe({"name": "m", "kind": "matrix", "budget": BUDGET} | shape | bounds)


def universes() -> st.SearchStrategy[Universe]:
    return st.one_of(tables(), bipartites(), graphs(directed=True), graphs(directed=False), matrices())


# ------------------------------------------------------------------------------------------------ private data


@st.composite
def data(draw: st.DrawFn, u: Universe) -> dict[tuple[int, ...], int]:
    """Data units by cell: counts within the capacity, or edge weights on their grid (loops hold nothing)."""
    cells = u.cells
    if u.declared["kind"] == "table":
        most = max(1, u.space.capacity // len(cells))
        low, high, values = 0, min(9, most), st.one_of(st.integers(0, min(9, most)), st.just(most))
    elif u.declared["kind"] == "matrix":
        low, high = matrix_bounds(u)
        values = entries(u)
    else:
        low, high = 0, 1 << u.space.data_bits
        values = st.one_of(st.sampled_from([low, high]), st.integers(low, high))
        if u.declared["kind"] == "graph":
            cells = [c for c in cells if c[0] != c[1]]
    if draw(st.booleans()):
        # Ordinary data: hardly two cells alike.
        random = Random(draw(st.integers(0, 10**6)))
        return {cell: random.randint(low, high) for cell in cells}
    return {cell: draw(values) for cell in cells}


def matrix_bounds(u: Universe) -> tuple[int, int]:
    """Least and largest entry in data units."""
    low, high = (round(u.declared[bound] / u.declared["grid"]) for bound in ("lower", "upper"))
    return low, high


def entries(u: Universe) -> st.SearchStrategy[int]:
    """Data units that a matrix' bounds allow, both bounds often."""
    low, high = matrix_bounds(u)
    return st.one_of(st.sampled_from([low, high]), st.integers(low, high))


@st.composite
def neighbours(draw: st.DrawFn, u: Universe) -> tuple[dict[tuple[int, ...], int], dict[tuple[int, ...], int]]:
    """Two data sets a privacy unit apart: one record added, or one edge's weight or one entry changed."""
    x = draw(data(u))
    cell = draw(st.sampled_from(sorted(x)))
    other = dict(x)
    if u.declared["kind"] == "table":
        x[cell] -= x[cell] > 0
        other[cell] = x[cell] + 1
    elif u.declared["kind"] == "matrix":
        other[cell] = draw(entries(u))
    else:
        other[cell] = draw(st.integers(0, 1 << u.space.data_bits))
    return x, other


# ----------------------------------------------------------------------------------------------------- queries


def bin_edges(attribute: Words) -> list[Fraction]:
    """Edges of a numeric attribute from its declaration, as written in decimal."""
    if "edges" in attribute:
        return [Fraction(repr(e)) for e in attribute["edges"]]
    low, high = Fraction(repr(attribute["lower"])), Fraction(repr(attribute["upper"]))
    bins = attribute.get("bins", int(high - low))
    return [low + i * (high - low) / bins for i in range(bins + 1)]


@st.composite
def conditions(draw: st.DrawFn, attribute: Words) -> Words:
    if "size" in attribute:
        size = attribute["size"]
        match draw(st.sampled_from(["equals", "in", "between"])):
            case "equals":
                return {"equals": draw(st.integers(0, size - 1))}
            case "in":
                return {"in": draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))}
            case _:
                return {"between": sorted(draw(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))))}
    if "values" in attribute:
        if draw(st.booleans()):
            return {"equals": draw(st.sampled_from(attribute["values"]))}
        return {"in": draw(st.lists(st.sampled_from(attribute["values"]), min_size=1, max_size=5))}
    edges = [float(e) for e in bin_edges(attribute)]
    first = draw(st.integers(0, len(edges) - 2))
    return {"between": [edges[first], edges[draw(st.integers(first + 1, len(edges) - 1))]]}


@st.composite
def queries(draw: st.DrawFn, u: Universe) -> Words:
    """A query of any form that fits the space."""
    shape, kind = u.space.shape, u.declared["kind"]
    forms = ["sparse", "sparse_nested", "dense", "dense_flat", "dense_bits"]
    forms += (
        ["predicate", "product", "product", "either"]
        if kind == "table"
        else ["cut", "cut", "rank_one", "rank_one_bits"]
    )
    form = draw(st.sampled_from(forms))
    match form:
        case "predicate":
            chosen = draw(st.lists(st.sampled_from(u.declared["attributes"]), unique_by=lambda a: a["name"]))
            return {"type": "predicate", "where": {a["name"]: draw(conditions(a)) for a in chosen}}
        case "either":
            chosen = draw(st.lists(st.sampled_from(u.declared["attributes"]), min_size=1, max_size=3))
            return {"type": "predicate", "where": {"any": [{a["name"]: draw(conditions(a))} for a in chosen]}}
        case "product":
            axes = draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
            return {"type": "product", "weights": {f"x{i}": draw(_weights(shape[i])) for i in axes}}
        case "cut":
            left, right = ("labels", "labels") if kind == "graph" else ("left_labels", "right_labels")
            return {"type": "cut", "left": draw(_side(u, 0, left)), "right": draw(_side(u, 1, right))}
        case "rank_one" | "rank_one_bits":
            low = 0.0 if u.undirected else -1.0
            sides = [draw(bits(n) if form == "rank_one_bits" else reals(n, low)) for n in shape]
            return {"type": "rank_one", "left": sides[0], "right": sides[1]}
        case "sparse" | "sparse_nested":
            least = min(draw(st.integers(0, 2)), len(u.cells))
            cells = draw(st.lists(st.sampled_from(u.cells), unique=True, min_size=least, max_size=8))
            if u.undirected:
                cells = [c[::-1] if draw(st.booleans()) else c for c in cells]
            weights = [1.0] * len(cells) if draw(st.booleans()) else draw(reals(len(cells), -1.0))
            flat = [int(np.ravel_multi_index(c, shape)) for c in cells]
            indices: Any = flat if form == "sparse" else [list(c) for c in cells]
            return {"type": "sparse", "indices": indices, "weights": weights}
    weights = np.zeros(shape)
    values = draw(bits(len(u.cells)) if form == "dense_bits" else reals(len(u.cells), -1.0))
    for cell, value in zip(u.cells, values, strict=True):
        weights[cell] = value
        if u.undirected:
            weights[cell[::-1]] = weights[cell]
    return {"type": "dense", "weights": (weights.reshape(-1) if form == "dense_flat" else weights).tolist()}


def _weights(length: int) -> st.SearchStrategy[list[float]]:
    return st.one_of(reals(length, -1.0), bits(length), st.just([1.0] * length))


@st.composite
def _side(draw: st.DrawFn, u: Universe, axis: int, labels: str) -> Any:
    if draw(st.integers(0, 5)) == 0:
        return "all"
    names = u.declared.get(labels, list(range(u.space.shape[axis])))
    chosen = [name for name, on in zip(names, draw(bits(len(names))), strict=True) if on]
    again = chosen[: draw(st.integers(0, 2))]  # ids may be repeated and come in any order
    return draw(st.permutations(chosen + again))


# ------------------------------------------------------------------------------------ what the words ask, exactly


def asked(u: Universe, words: Words) -> dict[tuple[int, ...], Fraction]:
    """The weight of every cell that the words ask for."""
    weigh = {"predicate": _predicate, "product": _product, "cut": _cut, "rank_one": _rank_one}.get(words["type"])
    if weigh is not None:
        return {cell: weigh(u, words, cell) for cell in u.cells}
    found = dict.fromkeys(u.cells, Fraction(0))
    shape = u.space.shape
    if words["type"] == "sparse":
        for index, weight in zip(words["indices"], words["weights"], strict=True):
            cell = tuple(index) if isinstance(index, list) else _unravel(index, shape)
            found[tuple(sorted(cell)) if u.undirected else cell] = Fraction(weight)
        return found
    flat = words["weights"]
    while isinstance(flat[0], list):
        flat = [w for part in flat for w in part]
    return {cell: Fraction(flat[_ravel(cell, shape)]) for cell in u.cells}


def _ravel(cell: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return sum(i * math.prod(shape[axis + 1 :]) for axis, i in enumerate(cell))


def _unravel(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return next(c for c in itertools.product(*(range(n) for n in shape)) if _ravel(c, shape) == index)


def _predicate(u: Universe, words: Words, cell: tuple[int, ...]) -> Fraction:
    if "any" in words["where"]:
        return max(_predicate(u, {"where": part}, cell) for part in words["where"]["any"])
    for axis, attribute in enumerate(u.declared["attributes"]):
        condition = words["where"].get(attribute["name"])
        if condition is not None and not _satisfies(attribute, condition, cell[axis]):
            return Fraction(0)
    return Fraction(1)


def _satisfies(attribute: Words, condition: Words, place: int) -> bool:
    if "size" in attribute or "values" in attribute:
        value = place if "size" in attribute else attribute["values"][place]
        if "between" in condition:
            low, high = condition["between"]
            return bool(low <= value <= high)
        return value in (condition["in"] if "in" in condition else [condition["equals"]])
    edges = bin_edges(attribute)
    low, high = (Fraction(repr(v)) for v in condition["between"])
    return low <= edges[place] and edges[place + 1] <= high


def _product(u: Universe, words: Words, cell: tuple[int, ...]) -> Fraction:
    names = [a["name"] for a in u.declared["attributes"]]
    return math.prod((Fraction(w[cell[names.index(n)]]) for n, w in words["weights"].items()), start=Fraction(1))


def _cut(u: Universe, words: Words, cell: tuple[int, ...]) -> Fraction:
    left, right = ("labels", "labels") if u.declared["kind"] == "graph" else ("left_labels", "right_labels")

    def within(asked: Any, labels: str, node: int) -> bool:
        return asked == "all" or u.declared.get(labels, range(10**6))[node] in asked

    i, j = cell
    s_i, t_j = within(words["left"], left, i), within(words["right"], right, j)
    if not u.undirected:
        return Fraction(s_i and t_j)
    s_j, t_i = within(words["left"], left, j), within(words["right"], right, i)
    return Fraction((s_i and t_j) or (s_j and t_i))


def _rank_one(u: Universe, words: Words, cell: tuple[int, ...]) -> Fraction:
    left, right = ([Fraction(w) for w in words[side]] for side in ("left", "right"))
    i, j = cell
    if not u.undirected:
        return left[i] * right[j]
    return 1 - (1 - left[i] * right[j]) * (1 - left[j] * right[i])


def answer(weights: dict[tuple[int, ...], Fraction], x: dict[tuple[int, ...], int]) -> Fraction:
    """<f, x> in data units, exactly."""
    return sum((weights[cell] * value for cell, value in x.items()), start=Fraction(0))


def released(units: int, source: Source, error_bound: float | None) -> Answer:
    """An answer of one value, in units of the answer grid."""
    return Answer(np.array([units], np.int64), source, error_bound)


def told(answer: Answer) -> tuple[Any, ...]:
    """All that an answer says."""
    return answer.units.tolist(), answer.source, answer.error_bound, answer.unverified
