"""Answers as tables that are their own charts: rows in words, and drawn on one axis by per cent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from curator_client.figures import Mark, Scale, reach, scale_of, texts_of
from curator_client.words import named

#: Rows that a page shows at first, and those that a click more shows. A page of a whole table may be tens of
#: megabytes long, and seconds of work: its files have all rows.
FEW, MANY = 40, 1000


@dataclass(frozen=True, slots=True)
class Drawn:
    """Where a number is drawn, in per cent of the axis."""

    at: str
    low: str | None
    high: str | None
    error_low: str | None
    error_high: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One number: its heading where that is new, its label, itself in words, and where it is drawn."""

    heading: str | None
    label: str
    value: str
    error: str
    interval: str
    uncertain: bool
    missing: bool
    drawn: Drawn | None
    second: bool


@dataclass(frozen=True, slots=True)
class Forest:
    """A table that is its own chart: its rows, and the axis by places in per cent and the numbers there. ``in_all`` are
    the rows there are, ``further`` those that a click shows; 0 where it would show no more."""

    head: str
    rows: tuple[Row, ...]
    ticks: tuple[tuple[str, str], ...]
    zero: str | None
    in_all: int
    further: int


def marks_of(reply: Mapping[str, Any]) -> tuple[list[str], list[Mark]]:
    """The names of the axes of an answer, and its numbers in the order of the rows."""
    if "axes" not in reply:
        interval = reply.get("interval")
        ends = None if interval is None else (float(interval[0]), float(interval[1]))
        return [], [Mark((), reply.get("value"), reply.get("standard_error"), ends)]
    axes = [str(axis["attribute"]) for axis in reply["axes"]]
    labels = product(*([named(label) for label in axis["labels"]] for axis in reply["axes"]))
    values = reply["values"]
    errors = reply.get("standard_errors") or [None] * len(values)
    intervals = reply.get("intervals") or [None] * len(values)
    marks = [
        Mark(places, value, error, None if ends is None else (float(ends[0]), float(ends[1])))
        for places, value, error, ends in zip(labels, values, errors, intervals, strict=True)
    ]
    return axes, marks


def forest(axes: Sequence[str], marks: Sequence[Mark], *, whole: bool = False, among: int = 1) -> Forest:
    """The chart of some numbers: of so many charts on a page each has its part of the rows that a page may have.

    Args:
        axes: the names of the axes that labels are of.
        marks: the numbers.
        whole: whether to show all rows, as far as a page may.
        among: charts on the page.
    """
    many = max(1, MANY // among)
    most = many if whole else min(FEW, many)
    shown = list(marks[:most])
    scale = scale_of([number for mark in shown for number in reach(mark)])
    lasts = list(dict.fromkeys(mark.labels[-1] for mark in shown if mark.labels))
    rows, before = [], None
    for mark in shown:
        label, value, error, interval = texts_of(mark)
        heading = ", ".join(f"{axis}: {text}" for axis, text in zip(axes, mark.labels[:-1], strict=False))
        rows.append(
            Row(
                heading if heading and heading != before else None,
                label,
                value,
                error,
                interval,
                mark.uncertain,
                mark.value is None,
                None if mark.value is None else _drawn(mark, scale),
                len(axes) > 1 and len(lasts) == 2 and mark.labels[-1] == lasts[1],
            )
        )
        before = heading
    ticks = tuple((_place(scale, mark), f"{mark:,.10g}") for mark in scale.marks)
    zero = _place(scale, 0) if scale.low <= 0 <= scale.high else None
    further = min(many, len(marks))
    return Forest(axes[-1] if axes else "", tuple(rows), ticks, zero, len(marks), further if further > len(rows) else 0)


def _drawn(mark: Mark, scale: Scale) -> Drawn:
    assert mark.value is not None
    low, high = mark.interval or (None, None)
    error = mark.standard_error
    ends: tuple[float, float] | None = None
    if error is not None:
        ends = (mark.value - error, mark.value + error)
        if low is not None and high is not None:  # what is impossible is cut off
            ends = (max(ends[0], min(low, mark.value)), min(ends[1], max(high, mark.value)))
    return Drawn(
        _place(scale, mark.value),
        None if low is None else _place(scale, low),
        None if high is None else _place(scale, high),
        None if ends is None else _place(scale, ends[0]),
        None if ends is None else _place(scale, ends[1]),
    )


def _place(scale: Scale, value: float) -> str:
    """Where a number stands: with room for a mark at both ends."""
    return f"{1.5 + 97 * scale.place(value):.2f}%"


@dataclass(frozen=True, slots=True)
class Curve:
    """What accuracy costs: a line by its points in a square of 100, and marks in per cent with their words."""

    points: str
    marks: tuple[tuple[str, str, str], ...]
    told: str


def curve(prices: Sequence[tuple[float, float]]) -> Curve | None:
    """Half the interval's width over the price, for several widths of one question; None where there are too few.

    Args:
        prices: epsilon and half a width of each.
    """
    known = sorted({(paid, width) for paid, width in prices if paid > 0 and width > 0})
    if len(known) < 2:
        return None
    most, widest = known[-1][0] * 1.05, max(width for _, width in known) * 1.15

    def place(paid: float, width: float) -> tuple[float, float]:
        return 100 * paid / most, 100 * (1 - width / widest)

    points = " ".join(f"{x:.2f},{y:.2f}" for x, y in (place(*each) for each in known))
    words = [f"± {width:,.3g} for {paid:.3g}" for paid, width in known]
    marks = tuple(
        (f"{x:.2f}%", f"{y:.2f}%", text) for (x, y), text in zip((place(*each) for each in known), words, strict=True)
    )
    return Curve(points, marks, "; ".join(words))
