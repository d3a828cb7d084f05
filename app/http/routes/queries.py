"""Routes of queries: one, and many in one commit.

They take the request as it is, around FastAPI's dependencies: these would cost more time than an answer does
(docs/decisions/0011-around-the-library-where-answers-go.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.declarations.errors import InvalidRequest
from app.http import bodies, dense_bodies, headers, schemas
from app.http.context import Context
from app.http.dependencies import KEY_SCHEMA, KEY_WORDS, context_of, idempotency_key, read_json
from app.http.marginal_tables import arrow_table
from app.http.openapi import problem_responses
from app.http.replies import JsonReply, Reply
from app.http.tickets import answer
from app.services.answering.tickets import Ticket
from app.services.principals import Principal
from app.services.query_bodies import check_body
from app.spaces.queries.registry import is_table
from app.spaces.queries.request import WANTED, QueryModel, parse_wanted

MAX_BATCH = 10_000
#: How many questions may be priced at once.
MAX_PRICES = 256
#: What the address of an array says of the answer that is wanted, in words.
_WORDS = ", ".join(QueryModel.model_fields)


async def ask(request: Request) -> Response:
    """Answer one query."""
    context = context_of(request)
    actor = await _asker(request, context)
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
        headers.expect_json(media_type)
        asked = await read_json(request, context, actor)
        key = idempotency_key(request, actor, asked)
    check_body(asked)
    as_table = headers.accepts_arrow(request)
    if as_table and not is_table(asked):
        raise InvalidRequest(
            "Accept: the answer to a marginal, to blocks or degrees, or to a statistic by groups, is sent as a "
            "table; of any other query ask for JSON"
        )
    ticket = Ticket("ask", request.path_params["id"], actor.name, (asked,), key)
    reply = await answer(context, request, actor, ticket)
    if as_table:
        return Reply(await run_in_threadpool(arrow_table, reply), media_type=headers.ARROW)
    return JsonReply(reply)


async def batch(request: Request) -> Response:
    """Answer many queries in one commit."""
    context = context_of(request)
    actor = await _asker(request, context)
    if headers.accepts_arrow(request):
        raise InvalidRequest("Accept: a batch is answered with JSON: ask for each table by itself")
    headers.expect_json(headers.media_type(request))
    asked = await read_json(request, context, actor)
    queries = _queries(asked, MAX_BATCH)
    context.authenticator.count(request, actor, len(queries))
    key = idempotency_key(request, actor, asked)
    ticket = Ticket("batch", request.path_params["id"], actor.name, queries, key)
    return JsonReply(await answer(context, request, actor, ticket))


async def price(request: Request) -> Response:
    """Say what a question would cost, or each of several as if it came next."""
    context = context_of(request)
    actor = await _asker(request, context)
    headers.expect_json(headers.media_type(request))
    asked = await read_json(request, context, actor)
    id = request.path_params["id"]
    if isinstance(asked, dict) and "queries" in asked:
        queries = _queries(asked, MAX_PRICES)
        context.authenticator.count(request, actor, len(queries))
        return JsonReply(await answer(context, request, actor, Ticket("prices", id, actor.name, queries)))
    check_body(asked)
    return JsonReply(await answer(context, request, actor, Ticket("price", id, actor.name, (asked,))))


def _queries(asked: Any, most: int) -> list[Any]:
    """The questions of a body that has several.

    Raises:
        InvalidRequest: when it is something else, or has too many.
    """
    if not isinstance(asked, dict):
        raise InvalidRequest("the body must be a JSON object")
    queries = asked.get("queries")
    if set(asked) != {"queries"} or not isinstance(queries, list) or not queries:
        raise InvalidRequest("give queries, a list of at least one query, and nothing else")
    if len(queries) > most:
        raise InvalidRequest(f"a batch holds at most {most:,} queries")
    return queries


async def _asker(request: Request, context: Context) -> Principal:
    """Who is asking, if the role may ask queries: auditors may not."""
    actor = await context.authenticator.authenticate(request)
    actor.require("analyst", "admin")
    return actor


def _wanted(request: Request) -> QueryModel:
    """The wanted accuracy of the answer to an array, by the address."""
    given = {name: _flag(request, name) for name in ("unverified", "adaptive")}
    return parse_wanted(given | {name: _number(request, name) for name in ("within", "confidence", "at_most")})


def _flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "false").lower()
    if value not in ("true", "1", "false", "0"):
        raise InvalidRequest(f"{name} must be true or false")
    return value in ("true", "1")


def _number(request: Request, name: str) -> float | None:
    value = request.query_params.get(name)
    try:
        return None if value is None else float(value)
    except ValueError:
        raise InvalidRequest(f"{name} must be a number") from None


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


# ---------------------------------------------------------------------- the document


class _PlainRoute(APIRoute):
    """A route that stands in the document and is served as one of Starlette's."""

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], **described: Any) -> None:
        super().__init__(path, endpoint, methods=["POST"], tags=["answers"], **described)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the endpoint and send what it replies."""
        if scope["method"] != "POST":
            raise HTTPException(405)
        reply: Response = await self.endpoint(Request(scope, receive))
        await reply(scope, receive, send)


def _described(content: dict[str, Any], parameters: list[dict[str, Any]], *, keyed: bool = False) -> dict[str, Any]:
    """What the document says of a request: its body and its parameters, an idempotency key among them or not."""
    id = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "title": "Id"}}
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": KEY_WORDS,
        "schema": {"type": "string", **KEY_SCHEMA},
    }
    return {
        "security": [{"key": []}],
        "parameters": [id, *parameters, *([key] if keyed else [])],
        "requestBody": {"required": True, "content": content},
    }


def _wanted_parameters() -> list[dict[str, Any]]:
    """The parameters of an array of weights, whose body cannot say what is wanted of the answer."""
    fields = QueryModel.model_json_schema()["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": f"of an array alone: {field['description']}",
            "schema": _parameter(field),
        }
        for name, field in fields.items()
    ]


def _parameter(field: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field in an address, where nothing is null."""
    kind = next((kind for kind in field.get("anyOf", ()) if kind.get("type") != "null"), field)
    return {name: value for name, value in kind.items() if name not in ("description", "title")}


