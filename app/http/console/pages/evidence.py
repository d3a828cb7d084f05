"""What is known of a data set without asking: its declaration, made-up records, and all that was ever measured."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.http.console.builder import Choice
from app.http.console.downloads import as_file
from app.http.console.drawing import forest, marks_of
from app.http.console.gate import HEAVY, ConsoleRoute, LoggedIn
from app.http.console.rendering import page
from app.http.dependencies import AppContext, UseCases
from app.http.headers import CSV
from app.http.paging import ByNumber
from app.services.dummy_records import encoded
from app.services.errors import NotFound
from app.services.logins import Login
from app.services.services import Services

router = APIRouter(prefix="/console/datasets/{name}", include_in_schema=False, route_class=ConsoleRoute)

#: Measurements of a page; made-up records of a file.
_A_PAGE, _RECORDS = 50, 1000


@router.get("/about")
def about(request: Request, services: UseCases, login: LoggedIn, name: str) -> Response:
    """The declaration."""
    dataset = services.datasets.describe(name, login.principal)
    attributes = dataset["domain"].get("attributes", [])
    choices = [Choice.of(each) for each in attributes]
    return page(
        request, "about.html.jinja", login, dataset=dataset, attributes=list(zip(attributes, choices, strict=True))
    )


@router.get("/dummy.csv")
async def dummy(request: Request, context: AppContext, login: LoggedIn, name: str) -> Response:
    """Made-up records by the declaration alone."""
    context.authenticator.count_heavy(login.principal)
    async with context.exports.turn(request, login.principal):
        made = await run_in_threadpool(context.services.dummies.table, login.principal, name, _RECORDS, 0)
        content = await run_in_threadpool(encoded, made, "csv")
    return as_file(Response(content, media_type=f"{CSV}; charset=utf-8"), f"{name}-made-up.csv")


@router.get("/measured")
def measured(request: Request, services: UseCases, login: LoggedIn, name: str, asked: ByNumber) -> Response:
    """What was paid for, which is free to read."""
    dataset = services.datasets.describe(name, login.principal)
    found = services.measurements.list(login.principal, name, asked.after, _A_PAGE)
    items = [{**each, "words": _words(each["strategy"])} for each in found.items]
    return page(request, "measured.html.jinja", login, dataset=dataset, measurements=items, after=found.after)


@router.get("/measured/{id}", dependencies=[HEAVY])
async def one(request: Request, context: AppContext, login: LoggedIn, name: str, id: str) -> Response:
    """One measurement with its values, which are unbiased: each with its own standard error."""
    if len(id) != 64 or not id.isascii() or not id.isalnum():
        raise NotFound("there is no such measurement of this data set")
    async with context.exports.turn(request, login.principal):
        return await run_in_threadpool(_measurement, request, context.services, login, name, id)


def _measurement(request: Request, services: Services, login: Login, name: str, id: str) -> Response:
    dataset = services.datasets.describe(name, login.principal)
    found = services.measurements.get(login.principal, name, id).document()
    parts = [part for part in found.get("parts", [found]) if "axes" in part]
    charts = []
    for part in parts:
        errors = [part["standard_error"]] * len(part["values"])
        axes, marks = marks_of({**part, "standard_errors": errors, "intervals": None})
        charts.append(forest(axes, marks, whole="whole" in request.query_params, among=len(parts)))
    return page(
        request,
        "measurement.html.jinja",
        login,
        dataset=dataset,
        measurement=found,
        words=_words(found["strategy"]),
        charts=charts,
    )


def _words(strategy: dict[str, Any]) -> str:
    """What was measured, for a person."""
    if strategy["type"] == "marginal":
        return " by ".join(strategy["attributes"]) or "number of records"
    if strategy["type"] == "parts":
        told = []
        for part in strategy["parts"]:
            of = f"sum of {part['of']}" if part.get("of") else "number of records"
            told.append(f"{of} by {', '.join(part['attributes'])}" if part["attributes"] else of)
        return "; ".join(dict.fromkeys(told))
    attribute = strategy.get("attribute")
    return f"{strategy['type']} of {attribute}" if attribute else str(strategy["type"])
