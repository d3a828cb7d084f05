"""Measurements at the opening of a session, and for a release: exact values, noise drawn for each alone, their sum."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from app.curator.counting import all_exact_values, exact_cells, exact_degrees, exact_products
from app.curator.mechanisms import Measured
from app.evidence.policy import Buy
from app.measurements.noise import BitFlips, Noise
from app.measurements.strategies.asked import AskedBuy, AskedRelease
from app.measurements.strategies.degrees import DegreeBuy, DegreeRelease, GraphBuy, GraphRelease
from app.measurements.strategies.edges import EdgeBuy, EdgeRelease
from app.measurements.strategies.products import ProductBuy, ProductRelease
from app.measurements.strategies.tables import Release
from app.privacy.ledger import Amounts
from app.services.ports import NoisePort
from app.spaces.space import Space
from app.spaces.tensor import IntArray, PrivateTensor

#: Of very many values the noise is drawn in parts: a sampler's own lists take several times their memory.
_PART = 1 << 16


def measured_all(
    noise: NoisePort,
    data: PrivateTensor,
    due: Sequence[tuple[Buy | GraphBuy, Amounts]],
    space: Space | None = None,
) -> list[Measured]:
    """What was due, measured, each with its price; ``space`` is what the data are of, where queries are measured."""
    tables = [buy.strategy for buy, _ in due if isinstance(buy, Buy)]
    counts = iter(all_exact_values(tables, data) if tables else [])
    made = []
    for buy, price in due:
        if isinstance(buy, Buy):
            release: Release | GraphRelease = Release(buy.strategy, buy.noise, _with_noise(noise, buy, next(counts)))
        elif isinstance(buy, DegreeBuy):
            release = _degrees(noise, buy, data)
        elif isinstance(buy, ProductBuy):
            release = _products(noise, buy, data)
        elif isinstance(buy, AskedBuy):
            assert space is not None
            release = _asked(noise, buy, space, data)
        else:
            release = _edges(noise, buy, data)
        made.append(Measured(release, price))
    return made


def _with_noise(noise: NoisePort, buy: Buy, exact: IntArray) -> IntArray:
    """Whole counts with noise, which is drawn for them alone."""
    draw = noise.laplace if buy.kind == "laplace" else noise.gaussian
    noisy: IntArray = exact + draw(Fraction(buy.scale), len(exact)).take(len(exact))
    return noisy


def _degrees(noise: NoisePort, buy: DegreeBuy, data: PrivateTensor) -> DegreeRelease:
    """The degrees of all nodes with noise, drawn for each of them."""
    exact, law = exact_degrees(buy.strategy, data), buy.noise
    return DegreeRelease(buy.strategy, law, exact + _source(noise, law, len(exact)).take(len(exact)))


def _products(noise: NoisePort, buy: ProductBuy, data: PrivateTensor) -> ProductRelease:
    """Products of cells with weights, noise drawn for each of them."""
    exact, law = exact_products(buy.strategy, data), buy.noise
    return ProductRelease(buy.strategy, law, exact + _source(noise, law, len(exact)).take(len(exact)))


def _asked(noise: NoisePort, buy: AskedBuy, space: Space, data: PrivateTensor) -> AskedRelease:
    """The values of a query with noise, on the answer grid, drawn for each of them."""
    query, law = buy.strategy.query(space), buy.noise
    exact = np.atleast_1d(np.asarray(space.to_answer_grid(query.exact(data), query), np.int64))
    return AskedRelease(buy.strategy, law, exact + _source(noise, law, len(exact)).take(len(exact)))


def _edges(noise: NoisePort, buy: EdgeBuy, data: PrivateTensor) -> EdgeRelease:
    """All cells of a graph or a matrix with noise, drawn for each of them."""
    exact, law = exact_cells(buy.strategy, data), buy.noise
    if isinstance(law, BitFlips):
        flips = noise.flips(law.probability).take(len(exact))
        return EdgeRelease(buy.strategy, law, exact.astype(np.uint8, copy=False) ^ flips)
    source = _source(noise, law, min(_PART, len(exact)))
    units = exact.astype(np.int64)
    for start in range(0, len(units), _PART):
        part = units[start : start + _PART]
        part += source.take(len(part))
    return EdgeRelease(buy.strategy, law, units)


def _source(noise: NoisePort, law: Noise, ahead: int) -> Any:
    """Noise in units of its grid, so many values of it drawn at a time."""
    draw = noise.laplace if law.kind == "laplace" else noise.gaussian
    return draw(Fraction(law.scale) * (1 << law.bits), ahead)
