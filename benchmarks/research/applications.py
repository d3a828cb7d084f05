"""The papers' applications, measured: do the errors grow as JT12 and GRU11 say, and is a session better than noise?

`python -m benchmarks.research.applications` runs everything (more than an hour of an idle core), `--quick` the same in
small and writes nothing; nor does a section that the time does not suffice for. Real data is taken from `--data DIR`
where it is there. Tables go to benchmarks/results, plots to docs/img; docs/applications.md explains them.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.demo.baseline import queries_to_overtake
from app.privacy.ledger import GREATEST_EPSILON
from benchmarks.harness import RESULTS, ROOT, report
from benchmarks.research import applications_plots as plot
from benchmarks.research import applications_real as real
from benchmarks.research.applications_data import DELTA
from benchmarks.research.applications_measure import (
    FAMILIES,
    Row,
    cuts,
    gaussian_queries,
    linear_queries,
    matrices,
    plain,
    plain_matrices,
)
from benchmarks.research.applications_play import Terms
from benchmarks.research.applications_theory import (
    IMBALANCED,
    PROMISES,
    TABLE_1,
    Degrees,
    Exponent,
    exponents,
    gaussian,
    group_overtakes,
    laplace,
    least_epsilon,
    power_law,
    root_law,
)

IMAGES = ROOT / "docs" / "img"
DATA = ROOT.parent / "shared" / "data"
CONSTRUCTIONS = ("mw", "fk", "group", "schatten")
#: Those of which JT12 says how their errors grow on graphs.
PREDICTED = ("mw", "fk", "group")
CALIBRATIONS = ("rdp", "jt2012", "gru2011")
#: Graphs that are also played with cuts of any sides, and at the papers' calibrations; the first two with other S too.
DUELLISTS = ("imbalanced", "power law 1.2", "power law 1.1", "power law 1.3", "power law 1.4")
SIZED = DUELLISTS[:2]
BETA = 0.05
QUERIES = 10**6


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    nodes: tuple[int, ...]
    seeds: int
    sizes: tuple[int, ...]
    size: int
    epsilon: float
    power_epsilon: float
    matrix_epsilon: float
    betas: tuple[float, ...]
    columns: tuple[int, ...]
    rank_columns: tuple[int, ...]
    ranks: tuple[int, ...]
    records: tuple[int, ...]
    cells: tuple[int, ...]
    support: int
    queries: tuple[int, ...]
    median_records: tuple[int, ...]
    real: tuple[str, ...]
    real_asks: int

    def terms(self, family: str) -> Terms:
        """What sessions on graphs have whose growth is looked at: enough epsilon for hypotheses to move."""
        return Terms(self.power_epsilon if family.startswith("power") else self.epsilon, QUERIES)


FULL = Size(
    nodes=(64, 128, 256, 512),
    seeds=5,
    sizes=(8, 32),
    size=16,
    epsilon=10.0,
    power_epsilon=30.0,
    matrix_epsilon=30.0,
    betas=(1.1, 1.2, 1.3, 1.4),
    columns=(16, 32, 64, 128),
    rank_columns=(16, 24, 32, 48, 64),
    ranks=(1, 2, 4),
    records=(8_192, 32_768, 131_072, 524_288),
    cells=(2_048, 8_192, 32_768),
    support=1_024,
    queries=(10**3, 10**6, 10**9),
    median_records=(8_192, 32_768, 131_072),
    real=tuple(real.SOURCES),
    real_asks=real.RANDOM,
)
QUICK = Size(
    nodes=(16, 32),
    seeds=1,
    sizes=(2,),
    size=4,
    epsilon=100.0,
    power_epsilon=300.0,
    matrix_epsilon=300.0,
    betas=(1.2,),
    columns=(6, 8),
    rank_columns=(6, 8),
    ranks=(1, 2),
    records=(8_192, 32_768),
    cells=(512, 1_024),
    support=256,
    queries=(10**3, 10**6),
    median_records=(8_192,),
    real=("dpbench HEPTH",),
    real_asks=10,
)


@dataclass(frozen=True)
class Task:
    """Measurements that a process makes on its own."""

    section: str
    work: Callable[..., Iterator[Row]]
    arguments: tuple[Any, ...]

    def place(self, folder: Path) -> Path:
        """Where its rows are kept: another measurement, or one with other arguments, lies elsewhere."""
        told = f"{self.section} {self.work.__name__} {self.arguments}"
        return folder / f"{hashlib.sha256(told.encode()).hexdigest()[:24]}.json"


def run(task: Task, until: float, keep: Path | None) -> list[Row] | None:
    """The rows of a task: kept ones, or new ones if the clock does not yet say ``until``; else None."""
    if keep is not None and task.place(keep).is_file():
        kept: list[Row] = json.loads(task.place(keep).read_text())
        return kept
    if time.time() > until:
        return None
    rows = [{key: _plain(value) for key, value in row.items()} for row in task.work(*task.arguments)]
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        task.place(keep).with_suffix(f".{os.getpid()}").write_text(json.dumps(rows))
        task.place(keep).with_suffix(f".{os.getpid()}").replace(task.place(keep))
    return rows


def _plain(value: Any) -> Any:
    """A figure as Python has it."""
    return value.item() if isinstance(value, np.generic) else value


#: Sections of the benchmark, in the order in which they are measured, with the tables that each writes.
SECTIONS = ("cuts", "rank", "linear", "real")


def tasks(size: Size, data: Path) -> list[Task]:
    """All that is to be measured."""
    graphs = sorted(_cut_tasks(size), key=lambda task: task.arguments[2] == "schatten")  # the dearest last
    return [*graphs, *_matrix_tasks(size), *_linear_tasks(size), *_real_tasks(size, data)]


def _cut_tasks(size: Size) -> Iterator[Task]:
    def task(
        family: str, right: int | None, name: str, calibration: str, terms: Terms, nodes: Sequence[int], step: str
    ) -> Iterator[Task]:
        for count in nodes:
            for seed in range(size.seeds):
                yield Task("cuts", cuts, (family, right, name, calibration, (count,), (seed,), terms, step))

    families = [name for name, kind in FAMILIES.items() if kind.beta is None or kind.beta in size.betas]
    for family, name in itertools.product(families, CONSTRUCTIONS):
        yield from task(family, size.size, name, "rdp", size.terms(family), size.nodes, "projection")
    for family in families:
        yield Task("cuts", plain, (family, size.nodes, size.size, range(size.seeds), size.terms(family)))
    for family, name, right in itertools.product(SIZED, CONSTRUCTIONS, size.sizes):
        yield from task(family, right, name, "rdp", size.terms(family), size.nodes[:-1], "projection")
    duellists = [family for family in DUELLISTS if family in families]
    for family, name in itertools.product(duellists, CONSTRUCTIONS):
        for calibration in CALIBRATIONS[1:]:
            yield from task(family, size.size, name, calibration, size.terms(family), size.nodes, "projection")
        # Cuts of any sides hold so many edges that epsilon = 1 moves hypotheses; the papers' calibrations need more.
        for calibration, epsilon in (*((c, 1.0) for c in CALIBRATIONS), ("jt2012", 10.0), ("gru2011", 100.0)):
            yield from task(family, None, name, calibration, Terms(epsilon, QUERIES), size.nodes, "projection")
    for family in duellists:
        yield Task("cuts", plain, (family, size.nodes, None, range(size.seeds), Terms(1.0, QUERIES)))
    for name, step in itertools.product(CONSTRUCTIONS, ("paper", "full", "refit")):
        yield from task("imbalanced", size.size, name, "rdp", size.terms("imbalanced"), size.nodes[1:2], step)


def _matrix_tasks(size: Size) -> Iterator[Task]:
    terms = Terms(size.matrix_epsilon, QUERIES)
    fitting = CONSTRUCTIONS[1:]  # MW keeps no negative entries
    for name, columns, rank in itertools.product(fitting, size.rank_columns, size.ranks):
        for seed in range(size.seeds):
            yield Task("rank", gaussian_queries, (name, columns, rank, (seed,), 0.5))
    for name, calibration, columns in itertools.product(fitting, CALIBRATIONS, size.columns):
        for seed in range(size.seeds):
            yield Task("rank", matrices, (name, calibration, (columns,), 1, (seed,), terms))
    yield Task("rank", plain_matrices, (size.columns, 1, range(size.seeds), terms))


def _linear_tasks(size: Size) -> Iterator[Task]:
    def task(name: str, *arguments: int) -> Iterator[Task]:
        for seed in range(size.seeds):
            yield Task("linear", linear_queries, (name, *arguments, (seed,), 1.0))

    middle, base = size.records[1], size.cells[0]
    varied = {(records, base, QUERIES) for records in size.records}
    varied |= {(middle, cells, QUERIES) for cells in size.cells} | {(middle, base, k) for k in size.queries}
    for name, (records, cells, queries) in itertools.product(("mw", "fk"), sorted(varied)):
        yield from task(name, records, cells, size.support, queries)
    tiny = {(records, MEDIAN_CELLS[0], QUERIES) for records in size.median_records}
    tiny |= {(size.median_records[0], cells, QUERIES) for cells in MEDIAN_CELLS}
    tiny |= {(size.median_records[0], MEDIAN_CELLS[0], k) for k in size.queries}
    for name, (records, cells, queries) in itertools.product(("mw", "fk", "median, sampled"), sorted(tiny)):
        yield from task(name, records, cells, MEDIAN_SUPPORT, queries)
    for name in ("mw", "fk", "median, sampled", "median"):
        yield from task(name, 1_000, 4, 2, 16)


#: Universes of the sampled median mechanism, and the cells that hold the records there.
MEDIAN_CELLS = (32, 64, 128)
MEDIAN_SUPPORT = 16


def _real_tasks(size: Size, data: Path) -> Iterator[Task]:
    for name in size.real:
        source = real.SOURCES[name]
        for mechanism, seed in itertools.product(source.mechanisms, range(min(size.seeds, source.seeds))):
            yield Task("real", real.trial, (name, mechanism, str(data), 1.0, QUERIES, seed, size.real_asks))
    for sparsity, seed in itertools.product(real.WORDS, range(size.seeds)):
        yield Task("real", real.words, (str(data), 1.0, QUERIES, sparsity, seed, size.real_asks))


def measure(todo: Sequence[Task], until: float, workers: int, keep: Path | None) -> list[Row] | None:
    """The rows of all tasks; None where the time did not suffice for all."""
    # One thread each: as many processes as cores do the work. Set before the workers import NumPy.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        done = [future.result() for future in [pool.submit(run, task, until, keep) for task in todo]]
    return None if None in done else [row for rows in done if rows is not None for row in rows]


def _clean(value: Any) -> Any:
    """As JSON knows it: no NaN, six digits."""
    if isinstance(value, dict):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value.item() if isinstance(value, np.integer) else value


@dataclass(frozen=True)
class Output:
    """Where results go; None: nowhere but the terminal."""

    results: Path | None
    images: Path | None

    def table(self, name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], **facts: Any) -> None:
        """Print, and write where there is a folder. What is not there (not a number) is left empty."""
        shown = [["" if cell is None else cell for cell in _clean(row)] for row in rows]
        report(f"applications_{name}", title, columns, shown, folder=self.results, **_clean(facts))


def predictions(size: Size, output: Output) -> None:
    """Proven error bounds for k = V^S queries: how they grow, and the epsilon from which they say anything."""
    spans = {"near": size.nodes, "far": tuple(2**power for power in (16, 18, 20))}
    found: list[Row] = []
    table = []
    families = {"imbalanced": IMBALANCED, **{f"power law {beta}": power_law(beta) for beta in size.betas}}
    for family, paper in families.items():
        for construction in PREDICTED:
            fits: dict[str, list[Exponent]] = {}
            for span, nodes in spans.items():
                factors, errors = [], []
                for count, right in itertools.product(nodes, (4, 16, 64)):
                    bound = PROMISES[construction](Degrees.of(FAMILIES[family].degrees(count)), right)
                    factors.append((count, right))
                    errors.append(root_law(bound, right * math.log(count) + math.log(1 / BETA)))
                fits[span] = exponents(factors, errors)
            largest, right = size.nodes[-1], size.size
            needs = {}
            for queries, rounds in (("V^S", right * math.log(largest)), ("10^6", math.log(10**6))):
                bound = PROMISES[construction](Degrees.of(FAMILIES[family].degrees(largest)), right)
                needs[queries] = least_epsilon(bound, DELTA, rounds + math.log(1 / BETA), right * largest)
            found.append(
                {
                    "family": family,
                    "construction": construction,
                    "paper": paper[construction],
                    "fits": {span: [e.power for e in fit] for span, fit in fits.items()},
                    "epsilon": needs,
                }
            )
            table.append(
                [
                    family,
                    construction,
                    f"{paper[construction][0]:.3f}, {paper[construction][1]:.2f}",
                    *(f"{v.power:.3f}, {s.power:.2f}" for v, s in fits.values()),
                    *(f"above {GREATEST_EPSILON}" if need is None else f"{need:.3g}" for need in needs.values()),
                ]
            )
    output.table(
        "predictions",
        f"Proven bounds for k = V^S cuts: powers of V and S; epsilon that proves less than the largest cut, at V = "
        f"{size.nodes[-1]}, S = {size.size}",
        [
            "graphs",
            "construction",
            "paper",
            f"V {size.nodes[0]} to {size.nodes[-1]}",
            "V 2^16 to 2^20",
            "epsilon, k = V^S",
            "epsilon, k = 10^6",
        ],
        table,
        points=found,
        delta=DELTA,
        group_below_fk_from_two_to_the=group_overtakes(),
    )


def _mean(rows: Sequence[Row], key: str) -> float:
    values = [row[key] for row in rows if row.get(key) is not None]
    return float(np.mean(values)) if values else math.nan


def _where(rows: Sequence[Row], **asked: Any) -> list[Row]:
    return [row for row in rows if all(row.get(key) == value for key, value in asked.items())]


def _seeds(rows: Sequence[Row]) -> int:
    """How many seeds there are of each point."""
    return len({row["seed"] for row in rows})


def _power(rows: Sequence[Row], key: str) -> Exponent | None:
    """The power of V in a figure; None where fewer than three V are there to tell it."""
    there = [row for row in rows if row.get(key)]
    if len({row["nodes"] for row in there}) < 3:
        return None
    return exponents([(row["nodes"],) for row in there], [row[key] for row in there])[0]


def _moved(rows: Sequence[Row]) -> list[Row]:
    """Games with more than one update: where no query passes the threshold nothing was needed that could grow."""
    return [row for row in rows if row.get("updates", 0) > 1]


def growths(rows: list[Row], size: Size, output: Output) -> list[Row]:
    """How measured errors grow, beside the papers' powers at a fixed number of queries."""
    table, levels, fits = [], [], []
    papers = {"imbalanced": IMBALANCED, **{f"power law {beta}": power_law(beta) for beta in size.betas}}
    rows = [row for row in rows if row["size"] is not None and row.get("step", "projection") == "projection"]
    for family, construction in itertools.product(FAMILIES, CONSTRUCTIONS):
        mine = _where(rows, family=family, construction=construction, calibration="rdp")
        if not mine:
            continue
        moved = _moved(mine)
        paper = papers.get(family, IMBALANCED).get(construction, (math.nan, math.nan))
        several = len({row["size"] for row in moved}) > 1
        factors = [(row["nodes"], row["size"]) if several else (row["nodes"],) for row in moved]
        found = {
            key: exponents(factors, [row[key] for row in moved])
            if len(moved) > 3 and len({row["nodes"] for row in moved}) > 1
            else []
            for key in ("error_bound", "intrinsic")
        }
        fits.append(
            {
                "family": family,
                "construction": construction,
                "paper": paper[0],
                "paper_size": paper[1] - 0.5,
                "fits": {k: [[e.power, e.low, e.high] for e in v] for k, v in found.items()},
                "points": len(moved),
                "still": len(mine) - len(moved),
            }
        )
        table.append(
            [
                family,
                construction,
                _seeds(mine),
                _figure(paper[0], 3),
                *(str(found[key][0]) if found[key] else "" for key in ("error_bound", "intrinsic")),
                _figure(paper[1] - 0.5, 2),
                str(found["intrinsic"][1]) if len(found["intrinsic"]) > 1 else "",
                f"{len(moved)} of {len(mine)}",
            ]
        )
        largest = max(row["nodes"] for row in mine)
        top = _where(mine, nodes=largest, size=size.size)
        others = _where(rows, family=family, nodes=largest, size=size.size)
        shown = ("updates", "error_bound", "largest_error", "random_error")
        levels.append(
            [
                family,
                construction,
                largest,
                f"{top[0]['epsilon']:g}",
                *(_mean(top, key) for key in shown),
                *(_mean(_where(others, construction=name), "largest_error") for name in ALTERNATIVES),
                _mean(top, "sums_error"),
                100 * _mean(top, "updates") / _mean(top, "promised_updates"),
            ]
        )
    epsilons = f"epsilon {size.epsilon:g}, power laws {size.power_epsilon:g}"
    output.table(
        "growth",
        f"Cuts, k = 10^6, {epsilons}: powers of V and S in the error at the updates needed",
        [
            "graphs",
            "construction",
            "seeds",
            "V: paper",
            "error bound",
            "noise law out",
            "S: paper",
            "S: noise law out",
            "points that move",
        ],
        table,
        fits=fits,
        points=rows,
        delta=DELTA,
    )
    output.table(
        "levels",
        f"The same at the largest V, S = {size.size}: figures behind the powers",
        [
            "graphs",
            "construction",
            "V",
            "epsilon",
            "updates",
            "error bound",
            "worst error",
            "random cuts",
            *ALTERNATIVES,
            "noisy sums",
            "% of the proven updates",
        ],
        levels,
    )
    return fits


