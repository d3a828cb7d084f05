"""Amounts as pages show them, against the amounts themselves."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.console.words import epsilon, taken

AMOUNTS = st.floats(1e-9, 1e6)


@pytest.mark.unit
@given(AMOUNTS)
def test_nobody_is_shown_more_than_there_is_or_less_than_it_costs(amount: float) -> None:
    """Would catch a price that is rounded down, of which somebody thinks that what is left pays for it."""
    exact = Decimal(repr(amount))
    assert Decimal(epsilon(amount)) <= exact <= Decimal(taken(amount)) * (1 + Decimal("1e-12"))
    assert Decimal(taken(amount)) - Decimal(epsilon(amount)) <= max(Decimal("0.001"), exact / 100)


@pytest.mark.unit
def test_amounts_that_were_added_up_are_shown_as_what_they_are() -> None:
    """Would catch three times .1 as .301: its last binary digit is no amount."""
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert taken(0.1 + 0.1 + 0.1) == "0.3"
    assert taken(2.0000000000000004) == epsilon(2.0) == "2"
    assert (taken(0.33341), epsilon(0.33341)) == ("0.334", "0.333")
    assert (taken(None), taken(float("inf")), taken(0.0)) == ("–", "–", "0")
