"""Keys of commitments through whatever befalls their files: backups, other vault keys, commits in doubt, deaths."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

from app.bootstrap import maintenance, preconditions
from app.services.errors import Conflict
from curator_client.proofs.commitment import FileDigest, opens
from tests.kit.servers import Caller, launching
from tests.kit.world import ADMIN, EACH, SHAPE, Lost, World, eventually, make_world
from tests.storage.test_vault_rotation import NEW, OLD, base64_of, operate

pytestmark = pytest.mark.integration

__all__ = ["operate"]


def uploaded() -> FileDigest:
    """Of the file that worlds register where no other is named."""
    buffer = io.BytesIO()
    np.save(buffer, np.full(SHAPE, EACH))
    return FileDigest.of(io.BytesIO(buffer.getvalue()))


def opened(world: World, name: str) -> str:
    """The key of a data set's commitment, which opens it."""
    found = world.built.services.commitments.reveal(ADMIN, name)
    assert opens(found["commitment"], bytes.fromhex(found["key"]), uploaded())
    assert world.built.services.datasets.describe(name)["commitment"] == found["commitment"]
    return str(found["key"])


@pytest.mark.parametrize("old", [None, OLD], ids=["in the clear", "sealed"])
def test_another_vault_key(tmp_path: Path, operate: Callable[..., None], old: bytes | None) -> None:
    """Catches a key that is lost on the way, or left in a file in the clear."""
    settings = {} if old is None else {"vault_key": base64_of(old)}
    world = make_world(tmp_path, None, **settings)
    world.register("d")
    key = opened(world, "d")
    world.stop()
    operate(tmp_path, NEW, old)
    assert maintenance.rotate_vault() == 1
    for path in (tmp_path / "vault").iterdir():
        assert key.encode() not in path.read_bytes()
    world = make_world(tmp_path, None, vault_key=base64_of(NEW))
    try:
        assert opened(world, "d") == key
    finally:
        world.stop()


def test_a_restored_backup(tmp_path: Path, database: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a commitment without its key, a key without its commitment, and who was given it that is forgotten."""
    monkeypatch.setattr(preconditions, "forbid_core_dumps", lambda: None)
    world = make_world(tmp_path / "data", database)
    for name in ("d", "e"):
        world.register(name)
    key = opened(world, "d")
    for name, folder in (("CURATOR_DATABASE_URL", database or ""), ("CURATOR_DATA_DIR", str(tmp_path / "data"))):
        monkeypatch.setenv(name, folder) if folder else monkeypatch.delenv(name, raising=False)
    maintenance.back_up(tmp_path / "backup")
    other = opened(world, "e")
    world.stop()
    monkeypatch.delenv("CURATOR_DATABASE_URL", raising=False)
    monkeypatch.setenv("CURATOR_DATA_DIR", str(tmp_path / "restored"))
    maintenance.restore(tmp_path / "backup", final=True)
    restored = make_world(tmp_path / "restored", None)
    try:
        assert (opened(restored, "d"), opened(restored, "e")) == (key, other)
        with restored.store.read() as tx:
            assert [row.revealed_to for row in tx.datasets()] == [("admin",), ("admin",)]
    finally:
        restored.stop()


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_registration_whose_commit_is_in_doubt(
    worlds: Callable[..., World], database: str | None, fault: str
) -> None:
    """Catches a row whose commitment no key opens, and a key that stays where no row is."""
    world = worlds(database)
    world.store.faults.append(fault)
    with pytest.raises(Lost):
        world.register("d")
    if fault == "after":
        opened(world, "d")
        return
    world.stop()
    again = worlds(database)
    assert list((again.folder / "vault").glob("*.vault")) == []
    again.register("d")
    opened(again, "d")


@pytest.mark.parametrize(
    "step",
    [
        "registering: within the file",
        "registering: between file and row",
        "registering: before the commit",
        "registering: after the commit, before the reply",
    ],
)
def test_a_server_that_is_killed(tmp_path: Path, step: str) -> None:
    """Between vault and database, on each side. Catches a data set whose commitment no key opens, or a file with a key
    that nobody names and the next start leaves there.
    """
    registered = step.startswith("registering: after")
    with launching(tmp_path / "data", None) as launcher:
        server = launcher.start(traps=[(step, 1, "die")]).wait_until_ready()
        with pytest.raises(httpx.HTTPError):
            Caller(server.url).register("d", np.full(SHAPE, EACH))
        eventually(lambda: not server.alive())
        server = launcher.start().wait_until_ready()
        admin = Caller(server.url)
        assert len(list((tmp_path / "data" / "vault").glob("*.vault"))) == registered
        assert (admin.http.get("/v1/datasets/d").status_code == 200) == registered
        if not registered:
            assert admin.register("d", np.full(SHAPE, EACH)).status_code == 201
        found = admin.post("/v1/datasets/d/commitment", None).json()
        assert opens(found["commitment"], bytes.fromhex(found["key"]), uploaded())


def test_a_revelation_in_doubt_is_recorded_once(worlds: Callable[..., World], database: str | None) -> None:
    """Catches a key that is given although nothing says so, and a line for each try."""
    world = worlds(database)
    world.register("d")
    world.store.every = True
    for fault in ("before", "after"):
        world.store.faults.append(fault)
        with pytest.raises(Lost):
            world.built.services.commitments.reveal(ADMIN, "d")
    opened(world, "d")
    with world.store.read() as tx:
        row = tx.dataset("d")
    assert row is not None
    assert row.revealed_to == ("admin",)
    world.built.services.retirement.retire(ADMIN, "d")
    with pytest.raises(Conflict, match="destroyed"):
        world.built.services.commitments.reveal(ADMIN, "d")
