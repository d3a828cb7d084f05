"""The noisy value of a miss exists nowhere: numbers that nobody could mistake are planted, and searched for.

A real server runs in a process of its own, with the whole of `serving.serve` but for its noise, which is made so
that the noisy value of every miss is one number with eight digits nobody else uses. The private answer and the noise
are such numbers too. Then everything the server has written or said is searched for any of them, in any form: the
database with its write-ahead log, standard output and error at the level debug, every reply, refusal and document,
the metrics, and what it left in its folders. The vault, which is there to hold private numbers, is left out.

That the search can find is shown each time: the value of a hit, which is released, is found where it belongs, and
numbers logged on purpose are found in every form.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import functools
import json
import math
import os
import resource
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import structlog

from benchmarks.harness import free_port
from tests.kit.patience import patience
from tests.kit.processes import end_with_tests
from tests.kit.servers import ROOT
from tests.kit.service import npy, register

pytestmark = pytest.mark.integration

#: Bits of the answer grid: the capacity of the data below is 2^28 and more.
BITS = 17
#: Every cell that is asked about holds this many records.
PRIVATE = 20846137 << BITS
#: What noise makes of it in a miss, and in a hit. The last digits are below a whole record.
MISS = (71834629 << BITS) + 0x135C5
HIT = (93517264 << BITS) + 0x0A6E3
THRESHOLD = 66_000_000
CELLS = 32
ADMIN_KEY = "an-admin-key-for-tests"


# ---------------------------------------------------------------------- the search


def forms(units: int) -> dict[str, bytes]:
    """How a number of grid units could be written: text, memory, a database's cell, and all of these in base64."""
    count = math.ldexp(units, -BITS)
    whole, fraction = divmod(units, 1 << BITS)
    found = {
        "units": str(units).encode(),
        "units in hexadecimal": f"{units:x}".encode(),
        "units in capitals": f"{units:X}".encode(),
        "units, big-endian, short": units.to_bytes(6, "big"),
        "units, little-endian, short": units.to_bytes(6, "little"),
        "units, integer": struct.pack("<q", units),
        "units, big-endian": struct.pack(">q", units),
        "units, float": struct.pack("<d", units),
        "units, big-endian float": struct.pack(">d", units),
        "records": str(whole).encode(),
        "records, grouped": f"{whole:,}".encode(),
        "records, underlined": f"{whole:_}".encode(),
        "records, exponent": f"{whole / 10 ** (len(str(whole)) - 1)}".encode(),
        "records, float": struct.pack("<d", count),
        "records, big-endian float": struct.pack(">d", count),
        "records, integer": struct.pack("<q", whole),
    }
    if fraction == 0:
        # A whole number of records has few digits in binary: its short forms would be found by accident.
        found = {name: form for name, form in found.items() if "short" not in name}
    for name in ("units, integer", "units, float", "records, float"):
        for shift in range(3):
            # Whatever stands before and after: only the characters that depend on the number alone.
            coded = base64.b64encode(bytes(shift) + found[name])
            found[f"{name}, base64 after {shift}"] = coded[math.ceil(shift * 4 / 3) : (shift + 8) * 4 // 3]
    return found


SECRETS = {
    "noisy value of a miss": MISS,
    "private answer": PRIVATE,
    "noise of a miss": MISS - PRIVATE,
    "noise of a hit": HIT - PRIVATE,
}


def search(places: dict[str, bytes], secrets: dict[str, int]) -> list[str]:
    """Where any form of any of the numbers stands."""
    found = []
    for secret, units in secrets.items():
        for form, words in forms(units).items():
            found += [f"{secret} ({form}) in {place}" for place, content in places.items() if words in content]
    return found


# ---------------------------------------------------------------------- the process under test


class Marked:
    """A noise port that makes of PRIVATE what the test wants to see, and tells on demand how the process is kept."""

    def __init__(self, controls: Path) -> None:
        self._controls = controls

    def laplace(self, _scale: Any, ahead: int = 1024) -> Marked:
        return self

    def poisson(self, _mean: Any, _cut: int) -> Any:
        return _Three()

    low = False

    def take(self, n: int) -> Any:
        wanted = HIT if (self._controls / "hit").exists() else MISS
        if (self._controls / "report").exists():
            report = {
                "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
                "core": resource.getrlimit(resource.RLIMIT_CORE),
            }
            (self._controls / "report").unlink()
            (self._controls / "reported").write_text(json.dumps(report))
        return np.full(n, wanted - PRIVATE, dtype=np.int64)


class _Three:
    def take(self) -> int:
        return 3


def _serve(port: int, controls: Path) -> None:
    """`serving.serve` with marked noise and faults that come when a file of their name is there."""
    from app.audit import writing
    from app.bootstrap import serving
    from app.services.answering import round
    from app.storage.store import SqlTransaction

    serving.build = functools.partial(serving.build, noise=Marked(controls))

    def once(name: str) -> bool:
        try:
            (controls / name).unlink()
        except FileNotFoundError:
            return False
        return True

    play, entry, commit = round.play, writing.answer_entry, SqlTransaction.commit

    def failing_play(hypothesis: int, private: int, noise: int, threshold: int) -> Any:
        if once("play"):
            raise RuntimeError(f"{private} + {noise} = {private + noise}, {MISS * 2.0**-BITS} against {hypothesis}")
        return play(hypothesis, private, noise, threshold)

    def failing_entry(**fields: Any) -> Any:
        if once("entry"):
            raise RuntimeError
        return entry(**fields)

    def failing_commit(self: SqlTransaction) -> None:
        if once("commit"):
            raise RuntimeError(f"parameters: {PRIVATE}, {MISS}")
        commit(self)

    round.play, writing.answer_entry = failing_play, failing_entry
    SqlTransaction.commit = failing_commit  # type: ignore[method-assign]
    serving.serve("127.0.0.1", port, 1)


# ---------------------------------------------------------------------- the test's side


@dataclass
class Server:
    """The running process, everything it has said, and the switches of its faults."""

    folder: Path
    process: subprocess.Popen[bytes]
    client: httpx.Client
    said: list[bytes] = field(default_factory=list)
    analyst: dict[str, str] = field(default_factory=dict)

    @property
    def controls(self) -> Path:
        return self.folder / "controls"

    @contextlib.contextmanager
    def switched(self, name: str) -> Iterator[None]:
        switch = self.controls / name
        switch.touch()
        yield
        assert name == "hit" or not switch.exists(), "the fault did not happen"
        switch.unlink(missing_ok=True)

    def abort(self) -> None:
        """End it as a fault of its own would; nothing of its memory is left."""
        limits = Path(f"/proc/{self.process.pid}/limits").read_text()
        (core,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
        assert core.split()[4:6] == ["0", "0"]
        self.process.send_signal(signal.SIGABRT)
        _, status = os.waitpid(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        assert os.WIFSIGNALED(status)
        assert not os.WCOREDUMP(status)
        assert not [path for path in self.folder.rglob("*") if path.name.startswith("core")]

    def places(self) -> dict[str, bytes]:
        """Everything there is to search."""
        data = self.folder / "data"
        files = [path for path in self.folder.rglob("*") if path.is_file() and data / "vault" not in path.parents]
        found = {str(path.relative_to(self.folder)): path.read_bytes() for path in files}
        return found | {"replies": b"\n".join(self.said)}

    def send(self, method: str, path: str, status: int, **body: Any) -> httpx.Response:
        reply = self.client.request(method, path, **body)
        self.said.append(repr(reply.headers.raw).encode() + reply.content)
        assert reply.status_code == status, reply.text
        return reply

    def open(self, **changes: Any) -> str:
        """A session whose threshold lies between the misses and the hits made here."""
        asked = {
            "dataset": "marked",
            "mechanism": {"construction": "mw"},
            "max_queries": 100,
            "max_updates": 10,
            "epsilon": 1e-9,
            **changes,
        }
        wide = self.send("POST", "/v1/plans", 200, json=asked, headers=self.analyst).json()["threshold"]
        asked["epsilon"] *= (wide / THRESHOLD) ** 2
        opened = self.send("POST", "/v1/sessions", 201, json=asked, headers=self.analyst).json()
        threshold = opened["plan"]["threshold"]
        hypothesis = PRIVATES / CELLS
        assert abs(MISS * 2.0**-BITS - hypothesis) < threshold < abs(HIT * 2.0**-BITS - hypothesis)
        assert opened["plan"]["answer_grid"] == 2.0**-BITS
        return str(opened["id"])

    def ask(self, id: str, cell: int, status: int = 200) -> Any:
        """Ask for one of the cells that hold PRIVATE."""
        query = {"type": "predicate", "where": {"a": {"equals": cell}}}
        return self.send("POST", f"/v1/sessions/{id}/queries", status, json=query, headers=self.analyst).json()


#: Half of the cells hold PRIVATE, the others something else, so that the public mean is neither.
COUNTS = np.where(np.arange(CELLS) < CELLS // 2, PRIVATE >> BITS, 9_000_001)
PRIVATES = int(COUNTS.sum())
MARKED = {
    "name": "marked",
    "kind": "table",
    "attributes": [{"name": "a", "size": CELLS}],
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}


@contextlib.contextmanager
def running(folder: Path, module: str, **settings: str) -> Iterator[Server]:
    """A server that a test module, run as a program, serves over a folder until the context ends."""
    for name in ("controls", "data", "temporary", "working"):
        (folder / name).mkdir()
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder / "temporary"),
        "CURATOR_DATA_DIR": str(folder / "data"),
        "CURATOR_ADMIN_KEY": ADMIN_KEY,
        "CURATOR_LOG_LEVEL": "debug",
        "CURATOR_METRICS_OPEN": "1",
        **settings,
    }
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(port), str(folder / "controls")],
            cwd=folder / "working",
            env=environment,
            stdout=out,
            stderr=err,
            preexec_fn=end_with_tests,
        )
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=patience(60))
    server = Server(folder, process, client)
    try:
        _until_ready(server)
        client.headers.update({"Authorization": f"Bearer {ADMIN_KEY}"})
        made = server.send("POST", "/v1/principals", 201, json={"name": "ann", "role": "analyst"}).json()
        server.analyst = {"Authorization": f"Bearer {made['api_key']}"}
        yield server
    finally:
        process.kill()
        process.wait(30)
        client.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("secrecy"), "tests.privacy.test_secrecy") as server:
        reply = register(server.client, MARKED, npy(COUNTS), "counts.npy")
        assert reply.status_code == 201, reply.text
        server.said.append(reply.content)
        yield server


