"""Memory that is taken before noise is drawn, so that what comes of a round does not decide whether there is enough."""

from __future__ import annotations

import mmap
from collections.abc import Callable

from app.services.errors import Unavailable

#: Memory is taken in whole multiples of this.
_UNIT = 1 << 20


class Ballast:
    """Pages held ready for an update: as many as it could take, really there, and given back when it begins.

    A hit learns, a miss does not. Were the memory for learning taken only then, an analyst who leaves just too little
    of it would make hits, and hits alone, end the process, which forgets them uncharged. So a lane holds the ballast
    while noise is drawn, and until an update gives it back: at every moment after the noise a hit takes no more than a
    miss does.

    One thread's own.

    Args:
        told: called with how many bytes more are held, or less, wherever that changes.
    """

    def __init__(self, told: Callable[[int], None] = lambda more: None) -> None:
        self._told = told
        self._held: mmap.mmap | None = None
        self.nbytes = 0

    def hold(self, nbytes: int) -> None:
        """Hold at least so many bytes.

        Raises:
            Unavailable: when the system does not give them; nothing is held then.
        """
        if nbytes <= self.nbytes:
            return
        self.release()
        size = -(-nbytes // _UNIT) * _UNIT
        try:
            # The system would promise pages that it does not have; filled in, they are there.
            self._held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        except (OSError, OverflowError, ValueError):
            raise Unavailable(
                "there is no memory for what the answer could teach the hypothesis: nothing was asked, send the "
                "request again later"
            ) from None
        self.nbytes = size
        self._told(size)

    def keep(self, nbytes: int) -> None:
        """Give back what is more than this, which is all that is needed from here on."""
        if self.nbytes >= nbytes + _UNIT:
            self.release()

    def release(self) -> None:
        """Give everything back, at once."""
        if self._held is not None:
            self._held.close()
            self._told(-self.nbytes)
            self._held, self.nbytes = None, 0
