"""How far predictions were off, against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.estimation.scores import Scores

pytestmark = pytest.mark.unit

numbers = st.floats(0.0, 1e3)


@given(
    st.lists(st.tuples(numbers, numbers, st.just(0.0) | st.floats(1e-3, 1e3)), max_size=120),
    st.sampled_from([0.25, 1.0]),
)
def test_the_mean_of_the_last_ones(learnt: list[tuple[float, float, float]], least: float) -> None:
    """Each is held to -1 and 6, ten of 1 are among them, fifty are looked at. Would catch predictions that were certain
    and count, old ones that stay, and a mean that leaves its bounds."""
    scores = Scores(least)
    for each in learnt:
        scores.learn(*each)
    told = [(Fraction(s) - Fraction(v)) / Fraction(e) ** 2 for s, v, e in learnt if e > 0]
    last = [min(max(score, Fraction(-1)), Fraction(6)) for score in told[-50:]]
    mean = (10 + sum(last)) / (10 + len(last))
    assert scores.kappa == pytest.approx(math.sqrt(min(max(float(mean), least), 4.0)), rel=1e-9)
