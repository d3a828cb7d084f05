"""A database with something of everything in it, brought to the revision of a newer program: everybody goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData, insert, select, text
from sqlalchemy.exc import IntegrityError

from app.bootstrap import maintenance, preconditions
from app.services import ledger_sums, session_opening
from app.spaces.counts import CellCounts
from app.storage import migrate as migrations
from app.storage.database import make_engines
from app.storage.kept_counts import KeptFiles
from app.storage.migrate import NewerDatabase, migrate, pending
from app.storage.tables import metadata
from app.storage.vault import Vault
from curator_client.proofs.notes import Witness
from tests.kit.databases import migrate_all
from tests.kit.servers import curator
from tests.kit.world import (
    ADMIN,
    AUDITOR,
    HIT,
    SHAPE,
    WHOLE,
    World,
    eventually,
    make_world,
    query,
    sessions_of,
    split,
    took,
    wait,
)

pytestmark = pytest.mark.integration

GRAPH = {
    "kind": "graph",
    "nodes": 6,
    "directed": False,
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
WORDS = {"kind": "multiset", "budget": {"epsilon": 1.0, "delta": 1e-6}}
PLANTED = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "29991231_planted", "{head}", None, None
def upgrade():
    op.add_column("sessions", sa.Column("note", sa.String(8)))
    op.execute("UPDATE sessions SET note = 'kept'")
"""

#: What sessions were opened with.
HELD = ("held", "held_pure")
#: What a database of before movements were added up does not have.
DROPPED = ("DROP TABLE ledger_sums", "DROP TABLE ledger_state")
#: What was asked in a session, in order: query, value, error bound, sequence.
Asked = dict[str, list[tuple[dict[str, Any], float, float | None, int]]]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str | None], World]]:
    """make(url): the service over this test's data folder."""
    made: list[World] = []

    def start(url: str | None) -> World:
        if url is not None:
            migrate_all(url)
        made.append(make_world(tmp_path / "data", url))
        return made[-1]

    yield start
    for world in made:
        world.stop()


