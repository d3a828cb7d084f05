"""What an admin does in Chromium: every page wide, narrow, dark and without scripts; tasks by keyboard alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.console import NARROW, watched
from tests.kit.service import Service, people, unique

pytestmark = pytest.mark.api

CSV = "age,sex\n" + "".join(f"{20 + i % 50},{'mf'[i % 2]}\n" for i in range(60))
FILE = {"name": "survey of 2026.csv", "mimeType": "text/csv", "buffer": CSV.encode()}


@dataclass(frozen=True)
class Office:
    """A service with some history."""

    service: Service
    dataset: str


@pytest.fixture(scope="module")
def office(service: Service) -> Office:
    name = people(service, access="granted", description="Households, a survey. " + "Long words " * 9)
    for who in ("ann", "benjamin-with-a-very-long-name-of-his-own-which-has-sixty-fou"):
        caller = service.principal("analyst", who)
        service.admin.put(f"/v1/datasets/{name}/grants/{who}", json={"epsilon": 0.4})
        asked = {"dataset": name, "epsilon": 0.125, "max_queries": 9}
        session = caller.post("/v1/sessions", json=asked).json()["id"]
        question = {"type": "predicate", "where": {"sex": ["male"]}}
        assert caller.post(f"/v1/sessions/{session}/queries", json=question).status_code == 200
    for _ in range(2):
        service.built.context.metrics.sample()
    return Office(service, name)


def pages(name: str) -> list[str]:
    own = ("", "/declaration", "/sessions", "/grants", "/ledger", "/commitment", "/retire")
    others = ("/register", "/people", "/people/ann/key", "/operation", "/to-look-at", "")
    return [*(f"/console/datasets/{name}{part}" for part in own), *(f"/console{part}" for part in others)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [{}, {"viewport": NARROW, "color_scheme": "dark"}],
    ids=["wide", "narrow and dark"],
)
def test_pages_are_for_everybody(browser: Browser, office: Office, how: dict[str, object]) -> None:
    """Catches a page that is wider than its window, that axe finds fault with, that loads anything from elsewhere, or
    at which the policy had something to say; a page without its one heading, and what only a mouse reaches."""
    with watched(browser, office.service.url, **how) as seen:
        seen.log_in(office.service.admin_key)
        for path in pages(office.dataset):
            page = seen.open(path)
            expect(page.locator("h1")).to_have_count(1)
            assert seen.wide() <= 0, path
            assert seen.accessible() == [], path
            assert seen.by_mouse_alone() == [], path


def _focused(page: Page) -> str:
    return str(page.evaluate("() => document.activeElement.getAttribute('name') || document.activeElement.id"))


def _tab_to(page: Page, name: str) -> None:
    """Press Tab until the element of a name has the focus."""
    for _ in range(60):
        if _focused(page) == name:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never comes to {name}")


def test_a_grant_by_the_keyboard_alone(browser: Browser, office: Office) -> None:
    """Catches a field that only a mouse reaches, and a refusal that does not get the focus."""
    with watched(browser, office.service.url) as seen:
        page = seen.log_in(office.service.admin_key, f"/console/datasets/{office.dataset}/grants?who=ann")
        _tab_to(page, "epsilon")
        page.keyboard.type("9")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("between 0 and")
        assert _focused(page) == "epsilon"
        page.keyboard.press("Control+a")
        page.keyboard.type("0.3")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text("ann may hold and spend 0.3")
    held = office.service.admin.get(f"/v1/datasets/{office.dataset}/grants").json()["items"]
    assert {each["principal"]: each["epsilon"] for each in held}["ann"] == 0.3


def test_a_registration_by_the_keyboard_alone(browser: Browser, office: Office) -> None:
    """With the page's script: the file is chosen once. Catches a choice that is gone after a check, an attribute that
    stays amber although it was changed, a reply that does not get the focus, and the page of what was registered with
    the form still in it."""
    name = unique("typed")
    with watched(browser, office.service.url) as seen:
        page = seen.log_in(office.service.admin_key, "/console/register")
        page.get_by_label("The private file").set_input_files(FILE)
        _tab_to(page, "do")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").filter(has_text="Nothing is wrong")).to_be_focused()
        expect(page.get_by_text("guessed from the file")).to_have_count(2)
        _tab_to(page, "name")
        page.keyboard.press("Control+a")
        page.keyboard.type(name)
        _tab_to(page, "a0.upper")
        page.keyboard.type("120")
        expect(page.get_by_text("guessed from the file")).to_have_count(1)
        _tab_to(page, "epsilon")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").filter(has_text="Nothing is wrong")).to_be_focused()
        expect(page.get_by_text("guessed from the file")).to_have_count(1)
        assert seen.accessible() == []
        register = page.get_by_role("button", name="Register", exact=True)
        register.press("Enter")
        expect(page.get_by_text("Something is as it was guessed")).to_be_visible()
        _tab_to(page, "known")
        page.keyboard.press("Space")
        register.press("Enter")
        expect(page.get_by_role("heading", name=f"{name} is registered")).to_be_focused()
        expect(page.get_by_text("60 read, 60 kept")).to_be_visible()
        expect(page.locator("form#registering")).to_have_count(0)
        assert seen.accessible() == []
    assert office.service.admin.get(f"/v1/datasets/{name}").json()["domain"]["attributes"][0]["upper"] == 120


def test_without_scripts(browser: Browser, office: Office) -> None:
    """Catches a form that needs one, on a small screen: a file is checked and registered, somebody gets a key."""
    name = unique("plain")
    with watched(browser, office.service.url, java_script_enabled=False, viewport=NARROW) as seen:
        page = seen.log_in(office.service.admin_key, "/console/register")
        page.get_by_label("The private file").set_input_files(FILE)
        page.get_by_role("button", name="Check").click()
        expect(page.get_by_text("Nothing is wrong")).to_be_visible()
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_label("I replaced what was guessed").check()
        page.get_by_role("button", name="Register", exact=True).click()
        expect(page.get_by_text("Choose the file")).to_be_visible()
        page.get_by_label("The private file").set_input_files(FILE)
        page.get_by_role("button", name="Register", exact=True).click()
        expect(page.get_by_role("heading", name=f"{name} is registered")).to_be_visible()
        seen.open("/console/people")
        page.get_by_label("Name", exact=True).fill(unique("eve"))
        page.get_by_role("button", name="Add").click()
        expect(page.locator("#secret")).to_have_text(re.compile(r"cur_[\w-]{43}"))
        expect(page.get_by_role("button", name="Copy")).to_be_hidden()
