"""Private files in an object store, and the note of what was seen of the ledger: S3, or what speaks as it does.

The store's own conditions make it a place that keeps what was put: an object is made only where none is, and a note is
written only over the one that was read. Some stores pass over conditions they do not know, and overwrite.
:meth:`Objects.check` finds that out before anything is entrusted to them.

The addresses and credentials of a store come from the ``AWS_*`` variables that all of its clients read. No key of the
vault goes there, and every file is sealed before it is sent.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from app.storage.blobs import FileStamp, Noted, Opened, UnfitStore
from app.storage.turns import Turns

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import BytesStream
    from obstore.store import ClientConfig, RetryConfig

#: An object that is put in one request, which alone can be made only where none is, has no more bytes than this.
MOST_BYTES = 5 << 30
#: How long a store may take to connect, and how long it may be silent in the middle of a reply.
CONNECT_SECONDS, SILENT_SECONDS = 5, 20
#: How often, and how long in all, it is asked again after errors of its own.
RETRIES, RETRY_SECONDS = 3, 10
#: Bytes that are read at a time.
_CHUNK = 1 << 20
#: An object by which it is found out what the store does about conditions.
_PROBE, _PROBED = "put-once", b"This object is never overwritten.\n"


def opened(url: str) -> S3Store:
    """The store at ``s3://bucket/prefix``. Asks it nothing.

    Raises:
        OSError: when this machine has no certificate authorities to know a store by, or the AWS variables make no
            client.
    """
    options: ClientConfig = {
        # The library heeds this variable only where it is told of no other option.
        "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true"),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=SILENT_SECONDS),
        # A large file takes long in all; what is bounded is silence.
        "timeout": timedelta(days=1),
    }
    retries: RetryConfig = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)}
    with _as_files():
        return S3Store.from_url(url, client_options=options, retry_config=retries)


class Objects:
    """Objects below a prefix of a bucket; see :class:`app.storage.blobs.Blobs`. Making one asks nothing.

    Args:
        store: as :func:`opened` gives it.
        turns: who shares the place and who has it alone: the store has no locks.
    """

    def __init__(self, store: S3Store, turns: Turns) -> None:
        self._store, self._turns = store, turns

    def check(self) -> None:
        """Find out whether the store heeds conditions.

        Raises:
            UnfitStore: when it overwrites what is there, or keeps versions of what was removed.
            OSError: when it cannot be asked.
        """
        with _as_files():
            if all(self._made(_PROBE, [_PROBED]) for _ in range(2)):
                raise UnfitStore("it overwrites what is there: If-None-Match is not heeded")
            if obstore.head(self._store, _PROBE)["version"] not in (None, "null"):
                raise UnfitStore("it keeps versions of what is removed: turn versioning of the bucket off")
            if ObjectNote(self._store, _PROBE).write(_PROBED, Noted(b"", '"another"')):
                raise UnfitStore("it overwrites what is there: If-Match is not heeded")

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        with _as_files():
            if not self._made(name, _bounded(pieces)):
                raise FileExistsError(errno.EEXIST, "something lies under this name")

    def _made(self, name: str, pieces: Iterable[bytes | memoryview]) -> bool:
        try:
            obstore.put(self._store, name, pieces, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Opened]:
        with _as_files():
            found = obstore.get(self._store, name)
            size, stream = found.meta["size"], found.stream(_CHUNK)
        yield Opened(io.BufferedReader(_Stream(stream), _CHUNK), size)

    def stamp(self, name: str) -> FileStamp:
        with _as_files():
            found = obstore.head(self._store, name)
        return FileStamp(found["e_tag"], found["size"], found["version"], 0)

    def remove(self, name: str) -> None:
        with _as_files(), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    def names(self) -> Iterator[str]:
        with _as_files():
            found = [each["path"] for batch in obstore.list(self._store) for each in batch]
        yield from found

    def sharing(self) -> AbstractContextManager[None]:
        return self._turns.sharing()

    def alone(self) -> AbstractContextManager[bool]:
        return self._turns.alone()


class ObjectNote:
    """A note in an object; see :class:`app.storage.blobs.Note`."""

    def __init__(self, store: S3Store, name: str) -> None:
        self._store, self._name = store, name

    def read(self) -> Noted:
        with _as_files(), contextlib.suppress(FileNotFoundError):
            found = obstore.get(self._store, self._name)
            return Noted(bytes(found.bytes()), found.meta["e_tag"] or "")
        return Noted(b"", "")

    def write(self, content: bytes, over: Noted) -> bool:
        with _as_files():
            try:
                mode = {"e_tag": over.tag} if over.tag else "create"
                obstore.put(self._store, self._name, content, mode=mode, use_multipart=False)  # type: ignore[arg-type]
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                return False
        return True


class _Stream(io.RawIOBase):
    """The bytes of a reply as they come."""

    def __init__(self, chunks: BytesStream) -> None:
        self._chunks, self._rest = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: WriteableBuffer) -> int:
        while not self._rest:
            with _as_files():
                chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        target = memoryview(into)
        size = min(len(target), len(self._rest))
        target[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _bounded(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MOST_BYTES:
            raise OSError(errno.EFBIG, "it is larger than an object that is put at once may be")
        yield piece


@contextlib.contextmanager
def _as_files() -> Iterator[None]:
    """Errors of the store as those of files. Their texts stay inside: they quote what the store replied."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "nothing lies under this name") from None
    except BaseError as error:
        raise OSError(errno.EIO, f"the object store failed ({type(error).__name__})") from None
