"""What a report's page shows and its document does not say by itself: names of mechanisms, and plots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.report.plots import Plot, Series, height_axis, number_axis, point_plot, step_plot, time_axis
from app.report.words import spelled, words

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


def budget_plot(dataset: Mapping[str, Any], id: str) -> Plot | None:
    """A data set's budget over time; None where nothing was reserved or spent, or no budget is stated."""
    steps, budget = dataset["steps"], dataset["budget"]
    if not steps or budget["limit"] is None:
        return None
    pure, epsilon, limit = budget["regime"] == "pure", float(budget["epsilon"]), float(budget["limit"])
    part, prefix = (1.0, "pure_") if pure else (epsilon / limit, "")
    spent = [float(step[f"{prefix}spent"]) * part for step in steps]
    used = [own + float(step[f"{prefix}reserved"]) * part for own, step in zip(spent, steps, strict=True)]
    times = [_moment(step["recorded_at"]) for step in steps]
    whole = [at for at in times if at is not None]
    moments = whole if len(whole) == len(times) and min(whole) < max(whole) else [float(n) for n in range(len(steps))]
    x = time_axis(moments) if moments is whole else number_axis("movement", 0, len(steps))
    unit = "epsilon of pure noise" if pure else f"share of epsilon {budget['epsilon']}"
    moved = words(dataset["movements"]["number"], "movement")
    told = (
        f"{moved} from {steps[0]['recorded_at']} to {steps[-1]['recorded_at']}: "
        f"spent rises from {spent[0]:.4g} to {spent[-1]:.4g}, spent and reserved together were {max(used):.4g} at most "
        f"and are {used[-1]:.4g} at the end; the limit is {epsilon:.4g}."
    )
    areas = [
        Series("reserved", "reserved", list(zip(moments, used, strict=True))),
        Series("spent", "spent", list(zip(moments, spent, strict=True))),
    ]
    title = f"Budget of {dataset['name']} over time"
    return step_plot(id, title, told, x, height_axis(unit, max(*used, epsilon)), areas, epsilon)


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
