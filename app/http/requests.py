"""The parts of a request that routes read: who is asking, a body of JSON, an idempotency key, parameters."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from app.declarations.errors import InvalidRequest
from app.http import bodies, json_bodies
from app.http.context import Context
from app.http.headers import expect_json, header
from app.services.principals import Principal
from app.services.sessions import IdempotencyKey


async def asker_of(request: Request, context: Context, *, heavy: bool = False) -> Principal:
    """Who is asking, if the role may ask queries: auditors may not.

    Args:
        request: of which nothing but the head has been read.
        context: of the service.
        heavy: whether the request takes much work, and so counts against a rate of its own.

    Raises:
        Forbidden: when it may not.
        Unauthenticated: when the key is nobody's.
        TooManyRequests: when the key comes too often.
    """
    actor = await context.authenticator.authenticate(request, heavy=heavy)
    actor.require("analyst", "admin")
    return actor


async def json_body(request: Request, context: Context, actor: Principal) -> Any:
    """Read and parse a body of JSON. A large one counts as several requests.

    Raises:
        InvalidRequest: when it is declared to be something else, is not JSON, or is nested too deep.
        PayloadTooLarge: when it has more bytes or values than are parsed.
        TooManyRequests: when the key has sent too much.
        Unavailable: when the bodies of all requests leave no room for it.
    """
    expect_json(request)
    body = await bodies.read(request, context.limits.max_query_body_bytes, context.body_memory)
    return _parsed(request, context, actor, body)


async def optional_json_body(request: Request, context: Context, actor: Principal) -> Any:
    """The JSON of a body, whatever it is declared to be; an empty object where there is none.

    Raises:
        InvalidRequest: when it is not JSON, or is nested too deep.
        PayloadTooLarge: as :func:`json_body`.
        TooManyRequests: as :func:`json_body`.
        Unavailable: as :func:`json_body`.
    """
    body = await bodies.read(request, context.limits.max_query_body_bytes, context.body_memory)
    return _parsed(request, context, actor, body) if body.strip() else {}


def _parsed(request: Request, context: Context, actor: Principal, body: bytes) -> Any:
    context.authenticator.count(request, actor, json_bodies.weigh(body))
    return json_bodies.parse_json(body, context.limits.max_json_depth)


async def json_object(request: Request, context: Context, actor: Principal) -> dict[str, Any]:
    """Read and parse a body that is a JSON object.

    Raises:
        InvalidRequest: when it is something else.
        PayloadTooLarge: as :func:`json_body`.
    """
    document = await json_body(request, context, actor)
    if not isinstance(document, dict):
        raise InvalidRequest("the body must be a JSON object")
    return document


def idempotency_key(request: Request, principal: Principal, document: Any) -> IdempotencyKey | None:
    """The request's idempotency key, which stands for a body that says ``document``; None where it has none.

    Raises:
        InvalidRequest: when it is none that can be kept.
    """
    key = header(request, b"idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= 255 or not key.isascii() or not key.isprintable():
        raise InvalidRequest("Idempotency-Key: 1 to 255 printable ASCII characters")
    return IdempotencyKey(principal.name, request.scope["path"], key, json_bodies.fingerprint(document))


def flag(request: Request, name: str) -> bool:
    """A parameter of the address that is true, false, or left out.

    Raises:
        InvalidRequest: when it is something else.
    """
    value = request.query_params.get(name, "false").lower()
    if value not in ("true", "1", "false", "0"):
        raise InvalidRequest(f"{name} must be true or false")
    return value in ("true", "1")


def number(request: Request, name: str) -> float | None:
    """A parameter of the address that is a number, or left out.

    Raises:
        InvalidRequest: when it is something else.
    """
    value = request.query_params.get(name)
    try:
        return None if value is None else float(value)
    except ValueError:
        raise InvalidRequest(f"{name} must be a number") from None
