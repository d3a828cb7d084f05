"""Randomised response: its costs against independent formulas, and the coins that it is drawn with."""

from __future__ import annotations

import os
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, RandomizedResponseDpEvent
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from app.privacy.costs import RandomisedResponse, pure_cost, renyi_cost
from app.privacy.errors import InvalidEvent
from app.privacy.flips import Flips

pytestmark = pytest.mark.unit

ORDERS = st.decimals(min_value="1.001", max_value="1000000", places=3)
#: Probabilities of every size up to one half, and just below it.
FLIPS = st.one_of(
    st.integers(1, 2**52 - 1).map(lambda flips: Fraction(flips, 2**53)),
    st.integers(1, 2**30).map(lambda flips: Fraction(flips, 2**62)),
    st.integers(1, 2**30).map(lambda flips: Fraction(1, 2) - Fraction(flips, 2**62)),
)


def precise(value: Fraction | Decimal) -> mpmath.mpf:
    number = Fraction(value)
    return mpmath.mpf(number.numerator) / number.denominator


@given(FLIPS, ORDERS)
def test_the_costs_are_the_formulas_rounded_up(flip: Fraction, order: Decimal) -> None:
    """The cost is the logarithm of a sum over a bit's two values, and the pure one that of the largest ratio. Would
    catch a wrong formula, cancellation near one half, and rounding downwards.
    """
    with mpmath.workdps(250):
        p, a = precise(flip), precise(order)
        truth = mpmath.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)
        pure = mpmath.log((1 - p) / p)
        found, own = renyi_cost(RandomisedResponse(flip), order), pure_cost(RandomisedResponse(flip))
        assert own is not None
        assert 0 <= precise(found) - truth <= mpmath.mpf("1.001e-24")
        assert 0 <= precise(own) - pure <= mpmath.mpf("1.001e-24")
        assert found <= own


@pytest.mark.parametrize("flip", [Fraction(1, 4), Fraction(1, 100), Fraction(31, 64)])
def test_the_cost_is_that_of_dp_accounting(flip: Fraction) -> None:
    """Would catch a formula that is right for another mechanism: a library that knows randomised response agrees."""
    orders = [1.5, 2.0, 8.0, 40.0]
    accountant = rdp_privacy_accountant.RdpAccountant(orders, NeighboringRelation.REPLACE_ONE)
    # There a bit is made anew with a probability of twice p, and is then wrong half of the time.
    accountant.compose(RandomizedResponseDpEvent(float(2 * flip), 2))
    for order, theirs in zip(orders, accountant._rdp, strict=True):
        assert float(renyi_cost(RandomisedResponse(flip), Decimal(order))) == pytest.approx(theirs, rel=1e-9)


@given(FLIPS, FLIPS, ORDERS)
def test_more_flips_cost_less(one: Fraction, other: Fraction, order: Decimal) -> None:
    """Would catch a cost that a search by bisection cannot trust."""
    least, most = sorted((one, other))
    assert renyi_cost(RandomisedResponse(most), order) <= renyi_cost(RandomisedResponse(least), order)


@pytest.mark.parametrize("flip", [0, Fraction(1, 2), Fraction(3, 4), Fraction(1, 2**63), -1])
def test_descriptions_without_meaning_are_refused(flip: Any) -> None:
    """Would catch a probability at which the formulas mean nothing."""
    with pytest.raises(InvalidEvent):
        RandomisedResponse(flip)
    with pytest.raises(InvalidEvent):
        Flips(flip)


@pytest.mark.parametrize("flip", [0.25, Fraction(1, 3), Decimal("0.1"), Fraction(1, 2**65)])
def test_coins_are_exact_or_refused(flip: Any) -> None:
    """Would catch a probability that is rounded on its way to the coin."""
    with pytest.raises(InvalidEvent):
        Flips(flip)


@pytest.mark.parametrize("flip", [Fraction(1, 4), Fraction(3, 2**53), Fraction(2**52 - 1, 2**53)])
def test_a_coin_is_a_word_below_the_threshold(flip: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all words of 64 bits exactly the part p makes a 1. Would catch a threshold that is one off, and words that are
    compared as signed numbers.
    """
    below = int(flip * 2**64)
    words = np.array([0, 1, below - 1, below, below + 1, 2**63, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(os, "urandom", lambda size: words.tobytes()[:size])
    assert Flips(flip).take(len(words)).tolist() == [int(int(word) < below) for word in words]


def test_coins_are_fresh_and_fair() -> None:
    """Would catch a part that is drawn twice or left as it was, and another probability: wrong alarms have a
    probability below 1e-9.
    """
    many, flip = (1 << 20) + 12345, Fraction(1, 8)
    coins = Flips(flip).take(many)
    assert coins.dtype == np.uint8
    assert set(np.unique(coins)) == {0, 1}
    for part in (coins, coins[1 << 20 :]):
        low, high = stats.binom(len(part), float(flip)).ppf([1e-10, 1 - 1e-10])
        assert low <= part.sum() <= high
    assert not np.array_equal(coins[:12345], coins[1 << 20 :])
