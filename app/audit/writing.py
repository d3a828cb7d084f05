"""Transcript records written, as canonical bytes (RFC 8785), and the SHA-256 chain over them.

How they are read, and what the chain is: :mod:`curator_client.proofs.records`. Entries are
written from a template whose keys are in canonical order: queries are canonical already (integers and strings only)
and numbers go through the RFC 8785 library, so the bytes are those of the library at a fraction of its time. A test
holds the two against each other.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import rfc8785

from curator_client.proofs.records import WEIGHTS_HEAD, WEIGHTS_MIDDLE, WEIGHTS_TAIL, canonical, sha256, values_of

#: Version of the transcript's format.
FORMAT = 1
#: The most bytes that a question as it was asked may take in an entry.
MOST_WORDS = 64 * 1024
_NUMBERS = frozenset((int, float))
#: Below it a number without a fraction is an integer that JSON keeps.
_EXACT = 2.0**53
#: An exponent, which the two libraries write otherwise, or a text that looks like one.
_EXPONENT = re.compile(rb"e(?<=\de)")
#: The same, a fraction, or so many digits that JSON may not keep all of them; or a text that looks like one.
_ODD = re.compile(rb"[.]|e(?<=\de)|\d{16}")


def _number(value: float | None) -> bytes:
    """A number in RFC 8785's form.

    For fractions of ordinary size that is Python's own: both write the fewest digits that read back the same. Exponents
    and whole numbers they write differently.
    """
    if type(value) is float and 1e-4 <= abs(value) < 1e16 and not value.is_integer():
        return repr(value).encode()
    return b"null" if value is None else rfc8785.dumps(value)


def words(document: Any) -> bytes | None:
    """RFC 8785 bytes of a question as it was asked; None where it is too long to be kept, or has a number of
    which JSON does not keep every digit.

    Written by a faster library, which differs in few things: numbers without a fraction are made integers beforehand,
    where there are numbers that could be such, and what has exponents or other letters than ASCII is left to the slower
    one.
    """
    if _left(document, MOST_WORDS // 2) < 0:
        return None
    written = None
    with contextlib.suppress(orjson.JSONEncodeError):  # of a number of more than 64 bits
        written = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    try:
        if written is None or _ODD.search(written):
            written = orjson.dumps(_plain(document), option=orjson.OPT_SORT_KEYS)
        if not written.isascii() or _EXPONENT.search(written):
            written = rfc8785.dumps(document)
    except (OverflowError, rfc8785.CanonicalizationError):
        return None
    return written if len(written) <= MOST_WORDS else None


def _left(node: Any, most: int) -> int:
    """How many more values than it has a document might have, of so many at most; below 0, it has too many."""
    if type(node) is dict:
        most -= len(node)
        for child in node.values() if most >= 0 else ():
            most = _left(child, most)
    elif type(node) is list:
        most -= len(node)
        if most >= 0 and not _NUMBERS.issuperset(map(type, node)):
            for child in node:
                most = _left(child, most)
    return most


def _plain(node: Any) -> Any:
    """A document without fractions of zero.

    Raises:
        OverflowError: when it has a number of which JSON does not keep every digit.
    """
    if type(node) is dict:
        return {name: _plain(child) for name, child in node.items()}
    if type(node) is list:
        return [_plain(child) for child in node]
    if type(node) in _NUMBERS and abs(node) >= _EXACT:
        raise OverflowError
    return int(node) if type(node) is float and node.is_integer() else node


@dataclass(frozen=True, slots=True)
class Sealed:
    """An entry's canonical line and the hash that names it."""

    line: bytes
    entry_hash: str


def _seal(body: bytes, asked: bytes | None = None) -> Sealed:
    # "entry_hash" sorts before every other key but "asked": the hash is put in front, or right behind that.
    if asked is None:
        digest = sha256(body)
        return Sealed(b'{"entry_hash":"' + digest.encode() + b'",' + body[1:], digest)
    front = b'{"asked":' + asked + b","
    digest = sha256(front + body[1:])
    return Sealed(front + b'"entry_hash":"' + digest.encode() + b'",' + body[1:], digest)


def answer_entry(
    *,
    sequence: int,
    query: bytes,
    values: Sequence[float | None],
    source: str,
    error_bound: float | None,
    unverified: bool,
    recorded_at: str,
    previous_hash: str,
    measurement: str | None = None,
    tested: Sequence[int] | None = None,
    target: Mapping[str, float] | None = None,
    asked: bytes | None = None,
) -> Sealed:
    """The record of one answer; ``query`` and ``asked``, the words of the question, are in canonical bytes already.

    A single number stands as ``value``, several as ``values``, and null for none. ``measurement`` is the hash of the
    record of what was measured for it, ``tested`` are the counts that a test found near enough, ``target`` the accuracy
    that was asked for.
    """
    return _seal(
        b'{"error_bound":%b,%b"previous_hash":"%b","query":%b,"record":"answer","recorded_at":"%b",'
        b'"sequence":%d,"source":"%b"%b%b,%b%b}'
        % (
            _number(error_bound),
            b"" if measurement is None else b'"measurement":"%b",' % measurement.encode(),
            previous_hash.encode(),
            query,
            recorded_at.encode(),
            sequence,
            source.encode(),
            b"" if tested is None else b',"tested":[%b]' % b",".join(b"%d" % count for count in tested),
            b',"unverified":true' if unverified else b"",
            _values(values),
            b"" if target is None else b',"wish":' + canonical(dict(target)),
        ),
        asked,
    )


