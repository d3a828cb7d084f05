"""Exports: the same bytes as in one piece, made without a second one in memory; room for them, and who gets it."""

from __future__ import annotations

import asyncio
import io
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.constructions.base import DenseHypothesis, ListedHypothesis
from app.http import bodies, exports
from app.http.exports import KEPT, PART, READER_BYTES, READERS, Export, Lines, Shelf, whole, write_hypothesis
from app.services.errors import TooManyRequests, Unavailable

SHAPES = [(1,), (5,), (3, 4, 5), (exports._ROWS,), (exports._ROWS + 1,), (257, 3, 129), (2, 0, 3)]


def nothing(*_: Any) -> None:
    """Nobody hears of it."""


def shelf(folder: Path, memory: int = 1 << 30, disk: int = 1 << 30, refused: Callable[[str], None] = nothing) -> Shelf:
    return Shelf(folder, memory, disk, refused)


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Export]:
    made = shelf(tmp_path / "exports").open("ann")
    yield made
    made.close()


def read(export: Export) -> bytes:
    return b"".join(export.parts())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f8", "<f4", ">f8", "<i8"])
def test_an_array_is_what_numpy_saves(export: Export, shape: tuple[int, ...], order: Any, kind: str) -> None:
    """Whatever its layout in memory, around the sizes of blocks. Would catch cells in another order, a block that is
    left out, and a header that says something else."""
    array = np.asarray(np.random.default_rng(1).integers(-9, 9, shape).astype(kind), order=order)
    write_hypothesis(export, DenseHypothesis(array), (), bodies.NPY, {}, nothing)
    expected = io.BytesIO()
    np.save(expected, np.ascontiguousarray(array, "<f8"))
    assert export.size == len(expected.getvalue())
    found = read(export)
    np.testing.assert_array_equal(np.load(io.BytesIO(found)), array)
    assert found[-8 * array.size :] == expected.getvalue()[-8 * array.size :]


def table(media_type: str, content: bytes) -> pa.Table:
    if media_type == bodies.PARQUET:
        return pq.read_table(io.BytesIO(content))
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("media_type", [bodies.ARROW, bodies.PARQUET])
def test_a_table_has_a_row_a_cell(export: Export, shape: tuple[int, ...], order: Any, media_type: str) -> None:
    """Codes along every axis beside the count. Would catch axes that are swapped, and rows that are lost or told twice
    between blocks."""
    array = np.asarray(np.random.default_rng(1).random(shape), order=order)
    names = ("count", "count_", "c")[: len(shape)]
    write_hypothesis(export, DenseHypothesis(array), names, media_type, {"session": "s"}, nothing)
    found = table(media_type, read(export))
    count = "count" + "_" * min(2, len(shape))
    assert found.column_names == [*names, count]
    assert found.schema.metadata[b"session"] == b"s"
    assert {str(found.schema.field(name).type) for name in names} == {"int32"}
    np.testing.assert_array_equal(found[count].to_numpy(), array.reshape(-1, order="C"))
    for name, codes in zip(names, np.indices(shape), strict=True):
        np.testing.assert_array_equal(found[name].to_numpy(), codes.reshape(-1))


@pytest.mark.parametrize("media_type", [bodies.ARROW, bodies.PARQUET])
@pytest.mark.parametrize("count", [0, 1, exports._ROWS, exports._ROWS + 1])
def test_a_table_has_a_row_an_element(export: Export, media_type: str, count: int) -> None:
    elements = tuple(f"é{number}" for number in range(count))
    listed = ListedHypothesis(elements, np.arange(count) / 4, 1.0)
    write_hypothesis(export, listed, (), media_type, {}, nothing)
    found = table(media_type, read(export))
    assert found["element"].to_pylist() == list(elements)
    assert found["count"].to_pylist() == [number / 4 for number in range(count)]


@pytest.mark.parametrize("media_type", [bodies.NPY, bodies.ARROW, bodies.PARQUET])
def test_no_second_one_is_made_in_memory(export: Export, media_type: str) -> None:
    """32 MB in the other layout. Would catch an array that is laid out anew, columns of all cells, and a buffer of the
    whole reply."""
    array = np.asfortranarray(np.random.default_rng(1).random((1024, 4096)))
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    try:
        write_hypothesis(export, DenseHypothesis(array), ("a", "b"), media_type, {}, nothing)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert export.size >= array.nbytes
    assert peak < array.nbytes / 4
    assert pa.total_allocated_bytes() - arrow < array.nbytes / 4


@pytest.mark.parametrize("media_type", [bodies.NPY, bodies.ARROW, bodies.PARQUET])
def test_who_is_not_waited_for_is_not_written_for(export: Export, media_type: str) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        write_hypothesis(export, DenseHypothesis(np.zeros((10, exports._ROWS))), ("a", "b"), media_type, {}, check)
    assert export.size < 3 * 16 * exports._ROWS


