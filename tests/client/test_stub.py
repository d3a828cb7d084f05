"""The client against the signatures that it was specified by: every public name and parameter of these is there.

The package has more: ``raw``, ``most_bytes``, ``memory_limit``, ``earlier`` and what came to the service since. What it
has otherwise is no matter of names:

- ``MW(step=...)`` and its like take ``"paper"`` where the signatures say ``"fixed"``: it is the contract's word.
  Options that are left out are None, as the service has the defaults.
- ``Principal``, ``Grant``, ``Commitment`` and ``Movement`` are frozen data classes, not tuples: they have more fields
  than those that could be unpacked.
- ``AsyncCurator.session`` gives what may be awaited or entered, which is a session after that; ``dataset`` and ``log``
  of it give ``AsyncDataset`` and ``AsyncLog``, whose calls are awaited too.
- ``Release.save`` writes what there is where no part is named: not every method has ``answers``.
- ``transcript``, ``save_dummy``, ``cancel`` and ``grant`` give something where the signatures give None.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import curator_client

pytestmark = pytest.mark.unit


def problems(stub: str) -> Iterator[str]:
    """What of a stub the package has not: a name, a method, or a parameter."""
    for node in ast.parse(stub).body:
        match node:
            case ast.ClassDef(name=name):
                of = getattr(curator_client, name, None)
                if of is None:
                    yield name
                for member in node.body if of is not None else ():
                    match member:
                        case ast.FunctionDef() | ast.AsyncFunctionDef():
                            yield from _of_function(f"{name}.{member.name}", member, of)
                        case ast.AnnAssign(target=ast.Name(id=field)) if field not in _fields(of):
                            yield f"{name}.{field}"
            case ast.FunctionDef():
                yield from _of_function(node.name, node, curator_client)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name != "A" and not hasattr(curator_client, name):
                    yield name


def _of_function(path: str, stub: ast.FunctionDef | ast.AsyncFunctionDef, of: Any) -> Iterator[str]:
    # The module's names come by its __getattr__.
    found = inspect.getattr_static(of, stub.name, None) if inspect.isclass(of) else getattr(of, stub.name, None)
    if found is None:
        yield path
        return
    is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in stub.decorator_list)
    if is_property or (stub.name.startswith("__") and stub.name != "__init__"):
        if is_property and not isinstance(found, property):
            yield f"{path} is no property"
        return
    has = inspect.signature(found).parameters
    told = stub.args
    keywords = {each.arg for each in told.kwonlyargs}
    for argument in (*told.posonlyargs, *told.args, *told.kwonlyargs):
        there = has.get(argument.arg)
        if there is None:
            yield f"{path}({argument.arg})"
        elif argument.arg not in keywords and there.kind is there.KEYWORD_ONLY:
            yield f"{path}({argument.arg}) is by keyword alone"


def _fields(of: Any) -> set[str]:
    """What objects of a class have: fields, annotated attributes and properties."""
    fields = {each.name for each in dataclasses.fields(of)} if dataclasses.is_dataclass(of) else set()
    noted = {name for base in of.__mro__ for name in inspect.get_annotations(base)}
    return fields | noted | {name for name, each in inspect.getmembers_static(of) if isinstance(each, property)}


def test_every_name_and_parameter_is_there(shared: Path) -> None:
    """Catches what was specified and is missing, or called otherwise."""
    stub = shared / "people" / "api" / "curator_client" / "__init__.pyi"
    if not stub.exists():
        pytest.skip("no signatures beside the checkout")
    assert [*problems(stub.read_text())] == []


def test_what_is_missing_is_found() -> None:
    """Catches a comparison that lets everything pass."""
    stub = """
class Curator:
    def __init__(self, url, key, *, timeout, other): ...
    def dataset(self, name): ...
    def nothing(self): ...
    def release(self, dataset, workload, epsilon): ...
class Nobody: ...
class Price:
    epsilon: float
    cents: int
    @property
    def left(self): ...
class Session:
    @property
    def state(self): ...
def where(conditions, sides): ...
def whence(): ...
Amounts = int
"""
    assert [*problems(stub)] == [
        "Curator.__init__(other)",
        "Curator.nothing",
        "Curator.release(epsilon) is by keyword alone",
        "Nobody",
        "Price.cents",
        "Session.state is no property",
        "where(sides)",
        "whence",
        "Amounts",
    ]


@pytest.mark.slow
def test_the_examples_have_the_right_types(shared: Path, root: Path, tmp_path: Path) -> None:
    """Catches a type that whoever writes such a program would have to cast, or ignore."""
    folder = shared / "people" / "api" / "examples"
    if not folder.is_dir():
        pytest.skip("no examples beside the checkout")
    for example in folder.glob("*.py"):  # where they lie their neighbours are the signatures
        (tmp_path / example.name).write_text(example.read_text())
    files = sorted(map(str, tmp_path.glob("*.py")))
    assert files
    configuration = tmp_path / "mypy.ini"
    configuration.write_text(f"[mypy]\nmypy_path = {root / 'clients' / 'python'}\nignore_missing_imports = true\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(configuration)]
    done = subprocess.run(
        [*command, "--cache-dir", str(root / ".mypy_cache" / "examples"), *files], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
