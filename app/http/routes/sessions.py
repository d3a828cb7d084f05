"""Routes of sessions: opening, state, closing."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Path
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.curator.request import SessionRequest
from app.http import openings, schemas
from app.http.dependencies import HEAVY, AppContext, Asker, Caller, ExportTurn, JsonObject, Keyed, UseCases
from app.http.openapi import problem_responses
from app.http.paging import ByNumber, BySession
from app.http.parameters import NUMBER, Route
from app.http.replies import JsonReply
from app.services.services import Services

#: How long a closing waits for the log, and how often it looks.
LOG_SECONDS, LOG_PAUSE = 2.0, 0.025

EntryNumber = Annotated[int, Path(ge=0), NUMBER]

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=Route, responses=problem_responses(401, 429))


@router.post(
    "",
    status_code=201,
    summary="Open a session",
    response_model=schemas.SessionView,
    responses=problem_responses(403, 404, 409, 413, 422),
    dependencies=[HEAVY],
)
async def open_session(
    request: Request,
    context: AppContext,
    actor: Asker,
    asked: Annotated[dict[str, Any], Depends(JsonObject(SessionRequest))],
    keyed: Keyed,
) -> Response:
    return JsonReply(await openings.open_session(request, context, actor, asked, keyed(asked)), 201)


@router.get(
    "",
    summary="Your sessions, a page at a time; all of them for auditors",
    response_model=schemas.Sessions,
    responses=problem_responses(422),
)
def list_sessions(services: UseCases, actor: Caller, page: BySession) -> Response:
    return page.reply(services.sessions.list(actor, page.after, page.limit))


@router.get("/{id}", summary="A session's state", response_model=schemas.SessionView, responses=problem_responses(404))
def get_session(services: UseCases, actor: Caller, id: str) -> Response:
    return JsonReply(services.sessions.get(actor, id))


@router.get(
    "/{id}/entries",
    summary="What was asked in a session, in words, a page at a time, with what each answer cost",
    response_model=schemas.Entries,
    responses=problem_responses(404, 422),
)
def list_entries(services: UseCases, actor: Caller, id: str, page: ByNumber) -> Response:
    return page.reply(services.transcripts.entries(actor, id, page.after, page.limit))


@router.get(
    "/{id}/entries/{sequence}",
    summary="One entry of a session: what was asked, and the answer as it was replied then",
    response_model=schemas.WholeEntryView,
    responses=problem_responses(404, 422),
    dependencies=[HEAVY],
)
def get_entry(services: UseCases, actor: Caller, work: ExportTurn, id: str, sequence: EntryNumber) -> Response:
    return JsonReply(services.transcripts.entry(actor, id, sequence))


@router.post(
    "/{id}/close",
    summary="Close a session; what it did not use returns to the data set",
    response_model=schemas.SessionView,
    responses=problem_responses(403, 404, 409, 413, 422),
)
async def close(
    request: Request,
    context: AppContext,
    actor: Asker,
    id: str,
    asked: Annotated[dict[str, Any], Depends(JsonObject(None, optional="closing takes no body, or a JSON object"))],
    keyed: Keyed,
) -> Response:
    reply = await openings.close_session(request, context, actor, id, keyed(asked))
    # What is stored under a key cannot tell: the log comes behind the commit.
    closed = orjson.loads(reply)
    size = None if closed.get("dummy") else await _log_size(context.services, id, closed["sequence"])
    return JsonReply(reply[:-1] + b',"log_size":%b}' % orjson.dumps(size))


async def _log_size(services: Services, id: str, sequence: int) -> int | None:
    """The size of the log that has all of a session, which is waited for a little; None where it does not come."""
    end = time.monotonic() + LOG_SECONDS
    while (size := await run_in_threadpool(services.sessions.log_size, id, sequence)) is None:
        if time.monotonic() > end:
            break
        services.sequencer.hurry()
        await asyncio.sleep(LOG_PAUSE)
    return size
