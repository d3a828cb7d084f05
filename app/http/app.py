"""The application: routes of the contract over the services."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import orjson
import structlog
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.constructions.base import DenseHypothesis
from app.http import bodies, paging, problems, schemas
from app.http.deadline import Deadline
from app.http.door import Door, Rates
from app.http.exports import Export, ExportResponse, Lines, Shelf, whole, write_hypothesis
from app.http.heavy import FairQueue, Work
from app.http.metrics import CONTENT_TYPE_LATEST, Metrics
from app.http.middleware import Observe, place
from app.http.openapi import (
    MOVEMENT,
    NAMED,
    SESSION,
    describe,
    multipart,
    page_parameters,
    plan_body,
    problem_responses,
    query_body,
)
from app.http.pages import add_pages
from app.http.places import Places
from app.http.protocol import Wire
from app.services.answering.dispatch import Answering
from app.services.answering.tickets import Ticket
from app.services.datasets import Datasets
from app.services.errors import QueueFull, Unavailable
from app.services.principals import Principal, Principals
from app.services.query_request import check_body
from app.services.sessions import SESSION_ID, IdempotencyKey, Sessions
from app.spaces.errors import InvalidDataset, InvalidRequest
from app.spaces.spec import NAME

log = structlog.get_logger("app.http")

MAX_BATCH = 10_000
#: Pages of transcripts that are read at a time: one holds a record, however long that is.
PAGES = 2
#: How often waits are held against their limit.
TICK_SECONDS = 0.1


class Limits(Rates, Protocol):
    """What the operator allows."""

    @property
    def max_body_bytes(self) -> int: ...
    @property
    def max_query_body_bytes(self) -> int: ...
    @property
    def max_json_depth(self) -> int: ...
    @property
    def request_timeout_seconds(self) -> float: ...
    @property
    def max_connections(self) -> int: ...
    @property
    def connections_a_client(self) -> int: ...
    def trusts(self, host: str) -> bool: ...
    @property
    def client_timeout_seconds(self) -> float: ...
    @property
    def client_min_rate(self) -> int: ...
    @property
    def keep_alive_seconds(self) -> float: ...
    @property
    def answer_deadline_ms(self) -> int | None: ...
    @property
    def metrics_open(self) -> bool: ...
    @property
    def log_level(self) -> str: ...


@dataclass(frozen=True)
class Services:
    """Everything a request can reach."""

    door: Door
    plans: FairQueue
    exports: FairQueue
    shelf: Shelf
    room: bodies.Room
    principals: Principals
    datasets: Datasets
    sessions: Sessions
    answering: Answering
    metrics: Metrics
    delivery: Delivery
    limits: Limits
    start: Callable[[], None]
    stop: Callable[[], None]
    ready: Callable[[], str | None]


class Application(FastAPI):
    """FastAPI for routing and the description; a request goes from :class:`Observe` straight to its route.

    The layers between are for dependencies, telemetry and debugging, which nothing here uses. They would cost more
    than an answer does.
    """

    requests: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] == "http":
            scope["app"] = self
            await self.requests(scope, receive, send)
        else:

            async def tell(message: Message) -> None:
                # Of a start that failed the framework tells with its stack trace, which the server logs as it is. The
                # words of errors could hold anything: :func:`_told` says what is needed.
                await send({"type": message["type"]})

            await super().__call__(scope, receive, tell)


class PlainRoute(APIRoute):
    """A route whose endpoint takes the request and the path's parameters as they are.

    Bodies are read by hand, within their limits, so the framework's own solving of parameters has nothing to do.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the endpoint and send what it replies."""
        if scope["method"] not in (self.methods or ()):
            raise HTTPException(405)
        reply: Response = await self.endpoint(Request(scope, receive), **scope["path_params"])
        await reply(scope, receive, send)


