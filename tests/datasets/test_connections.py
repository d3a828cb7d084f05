"""Connections to databases outside, and data sets of their tables, from outside: by HTTP, the client and the command.

They would catch a secret that anybody is told or that lies about unsealed, a host that the operator did not name, and
answers of a table that differ from its records.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import conninfo, sql
from typer.testing import CliRunner

import app.cli.application  # noqa: F401 - with all commands
from app.cli.groups import cli
from app.declarations.errors import CuratorError, InvalidRequest
from app.storage import connection_urls
from app.storage.connections import SealedConnections
from app.storage.vault import Vault, VaultError
from curator_client import Curator
from tests.audit.auditing import audited
from tests.datasets.outside import SCHEMA, Database, outside
from tests.datasets.source_files import JSON, declare
from tests.kit.noise import Noise, nothing
from tests.kit.service import Service, ask, refused, serving, unique, where

pytestmark = pytest.mark.api

JSON_BODY = {"Content-Type": "application/json"}
KEY = base64.b64encode(bytes(range(32))).decode()
WARDS, YEARS, MONTHS = np.arange(300) % 3, np.arange(300) * 800, np.arange(300) % 12
ATTRIBUTES: list[JSON] = [
    {"name": "ward", "size": 3, "column": "zebra ward"},
    {"name": "year", "size": 2**18},
    {"name": "month", "size": 24},
]


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with outside() as found:
        found.fill(
            [("zebra ward", "integer"), ("year", "integer"), ("month", "smallint")],
            [[int(each) for each in record] for record in zip(WARDS, YEARS, MONTHS, strict=True)],
        )
        yield found


@pytest.fixture(scope="module")
def url(database: Database) -> str:
    """The URL of the role that reads, with a password that is searched for."""
    told = conninfo.conninfo_to_dict(database.reader)
    host = str(told["host"]).replace("/", "%2F")
    password = "quux-secret"
    return f"postgresql://{told['user']}:{password}@{host}:{told.get('port', 5432)}/{told['dbname']}"


@pytest.fixture(scope="module")
def hosts(database: Database) -> str:
    folder = conninfo.conninfo_to_dict(database.reader)["host"]
    return f"db.example.org:6543,{ANY_PORT},2001:db8::1,[2001:db8::2]:6543,{folder}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, hosts: str) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("connections") / "var"
    how = {"source_hosts": hosts, "vault_key": KEY, "source_tick_seconds": 0.05}
    with serving(folder, noise=Noise(nothing), **how) as running:
        yield running


def added(service: Service, url: str) -> str:
    name = unique("warehouse")
    reply = service.admin.post("/v1/connections", json={"name": name, "url": url})
    assert reply.status_code == 201, reply.text
    return name


def spec(connection: str, **more: Any) -> JSON:
    source = {"type": "postgresql", "connection": connection, "table": f"{SCHEMA}.visits"}
    budget = {"epsilon": 50.0, "delta": 1e-9}
    return {**declare(ATTRIBUTES), "name": unique("outside"), "source": source, "budget": budget, **more}


def sent(service: Service, declared: JSON) -> httpx.Response:
    return service.admin.post("/v1/datasets", files={"spec": (None, json.dumps(declared))})


def test_answers_are_those_of_the_records(service: Service, database: Database, url: str) -> None:
    """Registered, asked, moved and put back; and no secret, host, table or column is in any reply, row or file."""
    connection = added(service, url)
    declared = spec(connection)
    reply = sent(service, declared)
    assert reply.status_code == 201, reply.text
    analyst = service.principal("analyst")
    words = {"dataset": declared["name"], "mechanism": {"construction": "gaussian"}, "epsilon": 0.3, "max_queries": 20}
    session = analyst.post("/v1/sessions", json=words).json()["id"]
    assert ask(analyst, session, where(ward=1))["value"] == 100
    late = where(ward=[0, 2], year={"ge": 120_000})
    assert ask(analyst, session, late)["value"] == ((WARDS != 1) & (YEARS >= 120_000)).sum()
    table = sql.Identifier(SCHEMA, "visits")
    database.run(sql.SQL("INSERT INTO {} VALUES (1, 7, 7)").format(table))
    path = f"/v1/sessions/{session}/queries"
    moved = refused(analyst.post(path, json=where(month=7)), "source-moved")
    assert ask(analyst, session, where(ward=1))["value"] == 100
    database.run(sql.SQL("DELETE FROM {} WHERE year = 7").format(table))
    assert ask(analyst, session, where(month=7))["value"] == (MONTHS == 7).sum()
    assert audited(service.principal("auditor"), all=True)["verdict"] == "holds"
    told = [reply.text, str(moved), service.stored(), service.admin.get("/v1/connections").text]
    told += [service.admin.get("/v1/datasets").text, service.admin.get("/metrics").text]
    told += [str(service.rows(name)) for name in ("datasets", "events", "connections", "kept_counts")]
    for secret in ("quux", "zebra", SCHEMA, "visits", database.reader.split("user=")[1].split()[0]):
        assert not any(secret in text for text in told), secret
    # As long as it is asked through the connection, that stays.
    refused(service.admin.delete(f"/v1/connections/{connection}"), "conflict")
    assert service.admin.delete(f"/v1/datasets/{declared['name']}").status_code == 200
    assert service.admin.delete(f"/v1/connections/{connection}").status_code == 204
    refused(service.admin.delete(f"/v1/connections/{connection}"), "not-found")
    refused(sent(service, spec(connection)), "invalid-dataset")


def test_a_table_that_is_counted_whole_needs_no_connection_afterwards(service: Service, url: str) -> None:
    connection = added(service, url)
    declared = spec(connection, attributes=[ATTRIBUTES[0], ATTRIBUTES[2]])
    assert sent(service, declared).status_code == 201
    assert service.admin.delete(f"/v1/connections/{connection}").status_code == 204
    analyst = service.principal("analyst")
    words = {"dataset": declared["name"], "mechanism": {"construction": "gaussian"}, "epsilon": 0.3, "max_queries": 20}
    session = analyst.post("/v1/sessions", json=words).json()["id"]
    assert ask(analyst, session, where(ward=1))["value"] == 100


def checked(service: Service, connection: str) -> list[str]:
    reply = service.admin.post(f"/v1/connections/{connection}/check")
    assert reply.status_code == 200, reply.text
    assert "quux" not in reply.text
    return list(reply.json()["problems"])


def test_another_password_for_what_is_asked(service: Service, database: Database, url: str) -> None:
    """The URL is replaced while a data set is asked through it, which goes on: of the same database, and not of another
    one. Would catch a data set that must be retired because a password changed, and one that is answered from
    records that nobody registered.
    """
    connection = added(service, url)
    declared = spec(connection)
    assert sent(service, declared).status_code == 201
    analyst = service.principal("analyst")
    words = {"dataset": declared["name"], "mechanism": {"construction": "gaussian"}, "epsilon": 0.3, "max_queries": 20}
    session = analyst.post("/v1/sessions", json=words).json()["id"]
    path, moved = f"/v1/sessions/{session}/queries", f"/v1/connections/{connection}"
    other = url.replace("quux-secret", "zebra-secret")
    told = service.admin.put(moved, json={"url": other})
    assert told.status_code == 200, told.text
    assert told.json()["name"] == connection
    assert ask(analyst, session, where(ward=1))["value"] == 100
    elsewhere = f"{url.rpartition('/')[0]}/postgres"
    assert service.admin.put(moved, json={"url": elsewhere}).status_code == 200
    refused(analyst.post(path, json=where(month=7)), "source-moved")
    assert service.admin.put(moved, json={"url": url}).status_code == 200
    assert ask(analyst, session, where(month=7))["value"] == (MONTHS == 7).sum()
    kept = service.stored() + str(service.rows("connections")) + service.admin.get("/v1/connections").text
    assert not any(secret in kept for secret in ("quux", "zebra"))
    refused(service.admin.put("/v1/connections/nowhere", json={"url": url}), "not-found")
    refused(service.admin.put(moved, json={"url": "postgresql://u:quux@evil/d"}), "invalid-request")
    assert ask(analyst, session, where(ward=1))["value"] == 100
    assert service.principal("analyst").put(moved, json={"url": url}).status_code == 403


def test_a_connection_is_looked_at(service: Service, database: Database, url: str, hosts: str) -> None:
    """One that only reads is well; what else a role may do is complained of, and so is a database that does not
    answer. Would catch a check that cannot fail.
    """
    connection = added(service, url)
    table, role = sql.Identifier(SCHEMA, "visits"), database.role
    assert checked(service, connection) == []
    database.run(sql.SQL("GRANT INSERT ON {} TO {}").format(table, role))
    try:
        assert ["may write to 1 tables" in each for each in checked(service, connection)] == [True]
    finally:
        database.run(sql.SQL("REVOKE INSERT ON {} FROM {}").format(table, role))
    database.run(sql.SQL("REVOKE SELECT ON {} FROM {}").format(table, role))
    try:
        assert ["reads no table" in each for each in checked(service, connection)] == [True]
    finally:
        database.run(sql.SQL("GRANT SELECT ON {} TO {}").format(table, role))
    name = database.owner.info.dbname
    database.run(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(sql.Identifier(name), role))
    try:
        assert ["create schemas" in each for each in checked(service, connection)] == [True]
    finally:
        database.run(sql.SQL("REVOKE CREATE ON DATABASE {} FROM {}").format(sql.Identifier(name), role))
    assert checked(service, connection) == []
    away = f"{url.rpartition('/')[0]}/nowhere"
    assert service.admin.put(f"/v1/connections/{connection}", json={"url": away}).status_code == 200
    (complaint,) = checked(service, connection)
    assert "cannot be reached" in complaint
    refused(service.admin.post("/v1/connections/nowhere/check"), "not-found")
    assert service.principal("analyst").post(f"/v1/connections/{connection}/check").status_code == 403


#: A host that the operator names without a port.
ANY_PORT = "any.example.org"
REFUSED = {
    "another host": "postgresql://u:quux@elsewhere.example.org/d?sslmode=verify-full",
    "another port": "postgresql://u:quux@db.example.org:5432/d?sslmode=verify-full",
    "one of several hosts": "postgresql://u:quux@db.example.org:6543,evil:6543/d?sslmode=verify-full",
    "in the clear": "postgresql://u:quux@db.example.org:6543/d",
    "in the clear if need be": "postgresql://u:quux@db.example.org:6543/d?sslmode=prefer",
    "an address beside": "postgresql://u:quux@db.example.org:6543/d?sslmode=require&hostaddr=10.0.0.1",
    "a service file": "postgresql://u:quux@db.example.org:6543/d?sslmode=require&service=quux",
    "a password file": "postgresql://u@db.example.org:6543/d?sslmode=require&passfile=/etc/shadow",
    "settings": "postgresql://u:quux@db.example.org:6543/d?sslmode=require&options=-csearch_path%3Dx",
    "no user": "postgresql://db.example.org:6543/d?sslmode=require",
    "another engine": "mysql://u:quux@db.example.org:6543/d",
    "words": "host=db.example.org port=6543 user=u password=quux dbname=d sslmode=require",
    "nothing": "",
    "another word for the engine": "postgres://u:quux@db.example.org:6543/d?sslmode=require",
    "a port that is none": f"postgresql://u:quux@{ANY_PORT}:abc/d?sslmode=require",
    "a port beyond all": f"postgresql://u:quux@{ANY_PORT}:123456/d?sslmode=require",
    "more ports than hosts": f"postgresql://u:quux@{ANY_PORT}/d?port=6543,6544&sslmode=require",
    "an address of six groups as a port": "postgresql://u:quux@[2001:db8::1:6543]/d?sslmode=require",
    "an empty host": f"postgresql://u:quux@,{ANY_PORT}/d?sslmode=require",
    "an empty user": f"postgresql://u:quux@{ANY_PORT}/d?sslmode=require&user=",
    "an empty database": f"postgresql://u:quux@{ANY_PORT}/?sslmode=require&dbname=",
    "an sslmode that is none": f"postgresql://u:quux@{ANY_PORT}/d?sslmode=quux",
    "a time that is none": f"postgresql://u:quux@{ANY_PORT}/d?sslmode=require&connect_timeout=quux",
    "no text": f"postgresql://u:%FFquux@{ANY_PORT}/d?sslmode=require",
    "a certificate": f"postgresql://u:quux@{ANY_PORT}/d?sslmode=verify-full&sslrootcert=/etc/quux",
    "Spark: another host": "sc://elsewhere.example.org:6543/;use_ssl=true;token=quux",
    "Spark: another port": "sc://db.example.org/;use_ssl=true;token=quux",
    "Spark: in the clear": "sc://db.example.org:6543/;token=quux",
    "Spark: in the clear, in words": "sc://db.example.org:6543/;use_ssl=false;token=quux",
    "Spark: a header of its own": f"sc://{ANY_PORT}/;use_ssl=true;x-quux=1",
    "Spark: somebody's session": f"sc://{ANY_PORT}/;use_ssl=true;session_id=quux",
    "Spark: two tokens": f"sc://{ANY_PORT}/;use_ssl=true;token=a;token=quux",
    "Spark: an empty token": f"sc://{ANY_PORT}/;use_ssl=true;token=",
    "Spark: a token of two lines": f"sc://{ANY_PORT}/;use_ssl=true;token=quux%0Ax: y",
    "Spark: no text": f"sc://{ANY_PORT}/;use_ssl=true;token=%FFquux",
    "Spark: a user in the host's place": f"sc://quux@{ANY_PORT}/;use_ssl=true",
    "Spark: a path": f"sc://{ANY_PORT}/quux;use_ssl=true",
    "Spark: a question": f"sc://{ANY_PORT}/;use_ssl=true?quux",
    "Spark: no host": "sc://:6543/;use_ssl=true;token=quux",
    "Spark: a port that is none": f"sc://{ANY_PORT}:0/;use_ssl=true;token=quux",
    "Spark: a port beyond all": f"sc://{ANY_PORT}:123456/;use_ssl=true;token=quux",
    "Spark: a socket": "sc://unix:%2Fquux/;use_ssl=true",
    "Spark: long": f"sc://{ANY_PORT}/;use_ssl=true;token=quux" + "x" * 5000,
    "long": "postgresql://u:quux@db.example.org:6543/d?sslmode=require&user=" + "u" * 5000,
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_url_that_leads_elsewhere_is_refused(service: Service, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without a word of it. Would catch a server that is made to reach where it should not, or to send a password in
    the clear."""
    reply = service.admin.post("/v1/connections", json={"name": unique("c"), "url": REFUSED[what]})
    document = refused(reply, "invalid-request")
    assert "quux" not in str(document) + caplog.text


