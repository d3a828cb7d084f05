"""Averages by precision, against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.estimation.pooling import Pooled

pytestmark = pytest.mark.unit

numbers = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(numbers, numbers, st.floats(1e-6, 1e6)), min_size=1, max_size=12))
def test_each_by_its_precision(told: list[tuple[float, float, float]]) -> None:
    """One after another they come to the weighted mean of all. Would catch weights that hang on the order, and a
    precision that is not that of all together."""
    pooled = Pooled(np.zeros(()))
    for one, other, precision in told:
        pooled.learn(np.array([one, other]), precision)
    weights = [Fraction(precision) for _, _, precision in told]
    means = [sum(w * Fraction(each[k]) for w, each in zip(weights, told, strict=True)) / sum(weights) for k in (0, 1)]
    assert pooled.values == pytest.approx([float(mean) for mean in means], rel=1e-9, abs=1e-6)
    assert pooled.precision == pytest.approx(float(sum(weights)), rel=1e-12)


def test_what_is_known_exactly_stays() -> None:
    """Would catch noise that is averaged into a number without any."""
    pooled = Pooled(np.array(7.0), math.inf)
    pooled.learn(np.array(9.0), 1e300)
    assert (float(pooled.values), pooled.precision) == (7.0, math.inf)
