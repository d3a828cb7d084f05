"""Files that appear whole, whatever dies between the steps."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curator_client import durable

pytestmark = pytest.mark.unit

OLD, NEW = b"old" * 10_000, b"new" * 20_000
#: What is done to a disk, and may be the last thing that is.
STEPS = ("open", "fsync", "replace", "link", "unlink", "close")


def died(step: int, work: Callable[[], None]) -> bool:
    """Whether a process that does some work, and dies before the step of this number, has died."""
    child = os.fork()
    if child == 0:
        left = step

        def planted(real: Callable[..., Any]) -> Callable[..., Any]:
            def dying(*arguments: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    os._exit(9)
                return real(*arguments, **named)

            return dying

        for name in STEPS:
            setattr(os, name, planted(getattr(os, name)))
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


@pytest.mark.slow
@pytest.mark.parametrize("replace", [True, False], ids=["replace", "link"])
@pytest.mark.parametrize("durable_too", [True, False], ids=["durable", "cache"])
def test_death_at_every_step(tmp_path: Path, replace: bool, durable_too: bool) -> None:
    """Catches content that is written in its place, a name that is given before all is written, what is left with
    another name than those that are swept, and a file that is gone for a moment while it is replaced.
    """
    path = tmp_path / "kept"
    found = []

    def work() -> None:
        with durable.written(path, replace=replace, durable=durable_too) as file:
            file.write(NEW[:30_000])
            os.close(os.open(path.parent, os.O_RDONLY))  # a step in the midst of writing
            file.write(NEW[30_000:])

    for step in range(1, 50):
        for left in tmp_path.iterdir():
            left.unlink()
        if replace:
            path.write_bytes(OLD)
        went_on = not died(step, work)
        found.append(path.read_bytes() if path.exists() else None)
        assert found[-1] in (OLD if replace else None, NEW)
        others = {left.name for left in tmp_path.iterdir()} - {"kept"}
        assert all(name.startswith(".kept.") and name.endswith(".tmp") for name in others)
        if went_on:
            assert (found[-1], others) == (NEW, set())
            break
    assert len(found) > (6 if durable_too else 4)
    assert found[0] == (OLD if replace else None)
    # Once it is there it stays.
    assert found[found.index(NEW) :] == [NEW] * (len(found) - found.index(NEW))


@pytest.mark.parametrize("replace", [True, False], ids=["replace", "link"])
def test_what_lasts_is_synced_before_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    """Catches a name that outlives a power cut while what it names does not, one that does not outlive it, and content
    that is still held back when the file is synced.
    """
    path, told = tmp_path / "kept", []
    fsync, renamed, link = os.fsync, os.replace, os.link

    def syncing(descriptor: int) -> None:
        status = os.fstat(descriptor)
        told.append("folder" if stat.S_ISDIR(status.st_mode) else status.st_size)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", lambda *of: (told.append("named"), renamed(*of)))
    monkeypatch.setattr(os, "link", lambda *of: (told.append("named"), link(*of)))
    durable.write(path, NEW, replace=replace)
    assert told == [len(NEW), "named", "folder"]
    told.clear()
    durable.write(path.with_name("cache"), NEW, replace=replace, durable=False)
    assert told == ["named"]
    told.clear()
    durable.move(path, path.with_name("cache"))
    assert told == [len(NEW), "named", "folder"]


def test_what_is_there_stays(tmp_path: Path) -> None:
    """Catches a key that takes the place of the one that another process made and uses already."""
    path = tmp_path / "kept"

    def overtaken() -> None:
        with durable.written(path, replace=False) as file:
            file.write(NEW)
            path.write_bytes(OLD)

    with pytest.raises(FileExistsError):
        overtaken()
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    """Catches a file that has its name though writing it failed, and one left beside it."""
    path = tmp_path / "kept"
    path.write_bytes(OLD)

    def failing() -> None:
        with durable.written(path) as file:
            file.write(NEW)
            raise RuntimeError("in the midst")

    with pytest.raises(RuntimeError, match="midst"):
        failing()
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("mode", "seen"), [(0o600, 0o600), (0o666, 0o644)])
def test_who_may_read_it(tmp_path: Path, mode: int, seen: int) -> None:
    """Catches a key or a private file that others may read, also while it is written."""
    before = os.umask(0o022)
    try:
        with durable.written(tmp_path / "kept", mode=mode) as file:
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == seen
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == seen
