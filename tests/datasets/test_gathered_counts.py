"""What others wait for is counted along where that adds no pass over the records. The oracle sums entries by a loop."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spaces import asked as asking
from app.spaces.asked import AskedCounts
from app.spaces.counts import CellCounts, Contraction, NotCounted, Tally
from app.spaces.partition import Partition
from app.spaces.tensor import Array, IntArray
from app.storage.kept_counts import NOTHING_KEPT
from tests.questions.test_exact_counts import brute, same, tallies

pytestmark = pytest.mark.unit

SHAPE = (3, 5, 4, 200)
ENTRIES = np.random.default_rng(2).integers(0, 9, SHAPE)


class Records:
    """Records that are counted by a loop, and how often they were passed over."""

    def __init__(self, entries: Array) -> None:
        self.entries, self.passes = entries, 0
        self.counts = AskedCounts(entries.shape, int(entries.sum()), self._count, NOTHING_KEPT.of("x"))

    def _count(self, due: Sequence[CellCounts]) -> list[IntArray]:
        self.passes += len(due)
        return [np.asarray(brute(each, self.entries), np.int64).reshape(each.shape) for each in due]

    def waiting(self, tally: Tally) -> NotCounted:
        with pytest.raises(NotCounted) as lacking:
            self.counts.tell([tally])
        return lacking.value

    def tells(self, tally: Tally) -> bool:
        """Whether it tells right numbers, without another pass."""
        return same(next(iter(self.counts.tell([tally]))), brute(tally, self.entries))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "GATHERED_SECONDS", 0)


def by(*axes: int) -> CellCounts:
    return CellCounts(axes, (None,) * len(axes), tuple(SHAPE[axis] for axis in axes))


def test_what_others_wait_for_comes_along() -> None:
    """Would catch a pass for each of those who asked at one moment."""
    records = Records(ENTRIES)
    waiting = [records.waiting(by(axis)) for axis in range(3)]
    waiting[1].count()
    assert records.passes == 1
    assert all(records.tells(by(axis)) for axis in range(3))
    for each in waiting:
        each.count()
    assert records.passes == 1, "whoever comes later finds it counted"


def test_what_would_need_a_pass_of_its_own_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for more than he asked, but for more classes in the same pass."""
    monkeypatch.setattr(asking, "MOST_TOGETHER", 200)
    records = Records(ENTRIES)
    wide, small, smaller = records.waiting(by(3)), records.waiting(by(0, 1)), records.waiting(by(2))
    small.count()
    assert records.passes == 1
    assert records.tells(by(2)), "it has room beside it"
    with pytest.raises(NotCounted):
        records.counts.tell([by(3)])
    wide.count()
    smaller.count()
    assert records.passes == 2
    assert records.tells(by(3))


def test_what_follows_from_a_wide_table_needs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many classes it has: asked with it, or waited for by another."""
    monkeypatch.setattr(asking, "MOST_TOGETHER", 10)
    assert [each.axes for each in asking.covering([by(0), by(0, 3), by(3)])] == [(0, 3)]
    records = Records(ENTRIES)
    wide, small = records.waiting(by(0, 3)), records.waiting(by(0))
    wide.count()
    small.count()
    assert records.passes == 1
    assert records.tells(by(0))


def test_what_found_no_room_comes_along_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch one that is forgotten after the first pass that it did not fit into."""
    monkeypatch.setattr(asking, "MOST_TOGETHER", 20)
    records = Records(ENTRIES)
    fifths = CellCounts((3,), (Partition.runs(200, [0, 40, 80, 120, 160]),), (5,))
    first, left, later = (records.waiting(each) for each in (by(0, 1), by(2), fifths))
    for waiting, passes in ((first, 1), (later, 2), (left, 2)):
        waiting.count()
        assert records.passes == passes
    assert records.tells(by(2))
    assert records.tells(fifths)


def test_so_much_is_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of questions that nobody came back for. Would catch memory that grows with each."""
    monkeypatch.setattr(asking, "MOST_GATHERED", 2)
    records = Records(ENTRIES)
    waiting = [records.waiting(by(axis)) for axis in range(4)]
    assert len(records.counts._wanted) == 2
    waiting[0].count()
    assert records.tells(by(0)), "who is forgotten is counted in his own turn"


def test_those_who_ask_within_a_moment_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second asks while the first is about to be counted."""
    records = Records(ENTRIES)
    first = records.waiting(by(0))
    later: list[NotCounted] = []
    monkeypatch.setattr(asking.time, "sleep", lambda _: later.append(records.waiting(by(1))))
    counting = threading.Thread(target=first.count)
    counting.start()
    counting.join()
    later[0].count()
    assert records.passes == 1


@given(data=st.data(), together=st.sampled_from([1, 6, 1 << 15]), weighed=st.sampled_from([0, 1 << 12]))
def test_numbers_are_right_whoever_had_them_counted(data: st.DataObject, together: int, weighed: int) -> None:
    """Whatever several wait for, in whatever order they are counted, with whatever came along."""
    shape = (2, 3, 2)
    entries = np.array(data.draw(st.lists(st.integers(0, 5), min_size=12, max_size=12))).reshape(shape)
    asked: list[Tally] = data.draw(st.lists(tallies(shape, (CellCounts, Contraction)), min_size=2, max_size=4))
    records = Records(entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "MOST_TOGETHER", together)
        patch.setattr(asking, "MOST_WEIGHED", weighed)
        patch.setattr(asking, "GATHERED_SECONDS", 0)
        waiting: list[NotCounted] = []
        for tally in asked:
            try:
                assert same(next(iter(records.counts.tell([tally]))), brute(tally, entries))
            except NotCounted as lacking:
                waiting.append(lacking)
        for number in data.draw(st.permutations(range(len(waiting)))):
            waiting[number].count()
        assert all(records.tells(tally) for tally in asked)
