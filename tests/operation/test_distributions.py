"""The two distributions: what their wheels hold, how the one names the other, that they serve where they are put."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from email.parser import Parser
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def version(folder: Path) -> str:
    return str(tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"])


def hatchling(folder: Path, *arguments: str, **variables: str) -> str:
    command = [sys.executable, "-m", "hatchling", *arguments]
    told = {name: value for name, value in os.environ.items() if name != "CURATOR_CLIENT"} | variables
    return subprocess.run(command, cwd=folder, env=told, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def wheels(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both, built as `make wheels` does."""
    made = tmp_path_factory.mktemp("wheels")
    hatchling(root / "clients" / "python", "build", "-t", "wheel", "-d", str(made))
    hatchling(root, "build", "-t", "wheel", "-d", str(made), CURATOR_CLIENT=f"=={version(root)}")
    return {path.name.partition("-")[0]: path for path in made.glob("*.whl")}


def needs(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []


def test_what_is_in_them(root: Path, wheels: dict[str, Path]) -> None:
    """Catches a module, a template or a style that is left out, and a file that is in both."""
    held = {}
    for name, wheel in wheels.items():
        with ZipFile(wheel) as archive:
            held[name] = {each for each in archive.namelist() if ".dist-info/" not in each}
    kinds = (".py", ".jinja", ".css")
    written = {path.relative_to(root).as_posix() for path in (root / "app").rglob("*") if path.suffix in kinds}
    assert "app/report/templates/report.html.jinja" in written
    assert {name for name in held["curator"] if not name.startswith("app/migrations/")} >= written
    assert {name.partition("/")[0] for name in held["curator"]} == {"app"}
    own = root / "clients" / "python"
    shared = {path.relative_to(own).as_posix() for path in (own / "curator_client").rglob("*.py")}
    assert held["curator_client"] == shared | {"curator_client/py.typed"}
    assert wheels["curator_client"].stat().st_size < 150_000


def test_docstrings_that_are_left_out(root: Path, wheels: dict[str, Path]) -> None:
    """Catches a module that does something else than its source, and one that people read which lost its words."""
    folder = root / "clients" / "python"
    with ZipFile(wheels["curator_client"]) as archive:
        for path in sorted((folder / "curator_client").rglob("*.py")):
            name = path.relative_to(folder).as_posix()
            there, source = archive.read(name).decode(), path.read_text()
            assert without_docstrings(there) == without_docstrings(source), name
            if name in ("curator_client/_sync/session.py", "curator_client/answers.py"):
                assert there == source


def without_docstrings(source: str) -> str:
    """What a module does."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is not None:
                node.body[0] = ast.Pass()
            node.body = [each for each in node.body if not isinstance(each, ast.Pass)]
    return ast.dump(tree)


def test_how_the_one_names_the_other(root: Path, wheels: dict[str, Path]) -> None:
    """Catches a wheel that asks for a folder of the machine that built it, and a checkout that asks an index for its
    other half."""
    assert version(root) == version(root / "clients" / "python")
    assert f"curator-client=={version(root)}" in needs(wheels["curator"])
    assert not [each for each in needs(wheels["curator"]) if "file:" in each]
    always = [each for each in needs(wheels["curator_client"]) if "extra ==" not in each]
    assert always == ["httpx>=0.28", "rfc8785>=0.1.4"]
    assert f"curator=={version(root)}; extra == 'replay'" in needs(wheels["curator_client"])
    within = hatchling(root, "metadata", "dependencies")
    assert f"curator-client @ {root.as_uri()}/clients/python" in within


def test_they_serve_where_they_are_put(wheels: dict[str, Path], tmp_path: Path) -> None:
    """Catches wheels that lean on the checkout: from an empty folder, the one alone and both together."""
    for names, module in ((["curator_client"], "curator_client.proofs.follower"), ([*wheels], "app.verifying.folder")):
        target = tmp_path / "-".join(names)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
        subprocess.run([*pip, *(str(wheels[name]) for name in names)], check=True, capture_output=True)
        code = f"import {module}, curator_client; print({module}.__file__, curator_client.__file__)"
        run = [sys.executable, "-c", code]
        found = subprocess.check_output(run, cwd=tmp_path, env={"PYTHONPATH": str(target)}, text=True).split()
        assert all(path.startswith(f"{target}/") for path in found), found


#: What a client takes at most in an empty environment, itself included.
MOST_PACKAGES, MOST_BYTES = 9, 6_000_000


def closure(root: Path) -> dict[str, Distribution]:
    """What the client needs and what that needs, as it is locked and installed here, by name."""
    locked = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (root / "requirements-dev.lock").read_text(), re.MULTILINE))
    found: dict[str, Distribution] = {}
    left = ["curator-client"]
    while left:
        name = canonicalize_name(left.pop())
        if name in found:
            continue
        found[name] = each = distribution(name)
        assert name == "curator-client" or each.version == locked[name], f"{name}: run make setup"
        asked = map(Requirement, each.requires or ())
        left += [need.name for need in asked if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def test_what_a_client_takes_in_an_empty_environment(root: Path, wheels: dict[str, Path]) -> None:
    """Catches a dependency of the client that brings others along, or megabytes. Sizes are those of installed files
    without what Python compiles of them; of the client those of its wheel, unpacked."""
    needed = closure(root)
    assert {"httpx", "rfc8785"} < needed.keys()
    assert len(needed) <= MOST_PACKAGES, sorted(needed)
    with ZipFile(wheels["curator_client"]) as archive:
        size = sum(each.file_size for each in archive.infolist())
    for name, each in needed.items():
        if name != "curator-client":
            files = [Path(str(each.locate_file(file))) for file in each.files or ()]
            own = sum(file.stat().st_size for file in files if file.suffix != ".pyc" and file.is_file())
            assert own > 0, name
            size += own
    assert size < MOST_BYTES
