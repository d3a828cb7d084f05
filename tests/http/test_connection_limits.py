"""Limits on connections against a plain list of them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.clients import client_of
from app.server.connection_limits import ConnectionLimits
from app.services.errors import Unavailable

pytestmark = pytest.mark.unit

PROXY = "10.9.9.9"
HOSTS = ["10.0.0.1", "10.0.0.2", "10.0.0.3", PROXY]


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_whom_an_address_counts_for(host: str, client: str) -> None:
    """Catches somebody with a network of addresses who is taken for as many people, and all of IPv4 taken for one."""
    assert client_of(host) == client


@dataclass(eq=False)
class Line:
    """A connection, and what has become of it."""

    host: str
    served: bool = False
    silent: bool = True
    idle_since: int | None = None
    ended: bool = field(default=False)

    def close_idle(self) -> None:
        self.ended = True


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["come", "come", "idle", "busy", "leave"]), st.integers(0, 9)), max_size=60),
)
def test_against_a_list(most: int, most_a_client: int, steps: list[tuple[str, int]]) -> None:
    """Any connections that come, ask, are idle and go. Catches a client, or a house, with more than it may have; a busy
    one that ends for another, one that has asked while there is one that never has, or not the first of those who
    must; a refusal where there was room, and a place that is never given back.
    """
    limits = ConnectionLimits(most, most_a_client, lambda host: host == PROXY)
    lines: list[Line] = []

    def gives(among: list[Line]) -> Line | None:
        """Who must go: a silent one of a client with the most of them, else the longest idle."""
        silent = [each for each in among if each.silent]
        number_of = Counter(each.host for each in silent)
        most_silent = {host for host, number in number_of.items() if number == max(number_of.values())}
        firsts = {each.host: each for each in reversed(silent)}
        if silent:  # of several such clients any
            return next((firsts[host] for host in most_silent if firsts[host].ended), firsts[min(most_silent)])
        return min((each for each in among if each.idle_since is not None), key=lambda e: e.idle_since, default=None)

    for now, (what, number) in enumerate(steps):
        served = [line for line in lines if line.served]
        if what == "come":
            line = Line(HOSTS[number % len(HOSTS)])
            own = [each for each in served if each.host == line.host]
            expected: list[Line] = []
            taken = True
            with suppress(Unavailable):
                limits.admit(line, line.host)
                line.served = True
            if line.host != PROXY and len(own) >= most_a_client:
                first = gives(own)
                taken = first is not None
                expected += [first] if first else []
            if taken and len(served) - len(expected) >= most:
                first = gives([each for each in served if each not in expected])
                taken = first is not None
                expected += [first] if first else []
            assert line.served == taken
            for each in expected:
                assert each.ended
                each.served, each.idle_since, each.silent = False, None, False
            lines.append(line)
        elif lines:
            line = lines[number % len(lines)]
            if what == "idle":
                if line.silent:
                    limits.mark_busy(line)
                    line.silent = False
                limits.mark_idle(line)
                if line.served and line.idle_since is None:
                    line.idle_since = now
            elif what == "busy":
                limits.mark_busy(line)
                line.idle_since, line.silent = None, False
            else:
                limits.release(line)
                line.served, line.idle_since = False, None
        assert len(limits) == sum(line.served for line in lines) <= most
        assert not any(line.ended for line in lines if line.served)
    for line in lines:
        limits.release(line)
    assert len(limits) == 0
    assert not limits._count
    assert not limits._idle
    assert not limits._silent
