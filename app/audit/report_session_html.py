"""Sessions and releases on a report's page, from their documents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from app.audit.report_markup import Markup, joined, tag
from app.audit.report_parts import amount, facts, laid_out, moment, number, share, spelled, table, words
from app.audit.report_plots import Series, height_axis, number_axis, point_plot

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
#: Sessions beyond so many are folded.
_FEW = 25
#: Series of errors: their style, their name.
_ERRORS = {
    "error_bound": ("one", "error bound of the answer"),
    "within": ("two", "half-width that was asked for"),
    "noise_scale": ("three", "noise scale of what was measured for it"),
}


def session(told: Mapping[str, Any], id: str, budget: Mapping[str, Any]) -> Markup:
    """All that is told of a session or release; ``id`` is its own in the page, ``budget`` its data set's."""
    detail, answers = told["detail"], told["answers"]
    plan = detail["plan"] if isinstance(detail["plan"], Mapping) else {}
    sources = ", ".join(f"{source} {count:,}" for source, count in answers["by_source"].items())
    replay = told["replay"]
    verdict = None
    if replay is not None:
        style, said = ("holds", "replays") if replay["ok"] else ("wrong", f"does not replay: {replay['problem']}")
        verdict = tag("span", said, class_=style)
    promised = None
    if plan.get("error_bound") is not None:
        promised = f"{amount(plan['error_bound'])} counts, for all answers at once"
        promised += f" but with probability {amount(plan['beta'])}" if plan.get("beta") is not None else ""
    return tag(
        "section",
        tag("h4", _way(told), " ", tag("code", told["session"])),
        facts(
            {
                "opened": told["opened_at"],
                "last entry": told["last_at"],
                "epsilon asked for": amount(told["epsilon"]),
                "delta": amount(plan.get("delta")) if plan.get("delta") is not None else None,
                "were it alone": f"epsilon {amount(plan['epsilon_alone'], 6)}" if "epsilon_alone" in plan else None,
                "reserved": _share_of(told["reserved"], budget),
                "spent": _share_of(told["spent"], budget),
                "still held": _share_of(told["held"], budget),
                "error promised": promised or "none by the plan",
                "noise": _noise(plan),
                "workload": spelled(detail["mechanism"]["workload"])
                if isinstance(detail["mechanism"], Mapping) and "workload" in detail["mechanism"]
                else None,
                "answers by source": sources if answers["number"] else None,
                "answers nobody vouches for": number(answers["unverified"]) if answers["unverified"] else None,
                "measured": words(told["measurements"], "measurement") if told["measurements"] else None,
                "updates (entries that cost)": number(told["updates"]),
                "refusals that spent": number(told["forfeits"]) if told["forfeits"] else None,
                "replay": verdict,
                "head hash": tag("code", told["head_hash"]),
            }
        ),
        _error_plot(told, f"errors-{id}"),
        _forfeits(detail["forfeits"]),
        _questions(detail["questions"]),
        tag(
            "details",
            tag("summary", "Mechanism and plan as they stand in the header"),
            laid_out(detail["mechanism"]),
            laid_out(detail["plan"]),
        ),
        class_="session",
        id=id,
    )


def overview(sessions: Sequence[Mapping[str, Any]], id: str, budget: Mapping[str, Any]) -> Markup:
    """Sessions and releases, a line each; ``id`` and its number make the id of one that is told in full."""

    def rows() -> Iterable[tuple[object, ...]]:
        for n, each in enumerate(sessions, 1):
            name = tag("code", each["session"])
            yield (
                name if each["detail"] is None else tag("a", name, href=f"#{id}-{n}"),
                _name(each),
                amount(each["epsilon"]),
                share(each["spent"], budget),
                number(each["answers"]["number"]),
                number(each["forfeits"]),
                each["spent"],
                moment(each["opened_at"]),
            )

    columns = (
        "session",
        "way",
        "epsilon",
        "spent of it ≈",
        "answers",
        "refusals that spent",
        "spent",
        "opened",
    )
    shown = table(columns, rows(), numbers=range(2, 7))
    few = len(sessions) <= _FEW
    return (
        shown if few else tag("details", tag("summary", f"{len(sessions):,} sessions and releases, a line each"), shown)
    )


