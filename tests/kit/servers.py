"""Real server processes that are started, killed and started again, and clients that put up with it."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np
import psutil

from benchmarks.harness import free_port
from tests.kit.patience import patience
from tests.kit.processes import HOME, end_with_tests
from tests.kit.service import head, read_reply
from tests.kit.world import ADMIN_KEY, SPEC, Audited, audit_books

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = Path(__file__).with_name("launcher.py")
SHIM = Path(__file__).with_name("shim.py")


def environment(folder: Path, url: str | None, **settings: str) -> dict[str, str]:
    """A server's environment: nothing of the caller's own ``CURATOR_*``, and some settings beside those needed."""
    made = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
    made |= {"CURATOR_DATA_DIR": str(folder), "CURATOR_ADMIN_KEY": ADMIN_KEY, "CURATOR_LOG_LEVEL": "warning"}
    if url is not None:
        made["CURATOR_DATABASE_URL"] = url
    return made | {f"CURATOR_{name.upper()}": value for name, value in settings.items()}


class _Starter:
    """The one process from which this test process has its others; it ends with it. See ``launcher.py``."""

    def __init__(self) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
        self._process = subprocess.Popen(
            [sys.executable, str(LAUNCHER)],
            cwd=ROOT,
            env={**clean, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._turn = threading.Lock()

    def start(self, **order: Any) -> int:
        """The process id of what was ordered."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())


@cache
def starter() -> _Starter:
    """This test process' own, started with the first test that asks."""
    return _Starter()


def shims(folder: Path) -> None:
    """Make the commands `curator` and `python` (``-c``, ``-`` and ``-m app.cli`` alone), forked as servers are; see
    `shim.py`.

    Args:
        folder: to stand in a shell's ``PATH``.
    """
    starter().start(listen=str(folder / "launcher"))
    for name in ("curator", "python"):
        words = [sys.executable, "-IS", str(SHIM), str(folder / "launcher"), name]
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (folder / name).chmod(0o755)


