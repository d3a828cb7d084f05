"""Answering: one round after another, each durable before its reply.

A session belongs to one lane, a thread that takes turns. A lane takes all requests that wait, answers them one by
one in memory, writes what they did in one transaction, commits, and only then replies (a group commit: each answer
is its own record). Small universes share one lane; sessions over large ones have lanes of their own, so that a
heavy update keeps nobody else waiting.

What holds (tests name these rules):

1. Public facts and queue are checked before noise is taken, and that the data set's private file is what was
   registered; all memory that a hit would take is taken. A request refused there leaves no trace.
2. Once noise is taken the round is finished and recorded, whoever has hung up. A failed commit is tried again with
   the same outcome until the database takes it; the lane answers nothing else of these sessions meanwhile.
3. If another process has moved the session in between, the outcome no longer stands on the recorded state. It is
   dropped unseen and charged: a forfeit, which counts as a hit.
4. With several processes the session's row is the lock, held from before the noise to the commit; a lane whose
   state is behind catches up from the transcript first. A row that another process keeps holding is not waited for
   where others could be answered: its session's requests are put aside and tried again.
5. Nobody waits for a long batch of another: it is one commit, and answered in slices between which others have their
   turn. Its session answers nothing else meanwhile.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, Protocol

import orjson
import structlog

from app.audit import records
from app.audit.replay import opening_of
from app.curator.errors import SessionClosed
from app.curator.oqr import Hit, Miss, play, race
from app.curator.session import Answer, RoundDue, construction_of
from app.services.errors import NotFound, PayloadTooLarge, QueueFull, Unavailable
from app.services.loading import last_recorded
from app.services.ports import (
    Clock,
    EntryRow,
    LedgerRow,
    NoisePort,
    PrivateStore,
    ReplyName,
    ReplyRow,
    SessionRow,
    Snapshots,
    Store,
    Transaction,
    WeightsRow,
)
from app.services.principals import Principal
from app.services.residents import UPDATES_AHEAD, Live, NoRoom, Residents
from app.services.sessions import SESSION_ID, session_view
from app.services.turns import Aside, Ticket, Turns
from app.spaces.errors import CuratorError, InvalidQuery
from app.spaces.query import Query
from app.spaces.query_request import parse_query

log = structlog.get_logger(__name__)

#: Bytes of a hypothesis from which a session has a lane apart from the common one.
HEAVY_BYTES = 1 << 21
HEAVY_LANES = 2
#: Sessions whose owner and lane are remembered; of others they are read again.
PLACES = 1 << 16
#: Noise values drawn at a time.
NOISE_BLOCK = 1024
#: Longest canonical form, or dense weights, of a query that is answered: what no database gives back cannot be
#: recorded. SQLite has rows of up to a billion bytes; PostgreSQL sends bytes as twice as many digits, of which it makes
#: a gigabyte at most.
RECORD_BYTES = 500_000_000
#: How long one group keeps others waiting: then a long batch pauses, and what was not begun waits for the next group.
SLICE_SECONDS = 0.05
#: Long batches that a lane has under way at a time, of different principals.
LONG_BATCHES = 4
#: How often a lane looks whether other processes have closed sessions that it holds in memory.
LOOK_SECONDS = 5.0
#: How long after a turn a lane waits, at most, for those it has answered to ask again.
GATHER_SECONDS = 0.001
#: How long a turn waits for rows that another process holds: longer than turns take, which then follow one another as
#: they come.
PATIENCE_SECONDS = 0.1
_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class DenseBody:
    """A dense query that came as an array."""

    weights: Any
    unverified: bool = False


class Meter(Protocol):
    """Counts what may be counted: public outcomes and durations."""

    def answered(self, source: str, number: int) -> None: ...
    def group(self, size: int, seconds: float) -> None: ...
    def commit_failed(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Work:
    """What a group of requests did, to be written in one transaction.

    ``now`` is the one time of all its records. It is taken before anything private is looked at: a clock that is read
    between two records tells how long the first one took.
    """

    now: str
    base: dict[str, SessionRow] = field(default_factory=dict)
    rows: dict[str, SessionRow] = field(default_factory=dict)
    entries: list[EntryRow] = field(default_factory=list)
    weights: list[WeightsRow] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    replies: dict[ReplyName, ReplyRow] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    files: dict[str, Unavailable | None] = field(default_factory=dict)
    #: The transactions by which it was tried to write this.
    tried: list[str] = field(default_factory=list)
    done: list[Ticket] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.rows and not self.replies

    def store(self, tx: Transaction) -> None:
        """Put everything into a transaction and commit it."""
        if tx.name is not None:
            self.tried.append(tx.name)
        with tx.together():
            if self.entries:
                tx.append(self.entries, self.weights)
            if self.rows:
                tx.move_sessions(list(self.rows.values()))
            if self.ledger:
                tx.move_ledger(self.ledger)
            if self.replies:
                tx.add_replies(list(self.replies.values()))
            tx.commit()


@dataclass(slots=True, eq=False)
class _Paused:
    """A long batch between two slices: what its turn has done and has still to do, and who waits for its session."""

    ticket: Ticket
    work: _Work
    steps: Iterator[None]
    behind: list[Ticket]


class _Enough(Exception):
    """A group has had its time: what was not begun of it waits for the next one."""


class _Unfinished(Exception):
    """A refusal that came after the noise: from there on it is an error like any other, and charged."""


class Answering:
    """The lanes, and the way into them."""

    def __init__(
        self,
        store: Store,
        private: PrivateStore,
        noise: NoisePort,
        snapshots: Snapshots,
        clock: Clock,
        meter: Meter,
        *,
        render: Callable[[CuratorError], dict[str, Any]],
        deliver: Callable[[list[Ticket]], None],
        defer: Callable[[Callable[[], None]], None],
        queue_limit: int,
        memory_limit: int,
        turn_seconds: float,
    ) -> None:
        self.store, self.private, self.noise, self.clock, self.meter = store, private, noise, clock, meter
        self.snapshots = snapshots
        self.render, self.deliver, self.defer = render, deliver, defer
        self._queue_limit, self._turn_seconds = queue_limit, turn_seconds
        self._lanes = [_Lane(self, f"lane-{i}", memory_limit // (1 + HEAVY_LANES)) for i in range(1 + HEAVY_LANES)]
        self._outboxes: list[list[Ticket]] = [[] for _ in self._lanes]
        self._places: dict[str, tuple[str, int]] = {}
        self._waiting: dict[str, int] = {}
        self._lock = threading.Lock()
        self.refills: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._refiller = threading.Thread(target=self._refill, name="noise", daemon=True)

    def start(self) -> None:
        """Start the lanes."""
        self._refiller.start()
        for lane in self._lanes:
            lane.start()

    def stop(self, seconds: float) -> None:
        """Finish what waits, as far as the time allows; take nothing more."""
        for number, lane in enumerate(self._lanes):
            self._send(number)
            lane.inbox.put(None)
        deadline = time.monotonic() + seconds
        for lane in self._lanes:
            lane.join(max(0.0, deadline - time.monotonic()))
        self.refills.put(None)

    @property
    def stalled(self) -> bool:
        """Whether some lane waits for a commit that keeps failing."""
        return any(lane.stalled for lane in self._lanes)

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn or are being answered."""
        with self._lock:
            return sum(self._waiting.values())

    @property
    def residents(self) -> tuple[int, int]:
        """Sessions in memory, and the bytes accounted to them."""
        found = [lane.residents for lane in self._lanes]
        return sum(map(len, found)), sum(each.held for each in found)

    def _refill(self) -> None:
        while (block := self.refills.get()) is not None:
            block.refill()

    def place(self, actor: Principal, id: str) -> tuple[str, int]:
        """(owner, lane) of a session the actor owns.

        Raises:
            NotFound: when there is none, or it is somebody else's.
        """
        known = self._places.get(id)
        if known is None:
            row = self._find(id)
            dataset, request, plan = opening_of(orjson.loads(row.header))
            nbytes = construction_of(dataset, request, plan).nbytes(min(plan.max_updates, UPDATES_AHEAD))
            lane = 0 if nbytes < HEAVY_BYTES else 1 + int(id[:8], 16) % HEAVY_LANES
            known = (row.owner, lane)
            with self._lock:
                while len(self._places) >= PLACES:
                    del self._places[next(iter(self._places))]
                self._places[id] = known
        if known[0] != actor.name:
            raise NotFound("there is no such session of yours")
        return known

    def _find(self, id: str) -> SessionRow:
        row = None
        if SESSION_ID.fullmatch(id):
            with self.store.read() as tx:
                row = tx.session(id)
        if row is None:
            raise NotFound("there is no such session of yours")
        return row

    def knows(self, id: str) -> bool:
        """Whether a request for this session can be queued without asking the database."""
        return id in self._places

    def submit(self, actor: Principal, ticket: Ticket) -> None:
        """Put a request of the session's owner into its lane's queue.

        Raises:
            NotFound: when the session is not the actor's.
            QueueFull: when too many wait already.
        """
        if ticket.kind == "close" and actor.role == "admin":
            owner = self._find(ticket.session).owner
            lane = self.place(Principal(owner, "analyst"), ticket.session)[1]
        else:
            lane = self.place(actor, ticket.session)[1]
        with self._lock:
            waiting = self._waiting.get(ticket.session, 0)
            # The service's own closing of a retired data set's sessions has no actor, and is never turned away.
            if waiting >= self._queue_limit and ticket.actor:
                raise QueueFull("too many requests wait for this session's turn: send again a little later")
            self._waiting[ticket.session] = waiting + 1
            outbox = self._outboxes[lane]
            outbox.append(ticket)
            first = len(outbox) == 1
        if first:
            self.defer(lambda: self._send(lane))

    def _send(self, lane: int) -> None:
        """Hand a lane all that has come together for it: one wake-up, and one commit, for requests of one moment."""
        with self._lock:
            tickets, self._outboxes[lane] = self._outboxes[lane], []
        self._lanes[lane].inbox.put(tickets)

    def leave(self, tickets: Sequence[Ticket]) -> None:
        """Requests that are done no longer wait."""
        with self._lock:
            for ticket in tickets:
                left = self._waiting.get(ticket.session, 1) - 1
                if left:
                    self._waiting[ticket.session] = left
                else:
                    self._waiting.pop(ticket.session, None)

    def close_now(self, id: str, seconds: float | None = None) -> None:
        """Close a session in its own turn and wait for it so many seconds; where none are named, as long as clients do.

        Raises:
            Unavailable: when its turn has not come by then. It is closed all the same when it comes.
        """
        done = threading.Event()
        ticket = Ticket("close", id, "", waiter=done)
        self.submit(Principal("", "admin"), ticket)
        if not done.wait(self._turn_seconds if seconds is None else seconds):
            raise Unavailable("a session of the data set has not had its turn to close: send the request again")
        if ticket.error is not None and not isinstance(ticket.error, SessionClosed):
            raise ticket.error


