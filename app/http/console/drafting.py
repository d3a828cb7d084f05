"""A declaration as a form: its fields, and the declaration that they say; what was guessed from the file, until it is
changed.

A form has fields for what most tables declare. What it has no field for is kept as JSON beside them, and a declaration
that is no table is written as JSON altogether.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.declarations.errors import InvalidRequest
from app.http.console.gate import Form

#: How attributes are declared, and what each is called.
TYPES = {
    "numbers": "numbers",
    "codes": "codes from 0",
    "values": "categories",
    "dates": "dates",
    "other": "otherwise, as JSON",
}
#: More attributes than these are written as JSON: a form of them would be no help.
MOST_ATTRIBUTES = 60
#: The fields of a declaration that the form has, and those of an attribute by how it is declared.
_OWN = ("name", "kind", "description", "attributes", "budget", "access", "records_public", "unit")
_NUMBERS, _SHARED = ("lower", "upper", "grid", "bins"), ("name", "missing", "outside")


@dataclass(frozen=True)
class AttributeForm:
    """One attribute of a form.

    Attributes:
        name: of the column.
        type: a key of :data:`TYPES`.
        fields: what is typed, by name.
        guessed: what was guessed from the file, as JSON; empty where nothing was.
        left: whether the attribute is to be left out.
    """

    name: str
    type: str
    fields: Mapping[str, str]
    guessed: str = ""
    left: bool = False

    @classmethod
    def of(cls, attribute: Mapping[str, Any], guessed: str) -> AttributeForm:
        """The form of an attribute as it is declared."""
        rest = {key: value for key, value in attribute.items() if key not in _SHARED}
        type, fields = _fields(rest)
        fields |= {"missing": "on" if attribute.get("missing") else "", "outside": str(attribute.get("outside") or "")}
        return cls(str(attribute.get("name", "")), type, fields, guessed)

    @classmethod
    def read(cls, form: Form, at: int) -> AttributeForm:
        """The form of an attribute as it was filled in."""
        names = (*_NUMBERS, "edges", "size", "values", "integers", "from", "to", "by", "more", "missing", "outside")
        fields = {name: form.get(f"a{at}.{name}") for name in names}
        type = form.get(f"a{at}.type")
        return cls(
            form.raw(f"a{at}.name"),
            type if type in TYPES else "other",
            fields,
            form.raw(f"a{at}.guessed"),
            f"a{at}.left" in form,
        )

    def say(self, name: str) -> str:
        """What is typed in a field."""
        return self.fields.get(name, "")

    @property
    def amber(self) -> bool:
        """Whether it is what was guessed still."""
        return bool(self.guessed) and not self.left and _text(self.attribute()) == self.guessed

    def attribute(self) -> dict[str, Any]:
        """What it declares; a text that is no number stays one, and is refused as what it is."""
        made: dict[str, Any] = {"name": self.name}
        if self.type == "numbers":
            made |= {name: number(text) for name in _NUMBERS if (text := self.say(name))}
            if edges := self.say("edges"):
                made["edges"] = [number(part) for part in edges.replace(",", " ").split()]
        elif self.type == "codes":
            made["size"] = number(self.say("size"))
        elif self.type == "values":
            lines = [line.strip() for line in self.say("values").splitlines() if line.strip()]
            made["values"] = [number(line) for line in lines] if self.say("integers") else lines
        elif self.type == "dates":
            made |= {"dates": [self.say("from"), self.say("to")], **({"by": by} if (by := self.say("by")) else {})}
        if more := self.say("more"):
            made |= _object(more, self.name)
        if self.say("missing"):
            made["missing"] = True
        if outside := self.say("outside"):
            made["outside"] = outside
        return made


@dataclass(frozen=True)
class DraftForm:
    """A declaration of a table as a form.

    Attributes:
        fields: of the declaration, by name.
        attributes: its attributes.
        guessed_budget: the budget that only holds the place, as JSON; empty where it was declared.
    """

    fields: Mapping[str, str]
    attributes: Sequence[AttributeForm] = field(default_factory=tuple)
    guessed_budget: str = ""

    @classmethod
    def of(cls, spec: Mapping[str, Any], guesses: Mapping[str, str]) -> DraftForm:
        """The form of a declaration, with what was guessed (:func:`guesses_of`)."""
        budget, unit = spec.get("budget"), spec.get("unit")
        budget = budget if isinstance(budget, dict) else {}
        unit = unit if isinstance(unit, dict) else {}
        rest = {key: value for key, value in spec.items() if key not in _OWN}
        fields = {
            "name": str(spec.get("name", "")),
            "description": str(spec.get("description", "")),
            "epsilon": plain(budget.get("epsilon", "")),
            "delta": plain(budget.get("delta", "")),
            "access": str(spec.get("access", "open")),
            "records_public": "on" if spec.get("records_public") else "",
            "unit_column": str(unit.get("column", "")),
            "unit_max": plain(unit.get("max_records", "")),
            "rest": written(rest) if rest else "",
        }
        attributes = [
            AttributeForm.of(each, guesses.get(str(each.get("name")), ""))
            for each in spec.get("attributes", ())
            if isinstance(each, dict)
        ]
        return cls(fields, attributes, guesses.get("", ""))

    @classmethod
    def read(cls, form: Form) -> DraftForm:
        """The form of a declaration as it was filled in."""
        names = (
            "name",
            "description",
            "epsilon",
            "delta",
            "access",
            "records_public",
            "unit_column",
            "unit_max",
            "rest",
        )
        count = form.get("attributes", "0")
        many = min(int(count), 1000) if count.isascii() and count.isdigit() and len(count) < 5 else 0
        attributes = [AttributeForm.read(form, at) for at in range(many)]
        return cls({name: form.get(name) for name in names}, attributes, form.raw("guessed_budget"))

    @property
    def budget(self) -> dict[str, Any]:
        """What may be spent in all."""
        return {name: number(self.fields[name]) for name in ("epsilon", "delta")}

    @property
    def amber_budget(self) -> bool:
        """Whether the budget is what only holds the place still."""
        return bool(self.guessed_budget) and _text(self.budget) == self.guessed_budget

    @property
    def guesses(self) -> dict[str, str]:
        """What was guessed, by attribute, and by no name for the budget."""
        found = {each.name: each.guessed for each in self.attributes if each.guessed}
        return found | ({"": self.guessed_budget} if self.guessed_budget else {})

    def spec(self) -> dict[str, Any]:
        """The declaration.

        Raises:
            InvalidRequest: when JSON in it cannot be read.
        """
        say = self.fields
        made: dict[str, Any] = {"name": say["name"], "kind": "table"}
        if say["description"]:
            made["description"] = say["description"]
        made["attributes"] = [each.attribute() for each in self.attributes if not each.left]
        if say["unit_column"] or say["unit_max"]:
            made["unit"] = {"column": say["unit_column"], "max_records": number(say["unit_max"])}
        made["budget"] = self.budget
        if say["access"] == "granted":
            made["access"] = "granted"
        if say["records_public"]:
            made["records_public"] = True
        return {**made, **(_object(say["rest"], "the declaration") if say["rest"] else {})}


def guesses_of(spec: Mapping[str, Any], names: Sequence[str], *, budget: bool) -> dict[str, str]:
    """What was guessed of a declaration: attributes of these names, and the budget where that only holds the place."""
    found = {each["name"]: _text(each) for each in spec.get("attributes", ()) if each.get("name") in names}
    return found | ({"": _text(spec["budget"])} if budget else {})


def amber(spec: Any, guesses: Mapping[str, str]) -> int:
    """How much of a declaration is what was guessed still."""
    if not isinstance(spec, dict) or not guesses:
        return 0
    attributes = spec.get("attributes")
    listed = [each for each in attributes if isinstance(each, dict)] if isinstance(attributes, list) else []
    same = sum(guesses.get(str(each.get("name"))) == _text(each) for each in listed)
    return same + (guesses.get("") == _text(spec.get("budget")))


def number(text: str) -> Any:
    """A number as it is typed; what is none stays a text, which the declaration's own rules refuse."""
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def plain(value: Any) -> str:
    """A number as people write it."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _fields(rest: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """How an attribute is declared, and what its fields say; what there is no field for stands in ``more``."""
    known: dict[str, str] = {}
    own: tuple[str, ...]
    if "lower" in rest or "upper" in rest:
        type, own = "numbers", (*_NUMBERS, "edges")
        known = {name: plain(rest[name]) for name in _NUMBERS if name in rest}
        if "edges" in rest:
            known["edges"] = " ".join(map(plain, rest["edges"])) if isinstance(rest["edges"], list) else ""
    elif "size" in rest:
        type, own, known = "codes", ("size",), {"size": plain(rest["size"])}
    elif _listed(rest.get("values")):
        integers = all(isinstance(each, int) for each in rest["values"])
        type, own = "values", ("values",)
        known = {"values": "\n".join(map(str, rest["values"])), "integers": "1" if integers else ""}
    elif isinstance(rest.get("dates"), list) and len(rest["dates"]) == 2:
        type, own = "dates", ("dates", "by")
        known = {"from": str(rest["dates"][0]), "to": str(rest["dates"][1]), "by": str(rest.get("by", ""))}
    else:
        type, own = "other", ()
    more = {key: value for key, value in rest.items() if key not in own}
    return type, known | ({"more": written(more)} if more else {})


def _listed(values: Any) -> bool:
    """Whether categories can stand one on a line: whole numbers alone, or texts without ends of lines or spaces around
    them."""
    if not isinstance(values, list) or not values:
        return False
    if all(isinstance(each, int) and not isinstance(each, bool) for each in values):
        return True
    return all(isinstance(each, str) and each and each.strip() == each and each.isprintable() for each in values)


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidRequest(f"{what[:64]}: what else is declared is JSON, an object in braces")
    return found


def _text(value: Any) -> str:
    """A part of a declaration by which it is told from another, however its numbers are written."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def written(value: Any, indent: int | None = None) -> str:
    """JSON for a person who goes on with it: letters as they are, but those that nobody sees."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def fits(spec: Mapping[str, Any]) -> bool:
    """Whether fields can say a declaration: a table of not too many attributes, whose texts are each on one line."""
    attributes = spec.get("attributes")
    if spec.get("kind") != "table" or not isinstance(attributes, list) or len(attributes) > MOST_ATTRIBUTES:
        return False
    texts = [spec.get("name", ""), spec.get("description", "")]
    texts += [each.get("name", "") if isinstance(each, dict) else None for each in attributes]
    return all(isinstance(text, str) and text.isprintable() and text == text.strip() for text in texts)
