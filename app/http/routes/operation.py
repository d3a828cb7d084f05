"""Routes for whoever operates the service: health, readiness, metrics."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from app.http import schemas
from app.http.dependencies import ApiKey, AppContext, context_of
from app.http.metrics import CONTENT_TYPE_LATEST
from app.http.openapi import problem_responses
from app.http.parameters import Route
from app.http.replies import JsonReply
from app.services.errors import Unavailable

router = APIRouter(tags=["operation"], route_class=Route)


@router.get("/healthz", summary="Is the process alive?", response_model=schemas.Health)
async def healthz() -> Response:
    return JsonReply({"status": "ok"})


@router.get("/readyz", summary="Can it work?", response_model=schemas.Health)
def readyz(context: AppContext) -> Response:
    problem = context.lifecycle.ready()
    if problem is not None:
        raise Unavailable(problem)
    return JsonReply({"status": "ready"})


class _Reader(ApiKey):
    """Who may read the metrics: anybody where they are open."""

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        if context_of(request).limits.metrics_open:
            return
        actor = await super().__call__(request)
        actor.require("admin", "auditor")


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **problem_responses(401, 403, 429)},
    dependencies=[Depends(_Reader())],
)
async def metrics(context: AppContext) -> Response:
    return Response(context.metrics.exposition(), headers={"content-type": CONTENT_TYPE_LATEST})
