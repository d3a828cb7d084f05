"""Statements of SQL in a session: what one would ask, what it costs, and its result."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.curator.errors import PlanInfeasible
from app.declarations.errors import CuratorError
from app.http.console.asking import form_key, refusal_of
from app.http.console.gate import HEAVY, Analyst, ConsoleRoute, Form, OwnForm
from app.http.console.numbers import number_of
from app.http.console.rendering import page
from app.http.context import Context
from app.http.dependencies import AppContext
from app.http.statements import result_of
from app.services.principals import Principal

router = APIRouter(prefix="/console/datasets/{name}/sql", include_in_schema=False, route_class=ConsoleRoute)


#: Of a result so many rows are shown, and so many cells: of a wide one fewer rows. A page of all rows that a statement
#: may give would be tens of megabytes long, and many seconds of work.
_ROWS, _CELLS = 1000, 40_000


@router.get("")
async def show(request: Request, context: AppContext, login: Analyst, name: str) -> Response:
    """The page."""
    return await _page(request, context, login, name, request.query_params.get("statement", ""))


@router.post("", dependencies=[HEAVY])
async def ask(request: Request, context: AppContext, login: Analyst, form: OwnForm, name: str) -> Response:
    """Ask a statement, or its price alone."""
    text, do = form.raw("statement").strip(), form.get("do", "price")
    session = form.get("session")
    if not session:
        return await _page(
            request,
            context,
            login,
            name,
            text,
            form,
            refusal={"title": "There is no open session", "detail": "open one first"},
        )
    nonce, most = form.get("nonce") or secrets.token_urlsafe(16), number_of(form.get("at_most"))
    # Nothing is paid but for the very statement whose price was shown, in that session, and no more than that.
    seen = most is not None and hmac.compare_digest(form.get("seen").encode(), _mark(session, text).encode())
    key = form_key(login.principal, f"/v1/sessions/{session}/sql", nonce, {"statement": text})
    try:
        if do == "ask" and seen:
            try:
                # No name keeps the whole result here while its page waits for a turn.
                return await _page(
                    request,
                    context,
                    login,
                    name,
                    text,
                    form,
                    result=await result_of(request, context, login.principal, session, text, most, key),
                    asked=True,
                )
            except PlanInfeasible:
                pass  # it costs more by now, or cannot be had at all: which, its price says
        priced = await result_of(request, context, login.principal, session, text, None, None, explain=True)
    except CuratorError as error:
        told = refusal_of(error)
        return await _page(request, context, login, name, text, form, refusal=told, place=error.extra, status=422)
    return await _page(request, context, login, name, text, form, result=priced, anew=do == "ask")


async def _page(
    request: Request,
    context: Context,
    login: Analyst,
    name: str,
    text: str,
    form: Form | None = None,
    *,
    result: dict[str, Any] | None = None,
    asked: bool = False,
    anew: bool = False,
    refusal: dict[str, str] | None = None,
    place: Mapping[str, Any] | None = None,
    status: int = 200,
) -> Response:
    total = None if result is None or asked else _total(result)
    result = None if result is None else shortened(result)
    told = await run_in_threadpool(_told, context, login.principal, name, "" if form is None else form.get("session"))
    session = told["session"]
    render = partial(
        page,
        request,
        "sql.html.jinja",
        login,
        status=status,
        **told,
        statement=text,
        # What was asked in part and refused is asked anew, and not told again.
        nonce=secrets.token_urlsafe(16) if form is None or asked or anew else form.get("nonce"),
        result=result,
        total=total,
        asked=asked,
        anew=anew,
        seen="" if session is None else _mark(session["id"], text),
        refusal=refusal,
        marked=_marked(text, place),
    )
    if not asked:
        return await run_in_threadpool(render)
    async with context.exports.turn(request, login.principal):
        return await run_in_threadpool(render)


def _told(context: Context, actor: Principal, name: str, session: str) -> dict[str, Any]:
    dataset = context.services.datasets.describe(name, actor)
    mine = context.services.sessions.newest(actor, most=20, dataset=name, open=True).items
    chosen = next((each for each in mine if each["id"] == session), mine[0] if mine else None)
    attributes = dataset["domain"].get("attributes", [])
    return {"dataset": dataset, "sessions": mine, "session": chosen, "attributes": attributes}


def _mark(session: str, text: str) -> str:
    """What a price is of."""
    return hashlib.sha256(f"{session}\n{text}".encode()).hexdigest()


def _total(result: dict[str, Any]) -> float | None:
    """What all questions of an explained statement cost; None of a result that is no price."""
    names = [column["name"] for column in result["columns"]]
    return sum(row[names.index("epsilon")] for row in result["rows"]) if "epsilon" in names else None


def shortened(result: dict[str, Any]) -> dict[str, Any]:
    """As much of a result as a page shows, and how many rows it has in all."""
    rows = result["rows"]
    most = min(_ROWS, max(1, _CELLS // max(1, len(result["columns"]))))
    return {"columns": result["columns"], "rows": rows[:most], "in_all": len(rows), "notices": result["notices"]}


def _marked(text: str, place: Mapping[str, Any] | None) -> tuple[str, str, str] | None:
    """The line that is refused: before, what, behind."""
    lines = text.split("\n")
    if not place or not 0 < place.get("line", 0) <= len(lines):
        return None
    line, start = lines[place["line"] - 1], max(place["column"] - 1, 0)
    end = start + max(int(place.get("length", 1)), 1)
    return line[:start], line[start:end] or " ", line[end:]