class TestRoom:
    def test_so_many_of_each_and_of_all(self, tmp_path: Path) -> None:
        """A principal has half of the places at most, and never more than READERS. Would catch one who has them all,
        places that are not given back, and a refusal that is not counted."""
        told: list[str] = []
        room = shelf(tmp_path, memory=2 * 6 * READER_BYTES, refused=told.append)
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
        wide = shelf(tmp_path)
        assert [wide.open("ann") for _ in range(READERS)]
        with pytest.raises(TooManyRequests):
            wide.open("ann")
        assert shelf(tmp_path, memory=1).open("ann")

    def test_disk(self, tmp_path: Path) -> None:
        """Half of it is the most that one principal's exports take together, unless it is one alone. Would catch a disk
        that one fills for all, and a largest export that nobody could have."""
        room = shelf(tmp_path / "x" / "exports", disk=16 * KEPT)
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
        room = shelf(tmp_path, disk=1)
        export = room.open("ann")
        export.write(b"x" * KEPT)
        assert not export._file._rolled
        assert read(export) == b"x" * KEPT

    def test_files_have_no_names_and_end_with_their_export(self, tmp_path: Path) -> None:
        export = shelf(tmp_path / "exports").open("ann")
        export.write(bytes(2 * KEPT))
        assert list((tmp_path / "exports").iterdir()) == []
        assert (tmp_path / "exports").stat().st_mode & 0o777 == 0o700
        file = export._file
        export.close()
        assert file.closed

    def test_a_disk_without_room(self, tmp_path: Path) -> None:
        (tmp_path / "exports").write_text("in the way")
        with pytest.raises(Unavailable):
            shelf(tmp_path / "exports").open("ann").write(b"x")

    def test_memory_is_had_in_turn(self, tmp_path: Path) -> None:
        """One that is larger than all the room is made alone, and before it those who came first. Would catch two of
        them at a time, and small ones that overtake a large one for ever."""
        room = shelf(tmp_path, memory=200)
        order: list[str] = []
        room.take(1000, nothing)

        def waits(name: str, size: int) -> threading.Thread:
            def run() -> None:
                room.take(size, nothing)
                order.append(name)

            thread = threading.Thread(target=run)
            waiting = len(room._waiting)
            thread.start()
            while len(room._waiting) == waiting:
                pass
            return thread

        large, small, other = waits("large", 500), waits("small", 10), waits("other", 90)
        assert order == []
        room.give_back(1000)
        large.join(10)
        assert order == ["large"]
        room.give_back(500)
        small.join(10)
        other.join(10)
        assert sorted(order[1:]) == ["other", "small"]
        assert room._making == 2

    def test_who_hangs_up_waits_no_more(self, tmp_path: Path) -> None:
        room = shelf(tmp_path, memory=200)
        room.take(100, nothing)

        def gone() -> None:
            raise TimeoutError

        with pytest.raises(TimeoutError):
            room.take(100, gone)
        assert not room._waiting
        room.give_back(100)
        assert room.take(100, gone) < 10


async def receive() -> Any:
    await asyncio.Event().wait()


SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


class TestReplies:
    def test_sent_in_parts_and_closed(self, tmp_path: Path) -> None:
        room = shelf(tmp_path)
        export, sent = room.open("ann"), []
        content = np.random.default_rng(1).bytes(3 * KEPT + 7)
        export.write(content)

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(whole(export, {"A": "b"}, "x/y")(SCOPE, receive, send))
        headers = dict(sent[0]["headers"])
        assert headers[b"content-length"] == b"%d" % len(content)
        assert (headers[b"a"], headers[b"content-type"]) == (b"b", b"x/y")
        assert b"".join(message["body"] for message in sent[1:]) == content
        assert max(len(message["body"]) for message in sent[1:]) <= PART
        assert not room._readers
        assert not room._on_disk

    @pytest.mark.parametrize("how", ["hangs up", "breaks"])
    def test_whoever_ends_it_nothing_is_left(self, tmp_path: Path, how: str) -> None:
        """A client that takes two parts and is gone, and a connection that fails. Would catch a file, or a place, that
        stays with a reader who left."""
        room = shelf(tmp_path)
        export, sent = room.open("ann"), 0
        export.write(bytes(4 * KEPT))
        file = export._file

        async def run() -> None:
            gone = asyncio.Event()

            async def leave() -> Any:
                await gone.wait()
                return {"type": "http.disconnect"}

            async def send(_: Any) -> None:
                nonlocal sent
                sent += 1
                if sent == 3:
                    if how == "breaks":
                        raise OSError
                    gone.set()
                    await asyncio.Event().wait()

            try:
                await whole(export, {}, "x/y")(SCOPE, leave, send)
            except OSError:
                assert how == "breaks"

        asyncio.run(run())
        assert sent == 3
        assert file.closed
        assert not room._readers
        assert not room._on_disk

    def test_lines_are_read_as_they_are_taken(self, tmp_path: Path) -> None:
        """Lines of all sizes, the longest many times a page. Would catch a line lost between pages, and lines that are
        read ahead of the client."""
        sizes = [10, PART - 1, 2 * KEPT, 3, KEPT - 3, 4, 5, KEPT, 1] * 3
        lines = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
        taken = 0

        def counted() -> Iterator[bytes]:
            nonlocal taken
            for line in lines:
                taken += len(line)
                yield line

        async def run() -> None:
            export, got, ahead = shelf(tmp_path).open("ann"), b"", []
            pages = Lines(export, counted())
            pages.fill()
            async for part in pages.sent(asyncio.Semaphore(1)):
                got += part
                ahead.append(taken - len(got))
            assert got == b"".join(lines)
            assert max(ahead) < KEPT + max(sizes)
            export.close()

        asyncio.run(run())
        assert all(first != second for first, second in pairwise(lines))
