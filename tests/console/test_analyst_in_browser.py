"""What an analyst does in a browser: with a script and without, by mouse and by keys, wide and narrow."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.kit.console import NARROW, WIDE, Watched, watched
from tests.kit.patience import patience
from tests.kit.service import Service, people, register, unique

pytestmark = [pytest.mark.api, pytest.mark.slow]


@dataclass(frozen=True)
class Place:
    """A table, a graph, an analyst's key, and a session in which something was asked."""

    table: str
    graph: str
    key: str
    session: str


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    table = people(service, budget={"epsilon": 50.0, "delta": 1e-6}, description="Made for this test.")
    graph, name = unique("friends"), unique("ann")
    edges = "\n".join(f"{a} {b}" for a in range(30) for b in range(a) if a % 3 == b % 3)
    spec = {"name": graph, "kind": "graph", "nodes": 30, "budget": {"epsilon": 10.0, "delta": 1e-6}}
    assert register(service.admin, spec, edges.encode(), "friends.txt").status_code == 201
    key = service.admin.post("/v1/principals", json={"name": name, "role": "analyst"}).json()["api_key"]
    ann = service.caller(key)
    session = ann.post("/v1/sessions", json={"dataset": table, "epsilon": 0.5, "max_queries": 20}).json()["id"]
    asked = {"type": "marginal", "attributes": ["sex", "age"]}
    ann.post(f"/v1/sessions/{session}/queries", json=asked, headers={"Idempotency-Key": "k"}).raise_for_status()
    return Place(table, graph, key, session)


def paths(place: Place) -> dict[str, str]:
    base = f"/console/datasets/{place.table}"
    return {
        "log-ins": "/console/me",
        "data sets": "/console/datasets",
        "an answer beside its question": f"{base}/ask?session={place.session}&answer=1&like=1",
        "measured": f"{base}/measured",
        "what if": f"{base}/what-if?epsilon=1&questions=10",
        "SQL": f"{base}/sql",
        "about": f"{base}/about",
        "sessions": "/console/sessions",
        "a session": f"/console/sessions/{place.session}",
        "an answer": f"/console/sessions/{place.session}/answers/1",
        "a release": f"/console/releases/new?dataset={place.table}&way=2&epsilon=0.2",
        "a graph": f"/console/datasets/{place.graph}/ask",
        "nothing": "/console/nothing",
    }


@pytest.mark.parametrize(
    "options",
    [{"viewport": WIDE, "color_scheme": "light"}, {"viewport": NARROW, "color_scheme": "dark"}],
    ids=["wide and light", "narrow and dark"],
)
def test_every_page(service: Service, browser: Browser, place: Place, options: dict[str, Any]) -> None:
    """Catches a page that is wider than its window, what axe-core finds, an error on the console, a request that leaves
    the server, and what only a mouse reaches."""
    with watched(browser, service.url, **options) as seen:
        seen.open("/console")
        assert (seen.accessible(), seen.wide()) == ([], 0)
        seen.log_in(place.key)
        for told, path in paths(place).items():
            seen.open(path)
            assert (told, seen.accessible(), seen.wide(), seen.by_mouse_alone()) == (told, [], 0, [])


def ask(page: Page, seen: Watched, place: Place, *, scripted: bool) -> None:
    """Open a session, and ask for a count by two attributes under a condition."""
    seen.open(f"/console/datasets/{place.table}")
    more = page.get_by_text("Open another session")
    if more.count():
        more.click()
    page.locator("#epsilon").fill("0.5")
    page.locator("#questions").fill("20")
    page.get_by_role("button", name="Open", exact=True).click()
    page.wait_for_url("**session=*")
    page.get_by_role("button", name="+ Attribute").click()
    page.get_by_label("Group by attribute 1").select_option("age")
    page.get_by_role("button", name="+ Condition").click()
    page.get_by_label("Attribute of condition 1").select_option("sex")
    page.get_by_label("Value 1").fill("male")
    if scripted:
        # The price comes by itself.
        page.locator(".price .words", has_text="where sex is male").wait_for()
    else:
        # What Enter means in a field: the price, and not that a row goes.
        page.get_by_label("Value 1").press("Enter")
        page.locator(".price .words").wait_for()
    assert "Number of records by age, where sex is male" in page.locator(".price .words").inner_text()
    page.get_by_role("button", name=re.compile("^Ask")).first.click()
    page.wait_for_url("**answer=1*")
    assert page.locator("#answer").inner_text() == "Number of records by age, where sex is male"
    assert page.locator(".forest tbody tr").count() == 4


def test_a_question_with_a_script(service: Service, browser: Browser, place: Place) -> None:
    """Catches a price that does not come while somebody chooses, an answer that the focus does not go to, and a page
    that prints its form."""
    with watched(browser, service.url) as seen:
        page = seen.log_in(place.key)
        ask(page, seen, place, scripted=True)
        assert page.evaluate("document.activeElement.id") == "answer"
        assert seen.accessible() == []
        page.get_by_role("link", name="Ask again, more exactly").click()
        page.wait_for_url("**finer=1*")
        assert page.get_by_label("Half the interval's width").input_value()
        page.emulate_media(media="print")
        assert not page.locator(".builder").is_visible()
        assert page.locator(".forest").is_visible()


