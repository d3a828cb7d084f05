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
from app.curator.answers import SETTLED_BYTES, FirstAnswers, Given

#: Digests of which many begin alike, as no two queries' ever will.
DIGESTS = st.tuples(st.integers(0, 2), st.integers(0, 5)).map(lambda pair: bytes([pair[0]] * 8 + [pair[1]] * 24))
NUMBERS = st.floats(-1e9, 1e9)
ADDED = st.lists(st.tuples(DIGESTS, NUMBERS, st.none() | NUMBERS), max_size=12)


def same(kept: FirstAnswers, model: dict[bytes, Given]) -> None:
    for first in range(3):
        for other in range(6):
            digest = bytes([first] * 8 + [other] * 24)
            assert kept.get(digest) == model.get(digest)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["one", "many", "copy"]), ADDED), max_size=8))
def test_as_a_dictionary(steps: list[tuple[str, list[tuple[bytes, float, float | None]]]]) -> None:
    """Would catch an answer lost in a merge, one given to another query, a bound of None that comes back a number, and
    a copy through a snapshot that is not the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "_RECENT", 3)
        kept, model = FirstAnswers(), dict[bytes, Given]()
        for how, added in steps:
            fresh = list({digest: (digest, *told) for digest, *told in added if digest not in model}.values())
            if how == "many":
                kept.add_all(fresh)
            else:
                for digest, value, bound in fresh:
                    kept.add(digest, value, bound)
            model |= {digest: (value, bound) for digest, value, bound in fresh}
            if how == "copy":
                kept = FirstAnswers.of(*kept.arrays())
            same(kept, model)
            assert len(kept) == len(model)


def test_of_real_digests() -> None:
    """Ten thousand queries, each with its own answer, and none for any other; numbers to the last bit."""
    kept = FirstAnswers()
    names = [hashlib.sha256(str(i).encode()).digest() for i in range(20_000)]
    for i, digest in enumerate(names[:10_000]):
        kept.add(digest, math.sin(i), math.exp(-i) if i % 3 else None)
    for i, digest in enumerate(names[:10_000]):
        assert kept.get(digest) == (math.sin(i), math.exp(-i) if i % 3 else None)
    assert not any(kept.get(digest) for digest in names[10_000:])
    digests, told = kept.arrays()
    assert digests.shape == (10_000, 32)
    assert {row.tobytes() for row in digests} == set(names[:10_000])
    assert told.dtype == np.float64


@pytest.mark.slow
def test_what_it_takes() -> None:
    """The account is what they take, and that is far from a dictionary's 250 bytes an answer."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = FirstAnswers()
        for i in range(100_000):
            kept.add(hashlib.sha256(str(i).encode()).digest(), float(i), 1.0)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= 1.2 * kept.nbytes + 100_000
    assert kept.nbytes <= 64 * 100_000
    assert kept.nbytes >= SETTLED_BYTES * 100_000


@pytest.mark.parametrize(
    "arrays",
    [(np.zeros((2, 31), np.uint8), np.zeros((2, 2))), (np.zeros((2, 32), np.uint8), np.zeros((3, 2)))],
)
def test_other_arrays(arrays: Any) -> None:
    """A damaged snapshot is refused, not answered from."""
    with pytest.raises(ValueError, match="digest"):
        FirstAnswers.of(*arrays)
