"""Preconditions of the operator's commands on stored data: settings, the lock, the database."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

from app.bootstrap.process import forbid_core_dumps
from app.settings import Settings, nearest_variable, unknown_variables
from app.storage import backup as backups
from app.storage.database import AlreadyServed, DataDirLock
from app.storage.ledger_watch import OldDatabase
from app.storage.migrate import NewerDatabase
from app.storage.vault import VaultError


class StartRefused(Exception):
    """The command is not carried out; the message says what to change."""


def operators_settings() -> Settings:
    """The settings of a command that works on stored data, from the environment. Also forbids core dumps.

    Raises:
        StartRefused: when a ``CURATOR_*`` variable is not a setting.
    """
    unknown = unknown_variables(os.environ)
    if unknown:
        near = {name: nearest_variable(name) for name in unknown}
        words = [f"{name} (did you mean {meant}?)" if meant else name for name, meant in near.items()]
        raise StartRefused(f"unknown settings: {', '.join(words)}")
    forbid_core_dumps()
    return Settings()


def data_lock(settings: Settings) -> DataDirLock:
    """The lock of the data folder and of the database. Makes the folder if it is missing.

    Raises:
        StartRefused: when there cannot be such a folder, or the database would not be safe there.
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
            # Each of its names would have its own write-ahead log, and its own lock.
            raise StartRefused(f"the database {file} has another name, a hard link: remove that, or copy the file")
    server = settings.sqlalchemy_url if file is None else None
    return DataDirLock(settings.data_dir, file, server, settings.files_elsewhere)


@contextmanager
def standing_still(settings: Settings) -> Iterator[None]:
    """Hold the data folder and the database alone: no server runs on them.

    Raises:
        StartRefused: when a server runs, or the connection that kept servers out was lost; and for errors of the
            storage that an operator can mend.
    """
    lock = data_lock(settings)
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


def check_address(host: str, port: int) -> None:
    """Check that a server may listen there.

    Raises:
        StartRefused: when another program does, the address is none of this machine's, or it may not.
    """

    async def bind() -> None:
        # As the server will: of a name with several addresses those count that this machine has.
        (await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)).close()

    try:
        asyncio.run(bind())
    except OSError as error:
        raise StartRefused(
            f"nothing can be served at {host} port {port}: {error.strerror}: name another --host or --port"
        ) from None


def check_database_exists(settings: Settings) -> None:
    """Check that the embedded database is there, as to connect to a missing one would make it.

    Raises:
        StartRefused: when it is not.
    """
    file = settings.embedded_database
    if file is not None and not file.exists():
        raise StartRefused(f"there is no database {file}")
