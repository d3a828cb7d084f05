"""The round itself, looked at exhaustively."""

from __future__ import annotations

import itertools
from dataclasses import fields

import numpy as np
import pytest

from app.curator.mechanisms.round import Hit, Miss, play, race

pytestmark = pytest.mark.unit

SMALL = range(-4, 5)


def test_every_small_round() -> None:
    """All hypotheses, private values, noises and thresholds of a few units: a hit exactly when the noisy gap passes
    the threshold, its value the noisy one; else the hypothesis' own. Would catch >= for >, a hit that releases the
    gap or the private value, a miss that releases anything but c."""
    for c, v, a, t in itertools.product(SMALL, SMALL, SMALL, range(6)):
        outcome = play(c, v, a, t)
        if abs(v + a - c) > t:
            assert outcome == Hit(v + a)
        else:
            assert outcome == Miss(c)


def test_only_the_sum_of_value_and_noise_enters() -> None:
    """Would catch any path by which the private value shows without its noise."""
    for c, v, a, t in itertools.product(SMALL, SMALL, SMALL, range(6)):
        assert play(c, v, a, t) == play(c, 0, v + a, t)


def test_rounds_are_exact_at_62_bits() -> None:
    """Python integers have no end: would catch floats or 64-bit wrap-around."""
    big = 2**61
    assert play(0, big, big, 2**62 - 1) == Hit(2**62)
    assert play(0, big, big, 2**62) == Miss(0)
    assert play(2**60 + 1, 2**60, 0, 0) == Hit(2**60)


@pytest.mark.slow
@pytest.mark.parametrize("count", range(5))
def test_every_small_race(count: int) -> None:
    """The first of the first ``count`` noisy values outside c +- T is released; beyond ``count`` nothing is seen.
    Would catch the last or the largest one out, one too many or too few of them, and noise left behind."""
    for c, v, t in itertools.product((-1, 0, 2), (-2, 0, 1), range(3)):
        for drawn in itertools.product((-3, 0, 1, 4), repeat=4):
            noise = np.array(drawn, dtype=np.int64)
            outcome = race(c, v, noise, count, t)
            out = [v + a for a in drawn[:count] if abs(v + a - c) > t]
            assert outcome == (Hit(out[0]) if out else Miss(c))
            assert not noise.any()


def test_outcomes_hold_one_number() -> None:
    """What was drawn on a miss exists nowhere afterwards: an outcome has no other field, and no dictionary to put one
    in."""
    for outcome in (play(0, 1, 1, 100), play(0, 1, 1, 0), race(0, 1, np.array([5]), 1, 100)):
        assert [f.name for f in fields(outcome)] == ["value"]
        assert not hasattr(outcome, "__dict__")
