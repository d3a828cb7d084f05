"""JSON of a bounded depth: whatever walks a document walks as deep as it is nested, and a stranger may nest it."""

from __future__ import annotations

from typing import Any

import orjson

#: Deepest nesting of JSON that comes from elsewhere, where nothing else is said. Libraries that write JSON go deeper,
#: and the deepest body that a service may be set to take (CURATOR_MAX_JSON_DEPTH) is less deep, within an entry too.
MOST_DEPTH = 192

_CONTAINERS = frozenset((dict, list))


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


def parse_bounded(content: bytes, depth: int = MOST_DEPTH) -> Any:
    """A JSON document.

    Raises:
        ValueError: when it is not JSON, or is nested deeper than ``depth``.
    """
    document = orjson.loads(content)
    if content.count(b"[") + content.count(b"{") > depth and deeper(document, depth):
        raise ValueError(f"nested deeper than {depth} levels")
    return document
