"""Counts by a hierarchy through the whole service: declared, asked, paid once, adding up, recorded and replayed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from app.bootstrap.noise import SystemNoise
from app.verifying.transcript import replay_file
from curator_client import Curator, Table, question
from tests.kit.service import ARROW, JSON, Service, ask, refused, register, serving, unique

pytestmark = pytest.mark.api

LEVELS = {"south": {"hills": ["e", "d"], "coast": ["c"]}, "north": ["a", "b"], "isles": {"far": {"rocks": ["f", "g"]}}}
PLACES = ["a", "b", "c", "d", "e", "f", "g"]
#: In the order of their first values, each group before its parts.
PATHS = [
    "north",
    "north/a",
    "north/b",
    "south",
    "south/coast",
    "south/coast/c",
    "south/hills",
    "south/hills/d",
    "south/hills/e",
    "isles",
    "isles/far",
    "isles/far/rocks",
    "isles/far/rocks/f",
    "isles/far/rocks/g",
    None,
]
WITHIN = ["ab", "a", "b", "cde", "c", "c", "de", "d", "e", "fg", "fg", "fg", "f", "g", "-"]
SPEC: JSON = {
    "kind": "table",
    "attributes": [
        {"name": "place", "values": PLACES, "levels": LEVELS, "missing": True},
        {"name": "sex", "values": ["female", "male", "other"]},
        {"name": "age", "size": 6},
        {"name": "job", "size": 4000},
        {"name": "code", "size": 300},
    ],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
}
RECORDS = 6000
ASKED: JSON = {"type": "hierarchy", "attribute": "place"}


def people() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    odds = np.array([6, 4, 3, 2, 9, 1, 1, 2.0])
    return {
        "place": rng.choice(np.array([*PLACES, ""]), RECORDS, p=odds / odds.sum()),
        "sex": rng.choice(np.array(["female", "male", "other"]), RECORDS, p=[0.5, 0.4, 0.1]),
        "age": rng.integers(0, 6, RECORDS).astype(str),
        "job": rng.integers(0, 4000, RECORDS).astype(str),
        "code": rng.integers(0, 300, RECORDS).astype(str),
    }


PEOPLE = people()
CSV = "\n".join([",".join(PEOPLE), *(",".join(row) for row in zip(*PEOPLE.values(), strict=True))]).encode()


def truth(kept: Any = True) -> list[float]:
    places = np.where(PEOPLE["place"] == "", "-", PEOPLE["place"])
    return [float((np.isin(places, list(within)) & kept).sum()) for within in WITHIN]


def adds_up(values: list[float]) -> None:
    """Exactly, not to a tolerance: answers lie on one grid, whose sums are floats without rounding."""
    found = dict(zip(PATHS, values, strict=True))
    for group in ("north", "south", "south/hills", "south/coast", "isles", "isles/far", "isles/far/rocks"):
        parts = [path for path in found if path is not None and path.rpartition("/")[0] == group]
        assert parts
        assert found[group] == sum(found[path] for path in parts), group


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with noise of its own."""
    with serving(tmp_path_factory.mktemp("hierarchies"), noise=SystemNoise()) as running:
        yield running


@pytest.fixture(scope="module")
def analyst(service: Service) -> httpx.Client:
    return service.principal("analyst")


@pytest.fixture(scope="module")
def auditor(service: Service) -> httpx.Client:
    return service.principal("auditor")


def opened(service: Service, analyst: httpx.Client, **words: Any) -> JSON:
    name = unique("places")
    # A table that is measured whole has few cells, and one with a hypothesis over all of them.
    kept = 3 if "mechanism" in words else len(PEOPLE)
    spec = {**SPEC, "name": name, "attributes": SPEC["attributes"][:kept]}
    rows = (",".join(line.split(",")[:kept]) for line in CSV.decode().splitlines())
    reply = register(service.admin, spec, "\n".join(rows).encode(), "places.csv")
    assert reply.status_code == 201, reply.text
    reply = analyst.post(
        "/v1/sessions", json={"dataset": name, "epsilon": 1.0, "mechanism": {"construction": "evidence"}, **words}
    )
    assert reply.status_code == 201, reply.text
    found: JSON = reply.json()
    return found


def replays(client: httpx.Client, id: str, folder: Path) -> list[JSON]:
    """The entries of a transcript, which an auditor replays without the data."""
    reply = client.get(f"/v1/sessions/{id}/transcript")
    path = folder / f"{id}.jsonl"
    path.write_bytes(reply.content)
    verdict = replay_file(path)
    assert verdict.ok, verdict
    return [json.loads(line) for line in reply.content.splitlines()]


