"""An audit of evidence sessions: everything that was measured, held against the law that its record states.

A session with noise of its own is asked marginals and sums, so that it measures at its opening and for its questions,
with scales that nobody knew before. What is left of every released count must be an independent draw from the stated
law (see :mod:`tests.sessions.test_direct_audit`), and what was charged must be the price of that law.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.measurements.pieces import counts_of
from app.measurements.pricing import Adjacency
from app.measurements.record import Purchase
from app.measurements.strategies.tables import TableStrategy
from tests.kit.noise import Scaled
from tests.kit.world import AUDITOR, World, make_world
from tests.sessions.test_direct_audit import alarms

pytestmark = pytest.mark.statistical

SHAPE = (7, 5, 9, 6)
COUNTS = np.random.default_rng(1).integers(0, 300, SHAPE)
SPEC = {"kind": "table", "attributes": [{"name": name, "size": size} for name, size in zip("abcd", SHAPE, strict=True)]}
MARGINALS = ("abc", "bcd", "acd", "ab", "cd", "abd", "ad")


class OneForAll(SystemNoise):
    """A planted fault: one draw serves all cells of a marginal."""

    def gaussian(self, scale: Any, ahead: int = 1024) -> Any:
        return _One(super().gaussian(scale, 1))


class _One:
    low = False

    def __init__(self, source: Any) -> None:
        self._source = source

    def take(self, n: int) -> Any:
        return np.full(n, self._source.take(1)[0])


def released(folder: Path, noise: SystemNoise) -> np.ndarray:
    """What is left of all counts that a session released, in units of their scales."""
    world: World = make_world(folder, noise=noise)
    try:
        world.register("d", COUNTS, **SPEC, budget={"epsilon": 2.0, "delta": 1e-6})
        ann = world.analyst("ann")
        id = world.open(ann, "d", mechanism={"construction": "evidence"}, epsilon=2.0, max_queries=30, max_updates=None)
        for names in MARGINALS:
            world.ask(ann, id, {"type": "marginal", "attributes": list(names)})
            world.ask(ann, id, {"type": "predicate", "where": {name: {"in": [0, 3]} for name in names}})
        left, spent = [], Decimal(0)
        order = world.built.services.datasets.public("d").budget.order
        auditor = AUDITOR
        for item in world.built.services.measurements.list(auditor, "d", 0, 1000).items:
            found = counts_of(world.built.services.measurements.get(auditor, "d", item["id"]).release)
            assert found.noise.kind == "gaussian"
            kept = found.marginal.attributes
            exact = COUNTS.sum(axis=tuple(k for k in range(COUNTS.ndim) if k not in kept))
            for axis, part in enumerate(found.marginal.partitions):
                if part is not None:
                    exact = np.stack(
                        [exact.compress(part.labels == c, axis).sum(axis) for c in range(part.cells)], axis
                    )
            left.append(((found.units - exact) / float(found.noise.scale)).reshape(-1))
            price = Purchase.at(
                TableStrategy.of(found.marginal),
                found.noise,
                Adjacency(1),
                order,
            ).price
            assert item["cost"] == price.document()
            spent += price.renyi
        assert Decimal(world.built.services.sessions.get(ann, id)["spent"]) == spent
        world.audit()
    finally:
        world.stop()
    assert len(left) > len(MARGINALS)
    return np.concatenate(left)


def test_everything_measured_has_the_noise_that_its_record_states(tmp_path: Path) -> None:
    """Some thousand counts, at the opening and after. Catches noise of another scale or law than stated and paid for,
    and noise that counts share."""
    left = released(tmp_path, SystemNoise())
    assert len(left) > 1000
    assert alarms(left, "gaussian") == []


@pytest.mark.parametrize(
    ("fault", "alarm"),
    [(lambda: Scaled(Fraction(7, 10)), "size"), (OneForAll, "dependence")],
    ids=["noise 30 percent too small", "one draw for all cells"],
)
def test_a_fault_is_found(fault: Callable[[], SystemNoise], alarm: str, tmp_path: Path) -> None:
    """The audit sees noise that is too small, and noise that is not drawn for each cell."""
    assert alarm in alarms(released(tmp_path, fault()), "gaussian")
