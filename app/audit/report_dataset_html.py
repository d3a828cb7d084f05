"""Data sets on a report's page, from their documents: what was declared, the budget over time, movements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from app.audit.report_markup import Markup, joined, tag
from app.audit.report_parts import amount, facts, laid_out, moment, number, share, spelled, table, words
from app.audit.report_plots import Series, height_axis, number_axis, step_plot, time_axis
from app.audit.report_session_html import overview, session

#: How movements are called.
_KINDS = {
    "reserve": "reserve",
    "charge": "charge",
    "return": "return",
    "purchase": "purchase at the opening",
    "forfeit": "forfeit",
}


def dataset(told: Mapping[str, Any], place: int) -> Markup | None:
    """All that is told of a data set; None where its sums are all."""
    if not told["whole"]:
        return None
    budget, sessions, declared = told["budget"], told["sessions"], told["declared"]
    kind = declared.get("kind") if isinstance(declared, Mapping) else None
    rest = sessions["left_out"]
    return tag(
        "section",
        tag("h2", "Data set ", tag("span", told["name"], class_="name")),
        facts(
            {
                "kind": None if kind is None else spelled(kind),
                "records": None if told["records"] is None else amount(told["records"]),
                "privacy unit": None if told["privacy_unit"] is None else spelled(told["privacy_unit"]),
                "registered": told["registered_at"] or "not in the log",
                "retired": told["retired_at"],
                "commitment to the file": told["commitment"],
                "its key was given to": "; ".join(f"{each['by']}, {each['recorded_at']}" for each in told["revealed"])
                or None,
                "epsilon, delta": f"{amount(budget['epsilon'])}, {amount(budget['delta'])}",
                "limit": _limit(budget),
                "spent": _spent(budget, "spent"),
                "reserved": _spent(budget, "reserved"),
            }
        ),
        _attributes(declared),
        tag("h3", "Budget over time"),
        _budget_plot(told, place),
        _movements(told),
        tag("h3", "Sessions and releases"),
        overview(sessions["first"], f"data-{place}", budget) if sessions["first"] else None,
        joined(
            session(each, f"data-{place}-{n}", budget)
            for n, each in enumerate(sessions["first"], 1)
            if each["detail"] is not None
        ),
        tag(
            "p",
            f"{words(rest['number'], 'more session or release', 'more sessions and releases')} with "
            f"{words(rest['questions'], 'answer')} spent {rest['spent']} in all.",
        )
        if rest["number"]
        else None,
        tag("p", "None.") if not sessions["number"] else None,
        id=f"data-{place}",
    )


def _limit(budget: Mapping[str, Any]) -> str | None:
    if budget["limit"] is None:
        return None
    return f"{budget['limit']} (Renyi divergence at order {budget['order']})"


def _spent(budget: Mapping[str, Any], what: str) -> str:
    about = budget[f"{what}_epsilon"]
    pure = budget["regime"] == "pure"
    shown = budget[f"pure_{what}" if pure else what]
    if pure:
        return f"{shown} of epsilon (pure)"
    return shown if about is None else f"{shown} ≈ {amount(about, 6)} of epsilon {budget['epsilon']}"


def _attributes(declared: Any) -> Markup | None:
    """The declaration: attributes as a table where there are some, and everything as it stands."""
    if declared is None:
        return None
    attributes = declared.get("attributes") if isinstance(declared, Mapping) else None
    shown = None
    if isinstance(attributes, list) and attributes and all(isinstance(each, Mapping) for each in attributes):
        rows = (
            (
                spelled(each.get("name", "")),
                ", ".join(f"{name}: {_brief_value(value)}" for name, value in each.items() if name != "name"),
            )
            for each in attributes
        )
        shown = table(("attribute", "declared as"), rows)
    whole = tag("details", tag("summary", "The declaration as it was registered"), laid_out(declared))
    return joined((tag("h3", "What was declared"), shown, whole))


def _brief_value(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        more = f" and {len(value) - 12:,} more" if len(value) > 12 else ""
        return ", ".join(map(str, value[:12])) + more
    return spelled(value)


def _moment(text: object) -> float | None:
    """Seconds since 1970 of a time of these centuries; None for anything else."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None and 1970 <= found.year < 3000 else None


