"""What is sent to BigQuery and Trino by their own drivers, to servers that speak as theirs do (`acted.py`), and data
sets of their tables from outside, by HTTP.

They would catch a statement that goes on when nobody waits for it, a secret or an engine's words that anybody is told,
an account that could write, and a name that a driver changes.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import structlog
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from app.declarations.errors import InvalidDataset
from app.services.errors import SourceUnavailable
from app.storage.sources import Sources, WarehouseTables, complaints
from app.storage.sources.drivers import DRIVERS, Place
from tests.audit.auditing import audited
from tests.datasets.acted import KEY, Acted, acted
from tests.datasets.test_connections import KEY as VAULT_KEY
from tests.datasets.test_warehouse_sources import TYPES, Trial, changed, declared, sources_of, visits
from tests.datasets.translated import Translating
from tests.kit.noise import Noise, nothing
from tests.kit.patience import patience
from tests.kit.service import Service, ask, refused, serving, unique, where

pytestmark = [pytest.mark.unit, pytest.mark.slow]

WARD = {"name": "ward", "size": 3}


@pytest.fixture(params=["bigquery", "trino"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Trial, Acted]]:
    engine = request.param
    driver = Translating(engine, ["lake"])
    with acted(driver, "lake") as (server, url):
        trial = Trial(engine, url, "clinic", DRIVERS[engine], acted=True)
        trial.run(f"CREATE SCHEMA {trial.quoted('lake', 'clinic')}")
        yield trial, server


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_what_a_driver_sends(served: tuple[Trial, Acted]) -> None:
    """How long a statement may take, at the engine too, and as whom it is asked. Would catch an account with a token
    to write, a token of another host, and an answer of an earlier state."""
    trial, server = served
    visits(trial)
    server.heads.clear()
    server.bodies.clear()
    sources_of(trial, seconds=77.0).register(declared(trial, [WARD]))
    assert len(server.bodies) == 5  # columns, two looks, what is outside, and the counts
    for head, body in zip(server.heads, server.bodies, strict=True):
        if trial.engine == "trino":
            assert "query_max_run_time=77s" in head["X-Trino-Session"]
            assert (head["X-Trino-User"], head["X-Trino-Source"]) == ("u", "curator")
            assert "authorization" not in map(str.lower, head)
            continue
        assert body["useQueryCache"] is False
        assert 70_000 < int(body["jobTimeoutMs"]) <= 77_000
        signed, _, signature = head["authorization"].removeprefix("Bearer ").rpartition(".")
        KEY.public_key().verify(_bytes(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        token = json.loads(_bytes(signed.partition(".")[2]))
        assert token["scope"] == "https://www.googleapis.com/auth/bigquery.readonly"
        assert (token["iss"], token["sub"]) == ("u@p.iam.gserviceaccount.com",) * 2


def test_a_percent_sign_is_what_it_is(served: tuple[Trial, Acted]) -> None:
    """Two of them are one to a driver whose statements have parameters."""
    trial, _ = served
    kind = TYPES[trial.engine][pa.int64()]
    trial.fill([("a%%b", kind), ("a%b", kind)], [[1, 2]])
    spec = declared(trial, [{"name": "x", "size": 3, "column": "a%%b"}, {"name": "y", "size": 3, "column": "a%b"}])
    found: Any = sources_of(trial).register(spec).data
    assert found.array[1, 2] == 1


def test_what_takes_too_long_is_ended(served: tuple[Trial, Acted]) -> None:
    """Even if the engine does not listen; Trino is told to end it. Would catch a request that waits for an engine, and
    a statement that goes on for nobody."""
    trial, server = served
    visits(trial)
    server.slow = True
    began = time.monotonic()
    with pytest.raises(SourceUnavailable, match="longer than"):
        sources_of(trial, seconds=0.3).register(declared(trial, [WARD]))
    assert time.monotonic() - began < patience(5)
    while trial.engine == "trino" and not server.cancelled:
        assert time.monotonic() - began < patience(10)
        time.sleep(0.01)
    assert server.cancelled == ({server.bodies[-1]} if trial.engine == "trino" else set())
    server.slow = False


def test_what_an_engine_says_is_told_nobody(served: tuple[Trial, Acted], caplog: pytest.LogCaptureFixture) -> None:
    """Whether it refuses a statement or is away. The server says "quux-secret"."""
    trial, server = served
    visits(trial)
    honest, server.rows = server.rows, lambda text: exec("raise OSError")  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as logged, pytest.raises(SourceUnavailable) as failed:
        sources_of(trial).register(declared(trial, [WARD]))
    (complaint,) = complaints(trial.url)
    server.rows = honest  # type: ignore[method-assign]
    assert complaints(trial.url) == []
    assert "cannot be reached" in complaint
    told = failed.value.detail + str(logged) + caplog.text + complaint
    assert not any(secret in told for secret in ("quux", "PRIVATE", "clinic", server.at))


@pytest.mark.parametrize("engine", DRIVERS)
def test_a_driver_that_is_not_there_is_named(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install. Would catch a server that does not start without it, and a 500."""
    for module in ("trino.dbapi", "google.cloud.bigquery", "snowflake.connector"):
        monkeypatch.setitem(sys.modules, module, None)
    trial = Trial(engine, f"{engine}://u:p@h/d", "s", DRIVERS[engine], acted=True)
    with pytest.raises(InvalidDataset, match=rf"curator-server\[{engine}\]"):
        sources_of(trial).register(declared(trial, [WARD]))
    assert [f"curator-server[{engine}]" in each for each in complaints(trial.url)] == [True]


