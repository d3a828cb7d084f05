"""Around every request: a log line, a count, security headers, and problem JSON for every refusal."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http import problems
from app.http.bodies import Room, expect_plain
from app.http.metrics import Metrics
from app.services.errors import NotFound, Unavailable
from app.spaces.errors import CuratorError, InvalidRequest

log = structlog.get_logger("app.http")

_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class MethodNotAllowed(CuratorError):
    """The path has no such method."""

    code = "method-not-allowed"


def place(error: BaseException) -> str:
    """File and line that raised, without any value."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else "unknown"


def _refused(scope: Scope, error: Exception) -> Response:
    """The problem that an exception comes to."""
    if isinstance(error, CuratorError):
        return problems.response(error)
    if isinstance(error, ClientDisconnect):
        return problems.response(InvalidRequest("the body ended before its length"))
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return problems.response(NotFound("there is nothing at this path; /docs lists what there is"))
        if error.status_code == 405:
            return _not_allowed(scope)
        return problems.response(InvalidRequest(str(error.detail)))
    # The type alone: a message, or a traceback's values, could hold anything.
    log.error("unforeseen error", error=type(error).__name__, place=place(error))
    return _unfinished()


def _unfinished() -> Response:
    return problems.response(Unavailable("the request could not be finished: see what it did before sending it again"))


def _not_allowed(scope: Scope) -> Response:
    # The framework names the methods of the first route with this path alone.
    matching = [route for route in scope["app"].routes if route.matches(scope)[0] is not Match.NONE]
    allowed = ", ".join(sorted({method for route in matching for method in getattr(route, "methods", ())}))
    reply = problems.response(MethodNotAllowed(f"this path does not take {scope['method'][:16]}: it takes {allowed}"))
    reply.headers["Allow"] = allowed
    return reply


class Observe:
    """Logs and counts requests by route template: paths hold session ids, bodies hold queries, neither is logged."""

    def __init__(self, app: ASGIApp, metrics: Metrics, room: Room, *, verbose: bool = False) -> None:
        self._app, self._metrics, self._room, self._verbose = app, metrics, room, verbose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        try:
            expect_plain(scope)
            await self._app(scope, receive, observed)
        except Exception as error:  # noqa: BLE001 - nobody above answers it
            reply = _refused(scope, error)
            if not status:
                await reply(scope, receive, observed)
        except asyncio.CancelledError:
            # The process ends and has drained for as long as it may. The HTTP server would say 500.
            if status:
                raise
            await _unfinished()(scope, receive, observed)
        finally:
            self._room.give_back(scope)
            route: Any = scope.get("route")
            template = getattr(route, "path", "unmatched")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.request(template, method, status)
            if self._verbose:
                # Without how long it took: lines are handed on more freely than metrics are.
                log.debug("request", method=method, route=template, status=status)
