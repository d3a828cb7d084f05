"""Marginals of a table: from the cells and conditions that are asked for to their one form, and back from its JSON.

Whatever the order of attributes and however conditions are spelled, equal counts are one question: an attribute of
which a single cell is left is a condition, one that selects everything is not named.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, StrictStr
from pydantic import model_validator as _model_validator

from app.declarations.conditions import Where
from app.spaces.counts import CellCounts, Tally
from app.spaces.errors import InvalidQuery
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal, Partition
from app.spaces.queries import conditions
from app.spaces.queries.canonical import settled
from app.spaces.queries.forms import Along, Combinations, Form, Whole
from app.spaces.queries.linear import axis_canonical, ranges_of
from app.spaces.queries.predicate import values_looked_at, within
from app.spaces.queries.request import Bins, Request
from app.spaces.query import Query
from app.spaces.questions import Cells, Groups, Question, check_told
from app.spaces.space import Space
from app.spaces.table import TableSpace
from app.spaces.tensor import Array, Axis, IntArray, Members, count_of, index_set, listed_members
from app.spaces.values import Label, Values

#: Attributes, ascending, and for each combination of their values whether it is selected.
Among = tuple[tuple[int, ...], Array]

#: Counts of one answer: their noise takes a second or so to draw, in which others of the lane wait.
MOST_NUMBERS = 1 << 16
#: Values of all attributes whose values are told apart, which are looked at one by one: some tens of bytes each.
MOST_VALUES = 1 << 24


_ALL = slice(None)


class MarginalQuery(Request):
    """How many records have each combination of values of some attributes, among those that satisfy every condition.

    ``bins`` merges the values of an attribute: its edges are declared bin edges (of codes the integers from 0 to the
    size), each bin reaches up to the next edge, and what lies outside of the first and the last is not counted. Or it
    names groups of values, which are counted as one; what is in no group is not counted.
    """

    type: Literal["marginal"]
    tabled = True
    attributes: list[StrictStr] = Field(min_length=1, max_length=60)
    bins: Bins = Field(default_factory=dict)
    where: Where = Field(default_factory=Where)

    @_model_validator(mode="after")
    def _named_once(self) -> Self:
        if len(set(self.attributes)) < len(self.attributes):
            raise ValueError("attributes must be distinct")
        if not self.bins.keys() <= set(self.attributes):
            raise ValueError("bins are of attributes that are asked for")
        return self

    def compiled(self, space: Space) -> Query:
        if not isinstance(space, TableSpace):
            raise InvalidQuery(f"marginals are of the attributes of a table, and this is a {space.kind} data set")
        return marginal(space, self)

    def looked_at(self, space: Space) -> int:
        return values_looked_at(space, self.where, self.attributes)

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        if not isinstance(space, TableSpace):
            return None
        values, lengths, said = space.values, space.shape, _MarginalForm.read(form)
        named = [axis for axis, _ in (*said.axes, *said.where)]
        if len(set(named) & set(range(len(lengths)))) < len(named):
            raise InvalidQuery("canonical axes are out of range, or named twice")
        check_values(lengths, [axis for axis, _ in said.axes])
        cells = {axis: Partition.some(along.labels(lengths[axis])) for axis, along in said.axes}
        where = {axis: along.members(lengths[axis]) for axis, along in said.where}
        if any(found.cells < 2 for found in cells.values()):
            raise InvalidQuery("canonical cells are fewer than two")
        _check_numbers(math.prod(found.cells for found in cells.values()))
        asked = [AskedAxis(axis, values[axis], found) for axis, found in cells.items()]
        among: Among | None = None
        if said.among is not None:
            together = tuple(said.among.axes)
            among = together, said.among.selection(lengths)
            counted = {axis: found.labels >= 0 for axis, found in cells.items() if not found.whole}
            alone, rest = _parted(*among, counted)
            same = rest is not None and rest[0] == together and np.array_equal(rest[1], among[1])
            kept = all(np.array_equal(alone[a], cells[a].kept) for a in together if a in cells)
            if not same or not kept or any(axis in where for axis in together):
                raise InvalidQuery("canonical combinations are not in their one form")
        return settled(space, _canonical(lengths, cells, where, asked, among))


class _MarginalForm(Form):
    axes: list[tuple[Whole, Along]]
    where: list[tuple[Whole, Along]]
    among: Combinations | None = None


@dataclass(frozen=True, eq=False)
class AskedAxis:
    """An attribute of a marginal as it was asked for: the cells of the answer, and what they are called.

    Attributes:
        axis: the attribute's.
        values: of it.
        cells: of the answer.
        called: the names of the cells where values were merged by name; None where they are called by their values.
    """

    axis: int
    values: Values
    cells: Partition
    called: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The attribute's."""
        return self.values.attribute.name

    @lazy
    def labels(self) -> tuple[Label, ...]:
        """The labels of the cells."""
        return self.values.labels(self.cells.listed()) if self.called is None else self.called