#: Alternatives that are measured, not a formula.
ALTERNATIVES = ("zero answer", "noise on each cell", "randomised response")


def _figure(value: float, digits: int) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def steps(rows: list[Row], size: Size, output: Output) -> None:
    """What the choice of the step changes."""
    nodes = size.nodes[1]
    here = _where(rows, family="imbalanced", nodes=nodes, size=size.size, calibration="rdp")
    table = []
    for construction, step in itertools.product(CONSTRUCTIONS, ("projection", "paper", "full", "refit")):
        mine = _where(here, construction=construction, step=step)
        if mine:
            figures = [_mean(mine, k) for k in ("updates", "error_bound", "largest_error")]
            table.append([construction, step, len(mine), *figures])
    output.table(
        "steps",
        f"Steps: updates needed and errors, imbalanced, V = {nodes}, S = {size.size}, epsilon = {size.epsilon:g}",
        ["construction", "step", "seeds", "updates", "bound", "error"],
        table,
        points=here,
    )


def ranks(rows: list[Row], size: Size, output: Output) -> None:
    """Schatten and the group norm against FK on low-rank matrices and Gaussian queries, without noise."""
    table = []
    points: dict[str, list[tuple[tuple[int, int], float]]] = {"group": [], "schatten": []}
    for columns, rank in sorted({(row["columns"], row["rank"]) for row in rows}):
        mine = {name: _where(rows, construction=name, columns=columns, rank=rank) for name in CONSTRUCTIONS[1:]}
        if not all(mine.values()):
            continue
        for name, found in points.items():
            pairs = zip(mine["fk"], mine[name], strict=False)
            found += [((columns, rank), first["updates"] / second["updates"]) for first, second in pairs]
        fk, group, schatten = (_mean(mine[name], "updates") for name in CONSTRUCTIONS[1:])
        ratios = [fk / schatten, (fk / schatten) ** 0.25, (columns / rank) ** 0.25]
        zero = _mean(mine["fk"], "zero_error")
        table.append([f"{4 * columns} x {columns}", rank, _seeds(mine["fk"]), fk, group, schatten, *ratios, zero])
    powers = {
        name: exponents([factors for factors, _ in found], [ratio for _, ratio in found]) if len(found) > 3 else []
        for name, found in points.items()
    }
    told = powers["schatten"]
    output.table(
        "rank",
        "Low rank, Gaussian queries, no noise: updates until errors are half the zero answer's; FK's over Schatten's "
        + (f"grow as n^{told[0]} r^{told[1]} (JT12: n^1 r^-1)" if told else ""),
        [
            "matrix",
            "rank",
            "seeds",
            "FK updates",
            "group updates",
            "Schatten updates",
            "FK / Schatten",
            "ratio^(1/4)",
            "(n/r)^(1/4)",
            "an answer's size",
        ],
        table,
        fits={name: [[e.power, e.low, e.high] for e in found] for name, found in powers.items()},
        points=rows,
    )


