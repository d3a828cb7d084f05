"""Registering a data set, in three steps on one page: choose a file, look through what is declared, register.

Whoever registers sends the file at each step, and nothing of it is kept between them (:mod:`app.http.console.files`).
What a check tells may depend on private values: it is in the reply alone, for the admin who sent the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.declarations import imports
from app.declarations.drafts import DRAFTED_WARNING
from app.declarations.errors import CuratorError, InvalidDataset, InvalidRequest
from app.http.console.drafting import TYPES, DraftForm, amber, fits, guesses_of, written
from app.http.console.files import FileForm, read_file_form
from app.http.console.gate import HEAVY, Admin, ConsoleRoute, UploadTurn, status_of
from app.http.console.rendering import page
from app.http.context import Context
from app.http.dependencies import AppContext
from app.http.uploads import declared
from app.services.errors import Conflict
from app.services.logins import Login

router = APIRouter(prefix="/console/register", include_in_schema=False, route_class=ConsoleRoute)

#: Numbers of questions of which it is said how well they would be answered.
QUESTIONS = (10, 100, 1000)


@dataclass
class Draft:
    """What stands in the page.

    Attributes:
        form: the declaration as fields; None where it is written as JSON.
        text: the declaration as JSON or YAML, where there are no fields.
        table: the table of a document of several.
        told: what a check told; None where there was none.
        buys: how well so many questions would be answered, by their number.
        refusals: what is refused, by the field that it stands beside.
        known: whether the box was ticked.
        guesses: what was guessed from the file, by attribute.
        amber: how much of it stands still.
    """

    form: DraftForm | None = None
    text: str = ""
    table: str = ""
    told: dict[str, Any] | None = None
    buys: list[tuple[int, float]] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    known: bool = False
    guesses: dict[str, str] = field(default_factory=dict)
    amber: int = 0

    @property
    def general(self) -> list[dict[str, Any]]:
        """Problems that belong to no attribute that the page has a field for."""
        names = {each.name for each in self.form.attributes} if self.form is not None else set()
        return [each for each in self.problems if each.get("attribute") not in names]

    @property
    def problems(self) -> list[dict[str, Any]]:
        """What a check found."""
        return [] if self.told is None else self.told["problems"]

    def of(self, name: str) -> list[dict[str, Any]]:
        """Problems of an attribute."""
        return [each for each in self.problems if each.get("attribute") == name]


@router.get("")
def show(request: Request, login: Admin) -> Response:
    """The first step."""
    return _page(request, login, Draft())


@router.post("", dependencies=[HEAVY])
async def step(
    request: Request,
    context: AppContext,
    login: Admin,
    sent: Annotated[FileForm, Depends(read_file_form, scope="function")],
    work: UploadTurn,
) -> Response:
    """What a button of the form says: check, write as JSON or as fields, or register."""
    form = sent.form
    draft = Draft(text=form.raw("spec"), table=form.get("table"), known="known" in form)
    if form.get("mode") == "fields":
        draft.form = DraftForm.read(form)
        draft.guesses = draft.form.guesses
    else:
        draft.guesses = _carried(form.raw("guesses"))
    do = form.get("do", "check")
    try:
        spec = draft.form.spec() if draft.form is not None else await declared(draft.text, context)
        draft.amber = amber(spec, draft.guesses)
        if do == "json":
            as_text = Draft(text=written(spec, 1), guesses=draft.guesses, amber=draft.amber, known=draft.known)
            return await run_in_threadpool(_page, request, login, as_text)
        if not sent.filename:
            draft.refusals["data"] = "Choose the file: nothing of it is kept between two steps."
            return await run_in_threadpool(_page, request, login, draft, 422)
        if do == "register":
            return await _register(request, context, login, sent, draft, spec)
        await _check(request, context, login, sent, draft, spec)
    except (InvalidDataset, InvalidRequest) as error:
        draft.refusals["spec"] = error.detail
        return await run_in_threadpool(_page, request, login, draft, status_of(error))
    return await run_in_threadpool(_page, request, login, draft)


def _carried(text: str) -> dict[str, str]:
    """What was guessed, as a form without fields carries it."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {name: each for name, each in found.items() if isinstance(each, str)} if isinstance(found, dict) else {}


