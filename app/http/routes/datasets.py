"""Routes of data sets: registration, descriptors, grants, ledgers, retirement."""

from __future__ import annotations

import re

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.declarations.errors import InvalidRequest
from app.declarations.spec import NAME
from app.http import bodies, paging, schemas
from app.http.context import Context
from app.http.headers import ARROW, CSV, PARQUET, negotiated
from app.http.openapi import DUMMY, MOVEMENT, NAMED, TABLE, multipart, page_parameters, problem_responses
from app.http.replies import json_reply
from app.http.requests import json_object, optional_json_body
from app.http.uploads import in_memory, read_checked, read_upload
from app.services.dummies import RECORDS, DummyFormat, encoded
from app.services.principals import Principal

#: Media types of dummy records, and the formats that they stand for; the first is sent where any will do.
FORMATS: dict[str, DummyFormat] = {CSV: "csv", ARROW: "arrow", PARQUET: "parquet"}


def _number(request: Request, name: str, default: int) -> int:
    """A whole number of the address."""
    text = paging.only(request, name)
    if text is not None and not re.fullmatch("[0-9]{1,19}", text):
        raise InvalidRequest(f"{name}: a whole number")
    return default if text is None else int(text)


def add_routes(app: FastAPI, context: Context) -> None:
    """Add these routes."""

    @app.post(
        "/v1/datasets",
        status_code=201,
        tags=["data sets"],
        summary="Register a data set",
        response_model=schemas.RegisteredView,
        responses=problem_responses(401, 403, 409, 413, 422),
        openapi_extra={"requestBody": multipart()},
    )
    async def register(request: Request) -> Response:
        actor = await _uploader(request, context)
        spec, upload = await read_upload(request, context)
        async with context.uploads.turn(request, actor), in_memory(upload) as path:
            view = await run_in_threadpool(context.services.datasets.register, actor, spec, upload.filename or "", path)
        return json_reply(view, 201)

    @app.post(
        "/v1/datasets/check",
        tags=["data sets"],
        summary="Check a declaration and its file, or draft one; nothing is registered or kept",
        response_model=schemas.CheckView,
        responses=problem_responses(401, 403, 413, 422),
        openapi_extra={"requestBody": multipart(draft=True), "parameters": [TABLE]},
    )
    async def check(request: Request) -> Response:
        actor = await _uploader(request, context)
        table = request.query_params.get("table")
        spec, upload = await read_checked(request, context)
        async with context.uploads.turn(request, actor), in_memory(upload) as path:
            view = await run_in_threadpool(
                context.services.checks.check, actor, spec, upload.filename or "", path, table
            )
        return json_reply(view)

    @app.get(
        "/v1/datasets",
        tags=["data sets"],
        summary="Public descriptors of all data sets, a page at a time",
        response_model=schemas.Datasets,
        responses=problem_responses(401, 422),
        openapi_extra=page_parameters(NAMED),
    )
    async def list_datasets(request: Request) -> Response:
        await context.authenticator.authenticate(request)
        asked = paging.parse(request, NAME)
        return paging.reply(
            request, asked, await run_in_threadpool(context.services.datasets.list, asked.after, asked.limit)
        )

    @app.get(
        "/v1/datasets/{name}",
        tags=["data sets"],
        summary="The public descriptor of a data set",
        response_model=schemas.DatasetView,
        responses=problem_responses(401, 404),
    )
    async def describe_dataset(request: Request, name: str) -> Response:
        await context.authenticator.authenticate(request)
        return json_reply(await run_in_threadpool(context.services.datasets.describe, name))

    @app.get(
        "/v1/datasets/{name}/dummy",
        tags=["data sets"],
        summary="Made-up records like those of a data set, from its declaration alone",
        response_class=Response,
        responses={
            200: {"content": {media_type: {} for media_type in FORMATS}},
            **problem_responses(401, 403, 404, 422, 429),
        },
        openapi_extra=DUMMY,
    )
    async def dummy(request: Request, name: str) -> Response:
        actor = await context.authenticator.authenticate(request, heavy=True)
        records, seed = _number(request, "records", RECORDS), _number(request, "seed", 0)
        media_type = negotiated(request, tuple(FORMATS), "a table")

        def made() -> bytes:
            return encoded(context.services.datasets.dummy(actor, name, records, seed), FORMATS[media_type])

        async with context.exports.turn(request, actor):
            return Response(await run_in_threadpool(made), media_type=media_type)

    @app.put(
        "/v1/datasets/{name}/grants/{principal}",
        tags=["data sets"],
        summary="Cap what an analyst may hold and spend",
        response_model=schemas.GrantView,
        responses=problem_responses(401, 403, 404, 413, 422),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/GrantRequest"}}},
            }
        },
    )
    async def grant(request: Request, name: str, principal: str) -> Response:
        actor = await context.authenticator.authenticate(request)
        actor.require("admin")
        asked = await json_object(request, context, actor)
        if set(asked) != {"epsilon"}:
            raise InvalidRequest("give epsilon, and nothing else")
        return json_reply(
            await run_in_threadpool(context.services.datasets.grant, actor, name, principal, asked["epsilon"])
        )

    @app.get(
        "/v1/datasets/{name}/ledger",
        tags=["data sets"],
        summary="Where the budget stands, and its movements a page at a time, exact",
        response_model=schemas.LedgerView,
        responses=problem_responses(401, 403, 404, 422),
        openapi_extra=page_parameters(MOVEMENT),
    )
    async def ledger(request: Request, name: str) -> Response:
        actor = await context.authenticator.authenticate(request, heavy=True)
        asked = paging.parse(request, paging.NUMBER)
        stands, page = await run_in_threadpool(
            context.services.datasets.ledger, actor, name, int(asked.after or 0), asked.limit
        )
        return paging.reply(request, asked, page, "entries", stands)

    @app.post(
        "/v1/datasets/{name}/commitment",
        tags=["data sets"],
        summary="Reveal the commitment to the private file, with its key; the log says that it was",
        response_model=schemas.CommitmentView,
        responses=problem_responses(401, 403, 404, 409, 413, 422),
        openapi_extra={
            "requestBody": {
                "required": False,
                "content": {"application/json": {"schema": {"type": "object", "additionalProperties": False}}},
            }
        },
    )
    async def reveal(request: Request, name: str) -> Response:
        actor = await context.authenticator.authenticate(request, heavy=True)
        actor.require("admin")
        if await optional_json_body(request, context, actor) != {}:
            raise InvalidRequest("to reveal a commitment takes no body, or {}")
        return json_reply(await run_in_threadpool(context.services.datasets.reveal, actor, name))

    @app.delete(
        "/v1/datasets/{name}",
        tags=["data sets"],
        summary="Retire a data set: its private file is destroyed",
        response_model=schemas.DatasetView,
        responses=problem_responses(401, 403, 404),
    )
    async def retire(request: Request, name: str) -> Response:
        actor = await context.authenticator.authenticate(request)
        return json_reply(await run_in_threadpool(context.services.datasets.retire, actor, name))


async def _uploader(request: Request, context: Context) -> Principal:
    """Who sends a file: an admin, and no more bytes than a body may have."""
    actor = await context.authenticator.authenticate(request, heavy=True)
    actor.require("admin")
    limit = context.limits.max_body_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise bodies.too_large(limit)
    return actor