def linears(rows: list[Row], size: Size, output: Output) -> None:
    """GRU11's table 1."""
    table, fits = [], []
    large = [row for row in rows if row["support"] == size.support]
    tiny = [row for row in rows if row["support"] == MEDIAN_SUPPORT]
    views = [
        *((name, large, size.records[1], size.cells[0]) for name in ("mw", "fk")),
        *((name, tiny, size.median_records[0], MEDIAN_CELLS[0]) for name in ("mw", "fk", "median, sampled")),
    ]
    for construction, all_rows, middle, base in views:
        mine = _moved(_where(all_rows, construction=construction))
        along = {
            "n": [(row["records"], row) for row in _where(mine, cells=base, queries=QUERIES)],
            "|X|": [(row["cells"], row) for row in _where(mine, records=middle, queries=QUERIES)],
            "ln(k/beta)": [(math.log(row["queries"] / BETA), row) for row in _where(mine, records=middle, cells=base)],
        }
        papers = TABLE_1[construction.split(",")[0]]
        for (factor, points), paper in zip(along.items(), papers, strict=True):
            if len({level for level, _ in points}) < 3:
                continue
            levels = [[level] for level, _ in points]
            error = exponents(levels, [row["error_bound"] for _, row in points])[0]
            own = exponents(levels, [row["intrinsic"] for _, row in points])[0] if factor != "ln(k/beta)" else None
            fits.append(
                {
                    "construction": construction,
                    "cells": base,
                    "factor": factor,
                    "paper": paper,
                    "error_bound": [error.power, error.low, error.high],
                    "intrinsic": own and [own.power, own.low, own.high],
                }
            )
            last = [row for level, row in points if level == max(level for level, _ in points)]
            means = [_mean(last, k) for k in ("updates", "error_bound", "largest_error")]
            seeds = min(sum(other == level for other, _ in points) for level, _ in points)
            table.append([construction, base, factor, seeds, paper, str(error), str(own) if own else "", *means])
    output.table(
        "linear",
        f"GRU11 table 1, any 0/1 linear queries, records on {size.support} cells ({MEDIAN_SUPPORT} of 32), epsilon = 1",
        [
            "construction",
            "cells",
            "of",
            "seeds",
            "paper",
            "error",
            "noise law out",
            "updates at the last",
            "bound",
            "error found",
        ],
        table,
        fits=fits,
        points=large,
    )
    small = [row for row in rows if row["support"] != size.support]
    keys = {(row["cells"], row["records"], row["queries"], row["construction"]) for row in small}
    table = []
    for cells, records, queries, name in sorted(keys):
        same = _where(small, cells=cells, records=records, queries=queries, construction=name)
        means = [_mean(same, k) for k in ("updates", "error_bound", "largest_error", "seconds")]
        table.append([f"{records:,}", cells, f"{queries:,}", name, len(same), *means])
    output.table(
        "median",
        "The median mechanism beside MW and FK on tiny universes, epsilon = 1",
        ["records", "cells", "queries", "construction", "seeds", "updates", "bound", "error found", "seconds"],
        table,
        points=small,
    )