ALLOWED = {
    "any port": f"postgresql://u:p@{ANY_PORT}:6543/d?sslmode=require",
    "several hosts": f"postgresql://u:p@db.example.org:6543,{ANY_PORT}:1/d?sslmode=verify-ca&connect_timeout=5",
    "one port for several hosts": f"postgresql://u:p@/d?host=db.example.org,{ANY_PORT}&port=6543&sslmode=require",
    "an address": "postgresql://u:p@[2001:db8::1]/d?sslmode=verify-full",
    "Spark": f"sc://{ANY_PORT}:15009/;use_ssl=true;token=a%3Db;user_id=u",
    "Spark with its port": "sc://db.example.org:6543/;use_ssl=true",
    "Spark by an address": "sc://[2001:db8::1]/;use_ssl=true",
    "an address with its port": "postgresql://u:p@[2001:db8::2]:6543/d?sslmode=verify-full",
}


@pytest.mark.parametrize("what", ALLOWED)
def test_a_url_of_hosts_that_are_named_is_kept(service: Service, hosts: str, what: str) -> None:
    """Would catch refusals of what the operator allows, for which nobody would know a reason."""
    name = added(service, ALLOWED[what])
    vault = Vault(Path("/none"), base64.b64decode(KEY))
    assert SealedConnections(vault, service.built.store, hosts.split(",")).open(name) == ALLOWED[what]


