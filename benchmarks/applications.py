"""The papers' applications, measured: do the errors grow as JT12 and GRU11 say, and is a session better than noise?

`python -m benchmarks.applications` runs everything (about ten minutes on two cores), `--quick` the same in small and
writes nothing. Real data is taken from `--data DIR` where it is there. Tables go to benchmarks/results, plots to
docs/img; docs/applications.md explains them.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from app.demo.baseline import queries_to_overtake
from app.privacy.ledger import GREATEST_EPSILON
from benchmarks import applications_plots as plot
from benchmarks import applications_real as real
from benchmarks.applications_data import DELTA
from benchmarks.applications_measure import (
    FAMILIES,
    Row,
    duel,
    gaussian_queries,
    growth,
    linear_queries,
    plain,
)
from benchmarks.applications_play import Terms
from benchmarks.applications_theory import (
    IMBALANCED,
    PROMISES,
    TABLE_1,
    Degrees,
    Exponent,
    exponents,
    group_overtakes,
    least_epsilon,
    power_law,
    root_law,
)
from benchmarks.harness import RESULTS, report

IMAGES = Path(__file__).parents[1] / "docs" / "img"
DATA = Path(__file__).parents[2] / "shared" / "data"
CONSTRUCTIONS = ("mw", "fk", "group")
BETA = 0.05


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    nodes: tuple[int, ...]
    seeds: int
    sizes: tuple[int, ...]
    size: int
    epsilon: float
    power_epsilon: float
    betas: tuple[float, ...]
    columns: tuple[int, ...]
    ranks: tuple[int, ...]
    records: tuple[int, ...]
    cells: tuple[int, ...]
    support: int
    queries: tuple[int, ...]
    median_records: tuple[int, ...]
    duel_nodes: int
    duel_seeds: int
    real: tuple[str, ...]
    real_asks: int


FULL = Size(
    nodes=(64, 128, 256, 512),
    seeds=5,
    sizes=(8, 32),
    size=16,
    epsilon=10.0,
    power_epsilon=30.0,
    betas=(1.1, 1.2, 1.3, 1.4),
    columns=(16, 24, 32, 48),
    ranks=(1, 2, 4),
    records=(8_192, 32_768, 131_072, 524_288),
    cells=(2_048, 8_192, 32_768),
    support=1_024,
    queries=(10**3, 10**6, 10**9),
    median_records=(8_192, 32_768, 131_072),
    duel_nodes=512,
    duel_seeds=2,
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
    betas=(1.2,),
    columns=(6, 8),
    ranks=(1, 2),
    records=(8_192, 32_768),
    cells=(512, 1_024),
    support=256,
    queries=(10**3, 10**6),
    median_records=(8_192,),
    duel_nodes=48,
    duel_seeds=1,
    real=("dpbench HEPTH",),
    real_asks=10,
)


@dataclass(frozen=True)
class Task:
    """Measurements that a process makes on its own, and about how many seconds they take."""

    section: str
    work: Callable[..., Iterator[Row]]
    arguments: tuple[Any, ...]
    cost: float = 1.0


def run(task: Task, until: float) -> tuple[list[Row], float]:
    """The rows of a task that are begun before the clock says ``until``, and the seconds of a core that they took."""
    rows: list[Row] = []
    started = time.process_time()
    if time.time() < until:
        for row in task.work(*task.arguments):
            rows.append(row)
            if time.time() > until:
                break
    return rows, time.process_time() - started


def tasks(size: Size, data: Path) -> list[Task]:
    """All that is to be measured."""
    terms, power_terms = Terms(size.epsilon, 10**6), Terms(size.power_epsilon, 10**6)
    found: list[Task] = []

    def add(section: str, cost: float, work: Callable[..., Iterator[Row]], *arguments: Any) -> None:
        found.append(Task(section, work, arguments, cost))

    for name in CONSTRUCTIONS:
        add("growth", 60, growth, "imbalanced", size.size, name, size.nodes, size.seeds, terms)
        for other in size.sizes:
            add("growth", 8, growth, "imbalanced", other, name, size.nodes[:-1], size.seeds, terms)
        for family in ("imbalanced, S alone", "imbalanced, S alone, nested"):
            add("growth", 15, growth, family, size.size, name, size.nodes, min(2, size.seeds), terms)
        for beta in size.betas:
            arguments = (f"power law {beta}", size.size, name, size.nodes, size.seeds, power_terms)
            add("growth", 40, growth, *arguments, "projection", min(2, size.seeds))
        for step in ("paper", "full", "refit"):
            add("steps", 5, growth, "imbalanced", size.size, name, size.nodes[1:2], min(3, size.seeds), terms, step)
    for name, columns, rank in itertools.product(("fk", "schatten"), size.columns, size.ranks):
        seeds = size.seeds if columns <= 32 else min(2, size.seeds)
        add("rank", columns**2 / 100, gaussian_queries, name, columns, rank, seeds, 0.5)
    middle, base = size.records[1], size.cells[0]
    varied = {(records, base, 10**6) for records in size.records}
    varied |= {(middle, cells, 10**6) for cells in size.cells} | {(middle, base, k) for k in size.queries}
    for name, (records, cells, queries) in itertools.product(("mw", "fk"), sorted(varied)):
        add("linear", cells / 2000, linear_queries, name, records, cells, size.support, queries, size.seeds, 1.0)
    for name in ("mw", "fk", "median, sampled"):
        for records in size.median_records:
            add("median", 20, linear_queries, name, records, 32, 16, 10**6, min(3, size.seeds), 1.0)
    for name in ("mw", "fk", "median, sampled", "median"):
        add("median", 2, linear_queries, name, 1_000, 4, 2, 16, size.seeds, 1.0)
    for right in (None, size.size):
        for name, calibration in itertools.product(("mw", "fk", "group", "schatten"), ("rdp", "jt2012", "gru2011")):
            seeds = size.duel_seeds if calibration == "rdp" else 1
            cost = 50 if right is None and calibration == "rdp" else 3
            add("duel", cost, duel, "imbalanced", size.duel_nodes, right, name, calibration, seeds, 1.0, 10**6)
        add("duel", 3, plain, "imbalanced", size.duel_nodes, right, size.duel_seeds, 1.0, 10**6)
    for source in size.real:
        for mechanism in real.SOURCES[source].mechanisms:
            add("real", 30, real.trial, source, mechanism, str(data), 1.0, 10**6, real.MOST, size.real_asks)
    add("real", 5, real.words, str(data), 1.0, 10**6, real.MOST, size.real_asks)
    return found


@dataclass
class Measured:
    """Rows by section, tasks that the time did not suffice for, and seconds of a core by section."""

    rows: dict[str, list[Row]]
    left_out: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def measure(todo: Sequence[Task], minutes: float, workers: int) -> Measured:
    """Run the tasks, long ones first."""
    until = time.time() + 60 * minutes
    # One thread each: as many processes as cores do the work. Set before the workers import NumPy.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    found = Measured({})
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(run, task, until): task for task in sorted(todo, key=lambda task: -task.cost)}
        for done in as_completed(futures):
            task, (rows, seconds) = futures[done], done.result()
            # Real data that is not there is left out in no time, and in good time.
            found.left_out += not rows and time.time() > until
            if rows:
                found.rows.setdefault(task.section, []).extend(rows)
            found.seconds[task.section] = found.seconds.get(task.section, 0.0) + seconds
    return found


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
        for construction in CONSTRUCTIONS:
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


def growths(rows: list[Row], size: Size, output: Output) -> list[Row]:
    """How measured errors grow, beside the papers' powers at a fixed number of queries."""
    table, levels, fits = [], [], []
    papers = {"imbalanced": IMBALANCED, **{f"power law {beta}": power_law(beta) for beta in size.betas}}
    for family, construction in itertools.product(FAMILIES, CONSTRUCTIONS):
        mine = [row for row in rows if row["family"] == family and row["construction"] == construction]
        if not mine:
            continue
        # Where no query ever passes the threshold, nothing was needed that could grow.
        moved = [row for row in mine if row.get("updates", 0) > 1]
        paper = papers.get(family, IMBALANCED)[construction]
        several = len({row["size"] for row in moved}) > 1
        factors = [(row["nodes"], row["size"]) if several else (row["nodes"],) for row in moved]
        found = {
            key: exponents(factors, [row[key] for row in moved]) if len(moved) > 3 else []
            for key in ("error_bound", "intrinsic")
        }
        doubled = [
            _mean([row for row in moved if (row["nodes"], row["size"]) == (nodes, size.size)], "intrinsic")
            for nodes in size.nodes[-2:]
        ]
        last = math.log2(doubled[1] / doubled[0])
        fits.append(
            {
                "family": family,
                "construction": construction,
                "paper": paper[0],
                "paper_size": paper[1] - 0.5,
                "fits": {k: [[e.power, e.low, e.high] for e in v] for k, v in found.items()},
                "last_doubling": last,
                "points": len(moved),
                "still": len(mine) - len(moved),
            }
        )
        table.append(
            [
                family,
                construction,
                f"{paper[0]:.3f}",
                *(str(found[key][0]) if found[key] else "" for key in ("error_bound", "intrinsic")),
                last,
                f"{paper[1] - 0.5:.2f}",
                str(found["intrinsic"][1]) if len(found["intrinsic"]) > 1 else "",
                f"{len(moved)} of {len(mine)}",
            ]
        )
        top = [row for row in mine if row["nodes"] == size.nodes[-1] and row["size"] == size.size]
        shown = ("updates", "error_bound", "largest_error", "zero_error", "sums_error")
        proven = 100 * _mean(top, "updates") / _mean(top, "promised_updates")
        levels.append([family, construction, *(_mean(top, key) for key in shown), proven])
    epsilons = f"epsilon {size.epsilon:g}, power law {size.power_epsilon:g}"
    output.table(
        "growth",
        f"Cuts, k = 10^6, {epsilons}: powers of V and S in the error at the updates needed",
        [
            "graphs",
            "construction",
            "V: paper",
            "error bound",
            "noise law out",
            f"{size.nodes[-2]} to {size.nodes[-1]}",
            "S: paper",
            "noise law out",
            "points that move",
        ],
        table,
        fits=fits,
        points=rows,
        delta=DELTA,
    )
    output.table(
        "levels",
        f"The same at V = {size.nodes[-1]}, S = {size.size}: figures behind the powers",
        [
            "graphs",
            "construction",
            "updates",
            "error bound",
            "worst error",
            "zero answer",
            "noisy sums",
            "% of the proven updates",
        ],
        levels,
    )
    return fits


