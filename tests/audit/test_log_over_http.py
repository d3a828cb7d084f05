"""The log over HTTP: what comes into it, proofs that an independent reading of RFC 6962 accepts, who may read it, and
what is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.services import log as shown
from app.settings import Settings
from curator_client.proofs.merkle import check_consistency, check_inclusion
from curator_client.proofs.notes import Checkpoint, Verifier
from tests.audit.test_log import mth
from tests.kit.patience import patience
from tests.kit.service import JSON, Service, ask, open_session, people, refused, serving, where

pytestmark = pytest.mark.api


@pytest.fixture(scope="module")
def auditor(service: Service) -> httpx.Client:
    return service.principal("auditor")


def checkpoint(caller: httpx.Client) -> Checkpoint:
    """What the log says of itself, verified with the key that it tells."""
    key = caller.get("/v1/log/key").json()["key"]
    reply = caller.get("/v1/log/checkpoint")
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/plain")
    return Verifier.parse(key).checkpoint(reply.content)


def all_lines(caller: httpx.Client, size: int) -> list[bytes]:
    """Everything in the log, page by page."""
    lines: list[bytes] = []
    while len(lines) < size:
        reply = caller.get("/v1/log/entries", params={"start": len(lines), "end": size - 1})
        assert reply.status_code == 200, reply.text
        lines += reply.content.split(b"\n")[:-1]
    return lines


def settled(caller: httpx.Client, *needed: bytes) -> list[bytes]:
    """All lines, when these are among them; they come within a second of their commit."""
    deadline = time.monotonic() + patience(10)
    while True:
        lines = all_lines(caller, checkpoint(caller).size)
        if set(needed) <= set(lines):
            return lines
        assert time.monotonic() < deadline, set(needed) - set(lines)
        time.sleep(0.05)


def transcript(caller: httpx.Client, id: str) -> list[bytes]:
    return caller.get(f"/v1/sessions/{id}/transcript").content.splitlines()


@pytest.fixture(scope="module")
def told(service: Service, auditor: httpx.Client) -> tuple[str, list[str], list[bytes]]:
    """A data set with a session of a hypothesis and one on evidence, both asked and closed; what an auditor is shown of
    them; and all that is in the log then.
    """
    name, analyst = people(service), service.principal("analyst", "log-analyst")
    ids, lines = [], []
    for mechanism, left in (({"construction": "mw"}, 10), ({"construction": "evidence"}, None)):
        id = open_session(analyst, name, mechanism=mechanism, epsilon=0.2, max_updates=left)["id"]
        for conditions in ({"age": {"between": [0, 40]}}, {"sex": {"equals": "female"}}, {"sex": {"equals": "female"}}):
            ask(analyst, id, where(**conditions))
        assert analyst.post(f"/v1/sessions/{id}/close").status_code == 200
        ids.append(id)
        lines += transcript(auditor, id)[:-1]
    found, moved = settled(auditor, *lines), auditor.get(f"/v1/datasets/{name}/ledger").json()["entries"]
    deadline = time.monotonic() + patience(10)
    while len(records(found, "movement", name)) < len(moved):  # what the last closing gave back comes behind its lines
        assert time.monotonic() < deadline
        time.sleep(0.05)
        found = settled(auditor, *lines)
    return name, ids, found


def records(lines: list[bytes], kind: str, dataset: str | None = None) -> list[JSON]:
    found = [record for record in map(json.loads, lines) if record["record"] == kind]
    return [record for record in found if dataset is None or dataset in (record.get("dataset"), record.get("name"))]


def test_everything_public_is_in_it_once(
    service: Service, auditor: httpx.Client, told: tuple[str, list[str], list[bytes]]
) -> None:
    """Catches a header, an entry, a measurement, a movement, a data set or a principal that is left out or there twice,
    an entry before its header, and lines that are not those of the transcript.
    """
    name, ids, lines = told
    assert len(set(lines)) == len(lines)
    for id in ids:
        shown = transcript(auditor, id)[:-1]
        kinds = {json.loads(line)["record"] for line in shown}
        assert kinds == {"header", "answer"} | ({"measurement"} if id == ids[1] else set())
        places = [lines.index(line) for line in shown]
        assert places[0] == min(places)
        entries = [place for place, line in zip(places, shown, strict=True) if b'"entry_hash"' in line]
        assert entries == sorted(entries)
    ledger = auditor.get(f"/v1/datasets/{name}/ledger").json()["entries"]
    movements = records(lines, "movement", name)
    assert [(each["kind"], each["amount"], each["session"]) for each in movements] == [
        (each["kind"], each["amount"], each["session"]) for each in ledger
    ]
    assert [each["event"] for each in records(lines, "dataset", name)] == ["registered"]
    assert [each["event"] for each in records(lines, "principal", "log-analyst")] == ["created"]
    assert [each["event"] for each in records(lines, "principal", "admin")] == ["created"]


def test_what_becomes_of_principals_and_data_sets(service: Service, auditor: httpx.Client) -> None:
    """Catches a change of keys, a revocation or a retirement that leaves no trace, and one that never happened."""
    name = people(service, records_public=False)
    service.principal("analyst", "log-other")
    key = service.admin.post("/v1/principals/log-other/key").json()["api_key"]
    assert service.admin.delete("/v1/principals/log-other").status_code == 204
    refused(service.admin.delete("/v1/principals/log-other"), "not-found")
    assert service.admin.delete(f"/v1/datasets/{name}").status_code == 200
    refused(service.admin.delete(f"/v1/datasets/{name}"), "not-found")
    deadline = time.monotonic() + patience(10)
    while True:
        lines = settled(auditor)
        found = records(lines, "dataset", name)
        if [each["event"] for each in found] == ["registered", "retired"]:
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    assert "records" not in found[0]
    events = [each["event"] for each in records(lines, "principal", "log-other")]
    assert events == ["created", "key replaced", "revoked"]
    assert key.encode() not in b"".join(lines)


def test_nothing_private_and_no_key_is_in_it(service: Service, told: tuple[str, list[str], list[bytes]]) -> None:
    """Catches keys and their hashes, digests of private files, and counts of the data."""
    text = b"\n".join(told[2]).decode()
    for row in service.rows("principals"):
        assert not [value for value in row[2:4] if value in text]
    for row in service.rows("datasets"):
        assert not [value for value in json.loads(row[5]).values() if value in text]
    seed = (service.settings.keys_dir / "log.key").read_bytes()
    assert seed.hex() not in text
    assert base64.b64encode(seed).decode() not in text
    assert '"9000' not in text


def test_rehearsals_are_left_out(service: Service, auditor: httpx.Client) -> None:
    """Catches sessions on made-up records among the history of data."""
    name, analyst = people(service), service.principal("analyst")
    id = open_session(analyst, name, dummy=True)["id"]
    ask(analyst, id, where(sex={"equals": "male"}))
    real = open_session(analyst, name, epsilon=0.1)["id"]
    lines = settled(auditor, transcript(auditor, real)[0])
    assert not [line for line in lines if id.encode() in line]


def test_checkpoints_and_proofs(auditor: httpx.Client, told: tuple[str, list[str], list[bytes]]) -> None:
    """Every proof of the newest log, and some of its earlier sizes, by the definition of the tree. Catches hashes of
    other leaves than the lines that are served, and subtrees that were not kept or kept wrongly.
    """
    head = checkpoint(auditor)
    lines = all_lines(auditor, head.size)
    assert mth(lines) == head.root
    roots = {size: mth(lines[:size]) for size in {0, 1, 2, 3, 7, 8, head.size // 2, head.size - 1, head.size}}
    for size, root in roots.items():
        for index in {0, size // 2, size - 1} if size else ():
            proof = hashes(auditor, "inclusion", index=index, size=size)
            check_inclusion(hashlib.sha256(b"\0" + lines[index]).digest(), index, size, proof, root)
        proof = hashes(auditor, "consistency", first=size, second=head.size)
        check_consistency(size, head.size, proof, root, head.root)


def hashes(caller: httpx.Client, kind: str, **asked: int) -> list[bytes]:
    reply = caller.get(f"/v1/log/proof/{kind}", params=asked)
    assert reply.status_code == 200, reply.text
    assert reply.json().keys() == {"hashes"}
    return [base64.b64decode(each, validate=True) for each in reply.json()["hashes"]]


def test_pages_of_entries(
    auditor: httpx.Client, told: tuple[str, list[str], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches an end that is not told with its line, and pages without a bound, or without a line."""
    lines = told[2]
    asked = {"start": 2, "end": 4}
    assert auditor.get("/v1/log/entries", params=asked).content == b"".join(line + b"\n" for line in lines[2:5])
    assert auditor.get("/v1/log/entries", params={"start": 3, "end": 3}).content == lines[3] + b"\n"
    monkeypatch.setattr(shown, "MOST_LINES", 2)
    assert auditor.get("/v1/log/entries", params=asked).content.splitlines() == lines[2:4]
    monkeypatch.setattr(shown, "MOST_BYTES", 1)
    assert auditor.get("/v1/log/entries", params=asked).content.splitlines() == lines[2:3]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("entries", {}),
        ("entries", {"start": "1"}),
        ("entries", {"start": "2", "end": "1"}),
        ("entries", {"start": "0", "end": "999999999999999999"}),
        ("entries", {"start": "-1", "end": "1"}),
        ("entries", {"start": "0", "end": "1e2"}),
        ("entries", {"start": "0", "end": "9" * 40}),
        ("entries", {"start": "٣", "end": "٤"}),
        ("entries", {"start": ["0", "0"], "end": "1"}),
        ("proof/inclusion", {"index": "1", "size": "1"}),
        ("proof/inclusion", {"index": "0", "size": "0"}),
        ("proof/inclusion", {"index": "0", "size": "999999999"}),
        ("proof/inclusion", {"index": "", "size": "1"}),
        ("proof/consistency", {"first": "2", "second": "1"}),
        ("proof/consistency", {"first": "1", "second": "999999999"}),
        ("proof/consistency", {"second": "1"}),
    ],
)
def test_bad_input(auditor: httpx.Client, told: Any, path: str, asked: Any) -> None:
    refused(auditor.get(f"/v1/log/{path}", params=asked), "invalid-request")


