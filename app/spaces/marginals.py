"""Marginals of a table: from the cells and conditions that are asked for to their one form, and back from its JSON.

Whatever the order of attributes and however conditions are spelled, equal counts are one question: an attribute of
which a single cell is left is a condition, one that selects everything is not named.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from app.spaces.canonical import read_members
from app.spaces.errors import InvalidQuery
from app.spaces.query import AskedAxis, Cells, CompiledMarginal
from app.spaces.tensor import IntArray, index_set
from app.spaces.values import Values

#: Counts of one answer: their noise takes a second or so to draw, in which others of the lane wait.
MOST_NUMBERS = 1 << 16
#: Counts that are made of the records before they are summed over bins and conditions: as many take 128 MiB.
MOST_SUMMED = 1 << 24


def check_summed(universe: Sequence[int], axes: Collection[int]) -> None:
    """Refuse a marginal of too many cells, before anything of their number is made.

    Raises:
        InvalidQuery: naming how many there are.
    """
    cells = math.prod(universe[axis] for axis in axes)
    if cells > MOST_SUMMED:
        raise InvalidQuery(
            f"the attributes that are named have {cells:,} combinations of declared values, and at most "
            f"{MOST_SUMMED:,} can be counted: name fewer attributes, in where too"
        )


def compiled(
    values: Sequence[Values], axes: Sequence[int], edges: Mapping[int, IntArray], selected: Mapping[int, IntArray]
) -> CompiledMarginal:
    """The marginal on some attributes.

    Args:
        values: of every attribute of the table.
        axes: the attributes asked, in their order.
        edges: of some of them the places where bins begin, and the one behind the last; others are counted in their
            declared bins, if there are such.
        selected: for each attribute that is conditioned on, the sorted values that satisfy the condition.

    Raises:
        InvalidQuery: when less than two cells are left, or too many.
    """
    lengths = [v.attribute.length for v in values]
    declared = {axis: values[axis].cells() for axis in axes if axis not in edges}
    bins = {axis: int(labels.max()) + 1 for axis, labels in declared.items() if labels is not None}
    bins |= {axis: len(places) - 1 for axis, places in edges.items()}
    members = {axis: len(places) for axis, places in selected.items()}
    # Before anything is made of all values.
    _check_numbers(math.prod(min(bins.get(a, lengths[a]), members.get(a, lengths[a])) for a in axes))
    labels = declared | {axis: _binned(lengths[axis], places) for axis, places in edges.items()}
    cells = {axis: _cells(lengths[axis], labels[axis], selected.get(axis)) for axis in axes}
    if any(found is None for found in cells.values()) or any(len(members) == 0 for members in selected.values()):
        raise InvalidQuery("where selects none of the records that could be counted")
    asked = [AskedAxis(axis, values[axis], found) for axis, found in cells.items() if found is not None]
    where = {axis: members for axis, members in selected.items() if axis not in cells}
    where |= {a.axis: a.cells.kept for a in asked if a.cells.count == 1}
    return _canonical(lengths, {a.axis: a.cells for a in asked if a.cells.count > 1}, where, asked)


def _binned(length: int, edges: IntArray) -> IntArray:
    """The bin of each place, -1 before the first edge and behind the last."""
    labels = np.searchsorted(edges, np.arange(length), side="right") - 1
    labels[edges[-1] :] = -1
    return labels


def _cells(length: int, labels: IntArray | None, selected: IntArray | None) -> Cells | None:
    """The cells of one attribute, each place one where no labels are given; None where no value is counted."""
    if selected is None:
        return Cells(length) if labels is None else Cells.of(labels)
    inside = np.full(length, -1, dtype=np.int64)
    inside[selected] = selected if labels is None else labels[selected]
    return Cells.of(inside) if bool((inside >= 0).any()) else None


def _canonical(
    lengths: Sequence[int], cells: Mapping[int, Cells], where: Mapping[int, IntArray], asked: Sequence[AskedAxis]
) -> CompiledMarginal:
    """The marginal with these cells, two or more of each attribute, among the values that conditions select."""
    conditions = {axis: members for axis, members in sorted(where.items()) if len(members) < lengths[axis]}
    axes = tuple(sorted(cells))
    if not axes:
        raise InvalidQuery("a marginal has two cells or more: ask for a single count with a predicate")
    return CompiledMarginal(
        axes,
        tuple(cells[axis] for axis in axes),
        tuple((axis, index_set(lengths[axis], members)) for axis, members in conditions.items()),
        tuple(lengths),
        tuple(asked),
    )


def _check_numbers(numbers: int) -> None:
    if numbers > MOST_NUMBERS:
        raise InvalidQuery(
            f"the answer would have {numbers:,} cells, and at most {MOST_NUMBERS:,} are given: name fewer attributes, "
            "or merge their values with bins"
        )


def read(values: Sequence[Values], form: Mapping[str, Any]) -> CompiledMarginal:
    """The marginal of a canonical form, told by its axes in ascending order.

    Raises:
        InvalidQuery: when its numbers are out of range.
        AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError: when it is no such form at all.
    """
    lengths = [v.attribute.length for v in values]
    named = [axis for part in ("axes", "where") for axis, _ in form[part]]
    if len(set(named)) < len(named) or any(type(a) is not int or not 0 <= a < len(lengths) for a in named):
        raise InvalidQuery("canonical axes are out of range, or named twice")
    check_summed(lengths, named)
    cells = {axis: Cells.of(_read_labels(axis_form, lengths[axis])) for axis, axis_form in form["axes"]}
    where = {axis: read_members(axis_form, lengths[axis]) for axis, axis_form in form["where"]}
    if any(found.count < 2 for found in cells.values()) or any(len(members) == 0 for members in where.values()):
        raise InvalidQuery("canonical cells are fewer than two, or nothing is selected")
    _check_numbers(math.prod(found.count for found in cells.values()))
    asked = [AskedAxis(axis, values[axis], found) for axis, found in cells.items()]
    return _canonical(lengths, cells, where, asked)


def _read_labels(form: Mapping[str, Any], length: int) -> IntArray:
    """The cell of each value of one axis."""
    labels = np.full(length, -1, dtype=np.int64)
    if "cells" in form:
        labels = np.array(form["cells"], dtype=np.int64)
        if labels.shape != (length,) or labels.min() < -1 or labels.max() < 0:
            raise InvalidQuery("canonical cells are out of range")
    elif "edges" in form:
        edges = np.array(form["edges"], dtype=np.int64)
        if edges.ndim != 1 or bool((np.diff(edges) <= 0).any()) or edges[0] < 0 or edges[-1] > length:
            raise InvalidQuery("canonical edges are out of range")
        labels[edges[0] : edges[-1]] = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    else:
        members = read_members(form, length)
        labels[members] = np.arange(len(members))
    if not bool((labels >= 0).any()):
        raise InvalidQuery("canonical cells hold nothing")
    return labels
