"""Drawings as SVG, of which each shows how well its numbers are known. No library is needed, and no script.

A drawing is text by itself, for a page or a file. Letters and lines have the colour of what stands around them, and
marks have colours that are seen on light and on dark: it needs no style sheet, and a page may style its classes. All
text is escaped. The title and a description in words stand in it, for whoever does not see it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from curator_client.words import UNCERTAIN, figure, shown

#: So many cells of a table are drawn; the others are counted below.
MOST = 100
#: A row, a letter of 13 pixels on average, what stands around a column, the drawing's own width; in pixels.
_ROW, _LETTER, _GAP, _PLOT = 26, 7.7, 18, 320
#: Of a label so many letters are shown; the description has all of them.
_LETTERS = 44
#: About so many marks on an axis.
_MARKS = 4
#: The dark and the light tone of the first and of the second kind of marks.
TONES = (("#2b7fc4", "#7db4e2"), ("#c8641c", "#eaa873"))
#: Numbers that are larger stand at the end of the axis.
_FARTHEST = 1e100
#: The heights of a budget's plot, of a small one, of the words below a plot, and of a lane; in pixels.
_DEEP, _SMALL, _AXIS, _LANE = 250, 84, 22, 36
#: A lane's least width, and what is left beside its label on a small screen; in parts of a hundred.
_LEAST, _ROOM = 0.9, 20
#: The class and the tone of lanes.
_LANES = {
    "open": ("lane open", TONES[0][0]),
    "closed": ("lane", TONES[0][1]),
    "release": ("lane rel", TONES[1][1]),
}
#: Letters that stand side by side on a small screen.
_LETTERS_ACROSS = 36
#: Seconds of a day, steps between marks of time up to two weeks, and the last moment that has a date here.
_DAY = 86400
_EVERY = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY)
_LATEST = 32503680000.0 - 1
#: What is no character of XML.
_NO_CHARACTERS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Mark(NamedTuple):
    """A number to be drawn: what it is called along each axis, how large it is, and how well it is known; None for what
    is not known. ``truth`` is the number without noise, where whoever draws knows it, as a demonstration does."""

    labels: tuple[str, ...]
    value: float | None
    standard_error: float | None
    interval: tuple[float, float] | None
    truth: float | None = None

    @property
    def uncertain(self) -> bool:
        """Whether the standard error passes a third of the value."""
        if self.value is None or self.standard_error is None:
            return False
        return 3 * self.standard_error > abs(self.value)


class Scale(NamedTuple):
    """An axis of numbers: its ends, and the numbers at its marks."""

    low: float
    high: float
    marks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Where a number stands, from 0 to 1."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


def forest(
    title: str,
    axes: Sequence[str],
    marks: Sequence[Mark],
    *,
    in_all: int | None = None,
    confidence: float | None = None,
    notes: Iterable[str] = (),
) -> str:
    """A table that is its own chart: a row a number, in words and drawn on one axis.

    A dot is the number, a thick line one standard error to either side, a thin line the interval. Of several axes the
    last one has the rows, and the others are headings. Where it has two labels their marks differ in shape too.

    Args:
        title: what the numbers are.
        axes: what the labels are of.
        marks: the numbers, in the order of the rows; the first ``MOST`` are drawn.
        in_all: how many numbers there are, where not all were given.
        confidence: with which the intervals hold; None where there are none.
        notes: what else is to be said, below.
    """
    drawn, count = marks[:MOST], len(marks) if in_all is None else in_all
    lasts = list(dict.fromkeys(mark.labels[-1] for mark in drawn if mark.labels))
    scale = scale_of([number for mark in drawn for number in reach(mark)])
    texts = [texts_of(mark) for mark in drawn]
    span = "interval" if confidence is None else f"{confidence:.6%}".rstrip("0%").rstrip(".") + "% interval"
    heads = (axes[-1] if axes else "", "", "± se", span)
    columns = [[heads[k], *(text[k] for text in texts)] for k in range(4)]
    widths = [max(map(_width, column)) + (_GAP if any(column) else 0) for column in columns]
    widths[1] *= 1.15  # which is bold
    headings = [", ".join(f"{axis}: {label}" for axis, label in zip(axes, m.labels[:-1], strict=False)) for m in drawn]
    ends = [math.fsum(widths[: k + 1]) - _GAP for k in range(4)]
    left = ends[3] + 2 * _GAP
    behind = _width(UNCERTAIN) + 14 if any(mark.uncertain for mark in drawn) else 2 * _GAP
    width = max(left + _PLOT + behind, _width(title) * 1.15)

    parts = [_text(title, 0, 18, "title", "600 15px")]
    top, y = 34.0, 52.0
    for k, head in enumerate(heads):
        parts.append(_text(head, ends[k] if k else 0, y - 8, "head", soft=True, end=k > 0))
    rows: list[str] = []
    for number, (mark, text) in enumerate(zip(drawn, texts, strict=True)):
        if headings[number] and (number == 0 or headings[number] != headings[number - 1]):
            y += _ROW * 1.15
            rows.append(_text(_short(headings[number]), 0, y - 8, "group", "600 13px"))
        y += _ROW
        kind = lasts.index(mark.labels[-1]) if mark.labels and len(axes) > 1 and len(lasts) == 2 else 0
        rows.append(_row(mark, text, kind, y, ends, left, scale))
    parts += _grid(scale, left, top, y + 4)
    parts += rows
    if count > len(drawn):
        y += _ROW
        parts.append(_text(f"and {count - len(drawn):,} more", 0, y - 8, "more", soft=True))
    truth = (
        ["Triangle: the truth, which only a demonstration knows."] if any(m.truth is not None for m in drawn) else []
    )
    for line in _wrapped([_READ.format(span=span), *truth, *notes], width):
        y += 19
        parts.append(_text(line, 0, y + 8, "note", "400 12px", soft=True))
    told = "; ".join(_told(mark, axes) for mark in drawn)
    return _svg("forest", title, f"{told}.", parts, width, y + 20)


class Step(NamedTuple):
    """Where a budget stands from a moment on: seconds since 1970, epsilon spent, epsilon that open sessions hold."""

    at: float
    spent: float
    held: float


class Lane(NamedTuple):
    """When a session held a part of a budget: seconds since 1970, None for the end of one that is open; what it is
    called, and whether it is ``open``, ``closed``, or that of a ``release``."""

    begin: float
    end: float | None
    label: str
    kind: Literal["open", "closed", "release"]


class Span(NamedTuple):
    """The time that a drawing shows: its first moment, and the last that anything is known of; seconds since 1970.
    Where ``numbered`` they are numbers of movements, since their times are not known."""

    since: float
    until: float
    numbered: bool = False


def steps(title: str, course: Sequence[Step], limit: float, span: Span, pace: float | None = None) -> str:
    """A budget over time: what is spent, and above it what open sessions hold, in steps below a line for the limit.

    It is as wide as what stands around it, and as sharp at every width: positions across are parts of the whole.

    Args:
        title: whose budget it is.
        course: where it stood, in order of time; before the first one nothing was spent.
        limit: the budget's epsilon, above zero.
        span: that is shown.
        pace: epsilon a second at which spending may go on, drawn beyond what is known; None for none.
    """
    last = course[-1] if course else Step(span.since, 0.0, 0.0)
    across = _Across(span)
    top = max(limit, *(step.spent + step.held for step in course)) if course else limit
    down = _Down(top * 1.1)
    parts = []
    for mark in _heights(top):
        parts += [_line("grid", 0, 100, down(mark), down(mark)), _label(f"{mark:,.10g}", 0, down(mark) - 4, "tick")]
    ends = across(span.until)
    areas = (
        ("ar-held", TONES[0][1], ".45", [step.spent + step.held for step in course]),
        ("ar-spent", TONES[0][0], ".9", [step.spent for step in course]),
    )
    drawn = []
    for style, tone, opacity, heights in areas:
        path = f"M0 {_n(down(0))}"
        for step, height in zip(course, heights, strict=True):
            path += f"H{across(step.at):.2f}V{_n(down(height))}"
        drawn.append(
            f'<path class="{style}" d="{path}H{ends:.2f}V{_n(down(0))}Z" fill="{tone}" fill-opacity="{opacity}"/>'
        )
    parts.append(_stretched("".join(drawn), _DEEP))
    parts += [
        _line("base", 0, 100, down(0), down(0)),
        _line("limit", 0, 100, down(limit), down(limit)),
        _label(f"limit {figures_of(limit)}", 0, down(limit) - 7, "lab halo"),
        _line("now", ends, ends, down(limit), down(0)),
    ]
    if pace is not None and not span.numbered:
        beyond = last.spent + pace * (across.high - span.until)
        parts.append(_line("ahead", ends, 100, down(last.spent), down(min(beyond, limit))))
    y, right = down(last.spent) - 7, max(ends - 1, 100 - 2.5 * _ROOM)
    if last.held > 0:
        above = down(last.spent + last.held) - 7
        # Names stand apart however near their heights are: one above the other, or each above its own area.
        above, y = (above, y) if y - above >= 24 else (above - 18, above)
        both = f"spent and reserved {figures_of(last.spent + last.held)}"
        parts.append(_label(both, right, above, "lab halo", "end"))
    parts.append(_label(f"spent {figures_of(last.spent)}", right, y, "lab halo", "end"))
    parts += across.marks(_DEEP, 6)
    words = (
        f"The limit is {figures_of(limit)}. From {across.told(span.since)} to {across.told(span.until)} spent rises in "
        f"{len(course):,} steps to {figures_of(last.spent)}"
        if course
        else f"The limit is {figures_of(limit)}. From {across.told(span.since)} to {across.told(span.until)} nothing "
        "was spent or reserved"
    )
    if course:
        words += f"; {figures_of(last.held)} is reserved by open sessions"
    return _wide("steps", title, f"{words}.", parts, _DEEP + _AXIS)


def lanes(title: str, drawn: Sequence[Lane], span: Span) -> str:
    """When sessions held parts of a budget, a line each, on the axis of time that :func:`steps` has for a span."""
    across = _Across(span)
    parts = [_line("grid", at, at, 0, _LANE * len(drawn)) for at, _ in across.places()]
    parts.append(_line("now", across(span.until), across(span.until), 0, _LANE * len(drawn)))
    told = []
    for number, lane in enumerate(drawn):
        begin, end = across(lane.begin), across(span.until if lane.end is None else lane.end)
        wide, top = max(end - begin, _LEAST), _LANE * number
        style, tone = _LANES[lane.kind]
        # A label stands where there is room for it on a small screen, too: at the bar's beginning, or at its end.
        at, anchor = (begin, "start") if begin <= _ROOM else (max(end, 100 - _ROOM), "end")
        parts.append(_label(_short(lane.label), min(at, 100), top + 15, "halo", anchor))
        parts.append(
            f'<rect class="{style}" x="{min(begin, 100 - wide):.2f}%" width="{wide:.2f}%" y="{top + 21}" height="9" '
            f'rx="2.5" fill="{tone}"/>'
        )
        still = "until now" if lane.end is None else f"to {across.told(lane.end)}"
        told.append(f"{lane.label}, {lane.kind}, from {across.told(lane.begin)} {still}")
    return _wide("lanes", title, f"{'; '.join(told)}." if told else "None.", parts, _LANE * len(drawn) + 4)


def trace(title: str, course: Sequence[tuple[float, float]], span: Span, unit: str = "") -> str:
    """A number over time as a small area with its largest height written at the top.

    Args:
        title: what the number is.
        course: moments in seconds since 1970 and heights from 0 on, in order of time; each holds to the next moment.
        span: that is shown.
        unit: of heights, behind each number in words.
    """
    across = _Across(span)
    top = max((height for _, height in course), default=0.0)
    down = _Down(top or 1.0, _SMALL, 18)
    path = "".join(f"H{across(at):.2f}V{_n(down(height))}" for at, height in course)
    begin, end = (across(course[0][0]), across(span.until)) if course else (0.0, 0.0)
    area = f"M{begin:.2f} {_n(down(0))}{path}H{end:.2f}V{_n(down(0))}Z"
    parts = [
        _stretched(f'<path class="ar-trace" d="{area}" fill="{TONES[0][1]}" fill-opacity=".45"/>', _SMALL),
        _line("base", 0, 100, down(0), down(0)),
        *across.marks(_SMALL, 4),
    ]
    behind = f" {unit}" if unit else ""
    if top:
        parts += [
            _line("grid", 0, 100, down(top), down(top)),
            _label(f"{figures_of(top)}{behind}", 0, 12, "tick halo"),
        ]
    now = course[-1][1] if course else 0.0
    told = f"From {across.told(span.since)} to {across.told(span.until)}: at most {figures_of(top)}{behind}"
    words = f"{told}, at the end {figures_of(now)}{behind}." if course else "No sample was taken yet."
    return _wide("trace", title, words, parts, _SMALL + _AXIS)


def standing_alone(drawing: str) -> str:
    """A drawing as a file of its own, which is dark on light and light on dark as whoever looks at it has it."""
    style = "<style>svg{color:#1c2228}@media(prefers-color-scheme:dark){svg{color:#e7eaed}}</style>"
    head, _, rest = drawing.partition(">")
    return f"{head}>{style}{rest}\n"


#: How a forest is read, below it.
_READ = (
    "Dot: the estimate. Thick line: one standard error. Thin line: the {span}, of the noise that protects people and "
    "not of who was sampled."
)


def reach(mark: Mark) -> list[float]:
    """The numbers between which a mark is drawn."""
    if mark.value is None:
        return []
    error = mark.standard_error if mark.standard_error is not None and math.isfinite(mark.standard_error) else 0.0
    reach = [mark.value, mark.value - error, mark.value + error] if mark.interval is None else [mark.value]
    known = () if mark.truth is None else (mark.truth,)
    return [number for number in (*reach, *(mark.interval or ()), *known) if abs(number) < _FARTHEST]


def texts_of(mark: Mark) -> tuple[str, str, str, str]:
    """What stands in the columns before the drawing."""
    label = _short(mark.labels[-1]) if mark.labels else ""
    if mark.value is None:
        return label, "n/a", "", ""
    value, _, error = shown(mark.value, mark.standard_error).partition(" ± ")
    if mark.interval is None:
        return label, value, f"± {error}", ""
    low, high = (figure(end, mark.standard_error) for end in mark.interval)
    return label, value, f"± {error}", f"{low} to {high}"


def _row(
    mark: Mark, texts: Sequence[str], kind: int, y: float, ends: Sequence[float], left: float, scale: Scale
) -> str:
    """One number: its texts, and its mark."""
    middle, base = y - 12.5, y - 8
    parts = [_text(texts[0], 0, base, "label")]
    parts += [
        _text(text, ends[k + 1], base, style, weight, soft=k > 0, end=True)
        for k, (text, style, weight) in enumerate(
            zip(texts[1:], ("value", "error", "ends"), ("600 13px", "400 13px", "400 13px"), strict=True)
        )
    ]
    dark, light = TONES[kind]

    def across(low: float, high: float, style: str, tone: str, thick: float) -> str:
        a, b = (_n(left + _PLOT * scale.place(end)) for end in (low, high))
        cap = ' stroke-linecap="round"' if style == "error" else ""
        return f'<path class="{style}" d="M{a} {_n(middle)}H{b}" stroke="{tone}" stroke-width="{thick}"{cap}/>'

    if mark.value is not None:
        if mark.interval is not None and all(map(math.isfinite, mark.interval)):
            parts.append(across(*mark.interval, "interval", dark, 1.6))
            caps = "".join(f"M{_n(left + _PLOT * scale.place(end))} {_n(middle - 4)}v8" for end in mark.interval)
            parts.append(f'<path class="interval" d="{caps}" stroke="{dark}" stroke-width="1.6"/>')
        error = mark.standard_error
        if error is not None and math.isfinite(error):
            low, high = mark.value - error, mark.value + error
            if mark.interval is not None:  # what is impossible is cut off
                low, high = max(low, min(mark.interval[0], mark.value)), min(high, max(mark.interval[1], mark.value))
            parts.append(across(low, high, "error", light, 5.5))
        x = left + _PLOT * scale.place(mark.value)
        shape = (
            f'<circle cx="{_n(x)}" cy="{_n(middle)}" r="4.6"'
            if kind == 0
            else f'<path d="M{_n(x)} {_n(middle - 6.2)}l6.2 6.2-6.2 6.2-6.2-6.2z"'
        )
        parts.append(f'{shape} class="dot" fill="{dark}"/>')
        if mark.truth is not None:
            at = f"M{_n(left + _PLOT * scale.place(mark.truth))} {_n(middle + 4)}l4.5 8h-9z"
            parts.append(f'<path class="truth" d="{at}" fill="currentColor"/>')
    if mark.uncertain:
        parts.append(_text(UNCERTAIN, left + _PLOT + 14, base, "uncertain", "400 12px", soft=True))
    return f'<g class="kind-{kind}">{"".join(parts)}</g>'


def _grid(scale: Scale, left: float, top: float, bottom: float) -> list[str]:
    """The axis of numbers with its lines."""
    parts = []
    for mark in scale.marks:
        x = left + _PLOT * scale.place(mark)
        strong = ".5" if mark == 0 else ".18"
        parts.append(
            f'<path class="grid" d="M{_n(x)} {_n(top + 14)}V{_n(bottom)}" stroke="currentColor" '
            f'stroke-opacity="{strong}"/>'
        )
        parts.append(_text(f"{mark:,.10g}", x, top + 10, "tick", "400 12px", soft=True, anchor="middle"))
    return parts


def scale_of(numbers: Sequence[float]) -> Scale:
    """An axis for numbers, at round marks; with zero where that is near."""
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    low, high = (0.0, high) if 0 < low <= high / 2 else (low, 0.0) if low / 2 <= high < 0 else (low, high)
    largest = max(abs(low), abs(high))
    if high - low <= 1e-9 * largest + 1 / _FARTHEST:  # numbers that are one stand in the middle
        around = largest / 2 if largest > 1 / _FARTHEST else 1.0
        low, high = low - around, high + around
    step, around = _round_step((high - low) / _MARKS), (high - low) / 25
    low, high = low if low == 0 else low - around, high if high == 0 else high + around
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Scale(low, high, tuple(n * step for n in range(first, last + 1)))


def _round_step(least: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(part * power for part in (1.0, 2.0, 5.0, 10.0) if part * power >= least * (1 - 1e-9))


def _told(mark: Mark, axes: Sequence[str]) -> str:
    """A number in words, for whoever does not see it."""
    label = ", ".join(f"{axis} {label}" for axis, label in zip(axes, mark.labels, strict=False))
    _, value, error, ends = texts_of(mark)
    told = " ".join(filter(None, (value, error, f"({ends})" if ends else "")))
    uncertain = f", {UNCERTAIN}" if mark.uncertain else ""
    truth = "" if mark.truth is None else f", in truth {figure(mark.truth, mark.standard_error)}"
    return f"{label}: {told}{uncertain}{truth}" if label else f"{told}{uncertain}{truth}"


def _svg(style: str, title: str, told: str, parts: Iterable[str], width: float, height: float) -> str:
    across, down = math.ceil(width), math.ceil(height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="curator {style}" role="img" '
        f'width="{across}" height="{down}" viewBox="0 0 {across} {down}" '
        'fill="none" font-family="Source Sans 3, system-ui, sans-serif">'
        f"<title>{escaped(title)}</title><desc>{escaped(told)}</desc>{''.join(parts)}</svg>"
    )


class _Across:
    """Where moments stand on a drawing, from 0 to 100 across, with a little room beyond what is known."""

    def __init__(self, span: Span) -> None:
        self.low, self._numbered = span.since, span.numbered
        length = max(span.until - span.since, 1.0)
        self.high = span.until + length / 25
        self._length = self.high - self.low

    def __call__(self, at: float) -> float:
        return 100 * min(max((at - self.low) / self._length, 0.0), 1.0)

    def places(self) -> list[tuple[float, str]]:
        """Round moments, and what is written at each."""
        if self._numbered:
            step = max(1.0, _round_step(self._length / _MARKS))
            first = math.ceil(self.low / step)
            numbers = [n * step for n in range(first, math.floor(self.high / step) + 1)]
            return [(self(number), f"{number:,.0f}") for number in numbers]
        return [(self(at), text) for at, text in _moments(self.low, self.high)]

    def marks(self, y: float, most: int) -> list[str]:
        """The axis at a height, with its words; the last one only where there is room for it."""
        places = self.places()
        longest = max((len(text) for _, text in places), default=0)
        # So many as have room on a small screen.
        most = min(most, max(1, _LETTERS_ACROSS // (longest + 2)))
        places = places[:: math.ceil(len(places) / most)] if places else places
        parts = []
        for at, text in places:
            parts.append(_line("grid", at, at, y, y + 6))
            if at + 100 * len(text) / _LETTERS_ACROSS < 98:
                parts.append(_label(text, at, y + 17, "tick", dx=4))
        return parts

    def told(self, at: float) -> str:
        """A moment in words."""
        if self._numbered:
            return f"movement {at:,.0f}"
        moment = _at(at)
        return f"{moment.day} {moment:%B %Y, %H:%M} UTC" if self._length < 3 * _DAY else f"{moment.day} {moment:%B %Y}"


class _Down:
    """Where heights stand, in pixels from the top."""

    def __init__(self, top: float, deep: float = 0, above: float = 6) -> None:
        self._top, self._deep, self._above = top, deep or _DEEP, above

    def __call__(self, height: float) -> float:
        return self._deep - (self._deep - self._above) * min(max(height / self._top, 0.0), 1.0)


def _heights(top: float) -> list[float]:
    """Round heights above zero and below the top."""
    step = _round_step(top / _MARKS)
    return [n * step for n in range(1, math.ceil(top / step)) if n * step < top * 0.97]


def _moments(low: float, high: float) -> list[tuple[float, str]]:
    """Round moments between two, and how each is written: as little as tells them apart."""
    length = high - low
    if length > 70 * _DAY:
        begin, end = _at(low), _at(high)
        months = range(begin.year * 12 + begin.month - 1, end.year * 12 + end.month)
        every = next(n for n in (1, 2, 3, 6, 12, 24, 60, 120, 1200, 12000) if len(months) <= 7 * n)
        found = [datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC) for month in months if month % every == 0]
        long = length > 3 * 365 * _DAY
        return [
            (each.timestamp(), f"{each:%Y}" if long or each.month == 1 else f"{each:%b}")
            for each in found
            if each.timestamp() >= low
        ]
    step = next((each for each in _EVERY if length <= 7 * each), _EVERY[-1])
    moments = [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < _DAY else "%d %b"
    texts = [_at(at).strftime(form) for at in moments]
    return [(float(at), text.lstrip("0") if step >= _DAY else text) for at, text in zip(moments, texts, strict=True)]


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(seconds, 0.0), _LATEST), UTC)


def figures_of(value: float) -> str:
    """A height in digits: three that say something."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{float(f'{value:.3g}'):,.10g}"


