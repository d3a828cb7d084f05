"""Whatever a document says to type is there: commands with their options, and calls of the client with their arguments.

README.md, docs/tour.md, docs/releases.md and docs/python.md are run whole by tests of their own. What the others show
is of sessions, files and databases that stand for the reader's: it is held here against the command line and the client
without being run.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli.application import cli
from curator_client import AsyncCurator, AsyncSession, Table

pytestmark = pytest.mark.unit

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(curator [^`\n]+)`")
#: What examples call these objects. What blocks has the same names, and not ask_each.
_OBJECTS = {"curator": AsyncCurator, "session": AsyncSession, "table": Table}


def documents(root: Path) -> list[Path]:
    return [*(root / "docs").rglob("*.md"), *(root / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING"))]


def commands(text: str) -> Iterator[tuple[list[str], bool]]:
    """The words of every command that a text shows, and whether it stands in a sentence, maybe without arguments."""
    for language, block in _BLOCK.findall(text):
        if language in ("", "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                found = re.match(r"(?:\w+=\$\(|export \w+=\$\()?(curator .*?)(?:\) *$| [|>] .*)?$", line)
                if found:
                    yield shlex.split(found[1], comments=True), False
    for inline in _INLINE.findall(_BLOCK.sub("", text)):
        yield shlex.split(re.sub(r"[][]", "", inline)), True


@pytest.fixture(scope="module")
def top() -> Any:
    return typer.main.get_command(cli)


def problem(command: Any, words: list[str], *, named: bool) -> str | None:
    """What the command line has against a command, other than that a file of its is not here."""
    _, *arguments = words
    while (known := getattr(command, "commands", None)) is not None:
        if not arguments or arguments[0] in ("--help", "--version"):
            return None if named or arguments else "a group of commands"
        name = arguments.pop(0)
        if name not in known:
            return f"no command {name}"
        command = known[name]
    try:
        command.make_context(command.name, list(arguments))
    except Exception as error:
        kind, told = type(error).__name__, str(error)
        # In a sentence options stand without what is given to them, or with a letter for it.
        without = ("MissingParameter", "BadOptionUsage", "BadParameter")
        accepted = "does not exist" in told or kind == "Exit" or (named and kind in without)
        return None if accepted else f"{kind}: {told}"
    return None


def test_every_command_is_understood(root: Path, top: Any) -> None:
    """Would catch a command or an option that was renamed while a document sends readers to it."""
    seen, wrong = 0, []
    for document in documents(root):
        for words, named in commands(document.read_text()):
            seen += 1
            found = problem(top, words, named=named)
            if found is not None:
                wrong.append((document.name, " ".join(words), found))
    assert wrong == []
    assert seen > 120


def test_a_wrong_command_is_noticed(top: Any) -> None:
    """Would catch a check that takes anything."""
    text = (
        "```\ncurator ask S --nonsense 1\nx=$(curator session opened d)\ncurator ledger\ncurator ledger d  # all\n```\n"
        "`curator ledger` and `curator plan D --eps 1`"
    )
    found = [problem(top, words, named=named) for words, named in commands(text)]
    assert [told is None for told in found] == [False, False, False, True, True, False]


def calls(code: str) -> Iterator[tuple[str, str, ast.Call]]:
    """Calls of methods of what examples have at hand."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if name in _OBJECTS:
                yield name, method, node


def test_every_call_of_the_client_is_one(root: Path) -> None:
    """Would catch a method or an argument of the client that was renamed while an example still has it."""
    seen, wrong = 0, []
    for document in documents(root):
        for language, block in _BLOCK.findall(document.read_text()):
            for name, method, call in calls(block) if language == "python" else ():
                seen += 1
                own = getattr(_OBJECTS[name], method, None)
                if own is None:
                    wrong.append((document.name, f"{name}.{method}"))
                    continue
                given = {keyword.arg: None for keyword in call.keywords if keyword.arg}
                if any(isinstance(argument, ast.Starred) for argument in call.args):
                    continue
                try:
                    inspect.signature(own).bind(None, *call.args, **given)
                except TypeError as error:
                    wrong.append((document.name, f"{name}.{method}: {error}"))
    assert wrong == []
    assert seen > 20
