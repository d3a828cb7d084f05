"""Statistics of numbers that records have: sums, means, variances and quantiles of one attribute on a grid.

None of them is a sum with weights in [-1, 1], so that none has an inner product with the data. Each follows from counts
of records and from moments of the attribute, which whoever answers it measures (:mod:`app.policies.statistics`). Here
is what is asked: the kind, the attribute, and the records that it is asked of, or the groups of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, StrictStr
from pydantic import field_validator as _field_validator
from pydantic import model_validator as _model_validator

from app.declarations.conditions import Where
from app.spaces.errors import InvalidQuery
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal, Partition
from app.spaces.queries import canonical
from app.spaces.queries.forms import Form, Whole
from app.spaces.queries.linear import CompiledDense, CompiledLocal, CompiledProduct, CompiledZero
from app.spaces.queries.marginal import CompiledMarginal, MarginalQuery, SingleCell, marginal
from app.spaces.queries.predicate import predicate, values_looked_at
from app.spaces.queries.request import Bins, Request, Weight, does_not_fit
from app.spaces.query import Query
from app.spaces.questions import Groups, Local, Question, Sum
from app.spaces.space import Space
from app.spaces.table import TableSpace
from app.spaces.tensor import Array, FloatArray, IntArray, Members

#: Parts of the records are told apart by so much: of fewer than a billion records less is less than one.
LEAST_PART = 1e-9
#: Answers are whole multiples of a power of two that many bits below the largest that there can be.
_BITS = 50
#: Kinds whose values are numbers of the grid, or may be.
_OF_THE_GRID = ("mean", "quantile", "weighted quantile")


class GroupedQuery(Request):
    """A query of the records that satisfy every condition, once or for each of their groups.

    With ``group_by`` there is one answer for each combination of values of some attributes, which ``bins`` merges as in
    a marginal.
    """

    of: Any
    where: Where = Field(default_factory=Where)
    group_by: list[StrictStr] = Field(default_factory=list, max_length=60)
    bins: Bins = Field(default_factory=dict)

    @_model_validator(mode="after")
    def _grouped_once(self) -> Self:
        if len(set(self.group_by)) < len(self.group_by):
            raise ValueError("group_by: attributes must be distinct")
        if not self.bins.keys() <= set(self.group_by):
            raise ValueError("bins are of attributes that are grouped by")
        return self

    def base(self, space: TableSpace, there: Mapping[int, Members] = MappingProxyType({})) -> Query:
        """The numbers of records that it is asked of, one for each group.

        Args:
            space: the table.
            there: by axis the values that count.

        Raises:
            InvalidQuery: when words do not fit the table, or a single group is left.
        """
        if not self.group_by:
            return records(space, self.where, there)
        words = {"type": "marginal", "attributes": self.group_by, "bins": self.bins}
        asked = MarginalQuery.model_validate(words).model_copy(update={"where": self.where})
        try:
            return marginal(space, asked, there)
        except SingleCell:
            raise InvalidQuery(
                f"group_by: a single group is left: ask for its {self.name()} without group_by, by a condition in where"
            ) from None


class StatisticQuery(GroupedQuery):
    """A statistic of an attribute that is declared with a grid, over the records that satisfy every condition.

    Records without a value of the attribute are none of them. With ``group_by`` there is one for each combination of
    values of some attributes, which ``bins`` merges as in a marginal.
    """

    of: StrictStr = Field(description="the attribute")

    @property
    def levels(self) -> tuple[float, ...]:
        """Of quantiles the parts that are asked for."""
        return ()

    def compiled(self, space: Space) -> Query:
        kind = self.name()
        if not isinstance(space, TableSpace):
            raise does_not_fit(kind, space)
        axis = axis_of(space, kind, self.of)
        attribute = space.attributes[axis]
        # Whatever its value is, there must be one.
        there: dict[int, Members] = {axis: slice(0, attribute.places)} if attribute.missing else {}
        return _of(space, kind, axis, self.base(space, there), self.levels)

    def looked_at(self, space: Space) -> int:
        return values_looked_at(space, self.where, [*self.group_by, self.of])

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        if not isinstance(space, TableSpace):
            return None
        said = _StatisticForm.read(form)
        kind, axis, levels = cls.name(), said.of, tuple(said.q)
        check_axis(space, axis)
        if (kind == "quantile") != bool(levels) or not all(
            low < level < high for low, level, high in zip((0.0, *levels), levels, (*levels[1:], 1.0), strict=False)
        ):
            raise InvalidQuery("canonical levels are out of range")
        return _of(space, kind, axis, read_base(space, said.base), levels)


class _StatisticForm(Form):
    of: Whole
    base: dict[str, Any]
    q: list[float] = Field(default_factory=list)


class SumQuery(StatisticQuery):
    """The sum of an attribute."""

    type: Literal["sum"]


class MeanQuery(StatisticQuery):
    """The mean of an attribute."""

    type: Literal["mean"]


class VarianceQuery(StatisticQuery):
    """The variance of an attribute: the mean square of what values differ from their mean by."""

    type: Literal["variance"]


class QuantileQuery(StatisticQuery):
    """Quantiles of an attribute: the least values that a part ``q`` of the records, or more, do not pass."""

    type: Literal["quantile"]
    q: Weight | Annotated[list[Weight], Field(fail_fast=True, min_length=1, max_length=100)] = Field(
        description="a number between 0 and 1, or several, ascending"
    )

    @_field_validator("q")
    @classmethod
    def _ascending(cls, value: float | list[float]) -> float | list[float]:
        levels = value if isinstance(value, list) else [value]
        if not all(LEAST_PART <= level <= 1 - LEAST_PART for level in levels):
            raise ValueError(f"a quantile's q lies between 0 and 1, at least {LEAST_PART:g} from either")
        if any(b - a < LEAST_PART for a, b in pairwise(levels)):
            raise ValueError(f"several q ascend, each at least {LEAST_PART:g} above the one before")
        return value

    @property
    def levels(self) -> tuple[float, ...]:
        """All that is asked for."""
        return tuple(self.q) if isinstance(self.q, list) else (self.q,)


class CompiledStatistic(Query):
    """A number that follows from counts of records and from what is measured beside them, once or for each of several
    groups.

    Attributes:
        kind: which.
        base: the numbers of records that it is asked of, one for each group.
        answer_bits: answers are whole multiples of ``2^-answer_bits``.
    """

    kind: str
    base: Query
    answer_bits: int

    grid_bits = 0
    rounding = 0.0

    @property
    def numbers(self) -> int:  # type: ignore[override]
        return self.base.numbers

    @property
    def only(self) -> str:  # type: ignore[override]
        return f"a {self.kind} is answered by sessions whose mechanism is evidence or histogram: open one"

    @property
    def counts(self) -> Query:
        """The query of counts that it follows from."""
        return self.base

    @property
    def weighed(self) -> tuple[int, ...]:
        """The attributes whose numbers are summed, or counted in ranges, in each of these cells."""
        return ()

    @property
    def chosen(self) -> tuple[IntArray, ...] | None:
        return self.base.chosen

    @lazy
    def groups(self) -> IntArray:
        """The places of its own among the answers of its question, flat: one for each group."""
        places = np.arange(math.prod(self.question.shape)).reshape(self.question.shape)
        return self.selected(places)

    @lazy
    def labels(self) -> list[dict[str, Any]]:
        return list(self.base.labels)

    def ordered(self, values: Array) -> Array:
        return self.base.ordered(values)


class OnGrid:
    """The declared numbers of an attribute.

    Attributes:
        low: the least one.
        step: of their grid.
        places: how many there are.
    """

    low: float
    step: float
    places: int

    @property
    def high(self) -> float:
        """The largest one."""
        return float(self.at(self.places - 1))

    @lazy
    def _parts(self) -> tuple[int, int, int]:
        """The least number and the step, counted in parts of one, and how many parts one has."""
        low, step = (Fraction(repr(each)) for each in (self.low, self.step))
        parts = math.lcm(low.denominator, step.denominator)
        return int(low * parts), int(step * parts), parts

    def at(self, places: Array | int) -> FloatArray:
        """The numbers at some places, as they are declared: steps of .1 that are added up miss 36.8 by rounding."""
        low, step, parts = self._parts
        return np.asarray((low + step * np.asarray(places, np.float64)) / parts)

    def declared(self, values: FloatArray, bits: int) -> FloatArray:
        """Values on a grid of ``2^-bits``, of which those become declared numbers that the grid alone keeps from it."""
        near = self.at(np.clip(np.rint((values - self.low) / self.step), 0, self.places - 1))
        return np.where(np.abs(values - near) <= math.ldexp(1, -bits), near, values)


@dataclass(frozen=True, eq=False)
class StatisticOfNumbers(OnGrid, CompiledStatistic):
    """A statistic of an attribute over records, or over each of several groups of them. Those without a value of the
    attribute count for nothing, whether they are among the base or not.

    Attributes:
        kind: which.
        axis: of the attribute.
        low: its least number.
        step: of its grid.
        places: how many numbers it has.
        base: the numbers of records that it is asked of.
        levels: of quantiles the parts of the records that lie below, ascending; empty otherwise.
        universe: how many values each attribute of the table has.
        answer_bits: answers are whole multiples of ``2^-answer_bits``.
    """

    kind: str
    axis: int
    low: float
    step: float
    places: int
    base: Query
    levels: tuple[float, ...]
    universe: tuple[int, ...]
    answer_bits: int

    def told(self, values: FloatArray) -> FloatArray:
        if self.kind not in _OF_THE_GRID:
            return values
        return self.declared(values, self.answer_bits)

    @property
    def numbers(self) -> int:  # type: ignore[override]
        return self.base.numbers * max(1, len(self.levels))

    @property
    def is_zero(self) -> bool:  # type: ignore[override]
        return self.kind == "sum" and self.base.is_zero

    @lazy
    def question(self) -> Question:
        """The numbers of records that it is asked of, as far as they have a value."""
        question = self.base.question
        if isinstance(question, Local | Groups) and self.universe[self.axis] > self.places:
            return _valued(question, self.axis, self.places, self.universe)
        return question

    @property
    def weighed(self) -> tuple[int, ...]:
        return (self.axis,)

    @lazy
    def canonical(self) -> dict[str, Any]:
        form = {"base": self.base.canonical, "of": self.axis, "type": self.kind}
        return form | ({"q": [repr(level) for level in self.levels]} if self.levels else {})

    @lazy
    def labels(self) -> list[dict[str, Any]]:
        """The axes of the answer as JSON: those of the groups, and one of the parts where there are several."""
        axes = list(self.base.labels)
        return [*axes, {"attribute": "q", "labels": list(self.levels)}] if len(self.levels) > 1 else axes

    def ordered(self, values: Array) -> Array:
        """Numbers, group by group and for each group one a level, in the order of the answer."""
        each = values.reshape(self.base.numbers, -1)
        return np.stack([self.base.ordered(column) for column in each.T], axis=1).reshape(-1)


class StatisticOfCells(CompiledStatistic):
    """A statistic that follows from several numbers of records of each group, which are sums of cells of one marginal.

    Attributes:
        universe: how many values each attribute of the table has.
    """

    universe: tuple[int, ...]

    @property
    def counts(self) -> Query:
        """Itself, by all that it tells apart."""
        return self.base if self.base.is_zero else self

    @property
    def chosen(self) -> None:
        return None

    def telling(self, *others: Question) -> Marginal:
        """The marginal that tells all apart that the groups and other questions tell."""
        told: dict[int, Partition | None] = {}
        for question in (self.base.question, *others):
            for attribute, partition in zip(question.attributes, question.partitions, strict=True):
                before = told.get(attribute)
                told[attribute] = partition if before is None else before.met(partition)
        return Marginal.of(self.universe, told)

    def groups_of(self, marginal: Marginal) -> Groups:
        """The numbers of records that it is asked of, as sums of cells of a marginal that tells these apart."""
        shape = self.base.shape if isinstance(self.base, CompiledMarginal) else ()
        return Groups(marginal, counted(self.base, marginal), shape)


def counted(query: Query, marginal: Marginal) -> IntArray:
    """For each cell of a marginal the place of the number of a query that counts it, -1 where none does."""
    question = query.question
    own = [marginal.partition(marginal.attributes.index(a)) for a in question.attributes]
    if isinstance(question, Sum):
        found = np.where(question.on(own) != 0, 0, -1)
    else:
        if isinstance(question, Groups):
            answers = question.answers
        else:
            answers = np.full(question.cells, -1)
            answers[query.selected(np.arange(question.cells).reshape(question.shape))] = np.arange(query.numbers)
            answers = answers.reshape(question.shape)
        cells = [asked.at(fine.members) for asked, fine in zip(question.partitions, own, strict=True)]
        found = answers[np.ix_(*cells)]
    along = [n if a in question.attributes else 1 for a, n in zip(marginal.attributes, marginal.shape, strict=True)]
    return np.broadcast_to(found.reshape(along), marginal.shape)


def axis_of(space: TableSpace, kind: str, name: str) -> int:
    """The number of an attribute on a grid.

    Raises:
        InvalidQuery: when there is none of this name, or it is declared without one.
    """
    axis, values = space.named(name)
    if values.attribute.kind != "numbers":
        raise InvalidQuery(f"{name}: a {kind} is of numbers on a grid, and this attribute is declared without one")
    return axis


def check_axis(space: TableSpace, axis: int) -> None:
    """Refuse the attribute of a canonical form that is none on a grid.

    Raises:
        InvalidQuery: saying so.
    """
    if axis >= len(space.attributes) or space.attributes[axis].kind != "numbers":
        raise InvalidQuery("a canonical statistic is of an attribute on a grid")


def records(space: TableSpace, where: Where, there: Mapping[int, Members] = MappingProxyType({})) -> Query:
    """The records that satisfy conditions, of those that count, by a form that tells all of them."""
    return _combined(space, predicate(space, where, there))


def _combined(space: TableSpace, query: Query) -> Query:
    """Weights of 0 and 1 on combinations of the values of all attributes as they are told of some."""
    if not isinstance(query, CompiledDense):
        return query
    return canonical.settled(space, CompiledLocal(tuple(range(query.weights.ndim)), query.weights != 0, query.shape))


def read_base(space: TableSpace, form: Mapping[str, Any]) -> Query:
    """The numbers of records of a canonical form.

    Raises:
        InvalidQuery: when they are no counts, or out of range, or it is no such form at all.
    """
    base = (
        MarginalQuery.read(space, form)
        if form.get("type") == MarginalQuery.name()
        else _combined(space, canonical.read(space, form))
    )
    if not isinstance(base, CompiledMarginal | CompiledProduct | CompiledLocal | CompiledZero) or base.grid_bits:
        raise InvalidQuery("a canonical statistic is of counted records")
    return base


def _of(space: TableSpace, kind: str, axis: int, base: Query, levels: tuple[float, ...]) -> StatisticOfNumbers:
    attribute = space.attributes[axis]
    low, high = attribute.bounds
    bits = answer_bits(kind, low, high, space.capacity)
    return StatisticOfNumbers(
        kind, axis, float(low), float(attribute.step), attribute.places, base, levels, space.shape, bits
    )


def _valued(question: Local | Groups, axis: int, places: int, sizes: Sequence[int]) -> Groups:
    """The same counts of those records alone that have a value of an attribute, whose last place is that of none."""
    there = Partition.of(np.arange(sizes[axis]) == places)
    partitions = dict(zip(question.attributes, question.partitions, strict=True))
    partitions[axis] = partitions[axis].met(there) if axis in partitions else there
    marginal = Marginal.of(sizes, partitions)
    labels = [
        question.partitions[k].labels[partitions[attribute].members] for k, attribute in enumerate(question.attributes)
    ]
    if isinstance(question, Groups):
        answers = question.answers[np.ix_(*labels)]
    else:
        answers = np.where(question.on(question.partitions)[np.ix_(*labels)] != 0, 0, -1)
    place = marginal.attributes.index(axis)
    if axis not in question.attributes:
        answers = np.repeat(np.expand_dims(answers, place), partitions[axis].cells, axis=place)
    valued = (partitions[axis].members < places).reshape([-1 if k == place else 1 for k in range(answers.ndim)])
    return Groups(marginal, np.where(valued, answers, -1), question.shape)


def answer_bits(kind: str, low: Fraction, high: Fraction, capacity: int) -> int:
    """The grid that answers of a kind live on, as bits: fine beside the largest answer that there can be."""
    largest = max(abs(low), abs(high))
    if kind == "sum":
        largest *= capacity
    if kind == "variance":
        largest = (high - low) ** 2
    return _BITS - math.ceil(largest).bit_length()
