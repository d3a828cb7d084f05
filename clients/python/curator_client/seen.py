"""Records of what a client was told while its sessions ran, kept to hold against what it is shown later."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

from curator_client.errors import NotVerified, ProtocolError
from curator_client.proofs.records import parse, sha256

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

    def check(self, transcript: Iterable[bytes]) -> int:
        """Check that every entry that was told of is in a transcript whose chain holds, as it was told, and the header
        where it was; how many entries were.

        Raises:
            NotVerified: naming the first one that is not.
        """
        told: dict[int, list[tuple[float, bytes]]] = {}
        for sequence, value, entry_hash in _TOLD.iter_unpack(self._kept):
            told.setdefault(sequence, []).append((value, entry_hash))
        count = len(told.keys() - {0})
        for line in transcript:
            record = parse(line)
            if "entry_hash" in record:
                sequence, found = record["sequence"], bytes.fromhex(record["entry_hash"])
            elif record.get("record") == "header":
                sequence, found = 0, bytes.fromhex(sha256(line.removesuffix(b"\n")))
            else:
                continue
            for value, entry_hash in told.pop(sequence, ()):
                if entry_hash != found or not (math.isnan(value) or value == record.get("value")):
                    what = f"entry {sequence}" if sequence else "the header"
                    raise NotVerified(f"{what} is not the one that was told of when it was asked")
        if told:
            raise NotVerified(f"entry {min(told)}, which was told of, is not there: the end was cut off")
        return count
