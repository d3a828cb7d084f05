"""Wiring: the only place where parts are put together. Importing it opens and reads nothing."""

from __future__ import annotations

import ctypes
import gc
import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TextIO, cast

import structlog
import uvicorn
from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError
from threadpoolctl import threadpool_limits
from uvicorn.config import STARTUP_FAILURE

from app.http import problems
from app.http.app import create_app
from app.http.bodies import Room
from app.http.context import Context
from app.http.deadline import Deadline
from app.http.delivery import Delivery
from app.http.door import Door
from app.http.heavy import FairQueue
from app.http.metrics import Levels, Metrics, forget_others, shared_folder, sharing
from app.http.protocol import Protocol as HttpProtocol
from app.http.workers import Supervisor
from app.privacy.noise import DiscreteLaplace, NoiseBlock
from app.privacy.race import PoissonCounts
from app.services.answering import NOISE_BLOCK, Answering
from app.services.datasets import Datasets
from app.services.exports import ExportSpace
from app.services.loading import sweep_snapshots
from app.services.ports import StoreConflict
from app.services.principals import Principals
from app.services.replies import ReplyKeeper
from app.services.services import Services
from app.services.sessions import Sessions
from app.services.upkeep import forfeit as forfeit_all
from app.services.upkeep import reseal
from app.settings import Settings, nearest_variable, unknown_variables
from app.storage import backup as backups
from app.storage.database import AlreadyServed, DataDirLock, database_bytes, is_sqlite, make_engines
from app.storage.migrate import NewerDatabase, pending
from app.storage.migrate import migrate as apply_migrations
from app.storage.private_store import VaultResealer, VaultStore
from app.storage.snapshots import SnapshotFiles
from app.storage.store import SqlStore
from app.storage.vault import Vault, VaultError
from app.storage.witness import OldDatabase, Witness

log = structlog.get_logger(__name__)

#: How times are written, in records and log lines.
SECONDS = "%Y-%m-%dT%H:%M:%SZ"
DRAIN_SECONDS = 30
#: A worker that lives and gives no sign of it for so long is taken for hung and replaced: an update of a large
#: hypothesis, or a registration, may well keep one silent for minutes.
WORKER_SECONDS = 600
#: Plans made at a time, and states rebuilt for transcripts and hypotheses, each of the size of a universe.
PLANS, EXPORTS = 2, 2
PLAN_SECONDS = 20.0
LOST_FILES = (
    "the data folder lacks private files of the database's data sets, or holds altered ones: put them back. All "
    "servers of one database share one data folder (CURATOR_DATA_DIR)"
)
#: Open files beside those of connections: the database, private files, libraries.
SPARE_FILES = 1024
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
#: Heaps of the C library that all threads share: those that hold the interpreter's lock are one at a time.
HEAPS = 2
_M_ARENA_MAX = -8


class StartRefused(Exception):
    """The server does not start; the message says what to change."""


def utc_now() -> str:
    """The time as the records keep it: UTC, RFC 3339, whole seconds. All that leaves with a time has it from here."""
    return datetime.fromtimestamp(time.time(), UTC).strftime(SECONDS)


class SystemNoise:
    """Noise from OpenDP, drawn ahead in blocks."""

    def laplace(self, scale: Any) -> NoiseBlock:
        """Discrete Laplace noise of this exact scale in grid units."""
        return NoiseBlock(DiscreteLaplace(scale), NOISE_BLOCK)

    def poisson(self, mean: Any, cut: int) -> PoissonCounts:
        """Secret counts of a race, from the system's generator."""
        return PoissonCounts(mean, cut)


@dataclass(frozen=True)
class Built:
    """A wired service."""

    app: FastAPI
    context: Context
    store: SqlStore

    @property
    def services(self) -> Services:
        """The use cases."""
        return self.context.services


class Beside(Protocol):
    """Work that goes on beside the service."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End soon."""


