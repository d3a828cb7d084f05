"""Which session each line of a log is of, and how far the log has come with each of them.

Headers, measurements and movements name their session. An entry does not: it carries the hash before it, which is that
of the header or of the session's last entry. So the last hash of each session is kept, and nothing of its entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from curator_client.proofs import records
from curator_client.proofs.findings import Unfollowed

#: Records that are entries of a session's chain.
ENTRIES = frozenset({"answer", "forfeit", "release"})


@dataclass(slots=True)
class Thread:
    """How far a log has come with a session.

    Attributes:
        head: the hash of its last entry there, or of its header.
        release: whether it is of a release.
        entries: how many there are.
        lines: how many lines of it there are, entries among them.
        fetched: how many of these an auditor had when he fetched its transcript.
        weights: whether an entry's query is of dense weights, which a transcript has and a log has not.
    """

    head: str
    release: bool = False
    entries: int = 0
    lines: int = 0
    fetched: int = 0
    weights: bool = False


class Threads:
    """All sessions of a log, by their ids."""

    def __init__(self) -> None:
        self.sessions: dict[str, Thread] = {}
        self._heads: dict[str, str] = {}

    def take(self, record: Mapping[str, Any], line: bytes) -> str | None:
        """Take in a line; the session that it is of, None for one of none.

        Raises:
            Unfollowed: when it goes on no session that there is, or is a second header.
        """
        session = self._session_of(record, line)
        if session is not None:
            self.sessions[session].lines += 1
        return session

    def _session_of(self, record: Mapping[str, Any], line: bytes) -> str | None:
        kind = record.get("record")
        if not isinstance(kind, str):
            return None
        if kind in ENTRIES:
            return self._entry(record)
        if kind == "header":
            return self._header(record, line)
        if kind not in ("movement", "measurement"):
            return None
        session = record.get("session")
        if session is None and kind == "movement":
            return None
        if not isinstance(session, str) or session not in self.sessions:
            number = record.get("number")
            raise Unfollowed(
                f"a {kind} is of a session whose header the log does not have before it",
                session=session if isinstance(session, str) else None,
                movement=number if type(number) is int else None,
            )
        return session

    def _header(self, record: Mapping[str, Any], line: bytes) -> str:
        session = record.get("session")
        if not isinstance(session, str) or not records.NAME.fullmatch(session):
            raise Unfollowed("a header names no session")
        if session in self.sessions:
            raise Unfollowed("a session has two headers", check="chains", session=session)
        mechanism, head = record.get("mechanism"), records.sha256(line)
        self.sessions[session] = Thread(head, isinstance(mechanism, dict) and "workload" in mechanism)
        self._heads[head] = session
        return session

    def _entry(self, record: Mapping[str, Any]) -> str:
        before, head = record.get("previous_hash"), record.get("entry_hash")
        session = self._heads.pop(before, None) if isinstance(before, str) else None
        if session is None or not isinstance(head, str):
            raise Unfollowed(
                "an entry goes on no session of the log: what it follows on is missing, or was followed", check="chains"
            )
        thread = self.sessions[session]
        thread.entries += 1
        if record.get("sequence") != thread.entries:
            raise Unfollowed(
                "an entry is not the next one of its session", check="chains", session=session, entry=thread.entries
            )
        query = record.get("query")
        thread.weights |= isinstance(query, dict) and query.get("type") == "dense"
        thread.head = head
        self._heads[head] = session
        return session

    def document(self) -> dict[str, dict[str, Any]]:
        """As JSON."""
        return {session: asdict(thread) for session, thread in self.sessions.items()}

    @classmethod
    def read(cls, document: Mapping[str, Mapping[str, Any]]) -> Self:
        """From JSON.

        Raises:
            AttributeError, TypeError: when it is none.
        """
        made = cls()
        for session, thread in document.items():
            made.sessions[session] = Thread(**thread)
            made._heads[thread["head"]] = session
        return made
