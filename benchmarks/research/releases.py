"""Releases of all three-way marginals of a table: how far they are off, beside what else could be done.

Run `python -m benchmarks.research.releases` (half an hour; `--quick`: one table, one epsilon, one seed and no file).
All methods have the same (epsilon, delta = 1/n^2), n being public; all but the histogram, which is pure, and the
library pay in Renyi terms at the order of the ledger. Noise is NumPy's. Errors are over all cells of all marginals of
three attributes, as parts of n.

| method | what it is |
|---|---|
| histogram | discrete Laplace noise on every cell, summed |
| gaussian | Gaussian noise on each marginal |
| projection | the nearest table to that |
| factorization | residuals measured with the best precisions for the workload, unbiased |
| iterative construction | the service's: multiplicative weights, rounds that choose the worst of the marginals |
| fit | residuals as above, those of three attributes half as precise beside the others, then the fit |
| synthetic table | as many records as there are, from that fit |
| AIM, MST | of smartnoise-synth (McKenna et al. 2022 and 2021): a million records of their models, in proportion |

The library's take minutes a run. `--library PYTHON`, the interpreter that has it, plays them alone and puts them beside
what there is; its environment is made as ``benchmarks/research/releases_library.py`` says.

The attributes of the first two tables served to choose what the fit does; those of the other two were looked at
afterwards. The records are those of ``../shared/data``; what is not there is left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path

import numpy as np

from app.privacy.ledger import Budget
from app.releases.fitting import KnownResidual, combined, fit, projection, residuals_of
from app.releases.synthetic_table import rounded
from app.spaces.tensor import FloatArray, IntArray
from benchmarks.harness import RESULTS, report
from benchmarks.research import releases_plot
from benchmarks.research.iterative import simulate
from benchmarks.research.regret_data import DATA, World, read_columns

EPSILONS, SEEDS = (0.1, 0.5, 1.0), 5
#: A library's method is given up after so many seconds.
PATIENCE = 3000
LIBRARY = Path(__file__).with_name("releases_library.py")


@dataclass(frozen=True, eq=False)
class Survey:
    """A table by its counts."""

    name: str
    counts: FloatArray

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.counts.shape

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    @property
    def triples(self) -> list[tuple[int, ...]]:
        return list(itertools.combinations(range(len(self.sizes)), 3))

    @cached_property
    def exact(self) -> dict[tuple[int, ...], FloatArray]:
        return {t: self.marginal(self.counts, t) for t in self.triples}

    @property
    def records(self) -> np.ndarray:
        """A row of codes for each record."""
        cells = np.repeat(np.arange(self.counts.size), self.counts.reshape(-1).astype(np.int64))
        return np.stack(np.unravel_index(cells, self.sizes), axis=1)

    def marginal(self, counts: FloatArray | IntArray, kept: tuple[int, ...]) -> FloatArray:
        return np.asarray(counts.sum(axis=tuple(a for a in range(counts.ndim) if a not in kept)), np.float64)

    def answers(self, counts: FloatArray | IntArray) -> dict[tuple[int, ...], FloatArray]:
        return {t: self.marginal(counts, t) for t in self.triples}


def _survey(name: str, values: np.ndarray, sizes: tuple[int, ...]) -> Survey:
    places = np.ravel_multi_index(tuple(values.astype(np.int64).T), sizes)
    return Survey(name, np.bincount(places, minlength=math.prod(sizes)).reshape(sizes).astype(np.float64))


def surveys() -> Iterator[Survey]:
    """The tables, those that served to choose first."""
    assert DATA is not None
    adult = DATA / "adult-pgm" / "adult.csv"
    names = ["sex", "income>50K", "race", "marital-status", "occupation", "education-num", "age"]
    _, values = read_columns(adult, names)
    values[:, 6] = values[:, 6] * 10 // 85
    yield _survey("adult", values, (2, 2, 5, 7, 15, 16, 10))
    names = ["sex", "age", "educ", "income", "black", "married", "employed"]
    _, values = read_columns(DATA / "fulton-pums" / "FultonPUMS5full.csv", names)
    values[:, 1] //= 10
    values[:, 3] = np.clip(values[:, 3] // 20_000, -1, 10)
    columns = [np.unique(column, return_inverse=True)[1] for column in values.T]
    yield _survey("fulton", np.stack(columns, axis=1), tuple(int(c.max()) + 1 for c in columns))
    names = ["Survived", "Pclass", "Sex", "Age", "SibSp", "Parch", "Embarked"]
    _, values = read_columns(DATA / "titanic" / "titanic.csv", names)
    values[:, 3] = np.minimum(values[:, 3] // 15, 5)
    values[:, 4:6] = np.minimum(values[:, 4:6], 3)
    yield _survey("titanic", values, (3, 3, 2, 6, 4, 4, 3))
    names = ["workclass", "relationship", "hours-per-week", "native-country", "income>50K", "capital-gain"]
    _, values = read_columns(adult, names)
    values[:, 2], values[:, 3], values[:, 5] = values[:, 2] // 10, values[:, 3] * 6 // 42, values[:, 5] // 10
    yield _survey("others", values, (9, 6, 10, 6, 2, 10))


@dataclass(frozen=True)
class Means:
    """A budget: epsilon and delta, the ledger's order a, and the Renyi divergence R at it."""

    epsilon: float
    delta: float
    order: float
    renyi: float

    @classmethod
    def of(cls, epsilon: float, total: float) -> Means:
        delta = 1 / total**2
        budget = Budget.of(Decimal(str(epsilon)), Decimal(str(delta)))
        return cls(epsilon, delta, float(budget.order), float(budget.total))

    def deviation(self, releases: int) -> float:
        """Of the Gaussian noise of each of so many releases of sensitivity one: a/(2 sigma^2) each."""
        return math.sqrt(releases * self.order / (2 * self.renyi))


