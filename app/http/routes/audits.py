"""Routes of audits: asked for, followed, read, stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated

import orjson
from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.http import schemas
from app.http.context import Context
from app.http.dependencies import HEAVY, AppContext, Auditor, JsonModel, Keyed, UseCases
from app.http.headers import negotiated
from app.http.openapi import problem_responses
from app.http.paging import BySession
from app.http.parameters import Route
from app.http.replies import JsonReply
from app.http.streams import RECONNECT_MS
from app.services.audit_ports import UNDER_WAY
from app.services.audits import view
from app.services.principals import Principal

#: Media types of a report; the first is sent where any will do.
FORMS = ("text/html", "application/json")
#: A report loads nothing, and runs nothing: what is in it were strangers' words. Its own policy allows its style.
_HEADERS = {"X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"}
#: How often an audit that is followed is looked at, in seconds, and after how many looks without news one is told that
#: the connection lives.
LOOK_SECONDS, QUIET_LOOKS = 0.25, 60

router = APIRouter(prefix="/v1/audits", tags=["audit"], route_class=Route, responses=problem_responses(401, 403, 429))


@router.post(
    "",
    status_code=202,
    summary="Start an audit of the service, or of one session; one at a time for all",
    response_model=schemas.AuditView,
    responses=problem_responses(404, 409, 413, 422),
    dependencies=[HEAVY],
)
def start_audit(
    context: AppContext,
    actor: Auditor,
    asked: Annotated[schemas.AuditRequest, Depends(JsonModel(schemas.AuditRequest))],
    keyed: Keyed,
) -> Response:
    key = keyed(asked.model_dump(exclude_none=True))
    made = context.services.audits.start(actor, asked.session, asked.checkpoint, key)
    context.services.audit_jobs.wake()
    return JsonReply(made, 202)


@router.get(
    "",
    summary="The audits of the last day, a page at a time, without their results",
    response_model=schemas.Audits,
    responses=problem_responses(422),
)
def list_audits(services: UseCases, actor: Auditor, page: BySession) -> Response:
    return page.reply(services.audits.list(actor, page.after, page.limit))


@router.get(
    "/{id}",
    summary="Where an audit stands, and what it found",
    response_model=schemas.AuditView,
    responses=problem_responses(404),
)
def get_audit(services: UseCases, actor: Auditor, id: str) -> Response:
    return JsonReply(view(services.audits.standing(actor, id)))


@router.get(
    "/{id}/events",
    summary="Where an audit stands, told whenever that changes, until it has ended (server-sent events)",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}, **problem_responses(404)},
)
async def follow_audit(request: Request, context: AppContext, actor: Auditor, id: str) -> Response:
    await run_in_threadpool(context.services.audits.standing, actor, id)
    return context.streams.open(actor.name, _events(context, request, actor, id))


@router.get(
    "/{id}/report",
    summary="The report of an audit that is done: a page, or JSON",
    response_class=Response,
    responses={200: {"content": {media_type: {} for media_type in FORMS}}, **problem_responses(404, 409, 422)},
    dependencies=[HEAVY],
)
def audit_report(request: Request, services: UseCases, actor: Auditor, id: str) -> Response:
    form = negotiated(request, FORMS, "a report")
    return Response(services.audits.report(actor, id, form), media_type=form, headers=_HEADERS)


@router.delete(
    "/{id}",
    summary="Stop an audit (200), or forget one that has ended (204)",
    response_model=schemas.AuditView,
    responses={204: {"description": "It is forgotten."}, **problem_responses(404)},
)
def end_audit(context: AppContext, actor: Auditor, id: str) -> Response:
    left = context.services.audits.end(actor, id)
    context.services.audit_jobs.wake()
    return Response(status_code=204) if left is None else JsonReply(left)


async def _events(context: Context, request: Request, actor: Principal, id: str) -> AsyncIterator[bytes]:
    """An audit's state, at first and whenever it has changed, as long as the key is good and the audit is kept."""
    told, quiet = None, 0
    yield b"retry: %d\n\n" % RECONNECT_MS
    while (row := await run_in_threadpool(context.services.audits.row, id)) is not None:
        # That somebody is at work on it is no news by itself.
        row = replace(row, beat=0.0)
        if row != told:
            ended = row.status not in UNDER_WAY
            yield b"event: " + (b"end" if ended else b"progress") + b"\ndata: " + orjson.dumps(view(row)) + b"\n\n"
            if ended:
                return
            told, quiet = row, 0
        quiet += 1
        if quiet % QUIET_LOOKS == 0:
            yield b": still here\n\n"
        if not await context.streams.pause(LOOK_SECONDS) or not await context.authenticator.still_good(request):
            return
