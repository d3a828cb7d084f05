"""What is free tells nothing: on neighbouring data sets everything that is shown before a round is the same bytes,
and no log line ever holds a private value. With real server processes, their output at its most talkative.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.http.metrics import LEVELS_SECONDS
from benchmarks.harness import free_port
from tests.kit.patience import patience
from tests.kit.servers import Server, environment, starter
from tests.kit.service import NPY, npy, register, where
from tests.kit.world import ADMIN_KEY

pytestmark = pytest.mark.api

#: Women and men of the first table, and all of them: numbers that no plan or counter comes to by chance.
WOMEN, MEN = 48611, 31337


@dataclass
class Process:
    """A server process of its own, the file its output goes to, and what stood there after the free surface."""

    url: str
    output: Path
    free: list[str] = field(default_factory=list)

    def caller(self, key: str = ADMIN_KEY) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {key}"}, timeout=patience(60))

    def lines(self) -> list[str]:
        return self.output.read_text().splitlines()


@contextlib.contextmanager
def process(folder: Path) -> Iterator[Process]:
    settings = environment(folder / "data", None, log_level="debug", max_query_body_bytes="65536")
    output, ended, port = folder / "output", folder / "ended", free_port()
    serving = ["serve", "--host", "127.0.0.1", "--port", str(port)]
    pid = starter().start(arguments=serving, environment=settings, log=str(output), ended=str(ended))
    server = Server(pid, port, output)
    try:
        server.wait_until_ready()
        yield Process(server.url, output)
        os.kill(pid, signal.SIGTERM)
        assert server.wait_until_ended(60)
        assert ended.read_text() == "0"
    finally:
        server.kill()


BUDGET = {"epsilon": 1.0, "delta": 1e-6}
TABLE = {
    "name": "people",
    "kind": "table",
    "attributes": [{"name": "sex", "values": ["female", "male"]}, {"name": "age", "lower": 0, "upper": 80, "bins": 4}],
    "budget": BUDGET,
    "outside": "drop",
}


def records(women: int, men: int, outside: int) -> bytes:
    """Records as CSV, of which so many lie outside the domain and are dropped."""
    return (
        "sex,age\n" + "female,33\n" * women + "male,71\n" * men + "male,3\n" * (men // 7) + "female,81\n" * outside
    ).encode()


def counts(extra: int) -> bytes:
    array = np.arange(24).reshape(2, 3, 4) * 911
    array[1, 2, 3] += extra
    return npy(array)


def edges(*more: str) -> bytes:
    return "\n".join([*(f"{i} {(i * i + 1) % 19}" for i in range(2, 19) if i != (i * i + 1) % 19), *more]).encode()


def data_sets(neighbour: bool) -> list[tuple[dict[str, Any], str, bytes]]:
    """The data sets of one server; each differs from the other server's by one record or edge."""
    one = int(neighbour)
    cube = [{"name": name, "size": size} for name, size in (("a", 2), ("b", 3), ("c", 4))]
    return [
        (TABLE, "people.csv", records(WOMEN + one, MEN, 5 + 2 * one)),
        ({"name": "cube", "kind": "table", "attributes": cube, "budget": BUDGET}, "cube.npy", counts(one)),
        ({"name": "friends", "kind": "graph", "nodes": 19, "budget": BUDGET}, "g.txt", edges(*["0 1"] * one)),
        (
            {"name": "likes", "kind": "bipartite", "left": 3, "right": 4, "weighted": True, "budget": BUDGET},
            "w.csv",
            b"0,1,0.5\n2,3,0.25\n" + b"1,1,0.75\n" * one,
        ),
    ]


QUERIES: dict[str, list[Any]] = {
    "people": [
        {"type": "sparse", "indices": [], "weights": []},
        {**where(sex={"equals": "female"}), "unverified": True},
        {**where(sex={"equals": "female"}), "unverified": True},
        {"type": "dense", "weights": [0] * 8},
        where(shoes={"equals": 1}),
        where(age={"between": [0, 30]}),
        {"type": "dense", "weights": [2] * 8},
    ],
    "cube": [{"type": "product", "weights": {"a": [0.5, 1]}, "unverified": True}, where(a={"equals": 7}), 5],
    "friends": [
        {"type": "cut", "left": [], "right": "all"},
        {"type": "cut", "left": "all", "right": "all", "unverified": True},
        {"type": "cut", "left": [19], "right": "all"},
    ],
    "likes": [
        {"type": "rank_one", "left": [0, 0, 0], "right": [1, 1, 1, 1]},
        {"type": "rank_one", "left": [1, 0.5, 0], "right": [1, 1, -1, 1], "unverified": True},
    ],
}
#: What differs between two servers, or two moments, by itself.
OWN = [
    (r"\b[0-9a-f]{32}\b", "ID"),
    (r'("(?:head_hash|entry_hash|previous_hash|trailer_hash)": ?")[0-9a-f]{64}', r"\1HASH"),
    # Random, and how far the log has come by then.
    (r'("commitment": ?")[0-9a-f]{64}', r"\1HASH"),
    (r'("log_size": ?)(?:null|\d+)', r"\1SIZE"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"cur_[\w-]{43}", "KEY"),
]


