"""Weighted questions of a survey: how far answers are off, beside noise on each question by itself.

Run `python -m benchmarks.research.weights` (four minutes). Records have weights that are made up, from 1 to 400, about
100 in the middle and larger for some kinds of records. A session is asked one weighted question, or all six: a count, a
table by some 15 groups, a share by these groups, a mean, a mean by group, and a median. Beside it a user spends the
same (epsilon, delta) on each question by itself, with Gaussian or with Laplace noise scaled to the largest weight: on
the sum of weights, of a share on those of the part and of the rest, of a mean on the sum of weights and on that of
products with numbers off the middle of their bounds, half of the price each; for a median the exponential mechanism.
He knows groups that his noise hides to be there, and divides by one at least. Errors are root mean squares over all
values that the session gave, as parts of the truth, at most one each, of shares as they are; numbers beside others are
ratios to these errors, an error below 1e-4 counting as that. Beside them how often nominal 95% intervals hold
the truth, and how many values are null. Surveys are those of :mod:`benchmarks.research.statistics`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np

from app.privacy.ledger import Budget
from benchmarks.harness import report
from benchmarks.research import statistics
from benchmarks.research.shares import satisfies
from benchmarks.research.statistics import DELTA, Ours, Stream, Survey

EPSILONS, SEEDS = (0.1, 1.0), 20
#: The largest weight that is declared; and the error below which none is told from another, as medians may be exact.
LARGEST, LEAST = 400, 1e-4
WEIGHT = {"name": "weight", "lower": 0, "upper": LARGEST, "grid": 1, "role": "weight"}

Words = dict[str, Any]
#: Of each survey the numbers, groups of about fifteen, and an attribute of few values.
ASKED = {
    "fulton": ("income", ["educ"], "married"),
    "adult": ("hours-per-week", ["education-num"], "race"),
    "titanic": ("Fare", ["Pclass", "Embarked"], "Sex"),
}


@cache
def survey(name: str) -> Survey:
    """A survey whose records have weights."""
    plain, few = statistics.survey(name), ASKED[name][2]
    rng = np.random.default_rng(17)
    weights = rng.lognormal(4.5, 0.5, len(plain.columns[0])) * (1 + 0.4 * (plain.places(few) == 1))
    column = np.clip(weights.round(), 1, LARGEST).astype(np.int64)
    return Survey([*plain.attributes, WEIGHT], [*plain.columns, column], [])


def streams(name: str) -> list[Stream]:
    """Each question alone, and all six."""
    of, groups, few = ASKED[name]
    asked: dict[str, Words] = {
        "count": {"type": "predicate", "where": {few: 1}},
        "table": {"type": "marginal", "attributes": groups},
        "share by group": {"type": "share", "of": {few: 1}, "group_by": groups},
        "mean": {"type": "mean", "of": of},
        "mean by group": {"type": "mean", "of": of, "group_by": groups},
        "median": {"type": "quantile", "of": of, "q": 0.5},
    }
    weighted = {kind: words | {"weighted": True} for kind, words in asked.items()}
    return [*(Stream(kind, [words]) for kind, words in weighted.items()), Stream("all six", [*weighted.values()])]


def members(table: Survey, words: Words) -> Iterator[np.ndarray]:
    """Which records are of each group."""
    cells = np.zeros(len(table.columns[0]), np.int64)
    by: list[str] = words.get("group_by", [])
    groups: list[str] = words.get("attributes", by)
    sizes = [next(a for a in table.attributes if a["name"] == g)["size"] for g in groups]
    for group, size in zip(groups, sizes, strict=True):
        cells = cells * size + table.places(group)
    kept = satisfies(table, words.get("where", {}))
    if words["type"] in ("mean", "quantile"):
        kept &= ~np.isnan(table.numbers(words["of"]))
    return (kept & (cells == cell) for cell in range(math.prod(sizes)))


@dataclass(frozen=True, eq=False)
class Group:
    """What is true of the records of a group: the sum of their weights, that of the part that a share is of, that of
    their numbers off the middle times weights, and for each number of the grid the weight below it, and up to it."""

    whole: float
    part: float
    above: float
    before: np.ndarray
    below: np.ndarray


@cache
def grouped(name: str, spelled: str) -> list[Group]:
    """The groups of a question (JSON)."""
    table, words, found = survey(name), json.loads(spelled), []
    weights = table.numbers("weight")
    inside = satisfies(table, words["of"]) if words["type"] == "share" else np.zeros(len(weights), dtype=bool)
    for own in members(table, words):
        above, before, below = 0.0, np.zeros(0), np.zeros(0)
        if words["type"] in ("mean", "quantile"):
            numbers, (low, high, grid) = table.numbers(words["of"])[own], _grid(table, words)
            above = float((weights[own] * (numbers - (low + high) / 2)).sum())
            order = np.argsort(numbers, kind="stable")
            sums = np.concatenate([[0.0], np.cumsum(weights[own][order])])
            before, below = (sums[np.searchsorted(numbers[order], grid, side=side)] for side in ("left", "right"))
        whole, part = (float(weights[kept].sum()) for kept in (own, own & inside))
        found.append(Group(whole, part, above, before, below))
    return found


def _grid(table: Survey, words: Words) -> tuple[float, float, np.ndarray]:
    """The bounds of the attribute that a question is of, and its numbers."""
    attribute = next(a for a in table.attributes if a["name"] == words["of"])
    low, high = float(attribute["lower"]), float(attribute["upper"])
    return low, high, np.arange(low, high + 1, attribute["grid"])


def truth(name: str, words: Words) -> np.ndarray:
    """Exact answers in the order of the service's; NaN where there is nobody."""
    found = []
    for group in grouped(name, json.dumps(words)):
        if words["type"] in ("predicate", "marginal"):
            found.append(group.whole)
        elif not group.whole:
            found.append(math.nan)
        elif words["type"] == "share":
            found.append(group.part / group.whole)
        else:
            low, high, grid = _grid(survey(name), words)
            if words["type"] == "mean":
                found.append((low + high) / 2 + group.above / group.whole)
            else:
                found.append(grid[np.searchsorted(group.below, words["q"] * group.whole)])
    return np.array(found)


