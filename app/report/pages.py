"""Pages from templates: one environment for all of them, in which every text is shown as text.

What a template is given is a stranger's. Whatever it puts out is escaped, and letters that nobody sees are spelled out;
only what templates themselves make is markup. A name that a template does not know is an error.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from app.report import words

#: Where the templates are, and the style of a page.
TEMPLATES = Path(__file__).parent / "templates"
#: What is not seen, or turns the writing's direction: control characters, marks, isolates, separators of lines, the
#: byte order mark and unpaired surrogates.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]"
)


def shown(value: object) -> object:
    """What a template puts out of a value: markup that a template made as it is, nothing for None, and else a text
    without letters that nobody sees, which are spelled by their numbers. It is still to be escaped.
    """
    if isinstance(value, Markup):
        return value
    text = "" if value is None else str(value)
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text)


@cache
def environment(*folders: Path) -> Environment:
    """The environment of all pages: templates in these folders, and then those that pages share."""
    made = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {each.__name__: each for each in words.FILTERS}
    return made


@cache
def style(name: str) -> Markup:
    """A style of :data:`TEMPLATES`, for the page."""
    # Written by us, and nothing is put into it.
    return Markup((TEMPLATES / name).read_text())  # noqa: S704


def rendered(template: str, told: Mapping[str, Any], css: str = "report.css", folders: Sequence[Path] = ()) -> str:
    """A page of one file, whose policy allows its own style by its hash and nothing else: no script, no picture, no
    connection, no form. ``folders`` are where its templates are beside :data:`TEMPLATES`.
    """
    text = style(css)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return environment(*folders).get_template(template).render(told, style=text, policy=policy)