class _Lane(threading.Thread):
    """One thread that answers the sessions given to it, in groups."""

    def __init__(self, service: Answering, name: str, memory_limit: int) -> None:
        super().__init__(name=name, daemon=True)
        self.service = service
        self.inbox: queue.SimpleQueue[list[Ticket] | None] = queue.SimpleQueue()
        self.stalled = False
        self.residents = Residents(service.private, service.noise, service.snapshots, memory_limit)
        self._turns, self._aside = Turns(), Aside()
        #: Long batches under way, by session.
        self._paused: OrderedDict[str, _Paused] = OrderedDict()
        self._stopping = False
        self._expected, self._until = 0, 0.0
        self._look_at = 0.0

    def run(self) -> None:
        """Answer until told to stop and nothing waits."""
        while True:
            group = self._gather()
            if self._stopping and not group and not self._paused:
                break
            if group:
                self._begin(group)
            self._go_on()
            self._forget_closed()
            while not self.inbox.empty():
                self._arrive(self.inbox.get())
            # Whoever has just been answered is likely to ask again at once.
            self._expected = len(group) + len(self._turns)
            self._until = time.perf_counter() + GATHER_SECONDS
        self._refuse_aside()
        self.residents.leave()

    def _forget_closed(self) -> None:
        """Drop what other processes have closed: nobody asks for it again, and so it would never leave."""
        if self.service.store.exclusive or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        try:
            with self.service.store.read() as tx:
                self.residents.forget_closed(tx, self._unwritten())
        except Exception as error:  # noqa: BLE001 - nothing ends a lane: there is a next time
            log.warning("closed sessions could not be looked for", error=type(error).__name__)

    def _refuse_aside(self) -> None:
        """At the end nothing is waited for any more. Nothing of these was begun."""
        tickets = self._aside.clear()
        for ticket in tickets:
            ticket.error = Unavailable("the session is held by another process: send the request again")
        self.service.leave(tickets)
        self.service.deliver(tickets)

    def _gather(self) -> list[Ticket]:
        """Wait for requests and take a group of them; an empty one when there is something else to do.

        Right after a turn the answered clients are given a moment to come back: two turns that overlap cost more than
        one, and all of them wait for the same disk.
        """
        while True:
            waiting = len(self._turns)
            if not self.inbox.empty():
                self._arrive(self.inbox.get())
                continue
            again = [] if self._stopping else self._aside.try_again()
            if again or self._stopping or self._paused:
                return again + self._turns.take(self._may_begin)
            seconds = self._aside.seconds
            if not self.service.store.exclusive:
                seconds = LOOK_SECONDS if seconds is None else min(seconds, LOOK_SECONDS)
            if waiting:
                left = self._until - time.perf_counter()
                if waiting >= self._expected or left <= 0:
                    return self._turns.take()
                seconds = left
            try:
                self._arrive(self.inbox.get(timeout=seconds))
            except queue.Empty:
                if waiting or not self._aside:
                    return self._turns.take()

    def _arrive(self, tickets: list[Ticket] | None) -> None:
        if tickets is None:
            self._stopping = True
            return
        for ticket in tickets if self._paused else ():
            if ticket.session in self._paused:
                self._paused[ticket.session].behind.append(ticket)
        others = [ticket for ticket in tickets if ticket.session not in self._paused]
        if self._aside:
            self._aside.put([ticket for ticket in others if ticket.session in self._aside])
            others = [ticket for ticket in others if ticket.session not in self._aside]
        self._turns.add(others)

    # ------------------------------------------------------------------ long batches

    def _may_begin(self, ticket: Ticket) -> bool:
        """Whether a long batch may be begun beside those under way."""
        under_way = {paused.ticket.actor for paused in self._paused.values()}
        return len(under_way) < LONG_BATCHES and ticket.actor not in under_way

    def _begin(self, group: list[Ticket]) -> None:
        """Answer a group; of a long batch, which is a group of its own, the first slice."""
        work = _Work(self.service.clock())
        steps = self._turn(group, work)
        for _ in steps:
            ticket = group[0]
            # What else is asked of the session waits for the batch.
            behind = self._turns.withdraw(ticket.session)
            self._paused[ticket.session] = _Paused(ticket, work, steps, behind)
            return

    def _go_on(self) -> None:
        """One more slice of the long batch whose last one is longest ago."""
        if not self._paused:
            return
        session, paused = self._paused.popitem(last=False)
        for _ in paused.steps:
            self._paused[session] = paused
            return
        self._turns.add(paused.behind)

    def _unwritten(self, work: _Work | None = None) -> Container[str]:
        """Sessions with answers that are not written yet, those of a turn among them."""
        base = () if work is None else work.base
        if not self._paused:
            return base
        return {*base, *(id for paused in self._paused.values() for id in paused.work.base)}

    # ------------------------------------------------------------------ a turn

    def _turn(self, group: list[Ticket], work: _Work) -> Iterator[None]:
        """Answer a group, commit, and reply; yields between the slices of a long batch."""
        started = time.perf_counter()
        try:
            yield from self._answer(group, work)
        except Exception as error:  # noqa: BLE001 - nothing ends a lane: what was begun is charged
            log.error("answering failed", error=type(error).__name__)
            self._abandon(work)
            for ticket in group:
                if ticket.reply is None and ticket.error is None:
                    ticket.error = Unavailable("the answer could not be made: send the request again")
        if not group:  # all of it was put aside
            return
        service = self.service
        service.leave(group)
        service.deliver(group)
        for source, number in Counter(work.sources).items():
            service.meter.answered(source, number)
        service.meter.group(len(group), time.perf_counter() - started)
        try:
            self.residents.rest(work.base, self._unwritten())
        except Exception as error:  # noqa: BLE001 - nothing ends a lane: what is in memory follows from the transcript
            log.error("states could not be kept", error=type(error).__name__)
            for id in work.base:
                self.residents.drop(id)

    def _answer(self, group: list[Ticket], work: _Work) -> Iterator[None]:
        """Play the group in one transaction and commit it."""
        store = self.service.store
        if store.exclusive:
            # What this process remembers is what is stored: nothing is held while computing, and a turn that
            # needs nothing from the database reads nothing.
            with _Reading(store) as begin:
                for _ in self._play(begin, group, work):
                    begin.end()  # a view of the database that lasts keeps its log from being cleared
                    yield
            if not work.empty:
                self._commit(work)
            return
        played = False
        try:
            with store.write() as tx:
                yield from self._play(lambda: tx, group, work)
                played = True
                if not work.empty:
                    work.store(tx)
        except Exception as error:
            if not played:
                raise
            if not work.empty:
                self._failed(error)
                self._commit(work)

    def _failed(self, error: BaseException) -> None:
        self.service.meter.commit_failed()
        log.warning("commit failed, keeping the outcome", error=type(error).__name__)

    def _commit(self, work: _Work, *, abandoned: bool = False) -> None:
        """Write the outcome until the database has it. Never draws afresh.

        Of ``abandoned`` work only the rounds are charged.
        """
        attempt = 0
        while True:
            try:
                with self.service.store.write() as tx:
                    if attempt or abandoned or not self.service.store.exclusive:
                        stored = tx.lock_sessions(sorted(work.base))
                        if self._is_written(work, tx, stored):
                            break
                        moved = set(stored) if abandoned else self._moved(work, tx, stored)
                        self._forfeit(work, tx, stored, moved)
                        abandoned = False
                    work.store(tx)
                break
            except Exception as error:  # noqa: BLE001 - the outcome is kept until it is stored
                self._failed(error)
                self.stalled = True
                time.sleep(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])
                attempt += 1
        self.stalled = False

    @staticmethod
    def _is_written(work: _Work, tx: Transaction, stored: dict[str, SessionRow]) -> bool:
        """Whether the failed commit had happened after all.

        All of it shares one fate, so one trace will do, of a kind that nobody changes afterwards: an entry, a
        reply, or the row of a closed session. Where others write, the database must also know the transaction: the
        same question that another process answered in the same second leaves the same trace.
        """
        if work.tried and not any(tx.happened(name) for name in work.tried):
            return False
        if work.entries:
            entry = work.entries[0]
            return tx.entry_lines(entry.session, entry.sequence - 1, 1) == [(entry.sequence, entry.line)]
        for reply in work.replies.values():
            name = reply.principal, reply.route, reply.key
            return tx.replies([name]).get(name) == reply
        return any(stored[id] == row for id, row in work.rows.items())

    @staticmethod
    def _moved(work: _Work, tx: Transaction, stored: dict[str, SessionRow]) -> set[str]:
        """Sessions that somebody else has moved or closed, or answered under a key of ours."""
        moved = {id for id, base in work.base.items() if stored[id] != base}
        taken = tx.replies(list(work.replies))
        return moved | {t.session for t in work.done if t.key is not None and t.key.name in taken}

    def _forfeit(self, work: _Work, tx: Transaction, stored: dict[str, SessionRow], moved: set[str]) -> None:
        """Rewrite the work of these sessions: each round played is charged as a hit, and nothing else remains."""
        # Read before anything is rewritten: should the database fail here, the next try begins with whole work.
        times = {id: max(work.now, last_recorded(tx, stored[id])) for id in moved}
        for id in moved:
            work.entries = [e for e in work.entries if e.session != id]
            work.weights = [w for w in work.weights if w.session != id]
            work.ledger = [entry for entry in work.ledger if entry.session != id]
            self.residents.drop(id)
            row = stored[id]
            work.base[id] = row
            work.rows.pop(id, None)
            # The number of rounds is kept: should the session move once more, they are charged there.
            for _ in range(work.rounds.get(id, 0)):
                row = self._charge_forfeit(work, row, times[id])
            if row is not stored[id]:
                work.rows[id] = row
        for ticket in work.done:
            if ticket.session in moved:
                ticket.reply = None
                ticket.error = Unavailable("the answer could not be stored: send the request again")
                if ticket.key is not None:
                    work.replies.pop(ticket.key.name, None)

    def _charge_forfeit(self, work: _Work, row: SessionRow, now: str) -> SessionRow:
        plan = orjson.loads(row.header)["plan"]
        if row.updates_used >= plan["max_updates"] or row.status != "open":
            return row
        cost = Decimal(plan["cost_per_update"])
        sequence = row.sequence + 1
        sealed = records.forfeit_entry(sequence=sequence, recorded_at=now, previous_hash=row.head_hash)
        work.entries.append(EntryRow(row.id, sequence, "forfeit", None, None, None, sealed.line))
        work.ledger.append(LedgerRow(row.dataset, row.id, "charge", str(cost), sequence, now))
        return replace(
            row,
            sequence=sequence,
            updates_used=row.updates_used + 1,
            spent=str(Decimal(row.spent) + cost),
            reserved=str(Decimal(row.reserved) - cost),
            head_hash=sealed.entry_hash,
        )

    def _abandon(self, work: _Work) -> None:
        """After an unforeseen error: forget the group's state in memory and charge the rounds it had begun."""
        for id in work.base:
            self.residents.drop(id)
        if any(work.rounds.values()):
            self._commit(work, abandoned=True)
            return
        for ticket in work.done:
            ticket.reply, ticket.error = None, Unavailable("the answer could not be stored: send the request again")

    # ------------------------------------------------------------------ playing, in memory

    def _play(self, begin: Callable[[], Transaction], group: list[Ticket], work: _Work) -> Iterator[None]:
        until = time.perf_counter() + SLICE_SECONDS
        ids = sorted({ticket.session for ticket in group})
        if self.service.store.exclusive:
            missing = [id for id in ids if id not in self.residents]
            rows = begin().lock_sessions(missing) if missing else {}
        else:
            rows = self._take_rows(begin(), ids, group)
            self.residents.catch_up(begin(), rows)
        # After the lock: who held it may have answered one of these.
        names = [ticket.key.name for ticket in group if ticket.key is not None]
        given = begin().replies(names) if names else {}
        for number, ticket in enumerate(group):
            try:
                if number and (ticket.long or time.perf_counter() > until):
                    raise _Enough
                if ticket.long and len(group) > 1:  # tried again with others, after it had been put aside
                    self._turns.put_back(group[1:])
                    del group[1:]
                yield from self._one(begin, ticket, rows, given, work)
            except (NoRoom, _Enough):
                self._turns.put_back(group[number:])
                del group[number:]
                return
            except CuratorError as error:
                # Should the group be dropped, so is the refusal: it may follow from an outcome that nobody is told.
                ticket.error = error
                work.done.append(ticket)

    def _take_rows(self, tx: Transaction, ids: list[str], group: list[Ticket]) -> dict[str, SessionRow]:
        """Hold the rows of these sessions. What asks for those that another process keeps is put aside."""
        tried = [id for id in ids if id in self._aside]
        others = [id for id in ids if id not in self._aside]
        known = self.residents.rows(ids)
        if tried and (not others or self._aside.patient()):
            rows = tx.lock_sessions(ids, known, PATIENCE_SECONDS)
        else:
            rows = tx.lock_sessions(others, known, PATIENCE_SECONDS)
            rows |= tx.lock_sessions(tried, known, 0)
        for id in tried:
            if id in rows:
                self._turns.put_back(self._aside.had(id))
        lacking = [id for id in ids if id not in rows]
        if lacking:
            held = tx.existing_sessions(lacking)
            for ticket in group:
                if ticket.session in held:
                    if ticket.session in tried:
                        self._aside.put_back(ticket)
                    else:
                        self._aside.put([ticket])
            for id in held.difference(tried):
                self._aside.put(self._turns.withdraw(id))
            group[:] = [ticket for ticket in group if ticket.session not in held]
        return rows

    def _one(
        self,
        begin: Callable[[], Transaction],
        ticket: Ticket,
        rows: dict[str, SessionRow],
        given: dict[ReplyName, ReplyRow],
        work: _Work,
    ) -> Iterator[None]:
        key = ticket.key
        if key is not None:
            twin = work.replies.get(key.name)
            known = given.get(key.name) if twin is None else twin
            if known is not None:
                ticket.reply = key.reply(known)
                if twin is not None:
                    work.done.append(ticket)
                return
        row = work.rows.get(ticket.session) or rows.get(ticket.session)
        live = self.residents.get(ticket.session)
        if row is None and self.service.store.exclusive:
            # Not in memory any more when others of the group took its room.
            row = live.row if live is not None else begin().lock_sessions([ticket.session]).get(ticket.session)
        if row is None:
            raise NotFound("there is no such session of yours")
        if live is not None and live.row.sequence >= row.sequence and live.row.head_hash != row.head_hash:
            # It went back, as to a standby that lags. What was given cannot be recorded any more, nor gone on from.
            raise Unavailable("the database lacks answers of this session: an operator must look", retry_after=60)
        if row.status != "open":
            raise SessionClosed("the session is closed: open another")
        if ticket.kind == "close":
            ticket.reply = self._close(row, work)
        else:
            live = self.residents.load(begin, row, self._unwritten(work))
            self._check_file(live, work)
            if ticket.kind == "ask":
                ticket.reply = orjson.dumps(self._ask(live, ticket.queries[0], work))
            else:
                answers: list[bytes] = []
                yield from self._batch(begin, live, ticket, work, answers)
                ticket.reply = b'{"answers":[%b]}' % b",".join(answers)
        if key is not None:
            work.base.setdefault(row.id, row)
            work.replies[key.name] = key.row(200, ticket.reply, work.now)
        work.done.append(ticket)

    def _batch(
        self, begin: Callable[[], Transaction], live: Live, ticket: Ticket, work: _Work, answers: list[bytes]
    ) -> Iterator[None]:
        """Answer queries one by one, the rows held all the while. A long batch pauses when it has had its time."""
        until = time.perf_counter() + SLICE_SECONDS
        for asked in ticket.queries:
            if not self.service.store.exclusive:
                begin().stay()
            if ticket.long and time.perf_counter() > until:
                yield
                until = time.perf_counter() + SLICE_SECONDS
            answers.append(orjson.dumps(self._try(live, asked, work)))

    def _check_file(self, live: Live, work: _Work) -> None:
        """Refuse to answer from numbers whose file is gone or altered: once a turn for each data set."""
        name = live.row.dataset
        if name not in work.files:
            try:
                self.service.private.check(live.entry)
                work.files[name] = None
            except Unavailable as error:
                work.files[name] = error
        wrong = work.files[name]
        if wrong is not None:
            raise Unavailable(wrong.detail, wrong.retry_after)

    def _try(self, live: Live, asked: Any, work: _Work) -> dict[str, Any]:
        try:
            return self._ask(live, asked, work)
        except CuratorError as error:
            return self.service.render(error)

    def _ask(self, live: Live, asked: Any, work: _Work) -> dict[str, Any]:
        """One answer: decided, played if a round is due, and recorded in memory and in the work."""
        session = live.session
        space = session.dataset.space
        check_body(asked)
        if isinstance(asked, DenseBody):
            query, unverified = space.compile_dense(asked.weights), asked.unverified
        else:
            words = parse_query(asked)
            query, unverified = space.compile(words), words.unverified
        if max(len(query.canonical_bytes), len(query.blob or b"")) > RECORD_BYTES:
            raise PayloadTooLarge(f"a query may take at most {RECORD_BYTES:,} bytes of records", limit=RECORD_BYTES)
        work.base.setdefault(live.row.id, live.row)
        due = session.consider(query, unverified=unverified)
        private = 0
        if isinstance(due, RoundDue):
            private = space.to_answer_grid(query.exact(live.data), query)
            self.residents.make_ready(live, query)
        try:
            if isinstance(due, RoundDue):
                # From here on the round counts, whatever happens to the request.
                work.rounds[live.row.id] = work.rounds.get(live.row.id, 0) + 1
                outcome = self._round(live, due.hypothesis, private)
                if live.noise.low:
                    self.service.refills.put(live.noise)
                hit = isinstance(outcome, Hit)
                answer = Answer(session.real(outcome.value), "measurement" if hit else "hypothesis", due.error_bound)
            else:
                answer = due
            return self._record(live, query, answer, work)
        except CuratorError as error:
            raise _Unfinished from error

    @staticmethod
    def _round(live: Live, hypothesis: int, private: int) -> Hit | Miss:
        """Take noise and play."""
        plan = live.session.plan
        if plan.race is None:
            return play(hypothesis, private, int(live.noise.take(1)[0]), plan.threshold_units)
        noise = live.noise.take(plan.race.cut)
        return race(hypothesis, private, noise, live.counts.take(), plan.threshold_units)

    def _record(self, live: Live, query: Query, answer: Answer, work: _Work) -> dict[str, Any]:
        session, row = live.session, live.row
        now = live.recorded_at = max(work.now, live.recorded_at)
        sequence = row.sequence + 1
        sealed = records.answer_entry(
            sequence=sequence,
            query=query.canonical_bytes,
            value=answer.value,
            source=answer.source,
            error_bound=answer.error_bound,
            unverified=answer.unverified,
            recorded_at=now,
            previous_hash=row.head_hash,
        )
        self.residents.record(live, query, answer)
        spent, reserved = row.spent, row.reserved
        if answer.source == "measurement":
            spent, reserved = str(Decimal(spent) + live.cost), str(Decimal(reserved) - live.cost)
            work.ledger.append(LedgerRow(row.dataset, row.id, "charge", str(live.cost), sequence, now))
        kind = "unverified" if answer.unverified else answer.source
        work.entries.append(
            EntryRow(row.id, sequence, kind, query.digest, answer.value, answer.error_bound, sealed.line)
        )
        if query.blob is not None and answer.source != "cached":
            self._keep_weights(live, query, sequence, work)
        live.row = work.rows[row.id] = row.moved(
            sequence, session.queries_asked, session.updates_used, spent, reserved, sealed.entry_hash
        )
        work.sources.append(kind)
        view = {
            "sequence": sequence,
            "value": answer.value,
            "source": answer.source,
            "error_bound": answer.error_bound,
            "beta": session.plan.beta,
            "updates_used": session.updates_used,
            "updates_left": session.updates_left,
            "queries_left": session.queries_left,
            "entry_hash": sealed.entry_hash,
        }
        if answer.unverified:
            view |= {"unverified": True, "unverified_left": session.unverified_left}
        return view

    def _keep_weights(self, live: Live, query: Query, sequence: int, work: _Work) -> None:
        """Store dense weights once a session, beside the first entry that names them."""
        name = query.canonical["sha256"]
        if any(w.session == live.row.id and w.sha256 == name for w in work.weights):
            return
        with self.service.store.read() as tx:
            if tx.blobs(live.row.id, [name]):
                return
        assert query.blob is not None
        work.weights.append(WeightsRow(live.row.id, name, sequence, query.blob))

    def _close(self, row: SessionRow, work: _Work) -> bytes:
        work.base.setdefault(row.id, row)
        closed = replace(row, status="closed", reserved="0", closed_at=work.now)
        kind: Literal["charge", "return"] = "return"
        if orjson.loads(row.header)["plan"]["calibration"] == "exact":
            # Its accounting has no refunds: what was not used is spent all the same.
            kind = "charge"
            closed = replace(closed, spent=str(Decimal(row.spent) + Decimal(row.reserved)))
        work.rows[row.id] = closed
        work.ledger.append(LedgerRow(row.dataset, row.id, kind, row.reserved, row.sequence, work.now))
        self.residents.end(row.id)
        return orjson.dumps(session_view(closed))


class _Reading:
    """A reading transaction that is begun when it is first called for, and may be ended and begun again."""

    def __init__(self, store: Store) -> None:
        self._store, self._stack = store, ExitStack()
        self._begun: Transaction | None = None

    def __enter__(self) -> _Reading:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def __call__(self) -> Transaction:
        """The transaction."""
        if self._begun is None:
            self._begun = self._stack.enter_context(self._store.read())
        return self._begun

    def end(self) -> None:
        """Read no more until the next call."""
        self._begun = None
        self._stack.close()


def check_body(asked: Any) -> None:
    """Refuse a query that is no JSON object, before it waits for a turn.

    Raises:
        InvalidQuery: naming what is wrong.
    """
    if not isinstance(asked, dict | DenseBody):
        raise InvalidQuery("a query is a JSON object with a type")
