"""The application: routes, middleware and the OpenAPI document, put together over a context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import structlog
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.concurrency import run_in_threadpool

from app.http.connection_limits import ConnectionLimits
from app.http.context import Context
from app.http.framework import Application, PlainRoute
from app.http.middleware import Observe, location
from app.http.openapi import describe
from app.http.protocol import ConnectionPolicy
from app.http.routes import (
    datasets,
    docs,
    hypotheses,
    log,
    measurements,
    operation,
    plans,
    principals,
    queries,
    releases,
    sessions,
    transcripts,
)

logger = structlog.get_logger("app.http")

#: Routes are tried in order: the busiest come first.
ROUTES = (
    queries,
    sessions,
    operation,
    principals,
    datasets,
    plans,
    transcripts,
    measurements,
    releases,
    hypotheses,
    log,
)


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log the type and the location of an error, and raise it again."""
    try:
        yield
    except Exception as error:
        logger.error(what, error=type(error).__name__, place=location(error))
        raise


def create_app(context: Context) -> FastAPI:
    """The application over its context."""
    limits = context.limits

    def draining() -> None:
        for each in (context.plans, context.exports, context.uploads, context.streams):
            each.drain()

    policy = ConnectionPolicy(
        limits=ConnectionLimits(limits.max_connections, limits.connections_a_client, limits.trusts),
        seconds=limits.client_timeout_seconds,
        bytes_a_second=limits.client_min_rate,
        idle_seconds=limits.keep_alive_seconds,
        refused=context.metrics.refused,
        draining=draining,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, ConnectionPolicy]]:
        context.delivery.loop = asyncio.get_running_loop()
        # In a thread: a start waits for lanes, which tickets reach through the loop.
        with _logged("the service cannot start"):
            await run_in_threadpool(context.lifecycle.start)
        try:
            yield {"connection_policy": policy}  # where the protocol of each connection finds it
        finally:
            with _logged("the service did not stop well"):
                await run_in_threadpool(context.lifecycle.stop)

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
    for routes in ROUTES:
        routes.add_routes(app, context)
    docs.add_routes(app)
    app.openapi_url = "/openapi.json"
    app.setup()  # adds the route of the document, when all others are there
    app.openapi = lambda: describe(app, get_openapi)  # type: ignore[method-assign]
    app.requests = Observe(app.router, context.metrics, context.body_memory, verbose=limits.log_level == "debug")
    return app
