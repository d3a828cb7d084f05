"""The fit of a whole measured table: against the general dual, against its conditions, and in the limit of no noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csc_array

from app.estimation.solving import Solved
from app.estimation.tables import dense_fit as dense
from app.estimation.tables.dense_fit import STRENGTH, DenseFit, fitted, paired
from app.estimation.tables.dual import Dual
from app.spaces.partition import Marginal
from app.spaces.questions import Cells, Local
from app.spaces.tensor import FloatArray

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("deviation", [0.3, 4.0, 60.0])
def test_the_closed_form_is_the_duals_optimum(deviation: float) -> None:
    """Against Newton's method on the same problem. Would catch a strength that is squared, and a total that is
    missed."""
    rng = np.random.default_rng(1)
    shape = (4, 5, 3)
    counts = rng.poisson(rng.choice([0.0, 2.0, 40.0], shape)).astype(float)
    values = counts + rng.normal(0, deviation, shape)
    base, total = rng.dirichlet(np.ones(60)).reshape(shape), float(counts.sum())
    ridge = np.full(60, STRENGTH * deviation)
    dual = Dual(csc_array(np.eye(60)), base.reshape(-1), total, values.reshape(-1), ridge)
    # The dual wants values of the right sum; a shift of all of them moves only the scale that the total fixes.
    expected = dual.solve(np.zeros(60), np.full(60, 1e-10)).value[1]
    found = fitted(values, deviation, base, total).value
    assert found.sum() == pytest.approx(total)
    assert np.allclose(found.reshape(-1), expected, rtol=1e-6, atol=1e-9)


def test_extremes() -> None:
    """Values far below zero and far above the total. Would catch an exponential that overflows."""
    values = np.array([[-1e6, 1e7], [0.0, 1e-3]])
    found = fitted(values, 1e-2, np.full((2, 2), 0.25), 5.0).value
    assert np.isfinite(found).all()
    assert found.sum() == pytest.approx(5.0)
    assert found[0, 1] == pytest.approx(5.0)


def test_two_way_marginals_and_nothing_more() -> None:
    """Without noise the first step has the table's two-way marginals and no interaction of three attributes. Would
    catch labels of cells in another order."""
    rng = np.random.default_rng(2)
    counts = rng.poisson(500.0, (2, 3, 2)).astype(float) + 1
    total = float(counts.sum())
    found = total * paired(counts, 1e-3, np.full((2, 3, 2), 1 / 12), total).value
    for axis in range(3):
        assert np.allclose(found.sum(axis=axis), counts.sum(axis=axis), atol=0.05)
    odds = np.log(found[0, :, 0] * found[1, :, 1] / (found[0, :, 1] * found[1, :, 0]))
    assert np.allclose(odds, odds[0], atol=1e-4)


def test_left_out_where_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch work that grows with a table of millions of cells, and a failed search that reaches an answer."""
    base = np.full((2, 2, 2), 1 / 8)
    counts = np.arange(8.0).reshape(2, 2, 2)
    assert not np.allclose(paired(counts, 1.0, base, 28.0).value, base)

    def failing(*_: object) -> Solved[tuple[FloatArray, FloatArray]]:
        return Solved((np.full(12, np.nan), np.full(8, np.nan)), "no descent", 7.0)

    with monkeypatch.context() as planted:
        planted.setattr(Dual, "solve", failing)
        found = paired(counts, 1.0, base, 28.0)
        assert found.value is base
        assert (found.reason, found.gap) == ("no descent", 7.0)
    monkeypatch.setattr(dense, "_MOST_PAIRED", 23)
    left_out = paired(counts, 1.0, base, 28.0)
    assert left_out.value is base
    assert left_out.converged


def test_a_search_that_is_out_of_steps_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch counts that were only scaled to their total and pass for fitted ones, and rounding that passes for a
    failure."""
    rng = np.random.default_rng(4)
    counts = rng.poisson(3.0, (4, 5)).astype(float)
    base, total = np.full((4, 5), 1 / 20), float(counts.sum())
    for deviation in (0.01, 1.0, 100.0):
        assert fitted(counts + rng.normal(0, deviation, (4, 5)), deviation, base, total).converged
    monkeypatch.setattr(dense, "_MOST_STEPS", 1)
    found = fitted(counts, 1.0, base, total)
    assert found.reason == "steps"
    assert found.gap > 1


def test_answers() -> None:
    """Sums and tables of the fitted counts. Would catch an axis that is summed in place of another."""
    counts = np.random.default_rng(3).random((3, 4, 2))
    fit = DenseFit(counts, converged=True)
    table = Cells(Marginal.of((3, 4, 2), {0: None, 2: None}))
    assert np.allclose(fit.values(table), counts.sum(axis=1))
    weights = np.array([[1.0, 0.0], [0.5, 0.0], [0.0, 2.0]])
    assert float(fit.values(Local.over((0, 2), weights))) == pytest.approx(float((counts.sum(axis=1) * weights).sum()))
    assert float(fit.values(Local.over((), np.array(1.0)))) == pytest.approx(counts.sum())
