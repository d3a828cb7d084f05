"""The measurements of the papers' applications, each a task that a process of its own can run."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from app.constructions.mechanism import iterative, parse_mechanism
from app.curator.dataset import Bought
from app.curator.errors import PlanInfeasible
from app.privacy.noise import DiscreteLaplace
from app.spaces.query import linear
from app.spaces.tensor import DenseTensor
from benchmarks.research.applications_data import (
    bipartite,
    graph_data,
    imbalanced_degrees,
    low_rank,
    matrix_data,
    power_law_degrees,
    table_data,
)
from benchmarks.research.applications_play import (
    Analyst,
    CutAnalyst,
    DenseAnalyst,
    FloatArray,
    FreeCutAnalyst,
    Game,
    IntArray,
    Played,
    Private,
    SubsetAnalyst,
    Terms,
    attack,
    needed,
)
from benchmarks.research.applications_theory import PROMISES, Degrees, schatten_promise

Row = dict[str, Any]

MECHANISMS: dict[str, dict[str, Any]] = {
    "mw": {"construction": "mw"},
    "fk": {"construction": "fk"},
    "group": {"construction": "md", "potential": "group", "axis": "rows"},
    "schatten": {"construction": "md", "potential": "schatten"},
    "median": {"construction": "median", "weights": "nonnegative"},
    "median, sampled": {"construction": "median", "sampled": True, "weights": "nonnegative"},
}

#: No search goes beyond so many updates.
MOST_UPDATES = 4000
#: Nor does an analyst ask more.
MOST_QUERIES = 4000


@dataclass(frozen=True)
class Family:
    """Bipartite graphs of one kind. ``beta`` None: the imbalanced ones, else power-law degrees."""

    name: str
    beta: float | None
    one_sided: bool = False
    nested: bool = False

    def degrees(self, nodes: int) -> IntArray:
        """Degrees of the left nodes."""
        return imbalanced_degrees(nodes) if self.beta is None else power_law_degrees(nodes, self.beta)


FAMILIES = {
    family.name: family
    for family in (
        Family("imbalanced", None),
        Family("imbalanced, S alone", None, one_sided=True),
        Family("imbalanced, S alone, nested", None, one_sided=True, nested=True),
        *(Family(f"power law {beta}", beta) for beta in (1.1, 1.2, 1.3, 1.4)),
    )
}


def _random(*seed: int) -> np.random.Generator:
    """Chance of data and analysts; noise comes from the operating system."""
    return np.random.default_rng(seed)


def worst(
    data: Private, mechanism: dict[str, Any], terms: Terms, analyst: Analyst, rng: np.random.Generator, updates: int
) -> Played:
    """The worse of two games of so many updates: with the slow analyst, and with the one who takes the largest gap."""
    games = []
    for slow in (True, False):
        games.append(attack(Game(data, mechanism, terms, updates), analyst, rng, slow, MOST_QUERIES))
        if games[-1].exhausted:
            return games[-1]
    used = max(game.used for game in games)
    played = max(games, key=lambda game: game.largest_error)
    return Played(updates, used, played.asked, played.error_bound, played.largest_error, played.gap, False)


def search(
    data: Private, mechanism: dict[str, Any], terms: Terms, analyst: Analyst, rng: np.random.Generator, guess: float
) -> Played | None:
    """The game with about the least number of updates that neither analyst uses up.

    The search begins near ``guess``, by chance: what one seed found is not known to the next, and no two try the same
    numbers.
    """
    first = round(guess * math.exp(rng.uniform(-0.3, 0.3)))
    return needed(lambda updates: worst(data, mechanism, terms, analyst, rng, updates), MOST_UPDATES, first)


def found_row(found: Played) -> Row:
    """What a search found."""
    return {
        "updates": found.updates,
        "used": found.used,
        "asked": found.asked,
        "error_bound": found.error_bound,
        "largest_error": found.largest_error,
        # What the noise's dependence on B does not enter: B alpha^2, to the power at which errors grow.
        "intrinsic": (found.updates * (found.error_bound / 3) ** 2) ** 0.25,
    }


def on_random(
    data: Private, mechanism: dict[str, Any], terms: Terms, analyst: Analyst, rng: np.random.Generator, updates: int
) -> Row:
    """The largest error on random queries, of a session of its own that is asked no others."""
    game = Game(data, mechanism, terms, updates)
    for _ in range(RANDOM_QUERIES):
        if game.exhausted:
            break
        game.ask(analyst.random(rng))
    return {
        "random_error": game.largest_error,
        "random_asked": game.asked,
        "random_used": game.session.updates_used,
    }


def cuts(
    family: str,
    size: int | None,
    construction: str,
    calibration: str,
    nodes: Sequence[int],
    seeds: Sequence[int],
    terms: Terms,
    step: str = "projection",
) -> Iterator[Row]:
    """Updates needed, and the errors at these, by the number of nodes. ``size`` None: cuts of any sides."""
    kind, mechanism = FAMILIES[family], {**MECHANISMS[construction], "step": step}
    asked = replace(terms, calibration=calibration)
    for count, seed in itertools.product(nodes, seeds):
        started = time.perf_counter()
        rng = _random(count, size or 0, seed)
        degrees = kind.degrees(count)
        plain = graph_data(bipartite(degrees, rng, kind.nested), terms.epsilon)
        data, analyst = with_norm(plain, mechanism), analyst_of(plain, size, kind.one_sided)
        assert data.counts is not None
        row: Row = {
            "family": family,
            "construction": construction,
            "calibration": calibration,
            "epsilon": terms.epsilon,
            "queries": terms.max_queries,
            "step": step,
            "nodes": count,
            "size": size,
            "seed": seed,
        }
        if kind.one_sided:
            row["sums_error"] = noisy_sums(analyst, data, terms.epsilon, rng)
        found = search(data, mechanism, asked, analyst, rng, count)
        if found is not None:
            row |= found_row(found) | on_random(data, mechanism, asked, analyst, rng, found.updates)
            if size is not None:
                row["promised_updates"] = promised(construction, data, degrees, size, found.error_bound / 3)
        yield row | {"seconds": time.perf_counter() - started}


def promised(construction: str, data: Private, degrees: IntArray, size: int, alpha: float) -> float:
    """The number of updates that the construction's theorem promises for cuts of ``size`` columns."""
    if construction == "schatten":
        assert data.counts is not None
        return schatten_promise(np.linalg.svd(data.counts, compute_uv=False).astype(np.float64), len(degrees) * size)(
            alpha
        )
    return PROMISES[construction](Degrees.of(degrees), size)(alpha)


