"""Measurements that sessions start from and did not make, held against the log's records of them.

A header names such a measurement by the hash of its record, which says who made it. It must be

1. of the data set of the session that starts from it, and named by sessions on no other;
2. of a session that shares what it measures.

A record may come into the log behind a header that names it, or be only in a transcript that goes on beyond the log:
what the log does not have is :attr:`Pinned.missing`, for whoever has the transcripts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.audit.books import Opened
from app.audit.failures import Malformed, taking_apart
from curator_client.proofs.findings import Unfollowed


@dataclass(frozen=True, slots=True)
class Pin:
    """A measurement that a session starts from: the first session that does, and its data set."""

    session: str
    dataset: str


class Pinned:
    """The measurements that the sessions of a log start from.

    Args:
        most: of which no more are followed; what names others breaks a rule.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        #: What headers name, as the first reading finds it; others' records need not be remembered.
        self._wanted: set[bytes] = set()
        self._pins: dict[bytes, Pin] = {}
        #: Of each of them that the log has: the data set, and whether it is shared.
        self._made: dict[bytes, tuple[str, bool]] = {}
        #: Of each session the same, for what it measures.
        self._makers: dict[str, tuple[str, bool]] = {}

    def survey(self, record: Mapping[str, Any]) -> None:
        """Note what a header names, parsed; one that is malformed is found at the second reading."""
        try:
            with taking_apart():
                names = [bytes.fromhex(name) for name in record["evidence"]["known"]]
        except Malformed:
            return
        for name in names:
            if len(self._wanted) != self._most:
                self._wanted.add(name)

    def opened(self, header: Opened) -> None:
        """Take in a header.

        Raises:
            Unfollowed: when it names a measurement that sessions on another data set start from, or not as it should.
        """
        session, dataset = header.session, header.public.spec.name
        try:
            with taking_apart():
                names = [bytes.fromhex(name) for name in header.known]
        except Malformed:
            raise Unfollowed("a header describes no session", session=session) from None
        self._makers[session] = dataset, header.shares
        for name in names:
            if name not in self._wanted:
                problem = "a header names measurements not as the log writes it, or more than are looked at"
                raise Unfollowed(problem, check="measurements", session=session)
            if self._pins.setdefault(name, Pin(session, dataset)).dataset != dataset:
                problem = "sessions on two data sets start from one measurement"
                raise Unfollowed(problem, check="measurements", session=session)

    def measured(self, session: str, line: bytes) -> None:
        """Take in the record of what a session measured."""
        if self._wanted and session in self._makers and (name := hashlib.sha256(line).digest()) in self._wanted:
            self._made[name] = self._makers[session]

    def end(self) -> Iterator[Unfollowed]:
        """What does not follow of those that the log has."""
        for name, (dataset, shared) in self._made.items():
            pin = self._pins.get(name)
            if pin is not None and (dataset != pin.dataset or not shared):
                why = "is of another data set" if dataset != pin.dataset else "its maker does not share"
                problem = f"the session starts from the measurement {name.hex()}, which {why}"
                yield Unfollowed(problem, check="measurements", dataset=pin.dataset, session=pin.session)

    @property
    def missing(self) -> dict[bytes, Pin]:
        """Those that the log does not have."""
        return {name: pin for name, pin in self._pins.items() if name not in self._made}
