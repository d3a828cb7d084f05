"""Keys of 32 bytes in files of a folder that nobody else may look into: of an unencrypted vault's digests, and of the
log.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from curator_client import durable

KEY_BYTES = 32
#: Names of files that were being written by whoever died: see :mod:`curator_client.durable`.
TEMPORARY = re.compile(r"\.[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.tmp", re.ASCII)


class KeyDamaged(Exception):
    """A file holds something else than a key. Messages name the file, never its contents."""


def make_private_folder(folder: Path) -> None:
    """Make a folder that nobody else may look into, if it is missing."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) != 0o700:
        folder.chmod(0o700)


def made_key(folder: Path, name: str) -> bytes:
    """The key in a file (mode 0600), made at first use; the same for all processes that ask at once.

    Raises:
        KeyDamaged: when the file holds something else.
    """
    if not (folder / name).exists():
        make_private_folder(folder)
        with suppress(FileExistsError):  # another process was first: then its key is the one
            durable.write(folder / name, os.urandom(KEY_BYTES), replace=False)
    key = kept_key(folder, name)
    assert key is not None
    return key


def kept_key(folder: Path, name: str) -> bytes | None:
    """The key in a file; None where there is no such file.

    Raises:
        KeyDamaged: when the file holds something else.
    """
    try:
        key = (folder / name).read_bytes()
    except FileNotFoundError:
        return None
    if len(key) != KEY_BYTES:
        raise KeyDamaged(f"{folder.name}/{name} does not have {KEY_BYTES} bytes")
    return key


def sweep_keys(folder: Path) -> None:
    """Remove what the making of keys left where it was interrupted. Nobody may be making one."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if TEMPORARY.fullmatch(path.name):
            path.unlink()


def replace_key(folder: Path, name: str, by: str) -> None:
    """Put the key of one file in the place of another, which is gone for good."""
    durable.move(folder / by, folder / name)