def steps(rows: list[Row], grown: list[Row], size: Size, output: Output) -> None:
    """What the choice of the step changes."""
    nodes = size.nodes[1]
    same = [
        row
        for row in grown
        if (row["family"], row["nodes"], row["size"]) == ("imbalanced", nodes, size.size) and row["seed"] < 3
    ]
    table = []
    for construction in CONSTRUCTIONS:
        for step in ("projection", "paper", "full", "refit"):
            mine = [row for row in same + rows if (row["construction"], row["step"]) == (construction, step)]
            if mine:
                table.append(
                    [construction, step, *(_mean(mine, k) for k in ("updates", "error_bound", "largest_error"))]
                )
    output.table(
        "steps",
        f"Steps: updates needed and errors, imbalanced, V = {nodes}, S = {size.size}, epsilon = {size.epsilon:g}",
        ["construction", "step", "updates", "bound", "error"],
        table,
        points=rows,
    )


def ranks(rows: list[Row], output: Output) -> None:
    """Schatten against FK on low-rank matrices and Gaussian queries."""
    by: dict[tuple[int, int], dict[str, list[Row]]] = {}
    for row in rows:
        by.setdefault((row["columns"], row["rank"]), {}).setdefault(row["construction"], []).append(row)
    table, factors, ratios = [], [], []
    for (columns, rank), mine in sorted(by.items()):
        if len(mine) < 2:
            continue
        fk, schatten = (_mean(mine[name], "updates") for name in ("fk", "schatten"))
        seeds = zip(mine["fk"], mine["schatten"], strict=False)
        pairs = [first["updates"] / second["updates"] for first, second in seeds]
        factors += [(columns, rank)] * len(pairs)
        ratios += pairs
        table.append(
            [
                f"{4 * columns} x {columns}",
                rank,
                fk,
                schatten,
                fk / schatten,
                (fk / schatten) ** 0.25,
                (columns / rank) ** 0.25,
                _mean(mine["fk"], "zero_error"),
                _mean(mine["fk"], "threshold_at_1"),
            ]
        )
    power = exponents(factors, ratios) if len(ratios) > 3 else []
    output.table(
        "rank",
        "Low rank, Gaussian queries, no noise: updates until errors are half the zero answer's; their ratio grows as "
        + (f"n^{power[0]} r^{power[1]} (JT12: n^1 r^-1)" if power else ""),
        [
            "matrix",
            "rank",
            "FK updates",
            "Schatten updates",
            "ratio",
            "ratio^(1/4)",
            "(n/r)^(1/4)",
            "an answer's size",
            "T at epsilon 1",
        ],
        table,
        fits=[[e.power, e.low, e.high] for e in power],
        points=rows,
    )


