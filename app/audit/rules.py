"""The rules of a log: one set, for whoever reads one.

A replay of a folder and a report read a log with :class:`Rules` and nothing else, so that neither takes what the other
refuses. What breaks a rule is told to a *sink*: a replay stops once there is something in it, a report tells all of it.
Lines are read twice in their order, since what became of a data set may stand behind what was done with it: first
:meth:`Rules.survey`, then :meth:`Rules.take`; and :meth:`Rules.end` behind the last one.

1. Each line is a record, of the form that its kind has. Data sets are registered once and retired once.
2. Headers come once, before what is of their session, and a movement comes with each; the entries of a session are one
   chain without a gap, and each is what its hash names.
3. The movements keep the books (:mod:`app.audit.books`, rules 1 to 8).
4. What entries and measurements say that they cost is charged (:mod:`app.audit.charges`).
5. A measurement that a session starts from and did not make is of its own data set and shared (:mod:`app.audit.pins`).
6. Tables are published once by a release, which is of their data set.

A line that breaks a rule counts for nothing in what follows. What is kept: the sessions and where each stands, the data
sets as they were registered, and the measurements that sessions start from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from app.audit import forms
from app.audit.books import Books, Movement, Opened, Registered
from app.audit.charges import Charges
from app.audit.failures import Malformed
from app.audit.log import PUBLISHED
from app.audit.pins import Pinned
from curator_client.proofs import records
from curator_client.proofs.findings import Unfollowed
from curator_client.proofs.threads import ENTRIES, Threads

#: Hears of what breaks a rule, and of the number of the line that does, from 1; None where it is of no line.
Sink = Callable[[Unfollowed, int | None], None]
#: How the log writes what became of a data set, the measurements that a header names, and how a movement begins: fields
#: are sorted, and of no other record this one comes first.
_DATASET, _EVIDENCE, _MOVEMENT = b'"record":"dataset"', b'"evidence":{', b'{"amount":'
#: Bytes of headers that may wait for their sessions' first movements, each of which stands right behind.
_WAITING_BYTES = 1 << 24


class Rules:
    """The rules of a log that is read.

    Args:
        sink: what breaks a rule is told to.
        most_datasets, most_sessions, most_pins: of data sets, sessions, and measurements that sessions start from, no
            more are followed: what is beyond breaks a rule.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        most_datasets: int | None = None,
        most_sessions: int | None = None,
        most_pins: int | None = None,
    ) -> None:
        self.sink = sink
        self._most_datasets, self._most_sessions = most_datasets, most_sessions
        self.registered: dict[str, Registered] = {}
        self.threads, self.charges, self.pinned = Threads(), Charges(), Pinned(most_pins)
        self.surveyed = self.lines = 0
        #: The data set of each release whose tables were published.
        self._published: dict[str, str] = {}
        #: Headers whose sessions have not moved yet, and the bytes of each.
        self._waiting: dict[str, tuple[Opened, int]] = {}

    @cached_property
    def books(self) -> Books:
        """The books of the data sets that were found at the first reading."""
        return Books(self.registered, self._opened)

    # ------------------------------------------------------------------ the first reading

    def survey(self, line: bytes) -> None:
        """Look at the next line for the first time: what became of data sets, and what sessions start from."""
        self.surveyed += 1
        try:
            self._survey(line)
        except Unfollowed as broken:
            self.sink(broken, self.surveyed)

    def _survey(self, line: bytes) -> None:
        if _DATASET not in line and _EVIDENCE not in line:
            return
        record = _parsed(line)
        if record.get("record") == "header":
            self.pinned.survey(record)
        if record.get("record") != "dataset":
            return
        name, event = record.get("name"), record.get("event")
        known = self.registered.get(name) if isinstance(name, str) else None
        if event == "registered":
            self._register(record, known)
            return
        at, named = record.get("recorded_at"), name if isinstance(name, str) else None
        if event in ("commitment revealed", PUBLISHED) and known is not None:
            return
        if event != "retired":
            raise Unfollowed("something became of a data set that is not known", check="books", dataset=named)
        if known is None or known.retired_at is not None or records.second(at) is None:
            raise Unfollowed("a data set is retired that is not there, or a second time", check="books", dataset=named)
        self.registered[known.name] = replace(known, retired_at=at)

    def _register(self, record: Mapping[str, Any], known: Registered | None) -> None:
        made = Registered.read(record)
        if known is not None:
            raise Unfollowed("a data set is registered twice", check="books", dataset=made.name)
        if len(self.registered) == self._most_datasets:
            problem = f"there are more data sets than the {self._most_datasets:,} that are looked at"
            raise Unfollowed(problem, check="books", dataset=made.name)
        self.registered[made.name] = made

    # ------------------------------------------------------------------ the second reading

    def take(self, line: bytes) -> tuple[dict[str, Any], str | None] | None:
        """Take in the next line: the record, and the session that it is of, if it is of one; None where it breaks a
        rule.
        """
        self.lines += 1
        try:
            return self._take(line)
        except Unfollowed as broken:
            self.sink(broken, self.lines)
            return None

    def _take(self, line: bytes) -> tuple[dict[str, Any], str | None]:
        record = _parsed(line)
        kind = record.get("record")
        if kind == "dataset" and _DATASET not in line:
            raise Unfollowed("what became of a data set is not as the log writes it")
        if kind == "header" and len(self.threads.sessions) == self._most_sessions:
            problem = f"there are more sessions than the {self._most_sessions:,} that are looked at"
            raise Unfollowed(problem, check="chains")
        session = self.threads.take(record, line)
        if session is not None and kind in ENTRIES:
            _check_hash(record, line, session)
        if (kind == "movement") != line.startswith(_MOVEMENT):
            raise Unfollowed("a movement is not as the log writes it", session=session)
        opened = opened_of(record, session) if session is not None and kind == "header" else None
        forms.check(record)
        if kind == "dataset" and record["event"] == PUBLISHED:
            self._publish(record)
        if opened is not None:
            self.pinned.opened(opened)
            self._wait(opened, len(line))
            self.charges.opened(opened.session, record)
        elif kind == "movement":
            self.books.take(Movement.read(record))
            held = None if session is None else self.books.sessions[session]
            self.charges.moved(session, held, record["recorded_at"])
        elif session is not None and kind == "measurement":
            self.pinned.measured(session, line)
            self.charges.measured(session, record)
        elif session is not None:
            self.charges.entered(session, record)
        return record, session

    def _publish(self, record: Mapping[str, Any]) -> None:
        release, name = forms.field(record, "release", str), record["name"]
        forms.field(record, "manifest", str)
        if release in self._published:
            raise Unfollowed("a release's tables are published a second time", check="books", session=release)
        self._published[release] = name

    def end(self) -> None:
        """Look at what follows of the log as a whole."""
        for release, name in self._published.items():
            held, thread = self.books.sessions.get(release), self.threads.sessions.get(release)
            if held is None or held.dataset != name or thread is None or not thread.release:
                of = "tables are published by a release that is not there, or of another data set"
                self.sink(Unfollowed(of, check="books", dataset=name, session=release), None)
        for session in self.threads.sessions:
            if session not in self.books.sessions:
                self.sink(Unfollowed("a session has no movement", check="books", session=session), None)
        for broken in (*self.charges.end(), *self.pinned.end()):
            self.sink(broken, None)

    def _wait(self, opened: Opened, size: int) -> None:
        if sum(held for _, held in self._waiting.values()) + size > _WAITING_BYTES:
            problem = "more headers than are looked at wait for their sessions' movements"
            raise Unfollowed(problem, session=opened.session)
        self._waiting[opened.session] = opened, size

    def _opened(self, session: str) -> Opened | None:
        """The header that stands before a session's first movement."""
        return self._waiting.pop(session, (None, 0))[0]


def opened_of(record: Mapping[str, Any], session: str) -> Opened:
    """A session's header, read.

    Raises:
        Unfollowed: when it describes no session.
    """
    try:
        return Opened.read(record)
    except Malformed:
        raise Unfollowed("a header describes no session", session=session) from None


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        return forms.parse(line)
    except (ValueError, RecursionError):
        raise Unfollowed("a line of the log is no record") from None


def _check_hash(record: Mapping[str, Any], line: bytes, session: str) -> None:
    stated = record["entry_hash"].encode()
    if hashlib.sha256(line.replace(b'"entry_hash":"%b",' % stated, b"", 1)).hexdigest().encode() != stated:
        raise Unfollowed(
            "an entry is not what its hash names", check="chains", session=session, entry=record["sequence"]
        )
