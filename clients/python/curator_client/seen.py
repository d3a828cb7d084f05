"""Records of what a client was told while its sessions ran, kept to hold against what it is shown later."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

from curator_client.errors import Contradicted, NotVerified, ProtocolError, Refused
from curator_client.log_routes import LogRoutes
from curator_client.models import JSON
from curator_client.proofs.follower import Follower, LogForked, LogShrank
from curator_client.proofs.notes import NoteRefused, Verifier
from curator_client.proofs.records import parse

#: Entries of a session that are kept, at most: 12 MiB of them. Of more every other old one is let go.
MOST_KEPT = 1 << 18
#: An entry as it was told of: its number, its value (not a number where it told none, or several), its hash.
_TOLD = struct.Struct(">Qd32s")


class SeenEntries:
    """The entries of one session that replies told of: 48 bytes for each.

    The hash of an entry covers those before it, so that each one that is kept is worth all of these. All are kept, not
    the newest alone: a server that told of two histories is found out by either.
    """

    def __init__(self) -> None:
        self._kept = bytearray()

    def __len__(self) -> int:
        return len(self._kept) // _TOLD.size

    def add(self, sequence: int, entry_hash: str, value: float | None = None) -> None:
        """Keep what a reply told of an entry; 0 stands for the header."""
        told = math.nan if value is None else float(value)
        try:
            entry = _TOLD.pack(sequence, told, bytes.fromhex(entry_hash))
        except (struct.error, ValueError):
            raise ProtocolError("an answer has no number or hash of an entry") from None
        if self._kept[-_TOLD.size :] == entry:
            return
        self._kept += entry
        if len(self) > MOST_KEPT:
            size, half = _TOLD.size, len(self) // 2
            old = bytes(self._kept[: half * size])
            self._kept[: half * size] = b"".join(old[at : at + size] for at in range(0, len(old), 2 * size))

    def check(self, transcript: Iterable[bytes]) -> None:
        """Check that every entry that was told of is in a transcript that replays, as it was told.

        Raises:
            NotVerified: naming the first one that is not.
        """
        told: dict[int, list[tuple[float, bytes]]] = {}
        for sequence, value, entry_hash in _TOLD.iter_unpack(self._kept):
            if sequence:
                told.setdefault(sequence, []).append((value, entry_hash))
        for line in transcript:
            record = parse(line)
            if "entry_hash" not in record:
                continue
            found = bytes.fromhex(record["entry_hash"])
            for value, entry_hash in told.pop(record["sequence"], ()):
                if entry_hash != found or not (math.isnan(value) or value == record.get("value")):
                    raise NotVerified(f"entry {record['sequence']} is not the one that was told of when it was asked")
        if told:
            raise NotVerified(f"entry {min(told)}, which was told of, is not there: the end was cut off")


class SeenLog:
    """The log as far as a caller of any role may look: its key and its checkpoints, of which the last one is kept.

    The key is the one that was told first, or one for which it vouched.
    """

    def __init__(self, curator: LogRoutes) -> None:
        self._curator = curator
        self._state: Follower | None = None

    def look(self) -> JSON:
        """Hold the checkpoint of now against the one that was seen before: ``size``, and whether it is ``proven`` that
        it begins with that, None where there is nothing to prove.

        Raises:
            Contradicted: when the log shrank, has another hash at the same size, does not begin with what was seen, or
                is signed with a key for which the one known did not vouch.
        """
        try:
            if self._state is None:
                self._state = Follower(Verifier.parse(self._curator.log_key()))
            note = self._curator.log_checkpoint()
            state = self._state.know(note, self._curator.log_key_statements)
            found = state.look(note)
            proven = None
            if state.seen is not None and 0 < state.seen.size < found.size:
                proof = self._growth(state.seen.size, found.size)
                proven = proof is not None
                if proof is not None:
                    state.check_growth(found, proof)
        except (LogShrank, LogForked, NoteRefused) as error:
            raise Contradicted(str(error)) from None
        self._state = Follower(state.verifier, found)
        return {"size": found.size, "proven": proven}

    def _growth(self, first: int, second: int) -> list[bytes] | None:
        """The proof of consistency, None for a caller who may not have it."""
        try:
            return self._curator.log_consistency(first, second)
        except Refused as problem:
            if problem.status != 403:
                raise
            return None
        except ProtocolError:
            raise Contradicted("what is shown for a proof is none") from None
