"""The site that `make docs` builds of these documents: read by Sphinx, offline, without a running service."""

from __future__ import annotations

import re
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


def name_what_is_elsewhere(_: Sphinx, page: str, source: list[str]) -> None:
    """Name files of the repository that are no pages, in the place of a link to them."""

    def written(link: re.Match[str]) -> str:
        target = (HERE / page).parent.joinpath(link[2]).resolve()
        return link[0] if target.is_relative_to(HERE) else f"{link[1]} (`{target.relative_to(ROOT)}`)"

    source[0] = re.sub(r"\[([^]]+)\]\((\.\./[^)#]+)(?:#[^)]*)?\)", written, source[0])


def setup(app: Sphinx) -> None:
    """What blocks are of that no highlighter knows is shown as it is."""
    for language in ("csv", "npy", "report", "txt"):
        app.add_lexer(language, TextLexer)
    app.connect("autodoc-process-docstring", begin_with_text, priority=100)
    app.connect("source-read", name_what_is_elsewhere)
