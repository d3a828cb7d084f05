"""The contents of a service's log, as the service writes them.

A leaf is a line of canonical JSON: a transcript's header, entry or record of a measurement as it stands there, a
movement of a ledger, or a public event (a data set is registered or retired, its tables are published, a principal is
created, gets another key or loses it, the log gets another key). No line has anything private, nor a private key.

An auditor's side is :mod:`curator_client.proofs.follower`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson

#: What became of a data set whose tables were published.
PUBLISHED = "published"


def _line(document: Mapping[str, Any]) -> bytes:
    """Names, decimal strings and numbers as they came in JSON: sorted and compact, as measurements are."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def principal_record(
    *, event: Literal["created", "key replaced", "revoked"], name: str, role: str, recorded_at: str
) -> bytes:
    """The line of what became of a principal; of the key itself nothing is told."""
    return _line({"record": "principal", "event": event, "name": name, "role": role, "recorded_at": recorded_at})


def registration_record(
    *, declared: Mapping[str, Any], records: float | None, commitment: str, recorded_at: str
) -> bytes:
    """The line of a data set that is registered: what was declared of it, its size where that is public, and the
    commitment to its private file.
    """
    told = {} if records is None else {"records": records}
    document = {"record": "dataset", "event": "registered", "name": declared["name"], "declared": declared}
    return _line(document | told | {"commitment": commitment, "recorded_at": recorded_at})


def revelation_record(*, name: str, by: str, recorded_at: str) -> bytes:
    """The line of a data set whose commitment was revealed: to whom the key was given, not the key."""
    document = {"record": "dataset", "event": "commitment revealed", "name": name, "by": by}
    return _line(document | {"recorded_at": recorded_at})


def publication_record(*, name: str, release: str, manifest: str, recorded_at: str) -> bytes:
    """The line of tables that were published of a data set: by which release, and the digest of their manifest
    (:func:`app.audit.publications.digest`), which has those of the tables.
    """
    document = {"record": "dataset", "event": PUBLISHED, "name": name, "release": release, "manifest": manifest}
    return _line(document | {"recorded_at": recorded_at})


def retirement_record(*, name: str, recorded_at: str) -> bytes:
    """The line of a data set that is retired."""
    return _line({"record": "dataset", "event": "retired", "name": name, "recorded_at": recorded_at})


def movement_record(number: int, movement: Mapping[str, Any]) -> bytes:
    """The line of a movement of a ledger; ``number`` tells it from others like it."""
    return _line({"record": "movement", "number": number} | dict(movement))


def key_record(*, statement: bytes, recorded_at: str) -> bytes:
    """The line of a change of the log's key: the note that the old key and the new one have signed."""
    return _line({"record": "log key", "statement": statement.decode(), "recorded_at": recorded_at})
