"""A table with structural zeros and its records, and what was measured of them with and without what is declared."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.declarations.spec import parse_spec
from app.estimation.tables.residuals import Residuals
from app.measurements.noise import Noise
from app.measurements.pieces import Counts
from app.spaces.factory import space_of
from app.spaces.partition import Marginal
from app.spaces.table import TableSpace
from app.spaces.zeros import NO_ZEROS, Zeros

#: Ages, marital states, states with their districts, and something else.
SPEC: dict[str, Any] = {
    "name": "census",
    "kind": "table",
    "attributes": [
        {"name": "age", "lower": 0, "upper": 100, "bins": 10},
        {"name": "marital", "values": ["single", "married", "widowed"]},
        {"name": "state", "size": 4},
        {"name": "district", "size": 12},
        {"name": "other", "size": 3},
    ],
    "zeros": [
        {"age": {"lt": 20}, "marital": ["married", "widowed"]},
        *({"state": s, "not": {"district": {"ge": 3 * s, "le": 3 * s + 2}}} for s in range(4)),
    ],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
}
SIZES = (10, 3, 4, 12, 3)


def zeros_of(spec: dict[str, Any]) -> Zeros:
    """Those of a declaration."""
    space = space_of(parse_spec(spec))
    assert isinstance(space, TableSpace)
    return space.zeros


def people(number: int = 2000, seed: int = 4) -> NDArray[np.int64]:
    """Records that keep to the declaration."""
    rng = np.random.default_rng(seed)
    age = np.minimum(rng.geometric(0.2, number) - 1, 9)
    marital = np.where(age < 2, 0, rng.choice(3, number, p=[0.3, 0.6, 0.1]))
    state = rng.choice(4, number, p=[0.5, 0.3, 0.15, 0.05])
    district = 3 * state + np.minimum(rng.geometric(0.5, number) - 1, 2)
    return np.stack([age, marital, state, district, rng.integers(0, 3, number)], axis=1)


def counted(codes: NDArray[np.int64], axes: tuple[int, ...]) -> NDArray[np.int64]:
    """The exact counts of a marginal."""
    exact = np.zeros([SIZES[axis] for axis in axes], np.int64)
    np.add.at(exact, tuple(codes[:, list(axes)].T), 1)
    return exact


def measured(codes: NDArray[np.int64], zeros: Zeros = NO_ZEROS, *, seed: int = 0, scale: str = "8") -> Residuals:
    """All pairs of attributes, measured with the same noise whatever is declared."""
    rng, residuals = np.random.default_rng(seed), Residuals(SIZES, zeros=zeros)
    for pair in itertools.combinations(range(len(SIZES)), 2):
        exact = counted(codes, pair)
        noise = np.rint(rng.normal(0, float(scale), exact.shape)).astype(np.int64)
        marginal = Marginal.of(SIZES, dict.fromkeys(pair))
        residuals.add(Counts(marginal, Noise("gaussian", Decimal(scale), 0), exact + noise))
    return residuals
