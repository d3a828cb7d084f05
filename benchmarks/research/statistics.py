"""Means, sums, variances and quantiles of a survey's numbers: how far answers are off, beside what else could be done.

Run `python -m benchmarks.research.statistics` (some ten minutes). Sessions of the service's own mechanism, in this
process and with noise from NumPy, against a user who spends the same (epsilon, delta) on each question by itself:
Gaussian or Laplace noise on the number of records and on the sum, half of the price each; for each quantile the
exponential mechanism, priced in Renyi terms or as pure. Errors are root mean squares over all numbers of a kind of
question, as ratios to the better of these in the same run; beside them how often nominal 95% intervals hold the truth.
The records are those of ``../shared/data``.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from app.curator.dataset import PublicDataset
from app.curator.mechanisms.protocol import Answer, Buy, Measured
from app.curator.opening import Opening, Pins
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.declarations.spec import parse_spec
from app.measurements.noise import Noise
from app.measurements.record import Measurement
from app.privacy.ledger import Budget
from app.spaces.queries.registry import parse_query
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.records import RecordsTensor
from benchmarks.harness import report
from benchmarks.research.regret_data import DATA

DELTA = 1e-9
EPSILONS, SEEDS = (0.1, 1.0), 20


@dataclass(frozen=True, eq=False)
class Survey:
    """A table with numbers: its declaration, a column of places an attribute, and the questions asked of it."""

    attributes: list[dict[str, Any]]
    columns: list[np.ndarray]
    questions: list[dict[str, Any]]

    def places(self, name: str) -> np.ndarray:
        """The places of the values of an attribute, one a record."""
        return self.columns[[a["name"] for a in self.attributes].index(name)]

    def numbers(self, name: str) -> np.ndarray:
        """The numbers of an attribute on a grid, one a record."""
        attribute = next(a for a in self.attributes if a["name"] == name)
        return attribute["lower"] + attribute["grid"] * self.places(name).astype(np.float64)


def _asked(numbers: list[str], groups: list[list[str]]) -> list[dict[str, Any]]:
    """A statistician's afternoon: of every number all statistics, over all records and over groups."""
    found: list[dict[str, Any]] = []
    for name in numbers:
        found += [{"type": kind, "of": name} for kind in ("mean", "sum", "variance")]
        found.append({"type": "quantile", "of": name, "q": [0.25, 0.5, 0.75]})
        for group in groups:
            found += [{"type": kind, "of": name, "group_by": group} for kind in ("mean", "sum")]
            if len(group) == 1:
                found.append({"type": "quantile", "of": name, "q": 0.5, "group_by": group})
    return found


def _rows(folder: str) -> list[dict[str, str]]:
    assert DATA is not None
    with next((DATA / folder).glob("*.csv")).open() as file:
        return list(csv.DictReader(file))


