"""Sessions: plans, state, transcripts checked by hand, hypotheses in every format."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rfc8785

from app.verifying.transcript import replay_file
from tests.kit.service import (
    ARROW,
    COUNTS,
    JSON,
    NPY,
    PARQUET,
    Service,
    ask,
    npy,
    open_session,
    people,
    refused,
    register,
    session_words,
    unique,
    where,
)

pytestmark = pytest.mark.api

FEMALE = where(sex={"equals": "female"})


def read_chain(transcript: bytes) -> tuple[JSON, list[JSON], JSON]:
    """Header, entries (weights left out) and trailer of a transcript whose chain this test has recomputed: every line
    canonical, every hash the SHA-256 of what it names.
    """
    lines = transcript.splitlines()
    assert transcript == b"".join(line + b"\n" for line in lines)
    records = [json.loads(line) for line in lines]
    for line, record in zip(lines, records, strict=True):
        assert rfc8785.dumps(record) == line
    header, trailer = records[0], records[-1]
    assert header["record"] == "header"
    assert header["format"] == 1
    assert trailer["record"] == "trailer"
    head, entries = hashlib.sha256(lines[0]).hexdigest(), []
    for record in records[1:-1]:
        if record["record"] == "weights":
            continue
        entries.append(record)
        assert record["record"] == "answer"
        assert record["sequence"] == len(entries)
        assert record["previous_hash"] == head
        body = {name: value for name, value in record.items() if name != "entry_hash"}
        head = hashlib.sha256(rfc8785.dumps(body)).hexdigest()
        assert record["entry_hash"] == head
    assert trailer["entries"] == len(entries)
    assert trailer["head_hash"] == head
    return header, entries, trailer


@pytest.fixture(scope="module")
def analyst(service: Service) -> httpx.Client:
    return service.principal("analyst")


@pytest.fixture(scope="module")
def session(service: Service, analyst: httpx.Client) -> str:
    id = open_session(analyst, people(service))["id"]
    ask(analyst, id, FEMALE)
    ask(analyst, id, where(age={"between": [0, 20]}))
    return str(id)


class TestOpening:
    def test_fields(self, service: Service, analyst: httpx.Client) -> None:
        """Catches a renamed field, a plan that is not the one /v1/plans gives, a state that is not the one opened."""
        dataset = people(service)
        words = session_words(dataset)
        plan = analyst.post("/v1/plans", json=words)
        assert plan.status_code == 200
        assert {
            "noise_scale",
            "threshold",
            "error_bound",
            "beta",
            "max_updates",
            "max_queries",
            "guaranteed",
            "step_size",
            "epsilon",
            "epsilon_alone",
            "delta",
            "calibration",
        } <= set(plan.json())
        reply = analyst.post("/v1/sessions", json=words)
        assert reply.status_code == 201
        opened = reply.json()
        for name, value in opened["plan"].items():
            assert plan.json()[name] == value
        assert opened["dataset"] == dataset
        assert opened["mechanism"]["construction"] == "mw"
        assert opened["status"] == "open"
        assert (opened["queries_asked"], opened["queries_left"]) == (0, 100)
        assert (opened["updates_used"], opened["updates_left"]) == (0, 10)
        assert len(opened["head_hash"]) == 64
        assert {"spent", "reserved"} <= set(opened)
        state = analyst.get(f"/v1/sessions/{opened['id']}").json()
        assert "log_size" in state
        assert {name: value for name, value in state.items() if name != "log_size"} == opened

    def test_what_a_plan_says(self, service: Service, analyst: httpx.Client) -> None:
        """The figures of a best-effort plan as docs/privacy.md, section 12, has them: T = 2L, the bound T + L and
        L = b ln(k/beta), up to the grid. Catches a plan whose bound is not the one its noise gives.
        """
        plan = analyst.post("/v1/plans", json=session_words(people(service))).json()
        noise_bound = plan["noise_scale"] * np.log(plan["max_queries"] / plan["beta"])
        assert plan["threshold"] == pytest.approx(2 * noise_bound, rel=1e-5)
        assert plan["error_bound"] == pytest.approx(3 * noise_bound, rel=1e-5)
        assert (plan["guaranteed"], plan["max_updates"], plan["max_queries"]) == (False, 10, 100)
        assert (plan["epsilon"], plan["beta"], plan["delta"], plan["calibration"]) == (0.5, 0.05, 1e-6, "rdp")

    def test_an_infeasible_plan_says_what_would_do(self, service: Service, analyst: httpx.Client) -> None:
        """Catches a refusal that leaves the analyst guessing, and advice that does not help: each figure given, with
        a tenth to spare, makes the plan feasible (records cannot be tried).
        """
        # A bigger table of which a small share is asked: feasible with more of any one thing.
        dataset = people(service, counts=COUNTS * 100, budget={"epsilon": 10.0, "delta": 1e-6})
        words = session_words(dataset, max_updates=None, epsilon=1e-7, max_queries=10**9)
        problem = refused(analyst.post("/v1/plans", json=words), "plan-infeasible")
        assert {"epsilon", "max_queries", "beta", "records"} <= set(problem)
        tried = 0
        for name, factor in (("epsilon", 1.1), ("max_queries", 0.5), ("beta", 1.1)):
            if problem[name] is not None and (name != "beta" or problem[name] * factor < 1):
                value = problem[name] * factor
                better = {**words, name: max(1, int(value)) if name == "max_queries" else value}
                reply = analyst.post("/v1/plans", json=better)
                assert reply.status_code == 200, (name, reply.text)
                assert reply.json()["guaranteed"] is True
                tried += 1
        assert tried

    def test_whole_numbers_as_floats(self, service: Service, analyst: httpx.Client) -> None:
        """To JSON, and to the schemas of the document, 10.0 is an integer. Catches a client turned away for how its
        library writes one, and a header that keeps it as a float: it would not replay to the same bytes.
        """
        state = open_session(analyst, people(service), max_queries=10.0, max_updates=5.0, epsilon=0.1)
        assert (state["queries_left"], state["updates_left"]) == (10, 5)
        header = analyst.get(f"/v1/sessions/{state['id']}/transcript").content.splitlines()[0]
        assert b'"max_queries":10,' in header
        assert b'"max_updates":5,' in header

    def test_lists_hold_ones_own(self, service: Service) -> None:
        """Catches a list that shows other people's sessions, or none of the auditor's."""
        dataset = people(service)
        first, second = service.principal("analyst"), service.principal("analyst")
        opened = [open_session(client, dataset, epsilon=0.1) for client in (first, second, first)]
        ids = [session["id"] for session in opened]
        in_order = [s["id"] for s in sorted(opened, key=lambda s: (s["opened_at"], s["id"]))]
        assert [s["id"] for s in first.get("/v1/sessions").json()["items"]] == [id for id in in_order if id != ids[1]]
        assert [s["id"] for s in second.get("/v1/sessions").json()["items"]] == [ids[1]]
        everything = service.principal("auditor").get("/v1/sessions").json()["items"]
        assert [s["id"] for s in everything if s["dataset"] == dataset] == in_order


class TestState:
    def test_counters_follow_the_answers(self, service: Service, analyst: httpx.Client) -> None:
        """Catches a counter that runs apart from what the answers said, and amounts that do not add up."""
        id = open_session(analyst, people(service))["id"]
        first = ask(analyst, id, FEMALE)
        ask(analyst, id, FEMALE)
        last = ask(analyst, id, where())
        state = analyst.get(f"/v1/sessions/{id}").json()
        assert (first["source"], last["source"]) == ("measurement", "hypothesis")
        assert (state["queries_asked"], state["queries_left"]) == (2, 98) == (2, last["queries_left"])
        assert (state["updates_used"], state["updates_left"]) == (1, 9) == (1, last["updates_left"])
        assert state["head_hash"] == last["entry_hash"]
        assert state["spent"] == state["plan"]["cost_per_update"]

    def test_a_closed_session_is_read_and_not_asked(self, service: Service, analyst: httpx.Client) -> None:
        """Catches answers after closing, also such as would be cached, and records that closing removes."""
        id = open_session(analyst, people(service))["id"]
        ask(analyst, id, FEMALE)
        transcript = analyst.get(f"/v1/sessions/{id}/transcript").content
        closed = analyst.post(f"/v1/sessions/{id}/close")
        assert closed.json() == analyst.get(f"/v1/sessions/{id}").json()
        for query in (FEMALE, where(), {**FEMALE, "unverified": True}):
            refused(analyst.post(f"/v1/sessions/{id}/queries", json=query), "session-closed")
        refused(analyst.post(f"/v1/sessions/{id}/queries/batch", json={"queries": [FEMALE]}), "session-closed")
        assert analyst.get(f"/v1/sessions/{id}/transcript").content.splitlines()[:-1] == transcript.splitlines()[:-1]

    def test_unknown_ids(self, service: Service) -> None:
        """Catches anything but 404, whatever an id is made of."""
        for id in ("0" * 32, "x", "%00", "%ff", "0" * 5000, "..%2f", "%F0%9F%92%A9"):
            for path in ("", "/transcript", "/hypothesis"):
                refused(service.admin.get(f"/v1/sessions/{id}{path}"), "not-found")
            refused(service.admin.post(f"/v1/sessions/{id}/close"), "not-found")
            refused(service.admin.post(f"/v1/sessions/{id}/queries", json=FEMALE), "not-found")


class TestTranscript:
    def test_of_every_kind_of_answer(self, service: Service, analyst: httpx.Client, tmp_path: Path) -> None:
        """A session with every source and form of answer: the chain is recomputed here, the replay accepts it, and
        every answer given is an entry. Catches an answer missing, a hash over other bytes, lines that are not
        canonical, a header without what a replay needs.
        """
        dataset = people(service)
        id = open_session(analyst, dataset)["id"]
        dense = np.linspace(-1, 1, 8).reshape(2, 4)
        queries: list[JSON] = [
            FEMALE,
            FEMALE,
            {**FEMALE, "unverified": True},
            {"type": "cut", "left": "all", "right": "all"},
            {"type": "product", "weights": {"age": [0.1, -0.2, 0.3, 1]}},
            {"type": "sparse", "indices": [0, 7], "weights": [0.5, -1]},
            {"type": "sparse", "indices": [], "weights": []},
            {"type": "dense", "weights": dense.tolist()},
            where(age={"between": [60, 80]}),
        ]
        replies = analyst.post(f"/v1/sessions/{id}/queries/batch", json={"queries": queries}).json()["answers"]
        given = [reply for reply in replies if "value" in reply]
        assert len(given) == len(queries) - 1  # a table takes no cut
        reply = analyst.get(f"/v1/sessions/{id}/transcript")
        assert reply.headers["content-type"].startswith("application/x-ndjson")
        header, entries, trailer = read_chain(reply.content)
        assert {"session", "dataset", "mechanism", "plan", "opened_at"} <= set(header)
        assert header["session"] == id
        assert header["dataset"]["name"] == dataset
        assert not [name for name in header["dataset"]["budget"] if "spent" in name or "remaining" in name]
        for entry, answer in zip(entries, given, strict=True):
            assert {"query", "value", "source", "recorded_at"} <= set(entry)
            for name in ("sequence", "value", "source", "entry_hash"):
                assert entry[name] == answer[name]
        assert trailer["updates"] == given[-1]["updates_used"]
        assert len(trailer["hypothesis_digest"]) == 64
        target = tmp_path / "t.ndjson"
        target.write_bytes(reply.content)
        verdict = replay_file(target)
        assert verdict.ok, verdict.problem

    def test_of_a_session_without_answers(self, service: Service, analyst: httpx.Client) -> None:
        """Catches a transcript that needs a first answer."""
        id = open_session(analyst, people(service))["id"]
        _, entries, trailer = read_chain(analyst.get(f"/v1/sessions/{id}/transcript").content)
        assert (entries, trailer["entries"]) == ([], 0)

    def test_of_many_pages(self, service: Service, analyst: httpx.Client) -> None:
        """More entries than are read at a time. Catches an entry lost or doubled where two pages meet."""
        id = open_session(analyst, people(service))["id"]
        answers = analyst.post(f"/v1/sessions/{id}/queries/batch", json={"queries": [FEMALE] * 4500}).json()["answers"]
        _, entries, _ = read_chain(analyst.get(f"/v1/sessions/{id}/transcript").content)
        assert [e["entry_hash"] for e in entries] == [a["entry_hash"] for a in answers]


class TestHypothesis:
    @staticmethod
    def expected() -> Any:
        """Uniform, then for each answer the odds of the touched cells multiplied so that the session's own answer
        comes to y - L (the projection on the half-space): worked out here from the plan alone.
        """

        def project(table: Any, cells: Any, target: float) -> Any:
            inside = table[cells].sum()
            table = table.copy()
            outside = ~cells
            table[cells] *= target / inside
            table[outside] *= (15000 - target) / (15000 - inside)
            return table

        def run(noise_bound: float) -> Any:
            table = np.full((2, 4), 15000 / 8)
            women = np.zeros((2, 4), bool)
            women[0] = True
            young = np.zeros((2, 4), bool)
            young[:, 0] = True
            return project(project(table, women, 10000 - noise_bound), young, 13000 - noise_bound)

        return run

    @pytest.mark.parametrize("media_type", [NPY, ARROW, PARQUET])
    def test_every_format(self, service: Service, analyst: httpx.Client, session: str, media_type: str) -> None:
        """One array in three formats, equal to the update rule worked out by hand, with the number of updates it
        stands at. Catches axes exchanged, a format that is another, a hypothesis that lags behind its updates.
        """
        reply = analyst.get(f"/v1/sessions/{session}/hypothesis", headers={"Accept": media_type})
        assert reply.status_code == 200
        assert reply.headers["content-type"] == media_type
        assert reply.headers["curator-updates"] == "2"
        noise_bound = analyst.get(f"/v1/sessions/{session}").json()["plan"]["noise_bound"]
        expected = self.expected()(noise_bound)
        if media_type == NPY:
            array = np.load(io.BytesIO(reply.content))
            assert array.shape == (2, 4)
        else:
            table = pq.read_table(io.BytesIO(reply.content)) if media_type == PARQUET else read_arrow(reply.content)
            assert table.schema.metadata[b"updates"] == b"2"
            array = np.full((2, 4), np.nan)
            for row in table.to_pylist():
                array[row["sex"], row["age"]] = row["count"]
        np.testing.assert_allclose(array, expected, rtol=1e-9)
        assert array.sum() == pytest.approx(15000, rel=1e-12)

    @pytest.mark.parametrize(
        ("accept", "got"),
        [
            (None, NPY),
            ("*/*", NPY),
            (f"text/html, {ARROW};q=0.9", ARROW),
            (f"{PARQUET}, {NPY}", PARQUET),
            ("application/*", NPY),
        ],
    )
    def test_negotiation(self, analyst: httpx.Client, session: str, accept: str | None, got: str) -> None:
        """Catches an Accept header that nobody reads."""
        headers = {} if accept is None else {"Accept": accept}
        reply = analyst.get(f"/v1/sessions/{session}/hypothesis", headers=headers)
        assert reply.headers["content-type"] == got

    def test_what_there_is_not(self, analyst: httpx.Client, session: str) -> None:
        """Catches a format sent that was not asked for."""
        reply = analyst.get(f"/v1/sessions/{session}/hypothesis", headers={"Accept": "text/html"})
        assert NPY in refused(reply, "invalid-request")["detail"]

    def test_attributes_of_any_name_keep_their_columns(self, service: Service, analyst: httpx.Client) -> None:
        """Catches counts that are written over an attribute called like them."""
        names = ["count_", "sex", "count"]
        attributes = [{"name": name, "size": 2 + i} for i, name in enumerate(names)]
        name = people(service, counts=np.full((2, 3, 4), 100), attributes=attributes)
        id = open_session(analyst, name)["id"]
        reply = analyst.get(f"/v1/sessions/{id}/hypothesis", headers={"Accept": ARROW})
        table = read_arrow(reply.content)
        assert table.column_names == [*names, "count__"]
        assert table["count_"].to_pylist() == [0] * 12 + [1] * 12
        assert set(table["count__"].to_pylist()) == {100.0}

    def test_of_a_graph(self, service: Service, analyst: httpx.Client) -> None:
        """An undirected hypothesis of Frieze and Kannan is symmetric, its diagonal no part of it. Catches half of a
        symmetric matrix shown as the whole.
        """
        name = unique("graph")
        spec = {"name": name, "kind": "graph", "nodes": 40, "budget": {"epsilon": 50.0, "delta": 1e-6}}
        whole = np.ones((40, 40)) - np.eye(40)
        assert register(service.admin, spec, npy(whole), "g.npy").status_code == 201
        id = open_session(analyst, name, mechanism={"construction": "fk"}, epsilon=50.0, max_updates=1)["id"]
        assert ask(analyst, id, {"type": "cut", "left": "all", "right": "all"})["value"] == 780
        array = np.load(io.BytesIO(analyst.get(f"/v1/sessions/{id}/hypothesis").content))
        assert np.array_equal(array, array.T)
        assert not np.diagonal(array).any()
        assert array.sum() / 2 > 0


def read_arrow(body: bytes) -> pa.Table:
    with pa.ipc.open_stream(body) as reader:
        return reader.read_all()
