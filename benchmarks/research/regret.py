"""The policy for tables against what else could be done with the same budget.

Run `python -m benchmarks.research.regret` (hours for everything; what was measured before is not measured again).
Options name tables, streams, epsilons, methods and how many seeds. `python -m benchmarks.research.regret --summary`
only makes the tables of docs/evidence.md and the plot from what is there. The records are those of ``../shared/data``.

No server runs: the policy is asked directly, with the noise of NumPy and the prices of the ledger.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import time
from typing import Any

import numpy as np

from benchmarks.harness import RESULTS, ROOT, report
from benchmarks.research.regret_data import STREAMS, WORLDS, available, pool, predicate, several, world
from benchmarks.research.regret_methods import ADVERSARY, METHODS, Score, Session, adversary, funds

CELLS = RESULTS / "regret_cells.json"
PLOT = ROOT / "docs" / "img" / "regret"
EPSILONS = ("0.1", "0.5", "1")
KNOWING = "knows the truth"
#: Tables that constants were chosen on, and those that were looked at once, at the end.
TUNED, UNTOUCHED = ("adult8", "titanic", "adult14", "adult7"), ("fulton", "covid")
#: What answers without knowing later questions; the offline line does.
ONLINE = ("gaussian", "laplace", "histogram")
#: Streams that take minutes are measured with one seed.
LONG = ("10,000 predicates", KNOWING)


def measured(table: str, stream: str, epsilon: str, method: str, seed: int) -> dict[str, Any] | None:
    """One cell with one seed."""
    found = world(table)
    if stream == KNOWING:
        if method == "policy":
            score: Score | None = adversary(found, pool(found, seed), float(epsilon), seed)
        elif method == "histogram":
            score = METHODS[method](found, pool(found, seed), float(epsilon), seed)
        elif method == "offline":
            return None
        else:
            score = METHODS[method](found, pool(found, seed)[:ADVERSARY], float(epsilon), seed)
    else:
        score = METHODS[method](found, STREAMS[stream](found, seed), float(epsilon), seed)
    if score is None:
        return None
    return {
        "rmse": score.rmse,
        "p95": score.percentile,
        "largest": score.largest,
        "covered": score.covered,
        "paid": score.paid,
        "questions": len(score.squares),
        "left": score.left,
        "seconds": score.seconds,
        "slowest": score.slowest,
        "mode": score.mode,
    }


def load() -> dict[str, Any]:
    """What was measured so far."""
    return json.loads(CELLS.read_text()) if CELLS.exists() else {}


def store(key: str, found: Any) -> None:
    """Keep one more; several processes may run."""
    with CELLS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cells = load()
        cells[key] = found
        lines = (f"{json.dumps(k)}: {json.dumps(cells[k])}" for k in sorted(cells))
        made = CELLS.with_suffix(".new")
        made.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        made.replace(CELLS)


def covid() -> None:
    """Seventy thousand questions to a block of a week's tests within a twentieth of all, for a hundredth of 0.259."""
    key, epsilon, count = "covid|70,000 questions|0.00259|policy|0", 0.00259, 70_000
    if key in load():
        return
    table, rng, started = world("covid"), np.random.default_rng(1), time.perf_counter()
    session = Session(table, funds(epsilon, True, count), np.random.default_rng(2))
    largest = 0.0
    for _ in range(count):
        question = predicate(table, rng, several(rng, table, int(rng.integers(1, 5))))
        session.ask(question)
        largest = max(largest, abs(float(session.policy.value(question, None) - table.exact(question))))
    store(
        key,
        {
            "largest part": largest / len(table.records),
            "mode": session.policy.mode,
            "epsilon": epsilon,
            "seconds": time.perf_counter() - started,
        },
    )


def rooted(values: list[float]) -> float:
    return math.sqrt(float(np.mean(np.square(values))))