def precisions(survey: Survey, means: Means, third: float) -> dict[tuple[int, ...], float]:
    """w_C for the residuals of all sets of one to three attributes.

    The noise of a residual on C is that of all cells made to sum to zero along each axis: measuring it costs
    ``a/2 * w_C * prod of (1 - 1/n_i)``. The workload's marginals on A that hold C see its variance 1/w_C as
    ``prod of (n_i - 1) in C * prod of 1/n_i in A - C``, summed over their cells. The least sum of these for a price has
    w_C proportional to the root of one over the other (Xiao, He, Zhang, Kifer, "An optimal and scalable matrix
    mechanism for noisy marginals under convex loss functions", NeurIPS 2023).

    Args:
        third: what the precisions of three attributes are multiplied by, before all are scaled to the budget.
    """
    weights, prices = {}, {}
    for size in (1, 2, 3):
        for chosen in itertools.combinations(range(len(survey.sizes)), size):
            seen = sum(
                math.prod(survey.sizes[a] - 1 if a in chosen else 1 / survey.sizes[a] for a in t)
                for t in survey.triples
                if set(chosen) <= set(t)
            )
            prices[chosen] = math.prod(1 - 1 / survey.sizes[a] for a in chosen)
            weights[chosen] = math.sqrt(seen / prices[chosen]) * (third if size == 3 else 1.0)
    scale = 2 * means.renyi / means.order / sum(w * prices[c] for c, w in weights.items())
    return {c: scale * w for c, w in weights.items()}


def measured_residuals(survey: Survey, means: Means, third: float, rng: np.random.Generator) -> list[KnownResidual]:
    found = []
    for chosen, precision in precisions(survey, means, third).items():
        exact = survey.marginal(survey.counts, chosen)
        values = exact + rng.normal(0, precision**-0.5, exact.shape)
        for axis in range(values.ndim):
            values = values - values.mean(axis=axis, keepdims=True)
        found.append(KnownResidual(chosen, values, precision))
    return found


def unbiased(survey: Survey, known: list[KnownResidual]) -> dict[tuple[int, ...], FloatArray]:
    """The sums of residuals that the marginals are."""
    found = {}
    for triple in survey.triples:
        shape = [survey.sizes[a] for a in triple]
        values = np.full(shape, survey.total / math.prod(shape))
        for residual in known:
            if set(residual.attributes) <= set(triple):
                part = [survey.sizes[a] if a in residual.attributes else 1 for a in triple]
                values += residual.values.reshape(part) * (math.prod(part) / math.prod(shape))
        found[triple] = values
    return found


Answers = dict[tuple[int, ...], FloatArray]


def iterated(survey: Survey, means: Means, seed: int) -> Answers:
    """What the service's own method makes of the table."""
    world = World(survey.name, survey.sizes, survey.records)
    answers = simulate(world, {"marginals": 3}, means.epsilon, means.delta, seed)
    return {triple: np.asarray(each.estimates.values) for triple, each in zip(survey.triples, answers, strict=True)}


def methods(survey: Survey, means: Means, seed: int) -> Iterator[tuple[str, Answers, float]]:
    """Each method's name, answers and seconds."""

    def timed(name: str, made: Callable[[], Answers], before: float = 0.0) -> tuple[str, Answers, float]:
        started = time.perf_counter()
        return name, made(), time.perf_counter() - started + before

    rng = np.random.default_rng(seed)
    ratio = -math.expm1(-means.epsilon)
    drawn = rng.geometric(ratio, survey.sizes) - rng.geometric(ratio, survey.sizes)
    yield timed("histogram", lambda: survey.answers(survey.counts + drawn))
    deviation = means.deviation(len(survey.triples))
    plain = {t: exact + rng.normal(0, deviation, exact.shape) for t, exact in survey.exact.items()}
    yield timed("gaussian", lambda: plain)
    known = combined(r for t, values in plain.items() for r in residuals_of(t, values, deviation**2))
    yield timed(
        "projection",
        lambda: survey.answers(projection(survey.sizes, known, survey.total, evaluations=300).counts),
    )
    residuals = measured_residuals(survey, means, 1.0, rng)
    yield timed("factorization", lambda: unbiased(survey, residuals))
    yield timed("iterative construction", lambda: iterated(survey, means, seed))
    residuals = measured_residuals(survey, means, 0.5, rng)
    started = time.perf_counter()
    fitted = fit(survey.sizes, residuals, survey.total)
    took = time.perf_counter() - started
    yield "fit", survey.answers(fitted.counts), took
    records = round(survey.total)
    yield timed("synthetic table", lambda: survey.answers(rounded(fitted.counts, records, rng)), took)


