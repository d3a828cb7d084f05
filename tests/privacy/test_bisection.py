"""Bisection against plain counting."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bisection import least_factor, least_integer, least_integer_near

pytestmark = pytest.mark.unit


@given(st.integers(-50, 50), st.integers(1, 100), st.integers(1, 100))
def test_the_least_integer(low: int, first: int, beyond: int) -> None:
    """Would catch a search that is off by one, and one that asks where the answer is known."""
    least, asked = low + first, []

    def holds(number: int) -> bool:
        asked.append(number)
        return number >= least

    assert least_integer(holds, low, least + beyond - 1) == least
    assert all(low < number < least + beyond - 1 for number in asked)


@given(st.integers(-20, 20), st.integers(0, 60), st.integers(0, 60), st.integers(0, 80))
def test_the_least_integer_near_a_guess(first: int, size: int, guessed: int, threshold: int) -> None:
    """Would catch a search that leaves its range on either side, or misses an end of it."""
    most = first + size
    guess, wanted = min(first + guessed, most), first + threshold
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number >= wanted

    found = least_integer_near(holds, guess, first, most)
    assert found == (wanted if wanted <= most else None)
    assert all(first <= number <= most for number in asked)


@given(st.floats(0.01, 100), st.floats(1.0, 1e6), st.floats(0.5, 2e6))
def test_the_least_factor(low: float, range_: float, times: float) -> None:
    """Would catch a factor that does not do, and one further from the least than was asked for."""
    wanted, high = low * times, low * range_
    found = least_factor(lambda factor: factor >= wanted, low, high, 1.01)
    if wanted > high:
        assert found is None
    else:
        assert found is not None
        assert max(wanted, low) <= found * (1 + 1e-12)
        assert found <= 1.01 * max(wanted, low) * (1 + 1e-12) or math.isclose(found, low)