def shown(reply: httpx.Response) -> tuple[int, list[tuple[str, str]], str]:
    """A reply as anybody could compare it: everything but ids, times, and the hashes made of them."""
    passing = ("date", "content-length") if b'"log_size"' in reply.content else ("date",)
    headers = [(name, value) for name, value in reply.headers.items() if name not in passing]
    if reply.headers.get("content-type") == NPY:
        return reply.status_code, headers, reply.content.hex()
    body = reply.text
    for pattern, name in OWN:
        body = re.sub(pattern, name, body)
    return reply.status_code, headers, body


def without_report(reply: tuple[int, list[tuple[str, str]], str]) -> tuple[int, list[tuple[str, str]], str]:
    """The reply to a registration without what the registering admin alone is told of the records, and its length."""
    status, headers, body = reply
    told = json.loads(body)
    told.pop("report")
    return status, [header for header in headers if header[0] != "content-length"], json.dumps(told)


def free_surface(server: Process, neighbour: bool) -> list[tuple[str, Any]]:
    """Everything that can be asked without a round, in one order."""
    seen: list[tuple[str, Any]] = []
    admin = server.caller()

    def call(client: httpx.Client, method: str, path: str, **how: Any) -> httpx.Response:
        reply = client.request(method, path, **how)
        seen.append((f"{method} {re.sub('[0-9a-f]{32}', 'ID', path)}", shown(reply)))
        return reply

    for spec, filename, data in data_sets(neighbour):
        seen.append(("register", without_report(shown(register(admin, spec, data, filename)))))
    seen.append(("again", shown(register(admin, TABLE, records(3, 2, 1), "people.csv"))))
    keys = [
        call(admin, "POST", "/v1/principals", json={"name": role, "role": role}).json()["api_key"]
        for role in ("analyst", "auditor")
    ]
    analyst, auditor = (server.caller(key) for key in keys)
    call(analyst, "GET", "/v1/datasets")
    for name, queries in QUERIES.items():
        call(analyst, "GET", f"/v1/datasets/{name}")
        words: dict[str, Any] = {"dataset": name, "epsilon": 0.5, "max_queries": 50, "max_updates": 5}
        for construction, change in [
            ("fk", {}),
            ("fk", {"epsilon": 1e-9}),
            ("fk", {"calibration": "jt2012", "beta": 0.5}),
            ("mw", {}),
            ("mw", {"max_updates": None}),
        ]:
            call(analyst, "POST", "/v1/plans", json={**words, "mechanism": {"construction": construction}, **change})
        fk = {**words, "mechanism": {"construction": "fk"}}
        id = call(analyst, "POST", "/v1/sessions", json=fk).json()["id"]
        call(analyst, "POST", "/v1/sessions", json={**fk, "epsilon": 0.6})
        for query in queries:
            call(analyst, "POST", f"/v1/sessions/{id}/queries", json=query)
        call(analyst, "POST", f"/v1/sessions/{id}/queries/batch", json={"queries": queries})
        call(analyst, "POST", f"/v1/sessions/{id}/queries", content=b"{" * 70_000)
        call(analyst, "POST", f"/v1/sessions/{id}/queries", content=npy([1.0]), headers={"Content-Type": NPY})
        for path in ("", "/transcript", "/hypothesis"):
            call(auditor, "GET", f"/v1/sessions/{id}{path}")
        call(auditor, "GET", f"/v1/datasets/{name}/ledger")
        call(analyst, "POST", f"/v1/sessions/{id}/close")
        for who, path in ((admin, f"/v1/datasets/{name}/sessions"), (admin, f"/v1/datasets/{name}/grants")):
            call(who, "GET", path)
        call(analyst, "GET", "/v1/grants")
        free = call(analyst, "POST", "/v1/sessions", json={"dataset": name, "epsilon": 0}).json()["id"]
        for query in queries:
            call(analyst, "POST", f"/v1/sessions/{free}/queries", json=query)
        call(auditor, "GET", f"/v1/sessions/{free}/transcript")
    call(admin, "DELETE", "/v1/datasets/likes")
    call(analyst, "GET", "/v1/datasets")
    time.sleep(4 * LEVELS_SECONDS)  # what they hold now is looked at from time to time
    counters = call(auditor, "GET", "/metrics").text.splitlines()
    # Durations are wall time; the database is looked at once a minute; how often a server was asked whether it is
    # there yet is the test's own doing.
    timed = ("_seconds", "curator_database_bytes", "/readyz")
    seen[-1] = ("GET /metrics", [line for line in counters if not any(word in line for word in timed)])
    # The line of a request is written when its reply has left.
    deadline = time.monotonic() + patience(60)
    while not re.search(r'"/metrics".*\n\Z', server.output.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.free = server.lines()
    return seen


def comparable(lines: list[str]) -> list[Any]:
    """Log lines without their times and the server's port, and without the requests that waited for its start."""
    passing = ("timestamp", "port")
    read = [json.loads(line) for line in lines]
    return [
        {name: value for name, value in line.items() if name not in passing}
        for line in read
        if line.get("route") != "/readyz"
    ]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Process]]:
    # The pool outlives the servers, which end with the threads that started them.
    with ThreadPoolExecutor(2) as pool, contextlib.ExitStack() as stack:
        started = [process(tmp_path_factory.mktemp(f"server{i}")) for i in range(2)]
        yield list(pool.map(stack.enter_context, started))


