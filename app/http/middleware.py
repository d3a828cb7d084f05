"""Around every request: a log line, a count, security headers, and problem JSON for every refusal."""

from __future__ import annotations

import asyncio
import time
import traceback
from typing import Any

import structlog
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.declarations.errors import CuratorError, InvalidRequest
from app.http import problems
from app.http.bodies import UNTOLD, BodyMemory
from app.http.headers import expect_plain
from app.http.metrics import Metrics
from app.http.parameters import refusal
from app.services.errors import NotFound, Unavailable
from app.services.tracing import FOLLOWED, UNTRACED, Tracer

logger = structlog.get_logger("app.http")

_HEADERS = [(b"x-content-type-options", b"nosniff")]
#: Of replies that do not say themselves for how long they may be kept.
_NOT_KEPT = (b"cache-control", b"no-store")
_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class MethodNotAllowed(CuratorError):
    """The path has no such method."""

    code = "method-not-allowed"


def location(error: BaseException) -> str:
    """File and line that raised an error, without any value."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else "unknown"


def _refused(scope: Scope, error: Exception) -> Response:
    """The refusal that an exception stands for."""
    if isinstance(error, CuratorError):
        return problems.response(error)
    if isinstance(error, ClientDisconnect):
        return problems.response(InvalidRequest("the body ended before its length"))
    if isinstance(error, RequestValidationError):
        return problems.response(refusal(scope["route"], error))
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return problems.response(NotFound("there is nothing at this path; /docs lists what there is"))
        if error.status_code == 405:
            return _not_allowed(scope)
        return problems.response(InvalidRequest(str(error.detail)))
    # The type alone: the message, or values in the traceback, could hold anything.
    logger.error("unforeseen error", error=type(error).__name__, place=location(error))
    return _unfinished()


def _unfinished() -> Response:
    return problems.response(Unavailable("the request could not be finished: see what it did before sending it again"))


def _not_allowed(scope: Scope) -> Response:
    # The framework names only the methods of the first route with this path. A path that is written out comes first:
    # it is no other path with a name in it, though a name may be spelled like its end.
    matching = [
        route
        for route in iter_route_contexts([*scope["router"].routes, *scope["app"].routes])
        if route.matches(scope)[0] is not Match.NONE
    ]
    same = [route for route in matching if route.path == matching[0].path]
    methods = {method for route in same for method in getattr(route, "methods", ())}
    allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
    reply = problems.response(MethodNotAllowed(f"this path does not take {scope['method'][:16]}: it takes {allowed}"))
    reply.headers["Allow"] = allowed
    return reply


class Observe:
    """Logs and counts every request, adds security headers, and turns exceptions into problems.

    A request appears as the template of its route: paths hold session ids and bodies hold queries, and neither is
    logged.

    Args:
        app: what requests are passed on to.
        metrics: counts them.
        body_memory: released at the end of each request.
        verbose: whether each request gets a log line.
        tracer: told how long requests take that are followed.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        body_memory: BodyMemory,
        *,
        verbose: bool = False,
        tracer: Tracer = UNTRACED,
    ) -> None:
        self._app, self._metrics, self._body_memory, self._verbose = app, metrics, body_memory, verbose
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or begin and end."""
        if scope["type"] != "http":

            async def send_type(message: Message) -> None:
                # When a start fails, the framework adds the stack trace to its message, and the server logs it. The
                # text of an error could hold anything; what is safe to know, the application has logged by then.
                await send({"type": message["type"]})

            await self._app(scope, receive, send_type)
            return
        if scope["method"] == "HEAD":
            # As GET: the server leaves out the body, by its own scope.
            scope = {**scope, "method": "GET"}
        status, began, trace = 0, time.time(), self._tracer.follow()
        FOLLOWED.set(trace)

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [*message.get("headers", ())]
                kept = any(name == _NOT_KEPT[0] for name, _ in own)
                message["headers"] = [*own, *_HEADERS] if kept else [*own, *_HEADERS, _NOT_KEPT]
            await send(message)

        try:
            expect_plain(scope)
            await self._app(scope, receive, observed)
        except Exception as error:  # noqa: BLE001 - nothing above would answer
            reply = _refused(scope, error)
            if not status:
                await reply(scope, receive, observed)
        except asyncio.CancelledError:
            # The time to drain is over, and the process ends. The HTTP server would say 500.
            if status:
                raise
            await _unfinished()(scope, receive, observed)
        finally:
            self._body_memory.release(scope)
            route: Any = scope.get("route")
            template = getattr(route, "path", "unmatched")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.request(template, method, status)
            if trace is not None and not scope.get(UNTOLD):
                self._tracer.request(trace, began, method, template, status)
            if self._verbose:
                # Without its duration: log lines are shared more freely than metrics.
                logger.debug("request", method=method, route=template, status=status)
