"""The change of a log's key: a statement that the old key and the new one both sign.

Its text is five lines: a title that no checkpoint begins with, as an origin has no spaces; the log's origin; the size
that the log had; the old key and the new one, each NAME+HASH+KEY. The note that carries it is a line of the log itself,
so that whoever follows the log sees every change of its key, and nobody can show a change to one alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from curator_client.proofs.nesting import parse_bounded
from curator_client.proofs.notes import NoteMalformed, NoteRefused, NoteUnsigned, Signer, Verifier

_TITLE = "curator: another key of the log"
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_BEGINNING = b'{"record":"log key",'


@dataclass(frozen=True)
class KeyChange:
    """That the log which ``old`` signed is signed by ``new`` from about a size on."""

    size: int
    old: Verifier
    new: Verifier

    def text(self) -> str:
        """The five lines."""
        return f"{_TITLE}\n{self.old.name}\n{self.size}\n{self.old.text()}\n{self.new.text()}\n"

    @staticmethod
    def signed(size: int, old: Signer, new: Signer) -> bytes:
        """The note of a change, signed by both.

        Args:
            size: of the log now.
            old: who signs the log now.
            new: who will; of the same origin.
        """
        text = KeyChange(size, old.verifier, new.verifier).text()
        return f"{text}\n".encode() + old.sign(text) + new.sign(text)

    @staticmethod
    def open(note: bytes) -> KeyChange:
        """The change that a note states, when both its keys have signed it.

        Raises:
            NoteMalformed: when it states none.
            NoteUnsigned: when either has not.
            NoteRefused: when the keys are of two logs, or one and the same.
        """
        lines = note.decode(errors="replace").partition("\n\n")[0].split("\n")
        if len(lines) != 5 or lines[0] != _TITLE or not _SIZE.fullmatch(lines[2]):
            raise NoteMalformed("a change of the log's key has five lines: title, origin, size, old key, new key")
        found = KeyChange(int(lines[2]), Verifier.parse(lines[3]), Verifier.parse(lines[4]))
        if found.old == found.new or not found.old.name == found.new.name == lines[1]:
            raise NoteRefused("a change of the log's key is from one key to another, both of one log")
        if found.old.open(note) != found.text() or found.new.open(note) != found.text():
            raise NoteMalformed("a change of the log's key has one spelling")
        return found


def statement_in(line: bytes) -> bytes | None:
    """The note in a line of the log, or the line itself where it should have one; None where it tells of something
    else.
    """
    if not line.startswith(_BEGINNING):
        return None
    try:
        return str(parse_bounded(line)["statement"]).encode()
    except (ValueError, KeyError):
        return line


def vouched(known: Verifier, note: bytes, statements: Sequence[bytes]) -> tuple[Verifier, tuple[bytes, ...]]:
    """The key that has signed a note, and those of the statements that lead to it from the key that is known.

    Args:
        known: the key.
        note: signed with it, or with one that followed on it.
        statements: all changes of the log's key, in their order.

    Raises:
        NoteUnsigned: when no statement leads to a key that has signed the note.
        NoteRefused: when one of them is none, or does not follow on the one before.
    """
    changes = [KeyChange.open(each) for each in statements]
    for before, after in pairwise(changes):
        if before.new != after.old or before.size > after.size:
            raise NoteRefused("changes of the log's key do not follow on each other")
    first = next((at for at, change in enumerate(changes) if change.old == known), len(changes))
    for last, change in enumerate(changes[first:], start=first + 1):
        try:
            change.new.open(note)
        except NoteUnsigned:
            continue
        return change.new, tuple(statements[first:last])
    raise NoteUnsigned(
        f"the note is not signed by {known.name} with the key that is known of it, nor with one it vouched for"
    )
