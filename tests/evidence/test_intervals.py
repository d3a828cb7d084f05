"""Estimates of which some are taken, and values of which nothing is known."""

from __future__ import annotations

import numpy as np
import pytest

from app.estimation.intervals import Estimates

pytestmark = pytest.mark.unit


def test_some_of_them_keep_what_belongs_to_them() -> None:
    """Would catch an array that is left as it was."""
    numbers = np.arange(6.0).reshape(2, 3)
    whole = Estimates(numbers, numbers + 1, numbers + 2, numbers + 3, numbers > 2, 0.9, numbers + 4, numbers + 5)
    some = whole.each(lambda array: array[1, ::-1])
    value = np.array([5.0, 4.0, 3.0])
    found = [some.values, some.standard_errors, some.lows, some.highs, some.linear, some.linear_errors]
    assert np.array_equal(np.stack(found), [value, value + 1, value + 2, value + 3, value + 4, value + 5])
    assert (some.unbiased.dtype, some.unbiased.tolist(), some.confidence) == (bool, [True, True, True], 0.9)
    alone = Estimates(numbers, numbers, numbers, numbers, numbers > 2, 0.9).each(np.ravel)
    assert (alone.linear, alone.linear_errors) == (None, None)


def test_nothing_is_said_of_bare_values() -> None:
    """Would catch an error of zero beside a value of which nothing is known."""
    found = Estimates.bare(np.array([1.0, 2.0]), 0.95)
    assert found.values.tolist() == [1.0, 2.0]
    assert np.isnan([found.standard_errors, found.lows, found.highs]).all()
    assert not found.unbiased.any()
