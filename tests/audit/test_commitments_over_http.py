"""Commitments to private files over HTTP: what is public of them, who is given their keys, and what checks a file."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import MutableMapping
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest

from curator_client import Curator, NotVerified
from curator_client.errors import Contradicted
from curator_client.log_folder import LogFolder
from curator_client.proofs.commitment import FileDigest, opens
from tests.audit.test_log_client import caller, soon
from tests.audit.test_log_over_http import all_lines, checkpoint
from tests.kit.fetched import fetch
from tests.kit.servers import environment, run
from tests.kit.service import COUNTS, JSON, Service, npy, people, refused, unique

pytestmark = pytest.mark.api

FILE = npy(COUNTS)


def reveal(client: httpx.Client, name: str) -> JSON:
    reply = client.post(f"/v1/datasets/{name}/commitment")
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def lines_of(service: Service, name: str, event: str, count: int = 1) -> list[JSON]:
    """The lines of a data set's events in the log, once there are so many."""

    def look() -> list[JSON]:
        lines = all_lines(service.admin, checkpoint(service.admin).size)
        found = [record for record in map(json.loads, lines) if record.get("name") == name]
        found = [record for record in found if record.get("event") == event]
        if len(found) < count:
            raise NotVerified("not yet")
        return found

    return soon(look)


def test_the_file_is_committed_to_and_its_key_opens_it(service: Service) -> None:
    """Catches a commitment to something else than the bytes that were sent, two in the log and in the descriptor, one
    that is the same for two data sets of one file, and a revelation that is not recorded, or tells the key.
    """
    name, other = people(service), people(service)
    public = service.admin.get(f"/v1/datasets/{name}").json()["commitment"]
    (line,) = lines_of(service, name, "registered")
    assert line["commitment"] == public
    found = reveal(service.admin, name)
    assert found == {"dataset": name, "algorithm": "HMAC-SHA-256", "commitment": public, "key": found["key"]}
    assert opens(public, bytes.fromhex(found["key"]), FileDigest.of(BytesIO(FILE)))
    assert not opens(public, bytes.fromhex(found["key"]), FileDigest.of(BytesIO(FILE + b"\0")))
    second = reveal(service.admin, other)
    assert second["key"] != found["key"]
    assert second["commitment"] != public
    (line,) = lines_of(service, name, "commitment revealed")
    assert line == {
        "record": "dataset",
        "event": "commitment revealed",
        "name": name,
        "by": "admin",
        "recorded_at": line["recorded_at"],
    }


def test_who_asks_again_is_recorded_once(service: Service) -> None:
    """Each admin once. Catches a second line for a repeat, a second admin of whom nothing is said, and another key."""
    name, second = people(service), service.principal("admin", unique("second"))
    found = reveal(service.admin, name)
    assert reveal(service.admin, name) == found
    for _ in range(2):
        assert reveal(second, name) == found
    last = people(service)
    reveal(service.admin, last)
    lines_of(service, last, "commitment revealed")  # all before it are there by now
    assert len({line["by"] for line in lines_of(service, name, "commitment revealed", 2)}) == 2
    assert len(lines_of(service, name, "commitment revealed", 2)) == 2


@pytest.mark.parametrize("role", ["analyst", "auditor"])
def test_nobody_else_is_given_the_key(service: Service, role: str) -> None:
    """Not the owner of a session either; nor does a refusal leave a line."""
    name = people(service)
    refused(service.principal(role).post(f"/v1/datasets/{name}/commitment"), "forbidden")
    refused(service.caller(None).post(f"/v1/datasets/{name}/commitment"), "unauthenticated")
    refused(service.admin.post(f"/v1/datasets/{unique('none')}/commitment"), "not-found")
    refused(service.admin.post("/v1/datasets/%7Emade-up/commitment"), "not-found")
    refused(service.admin.post(f"/v1/datasets/{name}/commitment", json={"to": "ann"}), "invalid-request")
    reveal(service.admin, name)
    assert len(lines_of(service, name, "commitment revealed")) == 1


def test_retirement_destroys_the_key(service: Service) -> None:
    """Catches a key that outlives its file; the commitment itself stays public."""
    name = people(service)
    public = reveal(service.admin, name)["commitment"]
    assert service.admin.delete(f"/v1/datasets/{name}").json()["commitment"] == public
    told = refused(service.admin.post(f"/v1/datasets/{name}/commitment"), "conflict")
    assert "destroyed" in told["detail"]
    assert service.admin.get(f"/v1/datasets/{name}").json()["commitment"] == public
    assert list(service.settings.vault_dir.glob(f"{name}.*")) == []


def test_a_data_set_of_before_has_none(service: Service) -> None:
    """Catches a row of an older service that is refused, or a commitment that is made up for it."""
    name = people(service)
    with contextlib.closing(sqlite3.connect(service.settings.data_dir / "curator.sqlite3")) as database:
        database.execute("UPDATE datasets SET commitment = NULL WHERE name = ?", (name,))
        database.commit()
    assert service.admin.get(f"/v1/datasets/{name}").json()["commitment"] is None
    told = refused(service.admin.post(f"/v1/datasets/{name}/commitment"), "conflict")
    assert "before" in told["detail"]
    with caller(service) as curator:
        assert curator.dataset(name).commitment is None


