"""Data sets of the demonstration, with their declarations and their true answers."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]
#: A predicate as the demonstration holds it: for each named attribute the half-open range of its cells.
Cells = Mapping[str, tuple[int, int]]

BUDGET = {"epsilon": 1.0, "delta": 1e-9}


@dataclass(frozen=True)
class Axis(ABC):
    """One attribute: its name, its number of cells, and how the contract spells a range of cells.

    ``ordered`` tells whether neighbouring cells belong together, so that halving a range makes sense.
    """

    name: str
    cells: int
    ordered: bool

    @property
    @abstractmethod
    def declared(self) -> dict[str, Any]:
        """The attribute in the data set's declaration."""

    @abstractmethod
    def condition(self, low: int, high: int) -> dict[str, Any]:
        """The cells ``low`` to ``high - 1`` as a condition of a predicate."""


@dataclass(frozen=True)
class Coded(Axis):
    """Integer codes 0 to ``cells - 1``."""

    @property
    def declared(self) -> dict[str, Any]:
        """``size`` alone."""
        return {"name": self.name, "size": self.cells}

    def condition(self, low: int, high: int) -> dict[str, Any]:
        """``between`` on codes is inclusive."""
        return {"equals": low} if high == low + 1 else {"between": [low, high - 1]}


@dataclass(frozen=True)
class Named(Axis):
    """Categories by name."""

    values: tuple[str, ...]

    @property
    def declared(self) -> dict[str, Any]:
        """The ``values``."""
        return {"name": self.name, "values": list(self.values)}

    def condition(self, low: int, high: int) -> dict[str, Any]:
        """``in`` lists the names."""
        return {"in": list(self.values[low:high])}


@dataclass(frozen=True)
class Binned(Axis):
    """Numbers in bins with integer edges."""

    edges: tuple[int, ...]

    @property
    def declared(self) -> dict[str, Any]:
        """The ``edges``."""
        return {"name": self.name, "edges": list(self.edges)}

    def condition(self, low: int, high: int) -> dict[str, Any]:
        """``between`` on bins is half-open and falls on their edges."""
        return {"between": [self.edges[low], self.edges[high]]}


@dataclass(frozen=True)
class Table:
    """A table whose records are known: ``codes`` has a row a record and a column an attribute."""

    title: str
    name: str
    axes: tuple[Axis, ...]
    codes: Codes = field(repr=False)
    file: bytes = field(repr=False)
    filename: str = "records.csv"

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.codes)

    @property
    def cells(self) -> int:
        """Size of the universe."""
        return int(np.prod([axis.cells for axis in self.axes]))

    @property
    def spec(self) -> dict[str, Any]:
        """The declaration."""
        return {
            "name": self.name,
            "kind": "table",
            "attributes": [axis.declared for axis in self.axes],
            "records_public": True,
            "budget": BUDGET,
        }

    def truth(self, where: Cells) -> int:
        """How many records satisfy the predicate."""
        kept = np.ones(self.records, dtype=bool)
        for column, axis in enumerate(self.axes):
            if axis.name in where:
                low, high = where[axis.name]
                kept &= (self.codes[:, column] >= low) & (self.codes[:, column] < high)
        return int(kept.sum())


@dataclass(frozen=True)
class Graph:
    """A graph that the demonstration knows; ``adjacency`` has a row a left node and a column a right one."""

    title: str
    spec: dict[str, Any]
    adjacency: Flags = field(repr=False)
    file: bytes = field(repr=False)
    filename: str = "edges.txt"

    @property
    def name(self) -> str:
        """Name of the data set."""
        return str(self.spec["name"])

    @property
    def edges(self) -> int:
        """Number of edges."""
        return int(self.adjacency.sum())

    def truth(self, left: Flags, right: Flags) -> int:
        """How many edges lead from ``left`` to ``right``, two masks of nodes."""
        return int(self.adjacency[np.ix_(left, right)].sum())


