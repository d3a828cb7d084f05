"""The first page of each role."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.http.console.gate import ConsoleRoute, LoggedIn

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)


@router.get("/console")
def home(request: Request, login: LoggedIn) -> Response:
    """Where whoever looks begins."""
    return RedirectResponse("/console/datasets", 303)
