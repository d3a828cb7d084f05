"""Input: what arguments and options stand for."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Collection
from decimal import Decimal
from pathlib import Path
from typing import Any

import typer

from app.cli.errors import Refusal


def text_of(argument: str) -> str:
    """The text that an argument stands for: itself, ``@FILE``, or ``-`` for standard input."""
    if argument == "-":
        return sys.stdin.read()
    if argument.startswith("@"):
        return Path(argument[1:]).read_text(encoding="utf-8")
    return argument


def read_secret(what: str) -> str:
    """A secret from standard input: at a terminal it is asked for and not shown, else it is all that comes."""
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=True))
    return sys.stdin.read().strip()


def parse_object(text: str, where: str) -> dict[str, Any]:
    """A JSON object.

    Args:
        text: the JSON.
        where: what to call it in a refusal.

    Raises:
        Refusal: when it is something else.
    """
    try:
        parsed = json.loads(text, object_pairs_hook=_object_of)
    except json.JSONDecodeError as error:
        raise Refusal(f"{where} is not JSON from line {error.lineno} column {error.colno} on") from None
    except ValueError as error:
        raise Refusal(f"{where}: {error}") from None
    if not isinstance(parsed, dict):
        raise Refusal(f"{where} is not a JSON object")
    return parsed


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members.

    Raises:
        ValueError: when two members have one name: only the second of them would be sent.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has two members {twice!r}")
    return members


def parse_decimal(text: str, what: str) -> Decimal:
    """A finite number, exactly as it was typed.

    Args:
        text: the number.
        what: what to call it in a refusal.

    Raises:
        Refusal: when it is something else.
    """
    try:
        value = Decimal(text)
    except ArithmeticError:
        value = Decimal("nan")
    if not value.is_finite():
        raise Refusal(f"{what} must be a number, not {text!r}")
    return value


def parse_size(text: str, what: str) -> int:
    """A number of bytes, such as 500MB.

    Args:
        text: the size.
        what: the option that has it.

    Raises:
        typer.BadParameter: when it is something else.
    """
    from app.settings import parse_bytes

    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=what) from None
    assert isinstance(size, int)
    return size


def parse_mechanism(text: str) -> dict[str, Any]:
    """A mechanism: JSON, or a construction alone, whose options are the service's defaults.

    Raises:
        Refusal: when it is meant as JSON and is no JSON object.
    """
    return parse_object(text, text) if text.lstrip().startswith("{") else {"construction": text}


def parse_workload(text: str) -> dict[str, Any]:
    """A workload: JSON, or one of ``marginals=3``, ``marginals=2:age,sex``, ``ranges=age``, ``queries=FILE`` (JSON, a
    list), ``cuts`` and ``rank_one``.

    Raises:
        Refusal: when it is none of these.
    """
    if text.lstrip().startswith("{"):
        return parse_object(text, "--workload")
    kind, _, value = (part.strip() for part in text.partition("="))
    if kind in ("cuts", "rank_one") and value in ("", "all"):
        return {kind: "all"}
    if kind == "ranges" and value:
        return {"ranges": value}
    if kind == "marginals":
        number, some, names = value.partition(":")
        if number.isascii() and number.isdigit() and bool(some) == bool(names):
            named = {"attributes": [name.strip() for name in names.split(",")]} if some else {}
            return {"marginals": int(number), **named}
    if kind == "queries" and value:
        try:
            queries = json.loads(Path(value).read_text(encoding="utf-8"))
        except ValueError:
            raise Refusal(f"{value} is not JSON") from None
        if not isinstance(queries, list):
            raise Refusal(f"{value} is not a JSON list of queries")
        return {"queries": queries}
    raise Refusal(f"--workload: {text!r} is none such as marginals=3, ranges=age, queries=FILE or cuts")


#: Comparisons of conditions, and the words that queries have for them.
_COMPARISONS = {">=": "ge", "<=": "le", ">": "gt", "<": "lt"}
_AT = re.compile(r"\s*([^<>=]*[^<>=\s])\s+at\s+(lower|upper)\s*")
_CONDITION = re.compile(r"\s*([^<>=]*[^<>=\s])\s*(>=|<=|>|<|=)\s*([^<>=\s].*?)\s*", re.DOTALL)
#: A second condition behind the first, and groups of values by name.
_JOINED = re.compile(r"\s(?:and|or|&&?|\|\|?)\s+[^<>=]*[^<>=\s]\s*(?:>=|<=|>|<|=)", re.IGNORECASE)
_GROUPED = re.compile(r"\s*(.+?)\s*(=)\s*(\{.*\})\s*", re.DOTALL)


def _value(text: str) -> Any:
    """A value of an attribute: a number, a string in quotes, null, or the text as it stands."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | str | None) and not isinstance(value, bool) else text


