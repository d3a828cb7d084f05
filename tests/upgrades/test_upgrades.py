"""Databases of every earlier revision, with data in them, brought to this one: everybody goes on where they were."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData, create_engine, insert, select, text

from app.bootstrap import maintenance, preconditions
from app.storage import migrate as migrations
from app.storage.database import make_engines
from app.storage.migrate import NewerDatabase, migrate, pending
from app.storage.tables import metadata
from tests.integration.servers import curator
from tests.integration.world import ADMIN, AUDITOR, WHOLE, World, make_world, query, sessions_of
from tests.upgrades.record import REVISIONS

RECORDED = sorted(path.name for path in REVISIONS.iterdir())


def known_revisions() -> set[str]:
    return {script.revision for script in ScriptDirectory.from_config(migrations._config()).walk_revisions()}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    """make(url): the service over this test's data folder."""
    made: list[World] = []

    def start(url: str | None) -> World:
        made.append(make_world(tmp_path / "data", url))
        return made[-1]

    yield start
    for world in made:
        world.stop()


def install(revision: str, folder: Path, url: str | None) -> dict[str, Any]:
    """What was recorded at a revision, in a data folder and a database; the facts beside it."""
    facts: dict[str, Any] = json.loads((REVISIONS / revision / "facts.json").read_text())
    folder.mkdir(mode=0o700)
    for name, content in facts["files"].items():
        (folder / name).parent.mkdir(mode=0o700, exist_ok=True)
        (folder / name).write_bytes(base64.b64decode(content))
    path = folder / "curator.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.executescript((REVISIONS / revision / "database.sql").read_text())
    connection.close()
    if url is not None:
        source, (_, target) = create_engine(f"sqlite:///{path}"), make_engines(url)
        migrate(target, revision)
        with source.connect() as reading, target.connect() as writing:
            old, new = reflected(reading), reflected(writing)
            for table in old.sorted_tables:
                rows = [dict(row._mapping) for row in reading.execute(select(table))]
                if rows and table.name != "alembic_version":
                    writing.execute(insert(new.tables[table.name]), rows)
            writing.execute(text("SELECT setval('ledger_id_seq', (SELECT max(id) FROM ledger))"))
            writing.commit()
        source.dispose()
        target.dispose()
        path.unlink()
    return facts


def reflected(connection: Connection) -> MetaData:
    found = MetaData()
    found.reflect(connection)
    return found


def counted(engine: Engine) -> dict[str, int]:
    """How many rows every table has."""
    with engine.connect() as connection:
        return {
            name: len(connection.execute(select(table)).all())
            for name, table in reflected(connection).tables.items()
            if name != "alembic_version"
        }


def lines_of(engine: Engine) -> dict[tuple[str, int], bytes]:
    """Every transcript line, as it is stored."""
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT session, sequence, line FROM entries"))
        return {(row.session, row.sequence): bytes(row.line) for row in rows}


def everybody_goes_on(world: World, facts: dict[str, Any]) -> None:
    """Transcripts replay, the books hold, private files are what was registered, first answers are given again, and
    there are new answers, sessions and data sets.
    """
    services = world.built.services
    assert world.built.context.lifecycle.ready() is None
    world.audit()
    states = {state["id"]: state for state in sessions_of(services, AUDITOR)}
    assert {state["status"] for state in states.values()} == {"open", "closed"}
    ann = world.analyst("ann")
    assert facts["asked"]
    for id, asked in facts["asked"].items():
        for number, (words, value, bound, sequence) in enumerate(asked):
            reply = world.ask(ann, id, words, key=f"{id}-{number}")
            assert (reply["sequence"], reply["value"]) == (sequence, value), "a reply under its key"
            again = world.ask(ann, id, words)
            assert (again["source"], again["value"], again["error_bound"]) == ("cached", value, bound)
        if states[id]["dataset"] == "table":
            assert world.ask(ann, id, query(3, 4))["source"] in ("hypothesis", "measurement")
    assert {row["name"]: row["revoked_at"] is None for row in services.principals.list(ADMIN, "", WHOLE).items} == {
        "admin": True,
        "ann": True,
        "bob": False,
    }
    world.open(ann, "graph", epsilon=0.1)
    with pytest.raises(Exception, match="grant"):
        world.open(ann, "table", epsilon=0.5)
    world.register("new")
    world.ask(ann, world.open(ann, "new"), query(1))
    world.audit()


@pytest.mark.parametrize("revision", RECORDED)
def test_from_every_revision(revision: str, tmp_path: Path, database: str | None, make: Any) -> None:
    """Catches a migration that loses rows, and a program that no longer understands what an older one wrote: a header
    whose plan it would make otherwise, a canonical query that it compiles otherwise, a private file that it cannot
    read. Who has run a release must be able to go on.
    """
    facts = install(revision, tmp_path / "data", database)
    url = database or f"sqlite:///{tmp_path / 'data' / 'curator.sqlite3'}"
    reading, writing = make_engines(url)
    rows, lines = counted(reading), lines_of(reading)
    migrate(writing)
    assert not pending(reading)
    assert {name: count for name, count in counted(reading).items() if name in rows} == rows
    assert lines_of(reading) == lines
    reading.dispose()
    writing.dispose()
    everybody_goes_on(make(database), facts)