def _line(style: str, x1: float, x2: float, y1: float, y2: float) -> str:
    dashes = {"limit": ' stroke-dasharray="5 4"', "ahead": ' stroke-dasharray="2 4"'}.get(style, "")
    opacity = ".18" if style == "grid" else ".6"
    return (
        f'<line class="{style}" x1="{x1:.2f}%" x2="{x2:.2f}%" y1="{_n(y1)}" y2="{_n(y2)}" stroke="currentColor" '
        f'stroke-opacity="{opacity}"{dashes}/>'
    )


def _label(text: str, x: float, y: float, style: str, anchor: str = "start", dx: int = 0) -> str:
    moved = f' dx="{dx}"' if dx else ""
    return (
        f'<text class="{style}" x="{x:.2f}%" y="{_n(y)}" text-anchor="{anchor}" font-size="13" '
        f'fill="currentColor"{moved}>{escaped(text)}</text>'
    )


def _stretched(paths: str, height: int) -> str:
    """Paths of which the places across are parts of a hundred."""
    box = f'width="100%" height="{height}" viewBox="0 0 100 {height}"'
    return f'<svg {box} preserveAspectRatio="none">{paths}</svg>'


def _wide(style: str, title: str, told: str, parts: Iterable[str], height: float) -> str:
    """A drawing that is as wide as what stands around it."""
    return (
        f'<svg class="curator chart {style}" role="img" width="100%" '
        f'height="{math.ceil(height)}" fill="none" font-family="Source Sans 3, system-ui, sans-serif">'
        f"<title>{escaped(title)}</title><desc>{escaped(told)}</desc>{''.join(parts)}</svg>"
    )