class Delivery:
    """Between the event loop and the lanes: tickets go out once a turn of the loop, and come back once a group.

    Waits are timed by one clock for all of them, as a timer for each would cost more than the wait.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._waits: deque[tuple[float, asyncio.Future[None]]] = deque()

    def soon(self, work: Callable[[], None]) -> None:
        """Do something at the end of this turn of the loop; at once, outside of it."""
        try:
            asyncio.get_running_loop().call_soon(work)
        except RuntimeError:
            work()

    async def wait(self, future: asyncio.Future[None], seconds: float) -> None:
        """Wait for a ticket.

        Raises:
            TimeoutError: after about so many seconds, which are the same for all tickets.
        """
        loop = asyncio.get_running_loop()
        if not self._waits:
            loop.call_later(TICK_SECONDS, self._tick, loop)
        self._waits.append((loop.time() + seconds, future))
        await future

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waits and (self._waits[0][1].done() or self._waits[0][0] <= loop.time()):
            _, future = self._waits.popleft()
            if not future.done():
                future.set_exception(TimeoutError())
        if self._waits:
            loop.call_later(TICK_SECONDS, self._tick, loop)

    def __call__(self, tickets: list[Ticket]) -> None:
        """Hand over finished tickets; waiters outside the loop are events."""
        awaited = []
        for ticket in tickets:
            if isinstance(ticket.waiter, asyncio.Future):
                awaited.append(ticket)
            elif ticket.waiter is not None:
                ticket.waiter.set()
        if awaited and self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._resolve, awaited)

    @staticmethod
    def _resolve(tickets: list[Ticket]) -> None:
        for ticket in tickets:
            ticket.delivered = True
            if not ticket.waiter.done():
                ticket.waiter.set_result(None)


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


def _raw(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type="application/json")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Log an error by its type and place, and let it go on."""
    try:
        yield
    except Exception as error:
        log.error(what, error=type(error).__name__, place=place(error))
        raise


