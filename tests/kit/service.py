"""What the suites of the HTTP contract share: a real server on a free port, its callers, raw HTTP, noise that tests
choose, and a picture of everything that is stored.
"""

from __future__ import annotations

import contextlib
import io
import json
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import uvicorn

from app.bootstrap.serving import prepare
from app.bootstrap.wiring import Built, build
from app.server.protocol import HttpProtocol
from app.settings import Settings
from tests.kit.databases import place_migrated
from tests.kit.patience import patience

JSON = dict[str, Any]
NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
PROBLEM = "application/problem+json"
#: Rows of a dump that are made of the others, a moment later.
MADE_LATER = ('INSERT INTO "log_', 'INSERT INTO "ledger_s')

#: The statuses the contract gives each problem.
STATUS = {
    "unauthenticated": 401,
    "forbidden": 403,
    "not-found": 404,
    "method-not-allowed": 405,
    "request-timeout": 408,
    "conflict": 409,
    "budget-exhausted": 409,
    "updates-exhausted": 409,
    "queries-exhausted": 409,
    "session-closed": 409,
    "idempotency-conflict": 409,
    "payload-too-large": 413,
    "invalid-request": 422,
    "invalid-query": 422,
    "invalid-dataset": 422,
    "sql-refused": 422,
    "plan-infeasible": 422,
    "too-many-requests": 429,
    "unavailable": 503,
    "source-moved": 503,
    "source-unavailable": 503,
}


class Gate:
    """A draw that waits until the test lets it through: a request held in the middle of its round."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.opened.set()

    def __call__(self, _scale: float) -> int:
        self.entered.set()
        assert self.opened.wait(30)
        return 0

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        """Nobody passes while the context lasts."""
        self.entered.clear()
        self.opened.clear()
        try:
            yield
        finally:
            self.opened.set()


# ---------------------------------------------------------------------------------------------- server


@dataclass
class Service:
    """A running server and what a test may want of it."""

    url: str
    settings: Settings
    built: Built
    admin_key: str
    _server: uvicorn.Server
    _thread: threading.Thread
    _clients: list[httpx.Client] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def caller(self, key: str | None) -> httpx.Client:
        """A client that sends this key with everything."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=patience(60))
        self._clients.append(client)
        return client

    def principal(self, role: str, name: str | None = None) -> httpx.Client:
        """A client for a new principal of this role."""
        name = name or unique(role)
        reply = self.admin.post("/v1/principals", json={"name": name, "role": role})
        assert reply.status_code == 201, reply.text
        client = self.caller(reply.json()["api_key"])
        client.params = httpx.QueryParams()
        return client

    @cached_property
    def admin(self) -> httpx.Client:
        return self.caller(self.admin_key)

    def stop(self) -> None:
        """Stop as SIGTERM would: drain, then end."""
        for client in self._clients:
            client.close()
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def stored(self) -> str:
        """Everything that is kept: all rows of all tables and the files of the vault. The log and the sums of movements
        are left out, which are made of the rest a moment later.
        """
        with contextlib.closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as database:
            rows = [row for row in database.iterdump() if not row.startswith(MADE_LATER)]
        files = [
            f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}"
            for path in sorted(self.settings.vault_dir.glob("[!.]*"))  # without the lock, which is no data
        ]
        return "\n".join([*rows, *files])

    def ledgers(self) -> list[str]:
        """Every ledger as it is served."""
        return [
            self.admin.get(f"/v1/datasets/{item['name']}/ledger").text
            for item in self.admin.get("/v1/datasets").json()["items"]
        ]

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """All rows of one table."""
        with contextlib.closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as database:
            return list(database.execute(f"SELECT * FROM {table}"))

    @property
    def _database(self) -> Path:
        return self.settings.data_dir / "curator.sqlite3"


def start(folder: Path, *, noise: Any = None, admin_key: str = "the-operators-own-key", **settings: Any) -> Service:
    """Serve from ``folder`` on a free port, in a thread; ``noise`` replaces the system's."""
    # The database is named either way, whatever the environment says.
    configured = Settings(data_dir=folder, **{"database_url": None, "admin_key": admin_key, **settings})
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if configured.embedded_database is not None:
        place_migrated(configured.embedded_database)
    prepare(configured)
    built = build(configured, noise)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            built.app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=30,
            http=HttpProtocol,
            ws="none",
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + patience(60)
    while not server.started:
        assert thread.is_alive(), "the server ended at its start"
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.005)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    return Service(url, configured, built, admin_key, server, thread)


@contextlib.contextmanager
def serving(folder: Path, **how: Any) -> Iterator[Service]:
    """:func:`start`, stopped at the end."""
    service = start(folder, **how)
    try:
        yield service
    finally:
        service.stop()


# ---------------------------------------------------------------------------------------------- raw HTTP


