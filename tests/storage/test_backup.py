"""Backups of running servers, restored elsewhere: what comes back, what must not, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from app.bootstrap import maintenance, preconditions, wiring
from app.bootstrap.preconditions import StartRefused
from app.storage import backup as backups
from app.storage.blobs import Blobs
from app.storage.database import DataDirLock
from app.storage.store import SqlStore, SqlTransaction
from curator_client import durable
from tests.kit.databases import empty_database, migrate_all
from tests.kit.servers import Caller, curator, launching
from tests.kit.world import (
    ADMIN,
    AUDITOR,
    HIT,
    SHAPE,
    WHOLE,
    World,
    eventually,
    ledger_of,
    make_world,
    query,
    sessions_of,
    transcript_of,
    wait,
)

pytestmark = pytest.mark.integration

COUNTS = np.random.default_rng(7).integers(0, 200_000, SHAPE)
ASKED = {"mechanism": {"construction": "mw"}, "epsilon": 0.1, "max_queries": 1000, "max_updates": 12}


@pytest.fixture
def elsewhere(database: str | None) -> Iterator[str | None]:
    """Another empty database of the same kind."""
    if database is None:
        yield None
        return
    with empty_database(database) as url:
        yield url


class Traffic:
    """Analysts who ask without pause, and an admin who registers and retires without pause, until the end."""

    def __init__(self, url: str, keys: list[str], sessions: list[str]) -> None:
        self.url, self.errors, self.replies = url, list[BaseException](), 0
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=(self._ask, key, id))
            for key, id in zip(keys, sessions, strict=True)
        ]
        self._threads.append(threading.Thread(target=self._guard, args=(self._come_and_go,)))

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
        for error in self.errors:
            raise error

    def _guard(self, work: Callable[..., None], *arguments: str) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.errors.append(error)

    def _ask(self, key: str, id: str) -> None:
        chance, caller = random.Random(id), Caller(self.url, key)
        while not self._stopping.is_set():
            words = query(chance.randrange(SHAPE[0]), *chance.sample(range(SHAPE[1]), chance.randint(1, SHAPE[1])))
            reply = caller.post(f"/v1/sessions/{id}/queries", words, f"{self.replies}-{chance.random()}")
            assert reply.status_code in (200, 409), reply.text
            self.replies += 1

    def _come_and_go(self) -> None:
        admin, number = Caller(self.url), 0
        while not self._stopping.is_set():
            assert admin.register(f"extra-{number}", COUNTS).status_code == 201
            assert admin.http.delete(f"/v1/datasets/extra-{number}").status_code == 200
            number += 1


def transcripts_of(auditor: Caller) -> dict[str, list[bytes]]:
    return {state["id"]: auditor.transcript(state["id"]) for state in auditor.pages("/v1/sessions")["items"]}


def test_a_running_server_is_backed_up_and_goes_on_elsewhere(
    tmp_path: Path, database: str | None, elsewhere: str | None
) -> None:
    """The commands themselves, beside a real server under traffic that registers and retires meanwhile. Catches a
    copy of several moments, a row without its file, numbers of the ledger that come twice, cached answers that are
    drawn anew, a transcript that does not go on where it stood.
    """
    folder, restored = tmp_path / "backup", tmp_path / "restored"
    with launching(tmp_path / "data", database) as launcher:
        server = launcher.start().wait_until_ready()
        admin = Caller(server.url)
        assert admin.register("d", COUNTS, budget={"epsilon": 2.0, "delta": 1e-6}).status_code == 201
        keys = [admin.add(name) for name in ("ann", "bob")]
        auditor_key = admin.add("auditor", "auditor")
        sessions = [
            Caller(server.url, key).post("/v1/sessions", {"dataset": "d", **ASKED}).json()["id"] for key in keys
        ]
        with Traffic(server.url, keys, sessions) as traffic:
            eventually(lambda: traffic.replies > 20)
            made = curator(tmp_path / "data", database, "backup", str(folder))
            enough = traffic.replies + 10
            eventually(lambda: traffic.replies > enough)
        assert made.returncode == 0, made.stderr
        source = transcripts_of(Caller(server.url, auditor_key))
    done = curator(restored, elsewhere, "restore", str(folder), "--final")
    assert done.returncode == 0, done.stderr
    with launching(restored, elsewhere) as launcher:
        server = launcher.start().wait_until_ready()
        admin, auditor = Caller(server.url), Caller(server.url, auditor_key)
        found = auditor.audit()
        assert set(found) == set(source)
        assert max(len(lines) for lines in found.values()) > 5
        for id, lines in found.items():
            assert lines[:-1] == source[id][: len(lines) - 1], "the copy is no beginning of what there was"
        for key, id in zip(keys, sessions, strict=True):
            caller, lines = Caller(server.url, key), found[id]
            given = [e for e in map(json.loads, lines[1:-1]) if e["source"] != "cached"]
            for number, entry in enumerate(given[:3], start=len(lines) - 1):
                reply = caller.post(f"/v1/sessions/{id}/queries", words_of(entry)).json()
                assert (reply["source"], reply["value"], reply["sequence"]) == ("cached", entry["value"], number)
        # Everything goes on: new answers, a new session and its line of the ledger, a new data set.
        caller = Caller(server.url, keys[0])
        opened = caller.post("/v1/sessions", {"dataset": "d", **ASKED})
        assert opened.status_code == 201, opened.text
        assert caller.post(f"/v1/sessions/{opened.json()['id']}/queries", query(1, 2)).status_code == 200
        assert admin.register("more", COUNTS).status_code == 201
        auditor.audit()
        assert "Traceback" not in launcher.logs()


def words_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The predicate that an entry's canonical query came from."""
    where = {
        "ab"[axis]: {"in": list(range(*picked["range"])) if "range" in picked else picked["in"]}
        for axis, picked in entry["query"]["axes"]
    }
    return {"type": "predicate", "where": where}