def library(survey: Survey, means: Means, python: str, name: str) -> tuple[Answers, float] | None:
    """What a library's method makes of the table; None where it takes too long or fails, which is said."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source, records=survey.records, sizes=np.array(survey.sizes))
        command = [python, str(LIBRARY), name, str(means.epsilon), str(means.delta), str(source), str(target)]
        try:
            subprocess.run(command, check=True, timeout=PATIENCE, capture_output=True)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            print(f"{survey.name}, epsilon {means.epsilon}: {name} of the library gave nothing: {error}")
            return None
        with np.load(target) as found:
            made = _survey(survey.name, found["records"], survey.sizes)
            return survey.answers(made.counts * (survey.total / made.total)), float(found["seconds"])


@dataclass
class Score:
    """Errors of one method, over its runs: mean squares, 95th percentiles, largest, and seconds."""

    runs: list[tuple[float, float, float, float]] = field(default_factory=list)

    def take(self, survey: Survey, answers: Answers, seconds: float) -> None:
        errors = np.concatenate([np.abs(answers[t] - e).reshape(-1) for t, e in survey.exact.items()]) / survey.total
        square, quantile = float(np.mean(np.square(errors))), float(np.quantile(errors, 0.95))
        self.runs.append((square, quantile, float(errors.max()), seconds))

    def row(self) -> list[float | int]:
        squares, quantiles, largest, seconds = (float(np.mean(column)) for column in zip(*self.runs, strict=True))
        return [math.sqrt(squares), quantiles, largest, seconds, len(self.runs)]


Rows = list[list[str | float | int]]


def told(survey: Survey, rows: Rows, folder: Path | None) -> None:
    """Print what there is of a table, and write it."""
    report(
        f"releases_{survey.name}",
        f"All three-way marginals of {survey.name}, {'x'.join(map(str, survey.sizes))}: errors over n",
        ["epsilon", "method", "root mean square", "95th percentile", "largest", "seconds", "runs"],
        rows,
        folder=folder,
        records=round(survey.total),
        delta="1/n^2, n public",
        accounting="zero-concentrated at the ledger's order; histogram pure; library by its own accounting",
    )


def play(survey: Survey, epsilons: Sequence[float], seeds: int, folder: Path | None) -> None:
    """The project's methods, told after each seed."""
    scores: dict[tuple[float, str], Score] = defaultdict(Score)
    for seed in range(seeds):
        for epsilon in epsilons:
            for name, answers, seconds in methods(survey, Means.of(epsilon, survey.total), seed):
                scores[epsilon, name].take(survey, answers, seconds)
        ordered = sorted(scores.items(), key=lambda score: score[0][0])
        told(survey, [[epsilon, name, *score.row()] for (epsilon, name), score in ordered], folder)


def play_library(survey: Survey, python: str) -> None:
    """The library's methods, once at each epsilon, put after the rows of that epsilon that there are."""
    for name, epsilon in itertools.product(("mst", "aim"), EPSILONS):
        found = library(survey, Means.of(epsilon, survey.total), python, name)
        if found is None:
            continue
        score, label = Score(), f"{name.upper()} of the library"
        score.take(survey, *found)
        rows: Rows = json.loads((RESULTS / f"releases_{survey.name}.json").read_text())["rows"]
        kept = [row for row in rows if row[:2] != [epsilon, label]]
        told(survey, sorted([*kept, [epsilon, label, *score.row()]], key=lambda row: float(row[0])), RESULTS)


def main() -> None:
    """Play, print and write, after each seed what there is so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--tables", nargs="*", help="names of tables; all if left out")
    parser.add_argument("--library", help="a Python that has the library, whose methods alone are played")
    chosen = parser.parse_args()
    if DATA is None:
        raise SystemExit("the data of this benchmark are not there")
    for survey in surveys():
        if survey.name not in (chosen.tables or (["adult"] if chosen.quick else [survey.name])):
            continue
        if chosen.library:
            play_library(survey, chosen.library)
        elif chosen.quick:
            play(survey, (1.0,), 1, None)
        else:
            play(survey, EPSILONS, chosen.seeds, RESULTS)
    if not chosen.quick:
        releases_plot.main()


if __name__ == "__main__":
    main()
