"""The commitment to a data set's private file: a public number that binds whoever registered it to the file's bytes,
and tells nobody what they are until its key is handed over.

It is HMAC-SHA-256, under a random key of 32 bytes that no other data set has, over a name for this use (with the
version of its layout), the file's length (8 bytes, big-endian) and its SHA-256. The file is read once, block by block,
as it was uploaded: not its name, and not the numbers that were made of it.

- It binds: keys have one length, as has what is hashed, so that two different pairs of key and file with one commitment
  show two inputs of SHA-256 with one hash, be it in HMAC's outer or inner call or of the files themselves. That needs
  no secret, and holds against whoever chose key and file.
- It hides: to who lacks the key HMAC-SHA-256 is a pseudorandom function (Bellare 2006), and of this one there is one
  value. The length is an input of it like the rest.
"""

from __future__ import annotations

import hashlib
import hmac
from io import BufferedReader, BytesIO
from os import SEEK_END
from typing import NamedTuple, Self

#: What :func:`commitment` computes, and the bytes that a key has.
ALGORITHM, KEY_BYTES = "HMAC-SHA-256", 32
_DOMAIN = b"curator commitment to a private file, 1\0"


class FileDigest(NamedTuple):
    """A file's length in bytes, and its SHA-256. Private: who has a guess of the file can test it by these."""

    length: int
    sha256: bytes

    @classmethod
    def of(cls, file: BufferedReader | BytesIO) -> Self:
        """Of a file that is opened at its beginning."""
        digest = hashlib.file_digest(file, "sha256").digest()
        return cls(file.seek(0, SEEK_END), digest)

    def __repr__(self) -> str:
        return "<FileDigest>"


def commitment(key: bytes, file: FileDigest) -> str:
    """The commitment to a file under a key: 64 hexadecimal digits.

    Raises:
        ValueError: unless the key has 32 bytes: HMAC takes a shorter one for the same with zeros behind it.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key of a commitment has {KEY_BYTES} bytes")
    return hmac.new(key, _DOMAIN + file.length.to_bytes(8, "big") + file.sha256, hashlib.sha256).hexdigest()


def opens(committed: str, key: bytes, file: FileDigest) -> bool:
    """Whether a file under a key gives a commitment.

    Raises:
        ValueError: unless the key has 32 bytes.
    """
    return hmac.compare_digest(committed.encode(), commitment(key, file).encode())
