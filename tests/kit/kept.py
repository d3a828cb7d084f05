"""Servers that all workers of a run of tests share. Each ends with the run, however that ends.

As a program each module is the keeper of one: ``python -m MODULE FOLDER PID`` starts it in the folder, prints its URI,
and when the process of that id has ended stops it and removes the folder. A keeper has a session of its own, so that no
signal to the tests reaches it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def server_of_run(name: str, module: str) -> str:
    """The URI of the run's server of that name; the first worker that asks has the keeper start it."""
    worker = "PYTEST_XDIST_WORKER" in os.environ
    run = os.environ["PYTEST_XDIST_TESTRUNUID"] if worker else f"alone-{os.getpid()}"
    folder = Path(tempfile.gettempdir()) / f"curator-{name}-{run[:14]}"
    folder.mkdir(exist_ok=True)
    told = folder / "uri"
    with (folder / "lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not told.exists():
            told.write_text(kept_server(module, folder, os.getppid() if worker else os.getpid()))
    return told.read_text()


def kept_server(module: str, folder: Path, pid: int) -> str:
    """Have a keeper start a server that ends with a process; its URI."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(folder), str(pid)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        uri = process.stdout.readline().strip()
    assert uri, f"{module} did not start its server"
    return uri
