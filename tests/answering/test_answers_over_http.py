"""Answers: where they come from, what they say, every form of query, batches, exhaustion."""

from __future__ import annotations

import itertools
import json
from typing import Any, ClassVar

import httpx
import numpy as np
import pyarrow as pa
import pytest

from app.audit.replay import replay
from tests.kit.forger import resealed
from tests.kit.noise import Noise
from tests.kit.service import (
    ARROW,
    COUNTS,
    JSON,
    NPY,
    PEOPLE,
    Service,
    arrow,
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
from tests.sessions.test_sessions import read_chain

pytestmark = pytest.mark.api

FEMALE, MALE = where(sex={"equals": "female"}), where(sex={"equals": "male"})
YOUNG, OLD = where(age={"between": [0, 20]}), where(age={"between": [60, 80]})
FIELDS = {
    "sequence",
    "value",
    "source",
    "error_bound",
    "beta",
    "standard_error",
    "interval",
    "interval_kind",
    "confidence",
    "charged_epsilon",
    "updates_used",
    "updates_left",
    "queries_left",
    "entry_hash",
}


@pytest.fixture(scope="module")
def analyst(service: Service) -> httpx.Client:
    return service.principal("analyst")


@pytest.fixture
def session(service: Service, analyst: httpx.Client) -> JSON:
    return open_session(analyst, people(service))


def post(client: httpx.Client, id: str, body: bytes, media_type: str, **parameters: Any) -> httpx.Response:
    return client.post(
        f"/v1/sessions/{id}/queries", content=body, headers={"Content-Type": media_type}, params=parameters
    )


class TestAnswer:
    def test_a_measurement(self, analyst: httpx.Client, session: JSON) -> None:
        """10,000 women where the uniform hypothesis has 7,500: a hit, released with noise 0. Catches a renamed field,
        a counter off by one, the hypothesis' value released on a hit.
        """
        answer = ask(analyst, session["id"], FEMALE)
        assert set(answer) == FIELDS
        assert (answer["sequence"], answer["value"], answer["source"]) == (1, 10000.0, "measurement")
        assert (answer["updates_used"], answer["updates_left"], answer["queries_left"]) == (1, 9, 99)
        assert (answer["error_bound"], answer["beta"]) == (session["plan"]["error_bound"], 0.05)
        charged = float(session["plan"]["epsilon"]) * float(session["plan"]["cost_per_update"])
        assert answer["charged_epsilon"] == pytest.approx(charged / float(session["plan"]["reserved"]), rel=1e-12)
        assert answer["standard_error"] is None

    def test_a_hypothesis_answer(self, analyst: httpx.Client, session: JSON) -> None:
        """All 15,000 are what the hypothesis has: a miss, free. And within the threshold the hypothesis' value is
        released, not the noisy one: cells (male, 60 to 80) weighted down so that the gap is small.
        """
        answer = ask(analyst, session["id"], where())
        assert set(answer) == FIELDS
        assert (answer["value"], answer["source"], answer["updates_used"]) == (15000.0, "hypothesis", 0)
        # 0.25 * (500 - 1875) is a gap of 344, below the threshold of 617.
        query = {"type": "sparse", "indices": [[1, 3]], "weights": [0.25]}
        answer = ask(analyst, session["id"], query)
        assert (answer["value"], answer["source"]) == (1875 / 4, "hypothesis")
        assert (answer["updates_left"], answer["queries_left"]) == (10, 98)

    def test_noise_decides(self, service: Service, noise: Noise, analyst: httpx.Client) -> None:
        """The same query with noise that passes the threshold, and with noise that falls just short of it: T + 1 and
        T grid units. Catches a comparison with the rounded or the true value, and >= in place of >.
        """
        opened = open_session(analyst, people(service))
        threshold = round(opened["plan"]["threshold"] / opened["plan"]["answer_grid"])
        try:
            noise.draw = lambda _scale: threshold
            assert ask(analyst, opened["id"], where())["source"] == "hypothesis"
            noise.draw = lambda _scale: -threshold - 1
            answer = ask(analyst, opened["id"], where(age={"between": [0, 80]}, sex={"in": ["male", "female"]}))
            assert answer["source"] == "cached"  # it is the same query, spelled otherwise
            query = {"type": "dense", "weights": [0.5] * 8}
            answer = ask(analyst, opened["id"], query)
        finally:
            noise.draw = lambda _scale: 0
        assert answer["source"] == "measurement"
        assert answer["value"] == 7500 - (threshold + 1) * opened["plan"]["answer_grid"]

    def test_an_answer_of_zero_is_free_of_doubt(self, service: Service, analyst: httpx.Client) -> None:
        """A query whose weights are all zero, and an empty side of a cut: 0 whatever the data, and no round. Catches a
        round played, and charged, for what everybody knows.
        """
        name = unique("graph")
        spec = {"name": name, "kind": "graph", "nodes": 4, "budget": {"epsilon": 1.0, "delta": 1e-6}}
        register(service.admin, spec, b"0 1\n1 2\n", "g.txt")
        id = open_session(analyst, name, mechanism={"construction": "fk"})["id"]
        for query in (
            {"type": "cut", "left": [], "right": "all"},
            {"type": "cut", "left": [2], "right": [2]},
            {"type": "rank_one", "left": [0, 0, 0, 0], "right": [1, 1, 1, 1]},
        ):
            answer = ask(analyst, id, query)
            assert (answer["value"], answer["error_bound"]) == (0.0, 0.0)
            assert answer["source"] in ("hypothesis", "cached")


class TestQueries:
    @pytest.mark.parametrize(
        ("query", "weights"),
        [
            (FEMALE, [[1, 1, 1, 1], [0, 0, 0, 0]]),
            (where(sex={"in": ["male", "male"]}), [[0, 0, 0, 0], [1, 1, 1, 1]]),
            (where(age={"between": [20, 60]}, sex={"equals": "male"}), [[0, 0, 0, 0], [0, 1, 1, 0]]),
            ({"type": "product", "weights": {"age": [1, 0.5, -0.5, -1]}}, [[1, 0.5, -0.5, -1]] * 2),
            (
                {"type": "product", "weights": {"age": [1, 0.5, -0.5, -1], "sex": [-1, 0.25]}},
                [[-1, -0.5, 0.5, 1], [0.25, 0.125, -0.125, -0.25]],
            ),
            ({"type": "sparse", "indices": [5, 0], "weights": [0.5, 1]}, [[1, 0, 0, 0], [0, 0.5 + 0, 0, 0]]),
            ({"type": "sparse", "indices": [[1, 1], [0, 0]], "weights": [0.5, 1]}, [[1, 0, 0, 0], [0, 0.5, 0, 0]]),
            ({"type": "dense", "weights": [1, 0, 0, 0, 0, 0, 0, -1]}, [[1, 0, 0, 0], [0, 0, 0, -1]]),
            ({"type": "dense", "weights": [[0, 1, 0, 1], [1, 0, 0.5, 0]]}, [[0, 1, 0, 1], [1, 0, 0.5, 0]]),
        ],
    )
    def test_every_form(
        self, service: Service, noise: Noise, analyst: httpx.Client, query: JSON, weights: list[list[float]]
    ) -> None:
        """The released value against the sum of weight times count, by noise so large that every round is a hit.
        Catches weights put on the wrong axis or cell.
        """
        opened = open_session(analyst, people(service))
        noise.draw = lambda _scale: 2**45
        try:
            answer = ask(analyst, opened["id"], query)
        finally:
            noise.draw = lambda _scale: 0
        value = answer["value"] - 2**45 * opened["plan"]["answer_grid"]
        assert value == (np.array(weights) * COUNTS).sum()
        assert answer["source"] == "measurement"

    @pytest.mark.parametrize("shape", [(8,), (2, 4)])
    @pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", "<f2", "<i4", "|i1", "fortran", "arrow", "arrow-int8"])
    def test_arrays_as_bodies(self, analyst: httpx.Client, session: JSON, kind: str, shape: tuple[int, ...]) -> None:
        """An .npy or Arrow body is the dense query of the same weights in JSON: it comes back cached. Catches an array
        read in another order, byte order or type, and one that has an identity of its own.
        """
        weights = np.array([1, 0, -1, 1, 0, 0, 1, -1], dtype="f8")
        first = ask(analyst, session["id"], {"type": "dense", "weights": weights.tolist()})
        if kind.startswith("arrow"):
            # An Arrow column is flat.
            column = pa.array(weights.astype("i1") if kind == "arrow-int8" else weights)
            reply = post(analyst, session["id"], arrow(column), ARROW)
        else:
            array = weights.reshape(shape)
            array = np.asfortranarray(array) if kind == "fortran" else array.astype(kind)
            reply = post(analyst, session["id"], npy(array), NPY)
        assert reply.status_code == 200, reply.text
        assert reply.json()["source"] == "cached"
        assert reply.json()["value"] == first["value"]

    def test_an_array_may_be_asked_unverified(self, analyst: httpx.Client, session: JSON) -> None:
        """Catches the one word of a query that an array cannot carry ignored where it stands in the address."""
        reply = post(analyst, session["id"], npy(np.ones(8)), NPY, unverified="true")
        assert reply.json()["error_bound"] is None
        assert reply.json()["queries_left"] == 100

    def test_words_of_an_array_stand_in_the_address(self, analyst: httpx.Client, session: JSON) -> None:
        """Catches one that is not checked there, and one that is ignored where a query of JSON has it there."""
        for words in ({"within": "0"}, {"within": "nan"}, {"within": "x"}, {"confidence": "1"}, {"adaptive": "maybe"}):
            assert post(analyst, session["id"], npy(np.ones(8)), NPY, **words).status_code == 422, words
            address = f"/v1/sessions/{session['id']}/queries"
            assert analyst.post(address, json=FEMALE, params=words).status_code == 422, words
        words = {"confidence": "0.9", "adaptive": "false"}
        # A mechanism that tests knows of no interval.
        refused(post(analyst, session["id"], npy(np.ones(8)), NPY, **words, within="1e6"), "plan-infeasible")
        assert post(analyst, session["id"], npy(np.ones(8)), NPY, **words).status_code == 200

    def test_an_array_in_many_batches(self, analyst: httpx.Client, session: JSON) -> None:
        """Catches an Arrow stream of which only the first batch is read."""
        table = pa.table({"w": pa.chunked_array([[0.5] * 3, [0.25] * 5])})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        reply = post(analyst, session["id"], sink.getvalue().to_pybytes(), ARROW)
        again = ask(analyst, session["id"], {"type": "dense", "weights": [0.5] * 3 + [0.25] * 5})
        assert reply.json()["value"] == again["value"]
        assert again["source"] == "cached"


class TestCached:
    def test_equal_weights_however_spelled(self, analyst: httpx.Client, session: JSON) -> None:
        """The first value and bound come back; nothing is counted or charged, but it is an entry. Catches a second
        round for the same question, which would average the noise away.
        """
        first = ask(analyst, session["id"], FEMALE)
        before = analyst.get(f"/v1/sessions/{session['id']}").json()
        spellings = [
            FEMALE,
            where(sex={"in": ["female"]}),
            {"type": "product", "weights": {"sex": [1.0, 0]}},
            {"type": "dense", "weights": [1, 1, 1, 1, 0, 0, 0, 0]},
            {"type": "dense", "weights": [[1] * 4, [0] * 4]},
            {"type": "sparse", "indices": [3, 2, 1, 0, 7], "weights": [1, 1, 1, 1, 0]},
            where(sex={"equals": "female"}, age={"between": [0, 80]}),
        ]
        for number, query in enumerate(spellings, start=2):
            answer = ask(analyst, session["id"], query)
            assert answer["source"] == "cached"
            assert answer["sequence"] == number
            for name in ("value", "error_bound", "updates_used", "updates_left", "queries_left"):
                assert answer[name] == first[name]
        after = analyst.get(f"/v1/sessions/{session['id']}").json()
        for name in ("spent", "reserved", "queries_asked", "updates_used"):
            assert after[name] == before[name]
        entries = read_chain(analyst.get(f"/v1/sessions/{session['id']}/transcript").content)[1]
        assert [entry["source"] for entry in entries] == ["measurement"] + ["cached"] * len(spellings)

    def test_not_across_sessions(self, service: Service, analyst: httpx.Client) -> None:
        """Catches a cache that is the data set's: what another session was told would come out of its budget."""
        dataset = people(service)
        ids = [open_session(analyst, dataset, epsilon=0.3)["id"] for _ in range(2)]
        assert [ask(analyst, id, FEMALE)["source"] for id in ids] == ["measurement", "measurement"]


class TestUnverified:
    def test_the_hypothesis_answers_without_a_bound(self, analyst: httpx.Client, session: JSON) -> None:
        """Recorded, never cached, never counted: the verified answer afterwards is a round of its own. Catches an
        unverified value given back as a verified one.
        """
        first = ask(analyst, session["id"], {**FEMALE, "unverified": True})
        assert (first["value"], first["source"], first["error_bound"]) == (7500.0, "hypothesis", None)
        assert (first["sequence"], first["queries_left"], first["updates_left"]) == (1, 100, 10)
        verified = ask(analyst, session["id"], FEMALE)
        assert (verified["value"], verified["source"], verified["sequence"]) == (10000.0, "measurement", 2)
        again = ask(analyst, session["id"], {**FEMALE, "unverified": True})
        # Now the hypothesis knows: the projection leaves it within L of what was released.
        assert again["source"] == "hypothesis"
        assert again["value"] == pytest.approx(10000 - session["plan"]["noise_bound"], abs=0.01)
        entries = read_chain(analyst.get(f"/v1/sessions/{session['id']}/transcript").content)[1]
        assert [entry["value"] for entry in entries] == [7500, 10000, again["value"]]

    def test_false_is_the_default(self, analyst: httpx.Client, session: JSON) -> None:
        """Catches a flag whose presence counts."""
        assert ask(analyst, session["id"], {**FEMALE, "unverified": False})["source"] == "measurement"


class TestExhaustion:
    def test_best_effort(self, service: Service, analyst: httpx.Client) -> None:
        """After the last update: new questions are refused, old ones and unverified ones answered, nothing is closed.
        Catches an answer with a bound that the spent noise no longer keeps.
        """
        id = open_session(analyst, people(service), max_updates=1)["id"]
        first = ask(analyst, id, FEMALE)
        assert (first["source"], first["updates_left"]) == ("measurement", 0)
        for query in (MALE, OLD):
            problem = refused(analyst.post(f"/v1/sessions/{id}/queries", json=query), "updates-exhausted")
            assert "unverified" in problem["detail"]
        again = ask(analyst, id, FEMALE)
        assert (again["source"], again["value"], again["error_bound"]) == ("cached", 10000.0, first["error_bound"])
        assert ask(analyst, id, {**MALE, "unverified": True})["error_bound"] is None
        state = analyst.get(f"/v1/sessions/{id}").json()
        assert (state["status"], state["queries_asked"]) == ("open", 1)
        assert analyst.post(f"/v1/sessions/{id}/close").status_code == 200

    def test_guaranteed(self, service: Service, noise: Noise, analyst: httpx.Client) -> None:
        """A guaranteed plan of few updates, all made to happen by noise: from then on the hypothesis answers with its
        bound, charging nothing. Catches a guaranteed session refused like a best-effort one, or a round played with
        no update left to pay for its hit.
        """
        dataset = people(service, budget={"epsilon": 2.0, "delta": 1e-6})
        words = session_words(dataset, max_updates=None)
        plans = (analyst.post("/v1/plans", json={**words, "epsilon": 0.005 * 0.7**power}).json() for power in range(20))
        plan = next(p for p in plans if p.get("max_updates", 10**9) <= 25)
        assert plan["guaranteed"] is True
        opened = open_session(analyst, dataset, max_updates=None, epsilon=plan["epsilon"])
        id, updates = opened["id"], opened["plan"]["max_updates"]
        signs = itertools.cycle([2**45, -(2**45)])
        noise.draw = lambda _scale: next(signs)
        try:
            for number in range(updates):
                query = {"type": "dense", "weights": [1, 0, 0.5, 0, (number + 1) / 64, 0, 0.25, 0]}
                assert ask(analyst, id, query)["source"] == "measurement"
            spent = analyst.get(f"/v1/sessions/{id}").json()["spent"]
            for query in (FEMALE, OLD):
                answer = ask(analyst, id, query)
                assert (answer["source"], answer["updates_left"]) == ("hypothesis", 0)
                assert answer["error_bound"] == pytest.approx(plan["error_bound"])
        finally:
            noise.draw = lambda _scale: 0
        state = analyst.get(f"/v1/sessions/{id}").json()
        assert (state["spent"], state["updates_used"]) == (spent, updates)
        assert state["queries_asked"] == updates + 2

    def test_queries(self, service: Service, analyst: httpx.Client) -> None:
        """After the last query: cached and unverified answers only. Catches an error bound given for one query more
        than the noise was planned for.
        """
        id = open_session(analyst, people(service), max_queries=2)["id"]
        ask(analyst, id, FEMALE)
        assert ask(analyst, id, OLD)["queries_left"] == 0
        refused(analyst.post(f"/v1/sessions/{id}/queries", json=MALE), "queries-exhausted")
        assert ask(analyst, id, OLD)["source"] == "cached"
        assert ask(analyst, id, {**MALE, "unverified": True})["source"] == "hypothesis"


class TestBatch:
    #: Answers of every source, and failures of two kinds, in one row.
    QUERIES: tuple[Any, ...] = (
        FEMALE,
        where(shoes={"equals": 1}),
        FEMALE,
        {**MALE, "unverified": True},
        where(),
        [1, 2],
        {"type": "sparse", "indices": [], "weights": []},
        OLD,
        MALE,
        {"type": "dense", "weights": [0.5, 0.25, 1, 0, 1, -1, -0.5, 1]},
        YOUNG,
        FEMALE,
    )

    def test_a_batch_is_its_queries_one_by_one(self, service: Service, analyst: httpx.Client) -> None:
        """Two sessions alike, one asked one by one, one in a batch: the same values, sequences, sources and counters, a
        refusal in its place with the very document that a single query gets; best effort, so that the last are
        refused for want of updates. Both chains hold. Catches an order that is not the queries', a failure that
        ends or undoes the batch, a counter that a failure moves.
        """
        dataset = people(service)
        singles, batch = (open_session(analyst, dataset, epsilon=0.3, max_updates=2)["id"] for _ in range(2))
        one_by_one = [analyst.post(f"/v1/sessions/{singles}/queries", json=query) for query in self.QUERIES]
        reply = analyst.post(f"/v1/sessions/{batch}/queries/batch", json={"queries": self.QUERIES})
        assert reply.status_code == 200
        assert set(reply.json()) == {"answers"}
        answers = reply.json()["answers"]
        assert len(answers) == len(self.QUERIES)
        for alone, within in zip(one_by_one, answers, strict=True):
            if alone.status_code == 200:
                assert _but_hash(alone.json()) == _but_hash(within)
            else:
                assert within == alone.json()
                assert within["type"].startswith("/problems/")
        problems = [a["type"].removeprefix("/problems/") for a in answers if "type" in a]
        assert problems[:2] == ["invalid-query", "invalid-query"]
        assert "updates-exhausted" in problems

        states = [analyst.get(f"/v1/sessions/{id}").json() for id in (singles, batch)]
        for name in ("queries_asked", "updates_used", "spent", "reserved", "sequence"):
            assert states[0][name] == states[1][name]
        chains = [read_chain(analyst.get(f"/v1/sessions/{id}/transcript").content) for id in (singles, batch)]
        for one, other in zip(chains[0][1], chains[1][1], strict=True):
            for name in ("query", "value", "source", "error_bound", "sequence"):
                assert one[name] == other[name]
        assert chains[0][2]["hypothesis_digest"] == chains[1][2]["hypothesis_digest"]

    def test_all_may_fail(self, analyst: httpx.Client, session: JSON) -> None:
        """Catches a batch without an answer taken for an error of the whole, or committed as something."""
        reply = analyst.post(f"/v1/sessions/{session['id']}/queries/batch", json={"queries": [1, "x", {}]})
        assert reply.status_code == 200
        assert [a["type"] for a in reply.json()["answers"]] == ["/problems/invalid-query"] * 3
        assert analyst.get(f"/v1/sessions/{session['id']}").json()["head_hash"] == session["head_hash"]

    @pytest.mark.parametrize("body", [{}, {"queries": []}, {"queries": {}}, {"queries": [FEMALE], "more": 1}, [FEMALE]])
    def test_what_is_no_batch(self, analyst: httpx.Client, session: JSON, body: Any) -> None:
        """Catches an empty batch answered, and unknown fields ignored."""
        refused(analyst.post(f"/v1/sessions/{session['id']}/queries/batch", json=body), "invalid-request")

    def test_too_many(self, analyst: httpx.Client, session: JSON) -> None:
        """Catches a batch that holds the lane for as long as its sender likes."""
        body = json.dumps({"queries": [0] * 10_001})
        reply = analyst.post(
            f"/v1/sessions/{session['id']}/queries/batch", content=body, headers={"Content-Type": "application/json"}
        )
        assert "10,000" in refused(reply, "invalid-request")["detail"]


def _but_hash(answer: JSON) -> JSON:
    return {name: value for name, value in answer.items() if name != "entry_hash"}


class TestTheWordsOfAQuestion:
    """A transcript has each question as it was asked, so that people can read it."""

    ASKED: ClassVar[list[JSON]] = [
        {"type": "predicate", "where": {"age": {"ge": 20, "lt": 60}, "sex": "female"}},
        {"type": "predicate", "where": {"sex": ["female"], "age": {"between": [20.0, 60.0]}}},
        {"type": "predicate", "where": {"any": [{"sex": "male"}, {"not": {"age": {"ge": 20}}}]}},
        {"type": "marginal", "attributes": ["age", "sex"], "bins": {"age": [0, 40, 80]}},
        {"type": "product", "weights": {"sex": [1.0, 0.00001]}},
        {"type": "dense", "weights": [0.25] * 8},
    ]
    WANTED: ClassVar[JSON] = {"confidence": 0.9, "adaptive": True}

    def test_each_answer_has_its_own(self, service: Service, analyst: httpx.Client) -> None:
        """Catches words that are lost, those of the first question beside a cached answer, what was wanted among them,
        a batch that keeps none, and words that a replay does not find to be the question."""
        id = open_session(analyst, people(service), mechanism={"construction": "laplace"}, max_updates=None)["id"]
        for words in self.ASKED[:3]:
            ask(analyst, id, words | self.WANTED)
        batch = analyst.post(
            f"/v1/sessions/{id}/queries/batch", json={"queries": [w | self.WANTED for w in self.ASKED[3:]]}
        )
        assert batch.status_code == 200, batch.text
        content = analyst.get(f"/v1/sessions/{id}/transcript").content
        entries = read_chain(content)[1]
        assert [entry["asked"] for entry in entries] == self.ASKED
        assert entries[1]["source"] == "cached"
        assert entries[1]["query"] == entries[0]["query"]
        verdict = replay(content.splitlines())
        assert verdict.ok, verdict

    def test_arrays_and_long_ones_have_none(self, service: Service, analyst: httpx.Client) -> None:
        """Catches a transcript that keeps megabytes twice."""
        id = open_session(analyst, people(service), mechanism={"construction": "laplace"}, max_updates=None)["id"]
        long = where(sex={"in": ["female"] * 10_000})
        assert len(json.dumps(long)) > 64 * 1024
        ask(analyst, id, long)
        body = npy(np.full(8, 0.5))
        reply = analyst.post(f"/v1/sessions/{id}/queries", content=body, headers={"Content-Type": NPY})
        assert reply.status_code == 200
        content = analyst.get(f"/v1/sessions/{id}/transcript").content
        assert ["asked" in entry for entry in read_chain(content)[1]] == [False, False]
        assert replay(content.splitlines()).ok

    def test_of_a_long_axis(self, service: Service, analyst: httpx.Client) -> None:
        """Catches a replay that makes two billion values because a file of a kilobyte says so, and one that calls an
        honest question about one of them too large."""
        spec = PEOPLE | {"name": unique("long"), "attributes": [{"name": "x", "size": 2**31 - 1}]}
        assert register(service.admin, spec, b"x\n5\n7\n", "x.csv").status_code == 201
        words = session_words(spec["name"], mechanism={"construction": "laplace"})
        del words["max_updates"]
        id = analyst.post("/v1/sessions", json=words).json()["id"]
        ask(analyst, id, where(x=5))
        lines = analyst.get(f"/v1/sessions/{id}/transcript").content.splitlines()
        assert replay(lines).ok
        documents = [json.loads(line) for line in lines]
        documents[1]["asked"] = where(x={"ge": 5})
        verdict = replay(resealed(documents))
        assert not verdict.ok
        assert "does not compile to the recorded query" in str(verdict.problem)
