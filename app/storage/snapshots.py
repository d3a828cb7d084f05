"""Snapshots of sessions in a folder of files.

A file is a head and the arrays' bytes behind it::

    curator snapshot 1\n  |  SHA-256 of what follows up to the arrays  |  length of the head  |  head  |  arrays

The head is JSON: the facts, and of each array its name, type, shape and order in memory, and the SHA-256 of all their
bytes. Files are renamed into place when they are complete and are not flushed to the disk: after a power cut one may
be damaged, which the sums tell.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
import structlog

from app.services.ports import Snapshot
from app.spaces.tensor import Array
from curator_client.durable import written

logger = structlog.get_logger(__name__)

_MAGIC = b"curator snapshot 1\n"
_START = struct.Struct(f"<{len(_MAGIC)}s32sQ")
_NAME = re.compile(r"[0-9a-f]{32}")
#: Types that arrays may have.
_TYPES = ("<f8", "<i8", "<i4", "|u1")
#: A file half written by a process that died is removed when it is older than this.
_ABANDONED_SECONDS = 3600.0
#: Bytes that are hashed and written at a time: they stay in the processor's caches in between.
_CHUNK = 1 << 18


class SnapshotFiles:
    """One file a session, of mode 0600, all of them within ``limit`` bytes: the oldest go first."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._lock = threading.Lock()

    def write(self, session: str, snapshot: Snapshot) -> None:
        """Keep a state, if it fits and the disk takes it."""
        arrays = {name: _plain(array) for name, array in snapshot.arrays.items()}
        size = sum(array.nbytes for array in arrays.values())
        if size > self._limit:
            self.remove(session)
            return
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with self._lock:
                self._make_room(size, session)
            with written(self._folder / session, durable=False) as file:
                _write(file, snapshot.facts, arrays)
        except OSError as error:
            logger.warning("a snapshot was not written", error=type(error).__name__)

    def read(self, session: str) -> Snapshot | None:
        """The state kept last, if every byte of it is as written."""
        try:
            with open(self._folder / session, "rb", buffering=0) as file:
                return _read(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("a snapshot is damaged and not used", error=type(error).__name__)
            return None

    def remove(self, session: str) -> None:
        """Forget a session's state."""
        with contextlib.suppress(OSError):
            (self._folder / session).unlink()

    def sessions(self) -> list[str]:
        """Whose states are kept."""
        try:
            return sorted(entry.name for entry in os.scandir(self._folder) if _NAME.fullmatch(entry.name))
        except OSError:
            return []

    def _make_room(self, size: int, session: str) -> None:
        """Remove the oldest others until so many bytes fit, and what a process left that died while writing."""
        found: list[tuple[float, int, str]] = []
        now = time.time()
        for entry in os.scandir(self._folder):
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                if _NAME.fullmatch(entry.name):
                    if entry.name != session:
                        found.append((status.st_mtime, status.st_size, entry.name))
                elif now - status.st_mtime > _ABANDONED_SECONDS:
                    os.unlink(entry.path)
        held = sum(length for _, length, _ in found)
        for _, length, name in sorted(found):
            if held + size <= self._limit:
                break
            self.remove(name)
            held -= length


def _plain(array: Array) -> Array:
    """The array in one piece of memory, in little-endian numbers."""
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return array if array.flags.c_contiguous or array.flags.f_contiguous else np.ascontiguousarray(array)


def _bytes_of(array: Array) -> memoryview:
    """An array's bytes as they lie in memory."""
    flat: Any = (array if array.flags.c_contiguous else array.T).reshape(-1).view(np.uint8)
    return memoryview(flat)


def _pieces(data: memoryview) -> Iterator[memoryview]:
    return (data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK))


def _write(file: BinaryIO, facts: dict[str, Any], arrays: dict[str, Array]) -> None:
    told = [
        {"name": name, "type": array.dtype.str, "shape": array.shape, "columns": not array.flags.c_contiguous}
        for name, array in arrays.items()
    ]
    # The head's length does not depend on the sum, which is filled in when the arrays have gone by.
    head = orjson.dumps({"facts": facts, "arrays": told, "sha256": "0" * 64})
    file.write(_START.pack(_MAGIC, bytes(32), len(head)) + head)
    digest = hashlib.sha256()
    for array in arrays.values():
        for piece in _pieces(_bytes_of(array)):
            digest.update(piece)
            file.write(piece)
    head = orjson.dumps({"facts": facts, "arrays": told, "sha256": digest.hexdigest()})
    file.seek(0)
    file.write(_START.pack(_MAGIC, _sum(head), len(head)) + head)


def _sum(head: bytes) -> bytes:
    return hashlib.sha256(len(head).to_bytes(8, "little") + head).digest()


def _read(file: BinaryIO) -> Snapshot:
    """The content of a file.

    Raises:
        ValueError: when it is not what was written.
    """
    size = os.fstat(file.fileno()).st_size
    magic, summed, length = _START.unpack(file.read(_START.size).ljust(_START.size))
    if magic != _MAGIC or length > size:
        raise ValueError("no snapshot")
    raw = file.read(length)
    if _sum(raw) != summed:
        raise ValueError("a damaged head")
    head = orjson.loads(raw)
    kinds = {told["name"]: (np.dtype(told["type"]), tuple(told["shape"]), told["columns"]) for told in head["arrays"]}
    expected = sum(kind.itemsize * math.prod(shape) for kind, shape, _ in kinds.values())
    if _START.size + length + expected != size or any(kind.str not in _TYPES for kind, _, _ in kinds.values()):
        raise ValueError("cut off")
    digest, arrays = hashlib.sha256(), {}
    for name, (kind, shape, columns) in kinds.items():
        array: Array = np.empty(shape, kind, order="F" if columns else "C")
        for piece in _pieces(_bytes_of(array)):
            if file.readinto(piece) != len(piece):  # type: ignore[attr-defined]
                raise ValueError("cut off")
            digest.update(piece)
        arrays[name] = array
    if digest.hexdigest() != head["sha256"]:
        raise ValueError("damaged numbers")
    return Snapshot(head["facts"], arrays)
