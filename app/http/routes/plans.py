"""The route of plans: what a session would promise, before it is opened."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.http import problems, schemas
from app.http.context import Context
from app.http.openapi import plan_body, problem_responses
from app.http.replies import json_reply
from app.http.requests import json_object


def add_routes(app: FastAPI, context: Context) -> None:
    """Add these routes."""

    @app.post(
        "/v1/plans",
        tags=["sessions"],
        summary="The plan a session would have, those of several mechanisms side by side, or all ways to have a "
        "workload answered; charges nothing",
        response_model=schemas.PlanReply | schemas.ComparisonView | schemas.WorkloadPlans,
        responses=problem_responses(401, 404, 413, 422),
        openapi_extra={"requestBody": plan_body()},
    )
    async def plan(request: Request) -> Response:
        actor = await context.authenticator.authenticate(request, heavy=True)
        asked = await json_object(request, context, actor)
        async with context.plans.turn(request, actor) as work:
            if "workload" in asked:
                return json_reply(await run_in_threadpool(context.services.releases.plan, asked, work.check))
            if "mechanisms" in asked:
                comparison = await run_in_threadpool(context.services.sessions.compare, asked, work.check)
                return json_reply(comparison.document(problems.document))
            return json_reply(await run_in_threadpool(context.services.sessions.plan, asked, work.check))
