"""A report of a log: what was declared, spent, asked, answered and released, and whether it follows.

:class:`Reader` takes the lines of a log in their order, twice, and makes a plain document (JSON: texts, numbers, lists,
objects; exact amounts are decimal strings, as in the records). It opens nothing, and whether the lines are those that
were signed is told to it. It has no rules of its own: it is a sink of those that a replay keeps
(:mod:`app.audit.rules`, :mod:`app.audit.transcripts`), goes on behind a line that breaks one, which is told and counts
for nothing, and shows what did follow.

The lines are a stranger's. Whatever they hold is counted or found wrong; what is kept of them is bounded: sums, the
first questions and movements, and points thinned to what a plot can show. What is beyond a bound is counted, and where
it could not be looked at, it is found wrong.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from typing import Any

from app.audit import forms
from app.audit.against_log import Replays
from app.audit.rules import Rules
from app.audit.transcripts import Kept, Transcripts
from app.privacy.exactness import EXACT
from app.privacy.ledger import Account, Amounts
from app.report.books import Book
from app.report.checks import TRUST, UNASKED, Verified, check_of, replay_check
from app.report.sessions import MOST_DECLARED, Course, Detail, cut, short
from app.report.words import text_of
from curator_client.proofs.findings import Check, Unfollowed

#: Version of the document's format.
FORMAT = 1
#: Data sets and sessions that are followed; where there are more, that is found wrong.
MOST_DATASETS, MOST_SESSIONS = 1000, 50_000
#: Measurements that sessions start from that are followed.
MOST_PINS = 200_000
#: Data sets and sessions that are shown in full, and sessions that are shown in a line each.
MOST_BOOKS, MOST_DETAILS, MOST_ROWS = 50, 100, 1000
#: Events of principals that are shown, so many first ones and so many last ones; and findings.
MOST_EVENTS, MOST_FINDINGS = 200, 100
#: What a check that this module makes by itself says where it holds.
_HOLDS: dict[Check, str] = {
    "records": "Every line is a record of the form that its kind has.",
    "chains": "Every entry of a session follows on the one before by its hash, the first one on the session's header.",
    "books": "By every movement of the ledgers, no data set passed its declared budget, every session reserved what "
    "the plan in its header says and spent and gave back no more than that, and headers describe their data sets as "
    "these were registered.",
    "charges": "Everything that entries and measurements say that they cost was charged to its data set.",
    "measurements": "Every measurement that a session starts from and did not make is in the log, of the same data set "
    "and shared by the session that made it.",
}


@dataclass
class _Findings:
    """The sink of a report: the first finding; how many there are by check, and the first of each; those of transcripts
    apart.
    """

    broken: Unfollowed | None = None
    counts: Counter[Check] = field(default_factory=Counter)
    first: list[dict[str, Any]] = field(default_factory=list)
    said: dict[Check, str] = field(default_factory=dict)
    transcripts: list[Unfollowed] = field(default_factory=list)

    def add(self, broken: Unfollowed, line: int | None) -> None:
        check = broken.check
        self.broken = self.broken or broken
        if check == "replay":
            self.transcripts.append(broken)
            return
        self.counts[check] += 1
        self.said.setdefault(check, broken.problem if line is None else f"{broken.problem} (line {line})")
        if len(self.first) < MOST_FINDINGS:
            told = {"check": check, "says": broken.problem, "line": line, "session": short(broken.session)}
            self.first.append(told)


class Reader:
    """Takes the lines of a log, and tells what they say: all of them by :meth:`survey`, and then by :meth:`take`.

    Args:
        transcripts: the most bytes that the replay of one transcript may hold; None where :meth:`replay` is not asked.
        only: the session whose transcript alone is replayed; all where it is None.
        bounded: whether a log with more than is followed is found wrong. Whoever bounds the memory in another way
            follows all of it.
    """

    def __init__(self, transcripts: int | None = None, *, only: str | None = None, bounded: bool = True) -> None:
        self._findings = _Findings()
        most = {"most_datasets": MOST_DATASETS, "most_sessions": MOST_SESSIONS, "most_pins": MOST_PINS}
        self.rules = Rules(self._findings.add, **(most if bounded else {}))
        self._transcripts = None if transcripts is None else Transcripts(self.rules, transcripts, only)
        self._kinds: Counter[str] = Counter()
        self._books: dict[str, Book] = {}
        self._courses: dict[str, Course] = {}
        self._events: Counter[str] = Counter()
        self._first: list[dict[str, Any]] = []
        self._last: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._keys: list[dict[str, Any]] = []
        self._first_at = self._last_at = ""
        self._at = 0

    def survey(self, line: bytes) -> None:
        """Look at the next line for the first time."""
        self.rules.survey(line)

    def take(self, line: bytes) -> None:
        """Take in the next line."""
        taken = self.rules.take(line)
        if taken is not None:
            record, session = taken
            kind = record.get("record")
            take = _TAKES.get(kind) if isinstance(kind, str) else None
            self._kinds[kind if take is not None and isinstance(kind, str) else "other"] += 1
            if take is not None:
                self._note_time(record["opened_at" if kind == "header" else "recorded_at"])
                take(self, record, session)
            if self._transcripts is not None:
                self._transcripts.take(self._at, record, session, line)
        self._at += len(line) + 1

    def end(self) -> None:
        """Look at the log as a whole, once all lines were taken."""
        self.rules.end()

    @property
    def broken(self) -> Unfollowed | None:
        """The first thing that did not follow, which is what a replay stops at; None while all does."""
        return self._findings.broken

    @property
    def told(self) -> Mapping[str, dict[str, Any]]:
        """Summaries by session, of those whose transcripts followed."""
        return {} if self._transcripts is None else self._transcripts.told

    def replay(
        self,
        kept: Kept,
        progress: Callable[[int, int], None] = lambda _done, _of: None,
        replays: Replays | None = None,
    ) -> dict[str | None, str | None]:
        """Of each session the first thing that does not follow of its transcript; None where all does.

        Args:
            kept: the transcripts.
            progress: hears of how many sessions were looked at, and of how many there are.
            replays: has them replayed; one after another and here where left out.

        Raises:
            OSError: when something cannot be read.
            Undecided: when a replay fails.
        """
        assert self._transcripts is not None
        number = len([*self._transcripts.sessions])
        for step, _ in enumerate(self._transcripts.check(kept, replays), start=1):
            progress(min(step, number), number)
        found: dict[str | None, str | None] = dict.fromkeys(self._transcripts.sessions)
        for broken in self._findings.transcripts:
            if found.get(broken.session) is None:
                where = "" if broken.entry is None else f"entry {broken.entry}: "
                found[broken.session] = f"{where}{broken.problem}"
        return found

    def document(
        self, verified: Verified, replays: Mapping[str | None, str | None] | None = None, unasked: str = UNASKED
    ) -> dict[str, Any]:
        """The report.

        Args:
            verified: what became of checkpoint and lines.
            replays: of each session the first thing that does not follow of its transcript, None where all does; under
                None what does not follow of none of them. None where nobody looked.
            unasked: what is said of replays where nobody looked.
        """
        others = 0 if replays is None else len(self.rules.threads.sessions) - len(replays.keys() - {None})
        checks = [
            *verified.checks(self.rules.lines),
            *self._own_checks(),
            replay_check(replays, max(others, 0), unasked),
        ]
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
            account = self.rules.books.books[book.name].account
            retired_at = self.rules.registered[book.name].retired_at
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
                "lines": self.rules.lines,
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
        if not self._first_at or at < self._first_at:
            self._first_at = at
        if at > self._last_at:
            self._last_at = at

    def _take_principal(self, record: Mapping[str, Any], _session: str | None) -> None:
        told = {name: short(record[name]) for name in ("event", "name", "role", "recorded_at")}
        self._events[record["event"]] += 1
        (self._first if len(self._first) < MOST_EVENTS else self._last).append(told)

    def _take_log_key(self, record: Mapping[str, Any], _session: str | None) -> None:
        lines = record["statement"].split("\n", 5)
        told = {"size": short(lines[2]), "old": short(lines[3]), "new": short(lines[4])}
        if len(self._keys) < MOST_EVENTS:
            self._keys.append(told | {"recorded_at": record["recorded_at"]})

    def _take_dataset(self, record: Mapping[str, Any], _session: str | None) -> None:
        name, event = record["name"], record["event"]
        book = self._books.get(name)
        if event == "registered" and book is None and name in self.rules.registered:
            declared, records = cut(record["declared"], MOST_DECLARED), short(record.get("records"))
            commitment = short(record.get("commitment"))
            self._books[name] = Book(name, declared, records, record["recorded_at"], commitment)
        elif event == "commitment revealed" and book is not None and len(book.revealed) < MOST_EVENTS:
            book.revealed.append({"by": short(record.get("by")), "recorded_at": record["recorded_at"]})

    def _take_header(self, record: Mapping[str, Any], session: str | None) -> None:
        assert session is not None
        mechanism, plan = record["mechanism"], record["plan"]
        course = self._courses[session] = Course(
            session,
            record["dataset"]["name"],
            record["opened_at"],
            short(mechanism.get("construction")),
            short(mechanism["method"]) if "method" in mechanism else None,
            short(mechanism.get("epsilon")),
            forms.amounts(plan["reserved"], plan["reserved_pure"]),
            self.rules.charges.sessions[session].price,
            self.rules.threads.sessions[session].head,
            Detail(cut(mechanism, MOST_DECLARED), cut(plan, MOST_DECLARED))
            if len(self._courses) < MOST_DETAILS
            else None,
        )
        book = self._books.get(course.dataset)
        if book is not None:
            book.unit = short(record["dataset"].get("privacy_unit"))

    def _take_movement(self, record: Mapping[str, Any], session: str | None) -> None:
        books, name = self.rules.books, record["dataset"]
        if name in self._books:
            moved = Amounts.read({"renyi": record["amount"], "pure": record["pure"]})
            self._books[name].move({each: short(record[each]) for each in _MOVEMENT}, moved, books.books[name].account)
        if session in self._courses:
            self._courses[session].held = books.sessions[session]

    def _take_measurement(self, record: Mapping[str, Any], session: str | None) -> None:
        if session in self._courses:
            self._courses[session].measured(record)

    def _take_entry(self, record: Mapping[str, Any], session: str | None) -> None:
        if session in self._courses:
            self._courses[session].take(record)

    # ------------------------------------------------------------------------------------- checks

    def _own_checks(self) -> list[dict[str, Any]]:
        found, later = [], self._later()
        for check, says in _HOLDS.items():
            number = self._findings.counts[check]
            problem = self._findings.said[check] if number else None
            if number > 1:
                problem = f"{problem}, and {number - 1:,} more such findings"
            if problem is None and check in later:
                found.append({"check": check, "holds": None, "says": later[check]})
            else:
                found.append(check_of(check, problem, says))
        return found

    def _later(self) -> dict[Check, str]:
        """What cannot be told of the log so far, and why."""
        found: dict[Check, str] = {}
        if waiting := self.rules.charges.waiting:
            found["charges"] = (
                f"Of {waiting:,} sessions the last records that cost something are not charged in the log so far. "
                "Charges may come into it a moment after what they are for: fetch it again later."
            )
        if missing := len(self.rules.pinned.missing):
            found["measurements"] = (
                f"{missing:,} of the measurements that sessions start from are not in the log so far. They may come "
                "into it a moment later: fetch it again, or replay the transcripts, too."
            )
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