def create_app(services: Services) -> FastAPI:
    """The application over its services."""
    limits = services.limits

    def ending() -> None:
        for queue in (services.plans, services.exports):
            queue.drain()

    wire = Wire(
        places=Places(limits.max_connections, limits.connections_a_client, limits.trusts),
        seconds=limits.client_timeout_seconds,
        bytes_a_second=limits.client_min_rate,
        idle_seconds=limits.keep_alive_seconds,
        refused=services.metrics.refused,
        ending=ending,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Wire]]:
        services.delivery.loop = asyncio.get_running_loop()
        # Not in the loop itself: a start waits for lanes, which tickets reach through the loop.
        with _told("the service cannot start"):
            await run_in_threadpool(services.start)
        try:
            yield {"wire": wire}  # which is how the protocol of each connection comes to know it
        finally:
            with _told("the service did not stop well"):
                await run_in_threadpool(services.stop)

    app = Application(
        title="Curator",
        summary="A trusted curator: private data behind differentially private linear and cut queries.",
        version="1",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.router.route_class = PlainRoute
    _answer_routes(app, services)  # first, as routes are tried in order and this one is the busiest
    _open_routes(app, services)
    _admin_routes(app, services)
    _session_routes(app, services)
    add_pages(app)
    app.openapi_url = "/openapi.json"
    app.setup()  # the description, last
    app.openapi = lambda: describe(app, get_openapi)  # type: ignore[method-assign]
    app.requests = Observe(app.router, services.metrics, services.room, verbose=services.limits.log_level == "debug")
    return app


# ---------------------------------------------------------------------- authentication and bodies


async def _principal(request: Request, services: Services, *, heavy: bool = False) -> Principal:
    return await services.door.admit(request, heavy=heavy)


async def _asker(request: Request, services: Services, *, heavy: bool = False) -> Principal:
    """Who is asking, if the role may ask at all: auditors ask nothing."""
    actor = await _principal(request, services, heavy=heavy)
    actor.require("analyst", "admin")
    return actor


async def _json_body(request: Request, services: Services, actor: Principal) -> Any:
    bodies.expect_json(request)
    return _parsed(request, services, actor, await _read(request, services))


async def _read(request: Request, services: Services) -> bytes:
    return await bodies.read(request, services.limits.max_query_body_bytes, services.room)


def _parsed(request: Request, services: Services, actor: Principal, body: bytes) -> Any:
    services.door.charge(request, actor, bodies.weigh(body))
    return bodies.parse_json(body, services.limits.max_json_depth)


async def _object(request: Request, services: Services, actor: Principal) -> dict[str, Any]:
    document = await _json_body(request, services, actor)
    if not isinstance(document, dict):
        raise InvalidRequest("the body must be a JSON object")
    return document


def _idempotency(request: Request, principal: Principal, document: Any) -> IdempotencyKey | None:
    key = bodies.header(request, b"idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= 255 or not key.isascii() or not key.isprintable():
        raise InvalidRequest("Idempotency-Key: 1 to 255 printable ASCII characters")
    return IdempotencyKey(principal.name, request.scope["path"], key, bodies.fingerprint(document))


# ---------------------------------------------------------------------- routes without a data set


def _open_routes(app: FastAPI, services: Services) -> None:
    @app.get("/healthz", tags=["operation"], summary="Is the process alive?", response_model=schemas.Health)
    async def healthz(_: Request) -> Response:
        return _json({"status": "ok"})

    @app.get(
        "/readyz",
        tags=["operation"],
        summary="Can it work?",
        response_model=schemas.Health,
    )
    async def readyz(_: Request) -> Response:
        problem = await run_in_threadpool(services.ready)
        if problem is not None:
            raise Unavailable(problem)
        return _json({"status": "ready"})

    @app.get(
        "/metrics",
        tags=["operation"],
        summary="Prometheus metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **problem_responses(401, 403)},
    )
    async def metrics(request: Request) -> Response:
        if not services.limits.metrics_open:
            (await _principal(request, services)).require("admin", "auditor")
        return Response(services.metrics.exposition(), headers={"content-type": CONTENT_TYPE_LATEST})


# ---------------------------------------------------------------------- principals and data sets


def _admin_routes(app: FastAPI, services: Services) -> None:
    @app.get(
        "/v1/principals",
        tags=["principals"],
        summary="All principals, a page at a time",
        response_model=schemas.Principals,
        responses=problem_responses(401, 403, 422),
        openapi_extra=page_parameters(NAMED),
    )
    async def list_principals(request: Request) -> Response:
        actor = await _principal(request, services)
        asked = paging.parse(request, NAME)
        return paging.reply(
            request, asked, await run_in_threadpool(services.principals.list, actor, asked.after, asked.limit)
        )

    @app.post(
        "/v1/principals",
        status_code=201,
        tags=["principals"],
        summary="Add a principal; its key is shown this once",
        response_model=schemas.NewPrincipal,
        responses=problem_responses(401, 403, 409, 413, 422),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/PrincipalRequest"}}},
            }
        },
    )
    async def add_principal(request: Request) -> Response:
        actor = await _principal(request, services)
        actor.require("admin")
        asked = await _object(request, services, actor)
        if set(asked) != {"name", "role"}:
            raise InvalidRequest("give name and role, and nothing else")
        return _json(await run_in_threadpool(services.principals.add, actor, asked["name"], asked["role"]), 201)

    @app.post(
        "/v1/principals/{name}/key",
        tags=["principals"],
        summary="Replace a principal's key; the new one is shown this once",
        response_model=schemas.NewPrincipal,
        responses=problem_responses(401, 403, 404, 409, 413, 422),
        openapi_extra={
            "requestBody": {
                "required": False,
                "content": {"application/json": {"schema": {"type": "object", "additionalProperties": False}}},
            }
        },
    )
    async def rotate_key(request: Request, name: str) -> Response:
        actor = await _principal(request, services)
        actor.require("admin")
        body = await _read(request, services)
        if body.strip() and _parsed(request, services, actor, body) != {}:
            raise InvalidRequest("a new key takes no body, or {}")
        return _json(await run_in_threadpool(services.principals.rotate, actor, name))

    @app.delete(
        "/v1/principals/{name}",
        status_code=204,
        tags=["principals"],
        summary="Revoke a principal's key",
        responses=problem_responses(401, 403, 404, 409),
    )
    async def revoke_principal(request: Request, name: str) -> Response:
        actor = await _principal(request, services)
        await run_in_threadpool(services.principals.revoke, actor, name)
        return Response(status_code=204)

    @app.post(
        "/v1/datasets",
        status_code=201,
        tags=["data sets"],
        summary="Register a data set",
        response_model=schemas.RegisteredView,
        responses=problem_responses(401, 403, 409, 413, 422),
        openapi_extra={"requestBody": multipart()},
    )
    async def register(request: Request) -> Response:
        actor = await _principal(request, services, heavy=True)
        actor.require("admin")
        limit = services.limits.max_body_bytes
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limit:
            raise bodies.too_large(limit)
        spec, upload = await _upload(request, services)
        descriptor = await run_in_threadpool(_into_memory, upload)
        try:
            path = Path(f"/proc/self/fd/{descriptor}")
            filename = upload.filename or ""
            view = await run_in_threadpool(services.datasets.register, actor, spec, filename, path)
        finally:
            os.close(descriptor)
            await upload.close()
        return _json(view, 201)

    @app.get(
        "/v1/datasets",
        tags=["data sets"],
        summary="Public descriptors of all data sets, a page at a time",
        response_model=schemas.Datasets,
        responses=problem_responses(401, 422),
        openapi_extra=page_parameters(NAMED),
    )
    async def list_datasets(request: Request) -> Response:
        await _principal(request, services)
        asked = paging.parse(request, NAME)
        return paging.reply(request, asked, await run_in_threadpool(services.datasets.list, asked.after, asked.limit))

    @app.get(
        "/v1/datasets/{name}",
        tags=["data sets"],
        summary="The public descriptor of a data set",
        response_model=schemas.DatasetView,
        responses=problem_responses(401, 404),
    )
    async def describe_dataset(request: Request, name: str) -> Response:
        await _principal(request, services)
        return _json(await run_in_threadpool(services.datasets.describe, name))

    @app.put(
        "/v1/datasets/{name}/grants/{principal}",
        tags=["data sets"],
        summary="Cap what an analyst may hold and spend",
        response_model=schemas.GrantView,
        responses=problem_responses(401, 403, 404, 413, 422),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/GrantRequest"}}},
            }
        },
    )
    async def grant(request: Request, name: str, principal: str) -> Response:
        actor = await _principal(request, services)
        actor.require("admin")
        asked = await _object(request, services, actor)
        if set(asked) != {"epsilon"}:
            raise InvalidRequest("give epsilon, and nothing else")
        return _json(await run_in_threadpool(services.datasets.grant, actor, name, principal, asked["epsilon"]))

    @app.get(
        "/v1/datasets/{name}/ledger",
        tags=["data sets"],
        summary="Where the budget stands, and its movements a page at a time, exact",
        response_model=schemas.LedgerView,
        responses=problem_responses(401, 403, 404, 422),
        openapi_extra=page_parameters(MOVEMENT),
    )
    async def ledger(request: Request, name: str) -> Response:
        actor = await _principal(request, services, heavy=True)

        asked = paging.parse(request, paging.NUMBER)
        stands, page = await run_in_threadpool(
            services.datasets.ledger, actor, name, int(asked.after or 0), asked.limit
        )
        return paging.reply(request, asked, page, "entries", stands)

    @app.delete(
        "/v1/datasets/{name}",
        tags=["data sets"],
        summary="Retire a data set: its private file is destroyed",
        response_model=schemas.DatasetView,
        responses=problem_responses(401, 403, 404),
    )
    async def retire(request: Request, name: str) -> Response:
        actor = await _principal(request, services)
        return _json(await run_in_threadpool(services.datasets.retire, actor, name))


