"""Cells of uploads. A cell is read by itself: what one record is taken for must not hang on any other, or one person
added would move two.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.storage.readers.columns import numbers

pytestmark = pytest.mark.unit

parts = st.sampled_from(
    ["0", "1", "9", ".", "+", "-", "e", "E", " ", "\t", "0" * 9, "9" * 9, "inf", "nan", "x", "_", "\u00a0"]
)
written = st.lists(parts, max_size=6).map("".join) | st.floats().map(repr) | st.integers().map(str)


def alike(one: float, other: float) -> bool:
    """Whether two readings mean one thing; no number and one beyond all are both outside of every domain."""
    return one == other or (not math.isfinite(one) and not math.isfinite(other))


@given(st.lists(written, min_size=1, max_size=6))
@example(["1e00005", "x"])
@example(["0e99999", "x"])
def test_a_number_is_read_alike_in_any_company(cells: list[str]) -> None:
    """Would catch a reading of whole batches that differs where one cell among them is no number."""
    together = numbers(pa.array(cells), "column")
    coded = numbers(pa.array(cells).dictionary_encode(), "column")
    for place, cell in enumerate(cells):
        alone = numbers(pa.array([cell]), "column")[0]
        assert alike(alone, together[place]), cell
        assert alike(alone, coded[place]), cell


@given(written)
def test_a_number_is_what_is_written(cell: str) -> None:
    """Against Python's own reading: where both take it, it is the same number; blanks around it do not matter."""
    found = numbers(pa.array([cell]), "column")[0]
    if np.isfinite(found):
        assert float(cell) == found
    assert alike(numbers(pa.array([f" {cell}\t"]), "column")[0], found)
