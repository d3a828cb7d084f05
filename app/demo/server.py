"""The demonstration's server: a real process on a free local port, with its data in one folder."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from curator_client import Curator, Unreachable

START_SECONDS = 60.0
STOP_SECONDS = 60.0


class ServerFailed(Exception):
    """The server did not start, or did not end with code 0; the message has the end of its log."""


@dataclass(frozen=True)
class Server:
    """A running server: its address and its first administrator's key."""

    url: str
    admin_key: str = field(repr=False)


@contextmanager
def _reserved_port() -> Iterator[int]:
    """A port that the system gives to nobody else while the context lasts.

    It is bound here but not listened on: connections are refused until the server, which binds it as well, listens.
    """
    with socket.socket() as given:
        given.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        given.bind(("127.0.0.1", 0))
        yield given.getsockname()[1]


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def _await_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    with Curator(url, timeout=2.0, retry_for=0.0) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise ServerFailed(f"the server ended with code {process.returncode}:\n{_end_of(log)}")
            try:
                if client.ready():
                    return
            except Unreachable:
                pass
            time.sleep(0.1)
    raise ServerFailed(f"the server was not ready after {START_SECONDS:g} seconds:\n{_end_of(log)}")


@contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    """Serve from ``folder`` while the context lasts, then stop the server and wait for its end.

    The settings of the caller's own service (``CURATOR_*``) are not passed on.

    Raises:
        ServerFailed: when it does not start, or does not end with code 0.
    """
    admin_key = secrets.token_urlsafe(32)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
    environment |= {"CURATOR_DATA_DIR": str(folder / "data"), "CURATOR_ADMIN_KEY": admin_key}
    log = folder / "server.log"
    with _reserved_port() as port, log.open("wb") as sink:
        url = f"http://127.0.0.1:{port}"
        # In a session of its own, Ctrl-C does not reach it: this process then stops it by SIGTERM.
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "app.cli", "serve", "--host", "127.0.0.1", "--port", str(port)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _await_ready(process, url, log)
            yield Server(url, admin_key)
            process.send_signal(signal.SIGTERM)
            if process.wait(STOP_SECONDS) != 0:
                raise ServerFailed(f"the server ended with code {process.returncode}:\n{_end_of(log)}")
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"the server did not end:\n{_end_of(log)}") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


@contextmanager
def ended() -> Iterator[None]:
    """Have SIGTERM raise an exception, as Ctrl-C does, so that the server is stopped and the files are removed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
