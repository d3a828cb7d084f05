"""The same contract over PostgreSQL, where it takes less than SQLite does: text without NUL, rows locked one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit.noise import Noise
from tests.kit.service import (
    COUNTS,
    PEOPLE,
    Gate,
    Service,
    ask,
    npy,
    open_session,
    people,
    refused,
    register,
    serving,
    session_words,
    where,
)
from tests.sessions.test_sessions import read_chain

pytestmark = [pytest.mark.api, pytest.mark.postgres]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def service(postgres_url: str, tmp_path: Path, gate: Gate) -> Iterator[Service]:
    with serving(tmp_path, noise=Noise(gate), database_url=postgres_url) as running:
        yield running


def test_what_text_cannot_hold(service: Service) -> None:
    """NUL, lone surrogates of the address and the like, wherever a name can stand. Catches a lookup that the database
    refuses: an unforeseen error, and 503.
    """
    name, admin = people(service), service.admin
    for odd in ("a%00b", "%ff", "%ed%a0%80", "%F0%9F%92%A9", "'--"):
        for method, path in [
            ("GET", f"/v1/datasets/{odd}"),
            ("GET", f"/v1/datasets/{odd}/ledger"),
            ("DELETE", f"/v1/datasets/{odd}"),
            ("DELETE", f"/v1/principals/{odd}"),
            ("GET", f"/v1/sessions/{odd}"),
            ("GET", f"/v1/sessions/{odd}/transcript"),
            ("GET", f"/v1/sessions/{odd}/hypothesis"),
            ("POST", f"/v1/sessions/{odd}/close"),
        ]:
            refused(admin.request(method, path), "not-found")
        refused(admin.post(f"/v1/sessions/{odd}/queries", json=where()), "not-found")
        refused(admin.put(f"/v1/datasets/{odd}/grants/admin", json={"epsilon": 0.1}), "not-found")
        refused(admin.put(f"/v1/datasets/{name}/grants/{odd}", json={"epsilon": 0.1}), "not-found")
    for odd in ("a\x00b", "\x00", "\U0001f4a9"):
        refused(admin.post("/v1/plans", json=session_words(odd)), "not-found")
        refused(admin.post("/v1/sessions", json=session_words(odd)), "not-found")
        refused(admin.post("/v1/principals", json={"name": odd, "role": "analyst"}), "invalid-request")
    refused(admin.get("/v1/datasets", headers={"Authorization": b"Bearer k\xe9\xff\x80"}), "unauthenticated")


def test_words_with_nul_are_kept(service: Service) -> None:
    """A declared word may hold what a column of text cannot. Catches a data set that cannot be written, or comes back
    with another word.
    """
    attributes = [{"name": "a\x00b", "values": ["x\x00", "\U0001f4a9"]}]
    spec = {**PEOPLE, "name": "odd", "attributes": attributes, "description": "nul: \x00"}
    assert register(service.admin, spec, npy([40, 2]), "c.npy").status_code == 201
    shown = service.admin.get("/v1/datasets/odd").json()
    assert (shown["domain"]["attributes"], shown["description"]) == (attributes, "nul: \x00")
    id = open_session(service.admin, "odd", mechanism={"construction": "fk"})["id"]
    ask(service.admin, id, {"type": "predicate", "where": {"a\x00b": {"equals": "x\x00"}}})
    refused(service.admin.post(f"/v1/sessions/{id}/queries", json=where(**{"\x00": {"equals": "x"}})), "invalid-query")
    read_chain(service.admin.get(f"/v1/sessions/{id}/transcript").content)


def test_keys_and_budgets_at_once(service: Service, gate: Gate) -> None:
    """Six openings under one key, ten for a third of the budget each, six queries under one key. Catches rows that are
    read before they are locked.
    """
    name, admin = people(service), service.admin
    words = session_words(name, epsilon=0.1)
    with ThreadPoolExecutor(10) as pool:
        replies = list(
            pool.map(lambda _: admin.post("/v1/sessions", json=words, headers={"Idempotency-Key": "k"}), range(6))
        )
        assert {reply.status_code for reply in replies} == {201}
        assert len({reply.content for reply in replies}) == 1
        replies = list(pool.map(lambda _: admin.post("/v1/sessions", json={**words, "epsilon": 0.3}), range(10)))
        assert sorted(reply.status_code for reply in replies) == [201] * 3 + [409] * 7
        id = admin.get("/v1/sessions").json()["items"][0]["id"]
        path = f"/v1/sessions/{id}/queries"
        with gate.shut():
            calls = [
                pool.submit(admin.post, path, json=where(sex={"equals": "male"}), headers={"Idempotency-Key": "k"})
                for _ in range(6)
            ]
            assert gate.entered.wait(30)
        replies = [call.result() for call in calls]
    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.content for reply in replies}) == 1
    assert json.loads(replies[0].content)["value"] == COUNTS[1].sum()
    assert admin.get(f"/v1/sessions/{id}").json()["sequence"] == 1


def test_one_key_on_two_data_sets_at_once(service: Service) -> None:
    """The data sets' locks do not keep these two apart, only the key does: one opens, the other hears of the
    conflict. Catches the database's own refusal of the second key coming out as a failure of the service.
    """
    first, second = people(service), people(service)
    with ThreadPoolExecutor(2) as pool:
        for number in range(8):
            calls = [
                pool.submit(
                    service.admin.post,
                    "/v1/sessions",
                    json=session_words(name, epsilon=0.01),
                    headers={"Idempotency-Key": f"both-{number}"},
                )
                for name in (first, second)
            ]
            replies = sorted((call.result() for call in calls), key=lambda reply: reply.status_code)
            assert [reply.status_code for reply in replies] == [201, 409]
            assert replies[1].json()["type"] == "/problems/idempotency-conflict"
