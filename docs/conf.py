"""The site that `make docs` builds of these documents: read by Sphinx, offline, without a running service."""

from __future__ import annotations

import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "clients" / "python")]

project = "Curator"
copyright = "the authors of Curator"
html_title = "Curator"
html_theme = "furo"
html_show_sourcelink = False
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "made"]
nb_execution_mode = "off"
myst_heading_anchors = 4
nitpicky = True
# A type in a signature is a word: what belongs to other libraries has no page here, and nothing is fetched.
# What waits is described once, where it blocks.
nitpick_ignore_regex = [
    ("py:class", ".*"),
    ("py:(data|exc|func|mod)", r"app\..*|AWAY_SECONDS|refusal|curator_client\.\w+"),
    ("py:meth", r"Async\w+\.\w+|fetch|verify"),
]
autodoc_typehints = "none"
autodoc_member_order = "bysource"


def begin_with_text(_: Sphinx, what: str, _name: str, _of: object, _options: object, lines: list[str]) -> None:
    """Keep the words of a property before a colon from being taken for its type."""
    if what in ("property", "attribute"):
        lines.insert(0, "")


def setup(app: Sphinx) -> None:
    """What blocks are of that no highlighter knows is shown as it is."""
    for language in ("csv", "npy", "report", "txt"):
        app.add_lexer(language, TextLexer)
    app.connect("autodoc-process-docstring", begin_with_text, priority=100)
