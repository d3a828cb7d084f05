"""Bring a database to the newest revision."""

from __future__ import annotations

import os
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

#: Any number, the same for all processes: who holds it migrates, the others wait.
_LOCK = 0x6375_7261


def migrations_folder() -> Path:
    """Where the revisions lie: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    if connection is not None:
        config.attributes["connection"] = connection
    return config


class NewerDatabase(Exception):
    """The database was migrated by a newer program; there is no way back."""


def _check_known(connection: Connection, scripts: ScriptDirectory) -> str | None:
    """The database's revision, None for an empty database.

    Raises:
        NewerDatabase: when this program does not know it.
    """
    found = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in scripts.walk_revisions()}
    if found is not None and found not in known:
        raise NewerDatabase(
            f"the database is at revision {found}, which this program does not know: it was migrated by a newer one. "
            "Run that one; a database does not go back"
        )
    return found


def _keep_private(file: Path) -> None:
    """Let nobody else read an embedded database, whatever folder it lies in; SQLite's other files are made as it is."""
    if not file.exists():
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    for each in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        if each.exists() and each.stat().st_mode & 0o077:
            each.chmod(0o600)


def migrate(engine: Engine) -> None:
    """Apply every pending migration; processes that do so at once take turns.

    Raises:
        NewerDatabase: when the database is ahead of this program; it is left as it is.
    """
    if engine.dialect.name == "sqlite" and engine.url.database:
        _keep_private(Path(engine.url.database))
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        scripts = ScriptDirectory.from_config(_config())
        if _check_known(connection, scripts) != scripts.get_current_head():
            command.upgrade(_config(connection), "head")
        connection.commit()


def pending(engine: Engine) -> bool:
    """Whether the database is behind the newest revision.

    Raises:
        NewerDatabase: when it is ahead of it.
    """
    scripts = ScriptDirectory.from_config(_config())
    with engine.connect() as connection:
        return _check_known(connection, scripts) != scripts.get_current_head()
