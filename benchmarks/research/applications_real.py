"""Real data: what sessions make of it. Each data set is left out where its file is not there."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.constructions.base import ListedHypothesis
from app.curator.dataset import PublicDataset
from app.demo.baseline import queries_to_overtake
from app.spaces.elements import ElementsTensor
from app.spaces.queries.elements import CompiledElements, ElementsQuery
from app.spaces.query import Query
from app.storage.private_data import ElementsData
from benchmarks.research.applications_data import DELTA, declared, directed_data, graph_data, table_data
from benchmarks.research.applications_measure import MECHANISMS, Row
from benchmarks.research.applications_play import (
    PATIENCE,
    Analyst,
    FloatArray,
    FreeCutAnalyst,
    Game,
    IntArray,
    PairAnalyst,
    Private,
    RangeAnalyst,
    Terms,
    attack,
)
from benchmarks.research.applications_theory import gaussian

#: Attributes of Adult with few values each.
ADULT = ("workclass", "education-num", "marital-status", "relationship", "race", "sex", "income>50K")
#: Elements that a query of the multiset weighs, one trial each.
WORDS = (1, 8)
#: Random questions of a trial where a question takes no time, and how many are chosen with the truth in view, at most.
RANDOM = 20_000
CHOSEN = 5_000
#: Sessions are tried with more and more updates, each time twice as many, up to so many.
MOST = 2_048


def email(folder: Path, epsilon: float) -> tuple[Private, Analyst]:
    """Directed cuts of a network of e-mails; loops are dropped."""
    edges = np.loadtxt(folder / "email-Eu-core" / "email-Eu-core.txt", dtype=np.int64)
    matrix = np.zeros((int(edges.max()) + 1,) * 2, dtype=np.int64)
    matrix[edges[:, 0], edges[:, 1]] = 1
    np.fill_diagonal(matrix, 0)
    data = directed_data(matrix, epsilon)
    return data, FreeCutAnalyst(data)


def deezer(folder: Path, epsilon: float) -> tuple[Private, Analyst]:
    """Cuts between users and the genres they like."""
    likes: dict[str, list[str]] = json.loads((folder / "deezer-RO-genres" / "RO_genres.json").read_text())
    genres = {genre: i for i, genre in enumerate(sorted({genre for liked in likes.values() for genre in liked}))}
    matrix = np.zeros((len(likes), len(genres)), dtype=np.int64)
    for user, liked in enumerate(likes.values()):
        matrix[user, [genres[genre] for genre in liked]] = 1
    data = graph_data(matrix, epsilon)
    return data, FreeCutAnalyst(data)


def lastfm(folder: Path, epsilon: float) -> tuple[Private, Analyst]:
    """Cuts between users and the artists they listen to."""
    parts = [
        np.loadtxt(folder / "lastfm-lightgcn" / name, usecols=(0, 1)).astype(np.int64)
        for name in ("data1.txt", "test1.txt")
    ]
    sides = [np.unique(side, return_inverse=True) for side in np.concatenate(parts).T]
    matrix = np.zeros([len(names) for names, _ in sides], dtype=np.int64)
    matrix[sides[0][1], sides[1][1]] = 1
    data = graph_data(matrix, epsilon)
    return data, FreeCutAnalyst(data)


def adult(folder: Path, epsilon: float) -> tuple[Private, Analyst]:
    """Predicates on two of seven attributes of the census sample."""
    sizes: dict[str, int] = json.loads((folder / "adult-pgm" / "adult-domain.json").read_text())
    with (folder / "adult-pgm" / "adult.csv").open() as file:
        codes = np.array([[int(row[name]) for name in ADULT] for row in csv.DictReader(file)])
    counts = np.zeros([sizes[name] for name in ADULT], dtype=np.int64)
    np.add.at(counts, tuple(codes.T), 1)
    data = table_data(counts, epsilon)
    return data, PairAnalyst(data)


def ranges(name: str) -> Callable[[Path, float], tuple[Private, Analyst]]:
    """Ranges of one of the histograms."""

    def load(folder: Path, epsilon: float) -> tuple[Private, Analyst]:
        data = table_data(np.load(folder / "dpbench" / f"{name}.n4096.npy").astype(np.int64), epsilon)
        return data, RangeAnalyst(data)

    return load


@dataclass(frozen=True)
class Source:
    """A data set and the mechanisms that fit it; how often its analyst looks before giving up; where the search for
    updates begins; how many random questions there are, and seeds: fewer where a trial takes minutes.
    """

    load: Callable[[Path, float], tuple[Private, Analyst]]
    mechanisms: dict[str, dict[str, Any]]
    starts: int = 1
    first: int = 16
    asks: int = RANDOM
    seeds: int = 5


def _some(*names: str) -> dict[str, dict[str, Any]]:
    return {name: MECHANISMS[name] for name in names}


_COLUMNS = {"group, columns": {**MECHANISMS["group"], "axis": "columns"}}

SOURCES: dict[str, Source] = {
    "email-Eu-core": Source(email, _some("mw", "fk", "group", "schatten"), asks=5_000),
    "deezer": Source(deezer, _some("mw", "fk") | _COLUMNS, first=256, asks=1_500, seeds=3),
    "lastfm": Source(lastfm, _some("mw", "fk"), first=128, asks=1_000, seeds=3),
    "adult": Source(adult, _some("mw", "fk"), starts=4),
    "dpbench HEPTH": Source(ranges("HEPTH"), _some("mw", "fk")),
    "dpbench SEARCHLOGS": Source(ranges("SEARCHLOGS"), _some("mw", "fk")),
}


def trial(
    name: str, mechanism: str, folder: str, epsilon: float, queries: int, seed: int, asks: int = RANDOM
) -> Iterator[Row]:
    """Random questions, then the worst that can be found; the least power of two of updates that lasts for both."""
    started = time.perf_counter()
    source = SOURCES[name]
    try:
        data, analyst = source.load(Path(folder), epsilon)
    except FileNotFoundError:
        return
    assert data.counts is not None
    rng, asks = np.random.default_rng(seed), min(asks, source.asks)
    zero = analyst.choose(data.counts, None, rng).gap
    updates = source.first
    while True:
        game = Game(data, source.mechanisms[mechanism], Terms(epsilon, queries), updates)
        before = analyst.choose(data.counts - game.hypothesis(), None, rng).gap
        at_random = _random_questions(game, lambda: analyst.random(rng), asks)
        cap = game.asked + CHOSEN
        played = attack(game, analyst, rng, slow=False, most=cap, starts=source.starts)
        if not game.exhausted or updates >= MOST:
            break
        updates *= 2
    yield (
        _result(name, mechanism, data.public, game, queries, epsilon, seed)
        | at_random
        | {
            "zero_error": zero,
            "start_error": before,
            **_chosen(game, at_random),
            "adaptive_error": played.largest_error,
            "left": played.gap,
            "ended": _ended(game, played.gap, cap),
            "seconds": time.perf_counter() - started,
        }
    )


def _random_questions(game: Game, draw: Callable[[], Query], asks: int) -> Row:
    """Ask random questions; what they found, apart from what comes after them."""
    errors: list[float] = []
    for _ in range(asks):
        if game.exhausted:
            break
        errors.append(game.ask(draw())[1])
    on_random, game.largest_error = game.largest_error, 0.0
    return {
        "random_asked": game.asked,
        "random_used": game.session.updates_used,
        "random_error": on_random,
        "random_median": float(np.median(errors)),
    }


def _chosen(game: Game, at_random: Row) -> Row:
    """What was asked after the random questions."""
    return {
        "chosen_asked": game.asked - at_random["random_asked"],
        "chosen_used": game.session.updates_used - at_random["random_used"],
    }


def _ended(game: Game, gap: float, cap: int) -> str:
    """Why no more was asked."""
    if game.exhausted:
        return "updates used up"
    if game.asked >= cap:
        return "questions"
    return "no gap" if gap <= game.threshold else "patience"


def _result(
    name: str, mechanism: str, public: PublicDataset, game: Game, queries: int, epsilon: float, seed: int
) -> Row:
    line = gaussian(epsilon, DELTA, queries, 0.05)
    bound = game.plan.error_bound
    return {
        "data": name,
        "mechanism": mechanism,
        "seed": seed,
        "mass": public.records,
        "cells": public.space.size if public.space.extent != "unbounded" else None,
        "updates": game.plan.max_updates,
        "used": game.session.updates_used,
        "asked": game.asked,
        "exhausted": game.exhausted,
        "error_bound": bound,
        "gaussian_bound": line.bound,
        # What Gaussian noise would promise for the questions that were asked, had their number been known.
        "gaussian_asked": gaussian(epsilon, DELTA, game.asked, 0.05).bound,
        "overtakes": queries_to_overtake(bound, queries, 0.05, epsilon, DELTA),
        "queries": queries,
    }


def over_seeds(rows: list[Row]) -> list[Row]:
    """One row for each data set and mechanism: the median of each figure, how sessions ended, and the largest error of
    all seeds as a part of its session's bound."""
    trials: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        trials.setdefault((row["data"], row["mechanism"]), []).append(row)
    return [_over_seeds(same) for same in trials.values()]


