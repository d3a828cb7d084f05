"""Pages of the reference that are made of the code: what a page writes as `{made} NAME` stands in the site as that.

Each is Markdown, made anew whenever the site is built, so that none can be older than the code.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from prometheus_client import Metric
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import curator_client
from app.bootstrap.wiring import build
from app.cli.application import cli
from app.http.metrics import Metrics
from app.http.problems import PROBLEMS
from app.settings import Settings
from app.sql.aggregates import REFUSED
from app.sql.statement import PARTS
from curator_client.errors import refusal

#: The order of what the HTTP contract is divided into.
_PARTS = (
    "data sets",
    "sessions",
    "answers",
    "SQL",
    "measurements",
    "releases",
    "audit",
    "principals",
    "operation",
)
#: Of the Python client.
_FIRST = ("Curator", "Session", "Dataset", "Answer", "Table", "Release", "Log")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown, nothing where it has no rows."""
    made = [f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in row)} |" for row in rows]
    names = list(head)
    return "\n".join([f"| {' | '.join(names)} |", "|---" * len(names) + "|", *made]) + "\n" if made else ""


def metrics() -> str:
    """Every number that is told to who watches."""

    def row(metric: Metric) -> list[str]:
        # What the library appends to the name of a counter stands in the page that is scraped.
        name = metric.name + ("_total" if metric.type == "counter" else "")
        labels = sorted({label for sample in metric.samples for label in sample.labels} - {"le"})
        return [f"`{name}`", metric.type, ", ".join(labels), metric.documentation]

    numbers = Metrics()
    numbers.request("/", "GET", 200)
    return table(("metric", "kind", "by", "meaning"), map(row, numbers.registry.collect()))


def problems() -> str:
    """Every refusal."""
    return table(
        ("code", "status", "meaning", "in Python"),
        (
            [f"`{code}`", str(status), title, f"`{type(refusal({'type': f'/problems/{code}'}, status)).__name__}`"]
            for code, (status, title) in sorted(PROBLEMS.items(), key=lambda each: (each[1][0], each[0]))
        ),
    )


def http() -> str:
    """Every route, by what it is about."""
    with tempfile.TemporaryDirectory() as folder:
        document = build(Settings(data_dir=Path(folder))).app.openapi()
    schemas = document["components"]["schemas"]
    used: set[str] = set()
    lines: list[str] = []
    routes = [(path, method, said) for path, each in document["paths"].items() for method, said in each.items()]
    parts = [*_PARTS, *sorted({said["tags"][0] for *_, said in routes} - set(_PARTS))]
    for part in parts:
        lines += [f"## {part[:1].upper()}{part[1:]}", ""]
        for path, method, said in routes:
            if said["tags"][0] == part:
                lines += _route(path, method, said, used)
    lines += ["## Bodies and replies", ""]
    described: set[str] = set()
    while found := sorted(used - described):
        for name in found:
            described.add(name)
            lines += _schema(name, schemas[name], used)
    return "\n".join(lines)


