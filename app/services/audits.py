"""Audits of the service by itself, for auditors and admins: asked for, shown, stopped. The work is :mod:`.audit_jobs`.

An audit reads what an auditor may fetch, the log and the transcripts of its sessions, and judges them by the rules of a
replay on somebody's own machine. There is one at a time for the whole service: whoever asks for another is told which.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import orjson

from app.declarations.errors import InvalidRequest
from app.services.audit_ports import UNDER_WAY, AuditRow, AuditStore
from app.services.datasets import DUMMY
from app.services.errors import Conflict, Forbidden, IdempotencyConflict, NotFound
from app.services.idempotency import IdempotencyKey
from app.services.log import Log
from app.services.pages import Page
from app.services.ports import Clock
from app.services.principals import Principal
from app.services.sessions import SESSION_ID, Sessions

#: How long an audit that has ended is kept.
KEPT = timedelta(days=1)
#: So many are read at a time, without their results, where the last one is looked for.
_A_PAGE = 1000
#: What is said of one that has not begun.
_BEGINNING: dict[str, Any] = {
    "stage": "copying",
    "lines": 0,
    "of_lines": None,
    "sessions": 0,
    "of_sessions": None,
    "finding": None,
}
NO_VERDICT = "It is no verdict."


def before(clock: Clock) -> str:
    """The time before which audits that have ended are gone."""
    moment = datetime.fromisoformat(clock()) - KEPT
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Audits:
    """Audits, as they are asked for and shown.

    Args:
        store: where they are.
        sessions: who may see which.
        log: what they are of.
        clock: tells the time.
    """

    def __init__(self, store: AuditStore, sessions: Sessions, log: Log, clock: Clock) -> None:
        self._store, self._sessions, self._log, self._clock = store, sessions, log, clock

    def start(
        self, actor: Principal, session: str | None, checkpoint: str | None, key: IdempotencyKey | None
    ) -> dict[str, Any]:
        """A new audit; the one that was asked for with the same key, as it was then, where it is kept still.

        Args:
            actor: an auditor or an admin.
            session: the one whose transcript alone is replayed; all where it is None.
            checkpoint: a signed one that the actor kept, which the log is to begin with.
            key: names the call.

        Raises:
            InvalidRequest: when the checkpoint is none that this log signed, or the session is in no log.
            NotFound: when there is no such session, or the actor may not see it.
            Conflict: when an audit is under way, which the problem names, or the log does not have the session yet.
            IdempotencyConflict: when the key was used with another body.
        """
        actor.require("auditor", "admin")
        known = None if key is None else self._store.asked_by(actor.name, key.key)
        if known is not None and key is not None and not self._gone(known):
            if known.body_hash != key.body_hash:
                raise IdempotencyConflict("this Idempotency-Key was used with another body: use a new key")
            return _begun(known)
        earlier = None if checkpoint is None else self._log.own_checkpoint(checkpoint)
        if session is not None:
            row = self._sessions.row(actor, session)
            if row.dataset.startswith(DUMMY):
                raise InvalidRequest("session: one on made-up records is in no log, and there is nothing to audit")
            if self._sessions.log_size(row.id, 0) is None:
                raise Conflict("the log does not have the session yet: ask again in a moment")
        named = (None, None) if key is None else (key.key, key.body_hash)
        made = AuditRow(
            secrets.token_hex(16),
            actor.name,
            session,
            None if earlier is None else earlier.text(),
            named[0],
            named[1],
            "running",
            None,
            time.time(),
            orjson.dumps(_BEGINNING),
            self._clock(),
        )
        if not self._store.add(made):
            going = self._store.under_way()
            if going is not None and key is not None and (going.owner, going.key) == (actor.name, key.key):
                return self.start(actor, session, checkpoint, key)  # the same call came twice at once
            if going is None:
                raise Conflict("another audit has just ended: send again")
            told = (
                f"/v1/audits/{going.id} is under way, and there is one audit at a time for the whole service: follow it"
            )
            raise Conflict(told, audit=going.id)
        return view(made)

    def standing(self, actor: Principal, id: str) -> AuditRow:
        """An audit, whoever asked for it.

        Raises:
            NotFound: when there is none, or it is gone.
        """
        actor.require("auditor", "admin")
        row = self.row(id)
        if row is None:
            raise NotFound("there is no such audit: it is kept for a day")
        return row

    def row(self, id: str) -> AuditRow | None:
        """The row of an audit, for whoever may see it and wants to know whether anything has changed."""
        row = self._store.audit(id) if SESSION_ID.fullmatch(id) else None
        return None if row is None or self._gone(row) else row

    def current(self, actor: Principal) -> AuditRow | None:
        """The audit that is under way, whatever it is of, or the last one of everything; None where none is kept."""
        actor.require("auditor", "admin")
        return self._store.under_way() or self._last(lambda row: row.session is None)

    def last_done(self, actor: Principal) -> AuditRow | None:
        """The actor's own last audit that came to a verdict; None where none is kept."""
        actor.require("auditor", "admin")
        return self._last(lambda row: row.owner == actor.name and row.status == "done")

    def _last(self, wanted: Callable[[AuditRow], bool]) -> AuditRow | None:
        last, found, others = None, None, True
        while others:
            rows, others = self._store.page(last, before(self._clock), _A_PAGE)
            last = rows[-1] if rows else None
            found = next(filter(wanted, reversed(rows)), found)
        return None if found is None else self.row(found.id)

    def list(self, actor: Principal, after: str, most: int) -> Page:
        """Audits in the order they were asked for, without their results, beyond the one of that id.

        Raises:
            InvalidRequest: when ``after`` is neither empty nor an audit.
        """
        actor.require("auditor", "admin")
        last = self.row(after) if after else None
        if after and last is None:
            raise InvalidRequest("after: the id of an audit, as the link to the next page has it")
        rows, others = self._store.page(last, before(self._clock), most)
        views = [{name: value for name, value in view(row).items() if name != "result"} for row in rows]
        return Page(views, rows[-1].id if others else None)

    def end(self, actor: Principal, id: str) -> dict[str, Any] | None:
        """Stop an audit, or forget one that has ended, for who asked for it and for admins; how it stands while it is
        being stopped, None when it is forgotten.

        Raises:
            NotFound: when there is none, or it is gone.
            Forbidden: for somebody else's.
        """
        row = self.standing(actor, id)
        if actor.role != "admin" and row.owner != actor.name:
            raise Forbidden(f"this audit is {row.owner}'s: who asked for it may stop it, and so may an admin")
        if row.status not in UNDER_WAY:
            self._store.forget(id, "")
            return None
        self._store.halt(id, actor.name, self._clock())
        return view(self.standing(actor, id))

    def report(self, actor: Principal, id: str, form: str) -> bytes:
        """The report of an audit that is done, as a media type.

        Raises:
            NotFound: when there is no such audit.
            Conflict: when it is not done.
        """
        row = self.standing(actor, id)
        found = self._store.report(id, form) if row.status == "done" else None
        if found is None:
            raise Conflict(f"the audit is {row.status}: a report is there when it is done")
        return found

    def _gone(self, row: AuditRow) -> bool:
        return row.finished_at is not None and row.finished_at <= before(self._clock)


