"""Would show the same people registered twice, or under a budget that protects nobody, without a word to the admin.

And that what the admin is told, which depends on private numbers, gets to nobody else: no descriptor, no list, no log.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog

from app.declarations.spec import parse_spec
from app.storage.private_store import VaultResealer, VaultStore
from app.storage.vault import Vault
from tests.kit.noise import Noise
from tests.kit.servers import run
from tests.kit.service import JSON, PEOPLE, Service, npy, register, serving, unique

pytestmark = pytest.mark.adversarial

_events: list[MutableMapping[str, Any]] = []


def _keep(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    _events.append(event)
    raise structlog.DropEvent


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    structlog.configure(processors=[_keep])
    with serving(tmp_path_factory.mktemp("same"), noise=Noise(), log_level="debug") as running:
        yield running
    structlog.reset_defaults()


def records(men: int) -> bytes:
    """Two women, and so many men that no other test has as many."""
    return b"sex,age\nfemale,5\nfemale,70\n" + b"male,41\n" * men


def registered(service: Service, data: bytes, filename: str = "r.csv", **changes: Any) -> JSON:
    """The reply to a registration."""
    reply = register(service.admin, {**PEOPLE, "name": unique("people"), **changes}, data, filename)
    assert reply.status_code == 201, reply.text
    view: JSON = reply.json()
    return view


def parquet(men: int) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"sex": ["female", "female"] + ["male"] * men, "age": [5, 70] + [41] * men})
    pq.write_table(table, sink)
    return sink.getvalue()


def test_the_same_file_again(service: Service) -> None:
    """Under any other name and declaration; a retired one's too."""
    assert registered(service, records(1), name="first")["warnings"] == []
    (warning,) = registered(service, records(1), name="second")["warnings"]
    assert "first" in warning
    assert "add up" in warning
    other = [{"name": "sex", "values": ["male", "female"]}]
    (warning,) = registered(service, records(1), name="third", attributes=other)["warnings"]
    assert "first, second:" in warning
    assert service.admin.delete("/v1/datasets/first").status_code == 200
    (warning,) = registered(service, records(1), name="fourth")["warnings"]
    assert "first, fourth" not in warning
    assert "first, second, third:" in warning
    assert registered(service, records(2))["warnings"] == []


def test_the_same_numbers_in_another_file(service: Service) -> None:
    """Other formats, another order, further columns."""
    registered(service, records(3), name="before")
    reordered = b"note,age,sex\nx,41,male\ny,5.0,female\n,79,female\n" + b"z,50,male\n" * 2
    counts = np.array([[1, 0, 0, 1], [0, 0, 3, 0]])
    for data, filename in [(parquet(3), "r.parquet"), (npy(counts), "c.npy"), (reordered, "r.csv")]:
        (warning,) = registered(service, data, filename)["warnings"]
        assert "before" in warning


def test_many_copies_are_not_all_named(service: Service) -> None:
    for i in range(10):
        registered(service, records(5), name=f"copy-{i}")
    (warning,) = registered(service, records(5))["warnings"]
    assert len(re.findall(r"copy-\d", warning)) == 8
    assert "2 more" in warning


@pytest.mark.parametrize("public", [True, False])
def test_budgets_that_protect_nobody(service: Service, public: bool) -> None:
    """Which warnings come at the edges of both bounds, whether or not the number of records is public."""
    for number, (epsilon, delta, expected) in enumerate(
        [
            (10, 1e-6, []),
            (10.5, 1e-6, ["epsilon 10.5"]),
            (1, 0.001, []),
            (1, 0.00100001, ["delta 0.00100001"]),
            (1000, 0.5, ["epsilon 1000", "delta 0.5"]),
        ]
    ):
        counts = np.array([[number, 10 + public, 0, 0], [0, 0, 0, 990 - number - public]])
        assert counts.sum() == 1000
        budget = {"epsilon": epsilon, "delta": delta}
        found = registered(service, npy(counts), "c.npy", budget=budget, records_public=public)["warnings"]
        assert [" ".join(warning.split()[:2]) for warning in found] == expected
        assert "1000 " not in "".join(found).replace("epsilon 1000 ", "").replace("e^1000 ", "")