def _over_seeds(rows: list[Row]) -> Row:
    ended = Counter(row["ended"] for row in rows)
    one = {
        key: _median([row[key] for row in rows]) if isinstance(value, int | float) else value
        for key, value in rows[0].items()
    }
    return one | {
        "seeds": len(rows),
        "ended": ", ".join(why if times == len(rows) else f"{why} {times}" for why, times in ended.most_common()),
        "worst_part": max(max(row["random_error"], row["adaptive_error"]) / row["error_bound"] for row in rows),
    }


def _median(values: list[Any]) -> float | None:
    """The middle one; None where some trial has no such figure."""
    return None if None in values else float(np.median(values))


class Words:
    """Queries of a few elements each, of a multiset whose counts the analyst knows."""

    def __init__(self, elements: list[str], counts: IntArray, epsilon: float, sparsity: int) -> None:
        order = np.argsort(np.array(elements, dtype=object))
        encoded = [elements[i].encode() for i in order]
        offsets = np.concatenate([[0], np.cumsum([len(word) for word in encoded])]).astype(np.int64)
        stored = ElementsData(
            np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets, counts[order], int(counts.sum())
        )
        spec = declared(epsilon, kind="multiset", records_public=True)
        self.sparsity = sparsity
        self.elements, self.counts = elements, counts.astype(np.float64)
        self.data = Private(PublicDataset(spec, records=float(counts.sum())), ElementsTensor(stored))
        self._places = {word: i for i, word in enumerate(elements)}

    def query(self, places: IntArray) -> Any:
        """The elements at these places, each with weight 1."""
        return ElementsQuery(type="elements", weights={self.elements[i]: 1.0 for i in places.tolist()}).compiled(
            self.data.public.space
        )

    def random(self, rng: np.random.Generator) -> Any:
        """Distinct elements, frequent ones more often: logarithms of ranks are uniform."""
        ranks = np.unique(np.exp(rng.random(4 * self.sparsity) * np.log(len(self.elements))).astype(np.int64) - 1)
        return self.query(rng.permutation(ranks)[: self.sparsity])

    def worst(self, game: Game, rng: np.random.Generator, misses: int = 0) -> tuple[float, CompiledElements]:
        """The elements whose counts are furthest below the truth (or above it), and the gap.

        After misses, some of the furthest ones: a repeated query is answered from the cache.
        """
        hypothesis = game.session.exported()
        assert isinstance(hypothesis, ListedHypothesis)
        guess: FloatArray = np.full(len(self.elements), hypothesis.other)
        for word, count in zip(hypothesis.elements, hypothesis.counts, strict=True):
            guess[self._places[word]] = count
        residual = self.counts - guess
        if self.sparsity == 1:
            # What was asked is answered from the cache: the furthest word that was not.
            order = np.argsort(-np.abs(residual)).tolist()
            place = next(place for place in order if not game.knows(self.query(np.array([place]))))
            return abs(float(residual[place])), self.query(np.array([place]))
        some = min(self.sparsity * (1 + misses), len(residual) - 1)
        ends = [
            rng.permutation(np.argpartition(sign * residual, -some)[-some:])[: self.sparsity] for sign in (1.0, -1.0)
        ]
        gaps = [abs(float(residual[end].sum())) for end in ends]
        best = int(np.argmax(gaps))
        return gaps[best], self.query(np.sort(ends[best]))


