"""What a stated accuracy costs in a session that knows something already, beside noise on each question by itself.

Run `python -m benchmarks.research.within` (some ten minutes). Sessions of the service's own mechanism, in this process
and with noise from NumPy. Each is asked a few tables and sums as its budget has it, and then counts, tables and sums
with `within`: a half-width of the interval that the session must keep. A user who asks each question by itself pays for
Gaussian noise of just that half-width. A row has what both paid, as a ratio; the root mean square error beside that of
such noise; how often an interval was wider than was asked for, which must be never; and how often intervals hold.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from typing import Any

import numpy as np
from scipy.stats import norm

from app.curator.mechanisms.protocol import Buy, Target
from app.declarations.errors import CuratorError
from app.declarations.spec import TableSpec, parse_spec
from app.spaces.records import RecordsTensor
from app.spaces.table import table_space
from benchmarks.harness import report
from benchmarks.research.coverage_played import Drawn, Played, Setting
from benchmarks.research.statistics import DELTA, Survey, survey, truth

EPSILONS = (0.3, 1.0)
#: Half-widths, as multiples of that of Gaussian noise for one count among so many that share the budget.
WIDTHS, AMONG = (0.5, 1.0, 2.0, 4.0), 30
ASKED = 12


def knowing(table: Survey) -> list[dict[str, Any]]:
    """What a session is asked first, without a wish."""
    groups = [q["group_by"] for q in table.questions if q["type"] == "mean" and "group_by" in q]
    number = table.questions[0]["of"]
    tables = [{"type": "marginal", "attributes": group} for group in groups[1:]]
    return [*tables, {"type": "sum", "of": number, "group_by": groups[0]}]


def wished(table: Survey, seed: int) -> list[dict[str, Any]]:
    """Counts by one to three conditions, tables of one or two attributes, and sums by group, in some order."""
    rng = np.random.default_rng(seed)
    codes = {attribute["name"]: int(attribute["size"]) for attribute in table.attributes if "size" in attribute}
    number = table.questions[0]["of"]
    found: list[dict[str, Any]] = []
    for place in range(ASKED):
        names = rng.choice([*codes], rng.integers(1, 3 + (place % 4 < 2)), replace=False).tolist()
        if place % 4 == 3:
            found.append({"type": "marginal", "attributes": names})
        elif place % 4 == 2:
            found.append({"type": "sum", "of": number, "group_by": names})
        else:
            chosen = {name: rng.choice(codes[name], max(1, codes[name] // 2), replace=False) for name in names}
            found.append({"type": "predicate", "where": {name: sorted(own.tolist()) for name, own in chosen.items()}})
    return found


def exact(table: Survey, words: dict[str, Any]) -> np.ndarray:
    """The true numbers of a question, in the order of the service's."""
    if words["type"] == "predicate":
        inside = [np.isin(table.places(name), values) for name, values in words["where"].items()]
        return np.array([float(np.all(inside, axis=0).sum())])
    if words["type"] == "sum":
        return truth(table, words).values
    counted = truth(table, {"type": "sum", "of": table.questions[0]["of"], "group_by": words["attributes"]})
    return np.array([float(len(own)) for own in counted.members])


def played(name: str, epsilon: float, width: float, seeds: int) -> list[dict[str, Any]]:
    """A row for each kind of question."""
    table = survey(name)
    declared = {"kind": "table", "attributes": table.attributes, "records_public": True}
    spec = parse_spec(declared | {"name": "asked", "budget": {"epsilon": epsilon, "delta": DELTA}})
    assert isinstance(spec, TableSpec)
    setting = Setting.of(
        declared,
        RecordsTensor(table.columns, table_space(spec).shape),
        {"mechanism": {"construction": "evidence"}, "epsilon": epsilon, "max_queries": AMONG},
        delta=DELTA,
        records=float(len(table.columns[0])),
    )
    budget = setting.opening.dataset.budget
    order, share = float(budget.order), float(budget.total)
    # One count of AMONG that share the budget; a record moves it by one.
    deviation = math.sqrt(order * AMONG / (2 * share))
    z = float(norm.ppf(0.975))
    ends = table.attributes[[a["name"] for a in table.attributes].index(table.questions[0]["of"])]
    # What one record moves a number by, at most: of a sum by group whichever bound is farther from zero.
    moved = {"predicate": 1.0, "marginal": 1.0, "sum": max(abs(ends["lower"]), abs(ends["upper"]))}
    alone = order / (2 * (width * deviation) ** 2)
    paid: dict[str, list[float]] = defaultdict(list)
    missed: dict[str, list[float]] = defaultdict(list)
    wide: dict[str, list[bool]] = defaultdict(list)
    held: dict[str, list[bool]] = defaultdict(list)
    refused: dict[str, int] = defaultdict(int)
    for seed in range(seeds):
        session = Played(setting, Drawn(np.random.default_rng(seed)))
        for words in knowing(table):
            session.ask(words)
        for words in wished(table, seed):
            kind, true = words["type"], exact(table, words)
            within = width * z * deviation * moved[kind]
            try:
                price = _price(session, words, Target(within))
                told = session.ask(words, Target(within))
            except CuratorError:
                refused[kind] += 1
                continue
            assert told.accuracy is not None
            lows, highs = told.accuracy.lows, told.accuracy.highs
            paid[kind].append(price / alone)
            missed[kind] += np.square((told.values - true) / (within / z)).tolist()
            wide[kind] += (highs - lows > 2 * within * (1 + 1e-6)).tolist()
            held[kind] += ((lows <= true) & (true <= highs)).tolist()
    return [
        {
            "survey": name,
            "epsilon": epsilon,
            "width": width,
            "question": kind,
            "paid": float(np.mean(paid[kind])),
            "free": float(np.mean(np.array(paid[kind]) == 0)),
            "error": math.sqrt(float(np.mean(missed[kind]))),
            "wider": float(np.mean(wide[kind])),
            "held": float(np.mean(held[kind])),
            "refused": refused[kind],
        }
        for kind in paid
    ]


def _price(session: Played, words: dict[str, Any], target: Target) -> float:
    due = session.session.consider(session.query(words), target=target)
    return float(due.price.renyi) if isinstance(due, Buy) else 0.0


def _summed(rows: list[dict[str, Any]], kind: str, width: float) -> list[Any]:
    own = [row for row in rows if (row["question"], row["width"]) == (kind, width)]
    return [kind, width, *(float(np.mean([row[c] for row in own])) for c in ("paid", "free", "error", "wider", "held"))]


def main() -> None:
    """Buy and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surveys", nargs="*", default=["fulton", "adult", "titanic"])
    parser.add_argument("--seeds", type=int, default=10)
    asked = parser.parse_args()
    found = [
        row
        for name in asked.surveys
        for epsilon in EPSILONS
        for width in WIDTHS
        for row in played(name, epsilon, width, asked.seeds)
    ]
    report(
        "within_summary",
        "A stated accuracy, over all surveys",
        ["question", "width", "paid", "free", "error", "wider", "held"],
        [_summed(found, kind, width) for kind in ("predicate", "marginal", "sum") for width in WIDTHS],
        seeds=asked.seeds,
    )
    columns = list(found[0])
    report("within", "A stated accuracy", columns, [[row[c] for c in columns] for row in found], seeds=asked.seeds)


if __name__ == "__main__":
    main()
