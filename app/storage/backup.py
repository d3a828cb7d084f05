"""A copy of everything that is stored, which is the same whichever database it came from and goes into either.

A backup is a folder: ``curator.sqlite3`` with every row as of one moment, at the revision of the program that made
it; ``vault`` with the private files that those rows name, verified; ``keys``; and ``backup.json``, written last: a
folder without it is no backup. It holds all that a server's own folder holds and is kept like it (mode 0700).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, insert, select, text

from app.storage.blobs import Blobs
from app.storage.database import make_engines
from app.storage.keys import make_private_folder
from app.storage.migrate import migrate
from app.storage.store import SqlStore
from app.storage.tables import metadata
from app.storage.vault import Vault, VaultEntry, VaultMissing, is_file
from curator_client import durable

FORMAT = 1
DATABASE, VAULT, KEYS, MANIFEST = "curator.sqlite3", "vault", "keys", "backup.json"
#: Most rows, and about most bytes, written at a time.
_ROWS, _BYTES = 1000, 1 << 22
#: Bytes of a file that are copied at a time.
_PIECE = 1 << 20
#: Data sets that may be retired while one backup is made.
_TRIES = 20


class NotABackup(Exception):
    """The folder is not a whole backup, or not one that this program can read."""


class NotEmpty(Exception):
    """There is something where a new folder or database is needed."""


def back_up(engine: Engine, vault: Blobs, keys: Path, vault_key: bytes | None, folder: Path, made_at: str) -> int:
    """Write a backup into a new folder, beside running servers; how many private files are in it.

    Raises:
        NotEmpty: when something lies in the folder.
        VaultError: when a private file is not what was registered.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise NotEmpty(f"{folder} is not empty: name a new folder")
    folder.chmod(0o700)
    for tries_left in reversed(range(_TRIES)):
        _save_rows(engine, folder / DATABASE)
        entries = private_files(folder / DATABASE)
        # After the rows: the key that digests are made with is there before the first row that has one.
        _copy_files(keys, folder / KEYS, [path.name for path in _files(keys)])
        try:
            make_private_folder(folder / VAULT)
            for entry in entries:
                _fetch(vault, entry.file_name, folder / VAULT)
            copied = Vault(folder / VAULT, vault_key, keys_folder=folder / KEYS)
            for entry in entries:
                copied.verify(entry)
            break
        except (FileNotFoundError, VaultMissing):
            # Retired since the rows were read; then the next reading of them tells.
            if not tries_left:
                raise VaultMissing("a private file that a data set names is not in the vault") from None
            shutil.rmtree(folder / VAULT, ignore_errors=True)
    digest = _digest(folder / DATABASE)
    manifest = {"database_sha256": digest, "format": FORMAT, "made_at": made_at, "private_files": len(entries)}
    durable.write(folder / MANIFEST, json.dumps(manifest).encode())
    return len(entries)


def check(folder: Path) -> None:
    """Raise NotABackup unless the folder is a whole backup of a format that this program reads, with the rows that were
    written. Private files are held against their rows as they are put back."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        known = manifest["format"] == FORMAT
        # Those of before had no digest.
        altered = "database_sha256" in manifest and manifest["database_sha256"] != _digest(folder / DATABASE)
    except (OSError, ValueError, KeyError, TypeError):
        raise NotABackup(f"{folder} is not a whole backup: there is no {MANIFEST} that can be read") from None
    if not known:
        raise NotABackup(f"{folder} is a backup of another format than {FORMAT}: use the program that made it")
    if altered:
        raise NotABackup(f"{folder / DATABASE} is not what was backed up: copy the backup anew, or take another one")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def private_files(database: Path) -> list[VaultEntry]:
    """The private files that a backup's rows name: those of data sets that are not retired."""
    store = open_copy(database)
    try:
        with store.read() as tx:
            entries = [row.vault_entry for row in tx.datasets() if row.retired_at is None]
            return [VaultEntry(entry["file_name"], entry["digest"]) for entry in entries]
    finally:
        store.close()


def open_copy(database: Path) -> SqlStore:
    """A store over a backup's rows."""
    return SqlStore(*make_engines(f"sqlite:///{database}"), exclusive=True)


def take_rows(folder: Path, database: Path) -> None:
    """A backup's rows in a database of their own, brought to the newest revision.

    Raises:
        NewerDatabase: when a newer program made the backup.
    """
    remove(database)
    shutil.copyfile(folder / DATABASE, database)
    database.chmod(0o600)
    _, writing = make_engines(f"sqlite:///{database}")
    try:
        migrate(writing)
    finally:
        writing.dispose()


