"""Builds both distributions as wheels, twice, and gives them only where the two builds are the same, byte for byte.

``python release/wheels.py FOLDER``. The second build is of copies in another folder, under another time zone, language,
seed of hashes and mask of permissions: what comes from the machine in place of the sources shows as a difference. Needs
hatchling and nothing else of this project.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
CLIENT = "clients/python"
#: What wheels are made of. The image is built of the same (``.dockerignore``).
SOURCES = ("README.md", "app", CLIENT, "migrations", "pyproject.toml")
#: The time of every file within, 2 February 2020: that of hatchling where nobody says another.
DATE = "1580601600"
#: Two ways to build: where nothing of them may be seen.
WAYS = (
    (0o022, {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1"}),
    (0o077, {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"}),
)


class Differs(Exception):
    """Two builds of the same sources are not the same."""


def copied(to: Path, mask: int) -> None:
    """Copies of the sources, with permissions by the mask, without what Python compiled of them."""
    before = os.umask(mask)
    try:
        for name in SOURCES:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, to / name, ignore=ignored, copy_function=shutil.copyfile)
            else:
                shutil.copyfile(ROOT / name, to / name)
    finally:
        os.umask(before)


def build(sources: Path, folder: Path, environment: dict[str, str]) -> None:
    """Both wheels; that of the service asks for the client of its own version.

    Raises:
        subprocess.CalledProcessError: when either cannot be built.
    """
    told = {name: value for name, value in os.environ.items() if not name.startswith("HATCH_")}
    told |= {"SOURCE_DATE_EPOCH": DATE, **environment}

    def hatchling(part: str, *arguments: str) -> str:
        command = [sys.executable, "-m", "hatchling", *arguments]
        ran = subprocess.run(command, cwd=sources / part, env=told, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    told["CURATOR_CLIENT"] = f"=={hatchling('.', 'metadata', 'version')}"
    for part in (CLIENT, "."):
        hatchling(part, "build", "-t", "wheel", "-d", str(folder))


def compare(one: Path, other: Path) -> None:
    """Hold the wheels of two folders against each other.

    Raises:
        Differs: saying which files within which wheel are not the same.
    """
    names = {path.name for path in one.iterdir()} | {path.name for path in other.iterdir()}
    for name in sorted(names):
        if not (one / name).is_file() or not (other / name).is_file():
            raise Differs(f"{name} was built once and not twice")
        if (one / name).read_bytes() != (other / name).read_bytes():
            with ZipFile(one / name) as first, ZipFile(other / name) as second:
                members = {each: first.read(each) for each in first.namelist()}
                others = {each: second.read(each) for each in second.namelist()}
            different = sorted(each for each in members | others if members.get(each) != others.get(each))
            what = ", ".join(different) or "the order, the times or the permissions of its files"
            raise Differs(f"{name} is another one when it is built again: {what}")


def main(target: Path) -> None:
    """Build, compare, and put the wheels into the folder, in place of those that are there.

    Raises:
        Differs: as :func:`compare`; the folder then has no wheels.
    """
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="wheels-") as scratch:
        folders = []
        for number, (mask, environment) in enumerate(WAYS, 1):
            sources, folder = Path(scratch, "of" * number), Path(scratch, str(number))
            sources.mkdir()
            folder.mkdir()
            copied(sources, mask)
            build(sources, folder, environment)
            folders.append(folder)
        compare(*folders)
        for wheel in sorted(folders[0].iterdir()):
            shutil.copyfile(wheel, target / wheel.name)
            print(target / wheel.name)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python release/wheels.py FOLDER")
    try:
        main(Path(sys.argv[1]))
    except Differs as difference:
        sys.exit(f"not reproducible: {difference}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"a wheel cannot be built: {error.stderr}")
