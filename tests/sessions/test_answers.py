"""Answers given, kept in little memory: the same as a dictionary, whatever the order and the size."""

from __future__ import annotations

import hashlib
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.curator import answers
from app.curator.answers import PACKED_BYTES, FirstAnswers

pytestmark = pytest.mark.unit

#: Digests of which many begin alike, as no two queries' ever will.
DIGESTS = st.tuples(st.integers(0, 2), st.integers(0, 5)).map(lambda pair: bytes([pair[0]] * 8 + [pair[1]] * 24))
VALUES = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4)
ADDED = st.lists(st.tuples(DIGESTS, VALUES, st.none() | st.floats(-1e9, 1e9)), max_size=12)
Told = tuple[list[int], float | None]


def stored(units: list[int]) -> bytes:
    return b"".join(value.to_bytes(8, "little", signed=True) for value in units)


def same(kept: FirstAnswers, model: dict[bytes, Told]) -> None:
    for first in range(3):
        for other in range(6):
            digest = bytes([first] * 8 + [other] * 24)
            found = kept.get(digest)
            assert (None if found is None else (found[0].tolist(), found[1])) == model.get(digest)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["one", "many", "copy"]), ADDED), max_size=8))
def test_as_a_dictionary(steps: list[tuple[str, list[tuple[bytes, list[int], float | None]]]]) -> None:
    """Would catch an answer lost in a merge, one given to another query, values of a neighbour in the arrays, a bound
    of None that comes back a number, and a copy through a snapshot that is not the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "_RECENT", 3)
        kept, model = FirstAnswers(), dict[bytes, Told]()
        for how, added in steps:
            fresh = list({digest: (digest, *told) for digest, *told in added if digest not in model}.values())
            if how == "many":
                kept.add_all([(digest, stored(units), bound) for digest, units, bound in fresh])
            else:
                for digest, units, bound in fresh:
                    kept.add(digest, np.array(units, np.int64), bound)
            model |= {digest: (units, bound) for digest, units, bound in fresh}
            if how == "copy":
                kept = FirstAnswers.of(kept.arrays())
            same(kept, model)
            assert len(kept) == len(model)


def test_of_real_digests() -> None:
    """Ten thousand queries, each with its own answer, and none for any other; numbers to the last bit."""
    kept = FirstAnswers()
    names = [hashlib.sha256(str(i).encode()).digest() for i in range(20_000)]
    for i, digest in enumerate(names[:10_000]):
        kept.add(digest, np.arange(i, i + 1 + i % 3), math.exp(-i) if i % 3 else None)
    for i, digest in enumerate(names[:10_000]):
        found = kept.get(digest)
        assert found is not None
        assert (found[0].tolist(), found[1]) == (list(range(i, i + 1 + i % 3)), math.exp(-i) if i % 3 else None)
    assert not any(kept.get(digest) for digest in names[10_000:])
    digests = kept.arrays()["digests"]
    assert digests.shape == (10_000, 32)
    assert {row.tobytes() for row in digests} == set(names[:10_000])


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 20])
def test_what_it_takes(size: int) -> None:
    """The account is what they take, and of single values that is far from a dictionary's 250 bytes an answer."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = FirstAnswers()
        for i in range(30_000):
            kept.add(hashlib.sha256(str(i).encode()).digest(), np.full(size, i), 1.0)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= 1.2 * kept.nbytes + 50_000
    each = PACKED_BYTES + 8 * (size - 1)
    assert each * 30_000 <= kept.nbytes <= 1.2 * each * 30_000


GOOD: dict[str, Any] = {
    "digests": np.zeros((2, 32), np.uint8),
    "bounds": np.zeros(2),
    "starts": np.array([0, 1]),
    "sizes": np.array([1, 1], np.int32),
    "units": np.zeros(2, np.int64),
}


@pytest.mark.parametrize(
    "damage",
    [
        {"digests": np.zeros((2, 31), np.uint8)},
        {"bounds": np.zeros(3)},
        {"starts": np.zeros(1, np.int64)},
        {"starts": np.array([0, 2])},
        {"starts": np.array([-1, 0])},
        {"units": np.zeros(1, np.int64)},
        {"units": np.zeros((2, 2), np.int64)},
    ],
)
def test_other_arrays(damage: dict[str, Any]) -> None:
    """A damaged snapshot is refused, not answered from."""
    assert len(FirstAnswers.of(GOOD)) == 2
    with pytest.raises(ValueError, match="answer"):
        FirstAnswers.of(GOOD | damage)
