"""The sessions that a lane holds in memory.

Whatever is here follows from the transcript and may be dropped at any time, but for what is not written yet. A session
that would take longer to make again than to write down leaves a snapshot behind.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from app.curator.errors import SessionClosed
from app.curator.mechanisms.protocol import Answer, Due, RoundNoise, Units
from app.curator.mechanisms.serving import mechanism_of
from app.curator.plan import Race
from app.curator.session import Session
from app.services.ballast import Ballast
from app.services.datasets import public_dataset
from app.services.loading import follow, keep_session, last_recorded, resume_session, take_in, time_of
from app.services.memory import Memory
from app.services.openings import opening_bytes, opening_of
from app.services.ports import NoisePort, PrivateStore, SessionRow, Snapshots, Transaction
from app.services.registered import RegisteredCounts
from app.spaces.query import Query

logger = structlog.get_logger(__name__)

#: Updates that a session is given memory for beside those it has made: a guaranteed plan may allow far more of them.
UPDATES_AHEAD = 10_000
#: What a session takes beside its hypothesis and its answers, about: plan, space, noise drawn ahead.
SESSION_BYTES = 48 << 10
#: Taking in one entry of a transcript takes about so long, its update aside.
ENTRY_SECONDS = 5e-6
#: Writing a snapshot takes about so long, and so much for each byte, until it has been done.
SNAPSHOT_SECONDS, SNAPSHOT_BYTE_SECONDS = 1e-3, 3e-9
#: A session in use is written down when making it again would take so many times as long: what a lane spends on
#: snapshots is a small part of what it spends on updates.
SNAPSHOT_SHARE = 20
#: Sessions whose state the database is asked for at a time.
_PAGE = 500
#: What waits for a stop does not wait longer than this for snapshots.
LEAVING_SECONDS = 10.0


class NoRoom(Exception):
    """A session does not fit into memory beside those whose answers are not written yet."""


@dataclass(slots=True, eq=False)
class Live:
    """A session in memory, at the state of ``row``, whose newest record was made at ``recorded_at``.

    ``reserved`` is the memory that does not depend on what was learnt, ``nbytes`` all that is accounted for it. The
    snapshot stands on the entry ``kept``; what was learnt after it took ``learning_seconds``, writing takes
    ``cost_seconds``.
    """

    row: SessionRow
    recorded_at: str
    session: Session
    data: RegisteredCounts
    reserved: int
    nbytes: int
    kept: int
    learning_seconds: float
    cost_seconds: float
    #: The most memory that it ever had to have ready for an update.
    working: int = 0
    #: Where its noise comes from, by its law and scale, and the secret numbers of its races.
    noise: dict[RoundNoise, Any] = field(default_factory=dict)
    counts: dict[Race, Any] = field(default_factory=dict)

    @property
    def redo_seconds(self) -> float:
        """How long it would take to make again what the snapshot does not have."""
        return self.learning_seconds + ENTRY_SECONDS * (self.session.sequence - self.kept)


class Residents:
    """Sessions in memory, the least recently used of them dropped when they need more than a lane's share, or all
    that stands in memory passes its limit.

    One thread's own.

    Args:
        private: the private numbers.
        noise: where noise comes from.
        snapshots: of sessions.
        memory: the account of all lanes.
        name: of the lane.
        wake: has :meth:`give` called between two turns; returns at once.
    """

    def __init__(
        self,
        private: PrivateStore,
        noise: NoisePort,
        snapshots: Snapshots,
        memory: Memory,
        name: str,
        wake: Callable[[], None],
    ) -> None:
        self._private, self._noise, self._snapshots = private, noise, snapshots
        self._memory, self._name = memory, name
        memory.join(name, wake)
        #: Sessions that must stay for this turn.
        self._unwritten: Container[str] = ()
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._held = 0
        self._ballast = Ballast()
        self._unloaded = False

    def __contains__(self, id: str) -> bool:
        return id in self._live

    def __len__(self) -> int:
        return len(self._live)

    @property
    def room(self) -> int:
        """Bytes that a single question may take."""
        return self._memory.room

    @property
    def held(self) -> int:
        """Bytes accounted to the sessions in memory, and to what is held ready for their updates."""
        return self._held + self._ballast.nbytes

    def get(self, id: str) -> Live | None:
        """The session if it is in memory, as it is there."""
        return self._live.get(id)

    def rows(self, ids: Iterable[str]) -> dict[str, SessionRow]:
        """The rows of those that are in memory, as they were when these were last looked at."""
        return {id: live.row for id in ids if (live := self._live.get(id)) is not None}

    def catch_up(self, tx: Transaction, rows: Mapping[str, SessionRow]) -> None:
        """Bring what is in memory of these sessions to the state of their rows, which other processes may have moved.

        One that does not get there is dropped: it is loaded anew when it is asked.
        """
        held = [(live, row) for id, row in rows.items() if (live := self._live.get(id)) is not None]
        behind = {row.id: (live, row) for live, row in held if live.row.sequence < row.sequence}
        for id in [id for id, (live, _) in behind.items() if live.session.opening.evidence is not None]:
            live, row = behind.pop(id)
            try:
                follow(tx, id, live.session)
                live.recorded_at, live.row = last_recorded(tx, row), row
            except Exception as error:  # noqa: BLE001 - as below
                logger.warning("a session did not follow its transcript", error=type(error).__name__)
                self.drop(id)
        spans = {id: (live.session.sequence, row.sequence) for id, (live, row) in behind.items()}
        for id, (known, line) in tx.latest_entries(spans).items():
            live, row = behind[id]
            try:
                live.learning_seconds += take_in(tx, id, live.session, known)
                live.recorded_at, live.row = time_of(line), row
            except Exception as error:  # noqa: BLE001 - an entry may have been counted whose update was not made
                logger.warning("a session did not follow its transcript", error=type(error).__name__)
                self.drop(id)

    def load(self, begin: Callable[[], Transaction], row: SessionRow, unwritten: Container[str]) -> Live:
        """The session in memory, at the state of its row (see :meth:`catch_up`).

        Args:
            begin: gives a transaction; called only where something must be read.
            row: the session's row, locked where several processes answer.
            unwritten: sessions that must stay, as they could not be restored from the database.

        Raises:
            SessionClosed: when its data set is retired.
            NoRoom: when it must wait until the answers of others are written.
        """
        self._unwritten = unwritten
        live = self._live.get(row.id)
        if live is None:
            live = self._restore(begin(), row, unwritten)
        self._live.move_to_end(row.id)
        return live

    def ballast(self) -> Ballast:
        """One for work beside the lane, counted as it changes."""
        return Ballast(self._memory.add)

    def make_ready(self, live: Live, query: Query, ballast: Ballast | None = None) -> None:
        """Before noise is drawn: take all the memory that learning this query could take. It is counted with the lane's
        sessions, others of which make room for it, and taken in any case. ``ballast`` holds it, here and below, where
        the thread is not the lane's.

        Raises:
            Unavailable: when the system does not give it.
        """
        needed = live.session.working_bytes(query)
        live.working = max(live.working, needed)
        if ballast is not None:
            ballast.hold(needed)
        elif needed > self._ballast.nbytes:
            self._make_room(needed - self._ballast.nbytes, self._unwritten, live)
            self._ballast.hold(needed)
            self._tell()

    def noise(self, live: Live, noise: RoundNoise) -> Any:
        """Where a session's noise of this law and scale comes from."""
        source = live.noise.get(noise)
        if source is None:
            make = self._noise.laplace if noise.law == "laplace" else self._noise.gaussian
            source = live.noise[noise] = make(noise.scale)
        return source

    def count(self, live: Live, race: Race) -> int:
        """The secret number of comparisons of a session's race."""
        if race not in live.counts:
            live.counts[race] = self._noise.poisson(race.mean, race.cut)
        return int(live.counts[race].take())

    def released(self, live: Live, query: Query, due: Due, units: Units, ballast: Ballast | None = None) -> Answer:
        """The answer that a release makes; what is learnt of it has the memory that was held ready."""
        (ballast or self._ballast).release()
        return live.session.apply(query, due, units)

    def record(self, live: Live, query: Query, answer: Answer, ballast: Ballast | None = None) -> None:
        """Take an answer into a session's state; what it learns from has the memory that was held ready."""
        if answer.source == "measurement":
            (ballast or self._ballast).release()
            started = time.perf_counter()
            live.session.record(query, answer)
            live.learning_seconds += time.perf_counter() - started
        else:
            live.session.record(query, answer)

    def checkpoint(self, ids: Iterable[str], unwritten: Container[str] = ()) -> None:
        """Between two turns: account for what these sessions have learnt, and write down those for which it is time.

        All that they hold must be committed; ``unwritten`` are others of which that is not so.
        """
        for id in ids:
            live = self._live.get(id)
            if live is not None:
                self._account(live)
                if live.redo_seconds > SNAPSHOT_SHARE * live.cost_seconds:
                    self._keep(live)
        self._make_room(0, unwritten)
        if self._unloaded:
            self._unloaded = False
            self._ballast.keep(max((live.working for live in self._live.values()), default=0))
        self._tell()

    def give(self, unwritten: Container[str]) -> None:
        """Between two turns: give what others need, as long as this lane has more than its share."""
        self._evict_to(self._memory.share, 0, unwritten)
        self._ballast.keep(max((live.working for live in self._live.values()), default=0))
        self._tell()

    def forget_closed(self, tx: Transaction, unwritten: Container[str] = ()) -> None:
        """Drop the sessions that another process has closed."""
        known = [id for id in self._live if id not in unwritten]
        for start in range(0, len(known), _PAGE):
            page = known[start : start + _PAGE]
            for id in set(page) - tx.open_sessions(page):
                self.drop(id)

    def flush(self) -> None:
        """At the end: write down what would take longer to make again, as far as there is time."""
        deadline = time.monotonic() + LEAVING_SECONDS
        for live in list(self._live.values()):
            if time.monotonic() > deadline:
                break
            self._evict(live)

    def end(self, id: str) -> None:
        """Forget a session for good, its snapshot too."""
        self.drop(id)
        self._snapshots.remove(id)

    def drop(self, id: str) -> None:
        """Forget what is in memory of a session, if anything is, without a trace: it may not have been committed."""
        live = self._live.pop(id, None)
        if live is not None:
            self._held -= live.nbytes
            self._unloaded = True
            self._tell()

    def _tell(self) -> None:
        self._memory.tell(self._name, self.held)

    def _evict(self, live: Live) -> None:
        """Drop a session whose state is committed."""
        if live.redo_seconds > live.cost_seconds:
            self._keep(live)
        self.drop(live.row.id)

    def _keep(self, live: Live) -> None:
        started = time.perf_counter()
        keep_session(self._snapshots, live.row, live.session)
        live.cost_seconds = time.perf_counter() - started
        live.kept, live.learning_seconds = live.session.sequence, 0.0

    def _account(self, live: Live) -> None:
        grown = live.reserved + live.session.known_bytes + (live.session.held_bytes or 0)
        self._held += grown - live.nbytes
        live.nbytes = grown
        self._tell()

    def _make_room(self, needed: int, unwritten: Container[str], user: Live | None = None) -> bool:
        """Whether so many bytes more fit, the sessions used least recently dropped where that helps: of this lane what
        passes its share, then of others what passes theirs.

        A single session always fits: it was taken in on the promise that it would.

        Args:
            needed: bytes.
            unwritten: sessions that must stay.
            user: the session in memory that needs them; None for one that is not there yet.
        """
        if not self._evict_to(self._memory.share - needed, 0 if needed and user is None else 1, unwritten, user):
            return False
        if needed and self._memory.lacks(needed):
            self._memory.ask(self._name, needed)
        return True

    def _evict_to(self, most: int, least: int, unwritten: Container[str], user: Live | None = None) -> bool:
        """Drop the sessions used least recently until no more than so many bytes are held, or so many sessions are
        left; False where none of them may go."""
        while len(self._live) > least and self.held > most:
            oldest = next((live for id, live in self._live.items() if id not in unwritten and live is not user), None)
            if oldest is None:
                return False
            self._evict(oldest)
        return True

    def _restore(self, tx: Transaction, row: SessionRow, unwritten: Container[str]) -> Live:
        stored = tx.dataset(row.dataset)
        if stored is None or stored.retired_at is not None:
            raise SessionClosed("the data set is retired: its sessions answer nothing")
        opening = opening_of(row.header)
        plan, space = opening.plan, opening.dataset.space
        assert public_dataset(stored).space == space
        # Taken first: making room may drop the last session that has these numbers in memory.
        data = self._private.counts(space, stored.vault_entry)
        ahead = min(plan.max_updates, row.updates_used + UPDATES_AHEAD)
        most, reserved = mechanism_of(opening).nbytes(ahead), SESSION_BYTES + opening_bytes(row.header)
        if not self._make_room(most + reserved, unwritten):
            raise NoRoom
        loaded = resume_session(tx, row, self._snapshots)
        session = loaded.session
        if session.held_bytes is None:
            reserved += most
        written = session.mechanism.nbytes(session.updates_used) + session.known_bytes
        live = self._live[row.id] = Live(
            row=row,
            recorded_at=last_recorded(tx, row),
            session=session,
            data=data,
            reserved=reserved,
            nbytes=0,
            kept=loaded.kept,
            learning_seconds=loaded.seconds,
            # An evidence session is made of its transcript, in about the time that a snapshot would take.
            cost_seconds=math.inf if opening.evidence else SNAPSHOT_SECONDS + SNAPSHOT_BYTE_SECONDS * written,
        )
        self._account(live)
        return live