# ---------------------------------------------------------------------- in this process


@pytest.fixture
def operate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """operate(folder, url, **settings): what the operator's commands read from now on."""
    monkeypatch.setattr(preconditions, "forbid_core_dumps", lambda: None)

    def set_to(folder: Path, url: str | None, **settings: str) -> None:
        for name in [name for name in os.environ if name.startswith("CURATOR_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("CURATOR_DATA_DIR", str(folder))
        if url is not None:
            monkeypatch.setenv("CURATOR_DATABASE_URL", url)
        for name, value in settings.items():
            monkeypatch.setenv(f"CURATOR_{name.upper()}", value)

    return set_to


@pytest.fixture
def source(tmp_path: Path, database: str | None, operate: Callable[..., None]) -> Iterator[World]:
    """A service with two data sets, sessions open and closed, dense weights, replies; its backup is in `backup`."""
    world = make_world(tmp_path / "data", database)
    world.register("d")
    world.register("e")
    ann = world.analyst("ann")
    first, second = world.open(ann, "d"), world.open(ann, "e")
    world.noise.script += [HIT, 0, HIT]
    for number in range(3):
        world.ask(ann, first, query(number), key=f"k{number}")
    world.ask(ann, first, {"type": "dense", "weights": np.linspace(-1, 1, 32).reshape(SHAPE).tolist()})
    world.ask(ann, second, query(1))
    world.close(ann, second)
    operate(tmp_path / "data", database)
    assert maintenance.back_up(tmp_path / "backup") == 2
    yield world
    world.stop()


def books(world: World) -> dict[str, Any]:
    services = world.built.services
    return {each["name"]: ledger_of(services, each["name"]) for each in services.datasets.list("", WHOLE).items}


def without_log_size(trailer: bytes) -> dict[str, Any]:
    told = ("log_size", "trailer_hash")
    return {name: value for name, value in json.loads(trailer).items() if name not in told}


def test_a_restored_reply_is_the_one_given(
    tmp_path: Path, source: World, elsewhere: str | None, operate: Callable[..., None]
) -> None:
    """Catches rows that are left out: replies under keys, dense weights, grants; everything is the same."""
    ann = source.analyst("ann")
    operate(tmp_path / "restored", elsewhere)
    maintenance.restore(tmp_path / "backup", final=True)
    world = make_world(tmp_path / "restored", elsewhere)
    try:
        assert world.built.context.lifecycle.ready() is None
        assert books(world) == books(source)
        for state in sessions_of(source.built.services, AUDITOR):
            lines = transcript_of(source.built.services, state["id"])
            again = transcript_of(world.built.services, state["id"])
            # How far the log has come by then is told by the trailer.
            assert [*again[:-1], without_log_size(again[-1])] == [*lines[:-1], without_log_size(lines[-1])]
        id = next(s["id"] for s in sessions_of(world.built.services, ann) if s["status"] == "open")
        assert world.ask(ann, id, query(0), key="k0") == source.ask(ann, id, query(0), key="k0")
        world.audit()
    finally:
        world.stop()
    with pytest.raises(StartRefused, match="not empty"):
        maintenance.restore(tmp_path / "backup", final=True)


def test_from_one_kind_of_database_to_the_other(
    tmp_path: Path, database: str | None, source: World, operate: Callable[..., None], request: pytest.FixtureRequest
) -> None:
    """The way from an embedded database to PostgreSQL and back. Catches a column that one of them keeps otherwise."""
    other = None
    if database is None:
        other = str(request.getfixturevalue("postgres_url"))
    operate(tmp_path / "restored", other)
    maintenance.restore(tmp_path / "backup", final=True)
    world = make_world(tmp_path / "restored", other)
    try:
        assert books(world) == books(source)
        ann = world.analyst("ann")
        world.ask(ann, world.open(ann, "d"), query(3))
        world.audit()
    finally:
        world.stop()


def test_an_encrypted_vault(tmp_path: Path, operate: Callable[..., None]) -> None:
    """Catches private files that are opened on their way: in a backup they are under their key as in the vault."""
    key = base64.b64encode(bytes(range(32))).decode()
    world = make_world(tmp_path / "data", vault_key=key)
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    first = world.ask(ann, id, query(1))
    operate(tmp_path / "data", None, vault_key=key)
    assert maintenance.back_up(tmp_path / "backup") == 1
    world.stop()
    (original,), (copy,) = ((tmp_path / name / "vault").glob("*.vault") for name in ("data", "backup"))
    assert copy.read_bytes() == original.read_bytes()
    assert copy.read_bytes().startswith(b"CURVLT1E")
    operate(tmp_path / "restored", None, vault_key=key)
    maintenance.restore(tmp_path / "backup", final=True)
    world = make_world(tmp_path / "restored", vault_key=key)
    assert world.built.context.lifecycle.ready() is None
    assert world.ask(ann, id, query(1))["value"] == first["value"]
    world.ask(ann, id, query(2))
    world.audit()
    world.stop()


class TestAnOldCopy:
    """Nobody says that nothing was asked since: the copy's books may say less than was released."""

    def test_only_the_records_come_back(
        self, tmp_path: Path, source: World, elsewhere: str | None, operate: Callable[..., None]
    ) -> None:
        """What the source released after its backup is more than the copy knows. Catches a budget, a session, a
        private file or a revoked key that is good again.
        """
        ann = source.analyst("ann")
        id = next(s["id"] for s in sessions_of(source.built.services, ann) if s["status"] == "open")
        source.noise.script += [HIT] * 5
        for number in range(4):
            source.ask(ann, id, query(number, 1, 2))
        source.open(ann, "d", epsilon=0.5)
        released = {name: Decimal(ledger["sum"]) for name, ledger in books(source).items()}
        source.built.services.principals.revoke(ADMIN, "ann")
        operate(tmp_path / "restored", elsewhere)
        maintenance.restore(tmp_path / "backup", final=False)
        assert not (tmp_path / "restored" / "vault").exists()
        world = make_world(tmp_path / "restored", elsewhere)
        try:
            services = world.built.services
            for name, ledger in books(world).items():
                assert Decimal(ledger["spent"]) == Decimal(ledger["budget"]) >= released[name]
                assert Decimal(ledger["remaining"]) == Decimal(ledger["reserved"]) == 0
                shown = services.datasets.describe(name)
                assert (shown["status"], shown["budget"]["remaining_epsilon"]) == ("retired", 0.0)
                with pytest.raises(Exception, match="retired"):
                    world.open(ann, name)
                with pytest.raises(Exception, match="never reused"):
                    world.register(name)
            states = sessions_of(services, ann)
            assert [state["status"] for state in states] == ["closed", "closed"]
            with pytest.raises(Exception, match="closed"):
                wait(world.submit(ann, id, query(0)))
            assert world.noise.drawn == 0
            keys = {row["name"]: row["revoked_at"] for row in services.principals.list(ADMIN, "", WHOLE).items}
            assert keys["ann"] is not None
            assert keys["admin"] is None
            world.audit()
            assert services.principals.rotate(ADMIN, "ann")["name"] == "ann"
        finally:
            world.stop()

    @pytest.mark.parametrize("database", [None], ids=["sqlite"])  # sums are the same wherever they are stored
    def test_both_sums_are_spent(
        self, tmp_path: Path, database: str | None, elsewhere: str | None, operate: Callable[..., None]
    ) -> None:
        """Of a data set that was never touched, one of which pure noise took a part, one of which a session of pure
        noise holds all that is left, more than the other sum has, and one with other noise. Catches a copy on which
        pure noise could still be bought, and a flag that would contradict what was promised before.
        """
        source = make_world(tmp_path / "data", database)
        ann = source.analyst("ann")
        for name in ("fresh", "part", "all", "other"):
            source.register(name)
        laplace = {"mechanism": {"construction": "laplace"}, "max_updates": None}
        ids = {
            "part": source.open(ann, "part", **laplace, epsilon=1.0, max_queries=3),
            "all": source.open(ann, "all", **laplace, epsilon=1.0, max_queries=2),
            "other": source.open(ann, "other", epsilon=0.1),
        }
        for name in ("part", "all"):
            source.ask(ann, ids[name], query(1))
        source.close(ann, ids["part"])
        operate(tmp_path / "data", database)
        maintenance.back_up(tmp_path / "backup")
        before = {name: ledger["epsilon"]["impure"] for name, ledger in books(source).items()}
        assert before == {"fresh": False, "part": False, "all": False, "other": True}
        source.stop()
        operate(tmp_path / "restored", elsewhere)
        maintenance.restore(tmp_path / "backup", final=False)
        world = make_world(tmp_path / "restored", elsewhere)
        try:
            for name, ledger in books(world).items():
                assert Decimal(ledger["spent"]) >= Decimal(ledger["budget"])
                assert Decimal(ledger["remaining"]) == Decimal(ledger["pure"]["remaining"]) == 0
                if name != "other":
                    assert Decimal(ledger["pure"]["spent"]) == 1
                # Of "all" pure noise alone was promised, and its epsilons are the whole.
                assert ledger["epsilon"]["impure"] == (name != "all")
            world.audit()
        finally:
            world.stop()

    def test_a_database_restored_by_other_means(
        self, tmp_path: Path, source: World, database: str | None, operate: Callable[..., None]
    ) -> None:
        """`curator forfeit` does the same to the database that is there, and at the next start the private files go."""
        source.stop()
        operate(tmp_path / "data", database)
        maintenance.forfeit()
        world = make_world(tmp_path / "data", database)
        try:
            assert not list((tmp_path / "data" / "vault").glob("*.vault"))
            assert {ledger["remaining"] for ledger in books(world).values()} <= {"0", "0E-24"}
            world.audit()
        finally:
            world.stop()

    @pytest.mark.parametrize("database", [None], ids=["sqlite"])  # sums are the same wherever they are stored
    def test_the_audit_would_see_what_is_left_out(
        self, tmp_path: Path, source: World, operate: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The net itself: a forfeit that forgets what sessions hold, or what no session held, is noticed."""
        for planted in ("move_ledger", "forfeit_dataset"):
            folder = tmp_path / planted
            operate(folder, None)
            with monkeypatch.context() as patch:
                patch.setattr(SqlStore, "write", _without(planted))
                maintenance.restore(tmp_path / "backup", final=False)
            world = make_world(folder)
            try:
                with pytest.raises(AssertionError):
                    world.audit()
            finally:
                world.stop()


def _without(method: str) -> Any:
    class Forgetful(SqlTransaction):
        pass

    setattr(Forgetful, method, lambda *_: None)

    @contextmanager
    def write(self: SqlStore) -> Iterator[SqlTransaction]:
        with self._writing.connect() as connection:
            connection.begin()
            yield Forgetful(connection)

    return write


class TestLedgerWatch:
    """The data folder has seen more than the database knows."""

    @pytest.fixture
    def elsewhere_url(self, elsewhere: str | None, tmp_path: Path) -> str:
        """Another database, migrated and with nothing in it."""
        url = elsewhere or f"sqlite:///{tmp_path / 'elsewhere.sqlite3'}"
        migrate_all(url)
        return url

    def test_an_old_copy_put_in_place(
        self, tmp_path: Path, database: str | None, source: World, operate: Callable[..., None]
    ) -> None:
        """The database goes back to what it was, beside a folder that went on: by a copied file, by point-in-time
        recovery, by a standby that lost the last transactions. Catches a server that serves it; `curator forfeit`
        is the way on.
        """
        ann = source.analyst("ann")
        source.open(ann, "d")
        source.stop()
        store = wiring.build(source.built.context.limits).store
        with store.write() as tx:
            last, _ = store.last_movement()
            for table in ("log_runs", "log_tiles", "log_sessions", "log_state", "ledger_sums", "ledger_state"):
                tx.connection.execute(text(f"DELETE FROM {table}"))
            tx.connection.execute(text("DELETE FROM ledger WHERE id = :last"), {"last": last})
            tx.connection.execute(
                text("DELETE FROM sessions WHERE NOT EXISTS (SELECT 1 FROM ledger l WHERE l.session = sessions.id)")
            )
            tx.commit()
        store.close()
        with pytest.raises(StartRefused, match="curator forfeit"):
            make_world(tmp_path / "data", database)
        operate(tmp_path / "data", database)
        maintenance.forfeit()
        world = make_world(tmp_path / "data", database)
        world.audit()
        world.stop()

    def test_another_database(self, tmp_path: Path, source: World, elsewhere_url: str) -> None:
        """An empty one by mistake. Catches a start that sweeps every private file away, as no row names them."""
        source.stop()
        files = sorted((tmp_path / "data" / "vault").glob("*.vault"))
        assert len(files) == 2
        with pytest.raises(StartRefused, match="another one"):
            make_world(tmp_path / "data", elsewhere_url)
        assert sorted((tmp_path / "data" / "vault").glob("*.vault")) == files

    def test_other_keys_for_another_database(
        self,
        tmp_path: Path,
        source: World,
        elsewhere_url: str,
        operate: Callable[..., None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """`curator vault rotate` with that mistake. Catches a change of keys that sweeps all files away at its end."""
        source.stop()
        files = sorted((tmp_path / "data" / "vault").glob("*.vault"))
        assert len(files) == 2
        operate(tmp_path / "data", elsewhere_url)
        monkeypatch.setenv("CURATOR_VAULT_KEY", base64.b64encode(bytes(32)).decode())
        with pytest.raises(StartRefused, match="another one"):
            maintenance.rotate_vault()
        assert sorted((tmp_path / "data" / "vault").glob("*.vault")) == files

    def test_it_is_written_while_the_service_runs(self, tmp_path: Path, source: World) -> None:
        """Catches a number that is noted at a good end only: processes are killed."""
        ann = source.analyst("ann")
        before, _ = source.store.last_movement()
        source.open(ann, "d")
        seen = tmp_path / "data" / "ledger.seen"
        eventually(lambda: seen.exists() and int(seen.read_text().split()[0]) > before, 5)
        assert int(seen.read_text().split()[0]) == source.store.last_movement()[0]
        assert seen.stat().st_mode & 0o077 == 0


class TestRefusals:
    """What cannot be restored well is not restored at all."""

    @pytest.fixture
    def database(self) -> None:
        """These are the same on every database."""
        return

    def refuses(self, folder: Path, match: str, *, final: bool = True) -> None:
        with pytest.raises(StartRefused, match=match):
            maintenance.restore(folder, final=final)

    def test_what_is_no_whole_backup(self, tmp_path: Path, source: World, operate: Callable[..., None]) -> None:
        """Catches a backup that was interrupted, and one of another format, taken for one."""
        operate(tmp_path / "restored", None)
        manifest = tmp_path / "backup" / "backup.json"
        manifest.write_text(json.dumps({"format": 2}))
        self.refuses(tmp_path / "backup", "another format")
        manifest.unlink()
        self.refuses(tmp_path / "backup", "not a whole backup")
        assert not (tmp_path / "restored" / "curator.sqlite3").exists()

    @pytest.mark.parametrize("damage", ["emptied", "cut", "changed"])
    def test_rows_that_were_damaged(
        self, tmp_path: Path, source: World, operate: Callable[..., None], damage: str
    ) -> None:
        """A copy onto a full disk, or a page of it that is another. Catches a restore of nothing that says it is done,
        with and without ``--final``."""
        operate(tmp_path / "restored", None)
        path = tmp_path / "backup" / "curator.sqlite3"
        whole = path.read_bytes()
        path.write_bytes(
            {"emptied": b"", "cut": whole[:-4096], "changed": whole[:9000] + b"zzzz" + whole[9004:]}[damage]
        )
        for final in (True, False):
            self.refuses(tmp_path / "backup", "not what was backed up", final=final)
        assert not (tmp_path / "restored" / "curator.sqlite3").exists()

    def test_a_private_file_that_was_altered(self, tmp_path: Path, source: World, operate: Callable[..., None]) -> None:
        """Catches a copy that is not compared with its digest, on its way out and on its way in."""
        operate(tmp_path / "restored", None)
        (path,) = (tmp_path / "backup" / "vault").glob("d.*.vault")
        original = path.read_bytes()
        path.write_bytes(original[:-70] + b"\x01" + original[-69:])
        self.refuses(tmp_path / "backup", "private file")
        assert not (tmp_path / "restored" / "curator.sqlite3").exists()
        path.write_bytes(original)
        maintenance.restore(tmp_path / "backup", final=True)
        (path,) = (tmp_path / "data" / "vault").glob("d.*.vault")
        path.write_bytes(original[:-70] + b"\x01" + original[-69:])
        operate(tmp_path / "data", None)
        with pytest.raises(StartRefused, match="private file"):
            maintenance.back_up(tmp_path / "second")
        self.refuses(tmp_path / "second", "not a whole backup")

    def test_a_folder_in_use(self, tmp_path: Path, source: World, operate: Callable[..., None]) -> None:
        """Catches a restore over a database, beside a server, or among the private files of another service."""
        operate(tmp_path / "data", None)
        self.refuses(tmp_path / "backup", "not empty")
        with pytest.raises(StartRefused, match="not empty"):
            maintenance.back_up(tmp_path / "backup")
        with launching(tmp_path / "restored", None) as launcher:
            launcher.start().wait_until_ready()
            operate(tmp_path / "restored", None)
            self.refuses(tmp_path / "backup", "stop it first")
        strange = tmp_path / "third" / "vault"
        strange.mkdir(parents=True)
        (strange / "other.0123456789abcdef.vault").write_bytes(b"somebody's")
        operate(tmp_path / "third", None)
        self.refuses(tmp_path / "backup", "not in the backup")
        assert (strange / "other.0123456789abcdef.vault").exists()

    def test_beside_another_restore(self, tmp_path: Path, source: World, operate: Callable[..., None]) -> None:
        """A second one by mistake, while the first is at work. Catches one that is refused and, on its way out,
        removes what the first is making.
        """
        folder = tmp_path / "restored"
        folder.mkdir()
        operate(folder, None)
        first = DataDirLock(folder)
        first.acquire()
        (folder / ".restoring.sqlite3").write_bytes(b"the first one's rows")
        self.refuses(tmp_path / "backup", "stop it first")
        assert (folder / ".restoring.sqlite3").read_bytes() == b"the first one's rows"
        first.release()
        maintenance.restore(tmp_path / "backup", final=True)
        assert not (folder / ".restoring.sqlite3").exists()

    def test_another_vault_key(self, tmp_path: Path, source: World, operate: Callable[..., None]) -> None:
        """Catches files restored under a key that cannot open them."""
        operate(tmp_path / "restored", None, vault_key=base64.b64encode(bytes(32)).decode())
        self.refuses(tmp_path / "backup", "private file")

    def test_a_newer_program_s_backup(self, tmp_path: Path, source: World, operate: Callable[..., None]) -> None:
        """Catches rows of a schema that this program does not know."""
        with sqlite3.connect(tmp_path / "backup" / "curator.sqlite3") as connection:
            connection.execute("UPDATE alembic_version SET version_num = '29991231_later'")
        connection.close()
        operate(tmp_path / "restored", None)
        manifest = tmp_path / "backup" / "backup.json"
        rows = hashlib.sha256((tmp_path / "backup" / "curator.sqlite3").read_bytes()).hexdigest()
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"database_sha256": rows}))
        self.refuses(tmp_path / "backup", "newer")

    def test_a_restore_that_is_cut_short_is_done_again(
        self, tmp_path: Path, source: World, operate: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last step fails. Catches a database that is there before it is whole, and leavings in the way of the
        second try.
        """
        operate(tmp_path / "restored", None)
        with monkeypatch.context() as patch:
            patch.setattr(durable, "move", lambda *_: (_ for _ in ()).throw(OSError("no space")))
            with pytest.raises(OSError, match="no space"):
                maintenance.restore(tmp_path / "backup", final=True)
        left = (tmp_path / "restored").glob("*.sqlite3*")
        assert [path.name for path in left] in ([], ["curator.sqlite3.lock"])
        maintenance.restore(tmp_path / "backup", final=True)
        world = make_world(tmp_path / "restored")
        assert books(world) == books(source)
        world.stop()


def test_a_data_set_that_goes_while_it_is_copied(
    tmp_path: Path, source: World, operate: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retired after the rows were read and before its file was. Catches a backup that names a file which it lacks."""
    fetch, gone = backups._fetch, list[str]()

    def late(place: Blobs, name: str, folder: Path) -> None:
        if not gone:
            gone.append("e")
            source.built.services.retirement.retire(ADMIN, "e")
        fetch(place, name, folder)

    monkeypatch.setattr(backups, "_fetch", late)
    assert maintenance.back_up(tmp_path / "second") == 1
    assert [path.name.split(".")[0] for path in (tmp_path / "second" / "vault").iterdir()] == ["d"]
    monkeypatch.setattr(backups, "_TRIES", 1)
    shutil.rmtree(tmp_path / "second")
    (path,) = (tmp_path / "data" / "vault").glob("d.*.vault")
    path.unlink()
    with pytest.raises(StartRefused, match="not in the vault"):
        maintenance.back_up(tmp_path / "second")


def test_modes(tmp_path: Path, source: World) -> None:
    """A backup holds what a server's folder holds. Catches one that others can read."""
    for path in [tmp_path / "backup", *(tmp_path / "backup").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