def _route(path: str, method: str, said: dict[str, Any], used: set[str]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`\n"
    yield f"{said['summary']}.\n"
    yield table(
        ("parameter", "in", "type", "meaning"),
        (
            [f"`{one['name']}`", one["in"], _type(one["schema"], used), one.get("description", "")]
            for one in said.get("parameters", [])
        ),
    )
    bodies = said.get("requestBody", {}).get("content", {})
    for kind, body in bodies.items():
        yield f"Body, `{kind}`: {_type(body.get('schema', {}), used)}.\n"
    for status, reply in said["responses"].items():
        if status < "300":
            kinds = "; ".join(
                f"`{kind}` {_type(body['schema'], used) if body.get('schema') else ''}".strip()
                for kind, body in reply.get("content", {}).items()
            )
            yield f"Replies {status}{': ' + kinds if kinds else ''}.\n"
    refused = sorted(status for status in said["responses"] if status >= "400")
    yield f"Refuses with {', '.join(refused)}: [problems](problems.md).\n"


def _schema(name: str, schema: dict[str, Any], used: set[str]) -> Iterator[str]:
    yield f"(schema-{name.lower()})=\n"
    yield f"### {name}\n"
    if said := schema.get("description"):
        yield f"{' '.join(said.split())}\n"
    needed = schema.get("required", [])
    if rows := [
        [
            f"`{field}`" + (" (needed)" if field in needed else ""),
            _type(one, used),
            one.get("description", ""),
        ]
        for field, one in schema.get("properties", {}).items()
    ]:
        yield table(("field", "type", "meaning"), rows)
    else:
        yield f"{_type({word: value for word, value in schema.items() if word != 'description'}, used)}\n"


def _type(schema: dict[str, Any], used: set[str]) -> str:
    """The type that a schema describes, in words, with its bounds; what it refers to is linked and noted as used."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        used.add(name)
        return f"[{name}](#schema-{name.lower()})"
    if "const" in schema:
        return f"`{schema['const']!r}`".replace("'", '"')
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_type(one, used) for one in schema[word]))
    match schema.get("type"):
        case "array":
            inside = _type(schema.get("items", {}), used)
            return f"list of {inside}" if inside != "anything" else "list"
        case "object":
            values = schema.get("additionalProperties")
            return f"object of {_type(values, used)}" if isinstance(values, dict) and values else "object"
        case str(kind):
            return kind + _bounds(schema)
        case list(kinds):
            return " or ".join(kinds)
    return "anything"


def _bounds(schema: dict[str, Any]) -> str:
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
        "maxLength": "length at most",
    }
    told = [f"{said} {schema[word]:g}" for word, said in words.items() if word in schema]
    return f", {', '.join(told)}" if told else ""


def grammar() -> str:
    """What statements of others have, and what to say in its place."""
    parts = table(("part of a statement", "what to do"), dict.fromkeys(PARTS.values()))
    functions = table(("function", "what to do"), ([f"`{name}`", hint] for name, hint in sorted(REFUSED.items())))
    return f"{parts}\n{functions}"


def commands() -> str:
    """Every command."""
    return "\n".join(_command(typer.main.get_command(cli), ["curator"]))


def _command(command: Any, words: list[str]) -> Iterator[str]:
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from _command(inner, [*words, name])
    if hasattr(command, "commands"):
        return
    arguments = [one for one in command.params if not one.opts[0].startswith("-")]
    shown = [one.metavar if one.required else f"[{one.metavar}]" for one in arguments]
    yield f"## `{' '.join(words)}`\n"
    yield f"`{' '.join([*words, *shown])}`\n"
    yield re.sub(r"\[/?bold\]", "`", command.help or "") + "\n"
    yield table(
        ("argument or option", "meaning"),
        (
            [
                f"`{one.metavar}`" if one in arguments else ", ".join(f"`{name}`" for name in one.opts),
                (one.help or "") + (" Needed." if one.required else ""),
            ]
            for one in command.params
            if not one.hidden
        ),
    )


def python() -> str:
    """Every public name of the Python client: classes with their methods, then functions and errors."""
    groups: dict[str, list[str]] = {"Classes": [], "Functions and values": [], "Errors": [], "To be awaited": []}
    # What is met first stands first.
    for name in sorted(curator_client.__all__, key=lambda name: (name not in _FIRST, name)):
        found = getattr(curator_client, name)
        is_error = inspect.isclass(found) and issubclass(found, Exception)
        if name.startswith("Async"):
            groups["To be awaited"].append(name)
        else:
            kind = "Errors" if is_error else "Classes" if inspect.isclass(found) else "Functions and values"
            groups[kind].append(name)
    lines = []
    for title, names in groups.items():
        lines += [f"## {title}", ""]
        for name in names:
            found = getattr(curator_client, name)
            kind = "autoclass" if inspect.isclass(found) else "autofunction" if callable(found) else "autodata"
            # What is awaited has the names of what blocks.
            members = "   :members:\n" if title == "Classes" else ""
            lines += ["```{eval-rst}", f".. {kind}:: curator_client.{name}\n{members}", "```", ""]
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {
    "metrics": metrics,
    "problems": problems,
    "commands": commands,
    "grammar": grammar,
    "http": http,
    "python": python,
}


class Made(SphinxDirective):
    """`{made} NAME`: the page of that name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The page, read as if it stood there."""
        name = self.arguments[0]
        if name not in PAGES:
            raise self.error(f"there is no page {name!r} to be made")
        return self.parse_text_to_nodes(PAGES[name](), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directive known."""
    app.add_directive("made", Made)
    return {"parallel_read_safe": True}