@dataclass(frozen=True, eq=False)
class CompiledMarginal(Query):
    """The counts of a table's records by their values of some attributes, among those that satisfy conditions.

    Its numbers stand in row-major order of ``axes``, which ascend. Attributes of which the answer has a single cell
    are none of them: they are conditions. How the answer is told (``asked``) is no part of the question: two orders of
    the same attributes are one.

    Attributes:
        axes: attributes of which there are two cells or more.
        cells: of each of them.
        where: attributes that records are selected by, each by itself, ascending, and the values that are selected.
        among: attributes that records are selected by together, ascending, and for each combination of their values
            whether it is selected; it depends on each of them and is no product. Of attributes that are counted too no
            other values are selected than those. None where there are none.
        universe: how many values each attribute of the table has.
        asked: for the answer alone, the attributes in the order they were asked.
    """

    axes: tuple[int, ...]
    cells: tuple[Partition, ...]
    where: tuple[tuple[int, Members], ...]
    universe: tuple[int, ...]
    asked: tuple[AskedAxis, ...]
    among: tuple[tuple[int, ...], Array] | None = None

    grid_bits = 0
    rounding = 0.0

    @lazy
    def shape(self) -> tuple[int, ...]:
        """How many cells there are along each axis."""
        return tuple(cells.cells for cells in self.cells)

    @lazy
    def numbers(self) -> int:  # type: ignore[override]
        return math.prod(self.shape)

    @property
    def tallies(self) -> tuple[Tally, ...]:
        cells = tuple(None if cells.cells == cells.size else cells for cells in self.cells)
        return (CellCounts(self.axes, cells, self.shape, self.where, self.among, again=True),)

    def exact_of(self, told: Sequence[Any]) -> IntArray:
        return np.asarray(told[0]).reshape(-1)

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, 1.0

    @lazy
    def question(self) -> Question:
        """Part of the counts of all records, within and outside of each condition: what is outside costs nothing, and
        tells something.

        Raises:
            InvalidQuery: when conditions on attributes together tell too many cells apart.
        """
        return Cells(Marginal.of(self.universe, self._partitions)) if self.among is None else self._groups(*self.among)

    @lazy
    def chosen(self) -> tuple[IntArray, ...] | None:
        if self.among is not None:
            return None
        firsts = {axis: cells.members for axis, cells in zip(self.axes, self.cells, strict=True)}
        firsts |= {
            axis: np.array([index.start if isinstance(index, slice) else index[0]]) for axis, index in self.where
        }
        question = self.question
        own = zip(question.attributes, question.partitions, strict=True)
        found = tuple(cells.at(firsts[attribute]) for attribute, cells in own)
        return None if all(len(c) == n for c, n in zip(found, question.shape, strict=True)) else found

    @property
    def _partitions(self) -> dict[int, Partition]:
        """By attribute the values that are told apart by what is counted, and by conditions on it alone."""
        partitions = {axis: cells.filled() for axis, cells in zip(self.axes, self.cells, strict=True)}
        for axis, index in self.where:
            within = np.zeros(self.universe[axis], np.int64)
            within[index] = 1
            partitions[axis] = Partition.of(within)
        return partitions

    def _groups(self, together: tuple[int, ...], selection: Array) -> Groups:
        """The cells that it tells apart among records that attributes select together, as the answers' sums."""
        partitions, sizes = self._partitions, self.universe
        for place, axis in enumerate(together):
            rows = np.packbits(np.moveaxis(selection, place, 0).reshape(sizes[axis], -1), axis=1)
            own = Partition.of(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1))
            partitions[axis] = partitions[axis].met(own) if axis in partitions else own
        marginal = Marginal.of(sizes, partitions)
        check_told(marginal.cells)
        counted, where, rank = dict(zip(self.axes, self.cells, strict=True)), dict(self.where), len(marginal.attributes)
        answers: IntArray = np.zeros((), np.int64)
        inside = np.ones((), bool)
        for place, axis in enumerate(marginal.attributes):
            members = partitions[axis].members
            labels = np.zeros(len(members), np.int64)
            if axis in counted:
                cells = counted[axis]
                labels = cells.at(members)
                answers = answers * cells.cells
            elif axis in where:
                labels = np.where(np.isin(members, np.arange(sizes[axis])[where[axis]]), 0, -1)
            shape = [-1 if k == place else 1 for k in range(rank)]
            answers = answers + np.maximum(labels, 0).reshape(shape)
            inside = inside & (labels >= 0).reshape(shape)
        chosen = selection[np.ix_(*(partitions[axis].members for axis in together))]
        inside = inside & chosen.reshape(
            [len(partitions[a].members) if a in together else 1 for a in marginal.attributes]
        )
        return Groups(marginal, np.where(inside, answers, -1), self.shape)

    @lazy
    def canonical(self) -> dict[str, Any]:
        form: dict[str, Any] = {
            "axes": [[axis, cells.canonical] for axis, cells in zip(self.axes, self.cells, strict=True)],
            "type": "marginal",
            "where": [[axis, axis_canonical(Axis(self.universe[axis], index))] for axis, index in self.where],
        }
        if self.among is not None:
            form["among"] = {"axes": list(self.among[0]), "ranges": ranges_of(self.among[1])}
        return form

    @lazy
    def labels(self) -> list[dict[str, Any]]:
        """The axes of the answer as JSON, in the order asked: the attribute of each, and what its cells are called."""
        return [{"attribute": asked.name, "labels": list(asked.labels)} for asked in self.asked]

    def ordered(self, values: Array) -> Array:
        """Numbers, one a cell in the order of :meth:`exact`, in the order of the answer: row-major as it was asked."""
        order = [self.axes.index(asked.axis) for asked in self.asked if asked.axis in self.axes]
        return values.reshape(self.shape).transpose(order).reshape(-1)


