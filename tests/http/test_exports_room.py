"""Room for exports, and who gets it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.services.errors import TooManyRequests, Unavailable
from app.services.exports import KEPT, MOST_EACH, READER_BYTES, Export, ExportSpace

pytestmark = pytest.mark.unit


def nothing(*_: Any) -> None:
    """Nobody hears of it."""


def space(
    folder: Path, memory: int = 1 << 30, disk: int = 1 << 30, refused: Callable[[str], None] = nothing
) -> ExportSpace:
    return ExportSpace(folder, memory, disk, refused)


def read(export: Export) -> bytes:
    return b"".join(export.parts())


class TestRoom:
    def test_so_many_of_each_and_of_all(self, tmp_path: Path) -> None:
        """A principal has half of the places at most, and never more than MOST_EACH. Would catch one who has them all,
        places that are not given back, and a refusal that is not counted."""
        told: list[str] = []
        room = space(tmp_path, memory=2 * 6 * READER_BYTES, refused=told.append)
        hers = [room.open("ann") for _ in range(3)]
        with pytest.raises(TooManyRequests) as refused:
            room.open("ann")
        assert refused.value.retry_after > 0
        his = [room.open(name) for name in ("bob", "bob", "eve")]
        with pytest.raises(Unavailable):
            room.open("bob")
        assert told == ["exports"] * 2
        for export in hers:
            export.close()
            export.close()
        assert [room.open("ann") for _ in range(3)]
        assert his
        wide = space(tmp_path)
        assert [wide.open("ann") for _ in range(MOST_EACH)]
        with pytest.raises(TooManyRequests):
            wide.open("ann")
        assert space(tmp_path, memory=1).open("ann")

    def test_disk(self, tmp_path: Path) -> None:
        """Half of it is the most that one principal's exports take together, unless it is one alone. Would catch a disk
        that one fills for all, and a largest export that nobody could have."""
        room = space(tmp_path / "x" / "exports", disk=16 * KEPT)
        first = room.open("ann")
        for _ in range(16):
            first.write(bytes(KEPT))
        with pytest.raises(Unavailable):
            first.write(b"x")
        with pytest.raises(Unavailable):
            room.open("bob").write(bytes(KEPT + 1))
        first.close()
        second, third, his = room.open("ann"), room.open("ann"), room.open("bob")
        second.write(bytes(6 * KEPT))
        third.write(bytes(2 * KEPT))
        with pytest.raises(Unavailable):
            third.write(b"x")
        his.write(bytes(8 * KEPT))
        assert len(b"".join(his.parts())) == 8 * KEPT
        # What has been read is free, of everybody.
        room.open("eve").write(bytes(8 * KEPT))

    def test_little_ones_touch_no_disk(self, tmp_path: Path) -> None:
        room = space(tmp_path, disk=1)
        export = room.open("ann")
        export.write(b"x" * KEPT)
        assert not export._file._rolled
        assert read(export) == b"x" * KEPT

    def test_files_have_no_names_and_end_with_their_export(self, tmp_path: Path) -> None:
        export = space(tmp_path / "exports").open("ann")
        export.write(bytes(2 * KEPT))
        assert list((tmp_path / "exports").iterdir()) == []
        assert (tmp_path / "exports").stat().st_mode & 0o777 == 0o700
        file = export._file
        export.close()
        assert file.closed

    def test_a_disk_without_room(self, tmp_path: Path) -> None:
        (tmp_path / "exports").write_text("in the way")
        with pytest.raises(Unavailable):
            space(tmp_path / "exports").open("ann").write(b"x")

    def test_memory_is_had_in_turn(self, tmp_path: Path) -> None:
        """One that is larger than all the room is made alone, and before it those who came first. Would catch two of
        them at a time, and small ones that overtake a large one for ever."""
        room = space(tmp_path, memory=200)
        order: list[str] = []
        room.reserve_memory(1000, nothing)

        def waits(name: str, size: int) -> threading.Thread:
            def run() -> None:
                room.reserve_memory(size, nothing)
                order.append(name)

            thread = threading.Thread(target=run)
            waiting = len(room._waiting)
            thread.start()
            while len(room._waiting) == waiting:
                pass
            return thread

        large, small, other = waits("large", 500), waits("small", 10), waits("other", 90)
        assert order == []
        room.release_memory(1000)
        large.join(10)
        assert order == ["large"]
        room.release_memory(500)
        small.join(10)
        other.join(10)
        assert sorted(order[1:]) == ["other", "small"]
        assert room._making == 2

    def test_who_hangs_up_waits_no_more(self, tmp_path: Path) -> None:
        room = space(tmp_path, memory=200)
        room.reserve_memory(100, nothing)

        def gone() -> None:
            raise TimeoutError

        with pytest.raises(TimeoutError):
            room.reserve_memory(100, gone)
        assert not room._waiting
        room.release_memory(100)
        assert room.reserve_memory(100, gone) < 10
