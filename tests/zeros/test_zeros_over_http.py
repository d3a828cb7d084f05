"""Structural zeros through the whole service: files that contradict them, free answers, tables, and the audit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.audit.publications import Checked, check
from curator_client import Curator, question
from tests.datasets.test_check import check as checked_file
from tests.kit.service import JSON, Service, ask, npy, refused, register, unique
from tests.releases.test_publications import csv_of, publish
from tests.statistics.test_statistics_over_http import opened, replays
from tests.zeros.tables import SPEC, people

pytestmark = pytest.mark.api

HEAD = "age,marital,state,district,other\n"
STATES = ["single", "married", "widowed"]
CSV = HEAD + "".join(f"{10 * a + 5},{STATES[m]},{s},{d},{o}\n" for a, m, s, d, o in people(3000).tolist())
CHILD = {"type": "predicate", "where": {"age": {"lt": 20}, "marital": ["married", "widowed"]}}
WRONG = {"type": "predicate", "where": {"any": [{"state": 0, "district": 5}, {"state": 1, "district": 0}], "other": 1}}
FAMILIES = {"type": "marginal", "attributes": ["age", "marital"]}
FREE = "no record can be what is asked for, by the declared zeros: it is 0 whatever the records, and free"


def registered(service: Service, data: str = CSV, **changes: Any) -> str:
    name = unique("census")
    reply = register(service.admin, {**SPEC, "name": name, **changes}, data.encode(), "census.csv")
    assert reply.status_code == 201, reply.text
    return name


#: Who wants what, and how.
MECHANISMS: list[JSON] = [
    {"mechanism": {"construction": "evidence"}},
    {"mechanism": {"construction": "gaussian"}},
    {"mechanism": {"construction": "laplace"}},
    {"mechanism": {"construction": "mw"}},
    {"mechanism": {"construction": "evidence"}, "contract": True},
]


@pytest.mark.parametrize("words", MECHANISMS, ids=lambda words: "-".join([*words["mechanism"].values(), *words][:3:2]))
def test_what_cannot_be_is_answered_free(noisy: Service, words: JSON, tmp_path: Path) -> None:
    """By every way to pay, before anything was measured and again, and every transcript replays. Catches an answer that
    is not 0, that costs or uses anything up, an interval that is not 0 to 0, and a replay that knows no zeros."""
    analyst, name = noisy.principal("analyst"), registered(noisy, records_public=True)
    reply = analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 0.3, "max_queries": 9, **words})
    assert reply.status_code == 201, reply.text
    id = reply.json()["id"]
    for query in (CHILD, WRONG, CHILD):
        found = ask(analyst, id, query)
        assert found["value"] == 0
        assert found["charged_epsilon"] == 0
        assert found["note"] == FREE
        assert found["interval"] in ([0, 0], None)
        if words["mechanism"]["construction"] == "evidence":
            assert found["interval"] == [0, 0]
        assert found["updates_used"] == 0
    assert "note" not in ask(analyst, id, {"type": "predicate", "where": {"age": {"lt": 20}}})
    replays(analyst, id, tmp_path / "t.ndjson")


def test_tables_have_exact_zeros(noisy: Service, tmp_path: Path) -> None:
    """Marginals with and without conditions, whole ones within zeros, statistics and shares by group. Catches a cell
    that is not 0, one that is and may not be, an answer that costs and counts nothing, and the client's words."""
    analyst, name = noisy.principal("analyst"), registered(noisy)
    id = opened(analyst, name, max_queries=20)["id"]
    found = ask(analyst, id, FAMILIES)
    values, ends = np.array(found["values"]).reshape(10, 3), np.array(found["intervals"]).reshape(10, 3, 2)
    assert (values[:2, 1:] == 0).all()
    assert (ends[:2, 1:] == 0).all()
    assert (ends[2:, :, 1] > 0).all()
    assert found["note"] == "4 of these counts are 0 whatever the records, by the declared zeros"
    places = ask(analyst, id, {"type": "marginal", "attributes": ["district"], "where": {"state": 1}})
    assert [value > 0 for value in places["values"]] == [False] * 3 + [True] * 3 + [False] * 6
    none = ask(analyst, id, {"type": "marginal", "attributes": ["district"], "where": {"state": 1, "district": [0, 9]}})
    assert none["values"] == [0, 0]
    assert none["charged_epsilon"] == 0
    assert none["note"] == FREE
    parts = ask(
        analyst, id, {"type": "share", "of": {"other": 1}, "where": {"marital": "married"}, "group_by": ["age"]}
    )
    assert parts["values"][:2] == [None, None]
    assert parts["values"][3] is not None
    with Curator(str(analyst.base_url), analyst.headers["Authorization"].removeprefix("Bearer ")) as curator:
        assert curator.resume(id).ask(question(CHILD)).note == FREE
    replays(analyst, id, tmp_path / "t.ndjson")


