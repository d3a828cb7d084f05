"""Made-up records and sessions on such, through the whole service: what they are made of, and what they leave alone."""

from __future__ import annotations

import datetime
import io
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from app.bootstrap.noise import SystemNoise
from app.services import dummy_datasets
from app.services.errors import TooManyRequests, Unavailable
from app.services.principals import Principal
from app.verifying.transcript import replay_file
from tests.kit.service import ARROW, JSON, PARQUET, Service, ask, refused, register, serving, start, unique

pytestmark = pytest.mark.api

SPEC: JSON = {
    "kind": "table",
    "attributes": [{"name": "sex", "values": ["f", "m"]}, {"name": "code", "size": 5}, {"name": "more", "size": 40}],
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-9},
}
#: Far from even: everybody has the same values.
RECORDS = 4000
CSV = ("sex,code,more\n" + "f,4,39\n" * RECORDS).encode()
ALIKE = {"type": "predicate", "where": {"sex": "f", "code": 4}}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(tmp_path_factory.mktemp("dummies"), noise=SystemNoise()) as running:
        yield running


@pytest.fixture(scope="module")
def analyst(service: Service) -> httpx.Client:
    return service.principal("analyst")


def registered(service: Service, data: bytes = CSV, **more: Any) -> str:
    name = unique("survey")
    assert register(service.admin, {**SPEC, "name": name, **more}, data, "survey.csv").status_code == 201
    return name


def opened(client: httpx.Client, dataset: str, **words: Any) -> JSON:
    reply = client.post("/v1/sessions", json={"dataset": dataset, "epsilon": 1.0, "dummy": True, **words})
    assert reply.status_code == 201, reply.text
    found: JSON = reply.json()
    return found


def truth(analyst: httpx.Client, name: str) -> int:
    """How many of the made-up records are as all the private ones are."""
    reply = analyst.get(f"/v1/datasets/{name}/dummy", params={"records": RECORDS}, headers={"Accept": ARROW})
    with pa.ipc.open_stream(reply.content) as reader:
        columns = reader.read_all().to_pydict()
    return sum(s == "f" and c == 4 for s, c in zip(columns["sex"], columns["code"], strict=True))


def test_dummy_records_in_every_format(service: Service, analyst: httpx.Client) -> None:
    """CSV unless it is said otherwise, the same records whatever the format, the same bytes every time, and nothing of
    the data: an equal declaration over other data gives the same. Would catch a format that is named wrong, and records
    that are the private ones."""
    name = registered(service)
    path = f"/v1/datasets/{name}/dummy"
    plain = analyst.get(path, params={"records": 500, "seed": 3})
    assert plain.headers["content-type"].startswith("text/csv")
    assert analyst.get(path, params={"records": 500, "seed": 3}).content == plain.content
    read = pa.csv.read_csv(io.BytesIO(plain.content))
    for accept in (ARROW, PARQUET):
        reply = analyst.get(path, params={"records": 500, "seed": 3}, headers={"Accept": accept})
        assert reply.headers["content-type"] == accept
        if accept == ARROW:
            with pa.ipc.open_stream(reply.content) as reader:
                table = reader.read_all()
        else:
            table = pa.parquet.read_table(io.BytesIO(reply.content))
        assert table.to_pydict() == read.to_pydict()
    assert len(read) == 500
    assert len(analyst.get(path).text.splitlines()) == 1001
    service.admin.delete(f"/v1/datasets/{name}")
    assert analyst.get(path, params={"records": 500, "seed": 3}).content == plain.content, "made of the declaration"


@pytest.mark.parametrize(
    "words", [{"records": 0}, {"records": 100_001}, {"records": "x"}, {"seed": 2**63}, {"seed": -1}]
)
def test_what_cannot_be_made_is_refused(service: Service, analyst: httpx.Client, words: JSON) -> None:
    """Would catch numbers that end in another status."""
    name = registered(service)
    refused(analyst.get(f"/v1/datasets/{name}/dummy", params=words), "invalid-request")
    refused(analyst.get(f"/v1/datasets/{name}/dummy", headers={"Accept": "image/png"}), "invalid-request")


def test_who_has_no_grant_sees_none(service: Service, analyst: httpx.Client) -> None:
    """Would catch a declaration by grant that is told to everybody by its records."""
    name = registered(service, access="granted")
    refused(analyst.get(f"/v1/datasets/{name}/dummy"), "forbidden")
    refused(analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 1.0, "dummy": True}), "forbidden")


