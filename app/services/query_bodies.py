"""Queries as they are asked: a JSON document, or an array of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.spaces.errors import InvalidQuery
from app.spaces.query import Query
from app.spaces.query_request import parse_query
from app.spaces.space import Space


@dataclass(frozen=True, slots=True)
class DenseBody:
    """A dense query that came as an array."""

    weights: Any
    unverified: bool = False


def check_body(asked: Any) -> None:
    """Refuse a query that is no JSON object, before it waits for a turn.

    Raises:
        InvalidQuery: naming what is wrong.
    """
    if not isinstance(asked, dict | DenseBody):
        raise InvalidQuery("a query is a JSON object with a type")


def compiled(space: Space, asked: Any) -> tuple[Query, bool]:
    """A query compiled against a space, and whether an unverified answer is asked for.

    Raises:
        InvalidQuery: naming what is wrong.
    """
    check_body(asked)
    if isinstance(asked, DenseBody):
        return space.compile_dense(asked.weights), asked.unverified
    words = parse_query(asked)
    return space.compile(words), words.unverified
