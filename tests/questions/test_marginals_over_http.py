"""Marginal questions through the whole service: one charge, every cell its own noise, as JSON and as a table."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from app.services.answering import group
from app.verifying.transcript import replay_file
from tests.kit.noise import Noise
from tests.kit.service import JSON, Service, ask, npy, open_session, refused, register, unique

pytestmark = pytest.mark.api

ARROW = "application/vnd.apache.arrow.stream"
SPEC = {
    "kind": "table",
    "attributes": [
        {"name": "sex", "values": ["female", "male"]},
        {"name": "age", "lower": 0, "upper": 80, "bins": 4},
        {"name": "value", "size": 3},
    ],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
    "records_public": True,
}
COUNTS = np.arange(24).reshape(2, 4, 3) + 100
BY_AGE = {"type": "marginal", "attributes": ["age", "sex"], "bins": {"age": [0, 40, 80]}, "where": {"value": [0, 2]}}
LABELS = [("[0, 40)", "female"), ("[0, 40)", "male"), ("[40, 80]", "female"), ("[40, 80]", "male")]
TRUTH = [float(COUNTS[s, 2 * a : 2 * a + 2][:, [0, 2]].sum()) for a, s in itertools.product(range(2), range(2))]


@pytest.fixture(scope="module")
def analyst(service: Service) -> httpx.Client:
    return service.principal("analyst")


@pytest.fixture
def session(service: Service, analyst: httpx.Client, noise: Noise) -> JSON:
    return opened(service, analyst)


def opened(service: Service, analyst: httpx.Client, law: str = "gaussian", **more: Any) -> JSON:
    name = unique("marginals")
    assert register(service.admin, {**SPEC, "name": name}, npy(COUNTS), "t.npy").status_code == 201
    asked = {"mechanism": {"construction": law}, "epsilon": 0.5, "max_queries": 4, "max_updates": None} | more
    return open_session(analyst, name, **asked)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_a_table_is_one_question(
    service: Service, analyst: httpx.Client, noise: Noise, law: str, tmp_path: Path
) -> None:
    """The counts in the order asked, with noise of their own, charged once and asked for once more free, in any order
    of attributes; the transcript replays. Catches a charge a cell, one noise for all, and rows for columns.
    """
    session = opened(service, analyst, law)
    id, unit = session["id"], session["plan"]["answer_grid"]
    drawn = itertools.count(1)
    noise.draw = lambda _scale: next(drawn)
    try:
        first = ask(analyst, id, BY_AGE)
    finally:
        noise.draw = lambda _scale: 0
    assert first["axes"] == [
        {"attribute": "age", "labels": ["[0, 40)", "[40, 80]"]},
        {"attribute": "sex", "labels": ["female", "male"]},
    ]
    off = [(value - truth) / unit for value, truth in zip(first["values"], TRUTH, strict=True)]
    assert sorted(off) == [1, 2, 3, 4]
    assert (first["sequence"], first["source"], first["queries_left"]) == (1, "measurement", 3)
    assert first["charged_epsilon"] == pytest.approx(0.5 / 4, rel=1e-9)
    assert len(first["standard_errors"]) == len(first["intervals"]) == 4
    again = ask(analyst, id, {**BY_AGE, "attributes": ["sex", "age"]})
    assert [axis["attribute"] for axis in again["axes"]] == ["sex", "age"]
    assert (np.array(again["values"]).reshape(2, 2) == np.array(first["values"]).reshape(2, 2).T).all()
    assert (again["source"], again["charged_epsilon"], again["queries_left"]) == ("cached", 0, 3)
    path = tmp_path / "transcript.ndjson"
    path.write_bytes(analyst.get(f"/v1/sessions/{id}/transcript").content)
    verdict = replay_file(path)
    assert verdict.ok, verdict.problem


def table(reply: httpx.Response) -> pa.Table:
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == ARROW
    return pa.ipc.open_stream(reply.content).read_all()


def accepting(analyst: httpx.Client, id: str, query: JSON, accept: str = ARROW, **headers: str) -> httpx.Response:
    return analyst.post(f"/v1/sessions/{id}/queries", json=query, headers={"Accept": accept, **headers})


def test_as_a_table(analyst: httpx.Client, session: JSON) -> None:
    """The same answer as the JSON, whichever is asked first. Catches cells beside other labels' numbers, a column that
    hides an attribute, and facts of the answer that a table has no place for.
    """
    found = table(accepting(analyst, session["id"], BY_AGE))
    answer = ask(analyst, session["id"], BY_AGE)
    assert list(zip(found["age"].to_pylist(), found["sex"].to_pylist(), strict=True)) == LABELS
    assert found["value"].to_pylist() == answer["values"]
    assert found["standard_error"].to_pylist() == answer["standard_errors"]
    lows_and_highs = zip(found["low"].to_pylist(), found["high"].to_pylist(), strict=True)
    assert [list(pair) for pair in lows_and_highs] == answer["intervals"]
    facts = json.loads(found.schema.metadata[b"curator"])
    assert facts["charged_epsilon"] > 0
    assert (facts["sequence"], facts["source"], facts["error_bound"]) == (1, "measurement", answer["error_bound"])
    assert facts.keys() == answer.keys() - {"axes", "values", "standard_errors", "intervals"}
    named_value = table(accepting(analyst, session["id"], {"type": "marginal", "attributes": ["value", "sex"]}))
    assert named_value.column_names == ["value_", "sex", "value", "standard_error", "low", "high"]
    assert named_value["value_"].to_pylist() == [0, 0, 1, 1, 2, 2]


def test_a_retry_gets_the_same_in_either_form(analyst: httpx.Client, session: JSON) -> None:
    """Under one key the answer is one, as JSON and as a table, byte for byte. Catches a second charge."""
    first = accepting(analyst, session["id"], BY_AGE, **{"Idempotency-Key": "k"})
    assert accepting(analyst, session["id"], BY_AGE, **{"Idempotency-Key": "k"}).content == first.content
    same = accepting(analyst, session["id"], BY_AGE, "application/json", **{"Idempotency-Key": "k"}).json()
    assert same["values"] == table(first)["value"].to_pylist()
    assert (same["sequence"], same["source"]) == (1, "measurement")
    assert analyst.get(f"/v1/sessions/{session['id']}").json()["sequence"] == 1


def test_other_answers_are_no_tables(analyst: httpx.Client, session: JSON) -> None:
    """Refused before anything is drawn; problems are JSON whatever is accepted. Catches a charge for a reply that
    cannot be sent.
    """
    scalar = {"type": "predicate", "where": {"sex": "male"}}
    path = f"/v1/sessions/{session['id']}/queries"
    refused(accepting(analyst, session["id"], scalar), "invalid-request")
    refused(analyst.post(f"{path}/batch", json={"queries": [BY_AGE]}, headers={"Accept": ARROW}), "invalid-request")
    array = npy(np.ones(24))
    headers = {"Accept": ARROW, "Content-Type": "application/x-npy"}
    refused(analyst.post(path, content=array, headers=headers), "invalid-request")
    refused(accepting(analyst, session["id"], {**BY_AGE, "attributes": ["shoes"]}), "invalid-query")
    assert analyst.get(f"/v1/sessions/{session['id']}").json()["sequence"] == 0
    for accept in ("application/json, " + ARROW, "*/*", "", "text/html"):
        reply = accepting(analyst, session["id"], BY_AGE, accept)
        assert reply.headers["content-type"] == "application/json", accept
    assert table(accepting(analyst, session["id"], BY_AGE, f"text/csv, {ARROW};q=0.9, application/json"))


def test_in_a_batch(analyst: httpx.Client, session: JSON) -> None:
    """Beside answers of one number and problems. Catches a batch that is refused for one of its forms."""
    queries = [{"type": "predicate", "where": {}}, BY_AGE, {**BY_AGE, "attributes": []}, BY_AGE]
    reply = analyst.post(f"/v1/sessions/{session['id']}/queries/batch", json={"queries": queries})
    answers = reply.json()["answers"]
    assert [a.get("source", a.get("status")) for a in answers] == ["measurement", "measurement", 422, "cached"]
    assert answers[1]["values"] == answers[3]["values"] == TRUTH


def test_a_batch_has_only_so_much_room(analyst: httpx.Client, session: JSON, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after is refused, not asked, and may be asked again. Catches a small body whose answers fill the
    memory: each of its questions may have a million cells, and be answered from what was answered before.
    """
    monkeypatch.setattr(group, "BATCH_REPLY_BYTES", 1000)
    path = f"/v1/sessions/{session['id']}"
    answers = analyst.post(f"{path}/queries/batch", json={"queries": [BY_AGE] * 5}).json()["answers"]
    assert [a.get("source", a.get("type")) for a in answers] == [
        "measurement",
        "cached",
        *["/problems/payload-too-large"] * 3,
    ]
    assert (answers[4]["status"], answers[4]["limit"]) == (413, 1000)
    assert analyst.get(path).json()["sequence"] == 2


def test_values_that_are_merged_by_name(analyst: httpx.Client, session: JSON) -> None:
    """One charge for the merged table, its groups' names as labels, and a refusal of groups that overlap. Catches what
    is in no group counted after all, and a price of the cells before they are merged.
    """
    merged = {"type": "marginal", "attributes": ["value", "sex"], "bins": {"value": {"odd": [1], "rest": [2]}}}
    answer = ask(analyst, session["id"], merged)
    assert answer["axes"][0] == {"attribute": "value", "labels": ["odd", "rest"]}
    assert answer["values"] == COUNTS.sum(axis=1)[:, 1:].T.reshape(-1).tolist()
    assert answer["charged_epsilon"] == pytest.approx(0.5 / 4, rel=1e-9)
    overlapping = {**merged, "bins": {"value": {"odd": [1, 2], "rest": [2]}}}
    reply = analyst.post(f"/v1/sessions/{session['id']}/queries", json=overlapping)
    assert refused(reply, "invalid-query")["detail"].startswith("value: bins: 2 is in 'odd' and in 'rest'")
