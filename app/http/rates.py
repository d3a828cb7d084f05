"""How often a caller may come: a token bucket for each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from app.services.errors import TooManyRequests

#: Seconds by which sums of times may be off for their rounding.
_ROUNDING = 1e-6


class Rate:
    """Token buckets by name: each holds ``burst`` tokens and gains ``per_second`` a second.

    A bucket is kept as the one moment at which it will be full again, so that taking from it is a few additions however
    long nobody came. Names are those of principals, of which there are as many as an admin made. Not for several
    threads: it belongs to the event loop.

    Args:
        per_second: tokens a second; None sets no limit.
        burst: tokens that a full bucket holds.
        clock: seconds that never run backwards.
    """

    def __init__(self, per_second: float | None, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = 0.0 if per_second is None else 1 / per_second
        self._burst, self._clock = burst, clock
        self._full_at: dict[str, float] = {}

    def take(self, name: str, tokens: int = 1, paid: int = 0) -> None:
        """Take tokens, of which ``paid`` were taken before.

        More than a bucket holds are let in when it is full, and what is missing is owed: it has to come in before
        anything else is taken.

        Raises:
            TooManyRequests: when there are not enough, saying after how many seconds there will be; none is taken.
        """
        if not self._seconds:
            return
        now = self._clock()
        missing = max(0.0, self._full_at.get(name, 0.0) - now)
        needed = min(tokens, self._burst) - paid
        wait = missing + (needed - self._burst) * self._seconds
        if wait > _ROUNDING:
            seconds = math.ceil(wait)
            raise TooManyRequests(f"too many requests with this key: send again in {seconds:,} s", seconds)
        self._full_at[name] = now + missing + (tokens - paid) * self._seconds

    def owe(self, name: str, tokens: float) -> None:
        """Take tokens for what is done already, whether or not they are there.

        What is missing has to come in before anything else is taken.
        """
        if self._seconds:
            now = self._clock()
            self._full_at[name] = max(now, self._full_at.get(name, 0.0)) + tokens * self._seconds
