"""All kinds of queries: from their words, and from their canonical forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from app.declarations.explaining import explain
from app.spaces.errors import InvalidQuery
from app.spaces.graph import GraphSpace
from app.spaces.multiset import MultisetSpace
from app.spaces.queries import blocks, canonical, degrees, elements, marginal, statistic
from app.spaces.queries.blocks import BlocksQuery
from app.spaces.queries.cells import DenseQuery, SparseQuery
from app.spaces.queries.cut import CutQuery, RankOneQuery
from app.spaces.queries.degrees import DegreesQuery
from app.spaces.queries.elements import ElementsQuery
from app.spaces.queries.marginal import MarginalQuery
from app.spaces.queries.predicate import PredicateQuery, ProductQuery
from app.spaces.queries.statistic import MeanQuery, QuantileQuery, SumQuery, VarianceQuery
from app.spaces.query import Blobs, Query
from app.spaces.sided import SidedSpace
from app.spaces.space import Space
from app.spaces.table import TableSpace

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


def from_canonical(space: Space, form: Mapping[str, Any], blobs: Blobs) -> Query:
    """The query a canonical form stands for; ``blobs`` holds dense weights by SHA-256.

    The form is checked as any query is, and must be the canonical one of what it says.

    Raises:
        InvalidQuery: when it is not.
    """
    try:
        query = _read(space, form, blobs)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise InvalidQuery("not a canonical query") from None
    if query.canonical != form:
        raise InvalidQuery("not the canonical form of what it says")
    return query


def _read(space: Space, form: Mapping[str, Any], blobs: Blobs) -> Query:
    """The query of a form that may be anything; whatever it raises on a wrong one is an InvalidQuery."""
    match form["type"], space:
        case "marginal", TableSpace():
            return marginal.read(space, form)
        case "sum" | "mean" | "variance" | "quantile", TableSpace():
            return statistic.read(space, form, lambda base: _read(space, base, blobs))
        case "blocks", SidedSpace():
            return blocks.read(space, form)
        case "degrees", GraphSpace():
            return degrees.read(space, form)
        case _, MultisetSpace():
            return elements.read(space, form)
    return canonical.read(space, form, blobs)
