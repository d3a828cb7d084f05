"""Routes of connections to databases outside: secrets go in, and never come out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from app.http import schemas
from app.http.dependencies import Admin, JsonModel, UseCases
from app.http.openapi import problem_responses
from app.http.paging import ByName
from app.http.parameters import Route
from app.http.replies import JsonReply

router = APIRouter(
    prefix="/v1/connections", tags=["connections"], route_class=Route, responses=problem_responses(401, 403, 429)
)


@router.get(
    "",
    summary="Connections by name, without their secrets, a page at a time",
    response_model=schemas.Connections,
    responses=problem_responses(422),
)
def list_connections(services: UseCases, actor: Admin, page: ByName) -> Response:
    return page.reply(services.connections.list(actor, page.after, page.limit))


@router.post(
    "",
    status_code=201,
    summary="Add a connection to a database; its URL is sealed, and never shown",
    response_model=schemas.ConnectionView,
    responses=problem_responses(409, 413, 422),
)
def add_connection(
    services: UseCases,
    actor: Admin,
    asked: Annotated[schemas.ConnectionRequest, Depends(JsonModel(schemas.ConnectionRequest))],
) -> Response:
    return JsonReply(services.connections.add(actor, asked.name, asked.url), 201)


@router.put(
    "/{name}",
    summary="Keep another URL under the name of a connection, as after a password was changed",
    response_model=schemas.ConnectionView,
    responses=problem_responses(404, 413, 422),
)
def replace_connection(
    services: UseCases,
    actor: Admin,
    name: str,
    asked: Annotated[schemas.UrlRequest, Depends(JsonModel(schemas.UrlRequest))],
) -> Response:
    return JsonReply(services.connections.replace(actor, name, asked.url))


@router.post(
    "/{name}/check",
    summary="Ask a connection's database whether it answers, and whether its role only reads",
    response_model=schemas.ConnectionCheck,
    responses=problem_responses(404, 503),
)
def check_connection(services: UseCases, actor: Admin, name: str) -> Response:
    return JsonReply(services.connections.check(actor, name))


@router.delete(
    "/{name}", status_code=204, summary="Forget a connection for good", responses=problem_responses(404, 409)
)
def remove_connection(services: UseCases, actor: Admin, name: str) -> Response:
    services.connections.remove(actor, name)
    return Response(status_code=204)
