"""Routes of grants, as those see them who hold them. They are given and listed by data sets."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from app.http import schemas
from app.http.dependencies import HEAVY, Caller, UseCases
from app.http.openapi import problem_responses
from app.http.paging import ByName
from app.http.parameters import Route

router = APIRouter(prefix="/v1/grants", tags=["data sets"], route_class=Route, responses=problem_responses(401, 429))


@router.get(
    "",
    summary="What you may hold of each data set, hold and have spent, a page at a time",
    response_model=schemas.Grants,
    responses=problem_responses(422),
    dependencies=[HEAVY],
)
def own_grants(services: UseCases, actor: Caller, page: ByName) -> Response:
    return page.reply(services.grants.own(actor, page.after, page.limit))