async def _upload(request: Request, services: Services) -> tuple[Any, UploadFile]:
    """The declared spec and the file of a multipart body, never written to a disk outside the vault."""
    limit, size = services.limits.max_body_bytes, 0
    if bodies.media_type(request) != "multipart/form-data":
        raise InvalidRequest("send multipart/form-data with the fields spec (JSON) and data (a file)")

    async def counted() -> AsyncGenerator[bytes, None]:
        nonlocal size
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise bodies.too_large(limit)
            services.room.take(request.scope, len(part))
            yield part

    parser = bodies.Form(
        request.headers, counted(), max_files=1, max_fields=2, max_part_size=services.limits.max_query_body_bytes
    )
    parser.spool_max_size = limit + 1
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError):
        raise InvalidRequest("the multipart body cannot be read: is it complete?") from None
    spec, upload = form.get("spec"), form.get("data")
    if isinstance(spec, UploadFile):
        raise InvalidRequest("spec is a form field with JSON, not a file")
    names = sorted(name for name, _ in form.multi_items())
    if names != ["data", "spec"] or spec is None or not isinstance(upload, UploadFile):
        raise InvalidRequest(
            "the fields spec (JSON) and data (a file with a name) are needed, each once; is the body complete?"
        )
    declared = spec.encode()
    bodies.weigh(declared)
    try:
        return bodies.parse_json(declared, services.limits.max_json_depth), upload
    except InvalidRequest as error:
        raise InvalidDataset(f"spec: {error.detail}") from None