#: Pieces that URLs are made of, and some that they should not be.
PIECES = [
    "postgresql://",
    "u",
    ":",
    "p",
    "@",
    ANY_PORT,
    ",",
    "/",
    "d",
    "?",
    "&",
    "=",
    "sslmode",
    "require",
    "host",
    "port",
]
PIECES += ["%00", "%FF", "%", "[", "]", "::1", "5432", "\0", "\udc80", "é", " ", "\n", "'", "\\", "options", "service"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=20))
def test_no_url_is_a_fault_of_the_server(service: Service, hosts: str, pieces: list[str]) -> None:
    """However a URL is put together, it is refused or leads to a host that is named, and not in the clear."""
    store, vault = service.built.store, Vault(Path("/none"), base64.b64decode(KEY))
    name, url = unique("made"), f"postgresql://u:p@{ANY_PORT}{''.join(pieces)}"
    reply = service.admin.post(
        "/v1/connections", content=json.dumps({"name": name, "url": url}).encode(), headers=JSON_BODY
    )
    if reply.status_code != 201:
        refused(reply, "invalid-request")
        return
    told = conninfo.conninfo_to_dict(SealedConnections(vault, store, hosts.split(",")).open(name))
    assert set(str(told["host"]).split(",")) <= {ANY_PORT}
    assert told["sslmode"] in ("require", "verify-ca", "verify-full")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(pieces=st.lists(st.sampled_from([*PIECES, ";", "use_ssl", "true", "token", "user_id"]), max_size=20))
