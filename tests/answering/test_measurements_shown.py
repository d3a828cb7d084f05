"""What is shown of a measurement of several parts."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from app.declarations.spec import parse_spec
from app.measurements.noise import Noise
from app.measurements.record import Measurement
from app.measurements.rows import Rows
from app.measurements.strategies.tables import Moment, Part, TableStrategy
from app.services.measurements import Released
from app.spaces.factory import space_of
from app.spaces.partition import Marginal
from app.spaces.table import TableSpace

pytestmark = pytest.mark.unit

SPEC = {
    "name": "survey",
    "kind": "table",
    "attributes": [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "age", "lower": 0, "upper": 2, "grid": 1, "bins": 1},
    ],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
}


def test_contrasts_and_rows_are_shown_as_such() -> None:
    """Contrasts sum to zero along each axis and have the standard error of what is shown; rows have a value each, the
    cells that they weigh, and their weights. Would catch noise of what was drawn in place of what is shown, and rows
    that are shown as counts of cells."""
    space = space_of(parse_spec(SPEC))
    assert isinstance(space, TableSpace)
    sexes = Marginal.of(space.shape, {0: None})
    rows = Rows.of(np.array([[1, 1], [0, 3], [2, 0]]))
    strategy = TableStrategy(
        (Part(sexes, residual=True), Part(sexes, None, 2, rows=rows), Part(sexes, Moment(1, 3, 1)))
    )
    units = np.array([40, -20, 100, 90, 80, 5, 6])
    shown = Released({"id": "x"}, Measurement(strategy, Noise("gaussian", Decimal(6), 0), units), space).document()
    contrasts, combined, moment = shown["parts"]
    assert contrasts["values"] == [15.0, -15.0]
    assert contrasts["residual"] is True
    assert contrasts["standard_error"] == pytest.approx(6 / 2 * 0.5**0.5)
    assert combined["values"] == [50.0, 45.0, 40.0]
    assert combined["standard_error"] == pytest.approx(3.0)
    assert Rows.read(combined["rows"]) == rows
    assert [len(axis["labels"]) for axis in combined["axes"]] == [2]
    assert (moment["of"], moment["moment"]) == ("age", 1)
    views = [part.describe(space) for part in strategy.parts]
    assert [view.get("residual") for view in views] == [True, None, None]
    assert [view.get("rows") for view in views] == [None, 3, None]
