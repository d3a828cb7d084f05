"""Questions in words, from their JSON: ``Mean of faminc by educ (4 groups) and kidlt6, where inlf is 1``; and numbers.

The text is one line, whatever attributes and labels are called: what could be taken for a part of the sentence is
quoted, and what is no visible character is escaped. Markup is text here: who puts it into a page escapes it. Nothing is
refused: of what is no question the text says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

#: Of a list so many items are named, of a label so many characters, and of conditions in one another so many levels.
_NAMED, _CHARACTERS, _DEEP = 6, 60, 8
#: What people see of a number whose standard error passes a third of it.
UNCERTAIN = "too uncertain"
#: Words of conditions, which a name or a label is told from by quotes.
_WORDS = frozenset(("and", "or", "not", "is", "by", "of", "where", "has", "no", "value", "all", "any", "to", "from"))
_STATISTICS = {"sum": "Sum", "mean": "Mean", "variance": "Variance"}
_COMPARED = {"ge": "at least", "gt": "above", "lt": "below", "le": "at most"}
_QUARTILES = {0.25: "First quartile", 0.5: "Median", 0.75: "Third quartile"}


def words(question: Mapping[str, Any]) -> str:
    """A question in words.

    Args:
        question: as the contract has it, with or without what is wanted of its answer.
    """
    kind = question.get("type")
    told = _kinds(question, kind) if isinstance(kind, str) else "A question of no type"
    if question.get("weighted"):
        told = f"Weighted {told[0].lower()}{told[1:]}"
    grouped = question.get("attributes") if kind == "marginal" else question.get("group_by")
    if isinstance(grouped, list) and grouped:
        told += f" by {_series([_grouped(name, question.get('bins')) for name in grouped])}"
    where = question.get("where")
    if isinstance(where, Mapping) and where:
        told += f", where {conditions_in_words(where)}"
    return f"{told}, as the hypothesis has it" if question.get("unverified") else told


def conditions_in_words(where: Mapping[str, Any]) -> str:
    """Conditions in words, such as ``age is at least 30 and below 65``; empty where there are none."""
    return _all_of(where, 0)


def name_in_words(name: object) -> str:
    """An attribute's name, or a label, on one line: in quotes where it could be taken for something else."""
    if not isinstance(name, str):
        return number_in_words(name)
    short = name if len(name) <= _CHARACTERS else f"{name[: _CHARACTERS - 1]}…"
    plain = short.replace("_", "").replace("-", "").replace(".", "").replace("…", "")
    if plain.isalnum() and not plain.isdigit() and short.lower() not in _WORDS:
        return short
    quoted = json.dumps(short, ensure_ascii=False)
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in quoted)


def number_in_words(value: object) -> str:
    """A number as people write it; anything else by its kind."""
    if value is None:
        return "no value"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if abs(value) < 10_000 else f"{value:,}" if abs(value) < 10**18 else "a large number"
    if isinstance(value, float):
        return f"{value:,.10g}" if abs(value) >= 10_000 else f"{value:.10g}"
    return "something"


def figure(value: float, standard_error: float | None) -> str:
    """A number for a person, with as many decimals as the first two digits of its standard error have; with six digits
    where that is not known."""
    if standard_error is None or not 0 < standard_error < math.inf:
        return f"{value + 0.0:,.6g}"
    decimals = min(max(1 - math.floor(math.log10(standard_error)), 0), 12)
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"


def shown(value: float | None, standard_error: float | None) -> str:
    """A number with its standard error: ``1,234 ± 56``, or ``1,234 ± n/a`` where that is not known; ``n/a`` where there
    is no number."""
    if value is None or math.isnan(value):
        return "n/a"
    error = "n/a" if standard_error is None else figure(standard_error, standard_error)
    return f"{figure(value, standard_error)} ± {error}"


def named(label: object) -> str:
    """A cell's label, for a person."""
    return "no value" if label is None else str(label)


def _kinds(question: Mapping[str, Any], kind: str) -> str:
    of = name_in_words(question.get("of"))
    match kind:
        case "predicate" | "marginal":
            return "Number of records"
        case "sum" | "mean" | "variance":
            return f"{_STATISTICS[kind]} of {of}"
        case "quantile":
            return f"{_quantile(question.get('q'))} of {of}"
        case "share":
            satisfied = question.get("of")
            return f"Share with {conditions_in_words(satisfied) if isinstance(satisfied, Mapping) else of}"
        case "ratio":
            return f"Ratio of {of} to {name_in_words(question.get('per'))}"
        case "hierarchy":
            return f"Number of records at each level of {name_in_words(question.get('attribute'))}"
        case "product":
            return f"Number of records, weighted by {_series(map(name_in_words, _names(question.get('weights'))))}"
        case "cut":
            return f"Cut from {_nodes(question.get('left'))} to {_nodes(question.get('right'))}"
        case "blocks":
            return _blocks(question)
        case "degrees":
            side, bins = question.get("side"), question.get("bins")
            told = "Number of nodes by degree" if side is None else f"Number of nodes by degree ({name_in_words(side)})"
            return f"{told} in {_counted(bins, 'bin')}" if isinstance(bins, list) else told
        case "rank_one":
            left, right = question.get("left"), question.get("right")
            return (
                f"Sum weighted by {_counted(left, 'weight')} to the left and {_counted(right, 'weight')} to the right"
            )
        case "sparse":
            return f"Sum of {_counted(question.get('indices'), 'cell')}, weighted"
        case "dense":
            return "Sum of all cells, weighted"
        case "elements":
            return f"Number of the elements {_series(map(name_in_words, _names(question.get('weights'))))}, weighted"
    return f"A question of the type {name_in_words(kind)}"


