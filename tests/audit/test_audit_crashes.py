"""Servers that are killed, stopped or frozen while they audit: no verdict, no second process, nothing left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from app.bootstrap.nursery import NICENESS
from tests.audit.auditing import until, workers
from tests.kit.servers import Caller, Launcher, Server, launching
from tests.kit.world import SHAPE

pytestmark = [pytest.mark.integration, pytest.mark.slow]
#: Seconds after which another process takes a silent one for dead.
SILENCE = 2.0


@contextmanager
def prepared(folder: Path, url: str | None) -> Iterator[tuple[Launcher, Server]]:
    """A server with a session that takes a moment to be replayed."""
    with launching(folder / "data", url) as launcher:
        if url is not None:
            launcher.start(migrate=True).wait_until_ended()
        server = launcher.start(silence=SILENCE).wait_until_ready()
        caller = Caller(server.url)
        assert caller.register("d", np.full(SHAPE, 100), budget={"epsilon": 5.0, "delta": 1e-6}).status_code == 201
        asked = {"dataset": "d", "method": "gaussian", "workload": {"marginals": 1}, "epsilon": 0.05}
        id = caller.post("/v1/releases", asked).json()["id"]
        until(lambda: caller.get(f"/v1/releases/{id}")["status"] == "done")
        yield launcher, server


def caught(*servers: Server) -> tuple[int, str, psutil.Process]:
    """Which of some servers works on a new audit, the audit, and its process, which is stopped in the midst of it."""
    caller = Caller(servers[0].url)
    for _ in range(20):
        id = caller.post("/v1/audits", {"all": True}).json()["id"]
        while state(caller, id)["status"] == "running":
            for number, server in enumerate(servers):
                for worker in workers(server.pid):
                    with suppress(psutil.NoSuchProcess):
                        # Before it stands back, its server waits for it to begin, and it does not end with that yet.
                        if worker.nice() < NICENESS:
                            continue
                        worker.suspend()
                        if state(caller, id)["status"] == "running":
                            return number, id, worker
    raise AssertionError("audits end before they are caught")


def state(caller: Caller, id: str) -> dict[str, Any]:
    found: dict[str, Any] = caller.get(f"/v1/audits/{id}")
    return found


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def check_stopped(caller: Caller, id: str) -> None:
    """It was stopped by nobody, and says no more than that; and another one can be had."""
    told = state(caller, id)
    assert (told["status"], told["verdict"], told["result"], told["stopped_by"]) == ("stopped", None, None, None)
    assert "as the server ended" in told["says"]
    assert told["says"].endswith("It is no verdict.")
    again = caller.post("/v1/audits", {"all": True})
    assert again.status_code == 202, again.text
    until(lambda: state(caller, again.json()["id"])["status"] == "done")
    assert state(caller, again.json()["id"])["verdict"] == "holds"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_ends_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    """Catches a process that goes on for nobody, copies of the log that stay on the disk, an audit that blocks all
    others for ever, and one that is told as done.
    """
    with prepared(tmp_path, None) as (launcher, server):
        _, id, worker = caught(server)
        os.kill(server.pid, how)
        assert server.wait_until_ended(60)
        until(lambda: gone(worker))
        exports = tmp_path / "data" / "exports"
        assert list(exports.iterdir()) == []
        again = launcher.start(silence=SILENCE).wait_until_ready()
        assert workers(again.pid) == []
        check_stopped(Caller(again.url), id)
        assert "Traceback" not in launcher.logs()


def test_two_servers_have_one_audit(tmp_path: Path, postgres_url: str) -> None:
    """Catches one audit for each server, one that another server cannot stop, and one that a dead server keeps."""
    with prepared(tmp_path, postgres_url) as (launcher, server):
        other = launcher.start(silence=SILENCE).wait_until_ready()
        callers = [Caller(each.url) for each in (server, other)]
        working, id, worker = caught(server, other)
        elsewhere = callers[1 - working]
        reply = elsewhere.post("/v1/audits", {"all": True})
        assert (reply.status_code, reply.json()["audit"]) == (409, id)
        time.sleep(2 * SILENCE)  # its server lives, and says so
        assert state(elsewhere, id)["status"] == "running"
        assert elsewhere.http.delete(f"/v1/audits/{id}").json()["status"] == "stopping"
        until(lambda: state(elsewhere, id)["status"] == "stopped")
        assert gone(worker)
        assert state(elsewhere, id)["stopped_by"] == "admin"

        working, id, worker = caught(server, other)
        (server, other)[working].kill()
        until(lambda: gone(worker))
        elsewhere = callers[1 - working]
        until(lambda: state(elsewhere, id)["status"] == "stopped")
        check_stopped(elsewhere, id)
