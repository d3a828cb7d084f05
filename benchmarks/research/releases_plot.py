"""The picture of docs/releases.md: root mean square errors over n, by method and epsilon, one panel a table.

Run `python -m benchmarks.research.releases_plot`. It draws what `benchmarks/results` holds of
:mod:`benchmarks.research.releases`.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.document import DOCS
from benchmarks.harness import RESULTS

TABLES = ("adult", "fulton", "titanic", "others")
#: How each method is drawn; others, of libraries, are listed in the tables alone.
STYLES = {
    "gaussian": ("#767676", "s"),
    "histogram": ("#b08900", "D"),
    "factorization": ("#1f6fb4", "o"),
    "iterative construction": ("#8c4fa3", "v"),
    "projection": ("#2a8f57", "^"),
    "fit": ("#c8442c", "o"),
    "synthetic table": ("#c8442c", "x"),
}


def plot(path: Path, results: Path = RESULTS) -> None:
    """Draw as PNG and SVG; the SVG carries no date and no random names."""
    figure, axes = plt.subplots(1, len(TABLES), figsize=(11, 3.6), layout="constrained", sharey=True)
    for ax, name in zip(axes, TABLES, strict=True):
        document = json.loads((results / f"releases_{name}.json").read_text())
        places = [document["columns"].index(column) for column in ("epsilon", "method", "root mean square")]
        rows = [[row[place] for place in places] for row in document["rows"]]
        for method, (color, mark) in STYLES.items():
            line = sorted((epsilon, error) for epsilon, of, error in rows if of == method)
            dashed = "--" if method == "synthetic table" else "-"
            ax.plot(
                *zip(*line, strict=True), dashed, color=color, marker=mark, markersize=5, linewidth=1.2, label=method
            )
        epsilons = sorted({row[0] for row in rows})
        ax.set(xscale="log", yscale="log", xlabel="epsilon", title=f"{name}, n = {document['facts']['records']:,}")
        ax.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(visible=True, color="#e5e5e5", linewidth=0.7)
        ax.set_axisbelow(True)
    axes[0].set_ylabel("root mean square error / n")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncol=len(STYLES), frameon=False)
    with mpl.rc_context({"svg.hashsalt": "curator", "svg.fonttype": "none"}):
        figure.savefig(path.with_suffix(".png"), dpi=110)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    # Matplotlib ends some lines of paths with a blank.
    svg = path.with_suffix(".svg")
    svg.write_text("\n".join(line.rstrip() for line in svg.read_text().splitlines()) + "\n")
    plt.close(figure)


def main() -> None:
    """Draw the picture."""
    mpl.use("Agg")
    plot(DOCS / "img" / "releases.png")


if __name__ == "__main__":
    main()
