"""Measurements at the opening of a session, and for a release: exact values, noise drawn for each alone, their sum."""

from __future__ import annotations

from collections.abc import Sequence

from app.curator.mechanisms.protocol import Measured
from app.measurements.record import Measurement, Purchase
from app.measurements.strategy import Strategy, exact_values
from app.services.ports import NoisePort
from app.spaces.space import Space
from app.spaces.tensor import PrivateTensor


def measured_all(
    noise: NoisePort, space: Space, data: PrivateTensor, due: Sequence[Purchase[Strategy]]
) -> list[Measured]:
    """The due measurements, made."""
    exact = exact_values([buy.strategy for buy in due], space, data)
    made = []
    for buy, values in zip(due, exact, strict=True):
        units = buy.noise.on(values, noise, buy.strategy.at_once)
        made.append(Measured(Measurement(buy.strategy, buy.noise, units), buy.price))
    return made