@pytest.mark.parametrize(
    "words",
    [
        {"max_queries": 50},
        {"mechanism": {"construction": "gaussian"}, "max_queries": 50},
        {"mechanism": {"construction": "mw"}, "max_queries": 50, "max_updates": 5},
        {"max_queries": 50, "contract": True},
    ],
    ids=["evidence", "gaussian", "mw", "contract"],
)
def test_a_dummy_session_leaves_everything_alone(
    service: Service, analyst: httpx.Client, tmp_path: Path, words: JSON
) -> None:
    """It has the plan of a real one, says what it is wherever it speaks, replays from its file, and moves nothing of
    the data set: descriptor, ledger, evidence and vault are what they were to the byte. Its answers are of made-up
    records: the private ones, which are all alike, are nowhere near. Would catch a session that reads the private
    data, a reservation, and a measurement that enters the data set's evidence."""
    name = registered(service)
    before = [service.admin.get(f"/v1/datasets/{name}{part}").content for part in ("", "/ledger", "/measurements")]
    listed = service.admin.get("/v1/datasets").content
    planned = analyst.post("/v1/plans", json={"dataset": name, "epsilon": 1.0, **words}).json()
    files = sorted(path.name for path in service.settings.vault_dir.glob("*"))
    session = opened(analyst, name, **words)
    id = session["id"]
    assert (session["dummy"], session["dataset"]) == (True, name)
    for field in ("epsilon", "error_bound", "max_updates", "reserved"):
        assert session["plan"][field] == planned[field]
    made = truth(analyst, name)
    assert made < RECORDS / 5
    answers = [
        ask(analyst, id, ALIKE),
        ask(analyst, id, {"type": "predicate", "where": {"more": 39}}),
        ask(analyst, id, ALIKE),
    ]
    assert all(answer["dummy"] is True for answer in answers)
    assert answers[2]["source"] == "cached"
    if answers[0]["source"] == "measurement":
        assert abs(answers[0]["value"] - made) < 400
    assert all(abs(answer["value"]) < RECORDS / 2 for answer in answers)
    assert service.admin.get("/v1/datasets").content == listed
    held = next(row for row in service.rows("sessions") if row[0] == id)
    hidden = next(text for text in held if isinstance(text, str) and text.startswith("~"))
    for part in ("", "/ledger", "/measurements", "/dummy"):
        refused(service.admin.get(f"/v1/datasets/{hidden}{part}"), "not-found")
    refused(service.admin.delete(f"/v1/datasets/{hidden}"), "not-found")
    path = tmp_path / "t.ndjson"
    path.write_bytes(analyst.get(f"/v1/sessions/{id}/transcript").content)
    assert b'"dummy":true' in path.read_bytes().split(b"\n")[0]
    verdict = replay_file(path)
    assert verdict.ok, (verdict.problem, verdict.sequence)
    assert verdict.summary["dummy"] is True
    path.write_bytes(path.read_bytes().replace(b'"dummy":true,', b""))
    assert not replay_file(path).ok, "a dummy session is not passed off as a real one"
    closed = analyst.post(f"/v1/sessions/{id}/close").json()
    assert (closed["status"], closed["dummy"]) == ("closed", True)
    after = [service.admin.get(f"/v1/datasets/{name}{part}").content for part in ("", "/ledger", "/measurements")]
    assert after == before
    assert sorted(path.name for path in service.settings.vault_dir.glob("*")) == files, "its records are destroyed"
    assert analyst.get(f"/v1/sessions/{id}").json()["dummy"] is True


def test_it_works_when_nothing_is_left(service: Service, analyst: httpx.Client) -> None:
    """Would catch a dummy session that looks at what is left of the budget, and one that starts from what was
    measured."""
    name = registered(service)
    real = analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 1.0, "max_queries": 20})
    assert real.status_code == 201
    assert "dummy" not in real.json()
    assert "dummy" not in ask(analyst, real.json()["id"], ALIKE)
    refused(analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 1.0, "max_queries": 20}), "budget-exhausted")
    session = opened(analyst, name, max_queries=20)
    header = analyst.get(f"/v1/sessions/{session['id']}/transcript").text.splitlines()[0]
    assert '"known":[]' in header
    assert ask(analyst, session["id"], ALIKE)["value"] < RECORDS / 2


def test_an_idempotency_key_opens_one(service: Service, analyst: httpx.Client) -> None:
    """Would catch made-up records that are kept for a session that was open already."""
    name, key = registered(service), {"Idempotency-Key": unique("key")}
    words = {"dataset": name, "epsilon": 1.0, "max_queries": 20, "dummy": True}
    first = analyst.post("/v1/sessions", json=words, headers=key)
    files = sorted(path.name for path in service.settings.vault_dir.glob("*"))
    assert analyst.post("/v1/sessions", json=words, headers=key).content == first.content
    assert sorted(path.name for path in service.settings.vault_dir.glob("*")) == files
    refused(analyst.post("/v1/sessions", json={**words, "dummy": "yes"}), "invalid-request")


