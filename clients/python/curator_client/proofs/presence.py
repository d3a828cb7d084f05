"""Whether a transcript is what a log says of its session: all of its records are there, and it has no more of them.

A log has no trailers. That a session was closed shows in the movement that gave back what it had not used or, where its
calibration is exact, in one that charged it with that, beside what its last entry is charged for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from curator_client.proofs.merkle import leaf_hash
from curator_client.proofs.records import WEIGHTS_HEAD, parse, sha256
from curator_client.proofs.threads import ENTRIES

#: Records of a transcript that are not in the log. Whatever else stands there must be.
_BESIDE = frozenset({"weights", "trailer"})


def told_by(line: bytes) -> dict[str, Any]:
    """The record of a log's line, nothing where it is no record: it may not be verified yet, or be signed still."""
    try:
        return parse(line)
    except ValueError:
        return {}


class NoRecord(ValueError):
    """A line of a transcript cannot be read; ``number`` is which, from 1."""

    def __init__(self, number: int) -> None:
        super().__init__(f"line {number} of the transcript is no record")
        self.number = number


class Presence:
    """The part of one transcript that is still to be found, while the lines of a log are looked at one by one.

    Args:
        transcript: its lines (:func:`curator_client.proofs.records.transcript_lines`).

    Raises:
        NoRecord: when one of them cannot be read.
    """

    def __init__(self, transcript: Iterable[bytes]) -> None:
        #: By their hashes: which lines these are, and whether they are the session's own.
        self._missing: dict[bytes, tuple[int, bool]] = {}
        self._session: Any = None
        self._status: Any = None
        self._log_size: Any = None
        self._kinds: list[str] = []
        self._looked = self._covering = 0
        #: The last entry: its number and hash, and whether it is charged for by itself. The header counts for entry 0.
        self._sequence: Any = 0
        self._head, self._pays = "", False
        self._further, self._closed, self._charges = False, False, 0
        for number, line in enumerate(transcript, start=1):
            if line == WEIGHTS_HEAD:
                continue
            try:
                record = parse(line)
                kind = str(record["record"])
            except (ValueError, KeyError):
                raise NoRecord(number) from None
            self._kinds = [*self._kinds[:1], kind]
            if kind == "header":
                self._session, self._head = record.get("session"), sha256(line)
            if kind not in _BESIDE:
                # Measurements of others, which the session starts from, may come into the log later.
                own = kind != "measurement" or record.get("session") == self._session
                self._missing.setdefault(leaf_hash(line), (number, own))
            if kind in ENTRIES:
                self._sequence, self._head = record.get("sequence"), str(record.get("entry_hash"))
                self._pays = kind != "answer" or record.get("source") == "measurement"
            elif kind == "trailer":
                self._status, self._log_size = record.get("status"), record.get("log_size")
        self.count = len(self._missing)
        self._follows = b'"previous_hash":"' + self._head.encode(errors="replace")

    def look(self, line: bytes) -> None:
        """Take in a line of the log."""
        self._looked += 1
        if self._missing.pop(leaf_hash(line), (0, False))[1]:
            self._covering = self._looked
        if self._follows in line:
            self._further |= told_by(line).get("previous_hash") == self._head
        elif b'"record":"movement"' in line:
            told = told_by(line)
            if (told.get("record"), told.get("session")) == ("movement", self._session):
                self._closed |= told.get("kind") in ("return", "forfeit")
                self._charges += (told.get("kind"), told.get("sequence")) == ("charge", self._sequence)

    def problem(self) -> str | None:
        """Why the transcript is not what the lines that were looked at say, or is none; None where it is."""
        if self._kinds != ["header", "trailer"]:
            return "the transcript has no header or no trailer"
        if self._missing:
            return f"line {min(self._missing.values())[0]} of the transcript is not there"
        if self._further:
            return f"the session goes on behind entry {self._sequence}, where the transcript ends"
        if self._log_size not in (None, self._covering):
            return "the transcript names a size of the log which is not that of the smallest one with all of it"
        closed = self._closed or self._charges > self._pays
        if self._status == "closed" and not closed:
            return "the transcript says that the session is closed, and that is not there"
        if self._status == "open" and closed:
            return "the transcript says that the session is open, and it was closed"
        return None
