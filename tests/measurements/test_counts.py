"""What a measurement is: its form, its document, and the variance of its noise."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

from app.measurements.noise import Noise
from app.measurements.pieces import Counts
from app.spaces.partition import Marginal, Partition

pytestmark = pytest.mark.unit

SIZES = (3, 4, 1, 6)


def thirds() -> Partition:
    return Partition.of(np.array([0, 0, 1, 1, 2, 2]))


def measurement() -> Counts:
    marginal = Marginal.of(SIZES, {0: None, 3: thirds()})
    return Counts(marginal, Noise("laplace", Decimal("12.50"), 3), np.arange(-4, 5).reshape(3, 3))


def test_values_are_counts() -> None:
    one = measurement()
    assert one.values.tolist() == (np.arange(-4, 5) / 8).reshape(3, 3).tolist()
    assert one.onto(frozenset({3})).tolist() == one.values.sum(axis=0).tolist()
    with pytest.raises(ValueError, match="read-only"):
        one.units[0, 0] = 1
    with pytest.raises(ValueError, match="shape"):
        Counts(one.marginal, one.noise, np.zeros((2, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", ["0.1", "0.4", "1", "1.7", "1.999", "2", "2.001", "7.3", "40"])
@pytest.mark.parametrize("bits", [0, 2])
def test_variances_of_the_discrete_laws(kind: Any, scale: str, bits: int) -> None:
    """Against sums over the integers in fifty digits. Would catch the variance of the continuous law, 8% off for a
    Laplace scale of one unit, and a grid that is not squared."""
    with localcontext() as context:
        context.prec = 50
        t = Decimal(scale) * 2**bits
        reach = math.ceil(120 * float(t)) if kind == "laplace" else math.ceil(16 * float(t)) + 1
        weights = [(-k / t if kind == "laplace" else -k * k / (2 * t * t)).exp() for k in map(Decimal, range(reach))]
        total = 2 * sum(weights) - 1
        expected = 2 * sum((w * k * k for k, w in enumerate(weights)), Decimal(0)) / total / 4**bits
    assert Noise(kind, Decimal(scale), bits).variance == pytest.approx(float(expected), rel=1e-13)
