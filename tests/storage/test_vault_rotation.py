"""Another vault key for the private files of a service that stands still, killed at every step on the way."""

from __future__ import annotations

import base64
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from sqlalchemy import select

from app.bootstrap import maintenance, preconditions
from app.bootstrap.preconditions import StartRefused
from app.declarations.errors import CuratorError
from app.storage import tables
from app.storage.connections import SealedConnections
from app.storage.database import make_engines
from app.storage.store import SqlStore
from app.storage.vault import Vault, VaultEntry, VaultError
from tests.kit.killing import Killing
from tests.kit.servers import environment, launching, run
from tests.kit.world import ADMIN, SHAPE, World, make_world, query

pytestmark = pytest.mark.integration

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
NAMES = ("d", "e")
#: A connection, which is there where the vault has a key.
URL, HOST = "postgresql://u:p@127.0.0.1/d", "127.0.0.1"


def base64_of(key: bytes) -> str:
    return base64.b64encode(key).decode()


def counts_of(name: str) -> Any:
    return np.full(SHAPE, 100 + NAMES.index(name))


def prepared(folder: Path, url: str | None, key: bytes | None) -> World:
    world = make_world(folder, url, **({} if key is None else {"vault_key": base64_of(key)}))
    for name in NAMES:
        world.register(name, counts_of(name))
    world.register("gone")
    world.built.services.retirement.retire(ADMIN, "gone")
    if key is not None:
        SealedConnections(Vault(folder / "vault", key), world.store, [HOST]).add("warehouse", URL, "admin", "now")
    world.stop()
    return world


def connection_opens(folder: Path, url: str | None, *keys: bytes | None) -> list[bytes | None]:
    """The keys that open the connection; what it then says is what was sealed."""
    reading, writing = make_engines(url or f"sqlite:///{folder / 'curator.sqlite3'}")
    store, found = SqlStore(reading, writing, exclusive=url is None), []
    for key in keys:
        try:
            assert SealedConnections(Vault(folder / "vault", key), store, [HOST]).open("warehouse") == URL
        except (CuratorError, VaultError):
            continue
        found.append(key)
    store.close()
    return found


def entries(url: str) -> dict[str, VaultEntry]:
    reading, _ = make_engines(url)
    c = tables.datasets.c
    with reading.connect() as connection:
        rows = connection.execute(select(c.name, c.vault_entry).where(c.retired_at.is_(None))).all()
    reading.dispose()
    found = {name: orjson.loads(entry) for name, entry in rows}
    return {name: VaultEntry(entry["file_name"], entry["digest"]) for name, entry in found.items()}


def keys_that_open(folder: Path, url: str, *keys: bytes | None) -> dict[str, bytes | None]:
    """For each data set the key that opens the file its row names, with what was registered inside."""
    found = {}
    for name, entry in entries(url).items():
        for key in keys:
            try:
                data = Vault(folder / "vault", key, keys_folder=folder / "keys").open(entry)
            except VaultError:
                continue
            (array,) = data.arrays().values()
            assert array.sum() == counts_of(name).sum()
            found[name] = key
    return found


def rotate(folder: Path, url: str | None, old: bytes | None) -> subprocess.CompletedProcess[str]:
    """The command itself, to its end."""
    settings = {"CURATOR_VAULT_KEY": base64_of(NEW)}
    if old is not None:
        settings["CURATOR_VAULT_OLD_KEY"] = base64_of(old)
    return run(["vault", "rotate"], environment(folder, url) | settings)


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "vault").iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize("old", [None, OLD], ids=["in the clear", "sealed"])
def test_the_command(tmp_path: Path, database: str | None, old: bytes | None) -> None:
    """Catches files or connections left under the old key or in the clear, rows that name the old ones, a server that
    does not go on with the new key alone, and one that is running meanwhile.
    """
    prepared(tmp_path / "data", database, old)
    before = files_of(tmp_path / "data")
    done = rotate(tmp_path / "data", database, old)
    assert done.returncode == 0, done.stderr
    assert "2 had" in done.stdout
    assert connection_opens(tmp_path / "data", database, OLD, NEW) == ([] if old is None else [NEW])
    assert not set(files_of(tmp_path / "data")) & set(before)
    assert len(files_of(tmp_path / "data")) == 2
    sizes = [(tmp_path / "data" / "vault" / name).read_bytes() for name in files_of(tmp_path / "data")]
    assert all(content.startswith(b"CURVLT1E") for content in sizes)
    world = make_world(tmp_path / "data", database, vault_key=base64_of(NEW))
    try:
        assert world.built.context.lifecycle.ready() is None
        ann = world.analyst("ann")
        assert world.ask(ann, world.open(ann, "d"), query(1))["value"] == 800
        world.audit()
    finally:
        world.stop()


