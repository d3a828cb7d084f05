"""A report as one page of HTML, from its document: no script, nothing from elsewhere, readable and printable anywhere.
What stands where is in ``templates/report.html.jinja``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.report.pages import rendered
from app.report.views import budget_plot, error_plot, name_of, way_of
from curator_client.version import __version__

#: What is looked at, in the order of the document.
_CHECKS = {
    "signature": "Signature",
    "lines": "Lines",
    "earlier": "Earlier checkpoint",
    "refused": "One history",
    "records": "Records",
    "chains": "Chains of sessions",
    "books": "Budgets",
    "charges": "Charges",
    "measurements": "Measurements",
    "replay": "Replay",
}
_MARKS = {True: ("✓", "holds", "holds"), False: ("✗", "wrong", "does not hold"), None: ("–", "open", "left open")}
#: How movements are called.
_KINDS = {
    "reserve": "reserve",
    "charge": "charge",
    "return": "return",
    "purchase": "purchase at the opening",
    "forfeit": "forfeit",
}
#: How a page was made.
BY_COMMAND = f"Made by `curator audit report` {__version__} from a folder, without any service."
BY_SERVICE = (
    f"Made by the service, version {__version__}, which checked itself: do not take its word for it, and repeat the "
    "check on your own machine with `curator audit fetch` and `curator audit report`."
)
#: Sessions beyond so many are folded.
_FEW = 25


def page(document: Mapping[str, Any], made: str = BY_COMMAND) -> str:
    """The page of a report, which says how it was made."""
    told = {"made": made, "checks": _CHECKS, "marks": _MARKS, "kinds": _KINDS, "few": _FEW}
    views = {each.__name__: each for each in (budget_plot, error_plot, name_of, way_of)}
    return rendered("report.html.jinja", {"report": document, **told, **views})
