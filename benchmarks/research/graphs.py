"""How well cuts of graphs are answered for the same (epsilon, delta): the service's policy and what else there is.

Run ``python -m benchmarks.research.graphs [--data DIR]``: minutes to hours; what was measured before is not measured
again unless ``--again``. Options name graphs, streams, epsilons and methods, separated by commas, and how many seeds.
``--table`` measures nothing and prints Markdown of what is there. The graphs are those of ``../shared/data``; what is
not there is left out.

Streams: *mixed*, thousands of cuts of many kinds; *few*, 300 of the same; *communities*, 1,000 unions of communities;
*adversary*, 150 cuts chosen one after another by somebody who knows half of the edges and all that is published. Each
method is told how many questions there will be. No server runs; chance comes from NumPy with a fixed seed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.spaces.tensor import FloatArray
from benchmarks.document import table
from benchmarks.harness import RESULTS, report
from benchmarks.research.graphs_data import GRAPHS, STREAMS, TUNED, Adversary, Graph, graph, made
from benchmarks.research.graphs_methods import METHODS, Batch, Method
from benchmarks.research.regret_data import DATA

CELLS = RESULTS / "graphs_cells.json"
DELTA = 1e-9
ADVERSARY = "adversary"
OWN = "auto"


#: A stream of questions is made once for all methods.
_questions = lru_cache(maxsize=1)(made)


def measured(of: Graph, stream: str, epsilon: float, method: str, seed: int) -> dict[str, Any]:
    """One cell: errors of a method's answers to a stream, and whether its intervals held."""
    make = METHODS[method]
    if stream == ADVERSARY:
        kinds, started = [ADVERSARY] * Adversary.QUESTIONS, time.perf_counter()
        found, truths = attacked(of, make(of, epsilon, DELTA, Adversary.QUESTIONS, seed), seed)
        seconds = time.perf_counter() - started
    else:
        kinds, lefts, rights, truths = _questions(of, stream, seed)
        started = time.perf_counter()
        answering = make(of, epsilon, DELTA, len(truths), seed)
        if isinstance(answering, Batch):
            values = answering.answers(lefts, rights)
            found = np.stack([values, *np.full((2, len(values)), np.nan)], axis=1)
        else:
            found = np.array([answering.answer(left, right) for left, right in zip(lefts, rights, strict=True)])
        seconds = time.perf_counter() - started
    return scored(kinds, found, truths) | {"seconds": round(seconds, 2)}


def attacked(of: Graph, method: Method, seed: int) -> tuple[FloatArray, FloatArray]:
    """The answers that an adversary gets, and the exact ones."""
    adversary, found, truths = Adversary(of, seed), [], []
    for _ in range(Adversary.QUESTIONS):
        left, right = adversary.choose(method.expectation())
        found.append(method.answer(left, right))
        truths.append(of.truth(left, right))
    return np.array(found), np.array(truths)


def scored(kinds: Sequence[str], found: FloatArray, truths: FloatArray) -> dict[str, Any]:
    """Errors of answers, whose rows are value, low and high, and how many intervals hold the truth."""
    values, lows, highs = found.T
    errors, shown = values - truths, np.isfinite(lows) & np.isfinite(highs)
    inside = shown & (lows <= truths + 1e-9) & (truths - 1e-9 <= highs)
    of_kind = np.array(kinds)
    return {
        "rmse": rooted(errors),
        "largest": float(np.abs(errors).max()),
        "questions": len(truths),
        "intervals": int(shown.sum()),
        "inside": int(inside.sum()),
        "half_width": float((highs - lows)[shown].mean() / 2) if shown.any() else None,
        "kinds": {kind: rooted(errors[of_kind == kind]) for kind in sorted(set(kinds))},
    }


def rooted(errors: FloatArray) -> float:
    """The root mean square."""
    return math.sqrt(float(np.mean(np.square(errors))))


def load() -> dict[str, Any]:
    """What was measured so far."""
    return json.loads(CELLS.read_text()) if CELLS.exists() else {}


def store(key: str, found: dict[str, Any]) -> None:
    """Keep one more; several processes may run."""
    with CELLS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cells = load()
        cells[key] = found
        lines = (f"{json.dumps(k)}: {json.dumps(cells[k])}" for k in sorted(cells))
        new = CELLS.with_suffix(".new")
        new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        new.replace(CELLS)


def measure(task: tuple[str, Path, list[tuple[str, str, str, int]]]) -> None:
    """Measure cells of one graph."""
    name, data, cells = task
    with threadpool_limits(1):
        try:
            of = graph(name, data)
        except FileNotFoundError as error:
            print(f"{name} is left out: {error}", flush=True)
            return
        for stream, epsilon, method, seed in cells:
            found = measured(of, stream, float(epsilon), method, seed)
            key = f"{name}|{stream}|{epsilon}|{method}|{seed}"
            store(key, found)
            print(f"{key} {found['rmse']:,.1f} in {found['seconds']:.1f} s", flush=True)


