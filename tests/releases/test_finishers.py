"""What every finisher does, whoever works for it: processes beside the server, workers over the table of jobs, or those
of a cluster of Dask.

A task is statements here, as in :mod:`tests.kit.doing`, but for the one that is a release's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from sqlalchemy import Engine, event, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ProgrammingError

from app.audit.against_log import Due, Found
from app.bootstrap import table_finisher
from app.bootstrap.dask_finisher import Cluster, DaskFinisher
from app.bootstrap.nursery import Nursery
from app.bootstrap.preconditions import StartRefused
from app.bootstrap.release_worker import ProcessFinisher
from app.bootstrap.table_finisher import TableFinisher
from app.bootstrap.working import Worker
from app.declarations.errors import InvalidRequest
from app.releases.finishing import TookTooLong, WorkerDied
from app.services.release_jobs import Finisher
from app.services.replay_tasks import found_in, name_of, written
from app.settings import Settings
from app.storage import tables as t
from app.storage.database import make_engines
from app.storage.job_table import GRANTS, SILENT_SECONDS, Claim, JobTable
from curator_client.proofs.findings import Unfollowed
from tests.audit.folders import found_of
from tests.audit.test_folder import log_of, played
from tests.audit.test_report_against_replay import folder_of
from tests.kit.cluster import FAILURES, Dask, certificates, dask
from tests.kit.patience import patience
from tests.kit.processes import end_with_tests
from tests.kit.servers import ROOT, curator
from tests.kit.world import eventually, make_world
from tests.releases.test_releases import Desk

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.postgres]
MEMORY, SLEEP = 1 << 30, b"import time; time.sleep(600)"
REFUSES = b"from app.declarations.errors import InvalidRequest; raise InvalidRequest('not so', limit=3)"
#: A worker's process, as `curator work` has it, but for what does the tasks.
WORKER = """
import sys
from app.bootstrap.dask_finisher import Cluster, DaskFinisher
from app.bootstrap.nursery import Nursery
from app.bootstrap.release_worker import ProcessFinisher
from app.bootstrap.working import Worker
from app.storage.database import make_engines
from app.storage.job_table import JobTable
nursery = Nursery("tests.kit.doing")
jobs = JobTable(make_engines(sys.argv[1])[1])
Worker(jobs, 1 << 30, 600.0, lambda *limits: ProcessFinisher(*limits, nursery)).run()
"""
_NURSERY = Nursery("tests.kit.doing")


def by_statements(memory: int, seconds: float = 600.0) -> ProcessFinisher:
    return ProcessFinisher(memory, seconds, _NURSERY)


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    _, made = make_engines(postgres_url)
    yield made
    made.dispose()


@pytest.fixture
def jobs(engine: Engine) -> JobTable:
    return JobTable(engine)


@contextmanager
def at_work(jobs: JobTable, made: Callable[[int, float], ProcessFinisher] = by_statements) -> Iterator[Worker]:
    """A worker in a thread."""
    worker = Worker(jobs, MEMORY, 600.0, made)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(patience(30))
        assert not thread.is_alive()


@contextmanager
def process_at_work(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", WORKER, url], cwd=ROOT, preexec_fn=end_with_tests)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def empty_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    """A cluster without workers."""
    with dask(tmp_path_factory.mktemp("dask")) as made:
        yield made


@pytest.fixture
def cluster(empty_cluster: Dask) -> Dask:
    """One with a worker, or with more."""
    if all(each.poll() is not None for each in empty_cluster.workers):
        empty_cluster.begin_worker()
    return empty_cluster


@pytest.fixture(params=["process", "table", "dask"])
def made(request: pytest.FixtureRequest) -> Iterator[Callable[[float], Finisher]]:
    """made(seconds): a finisher of each kind that allows tasks so long."""
    if request.param == "process":
        yield lambda seconds: by_statements(MEMORY, seconds)
        return
    if request.param == "dask":
        found: Dask = request.getfixturevalue("cluster")
        yield lambda seconds: DaskFinisher(found.cluster, MEMORY, seconds)
        return
    jobs = request.getfixturevalue("jobs")
    with at_work(jobs):
        yield lambda seconds: TableFinisher(jobs, seconds, "release")


class Asked(threading.Thread):
    """Somebody who asks a finisher for something, what he heard meanwhile and what became of it."""

    def __init__(self, finisher: Finisher, task: bytes) -> None:
        super().__init__()
        self.parts: list[float] = []
        self.result: bytes | None = None
        self.error: Exception | None = None
        self._finisher, self._task = finisher, task
        self.start()

    def run(self) -> None:
        try:
            self.result = self._finisher.finish(self._task, self.parts.append)
        except Exception as error:
            self.error = error

    def ended(self) -> Exception | None:
        self.join(patience(40))
        assert not self.is_alive()
        return self.error


def rows(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(t.jobs)).all())


def running(engine: Engine, other_than: str | None = None) -> None:
    """Wait until a worker has the one job, and another one than this."""
    eventually(lambda: any(row.status == "running" and row.worker != other_than for row in rows(engine)))


def silence(engine: Engine, column: str = "beat") -> None:
    """As if whoever has the job, or wants it, had said nothing since so long ago."""
    with engine.begin() as connection:
        connection.execute(update(t.jobs).values({column: t.jobs.c[column] - SILENT_SECONDS - 1}))


def nothing(_: float) -> None:
    pass


# ---------------------------------------------------------------------- what all do


def test_results_come_back(made: Callable[[float], Finisher]) -> None:
    """Any bytes, one after another by one finisher. Catches a result that is another job's, or is cut at a zero."""
    finisher = made(60.0)
    for number in range(3):
        task = f"result = bytes(range(256)) * 4096 + b'{number}'".encode()
        assert finisher.finish(task, nothing) == bytes(range(256)) * 4096 + str(number).encode()


