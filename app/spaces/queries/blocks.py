"""Blocks of a graph or a matrix: the sums of its entries between groups of nodes, all of them one question.

The groups of a side are disjoint, so an entry is counted in one of the numbers at most: of an undirected graph, whose
two sides are the same groups, a pair of nodes is counted for the unordered pair of their groups. However groups are
named and ordered, equal sums are one question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field, StrictStr

from app.declarations.naming import cut
from app.spaces.counts import BlockSums, Tally
from app.spaces.cuts import CutQuestion
from app.spaces.errors import InvalidQuery
from app.spaces.lazy import lazy
from app.spaces.partition import Partition
from app.spaces.queries.forms import Along, Form
from app.spaces.queries.marginal import MOST_NUMBERS
from app.spaces.queries.request import Groups, Node, Request, does_not_fit
from app.spaces.query import Query
from app.spaces.sided import SidedSpace
from app.spaces.space import Space
from app.spaces.tensor import Array, Axis, IntArray, index_set, listed_members


class BlocksQuery(Request):
    """The weight of all edges from each group of nodes to the left to each to the right; of a matrix sums of entries.

    The groups of a side are disjoint, and nodes in none of them are not counted. Of an undirected graph there is one
    number for each unordered pair of groups, which stands at both of its places.
    """

    type: Literal["blocks"]
    tabled = True
    left: Groups = Field(description="groups of nodes, or of rows, by what they are called")
    right: Groups | None = Field(
        default=None, description="of the nodes to the right, or of columns; those to the left where it is left out"
    )
    only: Literal["within"] | None = Field(
        default=None, description="within: only from each group to the one of the same name, one number a name"
    )

    def compiled(self, space: Space) -> Query:
        if not isinstance(space, SidedSpace):
            raise does_not_fit(self.type, space)
        return _compiled(self, space)

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        if not isinstance(space, SidedSpace):
            return None
        said, shape, symmetric = _BlocksForm.read(form), space.shape, space.symmetric
        within = said.only is not None
        left = Partition.some(said.left.labels(shape[0]))
        right, matched = left, np.arange(left.cells) if within else None
        if not symmetric:
            labels = said.right.labels(shape[1])
            right = Partition.some(labels)
            if within:
                matched = labels[right.members]
                if not np.array_equal(np.unique(matched), np.arange(left.cells)):
                    raise InvalidQuery("canonical groups do not go together")
        sides = (left,) if within else (left, right)
        check_numbers(tuple(side.cells for side in sides), symmetric=symmetric)
        names = ("group",) if within else ("left", "right")
        asked = tuple(
            AskedGroups(name, tuple(map(str, range(side.cells))), np.arange(side.cells))
            for name, side in zip(names, sides, strict=True)
        )
        return CompiledBlocks(left, right, asked, within, symmetric, matched, space.loops)


class _BlocksForm(Form):
    left: Along
    right: Along = Along()
    only: StrictStr | None = None


@dataclass(frozen=True, eq=False)
class AskedGroups:
    """The groups along an axis of the answer as they were asked for: what they are called, and the cell of each."""

    name: str
    labels: tuple[str, ...]
    cells: IntArray


@dataclass(frozen=True, eq=False)
class CompiledBlocks(Query):
    """The sums of entries between each group of the left side and each of the right side, or within groups alone.

    Neighbouring data sets differ in one entry, by gamma at most, which moves one of the numbers: all of them together
    move by gamma in L1, and in L2, as a single sum does. (That the groups of a side are disjoint makes it so; on an
    undirected graph also that both sides are the same groups, for else an edge may be in two blocks.)

    Numbers stand in row-major order of the cells; of an undirected graph those of a cell and of itself or a later one.
    What groups are called and the order they were asked in (``asked``) is no part of the question.

    Attributes:
        left: the groups of rows, in the order of their least members.
        right: of columns; of an undirected graph those to the left.
        asked: for the answer alone, its axes: one of each side, or a single one.
        only_within: whether only the entries from a group to the group of the same number are asked for.
        symmetric: whether the graph is undirected, so that each entry stands on both sides of the diagonal.
        matched: where only what is within groups is asked, for each group to the right the one to the left that it goes
            with.
        loops: whether the diagonal holds data.
    """

    left: Partition
    right: Partition
    asked: tuple[AskedGroups, ...]
    only_within: bool
    symmetric: bool = False
    matched: IntArray | None = None
    loops: bool = True

    grid_bits = 0
    rounding = 0.0

    @lazy
    def shape(self) -> tuple[int, ...]:
        """How many groups there are along each axis of the answer."""
        return (self.left.cells,) if self.only_within else (self.left.cells, self.right.cells)

    @property
    def columns(self) -> IntArray:
        """The group of each column as those to the left are numbered that it goes with, -1 where it is in none."""
        return self.right.labels if self.matched is None else np.append(self.matched, -1)[self.right.labels]

    @lazy
    def numbers(self) -> int:  # type: ignore[override]
        return _numbers(self.shape, symmetric=self.symmetric)

    @lazy
    def is_zero(self) -> bool:  # type: ignore[override]
        """Of an undirected graph there is nothing within groups of one node."""
        return self.norm2sq == 0

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return (BlockSums(self.left, self.right, self.columns if self.only_within else None),)

    def exact_of(self, told: Sequence[Any]) -> IntArray:
        totals: IntArray = told[0]
        if not self.symmetric:
            return totals.reshape(-1)
        if self.only_within:
            return totals // 2
        # Between two groups each edge stands once in either direction, within one it stands twice.
        np.fill_diagonal(totals, np.diagonal(totals) // 2)
        return totals[np.triu_indices(self.left.cells)]

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, 0.0 if self.is_zero else 1.0

    @lazy
    def norm2sq(self) -> float:
        """Each cell of the universe that is counted weighs one in one of the numbers."""
        if not self.only_within:
            rows, columns = len(self.left.kept), len(self.right.kept)
            return float(rows * (rows - 1) // 2 if self.symmetric else rows * columns)
        rows_of, columns_of = self.left.counts, np.bincount(self.columns[self.right.kept])
        return float(rows_of @ (rows_of - 1) // 2 if self.symmetric else rows_of @ columns_of)

    @lazy
    def cuts(self) -> tuple[CutQuestion, ...]:
        lefts = rights = _axes(self.left)
        if not self.symmetric:
            rights = _axes(self.right)
        if self.matched is not None:
            chosen = [(a, rights[k]) for a, k in zip(lefts, np.argsort(self.matched), strict=True)]
        else:
            chosen = [(a, b) for k, a in enumerate(lefts) for b in (rights[k:] if self.symmetric else rights)]
        nothing = Axis(self.left.size, slice(0, 0))
        # Groups are disjoint: the nodes of both sides are all of one group, or none.
        both = [None if not self.symmetric else a if a is b else nothing for a, b in chosen]
        return tuple(CutQuestion(a, b, w, self.loops) for (a, b), w in zip(chosen, both, strict=True))

    @lazy
    def canonical(self) -> dict[str, Any]:
        form: dict[str, Any] = {"left": self.left.canonical, "type": "blocks"}
        if not self.symmetric:
            # Where groups to the right have another order than those they go with their numbers are told one by one.
            own = self.matched is None or bool((np.diff(self.matched) > 0).all())
            form["right"] = self.right.canonical if own else {"cells": self.columns.tolist()}
        return form | ({"only": "within"} if self.only_within else {})

    @lazy
    def labels(self) -> list[dict[str, Any]]:
        return [{"attribute": asked.name, "labels": list(asked.labels)} for asked in self.asked]

    def ordered(self, values: Array) -> Array:
        """Numbers in the order of the answer: row-major as it was asked.

        Of an undirected graph each number between two groups stands at both of its places.
        """
        if self.symmetric and not self.only_within:
            upper = np.triu_indices(self.left.cells)
            table = np.empty(self.shape, values.dtype)
            table[upper] = table.T[upper] = values
        else:
            table = values.reshape(self.shape)
        told: Array = table[np.ix_(*(asked.cells for asked in self.asked))].reshape(-1)
        return told


def _axes(groups: Partition) -> list[Axis]:
    """The nodes of each group."""
    return [Axis(groups.size, index_set(groups.size, members)) for members in groups.listed()]


def _numbers(shape: tuple[int, ...], *, symmetric: bool) -> int:
    """How many numbers there are between so many groups."""
    return shape[0] * (shape[0] + 1) // 2 if symmetric and len(shape) == 2 else math.prod(shape)


@dataclass(frozen=True, eq=False)
class _Grouped:
    """The groups of a side: for each node the number of its group, -1 for none; of each group the least node."""

    labels: IntArray
    firsts: IntArray


def _compiled(request: BlocksQuery, space: SidedSpace) -> CompiledBlocks:
    """The blocks that are asked for.

    Raises:
        InvalidQuery: when a node is unknown or in two groups of a side, a group is empty, the two sides do not go
            together, or there are less than two numbers, or too many.
    """
    symmetric = space.symmetric
    within = request.only is not None
    others = request.left if request.right is None else request.right
    if request.right is None and space.kind != "graph":
        raise InvalidQuery("right: must be given: the nodes to the right are others than those to the left")
    if (within or symmetric) and others.keys() != request.left.keys():
        apart = min(others.keys() ^ request.left.keys())
        why = "of an undirected graph both sides are the same groups" if symmetric else "within groups both sides have"
        raise InvalidQuery(f"right: {why} the same labels, and {cut(apart)!r} is on one side alone")
    check_numbers((len(request.left),) if within else (len(request.left), len(others)), symmetric=symmetric)
    rows = _grouped(request.left, space, 0)
    columns = rows if request.right is None else _grouped(request.right, space, 1)
    names, others_names = tuple(request.left), tuple(others)
    cells = Partition.some(rows.labels)
    numbered = cells.labels[rows.firsts]
    if not (within or symmetric):
        across = Partition.some(columns.labels)
        asked = (
            AskedGroups("left", names, numbered),
            AskedGroups("right", others_names, across.labels[columns.firsts]),
        )
        return CompiledBlocks(cells, across, asked, only_within=False, loops=space.loops)
    # To the right groups have the numbers of those to the left that are called the same.
    number_of = dict(zip(names, numbered.tolist(), strict=True))
    same = np.array([*(number_of[name] for name in others_names), -1])[columns.labels]
    if symmetric and not np.array_equal(same, cells.labels):
        raise InvalidQuery("right: of an undirected graph it is the same groups as left: leave it out")
    across = cells if symmetric else Partition.some(same)
    matched = same[across.members] if within else None
    axes = [AskedGroups("group" if within else "left", names, numbered)]
    if not within:
        axes.append(AskedGroups("right", others_names, np.array([number_of[name] for name in others_names])))
    return CompiledBlocks(cells, across, tuple(axes), within, symmetric, matched, space.loops)


def _grouped(groups: Mapping[str, Literal["all"] | Sequence[Node]], space: SidedSpace, side: int) -> _Grouped:
    name, labels = ("left", "right")[side], np.full(space.shape[side], -1, np.int64)
    firsts = np.zeros(len(groups), np.int64)
    for number, (label, asked) in enumerate(groups.items()):
        members = listed_members(space.members(asked, side, f"{name}.{cut(label)}"))
        if not len(members):
            raise InvalidQuery(f"{name}.{cut(label)}: must not be empty")
        taken = members[labels[members] >= 0]
        if len(taken):
            node = space.called(side, int(taken[0]))
            raise InvalidQuery(
                f"{name}.{cut(label)}: node {node} is in another group too: the groups of a side are disjoint"
            )
        labels[members], firsts[number] = number, members[0]
    return _Grouped(labels, firsts)


def check_numbers(shape: tuple[int, ...], *, symmetric: bool) -> None:
    """Refuse blocks between so many groups, before anything of their number is made.

    Raises:
        InvalidQuery: when there are less than two numbers, or too many.
    """
    numbers = _numbers(shape, symmetric=symmetric)
    if numbers < 2:
        raise InvalidQuery("blocks are two numbers or more: ask for a single sum with a cut")
    if numbers > MOST_NUMBERS:
        raise InvalidQuery(
            f"the answer would have {numbers:,} numbers, and at most {MOST_NUMBERS:,} are given: ask for fewer groups"
        )
