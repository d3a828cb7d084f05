"""Replay: a transcript checked against itself, without the private data.

The rules, in the order they are checked:

1. The file is a header, entries and a trailer, each a canonical JSON line.
2. The header's data set and mechanism say what they say once and in full, and its plan follows from them.
3. Sequences run from 1 without a gap; each entry carries the hash before it and its own; times do not go back.
4. Each query is the canonical form of what it says, on the header's space. Dense weights stand right before the first
   entry that names them, once, and nowhere else. Where the question stands beside it as it was asked, it compiles to
   that form.
5. Values lie on the answer grid. A hypothesis' answer is the hypothesis' own, to one unit; a measurement lies further
   than the threshold from it; a cached answer is the first one given; a bound is the plan's and no more than rounding
   the weights can add.
6. No answer comes after what the plan allows; unverified ones stand apart and count nothing.
7. The trailer's counts, head and digest are those arrived at, and its hash is its own.
8. What somebody kept of the session while it ran, the hash of an entry or how many there were, is found in it.

Whoever writes a whole file anew can keep rules 1 to 7 with other times, a cut end, another status, or measurements that
were never made: rule 8 alone is against that. See docs/audit.md.

The file is a stranger's. Whatever it holds there is a verdict, and no more memory is taken than a stated limit: lines
are read up to a length, and what a hypothesis takes is counted before it is made. Errors of type or key are the file's
where it is taken apart and nowhere else: one in the mathematics is a fault of the replay, and no verdict
(:class:`~app.audit.failures.Undecided`).
"""

from __future__ import annotations

import binascii
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, BinaryIO

import numpy as np
from threadpoolctl import threadpool_limits

from app.audit import forms, writing
from app.audit.failures import Malformed, Undecided, taking_apart
from app.constructions.mechanism import Iterative
from app.curator.mechanisms.contract import ContractMechanism
from app.curator.mechanisms.evidence import Evidence
from app.curator.mechanisms.planned import PlannedMechanism
from app.curator.mechanisms.protocol import (
    GREATEST_ANSWER,
    NO_TARGET,
    NO_VALUE,
    Answer,
    Buy,
    MarginalTest,
    Measure,
    Measured,
    SessionMechanism,
    Target,
    Test,
    Units,
)
from app.curator.mechanisms.serving import mechanism_of
from app.curator.opening import Header, Opening
from app.curator.plan import Plan, SessionPlan
from app.curator.planners.workload import WorkloadPlan
from app.curator.session import Session
from app.declarations.errors import CuratorError, InvalidRequest
from app.measurements.noise import Noise
from app.measurements.record import Purchase
from app.measurements.strategy import Strategy
from app.privacy.errors import PrivacyError
from app.privacy.ledger import NOTHING, Amounts
from app.spaces.queries.registry import from_canonical, parse_query
from app.spaces.queries.request import WANTED
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.query import Query
from curator_client.proofs import records
from curator_client.proofs.findings import Unfollowed


@dataclass(frozen=True)
class Verdict:
    """The outcome of a replay: a summary, or the first entry that does not follow."""

    ok: bool
    summary: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None
    sequence: int | None = None


#: Hears of a record: its line, the record, and the transcript up to it.
Watch = Callable[[bytes, dict[str, Any], "Replaying"], None]


class _Broken(Exception):
    """A rule does not hold."""

    def __init__(self, problem: str, sequence: int | None = None) -> None:
        super().__init__(problem)
        self.problem, self.sequence = problem, sequence


#: Bytes that a transcript may make its reader hold, unless told otherwise.
MEMORY_LIMIT = 4 * 1024**3
#: A line of JSON takes up to so many times its length while it is read and checked.
_LINE_FACTOR = 64
#: Fields that an object of a header has at most.
_MOST_FIELDS = 64
#: Asking and teaching a hypothesis takes up to so many times what it holds.
_WORK_FACTOR = 4
#: Of queries that a hypothesis keeps: bytes for each byte of their entries. Elements have an entry in a dictionary.
_KEPT_FACTOR, _ELEMENTS_FACTOR = 8, 32
#: Bytes that a query of the universe's size takes a cell, while it is read from its weights record.
_DENSE_BYTES = 32
#: Bytes that compiling a question takes for each value that it looks at.
_ASKED_BYTES = 24
#: What a header has beside the opening's document.
_HEADER = {"record", "format", "session", "opened_at"}
#: What is wrong with a header whose part does not follow from what it says, in the order they are looked at.
_STATED = {
    "dataset": "the data set's description contradicts itself",
    "mechanism": "the mechanism is not stated in full",
    "plan": "the plan does not follow from the data set and the mechanism",
    "bought": "what was bought is not stated in full",
    "evidence": "what the session starts from is not stated in full",
}
_STATUS = ("open", "closed")
_MEASUREMENT = {"record", "session", "sequence", "recorded_at", "cost", "expected", "measurement"}
#: Numbers that decide agree to this part between machines; values that follow from a fit to this part of their standard
#: error.
_NEAR, _NEAR_ANSWER = 1e-3, 1e-2
#: ``log_size`` is missing from before there was a log.
_TRAILER = {"record", "entries", "head_hash", "hypothesis_digest", "updates", "status", "log_size", "trailer_hash"}
#: What is wrong with a trailer whose field is not what was arrived at. (Others are tested before.)
_TOLD = {
    "entries": "the trailer counts other entries than there are",
    "head_hash": "the trailer names another head",
    "hypothesis_digest": "the trailer names another hypothesis",
    "updates": "the trailer counts other updates than there were",
    "trailer_hash": "the trailer is not what its hash names: it was changed",
}
#: What writing a record raises of values that have no canonical bytes.
_UNWRITTEN = (ValueError, RecursionError)


