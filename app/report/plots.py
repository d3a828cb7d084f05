"""Plots as SVG in a page: axes with units, a text alternative, colours from the page's style. A template draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: The whole picture, and the margins around what is plotted: left, right, top, bottom.
_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 18, 34, 46
#: About so many marks on an axis.
_MARKS = 5
#: Heights below it are as none.
_LEAST = 1e-300


@dataclass(frozen=True)
class Series:
    """Points that belong together: their style's class, their name, and where they are."""

    style: str
    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """An axis: what it shows, from where to where, and its marks with what stands at them."""

    title: str
    low: float
    high: float
    marks: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Label:
    """A text in a plot: where it stands, as SVG has it, and by which of its ends."""

    text: str
    x: str
    y: str
    anchor: str = "start"
    middle: bool = False
    turned: bool = False


@dataclass(frozen=True)
class Plot:
    """A picture, for the template ``plot.html.jinja``.

    Attributes:
        id: of the element's parts, unique in the page.
        title, told: the text alternative, short and in full.
        paths: what is drawn, and the class of its style each; the last one in front.
        labels: the texts.
    """

    id: str
    title: str
    told: str
    paths: Sequence[tuple[str, str]]
    labels: Sequence[Label]
    width: int = _WIDTH
    height: int = _HEIGHT


def point_plot(id: str, title: str, told: str, x: Axis, y: Axis, series: Sequence[Series]) -> Plot:
    """Points of several series."""
    to_x, to_y = _scales(x, y)
    parts = [
        ("".join(f"M{to_x(at)} {to_y(height)}h0" for at, height in each.points), f"dots {each.style}")
        for each in series
    ]
    return _plot(id, title, told, x, y, parts, [(f"dots {each.style}", each.name) for each in series])


def height_axis(title: str, high: float) -> Axis:
    """An axis from 0 to a little beyond a height, at round marks."""
    if not _LEAST < high < math.inf:
        return Axis(title, 0.0, 1.0, [(0.0, "0"), (1.0, "1")])
    step = _round_step(high / _MARKS)
    count = math.ceil(high / step * 1.04)
    return Axis(title, 0.0, count * step, [(n * step, f"{n * step:,.10g}") for n in range(count + 1)])


def number_axis(title: str, low: int, high: int) -> Axis:
    """An axis of whole numbers, both among them."""
    step = max(1, round(_round_step(max(high - low, 1) / _MARKS)))
    first = -(-low // step) * step
    marks = [(float(n), f"{n:,}") for n in range(first, high + 1, step)]
    return Axis(title, low, max(high, low + 1), marks)


def _round_step(least: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(part * power for part in (1.0, 2.0, 5.0, 10.0) if part * power >= least * (1 - 1e-9))


def _scales(x: Axis, y: Axis) -> tuple[Callable[[float], str], Callable[[float], str]]:
    """Where on the picture something stands, as SVG has it."""
    across, up = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def to_x(value: float) -> str:
        return _place(_LEFT + across * (value - x.low) / (x.high - x.low))

    def to_y(value: float) -> str:
        return _place(_HEIGHT - _BOTTOM - up * (value - y.low) / (y.high - y.low))

    return to_x, to_y


def _place(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _plot(
    id: str,
    title: str,
    told: str,
    x: Axis,
    y: Axis,
    parts: Sequence[tuple[str, str]],
    legend: Sequence[tuple[str, str]],
) -> Plot:
    to_x, to_y = _scales(x, y)
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    paths = [(f"M{_LEFT} {to_y(at)}H{right}", "grid") for at, _ in y.marks]
    paths += [(f"M{to_x(at)} {bottom}v5", "axis") for at, _ in x.marks]
    paths += [*parts, (f"M{_LEFT} {_TOP}V{bottom}H{right}", "axis")]
    labels = [Label(text, str(_LEFT - 8), to_y(at), "end", middle=True) for at, text in y.marks]
    labels += [Label(text, to_x(at), str(bottom + 18), "middle") for at, text in x.marks]
    labels.append(Label(x.title, _place((_LEFT + right) / 2), str(_HEIGHT - 6), "middle"))
    labels.append(Label(y.title, "14", _place((_TOP + bottom) / 2), "middle", turned=True))
    at = _LEFT
    for style, name in legend:
        swatch = f"M{at} 14h14" if style == "limit" else f"M{at + 7} 14h0" if "dots" in style else f"M{at} 8h14v12h-14Z"
        paths.append((swatch, style))
        labels.append(Label(name, str(at + 20), "14", middle=True))
        at += 36 + round(6.6 * len(name))
    return Plot(id, title, told, paths, labels)