#: A text in quotes, or what stands up to the next comma; quotes within it are a part of it.
_PART = re.compile(r'\s*("(?:[^"\\]|\\.)*"(?=\s*(?:,|$))|[^,]*)\s*(,|$)')


def split(text: str, labels: Collection[str] = ()) -> list[str]:
    """What stands between commas. Those in quotes are no borders, nor those of a label.

    Args:
        text: such as ``1,4``, ``"full, part",none`` or, where that is a label, ``full, part,none``.
        labels: those that may have commas.
    """
    parts = []
    place = 0
    while place <= len(text) and (part := _PART.match(text, place)) is not None:
        parts.append(part[1].strip())
        if not part[2]:
            break
        place = part.end()
    found: list[str] = []
    while parts:
        # As many parts as make a label, else one.
        joined = (n for n in range(len(parts), 1, -1) if any(_same(label, parts[:n]) for label in labels))
        number = next(joined, 1)
        label = next((each for each in labels if number > 1 and _same(each, parts[:number])), None)
        found.append(parts[0] if label is None else json.dumps(label))
        parts = parts[number:]
    return found


def _same(label: str, parts: list[str]) -> bool:
    """Whether a label consists of these parts, whatever blanks stand around its commas."""
    return [part.strip() for part in label.split(",")] == parts


def names_of(text: str) -> list[str]:
    """Names between commas; a name that has a comma stands in quotes."""
    return [str(_value(name)) if name.startswith('"') else name for name in split(text)]


def parse_conditions(
    texts: list[str], labels: Callable[[str], Collection[str]] | None = None, option: str = "--where"
) -> dict[str, Any]:
    """Conditions by attribute, all of which must hold.

    Args:
        texts: each such as ``sex=female``, ``age>=30``, ``workclass=1,4``, ``income at upper`` or ``income=null`` (no
            value; the word itself is ``"null"``), or a JSON object of conditions. A value with a comma stands in
            quotes, or is a label.
        labels: those of an attribute that have a comma; left out, none has.
        option: that they are of.

    Raises:
        Refusal: when one is none of these, or two are of one attribute and not comparisons from either side.
    """
    found: dict[str, Any] = {}
    for text in texts:
        at = _AT.fullmatch(text)
        if text.lstrip().startswith("{"):
            given = parse_object(text, option)
        elif at is not None:
            given = {at[1]: {"at": at[2]}}
        else:
            parts = _CONDITION.fullmatch(text)
            if parts is None:
                raise Refusal(f"{option}: {text!r} is no condition such as sex=female or age>=30")
            name, sign, right = parts.groups()
            if _JOINED.search(right) and right[0] != '"':
                raise Refusal(f"{option}: {text!r} is several conditions: give {option} for each that must hold")
            if name.endswith("!"):
                otherwise = json.dumps({"not": {name[:-1].strip(): _value(right)}})
                raise Refusal(f"{option}: what must not hold is said in JSON: '{otherwise}'")
            if len(right) > 2 and right[0] == right[-1] == "'":
                raise Refusal(f"{option}: a value stands without quotes, or in double ones: {name}{sign}{right[1:-1]}")
            known_labels = labels(name) if labels is not None and "," in right else ()
            values = [_value(part) for part in split(right, known_labels)]
            if sign != "=" and right == "null":
                raise Refusal(f"{option}: no value is neither more nor less than another: {name}=null selects it")
            if sign != "=":
                given = {name: {_COMPARISONS[sign]: _value(right)}}
            else:
                given = {name: values[0] if len(values) == 1 else values}
        for name, condition in given.items():
            known = found.get(name, {})
            bounds = isinstance(condition, dict) and isinstance(known, dict) and not known.keys() & condition.keys()
            # What must not hold of two, each by itself, is another thing than the two together.
            if name in found and (not bounds or name == "not"):
                raise Refusal(f"{option}: {name} has two conditions that are not bounds from either side")
            found[name] = known | condition if isinstance(condition, dict) else condition
    return found