def _contest(rows: list[Row], label: Sequence[str], nodes: Sequence[int]) -> list[list[Any]]:
    """Rows of a table of mechanisms: worst errors by V, their growth and that of the bound.

    Mechanisms that did the same (without an update all of one starting hypothesis do) share a row.
    """
    table: dict[tuple[Any, ...], list[str]] = {}
    zero = _where(rows, construction="zero answer")
    epsilons = sorted({row["epsilon"] for row in rows})
    seen = {(CALIBRATIONS.index(row["calibration"]), row["epsilon"], row["construction"]) for row in rows
            if "calibration" in row}  # fmt: skip
    for number, epsilon, construction in sorted(seen):
        calibration = CALIBRATIONS[number]
        mine = _where(rows, construction=construction, calibration=calibration, epsilon=epsilon)
        last = _where(mine, nodes=nodes[-1])
        bound = _mean(last, "error_bound")
        # The papers' bounds grow with k in another way.
        overtakes = queries_to_overtake(bound, QUERIES, BETA, epsilon, DELTA) if calibration == "rdp" else None
        used, planned = _mean(last, "used"), _mean(last, "updates")
        key = (
            *_errors(mine, zero, nodes),
            str(_power(_moved(mine), "error_bound") or ""),
            *(planned, used, bound),
            "" if overtakes is None else f"{overtakes:,}",
            *(calibration, f"{epsilon:g}", str(_seeds(mine))),
        )
        table.setdefault(key, []).append(construction)
    for name in ALTERNATIVES:
        mine = _where(rows, construction=name)
        if mine:
            key = (*_errors(mine, zero, nodes), "", None, None, None, "", "", f"{epsilons[0]:g}", str(_seeds(mine)))
            table.setdefault(key, []).append(name)
    for name, line in (("independent Gaussian", gaussian), ("independent Laplace", laplace)):
        found = line(epsilons[0], DELTA, QUERIES, BETA)
        part = found.largest / _mean(_where(zero, nodes=nodes[-1]), "largest_error")
        key = (*[found.largest] * len(nodes), None, part, "0", "0", None, None, found.bound)
        table.setdefault((*key, "", "", f"{epsilons[0]:g}", "formula"), []).append(name)
    return [[*label, ", ".join(names), *key[-3:], *key[:-3]] for key, names in table.items()]


