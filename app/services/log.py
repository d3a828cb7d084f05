"""The log as it is shown: its key, signed checkpoints, the lines that it holds, proofs. It is written elsewhere
(:mod:`app.services.sequencer`).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from app.declarations.errors import InvalidRequest
from app.services.cosignatures import Cosignatures
from app.services.log_keys import LogKeys
from app.services.log_ports import LogStore
from curator_client.proofs import merkle
from curator_client.proofs.notes import MOST_BYTES as MOST_NOTE_BYTES
from curator_client.proofs.notes import Checkpoint, NoteRefused, NoteUnsigned, Signer, Verifier

#: Lines of a page, and bytes of theirs, at most, or one line.
MOST_LINES, MOST_BYTES = 1000, 1 << 20
#: So many of the newest lines are looked at for a hash.
MOST_SEARCHED = 100_000


class Log:
    """The log as callers may see it.

    Args:
        store: its tables.
        keys: what it is signed with.
        cosignatures: what witnesses have said of it.
    """

    def __init__(self, store: LogStore, keys: LogKeys, cosignatures: Cosignatures) -> None:
        self._store = store
        self.keys, self.cosignatures = keys, cosignatures
        self._last: tuple[int, Signer, bytes] | None = None

    def key(self) -> dict[str, Any]:
        """The log's name and its public key, by itself and in the line that tools take; and the statements by which
        each earlier key vouched for the next.
        """
        verifier = self.keys.verifier
        return {
            "origin": verifier.name,
            "algorithm": "Ed25519",
            "public_key": base64.b64encode(verifier.public_key).decode(),
            "key": verifier.text(),
            "previous": [statement.decode() for statement in self.keys.statements()],
        }

    def checkpoint(self) -> bytes:
        """The signed checkpoint of all that is in the log now, with the cosignatures that there are of it."""
        # The size before the key: what tells of another key is not in what the old one signs.
        size = self._store.state().size
        return self._note(size) + self.cosignatures.lines(size)

    def cosigned_checkpoint(self, least: int, keys: Collection[str]) -> bytes:
        """The newest checkpoint that so many witnesses have cosigned, of these or of any where none is named.

        Raises:
            NotFound: when there is none.
        """
        size = self.cosignatures.newest(least, keys)
        return self._note(size) + self.cosignatures.lines(size, keys)

    def _note(self, size: int) -> bytes:
        signer, last = self.keys.signer(), self._last
        if last is None or last[:2] != (size, signer):  # else nothing came since
            last = self._last = size, signer, signer.note(size, merkle.root(size, self._store.hashes))
        return last[2]

    def entries(self, start: int, end: int) -> bytes:
        """Lines from number ``start`` to ``end``, both among them: as many of the first ones as a page has.

        Raises:
            InvalidRequest: unless start <= end, and both are in the log.
        """
        if start > end:
            raise InvalidRequest("start: not beyond end")
        self._check_size("end", end + 1)
        runs = self._store.leaves(start, min(end + 1, start + MOST_LINES))
        leaves = [replace(run, first=run.first + number, count=1) for run in runs for number in range(run.count)]
        fitting = held = 0
        for size in self._store.sizes(leaves):
            held += size
            if fitting and held > MOST_BYTES:
                break
            fitting += 1
        return b"".join(line + b"\n" for line in self._store.lines(leaves[:fitting]))

    def inclusion(self, index: int, size: int) -> dict[str, list[str]]:
        """The proof that entry number ``index`` is in the log of ``size`` entries.

        Raises:
            InvalidRequest: unless index < size, and the log has so many.
        """
        self._check_size("size", size)
        if index >= size:
            raise InvalidRequest("index: below size, as entries are counted from 0")
        return _shown(merkle.inclusion_proof(index, size, self._store.hashes))

    def consistency(self, first: int, second: int) -> dict[str, list[str]]:
        """The proof that the log of ``second`` entries begins with that of ``first`` entries.

        Raises:
            InvalidRequest: unless first <= second, and the log has so many.
        """
        self._check_size("second", second)
        if first > second:
            raise InvalidRequest("first: not beyond second")
        return _shown(merkle.consistency_proof(first, second, self._store.hashes))

    def own_checkpoint(self, note: str) -> Checkpoint:
        """The checkpoint in a note that this log has signed, now or with an earlier key.

        Raises:
            InvalidRequest: when it is none.
        """
        data = note.encode(errors="replace")
        try:
            if len(data) > MOST_NOTE_BYTES:
                raise NoteRefused(f"it has more than {MOST_NOTE_BYTES:,} bytes")
            keys = [Verifier.parse(key.key) for key in self.keys.all()]
            for verifier in reversed(keys[1:]):
                try:
                    return verifier.checkpoint(data)
                except NoteUnsigned:
                    continue
            return keys[0].checkpoint(data)
        except NoteRefused as error:
            raise InvalidRequest(
                f"checkpoint: the text of one that this log signed, to its last line: {error}"
            ) from None

    def contradiction(self, earlier: Checkpoint) -> str | None:
        """Why the log does not begin with what an earlier checkpoint of it was of; None where it does."""
        there = self._store.state().size
        if earlier.size > there:
            return f"the log has {there:,} entries, and had {earlier.size:,}"
        if merkle.root(earlier.size, self._store.hashes) != earlier.root:
            return f"the first {earlier.size:,} entries of the log are not those that were signed then"
        return None

    def find(self, hash: str, check: Callable[[], None]) -> int | None:
        """The number of the entry with a hash, in hexadecimal, among the newest :data:`MOST_SEARCHED`: that by
        which the entries of a session follow on one another, that of the whole line, as measurements are named, or that
        of its leaf in the tree. None where there is none.

        Args:
            hash: 64 digits.
            check: is called between pages, and raises when nobody waits any more.
        """
        own = f'"entry_hash":"{hash}"'.encode()
        size = self._store.state().size
        start = max(0, size - MOST_SEARCHED)
        while start < size:
            check()
            lines = self.entries(start, size - 1).split(b"\n")[:-1]
            for number, line in enumerate(lines, start):
                if own in line or hash in (hashlib.sha256(line).hexdigest(), merkle.leaf_hash(line).hex()):
                    return number
            start += len(lines)
        return None

    def _check_size(self, name: str, size: int) -> None:
        there = self._store.state().size
        if size > there:
            raise InvalidRequest(f"{name}: the log has {there} entries so far")


def _shown(hashes: list[bytes]) -> dict[str, list[str]]:
    return {"hashes": [base64.b64encode(each).decode() for each in hashes]}