@pytest.fixture(scope="module")
def surfaces(servers: list[Process]) -> list[list[tuple[str, Any]]]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(free_surface, servers, (False, True)))


def test_replies_are_the_same_bytes(surfaces: list[list[tuple[str, Any]]]) -> None:
    """Descriptors, plans, refusals, states, transcripts, hypotheses, ledgers and counters of two servers whose data
    differ by one record in each data set. Catches a number of records in a capacity, a type, a plan, a size, a
    header or a counter.
    """
    here, there = surfaces
    assert len(here) > 80
    assert {200, 201, 409, 413, 422} <= {status for _, (status, *_) in here[:-1]}
    for one, other in zip(here, there, strict=True):
        assert one == other


def test_log_lines_are_the_same(servers: list[Process], surfaces: list[list[tuple[str, Any]]]) -> None:
    """Catches a line that depends on the data, and one that is missing for one of two neighbours."""
    logs = [comparable(server.free) for server in servers]
    assert len(logs[0]) > 80
    assert logs[0] == logs[1]


def test_no_log_line_holds_a_private_value(servers: list[Process], surfaces: list[list[tuple[str, Any]]]) -> None:
    """Real rounds over planted counts, and uploads refused for planted words: neither the counts, nor what was
    released of them, nor the words, queries, keys or ids stand in the output of the process. Catches a log line,
    a repr or a traceback with a value in it.
    """
    server = servers[0]
    admin = server.caller()
    young = records(0, MEN, 0).count(b"male,3\n")
    secrets = [str(n) for n in (WOMEN, MEN, MEN + young, WOMEN + MEN + young, young)]
    words = {"dataset": "people", "mechanism": {"construction": "mw"}, "epsilon": 0.4, "max_queries": 50}
    opened = admin.post("/v1/sessions", json={**words, "max_updates": 10})
    assert opened.status_code == 201, opened.text
    id = opened.json()["id"]
    for query in (where(sex={"equals": "female"}), where(age={"between": [60, 80]}), where(age={"between": [0, 20]})):
        reply = admin.post(f"/v1/sessions/{id}/queries", json=query)
        assert reply.status_code == 200
        secrets.append(str(reply.json()["value"]))
    assert reply.json()["updates_used"] >= 1
    refused_files = [
        b"sex,age\nzebra-quux,3\n",
        b"sex,age\nfemale,8173645\n",
        b"sex,age\nfemale,zebra-quux,8173645\n",
        b'sex,age\n"zebra-quux,8173645\n',
        b"zebra-quux,8173645\n",
        b"sex,age\nzebra-qu\xffx,8173645\n",
    ]
    for data in refused_files:
        spec = {**TABLE, "name": "other", "outside": "refuse"}
        for filename in ("d.csv", "d.parquet", "d.npy", "d.npz", "d.txt"):
            reply = register(admin, spec, data, filename)
            assert reply.status_code == 422
            for word in ("zebra-qu", "8173645"):
                assert word not in reply.text
    admin.get("/v1/datasets/zebra-quux")
    admin.get("/v1/sessions", headers={"Authorization": "Bearer zebra-quux"})
    secrets += ["zebra-qu", "8173645", ADMIN_KEY, id, "female", "between"]
    # Without times: among the millionths of so many seconds any four digits stand in one run of twenty.
    output = json.dumps(comparable(server.lines()), ensure_ascii=False)
    for secret in secrets:
        assert secret not in output
    assert "Traceback" not in output
    assert "unforeseen" not in output
