"""Audits of the service by itself: their rows, where these are kept, and who does the checking."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, Protocol

#: Where an audit stands: it goes on, is being stopped, or has ended.
AuditStatus = Literal["running", "stopping", "done", "stopped", "failed"]
#: The states of one that has not ended.
UNDER_WAY: tuple[AuditStatus, ...] = ("running", "stopping")


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An audit, and the work that is to be done for it.

    ``session`` is the one that it is of, None where it is of all; ``earlier`` a checkpoint that its owner kept, without
    the signature, which was checked.
    ``key`` and ``body_hash`` are of the call that asked for it. ``worker`` is the process that works on it, and
    ``beat`` when that was last heard of, in seconds since 1970. ``progress``, ``problem`` and ``result`` are JSON
    documents. ``stopped_by`` is who stopped it, nobody where the server ended.
    """

    id: str
    owner: str
    session: str | None
    earlier: str | None
    key: str | None
    body_hash: str | None
    status: AuditStatus
    worker: str | None
    beat: float
    progress: bytes
    created_at: str
    finished_at: str | None = None
    stopped_by: str | None = None
    problem: bytes | None = None
    verdict: str | None = None
    result: bytes | None = field(default=None, repr=False)


class AuditStore(Protocol):
    """The table of audits. An audit has ended once and for all when its status is none of :data:`UNDER_WAY`."""

    #: Whether this process is the only one that writes.
    exclusive: bool

    def add(self, row: AuditRow) -> bool:
        """Keep a new audit that is to be worked on; False, and nothing happens, while another has not ended."""

    def audit(self, id: str) -> AuditRow | None:
        """The audit of this id."""

    def under_way(self) -> AuditRow | None:
        """The one that has not ended, if there is one."""

    def asked_by(self, owner: str, key: str) -> AuditRow | None:
        """The one that a principal has asked for with an idempotency key."""

    def page(self, after: AuditRow | None, since: str, most: int) -> tuple[list[AuditRow], bool]:
        """Up to so many audits, asked for after one of them, that have not ended before a time, in that order, without
        their results; and whether there are others.
        """

    def take(self, worker: str, now: float) -> AuditRow | None:
        """Take the audit that nobody works on. Nobody else takes it at the same time."""

    def beat(self, row: AuditRow, progress: bytes, now: float) -> bool:
        """Say that its worker is alive, and how far it is; whether it is to go on."""

    def halt(self, id: str, by: str, at: str) -> None:
        """Have an audit stopped by its worker, or at once where it has none."""

    def end(self, row: AuditRow, reports: dict[str, bytes]) -> bool:
        """The end of an audit, and its reports by their media types, unless its worker is another one's or it has
        ended; whether that is so.
        """

    def abandon(self, silent_since: float, at: str, ahead: float = math.inf) -> None:
        """Let an audit be stopped whose worker has been silent since some time, or spoke last at a time to come."""

    def forget(self, id: str | None, before: str) -> int:
        """Remove an audit that has ended, or all that ended before a time; how many there were."""

    def report(self, id: str, form: str) -> bytes | None:
        """The report of an audit as this media type."""


@dataclass(frozen=True)
class Copy:
    """The log as it is to be checked: its key, a signed checkpoint, and a file with its lines.

    Attributes:
        earlier: a checkpoint that was kept elsewhere, whose signature was checked.
        session: the one whose transcript alone is replayed.
    """

    key: str
    note: bytes
    lines: BinaryIO = field(repr=False)
    earlier: str | None = None
    session: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of it: the result, and the report by its media types."""

    result: dict[str, Any]
    reports: dict[str, bytes] = field(repr=False)


#: A file with a session's transcript, for as long as the context lasts; None where there is none.
Transcribed = Callable[[str], AbstractContextManager[BinaryIO | None]]


class Checker(Protocol):
    """Checks a log where that keeps nobody waiting."""

    def check(self, copy: Copy, transcript: Transcribed, progress: Callable[[dict[str, Any]], None]) -> Outcome:
        """What is found.

        Raises:
            CuratorError: when nothing can be found.
            CheckerDied: when it was ended, by :meth:`cancel` or from outside.
        """

    def cancel(self) -> None:
        """End what is under way, if anything is."""

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""


class CheckerDied(Exception):
    """The process that checked ended before its work did."""