def test_a_snowflake_that_is_away_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its driver is in no lock: here nothing but its absence is tried."""
    tables = WarehouseTables(lambda name, type: "snowflake://u:quux@h/d", 1.0, ["snowflake"])
    trial = Trial("snowflake", "snowflake://u:p@h/d", "s", DRIVERS["snowflake"], acted=True)
    monkeypatch.setitem(sys.modules, "snowflake.connector", None)
    with pytest.raises(InvalidDataset) as refusal:
        Sources({"snowflake": tables}).register(declared(trial, [WARD]))
    assert "quux" not in refusal.value.detail


PLACES = {
    "trino://u:p@h:8443/lake": Place("trino", "h", 8443, "lake", "u", "p"),
    "snowflake://u:p%40%2F@a-b.snowflakecomputing.com/LAKE?warehouse=W&role=R": Place(
        "snowflake", "a-b.snowflakecomputing.com", 443, "LAKE", "u", "p@/", {"warehouse": "W", "role": "R"}
    ),
    "bigquery://a%40p.iam:k%0Ak@bigquery.googleapis.com/my-project": Place(
        "bigquery", "bigquery.googleapis.com", 443, "my-project", "a@p.iam", "k\nk"
    ),
    "trino://u@127.0.0.1:8080/lake": Place("trino", "127.0.0.1", 8080, "lake", "u", ""),
}


@pytest.mark.parametrize("url", PLACES)
def test_a_url_says_a_place(url: str) -> None:
    """And shows nothing of it. Would catch a secret in a traceback."""
    assert Place.of(url) == PLACES[url]
    assert "lake" not in repr(Place.of(url)).lower()


# ---------------------------------------------------------------------------------------------- over HTTP

HOSTS = "127.0.0.1,any.example.org"
REFUSED = {
    "another host": "trino://u:quux@elsewhere.example.org/d",
    "no password": "trino://u@any.example.org/d",
    "an option": "trino://u:quux@any.example.org/d?http_scheme=http",
    "a fragment": "trino://u:quux@any.example.org/d#quux",
    "no user": "bigquery://:quux@any.example.org/d",
    "no database": "snowflake://u:quux@any.example.org/",
    "a database in quotes": "snowflake://u:quux@any.example.org/d%22quux",
    "a port that is none": "trino://u:quux@any.example.org:abc/d",
    "no text": "trino://u:%FFquux@any.example.org/d",
    "long": "trino://u:" + "quux" * 2000 + "@any.example.org/d",
    "a place for another library": "snowflake://u:quux@any.example.org/d?account=quux",
    "nothing": "trino://",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    how = {"source_hosts": HOSTS, "vault_key": VAULT_KEY, "source_tick_seconds": 0.05, "untried_engines": "trino"}
    with serving(tmp_path_factory.mktemp("warehouses") / "var", noise=Noise(nothing), **how) as running:
        yield running


def added(service: Service, url: str) -> str:
    name = unique("warehouse")
    reply = service.admin.post("/v1/connections", json={"name": name, "url": url})
    assert reply.status_code == 201, reply.text
    assert reply.json()["type"] == url.partition(":")[0]
    return name


@pytest.mark.parametrize("what", REFUSED)
def test_a_url_that_leads_elsewhere_is_refused(service: Service, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without a word of it."""
    reply = service.admin.post("/v1/connections", json={"name": unique("c"), "url": REFUSED[what]})
    assert "quux" not in str(refused(reply, "invalid-request")) + caplog.text


