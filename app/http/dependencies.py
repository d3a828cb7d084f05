"""What routes depend on: the use cases, who is asking, a body of JSON, an idempotency key, a turn at costly work.

FastAPI reads a body before it asks any dependency. Here bodies are dependencies themselves, on the caller: nothing of a
request is read before its key is known.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Depends, Header
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from pydantic import ValidationError
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request

from app.declarations.errors import InvalidRequest
from app.http import bodies, json_bodies
from app.http.context import Context
from app.http.fair_queue import CostlyWork
from app.http.headers import expect_json, header, media_type
from app.http.schemas import Body
from app.services.idempotency import IdempotencyKey
from app.services.ports import Role
from app.services.principals import Principal
from app.services.services import Services

# ---------------------------------------------------------------------- the service


def context_of(request: Request) -> Context:
    """The context that the application of a request was made over."""
    context: Context = request.app.state.context
    return context


async def _context(request: Request) -> Context:
    return context_of(request)


async def _use_cases(request: Request) -> Services:
    return context_of(request).services


#: What HTTP adds to the use cases, and the use cases.
AppContext = Annotated[Context, Depends(_context)]
UseCases = Annotated[Services, Depends(_use_cases)]

# ---------------------------------------------------------------------- who is asking


class ApiKey(SecurityBase):
    """Who is asking, told by the authenticator; for the document, a scheme of keys. One dependency: each costs as much
    as a use case that only reads.
    """

    model, scheme_name = HTTPBearer(), "key"

    async def __call__(self, request: Request) -> Principal:
        """Who is asking. Counts the request.

        Raises:
            Unauthenticated: when the key is nobody's.
            TooManyRequests: when the key comes too often.
        """
        return await context_of(request).authenticator.authenticate(request)


Caller = Annotated[Principal, Depends(ApiKey())]


class AnyOf:
    """The caller, who has one of some roles."""

    def __init__(self, *roles: Role) -> None:
        self._roles = roles

    async def __call__(self, actor: Caller) -> Principal:
        """The caller.

        Raises:
            Forbidden: when he has none of the roles.
        """
        actor.require(*self._roles)
        return actor


Admin = Annotated[Principal, Depends(AnyOf("admin"))]
#: Who may ask queries: auditors may not.
Asker = Annotated[Principal, Depends(AnyOf("analyst", "admin"))]
Auditor = Annotated[Principal, Depends(AnyOf("auditor", "admin"))]


async def _heavy(context: AppContext, actor: Caller) -> None:
    context.authenticator.count_heavy(actor)


#: Of a route whose requests take much work, and so count against a rate of its own, too: before the role is looked at.
HEAVY = Depends(_heavy)

# ---------------------------------------------------------------------- bodies


#: Of bodies that are parsed to no more than this nothing is counted: requests that are under way take as much anyway.
_SHORT = 1 << 14


async def read_json(request: Request, context: Context, actor: Principal) -> Any:
    """Read and parse a body of JSON. A large one counts as several requests.

    Raises:
        InvalidRequest: when it is not JSON, or is nested too deep.
        PayloadTooLarge: when it has more bytes or values than are parsed.
        TooManyRequests: when the key has sent too much.
        Unavailable: when the bodies of all requests leave no room for it.
    """
    body = await bodies.read(request, context.limits.max_query_body_bytes, context.body_memory)
    return _parsed(request, context, actor, body)


def _parsed(request: Request, context: Context, actor: Principal, body: bytes) -> Any:
    weight = json_bodies.weigh(body)
    context.authenticator.count(request, actor, weight.requests)
    if weight.size > _SHORT:
        context.body_memory.reserve_parsed(request.scope, weight.size)
    return json_bodies.parse_json(body, context.limits.max_json_depth)


class JsonObject(bodies.Described):
    """A body that is a JSON object, which the use case judges.

    Args:
        model: what the document says of it; None says nothing.
        optional: said of a body that is something else where it may be left out. It is then read whatever it is
            declared to be, and none at all is an empty object.
    """

    def __init__(self, model: Any, optional: str = "") -> None:
        super().__init__(model, required=not optional)
        self._refusal = optional or "the body must be a JSON object"

    async def __call__(self, request: Request, context: AppContext, actor: Caller) -> dict[str, Any]:
        """The object.

        Raises:
            InvalidRequest: when it is or is declared to be something else.
            PayloadTooLarge: as :func:`read_json`.
            TooManyRequests: as :func:`read_json`.
            Unavailable: as :func:`read_json`.
        """
        if self.required:
            expect_json(media_type(request))
            document = await read_json(request, context, actor)
        else:
            body = await bodies.read(request, context.limits.max_query_body_bytes, context.body_memory)
            document = _parsed(request, context, actor, body) if body.strip() else {}
        if not isinstance(document, dict):
            raise InvalidRequest(self._refusal)
        return document


class JsonModel(JsonObject):
    """A body that is a JSON object with the fields of a model."""

    def __init__(self, model: type[Body], *, required: bool = True) -> None:
        super().__init__(model, "" if required else model.refusal)
        self._model = model

    async def __call__(self, request: Request, context: AppContext, actor: Caller) -> Any:
        """The model of the object.

        Raises:
            InvalidRequest: in the model's words, when fields are missing or unknown.
            PayloadTooLarge: as :func:`read_json`.
            TooManyRequests: as :func:`read_json`.
            Unavailable: as :func:`read_json`.
        """
        document = await super().__call__(request, context, actor)
        try:
            return self._model.model_validate(document)
        except ValidationError:
            raise InvalidRequest(self._model.refusal) from None


# ---------------------------------------------------------------------- idempotency keys


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


#: How the document describes the header.
KEY_SCHEMA: dict[str, Any] = {"minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
KEY_WORDS = (
    "names this call: a repeat with the same key and body gets the same reply while the session is open, and for seven "
    "days after it was closed"
)


async def _keyed(
    request: Request,
    actor: Caller,
    described: Annotated[
        str | SkipJsonSchema[None],
        Header(alias="Idempotency-Key", description=KEY_WORDS, json_schema_extra=KEY_SCHEMA),
    ] = None,
) -> Callable[[Any], IdempotencyKey | None]:
    return partial(idempotency_key, request, actor)


#: The idempotency key of a call, by what its body says.
Keyed = Annotated[Callable[[Any], IdempotencyKey | None], Depends(_keyed)]

# ---------------------------------------------------------------------- turns


class Turn:
    """A turn at costly work, from when the other dependencies are there until the endpoint has returned. Declare it
    behind the body, which must have been read.
    """

    def __init__(self, queue: Literal["plans", "exports", "uploads"]) -> None:
        self._queue = queue

    async def __call__(self, request: Request, context: AppContext, actor: Caller) -> AsyncIterator[CostlyWork]:
        """The work, which is given up when nobody waits for it.

        Raises:
            TooManyRequests: when too many of the principal's requests wait.
            Unavailable: when too many requests wait in all, or the work was given up.
        """
        async with getattr(context, self._queue).turn(request, actor) as work:
            yield work


PlanTurn = Annotated[CostlyWork, Depends(Turn("plans"), scope="function")]
ExportTurn = Annotated[CostlyWork, Depends(Turn("exports"), scope="function")]
UploadTurn = Annotated[CostlyWork, Depends(Turn("uploads"), scope="function")]