def _quantile(parts: object) -> str:
    if isinstance(parts, list):
        return f"Quantiles {_series(map(number_in_words, parts))}"
    if isinstance(parts, float) and parts in _QUARTILES:
        return _QUARTILES[parts]
    return f"Quantile {number_in_words(parts)}"


def _blocks(question: Mapping[str, Any]) -> str:
    left, right = question.get("left"), question.get("right")
    if question.get("only") == "within":
        told = f"Total within each of {_counted(left, 'group')}"
        return told if right is None else f"{told} and the one of its name to the right"
    if right is None:
        return f"Totals between {_counted(left, 'group')}"
    return f"Totals from {_counted(left, 'group')} to {_counted(right, 'group')}"


def _nodes(nodes: object) -> str:
    if nodes == "all":
        return "all nodes"
    if not isinstance(nodes, list):
        return "something"
    if not nodes:
        return "no node"
    named = [name_in_words(node) for node in nodes[: _NAMED + 1]]
    return f"node {named[0]}" if len(nodes) == 1 else f"nodes {_series(named, len(nodes))}"


def _grouped(name: object, bins: object) -> str:
    told = name_in_words(name)
    given = bins.get(name) if isinstance(bins, Mapping) and isinstance(name, str) else None
    if isinstance(given, Mapping):
        return f"{told} ({_counted(given, 'group')})"
    if isinstance(given, list):
        groups = max(len(given) - 1, 0)
        return f"{told} ({groups:,} group{'s' if groups != 1 else ''})"
    return told


def _all_of(where: Mapping[str, Any], depth: int) -> str:
    return _conjunction(_parts(where, depth))


def _parts(where: Mapping[str, Any], depth: int) -> list[str]:
    if depth > _DEEP:
        return ["(further conditions)"]
    parts: list[str] = []
    for name, condition in where.items():
        if name == "all" and isinstance(condition, list):
            for inner in condition:
                parts += _parts(inner, depth + 1) if isinstance(inner, Mapping) else []
        elif name == "any" and isinstance(condition, list):
            several = [_inner(inner, depth) for inner in condition]
            parts.append(several[0] if len(several) == 1 else f"({' or '.join(several)})")
        elif name == "not":
            parts.append(_negated(condition, depth))
        else:
            parts.append(f"{name_in_words(name)} {_condition(condition, negated=False)}")
    return parts


def _negated(where: object, depth: int) -> str:
    if isinstance(where, Mapping) and len(where) == 1:
        ((name, condition),) = where.items()
        if name not in ("all", "any", "not") and _is_simple(condition):
            return f"{name_in_words(name)} {_condition(condition, negated=True)}"
    return f"not ({_conjunction(_parts(where, depth + 1)) if isinstance(where, Mapping) else 'something'})"


def _inner(where: object, depth: int) -> str:
    if not isinstance(where, Mapping):
        return "something"
    parts = _parts(where, depth + 1)
    return _conjunction(parts) if len(parts) < 2 else f"({_conjunction(parts)})"


def _conjunction(parts: list[str]) -> str:
    return ", and ".join(parts) if any(" and " in part for part in parts) else " and ".join(parts)


def _is_simple(condition: object) -> bool:
    """Whether it says one thing, so that ``not`` before it is understood."""
    return not isinstance(condition, Mapping) or (len(condition) == 1 and next(iter(condition)) in ("equals", "in"))


def _condition(condition: object, *, negated: bool) -> str:
    no = "not " if negated else ""
    if not isinstance(condition, Mapping):
        condition = {"in": condition} if isinstance(condition, list) else {"equals": condition}
    if "equals" in condition:
        value = condition["equals"]
        return f"has {'a' if negated else 'no'} value" if value is None else f"is {no}{name_in_words(value)}"
    if isinstance(values := condition.get("in"), list):
        named = [name_in_words(value) for value in values[: _NAMED + 1]]
        return f"is {no}{_series(named, len(values), 'or')}"
    if isinstance(ends := condition.get("between"), list | tuple) and len(ends) == 2:
        return f"is between {name_in_words(ends[0])} and {name_in_words(ends[1])}"
    if "at" in condition:
        return f"is at its {name_in_words(condition['at'])} bound"
    compared = [f"{said} {name_in_words(condition[word])}" for word, said in _COMPARED.items() if word in condition]
    return f"is {' and '.join(compared)}" if compared else "is something"


def _series(items: Iterable[str], in_all: int | None = None, last: str = "and") -> str:
    """Some items as a sentence lists them, the first ones of many."""
    named = list(items)
    count = len(named) if in_all is None else in_all
    if count > _NAMED + 1:
        return f"{', '.join(named[:_NAMED])} {last} {count - _NAMED:,} more"
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} {last} {named[-1]}" if named else "nothing"


def _names(given: object) -> list[Any]:
    return list(given) if isinstance(given, Mapping) else []


def _counted(given: object, one: str) -> str:
    count = len(given) if isinstance(given, list | Mapping) else 0
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"
