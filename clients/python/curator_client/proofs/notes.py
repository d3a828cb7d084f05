"""Checkpoints and the signed notes that carry them (C2SP tlog-checkpoint and signed-note).

A checkpoint is three lines: the log's origin, its size, its tree hash in base64. A note is a text, an empty line, and
a line for each signature: an em dash, the key's name, and in base64 the key's hash (4 bytes) with the signature. The
log's own key has the log's origin as its name. Witnesses, who have seen that a log only grew, cosign its checkpoints
(C2SP tlog-cosignature): their keys are of another kind, and what they sign says when. Only Ed25519 is known here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from curator_client.proofs.merkle import HASH_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: What an origin looks like: printable, as names of keys have neither spaces nor a plus sign.
ORIGIN = re.compile(r"[!-*,-~]{1,255}")
KEY_BYTES, SIGNATURE_BYTES = 32, 64
#: A note that is longer is not read.
MOST_BYTES = 1 << 16
_HASH_BYTES, _TIME_BYTES = 4, 8
_END_OF_TIME = 1 << 63
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_SIGNATURE = "— "
_PRIVATE = "PRIVATE+KEY+"


def note_at(path: Path) -> bytes:
    """The part of a file that may be a note: no more of it than tells that it is none.

    Raises:
        OSError: when it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


class NoteRefused(ValueError):
    """A note, a checkpoint or a key is not what it should be."""


class NoteMalformed(NoteRefused):
    """It is not written as the specification says."""


class NoteUnsigned(NoteRefused):
    """It has no signature of the key, or one that is not its own."""


def _decode(text: str, what: str) -> bytes:
    """Bytes from their one spelling in base64."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data or base64.b64encode(data).decode() != text:
        raise NoteMalformed(f"{what} is not base64")
    return data


@dataclass(frozen=True)
class Checkpoint:
    """A log's statement of itself: how many leaves it has, and the tree hash over them."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """The three lines."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @staticmethod
    def parse(text: str) -> Checkpoint:
        """A checkpoint from its lines. Further lines, which others may add, are not looked at.

        Raises:
            NoteMalformed: when it is none.
        """
        lines = text.split("\n")
        if len(lines) < 4 or lines[-1] or not ORIGIN.fullmatch(lines[0]) or not _SIZE.fullmatch(lines[1]):
            raise NoteMalformed("a checkpoint has three lines: origin, size, tree hash")
        root = _decode(lines[2], "the tree hash")
        if len(root) != HASH_BYTES:
            raise NoteMalformed(f"a tree hash has {HASH_BYTES} bytes")
        return Checkpoint(lines[0], int(lines[1]), root)


@dataclass(frozen=True)
class _KeyHolder:
    """Whose signatures are known: by a name, and a public key (32 bytes) of a kind."""

    kind: ClassVar[bytes]
    name: str
    public_key: bytes

    @property
    def key_hash(self) -> bytes:
        """Four bytes by which a signature says whose it is."""
        return hashlib.sha256(self.name.encode() + b"\n" + self.kind + self.public_key).digest()[:_HASH_BYTES]

    def text(self) -> str:
        """Name, hash and key in one line, as tools take them."""
        return f"{self.name}+{self.key_hash.hex()}+{base64.b64encode(self.kind + self.public_key).decode()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """One from its line.

        Raises:
            NoteMalformed: when it is none, or of another kind of signature.
        """
        name, _, rest = text.partition("+")
        told, _, key = rest.partition("+")
        data = _decode(key, "the key") if ORIGIN.fullmatch(name) else b""
        if data[:1] != cls.kind or len(data) != 1 + KEY_BYTES:
            raise NoteMalformed(f"a key is NAME+HASH+KEY, with the base64 of an Ed25519 key of kind {cls.kind[0]}")
        made = cls(name, data[1:])
        if made.key_hash.hex() != told:
            raise NoteMalformed("the key's hash is not its own")
        return made

    def _own(self, signatures: list[tuple[str, bytes]]) -> list[bytes]:
        """This key's signature in a note, without the key's hash."""
        own = [data[_HASH_BYTES:] for name, data in signatures if name == self.name and data[:4] == self.key_hash]
        if not own:
            raise NoteUnsigned(f"the note is not signed by {self.name} with the key that is known of it")
        return own

    def _check(self, signature: bytes, message: bytes) -> None:
        # Imported where it is needed: whoever checks no signature does without the library.
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(signature, message)
        except (InvalidSignature, ValueError):
            raise NoteUnsigned(f"the note's signature by {self.name} is not one of this text") from None


@dataclass(frozen=True)
class Verifier(_KeyHolder):
    """Who checks a log's own signatures."""

    kind = b"\1"

    def open(self, note: bytes) -> str:
        """The text of a note that this key has signed; other signatures may stand beside.

        Raises:
            NoteMalformed: when it is no note.
            NoteUnsigned: when this key's signature is missing or wrong.
        """
        text, signatures = _parts(note)
        for signature in self._own(signatures):
            self._check(signature, text.encode())
        return text

    def checkpoint(self, note: bytes) -> Checkpoint:
        """The checkpoint that a note of this log carries.

        Raises:
            NoteRefused: when it is no note that this key has signed, or no checkpoint of this log.
        """
        found = Checkpoint.parse(self.open(note))
        if found.origin != self.name:
            raise NoteRefused(f"the checkpoint is of {found.origin}, not of {self.name}")
        return found