def test_refusals_come_back(made: Callable[[float], Finisher]) -> None:
    with pytest.raises(InvalidRequest, match="not so") as caught:
        made(60.0).finish(REFUSES, nothing)
    assert caught.value.extra == {"limit": 3}


def test_a_fault_is_told_without_what_it_says(made: Callable[[float], Finisher]) -> None:
    with pytest.raises(WorkerDied, match="ended before its work did"):
        made(60.0).finish(b"1 / 0", nothing)


def test_progress_rises(made: Callable[[float], Finisher]) -> None:
    """Catches progress that is never told, or that goes back."""
    task = b"import time\nfor k in range(1, 61):\n    progress(k / 60)\n    time.sleep(0.1)\n"
    asked = Asked(made(60.0), task)
    assert asked.ended() is None
    assert asked.parts
    assert asked.parts == sorted(asked.parts)
    assert 0 < asked.parts[0] <= asked.parts[-1] <= 1


def test_it_may_take_only_so_long(made: Callable[[float], Finisher]) -> None:
    begun = time.monotonic()
    with pytest.raises(TookTooLong, match=r"longer than the 1 s .* \(CURATOR_RELEASE_SECONDS\)"):
        made(1.0).finish(SLEEP, nothing)
    assert time.monotonic() - begun < patience(20)


def test_cancelled(made: Callable[[float], Finisher]) -> None:
    """What is cancelled has ended within 2 s, and the finisher does the next. Catches one that is stuck."""
    finisher = made(60.0)
    asked = Asked(finisher, SLEEP)
    time.sleep(2.0)  # so that it is under way
    begun = time.monotonic()
    finisher.cancel()
    assert isinstance(asked.ended(), WorkerDied)
    assert time.monotonic() - begun < patience(2)
    assert finisher.finish(b"result = b'next'", nothing) == b"next"


def test_a_stop_is_for_good(made: Callable[[float], Finisher]) -> None:
    finisher = made(60.0)
    asked = Asked(finisher, SLEEP)
    time.sleep(1.0)
    finisher.stop()
    assert isinstance(asked.ended(), WorkerDied)
    with pytest.raises(WorkerDied):
        finisher.finish(b"result = b''", nothing)


