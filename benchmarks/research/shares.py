"""Shares of a survey's records: how far answers are off, beside two counts that are asked and divided.

Run `python -m benchmarks.research.shares` (a minute or two). A session is asked shares; beside it another of the same
budget is asked for two numbers of records for each, of those that satisfy the conditions and of all that they are asked
of, and a user who spends the same (epsilon, delta) on each share by itself adds noise to both, Gaussian or Laplace, for
half of the price each. What is not known is divided by one at least, and cut to [0, 1]. Errors are root mean squares
over all shares of a question that the session gave, as ratios in the same run: their geometric means over the questions
of a survey, and the largest of those to two counts of a session. Beside them how often nominal 95% intervals hold the
truth, and how many shares are null. What the session measured is published, too: the errors of
published shares, which agree with published counts to the last digit, beside those of what a session tells of each that
buys nothing, and how often their intervals hold. Surveys are those of :mod:`benchmarks.research.statistics`.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from decimal import Decimal
from typing import Any

import numpy as np

from app.curator.planners.table import residuals_of
from app.curator.workloads import compiled
from app.estimation.intervals import Estimates
from app.measurements.record import those
from app.measurements.strategies.tables import TableStrategy
from app.policies.statistics import Statistics
from app.policies.table import Funds, Policy
from app.privacy.ledger import Budget
from app.releases.publication import published
from app.releases.statistics import told as told_of
from app.releases.workloads import TableWorkload
from app.spaces.workload_request import WorkloadRequest
from benchmarks.harness import report
from benchmarks.research.statistics import DELTA, Ours, Stream, Survey, survey

EPSILONS, SEEDS = (0.1, 1.0), 10

Words = dict[str, Any]

QUESTIONS: dict[str, list[Words]] = {
    "fulton": [
        {"of": {"married": 1}},
        {"of": {"income": {"ge": 50_000}}, "where": {"sex": 0}},
        {"of": {"income": {"ge": 20_000}, "age": {"lt": 65}, "married": 1}},
        {"of": {"any": [{"age": {"ge": 65}}, {"income": {"lt": 5_000}}]}, "where": {"married": 0}},
        {"of": {"not": {"sex": 1, "married": 1}}, "where": {"age": {"ge": 25, "lt": 45}}},
        {"of": {"married": 1}, "group_by": ["sex"]},
        {"of": {"income": {"ge": 50_000}}, "group_by": ["educ"]},
        {"of": {"income": {"ge": 50_000}, "sex": 1}, "group_by": ["educ"]},
        {"of": {"sex": 1}, "where": {"income": {"ge": 50_000}}, "group_by": ["married"]},
    ],
    "adult": [
        {"of": {"sex": 1}},
        {"of": {"hours-per-week": {"ge": 41}}, "where": {"sex": 0}},
        {"of": {"hours-per-week": {"ge": 41}, "age": {"lt": 48}, "sex": 1}},
        {"of": {"any": [{"education-num": {"between": [12, 15]}}, {"workclass": 0}]}, "where": {"age": {"lt": 30}}},
        {"of": {"not": {"sex": 1, "race": 0}}},
        {"of": {"sex": 1}, "group_by": ["race"]},
        {"of": {"hours-per-week": {"ge": 41}}, "group_by": ["education-num"]},
        {"of": {"hours-per-week": {"ge": 41}, "sex": 1}, "group_by": ["workclass"]},
    ],
    "titanic": [
        {"of": {"Sex": 1}},
        {"of": {"Age": {"lt": 18}}, "where": {"Sex": 0}},
        {"of": {"Age": {"ge": 18}, "Pclass": 2, "Sex": 0}},
        {"of": {"any": [{"Pclass": 0}, {"Fare": {"ge": 10}}]}, "where": {"Age": {"ge": 30}}},
        {"of": {"Sex": 1}, "group_by": ["Pclass"]},
        {"of": {"Age": {"lt": 30}}, "group_by": ["Embarked"]},
        {"of": {"Sex": 1, "Age": {"ge": 18}}, "group_by": ["Pclass"]},
    ],
}


def satisfies(table: Survey, where: Words) -> np.ndarray:
    """Which records satisfy conditions, one attribute after the other."""
    found = np.ones(len(table.columns[0]), dtype=bool)
    for name, said in where.items():
        if name == "any":
            found &= np.any([satisfies(table, one) for one in said], axis=0)
        elif name == "not":
            found &= ~satisfies(table, said)
        elif not isinstance(said, dict):
            found &= table.places(name) == said
        elif "between" in said:
            low, high = said["between"]
            found &= (table.places(name) >= low) & (table.places(name) <= high)
        else:
            numbers = table.numbers(name)
            found &= (numbers >= said.get("ge", -math.inf)) & (numbers < said.get("lt", math.inf))
    return found


def counted(table: Survey, words: Words) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of records of each group, and of those that satisfy the conditions."""
    groups, cells = words.get("group_by", []), np.zeros(len(table.columns[0]), np.int64)
    sizes = [next(a for a in table.attributes if a["name"] == g)["size"] for g in groups]
    for group, size in zip(groups, sizes, strict=True):
        cells = cells * size + table.places(group)
    whole = satisfies(table, words.get("where", {}))
    part = whole & satisfies(table, words["of"])
    return np.bincount(cells[whole], minlength=math.prod(sizes)), np.bincount(cells[part], minlength=math.prod(sizes))