def _name(told: Mapping[str, Any]) -> str:
    return f"release by {spelled(told['method'])}" if told["release"] else spelled(told["construction"])


def _way(told: Mapping[str, Any]) -> str:
    name = _name(told)
    return f"{name} ({_WAYS[name]})" if name in _WAYS else name


def _share_of(value: str | None, budget: Mapping[str, Any]) -> str | None:
    if value is None or budget["limit"] is None:
        return value
    return f"{value} ≈ {share(value, budget)} of epsilon" if Decimal(value) else "0"


def _noise(plan: Mapping[str, Any]) -> str | None:
    if plan.get("noise") is None:
        return None
    return f"{spelled(plan['noise'])}, scale {amount(plan.get('noise_scale'), 6)} counts"


def _error_plot(told: Mapping[str, Any], id: str) -> Markup | None:
    errors = told["detail"]["errors"]
    series = []
    for name, (style, spoken) in _ERRORS.items():
        points = [(float(at), float(height)) for at, height in errors[name]]
        points = [(at, height) for at, height in points if 0 <= height < math.inf]
        if points:
            series.append(Series(style, spoken, points))
    if not series:
        return None
    said = [f"{each.name} {_span(each)}" for each in series]
    places = [at for each in series for at, _ in each.points]
    x = number_axis("number of the entry (0: the opening)", int(min(places)), int(max(places)))
    y = height_axis("counts", max(height for each in series for _, height in each.points))
    what = f"Errors over {words(told['entries'], 'entry', 'entries')}, in counts: {'; '.join(said)}."
    return point_plot(id, f"Errors of session {told['session']}", what, x, y, series)


def _span(series: Series) -> str:
    least, most = (f"{of(height for _, height in series.points):.4g}" for of in (min, max))
    return f"{least} throughout" if least == most else f"from {least} to {most}"


def _forfeits(forfeits: Mapping[str, Any]) -> Markup | None:
    if not forfeits["first"]:
        return None
    rows = (
        (
            number(each["sequence"]),
            moment(each["recorded_at"]),
            None if each["price"] is None else each["price"]["renyi"],
        )
        for each in forfeits["first"]
    )
    return joined(
        (
            tag("h5", "Refusals that spent: rounds that were begun, not recorded, and charged"),
            table(("entry", "time", "price"), rows, numbers=(0, 2)),
            tag("p", f"And {number(forfeits['left_out'])} more.") if forfeits["left_out"] else None,
        )
    )


def _questions(questions: Mapping[str, Any]) -> Markup | None:
    if not questions["first"]:
        return None

    def rows() -> Iterable[tuple[object, ...]]:
        for each in questions["first"]:
            values = ", ".join("none" if value is None else f"{value:.6g}" for value in each["values"])
            more = each["values_in_all"] - len(each["values"])
            wish = None if each["wish"] is None else tag("div", "wish ", tag("code", spelled(each["wish"])))
            form = None if each["as_asked"] else tag("div", "(as it was compiled)")
            yield (
                number(each["sequence"]),
                joined((tag("code", spelled(each["asked"])), wish, form)),
                values + (f" and {more:,} more" if more else ""),
                each["source"] + (", nobody vouches for it" if each["unverified"] else ""),
                amount(each["error_bound"], 6),
            )

    left = questions["left_out"]
    shown = words(len(questions["first"]), "question")
    return tag(
        "details",
        tag("summary", f"The first {shown} as asked, {left:,} more left out" if left else f"{shown} as asked"),
        table(("entry", "question", "answer ≈", "source", "error bound ≈"), rows(), numbers=(0, 4), long=1),
    )
