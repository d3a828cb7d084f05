"""Types the tour and the tutorials: runs every command of these pages against real servers and writes what they print
into them.

Run `python -m benchmarks.tour [PAGE ...]`, of all pages where none is named. Blocks of bash are typed one after another
into one shell, those of Python into one interpreter, each with a server and an empty folder of its own. What a block
prints stands below it, as text. A page has the only copy of its commands.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from app.demo.server import Server, running_server

ROOT = Path(__file__).parents[1]
TOUR = ROOT / "docs" / "tour.md"
#: All pages that are typed.
PAGES = (TOUR, *(ROOT / "docs" / "tutorials" / f"{name}.md" for name in ("admin", "auditor", "rehearse")))
#: A block to type, and what stands below it as printed.
_TYPED = re.compile(r"^```(bash|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
#: Columns of the terminal.
_WIDTH = 110


class TourFailed(Exception):
    """A command of a page failed; the message has what was printed."""


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Of each block its language, what is typed, and what stands below it, empty where nothing does."""
    return [(found[1], found[2], found[3] or "") for found in _TYPED.finditer(text)]


def shims(folder: Path) -> None:
    """Make the commands `curator` and `python` of this interpreter in a folder that is to stand in ``PATH``."""
    for name, module in (("curator", "-m app.cli "), ("python", "")):
        shim = folder / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module}"$@"\n')
        shim.chmod(0o755)


def typed(
    language: str, parts: Sequence[str], server: Server, folder: Path, make_commands: Callable[[Path], None] = shims
) -> list[str]:
    """What each of some blocks prints, on standard output and standard error.

    Args:
        language: of all of them.
        parts: what is typed.
        server: that answers.
        folder: to work in.
        make_commands: makes `curator` and `python` in a folder.

    Raises:
        TourFailed: when one fails.
    """
    mark = secrets.token_hex(16)
    commands = folder / "bin"
    commands.mkdir()
    make_commands(commands)
    work = folder / "work"
    work.mkdir()
    end = f"echo {mark}\n" if language == "bash" else f"print({mark!r}, flush=True)\n"
    script = folder / "script"
    script.write_text("".join(part + end for part in parts))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
    environment |= {
        "PATH": f"{commands}:{environment['PATH']}",
        "PYTHONPATH": str(ROOT),
        "CURATOR_URL": server.url,
        "CURATOR_API_KEY": server.admin_key,
        "COLUMNS": str(_WIDTH),
    }
    program = ["bash", "-euo", "pipefail"] if language == "bash" else [sys.executable]
    done = subprocess.run(
        [*program, str(script)],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        raise TourFailed(f"the page's {language} failed:\n{done.stdout[-4000:]}")
    return done.stdout.split(f"{mark}\n")[:-1]


def _clean(printed: str) -> str:
    """What was printed, without white space at the ends of lines and blank lines around it."""
    lines = "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n")
    return f"{lines}\n" if lines else ""


def taken(text: str, make_commands: Callable[[Path], None] = shims) -> str:
    """A page with what its commands print now.

    Args:
        text: of the page.
        make_commands: see :func:`typed`.

    Raises:
        TourFailed: when one fails.
    """
    printed: list[str] = []
    for language, parts in groupby(blocks(text), key=lambda block: block[0]):
        with tempfile.TemporaryDirectory(prefix="curator-tour-") as folder:
            (served := Path(folder) / "served").mkdir()
            with running_server(served) as server:
                printed += typed(language, [part[1] for part in parts], server, Path(folder), make_commands)
    told: Iterator[str] = map(_clean, printed)

    def fill(found: re.Match[str]) -> str:
        output = next(told)
        return f"```{found[1]}\n{found[2]}```\n" + (f"\n```text\n{output}```\n" if output else "")

    return _TYPED.sub(fill, text)


def main() -> None:
    """Type the pages and write down what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path, nargs="*", default=PAGES, help="which of them")
    for page in parser.parse_args().pages:
        page.write_text(taken(page.read_text()))


if __name__ == "__main__":
    main()
