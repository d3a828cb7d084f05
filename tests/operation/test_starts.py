"""What keeps a server from starting: a second one on the same database, and settings that a person can mend."""

from __future__ import annotations

import base64
import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import psycopg
import pytest
from structlog.testing import capture_logs

from app.bootstrap import preconditions
from app.bootstrap.preconditions import StartRefused
from app.settings import Settings
from app.storage import database
from app.storage.database import _SERVING, DataDirLock
from tests.answering.test_held_rows import plain
from tests.kit.patience import patience
from tests.kit.servers import Caller, Server, curator, launching
from tests.kit.service import people, serving
from tests.kit.world import eventually
from tests.operation.test_workers import COUNTS

pytestmark = pytest.mark.integration


def refused(folder: Path, url: str | None, *arguments: str, **settings: str) -> str:
    """What a command says that does not start: a sentence, and nothing of the machinery."""
    done = curator(folder, url, *(arguments or ("serve", "--port", "0")), **settings)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


class TestOneServerADatabase:
    def test_under_whatever_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two data folders, one database. Catches a second server, or a command that changes what is stored, that is
        told of the database by its absolute name, a relative one, a link, or a link to its folder: each process would
        believe its own memory, and spend the budget again.
        """
        real = tmp_path / "databases"
        real.mkdir()
        (tmp_path / "link.sqlite3").symlink_to(real / "x.sqlite3")
        (tmp_path / "folder").symlink_to(real)
        relative = os.path.relpath(real / "x.sqlite3", Path(__file__).resolve().parents[2])
        names = [
            f"/{real / 'x.sqlite3'}",
            relative,
            f"/{tmp_path / 'link.sqlite3'}",
            f"/{tmp_path / 'folder/x.sqlite3'}",
        ]
        with launching(tmp_path / "one", f"sqlite:///{names[2]}") as launcher:
            first = launcher.start().wait_until_ready()
            for name in names:
                said = refused(tmp_path / "two", f"sqlite:///{name}")
                assert "another process already serves the database" in said
            for command in (["migrate"], ["forfeit", "--yes"]):
                assert "already serves the database" in refused(tmp_path / "two", f"sqlite:///{names[0]}", *command)
            assert (
                curator(tmp_path / "one", f"sqlite:///{names[0]}", "backup", str(tmp_path / "backup")).returncode == 0
            )
            for command in (["restore", str(tmp_path / "backup")], ["vault", "rotate"]):
                key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
                said = refused(tmp_path / "three", f"sqlite:///{names[0]}", *command, vault_key=key)
                assert "already serves the database" in said
            assert Caller(first.url).http.get("/readyz").status_code == 200
            first.kill()
            launcher.start().wait_until_ready()

    def test_the_one_in_a_data_folder(self, tmp_path: Path) -> None:
        """The embedded database of one data folder named by URL beside another. Catches two locks for one database."""
        with launching(tmp_path / "one", None) as launcher:
            launcher.start().wait_until_ready()
            url = f"sqlite:///{tmp_path / 'one' / 'curator.sqlite3'}"
            assert "already serves the database" in refused(tmp_path / "two", url)

    def test_a_file_of_several_names(self, tmp_path: Path) -> None:
        """A hard link has no lock and no write-ahead log in common with the file it is one with."""
        url = f"sqlite:///{tmp_path / 'x.sqlite3'}"
        assert curator(tmp_path / "one", url, "migrate").returncode == 0
        (tmp_path / "y.sqlite3").hardlink_to(tmp_path / "x.sqlite3")
        assert "hard link" in refused(tmp_path / "one", url)

    def test_a_restore_goes_where_the_server_looks(self, tmp_path: Path) -> None:
        """A restore to a named embedded database. Catches rows put into the data folder, where nobody looks for them,
        and a database that is there already written over.
        """
        url = f"sqlite:///{tmp_path / 'x.sqlite3'}"
        with launching(tmp_path / "one", None) as launcher:
            Caller(launcher.start().wait_until_ready().url).register("people", COUNTS)
        assert curator(tmp_path / "one", None, "backup", str(tmp_path / "backup")).returncode == 0
        done = curator(tmp_path / "two", url, "restore", "--final", str(tmp_path / "backup"))
        assert done.returncode == 0, done.stderr
        with launching(tmp_path / "two", url) as launcher:
            admin = Caller(launcher.start().wait_until_ready().url)
            assert [item["name"] for item in admin.get("/v1/datasets")["items"]] == ["people"]
        assert not (tmp_path / "two" / "curator.sqlite3").exists()
        said = refused(tmp_path / "three", url, "restore", "--final", str(tmp_path / "backup"))
        assert "the database is not empty" in said


class TestSettings:
    def test_a_database_of_another_kind(self, tmp_path: Path) -> None:
        """Catches a stack trace, and a password repeated. What to write is named."""
        said = refused(tmp_path, "mysql://root:hunter2@x/y")
        assert "CURATOR_DATABASE_URL: expected postgresql://" in said
        assert "hunter2" not in said

    def test_folders_that_are_none(self, tmp_path: Path) -> None:
        """Catches an error number instead of what to change."""
        (tmp_path / "file").write_text("")
        said = refused(tmp_path / "file", None)
        assert "CURATOR_DATA_DIR" in said
        assert "name a folder" in said
        assert "Errno" not in said
        said = refused(tmp_path / "data", f"sqlite:///{tmp_path / 'none' / 'x.sqlite3'}")
        assert "CURATOR_DATABASE_URL" in said

    def test_another_vault_key(self, tmp_path: Path) -> None:
        """With another one, or with none, nothing is served; with one damaged file all else is. Catches a server that
        puts new files under a key that opens no other, or in the clear."""
        own, other = (base64.b64encode(bytes([k]) * 32).decode() for k in (1, 2))
        with serving(tmp_path, vault_key=own) as service:
            names = [people(service) for _ in range(2)]
        before = sorted((tmp_path / "vault").iterdir())
        for key in (other, ""):
            said = refused(tmp_path, None, vault_key=key)
            assert "CURATOR_VAULT_KEY" in said
            assert "curator vault rotate" in said
        assert sorted((tmp_path / "vault").iterdir()) == before
        damaged = next(path for path in before if path.name.startswith(names[0]))
        damaged.write_bytes(b"CURVLT1E" + bytes(400))
        with serving(tmp_path, vault_key=own) as service:
            kept = service.principal("analyst").post("/v1/plans", json={"dataset": names[1], "epsilon": 0.1})
            assert kept.status_code == 200

    def test_an_address_that_cannot_be_had(self, tmp_path: Path) -> None:
        """Catches a server that says it serves, and then that it does not."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            for arguments in (["--port", port], ["--host", "300.1.1.1", "--port", "0"]):
                done = curator(tmp_path, None, "serve", *arguments)
                assert done.returncode == 1
                assert "name another --host or --port" in " ".join(done.stderr.split())
                assert '"serving"' not in done.stdout + done.stderr

    def test_a_misspelt_setting(self, tmp_path: Path) -> None:
        """The nearest name is told; of a word that is near none, nothing is guessed."""
        said = refused(tmp_path, None, "migrate", queue_limti="hunter2", zzz="1")
        assert "CURATOR_QUEUE_LIMTI (did you mean CURATOR_QUEUE_LIMIT?)" in said
        assert "CURATOR_ZZZ" in said
        assert "CURATOR_ZZZ (" not in said
        assert "hunter2" not in said
        assert not (tmp_path / "curator.sqlite3").exists()


