"""What attributes are counted in before anything is asked of them."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.declarations.attributes import Attribute
from app.spaces.values import values_of

pytestmark = pytest.mark.unit


def starting(**declared: Any) -> list[int] | None:
    """The cell of each place."""
    attribute = Attribute.model_validate({"name": "a", **declared})
    begins = values_of(attribute).starting()
    if begins is None:
        return None
    return [bisect_right(begins.tolist(), place) - 1 for place in range(attribute.length)]


def test_declared_bins_are_where_numbers_begin() -> None:
    """Would catch edges that are off by one number, and records without a value counted in the last bin."""
    assert starting(lower=0, upper=5, grid=1, edges=[0, 2, 5]) == [0, 0, 1, 1, 1, 1]
    assert starting(lower=0, upper=5, grid=1, edges=[0, 2, 5], missing=True) == [0, 0, 1, 1, 1, 1, 2]
    assert starting(lower=0, upper=1, grid=0.25, bins=2) == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "declared",
    [
        {"size": 5000},
        {"values": [f"v{i}" for i in range(100)]},
        {"lower": 0, "upper": 100},
        {"lower": 0, "upper": 1, "bins": 100},
        {"lower": 0, "upper": 63, "grid": 1},
        {"lower": 0, "upper": 3, "grid": 1, "bins": 3, "edges": None},
        {"dates": ["2020-01-01", "2024-12-31"], "by": "month"},
        {"dates": ["2020-01-01", "2020-02-29"], "by": "day", "missing": True},
    ],
)
def test_value_by_value(declared: dict[str, Any]) -> None:
    """What has no finer values than it is asked in, or few. Would catch an opening of another kind than it always was:
    transcripts of old sessions would not follow any more."""
    if declared.get("bins") == 3:
        assert starting(**declared) == [0, 1, 2, 2]
    else:
        assert starting(**declared) is None


@given(st.integers(64, 400), st.booleans())
def test_many_numbers_begin_in_equal_bins(upper: int, missing: bool) -> None:
    """Neighbours, their numbers of places apart by one at most, no value by itself; so do days. Would catch more cells
    than are allowed, and a bin that is empty."""
    first = {"lower": 0, "upper": upper, "grid": 1}
    day = str(np.datetime64("2020-01-01") + upper)
    found = starting(**first, **({"missing": True} if missing else {}))
    assert found == starting(dates=["2020-01-01", day], by="day", **({"missing": True} if missing else {}))
    assert found is not None
    counts = np.bincount(found)
    assert len(found) == upper + 1 + missing
    assert 33 <= len(counts) <= 64
    assert found == sorted(found)
    assert counts[: len(counts) - missing].max() - counts[: len(counts) - missing].min() <= 1
    assert not missing or counts[-1] == 1


def test_bins_that_tell_nothing_apart_are_none() -> None:
    """Would catch an attribute that is never counted at all."""
    assert starting(lower=0, upper=100, grid=1, bins=1) == starting(lower=0, upper=100, grid=1)
    assert starting(lower=0, upper=9, grid=1, bins=1) is None