def test_several_at_once(made: Callable[[float], Finisher]) -> None:
    """Each has its own result, and a cancel ends all. Catches a finisher that knows the last of them alone."""
    finisher = made(60.0)
    first = [Asked(finisher, f"result = b'{number}'".encode()) for number in range(3)]
    for number, asked in enumerate(first):
        assert asked.ended() is None
        assert asked.result == b"%d" % number
    others = [Asked(finisher, SLEEP) for _ in range(3)]
    time.sleep(2.0)
    begun = time.monotonic()
    finisher.cancel()
    assert all(isinstance(asked.ended(), WorkerDied) for asked in others)
    assert time.monotonic() - begun < patience(2)


def test_a_release_is_the_same_wherever_it_is_made(made: Callable[[float], Finisher], tmp_path: Path) -> None:
    """Byte for byte. Catches an environment, a header or a result that a worker has and that makes another release."""
    task = recorded_task(tmp_path)
    assert made(600.0).finish(task, nothing) == ProcessFinisher(MEMORY).finish(task, nothing)


def test_a_replay_is_the_same_wherever_it_is_made(made: Callable[[float], Finisher], tmp_path: Path) -> None:
    """The report of a log, byte for byte; the oracle replays here. Catches a task that only this process can do."""
    kept = folder_of(tmp_path, log_of(played()))
    finisher, sent = made(600.0), []

    def replays(due: Iterator[Due | Unfollowed]) -> Iterator[Found | Unfollowed]:
        for each in due:
            assert isinstance(each, Due)
            sent.append(written(each)[1])
            yield found_in(finisher.finish(sent[-1], nothing), name_of(sent[-1]))

    assert orjson.dumps(found_of(kept, replays)) == orjson.dumps(found_of(kept))
    assert len(sent) == 1


def recorded_task(folder: Path) -> bytes:
    """The task of a release, as a server puts it out."""
    world = make_world(folder / "data")
    try:
        world.built.services.jobs.stop()
        desk = Desk(world)
        desk.ask()
        assert desk.jobs.work()
        (task,) = desk.here.jobs
        return task
    finally:
        world.stop()


# ---------------------------------------------------------------------- workers over the table


def test_nothing_is_left_in_the_table(jobs: JobTable, engine: Engine) -> None:
    """However it ends. Catches what was released, and would stand in the database for ever."""
    finisher = TableFinisher(jobs, 60.0, "release")
    with at_work(jobs):
        finisher.finish(b"result = b''", nothing)
        with pytest.raises(InvalidRequest):
            finisher.finish(REFUSES, nothing)
        asked = Asked(finisher, SLEEP)
        running(engine)
        finisher.cancel()
        asked.ended()
    assert rows(engine) == []


def test_a_killed_worker_is_taken_over(jobs: JobTable, engine: Engine, postgres_url: str, tmp_path: Path) -> None:
    """SIGKILL in the midst: the next worker begins anew, and progress does not go back. Catches a job that is lost."""
    first = tmp_path / "first"
    task = (
        f"import os, time\nprogress(0.5)\nfirst = not os.path.exists({str(first)!r})\nopen({str(first)!r}, 'w')\n"
        "if first:\n    time.sleep(600)\nprogress(0.25)\ntime.sleep(3)\nresult = b'made'"
    ).encode()
    with process_at_work(postgres_url) as process:
        asked = Asked(TableFinisher(jobs, 60.0, "release"), task)
        eventually(first.exists)
        eventually(lambda: any(row.progress == 0.5 for row in rows(engine)))
        process.kill()
        process.wait()
    silence(engine)
    with at_work(jobs):
        assert asked.ended() is None
    assert asked.result == b"made"
    assert asked.parts == sorted(asked.parts)


def test_a_worker_that_is_alive_is_not_taken_over(jobs: JobTable, engine: Engine) -> None:
    """Catches a beat that is not written: the planted silence would last."""
    with at_work(jobs):
        finisher = TableFinisher(jobs, 60.0, "release")
        asked = Asked(finisher, SLEEP)
        running(engine)
        (before,) = rows(engine)
        eventually(lambda: rows(engine)[0].beat > before.beat)
        assert jobs.claim() is None
        finisher.cancel()
        asked.ended()


