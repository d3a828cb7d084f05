"""A strategy that nobody else has heard of: it is priced, measured, written, read and shown by what it says itself."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.measurements import strategies
from app.measurements.noise import BitFlips, Law, Noise
from app.measurements.pricing import Adjacency, Events, answer
from app.measurements.record import STRATEGIES, Measurement, Purchase, bought, read_strategy, those
from app.measurements.strategies.edges import Edges
from app.measurements.strategies.tables import TableStrategy
from app.measurements.strategy import Strategy
from app.privacy.costs import DiscreteLaplaceAnswer, renyi_cost
from app.services.measurements import Released
from app.services.measuring import measured_all
from app.spaces.counts import Entries, Tally
from app.spaces.dense import CountsTensor
from app.spaces.partition import Marginal
from app.spaces.space import Space
from app.spaces.table import TableSpace
from app.spaces.tensor import IntArray
from tests.kit import noise as told_noise

pytestmark = pytest.mark.unit

SPACE = TableSpace("table", (4, 3), ("a", "b"), 100)
DATA = CountsTensor(np.arange(12).reshape(4, 3))


@dataclass(frozen=True)
class Corners(Strategy):
    """The first and the last cell of a table."""

    sizes: tuple[int, ...]
    tag = "corners"

    @property
    def cells(self) -> int:
        return 2

    def check(self, space: Space) -> None:
        if space.shape != self.sizes:
            raise ValueError("corners of another table")

    def tallies(self, space: Space) -> tuple[Tally, ...]:
        return (Entries(np.array([0, math.prod(self.sizes) - 1])),)

    def exact_of(self, space: Space, told: Sequence[Any]) -> IntArray:
        return np.asarray(told[0], np.int64)

    def events(self, noise: Law, adjacency: Adjacency) -> Events:
        return ((answer(noise, adjacency.gamma, adjacency.gamma**2), 1),)

    def describe(self, space: Space) -> dict[str, Any]:
        return {"type": "corners", "cells": 2}

    def document(self) -> list[int]:
        return list(self.sizes)

    @classmethod
    def read(cls, document: list[int]) -> Corners:
        return cls(tuple(document))


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(STRATEGIES, dict)
    monkeypatch.setitem(STRATEGIES, "corners", Corners.read)


def test_it_is_priced_by_its_events() -> None:
    """Catches a price by anything but what the strategy says."""
    noise, order = Noise("laplace", Decimal("6.5"), 0), Decimal(20)
    price = Purchase.at(Corners((4, 3)), noise, Adjacency(3), order).price
    assert price.renyi == renyi_cost(DiscreteLaplaceAnswer(Fraction(13, 2), 3), order)
    assert price.pure is not None


def test_it_is_measured_beside_others_in_order() -> None:
    """Catches strategies that are computed together and handed out to the wrong purchases."""
    noise, counts = Noise("gaussian", Decimal("0.125"), 0), TableStrategy.of(Marginal.of((4, 3), {0: None}))
    strategies: list[Strategy] = [counts, Corners((4, 3)), counts, counts]
    due = [Purchase.at(each, noise, Adjacency(1), Decimal(2)) for each in strategies]
    made = measured_all(told_noise.Noise(), SPACE, DATA, due)
    assert [measured.measurement.strategy for measured in made] == strategies
    assert [measured.price for measured in made] == [buy.price for buy in due]
    first, corners, *others = (measured.measurement.values for measured in made)
    assert np.abs(corners - [0, 11]).max() < 3
    for each in (first, *others):
        assert np.abs(each - DATA.array.sum(axis=1)).max() < 3
    assert [len(those([m.measurement for m in made], kind)) for kind in (Corners, TableStrategy, Edges)] == [1, 3, 0]
    assert bought(due, Corners) == [due[1]]


def test_it_is_written_read_and_shown() -> None:
    """Catches a tag that is no member of the record, and words about it that another place makes up."""
    measurement = Measurement(Corners((4, 3)), Noise("laplace", Decimal(2), 1), np.array([-1, 300]))
    document = json.loads(json.dumps(measurement.document()))
    assert document["corners"] == [4, 3]
    assert read_strategy(document) == measurement.strategy
    again = Measurement.read(document)
    assert (again.strategy, again.noise, again.values.tolist()) == (
        measurement.strategy,
        measurement.noise,
        [-0.5, 150],
    )
    shown = Released({"strategy": again.strategy.describe(SPACE)}, again, SPACE)
    assert shown.document()["values"] == shown.table()["value"].to_pylist() == [-0.5, 150.0]
    assert again.of(Corners).strategy.sizes == (4, 3)
    with pytest.raises(ValueError, match="corners"):
        again.of(TableStrategy)


@pytest.mark.parametrize(
    "change",
    [
        {"values": "AAAA"},
        {"noise": {"bits": 53, "flips": 1 << 50, "kind": "flips"}, "values": "gA=="},
        {"noise": {"bits": 0, "kind": "laplace"}},
        {"corners": 7},
    ],
)
def test_what_is_no_document(change: Mapping[str, Any]) -> None:
    """Catches values of another number, bits of what is no bit, and errors other than the documented."""
    document = Measurement(Corners((4, 3)), Noise("laplace", Decimal(2), 0), np.array([1, 2])).document()
    with pytest.raises(ValueError):
        Measurement.read(document | change)


def test_nothing_that_is_known() -> None:
    with pytest.raises(ValueError, match="not the document"):
        Measurement.read({"unheard": [], "noise": {}, "values": []})


def test_bits_are_turned_over_where_values_are_bits() -> None:
    with pytest.raises(ValueError, match="no bits"):
        Measurement(Corners((4, 3)), BitFlips(1 << 50), np.array([1, 0]))


def test_every_file_of_strategies_is_known() -> None:
    """Catches a strategy that is measured and that no audit can read: its file alone says that it is there."""
    files = {path.stem for path in Path(strategies.__file__ or "").parent.glob("*.py")} - {"__init__"}
    readers = {reader.__func__.__module__.rpartition(".")[2] for reader in STRATEGIES.values()}  # type: ignore[attr-defined]
    assert files == readers - {__name__.rpartition(".")[2]}
    assert {"edges", "degrees", "products", "asked", "marginal", "strategy"} <= STRATEGIES.keys()
