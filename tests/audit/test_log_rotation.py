"""Another key for the log: made by the command or told by the operator, killed at every step on the way, lost; and what
auditors take of it.
"""

from __future__ import annotations

import base64
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.bootstrap import log_keys, maintenance, preconditions, serving
from app.bootstrap.preconditions import StartRefused
from app.bootstrap.wiring import Built, build
from app.services.log_keys import KeyUnknown, LogKeys
from app.services.log_ports import LogKey, LogState
from app.settings import Settings
from app.storage.database import is_sqlite, make_engines
from app.storage.log_signatures import SqlLogKeys
from app.storage.log_store import SqlLog
from app.storage.store import SqlStore
from curator_client import Curator
from curator_client._sync.log_routes import LogRoutes
from curator_client.comparing import compare
from curator_client.errors import Contradicted
from curator_client.log_folder import LogFolder
from curator_client.proofs.follower import Follower
from curator_client.proofs.key_changes import KeyChange, statement_in
from curator_client.proofs.notes import NoteUnsigned, Signer, Verifier
from tests.kit.fetched import fetch
from tests.kit.killing import Killing
from tests.kit.patience import patience
from tests.kit.servers import environment, run
from tests.kit.service import Service, refused
from tests.kit.service import serving as served
from tests.kit.world import ADMIN_KEY

pytestmark = pytest.mark.integration

FIRST, SECOND, THIRD = (bytes([number]) * 32 for number in (1, 2, 3))


def base64_of(seed: bytes) -> str:
    return base64.b64encode(seed).decode()


def configured(folder: Path, url: str | None = None, *seeds: bytes, **settings: str) -> Settings:
    """Settings with the log's key, and the one before it, if they are told."""
    told = dict(zip(("log_key", "log_old_key"), map(base64_of, seeds), strict=False))
    return Settings(data_dir=folder, database_url=url, admin_key=ADMIN_KEY, **told, **settings)


@contextmanager
def built(settings: Settings) -> Iterator[Built]:
    """A service that is prepared, and not started."""
    serving.prepare(settings)
    made = build(settings)
    try:
        yield made
    finally:
        made.store.close()


@contextmanager
def calling(folder: Path, url: str | None) -> Iterator[tuple[Service, Curator]]:
    with (
        served(folder, database_url=url, admin_key=ADMIN_KEY) as service,
        Curator(service.url, ADMIN_KEY) as curator,
    ):
        yield service, curator


@pytest.fixture
def data(tmp_path: Path, database: str | None) -> Path:
    """A data folder with its database, migrated."""
    return tmp_path / "data"


def rotate(folder: Path, url: str | None, *more: str) -> subprocess.CompletedProcess[str]:
    return run(["log", "rotate", *more], environment(folder, url))


class Showing(Curator):
    """A service that tells of other changes of the log's key than there were."""

    def __init__(self, url: str, statements: list[bytes]) -> None:
        super().__init__(url, ADMIN_KEY)
        self.statements = statements

    @property
    def log_routes(self) -> LogRoutes:
        shown = self.statements

        class Shown(LogRoutes):
            def key_statements(self) -> list[bytes]:
                return shown

        return Shown(self._service.transport)


def keys_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "keys").iterdir())