def read_groups(path: Path, what: str) -> dict[str, list[str]]:
    """Groups of nodes from a file with a row a node: the node and the name of its group, empty where it has none.

    Args:
        path: CSV, or TSV by its name; a first row whose first field is ``node`` is a header.
        what: the option that names it.

    Raises:
        Refusal: when it cannot be read, or a row is no node and its group.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Refusal(f"{what}: {path} cannot be read: {error}") from None
    found: dict[str, list[str]] = {}
    for number, row in enumerate(rows, 1):
        fields = [field.strip() for field in row]
        if not any(fields) or (number == 1 and fields[0].lower() == "node"):
            continue
        if len(fields) != 2 or not fields[0]:
            raise Refusal(f"{what}: {path} line {number}: a row is a node and the name of its group")
        node, name = fields
        if name:
            found.setdefault(name, []).append(node)
    return found


def numbered(groups: dict[str, list[str]], what: str) -> dict[str, list[int]]:
    """The same groups of nodes that have numbers, and no declared labels.

    Raises:
        Refusal: naming a node that is no number.
    """
    wrong = next((n for nodes in groups.values() for n in nodes if not (n.isascii() and n.isdigit())), None)
    if wrong is not None:
        raise Refusal(f"{what}: {wrong!r} is no node: those of this data set are whole numbers from 0")
    return {name: [int(node) for node in nodes] for name, nodes in groups.items()}


def parse_degrees(text: str) -> list[int]:
    """The least degrees of bins: whole numbers between commas.

    Raises:
        Refusal: when one is no such number.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise Refusal(f"--bins: {text!r} is not the least degree of each bin, such as 0,1,2,5")
    return [int(part) for part in parts]


def parse_levels(text: str) -> float | list[float]:
    """The parts of quantiles: one number, or several between commas.

    Raises:
        Refusal: when one is no number.
    """
    levels = [float(parse_decimal(part.strip(), "--q")) for part in text.split(",")]
    return levels[0] if len(levels) == 1 else levels


def parse_bins(texts: list[str]) -> dict[str, Any]:
    """Edges of bins by attribute, or groups of values.

    Args:
        texts: each such as ``age=15,30,45``, or ``work={"employed": ["full", "part"]}``.

    Raises:
        Refusal: when one is none of these, or two are of one attribute.
    """
    found: dict[str, Any] = {}
    for text in texts:
        groups = _GROUPED.fullmatch(text)
        name, sign, edges = (part.strip() for part in text.rpartition("=")) if groups is None else groups.groups()
        if not sign or not name or name in found:
            raise Refusal(f"--bins: {text!r} is not the edges of another attribute, such as age=15,30,45")
        if groups is None and "," not in edges:
            raise Refusal(
                f"--bins: {text!r} has no two edges, such as age=15,30,45. Groups of values are JSON, such as "
                """'work={"employed": ["full", "part"], "none": ["none"]}'"""
            )
        found[name] = (
            [_value(edge.strip()) for edge in edges.split(",")] if groups is None else parse_object(edges, text)
        )
    return found
