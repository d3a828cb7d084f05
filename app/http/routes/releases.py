"""Routes of releases: asked for, followed, read, cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query
from pydantic.json_schema import SkipJsonSchema
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.http import openings, schemas
from app.http.context import Context
from app.http.dependencies import HEAVY, AppContext, Asker, Caller, ExportTurn, JsonObject, Keyed, UseCases
from app.http.exports import ExportResponse, NewExport
from app.http.files import FORMATS, release_file
from app.http.headers import negotiated
from app.http.openapi import problem_responses
from app.http.paging import BySession
from app.http.parameters import Route
from app.http.replies import JsonReply
from app.http.streams import RECONNECT_MS
from app.services.principals import Principal
from app.services.release_request import ReleaseRequest
from app.services.releases import FILES

#: How often a release that is followed is looked at, in seconds, and after how many looks without news one is told that
#: the connection lives.
LOOK_SECONDS, QUIET_LOOKS = 0.25, 60


@dataclass(frozen=True)
class _Wanted:
    """A part of what came of a release, and as what it is sent."""

    id: str
    part: str | None
    media_type: str


async def _wanted(
    request: Request,
    actor: Caller,
    id: str,
    part: Annotated[
        str | SkipJsonSchema[None],
        Query(
            description=f"one of {', '.join(FILES)}, or table-1 and so on; the first that there is where none is named"
        ),
    ] = None,
) -> _Wanted:
    offered = ("application/json",) if part == "manifest" else tuple(FORMATS)
    return _Wanted(id, part, negotiated(request, offered, "a manifest" if part == "manifest" else "a table"))


router = APIRouter(prefix="/v1/releases", tags=["releases"], route_class=Route, responses=problem_responses(401, 429))


@router.post(
    "",
    status_code=202,
    summary="Ask for a release of a workload; its share is reserved and the work queued",
    response_model=schemas.ReleaseView,
    responses=problem_responses(403, 404, 409, 413, 422),
    dependencies=[HEAVY],
)
async def ask_for_release(
    request: Request,
    context: AppContext,
    actor: Asker,
    asked: Annotated[dict[str, Any], Depends(JsonObject(ReleaseRequest))],
    keyed: Keyed,
) -> Response:
    return JsonReply(await openings.ask_for_release(request, context, actor, asked, keyed(asked)), 202)


@router.get(
    "",
    summary="Your releases, a page at a time; all of them for admins and auditors",
    response_model=schemas.Releases,
    responses=problem_responses(422),
)
def list_releases(services: UseCases, actor: Caller, page: BySession) -> Response:
    return page.reply(services.releases.list(actor, page.after, page.limit))


@router.get(
    "/{id}",
    summary="Where a release stands, and what it costs",
    response_model=schemas.ReleaseView,
    responses=problem_responses(404),
)
def get_release(services: UseCases, actor: Caller, id: str) -> Response:
    return JsonReply(services.releases.standing(actor, id).view)


@router.get(
    "/{id}/events",
    summary="Where a release stands, told whenever that changes, until it has ended (server-sent events)",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}, **problem_responses(404)},
)
async def follow_release(request: Request, context: AppContext, actor: Caller, id: str) -> Response:
    await run_in_threadpool(context.services.releases.standing, actor, id)
    return context.streams.open(actor.name, _events(context, request, actor, id))


@router.get(
    "/{id}/data",
    summary="What came of a release: answers, tables that agree, synthetic records or edges",
    response_class=Response,
    responses={
        200: {"content": {media_type: {} for media_type in (*FORMATS, "application/json")}},
        **problem_responses(404, 409, 422),
    },
    dependencies=[HEAVY],
)
def release_data(
    services: UseCases, actor: Caller, wanted: Annotated[_Wanted, Depends(_wanted)], export: NewExport, work: ExportTurn
) -> ExportResponse:
    return release_file(services, actor, wanted.id, wanted.part, wanted.media_type, export, work)


@router.delete(
    "/{id}",
    summary="Cancel a release for which no noise was drawn yet; its share returns",
    response_model=schemas.ReleaseView,
    responses=problem_responses(403, 404, 409),
)
def cancel_release(services: UseCases, actor: Asker, id: str) -> Response:
    return JsonReply(services.releases.cancel(actor, id))


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