def _until_ready(server: Server) -> None:
    deadline = time.monotonic() + patience(60)
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if server.client.get("/readyz").status_code == 200:
                return
        assert server.process.poll() is None, (server.folder / "stderr").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def read_everything(server: Server, id: str) -> None:
    """Fetch every document there is about a session, so that it is searched too."""
    for path in (
        f"/v1/sessions/{id}",
        f"/v1/sessions/{id}/transcript",
        f"/v1/sessions/{id}/hypothesis",
    ):
        server.send("GET", path, 200, headers=server.analyst)
    for path in ("/v1/datasets/marked", "/v1/datasets/marked/ledger", "/v1/sessions", "/metrics", "/readyz"):
        server.send("GET", path, 200)


@pytest.mark.parametrize("release", ["single", "race"])
def test_a_miss_leaves_nothing(server: Server, release: str) -> None:
    """Catches a noisy value in a row, a log line, a reply, a metric or a cache on disk."""
    id = server.open(release=release)
    misses = [server.ask(id, cell) for cell in range(4)]
    assert [answer["source"] for answer in misses] == ["hypothesis"] * 4
    assert server.ask(id, 0)["source"] == "cached"
    read_everything(server, id)
    assert search(server.places(), SECRETS) == []


@pytest.mark.parametrize("release", ["single", "race"])
def test_a_hit_leaves_its_value_and_nothing_else(server: Server, release: str) -> None:
    """Catches a private answer or a noise stored beside what is released; and shows that what is stored is found."""
    id = server.open(release=release)
    server.said.clear()
    with server.switched("hit"):
        answer = server.ask(id, 5)
    assert (answer["source"], answer["value"]) == ("measurement", math.ldexp(HIT, -BITS))
    read_everything(server, id)
    places = server.places()
    assert search(places, SECRETS) == []
    found = search(places, {"hit": HIT})
    assert any("replies" in place for place in found)
    assert any("curator.sqlite3" in place for place in found)
    assert not any("stderr" in place or "stdout" in place for place in found)