_QUERY = {"$ref": "#/components/schemas/Query"}
_QUERIES = {
    "type": "object",
    "required": ["queries"],
    "additionalProperties": False,
    "properties": {"queries": {"type": "array", "minItems": 1, "items": _QUERY}},
}
#: Of several what is wrong with one is no fault of the body: it is told in its place.
_SEVERAL = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_PRICES,
    "items": {"description": "a question as it is alone"},
}
_PRICED = {"anyOf": [_QUERY, {**_QUERIES, "properties": {"queries": _SEVERAL}}]}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_REFUSALS = problem_responses(401, 403, 404, 408, 409, 413, 422, 429, 503)

#: What is tried before all other routes.
ROUTES = [
    _PlainRoute(
        "/v1/sessions/{id}/queries",
        ask,
        summary="Ask one query",
        response_model=schemas.AnswerView | schemas.MarginalView,
        responses={200: {"content": {headers.ARROW: {}}}, **_REFUSALS},
        openapi_extra=_described(
            {"application/json": {"schema": _QUERY}, headers.NPY: _BINARY, headers.ARROW: _BINARY},
            _wanted_parameters(),
            keyed=True,
        ),
    ),
    _PlainRoute(
        "/v1/sessions/{id}/queries/batch",
        batch,
        summary="Ask many queries in one commit",
        response_model=schemas.BatchView,
        responses=_REFUSALS,
        openapi_extra=_described({"application/json": {"schema": _QUERIES}}, [], keyed=True),
    ),
    _PlainRoute(
        "/v1/sessions/{id}/price",
        price,
        summary="What a question would cost, or several, each as if it came next; charges and records nothing",
        response_model=schemas.PriceView | schemas.PricesView,
        responses=_REFUSALS,
        openapi_extra=_described({"application/json": {"schema": _PRICED}}, []),
    ),
]
