"""Several processes on one PostgreSQL, one process on an embedded database: starts, stops, everything at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from tests.kit.databases import empty_database, migrated_database
from tests.kit.patience import patience
from tests.kit.servers import Caller, Launcher, Server, curator, launching
from tests.kit.world import SHAPE, distinct_queries, eventually, query

pytestmark = pytest.mark.integration

COUNTS = np.random.default_rng(11).integers(0, 200_000, SHAPE)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What several calls give that begin at the same moment."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@dataclass
class Cluster:
    """Three processes over one database and one data folder: a server with two workers, and one alone."""

    launcher: Launcher
    servers: list[Server]
    url: str

    def callers(self, key: str) -> list[Caller]:
        return [Caller(server.url, key) for server in self.servers]

    @property
    def admins(self) -> list[Caller]:
        return [Caller(server.url) for server in self.servers]

    def auditor(self) -> Caller:
        return Caller(self.servers[0].url, self.admins[0].add(f"auditor-{time.monotonic_ns()}", "auditor"))


@pytest.fixture(scope="module")
def database_url(postgres_server: str) -> Iterator[str]:
    """An empty database for the whole module."""
    with migrated_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, database_url: str) -> Iterator[Cluster]:
    """Both servers make their first start on an empty database in the same moment. On a busy machine the hundreds of
    clients of this one process are silent for longer than a server puts up with by default.
    """
    limits = {"client_timeout_seconds": str(patience(20)), "keep_alive_seconds": str(patience(30))}
    with launching(tmp_path_factory.mktemp("cluster") / "data", database_url, **limits) as launcher:
        servers = [launcher.start(), launcher.start(workers=2)]
        for server in servers:
            server.wait_until_ready()
        yield Cluster(launcher, servers, database_url)
        logs = launcher.logs()
    assert "Traceback" not in logs
    assert '"level": "error"' not in logs


def worked_by(server: Server) -> float:
    """Seconds of processor time that a server has taken."""
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


def opened(caller: Caller, dataset: str, **asked: Any) -> str:
    body = {
        "dataset": dataset,
        "mechanism": {"construction": "mw"},
        "epsilon": 0.1,
        "max_queries": 1000,
        "max_updates": 30,
        **asked,
    }
    reply = caller.post("/v1/sessions", body)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


@pytest.mark.postgres
class TestOneDatabase:
    def test_one_chain(self, cluster: Cluster) -> None:
        """Eight clients ask in the same two sessions and in two of their own, through all processes. Catches a fork
        or gap of the chain, an answer from a state that another process has moved, a charge lost or made twice, and
        a reply that is not what was recorded.
        """
        cluster.admins[0].register("chain", COUNTS, budget={"epsilon": 4.0, "delta": 1e-6})
        keys = [cluster.admins[0].add(name) for name in ("chain-ann", "chain-bob")]
        shared = [opened(cluster.callers(key)[0], "chain") for key in keys]
        questions = list(distinct_queries())

        def client(number: int) -> list[tuple[str, dict[str, Any]]]:
            whose = number % 2
            callers = cluster.callers(keys[whose])
            own = opened(callers[0], "chain", mechanism={"construction": "fk"})
            heard = []
            for turn in range(24):
                id = own if turn % 4 == 3 else shared[whose]
                # Half of what is asked, others ask as well: it must come back as cached, whoever was first.
                asked = questions[turn // 2 if turn % 2 else 100 + 50 * number + turn]
                reply = callers[turn % 2].post(f"/v1/sessions/{id}/queries", asked, f"{number}-{turn}")
                if reply.status_code == 409:
                    assert reply.json()["type"] == "/problems/updates-exhausted"
                    continue
                assert reply.status_code == 200, reply.text
                heard.append((id, reply.json()))
            return heard

        heard = [pair for part in at_once(*(lambda n=n: client(n) for n in range(8))) for pair in part]
        transcripts = cluster.auditor().audit()
        entries = {id: {e["sequence"]: e for e in map(json.loads, lines[1:-1])} for id, lines in transcripts.items()}
        for id, answer in heard:
            entry = entries[id][answer["sequence"]]
            assert [entry[what] for what in ("value", "source", "entry_hash", "error_bound")] == [
                answer[what] for what in ("value", "source", "entry_hash", "error_bound")
            ]
        assert len({(id, answer["sequence"]) for id, answer in heard}) == len(heard)
        counted = [answer["source"] for _, answer in heard]
        assert min(counted.count(source) for source in ("cached", "measurement", "hypothesis")) > 0

    def test_hundreds_of_clients(self, cluster: Cluster) -> None:
        """240 clients at once, most of them in the same two sessions, the rest in four others, through all processes.
        Catches an answer lost or given twice in a crowd, a fork or gap of a chain under contention, and a full queue
        that says anything but 503 with the time to come back.
        """
        cluster.admins[0].register("crowd", COUNTS, budget={"epsilon": 4.0, "delta": 1e-6})
        key = cluster.admins[0].add("crowd-ann")
        ids = [opened(cluster.callers(key)[0], "crowd", max_updates=60) for _ in range(6)]
        questions = list(distinct_queries())

        async def client(http: httpx.AsyncClient, number: int) -> list[tuple[str, dict[str, Any]]]:
            heard = []
            id = ids[number % 2 if number % 3 else 2 + number % 4]
            for turn in range(2):
                asked, name = questions[(number + 7 * turn) % 60], f"{number}-{turn}"
                while True:
                    reply = await http.post(f"/v1/sessions/{id}/queries", json=asked, headers={"Idempotency-Key": name})
                    if reply.status_code != 503:
                        break
                    await asyncio.sleep(min(0.2, float(reply.headers["Retry-After"])))
                assert reply.status_code == 200, reply.text
                heard.append((id, reply.json()))
            return heard

        async def crowd() -> list[tuple[str, dict[str, Any]]]:
            async with contextlib.AsyncExitStack() as stack:
                doors = [
                    await stack.enter_async_context(
                        httpx.AsyncClient(
                            base_url=server.url,
                            headers={"Authorization": f"Bearer {key}"},
                            timeout=90,
                            limits=httpx.Limits(max_connections=None),
                        )
                    )
                    for server in cluster.servers
                ]
                told = await asyncio.gather(*(client(doors[n % 2], n) for n in range(240)))
            return [pair for part in told for pair in part]

        heard = asyncio.run(crowd())
        assert len(heard) == 480
        transcripts = cluster.auditor().audit()
        entries = {id: {e["sequence"]: e for e in map(json.loads, lines[1:-1])} for id, lines in transcripts.items()}
        for id, answer in heard:
            assert entries[id][answer["sequence"]]["entry_hash"] == answer["entry_hash"]
        assert len({(id, answer["sequence"]) for id, answer in heard}) == len(heard)
        # Nobody else asked in these sessions: what was recorded is what was heard.
        assert sum(len(entries[id]) for id in ids) == len(heard)

    def test_every_process_stands_at_the_same_state(self, cluster: Cluster) -> None:
        """Catches a worker that answers from what it remembers: after each answer by one, the other has to have it,
        in its cache, its hypothesis and its counters.
        """
        cluster.admins[0].register("state", COUNTS)
        key = cluster.admins[0].add("state-ann")
        callers = cluster.callers(key)
        id = opened(callers[0], "state")
        for turn, asked in zip(range(20), distinct_queries(), strict=False):
            first, second = callers[turn % 2], callers[1 - turn % 2]
            answer = first.post(f"/v1/sessions/{id}/queries", asked).json()
            again = second.post(f"/v1/sessions/{id}/queries", asked).json()
            assert (again["source"], again["value"]) == ("cached", answer["value"])
            assert again["sequence"] == answer["sequence"] + 1
            assert again["updates_used"] == answer["updates_used"]
        hypotheses = {caller.http.get(f"/v1/sessions/{id}/hypothesis").content for caller in callers * 3}
        assert len(hypotheses) == 1
        cluster.auditor().audit()

    def test_one_key_at_two_servers(self, cluster: Cluster) -> None:
        """Catches a concurrent repeat that is played by another process instead of waiting for the first."""
        cluster.admins[0].register("twins", COUNTS)
        key = cluster.admins[0].add("twins-ann")
        callers = cluster.callers(key) * 2
        id = opened(callers[0], "twins")
        for turn, asked in zip(range(8), distinct_queries(), strict=False):
            path = f"/v1/sessions/{id}/queries"
            replies = at_once(*(lambda c=c: c.post(path, asked, f"k{turn}") for c in callers))  # noqa: B023
            assert {reply.status_code for reply in replies} <= {200, 409}
            assert len({reply.content for reply in replies}) == 1
        openings = at_once(
            *(
                lambda c=c: c.post(
                    "/v1/sessions",
                    {
                        "dataset": "twins",
                        "mechanism": {"construction": "fk"},
                        "epsilon": 0.1,
                        "max_queries": 10,
                        "max_updates": 2,
                    },
                    "open",
                )
                for c in callers
            )
        )
        assert len({reply.content for reply in openings}) == 1
        assert len([s for s in callers[0].get("/v1/sessions")["items"] if s["dataset"] == "twins"]) == 2
        cluster.auditor().audit()

    def test_the_budget_is_shared(self, cluster: Cluster) -> None:
        """Catches two servers that each see room for a session, which together pass the budget."""
        cluster.admins[0].register("scarce", COUNTS)
        callers = cluster.callers(cluster.admins[0].add("scarce-ann")) * 5
        asked = {
            "dataset": "scarce",
            "mechanism": {"construction": "mw"},
            "epsilon": 0.2,
            "max_queries": 10,
            "max_updates": 2,
        }
        replies = at_once(*(lambda c=c: c.post("/v1/sessions", asked) for c in callers))
        assert sorted(reply.status_code for reply in replies) == [201] * 5 + [409] * 5
        refused = [reply.json() for reply in replies if reply.status_code == 409]
        assert {problem["type"] for problem in refused} == {"/problems/budget-exhausted"}
        cluster.auditor().audit()

    def test_a_mass_is_bought_once(self, cluster: Cluster) -> None:
        """Catches a fact of the data paid for, and released, by each of several sessions that open at once."""
        cluster.admins[0].register("bought", COUNTS, records_public=False)
        callers = cluster.callers(cluster.admins[0].add("bought-ann")) * 3
        ids = at_once(*(lambda c=c: opened(c, "bought", max_updates=2) for c in callers))
        auditor = cluster.auditor()
        ledger = auditor.get("/v1/datasets/bought/ledger")
        assert [m["session"] in ids for m in ledger["entries"] if m["kind"] == "purchase"] == [True]
        headers = [json.loads(auditor.transcript(id)[0]) for id in ids]
        # The first one names what it bought itself, the others find it in the data set's descriptor.
        bought = [h["bought"] if "bought" in h else h["dataset"]["bought"]["mass"] for h in headers]
        assert bought == [bought[0]] * len(ids)
        assert sum("bought" in header for header in headers) == 1
        auditor.audit()

    def test_an_exact_session_is_the_only_one(self, cluster: Cluster) -> None:
        """Catches two sessions that each believe to be the first thing ever asked of a data set."""
        cluster.admins[0].register("exact", COUNTS)
        callers = cluster.callers(cluster.admins[0].add("exact-ann")) * 2
        asked = {"dataset": "exact", "mechanism": {"construction": "mw"}, "max_queries": 10, "max_updates": 2}
        replies = at_once(
            *(lambda c=c: c.post("/v1/sessions", {**asked, "epsilon": 1.0, "calibration": "exact"}) for c in callers),
            *(lambda c=c: c.post("/v1/sessions", {**asked, "epsilon": 0.1}) for c in callers),
        )
        exact, others = [r.status_code for r in replies[:4]], [r.status_code for r in replies[4:]]
        assert exact.count(201) <= 1
        assert not (201 in exact and 201 in others)
        assert 201 in exact + others
        cluster.auditor().audit()

    def test_a_name_is_registered_once(self, cluster: Cluster) -> None:
        """Catches two data sets under one name, and the private file of the loser left lying."""
        admins = cluster.admins
        replies = at_once(*(lambda a=a: a.register("race", COUNTS) for a in admins * 3))
        assert sorted(reply.status_code for reply in replies) == [201] + [409] * 5
        assert len(list((cluster.launcher.folder / "vault").glob("race.*"))) == 1
        principals = at_once(
            *(lambda a=a: a.post("/v1/principals", {"name": "race", "role": "auditor"}) for a in admins * 3)
        )
        assert sorted(reply.status_code for reply in principals) == [201] + [409] * 5

    def test_revoked_and_retired_everywhere(self, cluster: Cluster) -> None:
        """Catches a key that other processes go on honouring, and sessions that they go on answering."""
        admins = cluster.admins
        admins[0].register("gone", COUNTS)
        key = admins[0].add("gone-ann")
        callers = cluster.callers(key)
        id = opened(callers[0], "gone")
        for caller in callers * 2:
            assert caller.post(f"/v1/sessions/{id}/queries", query(0)).status_code == 200
        assert admins[0].http.delete("/v1/datasets/gone").status_code == 200
        for caller in callers * 2:
            refusal = caller.post(f"/v1/sessions/{id}/queries", query(1))
            assert (refusal.status_code, refusal.json()["type"]) == (409, "/problems/session-closed")
        assert not list((cluster.launcher.folder / "vault").glob("gone.*"))
        assert admins[1].http.delete("/v1/principals/gone-ann").status_code == 204
        time.sleep(1.1)  # what a process may remember of a key, and a little more
        for caller in callers * 2:
            assert caller.http.get("/v1/sessions").status_code == 401
        cluster.auditor().audit()

    def test_a_new_key_everywhere(self, cluster: Cluster) -> None:
        """Catches an old key that other processes go on honouring, and one that its own process does."""
        admins = cluster.admins
        admins[0].register("rotated", COUNTS)
        old = cluster.callers(admins[0].add("rotated-ann"))
        id = opened(old[0], "rotated")
        for caller in old * 2:
            assert caller.http.get("/v1/sessions").status_code == 200
        reply = admins[0].post("/v1/principals/rotated-ann/key", {})
        assert reply.status_code == 200
        assert old[0].http.get("/v1/sessions").status_code == 401
        time.sleep(1.1)
        for caller in old * 2:
            assert caller.http.get("/v1/sessions").status_code == 401
        for caller in cluster.callers(reply.json()["api_key"]) * 2:
            assert caller.post(f"/v1/sessions/{id}/queries", query(1)).status_code == 200

    def test_one_dies_and_the_other_goes_on(self, cluster: Cluster) -> None:
        """kill -9 of one server under load. Catches row locks that outlive their process, and a client that cannot
        go on elsewhere with its keys.
        """
        cluster.admins[0].register("death", COUNTS)
        key = cluster.admins[0].add("death-ann")
        doomed = cluster.launcher.start().wait_until_ready()
        callers = [Caller(doomed.url, key), cluster.callers(key)[0]]
        id = opened(callers[1], "death")
        answers: list[bytes] = []
        refused = 0
        killer = threading.Timer(0.3, doomed.kill)
        killer.start()
        for turn, asked in zip(range(60), distinct_queries(), strict=False):
            reply = None
            for caller in (callers[0], callers[1]):
                try:
                    reply = caller.post(f"/v1/sessions/{id}/queries", asked, f"k{turn}")
                    break
                except Exception:
                    continue
            assert reply is not None
            if reply.status_code == 409:
                refused += 1
            else:
                assert reply.status_code == 200, reply.text
                answers.append(reply.content)
        killer.join()
        assert not doomed.alive()
        lines = cluster.auditor().audit()[id]
        assert [json.loads(line)["entry_hash"] for line in lines[1:-1]] == [
            json.loads(answer)["entry_hash"] for answer in answers
        ]


@pytest.mark.postgres
class TestPostgresStarts:
    def test_unmigrated_it_is_refused(self, tmp_path: Path, postgres_server: str) -> None:
        """Catches a server that migrates, or fails on its first request, on a database that operators migrate."""
        with empty_database(postgres_server) as url:
            done = curator(tmp_path, url, "serve", "--port", "0")
            assert done.returncode == 1
            assert "curator migrate" in done.stderr
            assert "Traceback" not in done.stderr
            assert curator(tmp_path, url, "migrate").returncode == 0

    def test_it_drains_with_all_its_workers(self, cluster: Cluster) -> None:
        server = cluster.launcher.command(None, "--workers", "2").wait_until_ready()
        assert server.child is not None
        server.child.send_signal(signal.SIGTERM)
        assert server.child.wait(60) == 0
        assert "Traceback" not in server.log.read_text()


class TestEmbedded:
    def test_one_process_at_a_time(self, tmp_path: Path) -> None:
        """Catches a second writer on a database whose only process believes its memory: at start, whatever it is."""
        with launching(tmp_path / "data", None) as launcher:
            first = launcher.start().wait_until_ready()
            for arguments in (["serve", "--port", "0"], ["migrate"]):
                done = curator(launcher.folder, None, *arguments)
                assert done.returncode == 1
                assert "another process already serves" in done.stderr
                assert "CURATOR_DATABASE_URL" in done.stderr
                assert "Traceback" not in done.stderr
            assert Caller(first.url).http.get("/readyz").status_code == 200
            # Its death, however violent, gives the right back.
            first.kill()
            launcher.start().wait_until_ready()

    def test_several_workers_are_refused(self, tmp_path: Path) -> None:
        done = curator(tmp_path, None, "serve", "--port", "0", "--workers", "2")
        assert done.returncode == 1
        assert "one process" in done.stderr
        assert "--workers" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "curator.sqlite3").exists()

    def test_it_drains(self, tmp_path: Path) -> None:
        """SIGTERM while a long batch is answered: the client gets its reply, the process ends with 0, and what it
        answered is there at the next start. Catches a stop that drops what waits, and one that hangs.
        """
        with launching(tmp_path / "data", None) as launcher:
            server = launcher.command().wait_until_ready()
            assert server.child is not None
            admin = Caller(server.url)
            admin.register("d", COUNTS)
            analyst = Caller(server.url, admin.add("ann"))
            id = opened(analyst, "d", max_queries=10_000)
            queries = [query(n % SHAPE[0], *range(n % 8 + 1)) for n in range(1500)]
            path = f"/v1/sessions/{id}/queries/batch"
            with ThreadPoolExecutor(1) as pool:
                worked = worked_by(server)
                waiting = pool.submit(analyst.post, path, {"queries": queries}, "k")
                # It is at work on the batch, or fast enough to be done with it.
                eventually(lambda: waiting.done() or worked_by(server) > worked + 0.05)
                server.child.send_signal(signal.SIGTERM)
                reply = waiting.result(60)
            assert server.child.wait(60) == 0
            assert reply.status_code == 200
            assert len(reply.json()["answers"]) == 1500
            again = launcher.start(server.port).wait_until_ready()
            assert analyst.post(path, {"queries": queries}, "k").content == reply.content
            Caller(again.url, Caller(again.url).add("auditor", "auditor")).audit()
