"""How far records are taken to be from what is expected of them, where counts of ranges tell quantiles.

Run `python -m benchmarks.research.spreads` (some five minutes). The streams of :mod:`benchmarks.research.statistics`
that ask for quantiles. What is bought does not depend on that, so each session shows all its values: as counted, and
with each leeway (:mod:`app.estimation.tables.spread`), that of a smooth difference and that of a rough one. Root mean
square errors with what rounding to the grid adds, as ratios to those as counted: geometric mean and largest over the
kinds of questions.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from app.estimation.intervals import Estimates
from app.estimation.tables.spread import ANYHOW, AS_ALL, Expected, Leeway
from app.policies.quantiles import Quantile
from app.spaces.queries.registry import parse_query
from app.spaces.queries.statistic import CompiledStatistic
from benchmarks.harness import report
from benchmarks.research.statistics import EPSILONS, Ours, Stream, Survey, streams, survey, truth

SURVEYS, HELD_BACK = ("fulton", "adult", "incomes", "titanic"), ("students", "births")
SEEDS = 12


#: Of all records, and of parts of them. So rough a bridge leaves what was counted.
AS_COUNTED = Leeway(0.0, 1e12, 0, 0.0)
WAYS: dict[str, tuple[Leeway, Leeway]] = {
    "as counted": (AS_COUNTED, AS_COUNTED),
    "bridge 0.1": (Leeway(0, 0.1, 0, 0.1), Leeway(0, 0.1, 0, 0.1)),
    "bridge 0.5": (Leeway(0, 0.5, 0, 0.1), Leeway(0, 0.5, 0, 0.1)),
    "1 and 0.3": (Leeway(1, 0.3, 0, 0.1), Leeway(1, 0.3, 0, 0.1)),
    "1 and 0.03": (Leeway(1, 0.03, 0, 0.1), Leeway(1, 0.03, 0, 0.1)),
    "1 and 0.006": (Leeway(1, 0.006, 0, 0.1), Leeway(1, 0.006, 0, 0.1)),
    "2 and 0.006": (Leeway(2, 0.006, 0, 0.1), Leeway(2, 0.006, 0, 0.1)),
    "the service's": (ANYHOW, AS_ALL),
}


class Shown:
    """All values of the quantile that was shown last, by the way they are told."""

    def __init__(self) -> None:
        self.values: dict[str, np.ndarray] = {}
        self._shown, self._expected = Quantile._shown, Quantile._expected

    def instead(self, of: Quantile, confidence: float, least: float, given: np.ndarray | None) -> Estimates:
        """What is shown, after it was shown in all ways."""
        for name, leeway in WAYS.items():

            def expected(of: Quantile, base: np.ndarray, leeway: tuple[Leeway, Leeway] = leeway) -> Expected:
                own = self._expected(of, base)
                return replace(own, leeway=leeway[own.leeway is AS_ALL])

            with mock.patch.object(Quantile, "_expected", expected):
                self.values[name] = self._shown(of, confidence, least, None).values
        return self._shown(of, confidence, least, given)


def errors(table: Survey, stream: Stream, epsilon: float, seeds: int) -> Iterator[tuple[str, dict[str, float]]]:
    """For each kind of quantile of a stream the error of each way."""
    squares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    exact = [truth(table, words).values for words in stream.questions]
    grids = {a["name"]: a["grid"] for a in table.attributes if "grid" in a}
    shown = Shown()
    with mock.patch.object(Quantile, "_shown", lambda *given: shown.instead(*given)):
        for seed in range(seeds):
            ours = Ours(table, stream, epsilon, seed)
            for words, true in zip(stream.questions, exact, strict=True):
                ours.ask(words)
                if words["type"] != "quantile":
                    continue
                query = parse_query(words).compiled(ours.session.dataset.space)
                assert isinstance(query, CompiledStatistic)
                kind = " by ".join([words["of"], *words.get("group_by", [])[:1]])
                for name, values in shown.values.items():
                    off = np.square(query.ordered(values) - true) + grids[words["of"]] ** 2 / 12
                    squares[kind][name] += off[~np.isnan(off)].tolist()
    for kind, by in squares.items():
        # Of groups that have next to nobody nothing is told.
        if all(by.values()):
            yield kind, {name: math.sqrt(np.mean(off)) for name, off in by.items()}


def main() -> None:
    """Ask and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surveys", nargs="*", default=[*SURVEYS, *HELD_BACK])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    asked = parser.parse_args()
    ratios: dict[tuple[Any, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name in asked.surveys:
        table = survey(name)
        for stream in streams(table):
            if all(words["type"] != "quantile" for words in stream.questions):
                continue
            for epsilon in EPSILONS:
                for kind, found in errors(table, stream, epsilon, asked.seeds):
                    for way, error in found.items():
                        of = "groups" if " by " in kind else "all records"
                        ratios[name, epsilon, of][way].append(error / found["as counted"])
    names = [way for way in WAYS if way != "as counted"]
    columns = ["survey", "epsilon", "quantiles of", *names]
    rows = [[*key, *(mean(by[name]) for name in names)] for key, by in ratios.items()]
    title = "Quantiles by how far records may be from what is expected"
    report("spreads", title, columns, rows, seeds=asked.seeds)
    summed: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (name, _, of), by in ratios.items():
        for way in names:
            summed["held back" if name in HELD_BACK else "chosen on", of][way] += by[way]
    rows = [[*key, way, mean(own), max(own)] for key, by in summed.items() for way, own in by.items()]
    report("spreads_summary", title, ["surveys", "quantiles of", "leeway", "error", "largest"], rows, seeds=asked.seeds)


def mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return math.exp(float(np.mean(np.log(ratios))))


if __name__ == "__main__":
    main()