def _into_memory(upload: UploadFile) -> int:
    """A descriptor of an anonymous memory file with the upload's bytes."""
    descriptor = os.memfd_create("upload", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            upload.file.seek(0)
            while block := upload.file.read(1 << 20):
                file.write(block)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


# ---------------------------------------------------------------------- sessions


def _session_routes(app: FastAPI, services: Services) -> None:
    reading = asyncio.Semaphore(PAGES)
    session_request = {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/SessionRequest"}}},
        }
    }
    plan_request = {"requestBody": plan_body()}

    @app.post(
        "/v1/plans",
        tags=["sessions"],
        summary="The plan a session would have, or those of several mechanisms side by side; charges nothing",
        response_model=schemas.PlanReply | schemas.ComparisonView,
        responses=problem_responses(401, 404, 413, 422),
        openapi_extra=plan_request,
    )
    async def plan(request: Request) -> Response:
        actor = await _principal(request, services, heavy=True)
        asked = await _object(request, services, actor)
        async with services.plans.turn(request, actor) as work:
            if "mechanisms" in asked:
                comparison = await run_in_threadpool(services.sessions.compare, asked, work.check)
                return _json(comparison.document(problems.document))
            return _json(await run_in_threadpool(services.sessions.plan, asked, work.check))

    @app.post(
        "/v1/sessions",
        status_code=201,
        tags=["sessions"],
        summary="Open a session",
        response_model=schemas.SessionView,
        responses=problem_responses(401, 403, 404, 409, 413, 422),
        openapi_extra=session_request,
    )
    async def open_session(request: Request) -> Response:
        actor = await _asker(request, services, heavy=True)
        asked = await _object(request, services, actor)
        key = _idempotency(request, actor, asked)
        async with services.plans.turn(request, actor) as work:
            opening = await run_in_threadpool(services.sessions.prepare, actor, asked, key, work.check)
        if isinstance(opening, bytes):
            return _raw(opening, 201)
        # Others may keep the data set for a while: who waits for that holds up nobody's plan.
        return _raw(await run_in_threadpool(services.sessions.open, actor, opening, key), 201)

    @app.get(
        "/v1/sessions",
        tags=["sessions"],
        summary="Your sessions, a page at a time; all of them for auditors",
        response_model=schemas.Sessions,
        responses=problem_responses(401, 422),
        openapi_extra=page_parameters(SESSION),
    )
    async def list_sessions(request: Request) -> Response:
        actor = await _principal(request, services)

        asked = paging.parse(request, SESSION_ID)
        return paging.reply(
            request, asked, await run_in_threadpool(services.sessions.list, actor, asked.after, asked.limit)
        )

    @app.get(
        "/v1/sessions/{id}",
        tags=["sessions"],
        summary="A session's state",
        response_model=schemas.SessionView,
        responses=problem_responses(401, 404),
    )
    async def get_session(request: Request, id: str) -> Response:
        actor = await _principal(request, services)
        return _json(await run_in_threadpool(services.sessions.get, actor, id))

    @app.get(
        "/v1/sessions/{id}/transcript",
        tags=["audit"],
        summary="The transcript: header, entries, trailer",
        response_class=Response,
        responses={200: {"content": {"application/x-ndjson": {}}}, **problem_responses(401, 404)},
    )
    async def transcript(request: Request, id: str) -> Response:
        actor = await _principal(request, services, heavy=True)
        with _exporting(services, actor) as export:
            async with services.exports.turn(request, actor):
                pages = Lines(export, await run_in_threadpool(services.sessions.transcript, actor, id))
                await run_in_threadpool(pages.fill)
            return ExportResponse(export, pages.sent(reading), {}, "application/x-ndjson")

    @app.get(
        "/v1/sessions/{id}/hypothesis",
        tags=["sessions"],
        summary="The public hypothesis: synthetic data",
        response_class=Response,
        responses={
            200: {"content": {bodies.NPY: {}, bodies.ARROW: {}, bodies.PARQUET: {}}},
            **problem_responses(401, 404, 422),
        },
    )
    async def hypothesis(request: Request, id: str) -> Response:
        actor = await _principal(request, services, heavy=True)
        accept = request.headers.get("accept", "*/*")
        with _exporting(services, actor) as export:
            async with services.exports.turn(request, actor) as work:
                made = await run_in_threadpool(_hypothesis, services, actor, id, accept, export, work)
                export.made()
            return whole(export, *made)


