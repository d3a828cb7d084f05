"""The size of the log that has a session: in the reply to its closing, in its state and in its trailer."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from app.http.routes import sessions
from app.services.sequencer import Sequencer
from curator_client import Curator, NotVerified, question
from tests.audit.test_log_client import soon
from tests.audit.test_log_over_http import all_lines, checkpoint, transcript
from tests.kit.patience import patience
from tests.kit.service import JSON, Service, ask, open_session, people, serving, where

pytestmark = pytest.mark.api


def state(caller: httpx.Client, id: str) -> JSON:
    return dict(caller.get(f"/v1/sessions/{id}").json())


def size_of(caller: httpx.Client, id: str) -> int:
    """What a session's state names once the log has come so far."""
    deadline = time.monotonic() + patience(10)
    while (size := state(caller, id)["log_size"]) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(size)


@pytest.mark.parametrize("construction", ["mw", "evidence"])
def test_it_is_the_smallest_log_that_has_the_session(service: Service, construction: str) -> None:
    """Against the lines that are served. Catches a size that leaves out the last entry or a measurement, one of other
    sessions' entries, and one that moves while the session does not.
    """
    admin, auditor = service.admin, service.principal("auditor")
    words: JSON = {"mechanism": {"construction": construction}, "epsilon": 0.2}
    if construction == "evidence":
        words["max_updates"] = None
    name = people(service)
    id, other = (open_session(admin, name, **words)["id"] for _ in range(2))
    for number in range(4):
        size = size_of(admin, id)
        lines = all_lines(auditor, checkpoint(auditor).size)
        shown = transcript(auditor, id)
        held = [place for place, line in enumerate(lines) if line in shown]
        assert len(held) == len(shown) - 1
        assert size == held[-1] + 1
        assert json.loads(shown[-1])["log_size"] == size
        ask(admin, other, where(sex={"equals": "male"}))
        size_of(admin, other)
        assert state(admin, id)["log_size"] == size
        ask(admin, id, where(age={"between": [0, 20 * (number + 1)]}))
    size = size_of(admin, id)
    closed = admin.post(f"/v1/sessions/{id}/close").json()
    assert closed["log_size"] == size == state(admin, id)["log_size"]
    assert json.loads(transcript(auditor, id)[-1])["log_size"] == size


def test_a_closing_waits_for_the_log_and_repeats_its_bytes(service: Service) -> None:
    """Closings right behind answers, under a key, over HTTP and by the client. Catches a reply that does not wait, and
    a repeat with other bytes.
    """
    admin, name = service.admin, people(service)
    for number in range(5):
        id = open_session(admin, name, epsilon=0.1)["id"]
        ask(admin, id, where(sex={"equals": "male"}))
        headers = {"Idempotency-Key": f"closing-{name}-{number}"}
        replies = [admin.post(f"/v1/sessions/{id}/close", headers=headers) for _ in range(3)]
        assert isinstance(replies[0].json()["log_size"], int), replies[0].json()
        assert {reply.content for reply in replies} == {replies[0].content}
        assert checkpoint(admin).size >= replies[0].json()["log_size"]
    with Curator(service.url, service.admin_key) as curator:
        session = curator.resume(open_session(admin, name, epsilon=0.1)["id"])
        session.ask(question(where(sex={"equals": "male"})))
        closed = [session.close(key=f"client-{name}") for _ in range(2)]
    assert closed[0] == closed[1]
    assert closed[0].log_size is not None


def test_a_log_that_does_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes into the log for a while. Catches a closing that fails, one that waits on, and one that keeps
    others waiting; and a size that never comes afterwards.
    """
    step = Sequencer.step
    with serving(tmp_path) as service:
        name = people(service)
        id, other = (open_session(service.admin, name, epsilon=0.1)["id"] for _ in range(2))
        ask(service.admin, id, where(sex={"equals": "male"}))
        monkeypatch.setattr(Sequencer, "step", lambda self: False)
        monkeypatch.setattr(sessions, "LOG_SECONDS", 1.0)
        time.sleep(0.1)
        ask(service.admin, id, where(sex={"equals": "female"}))
        headers = {"Idempotency-Key": "k"}
        began = time.monotonic()
        with ThreadPoolExecutor() as pool:
            closing = pool.submit(service.caller(service.admin_key).post, f"/v1/sessions/{id}/close", headers=headers)
            time.sleep(0.2)
            ask(service.admin, other, where(sex={"equals": "male"}))
            assert not closing.done()
            closed = closing.result(30)
        assert 1 <= time.monotonic() - began < patience(10)
        assert (closed.status_code, closed.json()["status"], closed.json()["log_size"]) == (200, "closed", None)
        assert json.loads(transcript(service.admin, id)[-1])["log_size"] is None
        monkeypatch.setattr(Sequencer, "step", step)
        size = size_of(service.admin, id)
        again = service.admin.post(f"/v1/sessions/{id}/close", headers=headers).json()
        assert again == closed.json() | {"log_size": size}


def test_rehearsals_have_none(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a closing that waits for what never comes."""
    monkeypatch.setattr(sessions, "LOG_SECONDS", 20)
    analyst = service.principal("analyst")
    id = open_session(analyst, people(service), dummy=True)["id"]
    ask(analyst, id, where(sex={"equals": "male"}))
    assert json.loads(transcript(analyst, id)[-1])["log_size"] is None
    began = time.monotonic()
    assert analyst.post(f"/v1/sessions/{id}/close").json()["log_size"] is None
    assert time.monotonic() - began < patience(10)


def test_an_entry_is_under_a_signed_checkpoint_within_a_second(service: Service) -> None:
    """Of sessions that are just opened, and of those that are there; most of several, as the machine may be busy with
    something else. Catches a log that is looked after too seldom, or a header that its entries wait for.
    """
    name, took = people(service), []
    id = open_session(service.admin, name, epsilon=0.1)["id"]
    for number in range(7):
        if number == 3:
            id = open_session(service.admin, name, epsilon=0.1)["id"]
        ask(service.admin, id, where(age={"between": [0, 20 + 20 * (number % 4)]}))
        began = time.monotonic()
        line = transcript(service.admin, id)[-2]
        soon(lambda line=line: _there(service.admin, line))
        took.append(time.monotonic() - began)
        time.sleep(0.07 * number)
    assert sorted(took)[len(took) // 2] < patience(1), took


def _there(caller: httpx.Client, line: bytes) -> None:
    """Raises unless a line is among the last ones under the checkpoint."""
    size = checkpoint(caller).size
    page = caller.get("/v1/log/entries", params={"start": max(0, size - 20), "end": size - 1}).content
    if line not in page.split(b"\n"):
        raise NotVerified("not yet")
