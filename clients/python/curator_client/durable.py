"""Files that appear whole: who looks at a name finds what it had before or all that it has now, whatever died between.

Content is written beside its place, to a name of its own that begins with a dot and ends with ``.tmp``; synced; given
its name; and then its folder is synced. What a process leaves that dies before has no other name than that, and is for
others to sweep.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def written(path: Path, *, mode: int = 0o600, replace: bool = True, durable: bool = True) -> Iterator[BinaryIO]:
    """A file that is at ``path`` with what was written to it once this is left; left by an error, nothing has happened.

    Args:
        mode: who may read it, as far as the process' mask lets them.
        replace: whether it takes the place of a file of this name. Else one that is there, also since this was
            entered, stays.
        durable: whether it outlives a power cut. One that does not may be damaged or missing after that.

    Raises:
        FileExistsError: on leaving, when there is a file that stays.
        OSError: when the disk refuses.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        # Unlike a replacement, a link fails if another process was first.
        (os.replace if replace else os.link)(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def write(path: Path, content: bytes, *, mode: int = 0o600, replace: bool = True, durable: bool = True) -> None:
    """As :func:`written`, of a content that is there."""
    with written(path, mode=mode, replace=replace, durable=durable) as file:
        file.write(content)


def move(source: Path, target: Path) -> None:
    """Give a whole file another name in its folder, durably, in the place of the file that had it."""
    with source.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(source, target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make what was named or removed in a folder durable, where the system can be told to."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
