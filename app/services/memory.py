"""The account of memory: what stands there, told by those who keep it, held against one limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

#: How long one who needs room waits for others to give what they have beyond their share.
GIVE_SECONDS = 1.0
#: Under what name threads beside the lanes are told, of which each has its own work's.
_BESIDE = "beside the lanes"


class Memory:
    """The account of memory: sessions in all lanes, what is held ready for their updates, and private numbers, against
    one limit.

    What is left beside private numbers is shared by the lanes: a lane need not give its share. One session may take
    more than that: it then has the room that nobody uses, until a lane needs it. For all threads.

    Args:
        limit: bytes.
        others: what else stands in memory, in bytes, told when it is asked for.
    """

    def __init__(self, limit: int, others: Sequence[Callable[[], int]] = ()) -> None:
        self.limit, self._others = limit, tuple(others)
        self._told: dict[str, int] = {}
        self._givers: dict[str, Callable[[], None]] = {}
        self._changed = threading.Condition()

    def join(self, name: str, give: Callable[[], None]) -> None:
        """Count somebody in; ``give``, which must return at once, is called when others need room."""
        with self._changed:
            self._told[name], self._givers[name] = 0, give

    def tell(self, name: str, nbytes: int) -> None:
        """Tell what one holds from now on."""
        with self._changed:
            self._told[name] = nbytes
            self._changed.notify_all()

    def add(self, more: int) -> None:
        """So many bytes more, or less, are held by threads beside the lanes."""
        with self._changed:
            self._told[_BESIDE] = self._told.get(_BESIDE, 0) + more
            self._changed.notify_all()

    @property
    def room(self) -> int:
        """Bytes that a single question may take, whatever the private numbers are: it is refused by that."""
        return self.limit // max(1, len(self._givers))

    @property
    def share(self) -> int:
        """Bytes that a lane need not give."""
        return max(0, self.limit - sum(other() for other in self._others)) // max(1, len(self._givers))

    @property
    def held(self) -> int:
        """All bytes that are accounted for."""
        return sum(list(self._told.values())) + sum(other() for other in self._others)

    def lacks(self, needed: int) -> bool:
        """Whether there is no room for so many bytes more."""
        return self.held + needed > self.limit

    def ask(self, name: str, needed: int) -> None:
        """Have others give what they hold beyond their shares, and wait a little until so many bytes more fit."""
        with self._changed:
            givers = [give for other, give in self._givers.items() if other != name and self._told[other]]
        for give in givers:
            give()
        end = time.monotonic() + GIVE_SECONDS
        with self._changed:
            while givers and self.lacks(needed) and time.monotonic() < end:
                self._changed.wait(GIVE_SECONDS / 10)
