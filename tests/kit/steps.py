"""Named steps of a server's work, and what a test has happen at them, inside the server's own process.

The parts of the service are taken as they are; each tells when it passes a step. :func:`install` puts them, or a
planted bug in the place of one, where `app.bootstrap` looks for them. It runs in a child of the launcher and nowhere
else.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import psycopg
from sqlalchemy import Engine, event
from sqlalchemy.engine import make_url

from app.bootstrap import maintenance, noise, places, release_worker, serving, wiring
from app.privacy.noise import NoiseBlock
from app.services import audit_jobs, release_jobs, residents
from app.services.loading import resume_session
from app.services.release_measuring import measured_for
from app.storage import snapshots
from app.storage.blobs import Folder
from app.storage.migrate import migrate
from app.storage.store import SqlStore, SqlTransaction
from app.storage.vault import Vault, VaultEntry

#: Of a server at work, in the order in which a request passes them.
WORKING = (
    "answering: before the noise",
    "answering: after the noise",
    "answering: before the commit",
    "answering: after the commit, before the reply",
    "opening: before the commit",
    "opening: after the commit, before the reply",
    "closing: before the commit",
    "closing: after the commit, before the reply",
    "registering: before the file",
    "registering: within the file",
    "registering: between file and row",
    "registering: before the commit",
    "registering: after the commit, before the reply",
    "retiring: after the commit, before the file goes",
)
#: Of a server that is asked for a release and works on it, in their order.
RELEASING = (
    "releasing: before the commit",
    "releasing: after the commit, before the reply",
    "releasing: before the noise",
    "releasing: after the noise",
    "releasing: before the record",
    "releasing: after the record",
    "releasing: within the fit",
    "releasing: before the end",
    "releasing: after the end",
)
#: Of a server that writes down sessions in use, as one with ``resumed`` in its order does all the time.
KEEPING = ("keeping: within a snapshot", "keeping: before it is in place")
#: Of a start (embedded) or of `curator migrate` on an empty database.
MIGRATING = (
    "migrating: at the beginning",
    "migrating: between two statements",
    "migrating: before the commit",
    "migrating: after the commit",
)
#: Of a server that replies first, which is one of the bugs.
HASTY = "answering: after the reply, before the commit"
#: What a server can have wrong, for a test to find: the name is what an order says.
BUGS = ("reply first", "double charge", "forgotten keys", "no sweep", "drop on failure", "unrecorded", "drawn again")


class Trap:
    """Springs when its step is passed for the n-th time, once.

    Args:
        step: one of the named steps.
        passage: n, from 1.
        act: "die" (SIGKILL to oneself), "linger" (the same a second later), "stop" (SIGSTOP to oneself), or "cut"
            (every other connection to this PostgreSQL database is ended).
        sprung: a file to which the step is added when the trap springs.
    """

    def __init__(self, step: str, passage: int, act: str, sprung: str | None = None) -> None:
        assert step in (*WORKING, *RELEASING, *KEEPING, *MIGRATING, HASTY)
        self._step, self._left, self._act, self._guard = step, passage, act, threading.Lock()
        self._sprung = sprung

    def passed(self, step: str) -> None:
        """Somebody is at a step."""
        if step != self._step:
            return
        with self._guard:
            self._left -= 1
            if self._left == 0:
                if self._sprung is not None:
                    with Path(self._sprung).open("a") as file:
                        file.write(f"{step}\n")
                {"die": die, "linger": linger, "stop": stop, "cut": cut}[self._act]()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def linger() -> None:
    """Die when whoever was told something has had time to hear it."""
    time.sleep(1)
    die()


def stop() -> None:
    """Until SIGCONT, as a debugger, a frozen container or a suspended machine has it."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(2)  # another thread may be the one that takes the signal, and this one go on for a moment


def cut() -> None:
    """End every other connection to the configured database."""
    cut_connections(os.environ["CURATOR_DATABASE_URL"])


