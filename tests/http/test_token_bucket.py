"""Token buckets against a plain one that counts its tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.token_bucket import TokenBuckets
from app.services.errors import TooManyRequests

pytestmark = pytest.mark.unit


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 12345.678

    def __call__(self) -> float:
        return self.now


class Counted:
    """A bucket as it is told to children: a number of tokens, topped up whenever somebody looks."""

    def __init__(self, per_second: float, burst: int, clock: Clock) -> None:
        self.per_second, self.burst, self.clock = per_second, burst, clock
        self.tokens, self.looked = float(burst), clock()

    def top_up(self) -> None:
        self.tokens = min(self.burst, self.tokens + (self.clock() - self.looked) * self.per_second)
        self.looked = self.clock()


@given(
    st.floats(0.01, 1e5),
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 120)), min_size=1, max_size=60),
)
def test_against_counted_tokens(per_second: float, burst: int, steps: list[tuple[float, int]]) -> None:
    """Any rate, any burst, any times: taken exactly when a counted bucket holds enough, and the wait that a refusal
    names is long enough, and no more than a second too long. Catches a bucket that overflows, leaks, forgets what it is
    owed, or loses a token to rounding.
    """
    clock = Clock()
    buckets, counted = TokenBuckets(per_second, burst, clock), Counted(per_second, burst, clock)
    for pause, tokens in steps:
        clock.now += pause
        counted.top_up()
        needed = min(tokens, burst)
        spare = counted.tokens - needed
        if abs(spare) < 1e-6 * (1 + per_second + burst):
            return  # too close to call for floats: what follows depends on it
        if spare > 0:
            buckets.consume("ann", tokens)
            counted.tokens -= tokens
            continue
        with pytest.raises(TooManyRequests) as refusal:
            buckets.consume("ann", tokens)
        wait = refusal.value.retry_after
        assert wait >= 1
        assert (wait - 1) * per_second <= -spare * (1 + 1e-9) + 1e-6 * per_second
        clock.now += wait
        buckets.consume("ann", tokens)
        counted.top_up()
        counted.tokens -= tokens


def test_everything_but_nothing_more() -> None:
    """A full bucket gives all it has, at any hour, and then nothing. Catches one token lost to rounding."""
    for hour in range(200):
        clock = Clock()
        clock.now = hour * 3600.1
        buckets = TokenBuckets(3, 7, clock)
        for _ in range(7):
            buckets.consume("ann")
        with pytest.raises(TooManyRequests):
            buckets.consume("ann")


def test_names_do_not_share() -> None:
    """Catches one caller's requests charged to another."""
    buckets = TokenBuckets(1, 1, Clock())
    buckets.consume("ann")
    buckets.consume("bob")
    with pytest.raises(TooManyRequests):
        buckets.consume("ann")


def test_what_was_paid_is_not_paid_again() -> None:
    """A batch is counted when it is let in and then for what it holds. Catches its first query counted twice, or its
    others not at all."""
    clock = Clock()
    buckets = TokenBuckets(1, 10, clock)
    buckets.consume("ann")
    buckets.consume("ann", 10, paid=1)
    with pytest.raises(TooManyRequests):
        buckets.consume("ann")
    clock.now += 10
    buckets.consume("ann")
    buckets.consume("ann", 25, paid=1)  # more than a bucket holds: what is missing is owed
    with pytest.raises(TooManyRequests) as refusal:
        buckets.consume("ann")
    assert refusal.value.retry_after == 16


def test_a_refusal_takes_nothing() -> None:
    """Catches somebody who is never let in again because he kept asking."""
    clock = Clock()
    buckets = TokenBuckets(1, 1, clock)
    buckets.consume("ann")
    for _ in range(100):
        with pytest.raises(TooManyRequests) as refusal:
            buckets.consume("ann")
        assert refusal.value.retry_after == 1
    clock.now += 1
    buckets.consume("ann")


def test_without_a_limit() -> None:
    """Catches a limit where none was set."""
    buckets = TokenBuckets(None, 1, Clock())
    for _ in range(1000):
        buckets.consume("ann", 100)


def test_debts_are_paid_before_anything_else() -> None:
    """Catches work that is counted when it is done, and then forgotten, or counted twice."""
    clock = Clock()
    buckets = TokenBuckets(10, 20, clock)
    buckets.consume("ann")
    buckets.debit("ann", 29.0)
    with pytest.raises(TooManyRequests) as told:
        buckets.consume("ann")
    assert told.value.retry_after == 2  # 10 are missing, and the one that is asked for: 1.1 s
    buckets.consume("bob")
    clock.now += 1.05
    with pytest.raises(TooManyRequests):
        buckets.consume("ann")
    clock.now += 0.06
    buckets.consume("ann")
    TokenBuckets(None, 1, clock).debit("ann", 1e9)
