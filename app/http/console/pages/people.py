"""People and keys: who may call the service, what each may hold. A key is in the reply to the form that made it, and
nowhere else: it is not stored, and the page cannot be asked for again."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.declarations.errors import CuratorError, InvalidRequest
from app.http.console.budgets import every
from app.http.console.gate import HEAVY, Admin, ConsoleRoute, OwnForm, status_of
from app.http.console.rendering import page
from app.http.dependencies import UseCases
from app.http.paging import ByName
from app.services.errors import Conflict
from app.services.logins import Login
from app.services.principals import OPERATOR
from app.services.services import Services

router = APIRouter(prefix="/console/people", include_in_schema=False, route_class=ConsoleRoute)

#: Data sets whose grants are shown beside people, at most: each is looked at.
MOST_DATASETS = 100


@router.get("", dependencies=[HEAVY])
def people(request: Request, services: UseCases, login: Admin, asked: ByName) -> Response:
    """All principals by name, a page at a time, and what each may hold."""
    return _people(request, services, login, asked.after, asked.limit)


@router.post("", dependencies=[HEAVY])
def add(request: Request, services: UseCases, form: OwnForm, login: Admin) -> Response:
    """Add a principal; the key is in this reply alone."""
    typed = {each: form.get(each) for each in ("name", "role")}
    try:
        made = services.principals.add(login.principal, typed["name"], typed["role"])
    except (InvalidRequest, Conflict) as error:
        return _people(request, services, login, typed=typed, refusal=error)
    return _people(request, services, login, made=made)


@router.post("/{name}/key", dependencies=[HEAVY])
def rotate(request: Request, services: UseCases, form: OwnForm, login: Admin, name: str) -> Response:
    """Give a principal a new key, which is in this reply alone."""
    return _people(request, services, login, made=services.principals.rotate(login.principal, name))


@router.get("/{name}/revoke")
def revocation(request: Request, login: Admin, name: str) -> Response:
    """What ends with a key, before it does."""
    return page(request, "revoke.html.jinja", login, name=name)


@router.post("/{name}/revoke")
def revoke(request: Request, services: UseCases, form: OwnForm, login: Admin, name: str) -> Response:
    """Make a principal's key worthless."""
    services.principals.revoke(login.principal, name)
    return RedirectResponse("/console/people", 303)


@router.get("/{name}/key")
def renewal(request: Request, login: Admin, name: str) -> Response:
    """What a new key does, before it is made."""
    return page(request, "new_key.html.jinja", login, name=name)


def _people(
    request: Request,
    services: Services,
    login: Login,
    after: str = "",
    limit: int = 100,
    typed: dict[str, str] | None = None,
    refusal: CuratorError | None = None,
    made: dict[str, str] | None = None,
) -> Response:
    found = services.principals.list(login.principal, after, limit)
    datasets = services.datasets.list("", MOST_DATASETS)
    held: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for dataset in datasets.items:
        if dataset["status"] != "registered":
            continue
        for each in every(partial(services.grants.of_dataset, login.principal, dataset["name"])):
            held[each["principal"]].append(each)
    return page(
        request,
        "people.html.jinja",
        login,
        status=200 if refusal is None else status_of(refusal),
        people=found.items,
        after=found.after,
        limit=limit,
        held=held,
        others=datasets.after is not None,
        operator=OPERATOR,
        typed=typed or {"name": "", "role": "analyst"},
        refusal=refusal,
        made=made,
    )
