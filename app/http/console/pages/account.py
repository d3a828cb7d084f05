"""Log-in, log-out, the log-ins of whoever looks, and how pages look."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.http.clients import client_of
from app.http.console.gate import (
    AnyForm,
    ConsoleRoute,
    LoggedIn,
    OwnForm,
    cookie_name,
    expect_private,
    is_own_address,
    is_secure,
)
from app.http.console.rendering import THEME_COOKIE, THEMES, page
from app.http.dependencies import AppContext, UseCases
from app.http.problems import PROBLEMS
from app.services.errors import TooManyRequests, Unauthenticated
from app.services.logins import LASTS, LoggedOut, Login

router = APIRouter(prefix="/console", include_in_schema=False, route_class=ConsoleRoute)

#: How long a browser keeps how pages look.
_YEAR = 365 * 24 * 3600


@router.post("/login")
async def begin(request: Request, context: AppContext, form: AnyForm) -> Response:
    """Log in with a key. What was logged in here before ends; what was sent meanwhile is kept, and sent on request."""
    expect_private(request)
    then = form.raw("then") if is_own_address(form.raw("then")) else "/console"
    kept = [(name.removeprefix("kept:"), value) for name, value in form.fields if name.startswith("kept:")]
    key = form.get("key")
    try:
        principal = await context.authenticator.log_in(request, key)
    except (Unauthenticated, TooManyRequests) as error:
        status, _ = PROBLEMS[error.code]
        told: dict[str, Any] = {"then": then, "kept": kept or None, "lost": False, "contact": context.limits.contact}
        words = "No such key." if isinstance(error, Unauthenticated) else error.detail
        # 401 would have browsers ask for a password in a window of their own.
        return page(request, "login.html.jinja", None, status=403 if status == 401 else status, refusal=words, **told)
    logins = context.services.logins
    await run_in_threadpool(_end_here, request, context.services.logins)
    place = client_of(request.client.host) if request.client else ""
    secret = await run_in_threadpool(logins.begin, principal, key, place)
    login = await run_in_threadpool(logins.find, secret)
    reply: Response
    if kept:
        reply = page(request, "kept.html.jinja", login, then=urlsplit(then).path, kept=kept)
    else:
        reply = RedirectResponse(then, 303)
    _set_cookie(reply, request, secret)
    return reply


@router.post("/logout")
async def end(request: Request, context: AppContext, form: OwnForm, login: LoggedIn) -> Response:
    """End this log-in."""
    await run_in_threadpool(context.services.logins.end, login.principal, login.id)
    return _logged_out(request)


@router.get("/me")
def me(request: Request, services: UseCases, login: LoggedIn) -> Response:
    """The log-ins of whoever looks."""
    return page(request, "me.html.jinja", login, logins=services.logins.list(login.principal))


@router.post("/me/end")
def end_one(request: Request, services: UseCases, form: OwnForm, login: LoggedIn) -> Response:
    """End one of one's log-ins."""
    id = form.get("id")
    services.logins.end(login.principal, id)
    return _logged_out(request) if id == login.id else RedirectResponse("/console/me", 303)


@router.post("/me/end-all")
def end_all(request: Request, services: UseCases, form: OwnForm, login: LoggedIn) -> Response:
    """End all of one's log-ins."""
    services.logins.end_all(login.principal)
    return _logged_out(request)


@router.post("/theme")
async def theme(request: Request, form: OwnForm) -> Response:
    """Light, dark, or as the system has it."""
    chosen, then = form.get("theme"), form.raw("then")
    reply = RedirectResponse(then if is_own_address(then) else "/console/me", 303)
    if chosen in THEMES:
        reply.set_cookie(
            THEME_COOKIE, chosen, max_age=_YEAR, path="/console", secure=is_secure(request), samesite="strict"
        )
    else:
        reply.delete_cookie(THEME_COOKIE, path="/console", secure=is_secure(request), samesite="strict")
    return reply


def _end_here(request: Request, logins: Any) -> None:
    """End the log-in that a browser has, if it has one: a new one never goes on with an old secret."""
    secret = request.cookies.get(cookie_name(request))
    if not secret:
        return
    try:
        known: Login = logins.find(secret)
    except LoggedOut:
        return
    logins.end(known.principal, known.id)


def _set_cookie(reply: Response, request: Request, secret: str) -> None:
    reply.set_cookie(
        cookie_name(request),
        secret,
        max_age=int(LASTS.total_seconds()),
        path="/",
        secure=is_secure(request),
        httponly=True,
        samesite="strict",
    )


def _logged_out(request: Request) -> Response:
    reply = RedirectResponse("/console", 303)
    reply.delete_cookie(cookie_name(request), path="/", secure=is_secure(request), httponly=True, samesite="strict")
    return reply