class Alone:
    """Each question by itself, with an equal part of the budget."""

    def __init__(self, name: str, epsilon: float, seed: int, questions: int, *, pure: bool) -> None:
        self._name, self._rng, self._pure = name, np.random.default_rng(seed), pure
        budget = Budget.of(Decimal(str(epsilon)), Decimal(str(DELTA)))
        self._epsilon, self._order = epsilon / questions, float(budget.order)
        self._renyi = float(budget.share(budget.epsilon)) / questions

    def _noise(self, sensitivity: float, part: float) -> float:
        if self._pure:
            return float(self._rng.laplace(0, sensitivity / (part * self._epsilon)))
        return float(self._rng.normal(0, sensitivity * math.sqrt(self._order / (2 * part * self._renyi))))

    def ask(self, words: Words) -> np.ndarray:
        """The answers."""
        return np.array([self._answer(group, words) for group in grouped(self._name, json.dumps(words))])

    def _answer(self, group: Group, words: Words) -> float:
        if words["type"] in ("predicate", "marginal"):
            return group.whole + self._noise(LARGEST, 1.0)
        if words["type"] == "share":
            # A record is in the part or in the rest.
            part, rest = (exact + self._noise(LARGEST, 1.0) for exact in (group.part, group.whole - group.part))
            return float(np.clip(part / max(part + rest, 1.0), 0.0, 1.0))
        low, high, grid = _grid(survey(self._name), words)
        if words["type"] == "quantile":
            return float(self._rng.choice(grid, p=self._chances(group, words["q"])))
        above = group.above + self._noise(LARGEST * (high - low) / 2, 0.5)
        below = group.whole + self._noise(LARGEST, 0.5)
        return float(np.clip((low + high) / 2 + above / max(below, 1.0), low, high))

    def _chances(self, group: Group, q: float) -> np.ndarray:
        """The exponential mechanism over the grid, with the weight on the wrong side as its score."""
        goal = q * group.whole
        score = -np.maximum(np.maximum(group.before - goal, goal - group.below), 0.0)
        # Bounded range: the score moves by max(q, 1 - q) times the largest weight, one way or the other.
        each = self._epsilon if self._pure else math.sqrt(8 * self._renyi / self._order)
        chances = np.exp((score - score.max()) * each / (2 * max(q, 1 - q) * LARGEST))
        return np.asarray(chances / chances.sum())


def missed(words: Words, values: np.ndarray, true: np.ndarray) -> list[float]:
    """Squares of errors."""
    if words["type"] == "share":
        return list(np.square(values - true))
    return list(np.square(np.clip(values / true - 1, -1.0, 1.0)))


def row(name: str, stream: Stream, epsilon: float, seeds: int) -> list[Any]:
    """One stream of a survey at one epsilon; of several questions geometric means of their ratios, and no error."""
    table, count = survey(name), len(stream.questions)
    squares: dict[tuple[int, str], list[float]] = defaultdict(list)
    held: list[bool] = []
    nothing = told = 0
    exact = [truth(name, words) for words in stream.questions]
    for seed in range(seeds):
        ours = Ours(table, stream, epsilon, seed)
        others = {way: Alone(name, epsilon, seed, count, pure=way == "laplace") for way in ("gaussian", "laplace")}
        for place, (words, true) in enumerate(zip(stream.questions, exact, strict=True)):
            values, lows, highs = ours.ask(words)
            there = ~np.isnan(values) & ~np.isnan(true) & (true > 0)
            told, nothing = told + len(values), nothing + int(np.isnan(values).sum())
            held += ((lows <= true) & (true <= highs))[there].tolist()
            squares[place, "ours"] += missed(words, values[there], true[there])
            for way, other in others.items():
                squares[place, way] += missed(words, other.ask(words)[there], true[there])
    places = [place for place in range(count) if squares[place, "ours"]]
    errors = {key: max(math.sqrt(np.mean(own)), LEAST) for key, own in squares.items() if own}
    beside = [
        math.exp(float(np.mean([math.log(errors[place, "ours"] / errors[place, way]) for place in places])))
        if places
        else None
        for way in ("gaussian", "laplace")
    ]
    error = errors.get((0, "ours")) if count == 1 else None
    return [name, epsilon, stream.name, *beside, error, float(np.mean(held)) if held else None, nothing / told]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surveys", nargs="*", default=list(ASKED))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    columns = ["survey", "epsilon", "question", "gaussian", "laplace", "error", "intervals that hold", "null"]
    found = [
        row(name, stream, epsilon, given.seeds)
        for name in given.surveys
        for stream in streams(name)
        for epsilon in EPSILONS
    ]
    report("weights", "Weighted questions of a survey", columns, found, seeds=given.seeds)


if __name__ == "__main__":
    main()
