"""Lists a page at a time: all of them by the links, and what a ledger says on each page."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import httpx
import pytest

from curator_client import Curator
from tests.kit.service import Service, open_session, people, refused

pytestmark = pytest.mark.api


def walk(client: httpx.Client, path: str, name: str, limit: int) -> list[dict[str, Any]]:
    """All pages of a list."""
    pages, following = [], f"{path}?limit={limit}"
    while following:
        reply = client.get(following)
        assert reply.status_code == 200, reply.text
        page = reply.json()
        following = page.get("next", "")
        assert ("next" in page) == ("link" in reply.headers)
        assert reply.links.get("next", {}).get("url", "") == following
        assert len(page[name]) == limit or not following
        assert 1 <= len(page[name]) <= limit
        pages.append(page)
    return pages


@pytest.mark.parametrize("path", ["/v1/principals", "/v1/datasets"])
def test_lists_by_name(service: Service, path: str) -> None:
    """Catches a page that begins where the one before ended, and names that are passed over."""
    for _ in range(3):
        service.principal("analyst")
        people(service)
    whole = [item["name"] for item in service.admin.get(f"{path}?limit=1000").json()["items"]]
    assert whole == sorted(whole)
    assert len(whole) > 3
    for limit in (1, 2, len(whole) - 1, len(whole), len(whole) + 1):
        pages = walk(service.admin, path, "items", limit)
        assert [item["name"] for page in pages for item in page["items"]] == whole
    assert [item["name"] for item in service.admin.get(f"{path}?after={whole[1]}").json()["items"]] == whole[2:102]
    for words in ("after=", "after=%2e", "after=a%20b", "after=a&after=b", "limit=0", "limit=1001", "limit=x"):
        refused(service.admin.get(f"{path}?{words}"), "invalid-request")


def test_a_ledger_stands_where_it_stands_on_every_page(service: Service) -> None:
    """Catches a sum of one page's movements, a movement that two pages have, and one of another data set."""
    name, other = people(service), people(service)
    analyst = service.principal("analyst")
    for _ in range(5):
        open_session(analyst, name, epsilon=0.01)
        open_session(analyst, other, epsilon=0.01)
    path = f"/v1/datasets/{name}/ledger"
    whole = service.admin.get(path).json()
    assert "next" not in whole
    reserved = sum(Decimal(entry["amount"]) for entry in whole["entries"])
    for limit in (1, 2, 4, 5, 6):
        pages = walk(service.admin, path, "entries", limit)
        assert [entry for page in pages for entry in page["entries"]] == whole["entries"]
        for page in pages:
            assert {key: page[key] for key in page if key not in ("entries", "next")} == {
                key: whole[key] for key in whole if key != "entries"
            }
            assert Decimal(page["sum"]) == reserved
    for words in ("after=x", "after=-1", "after=", f"after={10**18}", "limit=0"):
        refused(service.admin.get(f"{path}?{words}"), "invalid-request")
    with Curator(service.url, service.admin_key) as client:
        ledger = client.ledger(name)
    assert [movement.raw for movement in ledger] == whole["entries"]
    assert Decimal(ledger.raw["sum"]) == reserved


def test_the_client_has_all_of_a_list(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a client that takes the first page for all."""
    monkeypatch.setattr("curator_client._sync.service.PAGE", 2)
    name = people(service)
    analyst = service.principal("analyst")
    ids = [open_session(analyst, name, epsilon=0.01)["id"] for _ in range(5)]
    with Curator(service.url, analyst.headers["Authorization"].partition(" ")[2]) as client:
        assert sorted(state.id for state in client.sessions()) == sorted(ids)
        assert name in [dataset.name for dataset in client.datasets()]
