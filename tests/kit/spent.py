"""Where the time of all tests goes: `make unit PYTEST_ARGS="-p tests.kit.spent"`.

Seconds of a processor by folder and the dearest files, of the tests' own processes and of those that they started and
waited for: by the clock each test takes as long as whatever runs beside it. Servers that several tests share, and what
keeps them, are not in it.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

#: Seconds by file, of this process, and of all once they have ended.
_OWN: Counter[str] = Counter()
_NUMBERS: Counter[str] = Counter()
_DEAREST = 25


def _seconds() -> float:
    used = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure a test with all that is set up for it."""
    began = _seconds()
    try:
        return (yield)
    finally:
        path = item.nodeid.partition("::")[0]
        _OWN[path] += _seconds() - began  # type: ignore[assignment]
        _NUMBERS[path] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what was measured, where others add it up."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["spent"] = [(path, seconds, _NUMBERS[path]) for path, seconds in _OWN.items()]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take in what a worker measured."""
    for path, seconds, number in getattr(node, "workeroutput", {}).get("spent", ()):
        _OWN[path] += seconds
        _NUMBERS[path] += number


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say it."""
    if not _OWN:
        return
    folders: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    for path, seconds in _OWN.items():
        folder = path.rpartition("/")[0]
        folders[folder] += seconds  # type: ignore[assignment]
        numbers[folder] += _NUMBERS[path]
    terminalreporter.section("seconds of a processor")
    for title, found, counts in (("folders", folders, numbers), ("dearest files", _OWN, _NUMBERS)):
        terminalreporter.write_line(f"{title}: {sum(found.values()):,.0f} s in {sum(counts.values()):,} tests")
        for path, seconds in found.most_common(_DEAREST):
            terminalreporter.write_line(f"{seconds:8.1f}  {counts[path]:6,}  {path}")
