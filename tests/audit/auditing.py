"""What tests of audits as a service share: a service with something to check, audits that are asked for and followed,
and what an auditor's own replay says of the same state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.kit.patience import patience
from tests.kit.servers import environment, run
from tests.kit.service import JSON, Gate, Service, ask, open_session, people, where

_MODULE = "app.bootstrap.audit_worker"


def story(service: Service) -> list[str]:
    """Two sessions, and a release that is done; their ids, once all of it is in the log."""
    name = people(service)
    ids = []
    for mechanism, more in (({"construction": "mw"}, {"max_updates": 5}), ({"construction": "evidence"}, {})):
        mine = {"max_updates": None, **more}
        ids.append(str(open_session(service.admin, name, mechanism=mechanism, epsilon=0.1, **mine)["id"]))
        for upper in (20, 40, 20):
            ask(service.admin, ids[-1], where(age={"between": [0, upper]}))
    asked = {"dataset": name, "method": "gaussian", "workload": {"marginals": 1}, "epsilon": 0.1}
    ids.append(service.admin.post("/v1/releases", json=asked).json()["id"])
    until(lambda: service.admin.get(f"/v1/releases/{ids[-1]}").json()["status"] == "done")
    caught_up(service, ids)
    return ids


def caught_up(service: Service, ids: list[str]) -> None:
    """Wait until the log has all of these, and nothing more comes."""

    def sizes() -> list[Any]:
        return [service.built.services.sessions.log_size(id, _last(service, id)) for id in ids]

    until(lambda: None not in sizes())

    def behind() -> bool:
        """Whether something has happened, to principals, data sets or budgets, that the log does not tell yet."""
        # There is no row before the log has its first line.
        _, _, event, movement = next(iter(service.rows("log_state")), (0, 0, 0, 0))
        happened = [max((row[0] for row in service.rows(table)), default=0) for table in ("events", "ledger")]
        return bool(event < happened[0] or movement < happened[1])

    until(lambda: not behind())


def _last(service: Service, id: str) -> int:
    rows = [row for row in service.rows("entries") if row[0] == id]
    return max((row[1] for row in rows), default=0)


def until(holds: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What ``holds`` gives once that is true."""
    deadline = time.monotonic() + patience(seconds)
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)
    return found


def started(caller: httpx.Client, key: str | None = None, **asked: Any) -> str:
    """The id of a new audit."""
    headers = {} if key is None else {"Idempotency-Key": key}
    reply = caller.post("/v1/audits", json=asked or {"all": True}, headers=headers)
    assert reply.status_code == 202, reply.text
    return str(reply.json()["id"])


def followed(caller: httpx.Client, id: str) -> list[JSON]:
    """The states of an audit up to its end, as its events tell them."""
    reply = caller.get(f"/v1/audits/{id}/events")
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    blocks = [dict(line.split(": ", 1) for line in block.split("\n")) for block in reply.text.strip().split("\n\n")]
    named = [block for block in blocks if "event" in block]
    assert [block["event"] for block in named] == ["progress"] * (len(named) - 1) + ["end"]
    return [json.loads(block["data"]) for block in named]


def audited(caller: httpx.Client, **asked: Any) -> JSON:
    """An audit at its end."""
    return followed(caller, started(caller, **asked))[-1]


def command(service: Service, key: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """What a command of an audit prints, with an auditor's key; it is run in a process of its own."""
    keys = {"CURATOR_URL": service.url, "CURATOR_API_KEY": key}
    ended = run(["audit", *arguments], environment(folder, None) | keys)
    return ended.returncode, ended.stdout, ended.stderr


def own_replay(service: Service, key: str, folder: Path) -> JSON | str:
    """What `curator audit fetch` and `curator audit replay` say of the same state: a verdict, or why the log cannot be
    what was signed.
    """
    code, _, errors = command(service, key, folder, "fetch", str(folder / "log"))
    if code == 3:
        return " ".join(errors.split()).partition("the log cannot be what it was: ")[2]
    assert code == 0, errors
    code, printed, errors = command(service, key, folder, "replay", str(folder / "log"), "--json")
    assert code in (0, 1), errors
    verdict: JSON = json.loads(printed)
    assert verdict["ok"] == (code == 0)
    return verdict


def check_same(audit: JSON, own: JSON | str) -> None:
    """An audit says what an auditor's own replay does: verdict, finding, books and sessions."""
    assert audit["status"] == "done", audit
    result = audit["result"]
    if isinstance(own, str):
        assert (result["verdict"], result["contradicted"]) == ("does not hold", True)
        assert result["finding"]["problem"] == own
        return
    assert result["verdict"] == ("holds" if own["ok"] else "does not hold")
    assert not result["contradicted"]
    assert (result["log"]["size"], result["log"]["origin"]) == (own["log"]["size"], own["log"]["origin"])
    if own["ok"]:
        assert result["finding"] is None
        for name in ("datasets", "sessions"):
            for told, expected in zip(result[name], own[name], strict=True):
                assert told == expected
        assert result["replayed"] == len(own["sessions"])
    else:
        assert result["finding"] == {"problem": own["problem"], "where": own["where"]}


@contextmanager
def held(service: Service) -> Iterator[Gate]:
    """Audits wait for their first transcript as long as this lasts."""
    gate, transcripts = Gate(), service.built.services.transcripts
    recorded = transcripts.recorded

    def waiting(id: str) -> Iterator[bytes] | None:
        gate(0.0)
        return recorded(id)

    with pytest.MonkeyPatch.context() as patch, gate.shut():
        patch.setattr(transcripts, "recorded", waiting)
        yield gate


def name_of(nursery: psutil.Process) -> str:
    """The module that a nursery runs, from scratch or forked by `launcher.py`; of another process something else."""
    command = nursery.cmdline()
    return command[2].rpartition(".")[2] if command[1:2] == ["-m"] else nursery.name()


def workers(of: int) -> list[psutil.Process]:
    """The processes that check logs for a process."""
    try:
        nurseries = [each for each in psutil.Process(of).children() if _MODULE.endswith(f".{name_of(each)}")]
        return [worker for nursery in nurseries for worker in nursery.children()]
    except psutil.NoSuchProcess:
        return []