def words(folder: str, epsilon: float, queries: int, sparsity: int, seed: int, asks: int = RANDOM) -> Iterator[Row]:
    """Words of a corpus: sparse multiplicative weights over all strings."""
    started = time.perf_counter()
    file = Path(folder) / "afwiki-words" / "afwiki-2024-02-20.txt"
    if not file.is_file():
        return
    lines = [line.split(" ") for line in file.read_text().splitlines()]
    counts = np.array([int(count) for _, count in lines])
    order = np.argsort(-counts, kind="stable")
    corpus = Words([lines[i][0] for i in order], counts[order], epsilon, sparsity)
    yield from words_trial(corpus, epsilon, queries, seed, asks, CHOSEN, MOST, started)


def words_trial(
    corpus: Words, epsilon: float, queries: int, seed: int, asks: int, chosen: int, most: int, started: float
) -> Iterator[Row]:
    """The trial of :func:`words` on any multiset, its elements by falling counts."""
    rng = np.random.default_rng(seed)
    mechanism = {"construction": "smw", "sparsity": corpus.sparsity}
    updates = 64
    while True:
        game = Game(corpus.data, mechanism, Terms(epsilon, queries), updates)
        zero = float(np.sort(corpus.counts)[-corpus.sparsity :].sum())
        before, _ = corpus.worst(game, rng)
        at_random = _random_questions(game, lambda: corpus.random(rng), asks)
        gap, misses, cap = 0.0, 0, game.asked + chosen
        while not game.exhausted and game.asked < cap and misses < PATIENCE:
            found, query = corpus.worst(game, rng, misses)
            gap = max(gap if misses else 0.0, 0.0 if game.knows(query) and found > game.threshold else found)
            if found <= game.threshold and not misses:
                break
            fresh = found > game.threshold and not game.knows(query)
            misses = 0 if fresh and game.ask(query)[0] else misses + 1
        if not game.exhausted or updates >= most:
            break
        updates *= 2
    yield (
        _result("afwiki words", f"smw, {corpus.sparsity} a question", corpus.data.public, game, queries, epsilon, seed)
        | at_random
        | {
            "zero_error": zero,
            "start_error": before,
            **_chosen(game, at_random),
            "adaptive_error": max(game.largest_error, gap if gap <= game.threshold else 0.0),
            "left": gap,
            "ended": _ended(game, gap, cap),
            "seconds": time.perf_counter() - started,
        }
    )