class SingleCell(InvalidQuery):
    """A marginal of one cell was asked for."""


def marginal(space: TableSpace, asked: MarginalQuery, there: Mapping[int, Members] = MappingProxyType({})) -> Query:
    """The marginal that is asked for; for statistics, among those that are ``there``: by axis the values that count.

    Raises:
        InvalidQuery: when it does not fit the table, or less than two cells are left, or too many.
    """
    axes = [space.named(name)[0] for name in asked.attributes]
    check_values(space.shape, axes)
    edges: dict[int, IntArray] = {}
    groups: dict[int, dict[str, IntArray]] = {}
    for name, bins in asked.bins.items():
        axis, values = space.named(name)
        if isinstance(bins, list):
            edges[axis] = values.bins(bins)
        else:
            groups[axis] = values.merged(bins)
    selected = conditions.selected(asked.where, space.named)
    if selected is not None:
        return settled(space, _compiled(space.values, axes, edges, groups, within(selected, there)))
    among = conditions.combinations(asked.where, space.named)
    return settled(space, _compiled(space.values, axes, edges, groups, there, among))


def check_values(universe: Sequence[int], axes: Collection[int]) -> None:
    """Refuse a marginal that tells apart values of attributes with too many, before anything of their number is made.

    Raises:
        InvalidQuery: naming how many there are.
    """
    values = sum(universe[axis] for axis in axes)
    if values > MOST_VALUES:
        raise InvalidQuery(
            f"the attributes that are named have {values:,} declared values, and at most {MOST_VALUES:,} are looked "
            "at: name fewer attributes, or shorter ones; in where alone an attribute may have any number"
        )


def _compiled(
    values: Sequence[Values],
    axes: Sequence[int],
    edges: Mapping[int, IntArray],
    groups: Mapping[int, Mapping[str, IntArray]],
    selected: Mapping[int, Members],
    among: Among | None = None,
) -> CompiledMarginal:
    """The marginal on some attributes.

    Args:
        values: of every attribute of the table.
        axes: the attributes asked, in their order.
        edges: of some of them the places where bins begin, and the one behind the last; others are counted in their
            declared bins, if there are such.
        groups: of some other ones the places that are counted as one, by name, in the order of the least; no others
            of theirs are counted.
        selected: for each attribute that is conditioned on by itself, the values that satisfy the condition.
        among: attributes that are conditioned on together, and which combinations of their values satisfy the
            condition.

    Raises:
        InvalidQuery: when less than two cells are left, or too many.
    """
    lengths = [v.attribute.length for v in values]
    declared = {axis: values[axis].cells() for axis in axes if axis not in edges and axis not in groups}
    bins = {axis: int(labels.max()) + 1 for axis, labels in declared.items() if labels is not None}
    bins |= {axis: len(places) - 1 for axis, places in edges.items()}
    bins |= {axis: len(named) for axis, named in groups.items()}
    members = {axis: count_of(places) for axis, places in selected.items()}
    # Before anything is made of all values.
    _check_numbers(math.prod(min(bins.get(a, lengths[a]), members.get(a, lengths[a])) for a in axes))
    labels = declared | {axis: _binned(lengths[axis], places) for axis, places in edges.items()}
    labels |= {axis: _merged(lengths[axis], named) for axis, named in groups.items()}
    if among is not None:
        counted = {axis: kept >= 0 for axis, kept in labels.items() if kept is not None}
        for axis in selected.keys() & set(among[0]):
            chosen = np.zeros(lengths[axis], np.bool_)
            chosen[selected[axis]] = True
            counted[axis] = counted.get(axis, True) & chosen
        alone, among = _parted(*among, counted)
        selected = {**selected, **alone}
    cells = {axis: _cells(lengths[axis], labels[axis], selected.get(axis)) for axis in axes}
    if any(found is None for found in cells.values()) or not all(map(count_of, selected.values())):
        raise InvalidQuery("where selects none of the records that could be counted: widen where, or the bins")
    asked = [
        AskedAxis(axis, values[axis], found, _called(found, labels[axis], groups.get(axis)))
        for axis, found in cells.items()
        if found is not None
    ]
    where = {axis: members for axis, members in selected.items() if axis not in cells}
    where |= {a.axis: a.cells.kept for a in asked if a.cells.cells == 1}
    return _canonical(lengths, {a.axis: a.cells for a in asked if a.cells.cells > 1}, where, asked, among)


