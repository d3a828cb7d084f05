"""Weighted questions: each record counts as many times as a declared attribute, the weight, says.

Of a sample from a survey a record stands for several of the population. The weighted number of records that satisfy
conditions is the sum of their weights, and is compiled to that: who asks for either asks the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, StrictBool

from app.spaces.errors import InvalidQuery
from app.spaces.queries import marginal, predicate
from app.spaces.queries.request import Request, Where, does_not_fit
from app.spaces.queries.statistic import SumQuery
from app.spaces.query import Query
from app.spaces.space import Space
from app.spaces.table import TableSpace


class Weighable(Request):
    """A query that may be asked of weighted records."""

    weighted: StrictBool = Field(
        default=False, description="each record counts as many times as the attribute with the role of a weight says"
    )


class PredicateQuery(predicate.PredicateQuery, Weighable):
    """How many records satisfy every condition, or with ``weighted`` the sum of their weights."""

    def compiled(self, space: Space) -> Query:
        return _sum(space, self.where).compiled(space) if self.weighted else super().compiled(space)


class MarginalQuery(marginal.MarginalQuery, Weighable):
    """How many records have each combination of values of some attributes, among those that satisfy every condition, or
    with ``weighted`` the sums of their weights.

    ``bins`` merges the values of an attribute: its edges are declared bin edges (of codes the integers from 0 to the
    size), each bin reaches up to the next edge, and what lies outside of the first and the last is not counted. Or it
    names groups of values, which are counted as one; what is in no group is not counted.
    """

    def compiled(self, space: Space) -> Query:
        if self.weighted:
            return _sum(space, self.where, self.attributes, self.bins).compiled(space)
        return super().compiled(space)


def weight_of(space: TableSpace) -> int:
    """The number of the attribute that weighs records.

    Raises:
        InvalidQuery: when none is declared to.
    """
    for axis, attribute in enumerate(space.attributes):
        if attribute.role == "weight":
            return axis
    raise InvalidQuery(
        "weighted: no attribute of the data set is declared with the role of a weight: leave weighted out, and ask for "
        "sums and ratios of attributes"
    )


def _sum(space: Space, where: Where, group_by: Sequence[str] = (), bins: Mapping[str, Any] | None = None) -> SumQuery:
    """The sum of the weights of some records, or of each of their groups."""
    if not isinstance(space, TableSpace):
        raise does_not_fit("weighted", space)
    words = {"type": "sum", "of": space.names[weight_of(space)], "group_by": list(group_by), "bins": bins or {}}
    return SumQuery.model_validate(words).model_copy(update={"where": where})
