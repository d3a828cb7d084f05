"""Makes the pictures of docs/console.md: pages of the console in a browser, over the survey of the demonstration.

Run `python -m benchmarks.screens` (half a minute; `make browser` brings its Chromium). What pages show was asked of a
real server just now: numbers differ from run to run, as noise does.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from app.demo.server import running_server
from app.demo.survey import survey
from curator_client import Curator, col, where

PICTURES = Path(__file__).parents[1] / "docs" / "img"
NAMES = ("console-ask", "console-ask-small", "console-what-if", "console-budget", "console-verdict")
WIDE, SMALL = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
EPSILON, DELTA = 2.0, 1e-9
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def _logged_in(browser: Browser, url: str, key: str, path: str, size: dict[str, int] = WIDE) -> Page:
    """A page of the console, for whoever has a key."""
    page = browser.new_context(viewport=size, color_scheme="light").new_page()  # type: ignore[arg-type]
    page.goto(f"{url}{path}")
    page.get_by_label("Your key").fill(key)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_load_state("networkidle")
    return page


def _asked(url: str, key: str) -> str:
    """A session in which a few questions were asked; its id."""
    with Curator(url, key) as curator:
        session = curator.session("couples", epsilon=1.0, max_queries=30)
        session.ask(where(inlf=1).by("age", bins={"age": [15, 30, 45, 60, 90]}).count())
        session.ask(where(inlf=1).mean("earns"))
        session.ask(where(col("kidlt6") == 1).count())
        session.ask(where(inlf=1).by("educ", "kidlt6", bins={"educ": [0, 12, 13, 16, 19]}).mean("faminc"))
        return session.id


def pictures(folder: Path) -> None:
    """Make all of them in a folder."""
    couples = survey(0)
    found = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if found is None:
        raise SystemExit("there is no Chromium: run `make browser`")
    with (
        tempfile.TemporaryDirectory(prefix="curator-screens-") as scratch,
        running_server(Path(scratch)) as server,
        sync_playwright() as playwright,
    ):
        admin = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.admin_key}"}, timeout=60)
        spec = {"spec": json.dumps(couples.spec(EPSILON, DELTA))}
        admin.post("/v1/datasets", data=spec, files={"data": ("couples.csv", couples.file)}).raise_for_status()
        keys = {
            role: str(admin.post("/v1/principals", json={"name": name, "role": role}).json()["api_key"])
            for role, name in (("analyst", "ann"), ("auditor", "audit-office"))
        }
        session = _asked(server.url, keys["analyst"])
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        place = f"/console/datasets/couples/ask?session={session}&answer=4&like=1"
        for name, size in (("console-ask", WIDE), ("console-ask-small", SMALL)):
            page = _logged_in(browser, server.url, keys["analyst"], place, size)
            page.evaluate("document.activeElement.blur()")
            page.screenshot(path=folder / f"{name}.png", full_page=name == "console-ask")
        page = _logged_in(browser, server.url, keys["analyst"], "/console/datasets/couples/what-if?epsilon=0.5")
        page.screenshot(path=folder / "console-what-if.png")
        page = _logged_in(browser, server.url, server.admin_key, "/console/datasets/couples")
        page.screenshot(path=folder / "console-budget.png")
        page = _logged_in(browser, server.url, keys["auditor"], "/console")
        page.get_by_role("button", name=re.compile("^Check")).first.click()
        page.locator(".verdict.holds").wait_for(timeout=60_000)
        page.screenshot(path=folder / "console-verdict.png")
        browser.close()


if __name__ == "__main__":
    pictures(PICTURES)
    print(f"Wrote {', '.join(NAMES)}.")
