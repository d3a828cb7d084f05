"""What is made of measured cells: unbiased values of all of them, or a synthetic graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.evidence.edges import BitArray, BitFlips, EdgeRelease, Edges
from app.releases.cut_bounds import Term, all_cuts_bound, rounded_up
from app.spaces.tensor import FloatArray


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


def combined(releases: Sequence[EdgeRelease]) -> Combined:
    """Measurements of the same cells as one; at least one."""
    precision = math.fsum(1 / release.variance for release in releases)
    factors = [1 / (release.variance * precision) for release in releases]
    values = np.zeros(releases[0].strategy.cells)
    for release, factor in zip(releases, factors, strict=True):
        values += factor * release.values
    terms = tuple(Term(release.noise, factor) for release, factor in zip(releases, factors, strict=True))
    return Combined(values, 1 / precision, terms)


def edge_values(
    releases: Sequence[EdgeRelease],
    method: str,
    options: Mapping[str, Any],
    *,
    beta: float,
    seed: int,
    progress: Callable[[float], None],
) -> tuple[EdgeValues, dict[str, Any]]:
    """What a release of all cells comes to, and what is to be said of it.

    Args:
        releases: all measurements of these cells, at least one.
        method: ``synthetic_graph``, or another where the unbiased values are what is released.
        options: of the method.
        beta: the probability with which the bound of all cuts may be broken.
        seed: of what is drawn at random, which is no secret.
        progress: told from time to time.
    """
    edges, known = releases[0].strategy, combined(releases)
    deviation = math.sqrt(known.variance)
    summary = {
        "cells": edges.cells,
        "measurements": len(releases),
        "cell_error": rounded_up(deviation),
        "all_cuts_bound": all_cuts_bound(edges, known.terms, beta),
        "beta": beta,
    }
    if method == "synthetic_graph":
        weights = make_graph(edges, known.values, rounding=options.get("rounding"), seed=seed)
        progress(1.0)
        return EdgeValues(edges, weights, sparse=True), summary | {"mass": float(weights.sum())}
    only = releases[0]
    bits = only.units.astype(np.uint8) if len(releases) == 1 and isinstance(only.noise, BitFlips) else None
    progress(1.0)
    return EdgeValues(edges, known.values, bits), summary


def make_graph(edges: Edges, noisy: FloatArray, *, rounding: str | None, seed: int) -> FloatArray:
    """Weights in [0, 1] from unbiased values of all pairs: those nearest to them, pair by pair.

    With ``rounding`` of ``edges`` each is made 1 with the probability that is its weight, else 0.
    """
    weights = np.clip(noisy, 0.0, 1.0)
    if rounding == "edges":
        weights = (np.random.default_rng(seed).random(edges.cells) < weights).astype(np.float64)
    return weights