class Lifecycle:
    """Starts and stops the parts of a service in their order, and says whether they can work.

    Args:
        settings: the operator's.
        store: the database.
        private: the private files.
        snapshots: the snapshots of sessions.
        answering: the lanes.
        datasets: the use cases of data sets, of which some may have been interrupted.
        metrics: where the levels are told.
        beside: what is started last, and stopped after the lanes.
        database_bytes: measures the database.
        lock: held while the service runs; None where the process holds it already.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store: SqlStore,
        private: VaultStore,
        snapshots: SnapshotFiles,
        answering: Answering,
        datasets: Datasets,
        metrics: Metrics,
        beside: Sequence[Beside],
        database_bytes: Callable[[], int],
        lock: DataDirLock | None,
    ) -> None:
        self._settings, self._store, self._private, self._snapshots = settings, store, private, snapshots
        self._answering, self._datasets, self._metrics, self._beside = answering, datasets, metrics, beside
        self._database_bytes, self._lock = database_bytes, lock

    def start(self) -> None:
        """Begin to serve, after what an earlier process left unfinished is finished."""
        if self._lock is not None:
            self._lock.acquire(shared=True)
        self._answering.start()
        self._datasets.recover()
        sweep_snapshots(self._store, self._snapshots)
        for work in self._beside:
            work.start()
        self._metrics.watch(self._levels, self._database_bytes)
        vault = self._settings.vault_dir
        missing = [name for name, entry in self._files().items() if not (vault / entry["file_name"]).exists()]
        if missing:
            log.error("private files are missing", datasets=missing, advice=LOST_FILES)

    def stop(self) -> None:
        """Answer what waits, and let go of everything."""
        self._metrics.stop()
        self._answering.stop(DRAIN_SECONDS)
        for work in self._beside:
            work.stop()
        self._store.close()
        if self._lock is not None:
            self._lock.release()

    def ready(self) -> str | None:
        """Why the service cannot work now, in words for its operator; None when it can."""
        try:
            self._store.ping()
            lost = [name for name, entry in self._files().items() if not self._private.usable(entry)]
            # A data set that was retired meanwhile has no file any more, and needs none.
            lost = [name for name in lost if name in self._files()]
        except SQLAlchemyError:
            return "the database cannot be reached"
        if lost:
            log.error("private files cannot be used", datasets=lost, advice=LOST_FILES)
            return LOST_FILES
        return "answers wait for a commit that keeps failing" if self._answering.stalled else None

    def _files(self) -> dict[str, dict[str, str]]:
        """The vault's entries of the data sets that are not retired, by name."""
        with self._store.read() as tx:
            return tx.vault_entries()

    def _levels(self) -> Levels:
        return Levels(self._answering.waiting, *self._answering.residents, self._settings.memory_limit)


class _LogLines:
    """Standard error for log lines. One that finds no room there (a full disk, a reader that is gone) is dropped: what
    it tells of must go on, above all a lane that waits for room to store its answers.
    """

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


class _LibraryLogs(logging.Handler):
    """What libraries complain of, as lines like all others: which library, and the type of its error. Their words and
    stack traces could hold anything, such as the values of a statement that failed. The HTTP server's own words, where
    there is no error behind them, are of ports and processes: without them nobody knew that a port is taken.
    """

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[0] if record.exc_info else None
        words = {"words": record.getMessage()} if record.name == "uvicorn.error" and error is None else {}
        log.warning("a library complains", library=record.name, error=error.__name__ if error else None, **words)


def configure_logs(level: str) -> None:
    """JSON lines on standard error."""
    number = getattr(logging, level.upper())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt=SECONDS, utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _LogLines())),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    if not any(isinstance(handler, _LibraryLogs) for handler in root.handlers):
        root.addHandler(_LibraryLogs(logging.WARNING))


def forbid_core_dumps() -> None:
    """No core file and no attaching debugger of another user: memory holds private numbers and noise."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def share_heaps() -> None:
    """Have all threads share a few heaps of the C library, which otherwise gives nearly every thread one of its own.

    Each heap keeps what was the most that its threads ever had at a time. Where threads take turns that is many times
    what all of them need, and it grows for hours. What the operator has set holds; libraries without such heaps have
    no such switch.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, HEAPS)


def allow_open_files(number: int) -> None:
    """Raise this process' own limit of open files as far as the system lets it, and say so where that is not enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < number:
        granted = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, granted), hard))
        if granted < number:
            log.warning("fewer files may be open than connections need", allowed=granted, needed=number)


def end_with_parent() -> None:
    """Drain and end when the process that supervises the workers dies: orphans would go on holding its port."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if not parent.is_alive():  # it died while this one was starting, before it asked to be told
            sys.exit(0)


