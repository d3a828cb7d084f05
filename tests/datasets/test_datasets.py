"""Data sets: registration in every format, what is public of them, retirement."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.storage.readers import tables
from tests.kit.noise import Noise
from tests.kit.service import (
    COUNTS,
    JSON,
    PEOPLE,
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

#: Records of PEOPLE: seven women of 0 to 19, three men of 80 (the closed end of the last bin), one of 20.
RECORDS = [("female", 5)] * 7 + [("male", 80)] * 3 + [("male", 20)]


def text(separator: str) -> bytes:
    lines = [separator.join(["age", "note", "sex"])]
    lines += [separator.join([str(age), "never kept", sex]) for sex, age in RECORDS]
    return "\n".join(lines).encode()


def parquet() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"sex": [s for s, _ in RECORDS], "age": [a for _, a in RECORDS], "note": ["x"] * len(RECORDS)})
    pq.write_table(table, sink)
    return sink.getvalue()


def npz(array: Any) -> bytes:
    sink = io.BytesIO()
    np.savez_compressed(sink, counts=array)
    return sink.getvalue()


RECORD_COUNTS = np.array([[7, 0, 0, 0], [0, 1, 0, 3]])
UPLOADS = {
    "records.csv": text(","),
    "records.tsv": text("\t"),
    "records.txt": text("\t"),
    "records.parquet": parquet(),
    "counts.npy": npy(RECORD_COUNTS),
    "counts.npz": npz(RECORD_COUNTS),
}


def truth_of(service: Service, noise: Noise, dataset: str, query: JSON) -> float:
    """The exact answer, by noise so large that every round is a hit: it is taken off again."""
    session = open_session(
        service.admin, dataset, mechanism={"construction": "fk"}, epsilon=0.1, max_queries=1, max_updates=1
    )
    usual, noise.draw = noise.draw, lambda _scale: 2**45
    try:
        answer = ask(service.admin, session["id"], query)
    finally:
        noise.draw = usual
    service.admin.post(f"/v1/sessions/{session['id']}/close")
    assert answer["source"] == "measurement"
    value: float = answer["value"] - 2**45 * session["plan"]["answer_grid"]
    return value


class TestRegistration:
    @pytest.mark.parametrize("filename", UPLOADS)
    def test_every_format_of_a_table(self, service: Service, noise: Noise, filename: str) -> None:
        """The file's name tells the format; all hold the same records, some in another order of columns. Catches a
        format misread, a column that is not listed taken along, the last bin's closed end lost.
        """
        name = unique("table")
        spec = {**PEOPLE, "name": name}
        reply = register(service.admin, spec, UPLOADS[filename], filename)
        assert reply.status_code == 201, reply.text
        assert reply.json()["records"] == 11
        assert truth_of(service, noise, name, where(sex={"equals": "female"})) == 7
        assert truth_of(service, noise, name, where(age={"between": [60, 80]})) == 3
        assert truth_of(service, noise, name, where(age={"between": [20, 40]}, sex={"equals": "male"})) == 1

    @pytest.mark.parametrize("filename", ["records.csv", "records.parquet"])
    def test_records_that_are_kept(
        self, service: Service, noise: Noise, monkeypatch: pytest.MonkeyPatch, filename: str
    ) -> None:
        """Of a large universe the records are kept, not counts. Catches answers that are others for that."""
        monkeypatch.setattr(tables, "MOST_COUNTED", 0)
        name = unique("table")
        assert register(service.admin, {**PEOPLE, "name": name}, UPLOADS[filename], filename).json()["records"] == 11
        assert truth_of(service, noise, name, where(sex={"equals": "female"})) == 7
        assert truth_of(service, noise, name, where(age={"between": [20, 40]}, sex={"equals": "male"})) == 1

    def test_a_universe_of_any_size(self, service: Service) -> None:
        """A wide file is taken; what would hold a number for every cell says what that takes. Catches a refusal of the
        data instead of the mechanism, and sizes that no JSON number holds."""
        name, columns = unique("wide"), [f"a{i}" for i in range(30)]
        spec = {
            "name": name,
            "kind": "table",
            "records_public": True,
            "attributes": [{"name": column, "size": 8} for column in columns],
            "budget": {"epsilon": 1.0, "delta": 1e-9},
        }
        records = "\n".join([",".join(columns), ",".join(["3"] * 30), ",".join(["7"] * 30)])
        reply = register(service.admin, spec, records.encode(), "wide.csv")
        assert reply.status_code == 201, reply.text
        assert reply.json()["cells"] == 8.0**30
        assert service.admin.get(f"/v1/datasets/{name}").json()["records"] == 2
        asked = {"dataset": name, "epsilon": 1.0, "max_queries": 10, "max_updates": 3}
        mw = {"construction": "mw"}
        problems = [
            refused(service.admin.post(path, json={**asked, "mechanism": mw}), "plan-infeasible")
            for path in ("/v1/plans", "/v1/sessions")
        ]
        compared = service.admin.post("/v1/plans", json={**asked, "mechanisms": [mw]})
        assert compared.status_code == 200
        for problem in [*problems, compared.json()["plans"][0]["problem"]]:
            assert "each of 10^27 cells" in problem["detail"]
        # What needs no such thing serves.
        gaussian = {"dataset": name, "epsilon": 1.0, "max_queries": 10, "mechanism": {"construction": "gaussian"}}
        session = service.admin.post("/v1/sessions", json=gaussian).json()["id"]
        assert ask(service.admin, session, where(a0={"equals": 3}, a29={"equals": 3}))["value"] == 1
        assert ask(service.admin, session, where(a7={"in": [3, 7]}))["value"] == 2

    def test_a_universe_beyond_memory(self, service: Service) -> None:
        """What a mechanism would hold of it is told, beside the limit. Catches a server that is taken at its word."""
        name = unique("large")
        spec = {**PEOPLE, "name": name, "attributes": [{"name": "sex", "size": 2}, {"name": "age", "size": 2**31 - 1}]}
        reply = register(service.admin, spec, b"sex,age\n1,7\n", "large.csv")
        assert reply.status_code == 201, reply.text
        asked = {"dataset": name, "mechanism": {"construction": "mw"}, "epsilon": 0.5, "max_queries": 10}
        problem = refused(service.admin.post("/v1/plans", json={**asked, "max_updates": 3}), "plan-infeasible")
        assert problem["cells"] == 2**32 - 2
        assert problem["bytes"] > problem["limit"]
        assert "gaussian" in problem["detail"]

    @pytest.mark.parametrize(
        ("spec", "filename", "data", "query", "answer"),
        [
            # Repeated edges and both directions of one count once.
            ({"kind": "graph", "nodes": 5}, "e.txt", b"0 1\n1 0\n0 1\n1 2\n3 4\n", ([0, 1], "all"), 2),
            ({"kind": "graph", "nodes": 5, "directed": True}, "e.csv", b"0,1\n1,0\n0,1\n1,2\n", ([0, 1], "all"), 3),
            ({"kind": "graph", "nodes": 3, "loops": "drop"}, "e.tsv", b"0\t0\n0\t1\n", ("all", "all"), 1),
            (
                {"kind": "graph", "nodes": 3, "labels": ["a", "b", "c"]},
                "e.csv",
                b"from,to\na,b\nb,c\n",
                (["a"], ["b"]),
                1,
            ),
            ({"kind": "bipartite", "left": 2, "right": 3}, "e.csv", b"0,2\n1,2\n1,0\n", ("all", [2]), 2),
            # A third column is a weight, on the grid 2^-10.
            ({"kind": "bipartite", "left": 2, "right": 3}, "e.csv", b"0,2,0.5\n1,2,0.25\n", ("all", [2]), 0.75),
            (
                {"kind": "graph", "nodes": 3},
                "e.npy",
                npy(np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]])),
                ([0], [1, 2]),
                2,
            ),
        ],
    )
    def test_every_kind_of_graph(
        self,
        service: Service,
        noise: Noise,
        spec: JSON,
        filename: str,
        data: bytes,
        query: tuple[Any, Any],
        answer: float,
    ) -> None:
        """Catches an edge counted twice, a direction lost, a header taken for an edge, a weight not read."""
        name = unique("graph")
        reply = register(service.admin, {**spec, "name": name, "budget": PEOPLE["budget"]}, data, filename)
        assert reply.status_code == 201, reply.text
        assert "records" not in reply.json()
        cut = {"type": "cut", "left": query[0], "right": query[1]}
        assert truth_of(service, noise, name, cut) == answer

    def test_records_outside_may_be_dropped(self, service: Service) -> None:
        """Catches a dropped record counted, and one that is refused although the spec says to drop it."""
        name = unique("table")
        data = b"sex,age\nfemale,5\nother,5\nmale,81\nmale,80\n"
        spec = {**PEOPLE, "name": name, "outside": "drop"}
        assert register(service.admin, spec, data).json()["records"] == 2

    def test_the_report_and_its_warning(self, service: Service) -> None:
        """What became of each record, in the reply alone; of more than half that is dropped a warning too. Catches a
        report of another file, and one for a kind that has none."""
        half = b"sex,age\nfemale,5\nother,5\nmale,81\nmale,80\n"
        for data, warned in ((half, False), (half + b"male,82\n", True)):
            spec = {**PEOPLE, "name": unique("table"), "outside": "drop", "budget": {"epsilon": 1.0, "delta": 1e-9}}
            reply = register(service.admin, spec, data)
            assert reply.status_code == 201, reply.text
            told = reply.json()
            assert told["report"] == {
                "beyond_cap": 0,
                "read": 4 + warned,
                "kept": 2,
                "dropped": 2 + warned,
                "clamped": 0,
                "attributes": {
                    "sex": {"dropped": 1, "clamped": 0, "missing": 0},
                    "age": {"dropped": 1 + warned, "clamped": 0, "missing": 0},
                },
            }
            assert [warning for warning in told["warnings"] if "dropped" in warning] == (
                ["3 of 5 records were dropped: are the declared values those of the file?"] if warned else []
            )
        counts = register(service.admin, {**PEOPLE, "name": unique("table")}, npy(COUNTS), "c.npy").json()["report"]
        assert (counts["read"], counts["kept"], counts["dropped"]) == (15000, 15000, 0)
        graph = {"kind": "graph", "nodes": 3, "name": unique("graph"), "budget": PEOPLE["budget"]}
        assert register(service.admin, graph, b"0 1\n", "e.txt").json()["report"] is None

    def test_a_refusal_tells_all_problems_and_leaves_nothing(self, service: Service) -> None:
        before = service.stored()
        reply = register(service.admin, {**PEOPLE, "name": unique("table")}, b"sex,age\nMale,5\nmale,5\nmale,s3cr3t\n")
        problem = refused(reply, "invalid-dataset")
        assert [(p["row"], p["attribute"]) for p in problem["problems"]] == [(1, "sex"), (3, "age")]
        assert (problem["row"], problem["attribute"], problem["outside"]) == (1, "sex", {"sex": 1, "age": 1})
        assert "s3cr3t" not in reply.text
        assert service.stored() == before

    def test_every_kind_of_attribute(self, service: Service, noise: Noise) -> None:
        """From a file between semicolons to exact counts: numbers, dates and missing values are asked as they were
        written. Catches a reader that places a value elsewhere than a condition looks for it."""
        name = unique("table")
        spec = {
            **PEOPLE,
            "name": name,
            "null_values": ["NA"],
            "attributes": [
                {"name": "income", "lower": 0, "upper": 10, "grid": 0.5, "outside": "clamp", "missing": True},
                {"name": "born", "dates": ["1990-01-01", "1999-12-31"], "by": "month"},
                {"name": "smoker", "values": ["false", "true"]},
            ],
        }
        records = [("3,25", "1990-05-01", "TRUE"), ("99", "1990-05-31 12:00", "False"), ("NA", "1999-12-31", "true")]
        data = "\r\n".join([";".join(record) for record in [("income", "born", "smoker"), *records]])
        reply = register(service.admin, spec, data.encode(), "r.csv")
        assert reply.status_code == 201, reply.text
        for condition, count in (
            ({"income": 3.5}, 1),
            ({"income": {"ge": 3, "lt": 3.5}}, 0),
            ({"income": 10}, 1),
            ({"income": None}, 1),
            ({"born": "1990-05"}, 2),
            ({"born": {"ge": "1999-12-01"}}, 1),
            ({"smoker": "true"}, 2),
        ):
            assert truth_of(service, noise, name, {"type": "predicate", "where": condition}) == count, condition

    def test_names_are_never_reused(self, service: Service) -> None:
        """Catches a name taken twice, now or after retirement: transcripts would speak of two data sets."""
        name = people(service)
        again = {**PEOPLE, "name": name}
        before = sorted(path.name for path in service.settings.vault_dir.iterdir())
        refused(register(service.admin, again, npy(COUNTS), "c.npy"), "conflict")
        assert sorted(path.name for path in service.settings.vault_dir.iterdir()) == before
        assert service.admin.delete(f"/v1/datasets/{name}").status_code == 200
        refused(register(service.admin, again, npy(COUNTS), "c.npy"), "conflict")

    def test_of_many_at_once_one_gets_the_name(self, service: Service) -> None:
        """Catches a name checked before and not at the commit, and a private file left by those who lost."""
        name = unique("race")
        files = len(list(service.settings.vault_dir.glob("*.vault")))
        with ThreadPoolExecutor(6) as pool:
            replies = list(
                pool.map(lambda _: register(service.admin, {**PEOPLE, "name": name}, npy(COUNTS), "c.npy"), range(6))
            )
        assert sorted(reply.status_code for reply in replies) == [201] + [409] * 5
        assert len(list(service.settings.vault_dir.glob("*.vault"))) == files + 1


class TestDescriptor:
    def test_fields(self, service: Service) -> None:
        """Catches a renamed field, and a list that shows something else than the descriptor."""
        name = people(service)
        reply = service.principal("analyst").get(f"/v1/datasets/{name}")
        assert reply.status_code == 200
        shown = reply.json()
        assert {"name", "kind", "domain", "privacy_unit", "budget", "records"} <= set(shown)
        assert (shown["name"], shown["kind"], shown["records"]) == (name, "table", 15000)
        assert shown["domain"]["attributes"] == PEOPLE["attributes"]
        assert "record" in shown["privacy_unit"]
        nothing = {"spent_epsilon": 0.0, "reserved_epsilon": 0.0, "remaining_epsilon": 1.0}
        assert shown["budget"] == {
            "epsilon": 1.0,
            "delta": 1e-6,
            "regime": "renyi",
            **nothing,
            "renyi": nothing,
            "pure": nothing,
            "impure": False,
        }
        listed = service.principal("auditor").get("/v1/datasets").json()["items"]
        assert [item for item in listed if item["name"] == name] == [shown]

    def test_no_count_that_was_not_declared_public(self, service: Service) -> None:
        """15,000 records, no cell of which adds up to a round number by chance: neither the sum nor any count may
        stand in the descriptor, the plans, the state of a session, or the ledger. Catches a mass that leaks through
        a capacity, a type or a plan.
        """
        counts = np.array([[91573, 1], [2, 37919]])
        name = unique("secret")
        spec = {
            "name": name,
            "kind": "table",
            "attributes": [{"name": "a", "size": 2}, {"name": "b", "size": 2}],
            "budget": {"epsilon": 1.0, "delta": 1e-6},
        }
        assert register(service.admin, spec, npy(counts), "c.npy").status_code == 201
        analyst = service.principal("analyst")
        fk = {"construction": "fk"}
        opened = open_session(analyst, name, mechanism=fk)
        shown = [
            service.admin.get(f"/v1/datasets/{name}").text,
            service.admin.get(f"/v1/datasets/{name}/ledger").text,
            service.admin.post("/v1/plans", json=session_words(name, mechanism=fk)).text,
            service.admin.post("/v1/plans", json=session_words(name)).text,
            service.admin.post("/v1/plans", json=session_words(name, max_updates=None)).text,
            json.dumps(opened),
            analyst.get(f"/v1/sessions/{opened['id']}/transcript").text,
        ]
        for text_shown in shown:
            for private in ("91573", "37919", "129495", "91574", "37921", "129492"):
                assert private not in text_shown
        assert '"records"' not in shown[0]

    def test_unknown_names(self, service: Service) -> None:
        """Catches anything but 404, whatever a name is made of."""
        for name in (
            "nothing",
            "a%00b",
            "%ff",
            "x" * 5000,
            "..%2f..%2fetc",
            "%F0%9F%92%A9",
            "'; DROP TABLE datasets;--",
        ):
            refused(service.admin.get(f"/v1/datasets/{name}"), "not-found")
            refused(service.admin.get(f"/v1/datasets/{name}/ledger"), "not-found")
            refused(service.admin.delete(f"/v1/datasets/{name}"), "not-found")


class TestRetirement:
    def test_the_file_goes_and_the_records_stay(self, service: Service) -> None:
        """Catches a private file kept, an open session left answering, a public record lost."""
        name = people(service)
        analyst = service.principal("analyst")
        id = open_session(analyst, name)["id"]
        ask(analyst, id, where(sex={"equals": "male"}))
        files = {path.name for path in service.settings.vault_dir.glob(f"{name}.*")}
        assert len(files) == 1
        reply = service.admin.delete(f"/v1/datasets/{name}")
        assert (reply.status_code, reply.json()["status"]) == (200, "retired")
        assert not list(service.settings.vault_dir.glob(f"{name}.*"))

        assert service.admin.get(f"/v1/datasets/{name}").json()["status"] == "retired"
        assert analyst.get(f"/v1/sessions/{id}").json()["status"] == "closed"
        assert len(analyst.get(f"/v1/sessions/{id}/transcript").text.splitlines()) == 3
        assert analyst.get(f"/v1/sessions/{id}/hypothesis").status_code == 200
        ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()
        assert [entry["kind"] for entry in ledger["entries"]] == ["reserve", "charge", "return"]
        budget = service.admin.get(f"/v1/datasets/{name}").json()["budget"]
        assert budget["reserved_epsilon"] == 0
        assert budget["spent_epsilon"] > 0

        refused(analyst.post(f"/v1/sessions/{id}/queries", json=where()), "session-closed")
        refused(analyst.post("/v1/plans", json=session_words(name)), "not-found")
        refused(analyst.post("/v1/sessions", json=session_words(name)), "not-found")
        refused(service.admin.delete(f"/v1/datasets/{name}"), "not-found")


def test_an_unknown_data_set_names_the_near_one(service: Service) -> None:
    """Catches a refusal that leaves an analyst to guess a name that everybody may list, and one that proposes a data
    set that is retired."""
    name = unique("survey")
    near = people(service, name=name)
    analyst = service.principal("analyst")
    for reply in (analyst.get(f"/v1/datasets/{near}x"), analyst.post("/v1/sessions", json=session_words(f"{near}x"))):
        assert refused(reply, "not-found")["detail"] == f"there is no data set '{near}x': did you mean '{near}'?"
    assert service.admin.delete(f"/v1/datasets/{near}").status_code == 200
    assert f"'{near}'?" not in refused(analyst.get(f"/v1/datasets/{near}x"), "not-found")["detail"]