def test_who_may_read_it(service: Service, told: Any) -> None:
    """Catches a route that anybody may read, and an analyst who sees the sessions of others."""
    callers = {role: service.principal(role) for role in ("admin", "auditor", "analyst")}
    for path in ("key", "checkpoint"):
        refused(service.caller(None).get(f"/v1/log/{path}"), "unauthenticated")
        assert all(caller.get(f"/v1/log/{path}").status_code == 200 for caller in callers.values())
    for path in ("entries?start=0&end=0", "proof/inclusion?index=0&size=1", "proof/consistency?first=0&second=1"):
        refused(service.caller(None).get(f"/v1/log/{path}"), "unauthenticated")
        assert callers["admin"].get(f"/v1/log/{path}").status_code == 200
        assert callers["auditor"].get(f"/v1/log/{path}").status_code == 200
        refused(callers["analyst"].get(f"/v1/log/{path}"), "forbidden")


def test_the_key(service: Service, auditor: httpx.Client, tmp_path: Path) -> None:
    """Catches a key that others on the machine may read, another one after a restart, and settings without effect."""
    file = service.settings.keys_dir / "log.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    told = auditor.get("/v1/log/key").json()
    assert told["origin"] == f"curator/{hashlib.sha256(base64.b64decode(told['public_key'])).hexdigest()[:16]}"
    key = base64.b64encode(bytes(range(32))).decode()
    seen = []
    for _ in range(2):
        with serving(tmp_path, log_key=key, log_origin="example.org/curator") as other:
            assert not (other.settings.keys_dir / "log.key").exists()
            assert key not in repr(other.settings)
            seen.append(other.admin.get("/v1/log/key").json())
            assert checkpoint(other.admin).origin == "example.org/curator"
    assert seen[0] == seen[1]
    with pytest.raises(ValueError, match="printable"):
        Settings(log_origin="two words")
    with pytest.raises(ValueError, match="32 bytes") as refusal:
        Settings(log_key="c2VjcmV0")
    assert "c2VjcmV0" not in str(refusal.value)


def test_a_log_is_what_it_was_after_a_restart(tmp_path: Path) -> None:
    """Catches a start that adds everything once more, or goes on from another tree; and a stop that loses what was
    committed last.
    """
    with serving(tmp_path) as first:
        name = people(first)
        id = open_session(first.admin, name)["id"]
    with serving(tmp_path) as second:
        before = checkpoint(second.admin)
        lines = all_lines(second.admin, before.size)
        assert len(records(lines, "header")) == 1
        ask(second.admin, id, where(sex={"equals": "male"}))
        later = settled(second.admin, transcript(second.admin, id)[1])
        assert later[: before.size] == lines
        after = checkpoint(second.admin)
        proof = hashes(second.admin, "consistency", first=before.size, second=after.size)
        check_consistency(before.size, after.size, proof, before.root, after.root)
        assert len(set(later)) == len(later)