def linears(rows: list[Row], median: list[Row], size: Size, output: Output) -> None:
    """GRU11's table 1."""
    table, fits = [], []
    middle, base = size.records[1], size.cells[0]
    for construction in ("mw", "fk"):
        mine = [row for row in rows if row["construction"] == construction and row.get("updates", 0) > 1]
        cuts = {
            "n": [(row["records"], row) for row in mine if (row["cells"], row["queries"]) == (base, 10**6)],
            "|X|": [(row["cells"], row) for row in mine if (row["records"], row["queries"]) == (middle, 10**6)],
            "ln(k/beta)": [
                (math.log(row["queries"] / BETA), row)
                for row in mine
                if (row["records"], row["cells"]) == (middle, base)
            ],
        }
        for (factor, points), paper in zip(cuts.items(), TABLE_1[construction], strict=True):
            if len(points) < 3:
                continue
            levels = [[level] for level, _ in points]
            error = exponents(levels, [row["error_bound"] for _, row in points])[0]
            own = exponents(levels, [row["intrinsic"] for _, row in points])[0] if factor != "ln(k/beta)" else None
            fits.append(
                {
                    "construction": construction,
                    "factor": factor,
                    "paper": paper,
                    "error_bound": [error.power, error.low, error.high],
                    "intrinsic": own and [own.power, own.low, own.high],
                }
            )
            last = [row for level, row in points if level == max(level for level, _ in points)]
            means = [_mean(last, k) for k in ("updates", "error_bound", "largest_error")]
            table.append([construction, factor, paper, str(error), str(own) if own else "", *means])
    output.table(
        "linear",
        f"GRU11 table 1, any 0/1 linear queries, records on {size.support} cells, epsilon = 1: powers",
        ["construction", "of", "paper", "error", "noise law out", "updates at the last", "bound", "error found"],
        table,
        fits=fits,
        points=rows,
    )
    table = []
    for row in sorted(
        {(row["records"], row["cells"], row["queries"], row["construction"]) for row in median},
        key=lambda key: (key[1], key[0], key[3]),
    ):
        same = [r for r in median if (r["records"], r["cells"], r["queries"], r["construction"]) == row]
        means = [_mean(same, k) for k in ("updates", "error_bound", "largest_error", "seconds")]
        table.append([f"{row[0]:,}", row[1], f"{row[2]:,}", row[3], *means])
    output.table(
        "median",
        "The median mechanism beside MW and FK on tiny universes, epsilon = 1",
        ["records", "cells", "queries", "construction", "updates", "bound", "error found", "seconds"],
        table,
        points=median,
    )


