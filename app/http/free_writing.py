"""What answers that cost nothing write for good, against a rate of each principal."""

from __future__ import annotations

import threading
from collections.abc import Callable

from app.http.authentication import RateLimits
from app.http.token_bucket import TokenBuckets
from app.services.errors import TooManyRequests

#: So many bytes count as one heavy request. The first of each call count nothing, so numbers and small tables never do.
#: By the default limits of heavy requests a principal may have 32 MB written at once, and then 0.8 MB a second: more
#: than anybody reads. Without a limit a few hundred bytes that are sent again and again have a disk filled.
PIECE = 16 << 10


class FreeWriting:
    """Bounds what is written for answers that cost no budget. From any thread.

    Heavy requests have their own buckets: who has made a long plan may still ask.

    Args:
        limits: of heavy requests; each piece counts as one.
        refused: called with the reason, ``rate``, of each call that is refused.
    """

    def __init__(self, limits: RateLimits, refused: Callable[[str], None]) -> None:
        self._refused = refused
        self._pieces = TokenBuckets(limits.heavy_rate_limit, limits.heavy_rate_burst)
        self._lock = threading.Lock()
        #: Who ever had more written than counts nothing; most never do.
        self._counted: set[str] = set()

    def admit(self, name: str) -> None:
        """Let a principal ask, who does not owe anything.

        Raises:
            TooManyRequests: when too much was written for it.
        """
        if name not in self._counted:
            return
        try:
            with self._lock:
                self._pieces.consume(name, 0)
        except TooManyRequests as error:
            self._refused("rate")
            raise TooManyRequests(
                f"answers that cost nothing have written too much: ask again in {error.retry_after:,} s",
                error.retry_after,
            ) from None

    def count(self, name: str, size: int) -> None:
        """So many bytes were written for one call of a principal."""
        if size <= PIECE:
            return
        with self._lock:
            self._counted.add(name)
            self._pieces.debit(name, size / PIECE - 1)