def noisy_sums(analyst: Analyst, data: Private, epsilon: float, rng: np.random.Generator) -> float:
    """The worst error of a cut whose left side is all, if each right node's degree is released once with Laplace noise.

    An edge counts in one degree, so noise of scale 1/epsilon on each is epsilon-DP, and a cut is a sum of degrees.
    """
    rows, columns = data.public.space.shape
    noise = np.zeros((rows, columns))
    noise[0] = np.ldexp(DiscreteLaplace(Fraction(2**20) / Fraction(epsilon)).take(columns).astype(np.float64), -20)
    return analyst.choose(noise, None, rng).gap


def with_norm(data: Private, mechanism: dict[str, Any]) -> Private:
    """The data set with the norm that the mechanism would buy, exact and public, as JT12 takes it to be."""
    asked = iterative(parse_mechanism(mechanism))
    fact, ball = asked.fact(data.public.space), asked.ball(data.public.space)
    if fact in (None, "mass") or ball is None:
        return data
    known = data.public.with_bought(str(fact), Bought(ball.of(data.counts), 0.0))
    return Private(known, data.tensor, data.counts)


def gaussian_queries(construction: str, columns: int, rank: int, seeds: Sequence[int], part: float) -> Iterator[Row]:
    """JT12 section 4.2 without noise: updates until Gaussian queries are off by ``part`` of what the zero answer is.

    A matrix of 4n rows and n columns; every query is fresh, its weights N(0, 1) divided by 4.5 and cut off at 1, since
    weights must lie in [-1, 1]. T is half of the error to reach, so that updates come from ordinary queries.
    """
    rows = 4 * columns
    for seed in seeds:
        started = time.perf_counter()
        rng = _random(columns, rank, seed)
        matrix = low_rank(rows, columns, rank, rng)
        data = with_norm(matrix_data(matrix, 1.0), MECHANISMS[construction])
        analyst = DenseAnalyst(data)
        start = float(np.linalg.norm(matrix))
        spread = start / analyst.CUT  # standard deviation of a query's answer
        game = Game(data, MECHANISMS[construction], Terms(1.0, 10**6), 10**6, threshold=part * spread / 2)
        every = max(1, columns // 4)
        while game.asked < 100 * rows * columns:
            hit, _ = game.ask(analyst.random(rng))
            used = game.session.updates_used
            if hit and used % every == 0 and np.linalg.norm(matrix - game.hypothesis()) <= part * start:
                break
        yield {
            "construction": construction,
            "columns": columns,
            "rank": rank,
            "seed": seed,
            "updates": game.session.updates_used,
            "asked": game.asked,
            "zero_error": spread,
            "seconds": time.perf_counter() - started,
        }


def matrices(
    construction: str, calibration: str, columns: Sequence[int], rank: int, seeds: Sequence[int], terms: Terms
) -> Iterator[Row]:
    """A low-rank matrix of 4n rows and n columns under noise, its whole contract: the worst dense queries there are.

    Random queries are Gaussian ones.
    """
    mechanism, asked = MECHANISMS[construction], replace(terms, calibration=calibration)
    for count, seed in itertools.product(columns, seeds):
        started = time.perf_counter()
        rng = _random(count, rank, seed)
        data = with_norm(matrix_data(low_rank(4 * count, count, rank, rng), terms.epsilon), mechanism)
        analyst = DenseAnalyst(data)
        row: Row = {
            "construction": construction,
            "calibration": calibration,
            "epsilon": terms.epsilon,
            "queries": terms.max_queries,
            "nodes": 4 * count,
            "rank": rank,
            "seed": seed,
        }
        found = search(data, mechanism, asked, analyst, rng, count)
        if found is not None:
            row |= found_row(found) | on_random(data, mechanism, asked, analyst, rng, found.updates)
        yield row | {"seconds": time.perf_counter() - started}


def plain_matrices(columns: Sequence[int], rank: int, seeds: Sequence[int], terms: Terms) -> Iterator[Row]:
    """The alternatives for a low-rank matrix: zero, and noise on every entry."""
    for count, seed in itertools.product(columns, seeds):
        rng = _random(count, rank, seed)
        data = matrix_data(low_rank(4 * count, count, rank, rng), terms.epsilon)
        assert data.counts is not None
        analyst = DenseAnalyst(data)
        common = {"nodes": 4 * count, "rank": rank, "seed": seed, "epsilon": terms.epsilon}
        for name, residual in (("zero answer", data.counts), ("noise on each cell", cell_noise(data, terms.epsilon))):
            yield common | {"construction": name, **plain_errors(analyst, residual, rng)}


def linear_queries(
    construction: str, records: int, cells: int, support: int, queries: int, seeds: Sequence[int], epsilon: float
) -> Iterator[Row]:
    """GRU11 table 1: any 0/1 linear queries on ``records`` spread evenly over ``support`` of the ``cells``."""
    for seed in seeds:
        started = time.perf_counter()
        rng = _random(records, cells, queries, seed)
        counts = np.zeros(cells, dtype=np.int64)
        counts[rng.choice(cells, support, replace=False)] = records // support
        data, terms = table_data(counts, epsilon), Terms(epsilon, queries)
        analyst, mechanism = SubsetAnalyst(data), MECHANISMS[construction]
        row: Row = {
            "construction": construction,
            "records": records,
            "cells": cells,
            "support": support,
            "queries": queries,
            "seed": seed,
        }
        try:
            found = search(data, mechanism, terms, analyst, rng, records**0.5 / 4)
        except PlanInfeasible as error:
            yield row | {"refused": error.detail, "seconds": time.perf_counter() - started}
            continue
        if found is not None:
            row |= found_row(found)
        yield row | {"seconds": time.perf_counter() - started}


def analyst_of(data: Private, size: int | None, one_sided: bool = False) -> CutAnalyst:
    """Cuts with so many right nodes, or of any sides."""
    return FreeCutAnalyst(data) if size is None else CutAnalyst(data, size, one_sided)


#: Random queries that a comparison asks.
RANDOM_QUERIES = 200


def randomised(bits: FloatArray, epsilon: float) -> FloatArray:
    """Randomised response on 0/1 cells, made unbiased: each is told the truth with probability e^eps/(1 + e^eps)."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    drawn = np.frombuffer(os.urandom(8 * bits.size), dtype=np.uint64).reshape(bits.shape)
    told = np.where(np.ldexp((drawn >> 11).astype(np.float64), -53) < truth, bits, 1 - bits)
    unbiased: FloatArray = (told - (1 - truth)) / (2 * truth - 1)
    return unbiased


def cell_noise(data: Private, epsilon: float) -> FloatArray:
    """Laplace noise on every cell of a data set with gamma = 1, to the grid of 2^-20."""
    assert data.counts is not None
    drawn = DiscreteLaplace(Fraction(2**20) / Fraction(epsilon)).take(data.counts.size)
    noise: FloatArray = np.ldexp(drawn.astype(np.float64), -20).reshape(data.counts.shape)
    return noise


def plain_errors(analyst: Analyst, residual: FloatArray, rng: np.random.Generator) -> Row:
    """The largest error found, and the largest of random queries, where answers are off by ``residual``."""
    drawn = (linear(analyst.random(rng)).inner(DenseTensor(residual)) for _ in range(RANDOM_QUERIES))
    return {
        "largest_error": analyst.choose(residual, None, rng).gap,
        "random_error": max(abs(float(error)) for error in drawn),
    }


def plain(family: str, nodes: Sequence[int], size: int | None, seeds: Sequence[int], terms: Terms) -> Iterator[Row]:
    """The alternatives that are no formula: the zero answer, noise or randomised response on every cell."""
    for count, seed in itertools.product(nodes, seeds):
        rng = _random(count, size or 0, seed)
        kind = FAMILIES[family]
        data = graph_data(bipartite(kind.degrees(count), rng, kind.nested), terms.epsilon)
        analyst = analyst_of(data, size, kind.one_sided)
        assert data.counts is not None
        for name, residual in (
            ("zero answer", data.counts),
            ("noise on each cell", cell_noise(data, terms.epsilon)),
            ("randomised response", randomised(data.counts, terms.epsilon) - data.counts),
        ):
            yield {
                "family": family,
                "nodes": count,
                "size": size,
                "construction": name,
                "epsilon": terms.epsilon,
                "seed": seed,
                **plain_errors(analyst, residual, rng),
            }
