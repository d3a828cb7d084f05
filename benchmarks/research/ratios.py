"""Ratios of two sums of a survey's numbers: how far answers are off, beside two sums that are asked and divided.

Run `python -m benchmarks.research.ratios` (five minutes). A session is asked ratios: one of all records, one by some 15
groups, or six of these kinds and under conditions. Beside it another session of the same budget is asked for both sums
of each, and a user who spends the same (epsilon, delta) on each ratio by itself adds noise to both sums, Gaussian or
Laplace, for half of the price each, scaled to the largest declared number; where the number of records is public he
sums what numbers are off the middle of their bounds, which moves half as much. What is divided by is one at least.
Errors are parts of the truth, of which a value that is off by all of it or more counts as one, as quotients have no
mean square; their root mean squares over all values that the session gave are compared in the same run, by geometric
means over the questions. Beside them that of the session, how often nominal 95% intervals hold the truth, and how many
values are null. Surveys are those of :mod:`benchmarks.research.statistics`.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from decimal import Decimal
from typing import Any

import numpy as np

from app.privacy.ledger import Budget
from benchmarks.harness import report
from benchmarks.research.shares import satisfies
from benchmarks.research.statistics import DELTA, Ours, Stream, Survey, survey

EPSILONS, SEEDS = (0.1, 1.0), 20
#: As many times more sessions of a single number.
MORE = 5

Words = dict[str, Any]

#: Of each survey the two attributes, groups of about fifteen, a condition, and an attribute of few values.
ASKED: dict[str, tuple[str, str, list[str], Words, str]] = {
    "fulton": ("income", "age", ["educ"], {"age": {"ge": 25, "lt": 65}}, "married"),
    "adult": ("hours-per-week", "age", ["education-num"], {"age": {"ge": 10, "lt": 50}}, "race"),
    "titanic": ("Fare", "Age", ["Pclass", "Embarked"], {"Age": {"ge": 18}}, "Sex"),
}


def streams(name: str) -> list[Stream]:
    """One ratio, one by many groups, and six."""
    of, per, groups, where, few = ASKED[name]
    plain: Words = {"type": "ratio", "of": of, "per": per}
    many = plain | {"group_by": groups}
    turned: Words = {"type": "ratio", "of": per, "per": of}
    some = [plain, many, plain | {"where": where}, plain | {"group_by": [few]}, turned, turned | {"group_by": groups}]
    return [Stream("one", [plain]), Stream("one by group", [many]), Stream("six", some)]


def sums(table: Survey, name: str, words: Words, *, middle: float = 0.0) -> np.ndarray:
    """The sums of an attribute's numbers, less a number each, of each group."""
    groups, numbers = words.get("group_by", []), table.numbers(name)
    cells = np.zeros(len(numbers), np.int64)
    sizes = [next(a for a in table.attributes if a["name"] == g)["size"] for g in groups]
    for group, size in zip(groups, sizes, strict=True):
        cells = cells * size + table.places(group)
    kept = satisfies(table, words.get("where", {})) & ~np.isnan(numbers)
    return np.bincount(cells[kept], weights=numbers[kept] - middle, minlength=math.prod(sizes))


class Summing(Ours):
    """A session that is asked two sums for each ratio."""

    def divided(self, words: Words) -> np.ndarray:
        """The ratios."""
        of, per = (self.ask({**_rest(words), "type": "sum", "of": words[which]})[0] for which in ("of", "per"))
        return np.asarray(of / np.maximum(per, 1.0))


def _rest(words: Words) -> Words:
    return {name: said for name, said in words.items() if name not in ("type", "of", "per")}


class Alone:
    """Noise on both sums of each ratio by itself, of an equal part of the budget."""

    def __init__(self, table: Survey, epsilon: float, seed: int, ratios: int, *, pure: bool) -> None:
        self._table, self._rng, self._pure = table, np.random.default_rng(seed), pure
        budget = Budget.of(Decimal(str(epsilon)), Decimal(str(DELTA)))
        self._epsilon, self._order = epsilon / ratios, float(budget.order)
        self._renyi = float(budget.share(budget.epsilon)) / ratios

    def divided(self, words: Words) -> np.ndarray:
        """The ratios."""
        of, per = (self._sum(words[which], words) for which in ("of", "per"))
        return np.asarray(of / np.maximum(per, 1.0))

    def _sum(self, name: str, words: Words) -> np.ndarray:
        attribute = next(a for a in self._table.attributes if a["name"] == name)
        low, high = float(attribute["lower"]), float(attribute["upper"])
        middle, most = 0.0, max(abs(low), abs(high))
        if not _rest(words) and "missing" not in attribute:
            middle, most = (low + high) / 2, (high - low) / 2
        exact = sums(self._table, name, words, middle=middle)
        if self._pure:
            noise = self._rng.laplace(0, 2 * most / self._epsilon, len(exact))
        else:
            noise = self._rng.normal(0, most * math.sqrt(self._order / self._renyi), len(exact))
        return exact + noise + middle * len(self._table.columns[0])


def missed(values: np.ndarray, true: np.ndarray, there: np.ndarray) -> list[float]:
    """Squares of errors as parts of the truth, at most one."""
    found: list[float] = np.square(np.clip(values[there] / true[there] - 1, -1.0, 1.0)).tolist()
    return found


def row(name: str, stream: Stream, epsilon: float, seeds: int) -> list[Any]:
    """One stream of a survey at one epsilon."""
    table, many = survey(name), len(stream.questions)
    twice = Stream(stream.name, stream.questions * 2)
    squares: dict[tuple[int, str], list[float]] = defaultdict(list)
    held: list[bool] = []
    nothing = told = 0
    for seed in range(seeds):
        ours = Ours(table, stream, epsilon, seed)
        others: dict[str, Summing | Alone] = {
            "sums": Summing(table, twice, epsilon, seed),
            "gaussian": Alone(table, epsilon, seed, many, pure=False),
            "laplace": Alone(table, epsilon, seed, many, pure=True),
        }
        for place, words in enumerate(stream.questions):
            of, per = (sums(table, words[which], words) for which in ("of", "per"))
            values, lows, highs = ours.ask(words)
            there = ~np.isnan(values) & (per > 0) & (of > 0)
            told, nothing = told + len(values), nothing + int(np.isnan(values).sum())
            true = of / np.maximum(per, 1.0)
            squares[place, "ours"] += missed(values, true, there)
            held += ((lows <= true) & (true <= highs))[there].tolist()
            for who, other in others.items():
                squares[place, who] += missed(other.divided(words), true, there)
    places = [place for place in range(many) if squares[place, "ours"]]

    def error(place: int, who: str) -> float:
        return math.sqrt(np.mean(squares[place, who]))

    beside = [
        math.exp(float(np.mean([math.log(error(place, "ours") / error(place, who)) for place in places])))
        for who in ("sums", "gaussian", "laplace")
    ]
    own = math.sqrt(np.mean([square for place in places for square in squares[place, "ours"]]))
    return [name, epsilon, stream.name, *beside, own, float(np.mean(held)), nothing / told]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surveys", nargs="*", default=list(ASKED))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    columns = ["survey", "epsilon", "ratios", "two sums", "gaussian", "laplace", "error", "intervals that hold", "null"]
    found = [
        row(name, stream, epsilon, given.seeds * (MORE if stream.name == "one" else 1))
        for name in given.surveys
        for stream in streams(name)
        for epsilon in EPSILONS
    ]
    report("ratios", "Ratios of two sums of a survey's numbers", columns, found, seeds=given.seeds)


if __name__ == "__main__":
    main()
