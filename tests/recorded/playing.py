"""Every mechanism on every kind of data, played over HTTP, with noise, clock and names of this module's own."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from app.audit.replay import replay
from app.bootstrap import wiring
from app.services import dummy_datasets, registration, session_opening
from app.services.release_tasks import carried_out
from app.storage import readers
from tests.kit.noise import Seeded
from tests.kit.world import ADMIN_KEY, ENTRIES, eventually, make_world, served
from tests.recorded import scenes

#: All that happens is at this time.
NOW = "2026-01-01T00:00:00Z"


class _Names:
    """Names and keys in the place of random ones: each is new, and the same in every play."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def token_bytes(self, size: int) -> bytes:
        return hashlib.sha256(b"%d" % next(self._numbers)).digest()[:size]

    def token_hex(self, size: int) -> str:
        return self.token_bytes(size).hex()


def _no() -> None:
    """Nothing is ended before its end."""


@contextmanager
def _told() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "utc_now", lambda: NOW)
        patch.setattr(session_opening, "secrets", _Names())
        names = _Names()
        patch.setattr(registration, "secrets", names)
        patch.setattr(dummy_datasets, "secrets", names)
        patch.setattr(wiring, "ProcessFinisher", lambda *_: SimpleNamespace(finish=carried_out, cancel=_no, stop=_no))
        patch.setattr(wiring.SqlLog, "covering", lambda *_: 10**6)  # it tells how far the log is
        yield


class Play:
    """A service and what it has said so far."""

    def __init__(self, client: httpx.Client) -> None:
        self.client, self.files = client, dict[str, bytes]()
        self._said: list[bytes] = []
        self.sessions: list[str] = []

    def scene(self, name: str) -> None:
        """What was said since the last one is a file."""
        self.files[f"{name}.ndjson"], self._said = b"\n".join(self._said), []

    def call(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """A request and its reply, whatever its status; the reply as JSON."""
        reply = self.client.request(method, path, json=body, **how)
        text = "json" in reply.headers["content-type"]
        content = reply.content if text else hashlib.sha256(reply.content).hexdigest().encode()
        self._said.append(json.dumps([method, path, body, reply.status_code]).encode() + b"\n" + content)
        assert reply.status_code < 500, (method, path, body, reply.text)
        return reply.json() if text else None

    def register(self, spec: dict[str, Any], filename: str, content: bytes) -> None:
        files = {"spec": (None, json.dumps(spec)), "data": (filename, content)}
        told = self.client.post("/v1/datasets", files=files)
        assert told.status_code == 201, told.text
        self._said.append(told.content)

    def session(self, asked: dict[str, Any], queries: list[dict[str, Any]]) -> None:
        """A session's plan, its answers one by one and again all at once, its state, and its end."""
        self.call("POST", "/v1/plans", asked)
        opened = self.call("POST", "/v1/sessions", asked)
        if "id" not in opened:
            return
        path = f"/v1/sessions/{opened['id']}"
        self.sessions.append(opened["id"])
        for query in queries:
            self.call("POST", f"{path}/queries", query)
        self.call("POST", f"{path}/queries/batch", {"queries": queries})
        self.call("GET", path)
        self.call("GET", f"{path}/hypothesis")
        self.call("POST", f"{path}/close")

    def release(self, asked: dict[str, Any]) -> None:
        """A release, and digests of its files."""
        made = self.client.post("/v1/releases", json=asked)
        self._said.append(json.dumps([asked, made.status_code]).encode() + b"\n" + made.content)
        if made.status_code >= 400:
            assert made.status_code < 500, made.text
            return
        path = f"/v1/releases/{made.json()['id']}"

        def done() -> dict[str, Any] | None:
            told: dict[str, Any] = self.client.get(path).json()
            return told if told["status"] not in ("queued", "running") else None

        told = eventually(done)
        self.sessions.append(told["id"])
        self._said.append(json.dumps(told).encode())
        for name in told["links"].values():
            if name.startswith(path + "/"):
                self._said.append(hashlib.sha256(self.client.get(name).content).hexdigest().encode())

    def books(self) -> None:
        """Transcripts, which replay; ledgers, measurements and the log."""
        for id in self.sessions:
            lines = self.client.get(f"/v1/sessions/{id}/transcript").content
            verdict = replay(lines.splitlines())
            assert verdict.ok, (verdict.problem, verdict.sequence)
            self.files[f"transcript-{self.sessions.index(id):03}-{id}.ndjson"] = lines
        for each in self.client.get("/v1/datasets").json()["items"]:
            name = each["name"]
            self.call("GET", f"/v1/datasets/{name}")
            self.call("GET", f"/v1/datasets/{name}/ledger")
            for measured in self.call("GET", f"/v1/datasets/{name}/measurements")["items"]:
                self.call("GET", f"/v1/datasets/{name}/measurements/{measured['id']}")
        self.scene("books")


def play(folder: Path) -> dict[str, bytes]:
    """All scenes on a service of their own; what it said, by the names of files."""
    with _told():
        world = make_world(folder, noise=Seeded(np.random.default_rng(2026)), readers=readers)
        try:
            headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
            with served(world) as port:
                base = f"http://127.0.0.1:{port}"
                with httpx.Client(base_url=base, headers=headers, timeout=120) as client:
                    playing = Play(client)
                    for scene in scenes.ALL:
                        scene(playing)
                        playing.scene(scene.__name__)
                    playing.books()
        finally:
            world.stop()
        # The log comes behind the commits, and is whole when the service has stopped; its order is one of chance.
        log, size, entries = world.built.services.log, world.built.services.log._store.state().size, list[bytes]()
        while len(entries) < size:
            entries += log.entries(len(entries), size - 1).splitlines()
        playing.files["log.ndjson"] = b"\n".join(sorted(entries))
    assert all(any(b'"%b"' % kind.encode() in text for text in playing.files.values()) for kind in ENTRIES[::2])
    return playing.files
