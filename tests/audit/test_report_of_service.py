"""The report of a real service's log: sessions of several mechanisms and a release, fetched, replayed, and as its books
say.
"""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from app.bootstrap.noise import SystemNoise
from app.report.page import page
from curator_client import Curator
from curator_client.log_folder import LogFolder
from curator_client.log_report import report_of
from tests.kit.fetched import fetch
from tests.kit.service import JSON, Service, ask, open_session, people, serving, where

pytestmark = [pytest.mark.api, pytest.mark.slow]

#: Ways of answering, each with a share and a number of questions.
WAYS: list[tuple[JSON, JSON]] = [
    ({"construction": "mw"}, {"max_updates": 5}),
    ({"construction": "laplace"}, {"max_updates": None, "max_queries": 8}),
    ({"construction": "gaussian"}, {"max_updates": None, "max_queries": 8}),
    ({"construction": "evidence"}, {"max_updates": None}),
    ({"construction": "evidence"}, {"max_updates": None, "contract": True}),
    ({"construction": "histogram"}, {"max_updates": None}),
]


def opened(service: Service, name: str, mechanism: JSON, more: JSON) -> str:
    id = open_session(service.admin, name, mechanism=mechanism, epsilon=0.1, **more)["id"]
    for upper in (20, 40, 60, 20, 80):
        ask(service.admin, id, where(age={"between": [0, upper]}))
    return str(id)


def transcripts(service: Service, ids: list[str], folder: Path) -> None:
    folder.mkdir(parents=True)
    for id in ids:
        reply = service.admin.get(f"/v1/sessions/{id}/transcript")
        assert reply.status_code == 200, reply.text
        (folder / f"{id}.ndjson").write_bytes(reply.content)


def caught_up(service: Service, folder: Path) -> None:
    """Fetch the log once nothing more comes into it."""
    sizes: list[int] = []
    with Curator(service.url, service.admin_key) as curator:
        while len(sizes) < 3 or len(set(sizes[-3:])) > 1:
            assert len(sizes) < 60
            time.sleep(0.4)
            sizes.append(fetch(LogFolder(folder), curator).size)


def test_it_holds_and_says_what_the_books_say(tmp_path: Path) -> None:
    """Catches a rule that a real log breaks, by whatever mechanism, and sums that are not the service's."""
    with serving(tmp_path / "service", noise=SystemNoise()) as service:
        name = people(service)
        ids = [opened(service, name, *way) for way in WAYS]
        service.admin.post(f"/v1/sessions/{ids[0]}/close")
        asked = {"dataset": name, "method": "gaussian", "workload": {"marginals": 1}, "epsilon": 0.1}
        release = service.admin.post("/v1/releases", json=asked).json()["id"]
        while service.admin.get(f"/v1/releases/{release}").json()["status"] not in ("done", "failed"):
            time.sleep(0.1)
        caught_up(service, tmp_path / "log")
        transcripts(service, ids, tmp_path / "log" / "sessions")
        transcripts(service, [release], tmp_path / "log" / "releases")
        books: dict[str, Any] = service.admin.get(f"/v1/datasets/{name}").json()["budget"]
        states = {id: service.admin.get(f"/v1/sessions/{id}").json() for id in ids}
    document = report_of(tmp_path / "log", replay=True)
    assert [each for each in document["checks"] if each["holds"] is not True] == []
    assert "All that was checked holds" in page(document)
    (people_,) = document["datasets"]
    for what in ("spent_epsilon", "reserved_epsilon"):
        assert float(people_["budget"][what]) == books[what]
    told = {each["session"]: each for each in people_["sessions"]["first"]}
    assert list(told) == [*ids, release]
    assert all(each["replay"] == {"ok": True, "problem": None} for each in told.values())
    assert told[release]["method"] == "gaussian"
    for id, state in states.items():
        assert Decimal(told[id]["spent"]) == Decimal(state["spent"])
        assert told[id]["answers"]["number"] == 5
