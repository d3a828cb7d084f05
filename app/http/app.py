"""The application: routes, middleware and the OpenAPI document, put together over a context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.concurrency import run_in_threadpool
from starlette.routing import Router

from app.http.console import site
from app.http.context import Context
from app.http.middleware import Observe, location
from app.http.openapi import describe, problem_responses
from app.http.routes import (
    audits,
    connections,
    datasets,
    docs,
    grants,
    hypotheses,
    log,
    measurements,
    operation,
    plans,
    principals,
    queries,
    releases,
    sessions,
    sql,
    transcripts,
)
from curator_client.version import __version__

logger = structlog.get_logger("app.http")

RESOURCES = (
    sessions,
    operation,
    connections,
    principals,
    datasets,
    grants,
    plans,
    transcripts,
    measurements,
    releases,
    hypotheses,
    sql,
    log,
    audits,
    docs,
)


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log the type and the location of an error, and raise it again."""
    try:
        yield
    except Exception as error:
        logger.error(what, error=type(error).__name__, place=location(error))
        raise


def create_app(context: Context, state: Mapping[str, Any]) -> FastAPI:
    """The application over its context.

    Args:
        context: of the routes.
        state: given to the server at the start.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        context.delivery.loop = asyncio.get_running_loop()
        # In a thread: a start waits for lanes, which tickets reach through the loop.
        with _logged("the service cannot start"):
            await run_in_threadpool(context.lifecycle.start)
        try:
            yield state
        finally:
            with _logged("the service did not stop well"):
                await run_in_threadpool(context.lifecycle.stop)

    app = FastAPI(
        title="Curator",
        summary="A trusted curator: private data behind differentially private linear and cut queries.",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=problem_responses(408, 503),
        # It would read what requests hold, and send it wherever the environment says.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.context = context
    for resource in RESOURCES:
        app.include_router(resource.router)
    if context.limits.console:
        for part in site.ROUTERS:
            app.include_router(part)
    # The framework's own layers serve telemetry and debugging, or would answer refusals in words of their own. Queries
    # go around what is left of them (docs/decisions/0011-around-the-library-where-answers-go.md).
    router = Router(
        queries.ROUTES,
        redirect_slashes=False,
        default=AsyncExitStackMiddleware(app.router),
        lifespan=app.router.lifespan_context,
    )
    app.openapi = partial(describe, app, [*router.routes, *app.routes])  # type: ignore[method-assign]
    app.middleware_stack = Observe(
        router,
        context.metrics,
        context.body_memory,
        verbose=context.limits.log_level == "debug",
        tracer=context.tracer,
    )
    return app
