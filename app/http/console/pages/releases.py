"""Releases: the ways to have a workload answered side by side, one that is asked for, and its files."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.declarations.errors import CuratorError
from app.http import openings
from app.http.console.asking import form_key, refusal_of
from app.http.console.downloads import export
from app.http.console.gate import Analyst, ConsoleRoute, LoggedIn, OwnForm
from app.http.console.numbers import number_of
from app.http.console.rendering import page
from app.http.context import Context
from app.http.dependencies import AppContext, UseCases
from app.http.files import release_file
from app.http.headers import CSV, PARQUET, XLSX
from app.http.paging import BySession
from app.services.errors import NotFound
from app.services.principals import Principal

router = APIRouter(prefix="/console/releases", include_in_schema=False, route_class=ConsoleRoute)

_FORMATS = {"csv": CSV, "parquet": PARQUET, "xlsx": XLSX}


@router.get("")
def all_of_them(request: Request, services: UseCases, login: LoggedIn, asked: BySession) -> Response:
    """One's own releases; all of them for admins and auditors."""
    found = services.releases.list(login.principal, asked.after, asked.limit)
    return page(request, "releases.html.jinja", login, releases=found.items, after=found.after, limit=asked.limit)


@router.get("/new")
async def new(request: Request, context: AppContext, login: Analyst, dataset: str = "") -> Response:
    """A workload, and the ways to have it answered with the errors to expect of each."""
    asked = request.query_params
    described = await run_in_threadpool(_choice, context, login.principal, dataset)
    told: dict[str, Any] = {"ways": None, "numbers": None, "refusal": None}
    wanted = _asked(described["dataset"], asked.get("way", ""), asked.get("epsilon", ""))
    if wanted is not None:
        context.authenticator.count_heavy(login.principal)
        try:
            async with context.plans.turn(request, login.principal) as work:
                found = await run_in_threadpool(context.services.plans.ways, wanted, work.check)
            told |= {"ways": [_way(each) for each in found["methods"]], "numbers": found["numbers"]}
        except CuratorError as error:
            told["refusal"] = refusal_of(error)
    elif asked.get("epsilon"):
        told["refusal"] = {"title": "Epsilon is no number", "detail": "say epsilon with a point before its decimals"}
    return await run_in_threadpool(
        page,
        request,
        "release_new.html.jinja",
        login,
        **described,
        **told,
        way=asked.get("way", "2"),
        epsilon=asked.get("epsilon", ""),
        nonce=secrets.token_urlsafe(16),
    )


@router.post("")
async def ask(request: Request, context: AppContext, login: Analyst, form: OwnForm) -> Response:
    """Ask for a release by one of the ways."""
    actor = login.principal
    dataset = await run_in_threadpool(context.services.datasets.describe, form.get("dataset"), actor)
    if form.get("tables"):
        # Tables that agree, from what a session was told: by itself it spends nothing.
        asked: dict[str, Any] | None = {
            "dataset": dataset["name"],
            "epsilon": 0,
            "tables": {"session": form.get("tables")},
        }
    else:
        asked = _asked(dataset, form.get("way"), form.get("epsilon"))
    if asked is None:
        raise NotFound("name a data set, a workload and epsilon")
    asked["method"] = form.get("method", "auto")
    key = form_key(actor, "/v1/releases", form.get("nonce"), asked)
    context.authenticator.count_heavy(actor)
    try:
        reply = await openings.ask_for_release(request, context, actor, asked, key)
    except CuratorError as error:
        return await run_in_threadpool(
            page,
            request,
            "release_new.html.jinja",
            login,
            status=422,
            **await run_in_threadpool(_choice, context, actor, dataset["name"]),
            ways=None,
            numbers=None,
            refusal=refusal_of(error),
            way=form.get("way"),
            epsilon=form.get("epsilon"),
            nonce=secrets.token_urlsafe(16),
        )
    return RedirectResponse(f"/console/releases/{orjson.loads(reply)['id']}", 303)


@router.get("/{id}")
def one(request: Request, services: UseCases, login: LoggedIn, id: str) -> Response:
    """Where a release stands; a part of the page alone, where a script looks again."""
    release = services.releases.standing(login.principal, id).view
    part = request.headers.get("hx-request") == "true"
    return page(request, "part_release.html.jinja" if part else "release.html.jinja", login, release=release)


@router.post("/{id}/cancel")
def cancel(request: Request, services: UseCases, login: Analyst, form: OwnForm, id: str) -> Response:
    """End it."""
    services.releases.cancel(login.principal, id)
    return RedirectResponse(f"/console/releases/{id}", 303)


@router.get("/{id}/files/{part}.{form}")
async def file(request: Request, context: AppContext, login: LoggedIn, id: str, part: str, form: str) -> Response:
    """A file of what came of it."""
    media_type = "application/json" if (part, form) == ("manifest", "json") else _FORMATS.get(form)
    if media_type is None or (part == "manifest" and form != "json"):
        raise NotFound("there is no such file")
    make = partial(release_file, context.services, login.principal, id, part, media_type)
    return await export(request, context, login.principal, f"release-{id[:8]}-{part}.{form}", make)


def _choice(context: Context, actor: Principal, name: str) -> dict[str, Any]:
    """The names of data sets that a release may be of, the one that is chosen, the first where none is, and the
    sessions on it whose answers can be made to agree."""
    services = context.services
    names = services.datasets.names()
    if not names:
        return {"names": names, "dataset": None, "sessions": []}
    chosen = name if name in names else names[0]
    mine = services.sessions.newest(actor, "", 50, chosen).items
    return {
        "names": names,
        "dataset": services.datasets.describe(chosen, actor),
        "sessions": [each for each in mine if each["queries_asked"] and "dummy" not in each],
    }


def _asked(dataset: dict[str, Any] | None, way: str, epsilon: str) -> dict[str, Any] | None:
    """What a form asks for; None where it says nothing that could be."""
    amount = number_of(epsilon)
    if dataset is None or amount is None:
        return None
    if dataset["kind"] == "table":
        workload: dict[str, Any] = {"marginals": int(way) if way in ("1", "2", "3") else 2}
    else:
        workload = {"cuts": "all"}
    return {"dataset": dataset["name"], "workload": workload, "epsilon": amount}


def _way(each: dict[str, Any]) -> dict[str, Any]:
    """A way as the page shows it: what it is, the errors to expect, and whether a release does it."""
    return {
        "name": each.get("method") or each.get("mechanism"),
        "release": "method" in each,
        "error": (each.get("expected") or {}).get("root_mean_square"),
        "largest": (each.get("expected") or {}).get("largest"),
        "basis": (each.get("expected") or {}).get("basis"),
        "seconds": each.get("expected_seconds"),
        "problem": (each.get("problem") or {}).get("detail"),
    }
