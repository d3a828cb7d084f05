"""Plots of the applications, each as PNG and SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.research.applications_data import DELTA
from benchmarks.research.applications_theory import gaussian

Row = dict[str, Any]

#: Okabe and Ito's colours, which most eyes tell apart.
COLOURS = {
    "mw": "#0072B2",
    "fk": "#D55E00",
    "group": "#009E73",
    "group, columns": "#009E73",
    "schatten": "#CC79A7",
    "median, sampled": "#E69F00",
    "smw": "#0072B2",
}
NAMES = {"mw": "MW", "fk": "FK", "group": "group norm", "schatten": "Schatten", "smw": "sparse MW"}
GREY = "#767676"
TITLES = {
    "imbalanced": "imbalanced, any left side",
    "imbalanced, S alone, nested": "imbalanced and nested, left side all",
    "power law 1.2": "power law 1.2, any left side",
}


def _save(figure: Figure, path: Path) -> None:
    """Both files; the SVG carries no date and no random names."""
    with mpl.rc_context({"svg.hashsalt": "curator", "svg.fonttype": "none"}):
        figure.savefig(path.with_suffix(".png"), dpi=110)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    # Matplotlib ends some lines of paths with a blank.
    svg = path.with_suffix(".svg")
    svg.write_text("\n".join(line.rstrip() for line in svg.read_text().splitlines()) + "\n")
    plt.close(figure)


def _figure(columns: int, width: float, height: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
    found = [ax for line in axes for ax in line]
    for ax in found:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(visible=True, which="major", color="#e5e5e5", linewidth=0.7)
        ax.set_axisbelow(True)
    return figure, found


def _plain_ticks(ax: Axes, values: Sequence[float], axis: str = "x") -> None:
    chosen = ax.xaxis if axis == "x" else ax.yaxis
    chosen.set_major_locator(mpl.ticker.FixedLocator(list(values)))
    chosen.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    chosen.set_minor_locator(mpl.ticker.NullLocator())


def _points(
    ax: Axes, rows: Sequence[Row], x: Callable[[Row], float], key: str, **style: Any
) -> list[tuple[float, float]]:
    """Means with their range over seeds."""
    by: dict[float, list[float]] = {}
    for row in rows:
        if row.get(key) is not None:
            by.setdefault(x(row), []).append(row[key])
    levels = sorted(by)
    means = [float(np.mean(by[level])) for level in levels]
    # The mean of equal figures may be rounded past them.
    spans = [[max(0.0, m - min(by[level])) for m, level in zip(means, levels, strict=True)],
             [max(0.0, max(by[level]) - m) for m, level in zip(means, levels, strict=True)]]  # fmt: skip
    ax.errorbar(levels, means, yerr=spans, capsize=2.5, **style)
    return list(zip(levels, means, strict=True))


def growth(rows: list[Row], fits: list[Row], size: int, path: Path) -> None:
    """Error at the updates needed, by V, with the papers' slopes through the last point."""
    families = ["imbalanced", "imbalanced, S alone, nested", "power law 1.2"]
    families = [family for family in families if any(row["family"] == family for row in rows)]
    figure, axes = _figure(len(families), 4.1 * len(families), 4.0)
    papers = {(fit["family"], fit["construction"]): fit["paper"] for fit in fits}
    for ax, family in zip(axes, families, strict=True):
        here = [row for row in rows if row["family"] == family and row["size"] == size and _own(row)]
        nodes = sorted({row["nodes"] for row in here})
        zero = [row for row in here if row["construction"] == "zero answer"]
        _points(ax, zero, lambda row: row["nodes"], "largest_error", label="zero answer", color=GREY, linestyle=":")
        for construction in ("mw", "fk", "group", "schatten"):
            mine = [row for row in here if row["construction"] == construction and row.get("updates", 0) > 1]
            if not mine:
                continue
            colour = COLOURS[construction]
            style = {"color": colour, "marker": "o", "markersize": 4.5, "linewidth": 1.5}
            means = _points(ax, mine, lambda row: row["nodes"], "error_bound", label=NAMES[construction], **style)
            last, error = means[-1]
            paper = papers[family, construction]
            if math.isnan(paper):
                continue
            slope = [error * (n / last) ** paper for n in nodes]
            ax.plot(nodes, slope, color=colour, linewidth=0.9, linestyle="--", alpha=0.8)
        ax.set_xscale("log")
        ax.set_yscale("log")
        _plain_ticks(ax, nodes)
        ax.set_title(TITLES[family], fontsize=10)
        ax.set_xlabel("V")
    axes[0].set_ylabel("error bound at the updates needed (edges)")
    axes[0].plot([], [], color="black", linewidth=0.9, linestyle="--", label="the paper's slope")
    axes[0].legend(frameon=False, fontsize=8.5)
    _save(figure, path)


def _own(row: Row) -> bool:
    """Whether a row is of this project's accounting and default step, or of an alternative."""
    return (row.get("calibration", "rdp"), row.get("step", "projection")) == ("rdp", "projection")