def _text(
    text: str,
    x: float,
    y: float,
    style: str,
    font: str = "400 13px",
    *,
    soft: bool = False,
    end: bool = False,
    anchor: str = "",
) -> str:
    """A text, at its beginning or its end; a soft one is of less weight than others."""
    if not text:
        return ""
    weight, _, size = font.partition(" ")
    at = anchor or ("end" if end else "start")
    opacity = ' fill-opacity=".72"' if soft else ""
    return (
        f'<text class="{style}" x="{_n(x)}" y="{_n(y)}" text-anchor="{at}" font-size="{size}" font-weight="{weight}" '
        f'fill="currentColor"{opacity}>{escaped(text)}</text>'
    )


def escaped(text: str) -> str:
    """Text as XML has it: markup is escaped, and what is no character of XML is replaced."""
    clean = _NO_CHARACTERS.sub("\ufffd", text)
    for mark, spelled in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        clean = clean.replace(mark, spelled)
    return clean


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"


def _width(text: str) -> float:
    """About how wide a text is, in pixels."""
    return _LETTER * sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _wrapped(texts: Iterable[str], width: float) -> list[str]:
    """Texts in lines."""
    lines: list[str] = []
    for text in texts:
        line = ""
        for word in text.split():
            if line and _width(f"{line} {word}") * 0.88 > width:
                lines.append(line)
                line = ""
            line = f"{line} {word}".strip()
        lines.append(line)
    return lines


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
