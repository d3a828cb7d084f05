"""What a plan expects of answers, for a person: a table of standard errors and sentences, 80 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from curator_client.words import figure

#: The width of what is printed.
WIDTH = 80
#: The kinds of questions, as a person would ask them; of other kinds their own names.
_KINDS = {
    "one_attribute": "count, conditions on one attribute",
    "two_attributes": "count, conditions on two attributes",
    "cell": "cell of a marginal",
    "share": "share of all records",
}


def expectation_text(plan: Mapping[str, Any]) -> str:
    """The errors that a plan foretells, what they rest on, and how many questions of a wanted accuracy it pays for;
    empty where it says nothing of these.

    Args:
        plan: as the service sent it.
    """
    lines: list[str] = []
    errors, about = plan.get("expected_standard_errors"), plan.get("expectation") or {}
    if errors:
        first, tenth = _rows(errors), _rows(about.get("tenth") or {})
        units = about.get("units") or {}
        heads = ["Standard errors to expect", "first question", "tenth", ""] if tenth else ["Standard errors to expect"]
        table = [heads + [""] * (4 - len(heads))]
        for (kind, attribute), error in first.items():
            later = _shown(tenth.get((kind, attribute))) if tenth else ""
            table.append([_named(kind, attribute), _shown(error), later, units.get(kind, "")])
        lines += _laid_out(table)
    paid = plan.get("questions_within") or {}
    for sentence in [*about.get("words", ()), *paid.get("words", ())]:
        lines += textwrap.wrap(sentence, WIDTH)
    return "\n".join(lines)


def _rows(errors: Mapping[str, Any]) -> dict[tuple[str, str | None], float | None]:
    """A row a kind of question, or an attribute of a kind."""
    found: dict[tuple[str, str | None], float | None] = {}
    for kind, told in errors.items():
        if isinstance(told, Mapping):
            found |= {(kind, attribute): error for attribute, error in told.items()}
        else:
            found[kind, None] = told
    return found


def _named(kind: str, attribute: str | None) -> str:
    return _KINDS.get(kind, kind) if attribute is None else f"{kind} of {attribute}"


def _shown(error: float | None) -> str:
    return "n/a" if error is None else f"± {figure(error, error)}"


def _laid_out(table: list[list[str]]) -> list[str]:
    """Rows of four columns, of which the first gives way."""
    wide = [max(len(row[place]) for row in table) for place in range(4)]
    wide[0] = max(min(wide[0], WIDTH - sum(wide[1:]) - 6), 12)
    lines = []
    for name, first, later, unit in table:
        short = name if len(name) <= wide[0] else name[: wide[0] - 1] + "…"
        cells = [short.ljust(wide[0]), first.rjust(wide[1]), later.rjust(wide[2]) if wide[2] else "", unit]
        lines.append("  ".join(cell for cell in cells if cell).rstrip())
    return lines
