"""Sessions of whoever looks, what was asked in one, and each answer with its files."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.http import files
from app.http.console.asking import answered_entry, shown_answer, title_of
from app.http.console.downloads import as_file, export
from app.http.console.drawing import marks_of
from app.http.console.gate import HEAVY, ConsoleRoute, LoggedIn
from app.http.console.rendering import page
from app.http.context import Context
from app.http.dependencies import AppContext, UseCases
from app.http.headers import CSV, PARQUET
from app.http.marginal_tables import arrow_table
from app.http.paging import ByNumber
from app.services.dummy_records import encoded
from app.services.errors import NotFound
from app.services.logins import Login
from curator_client.figures import forest, standing_alone

router = APIRouter(prefix="/console/sessions", include_in_schema=False, route_class=ConsoleRoute)

#: Sessions, and entries, of a page.
_A_PAGE, _ENTRIES = 50, 100


@router.get("")
def all_of_them(request: Request, services: UseCases, login: LoggedIn, before: str = "", after: str = "") -> Response:
    """One's own sessions, the newest first; for auditors all there are, in the order they were opened."""
    actor = login.principal
    if actor.role == "auditor":
        found, further = services.sessions.list(actor, after, _A_PAGE), "after"
    else:
        found, further = services.sessions.newest(actor, before, _A_PAGE), "before"
    more = None if found.after is None else f"{further}={found.after}"
    return page(request, "sessions.html.jinja", login, sessions=found.items, more=more)


@router.get("/{id}")
def one(request: Request, services: UseCases, login: LoggedIn, id: str, asked: ByNumber) -> Response:
    """A session, and what was asked in it."""
    session = services.sessions.get(login.principal, id)
    found = services.transcripts.entries(login.principal, id, asked.after, _ENTRIES)
    return page(
        request,
        "session.html.jinja",
        login,
        session=session,
        entries=found.items,
        after=found.after,
        records=login.principal.role in ("auditor", "admin"),
        nonce=secrets.token_urlsafe(16),
    )


@router.get("/{id}/transcript")
async def transcript(request: Request, context: AppContext, login: LoggedIn, id: str) -> Response:
    """Its transcript, as a file."""
    actor = login.principal
    return await export(
        request, context, actor, f"session-{id}.ndjson", lambda opened, _: files.transcript(context, actor, id, opened)
    )


@router.get("/{id}/answers/{place}", dependencies=[HEAVY])
async def answer(request: Request, context: AppContext, login: LoggedIn, id: str, place: str) -> Response:
    """An answer's own page, or as a file: ``7``, ``7.csv``, ``7.parquet``, ``7.svg``."""
    number, _, form = place.partition(".")
    if not number.isdecimal() or len(number) > 17 or form not in ("", "csv", "parquet", "svg"):
        raise NotFound("there is no such page")
    async with context.exports.turn(request, login.principal):
        return await run_in_threadpool(_answer, request, context, login, id, int(number), form)


def _answer(request: Request, context: Context, login: Login, id: str, sequence: int, form: str) -> Response:
    if form:
        entry = answered_entry(context, login.principal, id, sequence)
        return as_file(_file(entry, form), f"answer-{id[:8]}-{sequence}.{form}")
    session = context.services.sessions.get(login.principal, id)
    shown = shown_answer(context, login.principal, session, sequence, whole="whole" in request.query_params)
    return page(request, "answer_page.html.jinja", login, shown=shown, session=session)


def _file(entry: Mapping[str, Any], form: str) -> Response:
    """An answer as it was replied, in a format; nothing is asked."""
    reply = entry["answer"]
    if form == "svg":
        axes, marks = marks_of(reply)
        notes = [note for note in ("Of made-up records." if reply.get("dummy") else None, reply.get("note")) if note]
        drawn = forest(title_of(entry), axes, marks, confidence=reply["confidence"], notes=notes)
        return Response(standing_alone(drawn), media_type="image/svg+xml")
    table = _table(reply)
    if form == "csv":
        return Response(encoded(table, "csv"), media_type=f"{CSV}; charset=utf-8")
    return Response(encoded(table, "parquet"), media_type=PARQUET)


def _table(reply: Mapping[str, Any]) -> pa.Table:
    """An answer as a table: a row a cell, or one row of a single number."""
    if "axes" in reply:
        table: pa.Table = pa.ipc.open_stream(arrow_table(orjson.dumps(reply))).read_all()
        return table
    _, (mark,) = marks_of(reply)
    low, high = mark.interval or (None, None)
    numbers = {"value": mark.value, "standard_error": mark.standard_error, "low": low, "high": high}
    return pa.table({name: pa.array([number], pa.float64()) for name, number in numbers.items()})
