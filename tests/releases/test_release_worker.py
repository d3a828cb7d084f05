"""The process that makes something of a release's measurements: what it is told, what it may take, and how it ends.

A task is bytes, and here these are statements: the nursery is that of :mod:`tests.kit.doing`, which runs them.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.bootstrap.nursery import NICENESS, Nursery
from app.bootstrap.release_worker import ProcessFinisher
from app.declarations.errors import CuratorError, InvalidRequest
from app.http import problems
from app.releases.finishing import TookTooLong, WorkerDied
from app.services import errors
from app.services.closed_forms import refusal as refusal_form
from app.services.closed_forms import refused
from app.services.errors import BudgetExhausted
from tests.kit.patience import patience
from tests.kit.processes import end_with_tests
from tests.kit.servers import ROOT
from tests.kit.world import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]
SLEEP = "import time; time.sleep(600)"
#: The same, told in a file when it has begun.
TOLD = "import pathlib, time; pathlib.Path({!r}).touch(); time.sleep(600)"
#: The highest nice value that there is.
NICEST = 19


_NURSERY = Nursery("tests.kit.doing")


def finisher(memory_limit: int = 1 << 30, seconds: float = 600.0) -> ProcessFinisher:
    return ProcessFinisher(memory_limit, seconds, _NURSERY)


def run(statements: str, memory_limit: int = 1 << 30, seconds: float = 600.0) -> bytes:
    return finisher(memory_limit, seconds).finish(statements.encode(), lambda _: None)


def workers(of: int) -> list[psutil.Process]:
    """The processes that do jobs for a process, forked from its nursery."""
    nurseries = [each for each in psutil.Process(of).children() if "tests.kit.doing" in " ".join(each.cmdline())]
    return [worker for nursery in nurseries for worker in nursery.children()]


def worker(of: int) -> psutil.Process:
    """The one process that does a job for a process, when it stands back, as it does before it takes the job. That is
    beyond its nursery, which stands back itself where the tests do; where it can no more, the two are alike.
    """
    deadline = time.monotonic() + patience(30)
    while time.monotonic() < deadline:
        if found := workers(of):
            nursery = found[0].parent()
            if nursery is not None and found[0].nice() == min(NICEST, nursery.nice() + NICENESS):
                return found[0]
        time.sleep(0.1)  # each look is one at all processes of the machine
    raise AssertionError("nobody works")


@pytest.fixture
def working(tmp_path: Path) -> Iterator[tuple[ProcessFinisher, psutil.Process, list[str]]]:
    """Somebody who is at work, and how it ended. One that is killed before it has begun ends in another way: the next
    one is begun in its place.
    """
    made, ended, told = finisher(), list[str](), tmp_path / "begun"

    def work() -> None:
        try:
            made.finish(TOLD.format(str(told)).encode(), lambda _: None)
        except WorkerDied as error:
            ended.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    eventually(told.exists)
    yield made, worker(psutil.Process().pid), ended
    made.stop()
    thread.join(30)
    assert not thread.is_alive()


def every_refusal() -> list[CuratorError]:
    found = [InvalidRequest("a", limit=3), BudgetExhausted("b", requested=1, remaining=2)]  # type: ignore[arg-type]
    return [*found, errors.Unavailable("c", retry_after=7), errors.NotFound("d")]


def test_refusals_come_across() -> None:
    """Catches a refusal that cannot be read again, or that loses what it says."""
    for refusal in every_refusal():
        again = refused(refusal_form(refusal))
        assert type(again) is type(refusal)
        assert (again.detail, again.extra, str(again)) == (refusal.detail, refusal.extra, str(refusal))
        assert problems.document(again) == problems.document(refusal)
    with pytest.raises(BudgetExhausted, match="too much") as caught:
        run("from app.services.errors import BudgetExhausted; raise BudgetExhausted('too much', 1, 2)")
    assert caught.value.extra == {"requested": 1.0, "remaining": 2.0}


def test_it_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a process that could open private files, or the database."""
    for name in ("CURATOR_VAULT_KEY", "CURATOR_ADMIN_KEY", "PGPASSWORD"):
        monkeypatch.setenv(name, "not-for-you")
    _NURSERY.end()  # that of an earlier test knows nothing of these
    told = "from app.declarations.errors import InvalidRequest; import os; raise InvalidRequest(repr(dict(os.environ)))"
    with pytest.raises(InvalidRequest) as caught:
        run(told)
    assert "PATH" in caught.value.detail
    assert "not-for-you" not in caught.value.detail


