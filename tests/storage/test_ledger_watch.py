"""What a data folder notes of its database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.services.ports import DatasetRow, LedgerRow
from app.storage.blobs import FileNote
from app.storage.database import make_engines
from app.storage.ledger_watch import NAME, LedgerWatch, OldDatabase
from app.storage.store import SqlStore
from tests.kit.databases import place_migrated

pytestmark = pytest.mark.unit


def database(path: Path, *data_sets: str, moved_at: str | None = None) -> SqlStore:
    """An embedded database with data sets, and a movement in the first one's ledger."""
    place_migrated(path)
    reading, writing = make_engines(f"sqlite:///{path}")
    store = SqlStore(reading, writing, exclusive=True)
    with store.write() as tx:
        for name in data_sets:
            tx.add_dataset(DatasetRow(name, {}, None, {}, {}, "2026-01-01T00:00:00.000000Z"))
        if moved_at is not None:
            tx.move_ledger([LedgerRow(data_sets[0], None, "forfeit", "1", None, None, moved_at)])
        tx.commit()
    return store


class TestOldDatabase:
    def test_other_data_sets(self, tmp_path: Path) -> None:
        """Data was registered and nobody has asked yet. Catches an empty database, named by mistake, that is taken for
        this folder's as no ledger has moved: its start sweeps every private file away.
        """
        mine, empty = database(tmp_path / "mine", "people"), database(tmp_path / "empty")
        LedgerWatch(FileNote(tmp_path / NAME), mine).reset()
        LedgerWatch(FileNote(tmp_path / NAME), mine).check()
        with pytest.raises(OldDatabase):
            LedgerWatch(FileNote(tmp_path / NAME), empty).check()
        mine.close()
        empty.close()

    def test_another_movement_of_the_same_number(self, tmp_path: Path) -> None:
        """Another database is as long, or longer: a copy that went on by itself. Catches one that is told by how many
        movements it has, and one that is refused for having gone on.
        """
        mine = database(tmp_path / "mine", "people", moved_at="2026-01-01T00:00:01.000000Z")
        other = database(tmp_path / "other", "people", "more", moved_at="2026-01-01T00:00:02.000000Z")
        LedgerWatch(FileNote(tmp_path / NAME), mine).reset()
        with mine.write() as tx:
            tx.move_ledger([LedgerRow("people", None, "forfeit", "1", None, None, "2026-01-01T00:00:03.000000Z")])
            tx.commit()
        LedgerWatch(FileNote(tmp_path / NAME), mine).check()
        with pytest.raises(OldDatabase):
            LedgerWatch(FileNote(tmp_path / NAME), other).check()
        mine.close()
        other.close()

    def test_a_movement_that_is_not_there(self, tmp_path: Path) -> None:
        """Catches a copy that lacks the last movement and has as many data sets."""
        mine = database(tmp_path / "mine", "people", moved_at="2026-01-01T00:00:01.000000Z")
        (tmp_path / NAME).write_text("1 1 2026-01-01T00:00:01.000000Z\n")
        LedgerWatch(FileNote(tmp_path / NAME), mine).check()
        (tmp_path / NAME).write_text("2 1 2026-01-01T00:00:02.000000Z\n")
        with pytest.raises(OldDatabase):
            LedgerWatch(FileNote(tmp_path / NAME), mine).check()
        mine.close()


def test_replicas_with_the_same_process_number(tmp_path: Path) -> None:
    """Containers number their processes from 1, each for itself, and share the folder. Catches two of them that write
    through one temporary file: one takes it away from the other, or puts an empty one in place.
    """
    place_migrated(tmp_path / "curator.sqlite3")
    reading, writing = make_engines(f"sqlite:///{tmp_path / 'curator.sqlite3'}")
    store = SqlStore(reading, writing, exclusive=True)

    def write(watch: LedgerWatch) -> None:
        for _ in range(100):
            watch.reset()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [LedgerWatch(FileNote(tmp_path / NAME), store) for _ in range(4)]))
    store.close()
    assert (tmp_path / NAME).read_text() == "0 0\n"
    assert not list(tmp_path.glob(".*"))