def rows(cells: dict[str, Any]) -> list[list[Any]]:
    """One row for each graph, epsilon and stream, of what is there: seeds together."""
    grouped: dict[tuple[str, str, str], dict[str, list[dict[str, Any]]]] = {}
    for key, found in cells.items():
        name, stream, epsilon, method, _ = key.split("|")
        grouped.setdefault((name, epsilon, stream), {}).setdefault(method, []).append(found)
    order = [*STREAMS, ADVERSARY]
    result: list[list[Any]] = []
    for (name, epsilon, stream), methods in sorted(
        grouped.items(), key=lambda item: (list(GRAPHS).index(item[0][0]), -float(item[0][1]), order.index(item[0][2]))
    ):
        rmse = {method: rooted(np.array([f["rmse"] for f in found])) for method, found in methods.items()}
        others = {method: value for method, value in rmse.items() if method != OWN}
        best = min(others, key=lambda method: others[method]) if others else None
        own = methods.get(OWN, [])
        intervals = sum(f["intervals"] for f in own)
        result.append(
            [
                name,
                "tuned" if name in TUNED else "held back",
                float(epsilon),
                stream,
                rmse.get(OWN),
                best,
                others[best] if best else None,
                rmse[OWN] / others[best] if own and best else None,
                sum(f["inside"] for f in own) / intervals if intervals else None,
                sum(f["half_width"] * f["intervals"] for f in own if f["intervals"]) / intervals if intervals else None,
                *(rmse.get(method) for method in METHODS if method != OWN),
                sum(f["seconds"] for f in own) if own else None,
                sum(f["seconds"] for method, found in methods.items() if method != OWN for f in found),
            ]
        )
    return result


COLUMNS = [
    "graph",
    "half",
    "epsilon",
    "stream",
    OWN,
    "best alternative",
    "its rmse",
    "ratio",
    "covered",
    "half-width",
    *(method for method in METHODS if method != OWN),
    f"seconds {OWN}",
    "seconds others",
]
_RATIO = COLUMNS.index("ratio")


def summary(found: list[list[Any]]) -> list[list[Any]]:
    """Geometric means of ratios: of both halves, by epsilon and stream, and altogether."""
    result: list[list[Any]] = []
    for half in ("tuned", "held back"):
        chosen = [row for row in found if row[1] == half and row[_RATIO] is not None]
        for epsilon, stream in sorted({(-row[2], row[3]) for row in chosen}):
            result.append(_summed(half, -epsilon, stream, [r for r in chosen if (-r[2], r[3]) == (epsilon, stream)]))
        if chosen:
            result.append(_summed(half, None, "all", chosen))
    return result


def _summed(half: str, epsilon: float | None, stream: str, chosen: list[list[Any]]) -> list[Any]:
    worst = max(chosen, key=lambda row: float(row[_RATIO]))
    mean = math.exp(float(np.mean(np.log([row[_RATIO] for row in chosen]))))
    return [half, epsilon, stream, len(chosen), mean, worst[_RATIO], worst[0]]


SUMMARY = ["half", "epsilon", "stream", "cells", "geometric mean", "largest ratio", "of"]


def summarise() -> None:
    """The tables as JSON, of what is there."""
    found = rows(load())
    report("graphs", "Root mean square errors of cuts, by way of answering", COLUMNS, found, delta=DELTA)
    report("graphs_summary", "The policy for graphs against the best alternative", SUMMARY, summary(found))


def markdown() -> str:
    """The tables as Markdown, of what is there."""
    found = rows(load())
    tables = [("Tuned", "tuned"), ("Held back", "held back")]
    parts = [
        f"## {title}\n\n{table({'columns': COLUMNS, 'rows': [row for row in found if row[1] == half]}, ())}"
        for title, half in tables
    ]
    return "\n\n".join([*parts, f"## Ratios\n\n{table({'columns': SUMMARY, 'rows': summary(found)}, ())}"])


def _listed(text: str) -> list[str]:
    return text.split(",")


def _known(parser: argparse.ArgumentParser, names: Iterable[str], known: Iterable[str]) -> None:
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")


def main() -> None:
    """Measure what is missing, then sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the real graphs")
    parser.add_argument("--graphs", type=_listed, default=list(GRAPHS))
    parser.add_argument("--streams", type=_listed, default=[*STREAMS, ADVERSARY])
    parser.add_argument("--epsilons", type=_listed, default=["1", "0.1"])
    parser.add_argument("--methods", type=_listed, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes, a graph each")
    parser.add_argument("--again", action="store_true", help="measure what is there again")
    parser.add_argument("--table", action="store_true", help="only print what is there as Markdown")
    chosen = parser.parse_args()
    if chosen.table:
        print(markdown())
        return
    if chosen.data is None:
        parser.error("no data: see the docstring")
    _known(parser, chosen.graphs, GRAPHS)
    _known(parser, chosen.streams, [*STREAMS, ADVERSARY])
    _known(parser, chosen.methods, METHODS)
    there = {} if chosen.again else load()
    tasks = []
    for name in chosen.graphs:
        cells = [
            (stream, f"{float(epsilon):g}", method, seed)
            for stream in chosen.streams
            for epsilon in chosen.epsilons
            for seed in range(chosen.seeds)
            for method in chosen.methods
            if f"{name}|{stream}|{float(epsilon):g}|{method}|{seed}" not in there
        ]
        tasks.append((name, chosen.data, cells))
    with get_context("spawn").Pool(chosen.jobs) as pool:
        for _ in pool.imap_unordered(measure, [task for task in tasks if task[2]]):
            pass
    summarise()


if __name__ == "__main__":
    main()
