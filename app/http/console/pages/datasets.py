"""The data sets there are."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.http.console.gate import ConsoleRoute, LoggedIn
from app.http.console.rendering import page
from app.http.dependencies import UseCases
from app.http.paging import ByName

router = APIRouter(prefix="/console/datasets", include_in_schema=False, route_class=ConsoleRoute)


@router.get("")
def all_of_them(request: Request, services: UseCases, login: LoggedIn, asked: ByName) -> Response:
    """The data sets by name, a page at a time, with the open sessions of whoever looks."""
    found = services.datasets.list(asked.after, asked.limit, login.principal)
    return page(request, "datasets.html.jinja", login, datasets=found.items, after=found.after, limit=asked.limit)
