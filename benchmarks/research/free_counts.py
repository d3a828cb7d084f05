"""Counts that nothing was measured for: how often the intervals of what a fit says hold, beside those that noise makes.

Run `python -m benchmarks.research.free_counts` (some five minutes). Sessions of the service's own mechanism, in this
process and with noise from NumPy, are asked twenty counts: single values, ranges of a tenth of an attribute, two such
at once, what a record has, about, and one value that it has. Data are spread evenly, as a fit takes them to be where
nothing tells; in a skewed way; evenly, but with all numbers of a bin at its least; or surveys. An answer is the fit's
where nothing that was measured determines it. Few of these are asked for where a session has much to spend, as they are
bought then.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.harness import report
from benchmarks.research.statistics import Ours, Stream, Survey, survey

EPSILONS, QUESTIONS, EACH, SEEDS = (0.1, 0.5, 0.9), 100, 4, 30
KINDS = ("single value", "range", "two ranges", "of a record", "value of a record")


def made_up(how: str) -> Survey:
    """1,920 records: months, numbers of a grid, and sex."""
    rng, at = np.random.default_rng(5), np.arange(1920)
    months, numbers, sexes = at % 96, at % 200, (at // 7) % 2
    bins = {}
    if how == "heaped":
        numbers, bins = numbers // 10 * 10, {"bins": 20}
    if how == "skewed":
        months = np.minimum(rng.geometric(0.05, len(at)) - 1, 95)
        numbers = np.minimum(rng.gamma(2, 20, len(at)).astype(np.int64), 199)
        sexes = (rng.random(len(at)) < 0.3 + 0.004 * months).astype(np.int64)
    attributes: list[dict[str, Any]] = [
        {"name": "month", "size": 96},
        {"name": "number", "lower": 0, "upper": 199, "grid": 1, **bins},
        {"name": "sex", "size": 2},
    ]
    return Survey(attributes, [months, numbers, sexes], [])


def tables() -> dict[str, Survey]:
    """The data, by name."""
    return {how: made_up(how) for how in ("even", "skewed", "heaped")} | {
        name: survey(name) for name in ("titanic", "fulton")
    }


def _places(attribute: dict[str, Any]) -> int:
    return int(attribute.get("size") or (attribute["upper"] - attribute["lower"]) // attribute["grid"] + 1)


def _between(attribute: dict[str, Any], low: int, high: int) -> Any:
    """The condition on the places from one to before another."""
    if "grid" not in attribute:
        return list(range(low, high))
    first, last = (attribute["lower"] + attribute["grid"] * place for place in (low, high - 1))
    return {"ge": first, "le": last} if high > low + 1 else first


def asked(table: Survey, kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """A question of a kind."""
    if kind.endswith("of a record"):
        number = 1 if kind.startswith("value") else 2
        record, chosen = rng.integers(len(table.columns[0])), rng.choice(len(table.attributes), number, replace=False)
        middles = [int(table.columns[k][record]) for k in chosen]
    else:
        chosen = rng.choice(len(table.attributes), 2 if kind == "two ranges" else 1, replace=False)
        middles = [int(rng.integers(_places(table.attributes[k]))) for k in chosen]
    where = {}
    for k, middle in zip(chosen, middles, strict=True):
        places = _places(table.attributes[k])
        width = 1 if "value" in kind else max(1, places // (20 if kind == "of a record" else 10))
        low = min(middle, places - width)
        where[table.attributes[k]["name"]] = _between(table.attributes[k], low, low + width)
    return {"type": "predicate", "where": where}


def answers(table: Survey, epsilon: float, seed: int) -> Iterator[tuple[str, bool, bool, float, float]]:
    """Of each answer of a session its kind, whether the fit gave it, whether its interval holds, its error and half the
    interval's width."""
    # As many are declared, of which the session is asked the first.
    stream = Stream("counts", [{}] * QUESTIONS)
    session, rng = Ours(table, stream, epsilon, seed), np.random.default_rng(1000 + seed)
    for kind in KINDS:
        for _ in range(EACH):
            words = asked(table, kind, rng)
            query, values, found = session.answered(words)
            exact, low, high = (
                float(np.ravel(each)[0]) for each in (query.exact(session.data), found.lows, found.highs)
            )
            holds = low - 1e-6 <= exact <= high + 1e-6
            yield kind, not found.unbiased.all(), holds, float(values[0]) - exact, (high - low) / 2


def main() -> None:
    """Ask and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds = parser.parse_args().seeds
    found: dict[tuple[str, float, str, str], list[tuple[bool, float, float]]] = defaultdict(list)
    for name, table in tables().items():
        for epsilon in EPSILONS:
            for seed in range(seeds):
                for kind, fitted, holds, error, half in answers(table, epsilon, seed):
                    told = "the fit" if fitted else "noise"
                    found[name, epsilon, kind, told].append((holds, error, half))
    rows = [
        [
            *key,
            len(own),
            float(np.mean([holds for holds, _, _ in own])),
            math.sqrt(np.mean([error**2 for _, error, _ in own])),
            float(np.mean([half for _, _, half in own])),
        ]
        for key, own in sorted(found.items())
    ]
    columns = ["data", "epsilon", "question", "by", "answers", "held", "rmse", "half-width"]
    report("free_counts", "Counts by what a fit says, and by noise", columns, rows, seeds=seeds)
    summed: dict[tuple[str, str], list[tuple[bool, float, float]]] = defaultdict(list)
    for (name, _, _, told), own in found.items():
        summed[name, told] += own
    report(
        "free_counts_summary",
        "Counts by what a fit says, and by noise, in all",
        ["data", "by", "answers", "held"],
        [[*key, len(own), float(np.mean([holds for holds, _, _ in own]))] for key, own in sorted(summed.items())],
        seeds=seeds,
    )


if __name__ == "__main__":
    main()