def test_auditors_follow_the_command(data: Path, database: str | None, tmp_path: Path) -> None:
    """One auditor fetches after each of two changes, another only after both, a third asks a service that hides or
    forges the statements. Catches a new name of the log, an old key that is left lying, an auditor who cannot follow,
    or who follows without being told, and old checkpoints that nobody can verify any more.
    """
    steady, late, wary, new = (LogFolder(tmp_path / name) for name in ("steady", "late", "wary", "new"))
    with calling(data, database) as (_, curator):
        deadline = time.monotonic() + patience(10)
        while not fetch(steady, curator).size:
            assert time.monotonic() < deadline
        for folder in (late, wary):
            fetch(folder, curator)
    shutil.copytree(steady.path, tmp_path / "before")
    first = (data / "keys" / "log.key").read_bytes()
    origin = Signer(first).verifier.name
    for number in (1, 2):
        before = (data / "keys" / "log.key").read_bytes()
        done = rotate(data, database)
        assert done.returncode == 0, done.stderr
        seed = (data / "keys" / "log.key").read_bytes()
        assert seed != before
        assert keys_in(data) == ["log.key", "vault-digest.key"] or keys_in(data) == ["log.key"]
        assert Signer(seed, origin).verifier.text() in done.stdout
        with calling(data, database) as (service, curator):
            found = fetch(steady, curator)
            assert found.origin == origin
            known = steady.keys()
            assert known[0] == Signer(seed, origin).verifier
            assert len(known) == number + 1
            assert len(curator.log_routes.key_statements()) == number
            if number == 1:
                kept = {path.name: path.read_bytes() for path in wary.path.iterdir()}
                thief = Signer(THIRD, origin)
                for shown in ([], [KeyChange.signed(0, thief, Signer(seed, origin))]):
                    with Showing(service.url, shown) as hiding, pytest.raises(Contradicted, match="signed"):
                        fetch(wary, hiding)
                assert {path.name: path.read_bytes() for path in wary.path.iterdir()} == kept
    with calling(data, database) as (_, curator):
        assert fetch(late, curator).size == fetch(new, curator).size == fetch(steady, curator).size
    assert late.keys() == steady.keys()
    assert len(new.keys()) == 1
    # A fetch that was interrupted between the key and the checkpoint that it signed.
    shutil.copy(tmp_path / "before" / "checkpoint", late.path / "checkpoint")
    with calling(data, database) as (_, curator):
        fetch(late, curator)
    assert late.keys() == steady.keys()
    assert compare(late, tmp_path / "before" / "checkpoint")[0].size > 0
    lines = (late.path / "entries.ndjson").read_bytes().splitlines()
    changes = [KeyChange.open(each) for line in lines if (each := statement_in(line)) is not None]
    assert [each.old.public_key for each in changes] == [key.public_key for key in late.keys()[:0:-1]]


def test_a_new_key_signs_nothing_that_does_not_tell_of_it(data: Path, database: str | None) -> None:
    """Catches a start that serves before the log tells of the change: auditors would refuse its first checkpoints."""
    with built(configured(data, database, FIRST)) as made:
        old = made.services.log.keys.verifier
    with built(configured(data, database, SECOND, FIRST)) as made:
        log = made.services.log
        note, size = log.checkpoint(), SqlLog(made.store).state().size
        lines = log.entries(0, size - 1).splitlines()
        state = Follower(old).know(note, log.keys.statements)
        assert state.verifier == log.keys.verifier != old
        assert state.follow(state.look(note), lines).verifier == state.verifier


def test_keys_that_the_operator_sets(data: Path, database: str | None) -> None:
    """Catches a change that is recorded at every start, one that nobody vouched for, a start with a key that is not the
    log's, another process that goes on signing with the old key, and a new name of the log.
    """

    def told(*seeds: bytes) -> tuple[int, Verifier]:
        with built(configured(data, database, *seeds)) as made:
            made.services.log.checkpoint()
            return len(made.services.log.keys.statements()), made.services.log.keys.verifier

    assert told(FIRST) == (0, Signer(FIRST).verifier)
    name = Signer(FIRST).verifier.name
    second, third = (Signer(seed, name).verifier for seed in (SECOND, THIRD))
    for seeds in ((SECOND,), (SECOND, THIRD)):
        with pytest.raises(StartRefused, match="CURATOR_LOG_OLD_KEY"):
            told(*seeds)
    running = build(configured(data, database, FIRST))
    try:
        running.services.log.checkpoint()
        for seeds in ((SECOND, FIRST), (SECOND, FIRST), (SECOND,), (SECOND, SECOND)):
            assert told(*seeds) == (1, second)
        with pytest.raises(KeyUnknown):
            running.services.log.checkpoint()
        assert running.services.log.key()["key"] == second.text()
    finally:
        running.store.close()
    for seeds in ((FIRST,), (THIRD, FIRST)):
        with pytest.raises(StartRefused):
            told(*seeds)
    with pytest.raises(KeyUnknown):
        told()
    assert not (data / "keys" / "log.key").exists()
    assert told(THIRD, SECOND) == (2, third)
    # Back to an earlier key, which is no key that anybody should go back to; but it can be told.
    assert told(SECOND, THIRD) == (3, second)
    with (
        pytest.raises(StartRefused, match="CURATOR_LOG_ORIGIN"),
        built(configured(data, database, SECOND, log_origin="example.org/other")),
    ):
        pass
    with built(configured(data, database, SECOND, log_origin=name)) as made:
        assert made.services.log.keys.verifier == second


