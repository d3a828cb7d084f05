"""Who looks at a page, from where a form was sent, and what every page is answered with when something is refused.

A browser sends the cookie of this server along with whatever any page makes it ask. So a cookie alone never changes
anything: a form has to come from a page of this server, which browsers say themselves, and has to bring the token of
the log-in, which no other page can read. What only looks changes nothing.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import structlog
from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app.declarations.errors import CuratorError, InvalidRequest
from app.http import bodies
from app.http.console.rendering import HEADERS, page
from app.http.context import Context
from app.http.dependencies import AppContext, context_of
from app.http.fair_queue import CostlyWork
from app.http.headers import media_type
from app.http.middleware import location
from app.http.parameters import Route, refusal
from app.http.problems import PROBLEMS
from app.services.errors import Forbidden, NotFound, Unavailable
from app.services.logins import LoggedOut, Login
from app.services.ports import Role

logger = structlog.get_logger("app.http")

#: The cookie of a log-in: over TLS, where a browser keeps it to this host; and over plain HTTP of this machine.
COOKIE, PLAIN_COOKIE = "__Host-curator", "curator"
#: Most bytes and fields of a form; files are read otherwise.
FORM_BYTES, FORM_FIELDS = 1 << 20, 2_000
#: Most bytes of a form that is kept for somebody whose log-in has ended, as anybody may say: escaped in a page it may
#: be five times as long. And of one that logs in, which brings what was kept.
KEPT_BYTES, LOGIN_BYTES = 64 << 10, 96 << 10
_FORM = "application/x-www-form-urlencoded"
_LOCAL = ("localhost", "localhost.localdomain")


class NotHere(Forbidden):
    """Browsers may not log in here, as others could listen."""


# ---------------------------------------------------------------------- the transport


def is_secure(request: Request) -> bool:
    """Whether the browser speaks TLS, to this server or to a proxy that it believes."""
    return bool(request.url.scheme == "https")


def cookie_name(request: Request) -> str:
    """The name of the cookie of a log-in."""
    return COOKIE if is_secure(request) else PLAIN_COOKIE


def expect_private(request: Request) -> None:
    """Refuse browsers whose log-in others could listen to: over plain HTTP only this machine itself is let in.

    Raises:
        NotHere: saying what to do.
    """
    if is_secure(request) or context_of(request).limits.console_plain_http:
        return
    if _is_loopback(request.client.host if request.client else "") and _is_loopback(_host(request)):
        return
    raise NotHere(
        "over plain HTTP whoever listens would have your log-in: open the console by https://, through a proxy with "
        "TLS that CURATOR_TRUSTED_PROXIES names, or on the server's own machine"
    )


def _host(request: Request) -> str:
    """The host that the browser asked for, without a port."""
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in _LOCAL


# ---------------------------------------------------------------------- who looks


async def _login(request: Request, context: AppContext) -> Login:
    """The log-in of whoever looks. Counts the request.

    Raises:
        NotHere: where others could listen.
        LoggedOut: when there is none.
        TooManyRequests: when he asks too often.
    """
    expect_private(request)
    try:
        login = await run_in_threadpool(context.services.logins.find, request.cookies.get(cookie_name(request), ""))
    except LoggedOut:
        # What was sent is kept for him.
        if request.method == "POST" and media_type(request) == _FORM:
            with suppress(CuratorError):
                request.state.form = await _read_form(request, context, KEPT_BYTES)
        raise
    context.authenticator.admit(request, login.principal)
    request.state.login = login
    return login


LoggedIn = Annotated[Login, Depends(_login)]


class Of:
    """The log-in of somebody who has one of some roles. For others there is no such page."""

    def __init__(self, *roles: Role) -> None:
        self._roles = roles

    async def __call__(self, login: LoggedIn) -> Login:
        """The log-in.

        Raises:
            NotFound: when he has none of the roles.
        """
        if login.principal.role not in self._roles:
            raise NotFound("there is no such page")
        return login


Analyst = Annotated[Login, Depends(Of("analyst", "admin"))]
Admin = Annotated[Login, Depends(Of("admin"))]
Auditor = Annotated[Login, Depends(Of("auditor"))]
#: Who sees budgets over time, and the log.
Overseer = Annotated[Login, Depends(Of("auditor", "admin"))]

# ---------------------------------------------------------------------- work


async def _heavy(context: AppContext, login: LoggedIn) -> None:
    context.authenticator.count_heavy(login.principal)


#: Of a page whose requests take much work, as :data:`app.http.dependencies.HEAVY` is of a route.
HEAVY = Depends(_heavy)


async def _upload_turn(request: Request, context: AppContext, login: LoggedIn) -> AsyncIterator[CostlyWork]:
    """A turn at reading a file, as :class:`app.http.dependencies.Turn` is of a route: behind the form, which was read.

    Raises:
        TooManyRequests: when too many of the principal's requests wait.
        Unavailable: when too many requests wait in all, or the work was given up.
    """
    async with context.uploads.turn(request, login.principal) as work:
        yield work


UploadTurn = Annotated[CostlyWork, Depends(_upload_turn, scope="function")]

# ---------------------------------------------------------------------- forms


class Form:
    """The fields of a form, in their order; of several of one name :meth:`get` has the last."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self.fields = fields
        self._last = dict(fields)

    def get(self, name: str, default: str = "") -> str:
        """A field without spaces around it."""
        return self._last.get(name, default).strip()

    def raw(self, name: str) -> str:
        """A field as it came."""
        return self._last.get(name, "")

    def __contains__(self, name: str) -> bool:
        return name in self._last