def test_it_is_forked_where_nothing_else_runs(
    working: tuple[ProcessFinisher, psutil.Process, list[str]],
) -> None:
    """Catches a fork beside threads, whose locks nobody would ever let go of, and files of the server in the process:
    what it has open is its standard files and its connection.
    """
    _, process, _ = working
    nursery = process.parent()
    assert nursery is not None
    assert nursery.num_threads() == 1
    eventually(lambda: process.num_fds() == 4)


def test_it_takes_only_so_much_memory() -> None:
    """Catches a fit that takes the memory of the sessions, and one that is refused what it may take."""
    with pytest.raises(WorkerDied, match="CURATOR_MEMORY_LIMIT"):
        run("bytearray(300 << 20)", 200 << 20)
    with pytest.raises(InvalidRequest):
        run(
            "bytearray(100 << 20); from app.declarations.errors import InvalidRequest; raise InvalidRequest('it fits')",
            200 << 20,
        )


def test_it_takes_only_so_much_time() -> None:
    """Catches a fit that nothing ends, and one whose end is told as another one's."""
    begun = time.monotonic()
    with pytest.raises(TookTooLong, match=r"longer than the 2 s .* \(CURATOR_RELEASE_SECONDS\)"):
        run("while True: pass", seconds=2.0)
    assert time.monotonic() - begun < patience(30)
    assert workers(psutil.Process().pid) == []


def test_what_it_prints_is_no_message() -> None:
    with pytest.raises(InvalidRequest, match="all right"):
        run("print('x' * 99); from app.declarations.errors import InvalidRequest; raise InvalidRequest('all right')")


def test_a_fault_of_its_own_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    _NURSERY.end()  # that of an earlier test has another standard error
    with pytest.raises(WorkerDied, match="log says why"):
        run("1 / 0")
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_killed_by_the_system(working: tuple[ProcessFinisher, psutil.Process, list[str]]) -> None:
    """Catches a server that waits for a process that is gone."""
    _, process, ended = working
    process.kill()
    deadline = time.monotonic() + patience(10)
    while not ended and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "no memory left" in ended[0]


def test_it_stands_back_and_hears_no_signal_of_the_group(
    working: tuple[ProcessFinisher, psutil.Process, list[str]],
) -> None:
    """A terminal, or a manager of services, tells the whole group to end. Catches a release that fails of it while the
    server drains. That it stands back is what the fixture waits for.
    """
    made, process, ended = working
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
    time.sleep(0.2)
    assert process.is_running()
    assert ended == []
    made.cancel()
    process.wait(10)


def test_a_stop_is_for_good(working: tuple[ProcessFinisher, psutil.Process, list[str]]) -> None:
    made, process, _ = working
    made.stop()
    process.wait(10)
    with pytest.raises(WorkerDied):
        made.finish(b"1 / 0", lambda _: None)


def test_it_ends_with_the_server() -> None:
    """kill -9 to the server while it computes. Catches an orphan that goes on with what nobody will read."""
    code = (
        "from tests.releases.test_release_worker import SLEEP, run\n"
        "run('while True: pass')"  # it never looks at its pipes
    )
    server = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, preexec_fn=end_with_tests)
    try:
        process = worker(server.pid)
        deadline = time.monotonic() + patience(30)
        while process.cpu_times().user < 0.5 and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        server.kill()
        server.wait()
    deadline = time.monotonic() + patience(10)
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
