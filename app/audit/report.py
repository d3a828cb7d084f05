"""A report of a log: what was declared, spent, asked, answered and released, and whether it follows.

:class:`Reader` takes the lines of a log in their order, twice, and makes a plain document (JSON: texts, numbers, lists,
objects; exact amounts are decimal strings, as in the records). It opens nothing, and whether the lines are those that
were signed, and what became of the transcripts, is told to it. Its rules are those of a replay
(:mod:`app.audit.reading`): it goes on behind a line that breaks one, which is told and counts for nothing. Beside them
it looks at the form of what it shows, and holds what a session's entries and measurements say that they cost against
what it was charged, as a replay does where it has the transcripts.

The lines are a stranger's. Whatever they hold is counted or found wrong; what is kept of them is bounded: sums, the
first questions and movements, and points thinned to what a plot can show. What is beyond a bound is counted, and where
it could not be looked at, it is found wrong.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import reduce
from typing import Any

from app.audit import forms
from app.audit.findings import Check, Unfollowed
from app.audit.reading import Reading
from app.audit.report_books import Book, text_of
from app.audit.report_checks import TRUST, Verified, check_of, replay_check
from app.audit.report_sessions import MOST_DECLARED, Course, Detail, cut, short
from app.privacy.exactness import EXACT
from app.privacy.ledger import Account, Amounts

#: Version of the document's format.
FORMAT = 1
#: Data sets and sessions that are followed; where there are more, that is found wrong.
MOST_DATASETS, MOST_SESSIONS = 1000, 50_000
#: Data sets and sessions that are shown in full, and sessions that are shown in a line each.
MOST_BOOKS, MOST_DETAILS, MOST_ROWS = 50, 100, 1000
#: Events of principals that are shown, so many first ones and so many last ones; and findings.
MOST_EVENTS, MOST_FINDINGS = 200, 100
#: How long after an entry a movement is that shows that the entry's own must be in the log.
_WAIT_SECONDS = 600
#: What a check that this module makes by itself says where it holds.
_HOLDS: dict[Check, str] = {
    "records": "Every line is a record of the form that its kind has.",
    "chains": "Every entry of a session follows on the one before by its hash, the first one on the session's header.",
    "books": "By every movement of the ledgers, no data set passed its declared budget, every session reserved what "
    "the plan in its header says and spent and gave back no more than that, and headers describe their data sets as "
    "these were registered.",
    "charges": "Everything that entries and measurements say that they cost was charged to its data set.",
}


@dataclass
class _Findings:
    """Findings of a report: how many by check, and the first of each."""

    counts: Counter[Check] = field(default_factory=Counter)
    first: list[dict[str, Any]] = field(default_factory=list)
    said: dict[Check, str] = field(default_factory=dict)

    def add(self, broken: Unfollowed, line: int | None = None) -> None:
        check = broken.check
        self.counts[check] += 1
        self.said.setdefault(check, broken.problem if line is None else f"{broken.problem} (line {line})")
        if len(self.first) < MOST_FINDINGS:
            told = {"check": check, "says": broken.problem, "line": line, "session": short(broken.session)}
            self.first.append(told)


class Reader:
    """Takes the lines of a log, and tells what they say: all of them by :meth:`survey`, and then by :meth:`take`."""

    def __init__(self) -> None:
        self._reading = Reading(MOST_DATASETS, MOST_SESSIONS)
        self._findings = _Findings()
        self._kinds: Counter[str] = Counter()
        self._books: dict[str, Book] = {}
        self._courses: dict[str, Course] = {}
        self._events: Counter[str] = Counter()
        self._first: list[dict[str, Any]] = []
        self._last: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._keys: list[dict[str, Any]] = []
        self._first_at = self._last_at = self._moved_at = ""
        self._surveyed = self.lines = 0

    def survey(self, line: bytes) -> None:
        """Look at the next line for the first time."""
        self._surveyed += 1
        try:
            self._reading.survey(line)
        except Unfollowed as broken:
            self._findings.add(broken, self._surveyed)

    def take(self, line: bytes) -> None:
        """Take in the next line."""
        self.lines += 1
        try:
            record, session = self._reading.take(line)
            kind = record.get("record")
            take = _TAKES.get(kind) if isinstance(kind, str) else None
            self._kinds[kind if take is not None and isinstance(kind, str) else "other"] += 1
            if take is not None:
                self._note_time(forms.field(record, "opened_at" if kind == "header" else "recorded_at", str))
                take(self, record, session)
        except Unfollowed as broken:
            self._findings.add(broken, self.lines)

    def document(self, verified: Verified, replays: Mapping[str | None, str | None] | None = None) -> dict[str, Any]:
        """The report.

        Args:
            verified: what became of checkpoint and lines.
            replays: of each session the first thing that does not follow of its transcript, None where all does; under
                None what does not follow of none of them. None where nobody looked.
        """
        for broken in self._reading.end():
            self._findings.add(broken)
        waiting = self._compare_charges()
        checks = [*verified.checks(self.lines), *self._own_checks(waiting), replay_check(replays)]
        sessions: dict[str, list[Course]] = {name: [] for name in self._books}
        for course in self._courses.values():
            sessions.setdefault(course.dataset, []).append(course)
        rows = MOST_ROWS
        told = []
        for number, book in enumerate(self._books.values()):
            mine, whole = sessions[book.name], number < MOST_BOOKS
            # Details are of the first sessions of the log, so that they come first here, too.
            shown = [course for course in mine if course.detail is not None] if whole else []
            brief = mine[len(shown) : len(shown) + rows] if whole else []
            rows -= len(brief)
            account = self._reading.books.books[book.name].account
            retired_at = self._reading.registered[book.name].retired_at
            told.append(_dataset(book, account, mine, len(shown) + len(brief), replays or {}, whole=whole))
            told[-1]["retired_at"] = retired_at
        checkpoint = verified.checkpoint
        return {
            "report": "log",
            "format": FORMAT,
            "holds": all(check["holds"] is not False for check in checks),
            "contradicted": verified.contradicted,
            "log": {
                "origin": verified.origin,
                "key": verified.key,
                "checkpoint": None if checkpoint is None else checkpoint.text(),
                "size": None if checkpoint is None else checkpoint.size,
                "root": None if checkpoint is None else checkpoint.text().split("\n")[2],
                "lines": self.lines,
                "first_at": self._first_at or None,
                "last_at": self._last_at or None,
                "records": dict(self._kinds),
            },
            "checks": checks,
            "findings": {
                "first": self._findings.first,
                "left_out": sum(self._findings.counts.values()) - len(self._findings.first),
            },
            "trust": list(TRUST),
            "datasets": told,
            "log_keys": self._keys,
            "principals": {
                "by_event": dict(self._events),
                "first": self._first,
                "left_out": sum(self._events.values()) - len(self._first) - len(self._last),
                "last": list(self._last),
            },
        }

    # ------------------------------------------------------------------------------------- lines

    def _note_time(self, at: str) -> None:
        if not 20 <= len(at) <= 32 or not at.isascii():
            raise Unfollowed("a line has no time")
        if not self._first_at or at < self._first_at:
            self._first_at = at
        if at > self._last_at:
            self._last_at = at

    def _take_principal(self, record: Mapping[str, Any], _session: str | None) -> None:
        event = forms.field(record, "event", str)
        if event not in ("created", "key replaced", "revoked"):
            raise Unfollowed("something became of a principal that is not known")
        told = {name: short(forms.field(record, name, str)) for name in ("event", "name", "role", "recorded_at")}
        self._events[event] += 1
        (self._first if len(self._first) < MOST_EVENTS else self._last).append(told)

    def _take_log_key(self, record: Mapping[str, Any], _session: str | None) -> None:
        """Whether the statement is signed as it should be was looked at when a checkpoint of the new key was taken."""
        lines = forms.field(record, "statement", str).split("\n", 5)
        if len(lines) < 5:
            raise Unfollowed("a change of the log's key has no statement")
        told = {"size": short(lines[2]), "old": short(lines[3]), "new": short(lines[4])}
        if len(self._keys) < MOST_EVENTS:
            self._keys.append(told | {"recorded_at": record["recorded_at"]})

    def _take_dataset(self, record: Mapping[str, Any], _session: str | None) -> None:
        name, event = forms.field(record, "name", str), forms.field(record, "event", str)
        book = self._books.get(name)
        if event == "registered" and book is None and name in self._reading.registered:
            declared, records = cut(record["declared"], MOST_DECLARED), short(record.get("records"))
            commitment = short(record.get("commitment"))
            self._books[name] = Book(name, declared, records, record["recorded_at"], commitment)
        elif event == "commitment revealed" and book is not None and len(book.revealed) < MOST_EVENTS:
            book.revealed.append({"by": short(record.get("by")), "recorded_at": record["recorded_at"]})

    def _take_header(self, record: Mapping[str, Any], session: str | None) -> None:
        assert session is not None
        mechanism, plan = record["mechanism"], record["plan"]
        told = plan["cost_per_update"] is None or "mode" in plan  # records tell each price
        price = None if told else forms.amounts(plan["cost_per_update"], plan.get("cost_per_update_pure"))
        course = self._courses[session] = Course(
            session,
            record["dataset"]["name"],
            record["opened_at"],
            short(mechanism.get("construction")),
            short(mechanism["method"]) if "method" in mechanism else None,
            short(mechanism.get("epsilon")),
            forms.amounts(plan["reserved"], plan["reserved_pure"]),
            price,
            self._reading.threads.sessions[session].head,
            Detail(cut(mechanism, MOST_DECLARED), cut(plan, MOST_DECLARED))
            if len(self._courses) < MOST_DETAILS
            else None,
        )
        for fact in () if plan["purchase"] is None else forms.field(plan, "purchase", dict).values():
            course.tell(forms.amounts(forms.field(fact, "cost", str), None).renyi, course.opened_at)
        book = self._books.get(course.dataset)
        if book is not None:
            book.unit = short(record["dataset"].get("privacy_unit"))

    def _take_movement(self, record: Mapping[str, Any], session: str | None) -> None:
        self._moved_at = max(self._moved_at, record["recorded_at"])
        books, name = self._reading.books, record["dataset"]
        if name in self._books:
            moved = Amounts.read({"renyi": record["amount"], "pure": record["pure"]})
            self._books[name].move({each: short(record[each]) for each in _MOVEMENT}, moved, books.books[name].account)
        if session in self._courses:
            self._courses[session].moved(books.sessions[session])

    def _take_measurement(self, record: Mapping[str, Any], session: str | None) -> None:
        if session in self._courses:
            self._courses[session].measured(record)

    def _take_entry(self, record: Mapping[str, Any], session: str | None) -> None:
        if session in self._courses:
            self._courses[session].take(record)

    # ------------------------------------------------------------------------------------- checks

    def _compare_charges(self) -> int:
        """Find sessions that paid less than their records cost; how many may have been charged since.

        Movements come into the log in their order, but an entry may come before its movement: that one is missing once
        there are movements that were made well after the entry.
        """
        waiting = 0
        for course in self._courses.values():
            if course.short_at is None:
                continue
            if _seconds(course.short_at) + _WAIT_SECONDS < _seconds(self._moved_at):
                problem = "a session paid less than its records cost"
                self._findings.add(Unfollowed(problem, check="charges", session=course.id))
            else:
                waiting += 1
        return waiting

    def _own_checks(self, waiting: int) -> list[dict[str, Any]]:
        found = []
        for check, says in _HOLDS.items():
            problem, number = None, self._findings.counts[check]
            if number:
                problem = self._findings.said[check] + (
                    f", and {number - 1:,} more such findings" if number > 1 else ""
                )
            found.append(check_of(check, problem, says))
            if check == "charges" and waiting and problem is None:
                says = (
                    f"Of {waiting:,} sessions the last records that cost something are not charged in the log so far. "
                    "Charges may come into it a moment after what they are for: fetch it again later."
                )
                found[-1] = {"check": check, "holds": None, "says": says}
        return found


_MOVEMENT = ("number", "recorded_at", "session", "kind", "amount", "pure", "sequence")
_TAKES = {
    "principal": Reader._take_principal,
    "log key": Reader._take_log_key,
    "dataset": Reader._take_dataset,
    "header": Reader._take_header,
    "movement": Reader._take_movement,
    "measurement": Reader._take_measurement,
    "answer": Reader._take_entry,
    "forfeit": Reader._take_entry,
    "release": Reader._take_entry,
}


def _seconds(at: str) -> float:
    """Seconds since 1970 of a time; those of one that is none lie before all others."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return -math.inf


def _dataset(
    book: Book,
    account: Account,
    courses: list[Course],
    shown: int,
    replays: Mapping[str | None, str | None],
    *,
    whole: bool,
) -> dict[str, Any]:
    """The report of a data set, with so many of its sessions; where not ``whole``, without movements and points."""
    told = book.document(account)
    if not whole:
        told["movements"] |= {"first": [], "last": [], "left_out": told["movements"]["by_kind"]}
        told["steps"] = []
    rest = courses[shown:]
    return {
        "name": book.name,
        "whole": whole,
        "declared": book.declared if whole else None,
        "records": book.records,
        "registered_at": book.registered_at,
        "retired_at": None,
        "commitment": book.commitment,
        "revealed": book.revealed,
        "privacy_unit": book.unit,
        **told,
        "sessions": {
            "number": len(courses),
            "questions": sum(course.asked for course in courses),
            "forfeits": sum(course.forfeits for course in courses),
            "first": [course.document(replays) for course in courses[:shown]],
            "left_out": {
                "number": len(rest),
                "questions": sum(course.asked for course in rest),
                "spent": text_of(reduce(EXACT.add, (course.paid for course in rest), Decimal(0))),
            },
        },
    }