@dataclass(frozen=True)
class RawReply:
    """A reply as its bytes say."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def raw(address: tuple[str, int], request: bytes, *, hang_up: bool = False, seconds: float = 30) -> RawReply | None:
    """Send these very bytes, then read one reply; None where the server closes without one.

    ``hang_up``: close the sending side at once after the last byte, as a broken upload does.
    """
    with socket.create_connection(address, timeout=seconds) as connection:
        with contextlib.suppress(ConnectionError):  # a refusal may come, and the door close, before the last byte
            connection.sendall(request)
        if hang_up:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        return read_reply(connection.makefile("rb"))


def read_reply(stream: Any) -> RawReply | None:
    """One reply from a stream of bytes; None where it ends without one."""
    try:
        line = stream.readline()
        if not line:
            return None
        headers: dict[str, str] = {}
        while (head := stream.readline().rstrip(b"\r\n")) != b"":
            name, _, value = head.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(stream.readline(), 16):
                parts.append(stream.read(size))
                stream.readline()
            body = b"".join(parts)
        else:
            body = stream.read(int(headers.get("content-length", 0)))
    except ConnectionError:
        return None
    return RawReply(int(line.split()[1]), headers, body)


def head(method: str, path: str, key: str | None = None, **headers: str | int) -> bytes:
    """The first bytes of a request; header names with ``_`` for ``-``."""
    lines = [f"{method} {path} HTTP/1.1", "Host: curator", "Connection: close"]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def multipart(spec: Any, data: bytes, filename: str = "data.csv", boundary: str = "b0undary") -> bytes:
    """The body of a registration, written by hand."""
    words = spec if isinstance(spec, bytes) else json.dumps(spec).encode()
    return b"".join(
        [
            f'--{boundary}\r\nContent-Disposition: form-data; name="spec"\r\n\r\n'.encode(),
            words,
            f'\r\n--{boundary}\r\nContent-Disposition: form-data; name="data"; filename="{filename}"\r\n'.encode(),
            b"Content-Type: application/octet-stream\r\n\r\n",
            data,
            f"\r\n--{boundary}--\r\n".encode(),
        ]
    )


# ---------------------------------------------------------------------------------------------- words


def unique(prefix: str) -> str:
    """A name nobody has used."""
    return f"{prefix}-{secrets.token_hex(6)}"


def npy(array: Any) -> bytes:
    """An array in NumPy's file format."""
    sink = io.BytesIO()
    np.save(sink, np.asarray(array), allow_pickle=True)
    return sink.getvalue()


def arrow(*columns: Any) -> bytes:
    """An Arrow stream of one table."""
    table = pa.table({f"column{i}": column for i, column in enumerate(columns)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def where(**conditions: Any) -> JSON:
    """A predicate query."""
    return {"type": "predicate", "where": conditions}


def register(client: httpx.Client, spec: Any, data: bytes, filename: str = "data.csv") -> httpx.Response:
    """Register a data set."""
    words = spec if isinstance(spec, str) else json.dumps(spec)
    return client.post("/v1/datasets", data={"spec": words}, files={"data": (filename, data)})


#: A table of eight cells whose every count differs from the uniform hypothesis.
PEOPLE = {
    "kind": "table",
    "attributes": [{"name": "sex", "values": ["female", "male"]}, {"name": "age", "lower": 0, "upper": 80, "bins": 4}],
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
#: Its counts.
COUNTS = np.array([[9000, 100, 50, 850], [4000, 200, 300, 500]])


def people(service: Service, *, name: str | None = None, counts: Any = COUNTS, **changes: Any) -> str:
    """Register a table like PEOPLE from its counts; its name."""
    name = name or unique("people")
    reply = register(service.admin, {**PEOPLE, "name": name, **changes}, npy(counts), "counts.npy")
    assert reply.status_code == 201, reply.text
    return name


def session_words(dataset: str, **changes: Any) -> JSON:
    """What opens a best-effort session."""
    return {
        "dataset": dataset,
        "mechanism": {"construction": "mw"},
        "epsilon": 0.5,
        "max_queries": 100,
        "max_updates": 10,
        **changes,
    }


def open_session(client: httpx.Client, dataset: str, **changes: Any) -> JSON:
    """Open a session; its first state."""
    reply = client.post("/v1/sessions", json=session_words(dataset, **changes))
    assert reply.status_code == 201, reply.text
    opened: JSON = reply.json()
    return opened


def ask(client: httpx.Client, session: str, query: JSON, key: str | None = None) -> JSON:
    """Ask one query; its answer."""
    headers = {} if key is None else {"Idempotency-Key": key}
    reply = client.post(f"/v1/sessions/{session}/queries", json=query, headers=headers)
    assert reply.status_code == 200, reply.text
    answer: JSON = reply.json()
    return answer


def refused(reply: httpx.Response | RawReply, problem: str) -> JSON:
    """The problem document of a refusal, checked to be the one named, in the contract's form."""
    status = reply.status_code if isinstance(reply, httpx.Response) else reply.status
    body = reply.content if isinstance(reply, httpx.Response) else reply.body
    assert status == STATUS[problem], (status, body)
    assert reply.headers["content-type"] == PROBLEM
    document: JSON = json.loads(body)
    assert document["type"] == f"/problems/{problem}", document
    assert document["status"] == status
    assert document["title"]
    assert len(document["detail"]) >= 10, document
    if status == 401:
        assert reply.headers["www-authenticate"] == "Bearer"
    if status in (429, 503):
        assert float(reply.headers["retry-after"]) > 0
    return document