def test_no_url_of_spark_is_a_fault_of_the_server(service: Service, hosts: str, pieces: list[str]) -> None:
    """The same of a cluster's: what is kept leads to a host that is named, and is encrypted."""
    url = f"sc://{ANY_PORT}{''.join(pieces)}"
    body = json.dumps({"name": unique("made"), "url": url}).encode()
    reply = service.admin.post("/v1/connections", content=body, headers=JSON_BODY)
    if reply.status_code != 201:
        refused(reply, "invalid-request")
        return
    address = connection_urls.spark_address(url)
    assert (address.host, address.encrypted) == (ANY_PORT, True)


def test_a_source_asks_its_own_type_of_database(service: Service, url: str) -> None:
    """Would catch a URL with a password that is given to another engine's driver."""
    connection = added(service, url)
    source = {"type": "spark", "connection": connection, "table": "clinic.visits"}
    document = refused(sent(service, spec(connection, source=source)), "invalid-dataset")
    assert "another type" in document["detail"]


@pytest.mark.postgres
def test_names_that_no_database_takes(tmp_path: Path, postgres_url: str) -> None:
    """PostgreSQL takes no NUL in text. Would catch a name that is looked up before it is looked at."""
    with serving(tmp_path / "var", database_url=postgres_url, vault_key=KEY) as service:
        for name in ("a%00b", "%FF", "%F0%9F%92%A9", "x" * 3000, "postgresql:%2F%2Fu:quux@h"):
            refused(service.admin.delete(f"/v1/connections/{name}"), "not-found")
        refused(service.admin.get("/v1/connections", params={"after": "a\0b"}), "invalid-request")
        document = refused(sent(service, spec("a\0b")), "invalid-dataset")
        assert "connection" in document["detail"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(name=st.text(max_size=80) | st.integers() | st.none(), url=st.text(max_size=200) | st.integers() | st.none())
def test_no_words_are_a_fault_of_the_server(service: Service, name: Any, url: Any) -> None:
    body = json.dumps({"name": name, "url": url}).encode()
    reply = service.admin.post("/v1/connections", content=body, headers=JSON_BODY)
    refused(reply, "invalid-request")


def test_who_is_no_admin_sees_none(service: Service, url: str) -> None:
    added(service, url)
    for role in ("analyst", "auditor"):
        other = service.principal(role)
        refused(other.get("/v1/connections"), "forbidden")
        refused(other.post("/v1/connections", json={"name": "x", "url": url}), "forbidden")
        refused(other.delete("/v1/connections/x"), "forbidden")


def test_without_a_key_of_the_vault_nothing_is_kept(tmp_path: Path, hosts: str, url: str) -> None:
    with serving(tmp_path / "var", source_hosts=hosts) as service:
        document = refused(service.admin.post("/v1/connections", json={"name": "x", "url": url}), "invalid-request")
        assert "CURATOR_VAULT_KEY" in document["detail"]
        assert not service.rows("connections")


def test_the_client_and_the_command(service: Service, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command reads the URL from standard input. Would catch a secret among the arguments, which others see."""
    monkeypatch.setenv("CURATOR_URL", service.url)
    monkeypatch.setenv("CURATOR_API_KEY", service.admin_key)
    name = unique("cli")
    done = CliRunner().invoke(cli, ["connection", "add", name], input=url + "\n")
    assert done.exit_code == 0, done.output
    assert "quux" not in done.output
    with Curator(service.url, service.admin_key) as curator:
        (found,) = [each for each in curator.connections() if each.name == name]
        assert (found.type, found.created_by) == ("postgresql", "admin")
        assert set(found.raw) == {"name", "type", "created_at", "created_by"}
        curator.add_connection(unique("client"), url)
        curator.replace_connection(name, url)
        assert curator.check_connection(name) == []
    listed = CliRunner().invoke(cli, ["connection", "list"])
    assert name in listed.output
    assert CliRunner().invoke(cli, ["connection", "check", name]).exit_code == 0
    away = f"{url.rpartition('/')[0]}/nowhere"
    done = CliRunner().invoke(cli, ["connection", "replace", name], input=away + "\n")
    assert done.exit_code == 0, done.output
    looked = CliRunner().invoke(cli, ["connection", "check", name])
    assert looked.exit_code == 1
    assert "cannot be reached" in " ".join(looked.output.split())
    assert "quux" not in done.output + looked.output
    assert CliRunner().invoke(cli, ["connection", "remove", name]).exit_code == 0
    assert name not in CliRunner().invoke(cli, ["connection", "list", "--json"]).output


def test_secrets_are_sealed_and_go_to_another_key(service: Service, url: str, hosts: str) -> None:
    """Would catch a secret that is not sealed, one that opens under another name or key, and a change of the vault's
    key that loses it."""
    store, names = service.built.store, hosts.split(",")
    old, new = Vault(Path("/none"), bytes(32)), Vault(Path("/none"), bytes([1] * 32))
    name = unique("sealed")
    SealedConnections(old, store, names).add(name, url, "admin", "2026-01-01T00:00:00Z")
    assert SealedConnections(old, store, names).open(name) == url
    with pytest.raises(CuratorError):
        SealedConnections(new, store, names).open(name)
    lost = SealedConnections(new, store, names).reseal(old)
    assert name not in lost
    assert SealedConnections(new, store, names).open(name) == url
    with pytest.raises(InvalidRequest):
        connection_urls.check(url, ())
    sealed = old.seal_secret("a", "secret")
    assert "secret" not in sealed
    assert old.open_secret("a", sealed) == "secret"
    damaged = base64.b64encode(bytes([*base64.b64decode(sealed)[:-1], base64.b64decode(sealed)[-1] ^ 1])).decode()
    wrong = [(old, "b", sealed), (new, "a", sealed), (old, "a", "!"), (old, "a", ""), (old, "a", damaged)]
    for vault, called, told in wrong:
        with pytest.raises(VaultError):
            vault.open_secret(called, told)
    SealedConnections(new, store, names).remove(name)
