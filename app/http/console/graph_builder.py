"""The form of a question about a graph, a matrix or a multiset: cuts, groups of nodes, degrees, or any as JSON."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.http.console.builder import Fields, Wrong
from app.http.console.numbers import positive

#: What a form can ask: its word, and for a person.
KINDS = (
    ("within", "Within groups"),
    ("between", "Between groups"),
    ("degrees", "Degrees"),
    ("cut", "A cut"),
    ("json", "Any question"),
)
_SPLIT = re.compile(r"[\s,;]+")


@dataclass(frozen=True, slots=True)
class GraphBuilder:
    """A form as it was filled in."""

    kind: str = "within"
    groups_of: str = ""
    left: str = ""
    right: str = "all"
    edges: str = ""
    json: str = ""
    within: str = ""
    adaptive: bool = False

    @classmethod
    def read(cls, form: Fields) -> GraphBuilder:
        """From the fields of a form."""
        exact = form.get("exact", "session") == "within"
        return cls(
            form.get("kind", "within"),
            form.get("groups"),
            form.get("left"),
            form.get("right", "all"),
            form.get("edges"),
            form.get("json"),
            form.get("within") if exact else "",
            "adaptive" in form,
        )

    def changed(self, do: str) -> GraphBuilder:
        """As it is: it has no rows."""
        return self

    def question(self, choices: object = None) -> dict[str, Any]:
        """The question that the form says, with what is wanted of the answer.

        Raises:
            Wrong: naming each field that says nothing.
        """
        asked: dict[str, Any] = {}
        wrong: dict[str, str] = {}
        match self.kind:
            case "within" | "between":
                try:
                    asked = {"type": "blocks", "left": _groups(self.groups_of)}
                except ValueError as error:
                    wrong["groups"] = str(error)
                if self.kind == "within":
                    asked["only"] = "within"
            case "degrees":
                asked = {"type": "degrees"}
                bins = [part for part in _SPLIT.split(self.edges) if part]
                if bins and not all(part.isdecimal() and len(part) < 10 for part in bins):
                    wrong["edges"] = "whole numbers with spaces between them, such as 0 1 2 4 8"
                elif bins:
                    asked["bins"] = list(map(int, bins))
            case "cut":
                sides = {"left": _nodes(self.left), "right": _nodes(self.right)}
                wrong |= {side: "nodes with spaces between them, or all" for side, nodes in sides.items() if not nodes}
                asked = {"type": "cut", **sides}
            case "json":
                try:
                    found = json.loads(self.json)
                except (ValueError, RecursionError):
                    found = None
                if isinstance(found, dict):
                    asked = found
                else:
                    wrong["json"] = 'a question as JSON, such as {"type": "degrees"}'
            case _:
                wrong["kind"] = "choose what to ask"
        if self.within:
            width = positive(self.within)
            if width is None:
                wrong["within"] = "a number above 0"
            asked["within"] = width
        if self.adaptive:
            asked["adaptive"] = True
        if wrong:
            raise Wrong(wrong)
        return asked

    @classmethod
    def of_question(cls, question: Mapping[str, Any]) -> GraphBuilder | None:
        """The form that says a question: as JSON, which says any."""
        told = {name: part for name, part in question.items() if name not in ("within", "adaptive")}
        return cls(kind="json", json=json.dumps(told, ensure_ascii=False))


def _groups(text: str) -> dict[str, list[Any]]:
    """The nodes of each group, from the group of each node in their order, or by lines of a node and its group. A node
    whose group is empty is in none.

    Raises:
        ValueError: saying what to type.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ValueError("the group of each node, in the order of the nodes, with commas between them")
    rows = [[part.strip() for part in row] for row in csv.reader(lines, skipinitialspace=True)]
    by_node = len(rows) > 1 and all(len(row) == 2 for row in rows)
    if by_node and rows[0][0].lower() in ("node", "id", "name"):
        rows = rows[1:]
    pairs = [(_node(node), group) for node, group in rows] if by_node else list(enumerate(_in_order(rows)))
    groups: dict[str, list[Any]] = {}
    for node, group in pairs:
        if group:
            groups.setdefault(group, []).append(node)
    if not groups:
        raise ValueError("at least one group of nodes")
    return groups


def _in_order(rows: list[list[str]]) -> list[str]:
    """The groups of nodes in their order, whether commas or spaces stand between them."""
    flat = [part for row in rows for part in row]
    return flat[0].split() if len(flat) == 1 else flat


def _node(text: str) -> int | str:
    return int(text) if text.isdecimal() and len(text) < 16 else text


def _nodes(text: str) -> list[Any] | str:
    """Nodes by number or by name, or all of them."""
    text = text.strip()
    if text.lower() in ("all", ""):
        return "all" if text else []
    parts = [part for part in _SPLIT.split(text) if part]
    return list(map(_node, parts))
