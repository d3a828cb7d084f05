"""Tables that are published together: how far they are off, beside the answers of the session that they are made of.

Run `python -m benchmarks.research.publications` (some ten minutes). A session over the whole of a fresh budget is asked
a stream of tables of `regret_data.py`, and what it measured is published. Errors are root mean squares
over questions, a table counting as its mean square, of what the session showed of each question after the last one, and
of what is published: their ratio, as the geometric mean over the seeds and the largest of them. Beside them how often
the published 95% intervals hold the truth, over all numbers, and the seconds that it takes. By how much tables disagree
in a session is the largest difference of the totals of two of its tables, and none is left in a publication.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np

from app.releases.publication import published
from app.releases.workloads import Sums
from app.spaces.questions import Cells, Sum
from benchmarks.harness import report
from benchmarks.research.regret_data import STREAMS, world
from benchmarks.research.regret_methods import Session, funds

TABLES, ASKED, EPSILONS = (
    ("titanic", "adult7", "adult8", "fulton"),
    ("8 tables", "tabulation", "drill-down"),
    (0.1, 1.0),
)


def played(name: str, stream: str, epsilon: float, seed: int) -> tuple[float, float, float, float]:
    """The ratio of errors, the part of intervals that hold, the seconds, and by how much totals of a session differ."""
    table = world(name)
    questions = STREAMS[stream](table, seed)
    session = Session(table, funds(epsilon, True, len(questions)), np.random.default_rng(seed))
    bought = [session.ask(question) for question in questions]
    asked = [(q, b) for q, b in zip(questions, bought, strict=True) if q.attributes and isinstance(q, Sum | Cells)]
    shown = [session.policy.value(question, each) for question, each in asked]
    totals = [
        float(values.sum()) for values, (question, _) in zip(shown, asked, strict=True) if isinstance(question, Cells)
    ]
    started = time.perf_counter()
    workload = Sums(tuple(question for question, _ in asked if isinstance(question, Sum | Cells)))
    made = published(workload, session.policy.residuals, seed, lambda part: None)
    seconds = time.perf_counter() - started
    alone, together, held = [], [], []
    for values, answers, (question, _) in zip(shown, made.answers, asked, strict=True):
        exact, found = table.exact(question), answers.estimates
        alone.append(float(np.mean(np.square(values - exact))))
        together.append(float(np.mean(np.square(found.values - exact))))
        held.append(((found.lows <= exact) & (exact <= found.highs)).reshape(-1))
    apart = max(totals) - min(totals) if totals else 0.0
    return math.sqrt(np.mean(together) / np.mean(alone)), float(np.concatenate(held).mean()), seconds, apart


def row(name: str, stream: str, epsilon: float, seeds: int) -> list[Any]:
    """One row of the table."""
    found = np.array([played(name, stream, epsilon, seed) for seed in range(seeds)])
    ratios, held, seconds, apart = found.T
    mean = float(np.exp(np.log(ratios).mean()))
    return [
        name,
        stream,
        epsilon,
        mean,
        float(ratios.max()),
        float(held.mean()),
        float(seconds.mean()),
        round(float(apart.max()), 6),
    ]


def main() -> None:
    """Play all streams."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tables", nargs="*", default=TABLES)
    given = parser.parse_args()
    columns = [
        "table",
        "stream",
        "epsilon",
        "mean ratio",
        "largest ratio",
        "intervals that hold",
        "seconds",
        "totals apart",
    ]
    found = [
        row(name, stream, epsilon, given.seeds) for name in given.tables for stream in ASKED for epsilon in EPSILONS
    ]
    report("publications", "Tables published together, beside the session's answers", columns, found, seeds=given.seeds)


if __name__ == "__main__":
    main()
