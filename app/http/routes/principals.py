"""Routes of principals: who may call the service."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from app.http import schemas
from app.http.dependencies import Admin, Caller, JsonModel, UseCases
from app.http.openapi import problem_responses
from app.http.paging import ByName
from app.http.parameters import Route
from app.http.replies import JsonReply

router = APIRouter(
    prefix="/v1/principals", tags=["principals"], route_class=Route, responses=problem_responses(401, 403, 429)
)


@router.get(
    "",
    summary="All principals, a page at a time",
    response_model=schemas.Principals,
    responses=problem_responses(422),
)
def list_principals(services: UseCases, actor: Caller, page: ByName) -> Response:
    return page.reply(services.principals.list(actor, page.after, page.limit))


@router.post(
    "",
    status_code=201,
    summary="Add a principal; its key is shown this once",
    response_model=schemas.NewPrincipal,
    responses=problem_responses(409, 413, 422),
)
def add_principal(
    services: UseCases,
    actor: Admin,
    asked: Annotated[schemas.PrincipalRequest, Depends(JsonModel(schemas.PrincipalRequest))],
) -> Response:
    return JsonReply(services.principals.add(actor, asked.name, asked.role), 201)


@router.post(
    "/{name}/key",
    summary="Replace a principal's key; the new one is shown this once",
    response_model=schemas.NewPrincipal,
    responses=problem_responses(404, 409, 413, 422),
)
def rotate_key(
    services: UseCases,
    actor: Admin,
    name: str,
    asked: Annotated[schemas.KeyRequest, Depends(JsonModel(schemas.KeyRequest, required=False))],
) -> Response:
    return JsonReply(services.principals.rotate(actor, name))


@router.delete("/{name}", status_code=204, summary="Revoke a principal's key", responses=problem_responses(404, 409))
def revoke_principal(services: UseCases, actor: Caller, name: str) -> Response:
    services.principals.revoke(actor, name)
    return Response(status_code=204)