def divided(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Noisy counts as shares."""
    found: np.ndarray = np.clip(part / np.maximum(whole, 1.0), 0.0, 1.0)
    return found


class Counting(Ours):
    """A session that is asked two counts for each share."""

    def __init__(self, table: Survey, epsilon: float, seed: int, shares: int) -> None:
        super().__init__(table, Stream("counts", [{}] * (2 * shares)), epsilon, seed)

    def divided(self, words: Words) -> np.ndarray:
        """The shares."""
        where, both = words.get("where", {}), {"all": [words.get("where", {}), words["of"]]}
        part, whole = (self._count(one, words.get("group_by")) for one in (both, where))
        return divided(part, whole)

    def _count(self, where: Words, groups: list[str] | None) -> np.ndarray:
        asked: Words = {"type": "predicate", "where": where}
        if groups:
            asked = {"type": "marginal", "attributes": groups, "where": where}
        query, values, _ = self.answered(asked)
        return query.ordered(values)


class Alone:
    """Noise on both counts of each share by itself, of an equal part of the budget; none where all are public."""

    def __init__(self, table: Survey, epsilon: float, seed: int, shares: int, *, pure: bool) -> None:
        self._table, self._rng, self._pure = table, np.random.default_rng(seed), pure
        budget = Budget.of(Decimal(str(epsilon)), Decimal(str(DELTA)))
        self._epsilon, self._order = epsilon / shares, float(budget.order)
        self._renyi = float(budget.share(budget.epsilon)) / shares

    def divided(self, words: Words) -> np.ndarray:
        """The shares."""
        whole, part = counted(self._table, words)
        public = not words.get("where") and not words.get("group_by")
        price = 1.0 if public else 0.5
        return divided(part + self._noise(price, len(part)), whole if public else whole + self._noise(price, len(part)))

    def _noise(self, price: float, size: int) -> np.ndarray:
        if self._pure:
            return self._rng.laplace(0, 1 / (price * self._epsilon), size)
        return self._rng.normal(0, math.sqrt(self._order / (2 * price * self._renyi)), size)


def printed(ours: Ours, questions: list[Words], seed: int) -> tuple[list[Estimates], list[np.ndarray]]:
    """The shares as they are published once all are asked, and as a session tells them then that buys nothing."""
    dataset = ours.session.dataset
    workload = compiled(dataset.space, WorkloadRequest(queries=questions), published=True)
    assert isinstance(workload, TableWorkload)
    counts = residuals_of(dataset.space, dataset.records)
    counts = counts.knowing(those([each.measurement for each in ours.made], TableStrategy))
    made = published(workload.counted, counts, seed, lambda part: None)
    found = told_of(workload, counts, {}, made.answers)
    free = Statistics(Policy(counts, Funds(2.0, 0.0, 0.0, pure=False, questions=None)), {})
    alone = [query.ordered(free.shown(query, 0.95, adaptive=False).values) for query in workload.statistics.values()]
    return [found[place].estimates for place in range(len(questions))], alone


def row(name: str, epsilon: float, seeds: int) -> list[Any]:
    """One survey at one epsilon."""
    table = survey(name)
    questions = [{"type": "share", **words} for words in QUESTIONS[name]]
    squares: dict[tuple[int, str], list[float]] = defaultdict(list)
    held: list[bool] = []
    held_printed: list[bool] = []
    nothing = told = 0
    for seed in range(seeds):
        ours = Ours(table, Stream("shares", questions), epsilon, seed)
        others: dict[str, Counting | Alone] = {
            "counts": Counting(table, epsilon, seed, len(questions)),
            "gaussian": Alone(table, epsilon, seed, len(questions), pure=False),
            "laplace": Alone(table, epsilon, seed, len(questions), pure=True),
        }
        answered = [ours.ask(words) for words in questions]
        prints, free = printed(ours, questions, seed)
        for place, words in enumerate(questions):
            whole, part = counted(table, words)
            values, lows, highs = answered[place]
            there = ~np.isnan(values) & (whole > 0)
            told, nothing = told + len(values), nothing + int(np.isnan(values).sum())
            true = part / np.maximum(whole, 1)
            squares[place, "ours"] += np.square(values - true)[there].tolist()
            held += ((lows <= true) & (true <= highs))[there].tolist()
            put = prints[place]
            both = there & ~np.isnan(put.values + free[place])
            squares[place, "published"] += np.square(put.values - true)[both].tolist()
            squares[place, "beside it"] += np.square(free[place] - true)[both].tolist()
            held_printed += ((put.lows <= true) & (true <= put.highs))[both].tolist()
            for who, other in others.items():
                squares[place, who] += np.square(other.divided(words) - true)[there].tolist()
    ratios = {
        who: [
            math.sqrt(np.mean(squares[place, "ours"]) / np.mean(squares[place, who]))
            for place in range(len(questions))
            if squares[place, "ours"]
        ]
        for who in ("counts", "gaussian", "laplace")
    }
    means = [math.exp(float(np.mean(np.log(own)))) for own in ratios.values()]
    ours_printed = [
        math.sqrt(np.mean(squares[place, "published"]) / np.mean(squares[place, "beside it"]))
        for place in range(len(questions))
        if squares[place, "beside it"]
    ]
    mean = math.exp(float(np.mean(np.log(ours_printed))))
    beside = [mean, max(ours_printed), float(np.mean(held_printed))]
    return [name, epsilon, *means, max(ratios["counts"]), float(np.mean(held)), nothing / told, *beside]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surveys", nargs="*", default=list(QUESTIONS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    columns = ["survey", "epsilon", "two counts", "gaussian", "laplace", "largest", "intervals that hold", "null"]
    columns += ["published", "largest published", "published that hold"]
    found = [row(name, epsilon, given.seeds) for name in given.surveys for epsilon in EPSILONS]
    report("shares", "Shares of a survey's records", columns, found, seeds=given.seeds)


if __name__ == "__main__":
    main()