def test_who_was_taken_over_changes_nothing(jobs: JobTable, engine: Engine) -> None:
    """A worker was slow and not dead: neither its beat, nor its result, nor its giving back changes the row. The
    planted fault is a claim that names the present worker: with the fence taken away the row does change.
    """
    id = jobs.put("release", b"task", 60.0)
    slow = jobs.claim()
    silence(engine)
    present = jobs.claim()
    assert slow is not None
    assert present is not None
    (before,) = rows(engine)
    assert not jobs.beat(slow, 0.9)
    assert not jobs.end(slow, "done", b"late")
    assert not jobs.give_back(slow)
    assert rows(engine) == [before]
    assert jobs.end(replace(slow, worker=present.worker), "done", b"late")
    assert not jobs.end(present, "done", b"a second end")
    standing = jobs.standing(id)
    assert standing is not None
    assert standing.result == b"late"


def test_a_job_has_one_worker(jobs: JobTable) -> None:
    """Eight claim at the same moment, four jobs. Catches a job that two have."""
    ids = {jobs.put("release", b"", 60.0) for _ in range(4)}
    barrier, found = threading.Barrier(8), list[Claim | None]()

    def claim() -> None:
        barrier.wait()
        found.append(jobs.claim())

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [each.id for each in found if each is not None]
    assert len(taken) == len(set(taken))
    assert set(taken) <= ids
    while (another := jobs.claim()) is not None:  # one that was looked at by two may have been left
        taken.append(another.id)
    assert sorted(taken) == sorted(ids)


def test_a_stopped_worker_gives_its_job_back(jobs: JobTable, engine: Engine) -> None:
    """At once, and as if it had never had it. Catches a job that waits for a silence, or that fails of an upgrade."""
    with at_work(jobs):
        asked = Asked(TableFinisher(jobs, 60.0, "release"), b"import time; time.sleep(4); result = b'made'")
        running(engine)
    (row,) = rows(engine)
    assert (row.status, row.worker, row.claims) == ("waiting", None, 0)
    with at_work(jobs):
        assert asked.ended() is None
    assert asked.result == b"made"


def test_what_silences_workers_goes_through_three_of_them(jobs: JobTable, engine: Engine) -> None:
    """Catches a job that takes every machine with it, one after another."""
    asked = Asked(TableFinisher(jobs, 60.0, "release"), b"")
    eventually(lambda: len(rows(engine)) == 1)
    for _ in range(3):
        assert jobs.claim() is not None
        silence(engine)
    assert jobs.claim() is None
    assert isinstance(asked.ended(), WorkerDied)
    assert "3 workers" in str(asked.error)


def test_what_no_server_wants_is_not_begun(jobs: JobTable, engine: Engine) -> None:
    """A server was killed. Catches workers that are busy with what nobody will read."""
    jobs.put("release", b"", 60.0)
    silence(engine, "wanted")
    assert jobs.claim() is None


def test_what_no_server_wants_any_more_is_given_back(jobs: JobTable, engine: Engine) -> None:
    """A server was killed while a worker was at its job, or was silent for long: the worker ends, and takes the next.
    When the server speaks again the job is made after all. Catches a worker that is busy with what nobody will read,
    and one that says a job has failed whose server was slow.
    """
    id = jobs.put("release", b"import time; time.sleep(6); result = b'made'", 60.0)
    with at_work(jobs):
        running(engine)
        silence(engine, "wanted")
        eventually(lambda: rows(engine)[0].status == "waiting")
        assert TableFinisher(jobs, 60.0, "release").finish(b"result = b'next'", nothing) == b"next"
        assert rows(engine)[0].claims == 0

        def made() -> bool:
            jobs.want(id)
            standing = jobs.standing(id)
            return standing is not None and standing.result == b"made"

        eventually(made)


