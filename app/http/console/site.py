"""The console as a whole: its pages, what they load, and what is said of all other addresses under it."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request

from app.http.console import static
from app.http.console.gate import ConsoleRoute, LoggedIn
from app.http.console.pages import (
    account,
    asking,
    dataset,
    datasets,
    evidence,
    home,
    log,
    operation,
    people,
    registering,
    releases,
    sessions,
    sql,
    verdict,
    what_if,
)
from app.services.errors import NotFound

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)


@router.get("/console/{rest:path}")
async def nothing(request: Request, login: LoggedIn, rest: str) -> None:
    """No other page."""
    raise NotFound("there is no such page")


#: In the order in which addresses are looked for.
ROUTERS = (
    static.router,
    account.router,
    home.router,
    asking.router,
    evidence.router,
    what_if.router,
    sql.router,
    sessions.router,
    releases.router,
    datasets.router,
    registering.router,
    dataset.router,
    people.router,
    operation.router,
    verdict.router,
    log.router,
    router,
)