@pytest.fixture(autouse=True)
def added_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What closed sessions have spent stands as a sum from the next opening on, however few they are."""
    monkeypatch.setattr(session_opening, "SETTLED_FROM", 1)


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """plant(): the program knows one more revision, for this test alone."""

    def add() -> None:
        folder = tmp_path / "migrations"
        head = ScriptDirectory(str(migrations.migrations_folder())).get_current_head()
        shutil.copytree(migrations.migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "versions" / "29991231_planted.py").write_text(PLANTED.format(head=head))
        monkeypatch.setattr(migrations, "migrations_folder", lambda: folder)

    return add


def live(world: World) -> Asked:
    """Make something of everything: data sets of all kinds, sessions open and closed, and what was asked in the open
    ones, each under a key of its own.
    """
    services = world.built.services
    asked: Asked = {}

    def ask(id: str, words: dict[str, Any], noise: float = 0) -> None:
        world.noise.script.append(noise)
        answer = world.ask(ann, id, words, key=f"{id}-{len(asked.setdefault(id, []))}")
        asked[id].append((words, answer["value"], answer["error_bound"], answer["sequence"]))

    ann = world.analyst("ann")
    services.principals.revoke(ADMIN, world.analyst("bob").name)
    for name in ("table", "gone", "left"):
        world.register(name)
    world.register("unknown-mass", records_public=False)
    edges, elements = "\n".join(["0,1", "1,2", "2,3", "3,4"]), "\n".join(["element,count", "the,50", "a,30"])
    world.register_file({**GRAPH, "name": "graph"}, "edges.csv", edges.encode())
    world.register_file({**WORDS, "name": "words"}, "words.csv", elements.encode())
    services.grants.grant(ADMIN, "table", "ann", 0.9)

    first = world.open(ann, "table")
    dense = {"type": "dense", "weights": np.linspace(-1, 1, SHAPE[0] * SHAPE[1]).reshape(SHAPE).tolist()}
    for words, noise in ((query(0), HIT), (query(1), 0), (query(0), 0), (dense, HIT), (query(2, 3), 0)):
        ask(first, words, noise)
    world.ask(ann, first, {**query(3), "unverified": True})
    with_forfeit = world.open(ann, "table", mechanism={"construction": "fk"}, epsilon=0.1)
    ask(with_forfeit, query(0), HIT)
    world.noise.before = _fail
    refused = world.submit(ann, with_forfeit, query(1))
    assert refused.waiter.wait(30)
    assert refused.error is not None
    world.noise.before = lambda: None
    ask(with_forfeit, query(2))
    ask(world.open(ann, "table", release="race", epsilon=0.1), query(1), HIT)
    closed = world.open(ann, "table", epsilon=0.05)
    world.noise.script.append(HIT)
    world.ask(ann, closed, query(0))
    world.close(ann, closed, key="close")
    world.open(ann, "table", epsilon=0.01)  # what was closed before is added up
    ask(world.open(ann, "unknown-mass"), query(1))
    evidence = {"mechanism": {"construction": "evidence"}, "epsilon": 0.1, "max_updates": None}
    ask(world.open(ann, "unknown-mass", **evidence), query(1, 2), 3)
    ask(world.open(ann, "graph"), {"type": "cut", "left": [0, 1, 2], "right": "all"})
    smw = {"construction": "smw", "sparsity": 2}
    ask(world.open(ann, "words", mechanism=smw), {"type": "elements", "weights": {"the": 1.0}})
    workload = {"dataset": "unknown-mass", "workload": {"marginals": 1}, "method": "gaussian", "epsilon": 0.1}
    released = services.opener.open(ann, services.opener.prepare_release(ann, workload, None), None)
    services.jobs.wake()
    eventually(lambda: services.releases.standing(ann, json.loads(released)["id"]).ended)
    services.logins.begin(ADMIN, "the key that an admin showed", "127.0.0.1")
    with world.store.read() as tx:
        row = tx.dataset("table")
    assert row is not None
    vault = Vault(world.folder / "vault", None, keys_folder=world.folder / "keys")
    with world.store.write() as tx:
        told = {
            "name": "c",
            "type": "postgresql",
            "sealed": "s",
            "created_at": "2026-01-01T00:00:00Z",
            "created_by": "admin",
        }
        tx.connection.execute(insert(metadata.tables["connections"]), told)
        job = {"id": "j", "kind": "release", "task": b"t", "status": "waiting", "claims": 0}
        times = dict.fromkeys(("seconds", "created", "wanted", "progress"), 0.0)
        tx.connection.execute(insert(metadata.tables["jobs"]), job | times)
        tx.commit()
    KeptFiles(vault, world.store).of(row.vault_entry["file_name"]).keep(CellCounts((), (), ()), np.array(7))
    world.open(ann, "gone")
    services.retirement.retire(ADMIN, "gone")
    exact = world.open(ann, "left", calibration="exact", epsilon=1.0)
    wait(world.submit(ann, exact, query(0)))
    world.close(ann, exact)
    world.audit()
    audit = services.audits.start(ADMIN, None, None, None)["id"]
    services.audit_jobs.wake()
    eventually(lambda: services.audits.standing(ADMIN, audit).status == "done")
    witness, log = Witness(bytes(32)), services.log
    log.cosignatures.add(ADMIN, witness.verifier.text(), witness.cosign(log.checkpoint(), 0))
    with world.store.read() as tx:
        counts = [tx.count_entries(state["id"], 0, state["sequence"]) for state in sessions_of(services, AUDITOR)]
    assert all(sum(count[kind] for count in counts) for kind in counts[0]), "a kind of entry that there is none of"
    return asked


def _fail() -> None:
    raise ZeroDivisionError


def counted(engine: Engine) -> dict[str, int]:
    """How many rows every table has."""
    with engine.connect() as connection:
        found = MetaData()
        found.reflect(connection)
        return {
            name: len(connection.execute(select(table)).all())
            for name, table in found.tables.items()
            if name != "alembic_version"
        }


def lines_of(engine: Engine) -> dict[tuple[str, int], bytes]:
    """Every transcript line, as it is stored."""
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT session, sequence, line FROM entries"))
        return {(row.session, row.sequence): bytes(row.line) for row in rows}


def everybody_goes_on(world: World, asked: Asked) -> None:
    """Transcripts replay, the books hold, private files are what was registered, first answers are given again, and
    there are new answers, sessions and data sets.
    """
    services = world.built.services
    assert world.built.context.lifecycle.ready() is None
    world.audit()
    states = {state["id"]: state for state in sessions_of(services, AUDITOR)}
    assert {state["status"] for state in states.values()} == {"open", "closed"}
    ann = world.analyst("ann")
    assert asked
    for id, questions in asked.items():
        for number, (words, value, bound, sequence) in enumerate(questions):
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


def test_a_database_goes_on_at_the_next_revision(
    tmp_path: Path, database: str | None, make: Callable[[str | None], World], plant: Callable[[], None]
) -> None:
    """Catches a start that does not migrate the embedded database, or that serves another one before it is migrated; a
    migration that loses rows; and a program that no longer understands what it finds.
    """
    older = make(database)
    asked = live(older)
    older.stop()
    reading, writing = make_engines(database or f"sqlite:///{tmp_path / 'data' / 'curator.sqlite3'}")
    rows, lines = counted(reading), lines_of(reading)
    assert all(rows.values()), "a table without a row: a migration could lose it unseen"
    assert not pending(reading)
    plant()
    assert pending(reading)
    world = make(database)
    assert not pending(reading)
    assert counted(reading) == rows
    assert lines_of(reading) == lines
    with reading.connect() as connection:
        kept = connection.execute(text("SELECT count(*) FROM sessions WHERE note = 'kept'")).scalar_one()
    assert kept == rows["sessions"]
    reading.dispose()
    writing.dispose()
    everybody_goes_on(world, asked)


def check_sums(world: World) -> None:
    """What openings look at is what a pass over all sessions finds, of every data set; there is something."""
    with world.store.read() as tx:
        names = [row.name for row in tx.datasets()]
        taken, passed = ({name: took(look(name)) for name in names} for look in (tx.taken, tx.passed))
    assert taken == passed
    assert any(taken.values())


def test_sessions_of_before_sums_were_kept_count(
    tmp_path: Path, database: str | None, make: Callable[[str | None], World]
) -> None:
    """A database of the revision before, in which sums stood for closed sessions alone. Catches open sessions that are
    in no sum and not passed over, closed ones that are taken off a sum that never had them, and a server of that
    version, still running, whose sums would say that open sessions hold nothing.
    """
    older = make(database)
    asked = live(older)
    older.stop()
    reading, writing = make_engines(database or f"sqlite:///{tmp_path / 'data' / 'curator.sqlite3'}")
    where = "NOT settled" if database else "settled = 0"
    with writing.begin() as connection:
        for statement in (
            "DROP INDEX ix_sessions_uncounted",
            "DROP INDEX ix_sessions_unsettled",
            *(f"ALTER TABLE {table} DROP COLUMN {column}" for table in ("sessions", "standing") for column in HELD),
            f"CREATE INDEX ix_sessions_unsettled ON sessions (dataset) WHERE {where}",
            *DROPPED,
            "UPDATE alembic_version SET version_num = '20261126_jobs'",
        ):
            connection.execute(text(statement))
    assert pending(reading)
    world = make(database)
    check_sums(world)
    sums = "INSERT INTO standing (dataset, owner, pure, spent, spent_pure) VALUES ('table', 'admin', false, '0', NULL)"
    with pytest.raises(IntegrityError), writing.begin() as connection:
        connection.execute(text(sums))
    reading.dispose()
    writing.dispose()
    everybody_goes_on(world, asked)
    ann = world.analyst("ann")
    for id in asked:
        world.close(ann, id)
    world.open(ann, "table", epsilon=0.01)
    check_sums(world)
    world.audit()


def test_movements_of_before_they_were_added_up_are_added_up_by_a_server(
    tmp_path: Path, database: str | None, make: Callable[[str | None], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database of the revision before, whose movements are in no sum. Catches a view that lacks them until they are
    added up, one that has them twice then, and a server that never adds them up.
    """
    monkeypatch.setattr(ledger_sums, "_MOST", 3)
    older = make(database)
    asked = live(older)
    names = [row["name"] for row in older.built.services.datasets.list("", 100).items]
    shown = {name: older.built.services.datasets.describe(name) for name in names}
    older.stop()
    reading, writing = make_engines(database or f"sqlite:///{tmp_path / 'data' / 'curator.sqlite3'}")
    with writing.begin() as connection:
        for statement in (*DROPPED, "UPDATE alembic_version SET version_num = '20261128_held'"):
            connection.execute(text(statement))
    assert pending(reading)
    reading.dispose()
    writing.dispose()
    world = make(database)
    last, _ = world.store.last_movement()
    assert last > 10
    while True:
        with world.store.read() as tx:
            reached = tx.summed_to()
            found = {name: (split(tx.holdings(name)), split(tx.passed(name))) for name in names}
        assert all(moved == passed for moved, passed in found.values())
        assert {name: world.built.services.datasets.describe(name) for name in names} == shown
        if reached == last:
            break
    with world.store.read() as tx:
        assert any(tx.summed(name) for name in names)
    everybody_goes_on(world, asked)


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Asked]:
    """A backup that an older program made of something of everything, and what was asked there. Nobody writes to it."""
    folder = tmp_path_factory.mktemp("older")
    source = make_world(folder / "source")
    try:
        asked = live(source)
    finally:
        source.stop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preconditions, "forbid_core_dumps", lambda: None)
        patch.setenv("CURATOR_DATA_DIR", str(folder / "source"))
        maintenance.back_up(folder / "backup")
    return folder / "backup", asked


@pytest.mark.parametrize("final", [True, False], ids=["final", "an old copy"])
def test_a_backup_goes_into_the_next_revision(
    final: bool,
    tmp_path: Path,
    backup: tuple[Path, Asked],
    database: str | None,
    make: Callable[[str | None], World],
    plant: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backup that an older program made goes into a newer one. Catches rows that are copied before they are migrated,
    and an old copy's sessions of any kind that are not given up.
    """
    folder, asked = backup
    monkeypatch.setattr(preconditions, "forbid_core_dumps", lambda: None)
    plant()
    monkeypatch.setenv("CURATOR_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CURATOR_DATABASE_URL", database or "")
    maintenance.restore(folder, final=final)
    world = make(database)
    if final:
        everybody_goes_on(world, asked)
        return
    world.audit()
    assert {state["status"] for state in sessions_of(world.built.services, AUDITOR)} == {"closed"}
    for item in world.built.services.datasets.list("", WHOLE).items:
        assert item["status"] == "retired"
        if item["name"] != "gone":
            assert item["budget"]["remaining_epsilon"] == 0


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