def test_answers_are_those_of_the_records(service: Service) -> None:
    """Registered, asked, moved and put back, of a table that is too wide to be counted at once; and no secret, table or
    column is in any reply, row or file. Would catch a core that must know of an engine."""
    with ExitStack() as stack:
        server, url = stack.enter_context(acted(Translating("trino", ["lake"]), "lake"))
        trial = Trial("trino", url, "zebra", DRIVERS["trino"], acted=True)
        trial.run(f"CREATE SCHEMA {trial.quoted('lake', 'zebra')}")
        visits(trial)
        connection = added(service, url)
        assert service.admin.post(f"/v1/connections/{connection}/check").json()["problems"] == []
        notes = {"name": "note", "values": ["x", *(f"x{k}" for k in range(4095))]}
        attributes = [WARD, {"name": "year", "size": 4000}, notes]
        made = {**json.loads(declared(trial, attributes).model_dump_json(exclude_none=True)), "name": unique("lake")}
        made["source"]["connection"], made["budget"] = connection, {"epsilon": 50.0, "delta": 1e-9}
        reply = service.admin.post("/v1/datasets", files={"spec": (None, json.dumps(made))})
        assert reply.status_code == 201, reply.text
        analyst = service.principal("analyst")
        words = {"dataset": made["name"], "mechanism": {"construction": "gaussian"}, "epsilon": 0.3, "max_queries": 9}
        session = analyst.post("/v1/sessions", json=words).json()["id"]
        assert ask(analyst, session, where(ward=2))["value"] == 50
        changed(trial, "a record more")
        refused(analyst.post(f"/v1/sessions/{session}/queries", json=where(year=7)), "source-moved")
        assert ask(analyst, session, where(ward=2))["value"] == 50
        trial.run(f"DELETE FROM {trial.table()} WHERE {trial.quoted('year')} = 7")
        assert ask(analyst, session, where(year=40))["value"] == 1
        assert audited(service.principal("auditor"), all=True)["verdict"] == "holds"
        told = [reply.text, service.stored(), service.admin.get("/v1/datasets").text]
        told += [str(service.rows(name)) for name in ("datasets", "events", "connections", "kept_counts")]
        for secret in ("zebra", "visits", server.at):
            assert not any(secret in text for text in told), secret
        refused(service.admin.delete(f"/v1/connections/{connection}"), "conflict")
        assert service.admin.delete(f"/v1/datasets/{made['name']}").status_code == 200


def test_the_wrong_engine_is_refused(service: Service) -> None:
    """One that the operator did not name, and a connection that leads to another."""
    connection = added(service, "trino://u:quux@any.example.org/lake")

    def register(type: str) -> str:
        source = {"type": type, "connection": connection, "table": "a.b"}
        spec = {"name": unique("d"), "kind": "table", "budget": {"epsilon": 1, "delta": 1e-9}, "source": source}
        sent = {"spec": (None, json.dumps({**spec, "attributes": [WARD]}))}
        return str(refused(service.admin.post("/v1/datasets", files=sent), "invalid-dataset")["detail"])

    assert "CURATOR_UNTRIED_ENGINES" in register("snowflake")
    assert "it leads to trino, and source.type is postgresql" in register("postgresql")


def test_a_setting_names_engines_alone(tmp_path: Path) -> None:
    """Would catch a misspelt name that takes nothing, and is never noticed."""
    with pytest.raises(ValueError, match="expected some of bigquery"):
        serving(tmp_path / "var", untried_engines="trino,mysql").__enter__()
