"""Tables drawn by matplotlib: each number with its interval, and never a bare bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curator_client.extras import extra
from curator_client.figures import MOST, TONES
from curator_client.words import UNCERTAIN, named

if TYPE_CHECKING:
    import matplotlib.axes

    from curator_client.answers import Table


def new_axes(height: float) -> matplotlib.axes.Axes:
    """Axes of a figure of their own, so many inches high; raises MissingExtra without matplotlib."""
    pyplot = extra("plot", "matplotlib.pyplot")
    axes: matplotlib.axes.Axes = pyplot.subplots(figsize=(7, height), layout="constrained")[1]
    return axes


def plot_table(table: Table, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
    """A row a cell, the first one above: a dot, a thick line of one standard error, a thin one of the interval."""
    rows = table[:MOST]
    if ax is None:
        ax = new_axes(0.9 + 0.28 * len(rows))
    lasts = list(dict.fromkeys(labels[-1] for labels, _ in rows))
    for place, (labels, value) in enumerate(rows):
        if value.missing:
            continue
        kind = lasts.index(labels[-1]) if len(table.axes) > 1 and len(lasts) == 2 else 0
        dark, light = TONES[kind]
        if value.interval is not None:
            ax.hlines(place, value.low, value.high, colors=dark, linewidth=1.4)
        if value.standard_error is not None:
            low, high = value - value.standard_error, value + value.standard_error
            if value.interval is not None:  # what is impossible is cut off
                low, high = max(low, value.low), min(high, value.high)
            ax.hlines(place, low, high, colors=light, linewidth=4.5)
        ax.plot([float(value)], [place], marker="oD"[kind], color=dark, linestyle="none")
    doubts = [f" ({UNCERTAIN})" if value.reliable is False else "" for _, value in rows]
    names = [", ".join(map(named, labels)) for labels, _ in rows]
    ax.set_yticks(range(len(rows)), [f"{name}{doubt}" for name, doubt in zip(names, doubts, strict=True)])
    ax.invert_yaxis()
    # Names are no formulas: a dollar sign in one is a dollar sign.
    for text in (*ax.get_yticklabels(), ax.set_title(table.title, loc="left")):
        text.set_parse_math(False)
    ax.grid(axis="x", alpha=0.3)
    return ax
