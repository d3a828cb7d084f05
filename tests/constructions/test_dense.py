"""The kernels over whole arrays take queries that weigh cells, and no others. (What they make of those is held against
exact fractions in tests/questions/test_queries_compiled.py.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.constructions import dense
from app.spaces.queries.elements import CompiledElements
from app.spaces.tensor import DenseTensor

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "kernel",
    [
        lambda query, array: dense.add_to(query, array, 1.0),
        lambda query, array: dense.levels(query, DenseTensor(array)),
        lambda query, array: dense.scale_exp(query, array, 1.0, 0.0),
        lambda query, array: dense.integers(query),
        lambda query, array: dense.matrix_of(query, array.shape),
    ],
)
def test_elements_are_no_cells(kernel: Callable[..., Any]) -> None:
    """Would catch a hypothesis over an unbounded universe that is left as it is by an update it cannot take."""
    array = np.ones(3)
    with pytest.raises(TypeError, match="weighs no cells"):
        kernel(CompiledElements(("a",), np.array([1]), 0, 0.0), array)
    assert (array == 1).all()
