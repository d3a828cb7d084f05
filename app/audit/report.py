"""A report of a log: what was declared, spent, asked, answered and released, and whether it follows.

:class:`Reader` takes the lines of a log once, in their order, and makes a plain document (JSON: texts, numbers, lists,
objects; exact amounts are decimal strings, as in the records). It opens nothing, and whether the lines are those that
were signed is told to it. What it looks at by itself:

- *records*: every line is a record, of the form that its kind has;
- *chains*: every entry of a session follows on the one before by its hash and its number, the first on the header;
- *books*: a session reserves what the plan in its header says, never spends or gives back more than it holds, and no
  data set passes the budget that was declared of it, at no movement;
- *charges*: whatever a session's entries and measurements say that they cost was charged by movements of the ledger.

The lines are a stranger's. Whatever they hold is counted or found wrong; what is kept of them is bounded: sums, the
first questions and movements, and points thinned to what a plot can show. What is beyond a bound is counted, and where
it could not be looked at, it is found wrong.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import reduce
from typing import Any

from app.audit.records import parse
from app.audit.report_books import Book, Check, Holding, Wrong, amounts_of, bought, movement_of, price_of, text_of
from app.audit.report_checks import TRUST, Verified, check_of, replay_check
from app.audit.report_sessions import MOST_DECLARED, Course, Detail, cut, short
from app.privacy.errors import PrivacyError
from app.privacy.exactness import EXACT
from app.privacy.ledger import Amounts

#: Version of the document's format.
FORMAT = 1
#: Data sets and sessions that are followed; where there are more, that is found wrong.
MOST_DATASETS, MOST_SESSIONS = 1000, 50_000
#: Data sets and sessions that are shown in full, and sessions that are shown in a line each.
MOST_BOOKS, MOST_DETAILS, MOST_ROWS = 50, 100, 1000
#: Events of principals that are shown, so many first ones and so many last ones; and findings.
MOST_EVENTS, MOST_FINDINGS = 200, 100
#: Letters that the name of a session or of a data set has at most.
_MOST_NAME = 256
_UNREADABLE = (AttributeError, KeyError, IndexError, TypeError, ValueError, ArithmeticError, PrivacyError)

#: How long after an entry a movement is that shows that the entry's own must be in the log.
_WAIT_SECONDS = 600
#: What a check that this module makes by itself says where it holds.
_HOLDS: dict[Check, str] = {
    "records": "Every line is a record of the form that its kind has.",
    "chains": "Every entry of a session follows on the one before by its hash, the first one on the session's header.",
    "books": "By every movement of the ledgers, no data set passed its declared budget, and no session spent more than "
    "was reserved for it by the plan in its header.",
    "charges": "Everything that entries and measurements say that they cost was charged to its data set.",
}


@dataclass
class _Findings:
    """What does not follow: how much by check, and the first of it."""

    counts: Counter[Check] = field(default_factory=Counter)
    first: list[dict[str, Any]] = field(default_factory=list)
    said: dict[Check, str] = field(default_factory=dict)

    def add(self, check: Check, says: str, line: int | None = None, session: str | None = None) -> None:
        self.counts[check] += 1
        self.said.setdefault(check, says if line is None else f"{says} (line {line})")
        if len(self.first) < MOST_FINDINGS:
            self.first.append({"check": check, "says": says, "line": line, "session": session})


class Reader:
    """Takes the lines of a log, and tells what they say."""

    def __init__(self) -> None:
        self._findings = _Findings()
        self._kinds: Counter[str] = Counter()
        self._books: dict[str, Book] = {}
        self._courses: dict[str, Course] = {}
        self._heads: dict[bytes, Course] = {}
        self._events: Counter[str] = Counter()
        self._first: list[dict[str, Any]] = []
        self._last: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._keys: list[dict[str, Any]] = []
        self._first_at = self._last_at = self._moved_at = ""
        self.lines = 0

    def take(self, line: bytes) -> None:
        """Take in the next line."""
        self.lines += 1
        try:
            record = parse(line)
            kind = record.get("record")
            take = _TAKES.get(kind) if isinstance(kind, str) else None
            self._kinds[kind if take is not None and isinstance(kind, str) else "other"] += 1
            if take is not None:
                self._note_time(record["opened_at" if kind == "header" else "recorded_at"])
                take(self, record, line)
        except Wrong as wrong:
            self._findings.add(wrong.check, str(wrong), self.lines)
        except _UNREADABLE:
            self._findings.add("records", "a line is not of the form that a record has", self.lines)

    def heads(self) -> dict[str, tuple[str, int]]:
        """Of every session that is followed, the hash of its last entry, or of its header, and how many entries there
        are: what its transcript must have.
        """
        return {id: (course.head.hex(), course.sequence) for id, course in self._courses.items()}

    def document(
        self, verified: Verified, replays: Mapping[str, tuple[bool, str | None]] | None = None
    ) -> dict[str, Any]:
        """The report.

        Args:
            verified: what became of checkpoint and lines.
            replays: verdicts over transcripts by session, and the problem where there is one; None where nobody
                looked.
        """
        waiting = self._compare_charges()
        checks = [*verified.checks(self.lines), *self._own_checks(waiting), replay_check(replays, self._courses)]
        sessions: dict[str, list[Course]] = {name: [] for name in self._books}
        for course in self._courses.values():
            sessions.setdefault(course.holding.dataset, []).append(course)
        rows = MOST_ROWS
        told = []
        for number, book in enumerate(self._books.values()):
            mine, whole = sessions[book.name], number < MOST_BOOKS
            # Details are of the first sessions of the log, so that they come first here, too.
            shown = [course for course in mine if course.detail is not None] if whole else []
            brief = mine[len(shown) : len(shown) + rows] if whole else []
            rows -= len(brief)
            told.append(_dataset(book, mine, len(shown) + len(brief), replays or {}, whole=whole))
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

    def _note_time(self, at: Any) -> None:
        if not isinstance(at, str) or not 20 <= len(at) <= 32 or not at.isascii():
            raise TypeError("a time is a text")
        if not self._first_at or at < self._first_at:
            self._first_at = at
        if at > self._last_at:
            self._last_at = at

    def _book(self, name: Any) -> Book:
        if not isinstance(name, str) or len(name) > _MOST_NAME:
            raise TypeError("a data set has a name")
        book = self._books.get(name)
        if book is None:
            if len(self._books) >= MOST_DATASETS:
                raise Wrong("books", f"there are more data sets than the {MOST_DATASETS} that are looked at")
            book = self._books[name] = Book(name)
        return book

    def _take_principal(self, record: Mapping[str, Any], _line: bytes) -> None:
        event = record["event"]
        if event not in ("created", "key replaced", "revoked"):
            raise TypeError("an event has a name")
        told = {name: short(record[name]) for name in ("event", "name", "role", "recorded_at")}
        self._events[event] += 1
        (self._first if len(self._first) < MOST_EVENTS else self._last).append(told)

    def _take_log_key(self, record: Mapping[str, Any], _line: bytes) -> None:
        """Whether the statement is signed as it should be was looked at when a checkpoint of the new key was taken."""
        lines = str(record["statement"]).split("\n")
        told = {"size": short(lines[2]), "old": short(lines[3]), "new": short(lines[4])}
        if len(self._keys) < MOST_EVENTS:
            self._keys.append(told | {"recorded_at": short(record["recorded_at"])})

    def _take_dataset(self, record: Mapping[str, Any], _line: bytes) -> None:
        book = self._book(record["name"])
        if record["event"] == "retired":
            book.retired_at = record["recorded_at"]
            return
        if record["event"] == "commitment revealed":
            if len(book.revealed) < MOST_EVENTS:
                book.revealed.append({"by": short(record["by"]), "recorded_at": short(record["recorded_at"])})
            return
        if record["event"] != "registered":
            raise TypeError("an event has a name")
        if book.declared is not None:
            raise Wrong("books", "a data set is registered a second time")
        declared = record["declared"]
        book.declared, book.records = cut(declared, MOST_DECLARED), short(record.get("records"))
        book.registered_at = record["recorded_at"]
        book.commitment = short(record.get("commitment"))
        book.state_budget(declared["budget"])

    def _take_header(self, record: Mapping[str, Any], line: bytes) -> None:
        id, mechanism, plan = record["session"], record["mechanism"], record["plan"]
        if not isinstance(id, str) or len(id) > _MOST_NAME:
            raise TypeError("a session has a name")
        if id in self._courses:
            raise Wrong("chains", "a session has a second header")
        if len(self._courses) >= MOST_SESSIONS:
            raise Wrong("chains", f"there are more sessions than the {MOST_SESSIONS} that are looked at")
        book = self._book(record["dataset"]["name"])
        holding = Holding(book.name, amounts_of(plan["reserved"], plan["reserved_pure"]), price_of(plan))
        holding.tell(bought(plan), record["opened_at"])
        detailed = len(self._courses) < MOST_DETAILS
        course = Course(
            id,
            record["opened_at"],
            short(mechanism["construction"]),
            short(mechanism["method"]) if "method" in mechanism else None,
            short(mechanism.get("epsilon")),
            holding,
            hashlib.sha256(line).digest(),
            Detail(cut(mechanism, MOST_DECLARED), cut(plan, MOST_DECLARED)) if detailed else None,
        )
        self._courses[id] = self._heads[course.head] = course
        book.unit = short(record["dataset"].get("privacy_unit"))
        book.state_budget(record["dataset"]["budget"])
        if book.budget is not None and plan["order"] != str(book.budget.order):
            raise Wrong("books", "a plan counts at another order than its data set's ledger")

    def _take_movement(self, record: Mapping[str, Any], _line: bytes) -> None:
        kind, moved = movement_of(record)
        self._moved_at = max(self._moved_at, record["recorded_at"])
        book, id = self._book(record["dataset"]), record["session"]
        shown = {name: short(record[name]) for name in _MOVEMENT}
        course = self._courses.get(id) if isinstance(id, str) else None
        if kind != "reserve" and course is not None and course.holding.promised.pure is None:
            moved = Amounts(moved.renyi)  # of a session that is not pure no part counts as pure
        try:
            book.move(shown, kind, moved)
        except Wrong as wrong:  # its session is looked at all the same
            self._findings.add(wrong.check, str(wrong), self.lines)
        if id is None and kind == "forfeit":
            return
        if course is None:
            raise Wrong("records", _UNKNOWN_SESSION)
        if course.holding.dataset != book.name:
            raise Wrong("books", "a session moves the budget of another data set than its own")
        course.holding.move(kind, moved)

    def _take_measurement(self, record: Mapping[str, Any], _line: bytes) -> None:
        id = record["session"]
        if not isinstance(id, str) or id not in self._courses:
            raise Wrong("records", _UNKNOWN_SESSION)
        self._courses[id].measured(record)

    def _take_entry(self, record: Mapping[str, Any], line: bytes) -> None:
        try:
            course = self._heads.pop(bytes.fromhex(record["previous_hash"]))
        except KeyError:
            raise Wrong("chains", "an entry follows on nothing that is in the log before it") from None
        try:
            course.take(record, line)
        finally:
            self._heads[course.head] = course

    # ------------------------------------------------------------------------------------- checks

    def _compare_charges(self) -> int:
        """Find sessions that paid less than their records cost; how many may have been charged since.

        Movements come into the log in their order, but an entry may come before its movement: that one is missing once
        there are movements that were made well after the entry.
        """
        waiting = 0
        for course in self._courses.values():
            short_at = course.holding.short_at
            if short_at is None:
                continue
            if _seconds(short_at) + _WAIT_SECONDS < _seconds(self._moved_at):
                self._findings.add("charges", "a session paid less than its records cost", session=course.id)
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


_UNKNOWN_SESSION = "a record names a session that no header has told of"
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
    book: Book, courses: list[Course], shown: int, replays: Mapping[str, tuple[bool, str | None]], *, whole: bool
) -> dict[str, Any]:
    """What there is of a data set, with so many of its sessions; where not ``whole``, without movements and points."""
    told = book.document()
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
        "retired_at": book.retired_at,
        "commitment": book.commitment,
        "revealed": book.revealed,
        "privacy_unit": book.unit,
        **told,
        "sessions": {
            "number": len(courses),
            "questions": sum(course.asked for course in courses),
            "forfeits": sum(course.forfeits for course in courses),
            "first": [course.document(replays.get(course.id)) for course in courses[:shown]],
            "left_out": {
                "number": len(rest),
                "questions": sum(course.asked for course in rest),
                "spent": text_of(reduce(EXACT.add, (course.holding.paid for course in rest), Decimal(0))),
            },
        },
    }