def rows(cells: dict[str, Any]) -> list[list[Any]]:
    """One row for each table, stream and epsilon, of what is there."""
    grouped: dict[tuple[str, str, str], dict[str, list[dict[str, Any]]]] = {}
    for key, found in cells.items():
        table, stream, epsilon, method, _ = key.split("|")
        if found is not None and "rmse" in found:
            grouped.setdefault((table, stream, epsilon), {}).setdefault(method, []).append(found)
    result = []
    order = [*STREAMS, KNOWING]
    for (table, stream, epsilon), methods in sorted(
        grouped.items(), key=lambda item: ((TUNED + UNTOUCHED).index(item[0][0]), order.index(item[0][1]), item[0][2])
    ):
        if "policy" not in methods:
            continue
        rmse = {method: rooted([f["rmse"] for f in found]) for method, found in methods.items()}
        online = {method: rmse[method] for method in ONLINE if method in rmse}
        best = min(online, key=lambda m: online[m]) if online else ""
        own = methods["policy"]
        covered = {
            kind: (sum(f["covered"][kind][0] for f in own), sum(f["covered"][kind][1] for f in own))
            for kind in ("unbiased", "model")
        }
        result.append(
            [
                table,
                stream,
                float(epsilon),
                own[0]["mode"],
                rmse["policy"],
                rooted([f["p95"] for f in own]),
                max(f["largest"] for f in own),
                best,
                online.get(best),
                rmse["policy"] / online[best] if online else None,
                rmse.get("offline"),
                *(inside / of if of else None for inside, of in covered.values()),
                1000 * sum(f["seconds"] for f in own) / sum(f["questions"] for f in own),
                len(own),
            ]
        )
    return result


COLUMNS = [
    "table",
    "stream",
    "epsilon",
    "mode",
    "rmse",
    "95th percentile",
    "largest",
    "best alternative",
    "its rmse",
    "ratio",
    "knows the workload",
    "unbiased cover",
    "model cover",
    "ms a question",
    "seeds",
]


def summarise() -> None:
    """The tables of the document and the plot."""
    found = rows(load())
    if not found:
        return
    report("regret", "The policy for tables against the best of three alternatives", COLUMNS, found)
    summary = []
    for name, tables in (("tuned", TUNED), ("untouched", UNTOUCHED)):
        for adaptive in (False, True):
            chosen = [r for r in found if r[0] in tables and (r[1] == KNOWING) == adaptive and r[9] is not None]
            if chosen:
                ratios = np.array([r[9] for r in chosen])
                worst = chosen[int(ratios.argmax())]
                mean = float(np.exp(np.log(ratios).mean()))
                where = f"{worst[0]}, {worst[1]}, {worst[2]:g}"
                kind = "an analyst who knows the truth" if adaptive else "streams"
                summary.append([name, kind, len(chosen), mean, float(ratios.max()), where])
    report("regret_summary", "Ratios", ["tables", "asked by", "cells", "geometric mean", "largest", "where"], summary)
    plot(found)


def plot(found: list[list[Any]]) -> None:
    """Ratios of all cells, one column a stream."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    order = [*STREAMS, KNOWING]
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    marks = {"0.1": "v", "0.5": "o", "1": "^"}
    for number, table in enumerate(TUNED + UNTOUCHED):
        for epsilon, mark in marks.items():
            chosen = [r for r in found if r[0] == table and r[2] == float(epsilon) and r[9] is not None]
            places = [order.index(r[1]) + (number - 2.5) * 0.11 for r in chosen]
            axes.scatter(places, [r[9] for r in chosen], marker=mark, s=22, color=f"C{number}", label=None)
        axes.scatter([], [], color=f"C{number}", s=22, label=table + ("" if table in TUNED else " (untouched)"))
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_yticks([0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0], ["0.1", "0.2", "0.3", "0.5", "0.7", "1", "1.5", "2"])
    axes.minorticks_off()
    axes.set_xticks(range(len(order)), order, rotation=20, ha="right")
    axes.set_ylabel("error against the best alternative")
    axes.legend(fontsize=8, ncol=3)
    axes.set_title("Triangles down: epsilon 0.1, up: epsilon 1", fontsize=9)
    figure.tight_layout()
    for kind in ("svg", "png"):
        figure.savefig(PLOT.with_suffix(f".{kind}"), dpi=130, metadata={"Date": None} if kind == "svg" else None)
    pyplot.close(figure)


def main() -> None:
    """Measure what is missing, then sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=list(WORLDS))
    parser.add_argument("--streams", nargs="*", default=[*STREAMS, KNOWING])
    parser.add_argument("--epsilons", nargs="*", default=list(EPSILONS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--summary", action="store_true")
    chosen = parser.parse_args()
    if not chosen.summary:
        if not available():
            raise SystemExit("no records: see the docstring")
        for table in chosen.tables:
            for stream in chosen.streams:
                for epsilon in chosen.epsilons:
                    for method in chosen.methods:
                        for seed in range(1 if stream in LONG else chosen.seeds):
                            key = f"{table}|{stream}|{epsilon}|{method}|{seed}"
                            if key in load():
                                continue
                            found = measured(table, stream, epsilon, method, seed)
                            store(key, found)
                            shown = "" if found is None else f"{found['rmse']:.2f} in {found['seconds']:.1f} s"
                            print(key, shown, flush=True)
        if "covid" in chosen.tables:
            covid()
    summarise()


if __name__ == "__main__":
    main()
