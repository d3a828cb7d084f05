"""What a data folder notes of its database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.storage.database import make_engines
from app.storage.migrate import migrate
from app.storage.store import SqlStore
from app.storage.witness import NAME, Witness


def test_replicas_with_the_same_process_number(tmp_path: Path) -> None:
    """Containers number their processes from 1, each for itself, and share the folder. Catches two of them that write
    through one temporary file: one takes it away from the other, or puts an empty one in place.
    """
    reading, writing = make_engines(f"sqlite:///{tmp_path / 'curator.sqlite3'}")
    migrate(writing)
    store = SqlStore(reading, writing, exclusive=True)

    def write(witness: Witness) -> None:
        for _ in range(100):
            witness.reset()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [Witness(tmp_path, store) for _ in range(4)]))
    store.close()
    assert (tmp_path / NAME).read_text() == "0\n"
    assert not list(tmp_path.glob(".*"))
