"""Results from measured cells: unbiased values of all of them, or a synthetic graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from app.measurements.noise import BitArray, BitFlips
from app.measurements.record import Measurement, those
from app.measurements.strategies.asked import Asked
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.measurements.strategy import Strategy
from app.patience import Progress
from app.releases.cut_bounds import Term, all_cuts_bound, rounded_up
from app.releases.noisy_blocks import NoisyBlocks
from app.releases.synthetic_graph import NoisyDegrees, NoisyEdges, drawn_graph, nearest_graph, spectral_graph
from app.spaces.queries.blocks import CompiledBlocks
from app.spaces.space import Space
from app.spaces.tensor import FloatArray

T = TypeVar("T", bound=Strategy)

#: Each question about blocks adds to the time that a graph takes.
MOST_BLOCKS = 8


@dataclass(frozen=True, eq=False)
class EdgeValues:
    """Values of the cells of a graph or a matrix.

    Attributes:
        edges: the cells.
        values: one a cell, in counts.
        bits: the bits that were released, where that was all.
        sparse: whether cells of value zero need not be named.
    """

    edges: Edges
    values: FloatArray
    bits: BitArray | None = None
    sparse: bool = False


@dataclass(frozen=True, eq=False)
class Combined:
    """All measurements of the same cells as one.

    Attributes:
        values: the average of the unbiased values by precision: unbiased, and of the least variance.
        variance: of each.
        terms: the noises whose sum is the error of a value.
    """

    values: FloatArray
    variance: float
    terms: tuple[Term, ...]


def combined(releases: Sequence[Measurement[Edges]]) -> Combined:
    """Measurements of the same cells as one; at least one."""
    precision = math.fsum(1 / release.variance for release in releases)
    factors = [1 / (release.variance * precision) for release in releases]
    values = np.zeros(releases[0].strategy.cells)
    for release, factor in zip(releases, factors, strict=True):
        values += factor * release.values
    terms = tuple(Term(release.noise, factor) for release, factor in zip(releases, factors, strict=True))
    return Combined(values, 1 / precision, terms)


def known_degrees(releases: Sequence[Measurement[Degrees]]) -> NoisyDegrees | None:
    """Measurements of the same degrees as one: their average by precision; None where there are none."""
    if not releases:
        return None
    values, variance = _averaged(releases)
    return NoisyDegrees(*releases[0].strategy.sides(values), math.sqrt(variance))


def known_blocks(releases: Sequence[Measurement[Strategy]], space: Space) -> list[NoisyBlocks]:
    """The sums between groups of nodes that were measured, those of the same groups as one: their average by precision.

    No more than ``MOST_BLOCKS`` questions are made use of, those with the most numbers.

    Raises:
        ValueError: when one is of another graph.
    """
    found: dict[Asked, list[Measurement[Asked]]] = {}
    for release in those(releases, Asked):
        if release.strategy.form["type"] == "blocks":
            found.setdefault(release.strategy, []).append(release)
    made = []
    for asked in sorted(found, key=lambda each: -each.numbers)[:MOST_BLOCKS]:
        query = asked.query(space)
        assert isinstance(query, CompiledBlocks)
        values, variance = _averaged(found[asked])
        made.append(NoisyBlocks.of(query, values, variance))
    return made


def _averaged(releases: Sequence[Measurement[T]]) -> tuple[FloatArray, float]:
    """Measurements of the same values as one, each weighed by its precision, and the variance of each value."""
    precision = math.fsum(1 / release.variance for release in releases)
    values = np.zeros(releases[0].strategy.cells)
    for release in releases:
        values += release.values / (release.variance * precision)
    return values, 1 / precision


def edge_values(
    releases: Sequence[Measurement[Strategy]],
    method: str,
    options: Mapping[str, Any],
    *,
    blocks: Sequence[NoisyBlocks] = (),
    beta: float,
    seed: int,
    progress: Progress,
) -> tuple[EdgeValues, dict[str, Any]]:
    """The result of a release of all cells, and its description.

    Args:
        releases: all measurements of these cells, at least one, and of their degrees.
        method: ``synthetic_graph``, or another where the unbiased values are what is released.
        options: of the method.
        blocks: sums between groups of nodes that were measured, for a synthetic graph.
        beta: the probability with which the bound of all cuts may be broken.
        seed: of what is drawn at random, which is no secret.
        progress: told from time to time.
    """
    measured = those(releases, Edges)
    edges, known = measured[0].strategy, combined(measured)
    deviation = math.sqrt(known.variance)
    summary = {
        "cells": edges.cells,
        "measurements": len(measured),
        "cell_error": rounded_up(deviation),
        "all_cuts_bound": all_cuts_bound(edges, known.terms, beta),
        "beta": beta,
    }
    if method == "synthetic_graph":
        degrees = known_degrees(those(releases, Degrees))
        made, description = synthetic_graph(
            edges, known.values, deviation, degrees, options, blocks=blocks, seed=seed, progress=progress
        )
        return EdgeValues(edges, made, sparse=True), summary | description
    only = measured[0]
    bits = only.units.astype(np.uint8) if len(measured) == 1 and isinstance(only.noise, BitFlips) else None
    progress(1.0)
    return EdgeValues(edges, known.values, bits), summary


def synthetic_graph(
    edges: Edges,
    noisy: FloatArray,
    deviation: float,
    degrees: NoisyDegrees | None,
    options: Mapping[str, Any],
    *,
    blocks: Sequence[NoisyBlocks] = (),
    seed: int,
    progress: Progress,
) -> tuple[FloatArray, dict[str, Any]]:
    """Weights in [0, 1] whose cuts are near those of the graph, one a cell, and what is to be said of them.

    Args:
        edges: the cells.
        noisy: unbiased values of them.
        deviation: the standard deviation of each.
        degrees: unbiased degrees, where any were measured.
        options: ``geometry``: ``spectral``, degrees and what of the values rises above the noise, where nothing else is
            said; or ``cut_norm``, the weights nearest to the values alone in cut norm, with how near that is.
            ``rounding``: of ``edges`` each weight is made 1 with a probability that is the weight, else 0.
        blocks: unbiased sums between groups of nodes, where any were measured; ``spectral`` keeps them.
        seed: of all that is drawn at random for it, which is no secret.
        progress: told from time to time.
    """
    undirected = edges.kind == "pairs"
    pairs = NoisyEdges(edges.matrix(noisy), deviation, undirected, loops=edges.kind == "all")
    description: dict[str, Any] = {"geometry": options.get("geometry", "spectral")}
    if description["geometry"] == "cut_norm":
        nearest = nearest_graph(pairs, seed=seed, progress=progress)
        weights, description = (
            nearest.weights,
            description | {"distance": nearest.distance.upper, "least_distance": nearest.least},
        )
    else:
        weights = spectral_graph(pairs, degrees, blocks)
        if degrees is not None:
            description |= {"degree_error": rounded_up(degrees.deviation)}
    if options.get("rounding") == "edges":
        weights = drawn_graph(weights, np.random.default_rng(seed), undirected=undirected)
    if blocks and description["geometry"] == "spectral":
        description |= {"blocks": [block.document(weights) for block in blocks]}
    progress(1.0)
    cells = edges.flattened(weights)
    return cells, description | {"mass": float(cells.sum())}