def _parted(
    axes: tuple[int, ...], selection: Array, counted: Mapping[int, Array]
) -> tuple[dict[int, IntArray], Among | None]:
    """Combinations of values as what each attribute selects by itself, and the rest that is no product.

    Args:
        axes: the attributes, ascending.
        selection: which combinations are selected.
        counted: of some attributes whether each value is counted. No others are selected.

    Returns:
        For every attribute the values that occur in what is selected, and the combinations of those attributes that do
        not select by themselves, None where all do.
    """
    for place, axis in enumerate(axes):
        kept = counted.get(axis)
        if kept is not None:
            selection = selection & kept.reshape([-1 if k == place else 1 for k in range(len(axes))])
    alone: dict[int, IntArray] = {}
    rest = list(axes)
    for place, axis in enumerate(axes):
        others = tuple(k for k in range(len(axes)) if k != place)
        alone[axis] = np.flatnonzero(selection.any(axis=others))
    if any(len(members) == 0 for members in alone.values()):
        return alone, None
    for axis, members in alone.items():
        place = rest.index(axis)
        first = selection.take(members[:1], axis=place)
        if bool((selection.take(members, axis=place) == first).all()):
            selection = first.squeeze(place)
            rest.remove(axis)
    return alone, (tuple(rest), selection) if rest else None


def _binned(length: int, edges: IntArray) -> IntArray:
    """The bin of each place, -1 before the first edge and behind the last."""
    labels = np.searchsorted(edges, np.arange(length), side="right") - 1
    labels[edges[-1] :] = -1
    return labels


def _merged(length: int, groups: Mapping[str, IntArray]) -> IntArray:
    """The group of each place, -1 of those that are in none."""
    labels = np.full(length, -1, dtype=np.int64)
    for label, places in enumerate(groups.values()):
        labels[places] = label
    return labels


def _called(cells: Partition, labels: IntArray | None, groups: Mapping[str, IntArray] | None) -> tuple[str, ...] | None:
    """The names of cells that are what conditions leave of groups."""
    if groups is None or labels is None:
        return None
    names = list(groups)
    return tuple(names[label] for label in labels[cells.members].tolist())


def _cells(length: int, labels: IntArray | None, selected: Members | None) -> Partition | None:
    """The cells of one attribute, each place one where no labels are given; None where no value is counted."""
    if selected is None:
        return Partition.singles(length) if labels is None else Partition.some(labels)
    inside = np.full(length, -1, dtype=np.int64)
    inside[selected] = listed_members(selected) if labels is None else labels[selected]
    return Partition.some(inside) if bool((inside >= 0).any()) else None


def _canonical(
    lengths: Sequence[int],
    cells: Mapping[int, Partition],
    where: Mapping[int, Members],
    asked: Sequence[AskedAxis],
    among: Among | None,
) -> CompiledMarginal:
    """The marginal with these cells, two or more of each attribute, among the values that conditions select. What
    attributes select together says also what each of these selects."""
    together = () if among is None else among[0]
    conditions = {
        axis: members
        for axis, members in sorted(where.items())
        if count_of(members) < lengths[axis] and axis not in together
    }
    axes = tuple(sorted(cells))
    if not axes:
        raise SingleCell("a marginal has two cells or more: ask for a single count with a predicate")
    return CompiledMarginal(
        axes,
        tuple(cells[axis] for axis in axes),
        tuple((axis, index_set(lengths[axis], members)) for axis, members in conditions.items()),
        tuple(lengths),
        tuple(asked),
        among,
    )


def _check_numbers(numbers: int) -> None:
    if numbers > MOST_NUMBERS:
        raise InvalidQuery(
            f"the answer would have {numbers:,} cells, and at most {MOST_NUMBERS:,} are given: name fewer attributes, "
            "or merge their values with bins"
        )
