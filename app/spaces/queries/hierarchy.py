"""Counts by a hierarchy: of all groups and categories of an attribute that is declared with levels.

A group is counted with all that lie within it, so the counts of its parts add up to its own. The tree is the
declaration's: which counts are asked for is said by the attribute and the conditions alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field, StrictStr

from app.declarations.attributes import Attribute, branches
from app.declarations.conditions import Where
from app.declarations.naming import listed
from app.spaces.counts import Tally
from app.spaces.errors import InvalidQuery
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal, Partition
from app.spaces.queries import conditions
from app.spaces.queries.forms import Form
from app.spaces.queries.marginal import MOST_NUMBERS, CompiledMarginal, MarginalQuery, marginal
from app.spaces.queries.predicate import values_looked_at
from app.spaces.queries.request import Request, does_not_fit
from app.spaces.query import Query
from app.spaces.questions import Nested
from app.spaces.space import Space
from app.spaces.table import TableSpace
from app.spaces.tensor import IntArray


class HierarchyQuery(Request):
    """How many records are in each group and each category of an attribute declared with levels, among those that
    satisfy every condition. The counts of a group's parts add up to its own."""

    type: Literal["hierarchy"]
    tabled = True
    attribute: StrictStr = Field(description="one that is declared with levels")
    where: Where = Field(default_factory=Where)

    def compiled(self, space: Space) -> Query:
        if not isinstance(space, TableSpace):
            raise does_not_fit(self.name(), space)
        attribute = space.named(self.attribute)[1].attribute
        if attribute.levels is None:
            there = [each.name for each in space.attributes if each.levels is not None]
            known = f"those that have are {listed(there, len(there))}" if there else "as are all of this table's"
            raise InvalidQuery(f"{self.attribute}: declared without levels ({known}): ask for a marginal")
        if attribute.length > MOST_NUMBERS:
            raise InvalidQuery(
                f"{self.attribute}: a hierarchy has at most {MOST_NUMBERS:,} categories, and this one "
                f"{attribute.length:,}: ask for a marginal of some of them"
            )
        if self.attribute in conditions.named(self.where):
            raise _not_all(self.attribute)
        asked = MarginalQuery.model_validate({"type": "marginal", "attributes": [self.attribute]})
        return CompiledHierarchy.over(marginal(space, asked.model_copy(update={"where": self.where})), attribute)

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        base = MarginalQuery.read(space, _HierarchyForm.read(form).base)
        if not isinstance(space, TableSpace) or not isinstance(base, CompiledMarginal):
            return None
        return CompiledHierarchy.over(base, space.attributes[base.axes[0]])

    def looked_at(self, space: Space) -> int:
        return values_looked_at(space, self.where, [self.attribute])


def _not_all(name: str) -> InvalidQuery:
    return InvalidQuery(
        f"where: a hierarchy counts all categories of {name}: leave it out of where, and read the nodes that you need"
    )


class _HierarchyForm(Form):
    base: dict[str, Any]


@dataclass(frozen=True)
class Tree:
    """The declared groups and categories of an attribute, each by where its records are on the attribute's axis.

    Attributes:
        levels: the axis divided ever finer; what has no parts stands in the finer ones as it is.
        nodes: for each node its level and its cell there; a node stands before its parts, and parts in the order of
            their first categories.
        paths: what each is called: the names that lead to it, joined by ``/``; None for the records without a value.
    """

    levels: tuple[Partition, ...]
    nodes: IntArray
    paths: tuple[str | None, ...]

    @classmethod
    def of(cls, attribute: Attribute) -> Tree:
        """That of an attribute with levels."""
        assert attribute.levels is not None
        assert attribute.values is not None
        place = {value: k for k, value in enumerate(attribute.values)}
        # For each place of the axis the names that lead to it.
        ways: list[tuple[str | None, ...]] = [(None,)] * attribute.length
        for groups, value in branches(attribute.levels):
            ways[place[value]] = (*groups, str(value))
        first: dict[tuple[str | None, ...], int] = {}
        for k, way in enumerate(ways):
            for depth in range(1, len(way) + 1):
                first.setdefault(way[:depth], k)
        levels: list[Partition] = []
        at: list[int] = []
        for depth in range(1, max(map(len, ways)) + 1):
            level = Partition.of(np.array([first[way[:depth]] for way in ways]))
            if level not in levels:
                levels.append(level)
            at.append(levels.index(level))
        named = sorted(first, key=lambda way: [first[way[:depth]] for depth in range(1, len(way) + 1)])
        labels = [level.labels for level in levels]
        nodes = [(level, int(labels[level][first[way]])) for way in named for level in (at[len(way) - 1],)]
        paths = (None if way == (None,) else "/".join(map(str, way)) for way in named)
        return cls(tuple(levels), np.array(nodes), tuple(paths))


