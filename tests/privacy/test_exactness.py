"""Directed rounding."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.privacy.exactness import (
    QUANTUM,
    ceil_to,
    exact,
    float_at_least,
    float_at_most,
    floor_to,
    round_down,
    round_up,
)

pytestmark = pytest.mark.unit

NUMBERS = st.one_of(
    st.fractions(min_value=Fraction(1, 10**20), max_value=10**18),
    st.decimals(min_value="1e-20", max_value="1e18", places=20),
    st.integers(1, 2**70),
)


@given(NUMBERS)
def test_floats_bracket_the_number_as_tightly_as_floats_can(number: Fraction) -> None:
    low, high = float_at_most(number), float_at_least(number)
    assert Fraction(low) <= Fraction(number) <= Fraction(high)
    assert Fraction(high) - Fraction(low) <= Fraction(high) * Fraction(1, 2**52)
    assert (low == high) == (Fraction(low) == Fraction(number))


@given(NUMBERS)
def test_grid_rounding_brackets(number: Fraction) -> None:
    low, high = floor_to(number), ceil_to(number)
    assert Fraction(low) <= Fraction(number) <= Fraction(high)
    assert Fraction(high) - Fraction(low) in (0, Fraction(QUANTUM))


@given(st.decimals(min_value="-100", max_value="1000", places=40))
def test_amounts_are_rounded_past_the_stated_error(value: Decimal) -> None:
    slack = Fraction(1, 10**30)
    assert Fraction(round_up(value)) >= Fraction(value) + slack
    assert Fraction(round_down(value)) <= Fraction(value) - slack
    assert Fraction(round_up(value)) - Fraction(round_down(value)) <= 2 * Fraction(QUANTUM)


@pytest.mark.parametrize("value", [0.5, True, "1", None])
def test_only_exact_numbers_pass(value: object) -> None:
    with pytest.raises(TypeError):
        exact(value, "scale")  # type: ignore[arg-type]
