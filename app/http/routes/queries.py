"""Routes of queries: one, and many in one commit."""

from __future__ import annotations

import hashlib
from typing import Any

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.declarations.errors import InvalidRequest
from app.http import bodies, dense_bodies, headers, schemas
from app.http.context import Context
from app.http.marginal_tables import arrow_table
from app.http.openapi import problem_responses, query_body, wanted_parameters
from app.http.replies import encoded_reply
from app.http.requests import asker_of, flag, idempotency_key, json_body, json_object, number
from app.http.tickets import answer
from app.services.answering.tickets import Ticket
from app.services.query_bodies import check_body
from app.spaces.queries.registry import is_table
from app.spaces.queries.request import WANTED, QueryModel, parse_wanted

MAX_BATCH = 10_000
#: What the address of an array says of the answer that is wanted, in words.
_WORDS = ", ".join(QueryModel.model_fields)


def add_routes(app: FastAPI, context: Context) -> None:
    """Add these routes."""

    @app.post(
        "/v1/sessions/{id}/queries",
        tags=["answers"],
        summary="Ask one query",
        response_model=schemas.AnswerView | schemas.MarginalView,
        responses={200: {"content": {headers.ARROW: {}}}, **problem_responses(401, 403, 404, 409, 413, 422)},
        openapi_extra={
            "requestBody": query_body(single=True),
            "parameters": wanted_parameters(),
        },
    )
    async def ask(request: Request, id: str) -> Response:
        actor = await asker_of(request, context)
        media_type = headers.media_type(request)
        asked: Any
        if media_type in (headers.NPY, headers.ARROW):
            body = await bodies.read(request, context.limits.max_body_bytes, context.body_memory)
            wanted = _wanted(request)
            asked = await run_in_threadpool(dense_bodies.dense_body, media_type, body, wanted)
            key = None
            if "idempotency-key" in request.headers:
                digest = await run_in_threadpool(_sha256, body)
                key = idempotency_key(request, actor, [media_type, digest, wanted.model_dump()])
        else:
            if request.scope["query_string"] and not WANTED.isdisjoint(request.query_params):
                raise InvalidRequest(f"{_WORDS} are fields of a JSON query: only an array has them in the address")
            asked = await json_body(request, context, actor)
            key = idempotency_key(request, actor, asked)
        check_body(asked)
        as_table = headers.accepts_arrow(request)
        if as_table and not is_table(asked):
            raise InvalidRequest(
                "Accept: the answer to a marginal, to blocks or degrees, or to a statistic by groups, is sent as a "
                "table; of any other query ask for JSON"
            )
        reply = await answer(context, request, actor, Ticket("ask", id, actor.name, (asked,), key))
        if as_table:
            return Response(await run_in_threadpool(arrow_table, reply), media_type=headers.ARROW)
        return encoded_reply(reply)

    @app.post(
        "/v1/sessions/{id}/queries/batch",
        tags=["answers"],
        summary="Ask many queries in one commit",
        response_model=schemas.BatchView,
        responses=problem_responses(401, 403, 404, 409, 413, 422),
        openapi_extra={"requestBody": query_body(single=False)},
    )
    async def batch(request: Request, id: str) -> Response:
        actor = await asker_of(request, context)
        if headers.accepts_arrow(request):
            raise InvalidRequest("Accept: a batch is answered with JSON: ask for each table by itself")
        asked = await json_object(request, context, actor)
        queries = asked.get("queries")
        if set(asked) != {"queries"} or not isinstance(queries, list) or not queries:
            raise InvalidRequest("give queries, a list of at least one query, and nothing else")
        if len(queries) > MAX_BATCH:
            raise InvalidRequest(f"a batch holds at most {MAX_BATCH:,} queries")
        context.authenticator.count(request, actor, len(queries))
        key = idempotency_key(request, actor, asked)
        return encoded_reply(await answer(context, request, actor, Ticket("batch", id, actor.name, queries, key)))


def _wanted(request: Request) -> QueryModel:
    """The wanted accuracy of the answer to an array, by the address."""
    given = {name: flag(request, name) for name in ("unverified", "adaptive")}
    return parse_wanted(given | {name: number(request, name) for name in ("within", "confidence")})


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