@pytest.mark.parametrize("fault", ["play", "entry", "commit"])
def test_an_error_after_the_noise_tells_nothing(server: Server, fault: str) -> None:
    """Catches an error's own words, or the variables of its frames, in a log line or a refusal. The round and the
    commit fail with words that quote everything; the entry fails while the private number is in a variable.
    """
    id = server.open()
    with server.switched(fault):
        answer = server.ask(id, 7, 200 if fault == "commit" else 503)
    if fault == "commit":
        # The outcome was kept, and stored when that could be done.
        assert answer["source"] == "hypothesis"
    else:
        assert answer["type"] == "/problems/unavailable"
    assert server.ask(id, 8)["source"] == "hypothesis"
    read_everything(server, id)
    places = server.places()
    assert b"RuntimeError" in places["stderr"]
    assert search(places, SECRETS) == []


def test_the_key_of_a_commitment_is_in_its_file_alone(server: Server) -> None:
    """Once an admin was given it. Catches it in a row, a stored reply, a log line, a metric or a document, and an error
    that quotes it: a file that is altered, then one that is retired.
    """
    reply = register(server.client, {**MARKED, "name": "committed"}, npy(COUNTS), "counts.npy")
    assert reply.status_code == 201, reply.text
    server.said.append(reply.content)
    revealed = server.client.post("/v1/datasets/committed/commitment", headers={"Idempotency-Key": "k"})
    key = revealed.json()["key"]
    (path,) = (server.folder / "data" / "vault").glob("committed.*.vault")
    content = path.read_bytes()
    assert key.encode() in content  # what is searched for is how it is written
    path.write_bytes(content.replace(key[:8].encode(), b"00000000"))
    server.send("POST", "/v1/datasets/committed/commitment", 503)
    path.write_bytes(content)
    server.send("DELETE", "/v1/datasets/committed", 200)
    server.send("POST", "/v1/datasets/committed/commitment", 409)
    for document in ("/v1/datasets/committed", "/v1/datasets", "/metrics", "/readyz"):
        server.send("GET", document, 200)
    raw = bytes.fromhex(key)
    forms = [key.encode(), raw, repr(raw).encode(), base64.b64encode(raw), base64.urlsafe_b64encode(raw)]
    places = server.places()
    assert any(revealed.json()["commitment"].encode() in content for content in places.values())
    for path in (server.folder / "data" / "vault").iterdir():
        places[path.name] = path.read_bytes()
    assert [place for place, content in places.items() if any(form in content for form in forms)] == []


