"""The background work that brings what was committed into the log, in an order that any process can continue."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import structlog

from app.audit.merkle import Frontier, Subtree, leaf_hash, peaks
from app.services.log_ports import Group, Leaf, LogStore, Reached

log = structlog.get_logger(__name__)

#: How often it is looked whether there is more to add.
SECONDS = 0.5
#: Leaves of a step, and bytes of their lines after which it takes no others.
_LEAVES, _BYTES = 256, 1 << 22
#: How long the end of a service waits for what was committed last; the next start goes on.
_END_SECONDS = 5.0


class Sequencer:
    """Adds to the log what is not in it, beside a running service. Several processes may do so on one database."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="log", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Add what was committed until now, as far as that takes little time, and end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)

    def _watch(self) -> None:
        while True:
            last = self._stopping.wait(SECONDS)
            end = time.monotonic() + _END_SECONDS / 2
            try:
                self._catch_up(end)
            except Exception as error:  # noqa: BLE001 - such as a database that is away: there is another time
                log.warning("the log cannot be added to", error=type(error).__name__)
            if last:
                return

    def _catch_up(self, end: float) -> None:
        """Add all that there is; when the service ends, until a time (of the monotonic clock)."""
        began = time.monotonic()
        while self.step():
            now = time.monotonic()
            if self._stopping.is_set():
                if now > end:
                    return
            else:  # those who answer come first: no more than half of the time is taken from them
                self._stopping.wait(now - began)
            began = time.monotonic()

    def step(self) -> bool:
        """Add what comes next, a few hundred leaves at most; whether there may be more."""
        store = self._store
        settled, state = store.settled(), store.state()
        groups = self._readable(store.news(state, settled, _LEAVES))
        if not groups:
            return False
        leaves = [leaf for group in groups for leaf in group.leaves]
        tree = Frontier(state.size, store.hashes(peaks(0, state.size)))
        after, added, nodes = state, list[tuple[Leaf, bytes]](), list[tuple[Subtree, bytes]]()
        for leaf, line in zip(leaves, store.lines(leaves), strict=True):
            added.append((leaf, leaf_hash(line)))
            nodes += tree.append(added[-1][1])
        reached: list[Reached] = []
        for group in groups:
            if group.event is not None:
                after = replace(after, event=group.event)
            if group.movement is not None:
                after = replace(after, movement=group.movement)
            if group.reached is not None:
                reached.append(group.reached)
        return store.append(state, replace(after, size=tree.size), added, nodes, reached)

    def _readable(self, groups: list[Group]) -> list[Group]:
        """The first groups, as many as may be read at once, or one."""
        sizes = iter(self._store.sizes([leaf for group in groups for leaf in group.leaves]))
        held = 0
        for number, group in enumerate(groups):
            held += sum(next(sizes) for _ in group.leaves)
            if number and held > _BYTES:
                return groups[:number]
        return groups
