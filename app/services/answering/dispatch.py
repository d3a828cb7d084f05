"""The way into the lanes: whose session it is, which lane answers it, and how many requests may wait for it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from app.constructions.mechanism import WorkloadMechanism
from app.curator.errors import SessionClosed
from app.curator.mechanisms.serving import mechanism_of
from app.declarations.errors import CuratorError
from app.services.answering.aside import Aside
from app.services.answering.lane import Lane
from app.services.answering.parked import Parked
from app.services.answering.tickets import Ticket
from app.services.answering.work import LaneContext, Meter
from app.services.errors import Conflict, NotFound, QueueFull, Unavailable
from app.services.memory import Memory
from app.services.openings import opening_of
from app.services.ports import Clock, NoisePort, PrivateStore, SessionRow, Snapshots, Store
from app.services.principals import Principal
from app.services.residents import UPDATES_AHEAD
from app.services.sessions import find_session
from app.services.tracing import UNTRACED, Tracer
from app.spaces.counts import NotCounted

#: Bytes of a hypothesis from which a session has a lane apart from the common one.
HEAVY_BYTES = 1 << 21
HEAVY_LANES = 2
#: The last part of a stop, in which nothing is begun any more.
RECORDING = 1 / 3
#: Sessions whose owner and lane are remembered; of others they are read again.
ROUTES = 1 << 16


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
        soon: Callable[[Callable[[], None]], None],
        queue_limit: int,
        memory: Memory,
        turn_seconds: float,
        parked: Parked,
        tracer: Tracer = UNTRACED,
        spendable: Callable[[str], None] = lambda _: None,
        admit: Callable[[str], None] = lambda _: None,
        written: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        self._refills: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.context = LaneContext(
            store,
            private,
            noise,
            snapshots,
            clock,
            meter,
            render,
            deliver,
            self._leave,
            self._refills.put,
            Aside(),
            parked,
            tracer,
            spendable,
            admit,
            written,
        )
        self._soon = soon
        self._queue_limit, self._turn_seconds = queue_limit, turn_seconds
        lanes = 1 + HEAVY_LANES
        self._lanes = [Lane(self.context, f"lane-{i}", memory) for i in range(lanes)]
        self._outboxes: list[list[Ticket]] = [[] for _ in self._lanes]
        self._routes: dict[str, tuple[str, int]] = {}
        self._waiting: dict[str, int] = {}
        self._lock = threading.Lock()
        self._refiller = threading.Thread(target=self._refill, name="noise", daemon=True)

    def start(self) -> None:
        """Start the lanes."""
        self._refiller.start()
        self.context.aside.start()
        for lane in self._lanes:
            lane.start()

    def stop(self, seconds: float) -> None:
        """Finish what waits, as far as the time allows; take nothing more. What is under way in the last part of it is
        recorded as far as it has come.
        """
        for number, lane in enumerate(self._lanes):
            self._send(number)
            lane.inbox.put(None)
        now = time.monotonic()
        for deadline in (now + (1 - RECORDING) * seconds, now + seconds):
            for lane in self._lanes:
                lane.join(max(0.0, deadline - time.monotonic()))
            for lane in self._lanes:
                lane.hurry()
        self.context.aside.stop()
        self.context.parked.stop()
        self._refills.put(None)

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
    def parked(self) -> int:
        """Requests that wait for numbers which are counted elsewhere."""
        return len(self.context.parked)

    def have_counted(self, actor: str, lacking: NotCounted, back: Callable[[CuratorError | None], None]) -> None:
        """Have numbers counted that an opening or a release of a principal's lacks; see :meth:`.parked.Parked.wait`."""
        self.context.parked.wait(actor, lacking, back)

    @property
    def residents(self) -> tuple[int, int]:
        """Sessions in memory, and the bytes accounted to them."""
        found = [lane.residents for lane in self._lanes]
        return sum(map(len, found)), sum(each.held for each in found)

    def _refill(self) -> None:
        while (block := self._refills.get()) is not None:
            block.refill()

    def route(self, actor: Principal, id: str) -> tuple[str, int]:
        """(owner, lane) of a session the actor owns.

        Raises:
            NotFound: when there is none, or it is somebody else's.
        """
        known = self._routes.get(id)
        if known is None:
            row = self._find(id)
            opening = opening_of(row.header)
            if isinstance(opening.request.mechanism, WorkloadMechanism):
                raise Conflict(
                    "this session is a release's: read that, or open a session, which starts from what it measured"
                )
            nbytes = mechanism_of(opening).nbytes(min(opening.plan.max_updates, UPDATES_AHEAD))
            lane = 0 if nbytes < HEAVY_BYTES else 1 + int(id[:8], 16) % HEAVY_LANES
            known = (row.owner, lane)
            with self._lock:
                while len(self._routes) >= ROUTES:
                    del self._routes[next(iter(self._routes))]
                self._routes[id] = known
        if known[0] != actor.name:
            raise NotFound("there is no such session of yours")
        return known

    def _find(self, id: str) -> SessionRow:
        row = find_session(self.context.store, id)
        if row is None:
            raise NotFound("there is no such session of yours")
        return row

    def knows(self, id: str) -> bool:
        """Whether a request for this session can be queued without asking the database."""
        return id in self._routes

    def submit(self, actor: Principal, ticket: Ticket) -> None:
        """Put a request of the session's owner into its lane's queue.

        Raises:
            NotFound: when the session is not the actor's.
            QueueFull: when too many wait already.
        """
        if ticket.kind == "close" and actor.role == "admin":
            owner = self._find(ticket.session).owner
            lane = self.route(Principal(owner, "analyst"), ticket.session)[1]
        else:
            lane = self.route(actor, ticket.session)[1]
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
            self._soon(lambda: self._send(lane))

    def _send(self, lane: int) -> None:
        """Hand a lane all that has come together for it: one wake-up, and one commit, for requests of one moment."""
        with self._lock:
            tickets, self._outboxes[lane] = self._outboxes[lane], []
        self._lanes[lane].inbox.put(tickets)

    def _leave(self, tickets: list[Ticket]) -> None:
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
