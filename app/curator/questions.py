"""Queries of a table as questions that evidence answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from app.evidence.questions import Cells, Groups, Local, Product, Question
from app.evidence.statistics import Statistic
from app.spaces.errors import InvalidQuery
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.linear import CompiledDense, CompiledLocal, CompiledProduct, CompiledSparse
from app.spaces.queries.marginal import CompiledMarginal
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.query import Query
from app.spaces.tensor import Array, FloatArray, IntArray

#: The most cells that are counted and drawn for one question: a second or so, in which others of its lane wait.
MOST_COUNTED = 1 << 16
#: Which of a question's answers are a query's, along each of its attributes; None where all are.
Chosen = tuple[IntArray, ...] | None


#: The questions of queries that are being answered: what they tell apart is looked at again and again.
_ASKED: WeakKeyDictionary[Query, tuple[tuple[int, ...], tuple[Question, Chosen]]] = WeakKeyDictionary()


def question_of(query: Query, sizes: Sequence[int]) -> tuple[Question, Chosen]:
    """The question that a compiled query of a table with these numbers of values asks.

    A marginal among the records that satisfy conditions is part of one of all records, which counts those within and
    those outside of each condition: the others cost nothing, and tell something.

    Raises:
        InvalidQuery: when a marginal with conditions on attributes together tells too many cells apart.
        TypeError: for a query that no table has.
    """
    known = _ASKED.get(query)
    if known is None or known[0] != tuple(sizes):
        known = _ASKED[query] = tuple(sizes), _question_of(query, sizes)
    return known[1]


def _question_of(query: Query, sizes: Sequence[int]) -> tuple[Question, Chosen]:
    if isinstance(query, CompiledProduct):
        return Product.of_query(query), None
    if isinstance(query, CompiledMarginal):
        return _cells_of(query, sizes)
    if isinstance(query, CompiledLocal):
        return Local.over(query.axes, query.selection), None
    if isinstance(query, CompiledSparse):
        weights = np.zeros(query.shape)
        weights.reshape(-1)[query.positions] = query.real
        return Local.over(range(len(sizes)), weights), None
    if isinstance(query, CompiledDense):
        return Local.over(range(len(sizes)), query.matrix()), None
    raise TypeError(f"{type(query).__name__} is no query of a table")


def _cells_of(query: CompiledMarginal, sizes: Sequence[int]) -> tuple[Question, Chosen]:
    if query.among is not None:
        return _groups_of(query, *query.among, sizes), None
    partitions: dict[int, Partition | None] = {}
    firsts: dict[int, IntArray] = {}
    for axis, cells in zip(query.axes, query.cells, strict=True):
        partitions[axis] = cells.filled()
        firsts[axis] = cells.members
    for axis, index in query.where:
        within = np.zeros(sizes[axis], np.int64)
        within[index] = 1
        partitions[axis] = Partition.of(within)
        firsts[axis] = np.flatnonzero(within)[:1]
    marginal = Marginal.of(sizes, partitions)
    chosen = tuple(marginal.partition(k).labels[firsts[attribute]] for k, attribute in enumerate(marginal.attributes))
    every = all(len(c) == n for c, n in zip(chosen, marginal.shape, strict=True))
    return Cells(marginal), None if every else chosen


def statistic_of(query: CompiledStatistic, sizes: Sequence[int]) -> Statistic:
    """The statistic that a compiled query of a table asks."""
    question, chosen = question_of(query.base, sizes)
    if isinstance(question, Local | Groups) and sizes[query.axis] > query.places:
        question = _valued(question, query.axis, query.places, sizes)
    places = np.arange(math.prod(question.shape)).reshape(question.shape)
    return Statistic(
        query.kind,
        query.axis,
        query.places,
        float(query.low),
        float(query.step),
        question,
        selected(places, chosen),
        query.levels,
    )


def _valued(question: Local | Groups, axis: int, places: int, sizes: Sequence[int]) -> Groups:
    """The same counts of those records alone that have a value of an attribute, whose last place is that of none."""
    there = Partition.of(np.arange(sizes[axis]) == places)
    told = dict(zip(question.attributes, question.partitions, strict=True))
    told[axis] = told[axis].met(there) if axis in told else there
    marginal = Marginal.of(sizes, told)
    labels = [question.partitions[k].labels[told[attribute].members] for k, attribute in enumerate(question.attributes)]
    if isinstance(question, Groups):
        answers = question.answers[np.ix_(*labels)]
    else:
        answers = np.where(question.on(question.partitions)[np.ix_(*labels)] != 0, 0, -1)
    place = marginal.attributes.index(axis)
    if axis not in question.attributes:
        answers = np.repeat(np.expand_dims(answers, place), told[axis].cells, axis=place)
    valued = (told[axis].members < places).reshape([-1 if k == place else 1 for k in range(answers.ndim)])
    return Groups(marginal, np.where(valued, answers, -1), question.shape)


def _groups_of(query: CompiledMarginal, together: tuple[int, ...], selection: Array, sizes: Sequence[int]) -> Groups:
    """The cells that a marginal tells apart among records that attributes select together, as the answers' sums."""
    told: dict[int, Partition] = {}
    counted = dict(zip(query.axes, query.cells, strict=True))
    for axis, cells in counted.items():
        told[axis] = cells.filled()
    for axis, index in query.where:
        within = np.zeros(sizes[axis], np.int64)
        within[index] = 1
        told[axis] = Partition.of(within)
    for place, axis in enumerate(together):
        rows = np.packbits(np.moveaxis(selection, place, 0).reshape(sizes[axis], -1), axis=1)
        own = Partition.of(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1))
        told[axis] = told[axis].met(own) if axis in told else own
    marginal = Marginal.of(sizes, told)
    check_told(marginal.cells)
    where, rank = dict(query.where), len(marginal.attributes)
    answers: IntArray = np.zeros((), np.int64)
    inside = np.ones((), bool)
    for place, axis in enumerate(marginal.attributes):
        members = told[axis].members
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
    chosen = selection[np.ix_(*(told[axis].members for axis in together))]
    inside = inside & chosen.reshape([len(told[a].members) if a in together else 1 for a in marginal.attributes])
    return Groups(marginal, np.where(inside, answers, -1), query.shape)


def check_told(cells: int) -> None:
    """Refuse a question that tells too many cells apart.

    Raises:
        InvalidQuery: naming how many there are.
    """
    if cells > MOST_COUNTED:
        raise InvalidQuery(
            f"a question tells at most {MOST_COUNTED:,} cells apart, and this one {cells:,}: name fewer "
            "attributes, or merge values"
        )


def selected(values: Array, chosen: Chosen) -> Array:
    """The answers of a query among those of its question, flat."""
    array = np.asarray(values)
    return (array if chosen is None else array[np.ix_(*chosen)]).reshape(-1)


def spread(values: FloatArray, chosen: Chosen, shape: tuple[int, ...]) -> FloatArray:
    """The answers of a query at their places among those of its question, the others zero."""
    if chosen is None:
        return values.reshape(shape)
    whole = np.zeros(shape)
    whole[np.ix_(*chosen)] = values.reshape([len(cells) for cells in chosen])
    return whole