def view(row: AuditRow) -> dict[str, Any]:
    """An audit as it is shown."""
    progress = orjson.loads(row.progress)
    return {
        "id": row.id,
        "owner": row.owner,
        "session": row.session,
        "all": row.session is None,
        "status": row.status,
        "verdict": row.verdict,
        "says": says(row, progress),
        "progress": progress,
        "created_at": row.created_at,
        "finished_at": row.finished_at,
        "stopped_by": row.stopped_by,
        "problem": None if row.problem is None else orjson.loads(row.problem),
        "result": None if row.result is None else orjson.loads(row.result),
        "links": {
            "self": f"/v1/audits/{row.id}",
            "events": f"/v1/audits/{row.id}/events",
            "report": f"/v1/audits/{row.id}/report",
        },
    }


def _begun(row: AuditRow) -> dict[str, Any]:
    """An audit as it was when it was asked for."""
    return view(
        AuditRow(
            row.id,
            row.owner,
            row.session,
            row.earlier,
            row.key,
            row.body_hash,
            "running",
            None,
            0.0,
            orjson.dumps(_BEGINNING),
            row.created_at,
        )
    )


def says(row: AuditRow, progress: dict[str, Any]) -> str:
    """Where an audit stands, in words."""
    if row.status == "done":
        if row.verdict == "holds":
            return "Everything that was checked holds. What was not checked stands beside it."
        return "Something does not hold: see finding. Repeat the check on your own machine, and keep the checkpoint."
    if row.status == "failed":
        return f"The check failed, which says nothing of the log, for or against it. {NO_VERDICT}"
    far = _far(progress)
    if row.status in UNDER_WAY:
        return f"Checking: {far}." if row.status == "running" else f"Being stopped: {far}."
    by = "as the server ended" if row.stopped_by is None else f"by {row.stopped_by}"
    if progress["finding"] is not None:
        return f"Stopped {by}: {far}. Something did not hold by then: see finding. {NO_VERDICT}"
    so_far = "" if progress["stage"] in ("copying", "lines") else " What was checked so far holds."
    return f"Stopped {by}: {far}.{so_far} {NO_VERDICT}"


def _far(progress: dict[str, Any]) -> str:
    """How far an audit is."""
    if progress["stage"] == "replay":
        return f"{progress['sessions']:,} of {progress['of_sessions']:,} sessions and releases were replayed"
    what = {"copying": "copied", "lines": "held against the signed tree hash", "books": "held against the rules"}
    of = "" if progress["of_lines"] is None else f" of {progress['of_lines']:,}"
    return f"{progress['lines']:,}{of} lines of the log were {what[progress['stage']]}"