def expect_same_origin(request: Request) -> None:
    """Refuse a form that no page of this server sent.

    Raises:
        Forbidden: when the browser says so, or nothing says otherwise.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site == "same-origin":
            return
    elif (origin := request.headers.get("origin")) is not None:
        try:
            parts = urlsplit(origin)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme == request.url.scheme and parts.netloc and parts.netloc == request.headers.get("host"):
            return
    raise Forbidden("this form was not sent by a page of this server: open the page here, and send it from there")


async def _read_form(request: Request, context: Context, most: int) -> Form:
    """A form that a page of this server sent.

    Raises:
        Forbidden: as :func:`expect_same_origin`.
        InvalidRequest: when the body is no form, or has too many fields.
        PayloadTooLarge: when it is too large.
        Unavailable: when the bodies of all requests leave no room for it.
    """
    expect_same_origin(request)
    if media_type(request) != _FORM:
        raise InvalidRequest(f"a form is sent as {_FORM}")
    body = await bodies.read(request, most, context.body_memory)
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS, encoding="utf-8", errors="strict"
        )
    except ValueError:
        raise InvalidRequest(f"the form cannot be read: it has UTF-8 text and at most {FORM_FIELDS:,} fields") from None
    # Browsers end the lines of a text with two characters.
    return Form([(name, value.replace("\r\n", "\n")) for name, value in fields if "\0" not in name + value])


async def _any_form(request: Request, context: AppContext) -> Form:
    return await _read_form(request, context, LOGIN_BYTES)


#: The fields of a form of somebody who need not have logged in.
AnyForm = Annotated[Form, Depends(_any_form)]


async def _own_form(request: Request, context: AppContext, login: LoggedIn) -> Form:
    """A form of the log-in of whoever sends it.

    Raises:
        Forbidden: when it brings another token, or none.
    """
    form = await _read_form(request, context, FORM_BYTES)
    check_token(form, login)
    return form


def check_token(form: Form, login: Login) -> None:
    """Refuse a form of another log-in.

    Raises:
        Forbidden: saying what to do.
    """
    if not hmac.compare_digest(form.raw("token").encode(), login.form_token.encode()):
        raise Forbidden("this form belongs to another log-in: load the page again, and send it from there")


#: The fields of a form, which is read once it is known who sends it.
OwnForm = Annotated[Form, Depends(_own_form)]

# ---------------------------------------------------------------------- refusals


class ConsoleRoute(Route):
    """A route whose refusals are pages, and whose replies carry the headers of pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler of a request, with refusals as pages."""
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                reply = await handle(request)
            except RequestValidationError as error:
                reply = refused(request, refusal(self, error))
            except CuratorError as error:
                reply = refused(request, error)
            except ClientDisconnect:  # nobody waits for a page
                raise
            except Exception as error:  # noqa: BLE001 - a browser is shown a page, whatever happens
                mark = secrets.token_hex(4)
                logger.error("unforeseen error", error=type(error).__name__, place=location(error), mark=mark)
                reply = refused(
                    request, Unavailable(f"look what was done before trying again; the server's log has this as {mark}")
                )
            for name, value in HEADERS.items():
                reply.headers.setdefault(name, value)
            return reply

        return handler


def refused(request: Request, error: CuratorError) -> Response:
    """The page of a refusal: the log-in where that is what is missing."""
    login: Login | None = getattr(request.state, "login", None)
    status, title = PROBLEMS[error.code]
    headers = {"Retry-After": str(error.extra["retry_after"])} if "retry_after" in error.extra else {}
    part = request.headers.get("hx-request") == "true"
    if isinstance(error, LoggedOut):
        if part:
            return page(request, "part_refused.html.jinja", None, title="Your log-in has ended", error=error)
        form: Form | None = getattr(request.state, "form", None)
        # Of a form with a file nothing was read: whoever sends it had to be known first.
        kept = None if form is None else [field for field in form.fields if field[0] != "token"]
        looks = request.method in ("GET", "HEAD")
        return page(
            request,
            "login.html.jinja",
            None,
            status=200 if looks else 403,
            refusal=None,
            then=then_of(request) if looks else request.scope["path"],
            kept=None if looks else kept,
            lost=not looks and form is None,
            contact=context_of(request).limits.contact,
        )
    template = "part_refused.html.jinja" if part else "refused.html.jinja"
    # A part that htmx asked for is put into its page only where the reply is said to be good.
    return page(request, template, login, status=200 if part else status, headers=headers, title=title, error=error)


def status_of(error: CuratorError) -> int:
    """The status of a page that shows a form again, with a refusal beside its field."""
    return PROBLEMS[error.code][0]


def then_of(request: Request) -> str:
    """Where whoever logs in goes on: the page that was asked for."""
    query = request.scope.get("query_string", b"").decode("latin-1")
    return str(request.scope["path"]) + (f"?{query}" if query else "")


def is_own_address(then: str) -> bool:
    """Whether an address is one of the console, and of no other server however browsers read it."""
    return (
        (then == "/console" or then.startswith(("/console/", "/console?")))
        and then.isascii()
        and then.isprintable()
        and "\\" not in then
        # Who logs in there is to go on elsewhere.
        and not then.startswith("/console/login")
        and ".." not in then
    )