def _errors(mine: list[Row], zero: list[Row], nodes: Sequence[int]) -> list[Any]:
    last = _where(mine, nodes=nodes[-1])
    largest = [_mean(_where(mine, nodes=count), "largest_error") for count in nodes]
    part = largest[-1] / _mean(_where(zero, nodes=nodes[-1]), "largest_error")
    return [*largest, _mean(last, "random_error"), part, str(_power(mine, "largest_error") or "")]


def _contest_columns(nodes: Sequence[int]) -> list[str]:
    return [
        "mechanism",
        "calibration",
        "epsilon",
        "seeds",
        *(f"V = {count}" for count in nodes),
        "random",
        "of zero answer",
        "V: error",
        "V: bound",
        "updates planned",
        "used",
        "error bound",
        "beats Gaussian from k",
    ]


def duels(rows: list[Row], size: Size, output: Output) -> None:
    """Sessions against the plain alternatives, on graphs."""
    for name, families in (("duel", SIZED), ("duel_powers", DUELLISTS[2:])):
        table = []
        for family, right in itertools.product(families, (None, size.size)):
            here = [row for row in _where(rows, family=family, size=right) if row.get("step") in (None, "projection")]
            if here:
                table += _contest(here, (family, "any" if right is None else f"S = {right}"), size.nodes)
        output.table(
            name,
            f"Sessions against the alternatives, k = 10^6 cuts: worst error by V; the rest at V = {size.nodes[-1]}",
            ["graphs", "cuts", *_contest_columns(size.nodes)],
            table,
            points=[
                row
                for row in rows
                if row["family"] in families and (row["size"] is None or row.get("calibration") != "rdp")
            ],
            delta=DELTA,
        )


