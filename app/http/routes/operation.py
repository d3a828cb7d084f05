"""Routes for whoever operates the service: health, readiness, metrics."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.http import schemas
from app.http.context import Context
from app.http.metrics import CONTENT_TYPE_LATEST
from app.http.openapi import problem_responses
from app.http.replies import json_reply
from app.services.errors import Unavailable


def add_routes(app: FastAPI, context: Context) -> None:
    """Add these routes."""

    @app.get("/healthz", tags=["operation"], summary="Is the process alive?", response_model=schemas.Health)
    async def healthz(_: Request) -> Response:
        return json_reply({"status": "ok"})

    @app.get(
        "/readyz",
        tags=["operation"],
        summary="Can it work?",
        response_model=schemas.Health,
    )
    async def readyz(_: Request) -> Response:
        problem = await run_in_threadpool(context.lifecycle.ready)
        if problem is not None:
            raise Unavailable(problem)
        return json_reply({"status": "ready"})

    @app.get(
        "/metrics",
        tags=["operation"],
        summary="Prometheus metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **problem_responses(401, 403)},
    )
    async def metrics(request: Request) -> Response:
        if not context.limits.metrics_open:
            (await context.authenticator.authenticate(request)).require("admin", "auditor")
        return Response(context.metrics.exposition(), headers={"content-type": CONTENT_TYPE_LATEST})
