"""Markup that is safe by its making: every text goes through :func:`tag`, which escapes whatever is no markup yet."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

#: What is not seen, or turns the writing's direction: control characters, marks, isolates, separators of lines, the
#: byte order mark and unpaired surrogates.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]"
)
_VOID = frozenset({"meta", "link", "br"})


class Markup(str):
    """HTML or SVG that :func:`tag` or :func:`joined` made."""

    __slots__ = ()


def shown(text: object) -> str:
    """A text without letters that nobody sees: these are spelled by their numbers."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", str(text))


def joined(children: Iterable[object]) -> Markup:
    """Children one after the other; what is no markup is escaped, None is left out."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else escape(shown(child), quote=True)
            for child in children
            if child is not None
        )
    )


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. Attributes that are None are left out; ``class_`` is ``class``, and ``_`` stands for ``-``."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(shown(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{joined(children)}</{name}>")