def contests(rows: list[Row], size: Size, output: Output) -> None:
    """The same for low-rank matrices."""
    nodes = [4 * columns for columns in size.columns]
    output.table(
        "matrices",
        f"Rank one, V x V/4, under noise, the worst dense query: error by V; the rest at V = {nodes[-1]}",
        _contest_columns(nodes),
        _contest(rows, (), nodes),
        points=rows,
        delta=DELTA,
    )


def reals(rows: list[Row], output: Output) -> None:
    """What sessions make of real data."""
    shown = [
        *("error_bound", "worst_part", "random_median", "random_error", "adaptive_error", "left"),
        *("zero_error", "start_error", "gaussian_asked", "gaussian_bound"),
    ]
    counted = ("updates", "random_asked", "random_used", "chosen_asked", "chosen_used")
    table = [
        [
            row["data"],
            row["mechanism"],
            row["seeds"],
            "" if row["cells"] is None else f"{row['cells']:,.0f}",
            f"{row['mass']:,.0f}",
            *(f"{row[key]:,.0f}" for key in counted),
            row["ended"],
            *(row[key] for key in shown),
            "" if row["overtakes"] is None else f"{row['overtakes']:,.0f}",
        ]
        for row in real.over_seeds(rows)
    ]
    output.table(
        "real",
        "Real data, epsilon = 1, delta = 1e-6, k = 10^6 planned: random questions, then the worst; medians of seeds",
        [
            "data",
            "mechanism",
            "seeds",
            "cells",
            "mass",
            "updates",
            "random asked",
            "hits",
            "chosen asked",
            "hits of these",
            "ended by",
            "bound",
            "worst of all, of bound",
            "random: median",
            "random: largest",
            "chosen: largest",
            "gap left",
            "zero answer",
            "untaught",
            "Gaussian for those asked",
            "Gaussian for 10^6",
            "beats Gaussian from k",
        ],
        table,
        points=rows,
    )