def take_files(folder: Path, vault: Blobs, keys: Path, vault_key: bytes | None, entries: Sequence[VaultEntry]) -> None:
    """Put a backup's private files, verified, and its keys in their places.

    Raises:
        NotEmpty: when other files lie there.
        VaultError: when a file is not what was registered, or the vault key is another.
    """
    names = [entry.file_name for entry in entries]
    there = set(vault.names())
    if any(is_file(name) for name in there.difference(names)):
        raise NotEmpty(
            "there are private files that are not in the backup: name a new CURATOR_DATA_DIR or CURATOR_VAULT_URL"
        )
    for path in _files(folder / KEYS):
        if (keys / path.name).exists() and (keys / path.name).read_bytes() != path.read_bytes():
            raise NotEmpty(f"{keys} holds other keys than the backup: name a new CURATOR_DATA_DIR")
    copied = Vault(folder / VAULT, vault_key, keys_folder=folder / KEYS)
    for entry in entries:
        copied.verify(entry)
    _copy_files(folder / KEYS, keys, [path.name for path in _files(folder / KEYS)])
    # What an interrupted restore has put is whole, and stays.
    for name in set(names) - there:
        with (folder / VAULT / name).open("rb") as file:
            vault.put(name, iter(lambda: file.read(_PIECE), b""))
    for entry in entries:
        Vault(vault, vault_key, keys_folder=keys).verify(entry)


def check_no_files(vault: Blobs) -> None:
    """Raise NotEmpty where there are private files: none is restored, and a server would remove these."""
    if any(is_file(name) for name in vault.names()):
        raise NotEmpty("there are private files: name a new CURATOR_DATA_DIR, and a new CURATOR_VAULT_URL if it is set")


def check_new(folder: Path) -> None:
    """Raise NotEmpty when a data folder has more in it than an interrupted restore leaves."""
    if any(path.name not in (VAULT, KEYS) and path.suffix != ".lock" for path in folder.iterdir()):
        raise NotEmpty(f"{folder} is not empty: name a new CURATOR_DATA_DIR")


def is_empty(engine: Engine) -> bool:
    """Whether no table of a migrated database has a row."""
    with engine.connect() as connection:
        return not any(connection.execute(select(table).limit(1)).first() for table in metadata.sorted_tables)


def pour(database: Path, engine: Engine) -> None:
    """Copy every row of a backup into an empty, migrated database, in one transaction."""
    reading, writing = make_engines(f"sqlite:///{database}")
    try:
        with reading.connect() as source, engine.connect() as target:
            _copy_rows(source, target)
            if target.dialect.name == "postgresql":
                # Rows came with their numbers: the next one is counted from there.
                for table in ("ledger", "evidence", "events"):
                    target.execute(
                        text(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))")  # noqa: S608
                    )
            target.commit()
    finally:
        reading.dispose()
        writing.dispose()


def _parts(database: Path) -> list[Path]:
    return [database.with_name(database.name + ending) for ending in ("", "-wal", "-shm")]


def is_there(database: Path) -> bool:
    """Whether there is anything of an embedded database: also a log that is left of one would be taken for the new."""
    return any(path.exists() for path in _parts(database))


def remove(database: Path) -> None:
    """Remove an embedded database with what belongs to it."""
    for path in _parts(database):
        path.unlink(missing_ok=True)


def _save_rows(engine: Engine, path: Path) -> None:
    remove(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    reading, writing = make_engines(f"sqlite:///{path}")
    try:
        migrate(writing)
        with engine.connect() as source, writing.connect() as target:
            _copy_rows(source, target)
            target.commit()
    finally:
        reading.dispose()
        writing.dispose()


def _copy_rows(source: Connection, target: Connection) -> None:
    """Every row of every table, as of the moment that the source's first reading fixes."""
    for table in metadata.sorted_tables:
        rows = source.execution_options(yield_per=_ROWS).execute(select(table).order_by(*table.primary_key.columns))
        for group in _groups(dict(row._mapping) for row in rows):
            target.execute(insert(table), group)


def _groups(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(len(value) for value in row.values() if isinstance(value, bytes | str))
        if len(group) == _ROWS or size > _BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


def _copy_files(source: Path, target: Path, names: Sequence[str]) -> None:
    make_private_folder(target)
    for name in names:
        with durable.written(target / name) as sink, (source / name).open("rb") as file:
            shutil.copyfileobj(file, sink, _PIECE)


def _fetch(place: Blobs, name: str, folder: Path) -> None:
    with place.open(name) as opened, durable.written(folder / name) as sink:
        shutil.copyfileobj(opened.file, sink, _PIECE)
