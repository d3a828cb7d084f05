"""Where private files lie: put once, read as a stream, known by a stamp, and removed.

What is put under a name is there as a whole or not at all, and nobody puts anything else there: so whoever reads it
finds what was put, or that it is gone, or that somebody altered it (which a digest tells, not this).
:class:`Folder` is a folder on a disk; :class:`app.storage.objects.Objects` is an object store. Both pass
``tests/storage/test_blobs.py``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from app.storage.keys import make_private_folder
from curator_client import durable

_LOCK = ".registrations.lock"


class FileStamp(NamedTuple):
    """A stamp that changes as soon as what lies under a name does.

    ``tag`` and ``version`` are a file's inode and time of modification, or an object's entity tag and version.
    ``size`` is in bytes. ``changed_ns`` is when a file was changed last, as file systems tell times in steps: within
    one it may be changed twice. It is 0 where the tag tells every change.
    """

    tag: int | str | None
    size: int
    version: int | str | None
    changed_ns: int


class Opened(NamedTuple):
    """What lies under a name, from its beginning, and its size in bytes when it was opened."""

    file: io.BufferedReader
    size: int


class UnfitStore(Exception):
    """A place does not keep what was put as it was, or what was removed gone."""


class Blobs(Protocol):
    """A place for private files. Errors are OSError, and name no content."""

    def check(self) -> None:
        """Find out whether the place keeps to this.

        Raises:
            UnfitStore: when it does not.
            OSError: when it cannot be asked.
        """

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Put pieces, one after another, under a name; durable on return. After an error nothing is there.

        Raises:
            FileExistsError: when something lies there, which stays as it is.
        """

    def open(self, name: str) -> AbstractContextManager[Opened]:
        """What lies under a name.

        Raises:
            FileNotFoundError: when nothing does.
        """

    def stamp(self, name: str) -> FileStamp:
        """How what lies under a name looks from outside.

        Raises:
            FileNotFoundError: when nothing does.
        """

    def remove(self, name: str) -> None:
        """Remove what lies under a name, if anything does."""

    def names(self) -> Iterator[str]:
        """All names, with those of what was being put by whoever died."""

    def sharing(self) -> AbstractContextManager[None]:
        """Hold off who wants the place alone, in this process and others, and wait for one who has it."""

    def alone(self) -> AbstractContextManager[bool]:
        """Whether nobody shares the place now; then nobody begins to until this is left."""


class Folder:
    """Files of a folder on a disk (mode 0700, files 0600). Making one touches nothing.

    Its lock is a file in it: a process that dies lets go by dying.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """A file system keeps what is put there."""

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        make_private_folder(self._path)
        with durable.written(self._path / name, replace=False) as file:
            file.writelines(pieces)

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Opened]:
        # A symbolic link is an error: it may lead anywhere.
        descriptor = os.open(self._path / name, os.O_RDONLY | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            yield Opened(file, os.fstat(descriptor).st_size)

    def stamp(self, name: str) -> FileStamp:
        # A text: a path of its own takes longer to be made than the look.
        found = os.lstat(os.path.join(self._path, name))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        return FileStamp(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)
        if self._path.is_dir():
            durable.sync_folder(self._path)

    def names(self) -> Iterator[str]:
        yield from [path.name for path in self._path.iterdir() if path.name != _LOCK] if self._path.is_dir() else ()

    @contextlib.contextmanager
    def sharing(self) -> Iterator[None]:
        make_private_folder(self._path)
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        # Also where nothing was ever put: a first registration may begin meanwhile.
        make_private_folder(self._path)
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB))
            except BlockingIOError:
                got = False
            else:
                got = True
            yield got

    @contextlib.contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        descriptor = os.open(self._path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)


class Noted(NamedTuple):
    """What a note said, and what it is known by; nothing where there was none."""

    content: bytes
    tag: str


class Note(Protocol):
    """A few bytes that several processes write, each over what it has read."""

    def read(self) -> Noted:
        """What it says now."""

    def write(self, content: bytes, over: Noted) -> bool:
        """Write it in the place of what was read, and whether that still stood there: else nothing is written."""


class FileNote:
    """A note in a file. Two who write in the same instant may both believe that they were first."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Noted:
        with contextlib.suppress(FileNotFoundError):
            return Noted(self._path.read_bytes(), "")
        return Noted(b"", "")

    def write(self, content: bytes, over: Noted) -> bool:
        if self.read() != over:
            return False
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.write(self._path, content, durable=False)
        return True
