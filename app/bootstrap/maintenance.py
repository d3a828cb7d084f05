"""Commands on stored data: migrations, backups, keys of private files."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from app.bootstrap import log_keys
from app.bootstrap.clock import utc_now
from app.bootstrap.places import check_place, note_of_ledger, place_of_files
from app.bootstrap.preconditions import StartRefused, check_database_exists, operators_settings, standing_still
from app.http import problems
from app.services.upkeep import forfeit as forfeit_all
from app.services.upkeep import reseal
from app.settings import Settings
from app.storage import backup as backups
from app.storage.connections import SealedConnections
from app.storage.database import is_sqlite, make_engines
from app.storage.ledger_watch import LedgerWatch
from app.storage.migrate import NewerDatabase, pending
from app.storage.migrate import migrate as apply_migrations
from app.storage.private_store import VaultResealer
from app.storage.store import SqlStore
from app.storage.vault import Vault, VaultError
from curator_client import durable


def migrate() -> None:
    """Apply pending migrations to the configured database.

    Raises:
        StartRefused: when a setting is unknown, an embedded database is being served, or the database is ahead of this
            program.
    """
    settings = operators_settings()
    _, writing = make_engines(settings.sqlalchemy_url)
    try:
        # Servers on a PostgreSQL database may go on meanwhile; those of the next version wait for this.
        with standing_still(settings) if is_sqlite(settings.sqlalchemy_url) else nullcontext():
            apply_migrations(writing)
    except NewerDatabase as error:
        raise StartRefused(str(error)) from None
    finally:
        writing.dispose()


def back_up(folder: Path) -> int:
    """Write a backup of the configured service into a new folder, also while it runs.

    Returns:
        The number of private files.

    Raises:
        StartRefused: when the folder is not empty, the database is not at this program's revision, or a private
            file is not what was registered.
    """
    settings = operators_settings()
    reading, writing = make_engines(settings.sqlalchemy_url)
    try:
        check_database_exists(settings)
        if pending(reading):
            raise StartRefused("the database is behind its migrations: run `curator migrate` first")
        return backups.back_up(
            reading,
            place_of_files(settings, writing),
            settings.keys_dir,
            settings.vault_key_bytes(),
            folder,
            utc_now(),
        )
    except (NewerDatabase, backups.NotEmpty) as error:
        raise StartRefused(str(error)) from None
    except VaultError as error:
        raise StartRefused(f"a private file cannot be used: {error}") from None
    finally:
        reading.dispose()
        writing.dispose()


def restore(folder: Path, *, final: bool) -> None:
    """Put a backup into an empty data folder and database: all of it or nothing, the database last.

    Args:
        folder: the backup.
        final: whether nothing was asked since the backup was made, on this or any other copy. Then everything goes on.
            Else the records alone come back, and every budget counts as spent: see
            :func:`app.services.upkeep.forfeit`.

    Raises:
        StartRefused: when there is something already, or the folder is no backup that can be used.
    """
    settings = operators_settings()
    embedded = settings.embedded_database
    reading, writing = make_engines(settings.sqlalchemy_url)
    # In the folder of the embedded database, as only within a file system a file replaces another in one step.
    copy = (embedded or settings.data_dir / backups.DATABASE).with_name(".restoring.sqlite3")
    try:
        with standing_still(settings):
            backups.check(folder)
            try:
                backups.remove(copy)
                backups.check_new(settings.data_dir)
                if embedded is not None and backups.is_there(embedded):
                    raise StartRefused("the database is not empty: name a new CURATOR_DATABASE_URL")
                if embedded is None:
                    apply_migrations(writing)
                    if not backups.is_empty(reading):
                        raise StartRefused("the database is not empty: name a new CURATOR_DATABASE_URL")
                backups.take_rows(folder, copy)
                place = place_of_files(settings, writing)
                check_place(place)
                if final:
                    backups.take_files(
                        folder,
                        place,
                        settings.keys_dir,
                        settings.vault_key_bytes(),
                        backups.private_files(copy),
                    )
                else:
                    backups.check_no_files(place)
                    store = backups.open_copy(copy)
                    forfeit_all(store, utc_now, problems.document)
                    log_keys.begin_anew(settings, store)  # keys are not restored
                    store.close()
                if embedded is not None:
                    durable.move(copy, embedded)
                else:
                    backups.pour(copy, writing)
            finally:
                # While this command holds the lock: later it could be the copy of another one.
                backups.remove(copy)
    finally:
        reading.dispose()
        writing.dispose()


def forfeit() -> None:
    """Treat the configured database as an old copy: see :func:`app.services.upkeep.forfeit`.

    Raises:
        StartRefused: when a server is running.
    """
    settings = operators_settings()
    with standing_still(settings):
        store = existing_store(settings)
        try:
            forfeit_all(store, utc_now, problems.document)
            LedgerWatch(note_of_ledger(settings), store).reset()
        finally:
            store.close()


def rotate_vault() -> int:
    """Encrypt every private file with ``CURATOR_VAULT_KEY``.

    Returns:
        The number of files that were not yet.

    Raises:
        StartRefused: when no such key is set, a server is running, the database is older than the data folder or
            another one's, or a file opens with neither key.
    """
    settings = operators_settings()
    key = settings.vault_key_bytes()
    if key is None:
        raise StartRefused("set CURATOR_VAULT_KEY to the new key, CURATOR_VAULT_OLD_KEY to the old one if there is one")
    with standing_still(settings):
        store = existing_store(settings)
        _, engine = make_engines(settings.sqlalchemy_url)
        try:
            # Files that no row names are removed at the end: the rows must belong to this folder.
            LedgerWatch(note_of_ledger(settings), store).check()
            place = place_of_files(settings, engine)
            check_place(place)
            old, new = (
                Vault(place, each, keys_folder=settings.keys_dir, copies=settings.data_dir)
                for each in (settings.vault_old_key_bytes(), key)
            )
            done, lost = reseal(store, VaultResealer(old, new, store.await_writers, settings.data_dir))
            lost += [f"the connection {name}" for name in SealedConnections(new, store, ()).reseal(old)]
        finally:
            engine.dispose()
            store.close()
    if lost:
        raise StartRefused(
            f"{done} private files are under the new key; neither CURATOR_VAULT_KEY nor CURATOR_VAULT_OLD_KEY opens "
            f"those of {', '.join(lost)}"
        )
    return done


def rotate_log(*, lost: bool) -> str:
    """Give the log another key, for which the old one vouches.

    Args:
        lost: the old one is lost, and cannot vouch: the log has another key and another name from the next start on.

    Returns:
        The line of the key, or nothing when it is lost.

    Raises:
        StartRefused: when a server is running, the database is older than the data folder or another one's, the old key
            is not here, or is and was told to be lost.
    """
    settings = operators_settings()
    with standing_still(settings):
        store = existing_store(settings)
        try:
            LedgerWatch(note_of_ledger(settings), store).check()
            if not lost:
                return log_keys.rotate(settings, store).text()
            if not log_keys.begin_anew(settings, store):
                raise StartRefused("the key of the log is here: leave --lost out, so that it vouches for the next one")
            return ""
        finally:
            store.close()


def existing_store(settings: Settings) -> SqlStore:
    """The store on the configured database.

    Raises:
        StartRefused: when there is no database, or it is not at this program's revision.
    """
    check_database_exists(settings)
    reading, writing = make_engines(settings.sqlalchemy_url)
    if pending(reading):
        reading.dispose()
        writing.dispose()
        raise StartRefused("the database is behind its migrations: run `curator migrate` first")
    return SqlStore(reading, writing, exclusive=is_sqlite(settings.sqlalchemy_url))
