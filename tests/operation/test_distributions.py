"""The two distributions: what their wheels hold and need, that they are built alike wherever that is, and that they
serve where there is nothing else."""

from __future__ import annotations

import ast
import importlib.resources
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator
from email.parser import Parser
from importlib.metadata import Distribution, distribution
from pathlib import Path

import httpx
import jsonschema_rs
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.harness import free_port
from curator_client import __version__
from tests.kit.patience import patience
from tests.kit.processes import end_with_tests

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OWN = {"curator-client", "curator-server"}


@pytest.fixture(scope="module")
def dist(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheels` makes, but for the sums."""
    folder = tmp_path_factory.mktemp("dist")
    for script in ("wheels.py", "sbom.py"):
        subprocess.run([sys.executable, str(root / "release" / script), str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheels(dist: Path) -> dict[str, Path]:
    """Both, by their names as files have them."""
    return {path.name.partition("-")[0]: path for path in dist.glob("*.whl")}


def needs(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def test_what_is_in_them(root: Path, wheels: dict[str, Path]) -> None:
    """Catches a module, a migration, a template, a style, a font or a script that is left out, and a file that is in
    both."""
    held = {}
    for name, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            held[name] = {each for each in archive.namelist() if ".dist-info/" not in each}
    written = {path.relative_to(root).as_posix() for path in files(root / "app")}
    written |= {f"app/{path.relative_to(root).as_posix()}" for path in files(root / "migrations")}
    assert {"app/report/templates/report.html.jinja", "app/http/console/static/vendor/htmx.min.js"} < written
    assert held["curator_server"] == written
    own = root / "clients" / "python"
    assert held["curator_client"] == {path.relative_to(own).as_posix() for path in files(own / "curator_client")}
    assert wheels["curator_client"].stat().st_size < 150_000


def test_docstrings_that_are_left_out(root: Path, wheels: dict[str, Path]) -> None:
    """Catches a module that does something else than its source, and one that people read which lost its words."""
    folder = root / "clients" / "python"
    with zipfile.ZipFile(wheels["curator_client"]) as archive:
        for path in sorted((folder / "curator_client").rglob("*.py")):
            name = path.relative_to(folder).as_posix()
            there, source = archive.read(name).decode(), path.read_text()
            assert without_docstrings(there) == without_docstrings(source), name
            if name in ("curator_client/_sync/session.py", "curator_client/answers.py"):
                assert public_words(there) == public_words(source)
                assert len(public_words(source)) > 10


def public_words(source: str) -> list[str | None]:
    """The docstrings of a module and of all in it that has a public name."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    found = [ast.get_docstring(ast.parse(source))]
    return [*found, *(ast.get_docstring(node) for node in nodes if not node.name.startswith("_"))]


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
    """Catches a wheel that asks for a folder of the machine that built it, one that takes a client of another version,
    and a checkout that asks an index for its other half."""
    assert {path.name.split("-")[1] for path in wheels.values()} == {__version__}
    assert f"curator-client=={__version__}" in needs(wheels["curator_server"])
    assert not [each for each in needs(wheels["curator_server"]) if "file:" in each]
    always = [each for each in needs(wheels["curator_client"]) if "extra ==" not in each]
    assert always == ["httpx>=0.28", "rfc8785>=0.1.4"]
    assert "curator-server; extra == 'replay'" in needs(wheels["curator_client"])
    told = {name: value for name, value in os.environ.items() if name != "CURATOR_CLIENT"}
    command = [sys.executable, "-m", "hatchling", "metadata", "dependencies"]
    within = subprocess.check_output(command, cwd=root, env=told, text=True)
    assert f"curator-client @ {root.as_uri()}/clients/python" in within


def test_the_extra_brings_the_service_of_the_same_version(wheels: dict[str, Path], tmp_path: Path) -> None:
    """Of two versions of the service pip takes that of the client's, also where it is not the newest. Catches an extra
    that replays with a program of another version."""
    for name, version, needed in (("curator_server", "9.0", "curator-client==9.0"), ("curator_client", "9.0", "")):
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += f"Requires-Dist: {needed}\n" if needed else ""
        with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            info = f"{name}-{version}.dist-info"
            archive.writestr(f"{info}/METADATA", metadata)
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
    # What else they need is of no matter here, and would have to come from an index.
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(tmp_path / wheel.name, "w") as archive:
            for name in source.namelist():
                if name.endswith(".dist-info/METADATA"):
                    lines = source.read(name).decode().splitlines()
                    own = [each for each in lines if not each.startswith("Requires-Dist:") or "curator-" in each]
                    archive.writestr(name, "\n".join(own))
                elif ".dist-info/" in name:
                    archive.writestr(name, source.read(name))
    report = tmp_path / "report.json"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-index"]
    asked = f"curator-client[replay]=={__version__}"
    subprocess.run([*pip, "--find-links", str(tmp_path), "--report", str(report), asked], check=True)
    found = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    assert {(each["name"], each["version"]) for each in found} == {(name, __version__) for name in OWN}


#: What a build puts into a module of the client.
PLANTED = {
    "the folder": "str(self.root)",
    "the order of a set": "' '.join({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'})",
}


@pytest.mark.parametrize("what", PLANTED)
def test_builds_that_differ_are_refused(root: Path, tmp_path: Path, what: str) -> None:
    """The net itself: a build back end that writes down where it runs, or an order that Python chooses. Catches a
    comparison that looks at nothing, and two builds that have too much in common."""
    for name in ("README.md", "app", "clients/python", "migrations", "pyproject.toml", "release"):
        copy = shutil.copyfile if (root / name).is_file() else shutil.copytree
        (tmp_path / name).parent.mkdir(exist_ok=True)
        copy(root / name, tmp_path / name)
    hook = tmp_path / "clients" / "python" / "hatch_build.py"
    source, place = hook.read_text(), 'shortened(path.read_text(encoding="utf-8"), read=name in PUBLIC)'
    assert source.count(place) == 1
    hook.write_text(source.replace(place, f'{place} + "# " + {PLANTED[what]}'))
    target = tmp_path / "dist"
    command = [sys.executable, str(tmp_path / "release" / "wheels.py"), str(target)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "not reproducible: curator_client-" in ran.stderr
    assert "curator_client/calls.py" in ran.stderr
    assert not list(target.iterdir())


# ---------------------------------------------------------------------- what they need


def test_the_bill_of_materials(root: Path, dist: Path, wheels: dict[str, Path]) -> None:
    """It is of the schema of CycloneDX, has what is locked and no more, and who needs whom as what is installed here
    says itself. Catches a package that is left out, hashes of another one, and needs that are lost."""
    schemas = importlib.resources.files("cyclonedx.schema._res")

    def schema(name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((schemas / f"{name}.SNAPSHOT.schema.json").read_text())
        return found

    parts = [
        (f"http://cyclonedx.org/schema/{each}.SNAPSHOT.schema.json", schema(each)) for each in ("spdx", "jsf-0.82")
    ]
    (path,) = dist.glob("*.cdx.json")
    bill = json.loads(path.read_text())
    rules = jsonschema_rs.validator_for(schema("bom-1.6"), registry=jsonschema_rs.Registry(parts))
    rules.validate(bill)
    assert not rules.is_valid(bill | {"components": [{"type": "no such type", "name": "x"}]})

    lock = (root / "requirements.lock").read_text()
    pins = {
        f"pkg:pypi/{name}@{version}" for name, version in re.findall(r"^([\w.-]+)(?:\[.*?\])?==([\w.]+)", lock, re.M)
    }
    purls = {each["purl"] for each in bill["components"] if each["type"] == "library"}
    own = f"pkg:pypi/curator-client@{__version__}"
    assert purls - pins == {own, "pkg:npm/htmx.org@2.0.11"}
    assert pins <= purls
    hashes = {each["content"] for each in hashes_of(bill)}
    assert set(re.findall("sha256:([0-9a-f]{64})", lock)) <= hashes
    assert len(hashes) == len(set(re.findall("sha256:([0-9a-f]{64})", lock))) + len(bill["components"]) - len(pins) + 1
    edges = {each["ref"]: set(each.get("dependsOn", [])) for each in bill["dependencies"]}
    for name, each in closure(needs(wheels["curator_server"])).items():
        wanted = {need for need in asked(each.requires or (), ()) if need not in OWN}
        found = {purl.partition("/")[2].partition("@")[0] for purl in edges[f"pkg:pypi/{name}@{each.version}"]}
        assert wanted <= found, name
    top = {purl.partition("/")[2].partition("@")[0] for purl in edges[bill["metadata"]["component"]["bom-ref"]]}
    assert {
        canonicalize_name(Requirement(each).name) for each in needs(wheels["curator_server"]) if "extra ==" not in each
    } <= top


def hashes_of(bill: dict[str, object]) -> Iterator[dict[str, str]]:
    """Each hash of the document, wherever it stands."""
    left: list[object] = [bill]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            yield from each.get("hashes", [])
            left += each.values()
        elif isinstance(each, list):
            left += each


def asked(requires: Iterable[str], extras: Iterable[str]) -> dict[str, set[str]]:
    """The distributions that these requirements need on this machine, each with its extras."""
    found: dict[str, set[str]] = {}
    for need in map(Requirement, requires):
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found.setdefault(canonicalize_name(need.name), set()).update(need.extras)
    return found


def closure(requires: Iterable[str]) -> dict[str, Distribution]:
    """What these requirements need and what that needs, as it is installed here, but for the two themselves."""
    found: dict[str, Distribution] = {}
    left = list(asked(requires, ()).items())
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        name, extras = left.pop()
        if name in OWN or (name, frozenset(extras)) in seen:
            continue
        seen.add((name, frozenset(extras)))
        found[name] = each = distribution(name)
        left += asked(each.requires or (), extras).items()
    return found


#: What a client takes at most in an empty environment, itself included.
MOST_PACKAGES, MOST_BYTES = 9, 6_000_000


def test_what_a_client_takes_in_an_empty_environment(root: Path, wheels: dict[str, Path]) -> None:
    """Catches a dependency of the client that brings others along, or megabytes. Sizes are those of installed files
    without what Python compiles of them; of the client those of its wheel, unpacked."""
    needed = closure(needs(wheels["curator_client"]))
    locked = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (root / "requirements-dev.lock").read_text(), re.MULTILINE))
    assert {"httpx", "rfc8785"} < needed.keys()
    assert len(needed) + 1 <= MOST_PACKAGES, sorted(needed)
    with zipfile.ZipFile(wheels["curator_client"]) as archive:
        size = sum(each.file_size for each in archive.infolist())
    for name, each in needed.items():
        assert each.version == locked[name], f"{name}: run make setup"
        paths = [Path(str(each.locate_file(file))) for file in each.files or ()]
        own = sum(path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file())
        assert own > 0, name
        size += own
    assert size < MOST_BYTES


# ---------------------------------------------------------------------- where there is nothing else


class Place:
    """An environment with some of the wheels, and of what is installed here with what they say that they need, and no
    more.

    Args:
        folder: for it; commands run in a folder within.
    """

    def __init__(self, folder: Path, wheels: Iterable[Path]) -> None:
        self._bin = folder / "bin"
        self.home = folder / "home"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        self.site = site
        self.home.mkdir()
        pip = [sys.executable, "-m", "pip", "--python", str(self._bin / "python"), "install", "--quiet"]
        own = list(map(str, wheels))
        subprocess.run([*pip, "--no-index", "--no-deps", *own], check=True, capture_output=True)
        for each in closure(need for wheel in own for need in needs(Path(wheel))).values():
            for top in {file.parts[0] for file in each.files or ()} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    (site / top).symlink_to(Path(str(each.locate_file(top))))
        self.environment = {
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "CURATOR_DATA_DIR": str(self.home / "data"),
        }

    def start(self, *command: str, log: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        """A command that has begun; what it says is in two files."""
        with (self.home / f"{log}.out").open("wb") as said, (self.home / f"{log}.err").open("wb") as errors:
            return subprocess.Popen(
                [str(self._bin / command[0]), *command[1:]],
                cwd=cwd or self.home,
                env=self.environment | {"HOME": str(cwd or self.home)},
                stdout=said,
                stderr=errors,
                preexec_fn=end_with_tests,
            )

    def run(self, *command: str) -> str:
        """What a command says; it succeeds."""
        with self.start(*command, log="command") as process:
            code = process.wait(patience(60))
        assert code == 0, (self.home / "command.err").read_text()
        return (self.home / "command.out").read_text()


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Both wheels in an environment of their own, where a server runs with a data set."""
    place = Place(tmp_path_factory.mktemp("installed"), wheels.values())
    port = free_port()
    place.environment |= {
        "CURATOR_ADMIN_KEY": "a-key-of-the-installed-one",
        "CURATOR_API_KEY": "a-key-of-the-installed-one",
        "CURATOR_URL": f"http://127.0.0.1:{port}",
    }
    assert place.run("curator", "--version") == f"curator {__version__}\n"
    place.run("curator", "migrate")
    nowhere = tmp_path_factory.mktemp("nowhere")
    server = place.start("curator", "serve", "--port", str(port), log="server", cwd=nowhere)
    try:
        deadline = time.monotonic() + patience(60)
        while time.monotonic() < deadline:
            assert server.poll() is None, (place.home / "server.err").read_text()
            try:
                assert httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200
                break
            except httpx.TransportError:
                time.sleep(0.05)
        spec = {
            "name": "people",
            "kind": "table",
            "records_public": True,
            "budget": {"epsilon": 1.0, "delta": 1e-9},
            "attributes": [{"name": "sex", "size": 2}, {"name": "age", "lower": 0, "upper": 80, "bins": 8}],
        }
        (place.home / "people.json").write_text(json.dumps(spec))
        (place.home / "people.csv").write_text("sex,age\n" + "".join(f"{n % 2},{n % 80}\n" for n in range(4000)))
        place.run("curator", "dataset", "add", "people.json", "people.csv")
        yield place
    finally:
        server.terminate()
        assert server.wait(patience(60)) == 0
        # What its image has read-only: the folder that it stands in, and its home.
        assert not list(nowhere.iterdir())


#: Asks a count whose truth is 2,000, and says what was checked and where all that came from.
ASKS = """
import sys, curator_client
from curator_client import Curator, MissingExtra
with Curator() as curator, curator.session("people", epsilon=0.2, max_queries=10) as session:
    answer = session.count(sex=1)
    print(float(answer), answer.low, answer.high)
    print(session.verify().checked)
    try:
        print(session.verify(replay=True).checked)
    except MissingExtra as error:
        print(error)
print(curator_client.__file__)
"""


def test_the_client_alone_asks(installed: Place, wheels: dict[str, Path], tmp_path: Path) -> None:
    """Catches a client that leans on the checkout, on the service or on what it does not say that it needs."""
    alone = Place(tmp_path / "alone", [wheels["curator_client"]])
    alone.environment |= {name: installed.environment[name] for name in ("CURATOR_URL", "CURATOR_API_KEY")}
    numbers, checked, replayed, place = alone.run("python", "-c", ASKS).splitlines()
    value, low, high = map(float, numbers.split())
    assert low <= value <= high
    assert abs(value - 2000) < 200
    assert "chain" in checked
    assert replayed == "this needs the extra 'replay': pip install 'curator-client[replay]'"
    assert place.startswith(f"{alone.site}/")
    assert alone.run("python", "-c", "import importlib.util; print(importlib.util.find_spec('app'))") == "None\n"


def test_the_service_serves_and_is_replayed(installed: Place) -> None:
    """From the wheels alone: commands, replays, a report, and pages with all that they load. Catches migrations,
    templates, styles, scripts, fonts or words that the wheel lacks."""
    numbers, _, replayed, place = installed.run("python", "-c", ASKS).splitlines()
    assert abs(float(numbers.split()[0]) - 2000) < 200
    assert "the plan, and prices" in replayed
    assert place.startswith(f"{installed.site}/")
    opened = installed.run("curator", "session", "open", "people", "--epsilon", "0.2", "--max-queries", "9", "--json")
    session = json.loads(opened)["id"]
    installed.run("curator", "ask", session, "--group-by", "sex,age")
    installed.run("curator", "sql", session, "SELECT sex, COUNT(*) FROM people GROUP BY sex")
    installed.run("curator", "session", "transcript", session, "--output", "session.ndjson")
    installed.run("curator", "audit", "replay", "session.ndjson")
    installed.run("curator", "audit", "fetch", "log")
    installed.run("curator", "audit", "report", "log", "--replay", "--html", "report.html")
    assert f"Made by `curator audit report` {__version__} from" in (installed.home / "report.html").read_text()
    url = installed.environment["CURATOR_URL"]
    login = httpx.get(f"{url}/console")
    assert login.status_code == 200
    linked = set(re.findall(r'(?:src|href)="(/console/static/[^"]+)"', login.text))
    style = next(each for each in linked if each.endswith(".css"))
    linked |= {f"{style.rpartition('/')[0]}/{font}" for font in ("source-sans-3.woff2", "source-serif-4.woff2")}
    assert any(each.endswith("htmx.min.js") for each in linked)
    for each in linked:
        assert httpx.get(url + each).status_code == 200, each
    assert httpx.get(f"{url}/docs").status_code == 200


def test_every_module_has_what_it_imports(installed: Place) -> None:
    """Catches a library that the service imports and that its wheel does not ask for."""
    code = """
import importlib, pkgutil, app
names = [each.name for each in pkgutil.walk_packages(app.__path__, "app.")]
names = [each for each in names if not each.startswith("app.migrations") and not each.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
    assert int(installed.run("python", "-c", code)) > 300
