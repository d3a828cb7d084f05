"""Query requests: queries as an analyst writes them.

These are the requests of the contract; a space compiles each of them once (:mod:`app.spaces.compilation`) into exact
integer weights. Weights are finite; whether they fit the space is the compiler's question.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
)
from pydantic import field_validator as _field_validator
from pydantic import model_validator as _model_validator

from app.declarations.explaining import explain
from app.spaces.errors import InvalidQuery

Weight = Annotated[float, Field(strict=True)]
Value = StrictInt | StrictStr | Annotated[float, Field(strict=True)]
Node = StrictInt | StrictStr
#: In a list only the first wrong item is described: a problem takes a hundred times the memory of its item.
Nodes = Annotated[list[Node], Field(fail_fast=True)]
Weights = Annotated[list[Weight], Field(fail_fast=True)]
#: Groups of nodes by what they are called.
Groups = Annotated[dict[StrictStr, Literal["all"] | Nodes], Field(min_length=1)]


class QueryModel(BaseModel):
    """What is wanted of an answer, whatever is asked. It is no part of the question."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    unverified: StrictBool = Field(
        default=False, description="answer from the hypothesis, free of charge and without an error bound"
    )
    within: Weight | None = Field(
        default=None, gt=0, description="largest half-width of the answer's interval, in counts"
    )
    confidence: Weight | None = Field(
        default=None, gt=0, lt=1, description="of the answer's interval; the session's where it is left out"
    )
    adaptive: StrictBool = Field(
        default=False,
        description="whether the question was chosen by what was released before, which takes a wider interval",
    )

    @_model_validator(mode="after")
    def _has_an_interval(self) -> Self:
        if self.unverified and self.within is not None:
            raise ValueError("an unverified answer has no interval: leave within out")
        return self


#: The fields that are no part of a question.
WANTED = frozenset(QueryModel.model_fields)