def test_the_process_leaves_no_core(server: Server) -> None:
    """Catches a dump of memory, where private numbers and drawn noise are: by its limit, by the kernel's own mark,
    and when it is tried.
    """
    id = server.open()
    with server.switched("report"):
        server.ask(id, 9)
    report = json.loads((server.controls / "reported").read_text())
    assert report == {"dumpable": 0, "core": [0, 0]}
    server.abort()
    # What a crash leaves is searched like the rest, the write-ahead log above all.
    places = server.places()
    assert "data/curator.sqlite3" in places
    assert search(places, SECRETS) == []


def test_libraries_complain_without_their_words() -> None:
    """A connection pool logs the error of a broken connection with its stack trace, and the event loop that of a task.
    Catches words and traces of libraries in the log: they quote the values of statements.
    """
    code = (
        "import logging\n"
        "from app.bootstrap.logs import configure_logs\n"
        "configure_logs('info'); configure_logs('info')\n"
        "try:\n"
        "    raise ValueError('the value 8191')\n"
        "except ValueError:\n"
        "    logging.getLogger('sqlalchemy.pool').error('while resetting 8191', exc_info=True)\n"
        "logging.getLogger('asyncio').warning('%s was slow', '8191')\n"
        "logging.getLogger('asyncio').info('8191')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["library"], line["error"]) for line in lines] == [
        ("sqlalchemy.pool", "ValueError"),
        ("asyncio", None),
    ]
    assert "8191" not in done.stderr + done.stdout


