"""Queries of a table as questions that evidence answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from app.evidence.measurements import Marginal, Partition
from app.evidence.questions import Cells, Local, Product, Question
from app.evidence.statistics import Statistic
from app.spaces.query import CompiledDense, CompiledLocal, CompiledMarginal, CompiledProduct, CompiledSparse, Query
from app.spaces.statistics import CompiledStatistic
from app.spaces.tensor import Array, FloatArray, IntArray

#: Which of a question's answers are a query's, along each of its attributes; None where all are.
Chosen = tuple[IntArray, ...] | None


def question_of(query: Query, sizes: Sequence[int]) -> tuple[Question, Chosen]:
    """The question that a compiled query of a table with these numbers of values asks.

    A marginal among the records that satisfy conditions is part of one of all records, which counts those within and
    those outside of each condition: the others cost nothing, and tell something.

    Raises:
        TypeError: for a query that no table has.
    """
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
    partitions: dict[int, Partition | None] = {}
    firsts: dict[int, IntArray] = {}
    for axis, cells in zip(query.axes, query.cells, strict=True):
        partitions[axis] = None if cells.labels is None else Partition.of(cells.labels)
        firsts[axis] = np.array([members[0] for members in cells.members], np.int64)
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
