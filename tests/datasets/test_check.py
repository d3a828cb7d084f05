"""POST /v1/datasets/check: drafts and problems for the admin, and no trace of either."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.services.checks import MOST_PROBLEMS
from tests.kit.service import JSON, PEOPLE, Service, npy, refused, register, unique

pytestmark = pytest.mark.api

#: Stands for a private value.
SECRET = "8173645"
PEOPLE_FILE = "sex,age,note\n" + "".join(
    f"{('female', 'male')[n % 2]},{20 + n % 60},{'' if n % 7 else 'x'}{n}\n" for n in range(300)
)


def check(service: Service, data: bytes | str, spec: Any = None, filename: str = "d.csv", **query: str) -> JSON:
    """Check a file; the reply."""
    reply = checked(service, data, spec, filename, **query)
    assert reply.status_code == 200, reply.text
    found: JSON = reply.json()
    assert found.keys() == {"spec", "problems", "report", "warnings", "notes"}
    return found


def checked(
    service: Service, data: bytes | str, spec: Any = None, filename: str = "d.csv", **query: str
) -> httpx.Response:
    """Check a file, and see that nothing of it is stored: no row, no charge, no file of the vault."""
    words = {} if spec is None else {"spec": spec if isinstance(spec, str) else json.dumps(spec)}
    content = data.encode() if isinstance(data, str) else data
    before = service.stored()
    reply = service.admin.post("/v1/datasets/check", data=words, files={"data": (filename, content)}, params=query)
    assert service.stored() == before
    return reply


@pytest.fixture(autouse=True)
def silent(logged: list[Any]) -> Iterator[None]:
    """Catches a private value, or a category that was drafted, in the log."""
    yield
    assert SECRET not in repr(logged)
    assert "female" not in repr(logged)


class TestDrafts:
    def test_a_draft_registers_as_it_is(self, service: Service) -> None:
        """Catches a draft that its own service refuses, one whose reading loses a record, and one without a warning
        that it was made of private data, or without a word on the budget.
        """
        found = check(service, PEOPLE_FILE, filename="my people.csv")
        assert found["problems"] == []
        assert found["spec"]["name"] == "my-people"
        assert [item["name"] for item in found["spec"]["attributes"]] == ["sex", "age"]
        assert any("private" in warning for warning in found["warnings"])
        assert any("budget" in note for note in found["notes"])
        assert any('"note"' in note for note in found["notes"])
        assert (found["report"]["read"], found["report"]["kept"]) == (300, 300)
        spec = {**found["spec"], "name": unique("checked")}
        reply = register(service.admin, spec, PEOPLE_FILE.encode())
        assert reply.status_code == 201, reply.text

    def test_parquet(self, service: Service) -> None:
        sink = io.BytesIO()
        pq.write_table(pa.table({"a": [1, 2, 2], "b": ["x", None, "y"]}), sink)
        found = check(service, sink.getvalue(), filename="d.parquet")
        assert found["problems"] == []
        assert found["spec"]["attributes"] == [
            {"name": "a", "values": [1, 2]},
            {"name": "b", "values": ["x", "y"], "missing": True},
        ]

    def test_what_is_left_out_is_completed(self, service: Service) -> None:
        """Catches a declared bound that a draft replaces, and an attribute drafted that nobody asked for."""
        declared = {"name": "p", "attributes": [{"name": "age", "lower": 0, "upper": 120, "bins": 12}, {"name": "sex"}]}
        found = check(service, PEOPLE_FILE, declared)
        assert found["spec"]["attributes"] == [declared["attributes"][0], {"name": "sex", "values": ["female", "male"]}]
        assert found["spec"]["kind"] == "table"
        assert found["problems"] == []

    def test_a_whole_declaration_is_not_drafted(self, service: Service) -> None:
        """Catches a warning of a draft where there was none."""
        found = check(service, "sex,age\nmale,3\n", {**PEOPLE, "name": "p"})
        assert found["warnings"] == []
        assert found["notes"] == []
        assert found["spec"] == {**PEOPLE, "name": "p"}

    @pytest.mark.parametrize(
        ("data", "filename"),
        [
            (f"{SECRET},{SECRET}\n1,2\n", "d.csv"),
            (f"a,b\n1,{SECRET},3\n", "d.csv"),
            (f'a,b\n"{SECRET},1\n', "d.csv"),
            (f"a\n{SECRET}\n".encode("utf-16"), "d.csv"),
            (b"\xff\xfe\x00" + SECRET.encode(), "d.txt"),
            (f"PAR1{SECRET}PAR1", "d.parquet"),
            (f"PK\x03\x04{SECRET}", "d.xlsx"),
            (f"a\n{SECRET}\n", "d.exe"),
            (f"a\n{SECRET}\n", "d"),
            ("a,b\n", "d.csv"),
            ("\n\n", "d.csv"),
            ("", "d.csv"),
            (npy([[1, 2], [3, 4]]), "d.npy"),
        ],
    )
    def test_a_file_that_cannot_be_drafted_of_is_refused(
        self, service: Service, data: bytes | str, filename: str
    ) -> None:
        """Catches a 500, a draft of nothing, and a private value in a refusal."""
        document = refused(checked(service, data, filename=filename), "invalid-dataset")
        assert SECRET not in json.dumps(document)

    @pytest.mark.parametrize(
        "data",
        [
            "a,b\n" + "\n".join(f"{n}, " for n in range(200)),
            "any,not,all\n1,2,3\n",
            '" ",x\n1,2\n',
            "a\n" + "x" * 200_000 + "\n",
            "a,b\n1e308,-1e308\n-1e308,1e308\n",
            "a;b\n3,5;x\n",
            "[bold]a[/bold]\n1\n2\n",
            "a\r\n1\r\n\r\n2\r\n",
            "\ufeffa,b\n1,2\n",
            "a\n" + "\n".join(str(10**n) for n in range(300)),
            ",".join(f"c{n}" for n in range(200)) + "\n" + ",".join("1" for _ in range(200)) + "\n",
        ],
    )
    def test_ugly_files_have_a_draft(self, service: Service, data: str) -> None:
        """Catches an error of the program, a draft that is no JSON, and a problem of the draft's own making: the only
        one that there may be is that no column is left.
        """
        found = check(service, data)
        for problem in found["problems"]:
            assert "attributes: " in problem["detail"] or "at least 1" in problem["detail"], found


class TestProblems:
    def test_all_are_told(self, service: Service) -> None:
        """Catches a check that stops at the first problem: of the declaration, of the columns, of the records."""
        declared = {
            "name": "p",
            "kind": "table",
            "attributes": [
                {"name": "sex", "values": ["female", "male"]},
                {"name": "age", "lower": 0, "upper": 50, "bins": 5},
                {"name": "nowhere", "size": 2},
                {"name": "wrong", "size": -1},
            ],
            "budget": {"epsilon": 0, "delta": 1e-9},
        }
        rows = ["sex,age", "female,20", f"male,{SECRET}", "other,30", "male,"]
        found = check(service, "\n".join(rows), declared)
        told = [(problem.get("attribute"), problem.get("row")) for problem in found["problems"]]
        assert ("wrong", None) in told
        assert ("nowhere", None) in told
        assert ("age", 2) in told
        assert ("sex", 3) in told
        assert ("age", 4) in told
        assert any("epsilon" in problem["detail"] for problem in found["problems"])
        assert SECRET not in json.dumps(found)
        assert "other" not in json.dumps(found["problems"])
        assert found["report"] is None

    def test_a_unit_without_its_column_is_one(self, service: Service) -> None:
        """Catches records that would be protected one by one, as nothing tells whose they are."""
        spec = {**PEOPLE, "name": "p", "unit": {"column": "person", "max_records": 3}}
        found = check(service, "sex,age\nmale,3\n", spec)
        assert [problem["detail"] for problem in found["problems"]] == [
            'unit: the file has no column "person" to tell whose a record is'
        ]

    def test_more_than_are_told_are_counted(self, service: Service) -> None:
        """Catches a reply that grows with the declaration, and one that does not say that it was cut."""
        declared = {**PEOPLE, "name": "p", **{f"unknown{n}": 1 for n in range(MOST_PROBLEMS + 20)}}
        found = check(service, "sex,age\nmale,3\n", declared)
        assert len(found["problems"]) == MOST_PROBLEMS
        assert any(str(MOST_PROBLEMS + 20) in note for note in found["notes"])

    def test_records_outside_are_counted(self, service: Service) -> None:
        """Catches a file whose thousand wrong records look like the few that are told."""
        found = check(service, "sex,age\n" + "x,3\n" * 1000, {**PEOPLE, "name": "p"})
        assert any("1,000 values" in problem["detail"] for problem in found["problems"])

    def test_a_name_in_use_is_one(self, service: Service) -> None:
        """Catches a check that a registration does not bear out."""
        spec = {**PEOPLE, "name": unique("checked")}
        assert register(service.admin, spec, b"sex,age\nmale,3\n").status_code == 201
        found = check(service, "sex,age\nmale,3\n", spec)
        assert [problem["detail"].partition(":")[0] for problem in found["problems"]] == [
            f"the name {spec['name']!r} is or was in use"
        ]
        assert any("same file" in warning for warning in found["warnings"])

    def test_a_file_that_cannot_be_read_is_one(self, service: Service) -> None:
        """Catches a refusal of the whole check, which would not tell the rest."""
        found = check(service, f"PAR1{SECRET}", {**PEOPLE, "name": "p", "colour": 1}, filename="d.parquet")
        assert len(found["problems"]) == 2
        assert SECRET not in json.dumps(found)

    @pytest.mark.parametrize(
        ("spec", "data", "filename", "words"),
        [
            ({"kind": "graph", "nodes": 3}, "0 1\n1 7\n", "g.txt", "row 2"),
            ({"kind": "multiset", "nodes": 3}, "element,count\na,1\n", "m.csv", "nodes"),
            ({"kind": "matrix", "rows": 1, "columns": 1, "lower": 0, "upper": 1}, npy([[2.0]]), "m.npy", "from 0 to 1"),
            ({"kind": "cube"}, "a\n1\n", "c.csv", "say which: table"),
            ({"kind": 3}, "a\n1\n", "c.csv", "kind"),
        ],
    )
    def test_other_kinds_are_checked_too(
        self, service: Service, spec: JSON, data: bytes | str, filename: str, words: str
    ) -> None:
        declared = {"name": "p", "budget": PEOPLE["budget"], **spec}
        """Catches a kind that is drafted as a table, and one whose file is not looked at."""
        found = check(service, data, declared, filename)
        assert len(found["problems"]) == 1, found
        assert words in found["problems"][0]["detail"]

    @pytest.mark.parametrize("data", [npy([[1] * 4, [2] * 4]), npy([[1, 2]])])
    def test_arrays_of_counts_are_checked(self, service: Service, data: bytes) -> None:
        found = check(service, data, {**PEOPLE, "name": "p"}, "c.npy")
        assert bool(found["problems"]) == (len(data) < len(npy([[1] * 4, [2] * 4])))


class TestOtherDocuments:
    SMARTNOISE = """
