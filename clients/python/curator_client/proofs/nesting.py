"""JSON from elsewhere: strict, and of a bounded depth.

Whatever walks a document walks as deep as it is nested, and a stranger may nest it. And two who read one line must read
the same in it: what JSON libraries take or refuse beyond RFC 8259 is the same with each library that may be used here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Never

#: Deepest nesting of JSON that comes from elsewhere, where nothing else is said. Libraries that write JSON go deeper,
#: and the deepest body that a service may be set to take (CURATOR_MAX_JSON_DEPTH) is less deep, within an entry too.
MOST_DEPTH = 192

_CONTAINERS = frozenset((dict, list))
#: Fewer digits than these always fit into 64 bits.
_LONG = 19


def deeper(document: Any, depth: int) -> bool:
    """Whether parsed JSON is nested deeper than so many levels."""
    level = [document] if type(document) in _CONTAINERS else []
    for _ in range(depth + 1):
        inner: list[Any] = []
        for node in level:
            children = node.values() if type(node) is dict else node
            # Most lists hold numbers alone, which this tells faster than a loop.
            if not _CONTAINERS.isdisjoint(map(type, children)):
                inner += [child for child in children if type(child) in _CONTAINERS]
        if not inner:
            return False
        level = inner
    return True


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is beyond those of double precision")
    return value


def _whole(text: str) -> float:
    value = int(text)
    return value if len(text) < _LONG or -(1 << 63) <= value < 1 << 64 else _finite(text)


def _none(name: str) -> Never:
    raise ValueError(f"{name} is no JSON")


_decode = json.JSONDecoder(parse_float=_finite, parse_int=_whole, parse_constant=_none).decode


def loads(content: bytes) -> Any:
    """A JSON document: UTF-8 without a mark at its beginning, numbers of double precision or of 64 bits, no halves of
    letters, no NaN. Of what is named twice the last counts.

    Raises:
        ValueError: when it is none, or is nested deeper than Python goes.
    """
    text = content.decode()
    try:
        document = _decode(text)
        if "\\u" in text:
            json.dumps(document, ensure_ascii=False).encode()  # half a letter cannot be written
    except RecursionError:
        raise ValueError("nested deeper than can be read") from None
    return document


def parse_bounded(content: bytes, depth: int = MOST_DEPTH, loads: Callable[[bytes], Any] = loads) -> Any:
    """A JSON document.

    Args:
        content: its bytes.
        depth: levels that it may have.
        loads: the library that reads it. Another one that is faster must take and refuse what :func:`loads` does.

    Raises:
        ValueError: when it is not JSON, or is nested deeper than ``depth``.
    """
    document = loads(content)
    if content.count(b"[") + content.count(b"{") > depth and deeper(document, depth):
        raise ValueError(f"nested deeper than {depth} levels")
    return document