@dataclass(frozen=True)
class Cosignature:
    """A witness' statement about a note: of which text, when (seconds since 1970), and the line in which it did."""

    text: str
    time: int
    line: bytes

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint that was cosigned. Whose log it is must be checked by the log's own signature.

        Raises:
            NoteMalformed: when the text is none.
        """
        return Checkpoint.parse(self.text)


@dataclass(frozen=True)
class WitnessVerifier(_KeyHolder):
    """Who checks the cosignatures of a witness."""

    kind = b"\4"

    def open(self, note: bytes) -> Cosignature:
        """The last of this witness' cosignatures in a note; other signatures may stand beside.

        Raises:
            NoteMalformed: when it is no note.
            NoteUnsigned: when this witness' cosignature is missing or wrong.
        """
        text, signatures = _parts(note)
        found = []
        for signature in self._own(signatures):
            time = int.from_bytes(signature[:_TIME_BYTES], "big")
            if len(signature) != _TIME_BYTES + SIGNATURE_BYTES or time >= _END_OF_TIME:
                raise NoteMalformed("a cosignature is a time of 8 bytes, below 2^63, and a signature of 64")
            self._check(signature[_TIME_BYTES:], _cosigned(text, time))
            found.append(Cosignature(text, time, _signed(self, signature)))
        return max(found, key=lambda each: each.time)


def _cosigned(text: str, time: int) -> bytes:
    """The text that a witness signs."""
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def _parts(note: bytes) -> tuple[str, list[tuple[str, bytes]]]:
    """The text of a note, its last line's end included, and its signatures: names and what stands in base64."""
    if len(note) > MOST_BYTES:
        raise NoteMalformed(f"a note has at most {MOST_BYTES} bytes")
    try:
        whole = note.decode()
    except UnicodeDecodeError:
        raise NoteMalformed("a note is UTF-8 text") from None
    if any(ord(letter) < 0x20 and letter != "\n" for letter in whole):
        raise NoteMalformed("a note has no control characters")
    text, separator, below = whole.rpartition("\n\n")
    if not separator or not below.endswith("\n"):
        raise NoteMalformed("a note is a text, an empty line and signatures")
    signatures = []
    for line in below[:-1].split("\n"):
        name, _, data = line.removeprefix(_SIGNATURE).partition(" ")
        if not line.startswith(_SIGNATURE) or not name or "+" in name:
            raise NoteMalformed("a signature is an em dash, a name and base64")
        signatures.append((name, _decode(data, "a signature")))
        if len(signatures[-1][1]) <= _HASH_BYTES:
            raise NoteMalformed("a signature follows on the hash of its key")
    return text + "\n", signatures


def _private(seed: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed)


@dataclass(frozen=True)
class Signer:
    """Who signs for a log.

    Args:
        seed: the private key, 32 bytes.
        origin: the log's name; None for one that is made of the public key.
    """

    seed: bytes = field(repr=False)
    origin: str | None = None

    @property
    def verifier(self) -> Verifier:
        """Who checks what this one signs."""
        public = _private(self.seed).public_key().public_bytes_raw()
        return Verifier(self.origin or f"curator/{hashlib.sha256(public).hexdigest()[:16]}", public)

    def sign(self, text: str) -> bytes:
        """The line of this key's signature of a text."""
        return _signed(self.verifier, _private(self.seed).sign(text.encode()))

    def note(self, size: int, root: bytes) -> bytes:
        """The signed checkpoint of so many leaves with this tree hash."""
        text = Checkpoint(self.verifier.name, size, root).text()
        return f"{text}\n".encode() + self.sign(text)


@dataclass(frozen=True)
class Witness:
    """Who cosigns checkpoints of a log that it saw grow, and only grow.

    Args:
        seed: the private key, 32 bytes.
        name: of the key; None for one that is made of the public key.
    """

    seed: bytes = field(repr=False)
    name: str | None = None

    @property
    def verifier(self) -> WitnessVerifier:
        """Who checks what this one cosigns."""
        public = _private(self.seed).public_key().public_bytes_raw()
        return WitnessVerifier(self.name or f"witness/{hashlib.sha256(public).hexdigest()[:16]}", public)

    def cosign(self, note: bytes, time: int) -> bytes:
        """A note of a checkpoint with this witness' cosignature below the signatures that it has.

        Args:
            note: whose checkpoint was checked to follow on all that this witness has cosigned.
            time: seconds since 1970.

        Raises:
            NoteMalformed: when it is no note of a checkpoint.
        """
        text, _ = _parts(note)
        Checkpoint.parse(text)
        made = time.to_bytes(_TIME_BYTES, "big") + _private(self.seed).sign(_cosigned(text, time))
        return note + _signed(self.verifier, made)

    def text(self) -> str:
        """The private key in one line, as tools for notes keep it."""
        verifier = self.verifier
        data = base64.b64encode(verifier.kind + self.seed).decode()
        return f"{_PRIVATE}{verifier.name}+{verifier.key_hash.hex()}+{data}"

    @staticmethod
    def parse(text: str) -> Witness:
        """A witness from the line of its private key.

        Raises:
            NoteMalformed: when it is none. The message repeats nothing of it.
        """
        name, _, rest = text.removeprefix(_PRIVATE).partition("+")
        told, _, key = rest.partition("+")
        named = text.startswith(_PRIVATE) and ORIGIN.fullmatch(name)
        data = _decode(key, "the private key") if named else b""
        made = Witness(data[1:], name)
        if data[:1] != WitnessVerifier.kind or len(data) != 1 + KEY_BYTES or made.verifier.key_hash.hex() != told:
            raise NoteMalformed("a witness' private key is PRIVATE+KEY+NAME+HASH+KEY, of kind 4")
        return made


def _signed(key: _KeyHolder, signature: bytes) -> bytes:
    """The line of a signature."""
    return f"{_SIGNATURE}{key.name} {base64.b64encode(key.key_hash + signature).decode()}\n".encode()
