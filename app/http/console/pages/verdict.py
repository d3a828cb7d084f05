"""The auditor's first page: whether what the service records holds, as the service checks it itself; and each check by
its own address, while it runs and when it has ended.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.declarations.errors import CuratorError, InvalidRequest
from app.http.console.asking import form_key, refusal_of
from app.http.console.downloads import as_file
from app.http.console.gate import HEAVY, Auditor, ConsoleRoute, Overseer, OwnForm, status_of
from app.http.console.rendering import page
from app.http.context import Context
from app.http.dependencies import AppContext
from app.report.words import words
from app.services.audit_ports import UNDER_WAY, AuditRow
from app.services.audits import view
from app.services.errors import Conflict, NotFound
from app.services.logins import Login
from app.services.principals import Principal

router = APIRouter(prefix="/console", include_in_schema=False, route_class=ConsoleRoute)

#: Data sets and sessions that the page shows.
_DATASETS, _SESSIONS = 100, 6
#: What a report may do: show its own style. It says so itself, by the style's hash; this is what nobody may add to.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: How checks are called on the page, in its order.
_NAMES = {
    "signature": "Signature",
    "lines": "Lines",
    "earlier": "Growth",
    "refused": "One history",
    "same": "Same for all",
    "records": "Records",
    "chains": "Chains",
    "books": "Budgets",
    "charges": "Charges",
    "measurements": "Shared tables",
    "replay": "Replay",
}
_NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


@router.get("/verdict")
def verdict(request: Request, context: AppContext, login: Auditor) -> Response:
    """The check that is under way, or the last verdict."""
    return _shown(request, context, login, context.services.audits.current(login.principal))


@router.post("/verdict", dependencies=[HEAVY])
def check(request: Request, context: AppContext, login: Overseer, form: OwnForm) -> Response:
    """Begin a check of everything, or of one session. Who comes second is led to the first one's."""
    session, checkpoint = form.get("session") or None, form.raw("checkpoint").lstrip()
    asked: dict[str, Any] = {"session": session} if session else {"all": True}
    if checkpoint:
        # The last line of a note has an end, which is easily lost in a paste.
        checkpoint = checkpoint.rstrip() + "\n"
        asked["checkpoint"] = checkpoint
    actor, audits = login.principal, context.services.audits
    key = form_key(actor, "/v1/audits", form.get("nonce"), asked)
    try:
        made = audits.start(actor, session, checkpoint or None, key)
    except Conflict as error:
        if "audit" not in error.extra:
            raise
        return RedirectResponse(f"/console/verdict/{error.extra['audit']}?second=1", 303)
    except InvalidRequest as error:
        if session or actor.role != "auditor":
            raise
        return _shown(request, context, login, audits.current(actor), wrong=error, typed=checkpoint)
    context.services.audit_jobs.wake()
    return RedirectResponse(f"/console/verdict/{made['id']}", 303)


@router.get("/verdict/{id}")
def one(request: Request, context: AppContext, login: Overseer, id: str) -> Response:
    """Where a check stands, or what it found; a part of the page alone, where a script looks again."""
    row = context.services.audits.standing(login.principal, id)
    if request.headers.get("hx-request") == "true":
        # What has ended is another page.
        headers = {} if row.status in UNDER_WAY else {"HX-Refresh": "true"}
        return page(request, "part_audit.html.jinja", login, headers=headers, audit=_standing(login.principal, row))
    return _shown(request, context, login, row)


@router.post("/verdict/{id}/stop")
def stop(context: AppContext, login: Overseer, form: OwnForm, id: str) -> Response:
    """Stop a check. One that has ended meanwhile is kept."""
    audits = context.services.audits
    if audits.standing(login.principal, id).status in UNDER_WAY:
        audits.end(login.principal, id)
        context.services.audit_jobs.wake()
    return RedirectResponse(f"/console/verdict/{id}", 303)


@router.get("/verdict/{id}/report", dependencies=[HEAVY])
def report(context: AppContext, login: Overseer, id: str) -> Response:
    """The report of a check, for print."""
    content = context.services.audits.report(login.principal, id, "text/html")
    return Response(content, media_type="text/html", headers={"Content-Security-Policy": _REPORT_POLICY})


@router.get("/verdict/{id}/report.json", dependencies=[HEAVY])
def report_as_json(context: AppContext, login: Overseer, id: str) -> Response:
    """The same as a file for programs."""
    content = context.services.audits.report(login.principal, id, "application/json")
    return as_file(Response(content, media_type="application/json"), f"report-{id[:8]}.json")


@router.get("/verdict/{id}/checkpoint")
def checkpoint(context: AppContext, login: Overseer, id: str) -> Response:
    """The signed checkpoint that a check was of, to be kept elsewhere."""
    result = view(context.services.audits.standing(login.principal, id))["result"]
    if result is None:
        raise NotFound("the check came to no verdict, and there is no checkpoint of it")
    log = result["log"]
    return as_file(Response(log["checkpoint"], media_type="text/plain"), f"checkpoint-{log['size']}.txt")


# ---------------------------------------------------------------------- what is shown


