"""Make the synchronous client of the asynchronous one: ``curator_client/_sync`` of ``curator_client/_async``.

Run ``python clients/python/make_sync.py`` after a change of the second; a test compares. The same source serves both:
words that wait are left out, and names that begin with ``Async`` lose that. What stands between ``# async only`` and
``# end`` is not taken over. ``waiting.py``, of which each has its own, is where they differ.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parent / "curator_client"
SOURCE, TARGET = CLIENT / "_async", CLIENT / "_sync"
OWN = {"waiting.py"}
NOTE = "# Made of _async/{name} by make_sync.py: change that."

RULES = [
    (r"(?ms)^ *# async only\n.*?^ *# end\n\n?", ""),
    (r"\b(?:async (?=def\b|with\b|for\b)|await )", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b(?:Opening|Awaitable)\[(\w+)\]", r"\1"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b__a(?=enter__|exit__|iter__|next__)", "__"),
    (r"\ba(?=closing\b|close\b|iter_bytes\b)", ""),
    (r"\bcurator_client\._async\b", "curator_client._sync"),
]


def made_of(text: str, name: str) -> str:
    """The synchronous module of an asynchronous one.

    Args:
        text: its source.
        name: its file's name.
    """
    for pattern, by in RULES:
        text = re.sub(pattern, by, text)
    if name == "__init__.py":
        text = '"""The client that blocks, made of :mod:`curator_client._async`."""\n'
    return _tidy(f"{NOTE.format(name=name)}\n\n{text}", TARGET / name)


def _tidy(text: str, path: Path) -> str:
    """In the style of the project: names that are no longer used are not imported, lines are as long as they may be."""
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--quiet", "--fix-only", "--select", "I,F401"], ["format", "--quiet"]):
        # As its file is named, rules of the project are those for it.
        call = [*ruff, *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(call, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603
    return text


def made() -> dict[Path, str]:
    """Every file that is made, and what it is to have."""
    sources = [path for path in sorted(SOURCE.glob("*.py")) if path.name not in OWN]
    return {TARGET / path.name: made_of(path.read_text(encoding="utf-8"), path.name) for path in sources}


def main() -> None:
    """Write them."""
    files = made()
    for path in TARGET.glob("*.py"):
        if path.name not in OWN and path not in files:
            path.unlink()
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