async def _check(request: Request, context: Context, login: Login, sent: FileForm, draft: Draft, spec: Any) -> None:
    """Have a declaration and its file checked, and put what is found into the page."""
    told = await run_in_threadpool(
        context.services.checks.check, login.principal, spec, sent.filename, sent.path, draft.table or None
    )
    found = told["spec"]
    draft.told = told
    if drafted := _guessed(spec, told):
        no_budget = not isinstance(spec, dict) or "budget" not in spec
        draft.guesses |= guesses_of(found, drafted, budget=no_budget)
    draft.amber = amber(found, draft.guesses)
    if draft.form is None and fits(found):
        draft.form = DraftForm.of(found, draft.guesses)
    elif draft.form is None:
        draft.text = written(found, 1)
    if not told["problems"]:
        draft.buys = await _buys(request, context, login, found)


def _guessed(spec: Any, told: Mapping[str, Any]) -> list[str]:
    """The attributes of a declaration that were guessed from the file."""
    found = [each["name"] for each in told["spec"].get("attributes", ()) if isinstance(each, dict) and "name" in each]
    if DRAFTED_WARNING not in told["warnings"]:
        return []
    if not isinstance(spec, dict) or imports.format_of(spec) is not None:
        return found
    said = spec.get("attributes")
    known = {
        each.get("name")
        for each in (said if isinstance(said, list) else ())
        if isinstance(each, dict) and not each.keys() <= {"name", "missing", "outside"}
    }
    return [name for name in found if name not in known]


async def _buys(request: Request, context: Context, login: Login, spec: Mapping[str, Any]) -> list[tuple[int, float]]:
    """How well so many counts would be answered for the whole budget: the half-width of an interval each."""
    asked = {
        "declaration": dict(spec),
        "epsilon": spec["budget"]["epsilon"],
        "sweep": {"max_queries": list(QUESTIONS)},
    }
    try:
        async with context.plans.turn(request, login.principal) as plan:
            swept = await run_in_threadpool(context.services.plans.sweep, asked, plan.check)
    except CuratorError:
        return []  # what it buys is advice: a check is told without it
    found = []
    for point in swept["points"]:
        errors = point.get("expected_standard_errors")
        if errors and errors.get("cell") is not None:
            found.append((point["max_queries"], errors["cell"]))
    return found


async def _register(
    request: Request, context: Context, login: Login, sent: FileForm, draft: Draft, spec: Any
) -> Response:
    """Register, or show again what keeps from it."""
    if draft.amber and not draft.known:
        draft.refusals["known"] = "Something is as it was guessed from the file: change it, or tick this."
        return await run_in_threadpool(_page, request, login, draft, 422)
    services = context.services
    try:
        made = await run_in_threadpool(services.registration.register, login.principal, spec, sent.filename, sent.path)
    except (InvalidDataset, Conflict) as error:
        # All that is wrong, and not the first thing alone.
        told = await run_in_threadpool(services.checks.check, login.principal, spec, sent.filename, sent.path, None)
        draft.told = told if told["problems"] else {**told, "problems": [{"detail": error.detail}]}
        return await run_in_threadpool(_page, request, login, draft, status_of(error))
    report = report_in_words(made["report"])
    return await run_in_threadpool(page, request, "registered.html.jinja", login, made=made, report=report)


def report_in_words(report: Mapping[str, Any] | None) -> list[str]:
    """What became of the records of a file: counts, and no value."""
    if report is None:
        return []
    found = [f"{report['read']:,} read, {report['kept']:,} kept"]
    if report["beyond_cap"]:
        found.append(f"beyond the most that is kept of a person: {report['beyond_cap']:,}")
    for kind in ("dropped", "clamped", "missing"):
        each = {name: counts[kind] for name, counts in report["attributes"].items() if counts[kind]}
        if each:
            found.append(f"{kind}: " + ", ".join(f"{name} {count:,}" for name, count in each.items()))
    return found


def _page(request: Request, login: Login, draft: Draft, status: int = 200) -> Response:
    report = None if draft.told is None else draft.told["report"]
    return page(
        request,
        "registering.html.jinja",
        login,
        status=status,
        draft=draft,
        types=TYPES,
        report=report_in_words(report),
        guesses=json.dumps(draft.guesses) if draft.guesses else "",
    )