def _pick(rng: np.random.Generator, weights: NDArray[np.float64]) -> Codes:
    """One draw a row from unnormalised weights (records x categories), by inverting the cumulative sum."""
    cumulative = np.cumsum(weights, axis=1)
    draws = rng.random(len(weights)) * cumulative[:, -1]
    return np.asarray((draws[:, None] >= cumulative).sum(axis=1), dtype=np.int64)


def census(seed: int, records: int = 50_000) -> Table:
    """A made-up census: 98,304 cells, each attribute depending on those before it as one would expect.

    Schooling follows age (the old had less of it), occupation follows schooling and sex, income follows all
    of them and peaks in middle age, and regions differ in schooling. Values are drawn by a seeded generator.
    """
    rng = np.random.default_rng([seed, 1])
    sex = rng.integers(0, 2, records)
    # Five-year bins from 15 to 95, thinning out above 60, women living longer.
    bins = np.arange(16)
    thinning = np.where(bins < 9, 1.0, 0.82 ** (bins - 8.0))
    age = _pick(rng, thinning[None, :] * np.where(bins > 11, 1.0 + 0.35 * (sex[:, None] == 0), 1.0))

    region_schooling = np.array([1.1, 0.4, 0.0, -0.3, 0.2, -0.7, 0.6, -0.2])
    region = _pick(rng, np.tile([5.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.2, 0.8], (records, 1)))

    level = np.arange(8)
    wanted = 3.6 + region_schooling[region] - 0.22 * np.maximum(age - 7, 0) - 1.6 * (age == 0)
    education = _pick(rng, np.exp(-0.5 * ((level - wanted[:, None]) / 1.5) ** 2))

    trade = np.arange(12)
    demand = np.array([0, 0, 1, 1, 2, 2, 3, 4, 4, 5, 6, 7])
    by_sex = np.array([1, -1, 1, 0.5, -1, 0.2, 0, -0.8, 0.7, 0, 0.3, -0.1])
    lean = np.where(sex[:, None] == 1, by_sex, -by_sex)
    occupation = _pick(rng, np.exp(-0.5 * ((demand - education[:, None]) / 1.2) ** 2 + 0.8 * lean))

    earning = (
        0.35 * education
        + 0.08 * trade[occupation]
        - 0.035 * (age - 7.0) ** 2
        + 0.35 * sex
        + rng.normal(0.0, 0.8, records)
    )
    income = np.searchsorted(np.array([-0.2, 1.1, 2.2]), earning)

    axes: tuple[Axis, ...] = (
        Binned("age", 16, True, tuple(range(15, 96, 5))),
        Named("sex", 2, False, ("female", "male")),
        Named(
            "education",
            8,
            True,
            ("none", "primary", "lower-secondary", "secondary", "vocational", "bachelor", "master", "doctor"),
        ),
        Coded("occupation", 12, False),
        Named("region", 8, False, tuple(f"region-{letter}" for letter in "abcdefgh")),
        Binned("income", 4, True, (0, 15_000, 35_000, 70_000, 1_000_000)),
    )
    codes = np.stack([age, sex, education, occupation, region, income], axis=1).astype(np.int64)
    return Table("made-up census", "demo-census", axes, codes, _census_csv(axes, codes, rng))


def _census_csv(axes: Sequence[Axis], codes: Codes, rng: np.random.Generator) -> bytes:
    """The records as a person would keep them: ages in years, incomes in currency, names for categories."""
    columns: list[list[Any]] = []
    for column, axis in enumerate(axes):
        values = codes[:, column]
        if isinstance(axis, Binned):
            edges = np.array(axis.edges)
            columns.append(rng.integers(edges[values], edges[values + 1]).tolist())
        elif isinstance(axis, Named):
            columns.append([axis.values[value] for value in values])
        else:
            columns.append(values.tolist())
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([axis.name for axis in axes])
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue().encode()