@contextmanager
def _exporting(services: Services, actor: Principal) -> Iterator[Export]:
    """A place for an export, which is its reply's from then on."""
    export = services.shelf.open(actor.name)
    try:
        yield export
    except BaseException:
        export.close()
        raise


def _negotiate(accept: str, offered: tuple[str, ...]) -> str:
    """The media type a hypothesis is sent as: the first acceptable one, the first offered where anything will do."""
    for part in accept.split(","):
        wanted = part.partition(";")[0].strip().lower()
        if wanted in offered:
            return wanted
        if wanted in ("*/*", "application/*", "application/octet-stream", ""):
            return offered[0]
    raise InvalidRequest(f"Accept: this hypothesis is sent as one of {', '.join(offered)}")


def _hypothesis(
    services: Services, actor: Principal, id: str, accept: str, export: Export, work: Work
) -> tuple[dict[str, str], str]:
    """Write a session's hypothesis; headers and media type of the reply."""
    row, session = services.sessions.state(actor, id, partial(export.take, work), work.check)
    shown = session.construction.export(session.hypothesis)
    tables = (bodies.ARROW, bodies.PARQUET)
    media_type = _negotiate(accept, (bodies.NPY, *tables) if isinstance(shown, DenseHypothesis) else tables)
    facts = {"session": row.id, "updates": str(session.updates_used)}
    write_hypothesis(export, shown, session.dataset.space.names, media_type, facts, work.check)
    return {"Curator-Updates": str(session.updates_used), "Curator-Sequence": str(session.sequence)}, media_type


# ---------------------------------------------------------------------- answers


async def _take_turn(
    services: Services, request: Request, deadline: Deadline, actor: Principal, ticket: Ticket
) -> Response:
    """Queue a ticket and wait for it. A client that goes away changes nothing: the turn is taken all the same.

    Where there is a deadline, whatever came of the turn is told then, and not before.
    """
    moment = deadline.set()
    ticket.waiter = asyncio.get_running_loop().create_future()
    answering = services.answering
    try:
        if ticket.kind != "close" and answering.knows(ticket.session):
            answering.submit(actor, ticket)
        else:
            await run_in_threadpool(answering.submit, actor, ticket)
    except QueueFull:
        services.metrics.refused("queue")
        raise
    late: Unavailable | None = None
    try:
        await services.delivery.wait(ticket.waiter, services.limits.request_timeout_seconds)
    except TimeoutError:
        late = Unavailable(
            "the answer is not there yet; it will be recorded: send the same request again with its Idempotency-Key"
        )
        if not ticket.delivered:
            # The lane has the body until the turn is taken, and so long it takes its room.
            ticket.waiter = asyncio.get_running_loop().create_future()
            services.room.give_back_after(request.scope, ticket.waiter)
    await deadline.keep(moment)
    if late is not None:
        raise late
    if ticket.error is not None:
        raise ticket.error
    assert ticket.reply is not None
    return _raw(ticket.reply)


