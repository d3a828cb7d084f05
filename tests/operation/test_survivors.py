"""Tests that are interrupted, or die: what they have started ends with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.kit import spark
from tests.kit.patience import patience
from tests.kit.processes import end_with_tests
from tests.kit.servers import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.postgres, pytest.mark.slow]

#: A test that has a server with a PostgreSQL database, one from scratch, and a cluster of Spark where Java runs it. It
#: waits.
WAITING = """
import os, time
from pathlib import Path
from tests.kit import spark
from tests.kit.servers import launching
def test_that_waits(postgres_url: str, tmp_path: Path) -> None:
    with launching(tmp_path / "data", postgres_url) as launcher:
        launcher.start().wait_until_ready()
        launcher.command()
        if spark.is_run_here():
            spark.server_of_run()
        Path(os.environ["TOLD"]).touch()
        time.sleep(600)
"""


@pytest.mark.parametrize(("how", "workers"), [(signal.SIGINT, ["-n", "1"]), (signal.SIGKILL, [])])
def test_nothing_is_left(tmp_path: Path, how: signal.Signals, workers: list[str]) -> None:
    """An interrupt goes to all processes of the terminal, as a key sends it; a kill to the first one alone. Catches
    servers and databases that go on without tests, and hold ports, memory and files.
    """
    told, suite = tmp_path / "told", tmp_path / "test_waiting.py"
    suite.write_text(WAITING)
    (tmp_path / "conftest.py").write_text("from tests.conftest import postgres_server, postgres_url\n")
    arguments = ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull, *workers, str(suite)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"TOLD": str(told), "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    os.chmod(tmp_path, 0o755)
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=begun_at_a_terminal,
    )
    try:
        while not told.exists():
            assert run.poll() is None
            time.sleep(0.05)
        started = of_run(tmp_path)
        expected = {"postgres", "launcher.py", "serve", *(["SparkConnectServer"] if spark.is_run_here() else [])}
        assert {name for process in started for name in expected if name in said(process)} == expected
    finally:
        os.killpg(run.pid, how) if how == signal.SIGINT else run.kill()
        run.wait()
    _, left = psutil.wait_procs(started, timeout=patience(60))
    assert [said(process) for process in left] == []
    assert of_run(tmp_path) == []


def begun_at_a_terminal() -> None:
    """What a shell starts in the background does not heed interrupts, nor does what that starts: this run does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_tests()


def of_run(folder: Path) -> list[psutil.Process]:
    """Processes that have the run's folder for temporary files, and the databases in it."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder) or str(folder) in said(process):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != os.getpid()]


def said(process: psutil.Process) -> str:
    """The command line; nothing of one that has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