@pytest.mark.parametrize("final", [True, False], ids=["final", "an old copy"])
@pytest.mark.parametrize("revision", RECORDED)
def test_a_backup_of_every_revision(
    revision: str, final: bool, tmp_path: Path, database: str | None, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that an older program made goes into this one. Catches rows that are copied before they are migrated,
    and an old copy's sessions of any kind that are not given up.
    """
    facts = install(revision, tmp_path / "backup", None)
    (tmp_path / "backup" / "backup.json").write_text('{"format": 1}')
    monkeypatch.setattr(preconditions, "forbid_core_dumps", lambda: None)
    monkeypatch.setenv("CURATOR_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CURATOR_DATABASE_URL", database or "")
    maintenance.restore(tmp_path / "backup", final=final)
    world = make(database)
    if final:
        everybody_goes_on(world, facts)
        return
    world.audit()
    assert {state["status"] for state in sessions_of(world.built.services, AUDITOR)} == {"closed"}
    for item in world.built.services.datasets.list("", WHOLE).items:
        assert item["status"] == "retired"
        if item["name"] != "gone":
            assert item["budget"]["remaining_epsilon"] == 0


def test_every_revision_is_recorded() -> None:
    """Catches a revision added without a record of the one before it, and one added without its own, which the next
    will need: `python -m tests.upgrades.record`.
    """
    assert set(RECORDED) == known_revisions()


def test_what_is_recorded_is_worth_it() -> None:
    """Catches a record that leaves a table empty: a migration could then lose it unseen."""
    for revision in RECORDED:
        dump = (REVISIONS / revision / "database.sql").read_text()
        with sqlite3.connect(":memory:") as connection:
            connection.executescript(dump)
            kinds = {row[0] for row in connection.execute("SELECT DISTINCT kind FROM entries")}
            tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            empty = [name for name in tables if not connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()]
        connection.close()
        assert kinds == {0, 1, 2, 3, 4}
        assert empty == []


PLANTED = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "29991231_planted", "{head}", None, None
def upgrade():
    {work}
"""


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """plant(work): one more revision, for this test alone."""

    def add(work: str) -> None:
        folder = tmp_path / "migrations"
        shutil.copytree(migrations.migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
        head = ScriptDirectory.from_config(migrations._config()).get_current_head()
        (folder / "versions" / "29991231_planted.py").write_text(PLANTED.format(head=head, work=work))
        monkeypatch.setattr(migrations, "migrations_folder", lambda: folder)

    return add


def test_the_next_revision(tmp_path: Path, database: str | None, make: Any, plant: Any) -> None:
    """The way itself, with a revision that adds a column and fills it. Catches a start that does not migrate the
    embedded database, or that serves another one before it is migrated.
    """
    head = ScriptDirectory.from_config(migrations._config()).get_current_head()
    assert head is not None
    facts = install(head, tmp_path / "data", database)
    plant(
        'op.add_column("sessions", sa.Column("note", sa.String(8)));op.execute("UPDATE sessions SET note = \'kept\'")'
    )
    assert set(RECORDED) != known_revisions(), "the net for a revision without its record"
    reading, writing = make_engines(database or f"sqlite:///{tmp_path / 'data' / 'curator.sqlite3'}")
    assert pending(reading)
    sessions = counted(reading)["sessions"]
    world = make(database)
    assert not pending(reading)
    with reading.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM sessions WHERE note = 'kept'")).scalar_one() == sessions
    reading.dispose()
    writing.dispose()
    everybody_goes_on(world, facts)


@pytest.mark.parametrize(
    "work",
    [
        "op.execute('DELETE FROM entries WHERE kind = 4')",
        "op.execute(\"UPDATE sessions SET spent = '0'\")",
        "op.execute(\"DELETE FROM ledger WHERE kind = 'return'\")",
        "op.execute('DELETE FROM idempotency')",
        "op.execute(\"UPDATE datasets SET vault_entry = replace(vault_entry, '.', '0.') WHERE retired_at IS NULL\")",
        "op.execute('UPDATE datasets SET race_sessions = 0'); op.execute('DELETE FROM weights')",
    ],
)
def test_a_revision_that_loses_something_is_noticed(work: str, tmp_path: Path, make: Any, plant: Any) -> None:
    """The net itself."""
    head = ScriptDirectory.from_config(migrations._config()).get_current_head()
    assert head is not None
    facts = install(head, tmp_path / "data", None)
    plant(work)
    world = make(None)
    with pytest.raises(Exception):  # noqa: B017 - whatever notices it first
        everybody_goes_on(world, facts)


def test_a_database_of_a_newer_program(tmp_path: Path, database: str | None) -> None:
    """Catches a program that serves, or alters, what it does not understand; and a stack trace."""
    url = database or f"sqlite:///{tmp_path / 'curator.sqlite3'}"
    reading, writing = make_engines(url)
    migrate(writing)
    with writing.connect() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '29991231_later'"))
        connection.commit()
    before = counted(reading)
    with pytest.raises(NewerDatabase, match="29991231_later"):
        migrate(writing)
    with pytest.raises(NewerDatabase):
        pending(reading)
    for arguments in (["migrate"], ["serve", "--port", "0"], ["forfeit", "--yes"]):
        done = curator(tmp_path, database, *arguments)
        assert done.returncode == 1, arguments
        assert "newer" in done.stderr
        assert "Traceback" not in done.stderr
    assert counted(reading) == before
    assert set(before) == set(metadata.tables)
    reading.dispose()
    writing.dispose()


def test_there_is_no_way_back() -> None:
    """A downgrade would have to forget what the newer program recorded: none is offered."""
    for path in (migrations.migrations_folder() / "versions").glob("*.py"):
        assert "def downgrade" not in path.read_text()
