"""What a connection's URL says exists nowhere but sealed: words that nobody else uses are planted, and searched for.

A real server in a process of its own, at the level debug, is given connections by HTTP and by the command, counts a
table through one, and meets faults whose own words quote the URL. Then everything that it has written or said is
searched: the database with its write-ahead log, the vault, standard output and error, replies, refusals, transcripts,
metrics, the arguments of its processes and of the command, and what is left when it is aborted. That the search can
find is shown by a planted leak.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from psycopg import conninfo

from tests.datasets.outside import SCHEMA, Database, outside
from tests.kit.servers import ROOT
from tests.privacy.test_secrecy import ADMIN_KEY, Server, running

pytestmark = pytest.mark.integration

PASSWORD, GHOST = "Quux8-passw0rd", "ghost-of-quux"
WIDE = [{"name": "ward", "size": 3}, {"name": "year", "size": 2**18}, {"name": "month", "size": 24}]


def forms(secret: str) -> dict[str, bytes]:
    """How a text could be written."""
    raw = secret.encode()
    found = {"text": raw, "percent": quote(secret, safe="").encode(), "hexadecimal": raw.hex().encode()}
    for shift in range(3):
        # Whatever stands before and after: only the characters that depend on the text alone.
        coded = base64.b64encode(bytes(shift) + raw)
        found[f"base64 after {shift}"] = coded[math.ceil(shift * 4 / 3) : (shift + len(raw)) * 4 // 3]
    return found


def search(places: dict[str, bytes], secrets: dict[str, str]) -> list[str]:
    """Where any form of any of the texts stands."""
    return [
        f"{what} ({form}) in {place}"
        for what, secret in secrets.items()
        for form, words in forms(secret).items()
        for place, content in places.items()
        if words in content
    ]


def arguments(process: int) -> bytes:
    """Those of a process and of all that it has begun."""
    every = [psutil.Process(process), *psutil.Process(process).children(recursive=True)]
    return "\n".join(word for each in every for word in each.cmdline()).encode()


def places(server: Server) -> dict[str, bytes]:
    """Everything there is to search, the vault too."""
    vault = {f"vault/{path.name}": path.read_bytes() for path in (server.folder / "data" / "vault").iterdir()}
    return {**server.places(), **vault}


def _serve(port: int, controls: Path) -> None:
    """`serving.serve` with faults that come when a file of their name is there."""
    import structlog

    from app.bootstrap import serving
    from app.storage.connections import SealedConnections
    from app.storage.vault import Vault

    seal, opened = Vault.seal_secret, SealedConnections.open

    def once(name: str) -> bool:
        try:
            (controls / name).unlink()
        except FileNotFoundError:
            return False
        return True

    @functools.wraps(seal)
    def failing_seal(self: Vault, name: str, secret: str) -> str:
        if once("seal"):
            raise RuntimeError(f"{name}: {secret}")
        return seal(self, name, secret)

    @functools.wraps(opened)
    def failing_open(self: SealedConnections, name: str, type: str | None = None) -> str:
        url = opened(self, name, type)
        if once("open"):
            raise RuntimeError(url)
        if once("leak"):
            structlog.get_logger("planted").debug("planted", url=url)
        return url

    Vault.seal_secret, SealedConnections.open = failing_seal, failing_open  # type: ignore[method-assign]
    serving.serve("127.0.0.1", port, 1)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with outside() as found:
        found.fill(
            [("ward", "integer"), ("year", "integer"), ("month", "integer")], [[i % 3, i, i % 12] for i in range(99)]
        )
        yield found


def declared(name: str, connection: str) -> dict[str, Any]:
    source = {"type": "postgresql", "connection": connection, "table": f"{SCHEMA}.visits"}
    spec = {"name": name, "kind": "table", "attributes": WIDE, "records_public": True, "source": source}
    return {"spec": (None, json.dumps({**spec, "budget": {"epsilon": 5.0, "delta": 1e-9}}))}


def by_command(server: Server, name: str, url: str) -> bytes:
    """Add a connection by the command itself; its arguments, as everybody on the machine sees them, and its words."""
    told = {"CURATOR_URL": str(server.client.base_url), "CURATOR_API_KEY": ADMIN_KEY, "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "app.cli", "connection", "add", name]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=ROOT, env=told, **streams) as process:  # type: ignore[call-overload]
        seen = arguments(process.pid)
        said, _ = process.communicate(url.encode() + b"\n", timeout=120)
    assert process.returncode == 0, said
    assert b"connection\nadd" in seen
    return seen + b"\n" + bytes(said)


def test_what_a_url_says_is_nowhere(tmp_path: Path, database: Database) -> None:
    """Catches a host, a user, a password, a database or a whole URL in a row, a log line, an error, a refusal, a
    document, a metric, a transcript, a private file, an argument of a process, or a dump of memory.
    """
    told = conninfo.conninfo_to_dict(database.reader)
    host, user, name = (str(told[word]) for word in ("host", "user", "dbname"))
    place = f"{quote(host, safe='')}:{told.get('port', 5432)}/{name}"
    url, ghost = (f"postgresql://{who}:{PASSWORD}@{place}" for who in (user, GHOST))
    secrets = {"host": host, "user": user, "database": name, "password": PASSWORD, "ghost": GHOST}
    settings = {
        "CURATOR_VAULT_KEY": base64.b64encode(bytes(range(32))).decode(),
        "CURATOR_SOURCE_HOSTS": f"{host},127.0.0.1",
        "CURATOR_SOURCE_TICK_SECONDS": "0.05",
    }
    with running(tmp_path, "tests.privacy.test_secrecy_of_connections", **settings) as server:
        seen = [by_command(server, "warehouse", url)]
        _use(server, url, ghost)
        seen.append(arguments(server.process.pid))
        quiet = {**places(server), "arguments": b"\n".join(seen)}
        assert search(quiet, secrets) == []
        assert b"RuntimeError" in quiet["stderr"]
        assert b"a source cannot be asked" in quiet["stderr"]
        assert any(b"warehouse" in content for content in quiet.values())
        with server.switched("leak"):
            server.send("POST", "/v1/datasets", 201, files=declared("leaking", "warehouse"))
        leaks = search(places(server), secrets)
        for what in ("host", "user", "database", "password"):
            assert any(leak.startswith(f"{what} ") and leak.endswith("in stderr") for leak in leaks), what
        assert all(leak.endswith("in stderr") for leak in leaks)
        server.abort()
        left = places(server)
        del left["stderr"]  # where the leak was planted
        assert "data/curator.sqlite3" in left
        assert search(left, secrets) == []


def _use(server: Server, url: str, ghost: str) -> None:
    """Whatever can be done with a connection, and go wrong with it."""
    send, tables = server.send, functools.partial(server.send, "POST", "/v1/datasets")
    send("POST", "/v1/connections", 409, json={"name": "warehouse", "url": url})
    for wrong in (f"{url}?options=-cx%3D1", f"{url}?hostaddr=10.0.0.1", f"x{url}", url.replace("@", "@elsewhere,")):
        send("POST", "/v1/connections", 422, json={"name": "wrong", "url": wrong})
    send("POST", "/v1/connections", 422, json={"name": url, "url": url})
    send("POST", "/v1/connections", 422, json={"name": "wrong", "url": url, "more": url})
    send("POST", "/v1/connections", 422, json=[url])
    with server.switched("seal"):
        send("POST", "/v1/connections", 503, json={"name": "failing", "url": url})
    with server.switched("open"):
        tables(503, files=declared("failing", "warehouse"))
    send("POST", "/v1/connections", 201, json={"name": "ghost", "url": ghost})
    tables(503, files=declared("ghostly", "ghost"))
    send("DELETE", "/v1/connections/ghost", 204)
    tables(201, files=declared("outside", "warehouse"))
    words = {"dataset": "outside", "mechanism": {"construction": "gaussian"}, "epsilon": 0.3, "max_queries": 20}
    session = send("POST", "/v1/sessions", 201, json=words, headers=server.analyst).json()["id"]
    query = {"type": "predicate", "where": {"ward": {"equals": 1}}}
    send("POST", f"/v1/sessions/{session}/queries", 200, json=query, headers=server.analyst)
    send("DELETE", "/v1/connections/warehouse", 409)
    for path in (f"/v1/sessions/{session}", f"/v1/sessions/{session}/transcript"):
        send("GET", path, 200, headers=server.analyst)
    for path in ("connections", "datasets", "datasets/outside", "datasets/outside/ledger", "principals", "sessions"):
        send("GET", f"/v1/{path}", 200)
    for path in ("/metrics", "/readyz"):
        send("GET", path, 200)


@pytest.mark.parametrize("form", forms(PASSWORD))
def test_every_form_is_found(form: str, tmp_path: Path) -> None:
    """In a write-ahead log as well. Catches a search that finds nothing."""
    written = forms(PASSWORD)[form]
    with sqlite3.connect(tmp_path / "x.sqlite3", isolation_level=None) as rows:
        rows.execute("PRAGMA journal_mode=WAL")
        rows.execute("CREATE TABLE t (x)")
        rows.execute("INSERT INTO t VALUES (?)", (b"before" + written + b"after",))
        wal = (tmp_path / "x.sqlite3-wal").read_bytes()
    rows.close()
    assert search({"wal": wal}, {"password": PASSWORD})
    assert not search({"wal": wal.replace(written, b"")}, {"password": PASSWORD})


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
