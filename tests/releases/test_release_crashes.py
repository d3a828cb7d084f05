"""kill -9 at every named step of a release, the client's keys repeated, and the books afterwards: each release is
carried to its end with one charge and one set of measurements, or, where its process died with noise in hand, has
failed with its whole share charged. Beside :mod:`tests.kit.crashes`, whose sessions
know no work that goes on when nobody asks.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.harness import free_port
from tests.kit.patience import patience
from tests.kit.servers import Caller, Launcher, Server, launching
from tests.kit.steps import RELEASING
from tests.kit.world import SHAPE

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ASKED = {"dataset": "d", "method": "gaussian", "workload": {"marginals": 1}, "epsilon": 0.05}
#: Where noise may have been drawn and nothing is recorded.
LOST = ("releasing: before the noise", "releasing: after the noise", "releasing: before the record")
#: Where a release is finished while another one may be measured, whose noise is lost if the server dies just then.
FINISHING = RELEASING[5:]
#: Where the database is asked: the others are looked at over one of the two.
RECORDING = tuple(step for step in RELEASING if step.endswith(("commit", "reply", "record", "end")))
#: Seconds after which another process takes a dead one's release.
SILENCE = 2.0


@contextmanager
def prepared(folder: Path, url: str | None) -> Iterator[tuple[Launcher, int]]:
    with launching(folder / "data", url) as launcher:
        port = free_port()
        if url is not None:
            launcher.start(migrate=True).wait_until_ended()
        server = launcher.start(port, silence=SILENCE).wait_until_ready()
        budget = {"epsilon": 5.0, "delta": 1e-6}
        assert Caller(server.url).register("d", np.full(SHAPE, 100), budget=budget).status_code == 201
        server.kill()
        yield launcher, port


def ask(server: Server, key: str) -> dict[str, Any] | None:
    """A release under a key; None where no reply came."""
    try:
        reply = Caller(server.url).post("/v1/releases", ASKED, key)
    except httpx.TransportError:
        return None
    assert reply.status_code == 202, reply.text
    told: dict[str, Any] = reply.json()
    return told


def ended(caller: Caller, number: int) -> list[dict[str, Any]]:
    """All releases, when they have ended."""
    deadline = time.monotonic() + patience(60)
    while True:
        found: list[dict[str, Any]] = caller.pages("/v1/releases")["items"]
        if len(found) == number and all(each["status"] in ("done", "failed", "cancelled") for each in found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def complaints(caller: Caller, number: int, lost: int = 0, more: int = 0) -> list[str]:
    """What is wrong with so many releases, none of which was cancelled, as many of which lost their noise, and of which
    some more may have."""
    found, wrong = ended(caller, number), []
    ledger = caller.pages("/v1/datasets/d/ledger", "entries")["entries"]
    done = [each for each in found if each["status"] == "done"]
    if not lost <= len(found) - len(done) <= lost + more:
        wrong.append(f"{len(done)} of {len(found)} releases are done")
    for each in found:
        if each["status"] != "done":
            if "what was drawn is lost" not in each["problem"]["detail"]:
                wrong.append(f"a release is {each['status']}: {each['problem']}")
            if each["cost"]["spent"] != each["plan"]["reserved"]:
                wrong.append("a release that lost its noise is not charged its share")
        kinds = [entry["kind"] for entry in ledger if entry["session"] == each["id"]]
        if kinds != ["reserve", "charge", "return"]:
            wrong.append(f"a release has moved {kinds}")
        if caller.http.get(f"/v1/releases/{each['id']}/data").status_code != (200 if each in done else 409):
            wrong.append("a release has no data, or has what it cannot have")
    measurements = caller.pages("/v1/datasets/d/measurements")["items"]
    if len(measurements) != 2 * len(done):
        wrong.append(f"{len(measurements)} measurements of {len(done)} releases")
    try:
        caller.audit()
    except AssertionError as error:
        wrong.append(f"the books: {error}")
    return wrong


def test_it_is_carried_through_whatever_dies(tmp_path: Path, database: str | None) -> None:
    """One server after the other dies at one of the steps, with a release of its own in hand and whatever the one
    before left. Catches a charge without its record, a second charge or set of measurements, a key that opens a
    second one, and a release that stays behind.
    """
    replies: dict[str, dict[str, Any]] = {}
    steps = RELEASING if database is None else RECORDING
    with prepared(tmp_path, database) as (launcher, port):
        for number, step in enumerate(steps):
            server = launcher.start(port, traps=[[step, 1, "die"]], silence=SILENCE)
            server.wait_until_ready(doomed=True)
            for key in [f"k{earlier}" for earlier in range(number + 1)]:
                told = ask(server, key)
                if told is not None:
                    assert replies.setdefault(key, told) == told
            assert server.wait_until_ended(30), step
            server.kill()
        server = launcher.start(port, silence=SILENCE).wait_until_ready()
        for number in range(len(steps)):
            told = ask(server, f"k{number}")
            assert told is not None
            assert replies.setdefault(f"k{number}", told) == told
        assert len({told["id"] for told in replies.values()}) == len(steps)
        lost, finishing = (len({*steps}.intersection(some)) for some in (LOST, FINISHING))
        assert complaints(Caller(server.url), len(steps), lost, finishing) == []
        assert "Traceback" not in launcher.logs()


def test_a_worker_that_was_frozen_records_nothing(tmp_path: Path, postgres_url: str) -> None:
    """A process is stopped with its noise in hand, as a suspended machine has it; another one ends the release; then
    the first goes on. Catches a second set of draws, a second charge, and a beat that takes the release back.
    """
    with prepared(tmp_path, postgres_url) as (launcher, port):
        trap = ["releasing: after the noise", 1, "stop"]
        frozen = launcher.start(port, traps=[trap], silence=SILENCE).wait_until_ready()
        assert ask(frozen, "k") is not None
        other = launcher.start(silence=SILENCE).wait_until_ready()
        caller = Caller(other.url)
        assert complaints(caller, 1, 1) == []

        os.kill(frozen.pid, signal.SIGCONT)
        frozen.wait_until_ready()
        time.sleep(3.0)
        assert complaints(caller, 1, 1) == []


@pytest.mark.parametrize(("bug", "complaint"), [("unrecorded", "the books"), ("double charge", "has moved")])
def test_the_checker_sees(tmp_path: Path, bug: str, complaint: str) -> None:
    """A server with a planted bug. Catches a checker that is blind."""
    with prepared(tmp_path, None) as (launcher, port):
        server = launcher.start(port, bug=bug).wait_until_ready()
        assert ask(server, "k") is not None
        assert any(complaint in wrong for wrong in complaints(Caller(server.url), 1))


def test_the_fence_holds_where_a_step_is_forgotten(tmp_path: Path) -> None:
    """A server that, when it comes back, does not see that noise was recorded and draws again: the session is closed,
    and nothing of it is stored. Catches a record that is guarded by the step alone.
    """
    with prepared(tmp_path, None) as (launcher, port):
        doomed = launcher.start(port, traps=[["releasing: after the record", 1, "die"]]).wait_until_ready()
        ask(doomed, "k")
        assert doomed.wait_until_ended(30)
        server = launcher.start(port, bug="drawn again").wait_until_ready()
        caller = Caller(server.url)
        time.sleep(2.0)
        ledger = caller.pages("/v1/datasets/d/ledger", "entries")["entries"]
        assert [entry["kind"] for entry in ledger] == ["reserve", "charge", "return"]
        assert len(caller.pages("/v1/datasets/d/measurements")["items"]) == 2
        server.kill()
        assert complaints(Caller(launcher.start(port).wait_until_ready().url), 1) == []