@cache
def survey(name: str) -> Survey:
    """Fulton (25,766 persons: ages and incomes), Adult (48,842: ages and hours), and Titanic (1,304: ages and fares),
    which no constant was chosen on.
    """
    if name == "titanic":
        rows = _rows("titanic")
        attributes = [
            {"name": "Age", "lower": 0, "upper": 90, "grid": 1, "bins": 15},
            {"name": "Fare", "lower": 0, "upper": 31, "grid": 1, "bins": 8},
            {"name": "Sex", "size": 2},
            {"name": "Pclass", "size": 3},
            {"name": "Embarked", "size": 3},
        ]
        columns = [np.array([int(r[a["name"]]) for r in rows]) for a in attributes]
        return Survey(
            attributes, columns, _asked(["Age", "Fare"], [["Sex"], ["Pclass"], ["Embarked"], ["Sex", "Pclass"]])
        )
    if name == "fulton":
        rows = _rows("fulton-pums")
        income = (np.clip([float(r["income"]) for r in rows], 0, 500_000) // 100).astype(np.int64)
        attributes = [
            {"name": "age", "lower": 0, "upper": 100, "grid": 1, "bins": 20},
            {"name": "income", "lower": 0, "upper": 500_000, "grid": 100, "bins": 20},
            {"name": "sex", "size": 2},
            {"name": "married", "size": 2},
            {"name": "educ", "size": 20},
        ]
        columns = [np.clip([int(r["age"]) for r in rows], 0, 100), income]
        columns += [np.array([int(r[a["name"]]) for r in rows]) for a in attributes[2:]]
        groups = [["sex"], ["married"], ["educ"], ["sex", "married"]]
        return Survey(attributes, columns, _asked(["age", "income"], groups))
    rows = _rows("adult-pgm")
    attributes = [
        {"name": "age", "lower": 0, "upper": 84, "grid": 1, "bins": 17},
        {"name": "hours-per-week", "lower": 0, "upper": 98, "grid": 1, "bins": 11},
        {"name": "sex", "size": 2},
        {"name": "race", "size": 5},
        {"name": "education-num", "size": 16},
        {"name": "workclass", "size": 9},
    ]
    columns = [np.array([int(r[a["name"]]) for r in rows]) for a in attributes]
    groups = [["sex"], ["race"], ["education-num"], ["sex", "race"]]
    return Survey(attributes, columns, _asked(["age", "hours-per-week"], groups))


@dataclass(frozen=True, eq=False)
class Truth:
    """The records that each number of an answer is about, and what is true of them."""

    values: np.ndarray
    members: list[np.ndarray]


def truth(table: Survey, words: dict[str, Any]) -> Truth:
    """Exact answers in the order of the service's."""
    numbers, groups = table.numbers(words["of"]), words.get("group_by", [])
    sizes = [next(a for a in table.attributes if a["name"] == g)["size"] for g in groups]
    cells = np.zeros(len(numbers), np.int64)
    for group, size in zip(groups, sizes, strict=True):
        cells = cells * size + table.places(group)
    members = [numbers[cells == cell] for cell in range(math.prod(sizes))]
    levels = words.get("q", [None])
    levels = levels if isinstance(levels, list) else [levels]
    return Truth(np.array([_of(words["type"], own, q) for own in members for q in levels]), members)


def _of(kind: str, own: np.ndarray, q: float | None) -> float:
    if kind == "sum":
        return float(own.sum())
    if not len(own):
        return math.nan
    if kind == "quantile":
        assert q is not None
        return float(np.sort(own)[max(0, math.ceil(q * len(own)) - 1)])
    return float(own.mean() if kind == "mean" else own.var())


class Ours:
    """A session of the service's mechanism."""

    def __init__(self, table: Survey, epsilon: float, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        declared = {"kind": "table", "attributes": table.attributes, "records_public": True, "name": "survey"}
        spec = parse_spec(declared | {"budget": {"epsilon": epsilon, "delta": DELTA}})
        dataset = PublicDataset(spec, records=float(len(table.columns[0])))
        asked = {"dataset": "survey", "mechanism": {"construction": "evidence"}, "epsilon": epsilon}
        request = parse_request(asked | {"max_queries": len(table.questions)})
        self.session = Session(Opening(dataset, request, make_plan(dataset, request), None, Pins((), ())))
        self._data = RecordsTensor(table.columns, dataset.space.shape)
        for buy in self.session.purchases():
            units = self._noisy(buy.strategy.exact(dataset.space, self._data), buy.noise)
            self.session.pin(Measured(Measurement(buy.strategy, buy.noise, units), buy.price))

    def _noisy(self, exact: np.ndarray, noise: Noise) -> np.ndarray:
        draw = self._rng.laplace if noise.kind == "laplace" else self._rng.normal
        return exact + np.rint(draw(0, float(noise.scale), len(exact))).astype(np.int64)

    def ask(self, words: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values, and the ends of their intervals."""
        query = parse_query(words).compiled(self.session.dataset.space)
        assert isinstance(query, CompiledStatistic)
        due = self.session.consider(query)
        if isinstance(due, Buy):
            exact = due.purchase.strategy.exact(self.session.dataset.space, self._data)
            due = self.session.apply(query, due, self._noisy(exact, due.purchase.added))
        assert isinstance(due, Answer)
        found = self.session.accuracy(query, due)
        assert found is not None
        self.session.record(query, due)
        values = np.array([math.nan if v is None else v for v in self.session.values(query, due.units)])
        return query.ordered(values), query.ordered(found.lows), query.ordered(found.highs)


class Alone:
    """Each question by itself, with an equal part of the budget."""

    def __init__(self, table: Survey, epsilon: float, seed: int, *, pure: bool) -> None:
        self._rng = np.random.default_rng(seed)
        self._table, self._pure = table, pure
        spec = parse_spec({"name": "b", "kind": "multiset", "budget": {"epsilon": epsilon, "delta": DELTA}})
        budget = Budget.of(spec.budget.epsilon, spec.budget.delta)
        self._each, self._order = epsilon / len(table.questions), float(budget.order)
        self._renyi = float(budget.share(spec.budget.epsilon)) / len(table.questions)

    def _noise(self, sensitivity: float, part: float, size: int) -> np.ndarray:
        """Noise of a vector that moves by so much, for part of a question's price."""
        if self._pure:
            return self._rng.laplace(0, sensitivity / (part * self._each), size)
        return self._rng.normal(0, sensitivity * math.sqrt(self._order / (2 * part * self._renyi)), size)

    def ask(self, words: dict[str, Any]) -> np.ndarray:
        """The answers."""
        attribute = next(a for a in self._table.attributes if a["name"] == words["of"])
        low, high = float(attribute["lower"]), float(attribute["upper"])
        middle, half = (low + high) / 2, (high - low) / 2
        members = truth(self._table, words).members
        if words["type"] == "quantile":
            levels = words["q"] if isinstance(words["q"], list) else [words["q"]]
            return np.array([self._quantile(own, q, attribute, len(levels)) for own in members for q in levels])
        kinds, public = {"sum": 2, "mean": 2, "variance": 3}[words["type"]], len(members) == 1
        part = 1 / (kinds - public)
        sizes = np.array([float(len(own)) for own in members])
        count = sizes if public else sizes + self._noise(1.0, part, len(members))
        first = np.array([(own - middle).sum() for own in members]) + self._noise(half, part, len(members))
        if words["type"] == "sum":
            return middle * count + first
        whole = np.maximum(count, 1.0)
        if words["type"] == "mean":
            return np.clip(middle + first / whole, low, high)
        square = np.array([(np.square(own - middle) - half**2 / 2).sum() for own in members])
        square = square + self._noise(half**2 / 2, part, len(members))
        return np.clip(square / whole + half**2 / 2 - np.square(first / whole), 0.0, half**2)

    def _quantile(self, own: np.ndarray, q: float, attribute: dict[str, Any], levels: int) -> float:
        """The exponential mechanism over the grid, with the number of records on the wrong side as its score."""
        grid = np.arange(attribute["lower"], attribute["upper"] + 1, attribute["grid"], dtype=np.float64)
        below = np.searchsorted(np.sort(own), grid, side="right")
        before = np.searchsorted(np.sort(own), grid, side="left")
        goal = q * len(own)
        score = -np.maximum(np.maximum(before - goal, goal - below), 0.0)
        # Bounded range: the score moves by max(q, 1 - q) at most, one way or the other.
        each = self._each / levels if self._pure else math.sqrt(8 * self._renyi / levels / self._order)
        chances = np.exp((score - score.max()) * each / (2 * max(q, 1 - q)))
        return float(self._rng.choice(grid, p=chances / chances.sum()))


def rows(names: list[str]) -> list[dict[str, Any]]:
    """One row for each survey, epsilon and kind of question."""
    found = []
    for name in names:
        table = survey(name)
        exact = [truth(table, words).values for words in table.questions]
        for epsilon in EPSILONS:
            squares: dict[tuple[str, str], list[float]] = defaultdict(list)
            held: dict[str, list[bool]] = defaultdict(list)
            for seed in range(SEEDS):
                ours = Ours(table, epsilon, seed)
                others = {
                    "noise": Alone(table, epsilon, seed, pure=False),
                    "pure": Alone(table, epsilon, seed, pure=True),
                }
                for words, true in zip(table.questions, exact, strict=True):
                    kind = f"{words['type']} by {'+'.join(words['group_by'])}" if "group_by" in words else words["type"]
                    kind = f"{words['of']}: {kind}"
                    values, lows, highs = ours.ask(words)
                    told = ~np.isnan(values) & ~np.isnan(true)
                    squares[kind, "ours"] += np.square(values - true)[told].tolist()
                    held[kind] += ((lows <= true) & (true <= highs))[told].tolist()
                    for other, session in others.items():
                        squares[kind, other] += np.square(session.ask(words) - true)[told].tolist()
            for kind in held:
                errors = {who: math.sqrt(np.mean(squares[kind, who])) for who in ("ours", "noise", "pure")}
                best = min(errors["noise"], errors["pure"])
                found.append(
                    {
                        "survey": name,
                        "epsilon": epsilon,
                        "question": kind,
                        "kind": kind.split(": ")[1].split()[0],
                        "rmse": errors["ours"],
                        "best alone": best,
                        "ratio": errors["ours"] / best if best else None,
                        "held": float(np.mean(held[kind])),
                    }
                )
    return found


def main() -> None:
    """Buy and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surveys", nargs="*", default=["fulton", "adult", "titanic"])
    parser.add_argument("--only", default="", help="kinds of questions that begin so, such as quantile")
    asked = parser.parse_args()
    found = [row for row in rows(asked.surveys) if asked.only in row["question"]]
    summary = []
    for name in asked.surveys:
        for epsilon in EPSILONS:
            for kind in ("mean", "sum", "variance", "quantile"):
                own = [row for row in found if (row["survey"], row["epsilon"], row["kind"]) == (name, epsilon, kind)]
                ratios = [row["ratio"] for row in own if row["ratio"]]
                if ratios:
                    held = float(np.mean([row["held"] for row in own]))
                    summary.append([name, epsilon, kind, math.exp(float(np.mean(np.log(ratios)))), max(ratios), held])
    report(
        "statistics_summary",
        "Statistics of numbers, by kind",
        ["survey", "epsilon", "statistic", "mean ratio", "largest ratio", "intervals that hold"],
        summary,
        seeds=SEEDS,
    )
    columns = ["survey", "epsilon", "question", "rmse", "best alone", "ratio", "held"]
    report("statistics", "Statistics of numbers", columns, [[row[c] for c in columns] for row in found], seeds=SEEDS)


if __name__ == "__main__":
    main()