#: Counts are told in steps that are no larger.
GRID = 1e-4


@pytest.mark.parametrize(
    "words",
    [
        {"max_queries": 400},
        {"max_queries": 3},
        {"max_queries": 2000, "epsilon": 0.5},
        {"within": 200.0},
        {"mechanism": {"construction": "histogram"}},
        {"contract": True, "max_queries": 50, "epsilon": 0.9},
    ],
    ids=["lift", "few", "many", "within", "histogram", "contract"],
)
def test_all_nodes_are_one_question(
    service: Service, analyst: httpx.Client, auditor: httpx.Client, words: JSON, tmp_path: Path
) -> None:
    """Nodes by the names that lead to them, counts that add up to the last digit, intervals around the truth, free when
    asked again; what was measured serves later questions; an auditor replays it. Catches nodes in the declaration's
    order of members, which a canonical record does not keep, and sums of rounded numbers."""
    session = opened(service, analyst, **words)
    answer = ask(analyst, session["id"], ASKED)
    assert answer["axes"] == [{"attribute": "place", "labels": PATHS}]
    adds_up(answer["values"])
    errors = np.array(answer["standard_errors"])
    assert (np.abs(np.array(answer["values"]) - truth()) <= 6 * errors + 1).all()
    # Of confidence .95 five of these would fail in one session of fifty: three nodes count the same records.
    wider = {"within": 1000.0} if "within" in words else {}
    sure = ask(analyst, session["id"], {**ASKED, "confidence": 1 - 1e-6, **wider})
    assert (sure["values"], sure["charged_epsilon"]) == (answer["values"], 0)
    assert all(low <= count <= high for (low, high), count in zip(sure["intervals"], truth(), strict=True))
    for (low, high), (lowest, highest) in zip(answer["intervals"], sure["intervals"], strict=True):
        # A count below zero is where its interval begins: first as it follows, later as it was told, on a grid.
        assert lowest - GRID <= low < high <= highest
        assert highest - lowest < 5 * (high - low)
    if "within" in words:
        assert max(high - low for low, high in answer["intervals"]) <= 400.0
    again = ask(analyst, session["id"], {**ASKED, "where": {}})
    assert (again["source"], again["values"], again["charged_epsilon"]) == ("cached", answer["values"], 0)
    women = ask(analyst, session["id"], {**ASKED, "where": {"sex": "female"}})
    adds_up(women["values"])
    assert (
        np.abs(np.array(women["values"]) - truth(PEOPLE["sex"] == "female"))
        <= 6 * np.array(women["standard_errors"]) + 1
    ).all()
    north = ask(analyst, session["id"], {"type": "predicate", "where": {"place": ["a", "b"]}})
    assert abs(north["value"] - truth()[0]) <= 6 * north["standard_error"] + 1
    replays(auditor, session["id"], tmp_path)


def test_a_tree_is_bought_where_that_errs_less(
    service: Service, analyst: httpx.Client, auditor: httpx.Client, tmp_path: Path
) -> None:
    """What was measured is a hierarchy, with its words and its price, and a later marginal of the leaves is free: the
    tree has told it. Catches a policy that knows leaves alone, and evidence that serves one kind of question."""
    session = opened(service, analyst, within=200.0)
    answer = ask(analyst, session["id"], ASKED)
    assert answer["source"] == "measurement"
    assert answer["charged_epsilon"] > 0
    entries = replays(auditor, session["id"], tmp_path)
    assert sum('"hierarchy":[' in json.dumps(entry, separators=(",", ":")) for entry in entries) == 1
    listed = analyst.get(f"/v1/datasets/{session['dataset']}/measurements").json()
    (own,) = [item for item in listed["items"] if item["strategy"]["type"] == "hierarchy"]
    assert own["strategy"]["attribute"] == "place"
    assert own["strategy"]["levels"] == [4, 6, 7, 8]
    leaves = ask(analyst, session["id"], {"type": "marginal", "attributes": ["place"], "within": 300.0})
    assert (leaves["source"], leaves["charged_epsilon"]) == ("estimate", 0)


