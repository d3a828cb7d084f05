"""Queries as they are asked: a JSON document, or an array of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.audit import writing
from app.spaces.errors import InvalidQuery
from app.spaces.queries.cells import dense_of
from app.spaces.queries.registry import parse_query
from app.spaces.queries.request import WANTED, QueryModel
from app.spaces.query import Query
from app.spaces.space import LOOKED_AT_BYTES, Space


@dataclass(frozen=True, slots=True)
class DenseBody:
    """A dense query that came as an array."""

    weights: Any
    wanted: QueryModel


@dataclass(frozen=True, slots=True)
class Asked:
    """A compiled query, and what is wanted of its answer.

    Attributes:
        query: what is asked.
        unverified: whether the hypothesis is to answer by itself.
        within: largest half-width of the answer's interval, in counts; None where nothing is said.
        confidence: of the interval; None where nothing is said.
        adaptive: whether the question was chosen by what was released before.
        at_most: what the answer may charge of epsilon; None where nothing is said.
    """

    query: Query
    unverified: bool
    within: float | None
    confidence: float | None
    adaptive: bool
    at_most: float | None


def check_body(asked: Any) -> None:
    """Refuse a query that is no JSON object, before it waits for a turn.

    Raises:
        InvalidQuery: naming what is wrong.
    """
    if not isinstance(asked, dict | DenseBody):
        raise InvalidQuery("a query is a JSON object with a type")


def words(asked: Any) -> bytes | None:
    """The question that was asked, as a transcript keeps it beside its compiled form; None of an array, or a long one.

    What is wanted of the answer is no part of it.
    """
    if not isinstance(asked, dict):
        return None
    return writing.words({name: part for name, part in asked.items() if name not in WANTED})


def compiled(space: Space, asked: Any, room: int) -> Asked:
    """A query compiled against a space, and what is wanted of its answer.

    Args:
        space: of the data set.
        asked: the query.
        room: the bytes that may be taken for what the query writes out beside what it lists.

    Raises:
        InvalidQuery: naming what is wrong.
    """
    check_body(asked)
    if isinstance(asked, DenseBody):
        query, wanted = dense_of(space, asked.weights), asked.wanted
    else:
        words = parse_query(asked)
        looked_at = words.looked_at(space)
        if LOOKED_AT_BYTES * looked_at > room:
            raise InvalidQuery(
                f"the question looks at {looked_at:,} values, which takes {LOOKED_AT_BYTES * looked_at:,} bytes, and "
                f"{room:,} may be taken: name fewer attributes, or shorter ones, or have the limit raised "
                "(CURATOR_MEMORY_LIMIT)"
            )
        query, wanted = words.compiled(space), words
    return Asked(query, wanted.unverified, wanted.within, wanted.confidence, wanted.adaptive, wanted.at_most)
