"""A log read line by line, by the rules that it keeps whatever the transcripts of its sessions say.

A replay of a folder and a report read a log with this and nothing else, so that neither takes what the other refuses: a
replay ends at the first line that breaks a rule, a report tells it and goes on. Lines are read twice in their order,
since what became of a data set may stand behind what was done with it: first :meth:`Reading.survey`, then
:meth:`Reading.take`.

1. Each line is a record. Data sets are registered once and retired once.
2. Headers come once, before what is of their session, and a movement comes with each; the entries of a session are one
   chain without a gap, and each is what its hash names.
3. The movements keep the books (:mod:`app.audit.books`, rules 1 to 8).

A line that breaks a rule counts for nothing in what follows. What is kept: the sessions and where each stands, and the
data sets as they were registered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from app.audit import records
from app.audit.books import Books, Movement, Opened, Registered
from app.audit.findings import Malformed, Unfollowed
from app.audit.threads import ENTRIES, Threads

#: How the log writes what became of a data set, and how a movement begins: fields are sorted, and of no other record
#: this one comes first.
_DATASET, _MOVEMENT = b'"record":"dataset"', b'{"amount":'
#: Bytes of headers that may wait for their sessions' first movements, each of which stands right behind.
_WAITING_BYTES = 1 << 24


class Reading:
    """A log that is read.

    Args:
        most_datasets, most_sessions: of which no more are followed: what is beyond breaks a rule.
    """

    def __init__(self, most_datasets: int | None = None, most_sessions: int | None = None) -> None:
        self._most_datasets, self._most_sessions = most_datasets, most_sessions
        self.registered: dict[str, Registered] = {}
        self.threads = Threads()
        #: Headers whose sessions have not moved yet, and the bytes of each.
        self._waiting: dict[str, tuple[Opened, int]] = {}

    @cached_property
    def books(self) -> Books:
        """The books of the data sets that were found at the first reading."""
        return Books(self.registered, self._opened)

    # ------------------------------------------------------------------ the first reading

    def survey(self, line: bytes) -> None:
        """Note what became of data sets.

        Raises:
            Unfollowed: when the line breaks a rule.
        """
        if _DATASET not in line:
            return
        record = _parsed(line)
        if record.get("record") != "dataset":
            return
        name, event = record.get("name"), record.get("event")
        known = self.registered.get(name) if isinstance(name, str) else None
        if event == "registered":
            self._register(record, known)
            return
        at, named = record.get("recorded_at"), name if isinstance(name, str) else None
        if event == "commitment revealed" and known is not None:
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

    def take(self, line: bytes) -> tuple[dict[str, Any], str | None]:
        """Take in the next line: the record, and the session that it is of, if it is of one.

        Raises:
            Unfollowed: when it breaks a rule.
        """
        record = _parsed(line)
        kind = record.get("record")
        if kind == "dataset" and _DATASET not in line:
            raise Unfollowed("what became of a data set is not as the log writes it")
        if kind == "header" and len(self.threads.sessions) == self._most_sessions:
            problem = f"there are more sessions than the {self._most_sessions:,} that are looked at"
            raise Unfollowed(problem, check="chains")
        session = self.threads.take(record, line)
        if session is not None:
            if kind == "header":
                self._wait(session, record, len(line))
            elif kind in ENTRIES:
                _check_hash(record, line, session)
        if (kind == "movement") != line.startswith(_MOVEMENT):
            raise Unfollowed("a movement is not as the log writes it", session=session)
        if kind == "movement":
            self.books.take(Movement.read(record))
        return record, session

    def end(self) -> Iterator[Unfollowed]:
        """Findings about the log as a whole."""
        for session in self.threads.sessions:
            if session not in self.books.sessions:
                yield Unfollowed("a session has no movement", check="books", session=session)

    def _wait(self, session: str, record: Mapping[str, Any], size: int) -> None:
        if sum(held for _, held in self._waiting.values()) + size > _WAITING_BYTES:
            raise Unfollowed("more headers than are looked at wait for their sessions' movements", session=session)
        self._waiting[session] = opened_of(record, session), size

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
        return records.parse(line)
    except (ValueError, RecursionError):
        raise Unfollowed("a line of the log is no record") from None


def _check_hash(record: Mapping[str, Any], line: bytes, session: str) -> None:
    stated = record["entry_hash"].encode()
    if hashlib.sha256(line.replace(b'"entry_hash":"%b",' % stated, b"", 1)).hexdigest().encode() != stated:
        raise Unfollowed(
            "an entry is not what its hash names", check="chains", session=session, entry=record["sequence"]
        )