def cut_connections(url: str) -> int:
    """End every connection to a PostgreSQL database but one's own; gives how many there were."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        found = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    return len(found)


class Telling(SqlTransaction):
    """A transaction that passes the steps of what it does; with a bug, it does some of it wrongly."""

    def __init__(self, inner: SqlTransaction, passed: Callable[[str], None], bug: str | None) -> None:
        super().__init__(inner.connection)
        self._passed, self._bug = passed, bug
        self._doing: set[str] = set()
        self._together = False

    def append(self, entries: Sequence[Any], weights: Sequence[Any]) -> None:
        released = any(entry.kind == "release" for entry in entries)
        self._doing.add("releasing, its record" if released else "answering")
        super().append([] if released and self._bug == "unrecorded" else entries, weights)

    def add_release(self, row: Any) -> None:
        self._doing.add("releasing")
        super().add_release(row)

    def release(self, id: str) -> Any:
        row = super().release(id)
        if self._bug == "drawn again" and row is not None and row.step == "fitting":
            return replace(row, step="measuring")
        return row

    def move_release(self, row: Any, before: Any) -> bool:
        if row.status == "done":
            self._doing.add("releasing, its end")
        return super().move_release(row, before)

    def move_sessions(self, rows: Sequence[Any]) -> None:
        if any(row.status == "closed" for row in rows):
            self._doing.add("closing")
        super().move_sessions(rows)

    def add_session(self, row: Any, counted: Any = None) -> None:
        self._doing.add("opening")
        super().add_session(row, counted)

    def add_dataset(self, row: Any) -> None:
        self._doing.add("registering")
        super().add_dataset(row)

    def move_ledger(self, rows: Sequence[Any]) -> None:
        charges = [row for row in rows if row.kind == "charge"]
        super().move_ledger([*rows, *charges] if self._bug == "double charge" else rows)

    def add_replies(self, rows: Sequence[Any]) -> None:
        if self._bug != "forgotten keys":
            super().add_replies(rows)

    def commit(self) -> None:
        self._pass("before", "before the commit")
        with self._failing():
            super().commit()
        if not self._together:
            self._committed()

    @contextmanager
    def together(self) -> Iterator[None]:
        """A commit within has happened when this ends."""
        self._together = True
        with self._failing(), super().together():
            yield
        self._committed()

    def _committed(self) -> None:
        self._pass("after", "after the commit, before the reply")

    def _pass(self, when: str, moment: str) -> None:
        for what in self._doing:
            whole, _, part = what.partition(", its ")
            self._passed(f"{whole}: {when} the {part}" if part else f"{whole}: {moment}")

    def _failing(self) -> AbstractContextManager[None]:
        return suppress(Exception) if self._bug == "drop on failure" else nullcontext()


class Hasty(SqlTransaction):
    """Says that it is committed, and is not; but for retirements, whose files would be gone for good."""

    answers = False
    _retires = False

    def append(self, entries: Sequence[Any], weights: Sequence[Any]) -> None:
        self.answers = True
        super().append(entries, weights)

    def retire_dataset(self, name: str, at: str) -> None:
        self._retires = True
        super().retire_dataset(name, at)

    def commit(self) -> None:
        """Nothing yet."""
        if self._retires:
            super().commit()


class ReplyFirst(SqlStore):
    """Commits 30 ms late, or when the next writer comes."""

    def __init__(self, passed: Callable[[str], None], *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._passed = passed
        self._late: tuple[Any, Hasty] | None = None
        self._guard = threading.Lock()

    @contextmanager
    def write(self) -> Iterator[SqlTransaction]:
        self._settle()
        connection = self._writing.connect()
        connection.begin()
        try:
            tx = Hasty(connection)
            yield tx
        except BaseException:
            connection.close()
            raise
        with self._guard:
            self._late = connection, tx
        threading.Timer(0.03, self._settle).start()

    def _settle(self) -> None:
        with self._guard:
            if self._late is not None:
                connection, tx = self._late
                if tx.answers:
                    self._passed(HASTY)
                connection.commit()
                connection.close()
                self._late = None


def install(order: dict[str, Any]) -> None:
    """Put the telling parts in place, as an order says: ``traps`` (each the arguments of a :class:`Trap`), ``bug`` (one
    of :data:`BUGS`), ``clock`` (a file that holds the seconds by which the clock is off), ``armed`` (a file: before it
    is there, no trap counts), ``resumed`` (a file: every session with anything new is written down at once, however
    small, and the file gets a line for each that comes back from what was written down), ``silence`` (seconds after
    which whoever works on a release or an audit is taken for dead).
    """
    bug = order.get("bug")
    assert bug is None or bug in BUGS
    traps = [Trap(*trap) for trap in order.get("traps", ())]
    if "silence" in order:
        release_jobs.SILENT_SECONDS = order["silence"]
        release_jobs.BEAT_SECONDS = order["silence"] / 8
        audit_jobs.SILENT_SECONDS, audit_jobs.TEND_SECONDS = order["silence"], order["silence"] / 8
    if "clock" in order:
        _shift_clock(Path(order["clock"]))

    armed = Path(order["armed"]) if "armed" in order else None
    if "resumed" in order:
        _write_down_everything(Path(order["resumed"]))

    def passed(step: str) -> None:
        if armed is not None and not armed.exists():
            return
        for trap in traps:
            trap.passed(step)

    class TellingStore(SqlStore):
        @contextmanager
        def write(self) -> Iterator[SqlTransaction]:
            with super().write() as tx:
                yield Telling(tx, passed, bug)

    class TellingNoise(NoiseBlock):
        def take(self, n: int) -> Any:
            passed("answering: before the noise")
            taken = super().take(n)
            passed("answering: after the noise")
            return taken

    class TellingFinisher(release_worker.ProcessFinisher):
        def finish(self, job: Any, progress: Any) -> Any:
            def telling(part: float) -> None:
                passed("releasing: within the fit")
                progress(part)

            return super().finish(job, telling)

    class TellingVault(Vault):
        def put(self, *arguments: Any) -> VaultEntry:
            passed("registering: before the file")
            entry = super().put(*arguments)
            passed("registering: between file and row")
            return entry

        def destroy(self, entry: VaultEntry) -> None:
            passed("retiring: after the commit, before the file goes")
            super().destroy(entry)

        def sweep(self, *arguments: Any, **named: Any) -> int | None:
            return 0 if bug == "no sweep" else super().sweep(*arguments, **named)

    class TellingFolder(Folder):
        def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
            def telling() -> Iterator[bytes | memoryview]:
                yield from pieces
                passed("registering: within the file")

            super().put(name, telling())

    snapshot = snapshots._write

    class TellingFile:
        def __init__(self, file: Any) -> None:
            self.seek, self._write = file.seek, file.write

        def write(self, piece: Any) -> int:
            written: int = self._write(piece)
            passed("keeping: within a snapshot")
            return written

    def telling_snapshot(file: Any, facts: Any, arrays: Any) -> None:
        snapshot(cast(BinaryIO, TellingFile(file)), facts, arrays)
        passed("keeping: before it is in place")

    def telling_migrate(engine: Engine) -> None:
        passed("migrating: at the beginning")
        event.listen(engine, "after_cursor_execute", lambda *_: passed("migrating: between two statements"))
        event.listen(engine, "commit", lambda _: passed("migrating: before the commit"))
        migrate(engine)
        passed("migrating: after the commit")

    def telling_measured(*arguments: Any) -> Any:
        passed("releasing: before the noise")
        made = measured_for(*arguments)
        passed("releasing: after the noise")
        return made

    parts: list[tuple[Any, str, Any]] = [
        (release_jobs, "measured_for", telling_measured),
        (wiring, "ProcessFinisher", TellingFinisher),
        (wiring, "SqlStore", partial(ReplyFirst, passed) if bug == "reply first" else TellingStore),
        (wiring, "Vault", TellingVault),
        (places, "Folder", TellingFolder),
        (noise, "NoiseBlock", TellingNoise),
        (serving, "apply_migrations", telling_migrate),
        (maintenance, "apply_migrations", telling_migrate),
    ]
    for module, name, part in parts:
        setattr(module, name, part)
    snapshots._write = telling_snapshot


def _write_down_everything(resumed: Path) -> None:
    """Have sessions written down as if it cost nothing, and told of when they are used."""

    def telling_resume(*arguments: Any) -> Any:
        loaded = resume_session(*arguments)
        if loaded.kept:
            with resumed.open("a") as file:
                file.write(f"{loaded.kept}\n")
        return loaded

    for name, part in (("SNAPSHOT_SHARE", 0), ("resume_session", telling_resume)):
        setattr(residents, name, part)


def _shift_clock(file: Path) -> None:
    """Have the process's clock off by what a file says, as when an operator or a time server sets it."""
    now = time.time

    def shifted() -> float:
        return now() + float(file.read_text())

    time.time = shifted