def _budget_plot(told: Mapping[str, Any], place: int) -> Markup:
    steps, budget = told["steps"], told["budget"]
    if not steps or budget["limit"] is None:
        return tag("p", "Nothing was reserved or spent." if not steps else "No budget is stated that could be shown.")
    pure, epsilon, limit = budget["regime"] == "pure", float(budget["epsilon"]), float(budget["limit"])
    part, prefix = (1.0, "pure_") if pure else (epsilon / limit, "")
    spent = [float(step[f"{prefix}spent"]) * part for step in steps]
    used = [own + float(step[f"{prefix}reserved"]) * part for own, step in zip(spent, steps, strict=True)]
    times = [_moment(step["recorded_at"]) for step in steps]
    whole = [at for at in times if at is not None]
    moments = whole if len(whole) == len(times) and min(whole) < max(whole) else [float(n) for n in range(len(steps))]
    x = time_axis(moments) if moments is whole else number_axis("movement", 0, len(steps))
    unit = "epsilon of pure noise" if pure else f"share of epsilon {budget['epsilon']}"
    high = max(*used, epsilon)
    moved = words(told["movements"]["number"], "movement")
    what = (
        f"{moved} from {steps[0]['recorded_at']} to {steps[-1]['recorded_at']}: "
        f"spent rises from {spent[0]:.4g} to {spent[-1]:.4g}, spent and reserved together were {max(used):.4g} at most "
        f"and are {used[-1]:.4g} at the end; the limit is {epsilon:.4g}."
    )
    areas = [
        Series("reserved", "reserved", list(zip(moments, used, strict=True))),
        Series("spent", "spent", list(zip(moments, spent, strict=True))),
    ]
    name = f"Budget of {told['name']} over time"
    return step_plot(f"budget-{place}", name, what, x, height_axis(unit, high), areas, epsilon)


def _movements(told: Mapping[str, Any]) -> Markup:
    movements, budget = told["movements"], told["budget"]
    shown = [*movements["first"], *movements["last"]]
    pure = any(each["pure"] is not None for each in shown)

    def rows(shown: Sequence[Mapping[str, Any]]) -> Iterable[tuple[object, ...]]:
        for each in shown:
            yield (
                number(each["number"]),
                moment(each["recorded_at"]),
                _KINDS[each["kind"]],
                None if each["session"] is None else tag("code", each["session"]),
                number(each["sequence"]),
                amount(each["amount"]),
                share(each["amount"], budget),
                *((amount(each["pure"]),) if pure else ()),
            )

    columns = ["number", "time", "movement", "session", "entry", "amount", "of epsilon ≈"]
    columns += ["epsilon of pure noise"] if pure else []
    sums = (
        (_KINDS[kind], number(each["number"]), each["amount"], share(each["amount"], budget))
        for kind, each in movements["by_kind"].items()
    )
    left = "; ".join(
        f"{_KINDS[kind]}: {words(each['number'], 'movement')}, {each['amount']} in all"
        for kind, each in movements["left_out"].items()
    )
    return joined(
        (
            tag("h3", "Movements"),
            table(("movement", "number", "amount in all", "of epsilon ≈"), sums, numbers=(1, 2, 3)),
            tag(
                "details",
                tag("summary", f"{words(len(shown), 'movement')} one by one"),
                table(columns, rows(movements["first"]), numbers=(0, 4, 5, 6, 7)),
                tag("p", "In between, left out: ", left, ".") if left else None,
                table(columns, rows(movements["last"]), numbers=(0, 4, 5, 6, 7)) if movements["last"] else None,
            )
            if shown
            else None,
        )
    )