def test_records_that_contradict_zeros(exact: Service) -> None:
    """Refused with their rows, or dropped where the declaration says so, and reported under the name of the zero.
    Catches records that are kept, a value in a refusal, and a data set that is there after one."""
    wrong = HEAD + "25,single,0,0,0\n15,married,0,1,0\n35,married,2,8,1\n45,widowed,1,11,1\n"
    name = unique("census")
    reply = register(exact.admin, {**SPEC, "name": name}, wrong.encode(), "census.csv")
    problem = refused(reply, "invalid-dataset")
    assert [(each["row"], each["attribute"]) for each in problem["problems"]] == [(2, "zeros.0"), (4, "zeros.2")]
    assert problem["outside"] == {"zeros.0": 1, "zeros.2": 1}
    assert (
        'expected none of the combinations of "age", "marital" that zeros.0 declares not to occur' in problem["detail"]
    )
    assert "married" not in reply.text
    assert "widowed" not in reply.text
    assert exact.admin.get(f"/v1/datasets/{name}").status_code == 404
    reply = register(exact.admin, {**SPEC, "name": name, "outside": "drop"}, wrong.encode(), "census.csv")
    report = reply.json()["report"]
    assert (report["read"], report["kept"], report["dropped"]) == (4, 2, 2)
    assert report["attributes"]["zeros.0"]["dropped"] == 1
    assert report["attributes"]["zeros.2"]["dropped"] == 1
    assert report["attributes"]["zeros.1"]["dropped"] == 0
    owned = {"unit": {"column": "who", "max_records": 1}, "outside": "drop", "name": unique("census")}
    lines = wrong.splitlines()
    with_owner = "".join(f"{line},{'who' if k == 0 else 'p'}\n" for k, line in enumerate(lines))
    reply = register(exact.admin, {**SPEC, **owned}, with_owner.encode(), "census.csv")
    assert (reply.json()["report"]["kept"], reply.json()["report"]["beyond_cap"]) == (1, 1)


def test_counts_that_contradict_zeros(exact: Service) -> None:
    """An array with a count where none can be. Catches one that is kept."""
    spec = {**SPEC, "attributes": SPEC["attributes"][:2], "zeros": SPEC["zeros"][:1]}
    counts = np.full((10, 3), 3)
    reply = register(exact.admin, {**spec, "name": unique("census")}, npy(counts), "counts.npy")
    problem = refused(reply, "invalid-dataset")
    assert 'a count is not 0 of the combinations of "age", "marital" that zeros.0 declares' in problem["detail"]
    counts[:2, 1:] = 0
    assert register(exact.admin, {**spec, "name": unique("census")}, npy(counts), "counts.npy").status_code == 201


def test_publications_keep_zeros(noisy: Service) -> None:
    """Through a process of its own, and checked by an auditor, who makes them anew. Catches a worker that is not told
    of zeros, a record in what cannot be, and a check that lets one pass there as within rounding."""
    analyst, name = noisy.principal("analyst"), registered(noisy)
    wanted = [FAMILIES, {"type": "marginal", "attributes": ["state", "district"]}, CHILD]
    refused(
        analyst.post("/v1/releases", json={"dataset": name, "method": "publication", "epsilon": 0.4, "tables": wanted}),
        "plan-infeasible",
    )
    id = publish(analyst, name, tables=wanted[:2], epsilon=0.4)["id"]
    found = csv_of(analyst, id, "table-1").to_pylist()
    children = [row for row in found if row["age"] in ("[0, 10)", "[10, 20)") and row["marital"] != "single"]
    assert len(children) == 4
    assert all(row["value"] == row["low"] == row["high"] == row["standard_error"] == 0 for row in children)
    lines = noisy.principal("auditor").get(f"/v1/sessions/{id}/transcript").content.splitlines()
    parts = [
        analyst.get(f"/v1/releases/{id}/data", params={"part": part}, headers={"Accept": accept}).content
        for part, accept in (("manifest", "application/json"), ("table-1", "text/csv"), ("table-2", "text/csv"))
    ]
    manifest, tables = json.loads(parts[0]), dict(enumerate(parts[1:], start=1))
    assert check(lines, manifest, tables) == Checked((), True)
    row = next(line for line in tables[1].split(b"\n") if b"married" in line)
    assert row.endswith((b",0,0,0,0", b",0,0.0,0,0"))
    changed = {**tables, 1: tables[1].replace(row, row.rsplit(b",", 4)[0] + b",1,0.0,0,1")}
    manifest["tables"][0]["sha256"] = hashlib.sha256(changed[1]).hexdigest()
    problems = check(lines, manifest, changed).problems
    assert any("counts what is declared not to occur" in problem for problem in problems), problems
    made = analyst.post(
        "/v1/releases",
        json={"dataset": name, "method": "synthetic_table", "epsilon": 0.3, "workload": {"marginals": 2}},
    )
    assert made.status_code == 202, made.text
    analyst.get(f"/v1/releases/{made.json()['id']}/events")
    for record in csv_of(analyst, made.json()["id"], "records").to_pylist():
        assert record["marital"] == "single" or record["age"] not in ("[0, 10)", "[10, 20)")
        assert record["district"] // 3 == record["state"]


def test_checks_tell_what_is_wrong_with_zeros(exact: Service) -> None:
    """Before a registration: a zero that does not fit, once, and records that contradict one. Catches a problem that is
    told as the declaration's and again as the file's, and a check that lets a file pass that a registration refuses."""
    spec = {**SPEC, "name": unique("census")}
    found = checked_file(exact, CSV, {**spec, "zeros": [{"age": {"lt": 20}, "marital": "wed"}]})
    assert len(found["problems"]) == 1
    assert found["problems"][0]["detail"].startswith("zeros.0: marital: not one of the declared values")
    found = checked_file(exact, HEAD + "15,married,0,1,0\n25,single,0,0,0\n", spec)
    assert [(each["row"], each["attribute"]) for each in found["problems"]] == [(1, "zeros.0")]
    assert checked_file(exact, CSV, spec)["problems"] == []
