"""Routes of the log: whether the service's history only ever grows."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from app.declarations.errors import InvalidRequest
from app.http import bodies, schemas
from app.http.bodies import Described
from app.http.dependencies import HEAVY, AppContext, Auditor, Caller, UseCases
from app.http.openapi import problem_responses
from app.http.parameters import NUMBER, Number, Refused, Route
from app.http.replies import JsonReply
from app.services.cosignatures import MOST_LINES
from curator_client.proofs.notes import MOST_BYTES, NoteRefused, WitnessVerifier

#: The public key of a witness.
_KEY = r"^[!-*,-~]{1,255}\+[0-9a-f]{8}\+[A-Za-z0-9+/]{44}$"
#: The size of a log with something in it.
_Size = Annotated[int, Query(json_schema_extra={"minimum": 1}), NUMBER]

router = APIRouter(prefix="/v1/log", tags=["audit"], route_class=Route, responses=problem_responses(401, 429))


@router.get("/key", summary="The log's name and the key that it is signed with", response_model=schemas.LogKey)
def log_key(services: UseCases, actor: Caller) -> Response:
    return JsonReply(services.log.key())


@router.get(
    "/checkpoint",
    summary="How much is in the log, under one hash, signed, and cosigned by witnesses",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **problem_responses(404, 422),
    },
)
def checkpoint(
    services: UseCases,
    actor: Caller,
    witnesses: Annotated[
        Annotated[int, Field(ge=1, le=MOST_LINES)] | SkipJsonSchema[None],
        Query(description="the newest checkpoint that so many have cosigned; the newest of all where it is left out"),
        Refused(f"how many are needed at least, 1 to {MOST_LINES}", digits=3),
    ] = None,
    witness: Annotated[
        list[Annotated[str, WithJsonSchema({"type": "string", "pattern": _KEY})]],
        Query(
            description="whose cosignatures count, beside witnesses: NAME+HASH+KEY; all where none is named",
            json_schema_extra={"maxItems": MOST_LINES},
        ),
    ] = [],  # noqa: B006 - FastAPI gives each request its own
) -> Response:
    if witnesses is None:
        if witness:
            raise InvalidRequest("witness: say with witnesses how many of them are needed")
        return Response(services.log.checkpoint(), media_type="text/plain")
    keys = _witness_keys(witness)
    return Response(services.log.cosigned_checkpoint(witnesses, keys), media_type="text/plain")


@router.get(
    "/entries",
    summary="What is in the log, from one number to another, a page at a time",
    response_class=Response,
    responses={200: {"content": {"application/x-ndjson": {}}}, **problem_responses(403, 422)},
    dependencies=[HEAVY],
)
def entries(services: UseCases, actor: Auditor, start: Number, end: Number) -> Response:
    return Response(services.log.entries(start, end), media_type="application/x-ndjson")


@router.get(
    "/proof/inclusion",
    summary="The proof that an entry is in the log of a size",
    response_model=schemas.Proof,
    responses=problem_responses(403, 422),
    dependencies=[HEAVY],
)
def inclusion(services: UseCases, actor: Auditor, index: Number, size: _Size) -> Response:
    return JsonReply(services.log.inclusion(index, size))


@router.get(
    "/proof/consistency",
    summary="The proof that the log of one size begins with the log of another",
    response_model=schemas.Proof,
    responses=problem_responses(403, 422),
    dependencies=[HEAVY],
)
def consistency(services: UseCases, actor: Auditor, first: Number, second: Number) -> Response:
    return JsonReply(services.log.consistency(first, second))


class _Note(Described):
    """The body of a cosignature. A request that names no witness is refused before it is read."""

    async def __call__(
        self,
        request: Request,
        context: AppContext,
        actor: Auditor,
        witness: Annotated[
            str, Query(json_schema_extra={"pattern": _KEY}), Refused("the key of the witness, NAME+HASH+KEY")
        ],
    ) -> tuple[str, bytes]:
        """The witness, and the note."""
        return witness, await bodies.read(request, MOST_BYTES, context.body_memory)


@router.post(
    "/cosignatures",
    status_code=204,
    summary="Add a checkpoint that a witness has cosigned",
    responses=problem_responses(403, 409, 413, 422),
    dependencies=[HEAVY],
)
def cosign(
    services: UseCases,
    actor: Auditor,
    cosigned: Annotated[tuple[str, bytes], Depends(_Note(str, media_type="text/plain"))],
) -> Response:
    services.log.cosignatures.add(actor, *cosigned)
    return Response(status_code=204)


@router.delete(
    "/witnesses/{name}",
    status_code=204,
    summary="Forget the witness key of a principal, and what it has cosigned",
    responses=problem_responses(403, 404),
)
def forget_witness(services: UseCases, actor: Caller, name: str) -> Response:
    services.log.cosignatures.forget(actor, name)
    return Response(status_code=204)


def _witness_keys(keys: list[str]) -> list[str]:
    """The keys of witnesses in their one form.

    Raises:
        InvalidRequest: when they are too many, or one is none.
    """
    if len(keys) > MOST_LINES:
        raise InvalidRequest(f"witness: at most {MOST_LINES} keys")
    try:
        return [WitnessVerifier.parse(key).text() for key in keys]
    except NoteRefused as error:
        raise InvalidRequest(f"witness: {error}") from None