def _answer_routes(app: FastAPI, services: Services) -> None:
    deadline = Deadline(services.limits.answer_deadline_ms, services.metrics.late)

    @app.post(
        "/v1/sessions/{id}/queries",
        tags=["answers"],
        summary="Ask one query",
        response_model=schemas.AnswerView,
        responses=problem_responses(401, 403, 404, 409, 413, 422),
        openapi_extra={
            "requestBody": query_body(single=True),
            "parameters": [
                {
                    "name": "unverified",
                    "in": "query",
                    "description": "of an array, whose body cannot say it: as the field of that name of other queries",
                    "schema": {"type": "boolean", "default": False},
                }
            ],
        },
    )
    async def ask(request: Request, id: str) -> Response:
        actor = await _asker(request, services)
        media_type = bodies.media_type(request)
        asked: Any
        if media_type in (bodies.NPY, bodies.ARROW):
            body = await bodies.read(request, services.limits.max_body_bytes, services.room)
            unverified = _flag(request, "unverified")
            asked = await run_in_threadpool(bodies.dense_body, media_type, body, unverified=unverified)
            key = None
            if "idempotency-key" in request.headers:
                digest = await run_in_threadpool(_sha256, body)
                key = _idempotency(request, actor, [media_type, digest, unverified])
        else:
            if request.scope["query_string"] and "unverified" in request.query_params:
                raise InvalidRequest("unverified is a field of a JSON query: only an array has it in the address")
            asked = await _json_body(request, services, actor)
            key = _idempotency(request, actor, asked)
        check_body(asked)
        return await _take_turn(services, request, deadline, actor, Ticket("ask", id, actor.name, (asked,), key))

    @app.post(
        "/v1/sessions/{id}/queries/batch",
        tags=["answers"],
        summary="Ask many queries in one commit",
        response_model=schemas.BatchView,
        responses=problem_responses(401, 403, 404, 409, 413, 422),
        openapi_extra={"requestBody": query_body(single=False)},
    )
    async def batch(request: Request, id: str) -> Response:
        actor = await _asker(request, services)
        asked = await _object(request, services, actor)
        queries = asked.get("queries")
        if set(asked) != {"queries"} or not isinstance(queries, list) or not queries:
            raise InvalidRequest("give queries, a list of at least one query, and nothing else")
        if len(queries) > MAX_BATCH:
            raise InvalidRequest(f"a batch holds at most {MAX_BATCH:,} queries")
        services.door.charge(request, actor, len(queries))
        key = _idempotency(request, actor, asked)
        return await _take_turn(services, request, deadline, actor, Ticket("batch", id, actor.name, queries, key))

    @app.post(
        "/v1/sessions/{id}/close",
        tags=["sessions"],
        summary="Close a session; what it did not use returns to the data set",
        response_model=schemas.SessionView,
        responses=problem_responses(401, 403, 404, 409, 413, 422),
    )
    async def close(request: Request, id: str) -> Response:
        actor = await _asker(request, services)
        body = await _read(request, services)
        document = _parsed(request, services, actor, body) if body.strip() else {}
        if not isinstance(document, dict):
            raise InvalidRequest("closing takes no body, or a JSON object")
        key = _idempotency(request, actor, document)
        return await _take_turn(services, request, deadline, actor, Ticket("close", id, actor.name, (), key))


def _flag(request: Request, name: str) -> bool:
    """A query parameter that is true, false, or left out."""
    value = request.query_params.get(name, "false").lower()
    if value not in ("true", "1", "false", "0"):
        raise InvalidRequest(f"{name} must be true or false")
    return value in ("true", "1")


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
