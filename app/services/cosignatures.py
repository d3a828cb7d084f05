"""Cosignatures of witnesses: auditors who followed the log say with keys of their own what they saw.

A witness' key comes with what it has cosigned, and belongs to the principal who first told it. That is order, not
proof: whoever relies on a witness knows its public key from elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from app.declarations.errors import InvalidRequest
from app.services.errors import Conflict, NotFound
from app.services.log_keys import LogKeys
from app.services.log_ports import CosignatureRow, CosignatureStore, LogStore
from app.services.principals import Principal
from curator_client.proofs import merkle
from curator_client.proofs.notes import Checkpoint, NoteRefused, WitnessVerifier

#: Checkpoints kept of each principal, those of the largest sizes; lines of a note, which must be read by others.
KEPT, MOST_LINES = 32, 100
#: The last time that has a date: a witness may say any below 2^63.
_FARTHEST = 253402300799


class Cosignatures:
    """Takes and shows cosignatures.

    Args:
        store: where they are kept.
        log: what was cosigned.
        keys: the log's own.
    """

    def __init__(self, store: CosignatureStore, log: LogStore, keys: LogKeys) -> None:
        self._store, self._log, self._keys = store, log, keys

    def add(self, actor: Principal, key: str, note: bytes) -> None:
        """Take what a witness has cosigned: again, or of an older size, without further effect.

        Args:
            actor: whose witness it is.
            key: the witness', NAME+HASH+KEY.
            note: a checkpoint of this log with the witness' cosignature.

        Raises:
            InvalidRequest: when it is none.
            Conflict: when the principal has told another key before, or another principal this one.
        """
        actor.require("auditor", "admin")
        try:
            found = WitnessVerifier.parse(key).open(note)
            told = found.checkpoint
        except NoteRefused as error:
            raise InvalidRequest(f"the cosignature: {error}") from None
        if told.size > self._log.state().size:
            raise InvalidRequest("the note is not a checkpoint of this log: it is not so long")
        own = Checkpoint(self._keys.verifier.name, told.size, merkle.root(told.size, self._log.hashes))
        if found.text != own.text():
            raise InvalidRequest("the note is not a checkpoint of this log: cosign what GET /v1/log/checkpoint tells")
        if not self._store.add(CosignatureRow(actor.name, told.size, key, found.time, found.line), KEPT):
            raise Conflict(
                "a principal has one witness key, the first one told, and no two have the same: an administrator may "
                "have it forgotten"
            )

    def forget(self, actor: Principal, name: str) -> None:
        """Forget the witness key of a principal, and what it has cosigned: the next one told is kept.

        Raises:
            NotFound: when there is none.
        """
        actor.require("admin")
        if not self._store.forget(name):
            raise NotFound(f"no witness of {name[:64]!r} is known")

    def newest(self, least: int, keys: Collection[str]) -> int:
        """The size of the newest checkpoint that so many witnesses have cosigned, of these, or of any where none is
        named.

        Raises:
            NotFound: when there is none.
        """
        size = self._store.newest(least, keys)
        if size is None:
            raise NotFound(f"no checkpoint that is kept was cosigned by {least} of these witnesses")
        return size

    def lines(self, size: int, keys: Collection[str] = ()) -> bytes:
        """The lines of the cosignatures of a size."""
        return b"".join(self._store.lines(size, keys, MOST_LINES))

    def witnesses(self) -> list[dict[str, Any]]:
        """The witnesses by the names of their principals: the key of each, the largest size that it has cosigned, and
        when. What the service says of them proves nothing.
        """
        return [
            {
                "witness": row.key.partition("+")[0],
                "key": row.key,
                "principal": row.principal,
                "size": row.size,
                "cosigned_at": datetime.fromtimestamp(min(row.time, _FARTHEST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            for row in self._store.last_of_each(MOST_LINES)
        ]
