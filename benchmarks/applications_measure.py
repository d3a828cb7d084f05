"""The measurements of the papers' applications, each a task that a process of its own can run."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from app.constructions.mechanism import Mechanism
from app.curator.dataset import Bought
from app.curator.errors import PlanInfeasible
from app.privacy.noise import DiscreteLaplace
from benchmarks.applications_data import (
    DELTA,
    bipartite,
    graph_data,
    imbalanced_degrees,
    low_rank,
    matrix_data,
    power_law_degrees,
    table_data,
)
from benchmarks.applications_play import (
    Analyst,
    CutAnalyst,
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
from benchmarks.applications_theory import PROMISES, Degrees, gaussian, laplace, noise_scale

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
    data: Private,
    mechanism: dict[str, Any],
    terms: Terms,
    analyst: Analyst,
    rng: np.random.Generator,
    guess: int,
    sure: bool,
) -> Played | None:
    """The game with the least number of updates that neither analyst uses up."""
    return needed(lambda updates: worst(data, mechanism, terms, analyst, rng, updates), MOST_UPDATES, guess, sure)


def growth(
    family: str,
    size: int,
    construction: str,
    nodes: Sequence[int],
    seeds: int,
    terms: Terms,
    step: str = "projection",
    last_seeds: int | None = None,
) -> Iterator[Row]:
    """Updates needed, and the error at these, by the number of nodes; the most nodes may have fewer seeds."""
    kind, mechanism = FAMILIES[family], {**MECHANISMS[construction], "step": step}
    guess, sure = 16, False
    for count, seed in itertools.product(nodes, range(seeds)):
        if count == nodes[-1] and last_seeds is not None and seed >= last_seeds:
            continue
        started = time.perf_counter()
        rng = _random(count, size, seed)
        degrees = kind.degrees(count)
        data = with_norm(graph_data(bipartite(degrees, rng, kind.nested), terms.epsilon), mechanism)
        analyst = CutAnalyst(data, size, kind.one_sided)
        assert data.counts is not None
        # The first guess for more nodes is from fewer, and rough.
        sure = sure and seed > 0
        first = guess if sure or count == nodes[0] else 2 * guess
        found = search(data, mechanism, terms, analyst, rng, first, sure)
        row: Row = {
            "family": family,
            "construction": construction,
            "step": step,
            "nodes": count,
            "size": size,
            "seed": seed,
            "zero_error": analyst.choose(data.counts, None, rng).gap,
        }
        if kind.one_sided:
            row["sums_error"] = noisy_sums(analyst, data, terms.epsilon, rng)
        if found is not None:
            guess, sure = found.updates, True
            alpha = found.error_bound / 3
            row |= {
                "updates": found.updates,
                "error_bound": found.error_bound,
                "largest_error": found.largest_error,
                "used": found.used,
                "asked": found.asked,
                # What the noise's dependence on B does not enter: B alpha^2, to the power at which errors grow.
                "intrinsic": (found.updates * alpha**2) ** 0.25,
                "promised_updates": PROMISES[construction](Degrees.of(degrees), size)(alpha)
                if construction in PROMISES
                else None,
            }
        yield row | {"seconds": time.perf_counter() - started}


def noisy_sums(analyst: CutAnalyst, data: Private, epsilon: float, rng: np.random.Generator) -> float:
    """The worst error of a cut whose left side is all, if each right node's degree is released once with Laplace noise.

    An edge counts in one degree, so noise of scale 1/epsilon on each is epsilon-DP, and a cut is a sum of degrees.
    """
    rows, columns = data.public.space.shape
    noise = np.zeros((rows, columns))
    noise[0] = np.ldexp(DiscreteLaplace(Fraction(2**20) / Fraction(epsilon)).take(columns).astype(np.float64), -20)
    return analyst.choose(noise, None, rng).gap


def with_norm(data: Private, mechanism: dict[str, Any]) -> Private:
    """The data set with the norm that the mechanism would buy, exact and public, as JT12 takes it to be."""
    asked = Mechanism(**mechanism)
    fact, ball = asked.fact(data.public.space), asked.ball(data.public.space)
    if fact in (None, "mass") or ball is None:
        return data
    known = data.public.with_bought(str(fact), Bought(ball.of(data.counts), 0.0))
    return Private(known, data.tensor, data.counts)


def gaussian_queries(construction: str, columns: int, rank: int, seeds: int, part: float) -> Iterator[Row]:
    """JT12 section 4.2 without noise: updates until Gaussian queries are off by ``part`` of what the zero answer is.

    A matrix of 4n rows and n columns; every query is fresh, its weights N(0, 1) divided by 4.5 and cut off at 1, since
    weights must lie in [-1, 1]. T is half of the error to reach, so that updates come from ordinary queries.
    """
    rows = 4 * columns
    for seed in range(seeds):
        started = time.perf_counter()
        rng = _random(columns, rank, seed)
        matrix = low_rank(rows, columns, rank, rng)
        data = matrix_data(matrix, 1.0)
        start = float(np.linalg.norm(matrix))
        spread = start / GAUSSIAN_CUT  # standard deviation of a query's answer
        terms = Terms(1.0, 10**6)
        game = Game(data, MECHANISMS[construction], terms, 10**6, threshold=part * spread / 2)
        every = max(1, columns // 4)
        while game.asked < 100 * rows * columns:
            hit, _ = game.ask(data.public.space.compile_dense(gaussian_weights((rows, columns), rng)))
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
            "threshold_at_1": 2 * noise_scale(1.0, DELTA, 1) * math.log(terms.max_queries / terms.beta),
            "seconds": time.perf_counter() - started,
        }


#: Standard deviations that a Gaussian weight of 1 stands for.
GAUSSIAN_CUT = 4.5


def gaussian_weights(shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    """A query of JT12 section 4.2, within [-1, 1]."""
    weights: FloatArray = np.clip(rng.standard_normal(shape) / GAUSSIAN_CUT, -1.0, 1.0)
    return weights


def linear_queries(
    construction: str, records: int, cells: int, support: int, queries: int, seeds: int, epsilon: float
) -> Iterator[Row]:
    """GRU11 table 1: any 0/1 linear queries on ``records`` spread evenly over ``support`` of the ``cells``."""
    guess, sure = 16, False
    for seed in range(seeds):
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
            found = search(data, mechanism, terms, analyst, rng, guess, sure)
        except PlanInfeasible as error:
            yield row | {"refused": error.detail, "seconds": time.perf_counter() - started}
            continue
        if found is not None:
            guess, sure = found.updates, True
            row |= {
                "updates": found.updates,
                "error_bound": found.error_bound,
                "largest_error": found.largest_error,
                "asked": found.asked,
                "intrinsic": (found.updates * (found.error_bound / 3) ** 2) ** 0.25,
            }
        yield row | {"seconds": time.perf_counter() - started}


def analyst_of(data: Private, size: int | None) -> CutAnalyst:
    """Cuts with so many right nodes, or of any sides."""
    return FreeCutAnalyst(data) if size is None else CutAnalyst(data, size, one_sided=False)


def duel(
    family: str,
    nodes: int,
    size: int | None,
    construction: str,
    calibration: str,
    seeds: int,
    epsilon: float,
    queries: int,
) -> Iterator[Row]:
    """One mechanism at the number of updates it needs: its bound, and its errors on random and on adaptive queries."""
    guess, sure = 16, False
    for seed in range(seeds):
        started = time.perf_counter()
        rng = _random(nodes, seed)
        data = graph_data(bipartite(FAMILIES[family].degrees(nodes), rng), epsilon)
        analyst, terms = analyst_of(data, size), Terms(epsilon, queries, calibration=calibration)
        found = search(data, MECHANISMS[construction], terms, analyst, rng, guess, sure)
        row: Row = {
            "family": family,
            "nodes": nodes,
            "size": size,
            "construction": construction,
            "calibration": calibration,
            "seed": seed,
            "queries": queries,
        }
        if found is not None:
            guess, sure = found.updates, True
            game = Game(data, MECHANISMS[construction], terms, found.updates)
            asked = RANDOM_QUERIES
            for number in range(RANDOM_QUERIES):
                if game.exhausted:
                    asked = number
                    break
                game.ask(analyst.random(rng))
            row |= {
                "updates": found.updates,
                "used": found.used,
                "error_bound": found.error_bound,
                "largest_error": found.largest_error,
                "random_error": game.largest_error,
                "random_asked": asked,
                "random_used": game.session.updates_used,
            }
        yield row | {"seconds": time.perf_counter() - started}


#: Random queries that a comparison asks.
RANDOM_QUERIES = 200


def randomised(bits: FloatArray, epsilon: float) -> FloatArray:
    """Randomised response on 0/1 cells, made unbiased: each is told the truth with probability e^eps/(1 + e^eps)."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    drawn = np.frombuffer(os.urandom(8 * bits.size), dtype=np.uint64).reshape(bits.shape)
    told = np.where(drawn < np.uint64(truth * 2**64), bits, 1 - bits)
    unbiased: FloatArray = (told - (1 - truth)) / (2 * truth - 1)
    return unbiased