def test_a_job_of_another_kind_is_refused(jobs: JobTable, engine: Engine) -> None:
    """As of a newer server. Catches a worker that does something else."""
    asked = Asked(TableFinisher(jobs, 60.0, "release"), SLEEP)
    eventually(lambda: len(rows(engine)) == 1)
    with engine.begin() as connection:
        connection.execute(update(t.jobs).values(kind="of tomorrow"))
    with at_work(jobs):
        assert isinstance(asked.ended(), WorkerDied)
    assert "same version" in str(asked.error)


def test_what_is_too_large_for_a_row_is_told(jobs: JobTable, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_finisher, "MOST_BYTES", 10)
    with pytest.raises(WorkerDied, match="CURATOR_FINISHER=process"):
        TableFinisher(jobs, 60.0, "release").finish(b"x" * 11, nothing)
    assert rows(engine) == []


def test_more_than_can_come_of_a_replay_is_not_fetched(
    jobs: JobTable, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may write what it likes. Catches a server that reads what its memory does not hold, eight at a time."""
    monkeypatch.setattr(table_finisher, "REPLAY_BYTES", 10)
    for length, ended in ((14, type(None)), (15, WorkerDied)):
        asked = Asked(TableFinisher(jobs, 60.0, "replay"), b"task")
        eventually(lambda: len(rows(engine)) == 1)
        claim = jobs.claim()
        assert claim is not None
        assert jobs.end(claim, "done", b"x" * length)
        assert isinstance(asked.ended(), ended)
    assert "longer than" in str(asked.error)
    id = jobs.put("replay", b"task", 60.0)
    claim = jobs.claim()
    assert claim is not None
    assert jobs.end(claim, "done", b"x" * 11)
    told = jobs.standing(id, 10)
    assert told is not None
    assert (told.end, told.result) == ("done", None)


def test_jobs_are_put_out_one_after_another(jobs: JobTable, engine: Engine) -> None:
    """Eight that are long, at once. Catches an audit that has all connections of its server while it hands out
    transcripts, so that requests wait for half a second."""
    begun, most = 0, 0

    def before(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        nonlocal begun, most
        begun += statement.startswith("INSERT")
        most = max(most, begun)

    def after(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        nonlocal begun
        begun -= statement.startswith("INSERT")

    event.listen(engine, "before_cursor_execute", before)
    event.listen(engine, "after_cursor_execute", after)
    threads = [threading.Thread(target=jobs.put, args=("replay", os.urandom(4 << 20), 60.0)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows(engine)) == 8
    assert most == 1


# ---------------------------------------------------------------------- a cluster of Dask


def gone(file: Path) -> bool:
    """Whether the process whose number a file holds has ended."""
    return not Path(f"/proc/{file.read_text()}").exists()


def test_what_is_cancelled_ends_on_the_cluster(cluster: Dask, tmp_path: Path) -> None:
    """Within two seconds. Catches a worker that goes on for nobody: Dask stops no thread."""
    file, finisher = tmp_path / "process", DaskFinisher(cluster.cluster, MEMORY, 600.0)
    asked = Asked(finisher, f"import os; open({str(file)!r}, 'w').write(str(os.getpid()))\n".encode() + SLEEP)
    eventually(lambda: file.exists() and file.read_text() != "")
    begun = time.monotonic()
    finisher.cancel()
    assert isinstance(asked.ended(), WorkerDied)
    eventually(lambda: gone(file))
    assert time.monotonic() - begun < patience(2)


def test_what_a_killed_server_asked_of_a_cluster_ends(cluster: Dask, tmp_path: Path) -> None:
    """kill -9 to the server. Catches a cluster that works for nobody."""
    file = tmp_path / "process"
    task = f"import os; open({str(file)!r}, 'w').write(str(os.getpid()))\n".encode() + SLEEP
    code = (
        "from app.bootstrap.dask_finisher import Cluster, DaskFinisher\n"
        f"DaskFinisher({cluster.cluster!r}, {MEMORY}, 600.0).finish({task!r}, print)"
    )
    server = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, preexec_fn=end_with_tests)
    try:
        eventually(lambda: file.exists() and file.read_text() != "")
    finally:
        server.kill()
        server.wait()
    begun = time.monotonic()
    eventually(lambda: gone(file))
    assert time.monotonic() - begun < patience(2)


def test_a_killed_worker_of_a_cluster_is_no_end(empty_cluster: Dask, tmp_path: Path) -> None:
    """SIGKILL in the midst: the cluster begins anew on another worker, and progress does not go back. Catches a release
    that fails of a machine that was turned off.
    """
    for (
        each
    ) in empty_cluster.workers:  # dead ones that the scheduler does not miss yet are given the task again, in vain
        each.kill()
        each.wait()
    worker = empty_cluster.begin_worker()
    first = tmp_path / "first"
    task = (
        f"import os, time\nfirst = not os.path.exists({str(first)!r})\nprogress(0.5 if first else 0.25)\n"
        f"time.sleep(0.5)\nprogress(0.5 if first else 0.25)\ntime.sleep(0.5)\nopen({str(first)!r}, 'w')\n"
        "if first:\n    time.sleep(600)\nresult = b'made'"
    ).encode()
    asked = Asked(DaskFinisher(empty_cluster.cluster, MEMORY, 600.0), task)
    eventually(first.exists)
    worker.kill()
    worker.wait()
    empty_cluster.begin_worker()
    assert asked.ended() is None
    assert asked.result == b"made"
    assert asked.parts == sorted(asked.parts)
    assert 0.5 in asked.parts


def test_what_kills_workers_of_a_cluster_is_given_up(cluster: Dask) -> None:
    """It ends each worker that takes it. Catches a job that takes every machine with it, one after another."""
    task = b"import os, signal; os.kill(int(open(f'/proc/{os.getppid()}/stat').read().split()[3]), signal.SIGKILL)"
    asked = Asked(DaskFinisher(cluster.cluster, MEMORY, 600.0), task)
    for _ in range(FAILURES):
        cluster.begin_worker()
    assert isinstance(asked.ended(), WorkerDied)
    assert "workers of the cluster took it" in str(asked.error)


def test_a_lost_scheduler_is_waited_for(tmp_path: Path) -> None:
    """It is killed in the midst, and another one comes at its place. Catches a release that fails of an upgrade, and
    one that waits for a scheduler that has forgotten it.
    """
    first = tmp_path / "first"
    task = (
        f"import os, time\nfirst = not os.path.exists({str(first)!r})\nopen({str(first)!r}, 'w')\n"
        "if first:\n    time.sleep(600)\nresult = b'made'"
    ).encode()
    with dask(tmp_path) as found:
        found.begin_worker()
        asked = Asked(DaskFinisher(found.cluster, MEMORY, 600.0), task)
        eventually(first.exists)
        found.scheduler.kill()
        found.scheduler.wait()
        found.begin_scheduler(int(found.url.rpartition(":")[2]))
        found.begin_worker()
        assert asked.ended() is None
    assert asked.result == b"made"


def test_a_cluster_of_another_authority_is_told_nothing(cluster: Dask, tmp_path: Path) -> None:
    """Whoever answers in the place of a cluster. Catches a client that asks for no certificate, or takes any."""
    others = replace(cluster.cluster, ca=str(certificates(tmp_path)["ca"]))
    file = tmp_path / "ran"
    finisher = DaskFinisher(others, MEMORY, 600.0)
    asked = Asked(finisher, f"open({str(file)!r}, 'w')".encode())
    time.sleep(2.0)
    finisher.cancel()
    assert isinstance(asked.ended(), WorkerDied)
    assert not file.exists()


FILES = {"dask_ca": "ca.pem", "dask_certificate": "node.pem", "dask_key": "node.key"}


def test_a_cluster_without_tls_is_refused() -> None:
    """Anybody on the network could read what is sent, and answer. Catches a setting that lets that be."""
    with pytest.raises(ValueError, match="dask_url"):
        Settings(finisher="dask", dask_url="tcp://127.0.0.1:8786", **FILES)
    for missing in FILES:
        with pytest.raises(ValueError, match=f"CURATOR_{missing.upper()}"):
            Settings(finisher="dask", dask_url="tls://127.0.0.1:8786", **{**FILES, missing: None})
    assert Settings(finisher="dask", dask_url="tls://127.0.0.1:8786", **FILES).finisher == "dask"


def test_a_start_without_dask_or_a_file_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates(tmp_path)
    (tmp_path / "node.key").unlink()
    files = {name: tmp_path / file for name, file in FILES.items()}
    settings = Settings(finisher="dask", dask_url="tls://127.0.0.1:8786", **files)
    with pytest.raises(StartRefused, match=r"CURATOR_DASK_KEY: .*node\.key cannot be read"):
        Cluster.of(settings)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(StartRefused, match=r"pip install 'curator-server\[dask\]'"):
        Cluster.of(settings)


# ---------------------------------------------------------------------- the role of a worker, and its start


@contextmanager
def role_of_workers(url: str) -> Iterator[str]:
    """The URL of a role that has the rights of docs/operations/workers.md and no others."""
    role = f"worker_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'w'".encode())
        connection.execute(GRANTS.format(role=role).encode())
        try:
            yield make_url(url).set(username=role, password="w").render_as_string(hide_password=False)
        finally:
            connection.execute(f"DROP OWNED BY {role}".encode())
            connection.execute(f"DROP ROLE {role}".encode())


def test_a_role_with_the_rights_of_a_worker_works_and_sees_nothing_else(jobs: JobTable, postgres_url: str) -> None:
    """Of every table but its own each right is denied; of that one it cannot put out, change or remove tasks."""
    with role_of_workers(postgres_url) as url:
        with process_at_work(url):
            assert TableFinisher(jobs, 60.0, "release").finish(b"result = b'made'", nothing) == b"made"
        _, engine = make_engines(url)
        try:
            denied = [f"SELECT 1 FROM {name}" for name in t.metadata.tables if name != "jobs"]
            denied += [f"DELETE FROM {name}" for name in t.metadata.tables]
            denied += ["UPDATE jobs SET task = ''", "UPDATE jobs SET wanted = 0", "INSERT INTO jobs (id) VALUES ('i')"]
            for statement in denied:
                with engine.begin() as connection, pytest.raises(ProgrammingError, match="permission denied"):
                    connection.exec_driver_sql(statement)
        finally:
            engine.dispose()


@pytest.mark.parametrize("key", ["vault_key", "log_key", "admin_key"])
def test_a_worker_with_a_key_does_not_start(tmp_path: Path, postgres_url: str, key: str) -> None:
    """Catches a machine that is given more than it needs."""
    value = "x" * 43 if key == "admin_key" else "A" * 43 + "="
    ended = curator(tmp_path, postgres_url, "work", **{"admin_key": "", key: value})
    assert ended.returncode == 1
    assert f"CURATOR_{key.upper()}" in ended.stderr
    assert value not in ended.stderr + ended.stdout


def test_a_worker_of_an_embedded_database_does_not_start(tmp_path: Path) -> None:
    ended = curator(tmp_path, None, "work", admin_key="")
    assert ended.returncode == 1
    assert "PostgreSQL" in " ".join(ended.stderr.split())


def test_a_worker_without_its_table_says_what_to_do(tmp_path: Path, postgres_server: str) -> None:
    ended = curator(tmp_path, postgres_server, "work", admin_key="")
    assert ended.returncode == 1
    assert "curator migrate" in " ".join(ended.stderr.split())


def test_a_table_needs_a_server_of_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens an embedded database sees all of it. Catches a setting that lets workers do so."""
    monkeypatch.delenv("CURATOR_DATABASE_URL", raising=False)
    with pytest.raises(ValueError, match="PostgreSQL"):
        Settings(finisher="table")
    assert Settings(finisher="table", database_url="postgresql://u@h/d").finisher == "table"
