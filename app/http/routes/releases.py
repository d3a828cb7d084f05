"""Routes of releases: asked for, followed, read, cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import orjson
import pyarrow as pa
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.http import paging, schemas
from app.http.context import Context
from app.http.exports import complete_reply, open_export
from app.http.headers import ARROW, CSV, PARQUET, negotiated
from app.http.openapi import PART, SESSION, page_parameters, problem_responses
from app.http.replies import encoded_reply, json_reply
from app.http.requests import asker_of, idempotency_key, json_object
from app.http.streams import RECONNECT_MS
from app.services.dummies import DummyFormat, encoded
from app.services.principals import Principal
from app.services.sessions import SESSION_ID

#: Media types of what came of a release, and the formats that they stand for; the first is sent where any will do.
FORMATS: dict[str, DummyFormat] = {ARROW: "arrow", CSV: "csv", PARQUET: "parquet"}
#: Bytes of memory that a byte of a kept file takes while it is written in another format: numbers are longer as text.
CONVERTED = 8
#: How often a release that is followed is looked at, in seconds, and after how many looks without news one is told that
#: the connection lives.
LOOK_SECONDS, QUIET_LOOKS = 0.25, 60


def add_routes(app: FastAPI, context: Context) -> None:
    """Add these routes."""

    @app.post(
        "/v1/releases",
        status_code=202,
        tags=["releases"],
        summary="Ask for a release of a workload; its share is reserved and the work queued",
        response_model=schemas.ReleaseView,
        responses=problem_responses(401, 403, 404, 409, 413, 422),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ReleaseRequest"}}},
            }
        },
    )
    async def ask_for_release(request: Request) -> Response:
        actor = await asker_of(request, context, heavy=True)
        asked = await json_object(request, context, actor)
        key = idempotency_key(request, actor, asked)
        async with context.plans.turn(request, actor) as work:
            opening = await run_in_threadpool(context.services.releases.prepare, actor, asked, key, work.check)
        if isinstance(opening, bytes):
            return encoded_reply(opening, 202)
        reply = await run_in_threadpool(context.services.releases.open, actor, opening, key)
        context.services.jobs.wake()
        return encoded_reply(reply, 202)

    @app.get(
        "/v1/releases",
        tags=["releases"],
        summary="Your releases, a page at a time; all of them for admins and auditors",
        response_model=schemas.Releases,
        responses=problem_responses(401, 422),
        openapi_extra=page_parameters(SESSION),
    )
    async def list_releases(request: Request) -> Response:
        actor = await context.authenticator.authenticate(request)
        asked = paging.parse(request, SESSION_ID)
        return paging.reply(
            request, asked, await run_in_threadpool(context.services.releases.list, actor, asked.after, asked.limit)
        )

    @app.get(
        "/v1/releases/{id}",
        tags=["releases"],
        summary="Where a release stands, and what it costs",
        response_model=schemas.ReleaseView,
        responses=problem_responses(401, 404),
    )
    async def get_release(request: Request, id: str) -> Response:
        actor = await context.authenticator.authenticate(request)
        return json_reply((await run_in_threadpool(context.services.releases.standing, actor, id)).view)

    @app.get(
        "/v1/releases/{id}/events",
        tags=["releases"],
        summary="Where a release stands, told whenever that changes, until it has ended (server-sent events)",
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {}}}, **problem_responses(401, 404, 429)},
    )
    async def follow_release(request: Request, id: str) -> Response:
        actor = await context.authenticator.authenticate(request)
        await run_in_threadpool(context.services.releases.standing, actor, id)
        return context.streams.open(actor.name, _events(context, request, actor, id))

    @app.get(
        "/v1/releases/{id}/data",
        tags=["releases"],
        summary="What came of a release: answers, synthetic records or edges",
        response_class=Response,
        responses={
            200: {"content": {media_type: {} for media_type in FORMATS}},
            **problem_responses(401, 404, 409, 422, 429),
        },
        openapi_extra={"parameters": [PART]},
    )
    async def release_data(request: Request, id: str) -> Response:
        actor = await context.authenticator.authenticate(request, heavy=True)
        media_type, part = negotiated(request, tuple(FORMATS), "a table"), paging.only(request, "part")

        with open_export(context, actor) as export:
            async with context.exports.turn(request, actor) as work:

                def write() -> None:
                    _, data = context.services.releases.data(actor, id, part)
                    work.idle += export.reserve_memory(CONVERTED * len(data), work.check)
                    export.write(encoded(pa.ipc.open_file(pa.BufferReader(data)).read_all(), FORMATS[media_type]))

                await run_in_threadpool(write)
                export.release_memory()
            return complete_reply(export, {}, media_type)

    @app.delete(
        "/v1/releases/{id}",
        tags=["releases"],
        summary="Cancel a release for which no noise was drawn yet; its share returns",
        response_model=schemas.ReleaseView,
        responses=problem_responses(401, 403, 404, 409),
    )
    async def cancel_release(request: Request, id: str) -> Response:
        actor = await asker_of(request, context)
        return json_reply(await run_in_threadpool(context.services.releases.cancel, actor, id))


async def _events(context: Context, request: Request, actor: Principal, id: str) -> AsyncIterator[bytes]:
    """A release's state, at first and whenever it has changed, as long as the key is good."""
    releases = context.services.releases
    told, quiet = None, 0
    yield b"retry: %d\n\n" % RECONNECT_MS
    while True:
        # That somebody is at work on it is no news by itself.
        now = await run_in_threadpool(releases.row, id)
        if now is None or replace(now, beat=0.0) != told:
            found = await run_in_threadpool(releases.standing, actor, id)
            state = orjson.dumps(found.view)
            yield b"event: " + (b"end" if found.ended else b"progress") + b"\ndata: " + state + b"\n\n"
            if found.ended:
                return
            told, quiet = replace(found.row, beat=0.0), 0
        quiet += 1
        if quiet % QUIET_LOOKS == 0:
            yield b": still here\n\n"
        if not await context.streams.pause(LOOK_SECONDS) or not await context.authenticator.still_good(request):
            return