def test_a_question_without_a_script(service: Service, browser: Browser, place: Place) -> None:
    """Catches a page that does nothing where scripts are off."""
    with watched(browser, service.url, java_script_enabled=False) as seen:
        page = seen.log_in(place.key)
        ask(page, seen, place, scripted=False)
        page.get_by_role("link", name="All, and the transcript").click()
        page.get_by_role("link", name="Transcript").wait_for()


def tab_to(page: Page, holds: Callable[[str], bool], most: int = 80) -> int:
    """Press Tab until what has the focus says something; how often."""
    for count in range(1, most):
        page.keyboard.press("Tab")
        told = page.evaluate(
            "() => { const e = document.activeElement; "
            "return [e.tagName, e.name || '', e.textContent.trim().slice(0, 60), e.value || ''].join('|'); }"
        )
        if holds(told):
            return count
    raise AssertionError("nothing of the kind is reached by Tab")


def test_by_keyboard_alone(service: Service, browser: Browser, place: Place) -> None:
    """From the log-in to an answer without a mouse. Catches a control that only a mouse reaches, and a head that has to
    be passed on every page."""
    with watched(browser, service.url) as seen:
        page = seen.open(f"/console/datasets/{place.table}/ask?session={place.session}")
        page.keyboard.type(place.key)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="A question").wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "To the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.closest('form').className").startswith("card builder")
        tab_to(page, lambda told: "+ Attribute" in told)
        page.keyboard.press("Enter")
        page.get_by_label("Group by attribute 1").wait_for()
        tab_to(page, lambda told: told.startswith("SELECT|by-0"))
        page.keyboard.type("age")
        page.locator(".price .words", has_text="by age").wait_for()
        page.keyboard.press("Control+Enter")
        page.wait_for_url("**answer=*")
        assert "by age" in page.locator("#answer").inner_text()


def test_a_log_in_that_ended_meanwhile(service: Service, browser: Browser, place: Place) -> None:
    """What was filled in is kept over a new log-in, and is sent on request. Catches a form that is lost."""
    with watched(browser, service.url) as seen:
        page = seen.log_in(place.key)
        seen.open(f"/console/datasets/{place.table}/ask?session={place.session}")
        seen.page.context.clear_cookies()
        page.get_by_role("button", name="+ Condition").click()
        page.get_by_text("Your log-in has ended.").wait_for()
        page.get_by_label("Your key").fill(place.key)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Send it").click()
        page.get_by_label("Attribute of condition 1").wait_for()


def test_a_graph(service: Service, browser: Browser, place: Place) -> None:
    """Catches a form of a graph that asks something else."""
    with watched(browser, service.url) as seen:
        page = seen.log_in(place.key)
        seen.open(f"/console/datasets/{place.graph}/ask")
        page.locator("#epsilon").fill("5")
        page.locator("#questions").fill("5")
        page.get_by_role("button", name="Open", exact=True).click()
        page.wait_for_url("**session=*")
        page.locator("#groups").fill(", ".join(str(node % 3) for node in range(30)))
        page.locator(".price .words", has_text="Total within each of 3 groups").wait_for(timeout=1000 * patience(20))
        page.get_by_role("button", name=re.compile("^Ask")).first.click()
        page.wait_for_url("**answer=1*")
        assert page.locator(".forest tbody tr").count() == 3
        assert seen.accessible() == []


def test_a_release_is_followed(service: Service, browser: Browser, place: Place) -> None:
    """Catches a page that stands still, and one that says done before it is."""
    with watched(browser, service.url) as seen:
        page = seen.log_in(place.key, f"/console/releases/new?dataset={place.table}&way=1&epsilon=0.1")
        page.get_by_role("button", name="Take gaussian for 0.1").click()
        page.wait_for_url(re.compile(r"releases/[0-9a-f]{32}"))
        page.locator(".ok", has_text="Done").wait_for(timeout=1000 * patience(30))
        with page.expect_download() as got:
            page.get_by_role("link", name="CSV").first.click()
        assert got.value.suggested_filename.endswith(".csv")


def test_faults_of_a_page_are_found(service: Service, browser: Browser) -> None:
    """What the tests of pages look for is planted in one: something that only a mouse reaches, an unnamed field, and
    what is wider than the window."""
    with watched(browser, service.url) as seen:
        page = seen.open("/console")
        assert (seen.accessible(), seen.wide(), seen.by_mouse_alone()) == ([], 0, [])
        page.evaluate(
            """() => {
              const place = document.querySelector('main');
              place.insertAdjacentHTML('beforeend', '<a href="/console" tabindex="-1">here</a><input>');
              place.insertAdjacentHTML('beforeend', '<svg width="4000" height="10"></svg>');
            }"""
        )
        assert len(seen.by_mouse_alone()) == 1
        assert any(fault.startswith("label") for fault in seen.accessible())
        assert seen.wide() > 0
