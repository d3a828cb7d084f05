"""All kinds of queries: from their words, and from their canonical forms.

A kind is a file of this folder, named here alone: its words say what they compile to and how forms of theirs are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter, ValidationError

from app.declarations.explaining import explain
from app.spaces.errors import InvalidQuery
from app.spaces.queries import canonical
from app.spaces.queries.blocks import BlocksQuery
from app.spaces.queries.cells import DenseQuery, SparseQuery
from app.spaces.queries.cut import CutQuery, RankOneQuery
from app.spaces.queries.degrees import DegreesQuery
from app.spaces.queries.elements import ElementsQuery
from app.spaces.queries.forms import kind_of
from app.spaces.queries.hierarchy import HierarchyQuery
from app.spaces.queries.predicate import ProductQuery
from app.spaces.queries.ratio import RatioQuery
from app.spaces.queries.request import Request
from app.spaces.queries.statistic import GroupedQuery, SumQuery, VarianceQuery
from app.spaces.queries.weighted import MarginalQuery, MeanQuery, PredicateQuery, QuantileQuery, ShareQuery
from app.spaces.query import Blobs, Query
from app.spaces.space import Space

QueryRequest = Annotated[
    PredicateQuery
    | MarginalQuery
    | SumQuery
    | MeanQuery
    | VarianceQuery
    | QuantileQuery
    | ShareQuery
    | RatioQuery
    | ProductQuery
    | CutQuery
    | RankOneQuery
    | BlocksQuery
    | DegreesQuery
    | SparseQuery
    | DenseQuery
    | ElementsQuery
    | HierarchyQuery,
    Field(discriminator="type"),
]
_ADAPTER: TypeAdapter[QueryRequest] = TypeAdapter(QueryRequest)
_KINDS: dict[str, type[Request]] = {kind.name(): kind for kind in get_args(get_args(QueryRequest)[0])}


def parse_query(asked: Any) -> QueryRequest:
    """The query that ``asked`` (parsed JSON) states.

    Raises:
        InvalidQuery: when it is none of the known forms or a field is not of its kind.
    """
    try:
        return _ADAPTER.validate_python(asked)
    except ValidationError as error:
        raise InvalidQuery(explain(error, QueryRequest, asked)) from None


def is_table(asked: Any) -> bool:
    """Whether the answer to a question (parsed JSON) is a table: by its kind, or as it is asked by groups or at several
    parts."""
    if not isinstance(asked, dict):
        return False
    kind, several = asked.get("type"), asked.get("q")
    return (
        (isinstance(kind, str) and _KINDS.get(kind, Request).tabled)
        or bool(asked.get("group_by"))
        or (isinstance(several, list) and len(several) > 1)
    )


def is_statistic(form: Any) -> bool:
    """Whether any JSON says that it is the canonical form of a statistic of records, or of groups of them.

    Raises:
        InvalidQuery: when it says nothing.
    """
    return issubclass(_KINDS.get(kind_of(form), Request), GroupedQuery)


def from_canonical(space: Space, form: Mapping[str, Any], blobs: Blobs) -> Query:
    """The query a canonical form stands for; ``blobs`` holds dense weights by SHA-256.

    The form is checked as any query is, and must be the canonical one of what it says.

    Raises:
        InvalidQuery: when it is not.
    """
    kind = _KINDS.get(kind_of(form), Request)
    query = kind.read(space, form) or canonical.read(space, form, blobs)
    if query.canonical != form:
        raise InvalidQuery("not the canonical form of what it says")
    return query
