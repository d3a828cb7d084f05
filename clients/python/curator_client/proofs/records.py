"""Transcript records and lines of a log: how they are read, and named by their SHA-256.

The chain of a transcript starts at the header's hash; every entry carries the hash before it and its own, which is the
SHA-256 of its canonical bytes (RFC 8785) without ``entry_hash``. The trailer ends it in the same way, with
``trailer_hash``.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import rfc8785

from curator_client.proofs.nesting import loads, parse_bounded

#: The most bytes of a line of a log, or of a transcript that is held against one. Declarations and measurements are the
#: longest; as JSON in memory a line takes up to some twenty times its bytes.
MOST_LINE = 1 << 26
#: What names a session may be shown on a terminal, and be the name of a file.
NAME = re.compile(r"[0-9A-Za-z]{1,64}")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z", re.ASCII)
#: What stands around the weights and the hash in a weights record, which is read and written without a JSON library.
WEIGHTS_HEAD, WEIGHTS_MIDDLE, WEIGHTS_TAIL = b'{"data":"', b'","record":"weights","sha256":"', b'"}'


def canonical(document: Any) -> bytes:
    """RFC 8785 bytes of any JSON document.

    A number beyond 2^53 is written without a point if it has no exponent, and read as an integer. It is the float that
    it was: of any other integer as large the bytes are not those that were read.
    """
    try:
        return rfc8785.dumps(document)
    except rfc8785.IntegerDomainError:
        return rfc8785.dumps(json.loads(json.dumps(document), parse_int=float))


def sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def values_of(entry: Mapping[str, Any]) -> list[Any]:
    """The values of an answer's parsed record.

    Raises:
        KeyError: when it has none.
        TypeError: when they are no list.
    """
    if "value" in entry:
        return [entry["value"]]
    if not isinstance(entry["values"], list):
        raise TypeError("values are a list")
    return entry["values"]


def second(time: Any) -> str | None:
    """The second of a record's time, as a text that sorts by time; None where it is no time."""
    found = _TIME.fullmatch(time) if isinstance(time, str) else None
    return None if found is None else found[1]


class LineTooLong(ValueError):
    """A line is longer than is read; ``number`` is which, from 1."""

    def __init__(self, number: int) -> None:
        super().__init__(f"line {number} has more than {MOST_LINE >> 20} MiB, and is not read")
        self.number = number


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """The whole lines of a log from where it stands, without their ends.

    Raises:
        LineTooLong: before one that has more than :data:`MOST_LINE` bytes would be read.
    """
    for number in itertools.count(1):
        line = file.readline(MOST_LINE + 1)
        if not line.endswith(b"\n"):
            if len(line) > MOST_LINE:
                raise LineTooLong(number)
            return
        yield line[:-1]


def transcript_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a transcript without their ends, and of records of weights no more than how they begin.

    Raises:
        LineTooLong: before another that has more than :data:`MOST_LINE` bytes would be read.
    """
    for number in itertools.count(1):
        line = file.readline(MOST_LINE + 1)
        if not line:
            return
        if line.startswith(WEIGHTS_HEAD):
            while line and not line.endswith(b"\n"):
                line = file.readline(MOST_LINE)
            yield WEIGHTS_HEAD
        elif len(line) > MOST_LINE:
            raise LineTooLong(number)
        else:
            yield line.removesuffix(b"\n")


def parse(line: bytes, loads: Callable[[bytes], Any] = loads) -> dict[str, Any]:
    """A record from its line.

    Args:
        line: without its end.
        loads: the library that reads it, as :func:`parse_bounded` takes one.

    Raises:
        ValueError: when it is no JSON object, or is nested too deep.
    """
    document = parse_bounded(line, loads=loads)
    if not isinstance(document, dict):
        raise ValueError("a record is a JSON object")
    return document
