"""Limits on how often a caller may come: a token bucket for each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from app.services.errors import TooManyRequests

#: Seconds by which a sum of times may be off because of rounding.
_ROUNDING = 1e-6


class TokenBuckets:
    """Token buckets by name: each holds ``burst`` tokens and gains ``per_second`` tokens a second.

    A bucket is kept as the moment at which it will be full again, so that taking tokens costs a few additions however
    long ago the last ones were taken. Buckets are never dropped: their names are those of principals, of which there
    are as many as an admin made. For the event loop's thread alone.

    Args:
        per_second: tokens a second; None sets no limit.
        burst: tokens that a full bucket holds.
        clock: seconds that never run backwards.
    """

    def __init__(self, per_second: float | None, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = 0.0 if per_second is None else 1 / per_second
        self._burst, self._clock = burst, clock
        self._full_at: dict[str, float] = {}

    def consume(self, name: str, tokens: int = 1, paid: int = 0) -> None:
        """Consume tokens, of which ``paid`` were consumed before.

        More tokens than a bucket holds can be had when it is full. The bucket then owes the rest, which must come in
        before any other is consumed.

        Raises:
            TooManyRequests: when there are not enough, saying after how many seconds there will be; none is consumed.
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

    def debit(self, name: str, tokens: float) -> None:
        """Consume tokens for work that is done already, whether or not there are so many.

        The bucket owes what it does not hold, as in :meth:`consume`.
        """
        if self._seconds:
            now = self._clock()
            self._full_at[name] = max(now, self._full_at.get(name, 0.0)) + tokens * self._seconds
