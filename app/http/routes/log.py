"""Routes of the log: whether the service's history only ever grows."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.http import paging, schemas
from app.http.context import Context
from app.http.openapi import number_parameters, problem_responses
from app.http.replies import json_reply
from app.spaces.errors import InvalidRequest


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
        summary="How much is in the log, under one hash, signed",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problem_responses(401)},
    )
    async def checkpoint(request: Request) -> Response:
        await context.authenticator.authenticate(request)
        return Response(await run_in_threadpool(log.checkpoint), media_type="text/plain")

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
