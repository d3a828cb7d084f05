"""This service beside other tools on the same tasks, the same survey and the same (epsilon, delta).

Run `python -m benchmarks.compared` (an hour, most of it Spark and the fits of AIM; `--tools` names some of them, whose
rows take the place of those that there are). Each other tool is installed by pip into an environment of its own, below
`--environments`; Tumult Analytics needs Java 17. `--quick` runs each task once and writes nothing.

`compared` has the root mean square error of every tool at every task, `compared_ratios` how many times that of a
careful person is, who has the most runs. A question of many cells counts as the mean of their squares; counts that are
not told are 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compared import by_hand, ours
from benchmarks.compared.tasks import DELTA, NUMBERS, SIZES, Score, Told, file, tasks
from benchmarks.harness import ADMIN_KEY, RESULTS, curator, report
from curator_client import Curator

EPSILONS = (1.0, 0.25)
TOOLS = Path(__file__).with_name("tools")
#: What pip installs for each environment, in this order; of smartnoise-synth not what its neural networks need.
ENVIRONMENTS: Mapping[str, Sequence[Sequence[str]]] = {
    "opendp": [["opendp[polars]==0.16.0"]],
    "smartnoise": [["smartnoise-sql==1.0.10"]],
    "tumult": [["tmlt.analytics==0.21.0"]],
    "diffprivlib": [["diffprivlib==0.6.6", "scikit-learn==1.5.2", "numpy<2.3", "pandas"]],
    "synth": [
        ["smartnoise-sql==1.0.10", "mbi==1.1.0", "disjoint-set>=0.9,<0.10", "Faker"],
        ["--no-deps", "smartnoise-synth==1.0.8"],
    ],
}


@dataclass(frozen=True)
class Tool:
    """Another tool: its environment, its script with further words, and how often it runs each task."""

    environment: str
    script: tuple[str, ...]
    runs: Mapping[str, int]


ONE = ("one count", "one table", "mean of 4 groups", "median")
STREAM, TOGETHER = "20 tables, one by one", "36 tables at once"
OURS, BY_HAND = "this service", "NumPy by hand"
OTHERS: Mapping[str, Tool] = {
    "OpenDP": Tool("opendp", ("with_opendp.py",), dict.fromkeys(ONE, 8) | {STREAM: 1, TOGETHER: 1}),
    "SmartNoise SQL": Tool(
        "smartnoise",
        ("with_smartnoise.py",),
        dict.fromkeys(("one count", "one table", "mean of 4 groups"), 20) | {STREAM: 5, TOGETHER: 5},
    ),
    "SmartNoise SQL, as it comes": Tool(
        "smartnoise", ("with_smartnoise.py", "default"), {"one table": 20, STREAM: 5, TOGETHER: 5}
    ),
    "Tumult Analytics": Tool("tumult", ("with_tumult.py",), dict.fromkeys(ONE, 6) | {STREAM: 1, TOGETHER: 1}),
    "diffprivlib": Tool("diffprivlib", ("with_diffprivlib.py",), dict.fromkeys(ONE, 20) | {STREAM: 20, TOGETHER: 20}),
    "MST": Tool("synth", ("with_synth.py", "mst"), {TOGETHER: 3}),
    "AIM": Tool("synth", ("with_synth.py", "aim"), {TOGETHER: 1}),
}
OUR_RUNS = dict.fromkeys(ONE, 50) | {STREAM: 10, TOGETHER: 3}
Scores = dict[tuple[str, float, str], Score]
Rows = list[list[Any]]


def environment(name: str, folder: Path) -> Path:
    """The interpreter of an environment, which is made where it is not there."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
        for packages in ENVIRONMENTS[name]:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def others(name: str, tool: Tool, folder: Path, quick: bool, scores: Scores, seconds: float) -> None:
    """Run a tool on all its tasks, in one process; what was answered when its time is over counts."""
    jobs, of = [], []
    for epsilon in EPSILONS:
        for task in tasks():
            for seed in range(min(tool.runs.get(task.name, 0), 1 if quick else 100)):
                jobs.append({"epsilon": epsilon, "seed": seed, "questions": [each.json() for each in task.questions]})
                of.append((task, epsilon))
    with tempfile.TemporaryDirectory() as scratch:
        source, given, told = (Path(scratch) / each for each in ("couples.csv", "given.json", "answers.json"))
        source.write_text(file())
        public = {"file": str(source), "sizes": dict(SIZES), "numbers": dict(NUMBERS), "delta": DELTA}
        given.write_text(json.dumps(public | {"jobs": jobs}))
        script, *words = tool.script
        command: list[Path | str] = [environment(tool.environment, folder), TOOLS / script, given, told, *words]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=scratch)
            if ended.returncode:
                print(f"{name} ended: {ended.stderr[-2000:]}")
        except subprocess.TimeoutExpired:
            print(f"{name}: its {seconds:g} seconds were over")
        done = json.loads(told.read_text()) if told.exists() else []
    for (task, epsilon), each in zip(of, done, strict=False):
        scores[task.name, epsilon, name].take(task, each["answers"], each["seconds"])