class TestTheSearch:
    """It can find what is there."""

    def test_in_a_log_line(self, capfd: pytest.CaptureFixture[str]) -> None:
        from app.bootstrap.logs import configure_logs

        configure_logs("debug")
        try:
            log = structlog.get_logger("planted")
            for secret, units in SECRETS.items():
                count = math.ldexp(units, -BITS)
                log.debug("planted", value=units)
                assert any(secret in place for place in search(said(capfd), SECRETS)), secret
                log.debug("planted", value=count)
                assert any(secret in place for place in search(said(capfd), SECRETS)), secret
                log.error("planted", error=f"{units:#x} and {count:,.1f} and {count:.8e} and {np.int64(units)!r}")
                assert len(search(said(capfd), {secret: units})) >= 4
        finally:
            structlog.reset_defaults()

    @pytest.mark.parametrize("units", SECRETS.values(), ids=SECRETS)
    def test_in_memory_and_in_base64(self, units: int) -> None:
        count = math.ldexp(units, -BITS)
        for content in (
            np.array([1, units, 2], dtype="<i8").tobytes(),
            np.array([1, units, 2], dtype=">i8").tobytes(),
            np.array([1.5, count, 2.5]).tobytes(),
            base64.b64encode(b"x" + np.array([1, units, 2], dtype="<i8").tobytes()),
            base64.b64encode(np.array([1.5, count, 2.5]).tobytes()),
        ):
            assert search({"here": content}, {"it": units})

    @pytest.mark.parametrize("value", [MISS, math.ldexp(MISS, -BITS), str(MISS), str(math.ldexp(MISS, -BITS))])
    def test_in_a_database_and_its_write_ahead_log(self, tmp_path: Path, value: Any) -> None:
        database = sqlite3.connect(tmp_path / "x.sqlite3", isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t (x)")
        database.execute("INSERT INTO t VALUES (?)", (value,))
        wal = (tmp_path / "x.sqlite3-wal").read_bytes()
        assert search({"wal": wal}, SECRETS)
        database.close()
        assert search({"database": (tmp_path / "x.sqlite3").read_bytes()}, SECRETS)

    def test_nothing_is_found_where_nothing_is(self) -> None:
        """Catches forms so short that they are found by accident."""
        assert min(len(form) for units in SECRETS.values() for form in forms(units).values()) >= 6
        assert search({"noise": np.random.default_rng(0).bytes(1 << 24)}, SECRETS) == []


def said(capfd: pytest.CaptureFixture[str]) -> dict[str, bytes]:
    out, err = capfd.readouterr()
    return {"out": out.encode(), "err": err.encode()}


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