def _shown(
    request: Request,
    context: Context,
    login: Login,
    row: AuditRow | None,
    wrong: CuratorError | None = None,
    typed: str = "",
) -> Response:
    """The page of a check, or of none; what is wrong stands beside the checkpoint that was typed."""
    services, actor = context.services, login.principal
    audit = None if row is None else _standing(actor, row)
    result = None if audit is None else audit["result"]
    kept = services.audits.last_done(actor)
    own = None if kept is None else view(kept)
    told: dict[str, Any] = {
        "audit": audit,
        "result": result,
        "second": "second" in request.query_params,
        "kept": own,
        "typed": typed or ("" if own is None else own["result"]["log"]["checkpoint"]),
        "wrong": {} if wrong is None else {"checkpoint": refusal_of(wrong)["detail"]},
        "nonce": secrets.token_urlsafe(16),
        "witnesses": services.log.cosignatures.witnesses(),
        "now": services.log.own_checkpoint(services.log.checkpoint().decode()),
    }
    if result is None:
        told["datasets"] = services.datasets.list("", _DATASETS, actor).items
    else:
        told |= {
            "checks": _checks(result, told["witnesses"]),
            "summary": _summary(result),
            "failing": _failing(result),
            "took": _took(audit),
            "books": [_book(each, result) for each in result["datasets"][:_DATASETS]],
            "sessions": _sessions(context, actor, result),
        }
    return page(request, "verdict.html.jinja", login, status=200 if wrong is None else status_of(wrong), **told)


def _standing(actor: Principal, row: AuditRow) -> dict[str, Any]:
    """A check as pages show it: with whether it goes on, and whether who looks may stop it."""
    return {
        **view(row),
        "under_way": row.status in UNDER_WAY,
        "may_stop": row.status == "running" and (row.owner == actor.name or actor.role == "admin"),
    }


def _checks(result: Mapping[str, Any], witnesses: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The checks by name in the order of the page, what stays open among them."""
    found = {each["check"]: each for each in result["checks"]}
    if "earlier" not in found:
        found["earlier"] = {"holds": None, "says": "No checkpoint was named that the log should begin with."}
    many = "one witness says" if len(witnesses) == 1 else f"{len(witnesses):,} witnesses say"
    says = f"The server tells that {many} what they saw of this log. " if witnesses else "The log has no witnesses. "
    found["same"] = {
        "holds": None,
        "says": f"{says}Whether everybody is shown the same log, no server can say of itself: compare elsewhere.",
    }
    order = [*_NAMES, *(name for name in found if name not in _NAMES)]
    return [{**found[name], "name": _NAMES.get(name, name)} for name in order if name in found]


def _failing(result: Mapping[str, Any]) -> str:
    """How many checks do not hold, in words."""
    number = sum(each["holds"] is False for each in result["checks"])
    said = _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"
    return f"{said} {'check does' if number == 1 else 'checks do'} not hold."


def _took(audit: Mapping[str, Any] | None) -> str:
    """How long a check took, in words."""
    if audit is None:
        return ""
    begun, ended = (datetime.fromisoformat(audit[name]) for name in ("created_at", "finished_at"))
    seconds = round((ended - begun).total_seconds())
    if not seconds:
        return "less than a second"
    return words(seconds, "second") if seconds < 120 else words(seconds // 60, "minute")


def _summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """What was looked at, in numbers; none of sessions where not all of them replay, or one alone was looked at."""
    datasets = result["datasets"]
    # Sessions are counted as they replay.
    whole = result["verdict"] == "holds" and all("answers" in each for each in datasets)
    names = ("sessions", "releases", "answers") if whole else ()
    return {"datasets": len(datasets), **{name: sum(each[name] for each in datasets) for name in names}}


def _book(each: dict[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """A data set's books, and whether they agree: None where nothing is said of these alone."""
    held = {check["check"]: check["holds"] for check in result["checks"]}
    finding = result["finding"]
    agree: bool | None = None
    if all(held.get(name) is not False for name in ("lines", "earlier", "records", "chains", "books", "charges")):
        agree = True
    elif finding is not None and finding["where"]["dataset"] == each["dataset"]:
        agree = False
    budget = {f"{name}_epsilon": float(each[name]["epsilon"]) for name in ("spent", "reserved", "remaining")}
    return {**each, "agree": agree, "bar": {"epsilon": float(each["epsilon"]), **budget}}


def _sessions(context: Context, actor: Principal, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The newest sessions in words, and whether each replays; what was found not to comes first."""
    found = []
    where = {} if result["finding"] is None else result["finding"]["where"]
    replays = {each["check"]: each["holds"] for each in result["checks"]}["replay"]
    newest = [each for each in reversed(result["sessions"]) if each["session"] != where.get("session")]
    if where.get("session") is not None:
        found.append({"id": where["session"], "replays": False})
    found += [{"id": each["session"], "replays": None if replays is None else True} for each in newest]
    return [{**each, **_told(context, actor, each["id"])} for each in found[:_SESSIONS]]


def _told(context: Context, actor: Principal, id: str) -> dict[str, Any]:
    """A session in words, as the service has it now; nothing where it has none."""
    services = context.services
    try:
        session = services.sessions.get(actor, id)
        first = services.transcripts.entries(actor, id, 0, 2).items
    except NotFound:
        return {"dataset": None, "words": "", "spent": None, "questions": 0, "release": False}
    return {
        "dataset": session["dataset"],
        "words": "; ".join(dict.fromkeys(each["words"] for each in first if each["words"])),
        "spent": session["spent_epsilon"],
        "questions": session["queries_asked"],
        "release": session["mechanism"]["construction"] == "workload",
    }
