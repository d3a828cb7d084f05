"""The weights of a workload's numbers on the cells that all of them tell apart."""

from __future__ import annotations

import numpy as np
import pytest

from app.releases.workloads import Sums
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Local, Product

pytestmark = pytest.mark.unit

SIZES = (3, 4, 5)
THIRDS = Partition.of(np.array([0, 1, 0, 2, 1]))
WORKLOAD = Sums(
    (
        Product.over({0: np.array([0.0, 1.0, 1.0]), 2: np.array([1.0, 0.5, 0.5, 0.5, 0.0])}),
        Product.over({}),
        Local.over((2, 0), np.arange(15.0).reshape(5, 3) % 4),
        Cells(Marginal.of(SIZES, {2: THIRDS})),
        Cells(Marginal.of(SIZES, {0: None, 2: THIRDS})),
    )
)


def test_weights_on_cells_give_what_a_table_answers() -> None:
    """Every question is answered from a whole table by itself, and by its row of weights on the merged cells. Would
    catch cells in another order, a row too many, and values of one cell that are told apart.
    """
    table = np.random.default_rng(1).integers(0, 9, SIZES).astype(float)
    marginal = WORKLOAD.marginal
    singles = [Partition.singles(size) for size in SIZES]
    expected = []
    for question in WORKLOAD.questions:
        others = tuple(set(range(3)) - set(question.attributes))
        own = [singles[a] for a in question.attributes]
        expected.append(question.of(table.sum(axis=others), own).reshape(-1))
    counts = Cells(marginal).of(table.sum(axis=1), [singles[0], singles[2]]).reshape(-1)
    weights = WORKLOAD.weights(marginal)
    assert weights.shape == (1 + 1 + 1 + 3 + 9, marginal.cells)
    np.testing.assert_allclose(weights @ counts, np.concatenate(expected), rtol=1e-12)
