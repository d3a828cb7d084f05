"""Routes of the log: whether the service's history only ever grows."""

from __future__ import annotations

import re

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.audit.notes import MOST_BYTES, NoteRefused, WitnessVerifier
from app.declarations.errors import InvalidRequest
from app.http import bodies, paging, schemas
from app.http.context import Context
from app.http.openapi import COSIGNED, WITNESS, number_parameters, problem_responses
from app.http.replies import json_reply
from app.services.cosignatures import MOST_LINES


def add_routes(app: FastAPI, context: Context) -> None:
    """Add these routes."""
    log = context.services.log

    async def auditing(request: Request) -> None:
        actor = await context.authenticator.authenticate(request, heavy=True)
        actor.require("auditor", "admin")

    @app.get(
        "/v1/log/key",
        tags=["audit"],
        summary="The log's name and the key that it is signed with",
        response_model=schemas.LogKey,
        responses=problem_responses(401),
    )
    async def log_key(request: Request) -> Response:
        await context.authenticator.authenticate(request)
        return json_reply(await run_in_threadpool(log.key))

    @app.get(
        "/v1/log/checkpoint",
        tags=["audit"],
        summary="How much is in the log, under one hash, signed, and cosigned by witnesses",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **problem_responses(401, 404, 422, 503),
        },
        openapi_extra=COSIGNED,
    )
    async def checkpoint(request: Request) -> Response:
        await context.authenticator.authenticate(request)
        asked, keys = _wanted(request)
        if asked is None:
            return Response(await run_in_threadpool(log.checkpoint), media_type="text/plain")
        return Response(await run_in_threadpool(log.cosigned_checkpoint, asked, keys), media_type="text/plain")

    @app.get(
        "/v1/log/entries",
        tags=["audit"],
        summary="What is in the log, from one number to another, a page at a time",
        response_class=Response,
        responses={200: {"content": {"application/x-ndjson": {}}}, **problem_responses(401, 403, 422)},
        openapi_extra=number_parameters(start=0, end=0),
    )
    async def entries(request: Request) -> Response:
        await auditing(request)
        start, end = _numbers(request, "start", "end")
        return Response(await run_in_threadpool(log.entries, start, end), media_type="application/x-ndjson")

    @app.get(
        "/v1/log/proof/inclusion",
        tags=["audit"],
        summary="The proof that an entry is in the log of a size",
        response_model=schemas.Proof,
        responses=problem_responses(401, 403, 422),
        openapi_extra=number_parameters(index=0, size=1),
    )
    async def inclusion(request: Request) -> Response:
        await auditing(request)
        return json_reply(await run_in_threadpool(log.inclusion, *_numbers(request, "index", "size")))

    @app.get(
        "/v1/log/proof/consistency",
        tags=["audit"],
        summary="The proof that the log of one size begins with the log of another",
        response_model=schemas.Proof,
        responses=problem_responses(401, 403, 422),
        openapi_extra=number_parameters(first=0, second=0),
    )
    async def consistency(request: Request) -> Response:
        await auditing(request)
        return json_reply(await run_in_threadpool(log.consistency, *_numbers(request, "first", "second")))

    @app.post(
        "/v1/log/cosignatures",
        status_code=204,
        tags=["audit"],
        summary="Add a checkpoint that a witness has cosigned",
        responses=problem_responses(401, 403, 409, 413, 422, 503),
        openapi_extra={
            "parameters": [{"name": "witness", "in": "query", "required": True, "schema": WITNESS}],
            "requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}},
        },
    )
    async def cosign(request: Request) -> Response:
        actor = await context.authenticator.authenticate(request, heavy=True)
        actor.require("auditor", "admin")
        key = paging.only(request, "witness")
        if key is None:
            raise InvalidRequest("witness: the key of the witness, NAME+HASH+KEY")
        note = await bodies.read(request, MOST_BYTES, context.body_memory)
        await run_in_threadpool(log.cosignatures.add, actor, key, note)
        return Response(status_code=204)

    @app.delete(
        "/v1/log/witnesses/{name}",
        status_code=204,
        tags=["audit"],
        summary="Forget the witness key of a principal, and what it has cosigned",
        responses=problem_responses(401, 403, 404),
    )
    async def forget_witness(request: Request, name: str) -> Response:
        actor = await context.authenticator.authenticate(request)
        await run_in_threadpool(log.cosignatures.forget, actor, name)
        return Response(status_code=204)


def _wanted(request: Request) -> tuple[int | None, list[str]]:
    """By how many witnesses a checkpoint is to be cosigned, and by which; None where nothing is said of it.

    Raises:
        InvalidRequest: when that is no number, or there are too many keys, or one that is none.
    """
    least, keys = paging.only(request, "witnesses"), request.query_params.getlist("witness")
    if least is None:
        if keys:
            raise InvalidRequest("witness: say with witnesses how many of them are needed")
        return None, []
    if not re.fullmatch("[0-9]{1,3}", least) or not 1 <= int(least) <= MOST_LINES:
        raise InvalidRequest(f"witnesses: how many are needed at least, 1 to {MOST_LINES}")
    if len(keys) > MOST_LINES:
        raise InvalidRequest(f"witness: at most {MOST_LINES} keys")
    try:
        return int(least), [WitnessVerifier.parse(key).text() for key in keys]
    except NoteRefused as error:
        raise InvalidRequest(f"witness: {error}") from None


def _numbers(request: Request, *names: str) -> tuple[int, int]:
    """Two numbers of the address.

    Raises:
        InvalidRequest: when one is missing, there twice or no number.
    """
    told = [paging.only(request, name) for name in names]
    for name, value in zip(names, told, strict=True):
        if value is None or not paging.NUMBER.fullmatch(value):
            raise InvalidRequest(f"{name}: a number from 0 on, of at most 18 digits")
    first, second = (int(value or 0) for value in told)
    return first, second