def is_running(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Command:
    """A command of the command line that has just begun.

    Args:
        place: an empty folder for what it says.
    """

    def __init__(self, place: Path, arguments: Sequence[str], environment: Mapping[str, str], stdin: str = "") -> None:
        self._arguments = list(arguments)
        self._files = {name: place / name for name in ("input", "log", "errors", "ended")}
        self._files["input"].write_text(stdin)
        self.pid = starter().start(
            arguments=self._arguments,
            environment=dict(environment),
            **{name: str(path) for name, path in self._files.items()},
        )

    def ended(self, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """What became of it. It is killed after so many seconds."""
        deadline = time.monotonic() + patience(seconds)
        while is_running(self.pid):
            if time.monotonic() > deadline:
                os.killpg(self.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(self._arguments, seconds)
            time.sleep(0.005)
        code = int(self._files["ended"].read_text()) if self._files["ended"].exists() else -1
        return subprocess.CompletedProcess(
            self._arguments, code, self._files["log"].read_text(), self._files["errors"].read_text()
        )


def run(arguments: Sequence[str], environment: Mapping[str, str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A command of the command line, run to its end."""
    with tempfile.TemporaryDirectory(prefix="curator-command-") as place:
        return Command(Path(place), arguments, environment, stdin).ended()


def curator(folder: Path, url: str | None, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command of the command line that works on a data folder and database, run to its end."""
    return run(arguments, environment(folder, url, **settings))


class Server:
    """One running server."""

    def __init__(self, pid: int, port: int, log: Path, *, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid, self.port, self.log, self.child = pid, port, log, child

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def alive(self) -> bool:
        if self.child is not None:
            return self.child.poll() is None
        return is_running(self.pid)

    def wait_until_ready(self, seconds: float = 60.0, *, doomed: bool = False) -> Self:
        """``doomed``: it may as well die first, of what an earlier server has left it to do."""
        deadline = time.monotonic() + patience(seconds)
        with httpx.Client(timeout=5) as client:
            while time.monotonic() < deadline:
                if not self.alive():
                    assert doomed, self.log.read_text()[-2000:]
                    return self
                try:
                    if client.get(f"{self.url}/readyz").status_code == 200:
                        return self
                except httpx.TransportError:
                    pass
                time.sleep(0.02)
        raise AssertionError(f"not ready: {self.log.read_text()[-2000:]}")

    def wait_until_ended(self, seconds: float = 30.0) -> bool:
        """Whether it comes to its end by itself in this time."""
        deadline = time.monotonic() + patience(seconds)
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def workers(self) -> list[psutil.Process]:
        """The worker processes that live, of a server that has several: children of the one that they are forked from.

        What else the server started is Python's own tracker.
        """
        found = []
        for child in psutil.Process(self.pid).children():
            with suppress(psutil.NoSuchProcess):  # it has ended since it was listed
                if child.name() == HOME or "forkserver" in " ".join(child.cmdline()):
                    found += [each for each in child.children() if each.status() != psutil.STATUS_ZOMBIE]
        return found

    def kill(self) -> None:
        """kill -9, the whole group of a server with several workers."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        if self.child is not None:
            self.child.wait()
        while self.alive():
            time.sleep(0.002)


class Launcher:
    """Servers over one data folder and database; see ``launcher.py``."""

    def __init__(self, folder: Path, url: str | None, **settings: str) -> None:
        self.folder, self._url, self._settings = folder, url, settings
        self._logs = folder.parent / f"{folder.name}-logs"
        self._logs.mkdir()
        self._servers: list[Server] = []

    def start(self, port: int | None = None, **order: Any) -> Server:
        """A server on a port, a free one where none is given; not yet ready."""
        port = free_port() if port is None else port
        log = self._logs / f"{len(self._servers)}.log"
        settings = environment(self.folder, self._url, **self._settings) | order.pop("settings", {})
        pid = starter().start(port=port, log=str(log), environment=settings, **order)
        self._servers.append(Server(pid, port, log))
        return self._servers[-1]

    def command(self, port: int | None = None, *arguments: str) -> Server:
        """The same through the command itself, in a process from scratch."""
        port = free_port() if port is None else port
        log = self._logs / f"{len(self._servers)}.log"
        with log.open("wb") as sink:
            child = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "serve", "--port", str(port), *arguments],
                cwd=ROOT,
                env=environment(self.folder, self._url, **self._settings),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_tests,
            )
        self._servers.append(Server(child.pid, port, log, child=child))
        return self._servers[-1]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._logs.iterdir()))

    def end(self) -> None:
        for server in self._servers:
            server.kill()


@contextmanager
def launching(folder: Path, url: str | None, **settings: str) -> Iterator[Launcher]:
    """Servers that all end with the context."""
    folder.mkdir(exist_ok=True)
    launcher = Launcher(folder, url, **settings)
    try:
        yield launcher
    finally:
        launcher.end()


@contextmanager
def request_under_way(server: Server) -> Iterator[Callable[[], int]]:
    """A worker of a server is at work on a request, and waits for its body. What is given sends that, which is refused,
    and tells the reply's status.
    """
    with socket.create_connection(("127.0.0.1", server.port), 60) as line:
        line.sendall(head("POST", "/v1/plans", ADMIN_KEY, Content_Length=2, Expect="100-continue"))
        stream = line.makefile("rb")

        def status() -> int:
            reply = read_reply(stream)
            assert reply is not None
            return reply.status

        def finish() -> int:
            line.sendall(b"[]")
            return status()

        assert status() == 100
        yield finish


class Caller:
    """Somebody with a key, on one server or another."""

    def __init__(self, url: str, key: str = ADMIN_KEY) -> None:
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=patience(30))

    def get(self, path: str) -> Any:
        reply = self.http.get(path)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def pages(self, path: str, name: str = "items", limit: int = 1000) -> Any:
        """The last page of a list, with the items of all of them in it."""
        items: list[Any] = []
        following: str | None = f"{path}?limit={limit}"
        while following is not None:
            page = self.get(following)
            items += page[name]
            following = page.get("next")
        return {**page, name: items}

    def post(self, path: str, body: Any, key: str | None = None) -> httpx.Response:
        return self.http.post(path, json=body, headers={"Idempotency-Key": key} if key else {})

    def add(self, name: str, role: str = "analyst") -> str:
        """A new principal's key."""
        reply = self.post("/v1/principals", {"name": name, "role": role})
        assert reply.status_code == 201, reply.text
        return str(reply.json()["api_key"])

    def register(self, name: str, counts: Any, **changes: Any) -> httpx.Response:
        buffer = io.BytesIO()
        np.save(buffer, counts)
        return self.http.post(
            "/v1/datasets",
            data={"spec": json.dumps({**SPEC, "name": name, **changes})},
            files={"data": ("counts.npy", buffer.getvalue())},
        )

    def transcript(self, id: str) -> list[bytes]:
        reply = self.http.get(f"/v1/sessions/{id}/transcript")
        assert reply.status_code == 200, reply.text
        return reply.content.splitlines()

    def audit(self, audited: Audited | None = None) -> dict[str, list[bytes]]:
        """Hold the books of the whole service against its transcripts; an auditor's view, see :func:`audit_books`.

        Where ``audited`` knows sessions, ledgers that none has moved are left out.
        """
        sessions = self.pages("/v1/sessions")["items"]
        names = {item["name"] for item in self.pages("/v1/datasets")["items"]}
        if audited is not None and audited.sessions:
            names &= {session["dataset"] for session in sessions}
        return audit_books(
            {name: self.pages(f"/v1/datasets/{name}/ledger", "entries") for name in sorted(names)},
            sessions,
            self.transcript,
            audited,
        )
