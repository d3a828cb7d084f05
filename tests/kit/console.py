"""Browsers without a window that tests drive: by hand over HTTP, and Chromium by Playwright."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import axe_playwright_python
import httpx
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Response, expect

from tests.kit.patience import patience

#: Where the system's browser is: `make browser` installs it.
NAMES = ("chromium", "chromium-browser", "google-chrome")
#: It asks nobody outside anything, and runs as whoever runs the tests.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 360, "height": 740}
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
#: Notes what gets the focus from here on, beginning at the page's first element; how many there are to come to.
_FOLLOW = """() => {
  const chosen = (e) => e.type !== 'radio' || e.checked || !e.form.querySelector(`[name="${e.name}"]:checked`);
  const usable = 'a[href], button:not([disabled]), input:not([type=hidden]), select, textarea, summary, [tabindex="0"]';
  window.reached = new Set();
  window.wanted = [...document.querySelectorAll(usable)].filter((e) => e.checkVisibility() && chosen(e));
  document.addEventListener('focusin', (event) => window.reached.add(event.target));
  document.activeElement.blur();
  const start = document.createElement('span');
  start.tabIndex = -1;
  document.body.prepend(start);
  start.focus();
  return window.wanted.length;
}"""
_MISSED = "() => window.wanted.filter((e) => !window.reached.has(e)).map((e) => e.outerHTML.slice(0, 160))"
_TOKEN = re.compile(r'name="token" value="([0-9a-f]{64})"')


class Visitor(httpx.Client):
    """A browser of which a test writes every request: it keeps cookies, and sends forms as pages of the server do."""

    def __init__(self, url: str) -> None:
        super().__init__(base_url=url, timeout=patience(60))

    def log_in(self, key: str, then: str = "/console") -> httpx.Response:
        """Log in with a key."""
        return self.form("/console/login", {"key": key, "then": then}, token=None)

    def token(self) -> str:
        """What forms of this log-in bring."""
        found = _TOKEN.search(self.get("/console/me").text)
        assert found is not None, "nobody is logged in"
        return found[1]

    def form(
        self,
        path: str,
        fields: dict[str, Any],
        *,
        token: str | None = "",
        site: str | None = "same-origin",
        **headers: str,
    ) -> httpx.Response:
        """Send a form with the log-in's token, another one or, for None, without; from a page of ``site``."""
        sent = dict(fields) if token is None else {**fields, "token": token or self.token()}
        told = headers if site is None else {"Sec-Fetch-Site": site, **headers}
        return self.post(path, data=sent, headers=told)


def heading(reply: httpx.Response) -> str:
    """The first heading of a page."""
    found = re.search(r"<h1[^>]*>(.*?)</h1>", reply.text, re.DOTALL)
    assert found is not None, reply.text[:500]
    return unescape(re.sub("<[^>]*>", "", found[1])).strip()


# ---------------------------------------------------------------------- Chromium


def chromium() -> str:
    """The path of the system's browser."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found is not None, "there is no Chromium: run `make browser`"
    return found


def launched(playwright: Playwright) -> Browser:
    """A browser without a window."""
    return playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))


@dataclass
class Watched:
    """A page whose faults are noted: what it says on the console, what it asks of others, what fails."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        page = self.page
        page.set_default_timeout(1000 * patience(10))
        expect.set_options(timeout=1000 * patience(10))
        page.on("console", lambda told: self._note(f"console: {told.text}", told.type in ("error", "warning")))
        page.on("pageerror", lambda error: self._note(f"script: {error}", True))
        page.on("request", lambda asked: self._note(f"elsewhere: {asked.url}", not self._own(asked.url)))
        page.on("response", self._look)

    def _own(self, url: str) -> bool:
        return url.startswith((f"{self.url}/", "data:", "about:"))

    def _note(self, fault: str, is_one: bool) -> None:
        # Browsers say of every page with a refusal that a resource failed: its status says so already.
        if is_one and "Failed to load resource" not in fault:
            self.faults.append(fault)

    def _look(self, reply: Response) -> None:
        self._note(f"status {reply.status}: {urlsplit(reply.url).path}", reply.status >= 500)

    def open(self, path: str) -> Page:
        """Go to a page."""
        self.page.goto(f"{self.url}{path}")
        return self.page

    def log_in(self, key: str, then: str = "/console") -> Page:
        """Log in as a person does."""
        self.open(then)
        self.page.get_by_label("Your key").fill(key)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_load_state()
        return self.page

    def accessible(self) -> list[str]:
        """What axe-core finds wrong with the page as it stands."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {each['help']}: {node['html'][:200]}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def by_mouse_alone(self) -> list[str]:
        """What of the page can be seen and used, and is never reached by Tab. Of a group of radio buttons one is, as
        arrows go on from there."""
        count = self.page.evaluate(_FOLLOW)
        for _ in range(count + 5):
            self.page.keyboard.press("Tab")
        found: list[str] = self.page.evaluate(_MISSED)
        return found

    def wide(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth"))


@contextmanager
def watched(browser: Browser, url: str, **options: Any) -> Iterator[Watched]:
    """A page of a browser of its own, in which nothing may go wrong.

    Args:
        browser: that shows it.
        url: of the server.
        options: of Playwright's context, such as the window's size, the colours and whether scripts run.
    """
    context: BrowserContext = browser.new_context(**{"viewport": WIDE, **options})
    try:
        seen = Watched(context.new_page(), url)
        yield seen
        assert seen.faults == []
    finally:
        context.close()