def test_a_start_ends_what_a_crash_left(tmp_path: Path) -> None:
    """An open session goes on after a restart, on the same records; those of a closed one whose end was not told, and
    those without a session, are destroyed. Would catch records that stay for ever, and a session that is cut off."""
    service = start(tmp_path / "data", noise=SystemNoise())
    name = registered(service)
    session = opened(service.admin, name, max_queries=20)
    first = ask(service.admin, session["id"], ALIKE)
    # As if the process had died between the records and the session.
    made = service.built.services.dummies
    with service.built.store.read() as tx:
        row = tx.dataset(name)
        assert row is not None
        admin = next(p for p in tx.principals() if p.role == "admin")
    from app.services.principals import Principal

    kept = made.keep(made.made(Principal(admin.name, "admin"), row))
    assert (service.settings.vault_dir / kept.vault_entry["file_name"]).exists()
    service.stop()
    again = start(tmp_path / "data", noise=SystemNoise())
    try:
        assert not (again.settings.vault_dir / kept.vault_entry["file_name"]).exists()
        repeated = ask(again.admin, session["id"], ALIKE)
        assert (repeated["source"], repeated["value"], repeated["dummy"]) == ("cached", first["value"], True)
        asked = ask(again.admin, session["id"], {"type": "predicate", "where": {"sex": "m"}})
        assert np.isfinite(asked["value"])
    finally:
        again.stop()


def test_one_analyst_does_not_take_them_all(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches one who keeps others from trying anything out; and a place that a closed session does not give back."""
    monkeypatch.setattr(dummy_datasets, "DUMMIES_EACH", 2)
    name, asked = registered(service), {"epsilon": 1.0, "dummy": True}
    greedy, other = service.principal("analyst"), service.principal("analyst")
    first, _ = (opened(greedy, name) for _ in range(2))
    problem = refused(greedy.post("/v1/sessions", json={"dataset": name, **asked}), "too-many-requests")
    assert "close one" in problem["detail"]
    mine = opened(other, name)
    for client, session in ((greedy, first), (other, mine)):
        assert client.post(f"/v1/sessions/{session['id']}/close").status_code == 200
    opened(greedy, name)


def test_a_share_is_one_of_requests_of_one_moment_too(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are admitted before one is opened. Catches a share that is counted only then."""
    monkeypatch.setattr(dummy_datasets, "DUMMIES_EACH", 2)
    name, opener = registered(service), service.built.services.opener
    greedy = Principal(unique("greedy"), "analyst")
    assert service.admin.post("/v1/principals", json={"name": greedy.name, "role": "analyst"}).status_code == 201
    asked = {"dataset": name, "epsilon": 1.0, "dummy": True}
    prepared = [opener.prepare(greedy, asked, None) for _ in range(4)]
    files = set(service.settings.vault_dir.iterdir())
    for number, each in enumerate(prepared):
        assert not isinstance(each, bytes)
        with nullcontext() if number < 2 else pytest.raises(TooManyRequests, match="close one"):
            opener.open(greedy, each, None)
    assert len(set(service.settings.vault_dir.iterdir()) - files) == 2


def test_they_end_when_they_are_old(service: Service, analyst: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches sessions that are forgotten and kept for good, with their records; and one that ends before its time, or
    is on real records."""
    name = registered(service)
    real = analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 0.5}).json()["id"]
    session = opened(analyst, name)["id"]
    keeper = service.built.services.dummies
    keeper.end_old()
    ask(analyst, session, ALIKE)
    files = set(service.settings.vault_dir.iterdir())
    monkeypatch.setattr(dummy_datasets, "DUMMY_AGE", datetime.timedelta(seconds=-10))
    keeper.end_old()
    refused(analyst.post(f"/v1/sessions/{session}/queries", json=ALIKE), "session-closed")
    assert analyst.get(f"/v1/sessions/{session}").json()["status"] == "closed"
    assert len(set(service.settings.vault_dir.iterdir())) < len(files)
    ask(analyst, real, ALIKE)
    keeper.end_old()


def test_one_that_cannot_end_keeps_no_other(
    service: Service, analyst: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turn to close does not come, whoever keeps it. Catches old sessions that stay for good behind that one."""
    name = registered(service)
    sessions = {opened(analyst, name)["id"] for _ in range(3)}
    keeper = service.built.services.dummies
    close, tried = keeper._close_session, []

    def closing(id: str, seconds: float | None) -> None:
        tried.append(id)
        if id == tried[0]:
            raise Unavailable("it is kept")
        close(id, seconds)

    monkeypatch.setattr(dummy_datasets, "DUMMY_AGE", datetime.timedelta(seconds=-10))
    monkeypatch.setattr(keeper, "_close_session", closing)
    keeper.end_old()
    assert sessions <= set(tried)
    left = {id for id in sessions if analyst.get(f"/v1/sessions/{id}").json()["status"] == "open"}
    assert left == sessions & {tried[0]}
    monkeypatch.setattr(keeper, "_close_session", close)
    keeper.end_old()
    assert {analyst.get(f"/v1/sessions/{id}").json()["status"] for id in sessions} == {"closed"}