@dataclass(frozen=True, eq=False)
class CompiledHierarchy(Query):
    """The counts of all nodes of an attribute's tree.

    Attributes:
        base: the counts of its categories.
        name: of the attribute.
        tree: its own.
    """

    base: CompiledMarginal
    name: str
    tree: Tree

    grid_bits = 0
    rounding = 0.0
    only = "a hierarchy is answered by sessions whose mechanism is evidence or histogram: open one"

    @classmethod
    def over(cls, base: Query, attribute: Attribute) -> CompiledHierarchy:
        """That of an attribute among the records that satisfy the conditions of counts of all its categories.

        Raises:
            InvalidQuery: when the counts are others.
        """
        assert isinstance(base, CompiledMarginal)
        if base.among is not None:
            raise InvalidQuery("where: a hierarchy takes conditions on each attribute by itself: leave any and not out")
        if len(base.axes) != 1 or base.cells[0].cells < base.cells[0].size or attribute.levels is None:
            raise _not_all(attribute.name)
        return cls(base, attribute.name, Tree.of(attribute))

    @property
    def numbers(self) -> int:  # type: ignore[override]
        return len(self.tree.nodes)

    @property
    def is_zero(self) -> bool:  # type: ignore[override]
        return self.base.is_zero

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return self.base.tallies

    def exact_of(self, told: Sequence[Any]) -> IntArray:
        return self._summed(self.base.exact_of(told))

    def _summed(self, counts: IntArray) -> IntArray:
        """The counts of all nodes from those of the categories."""
        size = self.tree.levels[-1].size
        tree = Nested(Marginal.of([size], {0: None}), 0, self.tree.levels, self.tree.nodes)
        return np.asarray(tree.gathered(level.summed(counts, 0) for level in self.tree.levels), np.int64)

    def adding(self, units: IntArray) -> IntArray:
        """Groups as the sums of their categories."""
        categories = np.zeros(self.tree.levels[-1].size, np.int64)
        # From coarse to fine: what a group of one category says is replaced by that one's own.
        for k, level in enumerate(self.tree.levels):
            here, cells = self.tree.nodes[:, 0] == k, self.tree.nodes[self.tree.nodes[:, 0] == k, 1]
            alone = level.counts[cells] == 1
            categories[level.members[cells[alone]]] = units[here][alone]
        return self._summed(categories)

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, 1.0

    @lazy
    def question(self) -> Nested:
        return Nested(
            self.base.question.marginal_of(self.base.universe), self.base.axes[0], self.tree.levels, self.tree.nodes
        )

    @property
    def chosen(self) -> tuple[IntArray, ...] | None:
        own = self.base.chosen
        if own is None:
            return None
        place = self.question.place
        return (*own[:place], np.arange(self.numbers), *own[place + 1 :])

    @lazy
    def canonical(self) -> dict[str, Any]:
        return {"base": self.base.canonical, "type": "hierarchy"}

    @property
    def labels(self) -> list[dict[str, Any]]:
        return [{"attribute": self.name, "labels": list(self.tree.paths)}]
