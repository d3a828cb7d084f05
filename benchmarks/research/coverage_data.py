"""What coverage is measured on: small data sets of every shape, questions of every kind, and what is true of them.

What is true is counted here by itself, from the records or from the adjacency matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.spaces.counts import ExactCounts
from app.spaces.dense import CountsTensor
from app.spaces.partition import Partition
from app.spaces.records import RecordsTensor
from app.spaces.tensor import Array, FloatArray, IntArray

#: The numbers of the attribute ``value``: from 0 up to and with this.
HIGHEST = 50
NODES = 16
#: Entries of a matrix lie between 0 and this.
LARGEST = 5


@dataclass(frozen=True)
class Asked:
    """A question.

    Attributes:
        kind: of question.
        words: as a request has them.
        truth: the true answers of a world, in the order that people read; NaN where there is none.
    """

    kind: str
    words: Mapping[str, Any]
    truth: Callable[[Any], FloatArray]


@dataclass(frozen=True, eq=False)
class TableWorld:
    """A table of a group, a flag and a number of each record, which may be missing.

    Attributes:
        columns: of each the place of its value; a missing number has the place behind the last.
        missing: whether numbers may be missing.
        public: whether the number of records is.
        bins: in how many of these numbers are counted at first; None: one by one.
    """

    columns: tuple[IntArray, IntArray, IntArray]
    missing: bool = False
    public: bool = True
    bins: int | None = None

    @property
    def declared(self) -> dict[str, Any]:
        """Its declaration."""
        value: dict[str, Any] = {"name": "value", "lower": 0, "upper": HIGHEST, "grid": 1, "missing": self.missing}
        if self.bins is not None:
            value["bins"] = self.bins
        attributes = [{"name": "group", "size": 3}, {"name": "flag", "size": 2}, value]
        return {"kind": "table", "attributes": attributes, "records_public": self.public, "capacity": 10_000}

    @property
    def data(self) -> ExactCounts:
        """The records."""
        return RecordsTensor(self.columns, (3, 2, HIGHEST + 1 + self.missing))

    @property
    def records(self) -> float | None:
        """How many there are, where that is public."""
        return float(len(self.columns[0])) if self.public else None


def table(name: str) -> TableWorld:
    """A table: even, skewed, ties, empty, tiny, missing, or bound, where every number is the largest that there can be.

    Raises:
        KeyError: for another name.
    """
    n = {"even": 408, "skewed": 400, "ties": 400, "empty": 0, "tiny": 12, "missing": 400, "bound": 400}[name]
    rng, every = np.random.default_rng(len(name)), np.arange(n)
    # Even: every combination of a group, a flag and a number has 4/3 records or about as many.
    group, flag, value = every % 3, every // 3 % 2, every // 2 % (HIGHEST + 1)
    if name in ("skewed", "missing"):
        group = rng.choice(3, n, p=[0.9, 0.08, 0.02])
        flag = (rng.random(n) < 0.2).astype(np.int64)
        value = np.minimum(rng.geometric(0.15, n) - 1 + 6 * group, HIGHEST)
    elif name == "ties":
        # One less than a quarter are at the lower number: the quartile lies behind many numbers that nobody has.
        value = np.where((every % 4 == 0) & (every > 0), 2, 48)
    elif name == "tiny":
        value = rng.integers(0, HIGHEST + 1, n)
    elif name == "bound":
        group, flag, value = 0 * every + 2, 0 * every + 1, 0 * every + HIGHEST
    if name == "missing":
        value = np.where(rng.random(n) < 0.3, HIGHEST + 1, value)
    bins = 10 if name in ("even", "bound") else None
    return TableWorld((group, flag, value), name == "missing", name not in ("empty", "tiny", "missing"), bins)


def _each(
    of: Callable[[FloatArray], list[float]], by: int | None = None, flag: int | None = None
) -> Callable[[TableWorld], FloatArray]:
    """A statistic of the numbers there are, by an attribute or of all, of one flag or both."""

    def truth(world: TableWorld) -> FloatArray:
        value = world.columns[2]
        kept = value <= HIGHEST
        if flag is not None:
            kept &= world.columns[1] == flag
        groups = [kept] if by is None else [kept & (world.columns[by] == cell) for cell in range((3, 2)[by])]
        return np.concatenate([of(np.sort(value[own]).astype(np.float64)) for own in groups])

    return truth


def _quantiles(*levels: float) -> Callable[[FloatArray], list[float]]:
    def of(own: FloatArray) -> list[float]:
        if not len(own):
            return [math.nan] * len(levels)
        return [float(own[max(0, math.ceil(q * len(own)) - 1)]) for q in levels]

    return of


def _mean(own: FloatArray) -> list[float]:
    return [float(own.mean()) if len(own) else math.nan]


def _variance(own: FloatArray) -> list[float]:
    return [float(own.var()) if len(own) else math.nan]


def _counted(of: Callable[[IntArray, IntArray, IntArray], Any]) -> Callable[[TableWorld], FloatArray]:
    return lambda world: np.atleast_1d(np.asarray(of(*world.columns), np.float64))


def _cells(group: IntArray, flag: IntArray, value: IntArray) -> list[int]:
    return [int(((group == a) & (flag == b)).sum()) for a in range(3) for b in range(2)]


def _share(
    of: Callable[[IntArray, IntArray, IntArray], Any], by: int | None = None
) -> Callable[[TableWorld], FloatArray]:
    """The part of the records that satisfies something, of all or by an attribute."""

    def truth(world: TableWorld) -> FloatArray:
        kept = np.asarray(of(*world.columns))
        groups = [slice(None)] if by is None else [world.columns[by] == cell for cell in range((3, 2)[by])]
        return np.array([kept[own].mean() if len(kept[own]) else math.nan for own in groups])

    return truth


def _upper(group: IntArray, flag: IntArray, value: IntArray) -> list[int]:
    return [int(((group == a) & (value >= HIGHEST // 2) & (value <= HIGHEST)).sum()) for a in range(3)]


#: Of counts, which every mechanism of tables answers.
COUNTS = (
    Asked(
        "one cell",
        {"type": "predicate", "where": {"group": 1, "flag": 1, "value": 48}},
        _counted(lambda g, f, v: ((g == 1) & (f == 1) & (v == 48)).sum()),
    ),
    Asked("predicate", {"type": "predicate", "where": {"group": [0, 1]}}, _counted(lambda g, f, v: (g < 2).sum())),
    Asked(
        "range",
        {"type": "predicate", "where": {"value": {"ge": 7, "lt": 33}}},
        _counted(lambda g, f, v: ((v >= 7) & (v < 33)).sum()),
    ),
    Asked("marginal", {"type": "marginal", "attributes": ["group", "flag"]}, _counted(_cells)),
    Asked(
        "marginal where",
        {"type": "marginal", "attributes": ["group"], "where": {"value": {"ge": HIGHEST // 2}}},
        _counted(_upper),
    ),
    Asked(
        "weights",
        {"type": "product", "weights": {"group": [0.25, 1.0, -0.5]}},
        _counted(lambda g, f, v: 0.25 * (g == 0).sum() + (g == 1).sum() - 0.5 * (g == 2).sum()),
    ),
)
STATISTICS = (
    Asked("sum", {"type": "sum", "of": "value"}, _each(lambda own: [own.sum()])),
    Asked("sum by", {"type": "sum", "of": "value", "group_by": ["flag"]}, _each(lambda own: [own.sum()], 1)),
    Asked("mean", {"type": "mean", "of": "value"}, _each(_mean)),
    Asked("mean where", {"type": "mean", "of": "value", "where": {"flag": 1}}, _each(_mean, None, 1)),
    Asked("mean by", {"type": "mean", "of": "value", "group_by": ["group"]}, _each(_mean, 0)),
    Asked("variance", {"type": "variance", "of": "value"}, _each(_variance)),
    Asked("variance by", {"type": "variance", "of": "value", "group_by": ["group"]}, _each(_variance, 0)),
    Asked("quantile", {"type": "quantile", "of": "value", "q": [0.25, 0.5, 0.75]}, _each(_quantiles(0.25, 0.5, 0.75))),
    Asked(
        "quantile by",
        {"type": "quantile", "of": "value", "q": 0.5, "group_by": ["flag"]},
        _each(_quantiles(0.5), 1),
    ),
    Asked("median", {"type": "quantile", "of": "value", "q": 0.5}, _each(_quantiles(0.5))),
    Asked("share", {"type": "share", "of": {"flag": 1, "group": [0, 1]}}, _share(lambda g, f, v: (f == 1) & (g < 2))),
    Asked(
        "share by",
        {"type": "share", "of": {"value": {"lt": HIGHEST // 2}}, "group_by": ["group"]},
        _share(lambda g, f, v: v < HIGHEST // 2, 0),
    ),
)
#: What a chosen question is chosen by.
NUMBERS = {"type": "marginal", "attributes": ["value"], "bins": {"value": list(range(HIGHEST + 1))}}


def counted(world: TableWorld, axes: tuple[int, ...], cells: tuple[Partition, ...]) -> FloatArray:
    """Records in the cells of some attributes, whose values are told apart as these partitions say."""
    found = np.zeros([part.cells for part in cells])
    np.add.at(found, tuple(part.labels[world.columns[a]] for a, part in zip(axes, cells, strict=True)), 1.0)
    return found


@dataclass(frozen=True, eq=False)
class GraphWorld:
    """An undirected graph, or a matrix, by its entries."""

    entries: IntArray
    matrix: bool = False

    @property
    def declared(self) -> dict[str, Any]:
        """Its declaration."""
        rows, columns = self.entries.shape
        if self.matrix:
            whole = {"lower": 0, "upper": LARGEST, "grid": 1.0}
            return {"kind": "matrix", "rows": rows, "columns": columns} | whole
        return {"kind": "graph", "nodes": rows}

    @property
    def data(self) -> ExactCounts:
        """The entries."""
        return CountsTensor(self.entries)

    def between(self, left: FloatArray, right: FloatArray) -> float:
        """The weight between two sets of nodes, or of weights on disjoint ones; an edge within both counts once."""
        weights = np.outer(left, right)
        if self.matrix:
            return float((weights * self.entries).sum())
        weights = np.maximum(weights, weights.T)
        return float((np.triu(self.entries, 1) * weights).sum())


def graph(name: str) -> GraphWorld:
    """A graph: even, skewed, ties, empty, tiny, or bound, where every pair is an edge.

    Raises:
        KeyError: for another name.
    """
    n = {"even": NODES, "skewed": NODES, "ties": NODES, "empty": NODES, "tiny": 4, "bound": NODES}[name]
    rng, places = np.random.default_rng(len(name)), np.arange(n)
    chances: FloatArray = np.full((n, n), {"even": 0.4, "tiny": 0.5, "bound": 1.0}.get(name, 0.0))
    if name == "skewed":
        chances = np.outer(1 / (1 + places), np.ones(n))
    elif name == "ties":
        chances = np.asarray(places[:, None] % 2 == places % 2, np.float64)
    upper = np.triu(rng.random((n, n)) < chances, 1)
    return GraphWorld((upper | upper.T).astype(np.int64))


def matrix(name: str) -> GraphWorld:
    """A matrix: even, skewed, ties, empty, tiny, or bound, where every entry is the largest that there can be.

    Raises:
        KeyError: for another name.
    """
    shape = {"even": (8, 6), "skewed": (8, 6), "ties": (8, 6), "empty": (8, 6), "tiny": (2, 2), "bound": (8, 6)}[name]
    rng = np.random.default_rng(len(name))
    entries = rng.integers(0, LARGEST + 1, shape)
    if name == "skewed":
        entries = np.minimum(rng.geometric(0.6, shape) - 1, LARGEST)
    elif name == "ties":
        entries = 2 + 0 * entries
    elif name in ("empty", "bound"):
        entries = 0 * entries + (LARGEST if name == "bound" else 0)
    return GraphWorld(entries, matrix=True)


def _ones(length: int, nodes: list[int]) -> FloatArray:
    made = np.zeros(length)
    made[nodes] = 1.0
    return made


def cut(kind: str, left: list[int], right: list[int]) -> Asked:
    """The weight between two sets of nodes."""

    def truth(world: GraphWorld) -> FloatArray:
        rows, columns = world.entries.shape
        return np.array([world.between(_ones(rows, left), _ones(columns, right))])

    return Asked(kind, {"type": "cut", "left": left, "right": right}, truth)


def blocks(kind: str, left: list[list[int]], right: list[list[int]] | None, *, within: bool = False) -> Asked:
    """The weight between groups of nodes."""
    words: dict[str, Any] = {"type": "blocks", "left": {f"l{k}": own for k, own in enumerate(left)}}
    if right is not None:
        words["right"] = {f"l{k}": own for k, own in enumerate(right)}
    if within:
        words["only"] = "within"
    others = left if right is None else right

    def truth(world: GraphWorld) -> FloatArray:
        rows, columns = world.entries.shape
        found = np.array([[world.between(_ones(rows, own), _ones(columns, other)) for other in others] for own in left])
        return np.diag(found) if within else found.reshape(-1)

    return Asked(kind, words, truth)


def _degrees(world: GraphWorld) -> FloatArray:
    degrees = world.entries.sum(axis=1)
    return np.array([(degrees == 0).sum(), ((degrees > 0) & (degrees < 5)).sum(), (degrees >= 5).sum()], np.float64)


def graph_questions(world: GraphWorld) -> list[Asked]:
    """Questions of every kind that graphs and matrices have."""
    rows, columns = world.entries.shape
    half, other = list(range(rows // 2)), list(range(columns // 2, columns))
    third = max(1, rows // 3)
    groups = [list(range(third)), list(range(third, 2 * third)), list(range(2 * third, rows))]
    across = None
    if world.matrix:
        across = [list(range(columns // 2)), other]
        groups = [half, list(range(rows // 2, rows))]
    # Weights on disjoint nodes: eighths.
    left = np.zeros(rows)
    left[: rows // 2] = (1 + np.arange(rows // 2) % 8) / 8
    right = np.zeros(columns)
    right[columns // 2 :] = 0.5
    if world.matrix:
        right[columns // 2] = -1.0
    found = [
        cut("cut", half, other),
        cut("pair", [0], [columns - 1]),
        cut("total", list(range(rows)), list(range(columns))),
        blocks("blocks", groups, across),
        blocks("blocks within", groups, across, within=True),
        Asked(
            "rank one",
            {"type": "rank_one", "left": left.tolist(), "right": right.tolist()},
            lambda world: np.array([world.between(left, right)]),
        ),
    ]
    if not world.matrix:
        found.append(Asked("degrees", {"type": "degrees", "bins": [0, 1, 5]}, _degrees))
    return found


def above(values: FloatArray) -> Array:
    """The places of those above the median: at least one."""
    chosen = values > np.median(values)
    return chosen if chosen.any() else values >= values.max()
