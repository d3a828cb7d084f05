"""The first page of each role. An admin's says whether the service can work, where budgets stand, what to look at.

What to look at is a page of its own, which the first one asks for once it is shown: it takes all data sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.http.console.budgets import every
from app.http.console.gate import HEAVY, Admin, ConsoleRoute, LoggedIn
from app.http.console.rendering import page
from app.http.context import Context
from app.http.dependencies import AppContext
from app.services.principals import Principal

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)

#: Data sets whose budgets the first page shows; the list of them has all.
SHOWN = 50
#: Days without a question after which an open session is told of: it holds what others could have.
IDLE_DAYS = 7
#: Days after which witnesses should have come again.
WITNESS_DAYS = 2
#: What is left of a budget, as a part of it, when that is told.
LITTLE = 0.1


@router.get("/console")
def home(request: Request, context: AppContext, login: LoggedIn) -> Response:
    """Where whoever looks begins."""
    if login.principal.role != "admin":
        return RedirectResponse("/console/verdict" if login.principal.role == "auditor" else "/console/datasets", 303)
    actor, services = login.principal, context.services
    names, retired = services.datasets.names(), services.datasets.names(retired=True)
    samples = context.metrics.samples.all()
    note = services.log.checkpoint()
    return page(
        request,
        "overview.html.jinja",
        login,
        problem=context.lifecycle.ready(),
        datasets=[services.datasets.describe(name, actor) for name in names[:SHOWN]],
        all_datasets=len(names),
        retired=retired,
        open_sessions=services.sessions.count_open(actor),
        waiting=int(samples[-1].sum("curator_waiting_requests")) if samples else 0,
        releases=int(samples[-1].sum("curator_releases", "queued", "running")) if samples else 0,
        log_size=int(note.split(b"\n")[1]),
    )


@router.get("/console/to-look-at", dependencies=[HEAVY])
def to_look_at(request: Request, context: AppContext, login: Admin) -> Response:
    """What is used up, forgotten or out of date; a part of the first page alone, where a script asks for it."""
    actor, services = login.principal, context.services
    datasets = every(lambda after, most: services.datasets.list(after, most, actor))
    registered = (each for each in datasets if each["status"] == "registered")
    sessions = every(partial(services.sessions.open_ones, actor))
    part = request.headers.get("hx-request") == "true"
    return page(
        request,
        "part_to_look_at.html.jinja" if part else "to_look_at.html.jinja",
        login,
        told=[*_budgets(registered), *_idle(sessions), *_witnesses(context)],
        others=_others(context, actor),
    )


def _budgets(datasets: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    found = []
    for each in datasets:
        budget = each["budget"]
        if budget["remaining_epsilon"] < LITTLE * budget["epsilon"]:
            words = "has nothing left to give" if not budget["remaining_epsilon"] else "has little left to give"
            found.append(_told("amber", "budget", f"{each['name']} {words}", f"/console/datasets/{each['name']}"))
    return found


def _idle(sessions: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    found = []
    for each in sessions:
        since = datetime.fromisoformat(each["asked_at"] or each["opened_at"])
        days = (datetime.now(UTC) - since) // timedelta(days=1)
        if days >= IDLE_DAYS:
            words = (
                f"A session of {each['owner']} on {each['dataset']} holds {each['reserved_epsilon']:.3g} of "
                f"{each['epsilon']:.3g}, and was not asked for {days} days"
            )
            found.append(_told("amber", "idle", words, f"/console/datasets/{each['dataset']}/sessions"))
    return found


def _witnesses(context: Context) -> list[dict[str, str]]:
    times = [datetime.fromisoformat(each["cosigned_at"]) for each in context.services.log.cosignatures.witnesses()]
    place = "/console/log#witnesses"
    if not times:
        words = "No witness has cosigned the log: an auditor elsewhere can, and then nobody could rewrite it unseen"
        return [_told("plain", "log", words, place)]
    at = max(times)
    days = (datetime.now(UTC) - at) // timedelta(days=1)
    words = f"A witness cosigned the log last on {at.day} {at:%B %Y}, {at:%H:%M} UTC"
    if days >= WITNESS_DAYS:
        return [_told("amber", "log", f"{words}, {days} days ago", place)]
    return [_told("green", "good", words, place)]


def _others(context: Context, actor: Principal) -> int:
    """Whether there is anybody but the operator, up to two."""
    return len(context.services.principals.list(actor, "", 2).items)


def _told(colour: str, word: str, words: str, place: str) -> dict[str, str]:
    return {"colour": colour, "word": word, "words": words, "place": place}
