"""The vault: private arrays at rest, one file a data set, named only by the records that have been committed.

What it holds to:

1. A file appears whole or not at all, and lasts (:mod:`app.storage.blobs`).
2. With a key, nothing of the plaintext touches the disk, or leaves for an object store.
3. Every file has a keyed digest over its name and contents, so that a flipped byte, a truncation, or two
   files exchanged are noticed before an answer is computed from them. The digest says nothing to who lacks
   the key. So are the marks by which what was registered twice is known: keyed, and other ones for every file.
4. A file that no committed record names is removed by `sweep`, which never runs while a registration is
   under way, in this process or another on the same place.

File format. The *container* is the magic, the header's length (4 bytes, big-endian), a JSON header and the
arrays, each starting at a multiple of 64 bytes so that it can be used where it was read to. The key of the
commitment to what was uploaded stands in the header: it is sealed, copied and destroyed with the numbers.

Without a vault key the file is the container. With one it is a second magic, a random salt, a key check, and
the container in chunks of 1 MiB under AES-256-GCM (the STREAM construction of Hoang, Reyhanitabar, Rogaway
and Vizár 2015): each file has its own key, by HKDF-SHA256 from vault key and salt; the nonce is the chunk's
number; name, number and "is the last" are authenticated.

The records of a wide table may be a Parquet file, which an engine reads where it lies (:class:`CodesData`). Then that
file is the file of the vault, with the container of what is beside it, sealed as above, between its pages and its
footer: there its readers look for nothing. With a vault key the Parquet file is sealed under a key of its own, which is
in that container, and the digest is over the name and the bytes as they are stored.
"""

import contextlib
import errno
import hashlib
import hmac
import io
import json
import math
import mmap
import os
import re
import secrets
import struct
import tempfile
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.storage.blobs import Blobs, FileStamp, Folder, Opened
from app.storage.keys import KEY_BYTES, TEMPORARY, KeyDamaged, made_key
from app.storage.private_data import (
    CodesData,
    CsrData,
    DenseData,
    ElementsData,
    PrivateData,
    RecordsData,
    SourceData,
)

CHUNK_BYTES = 1 << 20
_PLAIN, _SEALED = b"CURVLT1\n", b"CURVLT1E"
#: How files of Parquet begin and end, in the clear and sealed; before that end stands the length of their footer.
_PARQUET_PLAIN, _PARQUET_SEALED = b"PAR1", b"PARE"
_FOOTER = struct.Struct("<I4s")
_LENGTH = struct.Struct(">I")
_SALT_BYTES, _CHECK_BYTES, _TAG_BYTES = 32, 16, 16
_SEALED_HEADER = len(_SEALED) + _SALT_BYTES + _CHECK_BYTES
_ALIGNMENT = 64
_MAX_HEADER = 1 << 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\.[0-9a-f]{16}\.vault", re.ASCII)
_DTYPES = frozenset({"|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<i8"})
#: The file of the key of an unencrypted vault's digests.
_DIGEST_KEY = "vault-digest.key"
#: What a header calls the key of the commitment.
_COMMITMENT = "commitment_key"
#: For what keys of short secrets are derived.
_SECRET = b"curator connection\0"


class VaultError(Exception):
    """A private file cannot be used. Messages name the file, never its contents."""


class VaultMissing(VaultError):
    """A file that a committed record names is not there."""


class VaultCorrupt(VaultError):
    """A file is not what was written: altered, truncated, or exchanged with another."""


class VaultWrongKey(VaultError):
    """The vault key given (or its absence) is not the one the file was written with."""


@dataclass(frozen=True)
class VaultEntry:
    """Where a data set's private file lies. Both fields go into its record; the digest never leaves the
    server.

    `file_name`: within the vault's folder. `digest`: keyed, 64 hexadecimal digits.
    """

    file_name: str
    digest: str = field(repr=False)