Draw = Callable[[Path], None]


def tables(section: str, rows: list[Row], size: Size, output: Output) -> dict[str, Draw]:
    """Print and write a section's tables; its plots."""
    if section == "cuts":
        predictions(size, output)
        fits = growths(rows, size, output)
        steps(rows, size, output)
        duels(rows, size, output)
        return {
            "growth": lambda path: plot.growth(rows, fits, size.size, path),
            "exponents": lambda path: plot.powers(fits, path),
            "duel": lambda path: plot.duel([row for row in rows if row["family"] in SIZED], size.size, path),
        }
    if section == "rank":
        silent, noisy = ([row for row in rows if ("nodes" in row) is told] for told in (False, True))
        ranks(silent, size, output)
        contests(noisy, size, output)
        return {"rank": lambda path: plot.ranks(silent, path)}
    if section == "linear":
        linears(rows, size, output)
        large = [row for row in rows if row["support"] == size.support]
        return {"linear": lambda path: plot.linear(large, size.records[1], size.cells[0], BETA, path)}
    reals(rows, output)
    return {"real": lambda path: plot.real(real.over_seeds(rows), path)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.research.applications", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="everything in small, in a minute; writes nothing")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of real data (default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="go no further after so long (default: %(default)s)"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="folder of what is measured: a later run goes on from there")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="default: %(default)s")
    asked = parser.parse_args(arguments)
    size = QUICK if asked.quick else FULL
    output = Output(None, None) if asked.quick else Output(RESULTS, IMAGES)
    until = time.time() + 60 * asked.minutes
    todo = tasks(size, asked.data)
    for section in asked.sections.split(","):
        started = time.time()
        rows = measure([task for task in todo if task.section == section], until, asked.workers, asked.keep)
        if rows is None:
            raise SystemExit(f"{section}: not done within {asked.minutes:g} minutes; its tables are as they were")
        if not rows:
            continue
        for name, draw in tables(section, rows, size, output).items():
            if output.images is not None:
                output.images.mkdir(parents=True, exist_ok=True)
                draw(output.images / f"applications_{name}")
        broken = sum(map(_broken, rows))
        print(f"{section}: {(time.time() - started) / 60:.1f} minutes; {broken} bounds broken", flush=True)


def _broken(row: Row) -> bool:
    """Whether some answer of a session was further off than the session's error bound."""
    bound = row.get("error_bound")
    if bound is None or "updates" not in row:
        return False
    return any(row.get(key, 0.0) > bound for key in ("largest_error", "random_error", "adaptive_error"))


if __name__ == "__main__":
    main()
