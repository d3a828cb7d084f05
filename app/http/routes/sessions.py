"""Routes of sessions: opening, state, closing."""

from __future__ import annotations

import asyncio
import time

import orjson
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.declarations.errors import InvalidRequest
from app.http import paging, schemas
from app.http.context import Context
from app.http.openapi import SESSION, page_parameters, problem_responses
from app.http.replies import encoded_reply, json_reply
from app.http.requests import asker_of, idempotency_key, json_object, optional_json_body
from app.http.tickets import answer
from app.services.answering.tickets import Ticket
from app.services.sessions import SESSION_ID

#: How long a closing waits for the log, and how often it looks.
LOG_SECONDS, LOG_PAUSE = 2.0, 0.025


def add_routes(app: FastAPI, context: Context) -> None:
    """Add these routes."""

    @app.post(
        "/v1/sessions",
        status_code=201,
        tags=["sessions"],
        summary="Open a session",
        response_model=schemas.SessionView,
        responses=problem_responses(401, 403, 404, 409, 413, 422),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/SessionRequest"}}},
            }
        },
    )
    async def open_session(request: Request) -> Response:
        actor = await asker_of(request, context, heavy=True)
        asked = await json_object(request, context, actor)
        key = idempotency_key(request, actor, asked)
        async with context.plans.turn(request, actor) as work:
            opening = await run_in_threadpool(context.services.sessions.prepare, actor, asked, key, work.check)
        if isinstance(opening, bytes):
            return encoded_reply(opening, 201)
        # Outside the turn: another process may hold the data set for a while, and plans should not wait for that.
        return encoded_reply(await run_in_threadpool(context.services.sessions.open, actor, opening, key), 201)

    @app.get(
        "/v1/sessions",
        tags=["sessions"],
        summary="Your sessions, a page at a time; all of them for auditors",
        response_model=schemas.Sessions,
        responses=problem_responses(401, 422),
        openapi_extra=page_parameters(SESSION),
    )
    async def list_sessions(request: Request) -> Response:
        actor = await context.authenticator.authenticate(request)
        asked = paging.parse(request, SESSION_ID)
        return paging.reply(
            request, asked, await run_in_threadpool(context.services.sessions.list, actor, asked.after, asked.limit)
        )

    @app.get(
        "/v1/sessions/{id}",
        tags=["sessions"],
        summary="A session's state",
        response_model=schemas.SessionView,
        responses=problem_responses(401, 404),
    )
    async def get_session(request: Request, id: str) -> Response:
        actor = await context.authenticator.authenticate(request)
        return json_reply(await run_in_threadpool(context.services.sessions.get, actor, id))

    @app.post(
        "/v1/sessions/{id}/close",
        tags=["sessions"],
        summary="Close a session; what it did not use returns to the data set",
        response_model=schemas.SessionView,
        responses=problem_responses(401, 403, 404, 409, 413, 422),
    )
    async def close(request: Request, id: str) -> Response:
        actor = await asker_of(request, context)
        document = await optional_json_body(request, context, actor)
        if not isinstance(document, dict):
            raise InvalidRequest("closing takes no body, or a JSON object")
        key = idempotency_key(request, actor, document)
        reply = await answer(context, request, actor, Ticket("close", id, actor.name, (), key))
        await run_in_threadpool(context.services.sessions.end_dummy, id)
        # What is stored under a key cannot tell: the log comes behind the commit.
        closed = orjson.loads(reply)
        size = None if closed.get("dummy") else await _log_size(context, id, closed["sequence"])
        return encoded_reply(reply[:-1] + b',"log_size":%b}' % orjson.dumps(size))


async def _log_size(context: Context, id: str, sequence: int) -> int | None:
    """The size of the log that has all of a session, which is waited for a little; None where it does not come."""
    services = context.services
    end = time.monotonic() + LOG_SECONDS
    while (size := await run_in_threadpool(services.sessions.log_size, id, sequence)) is None:
        if time.monotonic() > end:
            break
        services.sequencer.hurry()
        await asyncio.sleep(LOG_PAUSE)
    return size