def cut(url: str) -> None:
    """End every connection to a database, as its restart does; when this returns they have ended, and hold nothing."""
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def holders(url: str) -> int:
    """How many hold the lock of a database."""
    with psycopg.connect(plain(url)) as connection:
        (found,) = connection.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database "
            "WHERE locktype = 'advisory' AND datname = current_database() AND granted AND objid = %s",
            [_SERVING],  # beside it one of the processes holds that of who leads
        ).fetchone() or (0,)
        return int(found)


@pytest.mark.postgres
class TestCommandsBesideServers:
    """One PostgreSQL database and several data folders, as on several hosts."""

    def test_from_another_folder(self, tmp_path: Path, postgres_url: str) -> None:
        """Catches a command kept out by a lock in its own folder alone: budgets forfeited under a running server, files
        under two keys. After a restart of the database, which no server ends with, it is kept out again; a server may
        be started beside another; and when all have ended, by force too, the command may go on.
        """
        key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
        with launching(tmp_path / "one", postgres_url) as launcher:
            first, second = launcher.start(workers=2), launcher.start()
            for server in (first, second):
                server.wait_until_ready()
            eventually(lambda: holders(postgres_url) == 4)  # a supervisor, its workers, and the other server
            for command in (["forfeit", "--yes"], ["vault", "rotate"], ["restore", str(tmp_path)]):
                assert "already serves the database" in refused(tmp_path / "two", postgres_url, *command, vault_key=key)
            cut(postgres_url)
            eventually(lambda: holders(postgres_url) == 4)
            assert first.alive()
            assert second.alive()
            assert "already serves the database" in refused(tmp_path / "two", postgres_url, "forfeit", "--yes")
            second.kill()
            os.kill(first.pid, signal.SIGTERM)
            assert first.wait_until_ended()
            assert "held again" in launcher.logs()
            assert "Traceback" not in launcher.logs()
        done = curator(tmp_path / "two", postgres_url, "forfeit", "--yes")
        assert done.returncode == 0, done.stderr
        eventually(lambda: holders(postgres_url) == 0)

    def test_a_server_beside_a_command(
        self, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Catches a server that starts under a command, or waits for its end; a running one that ends because a command
        got in while its own lock was lost, or never takes it again; and a command that lost its lock and says nothing.
        """
        monkeypatch.setattr(database, "_WATCH_SECONDS", 0.2)
        for folder in ("one", "two", "three"):
            (tmp_path / folder).mkdir()
        settings = Settings(data_dir=tmp_path / "two", database_url=postgres_url)
        with preconditions.standing_still(settings):
            started = time.monotonic()
            said = refused(tmp_path / "one", postgres_url)
            assert "already serves the database of CURATOR_DATABASE_URL alone, such as a change of keys" in said
            assert time.monotonic() - started < patience(20)
        with pytest.raises(StartRefused, match="it is done, but"), preconditions.standing_still(settings):
            cut(postgres_url)
        server, command = (DataDirLock(tmp_path / folder, None, postgres_url) for folder in ("one", "three"))
        looks, held = threading.Event(), database._ServerLock.held
        monkeypatch.setattr(database._ServerLock, "held", lambda lock: looks.wait(30) and held(lock))
        with capture_logs() as logs:
            server.acquire(shared=True)
            cut(postgres_url)
            command.acquire()  # before the server has looked
            looks.set()
            eventually(lambda: [each for each in logs if each["log_level"] == "error"])
            command.release()
            eventually(lambda: holders(postgres_url) == 1)
            eventually(lambda: len(logs) == 3)  # it is told after it has happened
        assert [each["log_level"] for each in logs] == ["warning", "error", "warning"]
        with pytest.raises(StartRefused, match="stop it first"), preconditions.standing_still(settings):
            pass
        server.release()
        eventually(lambda: holders(postgres_url) == 0)


@pytest.mark.postgres
def test_a_data_folder_of_its_own(tmp_path: Path, postgres_url: str) -> None:
    """A second server on one PostgreSQL database, beside an empty data folder. Catches one that says no more than that
    something is wrong: what is missing, and that the folder must be shared, is in the log at the start and at /readyz.
    """
    with launching(tmp_path / "one", postgres_url) as launcher:
        Caller(launcher.start().wait_until_ready().url).register("people", COUNTS)
    with launching(tmp_path / "two", postgres_url) as launcher:
        server = launcher.start()
        refusal = eventually(lambda: readiness(server), 60)
        assert refusal.status_code == 503
        said = refusal.json()["detail"]
        for words in (said, launcher.logs()):
            assert "CURATOR_DATA_DIR" in words
            assert "share" in words
        assert "people" not in said
        assert '"people"' in launcher.logs()


def readiness(server: Server) -> httpx.Response | None:
    """What /readyz says; None while nobody is there to say it."""
    try:
        return Caller(server.url).http.get("/readyz")
    except httpx.TransportError:
        return None
