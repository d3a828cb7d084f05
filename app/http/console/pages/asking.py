"""The page on which an analyst asks: a session, a question with its price, its answer, and what was asked before."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.curator.errors import PlanInfeasible
from app.declarations.errors import CuratorError
from app.http import openings
from app.http.console.asking import form_key, priced, refusal_of, shown_answer
from app.http.console.builder import KINDS, OPERATORS, Builder, Choice, Wrong
from app.http.console.gate import Analyst, ConsoleRoute, Form, OwnForm
from app.http.console.graph_builder import GraphBuilder
from app.http.console.numbers import number_of
from app.http.console.rendering import page
from app.http.context import Context
from app.http.dependencies import AppContext
from app.http.tickets import answer
from app.services.answering.tickets import Ticket
from app.services.errors import Forbidden, NotFound, Unavailable
from app.services.principals import Principal

router = APIRouter(prefix="/console/datasets/{name}/ask", include_in_schema=False, route_class=ConsoleRoute)

Asking = Builder | GraphBuilder

#: Entries of a session that the page shows; its own page has all.
_LATEST = 12


@router.get("")
async def show(request: Request, context: AppContext, login: Analyst, name: str) -> Response:
    """The page, with the session, the answer and the question that its address names."""
    asked = request.query_params
    desk = await run_in_threadpool(_desk, context, login.principal, name, asked.get("session", ""))
    chosen = asked.get("answer", "")
    shown, refusal = None, None
    if chosen.isdecimal() and len(chosen) < 18 and desk.session is not None:
        context.authenticator.count_heavy(login.principal)
        async with context.exports.turn(request, login.principal):
            try:
                shown = await run_in_threadpool(
                    shown_answer, context, login.principal, desk.session, int(chosen), whole="whole" in asked
                )
            except CuratorError as error:
                refusal = refusal_of(error)
    builder = desk.empty
    if shown is not None and shown.question is not None and "like" in asked:
        builder = desk.like(shown.question) or builder
        if "finer" in asked and shown.half_width is not None:
            builder = replace(builder, within=f"{shown.half_width / 2:.3g}")
    return await _page(request, context, login, desk, builder, shown=shown, refusal=refusal)


@router.post("")
async def ask(request: Request, context: AppContext, login: Analyst, form: OwnForm, name: str) -> Response:
    """What a button of the form says: a row more or less, the price, or the question itself."""
    desk = await run_in_threadpool(_desk, context, login.principal, name, form.get("session"))
    builder, do = desk.read(form), form.get("do", "ask")
    nonce = form.get("nonce") or _nonce()
    if do != "ask" or desk.session is None:
        return await _page(request, context, login, desk, builder.changed(do), nonce=nonce, added=do, form=form)
    try:
        asked = builder.question(desk.choices)
    except Wrong as error:
        return await _page(request, context, login, desk, builder, nonce=nonce, wrong=error.told, form=form)
    session = desk.session["id"]
    most = number_of(form.get("at_most"))
    if most is not None:
        asked["at_most"] = most
    key = form_key(login.principal, f"/v1/sessions/{session}/queries", nonce, asked)
    moved = form.get("seen") != str(desk.session["sequence"])
    if moved and await run_in_threadpool(context.services.sql.known, key) is None:
        note = "Another question was asked in this session since this page was made. Look at the price again, and ask."
        return await _page(request, context, login, desk, builder, nonce=nonce, note=note, form=form)
    try:
        ticket = Ticket("ask", session, login.principal.name, (asked,), key)
        reply = orjson.loads(await answer(context, request, login.principal, ticket))
    except Unavailable as error:
        refusal = {
            "title": "It may have been answered",
            "detail": f"Ask again: you get the first answer, and pay once. ({error.detail})",
        }
        return await _page(
            request, context, login, desk, builder, nonce=nonce, refusal=refusal, form=form, again=True, status=503
        )
    except PlanInfeasible as error:
        note = f"Nothing was asked, and nothing was paid: {error.detail}"
        return await _page(request, context, login, desk, builder, nonce=nonce, note=note, form=form)
    except CuratorError as error:
        return await _page(
            request, context, login, desk, builder, nonce=nonce, refusal=refusal_of(error), form=form, status=422
        )
    place = f"/console/datasets/{name}/ask?session={session}&answer={reply['sequence']}&like=1"
    return RedirectResponse(f"{place}#answer", 303)


@router.post("/price")
async def price(request: Request, context: AppContext, login: Analyst, form: OwnForm, name: str) -> Response:
    """What the question of a form would cost, as a part of the page, while somebody types."""
    desk = await run_in_threadpool(_desk, context, login.principal, name, form.get("session"), around=False)
    builder = desk.read(form)
    # What other widths cost is looked up where somebody asks for it: each price takes as long as this one.
    part = await _priced(request, context, login.principal, desk, builder, widths=False)
    return await run_in_threadpool(
        page, request, "part_price.html.jinja", login, desk=desk, builder=builder, **part, again=False
    )


@router.post("/open")
async def open_session(request: Request, context: AppContext, login: Analyst, form: OwnForm, name: str) -> Response:
    """Open a session, or rehearse one on made-up records."""
    context.authenticator.count_heavy(login.principal)
    asked: dict[str, Any] = {"dataset": name, "epsilon": number_of(form.get("epsilon"))}
    if form.get("questions"):
        count = number_of(form.get("questions"))
        asked["max_queries"] = form.get("questions") if count is None else count
    if form.get("do") == "rehearse":
        asked["dummy"] = True
    nonce = form.get("nonce") or _nonce()
    key = form_key(login.principal, "/v1/sessions", nonce, asked)
    try:
        reply = await openings.open_session(request, context, login.principal, asked, key)
    except (NotFound, Unavailable):
        raise
    except CuratorError as error:
        desk = await run_in_threadpool(_desk, context, login.principal, name, form.get("session"))
        return await _page(
            request, context, login, desk, desk.empty, refusal=refusal_of(error), form=form, status=422, nonce=nonce
        )
    opened = orjson.loads(reply)
    return RedirectResponse(f"/console/datasets/{name}/ask?session={opened['id']}", 303)


@router.post("/close")
async def close(request: Request, context: AppContext, login: Analyst, form: OwnForm, name: str) -> Response:
    """Close a session, once that was said twice."""
    session = form.get("session")
    view = await run_in_threadpool(context.services.sessions.get, login.principal, session)
    if "sure" not in form:
        return page(request, "close.html.jinja", login, name=name, session=view)
    await openings.close_session(request, context, login.principal, view["id"])
    return RedirectResponse(f"/console/sessions/{view['id']}", 303)


# ---------------------------------------------------------------------- the page


@dataclass(frozen=True)
class Desk:
    """What there is to ask of, and in which session."""

    dataset: dict[str, Any]
    session: dict[str, Any] | None
    others: list[dict[str, Any]]
    entries: list[dict[str, Any]]
    measured: int | None
    choices: dict[str, Choice]

    @property
    def is_open(self) -> bool:
        """Whether something may be asked."""
        return self.session is not None and self.session["status"] == "open"

    @property
    def empty(self) -> Asking:
        """A form in which nothing was filled in."""
        if self.dataset["kind"] == "table":
            return Builder()
        return GraphBuilder(kind="within" if self.dataset["kind"] == "graph" else "json")

    def read(self, form: Form) -> Asking:
        """A form as it was filled in."""
        return Builder.read(form) if self.dataset["kind"] == "table" else GraphBuilder.read(form)

    def like(self, question: Mapping[str, Any]) -> Asking | None:
        """The form that says a question; None where none does."""
        if self.dataset["kind"] == "table":
            return Builder.of_question(question, self.choices)
        return GraphBuilder.of_question(question)


def _desk(context: Context, actor: Principal, name: str, session: str, *, around: bool = True) -> Desk:
    """What there is to ask of: the data set, and a session of the actor's: the newest open one where none is named.
    With ``around`` what else the page shows: other sessions, what was asked, and how much was measured.

    Raises:
        NotFound: when there is no such data set, or no such session of his on it.
    """
    services = context.services
    dataset = services.datasets.describe(name, actor)
    newest = services.sessions.newest
    mine = newest(actor, most=20, dataset=name, open=True).items if around or not session else []
    view: dict[str, Any] | None = None
    if session:
        view = services.sessions.get(actor, session)
        if view["dataset"] != name or view["owner"] != actor.name:
            raise NotFound("there is no such session of yours on this data set")
    elif mine:
        view = mine[0]
    entries: list[dict[str, Any]] = []
    if view is not None and around:
        entries = services.transcripts.entries(actor, view["id"], max(0, view["sequence"] - _LATEST), _LATEST).items
    return Desk(
        dataset,
        view,
        [each for each in mine if view is None or each["id"] != view["id"]],
        list(reversed(entries)),
        _measured(context, actor, name) if around else None,
        {each["name"]: Choice.of(each) for each in dataset["domain"].get("attributes", ())},
    )


def _measured(context: Context, actor: Principal, name: str) -> int | None:
    """How much was measured of a data set; None where that is not shown to the actor."""
    try:
        return context.services.measurements.count(actor, name)
    except Forbidden:
        return None


async def _priced(
    request: Request, context: Context, actor: Principal, desk: Desk, builder: Asking, *, widths: bool = True
) -> dict[str, Any]:
    """The price of the question that a form says, or why there is none."""
    if desk.session is None or not desk.is_open:
        return {"price": None, "why": None, "wrong": {}}
    try:
        asked = builder.question(desk.choices)
    except Wrong as error:
        return {"price": None, "why": None, "wrong": error.told}
    try:
        return {
            "price": await priced(request, context, actor, desk.session["id"], asked, widths=widths),
            "why": None,
            "wrong": {},
        }
    except CuratorError as error:
        return {"price": None, "why": refusal_of(error), "wrong": {}}


async def _page(
    request: Request,
    context: Context,
    login: Analyst,
    desk: Desk,
    builder: Asking,
    *,
    nonce: str = "",
    wrong: dict[str, str] | None = None,
    added: str = "",
    form: Form | None = None,
    shown: Any = None,
    refusal: dict[str, str] | None = None,
    note: str | None = None,
    again: bool = False,
    status: int = 200,
) -> Response:
    """The whole page."""
    part = (
        {"price": None, "why": None, "wrong": {}}
        if again
        else await _priced(request, context, login.principal, desk, builder)
    )
    # While somebody begins a form nothing is said to be wrong of what is empty.
    fresh = form is None and shown is None
    if wrong is None:
        wrong = {} if fresh or added else part.pop("wrong")
    part.pop("wrong", None)
    return await run_in_threadpool(
        page,
        request,
        "ask.html.jinja",
        login,
        status=status,
        desk=desk,
        builder=builder,
        kinds=KINDS,
        operators=OPERATORS,
        nonce=nonce if nonce and (refusal or note or wrong or added) else _nonce(),
        wrong=wrong,
        rows_by=len(getattr(builder, "groups", ())) + (added == "add-by"),
        rows_where=len(getattr(builder, "conditions", ())) + (added == "add-where"),
        shown=shown,
        refusal=refusal,
        note=note,
        again=again,
        opening={part: "" if form is None else form.get(part) for part in ("epsilon", "questions")},
        **part,
    )


def _nonce() -> str:
    return secrets.token_urlsafe(16)
