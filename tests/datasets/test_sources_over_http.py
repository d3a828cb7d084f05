"""Data sets of files on the server's own disk, from outside: by HTTP, the client and the command line.

They would catch answers, records or an audit that differ from those of an upload of the same counts; and a name of a
file or column, or a value, that anybody but the admin is told.
"""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

import app.cli.application  # noqa: F401 - with all commands
from app.cli.groups import cli
from curator_client import Curator, Refused
from curator_client.proofs.commitment import FileDigest, commitment
from tests.audit.auditing import audited
from tests.datasets.source_files import JSON, declare, write
from tests.kit.noise import Noise, nothing
from tests.kit.service import Service, ask, npy, open_session, refused, register, serving, unique, where

pytestmark = pytest.mark.api

ATTRIBUTES: list[JSON] = [
    {"name": "ward", "size": 3, "column": "zebra-column"},
    {"name": "age", "lower": 0, "upper": 80, "bins": 4, "outside": "clamp", "missing": True},
]
PLAIN = [{key: value for key, value in attribute.items() if key != "column"} for attribute in ATTRIBUTES]
WARDS = np.arange(500) % 3
AGES = np.where(np.arange(500) % 7 == 0, np.nan, np.arange(500) % 90 * 1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zebra-folder")
    for number in range(2):
        half = slice(number * 250, (number + 1) * 250)
        write(folder / "quux" / f"{number}.parquet", {"zebra-column": WARDS[half], "age": AGES[half]})
    write(folder / "outside.parquet", {"zebra-column": [0, 77_777], "age": [1.0, 2.0]})
    return folder


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Service]:
    where = tmp_path_factory.mktemp("sources") / "var"
    with serving(where, noise=Noise(nothing), source_folders=f"/no/such/folder:{folder}") as running:
        yield running


def sent(service: Service, declared: Any) -> Any:
    """A form with a declaration alone."""
    return service.admin.post("/v1/datasets", files={"spec": (None, json.dumps(declared))})


