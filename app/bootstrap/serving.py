"""Serving: `curator serve`, and the application of each of its worker processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from functools import partial

import structlog
import uvicorn
from fastapi import FastAPI
from threadpoolctl import threadpool_limits
from uvicorn.config import STARTUP_FAILURE

from app.bootstrap import log_keys
from app.bootstrap.lifecycle import DRAIN_SECONDS
from app.bootstrap.logs import configure_logs
from app.bootstrap.places import check_place, note_of_ledger, place_of_files
from app.bootstrap.preconditions import StartRefused, check_address, data_lock, operators_settings
from app.bootstrap.process import (
    allow_open_files,
    end_with_supervisor,
    forbid_core_dumps,
    share_heaps,
    single_threaded,
)
from app.bootstrap.wiring import build
from app.http.metrics import forget_others, shared_folder, sharing
from app.server.protocol import HttpProtocol
from app.server.workers import Supervisor
from app.services.ports import StoreConflict
from app.settings import Settings
from app.storage.database import AlreadyServed, is_sqlite, make_engines
from app.storage.ledger_watch import LedgerWatch, OldDatabase
from app.storage.migrate import NewerDatabase, pending
from app.storage.migrate import migrate as apply_migrations
from curator_client.version import __version__

logger = structlog.get_logger(__name__)

#: Seconds without a sign of life after which a worker is taken for hung and replaced. An update of a large hypothesis,
#: or a registration, may well keep one silent for minutes.
WORKER_SECONDS = 600
#: Open files beside those of connections: the database, private files, libraries.
SPARE_FILES = 1024


def prepare(settings: Settings) -> None:
    """Make the data folder, bring the database up to date, give the operator a key, and make that of the log.

    Raises:
        StartRefused: when a database other than the embedded one is behind its migrations; when a database is ahead of
            this program, or older than the data folder; when the admin key, the log's or that of private files cannot
            be used; or when the object store of private files cannot be asked, or would not keep them.
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
            check_place(place_of_files(settings, writing))
            LedgerWatch(note_of_ledger(settings), built.store).check()
        except OldDatabase as error:
            raise StartRefused(str(error)) from None
        with built.store.read() as tx:
            files = tx.vault_entries().values()
        if built.private.is_foreign(files):
            # What is registered now would lie under another key than all else, or in the clear.
            raise StartRefused(
                "CURATOR_VAULT_KEY: private files were written with another key, or with none: set that one, or change "
                "it by `curator vault rotate`"
            )
        try:
            key = settings.admin_key.get_secret_value() if settings.admin_key else None
            try:
                made = built.services.principals.ensure_operator(key)
            except StoreConflict:  # another server made its first start at the same time
                made = built.services.principals.ensure_operator(key)
        except ValueError as error:
            raise StartRefused(f"CURATOR_ADMIN_KEY: {error}") from None
        if made is not None:  # before anything else may fail: it is kept nowhere
            print(f"admin key (shown this once): {made}", flush=True)  # noqa: T201
        log_keys.settle(settings, built.store)
    finally:
        built.store.close()
        reading.dispose()
        writing.dispose()


def application() -> FastAPI:
    """The application of one worker process, from the environment."""
    settings = Settings()
    forbid_core_dumps()
    share_heaps()
    end_with_supervisor()
    configure_logs(settings.log_level)
    # Lanes and workers use all cores already. A linear algebra library that splits small products over its own threads
    # waits for the slowest of them, which on a busy machine takes many times as long as the product.
    threadpool_limits(1, "blas")
    if multiprocessing.parent_process() is None:
        app = build(settings).app  # this process holds the lock already
    else:
        # When the supervisor dies its lock is gone, and workers still drain: each holds the lock itself.
        app = build(settings, shared=shared_folder(), lock=data_lock(settings)).app
    # What is loaded by now stays: later garbage collections need not visit it while answers wait.
    gc.collect()
    gc.freeze()
    return app


def serve(host: str, port: int, workers: int) -> None:
    """Serve until SIGTERM.

    Raises:
        StartRefused: when the settings do not allow it; the message says what to change.
    """
    settings = operators_settings()
    configure_logs(settings.log_level)
    embedded = is_sqlite(settings.sqlalchemy_url)
    if embedded and workers > 1:
        raise StartRefused(
            "the embedded database is served by one process: leave --workers at 1, or set CURATOR_DATABASE_URL to a "
            "PostgreSQL database"
        )
    # uvicorn raises SIGTERM again when it has drained. Then, as before it has started, the process ends with code 0.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    lock = data_lock(settings)
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
        check_address(host, port)
        prepare(settings)
        allow_open_files(2 * settings.max_connections + SPARE_FILES)
        logger.info(
            "serving",
            version=__version__,
            host=host,
            port=port,
            workers=workers,
            database="embedded" if embedded else "server",
        )
        config = uvicorn.Config(
            "app.bootstrap.serving:application",
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
            os.environ.update(single_threaded())  # that of what workers are forked from
            with sharing() as folder:
                forget = partial(forget_others, folder)
                supervisor = Supervisor(config, [config.bind_socket()], forget, "app.bootstrap.home")
                supervisor.run()
            if supervisor.failed:
                sys.exit(STARTUP_FAILURE)
        else:
            server = uvicorn.Server(config)
            with suppress(KeyboardInterrupt):  # raised again by uvicorn when it has drained
                server.run()
            if not server.started:
                sys.exit(STARTUP_FAILURE)
    finally:
        logger.info("stopped")
        lock.release()
