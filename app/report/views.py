"""What a report's page shows and its document does not say by itself: names of mechanisms, and plots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup

from app.report.pages import shown
from app.report.plots import Plot, Series, height_axis, number_axis, point_plot
from app.report.words import spelled, words
from curator_client.figures import Span, Step, steps

#: How the ways of answering are called beside their names.
_WAYS = {
    "mw": "multiplicative weights",
    "fk": "Frieze–Kannan",
    "md": "mirror descent",
    "smw": "sparse multiplicative weights",
    "median": "median mechanism",
    "laplace": "independent Laplace noise",
    "gaussian": "independent Gaussian noise",
    "evidence": "estimates from all that was measured",
    "histogram": "from a measured histogram",
}
#: Series of errors: their style, their name.
_ERRORS = {
    "error_bound": ("one", "error bound of the answer"),
    "within": ("two", "half-width that was asked for"),
    "noise_scale": ("three", "noise scale of what was measured for it"),
}


def name_of(session: Mapping[str, Any]) -> str:
    """What answers in a session, or how a release is made."""
    return f"release by {spelled(session['method'])}" if session["release"] else spelled(session["construction"])


def way_of(session: Mapping[str, Any]) -> str:
    """The same with what it is called."""
    name = name_of(session)
    return f"{name} ({_WAYS[name]})" if name in _WAYS else name


def budget_plot(dataset: Mapping[str, Any]) -> Markup | None:
    """A data set's budget over time; None where nothing was reserved or spent, or no budget is stated."""
    told, budget = dataset["steps"], dataset["budget"]
    if not told or budget["limit"] is None:
        return None
    pure, epsilon, limit = budget["regime"] == "pure", float(budget["epsilon"]), float(budget["limit"])
    part, prefix = (1.0, "pure_") if pure else (epsilon / limit, "")
    times = [_moment(step["recorded_at"]) for step in told]
    whole = [at for at in times if at is not None]
    timed = len(whole) == len(times) and min(whole) < max(whole)
    moments = whole if timed else [float(n) for n in range(len(told))]
    course = [
        Step(at, *(float(step[f"{prefix}{name}"]) * part for name in ("spent", "reserved")))
        for at, step in zip(moments, told, strict=True)
    ]
    if not (epsilon > 0 and all(math.isfinite(number) for step in course for number in step)):
        return None
    span = Span(min(moments), max(moments), numbered=not timed)
    # What is drawn escapes its texts.
    return Markup(steps(f"Budget of {shown(dataset['name'])} over time", course, epsilon, span))  # noqa: S704


def error_plot(session: Mapping[str, Any], id: str) -> Plot | None:
    """A session's errors: what was promised and asked for, and the noise; None where it has none of these."""
    errors, series = session["detail"]["errors"], []
    for name, (style, spoken) in _ERRORS.items():
        points = [(float(at), float(height)) for at, height in errors[name]]
        points = [(at, height) for at, height in points if 0 <= height < math.inf]
        if points:
            series.append(Series(style, spoken, points))
    if not series:
        return None
    places = [at for each in series for at, _ in each.points]
    x = number_axis("number of the entry (0: the opening)", int(min(places)), int(max(places)))
    y = height_axis("counts", max(height for each in series for _, height in each.points))
    said = "; ".join(f"{each.name} {_span(each)}" for each in series)
    told = f"Errors over {words(session['entries'], 'entry', 'entries')}, in counts: {said}."
    return point_plot(id, f"Errors of session {session['session']}", told, x, y, series)


def _span(series: Series) -> str:
    least, most = (f"{of(height for _, height in series.points):.4g}" for of in (min, max))
    return f"{least} throughout" if least == most else f"from {least} to {most}"


def _moment(text: object) -> float | None:
    """Seconds since 1970 of a time of these centuries; None for anything else."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None and 1970 <= found.year < 3000 else None
