"""What is counted of a table: the one form of a partition and of a marginal, and their documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spaces.partition import Marginal, Partition

pytestmark = pytest.mark.unit

SIZES = (3, 4, 1, 6)


def thirds() -> Partition:
    return Partition.of(np.array([0, 0, 1, 1, 2, 2]))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_a_partition_has_one_form(labels: list[int]) -> None:
    """Labels spelled in any way against a slow loop that numbers them as they come. Would catch one division of values
    with two forms, which would be two releases, and counts or members of another cell."""
    seen: dict[int, int] = {}
    expected = [seen.setdefault(label, len(seen)) for label in labels]
    partition = Partition.of(np.array(labels))
    assert partition.labels.tolist() == expected
    assert partition == Partition.of(np.array([7 * label for label in labels]))
    assert partition.cells == len(seen)
    assert partition.counts.tolist() == [expected.count(c) for c in range(len(seen))]
    assert partition.members.tolist() == [expected.index(c) for c in range(len(seen))]
    assert partition.even == (len(set(partition.counts.tolist())) == 1)


@given(st.data())
def test_refinement_against_sets(data: st.DataObject) -> None:
    """Would catch a test of refinement that looks at least members alone, and a common refinement too coarse or too
    fine."""
    ends = st.sampled_from([[0] * 6, list(range(6))])
    labels = st.lists(st.integers(0, 3), min_size=6, max_size=6) | ends
    one, two = (Partition.of(np.array(data.draw(labels))) for _ in range(2))

    def cells(p: Partition) -> list[set[int]]:
        return [set(np.flatnonzero(p.labels == c).tolist()) for c in range(p.cells)]

    assert one.refines(two) == all(any(a <= b for b in cells(two)) for a in cells(one))
    both = one.met(two)
    assert {frozenset(c) for c in cells(both)} == {frozenset(a & b) for a in cells(one) for b in cells(two)} - {
        frozenset()
    }
    if one.refines(two):
        assert np.array_equal(two.over(one).labels[one.labels], two.labels)


@pytest.mark.parametrize("labels", [[1, 0], [0, 2], [], [[0], [1]], [-1, 0]])
def test_labels_out_of_order_are_no_partition(labels: Any) -> None:
    """Would catch a second form of one partition let in by the constructor."""
    with pytest.raises(ValueError, match="partition"):
        Partition(np.array(labels, dtype=np.int64))


def test_marginals_have_one_form() -> None:
    """Single values are never written out, and attributes that are not told apart are not named."""
    named = Marginal.of(SIZES, {3: Partition.singles(6), 0: None, 1: Partition.of(np.zeros(4)), 2: None})
    assert named == Marginal((0, 3), (3, 6), (None, None))
    assert hash(named) == hash(Marginal((0, 3), (3, 6), (None, None)))
    assert named.whole
    assert Marginal.of(SIZES, {}).shape == ()
    binned = Marginal.of(SIZES, {0: None, 3: thirds()})
    assert (binned.shape, binned.cells, binned.whole) == ((3, 3), 9, False)
    assert binned.onto(frozenset({3, 1})) == Marginal.of(SIZES, {3: thirds()})


@pytest.mark.parametrize(
    ("attributes", "sizes", "partitions"),
    [
        ((1, 0), (2, 2), (None, None)),
        ((0, 0), (2, 2), (None, None)),
        ((-1,), (2,), (None,)),
        ((0,), (2, 2), (None,)),
        ((0,), (1,), (None,)),
        ((0,), (3,), (Partition.singles(3),)),
        ((0,), (3,), (Partition.of(np.zeros(3)),)),
        ((0,), (7,), (thirds(),)),
    ],
)
def test_what_is_no_marginal(attributes: Any, sizes: Any, partitions: Any) -> None:
    with pytest.raises(ValueError, match=r"marginal|partition"):
        Marginal(attributes, sizes, partitions)


def test_runs_of_very_many_values_are_written_as_where_they_begin() -> None:
    """One form of each: what is long and in runs is told by these, all else by the cell of each value. Would catch two
    documents of one measurement, and one that grows with the number of values."""
    long = Partition.of(np.arange(5001) // 100)
    assert long.document() == {"runs": list(range(0, 5001, 100))}
    assert Partition.read(long.document(), 5001) == long
    mixed = Partition.of(np.arange(5001) % 7)
    assert mixed.document() == mixed.labels.tolist()
    assert Partition.read(mixed.document(), 5001) == mixed
    short = Partition.of(np.arange(4096) // 100)
    assert short.document() == short.labels.tolist()
    assert Partition.read(short.document(), 4096) == short
    marginal = Marginal.of((5001, 3), {0: long, 1: None})
    assert Marginal.read(marginal.document()) == marginal
    for document, size in (
        ({"runs": [0, 5]}, 4096),
        ({"runs": [1, 5]}, 5001),
        ({"runs": [0, 5, 5]}, 5001),
        ({"runs": [0, 5001]}, 5001),
        ({"runs": []}, 5001),
        ({"runs": [0, 5.0]}, 5001),
        ({"runs": [0, 5], "more": 1}, 5001),
        ({}, 5001),
    ):
        with pytest.raises((ValueError, TypeError)):
            Partition.read(document, size)