def cells(values: Any) -> Told:
    """An answer that has its shape, as tools tell theirs."""
    return [(list(place), float(value)) for place, value in np.ndenumerate(values)]


def served(quick: bool, scores: Scores) -> None:
    """Run the service, a fresh data set a run."""
    with curator() as server, Curator(server.url, ADMIN_KEY) as client:
        for task in tasks():
            for epsilon in EPSILONS:
                for seed in range(1 if quick else OUR_RUNS[task.name]):
                    found, seconds = ours.answers(client, task, epsilon, seed)
                    scores[task.name, epsilon, OURS].take(task, [cells(each) for each in found], seconds)


def hand(quick: bool, scores: Scores) -> None:
    """Run what is written by hand; it takes no time that could be told."""
    for task in tasks():
        for epsilon in EPSILONS:
            for seed in range(1 if quick else 200):
                found = by_hand.answers(task, epsilon, seed)
                scores[task.name, epsilon, BY_HAND].take(task, [cells(each) for each in found], 0.0)


def put(scores: Scores, folder: Path | None) -> None:
    """Tell the rows that there are with these in the place of older ones, and the ratios."""
    order, others = [OURS, BY_HAND, *OTHERS], [OURS, *OTHERS]
    names = [task.name for task in tasks()]
    known: dict[tuple[str, float, str], list[Any]] = {}
    path = RESULTS / "compared.json"
    if folder is not None and path.exists():
        known = {(row[0], row[1], row[2]): row for row in json.loads(path.read_text())["rows"]}
    for (task, epsilon, tool), score in scores.items():
        told = [score.rmse, score.lost / score.cells, score.seconds / score.runs or None, score.runs]
        known[task, epsilon, tool] = [task, epsilon, tool, *told]
    rows: Rows = sorted(known.values(), key=lambda row: (names.index(row[0]), -row[1], order.index(row[2])))
    report(
        "compared",
        "The same tasks at the same (epsilon, delta): root mean square error, part of the cells that is not told",
        ["task", "epsilon", "tool", "error", "cells not told", "seconds a run", "runs"],
        rows,
        folder=folder,
        delta=DELTA,
        environments={name: [" ".join(each) for each in steps] for name, steps in ENVIRONMENTS.items()},
    )
    found = {(row[0], row[1], row[2]): row[3] for row in rows}
    asked = sorted({(row[0], row[1]) for row in rows}, key=lambda each: (names.index(each[0]), -each[1]))
    wide: Rows = []
    for task, epsilon in asked:
        unit = found.get((task, epsilon, BY_HAND))
        errors = [found.get((task, epsilon, tool)) for tool in others]
        wide.append([task, epsilon, unit, *(error / unit if error is not None and unit else None for error in errors)])
    title = "Errors as multiples of a careful person's"
    report("compared_ratios", title, ["task", "epsilon", BY_HAND, *others], wide, folder=folder)


def main() -> None:
    """Run, and write after each tool what there is so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tools", nargs="*", choices=[OURS, BY_HAND, *OTHERS], default=[OURS, BY_HAND, *OTHERS])
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir()) / "curator-compared")
    parser.add_argument("--patience", type=float, default=1800, help="seconds for each other tool")
    chosen = parser.parse_args()
    for name in chosen.tools:
        scores: Scores = defaultdict(Score)
        if name == OURS:
            served(chosen.quick, scores)
        elif name == BY_HAND:
            hand(chosen.quick, scores)
        else:
            others(name, OTHERS[name], chosen.environments, chosen.quick, scores, chosen.patience)
        put(scores, None if chosen.quick else RESULTS)


if __name__ == "__main__":
    main()