def test_as_a_table_and_by_the_client(service: Service, analyst: httpx.Client) -> None:
    """The labels read as they are, in Arrow and in the client, which knows nothing of hierarchies."""
    session = opened(service, analyst, max_queries=100)
    reply = analyst.post(f"/v1/sessions/{session['id']}/queries", json=ASKED, headers={"Accept": ARROW})
    assert reply.status_code == 200, reply.text
    table = pa.ipc.open_stream(io.BytesIO(reply.content)).read_all()
    assert table["place"].to_pylist() == PATHS
    key = analyst.headers["authorization"].removeprefix("Bearer ")
    with Curator(str(service.url), key) as curator:
        answer = curator.resume(session["id"]).ask(question(ASKED))
        assert isinstance(answer, Table)
        assert "south/hills/e" in str(answer)
        assert list(answer.axes[0].labels) == PATHS


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"type": "hierarchy", "attribute": "sex"}, "declared without levels"),
        ({"type": "hierarchy", "attribute": "age"}, "those that have are"),
        ({"type": "hierarchy", "attribute": "plaice"}, "place"),
        ({"type": "hierarchy"}, "attribute: must be given"),
        ({**ASKED, "levels": 2}, "levels"),
        ({**ASKED, "where": {"place": ["a", "b"]}}, "leave it out of where"),
        ({**ASKED, "where": {"any": [{"sex": "male"}, {"age": 2}]}}, "each attribute by itself"),
        ({**ASKED, "where": {"sex": {"in": ["nobody"]}}}, "sex"),
    ],
)
def test_what_is_no_hierarchy_is_refused_before_noise(
    service: Service, analyst: httpx.Client, query: JSON, words: str
) -> None:
    """The refusal says what to change, and costs nothing."""
    session = opened(service, analyst, max_queries=100)
    problem = refused(analyst.post(f"/v1/sessions/{session['id']}/queries", json=query), "invalid-query")
    assert words in problem["detail"]
    after = analyst.get(f"/v1/sessions/{session['id']}").json()
    assert after["queries_asked"] == 0
    assert (after["spent"], after["head_hash"]) == (session["spent"], session["head_hash"])


@pytest.mark.parametrize("law", ["laplace", "gaussian", "mw"])
def test_direct_sessions_do_not_answer_it(service: Service, analyst: httpx.Client, law: str) -> None:
    """A record is in a node of each level: noise for one number of them would be too little. Catches a direct session
    that takes nodes for the cells of a marginal."""
    session = opened(
        service,
        analyst,
        mechanism={"construction": law},
        epsilon=0.5,
        max_queries=10,
        max_updates=5 if law == "mw" else None,
    )
    problem = refused(analyst.post(f"/v1/sessions/{session['id']}/queries", json=ASKED), "invalid-query")
    assert "evidence" in problem["detail"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"levels": {"north": ["a", "b", "x"], "south": ["c", "d", "e", "f", "g"]}}, "not among values"),
        ({"levels": {"north": ["a", "b", "a"], "south": ["c", "d", "e", "f", "g"]}}, "more than once"),
        ({"levels": {"north": ["a", "b"], "south": ["c", "d", "e"]}}, "values.5"),
        ({"levels": {"north": ["a", "b"], "south": []}}, "not nothing"),
        ({"levels": {"north": ["a", "b"], "south": "c"}}, "a list of values"),
        ({"levels": {"all": PLACES}}, "leave levels out"),
        ({"levels": {f"group {p}": [p] for p in PLACES}}, "leave levels out"),
        ({"levels": PLACES}, "must be an object"),
        ({"levels": {"a": ["a", "b"], "south": ["c", "d", "e", "f", "g"]}}, "call it otherwise"),
        ({"levels": {"x": {"y": ["a", "b"]}, "z": {"y": ["c", "d", "e", "f", "g"]}}}, "call it otherwise"),
        ({"levels": {"x/y": ["a", "b"], "z": ["c", "d", "e", "f", "g"]}}, "joins names"),
        ({"levels": {" x": ["a", "b"], "z": ["c", "d", "e", "f", "g"]}}, "white space"),
        ({"values": None, "size": 7, "missing": None, "levels": LEVELS}, "declare them as values"),
    ],
)
def test_levels_that_are_none_are_refused(service: Service, change: JSON, words: str) -> None:
    """Every value in one group, and every node with a name of its own, before a record is read."""
    place = {k: v for k, v in {**SPEC["attributes"][0], **change}.items() if v is not None}
    spec = {**SPEC, "name": unique("places"), "attributes": [place, *SPEC["attributes"][1:]]}
    problem = refused(register(service.admin, spec, CSV, "places.csv"), "invalid-dataset")
    assert words in problem["detail"]
    assert "levels" in problem["detail"]