def build(settings: Settings, noise: Any = None, shared: Path | None = None, lock: DataDirLock | None = None) -> Built:
    """Wire a service. ``noise`` replaces the system's, for tests; ``shared`` is where several workers count, ``lock``
    what each of them shares with the others while it runs.
    """
    reading, writing = make_engines(settings.sqlalchemy_url)
    store = SqlStore(reading, writing, exclusive=is_sqlite(settings.sqlalchemy_url))
    vault = Vault(settings.vault_dir, settings.vault_key_bytes(), keys_folder=settings.keys_dir)
    private = VaultStore(vault, settings.memory_limit, store.settle)
    snapshots = SnapshotFiles(settings.snapshots_dir, settings.snapshot_limit)
    share = settings.memory_limit // 4
    source, metrics, delivery = noise or SystemNoise(), Metrics(shared), Delivery()
    answering = Answering(
        store,
        private,
        source,
        snapshots,
        utc_now,
        metrics,
        render=problems.document,
        deliver=delivery,
        defer=delivery.defer,
        queue_limit=settings.queue_limit,
        memory_limit=settings.memory_limit - share,
        turn_seconds=settings.request_timeout_seconds,
    )
    datasets = Datasets(store, private, utc_now, memory_limit=settings.memory_limit, close_session=answering.close_now)
    sessions = Sessions(store, private, source, utc_now, datasets, snapshots)

    lifecycle = Lifecycle(
        settings,
        store=store,
        private=private,
        snapshots=snapshots,
        answering=answering,
        datasets=datasets,
        metrics=metrics,
        beside=[Witness(settings.data_dir, store), ReplyKeeper(store, utc_now)],
        database_bytes=lambda: database_bytes(reading, settings.embedded_database),
        lock=lock,
    )
    services = Services(Principals(store, utc_now), datasets, sessions, answering)
    door = Door(services.principals, settings, metrics.refused)
    context = Context(
        services=services,
        lifecycle=lifecycle,
        limits=settings,
        door=door,
        plans=FairQueue(PLANS, metrics.refused, door.worked, PLAN_SECONDS),
        exports=FairQueue(EXPORTS, metrics.refused, door.worked),
        export_space=ExportSpace(settings.exports_dir, share, settings.export_limit, metrics.refused),
        room=Room(max(settings.memory_limit // 4, settings.max_body_bytes), metrics.refused),
        delivery=delivery,
        deadline=Deadline(settings.answer_deadline_ms, metrics.late),
        metrics=metrics,
    )
    return Built(create_app(context), context, store)


def prepare(settings: Settings) -> None:
    """Make the data folder, bring the database up to date, and give the operator a key.

    Raises:
        StartRefused: when another database than the embedded one is behind its migrations, either is ahead of this
            program or older than the data folder, or the admin key cannot be used.
    """
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    built = build(settings)
    reading, writing = make_engines(settings.sqlalchemy_url)
    try:
        try:
            if is_sqlite(settings.sqlalchemy_url):
                apply_migrations(writing)
            elif pending(reading):
                raise StartRefused("the database is behind its migrations: run `curator migrate` first")
        except NewerDatabase as error:
            raise StartRefused(str(error)) from None
        try:
            Witness(settings.data_dir, built.store).check()
        except OldDatabase as error:
            raise StartRefused(str(error)) from None
        try:
            key = settings.admin_key.get_secret_value() if settings.admin_key else None
            try:
                made = built.services.principals.ensure_operator(key)
            except StoreConflict:  # another server made its first start in the same moment
                made = built.services.principals.ensure_operator(key)
        except ValueError as error:
            raise StartRefused(f"CURATOR_ADMIN_KEY: {error}") from None
        if made is not None:
            print(f"admin key (shown this once): {made}", flush=True)  # noqa: T201
    finally:
        built.store.close()
        reading.dispose()
        writing.dispose()


def application() -> FastAPI:
    """The application of one worker process, from the environment."""
    settings = Settings()
    forbid_core_dumps()
    share_heaps()
    end_with_parent()
    configure_logs(settings.log_level)
    # Lanes and workers share the cores already: linear algebra that splits small products over threads of its own makes
    # each wait for the slowest of them, which on a busy machine costs many times what the product does.
    threadpool_limits(1, "blas")
    if multiprocessing.parent_process() is None:  # which holds the lock already
        app = build(settings).app
    else:
        # The supervisor's own ends with it, and workers drain without it: each keeps others out by itself.
        app = build(settings, shared=shared_folder(), lock=_lock(settings)).app
    # What is loaded by now stays: full collections need not look through it while answers wait.
    gc.collect()
    gc.freeze()
    return app


def serve(host: str, port: int, workers: int) -> None:
    """Serve until SIGTERM.

    Raises:
        StartRefused: when the settings do not allow it; the message says what to change.
    """
    settings = _operators_settings()
    configure_logs(settings.log_level)
    embedded = is_sqlite(settings.sqlalchemy_url)
    if embedded and workers > 1:
        raise StartRefused(
            "the embedded database is served by one process: leave --workers at 1, or set CURATOR_DATABASE_URL to a "
            "PostgreSQL database"
        )
    # The server hands SIGTERM on when it has drained; then, or before it has begun, the process ends well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    lock = _lock(settings)
    try:
        lock.acquire(shared=not embedded)
    except AlreadyServed as error:
        raise StartRefused(
            f"{error}: an embedded database is one process; set CURATOR_DATABASE_URL to a PostgreSQL database to run "
            "several"
            if embedded
            else f"{error} alone, such as a change of keys: wait until it is done"
        ) from None
    try:
        prepare(settings)
        allow_open_files(2 * settings.max_connections + SPARE_FILES)
        log.info("serving", host=host, port=port, workers=workers, database="embedded" if embedded else "server")
        config = uvicorn.Config(
            "app.bootstrap:application",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            timeout_worker_healthcheck=WORKER_SECONDS,
            server_header=False,
            proxy_headers=settings.trusted_proxies is not None,
            forwarded_allow_ips=settings.trusted_proxies,
            http=HttpProtocol,
            ws="none",
        )
        if workers > 1:
            with sharing() as folder:
                supervisor = Supervisor(config, [config.bind_socket()], partial(forget_others, folder))
                supervisor.run()
            if supervisor.failed:
                sys.exit(STARTUP_FAILURE)
        else:
            server = uvicorn.Server(config)
            with suppress(KeyboardInterrupt):  # which it hands on when it has drained
                server.run()
            if not server.started:
                sys.exit(STARTUP_FAILURE)
    finally:
        log.info("stopped")
        lock.release()


def _lock(settings: Settings) -> DataDirLock:
    """The lock of the data folder, which is made where it is missing, and of the database.

    Raises:
        StartRefused: when there cannot be such a folder or database.
    """
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise StartRefused(f"CURATOR_DATA_DIR: {settings.data_dir} is, or lies below, a file: name a folder") from None
    file = settings.embedded_database
    if file is not None:
        if not file.parent.is_dir():
            raise StartRefused(f"CURATOR_DATABASE_URL: there is no folder {file.parent}: make it, or name another")
        if file.exists() and file.stat().st_nlink > 1:
            # Under each of its names it would have another write-ahead log, and another lock.
            raise StartRefused(f"the database {file} has another name, a hard link: remove that, or copy the file")
    return DataDirLock(settings.data_dir, file, settings.sqlalchemy_url if file is None else None)


@contextmanager
def _standing_still(settings: Settings) -> Iterator[None]:
    """The data folder and the database to oneself, with no server on them."""
    lock = _lock(settings)
    try:
        lock.acquire()
    except AlreadyServed as error:
        raise StartRefused(
            f"{error}: stop it first (CURATOR_DATA_DIR and CURATOR_DATABASE_URL name what this works on)"
        ) from None
    try:
        yield
        if lock.lost():
            raise StartRefused(
                "it is done, but the connection to the database was lost meanwhile, which kept servers out: stop those "
                "that were started, and run it again"
            )
    except (NewerDatabase, OldDatabase, backups.NotABackup, backups.NotEmpty) as error:
        raise StartRefused(str(error)) from None
    except VaultError as error:
        raise StartRefused(f"a private file cannot be used: {error}") from None
    finally:
        lock.release()


def _operators_settings() -> Settings:
    """The settings of a command that works on what is stored.

    Raises:
        StartRefused: when a `CURATOR_*` variable is none of them.
    """
    unknown = unknown_variables(os.environ)
    if unknown:
        near = {name: nearest_variable(name) for name in unknown}
        words = [f"{name} (did you mean {meant}?)" if meant else name for name, meant in near.items()]
        raise StartRefused(f"unknown settings: {', '.join(words)}")
    forbid_core_dumps()
    return Settings()


def migrate() -> None:
    """Apply pending migrations to the configured database.

    Raises:
        StartRefused: when a setting is unknown, an embedded database is being served, or the database is ahead of this
            program.
    """
    settings = _operators_settings()
    _, writing = make_engines(settings.sqlalchemy_url)
    try:
        # Servers of a PostgreSQL database may go on; those of the next version wait for this.
        with _standing_still(settings) if is_sqlite(settings.sqlalchemy_url) else nullcontext():
            apply_migrations(writing)
    except NewerDatabase as error:
        raise StartRefused(str(error)) from None
    finally:
        writing.dispose()


def back_up(folder: Path) -> int:
    """Write a backup of the configured service into a new folder, also while it runs; the number of private files.

    Raises:
        StartRefused: when the folder is not empty, the database is not at this program's revision, or a private
            file is not what was registered.
    """
    settings = _operators_settings()
    reading, writing = make_engines(settings.sqlalchemy_url)
    try:
        _check_there(settings)
        if pending(reading):
            raise StartRefused("the database is behind its migrations: run `curator migrate` first")
        return backups.back_up(
            reading, settings.vault_dir, settings.keys_dir, settings.vault_key_bytes(), folder, utc_now()
        )
    except (NewerDatabase, backups.NotEmpty) as error:
        raise StartRefused(str(error)) from None
    except VaultError as error:
        raise StartRefused(f"a private file cannot be used: {error}") from None
    finally:
        reading.dispose()
        writing.dispose()


def restore(folder: Path, *, final: bool) -> None:
    """Put a backup into an empty data folder and database; all of it or nothing, the database last.

    ``final`` says that nothing was asked since the backup was made, there or anywhere: everything goes on. Without
    it the records alone come back, and every budget counts as spent: see :func:`app.services.upkeep.forfeit`.

    Raises:
        StartRefused: when there is something already, or the folder is no backup that can be used.
    """
    settings = _operators_settings()
    place = settings.embedded_database
    reading, writing = make_engines(settings.sqlalchemy_url)
    # Beside the place that it is to take, as only there it can do so in one step.
    copy = (place or settings.data_dir / backups.DATABASE).with_name(".restoring.sqlite3")
    try:
        with _standing_still(settings):
            backups.check(folder)
            try:
                backups.remove(copy)
                backups.check_new(settings.data_dir)
                if place is not None and backups.is_there(place):
                    raise StartRefused("the database is not empty: name a new CURATOR_DATABASE_URL")
                if place is None:
                    apply_migrations(writing)
                    if not backups.is_empty(reading):
                        raise StartRefused("the database is not empty: name a new CURATOR_DATABASE_URL")
                backups.take_rows(folder, copy)
                if final:
                    backups.take_files(
                        folder,
                        settings.vault_dir,
                        settings.keys_dir,
                        settings.vault_key_bytes(),
                        backups.private_files(copy),
                    )
                else:
                    store = backups.open_copy(copy)
                    forfeit_all(store, utc_now)
                    store.close()
                if place is not None:
                    backups.settle(copy, place)
                else:
                    backups.pour(copy, writing)
            finally:
                # While the folder is this command's alone: later it could be another one's copy.
                backups.remove(copy)
    finally:
        reading.dispose()
        writing.dispose()


def forfeit() -> None:
    """Take the configured database for an old copy: see :func:`app.services.upkeep.forfeit`.

    Raises:
        StartRefused: when a server is running.
    """
    settings = _operators_settings()
    with _standing_still(settings):
        store = _store_as_it_is(settings)
        try:
            forfeit_all(store, utc_now)
            Witness(settings.data_dir, store).reset()
        finally:
            store.close()


def rotate_vault() -> int:
    """Put every private file under CURATOR_VAULT_KEY; how many there were to do.

    Raises:
        StartRefused: when no such key is set, a server is running, the database is older than the data folder or
            another one's, or a file opens with neither key.
    """
    settings = _operators_settings()
    key = settings.vault_key_bytes()
    if key is None:
        raise StartRefused("set CURATOR_VAULT_KEY to the new key, CURATOR_VAULT_OLD_KEY to the old one if there is one")
    with _standing_still(settings):
        store = _store_as_it_is(settings)
        try:
            # Files that no row names are removed at the end: the rows must be those of this folder.
            Witness(settings.data_dir, store).check()
            old, new = (
                Vault(settings.vault_dir, each, keys_folder=settings.keys_dir)
                for each in (settings.vault_old_key_bytes(), key)
            )
            done, lost = reseal(store, VaultResealer(old, new, store.settle))
        finally:
            store.close()
    if lost:
        raise StartRefused(
            f"{done} private files are under the new key; neither CURATOR_VAULT_KEY nor CURATOR_VAULT_OLD_KEY opens "
            f"those of {', '.join(lost)}"
        )
    return done


def _store_as_it_is(settings: Settings) -> SqlStore:
    """The configured database, which must be there and at this program's revision."""
    _check_there(settings)
    reading, writing = make_engines(settings.sqlalchemy_url)
    if pending(reading):
        reading.dispose()
        writing.dispose()
        raise StartRefused("the database is behind its migrations: run `curator migrate` first")
    return SqlStore(reading, writing, exclusive=is_sqlite(settings.sqlalchemy_url))


def _check_there(settings: Settings) -> None:
    """Raise StartRefused where there is no embedded database: to connect would make one."""
    file = settings.embedded_database
    if file is not None and not file.exists():
        raise StartRefused(f"there is no database {file}")