class Condition(BaseModel):
    """A set of values of one attribute: one of ``between``, ``in`` and ``equals``, or comparisons.

    Of comparisons there is one from below (``ge`` or ``gt``), one from above (``lt`` or ``le``), or one of each.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)

    between: tuple[Value, Value] | None = Field(
        default=None, description="numeric: half-open, on bin edges where there is no grid; codes and dates: inclusive"
    )
    in_: Annotated[list[Value | None], Field(fail_fast=True)] | None = Field(default=None, alias="in", min_length=1)
    equals: Value | None = Field(default=None, description="null: records without a value")
    ge: Value | None = Field(default=None, description="at least; numeric: a bin edge")
    gt: Value | None = Field(default=None, description="above; codes, and bins that are one integer wide")
    lt: Value | None = Field(default=None, description="below; numeric: a bin edge")
    le: Value | None = Field(default=None, description="at most; as gt, or the last bin edge")

    @_model_validator(mode="after")
    def _one(self) -> Self:
        compared = any(bound is not None for bound in (self.ge, self.gt, self.lt, self.le))
        if (self.between is not None) + (self.in_ is not None) + ("equals" in self.model_fields_set) + compared != 1:
            raise ValueError("give exactly one of between, in, equals, or comparisons")
        if (self.ge is not None and self.gt is not None) or (self.lt is not None and self.le is not None):
            raise ValueError("give at most one of ge and gt, and one of lt and le")
        return self

    @property
    def names_missing(self) -> bool:
        """Whether it is of the records without a value."""
        return self.equals is None and "equals" in self.model_fields_set


def _spelled_out(condition: Any) -> Any:
    """A bare value as the condition that it equals, a bare list as that it holds."""
    if isinstance(condition, dict | Condition):
        return condition
    return {"in": condition} if isinstance(condition, list) else {"equals": condition}


class Where(BaseModel):
    """Conditions by attribute, all of which must hold.

    Beside attributes there may be ``all`` and ``any``, lists of further conditions, and ``not``, what must not hold.
    """

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    __pydantic_extra__: dict[
        str,
        Annotated[
            Condition,
            BeforeValidator(_spelled_out, json_schema_input_type=Condition | Value | None | list[Value | None]),
        ],
    ]
    all: Annotated[list[Where], Field(fail_fast=True)] = Field(default_factory=list, min_length=1)
    any: Annotated[list[Where], Field(fail_fast=True)] = Field(default_factory=list, min_length=1)
    not_: Where | None = Field(default=None, alias="not")

    @_field_validator("not_", mode="before")
    @classmethod
    def _something(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("must be conditions")
        return value

    @property
    def conditions(self) -> dict[str, Condition]:
        """Those by attribute."""
        return self.__pydantic_extra__


class PredicateQuery(QueryModel):
    """How many records satisfy every condition."""

    type: Literal["predicate"]
    where: Where


class MarginalQuery(QueryModel):
    """How many records have each combination of values of some attributes, among those that satisfy every condition.

    ``bins`` merges the values of an attribute: its edges are declared bin edges (of codes the integers from 0 to the
    size), each bin reaches up to the next edge, and what lies outside of the first and the last is not counted.
    """

    type: Literal["marginal"]
    attributes: list[StrictStr] = Field(min_length=1, max_length=60)
    bins: dict[str, Annotated[list[Value], Field(fail_fast=True, min_length=2)]] = Field(default_factory=dict)
    where: Where = Field(default_factory=Where)

    @_model_validator(mode="after")
    def _named_once(self) -> Self:
        if len(set(self.attributes)) < len(self.attributes):
            raise ValueError("attributes must be distinct")
        if not self.bins.keys() <= set(self.attributes):
            raise ValueError("bins are of attributes that are asked for")
        return self


class StatisticQuery(QueryModel):
    """A statistic of an attribute that is declared with a grid, over the records that satisfy every condition.

    Records without a value of the attribute are none of them. With ``group_by`` there is one for each combination of
    values of some attributes, which ``bins`` merges as in a marginal.
    """

    of: StrictStr = Field(description="the attribute")
    where: Where = Field(default_factory=Where)
    group_by: list[StrictStr] = Field(default_factory=list, max_length=60)
    bins: dict[str, Annotated[list[Value], Field(fail_fast=True, min_length=2)]] = Field(default_factory=dict)

    @_model_validator(mode="after")
    def _grouped_once(self) -> Self:
        if len(set(self.group_by)) < len(self.group_by):
            raise ValueError("group_by: attributes must be distinct")
        if not self.bins.keys() <= set(self.group_by):
            raise ValueError("bins are of attributes that are grouped by")
        return self


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
        if not all(0 < level < 1 for level in levels):
            raise ValueError("a quantile's q lies between 0 and 1")
        if any(b <= a for a, b in pairwise(levels)):
            raise ValueError("several q ascend")
        return value

    @property
    def levels(self) -> tuple[float, ...]:
        """All that is asked for."""
        return tuple(self.q) if isinstance(self.q, list) else (self.q,)


class ProductQuery(QueryModel):
    """A weight vector for each named attribute; the others weigh one.

    The noise and the error bound are the same whatever the weights: for a mean ask the sum, with weights up to 1, and
    divide its value and its error bound.
    """

    type: Literal["product"]
    weights: dict[str, Weights]


class CutQuery(QueryModel):
    """The weight of all edges from ``left`` to ``right`` (of a graph: between S and T)."""

    type: Literal["cut"]
    left: Literal["all"] | Nodes
    right: Literal["all"] | Nodes


class RankOneQuery(QueryModel):
    """u'Xv for weight vectors u = ``left`` and v = ``right``.

    The noise and the error bound are the same whatever the weights: for the mean of a block ask its sum, with weights 0
    and 1, and divide its value and its error bound by the number of cells. Weights of one over that number would leave
    the whole error bound on a number that much smaller.
    """

    type: Literal["rank_one"]
    left: Weights
    right: Weights


class BlocksQuery(QueryModel):
    """The weight of all edges from each group of nodes to the left to each to the right; of a matrix sums of entries.

    The groups of a side are disjoint, and nodes in none of them are not counted. Of an undirected graph there is one
    number for each unordered pair of groups, which stands at both of its places.
    """

    type: Literal["blocks"]
    left: Groups = Field(description="groups of nodes, or of rows, by what they are called")
    right: Groups | None = Field(
        default=None, description="of the nodes to the right, or of columns; those to the left where it is left out"
    )
    only: Literal["within"] | None = Field(
        default=None, description="within: only from each group to the one of the same name, one number a name"
    )


class DegreesQuery(QueryModel):
    """How many nodes of a graph without weights have a degree in each bin."""

    type: Literal["degrees"]
    side: Literal["left", "right", "out", "in"] | None = Field(
        default=None,
        description="whose degrees; of a directed graph out is left and in is right, of an undirected "
        "graph it is left out",
    )
    bins: Annotated[list[StrictInt], Field(fail_fast=True)] | None = Field(
        default=None,
        min_length=2,
        max_length=1 << 16,
        description="the least degree of each bin, ascending from 0, the last bin without end; doubling where it is "
        "left out",
    )

    @_field_validator("bins")
    @classmethod
    def _from_none(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and (value[0] != 0 or any(b <= a for a, b in pairwise(value))):
            raise ValueError("bins ascend from 0")
        return value


class SparseQuery(QueryModel):
    """Weights of the listed cells; all others weigh zero. Indices are flat (row-major) or one list a cell."""

    type: Literal["sparse"]
    indices: Annotated[list[StrictInt], Field(fail_fast=True)] | Annotated[list[list[StrictInt]], Field(fail_fast=True)]
    weights: Weights


class DenseQuery(QueryModel):
    """A weight for every cell, row-major, flat or nested as the shape."""

    type: Literal["dense"]
    weights: list[Any]


class ElementsQuery(QueryModel):
    """Weights of the named elements of a multiset; every other element weighs zero."""

    type: Literal["elements"]
    weights: dict[str, Weight] = Field(min_length=1)


QueryRequest = Annotated[
    PredicateQuery
    | MarginalQuery
    | SumQuery
    | MeanQuery
    | VarianceQuery
    | QuantileQuery
    | ProductQuery
    | CutQuery
    | RankOneQuery
    | BlocksQuery
    | DegreesQuery
    | SparseQuery
    | DenseQuery
    | ElementsQuery,
    Field(discriminator="type"),
]


def parse_wanted(given: Mapping[str, Any]) -> QueryModel:
    """What is wanted of the answer to a query that says nothing of it.

    Raises:
        InvalidQuery: when a field is unknown or not of its kind.
    """
    try:
        return QueryModel.model_validate(given)
    except ValidationError as error:
        raise InvalidQuery(explain(error, QueryModel, given)) from None


_ADAPTER: TypeAdapter[QueryRequest] = TypeAdapter(QueryRequest)


def parse_query(asked: Any) -> QueryRequest:
    """The query that ``asked`` (parsed JSON) states.

    Raises:
        InvalidQuery: when it is none of the known forms or a field is not of its kind.
    """
    try:
        return _ADAPTER.validate_python(asked)
    except ValidationError as error:
        raise InvalidQuery(explain(error, QueryRequest, asked)) from None
