"""Blocks and degrees of graphs through the whole service: one charge, as JSON and as a table, refused in words."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from app.verifying.transcript import replay_file
from tests.kit.noise import Noise
from tests.kit.service import JSON, Service, ask, npy, open_session, refused, register, unique

pytestmark = pytest.mark.api

ARROW = "application/vnd.apache.arrow.stream"
BUDGET = {"epsilon": 1.0, "delta": 1e-9}
EDGES = b"0 1\n1 2\n0 3\n3 4\n4 2\n1 0\n"
#: Of each kind its declaration and data, questions, and the axes and numbers of their answers.
KINDS: dict[str, tuple[JSON, bytes, str, JSON, list[list[Any]], list[float]]] = {
    "undirected": (
        {"kind": "graph", "nodes": 6},
        EDGES,
        "g.txt",
        {"left": {"red": [4, 3], "blue": [0, 1]}},
        [["red", "blue"], ["red", "blue"]],
        [1, 1, 1, 1],
    ),
    "directed": (
        {"kind": "graph", "nodes": 6, "directed": True},
        EDGES,
        "g.txt",
        {"left": {"red": [4, 3], "blue": [0, 1]}, "right": {"rest": [2, 5], "own": [0, 1, 3, 4]}},
        [["red", "blue"], ["rest", "own"]],
        [1, 1, 1, 3],
    ),
    "labelled": (
        {"kind": "graph", "nodes": 3, "labels": ["ann", "ben", "7"]},
        b"ann,ben\nben,7\n",
        "g.csv",
        {"left": {"z": ["ben"], "a": ["7", "ann"]}},
        [["z", "a"], ["z", "a"]],
        [0, 2, 2, 0],
    ),
    "weighted": (
        {"kind": "graph", "nodes": 4, "directed": True, "weighted": True, "grid": 0.25},
        b"0,1,0.25\n1,2,0.5\n3,0,1\n",
        "g.csv",
        {"left": {"a": [0, 1], "b": [3]}, "right": {"c": [0, 1], "d": [2]}},
        [["a", "b"], ["c", "d"]],
        [0.25, 0.5, 1, 0],
    ),
    "bipartite": (
        {"kind": "bipartite", "left": 2, "right": 3},
        b"0 0\n0 2\n1 2\n",
        "b.txt",
        {"left": {"a": [1], "b": [0]}, "right": {"b": [2], "a": [0, 1]}, "only": "within"},
        [["a", "b"]],
        [0, 1],
    ),
    "matrix": (
        {"kind": "matrix", "rows": 2, "columns": 2, "lower": -1, "upper": 1},
        npy(np.array([[1, -0.5], [0.25, 0]])),
        "m.npy",
        {"left": {"both": [0, 1]}, "right": {"y": [1], "x": [0]}},
        [["both"], ["y", "x"]],
        [-0.5, 1.25],
    ),
}
FRIENDS = KINDS["undirected"]
QUESTION = {"type": "blocks", **FRIENDS[3]}


@pytest.fixture(scope="module")
def analyst(service: Service) -> httpx.Client:
    return service.principal("analyst")


def opened(service: Service, analyst: httpx.Client, kind: str = "undirected", law: str = "gaussian") -> JSON:
    spec, data, filename = KINDS[kind][:3]
    name = unique("blocks")
    reply = register(service.admin, {**spec, "name": name, "budget": BUDGET}, data, filename)
    assert reply.status_code == 201, reply.text
    asked = {"mechanism": {"construction": law}, "epsilon": 0.5, "max_queries": 4, "max_updates": None}
    return open_session(analyst, name, **asked)


@pytest.fixture
def session(service: Service, analyst: httpx.Client, noise: Noise) -> JSON:
    return opened(service, analyst)


def replayed(analyst: httpx.Client, id: str, folder: Path) -> JSON:
    path = folder / "transcript.ndjson"
    path.write_bytes(analyst.get(f"/v1/sessions/{id}/transcript").content)
    verdict = replay_file(path)
    assert verdict.ok, verdict.problem
    return verdict.summary


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_graph(
    service: Service, analyst: httpx.Client, noise: Noise, kind: str, law: str, tmp_path: Path
) -> None:
    """Without noise the numbers are the truth in the order asked; charged once, and free in any other order of groups
    and under other names; the transcript replays. Catches labels beside other groups' numbers and a charge a number.
    """
    id, words = opened(service, analyst, kind, law)["id"], KINDS[kind][3]
    first = ask(analyst, id, {"type": "blocks", **words})
    names = ["group"] if "only" in words else ["left", "right"]
    assert first["axes"] == [{"attribute": n, "labels": x} for n, x in zip(names, KINDS[kind][4], strict=True)]
    assert first["values"] == KINDS[kind][5]
    assert (first["sequence"], first["source"], first["queries_left"]) == (1, "measurement", 3)
    assert first["charged_epsilon"] == pytest.approx(0.5 / 4, rel=1e-9)
    assert len(first["standard_errors"]) == len(first["intervals"]) == len(first["values"])
    other = {
        side: {f"x{name}": words[side][name] for name in reversed(words[side])} for side in words if side != "only"
    }
    again = ask(analyst, id, {"type": "blocks", **words, **other})
    assert [axis["labels"] for axis in again["axes"]] == [[f"x{x}" for x in axis[::-1]] for axis in KINDS[kind][4]]
    assert again["values"] == first["values"][::-1]
    assert (again["source"], again["charged_epsilon"], again["queries_left"]) == ("cached", 0, 3)
    summary = replayed(analyst, id, tmp_path)
    assert (summary["entries"], summary["updates"]) == (2, 1)


def test_every_number_has_noise_of_its_own(
    service: Service, analyst: httpx.Client, noise: Noise, session: JSON, tmp_path: Path
) -> None:
    """And one alone: of an undirected graph both places of a pair of groups show the same. Catches noise that is drawn
    twice for a number, whose mean would be worth more than was paid, and one draw for all.
    """
    id, unit = session["id"], session["plan"]["answer_grid"]
    drawn = itertools.count(1)
    noise.draw = lambda _scale: next(drawn)
    try:
        answer = ask(analyst, id, QUESTION)
    finally:
        noise.draw = lambda _scale: 0
    off = [round((value - truth) / unit) for value, truth in zip(answer["values"], FRIENDS[5], strict=True)]
    assert off[1] == off[2]
    assert sorted({*off}) == [1, 2, 3]
    replayed(analyst, id, tmp_path)


def test_as_a_table(analyst: httpx.Client, session: JSON) -> None:
    """A column a side and the numbers of the JSON beside them. Catches a form that is refused as no table."""
    path = f"/v1/sessions/{session['id']}/queries"
    reply = analyst.post(path, json=QUESTION, headers={"Accept": ARROW})
    assert reply.status_code == 200, reply.text
    found = pa.ipc.open_stream(reply.content).read_all()
    assert found.column_names == ["left", "right", "value", "standard_error", "low", "high"]
    pairs = list(zip(found["left"].to_pylist(), found["right"].to_pylist(), strict=True))
    assert pairs == [("red", "red"), ("red", "blue"), ("blue", "red"), ("blue", "blue")]
    answer = ask(analyst, session["id"], QUESTION)
    assert found["value"].to_pylist() == answer["values"] == FRIENDS[5]
    assert json.loads(found.schema.metadata[b"curator"])["source"] == "measurement"


def test_nothing_within_single_nodes(analyst: httpx.Client, session: JSON, tmp_path: Path) -> None:
    """An answer of zeros that costs nothing, as nothing was asked of the data."""
    words = {"type": "blocks", "left": {"a": [0], "b": [1]}, "only": "within"}
    answer = ask(analyst, session["id"], words)
    assert (answer["values"], answer["charged_epsilon"], answer["source"]) == ([0, 0], 0, "hypothesis")
    replayed(analyst, session["id"], tmp_path)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"left": {"a": [0, 1], "b": [1]}}, "node 1 is in another group"),
        ({"left": {"a": [0], "b": [6]}}, "left.b: nodes are the integers 0..5"),
        ({"left": {"a": [0], "b": []}}, "left.b: must not be empty"),
        ({"left": {}}, "left: must not be empty"),
        ({}, "left: must be given"),
        ({"left": {"a": [0]}}, "ask for a single sum with a cut"),
        ({"left": {"a": [0], "b": [1]}, "right": {"a": [0], "b": [2]}}, "the same groups as left"),
        ({"left": {"a": [0], "b": [1]}, "unverified": True}, "keeps no hypothesis"),
    ],
)
def test_what_is_refused(analyst: httpx.Client, session: JSON, words: JSON, says: str) -> None:
    """With what to change, before anything is drawn."""
    problem = analyst.post(f"/v1/sessions/{session['id']}/queries", json={"type": "blocks", **words})
    assert problem.status_code == 422, problem.text
    assert says in problem.json()["detail"]
    assert analyst.get(f"/v1/sessions/{session['id']}").json()["sequence"] == 0


def test_examples_are_answered_from_evidence(
    service: Service, analyst: httpx.Client, noise: Noise, root: Path, tmp_path: Path
) -> None:
    """Sessions that name no mechanism answer all that docs/asking.md asks of graphs and matrices, but for weights on
    single cells, and their transcripts replay. Catches a question that evidence refuses though readers are told of it.
    """
    data = {"graph": (EDGES, "g.txt"), "matrix": (npy(np.array([[1.0, 2.0, 5.0], [0.0, 3.0, 4.0]])), "m.npy")}
    id, asked = "", []
    for block in re.findall(r"^```json\n(.*?)^```$", (root / "docs" / "asking.md").read_text(), re.M | re.S):
        words = json.loads(block)
        if "kind" in words:
            id = ""
            if words["kind"] in data:
                name = unique("documented")
                reply = register(service.admin, {**words, "name": name}, *data[words["kind"]])
                assert reply.status_code == 201, reply.text
                reply = analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 1.0})
                assert reply.status_code == 201, reply.text
                id = reply.json()["id"]
                assert reply.json()["mechanism"]["construction"] == "evidence"
        elif id and words["type"] in ("sparse", "dense"):
            problem = refused(analyst.post(f"/v1/sessions/{id}/queries", json=words), "invalid-query")
            assert "not answered from evidence" in problem["detail"]
        elif id:
            answer = ask(analyst, id, words)
            assert None not in answer.get("intervals", [answer.get("interval")])
            asked.append(words["type"])
            replayed(analyst, id, tmp_path)
    assert {*asked} == {"cut", "rank_one", "blocks", "degrees"}


def test_degrees_want_other_sessions(analyst: httpx.Client, session: JSON) -> None:
    """An edge moves more than one of their numbers: sessions whose noise was made for sums say which serve. Catches
    degrees that are answered with half of the noise that they take.
    """
    path = f"/v1/sessions/{session['id']}/queries"
    problem = refused(analyst.post(path, json={"type": "degrees", "bins": [0, 1, 2]}), "invalid-query")
    assert "evidence" in problem["detail"]
    assert analyst.get(f"/v1/sessions/{session['id']}").json()["sequence"] == 0


@pytest.mark.parametrize("words", [QUESTION, {"type": "degrees"}])
def test_constructions_answer_one_sum_at_a_time(
    service: Service, analyst: httpx.Client, noise: Noise, words: JSON
) -> None:
    """They refuse many at once with the mechanisms that take them."""
    spec, data, filename = FRIENDS[:3]
    name = unique("blocks")
    assert register(service.admin, {**spec, "name": name, "budget": BUDGET}, data, filename).status_code == 201
    session = open_session(analyst, name, mechanism={"construction": "fk"}, epsilon=0.5, max_queries=4, max_updates=2)
    problem = refused(analyst.post(f"/v1/sessions/{session['id']}/queries", json=words), "invalid-query")
    assert "session" in problem["detail"]


def test_tables_have_none(service: Service, analyst: httpx.Client) -> None:
    name = unique("blocks")
    spec = {"kind": "table", "attributes": [{"name": "a", "size": 2}], "records_public": True}
    reply = register(service.admin, {**spec, "name": name, "budget": BUDGET}, npy(np.ones(2, int)), "t.npy")
    assert reply.status_code == 201
    session = open_session(analyst, name, mechanism={"construction": "gaussian"}, epsilon=0.5, max_updates=None)
    problem = refused(analyst.post(f"/v1/sessions/{session['id']}/queries", json=QUESTION), "invalid-query")
    assert "does not fit a table" in problem["detail"]
