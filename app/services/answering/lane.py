"""A lane: one thread that answers the sessions given to it, a group of requests after another."""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass
from functools import partial

import structlog

from app.curator.errors import SessionClosed
from app.declarations.errors import CuratorError
from app.services.answering.group import Groups
from app.services.answering.tickets import Deferred, Ticket, TicketQueue
from app.services.answering.work import LaneContext, Parking, Pause, Paused, Work
from app.services.errors import Unavailable
from app.services.memory import Memory
from app.services.residents import Residents

logger = structlog.get_logger(__name__)

#: Requests that go alone, long batches and what takes long, that a lane has under way at a time, of different
#: principals.
UNDER_WAY = 4
#: How often a lane looks whether other processes have closed sessions that it holds in memory.
LOOK_SECONDS = 5.0
#: How long after a turn a lane waits, at most, for those it has answered to ask again.
GATHER_SECONDS = 0.001


@dataclass(frozen=True, slots=True, eq=False)
class _Back:
    """Something that was aside is back: where it goes on; None where it has ended."""

    paused: Paused
    pause: Pause | None


class Lane(threading.Thread):
    """One thread that answers the sessions given to it, in groups.

    Args:
        context: what all lanes work with.
        name: the thread's.
        memory: the account of all lanes.
    """

    def __init__(self, context: LaneContext, name: str, memory: Memory) -> None:
        super().__init__(name=name, daemon=True)
        self._context = context
        # Not a SimpleQueue: on Python 3.11 its get() may wait for ever when its time is over as it begins to wait.
        self.inbox: queue.Queue[list[Ticket] | _Back | Parking | None] = queue.Queue()
        self.residents = Residents(
            context.private, context.noise, context.snapshots, memory, name, lambda: self.inbox.put([])
        )
        self.deferred = Deferred()
        self._waiting = TicketQueue()
        #: Requests under way that have paused, by session.
        self._paused: OrderedDict[str, Paused] = OrderedDict()
        #: Requests that wait for numbers, by session.
        self._parked: dict[str, Parking] = {}
        self._groups = Groups(context, self.residents, self._waiting, self.deferred, self._unwritten)
        self._stopping = False
        self._expected, self._until = 0, 0.0
        self._look_at = 0.0

    @property
    def stalled(self) -> bool:
        """Whether the lane waits for a commit that keeps failing."""
        return self._groups.stalled

    def hurry(self) -> None:
        """Begin nothing more, and record what is under way as far as it has come. From any thread."""
        self._groups.ending = True

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
            self._expected = len(group) + len(self._waiting)
            self._until = time.perf_counter() + GATHER_SECONDS
        self._refuse_waiting()
        self.residents.flush()

    def _forget_closed(self) -> None:
        """Drop what other processes have closed: nobody asks for it again, and so it would never leave."""
        if self._context.store.exclusive or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        try:
            with self._context.store.read() as tx:
                self.residents.forget_closed(tx, self._unwritten())
        except Exception as error:  # noqa: BLE001 - nothing ends a lane: there is a next time
            logger.warning("closed sessions could not be looked for", error=type(error).__name__)

    def _refuse_waiting(self) -> None:
        """At the end nothing is waited for any more. Nothing of what these still ask was begun."""
        tickets = self.deferred.clear()
        for ticket in tickets:
            ticket.error = Unavailable("the session is held by another process: send the request again")
        for parking in self._parked.values():
            for ticket in (parking.ticket, *parking.behind):
                ticket.error = Unavailable("the server ends: send the request again")
                tickets.append(ticket)
        self._parked.clear()
        self._context.leave(tickets)
        self._context.deliver(tickets)

    def _gather(self) -> list[Ticket]:
        """Wait for requests and take a group of them; an empty one when there is something else to do.

        Right after a turn the answered clients are given a moment to come back: two turns that overlap cost more than
        one, and all of them wait for the same disk.
        """
        while True:
            waiting = len(self._waiting)
            if not self.inbox.empty():
                self._arrive(self.inbox.get())
                continue
            again = [] if self._stopping else self.deferred.try_again()
            here = any(not paused.away for paused in self._paused.values())
            left = self._until - time.perf_counter()
            if again or here or self._stopping or waiting >= self._expected or left <= 0:
                group = again + self._waiting.next_group(self._may_begin)
                if group or here or (self._stopping and not self._paused):
                    return group
                waiting = 0  # nothing of it may begin before something comes back
            seconds = self.deferred.seconds
            if not self._context.store.exclusive:
                seconds = LOOK_SECONDS if seconds is None else min(seconds, LOOK_SECONDS)
            try:
                self._arrive(self.inbox.get(timeout=left if waiting else seconds))
            except queue.Empty:
                if not waiting and not self.deferred:
                    return []

    def _arrive(self, come: list[Ticket] | _Back | Parking | None) -> None:
        if come is None:
            self._stopping = True
            return
        if isinstance(come, _Back):
            self._go_to(come.paused, come.pause)
            return
        if isinstance(come, Parking):
            self._come_back(come)
            return
        tickets = come
        if not tickets:
            self.residents.give(self._unwritten())
            return
        others: list[Ticket] = []
        for ticket in tickets:
            if ticket.kind == "close" and ticket.session in self._parked:
                self._end(self._parked[ticket.session])
            kept = self._paused.get(ticket.session) or self._parked.get(ticket.session)
            (others if kept is None else kept.behind).append(ticket)
        if self.deferred:
            self.deferred.defer([ticket for ticket in others if ticket.session in self.deferred])
            others = [ticket for ticket in others if ticket.session not in self.deferred]
        self._waiting.add(others)

    # ------------------------------------------------------------------ what goes alone

    def _may_begin(self, ticket: Ticket) -> bool:
        """Whether what goes alone may be begun beside what is under way."""
        under_way = {paused.ticket.actor for paused in self._paused.values()}
        return len(under_way) < UNDER_WAY and ticket.actor not in under_way

    def _begin(self, group: list[Ticket]) -> None:
        """Answer a group; of what goes alone, which is a group of its own, the first slice."""
        steps = self._groups.answer(group, Work(self._context.clock()))
        pause = next(steps, None)
        if pause is None:
            self._park()
        else:
            ticket = group[0]
            # What else is asked of the session waits.
            paused = Paused(ticket, steps, self._waiting.withdraw(ticket.session))
            self._paused[ticket.session] = paused
            self._go_to(paused, pause)

    def _go_on(self) -> None:
        """One more slice of what has paused here longest ago."""
        paused = next((paused for paused in self._paused.values() if not paused.away), None)
        if paused is not None:
            self._go_to(paused, next(paused.steps, None))

    def _go_to(self, paused: Paused, pause: Pause | None) -> None:
        """Something has had a slice, and goes on from its pause when its turn comes; None where it has ended."""
        session = paused.ticket.session
        if pause is None:
            del self._paused[session]
            self._waiting.add(paused.behind)
            self._park()
            return
        self._paused.move_to_end(session)
        paused.away = pause is not Pause.HERE
        if paused.away:
            self._context.aside.do(paused.ticket.actor, lambda: self.inbox.put(_Back(paused, next(paused.steps, None))))

    # ------------------------------------------------------------------ what waits for numbers

    def _park(self) -> None:
        """Let requests of the group that has just ended wait for numbers, and what else is asked of their sessions
        behind them.
        """
        parked, self._groups.parked = self._groups.parked, []
        for ticket, lacking in parked:
            parking = self._parked[ticket.session] = Parking(ticket, self._waiting.withdraw(ticket.session))
            if any(other.kind == "close" for other in parking.behind):
                self._end(parking)
            else:
                self._context.parked.wait(ticket.actor, lacking, partial(self._counted, parking), ticket.trace)

    def _end(self, parking: Parking) -> None:
        """Let a request wait no longer whose session is to be closed: whoever does so does not wait for minutes."""
        parking.error = SessionClosed("the session was closed: open another")
        self._come_back(parking)

    def _counted(self, parking: Parking, error: CuratorError | None) -> None:
        """What a request waited for is counted, or cannot be. From any thread."""
        parking.error = error
        self.inbox.put(parking)

    def _come_back(self, parking: Parking) -> None:
        """Consider a request anew that has waited, before what came after it."""
        ticket = parking.ticket
        if self._parked.get(ticket.session) is not parking:
            return  # the session was closed meanwhile
        del self._parked[ticket.session]
        ticket.came = time.time()
        # Where they could not be counted, its session may have been closed by another process, and its file be gone.
        ticket.lacks = parking.error
        self._waiting.put_back([ticket])
        self._waiting.add(parking.behind)

    def _unwritten(self, work: Work | None = None) -> Container[str]:
        """Sessions with answers that are not written yet, those of a turn among them."""
        base = () if work is None else work.base
        return {*base, *self._paused} if self._paused else base
