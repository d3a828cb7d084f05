"""JSON bodies: what they may hold, parsing, and the hash that an idempotency key stands for."""

from __future__ import annotations

import gc
import hashlib
import re
from typing import Any, NamedTuple

import orjson

from app.declarations.errors import InvalidRequest
from app.services.errors import PayloadTooLarge
from curator_client.proofs.nesting import deeper

#: Most values of a JSON body. While it is parsed every other request waits, and a byte becomes up to forty in memory.
MAX_VALUES = 2_000_000
#: Values that a list, an object or a name counts as: it takes as much time and memory as so many numbers.
VALUES_A_NAME = 4
#: Values, and bytes, that count as one request.
VALUES_A_REQUEST, BYTES_A_REQUEST = 2_000, 1 << 16
#: Bytes of memory that a value takes once it is parsed, about: a text of a few letters and its place in a list.
BYTES_A_VALUE = 64


class Weight(NamedTuple):
    """As how many requests a JSON body counts, and how many bytes it takes once it is parsed, about."""

    requests: int
    size: int


def weigh(body: bytes) -> Weight:
    """The weight of a JSON body before it is parsed, by its commas, brackets and colons.

    Raises:
        PayloadTooLarge: when it has more than :data:`MAX_VALUES` values.
    """
    values = body.count(b",") + VALUES_A_NAME * sum(body.count(sign) for sign in (b"[", b"{", b":"))
    if values > MAX_VALUES:
        raise PayloadTooLarge(
            f"a JSON body may hold at most {MAX_VALUES:,} values, where a list, an object or a name counts as "
            f"{VALUES_A_NAME}: send dense weights as .npy or Arrow, or fewer queries in a batch",
            limit=MAX_VALUES,
        )
    return Weight(1 + values // VALUES_A_REQUEST + len(body) // BYTES_A_REQUEST, values * BYTES_A_VALUE)


def parse_json(body: bytes, depth: int) -> Any:
    """The document of a JSON body that has passed :func:`weigh`.

    Raises:
        InvalidRequest: when it is not JSON, is nested deeper than ``depth``, or an object has two members of one name.
    """
    # Each new list may trigger a garbage collection that visits all of them. No other thread goes without collection:
    # the parser holds the interpreter's lock.
    gc.disable()
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        place = f"from line {error.lineno} column {error.colno} on" if body.strip() else "as it is empty"
        raise InvalidRequest(f"the body is not JSON {place}: send a JSON document in UTF-8") from None
    finally:
        gc.enable()
    if body.count(b"[") + body.count(b"{") > depth and deeper(document, depth):
        raise InvalidRequest(f"the body is nested deeper than {depth} levels")
    if _repeats_a_name(body, document):
        raise InvalidRequest("an object of the body has two members of one name: keep one of them")
    return document


_CONTAINERS = frozenset((dict, list))

_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_NAMED = re.compile(rb'"[ \t\r\n]*+:')


def _repeats_a_name(body: bytes, document: Any) -> bool:
    """Whether an object of a body has two members of one name, of which the parser keeps only the last.

    Each member of the body has a colon outside of strings: there are more of them than members in ``document`` if some
    were dropped. Most bodies have no colon in a string. Then the members of ``document`` are all found before the long
    lists below them, which need no visit.
    """
    colons, members = body.count(b":"), 0
    nodes = [document]
    while nodes and members < colons:
        node = nodes.pop()
        if type(node) is dict:
            members += len(node)
            node = node.values()
        elif type(node) is not list:
            continue
        if members < colons and not _CONTAINERS.isdisjoint(map(type, node)):
            nodes += [child for child in node if type(child) in _CONTAINERS]
    if members == colons or members == len(_NAMED.findall(body)):  # cheaper than to find the strings
        return False
    return members < _TEXT.sub(b"", body).count(b":")


def fingerprint(document: Any) -> str:
    """The hash of a body that an idempotency key stands for: equal for equal JSON, however it is formatted."""
    return hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()