"":
  hospital:
    visits:
      row_privacy: True
      age: {type: int, lower: 0, upper: 120}
      sex: {type: string, cardinality: 2}
    wards:
      row_privacy: True
      beds: {type: int, lower: 0, upper: 20}
"""

    def test_a_table_of_a_smartnoise_document(self, service: Service) -> None:
        """Catches a document that is refused as a declaration, and a table that is guessed."""
        document = refused(checked(service, PEOPLE_FILE, self.SMARTNOISE), "invalid-dataset")
        assert "hospital.visits, hospital.wards" in document["detail"]
        found = check(service, PEOPLE_FILE, self.SMARTNOISE, table="visits")
        assert found["problems"] == []
        assert found["spec"]["attributes"][0]["upper"] == 120
        assert found["spec"]["attributes"][1]["values"] == ["female", "male"]

    def test_a_csvw_document(self, service: Service) -> None:
        document = {
            "@context": "http://www.w3.org/ns/csvw",
            "tableSchema": {
                "columns": [
                    {"titles": "Years", "name": "age", "datatype": {"base": "integer", "minimum": 0, "maximum": 99}}
                ]
            },
        }
        found = check(service, PEOPLE_FILE, document)
        assert found["problems"] == []
        assert [item["name"] for item in found["spec"]["attributes"]] == ["age"]

    def test_a_declaration_may_be_yaml(self, service: Service) -> None:
        spec = "name: p\nattributes:\n  - {name: age, lower: 0, upper: 99, bins: 11}\n"
        assert check(service, PEOPLE_FILE, spec)["problems"] == []

    @pytest.mark.parametrize(
        ("spec", "query"),
        [
            ("a: &a [1]\nb: [*a, *a]", {}),
            ("{", {}),
            ("[1, 2]", {}),
            ("just words", {}),
            ("a: [1", {}),
            ("- " * 5000, {}),
            ('{"a": 1, "a": 2}', {}),
            ('{"tableSchema": 3}', {}),
            (SMARTNOISE, {"table": "nothing"}),
        ],
    )
    def test_what_is_no_document_is_refused(self, service: Service, spec: str, query: dict[str, str]) -> None:
        """Catches a 500, and a guess at what was meant."""
        refused(checked(service, PEOPLE_FILE, spec, **query), "invalid-dataset")

    def test_a_table_of_no_document_is_refused(self, service: Service) -> None:
        refused(checked(service, PEOPLE_FILE, table="visits"), "invalid-request")


class TestForms:
    def test_without_a_file_there_is_nothing_to_check(self, service: Service) -> None:
        reply = service.admin.post("/v1/datasets/check", files={"spec": (None, "{}")})
        refused(reply, "invalid-request")

    def test_a_registration_needs_its_spec(self, service: Service) -> None:
        """Catches the leniency of a check in a registration."""
        reply = service.admin.post("/v1/datasets", files={"data": ("d.csv", b"a\n1\n")})
        refused(reply, "invalid-request")

    def test_an_empty_spec_is_none(self, service: Service) -> None:
        assert check(service, PEOPLE_FILE, " ")["problems"] == []

    def test_only_admins_may(self, service: Service) -> None:
        """Catches a draft, which is private, shown to somebody else."""
        client = service.principal("analyst")
        refused(client.post("/v1/datasets/check", files={"data": ("d.csv", PEOPLE_FILE.encode())}), "forbidden")

    def test_a_data_set_may_be_called_check(self, service: Service) -> None:
        """Catches the route in the way of a name."""
        refused(service.admin.get("/v1/datasets/check"), "not-found")
