"""The route of plans: what a session would promise, before it is opened."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from app.curator.request import SessionRequest
from app.http import schemas
from app.http.dependencies import HEAVY, Caller, JsonObject, PlanTurn, UseCases
from app.http.openapi import problem_responses
from app.http.parameters import Route
from app.http.replies import JsonReply

router = APIRouter(tags=["sessions"], route_class=Route, responses=problem_responses(401, 429))


@router.post(
    "/v1/plans",
    summary="The plan a session would have, what several shares and numbers of questions would promise, plans of "
    "several mechanisms side by side, or all ways to have a workload answered; charges nothing",
    response_model=schemas.PlanReply | schemas.SweepView | schemas.ComparisonView | schemas.WorkloadPlans,
    responses=problem_responses(404, 413, 422),
    dependencies=[HEAVY],
)
def plan(
    services: UseCases,
    actor: Caller,
    asked: Annotated[
        dict[str, Any], Depends(JsonObject(SessionRequest | schemas.ComparisonRequest | schemas.SweepRequest))
    ],
    work: PlanTurn,
) -> Response:
    if "sweep" in asked:
        made = services.plans.sweep
    elif "workload" in asked or "tables" in asked:
        made = services.plans.ways
    elif "mechanisms" in asked:
        made = services.plans.compare
    else:
        made = services.plans.plan
    reply = made(asked, work.check)
    # Of what is not registered nobody has a grant yet.
    note = services.datasets.note(actor, asked["dataset"]) if "dataset" in asked else None
    return JsonReply({**reply, "note": note})
