"""Two workers on PostgreSQL: whichever of them ends, whatever it was doing, and what they count as one."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.settings import Settings
from tests.kit.databases import migrated_database
from tests.kit.patience import patience
from tests.kit.servers import Caller, Server, launching
from tests.kit.world import distinct_queries, eventually
from tests.operation.test_workers import COUNTS, opened

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, postgres_server: str) -> Iterator[Server]:
    with migrated_database(postgres_server) as url:
        with launching(tmp_path_factory.mktemp("supervised") / "data", url) as launcher:
            yield launcher.start(workers=2).wait_until_ready()
            logs = launcher.logs()
        assert "Traceback" not in logs
        assert '"level": "error"' not in logs


def scraped(caller: Caller) -> dict[str, float]:
    """Every number of /metrics by its name and labels."""
    lines = caller.http.get("/metrics").text.splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def answered(caller: Caller) -> float:
    return sum(value for name, value in scraped(caller).items() if name.startswith("curator_answers_total"))


def test_a_silent_worker_hides_nobody(server: Server) -> None:
    """One worker gives no sign of life, as in a long update that holds the interpreter; the other is killed. Catches a
    supervisor that waits for the one before it looks at the other, and one that takes the busy one for dead.
    """
    eventually(lambda: len(server.workers()) == 2, 30)
    time.sleep(1)  # each was asked by now
    busy, doomed = server.workers()
    busy.suspend()
    try:
        time.sleep(1)
        started = time.monotonic()
        doomed.kill()
        eventually(lambda: len({worker.pid for worker in server.workers()} - {doomed.pid}) == 2, 5)
        assert time.monotonic() - started < patience(5)
        assert busy.is_running()
    finally:
        busy.resume()
    assert busy.pid in {worker.pid for worker in server.workers()}
    server.wait_until_ready()


def test_kills_under_load(server: Server) -> None:
    """Workers die at random moments, once both. Catches a supervisor that is caught in a wait for one that was killed
    after it was asked: nobody is replaced for minutes, and connections hang. No reply is lost.
    """
    admin = Caller(server.url)
    admin.register("load", COUNTS, budget={"epsilon": 4.0, "delta": 1e-6})
    key = admin.add("load-ann")
    id = opened(Caller(server.url, key), "load", max_updates=200)
    heard: dict[int, str] = {}
    stop = threading.Event()

    def client(number: int) -> None:
        caller, questions = Caller(server.url, key), list(distinct_queries())
        for turn in range(200):
            name = f"{number}-{turn}"
            while not stop.is_set():
                try:
                    reply = caller.post(f"/v1/sessions/{id}/queries", questions[(number * 31 + turn) % 90], name)
                except httpx.TransportError:
                    time.sleep(0.02)
                    continue
                if reply.status_code == 200:
                    heard[reply.json()["sequence"]] = reply.json()["entry_hash"]
                    break
                assert reply.status_code == 503, reply.text
                time.sleep(0.05)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    dice, worst = random.Random(5), 0.0
    try:
        for turn in range(3):
            time.sleep(0.3 + dice.random())
            alive = server.workers()
            for worker in alive if turn == 1 else alive[:1]:
                worker.kill()
            asked = time.monotonic()
            while True:
                try:
                    assert httpx.get(f"{server.url}/healthz", timeout=patience(60)).status_code == 200
                    break
                except httpx.TransportError:
                    time.sleep(0.02)
            worst = max(worst, time.monotonic() - asked)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    # What a start takes on a busy machine, where nobody was left; the wait of old was two minutes.
    assert worst < 30
    eventually(lambda: len(server.workers()) == 2, 20)
    server.wait_until_ready()
    books = Caller(server.url, admin.add("load-auditor", "auditor")).audit()
    recorded = {entry["sequence"]: entry["entry_hash"] for entry in map(json.loads, books[id][1:-1])}
    assert heard
    assert heard.items() <= recorded.items()


def test_numbers_are_one(server: Server) -> None:
    """Catches counters of whichever worker replies, which go up and down from one scrape to the next and lose what a
    worker counted that ended, levels of those that are gone, and names in labels.
    """
    eventually(lambda: len(server.workers()) == 2, 30)
    server.wait_until_ready()
    admin = Caller(server.url)
    admin.register("tallied", COUNTS)
    key = admin.add("tallied-ann")
    id = opened(Caller(server.url, key), "tallied")
    before = answered(admin)
    for _, asked in zip(range(20), distinct_queries(), strict=False):
        # A connection for each: they go to either worker.
        assert Caller(server.url, key).post(f"/v1/sessions/{id}/queries", asked).status_code == 200
    eventually(lambda: answered(admin) == before + 20, 20)  # an answer is counted when it has left
    assert [answered(Caller(server.url)) for _ in range(8)] == [before + 20] * 8
    server.workers()[0].kill()
    eventually(lambda: len(server.workers()) == 2, 30)
    server.wait_until_ready()
    # Anew: the connection of before may have been to the worker that is gone.
    admin = Caller(server.url)
    assert answered(admin) == before + 20
    # Whoever had the session may be gone: it is in somebody's memory again when it is asked.
    again = next(iter(distinct_queries()))
    assert Caller(server.url, key).post(f"/v1/sessions/{id}/queries", again).json()["source"] == "cached"

    def levels_are_of_two() -> bool:
        found = scraped(Caller(server.url))
        each = int(Settings(admin_key="x" * 20).memory_limit)
        return (
            # Each worker's lanes share its limit out among them.
            2 * each - 6 <= found["curator_memory_limit_bytes"] <= 2 * each
            and 0 < found["curator_session_memory_bytes"] < found["curator_memory_limit_bytes"]
            and found["curator_sessions_in_memory"] >= 1
            and found["curator_waiting_requests"] == 0
            and found["curator_database_bytes"] > 1e6
        )

    eventually(levels_are_of_two, 20)
    text = admin.http.get("/metrics").text
    assert not [word for word in (id, "tallied", "pid=") if word in text]


def test_what_they_count_is_private(server: Server) -> None:
    """Catches a folder that others may look into, and one that is not shared."""
    mapped = [Path(each.path) for worker in server.workers() for each in worker.memory_maps()]
    (folder,) = {each.parent for each in mapped if each.parent.name.startswith("curator-metrics-")}
    assert folder.stat().st_mode & 0o777 == 0o700
