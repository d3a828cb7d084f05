"""Without the defence: whoever kills a server's first process has its database alone, while workers still answer."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from app.bootstrap.preconditions import StartRefused, standing_still
from app.settings import Settings
from app.storage.database import AlreadyServed, DataDirLock
from tests.kit.servers import launching, request_under_way
from tests.kit.world import eventually

pytestmark = [pytest.mark.adversarial, pytest.mark.postgres]


def free(folder: Path, server: str | None) -> bool:
    """Whether a data folder, and a database where one is named, can be had alone."""
    lock = DataDirLock(folder, None, server)
    try:
        lock.acquire()
    except AlreadyServed:
        return False
    lock.release()
    return True


def test_workers_that_outlive_it_keep_others_out(tmp_path: Path, postgres_url: str) -> None:
    """The first process of a server of two workers is killed with SIGKILL while one of them has a request under way,
    which it finishes: until then neither the folder nor the database can be had alone, afterwards both. Catches locks
    that end with the process that took them: files would be put under another key, or budgets forfeited, beside a
    worker that still answers from them. And orphans, which would hold the port: it could not be started again.
    """
    (tmp_path / "elsewhere").mkdir()
    with launching(tmp_path / "data", postgres_url) as launcher:
        server = launcher.start(workers=2).wait_until_ready()
        eventually(lambda: len(server.workers()) == 2)
        left, begun = server.workers(), psutil.Process(server.pid).children(recursive=True)
        with request_under_way(server) as finish:
            os.kill(server.pid, signal.SIGKILL)
            eventually(lambda: len(psutil.wait_procs(left, timeout=0.01)[1]) == 1)
            assert not free(launcher.folder, None)
            assert not free(tmp_path / "elsewhere", postgres_url)
            settings = Settings(data_dir=launcher.folder, database_url=postgres_url)
            with pytest.raises(StartRefused, match="another process already serves"), standing_still(settings):
                pass  # what forfeit, restore and a change of keys begin with
            assert finish() == 422
        eventually(lambda: not psutil.wait_procs(begun, timeout=0.01)[1])
        eventually(lambda: free(launcher.folder, None) and free(tmp_path / "elsewhere", postgres_url), 10)
    assert "Traceback" not in launcher.logs()


def test_an_embedded_server_has_no_one_to_outlive_it(tmp_path: Path) -> None:
    """Killed with SIGKILL, the one process of an embedded database leaves nobody behind, and both locks are free.
    Catches a helper process that goes on holding, or goes on working.
    """
    with launching(tmp_path / "data", None) as launcher:
        server = launcher.start().wait_until_ready()
        assert not free(launcher.folder, None)
        children = psutil.Process(server.pid).children(recursive=True)
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not server.alive())
        eventually(lambda: not psutil.wait_procs(children, timeout=0.01)[1])
        lock = DataDirLock(launcher.folder, launcher.folder / "curator.sqlite3")
        lock.acquire()
        lock.release()
