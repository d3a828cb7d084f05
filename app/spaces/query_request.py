"""Query requests: queries as an analyst writes them.

These are the requests of the contract; a space compiles each of them once (:mod:`app.spaces.compilation`) into exact
integer weights. Weights are finite; whether they fit the space is the compiler's question.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, TypeAdapter, ValidationError
from pydantic import model_validator as _model_validator

from app.spaces.errors import InvalidQuery
from app.spaces.spec import explain

Weight = Annotated[float, Field(strict=True)]
Value = StrictInt | StrictStr | Annotated[float, Field(strict=True)]
Node = StrictInt | StrictStr
#: In a list only the first wrong item is described: a problem takes a hundred times the memory of its item.
Nodes = Annotated[list[Node], Field(fail_fast=True)]
Weights = Annotated[list[Weight], Field(fail_fast=True)]


class QueryModel(BaseModel):
    """Fields every query has."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    unverified: StrictBool = Field(
        default=False, description="answer from the hypothesis, free of charge and without an error bound"
    )


class Condition(BaseModel):
    """A set of values of one attribute: exactly one of ``between``, ``in`` and ``equals``."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)

    between: tuple[Value, Value] | None = Field(
        default=None, description="numeric: half-open, on bin edges; codes: inclusive"
    )
    in_: Annotated[list[Value], Field(fail_fast=True)] | None = Field(default=None, alias="in", min_length=1)
    equals: Value | None = None

    @_model_validator(mode="after")
    def _one(self) -> Self:
        if (self.between is not None) + (self.in_ is not None) + (self.equals is not None) != 1:
            raise ValueError("give exactly one of between, in, equals")
        return self


class PredicateQuery(QueryModel):
    """How many records satisfy every condition."""

    type: Literal["predicate"]
    where: dict[str, Condition]


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
    PredicateQuery | ProductQuery | CutQuery | RankOneQuery | SparseQuery | DenseQuery | ElementsQuery,
    Field(discriminator="type"),
]

_ADAPTER: TypeAdapter[QueryRequest] = TypeAdapter(QueryRequest)


def parse_query(asked: Any) -> QueryRequest:
    """The query that ``asked`` (parsed JSON) states.

    Raises:
        InvalidQuery: when it is none of the known forms or a field is not of its kind.
    """
    try:
        return _ADAPTER.validate_python(asked)
    except ValidationError as error:
        raise InvalidQuery(explain(error)) from None
