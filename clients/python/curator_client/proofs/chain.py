"""The chain of a transcript by itself: that each entry carries the hash before it and its own, that each measurement is
named by the header or by an entry, and that the trailer names the last one. That answers follow takes a replay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from curator_client.proofs.findings import Unfollowed
from curator_client.proofs.records import WEIGHTS_HEAD, canonical, parse, sha256
from curator_client.proofs.threads import ENTRIES


@dataclass(frozen=True)
class Chain:
    """A transcript whose chain holds.

    Attributes:
        session: whose it is.
        entries: how many there are.
        head: the hash of the last, or of the header where there is none.
        status: open or closed, as the trailer says.
    """

    session: str
    entries: int
    head: str
    status: str


def follow(transcript: Iterable[bytes]) -> Chain:
    """Read a transcript's lines (:func:`curator_client.proofs.records.transcript_lines`).

    Raises:
        Unfollowed: where the chain breaks.
    """
    session, head, entries, status = None, "", 0, None
    measured: dict[str, int] = {}
    named: set[str] = set()
    for number, line in enumerate(transcript, start=1):
        if line == WEIGHTS_HEAD:
            continue
        try:
            record = parse(line)
            kind = record["record"]
        except (ValueError, KeyError):
            raise Unfollowed(f"line {number} of the transcript is no record", check="chains") from None
        if (session is None) != (kind == "header"):
            raise Unfollowed("a transcript begins with its one header", check="chains")
        if status is not None:
            raise Unfollowed("a record stands after the trailer", check="chains")
        if kind == "header":
            session, head = str(record.get("session")), sha256(line)
            named.update(_pinned(record))
        elif kind == "measurement":
            measured.setdefault(sha256(line), number)
        elif kind in ENTRIES:
            entries += 1
            if record.get("sequence") != entries:
                raise Unfollowed("entries are not numbered one by one", check="chains", entry=entries)
            if record.get("previous_hash") != head:
                raise Unfollowed("the hash before it is another", check="chains", entry=entries)
            head = str(record.get("entry_hash"))
            if _named(record, "entry_hash") != head:
                raise Unfollowed("its hash is not its own: it was changed", check="chains", entry=entries)
            named.add(str(record.get("measurement")))
        elif kind == "trailer":
            if (record.get("entries"), record.get("head_hash")) != (entries, head):
                raise Unfollowed("the trailer names another end: it was cut off", check="chains")
            if _named(record, "trailer_hash") != record.get("trailer_hash"):
                raise Unfollowed("the trailer's hash is not its own: it was changed", check="chains")
            status = str(record.get("status"))
    if session is None or status is None:
        raise Unfollowed("the transcript has no end", check="chains")
    if unnamed := measured.keys() - named:
        number = min(measured[each] for each in unnamed)
        raise Unfollowed(f"line {number} is a measurement that nothing names: it was changed", check="chains")
    return Chain(session, entries, head, status)


def _pinned(header: dict[str, Any]) -> list[str]:
    """The hashes of measurements that a header names."""
    evidence = header.get("evidence")
    lists = [evidence.get(name) for name in ("known", "made")] if isinstance(evidence, dict) else []
    return [str(each) for part in lists if isinstance(part, list) for each in part]


def _named(record: dict[str, Any], name: str) -> str | None:
    """The SHA-256 of a record's canonical bytes without its hash; None where it has none."""
    try:
        return sha256(canonical({key: value for key, value in record.items() if key != name}))
    except (ValueError, RecursionError):
        return None
