"""Weighted questions: each record counts as many times as a declared attribute, the weight, says.

Of a sample from a survey a record stands for several of the population. The weighted number of records that satisfy
conditions is the sum of their weights, and is compiled to that: who asks for either asks the same. A weighted share and
a weighted mean are ratios of two sums, the lower one of weights (:mod:`app.policies.weighted`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from pydantic import Field, StrictBool

from app.declarations.conditions import Where
from app.spaces.errors import InvalidQuery
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal
from app.spaces.queries import marginal, predicate, share, statistic
from app.spaces.queries.ratio import CompiledRatio, Numbers
from app.spaces.queries.request import Request, does_not_fit
from app.spaces.queries.share import CompiledShare
from app.spaces.queries.statistic import StatisticOfNumbers, SumQuery, counted
from app.spaces.query import Query
from app.spaces.questions import Groups, Question
from app.spaces.space import Space
from app.spaces.table import TableSpace
from app.spaces.tensor import FloatArray


class Weighable(Request):
    """A query that may be asked of weighted records."""

    weighted: StrictBool = Field(
        default=False, description="each record counts as many times as the attribute with the role of a weight says"
    )

    def looked_at(self, space: Space) -> int:
        axis = _weight(space) if self.weighted else None
        return super().looked_at(space) + (0 if axis is None else space.shape[axis])


class PredicateQuery(Weighable, predicate.PredicateQuery):
    """How many records satisfy every condition, or with ``weighted`` the sum of their weights."""

    def compiled(self, space: Space) -> Query:
        return _sum(space, self.where).compiled(space) if self.weighted else super().compiled(space)


class MarginalQuery(Weighable, marginal.MarginalQuery):
    """How many records have each combination of values of some attributes, among those that satisfy every condition, or
    with ``weighted`` the sums of their weights.

    ``bins`` merges the values of an attribute: its edges are declared bin edges (of codes the integers from 0 to the
    size), each bin reaches up to the next edge, and what lies outside of the first and the last is not counted. Or it
    names groups of values, which are counted as one; what is in no group is not counted.
    """

    def compiled(self, space: Space) -> Query:
        # Words that do not fit are told of as they are said.
        plain = super().compiled(space)
        return _sum(space, self.where, self.attributes, self.bins).compiled(space) if self.weighted else plain


class ShareQuery(Weighable, share.ShareQuery):
    """The part of the records that satisfy every condition of ``where`` which satisfies every condition of ``of`` too,
    or with ``weighted`` of the sum of their weights.

    With ``group_by`` there is one for each combination of values of some attributes, which ``bins`` merges as in a
    marginal. There is none where there may be no records.
    """

    def compiled(self, space: Space) -> Query:
        found = super().compiled(space)
        return _share(space, found) if self.weighted else found

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        found = super().read(space, form)
        return _share(space, found) if found is not None and _is_weighted(form) else found


class MeanQuery(Weighable, statistic.MeanQuery):
    """The mean of an attribute, or with ``weighted`` the sum of its values times their records' weights over the sum of
    these."""

    def compiled(self, space: Space) -> Query:
        found = super().compiled(space)
        return _mean(space, found) if self.weighted else found

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        found = super().read(space, form)
        return _mean(space, found) if found is not None and _is_weighted(form) else found


class QuantileQuery(Weighable, statistic.QuantileQuery):
    """Quantiles of an attribute: the least values that a part ``q`` of the records, or more, do not pass, or with
    ``weighted`` a part of the sum of their weights."""

    def compiled(self, space: Space) -> Query:
        found = super().compiled(space)
        return _quantile(space, found) if self.weighted else found

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        found = super().read(space, form)
        return _quantile(space, found) if found is not None and _is_weighted(form) else found


@dataclass(frozen=True, eq=False)
class CompiledWeightedQuantile(StatisticOfNumbers):
    """Quantiles of an attribute over weighted records.

    Attributes:
        weight: the attribute that weighs them.
    """

    weight: Numbers = field(kw_only=True)

    @property
    def weighed(self) -> tuple[int, ...]:
        return self.axis, self.weight.axis

    @lazy
    def canonical(self) -> dict[str, Any]:
        return super().canonical | {"type": "quantile", "weight": self.weight.axis}


@dataclass(frozen=True, eq=False)
class CompiledWeightedShare(CompiledRatio):
    """The sum of the weights of records that satisfy conditions over that of all.

    Attributes:
        part: the number of the records of any group that satisfy the conditions.
    """

    part: Query = field(kw_only=True)

    kind = "weighted share"

    @property
    def weighed(self) -> tuple[int, ...]:
        return (self.per.axis,)

    def telling(self, *others: Question) -> Marginal:
        return super().telling(self.part.question, *others)

    def above(self, marginal: Marginal) -> Groups:
        below = self.below(marginal)
        return Groups(marginal, np.where(counted(self.part, marginal) >= 0, below.answers, -1), below.shape)

    @lazy
    def canonical(self) -> dict[str, Any]:
        return {"base": self.base.canonical, "of": self.part.canonical, "type": "share", "weight": self.per.axis}


@dataclass(frozen=True, eq=False)
class CompiledWeightedMean(CompiledRatio):
    """The sum of an attribute's numbers times weights over that of the weights, of records that have such a number.

    What is divided is the sum of the numbers from their middle, which is added to the ratio afterwards.
    """

    kind = "weighted mean"

    def marginal(self, numbers: Iterable[Numbers], singly: Iterable[Numbers] = ()) -> Marginal:
        return super().marginal([self.of], singly)

    def below(self, marginal: Marginal) -> Groups:
        return self.above(marginal)

    def told(self, values: FloatArray) -> FloatArray:
        return self.of.declared(values, self.answer_bits)

    @lazy
    def canonical(self) -> dict[str, Any]:
        return {"base": self.base.canonical, "of": self.of.axis, "type": "mean", "weight": self.per.axis}


def weight_of(space: TableSpace) -> int:
    """The number of the attribute that weighs records.

    Raises:
        InvalidQuery: when none is declared to.
    """
    axis = _weight(space)
    if axis is None:
        raise InvalidQuery(
            "weighted: no attribute of the data set is declared with the role of a weight: leave weighted out, and ask "
            "for sums and ratios of attributes"
        )
    return axis


def _weight(space: Space) -> int | None:
    attributes = space.attributes if isinstance(space, TableSpace) else ()
    return next((axis for axis, attribute in enumerate(attributes) if attribute.role == "weight"), None)


def _sum(space: Space, where: Where, group_by: Sequence[str] = (), bins: Mapping[str, Any] | None = None) -> SumQuery:
    """The sum of the weights of some records, or of each of their groups."""
    if not isinstance(space, TableSpace):
        raise does_not_fit("weighted", space)
    words = {"type": "sum", "of": space.names[weight_of(space)], "group_by": list(group_by), "bins": bins or {}}
    return SumQuery.model_validate(words).model_copy(update={"where": where})


def _share(space: Space, found: Query) -> CompiledWeightedShare:
    """The weighted form of a share."""
    assert isinstance(space, TableSpace)
    assert isinstance(found, CompiledShare)
    weights = Numbers.of(space, weight_of(space))
    return CompiledWeightedShare(found.base, weights, weights, space.shape, found.answer_bits, part=found.part)


def _mean(space: Space, found: Query) -> CompiledWeightedMean:
    """The weighted form of a mean."""
    found, weights = _of_numbers(space, found)
    of = Numbers(found.axis, found.low, found.step, found.places, weights)
    return CompiledWeightedMean(found.base, of, weights, found.universe, found.answer_bits)


def _quantile(space: Space, found: Query) -> CompiledWeightedQuantile:
    """The weighted form of quantiles."""
    found, weights = _of_numbers(space, found)
    said = {each.name: getattr(found, each.name) for each in fields(found)}
    return CompiledWeightedQuantile(**said | {"kind": "weighted quantile"}, weight=weights)


def _of_numbers(space: Space, found: Query) -> tuple[StatisticOfNumbers, Numbers]:
    """A statistic of an attribute, and the weights of records.

    Raises:
        InvalidQuery: when it is of the weights themselves.
    """
    assert isinstance(space, TableSpace)
    assert isinstance(found, StatisticOfNumbers)
    weights = Numbers.of(space, weight_of(space))
    if found.axis == weights.axis:
        raise InvalidQuery("of: is the attribute that records are weighted by: name another, or leave weighted out")
    return found, weights


def _is_weighted(form: Mapping[str, Any]) -> bool:
    """Whether a canonical form names a weight: by which attribute is seen when the query's own form is compared."""
    return "weight" in form
