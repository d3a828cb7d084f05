"""Exact counts of records that stay where they are: they are those that brute force makes of the records, whatever was
asked before, and nothing is asked but counts of every record by classes of values.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spaces import asked as asked_module
from app.spaces.asked import AskedCounts, classes_of, covering, document, name_of, read
from app.spaces.counts import AllEntries, CellCounts, Contraction, Entries, InnerProduct, LineSums, NotCounted, Tally
from app.spaces.errors import NotOffered
from app.spaces.partition import Partition
from app.spaces.tensor import Axis
from tests.questions.test_exact_counts import arrays, brute, plain_counts, same, tallies

pytestmark = pytest.mark.unit

SHAPE = (3, 4, 2)
KINDS = (Contraction, CellCounts)


class Kept:
    """Counts that are kept in a dictionary, as others may keep some meanwhile."""

    def __init__(self) -> None:
        self.told: dict[str, tuple[CellCounts, Any]] = {}

    def others(self, known: Sequence[str]) -> Iterator[CellCounts]:
        return iter([asked for name, (asked, _) in self.told.items() if name not in known])

    def load(self, name: str) -> Any:
        found = self.told.get(name)
        return None if found is None else found[1].reshape(-1)

    def keep(self, asked: CellCounts, counts: Any) -> None:
        self.told[name_of(asked)] = asked, counts


class Nothing(Kept):
    """Nothing is kept."""

    def keep(self, asked: CellCounts, counts: Any) -> None:
        pass


class Records:
    """Whoever holds records, and counts them by brute force."""

    def __init__(self, entries: Any) -> None:
        self.entries, self.asked = entries, list[list[CellCounts]]()

    def __call__(self, asked: Sequence[CellCounts]) -> list[Any]:
        self.asked.append(list(asked))
        for each in asked:
            # A condition that were a filter would show in the time whether anybody satisfies it.
            assert not each.where
            assert each.among is None
            assert each.whole
            assert math.prod(each.shape) <= asked_module.MOST_CLASSES
        # As another process would be told of them.
        sent = [read(orjson.loads(orjson.dumps(document(each)))) for each in asked]
        return [np.array(brute(each, self.entries), np.int64) for each in sent]

    def counts(self, kept: Kept | None = None) -> AskedCounts:
        return AskedCounts(self.entries.shape, int(self.entries.sum()), self, Kept() if kept is None else kept)


def told(counts: AskedCounts, asked: Sequence[Tally]) -> list[Any]:
    """The numbers, counted first where they must be."""
    try:
        return list(counts.tell(asked))
    except NotCounted as lacking:
        lacking.count()
    return list(counts.tell(asked))


@given(st.data())
def test_numbers_are_those_of_brute_force(data: st.DataObject) -> None:
    """Would catch values in one class that a question treats otherwise, a weight that is lost or counted twice, and
    counts that are said to follow from others and do not."""
    records = Records(data.draw(arrays(SHAPE)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asked_module, "MOST_WEIGHED", data.draw(st.sampled_from([0, 1 << 12])))
        patch.setattr(asked_module, "MOST_TOGETHER", data.draw(st.sampled_from([0, 8, 1 << 12])))
        patch.setattr(asked_module, "HELD_BYTES", data.draw(st.sampled_from([0, 1 << 20])))
        counts = records.counts(data.draw(st.sampled_from([Kept, Kept, Nothing]))())
        for _ in range(3):
            asked: list[Tally] = data.draw(
                st.lists(tallies(SHAPE, KINDS) | plain_counts(SHAPE), min_size=1, max_size=4)
            )
            try:
                found = told(counts, asked)
            except NotCounted:  # nothing is kept, and nothing has room
                assert asked_module.HELD_BYTES == 0
                continue
            for tally, number in zip(asked, found, strict=True):
                assert same(number, brute(tally, records.entries))
                assert isinstance(number, int) == isinstance(tally, Contraction)


def test_what_was_counted_is_not_counted_again() -> None:
    """Nor what follows from it, by another that holds the same kept counts. Would catch a source that is asked for each
    question anew, as after a start."""
    records, kept = Records(np.arange(24).reshape(SHAPE)), Kept()
    pair = CellCounts((0, 1), (None, None), (3, 4))
    coarse = CellCounts((1,), (Partition(np.array([0, 0, 1, 1])),), (2,))
    chosen = CellCounts((0,), (None,), (3,), where=((1, np.array([1, 3])),))
    told(records.counts(kept), [pair])
    other = records.counts(kept)
    for tally in (pair, coarse, chosen, Contraction((None, Axis(4, np.array([0, 3])), None)), Contraction((None,) * 3)):
        (number,) = other.tell([tally])
        assert same(number, brute(tally, records.entries))
    assert [len(each) for each in records.asked] == [1]


def test_the_number_of_records_is_known() -> None:
    """Would catch a source that is asked how many records it has, which was counted at registration."""
    records = Records(np.arange(24).reshape(SHAPE))
    assert list(records.counts().tell([Contraction((None,) * 3), CellCounts((), (), ())])) == [276, 276]
    assert not records.asked


def test_pairs_are_counted_together() -> None:
    """All pairs of twelve attributes of four values: 66 questions become few. Would catch an
    opening that reads all records once a pair."""
    shape = (4,) * 12
    pairs = [CellCounts((i, j), (None, None), (4, 4)) for i in range(12) for j in range(i + 1, 12)]
    needed = [each for pair in pairs if (each := classes_of(pair, shape)) is not None]
    merged = covering(needed)
    assert len(needed) == len(pairs) == 66
    assert len(merged) <= 66 * 15 // 36 + 1, "six attributes together hold 15 pairs, and the last hold fewer"
    for group in merged:
        assert math.prod(group.shape) <= asked_module.MOST_TOGETHER


def test_what_is_too_wide_or_of_another_kind_is_not_offered() -> None:
    """Before anything is asked. Would catch a question whose counts fill the memory."""
    shape = (5000, 5000, 2)
    counts = AskedCounts(shape, 1, lambda asked: pytest.fail("nothing is asked"), Kept())
    wide = CellCounts((0, 1), (None, None), shape[:2])
    dense: list[Tally] = [AllEntries(), Entries(np.array([0])), InnerProduct(np.ones((1,)), 0), LineSums(0)]
    for tally in (wide, *dense, CellCounts((3,), (None,), (2,))):
        assert not counts.offers(tally)
        with pytest.raises(NotOffered):
            counts.tell([CellCounts((2,), (None,), (2,)), tally])
    # Values that are treated alike are one class, and weights of many values are added up where records are.
    half = np.arange(2500)
    narrow = CellCounts((2,), (None,), (2,), where=((0, half), (1, half)))
    weighed = CellCounts((2,), (None,), (2,), factors=((0, np.arange(5000)), (1, np.arange(5000))))
    for tally in (narrow, weighed):
        needed = classes_of(tally, shape)
        assert needed is not None
        assert math.prod(needed.shape) <= 8
    assert counts.offers(narrow)
    assert counts.offers(weighed)


def test_a_name_tells_counts_apart() -> None:
    """Would catch counts that are kept under the name of others."""
    weights = np.array([1, 2, 3])
    different = [
        CellCounts((0,), (None,), (3,)),
        CellCounts((1,), (None,), (4,)),
        CellCounts((0,), (Partition(np.array([0, 0, 1])),), (2,)),
        CellCounts((0,), (Partition(np.array([0, 1, 1])),), (2,)),
        CellCounts((0,), (None,), (3,), factors=((0, weights),)),
        CellCounts((0,), (None,), (3,), factors=((0, weights + 1),)),
        CellCounts((0,), (None,), (3,), factors=((1, weights),)),
        CellCounts((), (), ()),
    ]
    assert len({name_of(each) for each in different}) == len(different)
    for each in different:
        assert name_of(read(orjson.loads(orjson.dumps(document(each))))) == name_of(each)


def test_two_that_wait_for_the_same_have_it_counted_once() -> None:
    """Would catch a source that is asked by each of many analysts who ask the same."""
    records = Records(np.arange(24).reshape(SHAPE))
    counts, asked = records.counts(), CellCounts((0,), (None,), (3,))
    waiting = []
    for _ in range(4):
        with pytest.raises(NotCounted) as lacking:
            counts.tell([asked])
        waiting.append(threading.Thread(target=lacking.value.count))
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert len(records.asked) == 1


def test_a_failure_leaves_nothing_behind() -> None:
    """Would catch counts that are believed though the source failed."""

    def failing(asked: Sequence[CellCounts]) -> list[Any]:
        raise OSError

    counts = AskedCounts(SHAPE, 5, failing, Kept())
    for _ in range(2):
        with pytest.raises(NotCounted) as lacking:
            counts.tell([CellCounts((0,), (None,), (3,))])
        with pytest.raises(OSError):
            lacking.value.count()