def test_keys_that_are_set_at_the_first_start_with_either(data: Path, database: str | None) -> None:
    """A log of a program that did not know of changes. Catches an old key that is passed over: nobody would follow."""
    with built(configured(data, database, SECOND, FIRST)) as made:
        name = Signer(FIRST).verifier.name
        assert made.services.log.keys.verifier == Signer(SECOND, name).verifier
        (statement,) = made.services.log.keys.statements()
        assert KeyChange.open(statement).old == Signer(FIRST).verifier


def test_two_processes_change_the_key_at_once(data: Path, database: str | None) -> None:
    """One finds that the other was first. Catches two statements for one change, and one that is lost."""
    with built(configured(data, database, FIRST)) as made:
        url = configured(data, database).sqlalchemy_url
        store = SqlStore(*make_engines(url), exclusive=is_sqlite(url))

        def keys(kept: SqlLogKeys) -> LogKeys:
            known = lambda: [FIRST, SECOND]  # noqa: E731
            return LogKeys(kept, SqlLog(store), lambda: "now", first=lambda: FIRST, known=known, origin=None)

        class Overtaken(SqlLogKeys):
            def add(self, key: LogKey, line: bytes | None) -> bool:
                keys(SqlLogKeys(store)).change(SECOND)
                return super().add(key, line)

        try:
            keys(Overtaken(store)).change(SECOND)
            assert len(made.services.log.keys.statements()) == 1
            assert made.services.log.keys.verifier.public_key == Signer(SECOND).verifier.public_key
            log_keys.settle(configured(data, database, SECOND), store)
            log = SqlLog(store)
            state = log.state()
            lines = log.lines(log.leaves(0, state.size))
            assert sum(statement_in(line) is not None for line in lines) == 1
            assert state != LogState()
        finally:
            store.close()


# --------------------------------------------------------------------------------------------------- what is lost


