"""Limits of a server process that was started as operators start it: by its command, from its environment."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from benchmarks.harness import free_port
from tests.kit.processes import end_with_tests
from tests.kit.servers import ROOT, Server, environment
from tests.kit.world import ADMIN_KEY

pytestmark = pytest.mark.integration


def test_settings_reach_the_connections(tmp_path: Path) -> None:
    """Few files, few connections, little patience: all of it by the environment. Two connections in the middle of a
    request fill the server, a third is told so, and room is made as the slow ones are cut off; a half-sent head gets
    its refusal. Catches a protocol that never learns what is set, and a server that runs out of files below its
    own limit.
    """

    def few_files() -> None:
        end_with_tests()
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 2048))

    port, log = free_port(), tmp_path / "log"
    settings = {
        "CURATOR_MAX_CONNECTIONS": "2",
        "CURATOR_MAX_CONNECTIONS_PER_CLIENT": "2",
        "CURATOR_CLIENT_TIMEOUT_SECONDS": "2",
        "CURATOR_CLIENT_MIN_RATE": "1KiB",
        "CURATOR_RATE_LIMIT": "0.01",
        "CURATOR_RATE_BURST": "3",
    }
    with log.open("wb") as sink:
        child = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve", "--port", str(port)],
            cwd=ROOT,
            env=environment(tmp_path / "data", None) | settings,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=few_files,
        )
    try:
        Server(child.pid, port, log, child=child).wait_until_ready()
        assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == (2 * 2 + 1024, 2048)
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(2)]
            for connection in slow:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf")
            time.sleep(0.2)
            reply = httpx.get(f"http://127.0.0.1:{port}/v1/datasets", headers=headers)
            assert reply.status_code == 503
            assert reply.headers["content-type"] == "application/problem+json"
            assert float(reply.headers["retry-after"]) > 0
            for connection in slow:
                while connection.recv(1 << 16):
                    pass
        with socket.create_connection(("127.0.0.1", port), 10) as half:
            half.sendall(b"GET /v1/datasets HTTP/1.1\r\nHost: ")
            assert half.recv(1 << 16).startswith(b"HTTP/1.1 408 ")
        statuses = [httpx.get(f"http://127.0.0.1:{port}/v1/datasets", headers=headers).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
