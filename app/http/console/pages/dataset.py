"""One data set as its holder sees it: where its budget went, who holds what, its declaration, its ledger, its end.

Auditors see what the routes show them: budget, declaration and ledger.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.declarations.errors import CuratorError, InvalidRequest
from app.http.console.budgets import Course, every, is_release, lanes_of, now
from app.http.console.gate import HEAVY, Admin, ConsoleRoute, LoggedIn, Overseer, OwnForm, status_of
from app.http.console.rendering import page
from app.http.context import Context
from app.http.dependencies import AppContext, UseCases
from app.http.paging import ByName, ByNumber, BySession
from app.http.parameters import Refused
from app.report.words import laid_out
from app.services.errors import NotFound
from app.services.logins import Login
from app.services.services import Services
from curator_client.figures import lanes, steps

router = APIRouter(prefix="/console/datasets/{name}", include_in_schema=False, route_class=ConsoleRoute)

#: Movements of a ledger that are read at a time; each time counts as heavy, as it would by the route.
MOVEMENTS = 1000
#: Sessions and grants that the first page shows; their own pages have all.
SHOWN = 12
_DAY = 86400.0


@router.get("")
async def overview(request: Request, context: AppContext, login: LoggedIn, name: str) -> Response:
    """Where the budget of a data set stands and stood, and who holds it. Who asks questions is led to where that is."""
    view = await run_in_threadpool(context.services.datasets.describe, name)
    if login.principal.role == "analyst":
        return RedirectResponse(f"/console/datasets/{name}/ask", 303)
    course = await _course(context, login, name)
    held: dict[str, Any] = {"sessions": [], "grants": []}
    if login.principal.role == "admin":
        context.authenticator.count_heavy(login.principal)
        held = await run_in_threadpool(_held, context.services, login, name)
    return await run_in_threadpool(_overview, request, context, login, view, course, held)


async def _course(context: Context, login: Login, name: str) -> Course:
    """Where a budget stood, by its whole ledger."""
    course, after = None, 0
    while True:
        context.authenticator.count_heavy(login.principal)
        stands, movements = await run_in_threadpool(
            context.services.datasets.ledger, login.principal, name, after, MOVEMENTS
        )
        # What a budget stands at is told by the first page's moment; later pages add what came before it.
        course = Course(stands) if course is None else course
        await run_in_threadpool(course.add, movements.items)
        if movements.after is None:
            return course
        after = int(movements.after)


def _held(services: Services, login: Login, name: str) -> dict[str, Any]:
    actor = login.principal
    return {
        "sessions": every(partial(services.sessions.of_dataset, actor, name)),
        "grants": every(partial(services.grants.of_dataset, actor, name)),
    }


def _overview(
    request: Request, context: Context, login: Login, view: dict[str, Any], course: Course, held: dict[str, Any]
) -> Response:
    sessions, name = held["sessions"], view["name"]
    until = now()
    span, pace = course.span(view["created_at"], until), course.pace()
    drawn = steps(
        f"Budget of {name} over time",
        course.steps(),
        course.epsilon,
        span,
        pace / (30 * _DAY) if pace and view["status"] == "registered" else None,
    )
    lanes_drawn = lanes_of(sessions)
    answers = sum(each["queries_asked"] for each in sessions)
    free = answers - sum(min(each["updates_used"], each["queries_asked"]) for each in sessions)
    return page(
        request,
        "dataset.html.jinja",
        login,
        tab="",
        dataset=view,
        course=course,
        steps=drawn,
        lanes=lanes("Who held a part of the budget, and when", lanes_drawn, span) if lanes_drawn else "",
        lanes_left=len(sessions) - len(lanes_drawn),
        pace=pace,
        lasts=course.lasts_until(),
        sessions=[_drawn(each) for each in reversed(sessions[-SHOWN:])],
        all_sessions=len(sessions),
        open_sessions=sum(each["status"] == "open" for each in sessions),
        answers=answers,
        free=free,
        grants=held["grants"][:SHOWN],
        all_grants=len(held["grants"]),
        unused=[each["principal"] for each in held["grants"] if each["epsilon"] and not _used(sessions, each)],
        problem=context.lifecycle.ready(),
    )


def _used(sessions: list[dict[str, Any]], grant: dict[str, Any]) -> bool:
    return any(each["owner"] == grant["principal"] for each in sessions)


def _drawn(session: dict[str, Any]) -> dict[str, Any]:
    """A session with what a row of the table shows of it."""
    given = max(session["epsilon"] - session["spent_epsilon"] - session["reserved_epsilon"], 0.0)
    how = "release" if is_release(session) else session["construction"]
    return session | {"how": how, "given_back": given if session["status"] == "closed" else 0.0}


# ---------------------------------------------------------------------- its parts


@router.get("/declaration")
def declaration(request: Request, services: UseCases, login: Overseer, name: str) -> Response:
    """What was declared of a data set, which is public."""
    view = services.datasets.describe(name)
    told = {key: value for key, value in view.items() if key not in ("budget", "grant")}
    return page(
        request, "dataset_declaration.html.jinja", login, tab="declaration", dataset=view, as_json=laid_out(told)
    )


@router.get("/sessions")
def sessions(request: Request, services: UseCases, login: Admin, name: str, asked: BySession) -> Response:
    """Sessions on a data set, whose they are and what they cost, a page at a time; not what was asked."""
    view = services.datasets.describe(name)
    found = services.sessions.of_dataset(login.principal, name, asked.after, asked.limit)
    told: dict[str, Any] = {"sessions": [_drawn(each) for each in found.items]}
    told |= {"after": found.after, "limit": asked.limit}
    return page(request, "dataset_sessions.html.jinja", login, tab="sessions", dataset=view, **told)


@router.get("/ledger", dependencies=[HEAVY])
def ledger(request: Request, services: UseCases, login: Overseer, name: str, asked: ByNumber) -> Response:
    """The movements of a budget a page at a time, exact."""
    view = services.datasets.describe(name)
    stands, movements = services.datasets.ledger(login.principal, name, asked.after, asked.limit)
    return page(
        request,
        "dataset_ledger.html.jinja",
        login,
        tab="ledger",
        dataset=view,
        stands=stands,
        movements=movements.items,
        begins=asked.after,
        after=movements.after,
        limit=asked.limit,
    )


# ---------------------------------------------------------------------- grants


@router.get("/grants", dependencies=[HEAVY])
def grants(
    request: Request,
    services: UseCases,
    login: Admin,
    name: str,
    asked: ByName,
    who: Annotated[str, Query(max_length=64), Refused("the name of an analyst")] = "",
) -> Response:
    """What everybody may hold, holds and has spent, and a form that gives."""
    return _grants(request, services, login, name, {"principal": who, "epsilon": ""}, asked.after, asked.limit)


@router.post("/grants")
def grant(request: Request, services: UseCases, form: OwnForm, login: Admin, name: str) -> Response:
    """Cap what an analyst may hold and spend."""
    typed = {each: form.get(each) for each in ("principal", "epsilon")}
    try:
        told = services.grants.grant(login.principal, name, typed["principal"], number(typed["epsilon"], "epsilon"))
    except (InvalidRequest, NotFound) as error:
        services.datasets.describe(name)  # which is the refusal where there is no such data set
        field = "principal" if isinstance(error, NotFound) else "epsilon"
        return _grants(request, services, login, name, typed, refusal=error, field=field)
    return _grants(request, services, login, name, {"principal": "", "epsilon": ""}, given=told)


def number(text: str, name: str) -> float:
    """A number as somebody typed it.

    Raises:
        InvalidRequest: when it is none.
    """
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest(f"{name}: a number is needed, with a point before its decimals") from None


def _grants(
    request: Request,
    services: Services,
    login: Login,
    name: str,
    typed: dict[str, str],
    after: str = "",
    limit: int = 100,
    refusal: CuratorError | None = None,
    field: str = "",
    given: dict[str, Any] | None = None,
) -> Response:
    view = services.datasets.describe(name)
    found = services.grants.of_dataset(login.principal, name, after, limit)
    people = every(partial(services.principals.list, login.principal))
    return page(
        request,
        "dataset_grants.html.jinja",
        login,
        status=200 if refusal is None else status_of(refusal),
        tab="grants",
        dataset=view,
        grants=found.items,
        after=found.after,
        limit=limit,
        people=[each["name"] for each in people if each["role"] == "analyst" and each["revoked_at"] is None],
        typed=typed,
        refusal=refusal,
        field=field,
        given=given,
    )


# ---------------------------------------------------------------------- its commitment, and its end


@router.get("/commitment")
def commitment(request: Request, services: UseCases, login: Admin, name: str) -> Response:
    """What the key of a commitment can do, before it is shown."""
    return page(
        request, "dataset_commitment.html.jinja", login, tab=None, dataset=services.datasets.describe(name), key=None
    )


@router.post("/commitment", dependencies=[HEAVY])
def reveal(request: Request, services: UseCases, form: OwnForm, login: Admin, name: str) -> Response:
    """The commitment with its key, in this reply alone; the log says that it was."""
    told = services.commitments.reveal(login.principal, name)
    view = services.datasets.describe(name)
    return page(request, "dataset_commitment.html.jinja", login, tab=None, dataset=view, key=told["key"])


@router.get("/retire")
def retirement(request: Request, services: UseCases, login: Admin, name: str) -> Response:
    """What is destroyed and what stays, before a data set is retired."""
    return _retirement(request, login, services.datasets.describe(name))


@router.post("/retire")
def retire(request: Request, services: UseCases, form: OwnForm, login: Admin, name: str) -> Response:
    """Retire a data set whose name was typed."""
    view, typed = services.datasets.describe(name), form.get("name")
    if typed != view["name"]:
        return _retirement(request, login, view, typed, "This is not the name of the data set. Nothing was done.")
    services.retirement.retire(login.principal, name)
    return RedirectResponse(f"/console/datasets/{view['name']}", 303)


def _retirement(request: Request, login: Login, view: dict[str, Any], typed: str = "", refusal: str = "") -> Response:
    told: dict[str, Any] = {"tab": None, "dataset": view, "typed": typed, "refusal": refusal}
    return page(request, "dataset_retire.html.jinja", login, status=422 if refusal else 200, **told)
