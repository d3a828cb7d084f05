"""Entries of sessions in short: what was asked, in words, and what it cost, page by page, to whom it may be shown."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.kit.service import JSON, Service, ask, open_session, people, refused

pytestmark = pytest.mark.api


def pages(client: httpx.Client, id: str, limit: int) -> list[JSON]:
    """All entries of a session, so many at a time."""
    found: list[JSON] = []
    address = f"/v1/sessions/{id}/entries?limit={limit}"
    while address:
        page = client.get(address).json()
        assert len(page["items"]) <= limit
        found, address = found + page["items"], page.get("next", "")
    return found


@pytest.mark.parametrize("construction", ["evidence", "gaussian", "laplace", "mw"])
def test_what_was_asked_and_what_it_cost(service: Service, construction: str) -> None:
    """Every entry has the words of its question and the source and charge of its answer, whatever the page, and nothing
    of what was released. Catches a charge of another entry or unit, a page that leaves one out, and values shown."""
    analyst, mechanism = service.principal("analyst"), {"construction": construction}
    updates = {"max_updates": 20} if construction == "mw" else {"max_updates": None}
    id = open_session(analyst, people(service), mechanism=mechanism, max_queries=20, **updates)["id"]
    asked: list[Any] = [{"type": "predicate", "where": {"sex": sex}} for sex in ("female", "male", "female")]
    answers = [ask(analyst, id, each) for each in asked]
    entries = pages(analyst, id, 2)
    assert entries == pages(analyst, id, 100) == pages(service.principal("auditor"), id, 1)
    assert [set(each) for each in entries] == 3 * [
        {"sequence", "record", "words", "source", "charged_epsilon", "recorded_at"}
    ]
    for entry, answer, question in zip(entries, answers, asked, strict=True):
        told = {name: answer[name] for name in ("sequence", "source", "charged_epsilon")}
        assert told.items() <= entry.items()
        assert entry["words"] == f"Number of records, where sex is {question['where']['sex']}"
    assert entries[2]["source"] == "cached"


def test_who_sees_them(service: Service) -> None:
    """Catches questions shown to other analysts and to admins, whose they are not."""
    analyst = service.principal("analyst")
    id = open_session(analyst, people(service))["id"]
    assert analyst.get(f"/v1/sessions/{id}/entries").json() == {"items": []}
    for other in (service.principal("analyst"), service.admin):
        refused(other.get(f"/v1/sessions/{id}/entries"), "not-found")
    refused(analyst.get(f"/v1/sessions/{id}/entries?after=x"), "invalid-request")
