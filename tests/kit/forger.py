"""The forger: changes what stands in an honest transcript or log, then computes anew every number and hash that follows
from it, and signs.

He has the RFC 8785 library, SHA-256 and a key, and nothing of what the service writes or a replay reads with: what he
makes can betray itself by its content alone.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import rfc8785

from curator_client.proofs.merkle import Frontier, leaf_hash
from curator_client.proofs.notes import Signer

Document = dict[str, Any]
Path_ = tuple[Any, ...]
SIGNER = Signer(bytes(range(32)))
ENTRIES = ("answer", "forfeit", "release")
#: What a header has beside what the session was opened on.
_BESIDE = ("record", "format", "session", "opened_at")


def sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


@lru_cache(1 << 14)
def _canonical(text: str) -> bytes:
    return rfc8785.dumps(json.loads(text))


def canonical(document: Any) -> bytes:
    """RFC 8785 bytes. Most records of a forgery are those of the one before, and known by how Python writes them."""
    return _canonical(json.dumps(document))


# ------------------------------------------------------------------------------------------------ transcripts


def lines_of(content: bytes) -> list[bytes]:
    """The lines of a file, without their ends, as it is read: nothing but a line feed ends one."""
    return content.removesuffix(b"\n").split(b"\n")


def documents_of(lines: Iterable[bytes]) -> list[Document]:
    """The records of a transcript; measurements with ``_was``, the hash that others name them by."""
    found = []
    for line in lines:
        document = json.loads(line)
        found.append(document | ({"_was": sha256(line)} if document["record"] == "measurement" else {}))
    return found


def as_they_stand(documents: Iterable[Document]) -> list[bytes]:
    """Their lines, no hash of which was computed anew."""
    return [canonical({name: value for name, value in each.items() if name != "_was"}) for each in documents]


def hypothesis_digest(documents: Sequence[Document]) -> str:
    """The digest in a trailer, as docs/audit.md says it is made: of the header's facts and of each measurement."""
    told = hashlib.sha256(canonical({key: value for key, value in documents[0].items() if key not in _BESIDE}))
    for document in documents[1:]:
        if document.get("source") == "measurement":
            values = [document["value"]] if "value" in document else document["values"]
            told.update(hashlib.sha256(canonical(document["query"])).digest())
            told.update(np.array([np.nan if value is None else value for value in values], "<f8").tobytes())
    return told.hexdigest()


def resealed(documents: Sequence[Document], *, count: bool = True, updates: bool = True) -> list[bytes]:
    """The documents as a transcript whose hashes agree, whatever they say.

    Args:
        documents: of :func:`documents_of`, or of lines that were taken apart where none is a measurement.
        count: put sequences right, and how many entries the trailer says there are.
        updates: put right how many updates the trailer says there were.
    """
    made = [dict(document) for document in documents]  # the same one twice, too
    header, names, sequence, used, pinned = made[0], dict[str, str](), 0, 0, 0
    evidence = header.get("evidence")
    pins = sum(len(evidence[kind]) for kind in ("known", "made")) if isinstance(evidence, dict) else 0
    for document in made:
        if document.get("record") in ENTRIES:
            sequence += 1
            document.update({"sequence": sequence} if count else {})
        elif document.get("record") == "measurement":
            was = document.pop("_was", None)
            pinned += 1
            if count and pinned > pins:
                document["sequence"] = sequence + 1
            names[was] = sha256(canonical(document))
    if isinstance(evidence, dict):
        named = {kind: [names.get(name, name) for name in evidence[kind]] for kind in ("known", "made")}
        header["evidence"] = evidence | named
    head = sha256(canonical(header))
    for document in made[1:]:
        kind = document.get("record")
        if kind in ENTRIES:
            document.pop("entry_hash", None)
            if "measurement" in document:
                document["measurement"] = names.get(document["measurement"], document["measurement"])
            document["previous_hash"] = head
            head = document["entry_hash"] = sha256(canonical(document))
            measured = document.get("source") == "measurement" and not document.get("unverified", False)
            used += kind != "answer" or measured
        elif kind == "trailer":
            document.pop("trailer_hash", None)
            document["head_hash"] = head
            document |= {"entries": sequence} if count else {}
            document |= {"updates": used} if updates else {}
            with suppress(ValueError, TypeError, KeyError):  # what is no measurement has no digest
                document["hypothesis_digest"] = hypothesis_digest(made)
            document["trailer_hash"] = sha256(canonical(document))
    return [canonical(document) for document in made]


# ------------------------------------------------------------------------------------------------ what is changed


def places(document: Any, path: Path_ = ()) -> Iterator[Path_]:
    """All paths into a document; of long lists the first and the last item."""
    items = list(document.items() if isinstance(document, dict) else enumerate(document))
    for key, value in items if isinstance(document, dict) or len(items) < 3 else (items[0], items[-1]):
        if key != "_was":
            yield (*path, key)
            if isinstance(value, dict | list):
                yield from places(value, (*path, key))


def other(value: Any) -> Any:
    """Another value of the same kind, as near to one as can be."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value + 1.0 if value.is_integer() else float(np.nextafter(value, np.inf))
        case str() if value:
            last = value[-1]
            return value[:-1] + (chr(ord(last) - 1) if last in "9fzZ" else chr(ord(last) + 1))
        case str():
            return "x"
        case list():
            return value[1:] if value else [0]
        case dict():
            return dict(list(value.items())[1:]) if value else {"x": 0}
    return 0


def changed(documents: Sequence[Document], at: int, path: Path_, *, drop: bool = False) -> list[Document]:
    """The documents with one value of one of them changed, or taken out."""
    made = copy.deepcopy(documents[at])
    *way, last = path
    inside: Any = made
    for key in way:
        inside = inside[key]
    if drop:
        del inside[last]
    else:
        inside[last] = other(inside[last])
    return [*documents[:at], made, *documents[at + 1 :]]


# ------------------------------------------------------------------------------------------------ logs


def keep(folder: Path, lines: Iterable[bytes], signer: Signer = SIGNER) -> Path:
    """A folder as an auditor has it who fetched these lines, signed."""
    folder.mkdir(exist_ok=True)
    tree, kept = Frontier(), list(lines)
    for line in kept:
        tree.append(leaf_hash(line))
    (folder / "entries.ndjson").write_bytes(b"".join(line + b"\n" for line in kept))
    (folder / "key").write_text(signer.verifier.text() + "\n")
    (folder / "checkpoint").write_bytes(signer.note(tree.size, tree.root()))
    return folder
