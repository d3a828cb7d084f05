"""Matrices, multisets and the median mechanism through the whole service: registered, asked, exported, replayed.

On real data where it lies beside the checkout, and always on made-up data of the same kind.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.audit.replay import Verdict
from app.verifying.transcript import replay_file
from tests.kit.noise import Noise
from tests.kit.service import ARROW, NPY, PARQUET, Service, ask, npy, open_session, refused, register, unique

pytestmark = pytest.mark.api

Words = dict[str, Any]
BUDGET = {"epsilon": 1.0, "delta": 1e-9}


@pytest.fixture
def swing(noise: Noise) -> Iterator[None]:
    """Noise that changes sides, as large as noise usually is."""
    turns = iter(range(10**9))
    before = noise.draw
    noise.draw = lambda scale: round(scale * (0.8, -1.2, 0.3, -0.5)[next(turns) % 4])
    yield
    noise.draw = before


def replayed(client: httpx.Client, session: str, folder: Path) -> Verdict:
    """The verdict on the session's transcript as served."""
    reply = client.get(f"/v1/sessions/{session}/transcript")
    assert reply.status_code == 200
    path = folder / "transcript.ndjson"
    path.write_bytes(reply.content)
    return replay_file(path)


def table_of(client: httpx.Client, session: str, media_type: str) -> pa.Table:
    """The hypothesis as a table."""
    reply = client.get(f"/v1/sessions/{session}/hypothesis", headers={"Accept": media_type})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == media_type
    if media_type == PARQUET:
        return pq.read_table(io.BytesIO(reply.content))
    with pa.ipc.open_stream(reply.content) as reader:
        return reader.read_all()


# ---------------------------------------------------------------------------------------------------- multisets


def words_csv(counts: dict[str, int]) -> bytes:
    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow(["element", "count"])
    writer.writerows(counts.items())
    return sink.getvalue().encode()


