"""What judges opens nothing: lines, iterators and open streams are handed to it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import app.audit

pytestmark = pytest.mark.unit

FILES = sorted(Path(app.audit.__file__).parent.rglob("*.py"))
#: Modules by which files, folders, sockets or processes are reached.
MODULES = {
    "asyncio",
    "glob",
    "http",
    "os",
    "pathlib",
    "shutil",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "urllib",
}
#: Functions and methods that open or read a file by its name, whatever they are of.
CALLS = {
    "open",
    "open_text",
    "open_binary",
    "read_bytes",
    "read_text",
    "write_bytes",
    "write_text",
    "iterdir",
    "fdopen",
}


def reached(source: str) -> set[str]:
    """What some code names that opens files or more."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found |= {each.name for each in names if each.name.partition(".")[0] in MODULES}
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES:
                found.add(module)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in CALLS:
                found.add(name)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_audit_opens_nothing(path: Path) -> None:
    """Catches a rule that reads a file by itself, which a test could not hand it and a caller could not bound."""
    assert not reached(path.read_text())


def test_what_opens_is_found() -> None:
    """The test above can fail."""
    assert reached("import os\nfrom pathlib import Path\nPath('x').open()\nopen('x')") == {"os", "pathlib", "open"}