def duels(rows: list[Row], size: Size, output: Output) -> None:
    """Sessions against the plain alternatives."""
    table = []
    for right in (None, size.size):
        here = [row for row in rows if row["size"] == right]
        zero = _mean([row for row in here if row["construction"] == "zero answer"], "largest_error")
        seen: list[tuple[str, str]] = []
        for row in here:
            key = (row["construction"], row.get("calibration", ""))
            if key not in seen:
                seen.append(key)
        for construction, calibration in sorted(seen, key=lambda key: (key[1] != "rdp", key[1], key[0])):
            mine = [r for r in here if (r["construction"], r.get("calibration", "")) == (construction, calibration)]
            bound, queries = _mean(mine, "error_bound"), mine[0].get("queries", 0)
            overtake = None
            if calibration and not math.isnan(bound):
                overtake = queries_to_overtake(bound, queries, BETA, 1.0, DELTA)
            table.append(
                [
                    "any" if right is None else f"S = {right}",
                    construction,
                    calibration,
                    *(_mean(mine, k) for k in ("updates", "used", "error_bound", "largest_error", "random_error")),
                    _mean(mine, "largest_error") / zero,
                    "" if overtake is None else f"{overtake:,}",
                ]
            )
    output.table(
        "duel",
        f"Imbalanced graph, V = {size.duel_nodes}, epsilon = 1, k = 10^6 cuts: sessions against the alternatives",
        [
            "cuts",
            "mechanism",
            "calibration",
            "updates planned",
            "used",
            "error bound",
            "worst error",
            "random cuts",
            "of zero answer",
            "beats Gaussian from k",
        ],
        table,
        points=rows,
        epsilon=1.0,
        delta=DELTA,
    )


