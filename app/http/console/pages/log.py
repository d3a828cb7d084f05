"""The log: what is signed of it and by whom, each entry with its proof, and whether it grew from what was kept."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.declarations.errors import CuratorError, InvalidRequest
from app.http.console.asking import refusal_of
from app.http.console.downloads import as_file
from app.http.console.gate import HEAVY, ConsoleRoute, Overseer, OwnForm, status_of
from app.http.console.rendering import page
from app.http.context import Context
from app.http.dependencies import AppContext, UseCases
from app.services.errors import Conflict, NotFound
from app.services.log import MOST_SEARCHED, Log
from app.services.logins import Login
from app.services.services import Services
from app.services.sessions import SESSION_ID
from curator_client.proofs.merkle import leaf_hash

router = APIRouter(prefix="/console", include_in_schema=False, route_class=ConsoleRoute)

_NUMBER, _HASH = re.compile(r"[0-9]{1,15}"), re.compile(r"[0-9a-f]{64}")
#: What stands in a record and is long: it is shown with the whole line.
_LONG = frozenset(("value", "values", "weights", "hypothesis", "plan", "domain", "pinned", "dataset"))
#: Letters of a field, and of a line, that a page shows.
_FIELD, _LINE = 300, 50_000


@router.get("/log")
def log(request: Request, context: AppContext, login: Overseer) -> Response:
    """How much is in it, under which hash, by which key; and the forms."""
    return _page(request, context, login)


@router.get("/log/checkpoint")
def checkpoint(services: UseCases, login: Overseer) -> Response:
    """The newest checkpoint as a file."""
    note = services.log.checkpoint()
    size = services.log.own_checkpoint(note.decode()).size
    return as_file(Response(note, media_type="text/plain"), f"checkpoint-{size}.txt")


@router.get("/log/find", dependencies=[HEAVY])
async def find(request: Request, context: AppContext, login: Overseer, entry: str = "") -> Response:
    """Where an entry stands, by its number or a hash."""
    typed = entry.strip()
    try:
        number = await _number(request, context, login, typed.replace(",", "").lower())
        await run_in_threadpool(context.services.log.entries, number, number)
    except (InvalidRequest, NotFound) as error:
        return await run_in_threadpool(_page, request, context, login, entry=typed, wrong=error)
    return RedirectResponse(f"/console/log/entries/{number}", 303)


async def _number(request: Request, context: Context, login: Login, typed: str) -> int:
    if _NUMBER.fullmatch(typed):
        return int(typed)
    if not _HASH.fullmatch(typed):
        raise InvalidRequest("a number, counted from 0, or a hash of 64 hexadecimal digits")
    async with context.exports.turn(request, login.principal) as work:
        found = await run_in_threadpool(context.services.log.find, typed, work.check)
    if found is None:
        raise NotFound(f"no entry among the newest {MOST_SEARCHED:,} has this hash")
    return found


@router.get("/log/entries/{number}", dependencies=[HEAVY])
def entry(request: Request, services: UseCases, login: Overseer, number: str, session: str = "") -> Response:
    """An entry as it was signed, and the proof that it is in the log; entries of a session do not name it."""
    told = _proof(services.log, number)
    record = orjson.loads(told["line"])
    fields = {
        name: (text if len(text) <= _FIELD else f"{text[:_FIELD]}…")
        for name, value in record.items()
        if name not in _LONG
        for text in [value if isinstance(value, str) else orjson.dumps(value).decode()]
    }
    line = told["line"]
    return page(
        request,
        "log_entry.html.jinja",
        login,
        number=told["index"],
        fields=fields,
        session=next(filter(SESSION_ID.fullmatch, (str(record.get("session")), session)), None),
        line=line if len(line) <= _LINE else f"{line[:_LINE]}…",
        cut=len(line) > _LINE,
        proof=told,
    )


@router.get("/log/entries/{number}/line", dependencies=[HEAVY])
def line(services: UseCases, login: Overseer, number: str) -> Response:
    """The line itself, byte by byte."""
    content = _proof(services.log, number)["line"]
    return as_file(Response(content.encode(), media_type="application/json"), f"entry-{number}.json")


@router.get("/log/entries/{number}/proof", dependencies=[HEAVY])
def proof(services: UseCases, login: Overseer, number: str) -> Response:
    """The line, the proof and the signed checkpoint that it leads to, in one file."""
    content = orjson.dumps(_proof(services.log, number), option=orjson.OPT_INDENT_2)
    return as_file(Response(content, media_type="application/json"), f"proof-{number}.json")


@router.get("/sessions/{id}/records/{sequence}")
def record(services: UseCases, login: Overseer, id: str, sequence: str) -> Response:
    """Where an entry of a session stands in the log."""
    return RedirectResponse(f"/console/log/entries/{_place(services, login, id, sequence)}?session={id}", 303)


@router.get("/sessions/{id}/records/{sequence}/proof")
def record_proof(services: UseCases, login: Overseer, id: str, sequence: str) -> Response:
    """The proof that an entry of a session is in the log."""
    return RedirectResponse(f"/console/log/entries/{_place(services, login, id, sequence)}/proof", 303)


def _place(services: Services, login: Login, id: str, sequence: str) -> int:
    """The number in the log of an entry of a session.

    Raises:
        NotFound: when there is no such entry, or the session is somebody else's.
        Conflict: when the log does not have it.
    """
    session = services.sessions.row(login.principal, id)
    if not _NUMBER.fullmatch(sequence) or not 0 < int(sequence) <= session.sequence:
        raise NotFound("the session has no such entry")
    size = services.sessions.log_size(session.id, int(sequence))
    if size is None:
        raise Conflict("the log does not have the entry yet: look again in a moment. Rehearsals are in no log")
    return size - 1


@router.post("/log/compare", dependencies=[HEAVY])
def compare(request: Request, context: AppContext, login: Overseer, form: OwnForm) -> Response:
    """Whether the log begins with what a checkpoint is of."""
    # The last line of a note has an end, which is easily lost in a paste.
    typed = form.raw("checkpoint").strip()
    try:
        earlier = context.services.log.own_checkpoint(f"{typed}\n")
    except InvalidRequest as error:
        return _page(request, context, login, typed=typed, wrong_checkpoint=error)
    contradiction = context.services.log.contradiction(earlier)
    compared = {"size": earlier.size, "contradiction": contradiction}
    return _page(request, context, login, typed=typed, compared=compared)


def _page(
    request: Request,
    context: Context,
    login: Login,
    *,
    entry: str = "",
    wrong: CuratorError | None = None,
    typed: str = "",
    wrong_checkpoint: CuratorError | None = None,
    compared: dict[str, Any] | None = None,
) -> Response:
    """The page of the log, with what was typed and what came of it."""
    services = context.services
    note = services.log.checkpoint().decode()
    refused = wrong or wrong_checkpoint
    errors = {"entry": wrong, "checkpoint": wrong_checkpoint}
    return page(
        request,
        "log.html.jinja",
        login,
        status=200 if refused is None else status_of(refused),
        checkpoint=services.log.own_checkpoint(note),
        root=note.split("\n")[2],
        note=note,
        at=datetime.now(UTC).isoformat(),
        key=services.log.key(),
        keys_before=[each.key for each in services.log.keys.all()[:-1]],
        witnesses=services.log.cosignatures.witnesses(),
        entry=entry,
        typed=typed,
        wrong={name: refusal_of(error)["detail"] for name, error in errors.items() if error is not None},
        compared=compared,
    )


def _proof(log: Log, number: str) -> dict[str, Any]:
    """An entry's line, its proof, and the checkpoint that it leads to.

    Raises:
        NotFound: when the log has no such entry.
    """
    note = log.checkpoint()
    size = log.own_checkpoint(note.decode()).size
    if not _NUMBER.fullmatch(number) or int(number) >= size:
        raise NotFound(f"the log has {size:,} entries so far, counted from 0")
    index = int(number)
    line = log.entries(index, index).removesuffix(b"\n")
    return {
        "index": index,
        "size": size,
        "line": line.decode(),
        "leaf_hash": base64.b64encode(leaf_hash(line)).decode(),
        **log.inclusion(index, size),
        "checkpoint": note.decode(),
    }
