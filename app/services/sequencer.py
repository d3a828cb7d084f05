"""The background work that brings what was committed into the log, in an order that any process can continue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import structlog

from app.services.log_ports import Group, LogState, LogStore, Run
from curator_client.proofs.tiles import begun, grown

logger = structlog.get_logger(__name__)

#: How often it is looked whether there is more to add, but for a step that could not take all, and by others than the
#: leader.
SECONDS = 0.5
#: Leaves of a step, and bytes of their lines after which it takes no others.
_LEAVES, _BYTES = 4096, 1 << 22
#: How long it pauses after a step at least, in times that the step took: those who answer come first.
_PAUSES = 3.0
#: How long the end of a service waits for what was committed last; the next start goes on.
_END_SECONDS = 5.0


class Sequencer:
    """Adds to the log what is not in it, beside a running service. Several processes may do so on one database.

    Args:
        store: the tables of the log.
        pause: how long this process pauses where one that leads would pause so many seconds.
        settled: what else is to be done of movements of ledgers up to a number, below which no other can come any
            more, a little at a time; it says whether there may be more to do.
    """

    def __init__(
        self,
        store: LogStore,
        pause: Callable[[float], float] = lambda alone: alone,
        settled: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._store, self._pause, self._settled = store, pause, settled
        self._stopping, self._due = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="log", daemon=True)
        #: Whether the last step left something that it saw.
        self._cut = False
        #: The last movement below which no other can come any more, as the last step found it.
        self._movement = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Add what was committed until now, as far as that takes little time, and end."""
        self._stopping.set()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)

    def hurry(self) -> None:
        """Look soon whether there is more to add: somebody waits for it."""
        self._due.set()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            self._due.wait(self._pause(SECONDS))
            self._due.clear()
            self._safely(self._catch_up)
            self._safely(self._settle, "movements of ledgers cannot be added up")
        end = time.monotonic() + _END_SECONDS / 2
        self._safely(lambda: any(time.monotonic() > end for _ in iter(self.step, False)))
        adding = iter(lambda: self._settled(self._movement), False)
        self._safely(lambda: any(time.monotonic() > end for _ in adding), "movements of ledgers cannot be added up")

    @staticmethod
    def _safely(work: Callable[[], object], failure: str = "the log cannot be added to") -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - such as a database that is away: there is another time
            logger.warning(failure, error=type(error).__name__)

    def _settle(self) -> None:
        """Have done what else is to be done of the movements that there were when the last step began."""
        more = True
        while more and not self._stopping.is_set():
            began = time.monotonic()
            more = self._settled(self._movement)
            self._stopping.wait(_PAUSES * (time.monotonic() - began) if more else 0)

    def _catch_up(self) -> None:
        """Add what there is. What comes after the last step began waits with what comes after that."""
        more = True
        while more and not self._stopping.is_set():
            began = time.monotonic()
            more = self.step() and self._cut
            self._stopping.wait(_PAUSES * (time.monotonic() - began))

    def step(self) -> bool:
        """Add what comes next, a few thousand leaves at most; whether there may be more."""
        store = self._store
        settled, state = store.settled(), store.state()
        self._movement = settled.movement
        groups = self._readable(state, settled)
        if not groups:
            return False
        runs = [run for group in groups for run in group.runs]
        # As :func:`curator_client.proofs.merkle.leaf_hash` has it.
        leaves = b"".join([sha256(b"\0" + line).digest() for line in store.lines(runs)])
        tiles = grown(state.size, store.tiles(begun(state.size)), leaves)
        after = replace(state, size=state.size + sum(run.count for run in runs))
        for group in groups:
            if group.event is not None:
                after = replace(after, event=group.event)
            if group.movement is not None:
                after = replace(after, movement=group.movement)
        reached = [group.reached for group in groups if group.reached is not None]
        return store.append(state, after, _joined(runs), tiles, reached)

    def _readable(self, state: LogState, settled: LogState) -> list[Group]:
        """The next groups, as many as may be read at once, or one that is as small as groups are."""
        most = _LEAVES
        while True:
            groups, self._cut = self._store.news(state, settled, most)
            sizes = iter(self._store.sizes([run for group in groups for run in group.runs]))
            held = fitting = 0
            for group in groups:
                held += sum(next(sizes) for _ in group.runs)
                if held > _BYTES:
                    break
                fitting += 1
            if fitting == len(groups):
                return groups
            if fitting or most == 1:
                self._cut = True
                return groups[: max(1, fitting)]
            most = max(1, most // 8)


def _joined(runs: list[Run]) -> list[Run]:
    """Runs without those that go on where the one before ended."""
    joined: list[Run] = []
    for run in runs:
        last = joined[-1] if joined else None
        if last is not None and run == replace(last, first=last.first + last.count, count=run.count):
            joined[-1] = replace(last, count=last.count + run.count)
        else:
            joined.append(run)
    return joined
