"""Entries of sessions in short: what was asked, in words, and what it cost, page by page, to whom it may be shown."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services.transcripts import answer_in
from tests.kit.service import JSON, Service, ask, open_session, people, refused, where

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


def test_one_entry_with_its_reply(service: Service) -> None:
    """Byte by byte what was replied, whichever way it was asked. Catches another answer of a batch, one of a later
    margin, a question with what was wanted of it, and an entry that others see."""
    name = people(service)
    analyst, other, auditor = (service.principal(role) for role in ("analyst", "analyst", "auditor"))
    id = analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 0.5, "max_queries": 20}).json()["id"]
    base = f"/v1/sessions/{id}"
    first = analyst.post(
        f"{base}/queries", json=where(sex="male") | {"confidence": 0.9}, headers={"Idempotency-Key": "a"}
    )
    questions = [where(sex="female"), {"type": "nothing"}, {"type": "marginal", "attributes": ["sex", "age"]}]
    batch = analyst.post(f"{base}/queries/batch", json={"queries": questions}, headers={"Idempotency-Key": "b"})
    analyst.post(f"{base}/queries", json=where(age={"ge": 40}))
    answers = [first.json(), *(each for each in batch.json()["answers"] if "sequence" in each)]
    assert [each["sequence"] for each in answers] == [1, 2, 3]
    for who in (analyst, auditor):
        entries = [who.get(f"{base}/entries/{each['sequence']}").json() for each in answers]
        assert [entry["answer"] for entry in entries] == answers
        assert [entry["question"] for entry in entries] == [where(sex="male"), questions[0], questions[2]]
    short = analyst.get(f"{base}/entries").json()["items"]
    assert [{key: entry[key] for key in short[0]} for entry in entries] == short[:3]
    without = analyst.get(f"{base}/entries/4").json()
    assert (without["answer"], without["question"]) == (None, where(age={"ge": 40}))
    refused(other.get(f"{base}/entries/1"), "not-found")
    for none in (0, 5, 10**17):
        refused(analyst.get(f"{base}/entries/{none}"), "not-found")
    for nonsense in ("x", "-1", "1.5", "1" * 30):
        refused(analyst.get(f"{base}/entries/{nonsense}"), "invalid-request")


#: Answers as replies have them, with texts that look like the beginning of one; and refusals in their place.
TEXTS = st.sampled_from(['{"sequence":2,"entry_hash":1}', '\\"{"sequence":2,', "é\U0001f600", "]}", ""]) | st.text()
LIKE = st.fixed_dictionaries({"sequence": st.integers(1, 4), "note": TEXTS})
ANSWERS = st.lists(
    st.builds(
        lambda sequence, labels, note, digest: {
            "sequence": sequence,
            "axes": [{"labels": labels}],
            "note": note,
            "entry_hash": digest,
        },
        st.integers(1, 4),
        st.lists(TEXTS | LIKE | st.floats(-9, 9)),
        TEXTS,
        TEXTS,
    )
    | st.fixed_dictionaries({"type": TEXTS, "detail": TEXTS}),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each.get("sequence"),
)


@pytest.mark.unit
@given(ANSWERS, st.integers(1, 5))
def test_one_answer_of_a_batch(answers: list[JSON], sequence: int) -> None:
    """Against the whole reply, parsed. Catches another answer, the beginning of one within a text, something within an
    answer that begins alike, and one that is cut off."""
    wanted = next((each for each in answers if each.get("sequence") == sequence), None)
    assert answer_in(orjson.dumps({"answers": answers}), sequence) == wanted
    assert answer_in(orjson.dumps(answers[0]), sequence) == (answers[0] if wanted == answers[0] else None)


@pytest.mark.unit
def test_nothing_else_of_a_batch_is_parsed() -> None:
    """Catches a batch of tens of megabytes that is made into objects to tell one answer of it."""
    reply = b'{"answers":[' + b"[" * 9 + b',{"sequence":7,"value":1.5,"entry_hash":"x"},' + b"{" * 9
    assert answer_in(reply, 7) == {"sequence": 7, "value": 1.5, "entry_hash": "x"}
    assert answer_in(reply, 8) is None
