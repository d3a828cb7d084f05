"""Text files in other encodings than UTF-8, written anew in memory: private data touch no disk outside the vault."""

import codecs
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.declarations.errors import InvalidDataset

_PART = 1 << 20


@contextmanager
def utf8(path: Path, encoding: str | None, memory_limit: int) -> Iterator[Path]:
    """A file with the same text in UTF-8, while the context lasts; without an encoding the file itself.

    Raises:
        InvalidDataset: when the text is not in this encoding, or takes more than ``memory_limit`` bytes.
    """
    if encoding in (None, "utf-8"):
        yield path
        return
    assert encoding is not None
    descriptor = os.memfd_create("text", os.MFD_CLOEXEC)
    try:
        line = _write(path, encoding, descriptor, memory_limit)
        if line:
            raise InvalidDataset(
                f"the text is not in the declared encoding {encoding}, in line {line} or soon behind it", line=line
            )
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _write(path: Path, encoding: str, descriptor: int, memory_limit: int) -> int:
    """Write the text; returns the line near which it is none, or 0."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line, size = 1, 0
    with path.open("rb") as source, os.fdopen(os.dup(descriptor), "wb") as target:
        while True:
            part = source.read(_PART)
            try:
                text = decoder.decode(part, final=not part)
            except UnicodeError as error:
                return line + (error.object[: error.start].count(b"\n") if isinstance(error, UnicodeDecodeError) else 0)
            written = text.encode()
            size += len(written)
            if size > memory_limit:
                raise InvalidDataset(f"the text takes more than the memory limit of {memory_limit} bytes in UTF-8")
            target.write(written)
            line += text.count("\n")
            if not part:
                return 0