@pytest.fixture
def operate(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    monkeypatch.setattr(preconditions, "forbid_core_dumps", lambda: None)

    def set_to(folder: Path) -> None:
        for name in [name for name in os.environ if name.startswith("CURATOR_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("CURATOR_DATA_DIR", str(folder))

    return set_to


def test_a_key_that_is_lost(tmp_path: Path, operate: Callable[[Path], None]) -> None:
    """Catches a start that makes a new key in silence, or none at all, a key that is given up while it is there,
    another one in its place, and an auditor who takes what nobody vouched for.
    """
    data, folder = tmp_path / "data", LogFolder(tmp_path / "kept")
    operate(data)
    with calling(data, None) as (_, curator):
        before = fetch(folder, curator)
    with pytest.raises(StartRefused, match="is here"):
        maintenance.rotate_log(lost=True)
    (data / "keys" / "log.key").rename(tmp_path / "elsewhere")
    with pytest.raises(StartRefused, match="not here"):
        maintenance.rotate_log(lost=False)
    with calling(data, None) as (service, _):
        refused(service.admin.get("/v1/log/checkpoint"), "unavailable")
        assert service.admin.get("/v1/log/key").json()["origin"] == before.origin
        assert service.admin.get("/readyz").status_code == 200
    assert not [name for name in keys_in(data) if name.startswith("log")]
    (data / "keys" / "log.key").write_bytes(THIRD)
    with pytest.raises(StartRefused, match="not here"):
        serving.prepare(configured(data))
    shutil.copy(tmp_path / "elsewhere", data / "keys" / "log.key")
    serving.prepare(configured(data))
    (data / "keys" / "log.key").unlink()
    assert maintenance.rotate_log(lost=True) == ""
    with calling(data, None) as (_, curator):
        with pytest.raises(Contradicted, match="signed"):
            fetch(folder, curator)
        again = fetch(LogFolder(tmp_path / "again"), curator)
        assert again.origin != before.origin
        assert again.size >= before.size


def test_a_copy_that_is_restored(tmp_path: Path, operate: Callable[[Path], None]) -> None:
    """After a change of keys. Catches a final copy that does not know its key, or another copy that claims the name."""
    data = tmp_path / "data"
    operate(data)
    serving.prepare(configured(data))
    maintenance.rotate_log(lost=False)
    with built(configured(data)) as made:
        key = made.services.log.keys.verifier
    maintenance.back_up(tmp_path / "backup")
    for final in (True, False):
        copy = tmp_path / f"copy{final}"
        operate(copy)
        maintenance.restore(tmp_path / "backup", final=final)
        with built(configured(copy)) as made:
            assert (made.services.log.keys.verifier == key) == final
            assert len(made.services.log.keys.statements()) == final


# ------------------------------------------------------------------------------------------------------ killed

#: The new key takes the old one's place before the old one has vouched for it.
HASTY = """
from app.bootstrap import log_keys
from app.services.log_keys import LogKeys
change = LogKeys.change
def hasty(self, seed):
    log_keys.replace_key(pathlib.Path(folder) / "keys", "log.key", "log-next.key")
    change(self, seed)
LogKeys.change = hasty
"""


def rotating(*, planted: bool = False) -> Killing:
    """Changes of the key that die at a step told."""
    steps = ("fsync", "rename", "replace", "link", "unlink")
    return Killing("maintenance.rotate_log(lost=False)", steps, HASTY, planted=planted)


def followed(folder: Path, known: Verifier) -> list[bytes]:
    """Start a service, and follow its log from a key that was known: by what changes of the key."""
    with built(configured(folder)) as made:
        log = made.services.log
        note, size = log.checkpoint(), SqlLog(made.store).state().size
        lines = log.entries(0, size - 1).splitlines() if size else []
        state = Follower(known).know(note, log.keys.statements)
        state.follow(state.look(note), lines)
        return [each for line in lines if (each := statement_in(line)) is not None]


def at_every_step(tmp_path: Path, killing: Killing) -> int:
    """Kill before the first step, after it, before the second, and so on, each time from the beginning; the number of
    these moments. After a step a start follows; before the next one, which leaves the same, the command again.
    """
    known = Signer((tmp_path / "data" / "keys" / "log.key").read_bytes()).verifier
    copy = tmp_path / "copy"
    for step in range(1, 200):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path / "data", copy)
        code = killing.run(step, copy)
        if code == 0:
            return step - 1
        assert code == -9
        try:
            if step % 2 == 0:
                assert len(followed(copy, known)) <= 1
            else:
                assert killing.run(0, copy) == 0
                # What was interrupted is finished; what had been finished is changed once more.
                assert 1 <= len(followed(copy, known)) <= 2
                assert keys_in(copy) == ["log.key"], "leavings"
        except (StartRefused, NoteUnsigned) as error:
            raise AssertionError(f"lost at step {step}: {error}") from None
    raise AssertionError("it does not come to an end")


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A data folder whose log is as new as can be."""
    with built(configured(tmp_path / "data")):
        pass
    with sqlite3.connect(tmp_path / "data" / "curator.sqlite3") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return tmp_path / "data"


def test_killed_at_every_step(tmp_path: Path, prepared: Path) -> None:
    """kill -9 before and after every sync, rename, link, removal and commit; then a start, or the command again.
    Catches a moment in which the key that is to sign is nowhere, one from which there is no going on, a change that
    auditors cannot follow or that is recorded twice, and a key left lying.
    """
    assert at_every_step(tmp_path, rotating()) > 15


def test_a_key_destroyed_too_early_is_caught(tmp_path: Path, prepared: Path) -> None:
    """The net itself: the old key goes before it has vouched."""
    with pytest.raises(AssertionError, match="lost at step"):
        at_every_step(tmp_path, rotating(planted=True))
