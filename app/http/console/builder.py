"""The form of a question about a table: what may be chosen, from the declaration alone, and the question that it says.

A form may be wrong in every field, and is shown again as it was filled in. A question that a form can say becomes the
form again: what was asked can be asked anew, more exactly or a little differently.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from app.http.console.numbers import number_of, positive

#: What can be asked, in the order of the form: its word in the contract, and for a person.
KINDS = (
    ("count", "How many"),
    ("share", "Share"),
    ("mean", "Mean"),
    ("sum", "Sum"),
    ("ratio", "Ratio"),
    ("variance", "Variance"),
    ("quantile", "Quantile"),
)
#: Those of which records may count as their weight says.
_WEIGHTED = ("count", "share", "mean", "quantile")
#: Comparisons: their word in the form, and for a person.
OPERATORS = (
    ("is", "is"),
    ("not", "is not"),
    ("in", "is one of"),
    ("ge", "is at least"),
    ("gt", "is above"),
    ("lt", "is below"),
    ("le", "is at most"),
    ("missing", "has no value"),
    ("present", "has a value"),
)
_COMPARED = ("ge", "gt", "lt", "le")
#: Most groups-by and conditions of a form.
MOST_ROWS = 12
#: Labels that are offered for a value.
_OFFERED = 200
_SPLIT = re.compile(r"[\s,;]+")


class Fields(Protocol):
    """What was filled in, by name."""

    def get(self, name: str, default: str = "") -> str: ...
    def __contains__(self, name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Choice:
    """An attribute that may be chosen.

    Attributes:
        name: as it was declared.
        numeric: whether it has an order: numbers and dates, and codes.
        statistics: whether means, sums and quantiles of it may be asked.
        dates: whether its values are dates.
        labels: the values that it may have, where they are named or are codes; else empty.
        missing: whether it may have no value.
        about: what its values are, for a person.
        hint: the edges that it is counted in, or an example of some.
        weight: whether it says how many times a record counts.
    """

    name: str
    numeric: bool
    statistics: bool
    dates: bool
    labels: tuple[str, ...]
    missing: bool
    about: str
    hint: str
    weight: bool = False

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Choice:
        """The choice of an attribute, by its declaration."""
        return replace(cls._of(declared), weight=declared.get("role") == "weight")

    @classmethod
    def _of(cls, declared: Mapping[str, Any]) -> Choice:
        name, missing = str(declared["name"]), bool(declared.get("missing", False))
        if "values" in declared:
            labels = tuple(map(str, declared["values"]))
            shown = ", ".join(labels[:4]) + (f" and {len(labels) - 4:,} more" if len(labels) > 4 else "")
            return cls(name, False, False, False, labels, missing, shown, "")
        if "size" in declared:
            size = int(declared["size"])
            labels = tuple(map(str, range(min(size, _OFFERED))))
            return cls(name, True, False, False, labels, missing, f"codes 0 to {size - 1:,}", "")
        if "dates" in declared:
            first, last = declared["dates"]
            return cls(name, True, False, True, (), missing, f"dates from {first} to {last}", f"{first} {last}")
        if "lower" not in declared:
            return cls(name, False, False, False, (), missing, "", "")
        lower, upper = declared["lower"], declared["upper"]
        edges = declared.get("edges") or _evenly(lower, upper, declared.get("bins"))
        return cls(
            name,
            True,
            declared.get("grid") is not None,
            False,
            (),
            missing,
            f"{lower:,.10g} to {upper:,.10g}" if not isinstance(lower, str) else f"{lower} to {upper}",
            " ".join(f"{edge:.10g}" if not isinstance(edge, str) else edge for edge in edges),
        )


def _evenly(lower: Any, upper: Any, bins: Any) -> list[Any]:
    """Some edges, as an example."""
    if isinstance(lower, str) or isinstance(upper, str):
        return [lower, upper]
    count = bins if isinstance(bins, int) and 1 < bins <= 6 else 4
    return [lower + (upper - lower) * part / count for part in range(count + 1)]


@dataclass(frozen=True, slots=True)
class Group:
    """One attribute to group by, and the edges to cut it at: as they were typed."""

    name: str
    edges: str = ""


@dataclass(frozen=True, slots=True)
class Where:
    """One condition, as it was typed."""

    name: str
    operator: str = "is"
    value: str = ""


class Wrong(Exception):
    """Fields of a form that say nothing that can be asked.

    Args:
        told: what to change, by the name of the field.
    """

    def __init__(self, told: Mapping[str, str]) -> None:
        super().__init__(dict(told))
        self.told = dict(told)


@dataclass(frozen=True, slots=True)
class Builder:
    """A form as it was filled in.

    Attributes:
        kind: what is asked.
        of: of a statistic, which attribute's it is.
        parts: of quantiles, which.
        groups: that there is a number for each of.
        conditions: that records satisfy all of.
        within: how far the interval may reach.
        adaptive: whether earlier answers chose the question.
        per: of a ratio, the attribute of the sum below.
        part: of a share, what these records satisfy besides.
        weighted: whether records count as their weight says.
    """

    kind: str = "count"
    of: str = ""
    parts: str = "0.5"
    groups: tuple[Group, ...] = ()
    conditions: tuple[Where, ...] = ()
    within: str = ""
    adaptive: bool = False
    per: str = ""
    part: Where = Where("")
    weighted: bool = False

    @classmethod
    def read(cls, form: Fields) -> Builder:
        """From the fields of a form; a row in which nothing is chosen is none."""
        groups = tuple(
            Group(form.get(f"by-{row}"), form.get(f"edges-{row}")) for row in range(MOST_ROWS) if form.get(f"by-{row}")
        )
        conditions = tuple(
            Where(form.get(f"where-{row}"), form.get(f"operator-{row}", "is"), form.get(f"value-{row}"))
            for row in range(MOST_ROWS)
            if form.get(f"where-{row}")
        )
        exact = form.get("exact", "session") == "within"
        return cls(
            form.get("kind", "count"),
            form.get("of"),
            form.get("parts", "0.5"),
            groups,
            conditions,
            form.get("within") if exact else "",
            "adaptive" in form,
            form.get("per"),
            Where(form.get("part"), form.get("part-operator", "is"), form.get("part-value")),
            "weighted" in form,
        )

    def changed(self, do: str) -> Builder:
        """With a row more or less, as a button says; a button of anything else changes nothing."""
        verb, _, row = do.rpartition("-")
        number = int(row) if row.isdecimal() and len(row) < 4 else None
        if verb == "drop-by" and number is not None:
            return replace(self, groups=self.groups[:number] + self.groups[number + 1 :])
        if verb == "drop-where" and number is not None:
            return replace(self, conditions=self.conditions[:number] + self.conditions[number + 1 :])
        return self

    def question(self, choices: Mapping[str, Choice]) -> dict[str, Any]:
        """The question that the form says, with what is wanted of the answer.

        Raises:
            Wrong: naming each field that says nothing.
        """
        wrong: dict[str, str] = {}
        asked: dict[str, Any] = {}
        names = [group.name for group in self.groups]
        bins: dict[str, Any] = {}
        for row, group in enumerate(self.groups):
            choice = choices.get(group.name)
            if choice is None:
                wrong[f"by-{row}"] = "choose an attribute of the list"
            elif names.index(group.name) != row:
                wrong[f"by-{row}"] = "each attribute once"
            elif group.edges:
                try:
                    bins[group.name] = _edges(choice, group.edges)
                except ValueError as error:
                    wrong[f"edges-{row}"] = str(error)
        if self.kind == "count":
            asked = {"type": "marginal", "attributes": names} if names else {"type": "predicate"}
        elif self.kind in dict(KINDS):
            asked = {"type": self.kind, **self._statistic(choices, wrong)}
            if names:
                asked["group_by"] = names
        else:
            wrong["kind"] = "choose what to ask"
        if bins:
            asked["bins"] = bins
        where = self._where(choices, wrong)
        if where or (self.kind == "count" and not names):
            asked["where"] = where
        if self.within:
            width = positive(self.within)
            if width is None:
                wrong["within"] = "a number above 0"
            else:
                asked["within"] = width
        if self.adaptive:
            asked["adaptive"] = True
        if self.weighted:
            if self.kind not in _WEIGHTED:
                wrong["weighted"] = "sums, ratios and variances have no weighted form"
            asked["weighted"] = True
        if wrong:
            raise Wrong(wrong)
        return asked

    def _statistic(self, choices: Mapping[str, Choice], wrong: dict[str, str]) -> dict[str, Any]:
        if self.kind == "share":
            choice = choices.get(self.part.name)
            try:
                if choice is not None:
                    return {"of": _condition(choice, self.part)}
                wrong["part"] = "choose an attribute of the list"
            except ValueError as error:
                wrong["part-value"] = str(error)
            return {}
        if self.of not in choices or not choices[self.of].statistics:
            wrong["of"] = "choose an attribute of numbers"
        asked: dict[str, Any] = {"of": self.of}
        if self.kind == "quantile":
            try:
                asked["q"] = _quantiles(self.parts)
            except ValueError as error:
                wrong["parts"] = str(error)
        if self.kind == "ratio":
            if self.per not in choices or not choices[self.per].statistics or self.per == self.of:
                wrong["per"] = "choose another attribute of numbers"
            asked["per"] = self.per
        return asked

    def _where(self, choices: Mapping[str, Choice], wrong: dict[str, str]) -> dict[str, Any]:
        conditions = []
        for row, each in enumerate(self.conditions):
            choice = choices.get(each.name)
            if choice is None:
                wrong[f"where-{row}"] = "choose an attribute of the list"
                continue
            try:
                conditions.append(_condition(choice, each))
            except ValueError as error:
                wrong[f"value-{row}"] = str(error)
        keys = [key for condition in conditions for key in condition]
        if len(keys) == len(set(keys)):
            return {key: value for condition in conditions for key, value in condition.items()}
        return {"all": conditions}

    @classmethod
    def of_question(cls, question: Mapping[str, Any], choices: Mapping[str, Choice]) -> Builder | None:
        """The form that says a question; None where none does."""
        kind = question.get("type")
        names = question.get("attributes") if kind == "marginal" else question.get("group_by")
        bins = question.get("bins") or {}
        if kind in ("predicate", "marginal"):
            kind = "count"
        if kind not in dict(KINDS) or not all(isinstance(bins.get(name, []), list) for name in names or ()):
            return None
        groups = tuple(Group(name, " ".join(map(_typed, bins.get(name, [])))) for name in names or ())
        conditions = _conditions(question.get("where") or {})
        of = question.get("of", "")
        part = _conditions(of) if isinstance(of, Mapping) else (Where(""),)
        parts = question.get("q", 0.5)
        within = question.get("within")
        if conditions is None or part is None or len(part) != 1:
            return None
        made = cls(
            kind,
            "" if isinstance(of, Mapping) else str(of),
            ", ".join(map(_typed, parts)) if isinstance(parts, list) else _typed(parts),
            groups,
            conditions,
            "" if within is None else _typed(within),
            bool(question.get("adaptive", False)),
            str(question.get("per", "")),
            part[0],
            bool(question.get("weighted", False)),
        )
        try:  # what a form cannot say exactly, it does not say
            said = made.question(choices)
        except Wrong:
            return None
        return made if _plain(said) == _plain(question) else None


def _plain(question: Mapping[str, Any]) -> dict[str, Any]:
    """A question without what it says by saying nothing, and with conditions in one form of those that say the same."""
    told = {key: value for key, value in question.items() if value not in (None, [], {}, False)}
    if isinstance(told.get("of"), Mapping):
        told["of"] = _one_form(told["of"])
    return {**told, "type": question.get("type"), "where": _one_form(question.get("where") or {})}


def _one_form(where: Any) -> Any:
    """Conditions, each in the form that says it whole."""
    if not isinstance(where, Mapping):
        return where
    made: dict[str, Any] = {}
    for name, said in where.items():
        if name in ("all", "any") and isinstance(said, list):
            made[name] = [_one_form(each) for each in said]
        elif name == "not":
            made[name] = _one_form(said)
        elif isinstance(said, Mapping):
            made[name] = dict(said)
        else:
            made[name] = {"in": said} if isinstance(said, list) else {"equals": said}
    return made


# ---------------------------------------------------------------------- fields


def _edges(choice: Choice, text: str) -> list[Any]:
    """The edges of bins.

    Raises:
        ValueError: saying what to type.
    """
    if not choice.numeric:
        raise ValueError(f"{choice.name} has no order: leave this empty")
    parts = [part for part in _SPLIT.split(text.strip()) if part]
    if len(parts) < 2:
        raise ValueError("two edges at least, such as 0 10 20")
    if choice.dates:
        return parts
    numbers = [number for number in map(number_of, parts) if number is not None]
    if len(numbers) < len(parts):
        raise ValueError("numbers with spaces between them, such as 0 10 20")
    if any(low >= high for low, high in itertools.pairwise(numbers)):
        raise ValueError("each edge larger than the one before")
    return numbers


def _quantiles(text: str) -> float | list[float]:
    """The parts of quantiles: one, or a list.

    Raises:
        ValueError: saying what to type.
    """
    parts = [part for part in _SPLIT.split(text.strip()) if part]
    numbers = [number_of(part) for part in parts]
    if not numbers or any(number is None or not 0 < number < 1 for number in numbers):
        raise ValueError("numbers between 0 and 1, such as 0.5 or 0.25, 0.5, 0.75")
    found = [float(number) for number in numbers if number is not None]
    return found[0] if len(found) == 1 else found


def _condition(choice: Choice, each: Where) -> dict[str, Any]:
    """The condition of a row.

    Raises:
        ValueError: saying what to type.
    """
    name, operator = each.name, each.operator
    if operator in ("missing", "present"):
        nothing: dict[str, Any] = {name: None}
        return nothing if operator == "missing" else {"not": nothing}
    if operator in ("is", "not"):
        one = {name: _value(choice, each.value)}
        return one if operator == "is" else {"not": one}
    if operator == "in":
        values = [value for value in next(csv.reader([each.value], skipinitialspace=True), []) if value.strip()]
        if not values:
            raise ValueError("values with commas between them")
        return {name: {"in": [_value(choice, value.strip()) for value in values]}}
    if operator in _COMPARED:
        if not choice.numeric:
            raise ValueError(f"{choice.name} has no order: compare with is, is not or is one of")
        return {name: {operator: _value(choice, each.value)}}
    raise ValueError("choose a comparison of the list")


def _value(choice: Choice, text: str) -> Any:
    """A value as the contract has it.

    Raises:
        ValueError: saying what to type.
    """
    if not text:
        raise ValueError("a value is missing")
    if choice.dates:
        return text
    if not choice.numeric:
        if choice.labels and text not in choice.labels:
            raise ValueError(f"one of {', '.join(choice.labels[:6])}{' …' if len(choice.labels) > 6 else ''}")
        return text
    number = number_of(text)
    if number is None:
        raise ValueError("a number")
    return number


def _typed(value: Any) -> str:
    """A value as it is typed."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(value) if isinstance(value, float) else str(value)