class Vault:
    """Private arrays in a place for files, encrypted when `key` (32 bytes) is given. Making one touches nothing.

    `place`: a folder by its path, or another. `keys_folder` (default: `keys` beside a folder) holds the digest key of
    an unencrypted vault, made at first use; with a vault key the digest key is derived from that. `copies` (default:
    where the system has temporary files) is a folder on whose disk Parquet files lie, as they are stored, while they
    are asked, where the place is no disk. Safe for threads and for several processes on one place.
    """

    def __init__(
        self, place: Blobs | Path, key: bytes | None, *, keys_folder: Path | None = None, copies: Path | None = None
    ) -> None:
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(f"the vault key must have {KEY_BYTES} bytes")
        if isinstance(place, Path):
            keys_folder, place = keys_folder or place.parent / "keys", Folder(place)
        if key is None and keys_folder is None:
            raise ValueError("a vault without a key needs a folder for the key of its digests")
        self._blobs: Blobs = place
        self._key = key
        self._keys_folder, self._copies = keys_folder, copies
        self._digest_key: bytes | None = None
        self._guard = threading.Lock()
        self._registrations = 0

    @contextlib.contextmanager
    def registration(self) -> Iterator[None]:
        """Holds off every `sweep` on this place: from before `put` until the record that names the file
        is committed.

        A process that dies inside it lets go by dying.
        """
        with self._blobs.sharing():
            with self._guard:
                self._registrations += 1
            try:
                yield
            finally:
                with self._guard:
                    self._registrations -= 1

    def put(self, dataset_id: str, data: PrivateData, key: bytes | None = None) -> VaultEntry:
        """Writes `data`, and the key of a commitment if there is one, to a new file and returns its entry; durable on
        return. Only within `registration()`.

        Raises RuntimeError outside of one, ValueError for an unusable id, OSError when the place refuses;
        then nothing remains. A caller whose commit fails calls `destroy`, or leaves the file to the next
        `sweep`.
        """
        if not self._registrations:
            raise RuntimeError("put() outside of registration(): a sweep could remove the file")
        name = f"{dataset_id}.{secrets.token_hex(8)}.vault"
        if not is_file(name):
            raise ValueError("a data set's id consists of letters, digits, dots, dashes and underscores")
        digest = self._new_digest(name)
        if isinstance(data, CodesData):
            self._blobs.put(name, _digested(self._with_container(name, data, key), digest))
        else:
            pieces = _digested(container(data, key), digest)
            self._blobs.put(name, pieces if self._key is None else self._sealed(name, pieces))
        return VaultEntry(name, digest.hexdigest())

    def open(self, entry: VaultEntry) -> PrivateData:
        """The private arrays of `entry`, read-only, read (or decrypted) into anonymous memory and verified there.

        Not mapped from the file: what happens to it later would reach the arrays unverified, and a file cut short would
        end the process. The memory goes into no core dump. A Parquet file is no array, and is not read into memory: it
        is told open, verified, and who asks it looks whether it is what it was. From elsewhere than a disk it is copied
        to one first, as it is stored. Raises VaultMissing, VaultCorrupt, VaultWrongKey, and OSError when that disk
        refuses.
        """
        with self._file(entry) as (file, stored):
            if _is_parquet(file):
                return self._opened(entry, file)[0]
            size = stored if self._key is None else _plain_size(entry, stored)
            memory = mmap.mmap(-1, size)
            if hasattr(mmap, "MADV_DONTDUMP"):
                memory.madvise(mmap.MADV_DONTDUMP)
            position = 0
            for chunk in self._chunks(entry.file_name, file):
                if len(chunk) > size - position:  # it has grown since
                    raise VaultCorrupt(f"{entry.file_name} has been altered")
                memory[position : position + len(chunk)] = chunk
                position += len(chunk)
        digest = self._new_digest(entry.file_name)
        digest.update(memory)
        _compare(entry, digest)
        return data_of(entry.file_name, memory)

    def verify(self, entry: VaultEntry) -> None:
        """Reads the whole file and compares its digest. Raises VaultMissing, VaultCorrupt, VaultWrongKey."""
        digest = self._new_digest(entry.file_name)
        with self._file(entry) as (file, _):
            stored = iter(lambda: file.read(CHUNK_BYTES), b"")
            for chunk in stored if _is_parquet(file) else self._chunks(entry.file_name, file):
                digest.update(chunk)
        _compare(entry, digest)

    def commitment_key(self, entry: VaultEntry) -> bytes | None:
        """The key of a commitment that `entry` was put with, None where it was put without; the whole file is read and
        verified. Raises VaultMissing, VaultCorrupt, VaultWrongKey.
        """
        digest = self._new_digest(entry.file_name)
        first = b""
        with self._file(entry) as (file, _):
            if _is_parquet(file):
                return self._opened(entry, file)[1]
            for chunk in self._chunks(entry.file_name, file):
                first = first or chunk  # a header is shorter than a chunk
                digest.update(chunk)
        _compare(entry, digest)
        return _commitment_key(entry.file_name, first)

    def fits(self, entry: VaultEntry) -> bool | None:
        """Whether a file was written with this vault's key, or with none where it has none, by what it begins with;
        None where that does not tell: of Parquet files, and of one that is missing or damaged."""
        try:
            with self._file(entry) as (file, _):
                return None if _is_parquet(file) else next(self._chunks(entry.file_name, file), None) is not None
        except VaultWrongKey:
            return False
        except (VaultError, OSError):
            return None

    def _opened(self, entry: VaultEntry, file: io.BufferedReader) -> tuple[CodesData, bytes | None]:
        """What a Parquet file is, itself open, and the key of its commitment; verified."""
        name, digest = entry.file_name, self._new_digest(entry.file_name)
        with contextlib.ExitStack() as refused:
            try:
                found: BinaryIO = open(os.dup(file.fileno()), "rb")  # noqa: SIM115 - it is what is told
                copied = False
            except io.UnsupportedOperation:
                found, copied = tempfile.TemporaryFile(dir=self._copies), True  # noqa: SIM115 - as above
            refused.callback(found.close)
            for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
                digest.update(chunk)
                if copied:
                    found.write(chunk)
            found.flush()
            # What is sealed says first whether it is under another key: its digest would only be a wrong one.
            start, end = _between(name, found)
            stored = io.BytesIO(os.pread(found.fileno(), end - start, start))
            plain = b"".join(self._chunks(name, stored))
            _compare(entry, digest)
            memory = mmap.mmap(-1, len(plain))
            if hasattr(mmap, "MADV_DONTDUMP"):
                memory.madvise(mmap.MADV_DONTDUMP)
            memory[:] = plain
            told = data_of(name, memory, found)
            if not isinstance(told, CodesData):
                raise VaultCorrupt(f"{name} has been altered or truncated")
            refused.pop_all()
            return told, _commitment_key(name, plain)

    def _with_container(self, name: str, data: CodesData, key: bytes | None) -> Iterator[bytes | memoryview]:
        """A Parquet file with the container of what is beside it before its footer."""
        descriptor = data.file.fileno()
        footer, size = _footer(name, data.file)
        yield from _read(descriptor, 0, footer)
        pieces = container(data, key)
        beside = b"".join(pieces if self._key is None else self._sealed(name, pieces))
        yield beside
        yield _LENGTH.pack(len(beside))
        yield from _read(descriptor, footer, size)

    def file_key(self) -> bytes | None:
        """A new key for a Parquet file; None where the vault has no key."""
        return None if self._key is None else secrets.token_bytes(KEY_BYTES)

    def mark(self, file_name: str, content: bytes) -> str:
        """The mark of a content's SHA-256 that a record may keep: keyed, and another one beside every file's name, so
        that who lacks the key cannot tell equal contents from others.
        """
        context = b"curator vault mark\0" + file_name.encode() + b"\0"
        return hmac.new(self._load_digest_key(), context + content, hashlib.sha256).hexdigest()

    def seal_secret(self, name: str, secret: str) -> str:
        """A short secret, sealed for a name under a key of its own that is made of the vault's.

        Raises VaultError where the vault has no key.
        """
        salt = secrets.token_bytes(_SALT_BYTES)
        # The key is used this once, so that the nonce may be any.
        sealed = AESGCM(self._secret_key(salt)).encrypt(_nonce(0), secret.encode(), _SECRET + name.encode())
        return b64encode(salt + sealed).decode()

    def open_secret(self, name: str, sealed: str) -> str:
        """A secret that was sealed for a name.

        Raises VaultError where the vault has no key, VaultWrongKey where that does not open it.
        """
        try:
            told = b64decode(sealed, validate=True)
            salt, rest = told[:_SALT_BYTES], told[_SALT_BYTES:]
            return AESGCM(self._secret_key(salt)).decrypt(_nonce(0), rest, _SECRET + name.encode()).decode()
        except (InvalidTag, ValueError):
            raise VaultWrongKey("a secret was sealed with another key, or is altered") from None

    def _secret_key(self, salt: bytes) -> bytes:
        if self._key is None:
            raise VaultError("the vault has no key")
        return _derive(self._key, salt, _SECRET)

    def stamp(self, entry: VaultEntry) -> FileStamp:
        """How the file looks from outside.

        Raises VaultMissing, or VaultError where there is something else in its place.
        """
        name = _checked_name(entry)
        with _named(name):
            return self._blobs.stamp(name)

    def destroy(self, entry: VaultEntry) -> None:
        """Removes the file; no matter if it is gone already. Who has it open on a disk keeps it until closing.

        The bytes are not overwritten: journals, snapshots and flash keep copies that no overwriting
        reaches. What must not be recoverable from the disk belongs into an encrypted vault.
        """
        self._blobs.remove(_checked_name(entry))

    def sweep(self, known: Callable[[], Collection[str]]) -> int | None:
        """Removes what a crash left: temporary files, and files that no committed record names. Returns
        how many.

        `known` is called under the lock and returns the file names of all committed records: no
        registration can commit between the call and the removal. When a registration is under way anywhere
        on this place nothing is done and the result is None.
        """
        with self._blobs.alone() as got:
            if not got:
                return None
            keep = frozenset(known())
            removed = 0
            for name in self._blobs.names():
                if (is_file(name) and name not in keep) or TEMPORARY.fullmatch(name):
                    self._blobs.remove(name)
                    removed += 1
            return removed

    @contextlib.contextmanager
    def _file(self, entry: VaultEntry) -> Iterator[Opened]:
        name = _checked_name(entry)
        with contextlib.ExitStack() as closed:
            with _named(name):
                opened = closed.enter_context(self._blobs.open(name))
            magic = opened.file.peek(len(_PLAIN))[: len(_PLAIN)]
            begins = magic if magic[:4] not in (_PARQUET_PLAIN, _PARQUET_SEALED) else magic[:4]
            if begins not in (_PLAIN, _SEALED, _PARQUET_PLAIN, _PARQUET_SEALED):
                raise VaultCorrupt(f"{name} is not a vault file")
            if begins in (_SEALED, _PARQUET_SEALED) and self._key is None:
                raise VaultWrongKey(f"{name} is encrypted: set CURATOR_VAULT_KEY")
            if begins in (_PLAIN, _PARQUET_PLAIN) and self._key is not None:
                # Accepting it would let anyone who can write to the place replace an encrypted file.
                raise VaultWrongKey(f"{name} was written without a vault key, and one is set")
            yield opened

    def _new_digest(self, name: str) -> hmac.HMAC:
        context = b"curator vault file\0" + name.encode() + b"\0"
        return hmac.new(self._load_digest_key(), context, hashlib.sha256)

    def _load_digest_key(self) -> bytes:
        with self._guard:
            if self._digest_key is None:
                if self._key is None:
                    assert self._keys_folder is not None
                    try:
                        self._digest_key = made_key(self._keys_folder, _DIGEST_KEY)
                    except KeyDamaged as error:
                        raise VaultCorrupt(str(error)) from None
                else:
                    self._digest_key = _derive(self._key, b"", b"curator vault digest")
            return self._digest_key

    def _sealed(self, name: str, pieces: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        assert self._key is not None
        salt = os.urandom(_SALT_BYTES)
        yield _SEALED + salt + _key_check(self._key, salt)
        cipher = AESGCM(_derive(self._key, salt, b"curator vault file"))
        index = 0
        chunk = bytearray()
        for piece in pieces:
            for start in range(0, len(piece), CHUNK_BYTES):
                chunk += piece[start : start + CHUNK_BYTES]
                # One byte stays behind, so that the last chunk is known to be the last when it is sealed.
                if len(chunk) > CHUNK_BYTES:
                    whole = bytes(chunk[:CHUNK_BYTES])
                    yield cipher.encrypt(_nonce(index), whole, _associated(name, index, False))
                    del chunk[:CHUNK_BYTES]
                    index += 1
        yield cipher.encrypt(_nonce(index), bytes(chunk), _associated(name, index, True))

    def _chunks(self, name: str, file: BinaryIO) -> Iterator[bytes]:
        """The container, piece by piece."""
        return iter(lambda: file.read(CHUNK_BYTES), b"") if self._key is None else self._unsealed(name, file)

    def _unsealed(self, name: str, file: BinaryIO) -> Iterator[bytes]:
        assert self._key is not None
        header = file.read(_SEALED_HEADER)
        if len(header) < _SEALED_HEADER:
            raise VaultCorrupt(f"{name} is truncated")
        salt = header[len(_SEALED) : len(_SEALED) + _SALT_BYTES]
        if not hmac.compare_digest(header[-_CHECK_BYTES:], _key_check(self._key, salt)):
            raise VaultWrongKey(f"{name} was not written with this CURATOR_VAULT_KEY, or its head is damaged")
        cipher = AESGCM(_derive(self._key, salt, b"curator vault file"))
        index = 0
        sealed = file.read(CHUNK_BYTES + _TAG_BYTES)
        while True:
            following = file.read(CHUNK_BYTES + _TAG_BYTES)
            try:
                chunk = cipher.decrypt(_nonce(index), sealed, _associated(name, index, not following))
            except (InvalidTag, ValueError):
                raise VaultCorrupt(f"{name} has been altered or truncated") from None
            yield chunk
            if not following:
                return
            sealed = following
            index += 1


def _plain_size(entry: VaultEntry, size: int) -> int:
    """The size of the container in a sealed file of `size` bytes."""
    body = size - _SEALED_HEADER
    whole, rest = divmod(body, CHUNK_BYTES + _TAG_BYTES)
    if body <= _TAG_BYTES or 0 < rest <= _TAG_BYTES:  # no chunk is empty
        raise VaultCorrupt(f"{entry.file_name} is truncated")
    return body - _TAG_BYTES * (whole + (rest > 0))


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors of a place as those of the file that is looked for there."""
    try:
        yield
    except FileNotFoundError:
        raise VaultMissing(f"{name} is not in the vault") from None
    except OSError as error:  # no permission, or a symbolic link in its place, or a store that cannot be reached
        raise VaultError(f"{name} cannot be opened: {error.strerror}") from None


def is_file(name: str) -> bool:
    """Whether a vault could have written what has this name."""
    return _NAME.fullmatch(name) is not None


def content_of(data: PrivateData) -> bytes:
    """SHA-256 over the numbers and their layout: equal for equal numbers in the same layout."""
    if isinstance(data, CodesData):  # of whose bytes chance is a part
        return bytes.fromhex(json.loads(data.about.tobytes())["content"])
    content = hashlib.sha256()
    for piece in container(data):
        content.update(piece)
    return content.digest()


def _derive(key: bytes, salt: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt, purpose).derive(key)


def _key_check(key: bytes, salt: bytes) -> bytes:
    return _derive(key, salt, b"curator vault key check")[:_CHECK_BYTES]


def _nonce(index: int) -> bytes:
    return index.to_bytes(12, "big")


def _associated(name: str, index: int, last: bool) -> bytes:
    return b"curator vault\0" + name.encode() + b"\0" + index.to_bytes(8, "big") + bytes([last])


def container(data: PrivateData, key: bytes | None = None) -> Iterator[bytes | memoryview]:
    """Private arrays as the bytes of a file, in pieces, with the key of a commitment where there is one."""
    arrays = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in data.arrays().items()}
    described: list[dict[str, object]] = []
    header: dict[str, object] = {"layout": data.layout, "mass": data.mass, "arrays": described}
    if isinstance(data, CsrData):
        header["shape"] = data.shape
    if key is not None:
        header[_COMMITMENT] = key.hex()
    offset = 0  # from the end of the padded header
    for name, array in arrays.items():
        described.append({"name": name, "dtype": array.dtype.str, "shape": array.shape, "offset": offset})
        offset += _aligned(array.nbytes)
    encoded = json.dumps(header).encode()
    start = len(_PLAIN) + _LENGTH.size + len(encoded)
    yield _PLAIN + _LENGTH.pack(len(encoded)) + encoded + bytes(_aligned(start) - start)
    for array in arrays.values():
        if array.nbytes:
            yield array.reshape(-1).data.cast("B")
        yield bytes(_aligned(array.nbytes) - array.nbytes)


def _header(container: bytes | mmap.mmap) -> tuple[dict[str, Any], int]:
    """The header of a container, and where its arrays begin. Raises ValueError and struct.error for nonsense."""
    (length,) = _LENGTH.unpack_from(container, len(_PLAIN))
    start = len(_PLAIN) + _LENGTH.size
    if length > _MAX_HEADER or container[: len(_PLAIN)] != _PLAIN:
        raise ValueError
    return json.loads(container[start : start + length]), _aligned(start + length)


def data_of(name: str, memory: mmap.mmap, file: BinaryIO | None = None) -> PrivateData:
    """The arrays of a container in `memory`, which they keep alive, with the Parquet file that it is of, if it is of
    one; `name` is for VaultCorrupt, which this raises.
    """
    try:
        header, base = _header(memory)
        arrays = {}
        for item in header["arrays"]:
            if item["dtype"] not in _DTYPES:
                raise ValueError
            shape = tuple(int(side) for side in item["shape"])
            view = np.frombuffer(memory, item["dtype"], math.prod(shape), base + int(item["offset"]))
            view.flags.writeable = False
            arrays[item["name"]] = view.reshape(shape)
        mass = int(header["mass"])
        match header["layout"]:
            case "dense":
                return DenseData(mass=mass, **arrays)
            case "csr":
                rows, columns = header["shape"]
                return CsrData(shape=(int(rows), int(columns)), mass=mass, **arrays)
            case "records":
                return RecordsData(tuple(arrays[f"column{i}"] for i in range(len(arrays))), mass)
            case "elements":
                return ElementsData(mass=mass, **arrays)
            case "source":
                return SourceData(mass=mass, **arrays)
            case "codes" if file is not None:
                return CodesData(mass=mass, file=file, **arrays)
            case _:
                raise ValueError
    except (ValueError, KeyError, TypeError, struct.error):
        pass
    raise VaultCorrupt(f"{name} has been altered or truncated")


def _commitment_key(name: str, plain: bytes) -> bytes | None:
    """The key of a commitment in the header of a container, None where it has none. Raises VaultCorrupt."""
    try:
        key = _header(plain)[0].get(_COMMITMENT)
        return None if key is None else bytes.fromhex(key)
    except (ValueError, TypeError, struct.error):
        raise VaultCorrupt(f"{name} has been altered or truncated") from None


def _is_parquet(file: io.BufferedReader) -> bool:
    return file.peek(len(_PLAIN))[: len(_PARQUET_PLAIN)] in (_PARQUET_PLAIN, _PARQUET_SEALED)


def _footer(name: str, file: BinaryIO) -> tuple[int, int]:
    """Where the footer of a Parquet file begins, and its size in bytes. Raises VaultCorrupt."""
    size = os.fstat(file.fileno()).st_size
    end = os.pread(file.fileno(), _FOOTER.size, max(size - _FOOTER.size, 0))
    if len(end) == _FOOTER.size:
        length, magic = _FOOTER.unpack(end)
        footer = size - _FOOTER.size - length
        if magic in (_PARQUET_PLAIN, _PARQUET_SEALED) and footer > _LENGTH.size:
            return footer, size
    raise VaultCorrupt(f"{name} has been altered or truncated")


def _between(name: str, file: BinaryIO) -> tuple[int, int]:
    """Where a container lies between the pages and the footer of a Parquet file. Raises VaultCorrupt."""
    end = _footer(name, file)[0] - _LENGTH.size
    (length,) = _LENGTH.unpack(os.pread(file.fileno(), _LENGTH.size, end))
    if length > end:
        raise VaultCorrupt(f"{name} has been altered or truncated")
    return end - length, end


def _read(descriptor: int, start: int, end: int) -> Iterator[bytes]:
    """Bytes of a file, in pieces, wherever it was read to."""
    while start < end:
        piece = os.pread(descriptor, min(CHUNK_BYTES, end - start), start)
        if not piece:
            raise OSError(errno.EIO, "a file was cut short")
        yield piece
        start += len(piece)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _digested(pieces: Iterator[bytes | memoryview], digest: hmac.HMAC) -> Iterator[bytes | memoryview]:
    for piece in pieces:
        digest.update(piece)
        yield piece


def _compare(entry: VaultEntry, digest: hmac.HMAC) -> None:
    if not hmac.compare_digest(digest.hexdigest(), entry.digest):
        raise VaultCorrupt(
            f"{entry.file_name} does not match its digest: it was altered, or the key of the digests replaced"
        )


def _checked_name(entry: VaultEntry) -> str:
    """The name of an entry's file, which leads to no other folder."""
    if not is_file(entry.file_name):
        raise VaultCorrupt("a record names a private file that the vault could not have written")
    return entry.file_name