def powers(fits: list[Row], path: Path) -> None:
    """Measured powers of V with confidence intervals, beside the papers'."""
    shown = [fit for fit in fits if fit["fits"]["error_bound"] and "S alone" not in fit["family"]]
    if not shown:
        return
    figure, (ax,) = _figure(1, 7.0, 0.3 * len(shown) + 1.6)
    labels = []
    for place, fit in enumerate(reversed(shown)):
        colour = COLOURS[fit["construction"]]
        for key, shift, marker, face in (("error_bound", 0.14, "o", "white"), ("intrinsic", -0.14, "o", colour)):
            power, low, high = fit["fits"][key][0]
            ax.errorbar(
                power,
                place + shift,
                xerr=[[power - low], [high - power]],
                color=colour,
                marker=marker,
                markerfacecolor=face,
                markersize=5,
                capsize=2,
                linewidth=1.2,
            )
        ax.plot(fit["paper"], place, marker="|", color="black", markersize=13, markeredgewidth=2)
        labels.append(f"{fit['family']}, {NAMES[fit['construction']]}")
    ax.set_yticks(range(len(labels)), labels, fontsize=8.5)
    ax.set_xlabel("power of V")
    ax.plot([], [], "|", color="black", markersize=11, markeredgewidth=2, label="paper")
    ax.plot([], [], "o", color=GREY, markerfacecolor="white", label="error bound, measured")
    ax.plot([], [], "o", color=GREY, label="the same, noise law taken out")
    figure.legend(frameon=False, fontsize=8.5, ncols=3, loc="outside upper center")
    _save(figure, path)


def ranks(rows: list[Row], path: Path) -> None:
    """Updates of FK and Schatten by n, and their ratio by n/r."""
    figure, (left, right) = _figure(2, 8.6, 3.9)
    columns = sorted({row["columns"] for row in rows})
    ranks = sorted({row["rank"] for row in rows})
    lines = ["-", "--", ":"]
    for construction in ("fk", "group", "schatten"):
        for rank, line in zip(ranks, lines, strict=False):
            mine = [row for row in rows if (row["construction"], row["rank"]) == (construction, rank)]
            if mine:
                label = f"{NAMES[construction]}, rank {rank}"
                style = {"color": COLOURS[construction], "linestyle": line, "marker": "o", "markersize": 4}
                _points(left, mine, lambda row: row["columns"], "updates", label=label, **style)
    for rank, marker in zip(ranks, "o^s", strict=False):
        points = []
        for n in columns:
            means = [
                np.mean(
                    [r["updates"] for r in rows if (r["construction"], r["columns"], r["rank"]) == (name, n, rank)]
                    or [math.nan]
                )
                for name in ("fk", "schatten")
            ]
            points.append((n / rank, means[0] / means[1]))
        right.plot(
            *zip(*points, strict=True), marker=marker, linestyle="", color=COLOURS["schatten"], label=f"rank {rank}"
        )
    ends = np.array([min(columns) / max(ranks), max(columns) / min(ranks)])
    top = max(line.get_ydata().max() for line in right.get_lines())  # type: ignore[union-attr]
    right.plot(ends, top * ends / ends[-1], color="black", linewidth=0.9, linestyle="--", label="slope 1")
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_yscale("log")
    _plain_ticks(left, columns)
    _plain_ticks(right, [4, 8, 16, 32, 64])
    _plain_ticks(right, [1, 2, 4, 8], "y")
    left.set_xlabel("n (matrices 4n x n)")
    left.set_ylabel("updates to halve the error")
    right.set_xlabel("n / r")
    right.set_ylabel("FK's updates / Schatten's")
    left.legend(frameon=False, fontsize=7.5, loc="upper left")
    left.set_ylim(top=4 * left.get_ylim()[1])
    right.legend(frameon=False, fontsize=8)
    _save(figure, path)


def linear(rows: list[Row], records: int, cells: int, beta: float, path: Path) -> None:
    """Errors of 0/1 linear queries by n, |X| and ln(k/beta), with the slopes of GRU11 table 1."""
    figure, axes = _figure(3, 11.0, 3.8)
    slopes = {"mw": (0.5, 0.0, 0.5), "fk": (0.5, 0.25, 0.5)}
    views: list[tuple[str, Callable[[Row], bool], Callable[[Row], float]]] = [
        ("n", lambda r: (r["cells"], r["queries"]) == (cells, 10**6), lambda r: float(r["records"])),
        ("|X|", lambda r: (r["records"], r["queries"]) == (records, 10**6), lambda r: float(r["cells"])),
        (
            "ln(k/\u03b2)",
            lambda r: (r["records"], r["cells"]) == (records, cells),
            lambda r: math.log(r["queries"] / beta),
        ),
    ]
    for number, (ax, (name, chosen, x)) in enumerate(zip(axes, views, strict=True)):
        for construction, slope in slopes.items():
            mine = [r for r in rows if r["construction"] == construction and r.get("updates", 0) > 1 and chosen(r)]
            if not mine:
                continue
            colour = COLOURS[construction]
            style = {"color": colour, "marker": "o", "markersize": 4.5, "linewidth": 1.5}
            means = _points(ax, mine, x, "error_bound", label=NAMES[construction], **style)
            last, error = means[-1]
            guide = [error * (level / last) ** slope[number] for level, _ in means]
            ax.plot([level for level, _ in means], guide, color=colour, linewidth=0.9, linestyle="--", alpha=0.8)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel(name)
        levels = sorted({x(r) for r in rows if chosen(r)})
        _plain_ticks(ax, levels)
    axes[0].set_ylabel("error bound at the updates needed (records)")
    axes[0].plot([], [], color="black", linewidth=0.9, linestyle="--", label="the paper's slope")
    axes[0].legend(frameon=False, fontsize=8.5)
    _save(figure, path)