def _same(first: Any, second: Any) -> bool:
    """Whether two documents have the same canonical bytes; False where one has none."""
    try:
        return records.canonical(first) == records.canonical(second)
    except _UNWRITTEN:
        return False


def _is_narrow(document: Any) -> bool:
    """Whether no object in a document has more fields than any of a header: telling all that are unknown takes more
    memory than they do."""
    left = [document]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            if len(item) > _MOST_FIELDS:
                return False
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(part for part in item if isinstance(part, dict | list))
    return True


def _is_canonical(record: dict[str, Any], line: bytes) -> bool:
    try:
        return records.canonical(record) == line
    except _UNWRITTEN:
        return False


class Replaying:
    """A transcript on its way: what was read of it so far follows. Whoever watches it looks, and changes nothing."""

    def __init__(self, head: str | None, entries: int | None, memory_limit: int, watch: Watch | None = None) -> None:
        self._watch = watch
        self.session: Session | None = None
        self.head = ""
        self.name = self.status = ""
        self.memory_limit = memory_limit
        #: Longest line that is read.
        self.longest = memory_limit // _LINE_FACTOR
        #: Dense weights by their hash, once named, and those that the next entry must name.
        self.blobs: dict[str, bytes] = {}
        self.waiting: tuple[str, bytes] | None = None
        #: Bytes that the hypothesis takes, those of the queries it keeps for each of their own, and what these and all
        #: dense weights come to.
        self.work, self.keeps, self.held = 0, 0, 0
        self.counts = {"hypothesis": 0, "estimate": 0, "measurement": 0, "cached": 0, "unverified": 0, "forfeit": 0}
        #: What was kept: a hash and the number of entries, and behind which entry the hash was met.
        self.kept, self.least, self.met = head, entries, None if head is None else -1
        self.ended = False
        #: The hashes of measurements that the header names and that have not come yet; how many of them are others'.
        self.pins: deque[str] = deque()
        self.others = 0
        #: What the session must have measured at its opening and has not told yet.
        self.due: deque[Purchase[Strategy]] | None = None
        #: Whether the transcript is that of a release.
        self.releases = False
        #: A measurement that the next entry must name, by its hash.
        self.measured: tuple[str, Measured] | None = None
        self.measured_at = self.opened_at = ""
        #: What all measurements of the session cost, and what the last entry did; None where that was free.
        self.spent = NOTHING
        self.price: Amounts | None = None

    def line(self, line: bytes) -> None:
        if self.ended:
            raise _Broken("a record stands after the trailer")
        if len(line) > self.longest + 1:
            raise self._too_much(f"a line of more than {self.longest:,} bytes", self._next())
        line = line.removesuffix(b"\n")
        if self.session is not None and line.startswith(records.WEIGHTS_HEAD):
            self._weights(self.session, line)
            return
        try:
            record = forms.parse(line)
            kind = record["record"]
        except (ValueError, KeyError, RecursionError):
            raise _Broken("a line is not a record", self._next()) from None
        if self.session is None:
            if kind != "header":
                raise _Broken("the first record is not a header")
            self._header(line, record)
            self._meet()
        elif kind == "measurement":
            self._measurement(self.session, line, record)
        elif self.pins:
            raise _Broken("a measurement that the header names is missing", self._next())
        elif kind in ("answer", "forfeit", "release"):
            self._entry(self.session, kind, line, record)
            self._meet()
        elif kind == "trailer":
            self._trailer(self.session, line, record)
        else:
            raise _Broken("a record is of no known kind", self._next())
        if self._watch is not None:
            self._watch(line, record, self)

    def _next(self) -> int | None:
        return None if self.session is None else self.session.sequence + 1

    def _meet(self) -> None:
        """Note where the chain passes the hash that was kept."""
        if self.session is not None and self.head == self.kept:
            self.met = self.session.sequence

    def _too_much(self, what: str, sequence: int | None) -> _Broken:
        return _Broken(f"{what} needs more memory than the limit of {self.memory_limit:,} bytes: raise it", sequence)

    def _afford(self, more: int, sequence: int | None) -> None:
        """Refuse an entry for which more memory would be needed than may be taken, ``more`` bytes for itself."""
        needed = self.work + self.held + more
        if needed > self.memory_limit:
            raise self._too_much(f"a hypothesis and queries of about {needed:,} bytes", sequence)

    def _grow(self, mechanism: SessionMechanism[Any], updates: int) -> None:
        """Count what the hypothesis takes while it goes to so many updates."""
        self.work = _WORK_FACTOR * mechanism.nbytes(updates)

    def _header(self, line: bytes, record: dict[str, Any]) -> None:
        if record.get("format") != writing.FORMAT or isinstance(record["format"], bool):
            raise _Broken("the transcript's format is not known")
        if not _is_canonical(record, line):
            raise _Broken("the header is not canonical")
        if not _is_narrow(record):
            raise _Broken("the header has more fields than a session's")
        try:
            with taking_apart():
                header = Header.of(record)
                stated = header.stated()
        except Malformed as error:
            raise _Broken(f"the header describes no session: {error}") from None
        try:
            opening = Opening.planned(stated)
            space = opening.dataset.space
            if space.extent != "unbounded":
                self._grow(mechanism_of(opening), 1)
                self._afford(0, None)
            session, due = Session(opening), opening.document()
        except (CuratorError, PrivacyError) as error:
            raise _Broken(f"the header describes no session: {error}") from None
        for part, problem in _STATED.items():
            if part in due and not _same(due[part], header.document[part]):
                raise _Broken(problem)
        if set(record) != _HEADER | due.keys():
            raise _Broken("the header has other fields than a session's")
        if opening.evidence is not None:
            if opening.evidence.known and opening.request.start == "nothing":
                raise _Broken("a session that starts from nothing names what it starts from")
            self.pins = deque([*opening.evidence.known, *opening.evidence.made])
            self.others = len(opening.evidence.known)
        bought, purchase = opening.bought, opening.plan.purchase
        if bought is not None and purchase is not None and bought.noise_scale != purchase.noise_scale:
            raise _Broken("what was bought has other noise than the plan's")
        # A release measures later, or not at all.
        self.releases = isinstance(opening.plan, WorkloadPlan)
        if opening.evidence is not None and not self.pins and not self.releases and self._still_due(session):
            raise _Broken("the session did not measure what was due at its opening")
        second = records.second(header.opened_at)
        if not isinstance(header.session, str) or not records.NAME.fullmatch(header.session):
            raise _Broken("the header names no session")
        if second is None:
            raise _Broken("the header has no time")
        self.session, self.head, self.name, self.second = session, records.sha256(line), header.session, second
        self.opened_at = header.opened_at
        self.learnt = writing.HypothesisDigest(header.document)
        if space.extent == "unbounded":
            self.keeps = _ELEMENTS_FACTOR
            return
        mechanism = opening.request.mechanism
        self.keeps = _KEPT_FACTOR if isinstance(mechanism, Iterative) and mechanism.step == "refit" else 0
        if self.work + _DENSE_BYTES * space.cells <= self.memory_limit:
            self.longest = max(self.longest, writing.weights_length(4 * space.cells))

    def _measurement(self, session: Session, line: bytes, record: dict[str, Any]) -> None:
        """A measurement that the header names, or the next entry must."""
        sequence, name = self._next(), records.sha256(line)
        if set(record) != _MEASUREMENT or self.measured is not None or session.opening.evidence is None:
            raise _Broken("a measurement stands where none is due", sequence)
        self._afford(_LINE_FACTOR * len(line), sequence)
        try:
            with taking_apart():
                measured = Measured.read(record)
        except Malformed:
            raise _Broken("a measurement cannot be read", sequence) from None
        _check_space(session, measured, sequence)
        whose = {field: record[field] for field in ("session", "sequence", "recorded_at")}
        if writing.measurement_record(measured=measured.document(), **whose) != line:
            raise _Broken("a measurement is not canonical", sequence)
        recorded = records.second(record["recorded_at"])
        if recorded is None:
            raise _Broken("a measurement has no time", sequence)
        self.held += _KEPT_FACTOR * len(line)
        if not self.pins:
            if (record["session"], record["sequence"]) != (self.name, sequence):
                raise _Broken("a measurement is of another session or entry", sequence)
            self.measured, self.measured_at = (name, measured), record["recorded_at"]
            return
        if self.pins.popleft() != name:
            raise _Broken("a measurement is not what the header names", sequence)
        if self.others:
            self.others -= 1
            self._check_known(record, recorded)
            session.pin(replace(measured, price=NOTHING))
        else:
            if (record["session"], record["sequence"]) != (self.name, 0) or record["sequence"] is False:
                raise _Broken("a measurement of the opening is of another session or entry", sequence)
            if record["recorded_at"] != self.opened_at:
                raise _Broken("a measurement of the opening has another time than that", sequence)
            self._due_at_opening(session, measured)
        if not self.pins and not self.releases and self._still_due(session):
            raise _Broken("the session did not measure what was due at its opening", sequence)

    def _check_known(self, record: dict[str, Any], recorded: str) -> None:
        """Refuse as known what no other session had measured by then: what a session measures itself it pays for."""
        maker, sequence = record["session"], record["sequence"]
        if not isinstance(maker, str) or not records.NAME.fullmatch(maker) or type(sequence) is not int or sequence < 0:
            raise _Broken("a measurement that was known is of no session's entry")
        if maker == self.name:
            raise _Broken("the session names a measurement of its own as known")
        if recorded > self.second:
            raise _Broken("a measurement that was known is younger than the session")

    def _still_due(self, session: Session) -> bool:
        """Whether something had to be measured at the opening that was not told."""
        if self.due is None:
            self.due = deque(session.purchases())
        return bool(self.due)

    def _due_at_opening(self, session: Session, measured: Measured, sequence: int | None = None) -> None:
        """Hold a measurement of the opening, or of a release, against what was due there."""
        if not self._still_due(session):
            raise _Broken("the session measured more at its opening than was due", sequence)
        assert self.due is not None
        buy, release = self.due.popleft(), measured.measurement
        if (release.strategy, release.noise, measured.price) != (buy.strategy, buy.noise, buy.price):
            raise _Broken("a measurement of the opening is not the one that was due", sequence)
        if measured.expected is not None:
            raise _Broken("something was expected of a measurement that no question asked for", sequence)
        session.pin(measured)
        self._pay(measured.price)

    def _named_measurement(self, record: dict[str, Any], sequence: int) -> Measured | None:
        """The measurement that stands before an entry, which must be what names it."""
        name, measured = self.measured or (None, None)
        self.measured = None
        if record.get("measurement") != name:
            raise _Broken("the measurement before the entry is not the one that it names", sequence)
        if measured is not None and record.get("recorded_at") != self.measured_at:
            raise _Broken("the entry has another time than its measurement", sequence)
        return measured

    def _weights(self, session: Session, line: bytes) -> None:
        sequence, space = session.sequence + 1, session.dataset.space
        if self.waiting is not None:
            raise _Broken("weights that no entry names", sequence)
        size = 4 * space.cells if space.extent != "unbounded" else 0
        tail = len(line) - len(records.WEIGHTS_TAIL)
        name = line[tail - 64 : tail].decode("ascii", "replace")
        if not size or len(line) != writing.weights_length(size):
            raise _Broken("a weights record is not of the universe's size", sequence)
        self._afford(_DENSE_BYTES * space.cells, sequence)
        try:
            with memoryview(line) as view:
                blob = binascii.a2b_base64(view[len(records.WEIGHTS_HEAD) :][: 4 * -(-size // 3)], strict_mode=True)
        except ValueError:
            raise _Broken("a weights record cannot be read", sequence) from None
        if records.sha256(blob) != name or writing.weights_record(name, blob) != line:
            raise _Broken("a weights record is not what its hash names", sequence)
        if name in self.blobs:
            raise _Broken("weights stand there a second time", sequence)
        self.waiting = name, blob

    def _named(self, record: dict[str, Any], sequence: int) -> None:
        """Take in the weights that stand before an entry, which must be what names them."""
        if self.waiting is not None:
            name, blob = self.waiting
            query = record.get("query")
            if not isinstance(query, dict) or query.get("sha256") != name:
                raise _Broken("the weights before the entry are not its query's", sequence)
            self.blobs[name], self.waiting = blob, None
            # A query that is kept makes its weights' bytes anew, for its own name.
            self.held += len(blob) * (2 if self.keeps else 1)

    def _entry(self, session: Session, kind: str, line: bytes, record: dict[str, Any]) -> None:
        sequence, updates, self.price = session.sequence + 1, session.updates_used, None
        if record.get("sequence") != sequence or type(record["sequence"]) is not int:
            raise _Broken("the sequence has a gap", sequence)
        if record.get("previous_hash") != self.head:
            raise _Broken("the entry does not carry the hash before it", sequence)
        self._named(record, sequence)
        measured = self._named_measurement(record, sequence)
        try:
            sealed, query, price = self._sealed(session, kind, record, sequence)
        except CuratorError as error:
            raise _Broken(f"the query is none: {error.detail}", sequence) from None
        except Malformed:
            raise _Broken("the entry cannot be read", sequence) from None
        if sealed.line != line:
            raise _Broken("the entry is not what its hash names", sequence)
        self.head = sealed.entry_hash
        if kind == "release":
            self._released(session, measured, sequence)
        elif query is None:
            if session.updates_left == 0:
                raise _Broken("a forfeit after the last update", sequence)
            session.forfeit(price)
            self._pay(price)
            self.counts["forfeit"] += 1
        else:
            if record["source"] == "measurement":
                self.held += self.keeps * len(line)
                if session.dataset.space.extent != "unbounded":
                    self._grow(session.mechanism, session.updates_used + 1)
            self._afford(session.known_bytes, sequence)
            self._answer(session, query, record, measured, sequence)
        second = records.second(record.get("recorded_at"))
        if second is None or second < self.second:
            raise _Broken("the entry's time lies before that of the record before it, or is none", sequence)
        self.second = second
        if isinstance(session.plan, Plan) and session.updates_used > updates:
            self.price = session.plan.price

    def _sealed(
        self, session: Session, kind: str, record: dict[str, Any], sequence: int
    ) -> tuple[writing.Sealed, Query | None, Amounts]:
        """An entry as it would be written of what its record says, the query that it answers, and the price that a
        forfeit tells.

        Raises:
            CuratorError: when the query is none.
            Malformed: when the record is not of its form.
        """
        with taking_apart():
            recorded_at = str(record["recorded_at"])
        if kind == "forfeit":
            told, price = record.get("price"), NOTHING
            if (told is None) != (session.opening.evidence is None):
                raise _Broken("a forfeit has a price where the plan has none, and there alone", sequence)
            with taking_apart():
                if told is not None:
                    price = Amounts.read(told)
            with taking_apart(*_UNWRITTEN):
                sealed = writing.forfeit_entry(
                    sequence=sequence, recorded_at=recorded_at, previous_hash=self.head, price=told
                )
            if self.releases and (session.sequence or price != session.plan.holds):
                raise _Broken("a release forfeits its whole share, and measures nothing beside that", sequence)
            price = self._affordable(session, price, sequence)
            if told is not None and not self.releases:
                self._check_forfeit(session, price, sequence)
            return sealed, None, price
        if kind == "release":
            with taking_apart():
                measurement = str(record["measurement"])
            with taking_apart(*_UNWRITTEN):
                sealed = writing.release_entry(
                    sequence=sequence, recorded_at=recorded_at, previous_hash=self.head, measurement=measurement
                )
            return sealed, None, NOTHING
        with taking_apart():
            form = record["query"]
        query = from_canonical(session.dataset.space, form, self.blobs)
        asked = self._asked(session, query, record, sequence)
        with taking_apart():
            values, source, error_bound = records.values_of(record), str(record["source"]), record["error_bound"]
            tested = _tested(record.get("tested"))
        with taking_apart(*_UNWRITTEN):
            sealed = writing.answer_entry(
                sequence=sequence,
                query=query.canonical_bytes,
                values=values,
                source=source,
                error_bound=error_bound,
                unverified=bool(record.get("unverified", False)),
                recorded_at=recorded_at,
                previous_hash=self.head,
                measurement=record.get("measurement"),
                tested=tested,
                target=record.get("wish"),
                asked=asked,
            )
        return sealed, query, NOTHING

    def _released(self, session: Session, measured: Measured | None, sequence: int) -> None:
        """Hold a measurement of a release against the next one that was due."""
        if measured is None or not isinstance(session.plan, WorkloadPlan) or session.state.forfeits:
            raise _Broken("a release stands where none is due, or without what it measured", sequence)
        plan, place = session.plan, session.updates_used
        if not plan.in_rounds or self._still_due(session):
            self._due_at_opening(session, measured, sequence)
        elif session.updates_left > 0 and plan.admits(place, measured.measurement, measured.price):
            # Whether what a round chose led to it cannot be told, with the data neither, as it was drawn.
            session.pin(measured)
            self._pay(measured.price)
        else:
            raise _Broken("a measurement is none that a round could have made", sequence)
        session.count_release()
        self.counts["measurement"] += 1

    def _asked(self, session: Session, query: Query, record: dict[str, Any], sequence: int) -> bytes | None:
        """The question in the words that an entry has for it, in canonical bytes; None where it has none.

        What is asked must be what was answered.
        """
        if "asked" not in record:
            return None
        asked, told = record["asked"], writing.words(record["asked"])
        if told is None or not isinstance(asked, dict) or not WANTED.isdisjoint(asked):
            raise _Broken("the question as asked is none that an entry keeps", sequence)
        meant, space = None, session.dataset.space
        with suppress(CuratorError):
            words = parse_query(asked)
            self._afford(_LINE_FACTOR * len(told) + _ASKED_BYTES * words.looked_at(space), sequence)
            meant = words.compiled(space)
        if meant is None or meant.canonical_bytes != query.canonical_bytes:
            raise _Broken("the question as asked does not compile to the recorded query", sequence)
        return told

    def _pay(self, price: Amounts) -> None:
        self.spent, self.price = self.spent.plus(price), price

    def _check_forfeit(self, session: Session, price: Amounts, sequence: int) -> None:
        """Refuse a round that was lost and cost nothing, or of a contract another price than all of its rounds."""
        if not price.renyi:
            raise _Broken("a round that was begun costs nothing", sequence)
        mechanism = session.mechanism
        if isinstance(mechanism, ContractMechanism):
            left = session.plan.holds.minus(self.spent)
            if price != mechanism.price.within(left):
                raise _Broken("a forfeit has another price than the plan's", sequence)

    def _affordable(self, session: Session, price: Amounts, sequence: int) -> Amounts:
        """A price that the session can still pay."""
        try:
            session.plan.holds.minus(self.spent.plus(price))
        except PrivacyError:
            raise _Broken("a price passes what the session holds", sequence) from None
        return price

    def _answer(
        self, session: Session, query: Query, record: dict[str, Any], measured: Measured | None, sequence: int
    ) -> None:
        values, source, bound = records.values_of(record), record["source"], record["error_bound"]
        unverified = bool(record.get("unverified", False))
        told = [0 if value is None and isinstance(query, CompiledStatistic) else value for value in values]
        if any(type(number) not in (int, float) for number in (*told, 0 if bound is None else bound)):
            raise _Broken("a value or bound is no number", sequence)
        if len(values) != query.numbers:
            raise _Broken("the answer has more or fewer values than the query asks for", sequence)
        most = math.ldexp(1, 63 - session.bits(query))
        if any(abs(value) >= most for value in told):
            raise _Broken("the value does not lie on the answer grid", sequence)
        units = session.units(query, values)
        if session.values(query, units) != values:
            raise _Broken("the value does not lie on the answer grid", sequence)
        tested = record.get("tested")
        try:
            target = _target(record.get("wish"))
            # What was recorded was decided with numbers whose last digits may have been others.
            slack = 0.0
            if measured is not None or tested is not None:
                slack = _NEAR
            elif source == "estimate":
                slack = -_NEAR
            due = session.consider(query, unverified=unverified, target=target, slack=slack)
        except CuratorError as error:
            raise _Broken(f"no answer was due: {error.code}", sequence) from None
        unit = session.real(1)
        if tested is not None and not isinstance(due, MarginalTest):
            raise _Broken("the answer tells a test that was not due", sequence)
        if isinstance(due, MarginalTest):
            tested_of = None if tested is None else np.array(_tested(tested), np.int64)
            due = self._tested_answer(session, query, due, measured, tested_of, sequence)
            if source != due.source:
                raise _Broken("the answer claims a source that it cannot have", sequence)
            _check_near(session, query, units, due, target, sequence)
            answer = replace(due, units=units)
            self._check_bound(session, query, answer, bound, sequence)
            session.record(query, replace(answer, error_bound=bound))
            if measured is not None:
                self.learnt.learn(query.digest, values)
            self.counts[source] += 1
            return
        if isinstance(due, Test):
            gap = values[0] - session.real(int(due.hypothesis[0]))
            threshold = session.real(due.threshold)
            if source == "hypothesis":
                if abs(gap) > unit:
                    raise _Broken("the answer is not the hypothesis' own", sequence)
            elif source != "measurement":
                raise _Broken("the answer claims a source that it cannot have", sequence)
            elif abs(gap) <= threshold - unit:
                raise _Broken("a measurement lies within the threshold", sequence)
        elif isinstance(due, Measure):
            if source != "measurement":
                raise _Broken("the answer claims a source that it cannot have", sequence)
            if measured is not None:
                raise _Broken("the answer lacks a measurement, or has one that was not due", sequence)
        elif isinstance(due, Buy):
            if source != "measurement":
                raise _Broken("the answer claims a source that it cannot have", sequence)
            if measured is None:
                raise _Broken("the answer lacks a measurement, or has one that was not due", sequence)
            answer = self._measured_answer(session, query, due, measured, sequence)
            _check_near(session, query, units, answer, target, sequence)
            if bound is not None:
                raise _Broken("the error bound is missing or too much", sequence)
            session.record(query, replace(answer, units=units))
            self.learnt.learn(query.digest, values)
            self.counts[source] += 1
            return
        elif measured is not None:
            raise _Broken("the answer has a measurement that was not due", sequence)
        elif due.source == "estimate" == source:
            _check_near(session, query, units, due, target, sequence)
            if due.error_bound is not None:
                self._check_bound(session, query, replace(due, units=units), bound, sequence)
                due = replace(due, error_bound=bound)
        else:
            if source != due.source:
                raise _Broken("the answer claims a source that it cannot have", sequence)
            if max(abs(a - b) for a, b in zip(units.tolist(), due.units.tolist(), strict=True)) > (source != "cached"):
                raise _Broken("the answer is not the one that was due", sequence)
        # What rounding the weights added as they were asked is not told: it is none, or up to what it can be.
        if (bound is None) != (due.error_bound is None):
            raise _Broken("the error bound is missing or too much", sequence)
        if bound is not None and due.error_bound is not None:
            if bound < due.error_bound:
                raise _Broken("the error bound is smaller than the plan's", sequence)
            mechanism = session.mechanism
            most = mechanism.largest_bound(query) if isinstance(mechanism, PlannedMechanism) else 0.0
            if bound > max(due.error_bound, most):
                raise _Broken("the error bound is larger than the plan's", sequence)
        session.record(query, Answer(units, source, bound, unverified))
        if source == "measurement":
            self.learnt.learn(query.digest, values)
        self.counts["unverified" if unverified else source] += 1

    def _trailer(self, session: Session, line: bytes, record: dict[str, Any]) -> None:
        if self.waiting is not None:
            raise _Broken("weights that no entry names", self._next())
        if self.measured is not None:
            raise _Broken("a measurement that no entry names", self._next())
        if self.releases and session.sequence and session.updates_left and not session.state.forfeits:
            raise _Broken("the release lacks a measurement that was due", self._next())
        if not _is_canonical(record, line):
            raise _Broken("the trailer is not canonical")
        if set(record) | {"log_size"} != _TRAILER or record["status"] not in _STATUS:
            raise _Broken("the trailer has other fields than a session's")
        log_size = record.get("log_size")
        # The header is in the log, too.
        if log_size is not None and (type(log_size) is not int or log_size <= session.sequence):
            raise _Broken("the trailer names a log that cannot hold the entries")
        sealed = writing.trailer(
            entries=session.sequence,
            head_hash=self.head,
            hypothesis_digest=self.learnt.hexdigest(),
            updates=session.updates_used,
            status=record["status"],
            log_size=log_size,
            logged="log_size" in record,
        )
        for name, due in forms.parse(sealed).items():
            if not _same(record[name], due):
                raise _Broken(_TOLD[name])
        self.status, self.ended = record["status"], True

    @property
    def paid(self) -> Amounts:
        """The session's spending in all."""
        assert self.session is not None
        session, plan = self.session, self.session.plan
        if not isinstance(plan, Plan):
            return self.spent
        paid = plan.price.times(session.updates_used)
        return paid if plan.purchase is None else plan.purchase.price.plus(paid)

    def verdict(self) -> Verdict:
        session = self.session
        if session is None:
            raise _Broken("the file is empty")
        if not self.ended:
            raise _Broken("the trailer is missing", self._next())
        if self.least is not None and session.sequence < self.least:
            raise _Broken(f"there are {session.sequence:,} entries, where {self.least:,} were told: the end is cut off")
        if self.met == -1 or (self.met is not None and self.least is not None and self.met != self.least):
            raise _Broken("the hash that was kept is not there: what stood up to it is cut off or was rewritten")
        plan = session.plan
        paid = self.paid
        return Verdict(
            True,
            {
                "session": self.name,
                "status": self.status,
                "dataset": session.dataset.spec.name,
                "entries": session.sequence,
                "queries": session.queries_asked,
                "updates": session.updates_used,
                "max_updates": plan.max_updates,
                **{f"{source}_answers": count for source, count in self.counts.items()},
                "error_bound": plan.error_bound,
                "beta": plan.beta,
                "spent_epsilon": _part(plan, paid),
                "reserved_epsilon": float(plan.epsilon),
                "spent": str(paid.renyi),
                "reserved": str(plan.reserved),
                "spent_pure": None if plan.reserved_pure is None else str(paid.pure),
                "reserved_pure": None if plan.reserved_pure is None else str(plan.reserved_pure),
                "head_hash": self.head,
                "hypothesis_digest": self.learnt.hexdigest(),
                **({} if self.met is None else {"kept_head_at": self.met}),
                **({"dummy": True} if session.opening.request.dummy else {}),
            },
        )

    def _tested_answer(
        self,
        session: Session,
        query: Query,
        due: MarginalTest,
        measured: Measured | None,
        tested: Units | None,
        sequence: int,
    ) -> Answer:
        """The answer that follows from a test: its measurement or the counts that it found near, which are held against
        those that were due.
        """
        if (measured is None) == (tested is None):
            raise _Broken("a test tells either what it measured or the counts that it found near", sequence)
        assert due.expected is not None
        error = due.expected[1]
        if measured is not None:
            release, buy = measured.table, due.purchase
            if (release.strategy, release.noise, measured.price) != (buy.strategy, buy.noise, buy.price):
                raise _Broken("the measurement is not the one that was due", sequence)
            self._pay(self._affordable(session, measured.price, sequence))
            expected = self._expected(measured, due.expected, sequence)
            assert expected is not None
            told = replace(due, expected=expected)
            return session.apply(query, told, release.units)
        assert tested is not None
        # Whole counts next to those that follow, whose last digits may have been others.
        apart = 1 + math.ldexp(_NEAR_ANSWER * error, -session.plan.answer_bits)
        if len(tested) != len(due.counts) or int(np.abs(tested - due.counts).max()) > apart:
            raise _Broken("the counts that were tested do not follow", sequence)
        return session.apply(query, replace(due, counts=tested), None)

    @staticmethod
    def _check_bound(session: Session, query: Query, answer: Answer, bound: Any, sequence: int) -> None:
        """Hold a recorded error bound against the one that follows for the recorded values."""
        assert isinstance(session.mechanism, ContractMechanism)
        assert isinstance(session.state, Evidence)
        due = session.mechanism.bound_of(session.state, query, answer)
        if bound is None or abs(bound - due) > 2 * session.real(1):
            raise _Broken("the error bound does not follow", sequence)

    @staticmethod
    def _expected(measured: Measured, due: tuple[Units, int] | None, sequence: int) -> tuple[Units, int] | None:
        """Hold the prediction of a question against the one that follows, to a small part of its standard error; None
        of a statistic.
        """
        if due is None is measured.expected:
            return None
        if measured.expected is None or due is None or len(measured.expected[0]) != len(due[0]):
            raise _Broken("what was expected is not told", sequence)
        error = due[1]
        apart = max(abs(a - b) for a, b in zip(measured.expected[0].tolist(), due[0].tolist(), strict=True))
        if apart > _NEAR_ANSWER * error + 1 or abs(measured.expected[1] - error) > _NEAR * error + 1:
            raise _Broken("what was expected does not follow", sequence)
        return measured.expected

    def _measured_answer(self, session: Session, query: Query, due: Buy, measured: Measured, sequence: int) -> Answer:
        """The answer that follows from a measurement, which is held against the one that was due."""
        release, buy = measured.measurement, due.purchase
        noise, unit = release.noise, buy.added
        near = abs(Fraction(noise.scale) - Fraction(unit.scale)) <= Fraction(_NEAR) * Fraction(unit.scale)
        same = release.strategy == buy.strategy and isinstance(noise, Noise) and noise.bits == unit.bits
        if not same or noise.kind != unit.kind or not near:
            raise _Broken("the measurement is not the one that was due", sequence)
        told = session.opening.dataset.purchase(buy.strategy, noise)
        if measured.price != told.price:
            raise _Broken("the measurement's cost is not that of its noise", sequence)
        self._pay(self._affordable(session, measured.price, sequence))
        expected = self._expected(measured, due.expected, sequence)
        due = replace(due, purchase=told, expected=expected)
        return session.apply(query, due, release.units.astype(np.int64, copy=False))


def _part(plan: SessionPlan, paid: Amounts) -> float:
    """A payment as a part of the session's epsilon, in the sum that this is a share of."""
    if plan.regime == "pure" and paid.pure is not None:
        return float(paid.pure)
    if not paid.renyi:  # all there is of a session without a share
        return 0.0
    return float(Fraction(plan.epsilon) * Fraction(paid.renyi) / Fraction(plan.reserved))


def _check_space(session: Session, measured: Measured, sequence: int | None) -> None:
    """Refuse a measurement that the data set's space has not."""
    try:
        with taking_apart(ValueError):
            measured.measurement.strategy.check(session.dataset.space)
    except Malformed:
        raise _Broken("a measurement is none that this data set has", sequence) from None


def _tested(told: Any) -> list[int] | None:
    """The counts that an entry says were tested.

    Raises:
        TypeError: when they are no whole numbers.
        ValueError: when they pass 62 bits.
    """
    if told is None:
        return None
    if not isinstance(told, list) or any(type(count) is not int for count in told):
        raise TypeError("counts are whole numbers")
    if any(abs(count) > GREATEST_ANSWER for count in told):
        raise ValueError("a count has at most 62 bits")
    return told


def _target(told: Any) -> Target:
    """The accuracy that an entry says was asked for.

    Raises:
        InvalidRequest: when it says none that can be asked for.
    """
    if told is None:
        return NO_TARGET
    within, confidence, adaptive = told.get("within"), told.get("confidence"), told.get("adaptive")
    given = [number for number in (within, confidence) if number is not None]
    named = len(given) + (adaptive is True)
    if not named or named != len(told) or any(type(number) not in (int, float) for number in given):
        raise InvalidRequest("no such accuracy can be asked for")
    if (within is not None and not 0 < within < math.inf) or (confidence is not None and not 0 < confidence < 1):
        raise InvalidRequest("no such accuracy can be asked for")
    return Target(within, confidence, adaptive is True)


def _check_near(session: Session, query: Query, units: Units, answer: Answer, target: Target, sequence: int) -> None:
    """Hold recorded values against those that follow, to a small part of their standard error.

    A fit is found to a tolerance, and its last digits differ between machines.
    """
    known = session.accuracy(query, answer, target)
    assert known is not None
    if not np.array_equal(units == NO_VALUE, answer.units == NO_VALUE):
        raise _Broken("there is a value where none follows, or none where one does", sequence)
    apart = np.where(units == NO_VALUE, 0, np.abs(units - answer.units) - 1)
    allowed = np.ldexp(np.nan_to_num(known.standard_errors) * _NEAR_ANSWER, session.bits(query))
    if bool((apart > allowed).any()):
        raise _Broken("the answer does not follow from what was measured", sequence)


def _verdict(state: Replaying, lines: Iterable[bytes]) -> Verdict:
    try:
        # A hypothesis of made-up facts may overflow: that is told by what follows, not by warnings.
        with np.errstate(all="ignore"):
            for line in lines:
                state.line(line)
            return state.verdict()
    except _Broken as broken:
        return Verdict(False, {}, broken.problem, broken.sequence)
    except (OSError, Unfollowed):
        raise
    except Exception as error:
        raise Undecided(error, state._next()) from error


def replay(
    lines: Iterable[bytes],
    *,
    head: str | None = None,
    entries: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Verdict:
    """Check a transcript line by line.

    Args:
        lines: as they stand in the file, with or without their ends.
        head: an ``entry_hash`` or ``head_hash`` that was kept while the session ran. It must be the hash of the header
            or of an entry, so that all up to there is as it was.
        entries: how many there were then, at least; of both, the number of the entry that has the hash.
        memory_limit: most bytes to hold.

    Raises:
        Undecided: when the replay itself fails.
    """
    return _verdict(Replaying(head, entries, memory_limit), lines)


def replay_stream(
    file: BinaryIO,
    heard: Callable[[int], None] | None = None,
    *,
    head: str | None = None,
    entries: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    watch: Watch | None = None,
) -> Verdict:
    """Check a transcript that somebody opened as :func:`replay` does; ``heard`` hears of how many bytes more were read,
    ``watch`` of each record but weights once it was found to follow.

    Raises:
        OSError: when the file cannot be read.
        Unfollowed: as ``watch`` does.
        Undecided: when the replay itself fails.
    """
    state = Replaying(head, entries, memory_limit, watch)

    def lines() -> Iterator[bytes]:
        while line := file.readline(state.longest + 2):
            if heard is not None:
                heard(len(line))
            yield line

    # As the server computes: sums in the same order, and no threads that wait for each other over small matrices.
    with threadpool_limits(1, "blas"):
        return _verdict(state, lines())