def plain(family: str, nodes: int, size: int | None, seeds: int, epsilon: float, queries: int) -> Iterator[Row]:
    """The alternatives: zero, independent noise on every answer, noise or randomised response on every cell."""
    for seed in range(seeds):
        rng = _random(nodes, seed)
        data = graph_data(bipartite(FAMILIES[family].degrees(nodes), rng), epsilon)
        analyst = analyst_of(data, size)
        assert data.counts is not None
        source = DiscreteLaplace(1 / Fraction(epsilon))
        noise = source.take(nodes * nodes).astype(np.float64).reshape(nodes, nodes)
        for name, error in (
            ("zero answer", analyst.choose(data.counts, None, rng).gap),
            ("noisy histogram", analyst.choose(noise, None, rng).gap),
            ("randomised response", analyst.choose(randomised(data.counts, epsilon) - data.counts, None, rng).gap),
        ):
            yield {
                "family": family,
                "nodes": nodes,
                "size": size,
                "construction": name,
                "seed": seed,
                "largest_error": error,
            }
    for name, line in (
        ("independent Gaussian", gaussian(epsilon, DELTA, queries, 0.05)),
        ("independent Laplace", laplace(epsilon, DELTA, queries, 0.05)),
    ):
        yield {
            "family": family,
            "nodes": nodes,
            "size": size,
            "construction": name,
            "queries": queries,
            "error_bound": line.bound,
            "largest_error": line.largest,
        }