def _values(values: Sequence[float | None]) -> bytes:
    if len(values) == 1:
        return b'"value":' + _number(values[0])
    return b'"values":[%b]' % b",".join(map(_number, values))


def forfeit_entry(
    *, sequence: int, recorded_at: str, previous_hash: str, price: Mapping[str, str | None] | None = None
) -> Sealed:
    """The record of a round that was begun and could not be recorded: charged as a hit, nothing released.

    ``price`` is what it cost, where that is not the plan's.
    """
    return _seal(
        b'{"previous_hash":"%b",%b"record":"forfeit","recorded_at":"%b","sequence":%d}'
        % (
            previous_hash.encode(),
            b"" if price is None else b'"price":%b,' % orjson.dumps(price, option=orjson.OPT_SORT_KEYS),
            recorded_at.encode(),
            sequence,
        )
    )


def release_entry(*, sequence: int, recorded_at: str, previous_hash: str, measurement: str) -> Sealed:
    """The record of one measurement of a release, named by the SHA-256 of its own record, which stands before it."""
    return _seal(
        b'{"measurement":"%b","previous_hash":"%b","record":"release","recorded_at":"%b","sequence":%d}'
        % (measurement.encode(), previous_hash.encode(), recorded_at.encode(), sequence)
    )


def header(*, session: str, opening: Mapping[str, Any], opened_at: str) -> bytes:
    """The first record: everything that the session's answers follow from, beside the queries.

    ``opening`` is the document of what the session was opened on.
    """
    return canonical({"record": "header", "format": FORMAT, "session": session, "opened_at": opened_at} | dict(opening))


def measurement_record(*, session: str, sequence: int, measured: Mapping[str, Any], recorded_at: str) -> bytes:
    """The record of what was measured: whose session paid for it, and for which of its entries (0 at the opening).

    It is no link of the chain: the header or entry that names its SHA-256 is. Of integers and strings alone it is
    written by a faster library.
    """
    document = {"record": "measurement", "session": session, "sequence": sequence, "recorded_at": recorded_at}
    return orjson.dumps(document | dict(measured), option=orjson.OPT_SORT_KEYS)


def weights_record(digest: str, blob: bytes) -> bytes:
    """Dense weights (little-endian int32, base64) named by their SHA-256; stands before their first use.

    It is no link of the chain: the entry that names its hash is.
    """
    return WEIGHTS_HEAD + base64.b64encode(blob) + WEIGHTS_MIDDLE + digest.encode() + WEIGHTS_TAIL


def weights_length(size: int) -> int:
    """Bytes of the record of ``size`` bytes of weights."""
    return len(WEIGHTS_HEAD) + 4 * -(-size // 3) + len(WEIGHTS_MIDDLE) + 64 + len(WEIGHTS_TAIL)


class HypothesisDigest:
    """The name of a hypothesis: the SHA-256 of what it is computed from.

    That is what the session was opened on, as its header has it, and for every measurement in order the SHA-256 of its
    query's canonical form and its values (little-endian float64). The numbers of the hypothesis itself have no such
    name: their last bits differ between machines, and on one machine with what was asked in between.
    """

    def __init__(self, opening: Mapping[str, Any]) -> None:
        self._sum = hashlib.sha256(canonical(dict(opening)))

    def learn(self, query: bytes, values: Sequence[float | None]) -> None:
        """Take in a measurement: its query's digest and its values, of which there may be none."""
        told = [math.nan if value is None else value for value in values]
        self._sum.update(query + struct.pack(f"<{len(told)}d", *told))

    def take(self, entry: bytes) -> None:
        """Take in a recorded entry; all but measurements change nothing."""
        record = orjson.loads(entry)
        if record.get("source") == "measurement":
            form = orjson.dumps(record["query"], option=orjson.OPT_SORT_KEYS)
            self.learn(hashlib.sha256(form).digest(), values_of(record))

    def hexdigest(self) -> str:
        """The name after the measurements so far, in hexadecimal."""
        return self._sum.hexdigest()


def trailer(
    *,
    entries: int,
    head_hash: str,
    hypothesis_digest: str,
    updates: int,
    status: str,
    log_size: int | None = None,
    logged: bool = True,
) -> bytes:
    """The last record: what a replay must arrive at, how large the log is that has all of it, and the hash of all that.

    ``log_size`` is None where the log has not come so far; before there was a log (not ``logged``) nothing is said.
    """
    document: dict[str, Any] = {
        "record": "trailer",
        "entries": entries,
        "head_hash": head_hash,
        "hypothesis_digest": hypothesis_digest,
        "updates": updates,
        "status": status,
        **({"log_size": log_size} if logged else {}),
    }
    return canonical(document | {"trailer_hash": sha256(canonical(document))})