def reals(rows: list[Row], output: Output) -> None:
    """What sessions make of real data."""
    names = [*real.SOURCES, "afwiki words"]
    table = [
        [
            row["data"],
            row["mechanism"],
            "" if row["cells"] is None else f"{row['cells']:,}",
            f"{row['mass']:,.0f}",
            row["updates"],
            row["used"],
            row["asked"],
            row["error_bound"],
            row["random_median"],
            row["random_error"],
            row["adaptive_error"],
            row["left"],
            row["zero_error"],
            row["start_error"],
            row["gaussian_bound"],
        ]
        for row in sorted(rows, key=lambda row: names.index(row["data"]))
    ]
    output.table(
        "real",
        "Real data, epsilon = 1, delta = 1e-6, k = 10^6 planned: random queries, then the worst that are found",
        [
            "data",
            "mechanism",
            "cells",
            "mass",
            "updates",
            "used",
            "asked",
            "bound",
            "random: median",
            "largest",
            "chosen: largest",
            "gap left",
            "zero answer",
            "untaught",
            "Gaussian bound",
        ],
        table,
        points=rows,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.applications", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="everything in small, in half a minute; writes nothing")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of real data (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=12.0, help="begin nothing after so long")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--sections", help="comma-separated: growth, steps, rank, linear, median, duel, real")
    asked = parser.parse_args(arguments)
    size = QUICK if asked.quick else FULL
    output = Output(None, None) if asked.quick else Output(RESULTS, IMAGES)
    wanted = asked.sections.split(",") if asked.sections else None
    started = time.time()
    if wanted is None or "growth" in wanted:
        predictions(size, output)
    todo = [task for task in tasks(size, asked.data) if wanted is None or task.section in wanted]
    measured = measure(todo, asked.minutes, asked.workers)
    rows = measured.rows
    plots: list[tuple[str, Callable[[Path], None]]] = []
    if "growth" in rows:
        fits = growths(rows["growth"], size, output)
        plots.append(("growth", lambda path: plot.growth(rows["growth"], fits, size.size, path)))
        plots.append(("exponents", lambda path: plot.powers(fits, path)))
    if "steps" in rows:
        steps(rows["steps"], rows.get("growth", []), size, output)
    if "rank" in rows:
        ranks(rows["rank"], output)
        plots.append(("rank", lambda path: plot.ranks(rows["rank"], path)))
    if "linear" in rows:
        linears(rows["linear"], rows.get("median", []), size, output)
        plots.append(("linear", lambda path: plot.linear(rows["linear"], size.records[1], size.cells[0], BETA, path)))
    if "duel" in rows:
        duels(rows["duel"], size, output)
        plots.append(("duel", lambda path: plot.duel(rows["duel"], path)))
    if rows.get("real"):
        reals(rows["real"], output)
        plots.append(("real", lambda path: plot.real(rows["real"], path)))
    if output.images is not None:
        output.images.mkdir(parents=True, exist_ok=True)
        for name, draw in plots:
            draw(output.images / f"applications_{name}")
    broken = [row for part in rows.values() for row in part if _broken(row)]
    spent = ", ".join(f"{section} {seconds:.0f}" for section, seconds in measured.seconds.items())
    print(f"{(time.time() - started) / 60:.1f} minutes; seconds of a core: {spent}")
    print(f"{measured.left_out} of {len(todo)} tasks left out; {len(broken)} bounds broken")


def _broken(row: Row) -> bool:
    """Whether some answer of a session was further off than the session's error bound."""
    bound = row.get("error_bound")
    if bound is None or "updates" not in row:
        return False
    return any(row.get(key, 0.0) > bound for key in ("largest_error", "random_error", "adaptive_error"))


if __name__ == "__main__":
    main()