def test_records_of_other_kinds(service: Service) -> None:
    """Edges are counted, and cells of a matrix, whatever stands in them."""
    for spec, data, filename in [
        ({"kind": "graph", "nodes": 9}, b"0 1\n1 2\n2 3\n3 4\n4 5\n5 6\n", "g.txt"),
        ({"kind": "matrix", "rows": 3, "columns": 2, "lower": 0, "upper": 1}, npy(np.zeros((3, 2))), "m.npy"),
        ({"kind": "multiset"}, b"element,count\na,6\n", "w.csv"),
    ]:
        told = []
        for delta in (0.17, 0.16):
            words = {**spec, "name": unique("k"), "budget": {"epsilon": 1, "delta": delta}}
            reply = register(service.admin, words, data, filename)
            told.append([warning.split()[0] for warning in reply.json()["warnings"]])
        assert told == [["delta"], ["the"]]


def test_nobody_else_is_told(service: Service) -> None:
    """Neither analysts nor auditors, nor the admin at any later time; no log line; no row but keyed marks."""
    registered(service, records(7), name="plain")
    view = registered(service, records(7), name="warned", budget={"epsilon": 100, "delta": 0.5})
    assert len(view["warnings"]) == 3
    for caller in (service.admin, service.principal("analyst"), service.principal("auditor")):
        one, several = caller.get("/v1/datasets/warned"), caller.get("/v1/datasets")
        assert not {"warnings", "report"} & (one.json().keys() | several.json()["items"][-1].keys())
        assert "dropped" not in one.text + several.text
        assert one.json() == {k: v for k, v in view.items() if k not in ("warnings", "report")}
        assert one.json() in several.json()["items"]
    assert len(_events) > 10
    told = json.dumps(_events, default=str) + service.stored()
    for warning in view["warnings"]:
        assert warning not in told
    assert "add up" not in told
    assert "clamped" not in told


def test_equal_contents_look_unlike_in_the_database(service: Service) -> None:
    """Who reads the database and lacks the key does not see which data sets are of the same people."""
    names = [registered(service, records(8))["name"] for _ in range(3)]
    rows = [row for row in service.rows("datasets") if row[0] in names]
    entries = [json.loads(value) for row in rows for value in row if str(value).startswith('{"file')]
    assert len(entries) == 3
    marks = [entry[what] for entry in entries for what in ("digest", "upload", "numbers")]
    assert len(set(marks)) == len(marks) == 9


def test_another_vault_key(tmp_path: Path) -> None:
    """After `vault rotate` numbers are known again, which the file holds; files are not, which nobody has."""
    spec, other = (parse_spec({**PEOPLE, "name": "x", "attributes": PEOPLE["attributes"][:count]}) for count in (2, 1))
    file = tmp_path / "r.csv"
    file.write_bytes(records(1))
    old, new = Vault(tmp_path / "vault", bytes(32)), Vault(tmp_path / "vault", bytes([1] * 32))
    before, after = (VaultStore(vault, 1 << 20, lambda: None) for vault in (old, new))
    upload, declared_otherwise = before.read_upload(spec, "r.csv", file), before.read_upload(other, "r.csv", file)
    with before.registration():
        entry = before.put("x", upload)
    assert before.alike(upload, entry)
    assert before.alike(declared_otherwise, entry)
    assert not after.alike(upload, entry)
    resealer = VaultResealer(old, new, lambda: None)
    with resealer.registration():
        resealed = resealer.resealed("x", entry)
    assert resealed is not None
    assert after.alike(upload, resealed)
    assert not after.alike(declared_otherwise, resealed)


def test_the_command_line_shows_them(service: Service, tmp_path: Any) -> None:
    spec, data = tmp_path / "people.json", tmp_path / "people.csv"
    data.write_bytes(records(9))
    environment = {**os.environ, "CURATOR_URL": service.url, "CURATOR_API_KEY": service.admin_key}
    for name, expected in (("typed", 0), ("typed-again", 1)):
        spec.write_text(json.dumps({**PEOPLE, "name": name}))
        done = run(["dataset", "add", str(spec), str(data)], environment)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("Warning: ") == expected