def _conditions(where: Mapping[str, Any]) -> tuple[Where, ...] | None:
    """The rows of conditions; None where they have no form."""
    rows: list[Where] = []
    for name, said in where.items():
        if name == "all" and isinstance(said, Sequence):
            for inner in said:
                more = _conditions(inner) if isinstance(inner, Mapping) else None
                if more is None:
                    return None
                rows += more
            continue
        if name == "not" and isinstance(said, Mapping) and len(said) == 1:
            more = _conditions(said)
            if more is None or len(more) != 1 or more[0].operator not in ("is", "missing"):
                return None
            rows.append(replace(more[0], operator="not" if more[0].operator == "is" else "present"))
            continue
        row = _row(name, said) if name not in ("any", "all", "not") else None
        if row is None:
            return None
        rows.append(row)
    return tuple(rows)


def _row(name: str, said: Any) -> Where | None:
    found = _one_form({name: said})[name]
    if len(found) != 1:
        return None
    ((word, value),) = found.items()
    if word == "equals":
        return Where(name, "missing") if value is None else Where(name, "is", _typed(value))
    if word == "in" and isinstance(value, list):
        return Where(name, "in", ", ".join(_quoted(_typed(each)) for each in value))
    return Where(name, word, _typed(value)) if word in _COMPARED else None


def _quoted(text: str) -> str:
    return '"{}"'.format(text.replace('"', '""')) if re.search(r'[",]|^\s|\s$', text) else text