def duel(rows: list[Row], size: int, path: Path) -> None:
    """Worst errors by V, of sessions, of the papers' calibrations and of the alternatives; Gaussian's as a line."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    views = [(family, right) for right in (None, size) for family in families]
    figure, axes = _figure(len(families), 4.6 * len(families), 7.6, rows=2)
    for ax, (family, right) in zip(axes, views, strict=True):
        here = [row for row in rows if (row["family"], row["size"]) == (family, right) and _shown(row)]
        nodes = sorted({row["nodes"] for row in here})
        epsilon = min(row["epsilon"] for row in here)
        here = [row for row in here if row["epsilon"] == epsilon]
        keys = dict.fromkeys((row["construction"], row.get("calibration", "")) for row in here)
        for construction, calibration in keys:
            mine = [r for r in here if (r["construction"], r.get("calibration", "")) == (construction, calibration)]
            if construction in PLAIN:
                style: dict[str, Any] = {"color": GREY, "linestyle": PLAIN[construction], "marker": "."}
            else:
                solid = calibration == "rdp"
                style = {
                    "color": COLOURS[construction],
                    "linestyle": "-" if solid else "-.",
                    "marker": "o" if solid else "x",
                }
            label = f"{NAMES.get(construction, construction)}{', papers' if calibration not in ('', 'rdp') else ''}"
            _points(
                ax, mine, lambda row: row["nodes"], "largest_error", label=label, markersize=4, linewidth=1.3, **style
            )
        ax.axhline(gaussian(epsilon, DELTA, 10**6, 0.05).largest, color="black", linewidth=0.9, label="Gaussian")
        ax.set_xscale("log")
        ax.set_yscale("log")
        _plain_ticks(ax, nodes)
        cuts = "any cuts" if right is None else f"S = {right}"
        # Randomised response at a large epsilon tells the truth: below one edge there is nothing to see.
        ax.set_ylim(bottom=max(1.0, ax.get_ylim()[0]))
        ax.set_title(f"{family}, {cuts}, epsilon = {epsilon:g}", fontsize=10)
        ax.set_xlabel("V")
        ax.set_ylabel("worst error (edges)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8.5, ncols=5, loc="outside upper center")
    _save(figure, path)


#: Lines of the alternatives.
PLAIN = {"zero answer": ":", "noise on each cell": (0, (5, 1)), "randomised response": (0, (3, 1, 1, 1))}


def _shown(row: Row) -> bool:
    """Of the papers' calibrations two stand for all: where nothing moves there is no other difference."""
    calibration = row.get("calibration", "rdp")
    return row.get("step", "projection") == "projection" and (
        calibration == "rdp" or (calibration == "jt2012" and row["construction"] in ("mw", "fk"))
    )


def real(rows: list[Row], path: Path) -> None:
    """Errors on real data: before learning, promised, found on chosen queries, median of random ones."""
    figure, (ax,) = _figure(1, 8.6, 0.3 * len(rows) + 1.5)
    ordered = sorted(rows, key=lambda row: (row["data"], row["mechanism"]), reverse=True)
    marks = (
        ("start_error", "s", "white", "untaught hypothesis"),
        ("error_bound", "o", "white", "error bound"),
        ("adaptive_error", "o", None, "worst answer to a chosen query"),
        ("random_median", "|", None, "median error of random queries"),
    )
    for place, row in enumerate(ordered):
        colour = COLOURS.get(row["mechanism"].split(",")[0], GREY)
        for key, marker, face, _ in marks:
            ax.plot(
                row[key],
                place,
                marker,
                color=colour,
                markerfacecolor=face or colour,
                markersize=6 if marker != "|" else 11,
            )
    labels = [f"{row['data']}, {NAMES.get(row['mechanism'], row['mechanism'])}" for row in ordered]
    ax.set_yticks(range(len(ordered)), labels, fontsize=8.5)
    ax.axvline(rows[0]["gaussian_bound"], color=GREY, linewidth=1, linestyle=":", label="independent Gaussian's bound")
    for _, marker, face, name in marks:
        ax.plot([], [], marker, color=GREY, markerfacecolor=face or GREY, label=name)
    ax.set_xscale("log")
    ax.set_xlabel("error (records, edges, words)")
    figure.legend(frameon=False, fontsize=8.5, ncols=3, loc="outside upper center")
    _save(figure, path)