@pytest.fixture
def operate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(preconditions, "forbid_core_dumps", lambda: None)

    def set_to(folder: Path, new: bytes | None, old: bytes | None) -> None:
        monkeypatch.setenv("CURATOR_DATA_DIR", str(folder))
        for name, key in (("CURATOR_VAULT_KEY", new), ("CURATOR_VAULT_OLD_KEY", old)):
            monkeypatch.setenv(name, "" if key is None else base64_of(key))

    return set_to


def test_refusals(tmp_path: Path, operate: Callable[..., None]) -> None:
    """Catches a change of keys beside a server, one without a new key, and one that gives up at the first file which
    neither key opens, or destroys it.
    """
    folder = tmp_path / "data"
    prepared(folder, None, OLD)
    operate(folder, None, OLD)
    with pytest.raises(StartRefused, match="CURATOR_VAULT_KEY"):
        maintenance.rotate_vault()
    operate(folder, NEW, None)
    before = files_of(folder)
    with pytest.raises(StartRefused, match="d, e, the connection warehouse"):
        maintenance.rotate_vault()
    assert files_of(folder) == before
    assert connection_opens(folder, None, OLD, NEW) == [OLD]
    operate(folder, NEW, OLD)
    (damaged,) = (folder / "vault").glob("d.*.vault")
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StartRefused, match=r"1 private files are .* of d$"):
        maintenance.rotate_vault()
    assert damaged.exists()
    damaged.write_bytes(content)
    assert maintenance.rotate_vault() == 1
    assert maintenance.rotate_vault() == 0
    operate(tmp_path / "nothing", NEW, OLD)
    with pytest.raises(StartRefused, match="no database"):
        maintenance.rotate_vault()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_not_beside_a_server(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A server holds files open under the old key, and registers new ones. Catches a change of keys beside it."""
    url = None if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    prepared(tmp_path / "data", url, None)
    with launching(tmp_path / "data", url) as launcher:
        launcher.start().wait_until_ready()
        done = rotate(tmp_path / "data", url, None)
    assert done.returncode == 1
    assert "stop it first" in " ".join(done.stderr.split())


#: The old file goes before the row names the new one.
HASTY = """
from app.storage.private_store import VaultResealer
destroy, resealed = VaultResealer.destroy, VaultResealer.resealed
def hasty(self, name, entry):
    made = resealed(self, name, entry)
    if made is not None:
        destroy(self, entry)
    return made
VaultResealer.resealed = hasty
"""


def rotating(old: bytes | None, *, planted: bool = False) -> Killing:
    """Changes of the key that die at a step told."""
    settings = {"CURATOR_VAULT_KEY": base64_of(NEW)}
    if old is not None:
        settings["CURATOR_VAULT_OLD_KEY"] = base64_of(old)
    steps = ("fsync", "link", "replace", "unlink")
    return Killing("maintenance.rotate_vault()", steps, HASTY, planted=planted, settings=settings)


def at_every_step(tmp_path: Path, old: bytes | None, killing: Killing, every: int = 2) -> int:
    """Kill before the first step, before the second (which is after the first), and so on, each time from the
    beginning; the last moment at which it died, of which a step has two.
    """
    url = f"sqlite:///{tmp_path / 'copy' / 'curator.sqlite3'}"
    for step in range(1, 200, every):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        code = killing.run(step, tmp_path / "copy")
        if code == 0:
            return step - every
        assert code == -9
        assert set(keys_that_open(tmp_path / "copy", url, old, NEW)) == set(NAMES), f"lost at step {step}"
        assert len(connection_opens(tmp_path / "copy", None, old, NEW)) == (old is not None), f"lost at step {step}"
        assert killing.run(0, tmp_path / "copy") == 0
        assert connection_opens(tmp_path / "copy", None, old, NEW) == ([] if old is None else [NEW])
        assert keys_that_open(tmp_path / "copy", url, NEW) == dict.fromkeys(NAMES, NEW)
        assert len(files_of(tmp_path / "copy")) == len(NAMES), "leavings"
    raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("old", [None, OLD], ids=["in the clear", "sealed"])
def test_killed_at_every_step(tmp_path: Path, old: bytes | None) -> None:
    """kill -9 between all syncs, renames, removals and commits. Catches a moment in which a row names a file
    that neither key opens or a connection is lost, one from which there is no going on, and files left lying. Of files
    in the clear, for which the steps are the same, between every second and the next.
    """
    prepared(tmp_path / "data", None, old)
    with sqlite3.connect(tmp_path / "data" / "curator.sqlite3") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert at_every_step(tmp_path, old, rotating(old), 4 if old is None else 2) > 15


def test_a_file_destroyed_too_early_is_caught(tmp_path: Path) -> None:
    """The net itself: the old file goes before the row names the new one."""
    prepared(tmp_path / "data", None, OLD)
    with pytest.raises(AssertionError, match="lost at step"):
        at_every_step(tmp_path, OLD, rotating(OLD, planted=True))