def counts() -> Any:
    found = np.zeros((3, 5), np.int64)
    for ward, age in zip(WARDS, AGES, strict=True):
        found[ward, 4 if math.isnan(age) else min(3, int(age // 20))] += 1
    return found


def measured(analyst: httpx.Client, name: str) -> JSON:
    """A session that measures each answer; noise is nothing here."""
    words = {"dataset": name, "mechanism": {"construction": "gaussian"}, "epsilon": 0.3, "max_queries": 20}
    opened: JSON = analyst.post("/v1/sessions", json=words).json()
    return opened


def named(prefix: str, **more: Any) -> JSON:
    return {**declare(ATTRIBUTES, "quux/*.parquet", **more), "name": unique(prefix)}


def test_answers_records_and_audits_are_those_of_an_upload(service: Service) -> None:
    """With the same noise; the descriptor differs by the type of the source alone."""
    declared = named("counted")
    reply = sent(service, declared)
    assert reply.status_code == 201, reply.text
    assert (reply.json()["report"]["read"], reply.json()["report"]["attributes"]["age"]["missing"]) == (500, 72)
    other = {**declare(PLAIN), "name": unique("uploaded")}
    assert register(service.admin, other, npy(counts()), "c.npy").status_code == 201
    shown = [service.admin.get(f"/v1/datasets/{each['name']}").json() for each in (declared, other)]
    assert shown[0]["domain"].pop("source") == {"type": "parquet"}
    assert shown[0]["domain"] == shown[1]["domain"]
    analyst = service.principal("analyst")
    answers = []
    for each in (declared, other):
        asked = [where(ward=w, age={"ge": 20}) for w in range(3)] + [where(age=None), where(ward=[0, 2])]
        for open_it in (measured, open_session):
            session = open_it(analyst, each["name"])["id"]
            answers.append([ask(analyst, session, query)["value"] for query in asked])
    assert answers[:2] == answers[2:]
    truth = counts()
    assert answers[0] == [*truth[:, 1:4].sum(1), truth[:, 4].sum(), truth[[0, 2]].sum()]
    assert audited(service.principal("auditor"), all=True)["verdict"] == "holds"


def test_nobody_is_told_of_files(service: Service, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The names of files, folders and columns are in no descriptor, row or log; the type is."""
    declared = named("shown")
    reply = sent(service, declared)
    assert reply.status_code == 201, reply.text
    told = [reply.text, caplog.text, service.admin.get("/v1/datasets").text, service.stored()]
    told += [str(service.rows(table)) for table in ("datasets", "events")]
    assert '"source":{"type":"parquet"}' in str(service.rows("datasets")).replace(" ", "")
    for private in ("zebra-column", "quux", folder.name, ".parquet"):
        assert not any(private in text for text in told)


def test_the_commitment_is_to_the_counts(service: Service) -> None:
    """As numpy.save writes them, in the type that the capacity asks for: who has the files can make that file."""
    declared = named("committed", capacity=1000)
    committed = sent(service, declared).json()["commitment"]
    key = service.admin.post(f"/v1/datasets/{declared['name']}/commitment").json()["key"]
    sink = io.BytesIO()
    np.save(sink, counts().astype(np.uint16))
    assert commitment(bytes.fromhex(key), FileDigest.of(io.BytesIO(sink.getvalue()))) == committed


def test_the_source_is_never_asked_again(service: Service, folder: Path, tmp_path: Path) -> None:
    """Its files are gone, and answers are what they were; the name is taken; equal numbers are known."""
    copy = folder / unique("gone")
    shutil.copytree(folder / "quux", copy)
    declared = {**declare(ATTRIBUTES, f"{copy.name}/*.parquet"), "name": unique("gone")}
    assert sent(service, declared).status_code == 201
    shutil.rmtree(copy)
    assert service.admin.get(f"/v1/datasets/{declared['name']}/dummy").text.startswith('"ward","age"')
    analyst = service.principal("analyst")
    session = measured(analyst, declared["name"])["id"]
    assert ask(analyst, session, where(ward=0))["value"] == counts()[0].sum()
    refused(sent(service, declared), "conflict")
    again = sent(service, named("again")).json()
    assert any(declared["name"] in warning for warning in again["warnings"])


def test_forms_that_are_none(service: Service) -> None:
    """Would catch a form without a file that is taken for one of a source, and a file that is left unread."""
    whole = named("form")
    plain = {**declare(PLAIN), "name": unique("form")}
    refused(sent(service, plain), "invalid-request")
    for declared in ([], None, "source", 7):
        refused(sent(service, declared), "invalid-request")
    unnamed = ({"type": "parquet"}, {"type": "csv", "files": ["x"]}, {"type": "parquet", "files": []})
    for source in (None, {}, [], "x", *unnamed):
        refused(sent(service, {**plain, "source": source}), "invalid-dataset")
    both = refused(register(service.admin, whole, npy(counts()), "c.npy"), "invalid-dataset")
    assert "leave out one of the two" in both["detail"]
    refused(service.admin.post("/v1/datasets", files={"data": ("x.csv", b"a\n1\n")}), "invalid-request")
    check = service.admin.post(
        "/v1/datasets/check", data={"spec": json.dumps(whole)}, files={"data": ("c.npy", npy(counts()))}
    )
    assert any("leave out one of the two" in problem["detail"] for problem in check.json()["problems"]), check.text
    refused(service.principal("analyst").post("/v1/datasets", files={"spec": (None, json.dumps(whole))}), "forbidden")
    assert sent(service, whole).status_code == 201, "the name was not spent"


def test_records_outside_are_told_to_the_admin_by_attribute(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    declared = {**declare(ATTRIBUTES, "*.parquet"), "name": unique("outside")}
    found = refused(sent(service, declared), "invalid-dataset")
    assert found["outside"] == {"ward": 1}
    assert "77777" not in json.dumps(found).replace(",", "") + caplog.text


def test_a_server_without_folders_reads_none(tmp_path: Path, folder: Path) -> None:
    with serving(tmp_path / "var") as running:
        found = refused(sent(running, named("none")), "invalid-dataset")
    assert "CURATOR_SOURCE_FOLDERS" in found["detail"]
    assert str(folder) not in found["detail"]


def test_the_client_and_the_command_send_a_declaration_alone(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = named("client")
    with Curator(service.url, service.admin_key) as curator:
        made = curator.register(declared)
        assert made.report is not None
        assert made.report.kept == 500
        with pytest.raises(Refused, match="needed"):
            curator.register({**declare(PLAIN), "name": unique("client")})
    declared = named("command")
    (tmp_path / "spec.json").write_text(json.dumps(declared))
    monkeypatch.setenv("CURATOR_URL", service.url)
    monkeypatch.setenv("CURATOR_API_KEY", service.admin_key)
    done = CliRunner().invoke(cli, ["dataset", "add", str(tmp_path / "spec.json")])
    assert done.exit_code == 0, done.output
    assert declared["name"] in done.output
    assert [row["name"] for row in service.admin.get("/v1/datasets").json()["items"]].count(declared["name"]) == 1
