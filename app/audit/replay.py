"""Replay: a transcript checked against itself, without the private data.

The rules, in the order they are checked:

1. The file is a header, entries and a trailer, each a canonical JSON line.
2. The header's data set and mechanism say what they say once and in full, and its plan follows from them.
3. Sequences run from 1 without a gap; each entry carries the hash before it and its own.
4. Each query is the canonical form of what it says, on the header's space.
5. Values lie on the answer grid. A hypothesis' answer is the hypothesis' own, to one unit; a measurement lies further
   than the threshold from it; a cached answer is the first one given; bounds are the plan's.
6. No answer comes after what the plan allows; unverified ones stand apart and count nothing.
7. The trailer's counts and head are those arrived at.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from app.audit import records
from app.constructions.base import BOUNDED_STEPS
from app.curator.dataset import Bought, PublicDataset
from app.curator.errors import UpdatesExhausted
from app.curator.planner import Plan, make_plan
from app.curator.request import SessionRequest
from app.curator.session import Answer, RoundDue, Session
from app.privacy.errors import PrivacyError
from app.privacy.exactness import EXACT
from app.spaces.errors import CuratorError
from app.spaces.query import Query


@dataclass(frozen=True)
class Verdict:
    """What a replay found: a summary, or the first entry that does not follow."""

    ok: bool
    summary: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None
    sequence: int | None = None


class _Broken(Exception):
    """A rule does not hold."""

    def __init__(self, problem: str, sequence: int | None = None) -> None:
        super().__init__(problem)
        self.problem, self.sequence = problem, sequence


def hypothesis_digest(session: Session) -> str:
    """SHA-256 of the exported hypothesis. Informative: machines differ in the last bits."""
    return hashlib.sha256(session.construction.export(session.hypothesis).content()).hexdigest()


def opening_of(header: dict[str, Any]) -> tuple[PublicDataset, SessionRequest, Plan]:
    """What the session of a header was opened on, its plan computed anew.

    Raises:
        CuratorError, PrivacyError, KeyError, TypeError: when the header describes none.
    """
    dataset = PublicDataset.from_descriptor(header["dataset"])
    request = SessionRequest.from_document(header["mechanism"], dataset.spec.name)
    plan = make_plan(dataset, request)
    if plan.purchase is not None:
        # What the session bought at opening is its first release: public from here on.
        dataset = dataset.with_bought(plan.purchase.fact, Bought.of(header["bought"]))
    return dataset, request, plan


def session_of(header: dict[str, Any]) -> Session:
    """The session a header describes, before its first answer.

    Raises:
        CuratorError, PrivacyError, KeyError, TypeError: when the header describes none.
    """
    return Session(*opening_of(header))


#: What reading a stranger's JSON as something else may raise.
_UNREADABLE = (
    AttributeError,
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    ArithmeticError,
    MemoryError,
    RecursionError,
)
_HEADER = {"record", "format", "session", "dataset", "mechanism", "plan", "opened_at"}
_TRAILER = {"record", "entries", "head_hash", "hypothesis_digest", "updates", "status"}
#: Facts are positive, and noisy integers of 64 bits in units of a count or less.
_LARGEST_FACT = 2.0**64
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _same(first: Any, second: Any) -> bool:
    """Whether two documents have the same canonical bytes; False where one has none."""
    try:
        return records.canonical(first) == records.canonical(second)
    except (ValueError, RecursionError):
        return False


def _states(stated: Any, session: Session) -> bool:
    """Whether a header states the session's plan.

    Plans of ``full`` and ``refit`` once told the rate of a fixed step, which they do not take: so may theirs.
    """
    plan = session.plan.document()
    if _same(plan, stated):
        return True
    if session.request.mechanism.step in BOUNDED_STEPS or session.plan.purchase is not None:
        return False
    return _same({**plan, "step_size": session.construction.step_size(session.plan.progress)}, stated)


def _is_canonical(record: dict[str, Any], line: bytes) -> bool:
    try:
        return records.canonical(record) == line
    except (ValueError, RecursionError):
        return False


def _due(session: Session, query: Query, *, unverified: bool) -> Answer | RoundDue:
    """What was due. After forfeits guaranteed sessions once gave the hypothesis as though it had learnt from them."""
    try:
        return session.consider(query, unverified=unverified)
    except UpdatesExhausted:
        if session.plan.guaranteed and session.updates_left == 0:
            return session.last_word(query)
        raise


class _Replay:
    def __init__(self) -> None:
        self.session: Session | None = None
        self.head = ""
        self.name = ""
        self.blobs: dict[str, bytes] = {}
        self.counts = {"hypothesis": 0, "measurement": 0, "cached": 0, "unverified": 0, "forfeit": 0}
        self.digest = ""
        self.ended = False

    def line(self, line: bytes) -> None:
        if self.ended:
            raise _Broken("a record stands after the trailer")
        try:
            record = records.parse(line)
            kind = record["record"]
        except (ValueError, KeyError, RecursionError):
            raise _Broken("a line is not a record", self._next()) from None
        if self.session is None:
            if kind != "header":
                raise _Broken("the first record is not a header")
            self._header(line, record)
        elif kind == "weights":
            self._weights(line, record)
        elif kind in ("answer", "forfeit"):
            self._entry(self.session, kind, line, record)
        elif kind == "trailer":
            self._trailer(self.session, line, record)
        else:
            raise _Broken("a record is of no known kind", self._next())

    def _next(self) -> int | None:
        return None if self.session is None else self.session.sequence + 1

    def _header(self, line: bytes, record: dict[str, Any]) -> None:
        if record.get("format") != records.FORMAT:
            raise _Broken("the transcript's format is not known")
        if not _is_canonical(record, line):
            raise _Broken("the header is not canonical")
        try:
            dataset, request, plan = opening_of(record)
            session = Session(dataset, request, plan)
            stated = PublicDataset.from_descriptor(record["dataset"]).descriptor()
        except (CuratorError, PrivacyError) as error:
            raise _Broken(f"the header describes no session: {error}") from None
        except _UNREADABLE:
            raise _Broken("the header describes no session") from None
        if not _same(stated, record["dataset"]):
            raise _Broken("the data set's description contradicts itself")
        if not _same(request.document(), record["mechanism"]):
            raise _Broken("the mechanism is not stated in full")
        if not _states(record.get("plan"), session):
            raise _Broken("the plan does not follow from the data set and the mechanism")
        if set(record) != _HEADER | ({"bought"} if plan.purchase else set()):
            raise _Broken("the header has other fields than a session's")
        if plan.purchase and not _same(dataset.bought[plan.purchase.fact].document(), record["bought"]):
            raise _Broken("what was bought is not stated in full")
        if plan.purchase and dataset.bought[plan.purchase.fact].noise_scale != plan.purchase.noise_scale:
            raise _Broken("what was bought has other noise than the plan's")
        if plan.purchase and not 0 < dataset.bought[plan.purchase.fact].value <= _LARGEST_FACT:
            raise _Broken("what was bought is no mass or norm of any data")
        self.session, self.head, self.name = session, records.sha256(line), str(record.get("session"))

    def _weights(self, line: bytes, record: dict[str, Any]) -> None:
        try:
            blob = base64.b64decode(record["data"], validate=True)
        except (KeyError, ValueError, TypeError):
            raise _Broken("a weights record cannot be read", self._next()) from None
        if records.sha256(blob) != record.get("sha256") or records.weights_record(record["sha256"], blob) != line:
            raise _Broken("a weights record is not what its hash names", self._next())
        self.blobs[record["sha256"]] = blob

    def _entry(self, session: Session, kind: str, line: bytes, record: dict[str, Any]) -> None:
        sequence = session.sequence + 1
        if record.get("sequence") != sequence:
            raise _Broken("the sequence has a gap", sequence)
        if record.get("previous_hash") != self.head:
            raise _Broken("the entry does not carry the hash before it", sequence)
        try:
            recorded_at = str(record["recorded_at"])
            if kind == "forfeit":
                sealed = records.forfeit_entry(sequence=sequence, recorded_at=recorded_at, previous_hash=self.head)
                query = None
            else:
                query = session.dataset.space.from_canonical(record["query"], self.blobs)
                sealed = records.answer_entry(
                    sequence=sequence,
                    query=query.canonical_bytes,
                    value=record["value"],
                    source=str(record["source"]),
                    error_bound=record["error_bound"],
                    unverified=bool(record.get("unverified", False)),
                    recorded_at=recorded_at,
                    previous_hash=self.head,
                )
        except CuratorError as error:
            raise _Broken(f"the query is none: {error.detail}", sequence) from None
        except _UNREADABLE:
            raise _Broken("the entry cannot be read", sequence) from None
        if sealed.line != line:
            raise _Broken("the entry is not what its hash names", sequence)
        self.head = sealed.entry_hash
        if query is None:
            if session.updates_left == 0:
                raise _Broken("a forfeit after the last update", sequence)
            session.forfeit()
            self.counts["forfeit"] += 1
            return
        try:
            self._answer(session, query, record, sequence)
        except _UNREADABLE as error:
            # A header may state facts that no data has, from which no hypothesis can be computed.
            raise _Broken(f"the answer follows from nothing: {type(error).__name__}", sequence) from None

    def _answer(self, session: Session, query: Query, record: dict[str, Any], sequence: int) -> None:
        value, source, bound = record["value"], record["source"], record["error_bound"]
        unverified = bool(record.get("unverified", False))
        if any(type(number) not in (int, float) for number in (value, 0 if bound is None else bound)):
            raise _Broken("a value or bound is no number", sequence)
        if abs(value) > session.real(2**63) or session.real(session.grid(value)) != value:
            raise _Broken("the value does not lie on the answer grid", sequence)
        try:
            due = _due(session, query, unverified=unverified)
        except CuratorError as error:
            raise _Broken(f"no answer was due: {error.code}", sequence) from None
        unit = session.real(1)
        if isinstance(due, RoundDue):
            gap = value - session.real(due.hypothesis)
            threshold = session.real(session.plan.threshold_units)
            if source == "hypothesis":
                if abs(gap) > unit:
                    raise _Broken("the answer is not the hypothesis' own", sequence)
            elif source != "measurement":
                raise _Broken("the answer claims a source that it cannot have", sequence)
            elif abs(gap) <= threshold - unit:
                raise _Broken("a measurement lies within the threshold", sequence)
        else:
            if source != due.source:
                raise _Broken("the answer claims a source that it cannot have", sequence)
            if abs(value - due.value) > (0.0 if source == "cached" else unit):
                raise _Broken("the answer is not the one that was due", sequence)
        # The bound of the coarsest weights is recorded as asked; it can only add to the plan's own.
        if (bound is None) != (due.error_bound is None):
            raise _Broken("the error bound is missing or too much", sequence)
        if bound is not None and due.error_bound is not None and bound < due.error_bound:
            raise _Broken("the error bound is smaller than the plan's", sequence)
        session.record(query, Answer(value, source, bound, unverified))
        self.counts["unverified" if unverified else source] += 1

    def _trailer(self, session: Session, line: bytes, record: dict[str, Any]) -> None:
        if not _is_canonical(record, line):
            raise _Broken("the trailer is not canonical")
        if set(record) != _TRAILER or record["status"] not in ("open", "closed"):
            raise _Broken("the trailer has other fields than a session's")
        if not isinstance(record["hypothesis_digest"], str) or not _DIGEST.fullmatch(record["hypothesis_digest"]):
            raise _Broken("the trailer's digest is none")
        self.digest = record["hypothesis_digest"]
        if record.get("entries") != session.sequence:
            raise _Broken("the trailer counts other entries than there are")
        if record.get("head_hash") != self.head:
            raise _Broken("the trailer names another head")
        if record.get("updates") != session.updates_used:
            raise _Broken("the trailer counts other updates than there were")
        self.ended = True

    def verdict(self) -> Verdict:
        session = self.session
        if session is None:
            raise _Broken("the file is empty")
        if not self.ended:
            raise _Broken("the trailer is missing", self._next())
        plan = session.plan
        digest = hypothesis_digest(session)
        bought = Decimal(0) if plan.purchase is None else plan.purchase.cost
        return Verdict(
            True,
            {
                "session": self.name,
                "dataset": session.dataset.spec.name,
                "entries": session.sequence,
                "queries": session.queries_asked,
                "updates": session.updates_used,
                "max_updates": plan.max_updates,
                **{f"{source}_answers": count for source, count in self.counts.items()},
                "error_bound": plan.error_bound,
                "beta": plan.beta,
                "spent": str(EXACT.add(bought, EXACT.multiply(plan.cost_per_update, Decimal(session.updates_used)))),
                "reserved": str(plan.reserved),
                "head_hash": self.head,
                "hypothesis_digest": digest,
                "hypothesis_digest_agrees": digest == self.digest,
            },
        )


def replay(lines: Iterable[bytes]) -> Verdict:
    """Check a transcript line by line."""
    state = _Replay()
    try:
        for line in lines:
            state.line(line.rstrip(b"\n"))
        return state.verdict()
    except _Broken as broken:
        return Verdict(False, {}, broken.problem, broken.sequence)


def replay_file(path: Path, progress: Callable[[int, int], None] | None = None) -> Verdict:
    """Check a transcript file; ``progress`` hears of bytes read and bytes in all.

    Raises:
        OSError: when the file cannot be read.
    """
    total, done = path.stat().st_size, 0

    def lines() -> Iterable[bytes]:
        nonlocal done
        with path.open("rb") as file:
            for line in file:
                done += len(line)
                if progress is not None:
                    progress(done, total)
                yield line

    return replay(lines())