MADE_UP = {f"word {i}": 60_000 // (i + 1) for i in range(2000)} | {"é\u2028\U0001f600": 777}


@pytest.fixture(scope="module")
def afwiki(shared: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in (shared / "data/afwiki-words/afwiki-2024-02-20.txt").read_text().splitlines():
        word, _, count = line.rpartition(" ")
        counts[word] = counts.get(word, 0) + int(count)
    return counts


def _a_words_session(service: Service, counts: dict[str, int], folder: Path) -> None:
    spec = {"name": unique("words"), "kind": "multiset", "records_public": True, "budget": BUDGET}
    reply = register(service.admin, spec, words_csv(counts), "words.csv")
    assert reply.status_code == 201, reply.text
    total = sum(counts.values())
    assert (reply.json()["cells"], reply.json()["shape"], reply.json()["records"]) == (None, [], total)
    words = sorted(counts, key=lambda w: -counts[w])
    asked: list[Words] = [{"type": "elements", "weights": dict.fromkeys(words[i : i + 3], 1.0)} for i in range(12)]
    asked += [{"type": "elements", "weights": {words[0]: 1.0, words[1]: -1.0, "in no file": 1.0}}]
    asked += [{"type": "elements", "weights": {words[0]: 0.0, "in no file": 1.0}}, asked[0]]
    with service.principal("analyst") as analyst:
        opened = open_session(
            analyst,
            spec["name"],
            mechanism={"construction": "smw", "sparsity": 3},
            epsilon=0.5,
            max_updates=30,
            max_queries=40,
        )
        path = f"/v1/sessions/{opened['id']}"
        first = [ask(analyst, opened["id"], query) for query in asked[:4]]
        rest = analyst.post(f"{path}/queries/batch", json={"queries": asked[4:]}).json()["answers"]
        for query, answer in zip(asked, first + rest, strict=True):
            truth = sum(w * counts.get(e, 0) for e, w in query["weights"].items())
            assert abs(answer["value"] - truth) <= answer["error_bound"]
        assert rest[-1]["source"] == "cached"
        state = analyst.get(path).json()
        assert 0 < state["updates_used"] <= 30
        # One element too many is refused by the session, not charged, not recorded.
        more = {"type": "elements", "weights": dict.fromkeys(words[:4], 1.0)}
        refused(analyst.post(f"{path}/queries", json=more), "invalid-query")
        refused(analyst.post(f"{path}/queries", json={"type": "dense", "weights": [1.0]}), "invalid-query")
        body = analyst.post(f"{path}/queries", content=npy([1.0]), headers={"Content-Type": NPY})
        refused(body, "invalid-query")
        half = analyst.post(
            f"{path}/queries",
            content=b'{"type": "elements", "weights": {"\\ud800": 1}}',
            headers={"Content-Type": "application/json"},
        )
        assert half.status_code == 422
        assert analyst.get(path).json()["sequence"] == state["sequence"] == len(asked)
        # Exported as the elements the hypothesis tells apart.
        refused(analyst.get(f"{path}/hypothesis", headers={"Accept": NPY}), "invalid-request")
        tables = [table_of(analyst, opened["id"], m) for m in (ARROW, PARQUET)]
        assert tables[0].equals(tables[1])
        assert tables[0].column_names == ["element", "count"]
        assert tables[0].schema.metadata[b"updates"] == str(state["updates_used"]).encode()
        assert analyst.get(f"{path}/hypothesis").headers["content-type"] == ARROW
        for element, count in zip(*(c.to_pylist() for c in tables[0].columns), strict=True):
            alone = {"type": "elements", "weights": {element: 1.0}, "unverified": True}
            assert ask(analyst, opened["id"], alone)["value"] == pytest.approx(count, abs=1e-5)
        verdict = replayed(analyst, opened["id"], folder)
        assert verdict.ok, verdict
        assert verdict.summary["updates"] == state["updates_used"]
        assert analyst.post(f"{path}/close", json={}).status_code == 200


@pytest.mark.usefixtures("swing")
def test_words(service: Service, tmp_path: Path) -> None:
    """Would catch an array that somebody still makes of a multiset, a query that its transcript does not keep, and a
    refusal that charges."""
    _a_words_session(service, MADE_UP, tmp_path)


@pytest.mark.usefixtures("swing")
def test_real_words(service: Service, afwiki: dict[str, int], tmp_path: Path) -> None:
    """The words of the Afrikaans Wikipedia: 160,437 distinct ones, with all that stands in a real file."""
    assert len(afwiki) > 160_000
    _a_words_session(service, afwiki, tmp_path)


def test_a_hidden_number_of_words_is_bought(service: Service) -> None:
    """Would catch a count that shows, and a guaranteed plan before the purchase."""
    spec = {"name": unique("words"), "kind": "multiset", "budget": BUDGET}
    assert register(service.admin, spec, words_csv({"a": 5000, "b": 31}), "w.csv").status_code == 201
    descriptor = service.admin.get(f"/v1/datasets/{spec['name']}").json()
    assert "records" not in descriptor
    assert "5031" not in json.dumps(descriptor)
    mechanism = {"construction": "smw", "sparsity": 2}
    session = {"dataset": spec["name"], "mechanism": mechanism, "epsilon": 0.5, "max_queries": 10}
    refused(service.admin.post("/v1/plans", json=session), "plan-infeasible")
    plan = service.admin.post("/v1/plans", json={**session, "max_updates": 4}).json()
    assert "mass" in plan["purchase"]
    with service.principal("analyst") as analyst:
        opened = open_session(analyst, spec["name"], mechanism=mechanism, max_queries=10, max_updates=4)
        assert float(opened["spent"]) > 0


@pytest.mark.parametrize("mechanism", [{"construction": "smw"}, {"construction": "smw", "sparsity": 0}])
def test_a_sparsity_is_needed(service: Service, mechanism: Words) -> None:
    """Would catch a session whose slots are planned for no number of elements."""
    session = {"dataset": "any", "mechanism": mechanism, "epsilon": 0.5, "max_queries": 10}
    refused(service.admin.post("/v1/plans", json=session), "invalid-request")


@pytest.mark.slow
def test_a_million_words(service: Service) -> None:
    """Registered with less than a minute of work, asked at once. Would catch a look-up that walks through them all."""
    counts = {f"element number {i:07d}": 1 + i % 7 for i in range(1_000_000)}
    spec = {"name": unique("million"), "kind": "multiset", "records_public": True, "budget": BUDGET}
    body = words_csv(counts)
    began = time.process_time()  # the server is part of this process
    assert register(service.admin, spec, body, "w.csv").status_code == 201
    assert time.process_time() - began < 60
    with service.principal("analyst") as analyst:
        opened = open_session(analyst, spec["name"], mechanism={"construction": "smw", "sparsity": 5})
        for i in (0, 999_995):
            weights = {f"element number {j:07d}": 1.0 for j in range(i, i + 5)}
            answer = ask(analyst, opened["id"], {"type": "elements", "weights": weights})
            assert abs(answer["value"] - sum(counts[w] for w in weights)) <= answer["error_bound"]


# ----------------------------------------------------------------------------------------------------- matrices


@pytest.mark.usefixtures("swing")
@pytest.mark.parametrize("layout", ["npy", "columns"])
@pytest.mark.parametrize("construction", ["fk", "mw", "lp"])
def test_a_matrix(service: Service, tmp_path: Path, layout: str, construction: str) -> None:
    """Would catch a sum of entries that shows, entries read on another grid than they are answered on, and a
    hypothesis of another shape."""
    rng = np.random.default_rng(5)
    lower = 0.0 if construction == "mw" else -2.0
    x = np.where(rng.random((70, 50)) < 0.4, rng.integers(4 * lower, 5 * 4, (70, 50)) / 4, 0.0)
    x[:20] = np.maximum(x[:20], 4.0)
    spec = {
        "name": unique("ratings"),
        "kind": "matrix",
        "rows": 70,
        "columns": 50,
        "lower": lower,
        "upper": 5,
        "absent": 0,
        "records_public": True,
        "budget": {"epsilon": 20.0, "delta": 1e-9},
    }
    if layout == "npy":
        reply = register(service.admin, spec, npy(x), "x.npy")
    else:
        rows = [f"{i},{j},{x[i, j]}" for i, j in np.argwhere(x != 0)]
        reply = register(service.admin, spec, "\n".join(["row,column,value", *rows]).encode(), "x.csv")
    assert reply.status_code == 201, reply.text
    descriptor = reply.json()
    assert descriptor["gamma"] == 5 - lower
    assert (descriptor["shape"], descriptor["privacy_unit"]) == ([70, 50], "one entry changed")
    assert "records" not in descriptor
    mechanism = {"construction": "md", "potential": "lp"} if construction == "lp" else {"construction": construction}
    asked: list[Words] = [{"type": "cut", "left": [*range(5 * i, 5 * i + 20)], "right": "all"} for i in range(8)]
    asked += [{"type": "rank_one", "left": [0.02] * 50 + [0.0] * 20, "right": [1 / 3] * 3 + [0.0] * 47}]
    asked += [{"type": "dense", "weights": (np.outer(range(70), range(50)) / 3500).tolist()}]
    asked += [{"type": "sparse", "indices": [[3, 4], [69, 49]], "weights": [1.0, -1.0]}]
    with service.principal("analyst") as analyst:
        opened = open_session(analyst, spec["name"], mechanism=mechanism, epsilon=10.0, max_updates=12, max_queries=30)
        for query in asked:
            answer = ask(analyst, opened["id"], query)
            if query["type"] == "cut":
                truth = x[query["left"]].sum()
            elif query["type"] == "rank_one":
                truth = np.array(query["left"]) @ x @ np.array(query["right"])
            elif query["type"] == "dense":
                truth = (np.array(query["weights"]) * x).sum()
            else:
                truth = x[3, 4] - x[69, 49]
            assert abs(answer["value"] - truth) <= answer["error_bound"]
        state = analyst.get(f"/v1/sessions/{opened['id']}").json()
        assert state["updates_used"] > 0
        found = analyst.get(f"/v1/sessions/{opened['id']}/hypothesis", headers={"Accept": NPY})
        assert np.load(io.BytesIO(found.content)).shape == (70, 50)
        assert table_of(analyst, opened["id"], PARQUET).column_names == ["row", "column", "count"]
        verdict = replayed(analyst, opened["id"], tmp_path)
        assert verdict.ok, verdict


def test_a_matrix_with_negative_entries_has_no_mass(service: Service) -> None:
    """Would catch a simplex over it."""
    spec = {"name": unique("m"), "kind": "matrix", "rows": 2, "columns": 2, "lower": -1, "upper": 1, "budget": BUDGET}
    assert register(service.admin, spec, npy(np.zeros((2, 2))), "x.npy").status_code == 201
    session = {"dataset": spec["name"], "epsilon": 0.5, "max_queries": 10, "max_updates": 3}
    for mechanism in (
        {"construction": "mw"},
        {"construction": "md", "potential": "entropy"},
        {"construction": "median"},
    ):
        reply = service.admin.post("/v1/plans", json={**session, "mechanism": mechanism})
        assert "negative" in refused(reply, "plan-infeasible")["detail"]
    assert service.admin.post("/v1/plans", json={**session, "mechanism": {"construction": "fk"}}).status_code == 200


# ------------------------------------------------------------------------------------------------------- median


def _a_median_session(service: Service, spec: Words, data: bytes, cells: np.ndarray, folder: Path, **how: Any) -> None:
    """Predicates over the first attribute of a table, ``cells`` its counts."""
    reply = register(service.admin, spec, data, "data.csv")
    assert reply.status_code == 201, reply.text
    first = spec["attributes"][0]["name"]
    with service.principal("analyst") as analyst:
        epsilon = spec["budget"]["epsilon"]
        opened = open_session(analyst, spec["name"], epsilon=epsilon, max_queries=12, **how)
        for chosen in ([0], [1], [0, 1], [1, 2], [0, 2], [2]):
            query = {"type": "predicate", "where": {first: {"in": chosen}}}
            answer = ask(analyst, opened["id"], query)
            assert abs(answer["value"] - cells[chosen].sum()) <= answer["error_bound"]
        state = analyst.get(f"/v1/sessions/{opened['id']}").json()
        assert state["updates_used"] > 0
        found = analyst.get(f"/v1/sessions/{opened['id']}/hypothesis", headers={"Accept": NPY})
        assert np.load(io.BytesIO(found.content)).sum() == pytest.approx(cells.sum())
        verdict = replayed(analyst, opened["id"], folder)
        assert verdict.ok, verdict
        assert verdict.summary["hypothesis_answers"] + verdict.summary["measurement_answers"] == 6


EXACT = {"mechanism": {"construction": "median", "weights": "nonnegative"}, "max_updates": 5}
SAMPLED = {"mechanism": {"construction": "median", "sampled": True}, "max_updates": 5}


@pytest.mark.usefixtures("swing")
@pytest.mark.parametrize("how", [EXACT, SAMPLED], ids=["exact", "sampled"])
def test_a_tiny_table(service: Service, tmp_path: Path, how: Words) -> None:
    """Would catch a set or a sample that a replay does not arrive at."""
    spec = {
        "name": unique("tiny"),
        "kind": "table",
        "attributes": [{"name": "class", "size": 3}],
        "records_public": True,
        "budget": BUDGET,
    }
    counts = np.array([1100, 150, 50])
    data = "class\n" + "".join(f"{i}\n" * n for i, n in enumerate(counts))
    _a_median_session(service, spec, data.encode(), counts, tmp_path, **how)


@pytest.mark.usefixtures("swing")
@pytest.mark.parametrize("how", [EXACT, SAMPLED], ids=["exact", "sampled"])
def test_the_titanic(service: Service, shared: Path, tmp_path: Path, how: Words) -> None:
    """Passengers of the Titanic by port; with the sample also by sex and class."""
    path = shared / "data/titanic/titanic.csv"
    names = ["Embarked"] if how is EXACT else ["Embarked", "Sex", "Pclass"]
    sizes = {"Pclass": 3, "Sex": 2, "Embarked": 3}
    spec = {
        "name": unique("titanic"),
        "kind": "table",
        "attributes": [{"name": n, "size": sizes[n]} for n in names],
        "records_public": True,
        "budget": {"epsilon": 4.0, "delta": 1e-9},
    }
    with path.open() as file:
        ports = [int(row["Embarked"]) for row in csv.DictReader(file)]
    _a_median_session(service, spec, path.read_bytes(), np.bincount(ports, minlength=3), tmp_path, **how)
