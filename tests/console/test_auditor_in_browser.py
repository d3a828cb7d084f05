"""What an auditor does in a browser: with a script and without, wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from curator_client.proofs.merkle import leaf_hash
from tests.audit.auditing import audited, caught_up, held
from tests.kit.console import NARROW, WIDE, watched
from tests.kit.patience import patience
from tests.kit.service import JSON, Service, ask, open_session, people, unique, where

pytestmark = [pytest.mark.api, pytest.mark.slow]


@pytest.fixture(scope="module")
def key(noisy: Service) -> str:
    created = noisy.admin.post("/v1/principals", json={"name": unique("auditor"), "role": "auditor"})
    return str(created.json()["api_key"])


@pytest.fixture(scope="module")
def session(noisy: Service) -> JSON:
    """A session in the log."""
    mechanism = {"mechanism": {"construction": "evidence"}, "max_updates": None}
    opened = open_session(noisy.admin, people(noisy, description="Made for this test."), epsilon=0.1, **mechanism)
    for upper in (20, 40):
        ask(noisy.admin, opened["id"], where(age={"between": [0, upper]}))
    caught_up(noisy, [opened["id"]])
    return opened


@pytest.fixture
def paths(noisy: Service, key: str, session: JSON) -> Iterator[dict[str, str]]:
    """Every page, the verdicts among them: one that holds, and one of a log that did not grow from what was kept."""
    auditor = noisy.caller(key)
    for each in auditor.get("/v1/audits").json()["items"]:
        noisy.admin.delete(f"/v1/audits/{each['id']}")
    holds = audited(auditor)
    other = noisy.built.services.log.keys.signer().note(3, leaf_hash(b"another history")).decode()
    fails = audited(auditor, all=True, checkpoint=other)
    assert (holds["verdict"], fails["verdict"]) == ("holds", "does not hold")
    yield {
        "fails": f"/console/verdict/{fails['id']}",
        "holds": f"/console/verdict/{holds['id']}",
        "budget": f"/console/datasets/{session['dataset']}",
        "ledger": f"/console/datasets/{session['dataset']}/ledger",
        "a session": f"/console/sessions/{session['id']}",
        "sessions": "/console/sessions",
        "data sets": "/console/datasets",
        "the log": "/console/log",
        "no entry": "/console/log/find?entry=x",
        "a record": f"/console/sessions/{session['id']}/records/1",
    }
    for audit in (holds, fails):
        assert noisy.admin.delete(f"/v1/audits/{audit['id']}").status_code == 204


@pytest.mark.parametrize(
    "options",
    [{"viewport": WIDE, "color_scheme": "light"}, {"viewport": NARROW, "color_scheme": "dark"}],
    ids=["wide and light", "narrow and dark"],
)
def test_every_page(noisy: Service, browser: Browser, key: str, paths: dict[str, str], options: dict[str, Any]) -> None:
    """Catches a page that is wider than its window, what axe-core finds, an error on the console, a request that
    leaves the server, and what only a mouse reaches.
    """
    with watched(browser, noisy.url, **options) as seen:
        seen.log_in(key)
        for told, path in paths.items():
            page = seen.open(path)
            for folded in page.locator("main details").all():
                folded.evaluate("each => { each.open = true; }")
            assert (told, seen.accessible(), seen.wide(), seen.by_mouse_alone()) == (told, [], 0, [])


def test_a_check_with_a_script(noisy: Service, browser: Browser, key: str, session: JSON) -> None:
    """Catches progress that stands still until somebody looks again, a verdict that does not come by itself, and a
    button that stops nothing.
    """
    with watched(browser, noisy.url) as seen:
        page = seen.log_in(key)
        with held(noisy) as gate:
            page.get_by_role("button", name="Check").first.click()
            page.get_by_role("heading", name="Everything is being checked").wait_for()
            assert gate.entered.wait(patience(30))
            page.locator("#state p", has_text="held against the rules").wait_for()
            page.set_viewport_size(NARROW)
            assert (seen.accessible(), seen.wide()) == ([], 0)
        page.locator(".verdict.holds").wait_for(timeout=1000 * patience(30))
        with held(noisy) as gate:
            page.get_by_role("button", name="Check again").click()
            assert gate.entered.wait(patience(30))
            page.get_by_role("button", name="Stop").click()
            page.wait_for_url("**/console/verdict/*")
        page.get_by_role("heading", name="Stopped. It is no verdict.").wait_for(timeout=1000 * patience(30))
        assert (seen.accessible(), seen.wide()) == ([], 0)


def test_without_a_script(noisy: Service, browser: Browser, key: str, session: JSON) -> None:
    """Catches a page that does nothing where scripts are off: a check that is followed, held against what was kept, a
    session's record with its proof, and a checkpoint that is compared.
    """
    with watched(browser, noisy.url, java_script_enabled=False) as seen:
        page = seen.log_in(key)
        page.get_by_role("button", name="Check").first.click()
        for _ in range(100):
            if page.locator(".verdict.holds").count():
                break
            page.get_by_role("link", name="Look again").click()
        with page.expect_download() as got:
            page.get_by_role("link", name="Download", exact=True).click()
        kept = got.value.path().read_text()
        page.get_by_text("held against your checkpoint").click()
        page.locator("#checkpoint").fill(f"{kept[:-20]}\n")
        page.get_by_role("button", name="Check again").click()
        assert "this log signed" in page.locator("#checkpoint-error").inner_text()
        assert page.locator("#checkpoint").input_value().strip() == kept[:-20]
        page.get_by_role("link", name="Log", exact=True).click()
        page.locator("#checkpoint").fill(kept)
        page.get_by_role("button", name="Compare").click()
        page.get_by_role("heading", name="The log begins with it.").wait_for()
        page.get_by_role("link", name="Sessions", exact=True).click()
        page.locator("main tbody a").first.click()
        page.get_by_role("link", name="record of entry 1").click()
        with page.expect_download() as got:
            page.get_by_role("link", name="Download proof and checkpoint").click()
        assert got.value.suggested_filename.startswith("proof-")
        page.get_by_role("link", name="Its session").click()
        page.get_by_role("button", name="Check this session").click()
        page.get_by_role("heading", name="session").first.wait_for()