def imbalanced_bipartite(seed: int, nodes: int = 256) -> Graph:
    """The imbalanced bipartite graph of JT12, section 4.1: V nodes on either side.

    The first V^(3/4) left nodes are joined to every right node, each other left node to V^(1/2) right nodes
    drawn at random.
    """
    rng = np.random.default_rng([seed, 2])
    heavy = round(nodes**0.75)
    degree = round(nodes**0.5)
    adjacency = np.zeros((nodes, nodes), dtype=bool)
    adjacency[:heavy] = True
    for node in range(heavy, nodes):
        adjacency[node, rng.choice(nodes, degree, replace=False)] = True
    spec = {
        "name": "demo-graph",
        "kind": "bipartite",
        "left": nodes,
        "right": nodes,
        "records_public": True,
        "budget": BUDGET,
    }
    return Graph(f"imbalanced bipartite graph, V = {nodes}", spec, adjacency, _edge_list(adjacency))


def communities(seed: int, nodes: int = 640) -> tuple[Graph, Codes]:
    """A directed graph of 16 communities of unequal sizes, and the community of each node.

    Nodes are more or less active on either side, and ten times as likely to be joined to one of their own community as
    to another node that is as active.
    """
    rng = np.random.default_rng([seed, 5])
    of = _pick(rng, np.tile(np.linspace(1.0, 3.0, 16), (nodes, 1)))
    active = np.exp(rng.normal(0.0, 0.5, (2, nodes)))
    chances = 0.012 * np.where(of[:, None] == of, 10.0, 1.0) * np.outer(*active)
    adjacency = rng.random((nodes, nodes)) < chances
    np.fill_diagonal(adjacency, False)
    spec = {"name": "demo-communities", "kind": "graph", "nodes": nodes, "directed": True, "budget": BUDGET}
    return Graph(f"graph of 16 communities, {nodes} nodes", spec, adjacency, _edge_list(adjacency)), of


def _edge_list(adjacency: Flags) -> bytes:
    return "".join(f"{i} {j}\n" for i, j in np.argwhere(adjacency).tolist()).encode()


#: Eight attributes of Adult: 1.8 million cells.
ADULT_ATTRIBUTES = (
    "workclass",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "income>50K",
)


def adult(folder: Path) -> Table:
    """UCI Adult, integer-coded: eight of its attributes.

    Args:
        folder: holds ``adult.csv`` and ``adult-domain.json``, which gives each attribute's size.
    """
    sizes = json.loads((folder / "adult-domain.json").read_text(encoding="utf-8"))
    content = (folder / "adult.csv").read_bytes()
    header = content[: content.index(b"\n")].decode().strip().split(",")
    chosen = [header.index(name) for name in ADULT_ATTRIBUTES]
    codes = np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1, usecols=chosen, dtype=np.int64)
    axes = tuple(Coded(name, int(sizes[name]), name == "education-num") for name in ADULT_ATTRIBUTES)
    return Table("UCI Adult, eight attributes", "adult", axes, codes, content, "adult.csv")


def email_eu_core(folder: Path) -> Graph:
    """The directed graph of who wrote to whom in a research institution; messages to oneself are dropped.

    Args:
        folder: holds ``email-Eu-core.txt``, two node numbers a line.
    """
    content = (folder / "email-Eu-core.txt").read_bytes()
    edges = np.loadtxt(io.BytesIO(content), dtype=np.int64)
    nodes = int(edges.max()) + 1
    adjacency = np.zeros((nodes, nodes), dtype=bool)
    adjacency[edges[:, 0], edges[:, 1]] = True
    np.fill_diagonal(adjacency, False)
    spec = {
        "name": "email-eu-core",
        "kind": "graph",
        "nodes": nodes,
        "directed": True,
        "loops": "drop",
        "records_public": True,
        "budget": BUDGET,
    }
    return Graph("email-Eu-core", spec, adjacency, content, "email-Eu-core.txt")
