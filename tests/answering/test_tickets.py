"""Whose turn it is: nobody waits for all that another has sent, and nobody's own requests are reordered."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services.answering.tickets import (
    FIRST_PAUSE,
    GROUP,
    GROUP_QUERIES,
    LAST_PAUSE,
    LONG_BATCH,
    Deferred,
    Ticket,
    TicketQueue,
)

pytestmark = pytest.mark.unit


def ticket(actor: str, queries: int = 1, session: str = "s") -> Ticket:
    return Ticket("ask" if queries == 1 else "batch", session, actor, range(queries))


def all_groups(waiting: TicketQueue) -> list[list[Ticket]]:
    groups = []
    while waiting:
        groups.append(waiting.next_group())
    return groups


SENT = st.lists(st.builds(ticket, st.sampled_from("abc"), st.sampled_from([1, 1, 1, 40, 500, 2000])), max_size=300)


@given(SENT)
def test_everything_is_taken_once_and_each_ones_requests_in_their_order(sent: list[Ticket]) -> None:
    """Catches a request lost, taken twice, or overtaking another of the same principal."""
    waiting = TicketQueue()
    waiting.add(sent)
    taken = [t for group in all_groups(waiting) for t in group]
    assert len(taken) == len(sent)
    for actor in "abc":
        assert [t for t in taken if t.actor == actor] == [t for t in sent if t.actor == actor]


@given(SENT)
def test_groups_are_bounded(sent: list[Ticket]) -> None:
    """Catches a transaction that grows without end, and an empty one. A long batch is alone."""
    waiting = TicketQueue()
    waiting.add(sent)
    for group in all_groups(waiting):
        assert 1 <= len(group) <= GROUP
        assert len(group) == 1 or sum(len(t.queries) for t in group) <= GROUP_QUERIES
        assert len(group) == 1 or all(len(t.queries) <= LONG_BATCH for t in group)


@given(SENT, st.sets(st.sampled_from("abc")))
def test_a_long_batch_that_may_not_begin_keeps_its_place(sent: list[Ticket], busy: set[str]) -> None:
    """Catches a batch begun beside another of the same principal, one that is lost or overtaken by the principal's own
    later requests, and one that holds up others."""
    waiting = TicketQueue()
    waiting.add(sent)
    taken = []
    while group := waiting.next_group(lambda t: t.actor not in busy):
        taken += group
    for actor in "abc":
        mine = [t for t in sent if t.actor == actor]
        held = next((n for n, t in enumerate(mine) if t.alone), len(mine)) if actor in busy else len(mine)
        assert [t for t in taken if t.actor == actor] == mine[:held]
    rest = [t for group in all_groups(waiting) for t in group]
    assert sorted(map(id, taken + rest)) == sorted(map(id, sent))


@given(SENT, st.integers(0, 300))
def test_nobody_waits_longer_than_a_group_for_each_principal(sent: list[Ticket], before: int) -> None:
    """Catches first come, first served: who sends one request would wait for all that somebody else has sent."""
    waiting = TicketQueue()
    waiting.add(sent)
    for _ in range(before):
        if not waiting:
            break
        waiting.next_group()
    others = {t.actor for t in (t for q in waiting._waiting.values() for t in q)}
    late = ticket("late")
    waiting.add([late])
    waited = next(i for i, group in enumerate(all_groups(waiting)) if late in group)
    assert waited <= len(others)


@given(SENT, st.integers(0, GROUP))
def test_what_is_put_back_comes_first_again(sent: list[Ticket], keep: int) -> None:
    """Catches a postponed request that loses its place to a later one of the same principal."""
    waiting = TicketQueue()
    waiting.add(sent)
    if not waiting:
        return
    group = waiting.next_group()
    waiting.put_back(group[keep:])
    rest = [t for group in all_groups(waiting) for t in group]
    assert not group[keep:] or rest[0] is group[keep]
    for actor in "abc":
        mine = [t for t in group[:keep] + rest if t.actor == actor]
        assert mine == [t for t in sent if t.actor == actor]


def test_one_principals_singles_share_a_group() -> None:
    """Catches turns so fair that a lone client's pipelined requests are committed one by one."""
    waiting = TicketQueue()
    waiting.add([ticket("a") for _ in range(GROUP + 1)])
    assert [len(group) for group in all_groups(waiting)] == [GROUP, 1]


@given(st.lists(st.builds(ticket, st.sampled_from("abc"), st.just(1), st.sampled_from("xyz")), max_size=60))
def test_a_session_is_withdrawn_whole_and_alone(sent: list[Ticket]) -> None:
    """Catches a request that is lost, or left behind where it would overtake those put deferred."""
    waiting = TicketQueue()
    waiting.add(sent)
    taken = waiting.withdraw("x")
    assert sorted(map(id, taken)) == sorted(id(t) for t in sent if t.session == "x")
    for actor in "abc":
        mine = [t for t in sent if t.actor == actor and t.session == "x"]
        assert [t for t in taken if t.actor == actor] == mine
    rest = [t for group in all_groups(waiting) for t in group]
    assert len(rest) == len(sent) - len(taken)


class TestDeferred:
    def test_one_of_each_session_is_tried_less_and_less_often(self) -> None:
        """Catches requests tried without a pause, all at once, or never again, and those that come out of order."""
        now = [0.0]
        deferred = Deferred(lambda: now[0])
        assert (bool(deferred), deferred.seconds, deferred.try_again()) == (False, None, [])
        first, second, other = ticket("a"), ticket("b"), ticket("a", session="t")
        deferred.defer([first, second, other])
        assert deferred.try_again() == []
        tries = []
        while now[0] < 10:
            assert deferred.seconds is not None
            now[0] += deferred.seconds + 1e-9
            again = deferred.try_again()
            assert sorted(map(id, again)) == sorted(map(id, (first, other)))
            for each in again:
                deferred.put_back(each)
            tries.append(now[0])
        pauses = [round(later - sooner, 6) for sooner, later in itertools.pairwise(tries)]
        assert tries[0] < 2 * FIRST_PAUSE
        assert pauses == sorted(pauses)
        assert pauses[-1] == LAST_PAUSE
        now[0] += LAST_PAUSE
        deferred.try_again()
        assert deferred.withdraw("s") == [second]
        assert "s" not in deferred
        assert "t" in deferred

    def test_what_ended_otherwise_is_not_tried(self) -> None:
        """A request that was tried and ended with an error. Catches a session that has nothing left and is tried."""
        now = [0.0]
        deferred = Deferred(lambda: now[0])
        deferred.defer([ticket("a")])
        now[0] = 1.0
        assert len(deferred.try_again()) == 1
        now[0] = 2.0
        assert deferred.try_again() == []
        assert not deferred

    def test_others_wait_seldom(self) -> None:
        """Catches a lane that makes others wait each time for what was put deferred."""
        now = [0.0]
        deferred = Deferred(lambda: now[0])
        waited = 0
        for step in range(1000):
            now[0] = 100 + step / 100
            waited += deferred.patient()
        assert 2 <= waited <= 5

    def test_at_the_end_everything_is_given_back(self) -> None:
        deferred = Deferred()
        sent = [ticket("a"), ticket("b", session="t")]
        deferred.defer(sent)
        assert deferred.clear() == sent
        assert not deferred
