"""Pages from templates, with what stands around each of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse

from app.http.console.static import address
from app.http.console.words import FILTERS
from app.report.pages import environment
from app.services.logins import Login

TEMPLATES = Path(__file__).parent / "templates"
#: What a browser may do on every page: load style, script, fonts and data of this server, and send forms to it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
#: Where people choose between light, dark and what their system says.
THEME_COOKIE, THEMES = "curator-theme", ("light", "dark")
#: The parts of the console by role, in the order of the head of each page: address, name.
NAVIGATION: Mapping[str, tuple[tuple[str, str], ...]] = {
    "analyst": (
        ("/console/datasets", "Data sets"),
        ("/console/sessions", "Sessions"),
        ("/console/releases", "Releases"),
    ),
    "admin": (
        ("/console", "Overview"),
        ("/console/datasets", "Data sets"),
        ("/console/people", "People and keys"),
        ("/console/sessions", "Sessions"),
        ("/console/releases", "Releases"),
        ("/console/log", "Log"),
        ("/console/operation", "Operation"),
    ),
    "auditor": (
        ("/console/verdict", "Verdict"),
        ("/console/datasets", "Data sets"),
        ("/console/sessions", "Sessions"),
        ("/console/log", "Log"),
    ),
}


def page(
    request: Request,
    template: str,
    login: Login | None,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **told: Any,
) -> HTMLResponse:
    """A page, or a part of one.

    Args:
        request: that it answers.
        template: in :data:`TEMPLATES`.
        login: of whoever looks; None where nobody has logged in.
        status: of HTTP.
        headers: beside those of all pages.
        told: what the template needs beside what all are given.
    """
    path = request.scope["path"].rstrip("/")
    theme = request.cookies.get(THEME_COOKIE, "")
    around = {
        "login": login,
        "navigation": NAVIGATION[login.principal.role] if login is not None else (),
        "path": path,
        "part": _part(login, path),
        "theme": theme if theme in THEMES else None,
        "asset": address,
    }
    body = _environment().get_template(template).render(around | told)
    return HTMLResponse(body, status, {**HEADERS, **(headers or {})})


@cache
def _environment() -> Environment:
    made = environment(TEMPLATES)
    made.filters |= {each.__name__: each for each in FILTERS}
    return made


def _part(login: Login | None, path: str) -> str | None:
    """The part of the console that a page belongs to, by its address."""
    if login is None:
        return None
    found = [
        place
        for place, _ in NAVIGATION[login.principal.role]
        if path == place or (place != "/console" and path.startswith(f"{place}/"))
    ]
    return max(found, key=len, default=None)