def test_a_damaged_file_gives_no_key(service: Service) -> None:
    """Catches a key from a file that is not the one that was registered, and a line for it."""
    name = people(service)
    (path,) = service.settings.vault_dir.glob(f"{name}.*")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused(service.admin.post(f"/v1/datasets/{name}/commitment"), "unavailable")
    path.write_bytes(content)
    reveal(service.admin, name)
    assert len(lines_of(service, name, "commitment revealed")) == 1


def test_the_key_stands_nowhere_else(service: Service, logged: list[MutableMapping[str, Any]]) -> None:
    """Not before it is revealed, nor after. Catches it in a row (a stored reply, a line of the log), a log line, a
    metric, an export or a refusal.
    """
    name = people(service)
    headers = {"Idempotency-Key": unique("key")}
    reply = service.admin.post(f"/v1/datasets/{name}/commitment", headers=headers)
    key = reply.json()["key"]
    for path in ("", "/ledger", "/measurements"):
        assert key not in service.admin.get(f"/v1/datasets/{name}{path}").text
    assert key not in service.admin.get("/metrics").text
    where = f"/v1/datasets/{name}/commitment"
    assert key not in refused(service.admin.post(where, json={key: key}), "invalid-request")["detail"]
    service.admin.delete(f"/v1/datasets/{name}")
    assert key not in refused(service.admin.post(where), "conflict")["detail"]
    stored = service.stored().lower()
    assert key not in stored
    assert key not in json.dumps(logged, default=str)
    for path in service.settings.data_dir.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert key.encode() not in content, path
            assert bytes.fromhex(key) not in content, path


def test_made_up_records_are_not_committed_to(service: Service) -> None:
    """Catches a line about what nobody registered."""
    name, analyst = people(service), service.principal("analyst")
    reply = analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 1.0, "dummy": True})
    assert reply.status_code == 201, reply.text
    with service.built.store.read() as tx:
        (made,) = [row for row in tx.datasets() if row.name.startswith("~")]
    assert made.commitment is None
    last = people(service)
    lines_of(service, last, "registered")  # all before it are there by now
    assert b'"~' not in b"".join(all_lines(service.admin, checkpoint(service.admin).size))


def test_the_client_and_the_commands(service: Service, tmp_path: Path) -> None:
    """An auditor checks a file by the log that he keeps. Catches exit codes other than those documented, a check that
    any file or any key passes, and one by lines that nobody signed.
    """
    name, kept, file = people(service), tmp_path / "kept", tmp_path / "people.npy"
    file.write_bytes(FILE)
    with caller(service) as curator:
        found = curator.reveal_commitment(name)
        assert found.commitment == curator.dataset(name).commitment
        assert found.key not in repr(found)
        folder, key = LogFolder(kept), bytes.fromhex(found.key)
        with pytest.raises(NotVerified, match="fetch the log first"):
            folder.check_file(name, file, key)
        soon(lambda: fetch(folder, curator) and folder.check_file(name, file, key))
    with pytest.raises(NotVerified, match="another"):
        folder.check_file(name, file, bytes(32))
    with pytest.raises(NotVerified, match="not registered"):
        folder.check_file("nobody", file, key)

    def curate(*arguments: str, key: str = service.admin_key) -> tuple[int, str]:
        settings = {"CURATOR_URL": service.url, "CURATOR_API_KEY": key}
        done = run(arguments, environment(tmp_path, None) | settings)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    code, told = curate("dataset", "commitment", name)
    assert (code, told) == (0, f"HMAC-SHA-256 {found.commitment} key {found.key}")
    code, told = curate("dataset", "commitment", name, "--json")
    assert (code, json.loads(told)["key"]) == (0, found.key)
    code, told = curate("audit", "commitment", str(kept), name, str(file), "--key", found.key.upper())
    assert (code, "is the file" in told) == (0, True), told
    file.write_bytes(FILE + b"\n")
    code, told = curate("audit", "commitment", str(kept), name, str(file), "--key", found.key)
    assert (code, "another file" in told) == (1, True), told
    code, told = curate("audit", "commitment", str(kept), name, str(file), "--key", found.key[:-1])
    assert (code, "64 hexadecimal digits" in told) == (2, True), told
    entries = kept / "entries.ndjson"
    forged = entries.read_bytes().replace(found.commitment.encode(), bytes.hex(bytes(32)).encode())
    assert forged != entries.read_bytes()
    entries.write_bytes(forged)
    with pytest.raises(Contradicted):
        folder.check_file(name, file, key)
    code, told = curate("audit", "commitment", str(kept), name, str(file), "--key", found.key)
    assert code == 3, told


def test_a_key_that_may_not(service: Service) -> None:
    """Catches a client that hides the refusal."""
    name = people(service)
    reply = service.admin.post("/v1/principals", json={"name": unique("eve"), "role": "analyst"}).json()
    with Curator(service.url, reply["api_key"]) as curator, pytest.raises(Exception, match="role"):
        curator.reveal_commitment(name)
