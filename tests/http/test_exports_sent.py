"""Replies that send an export: all of it, in parts, and nothing left behind however that ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.http.exports import PagedLines, complete_reply
from app.services.exports import KEPT, PART, ExportSpace

pytestmark = pytest.mark.unit


def space(folder: Path) -> ExportSpace:
    return ExportSpace(folder, 1 << 30, 1 << 30, lambda _: None)


async def receive() -> Any:
    await asyncio.Event().wait()


SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


class TestReplies:
    def test_sent_in_parts_and_closed(self, tmp_path: Path) -> None:
        room = space(tmp_path)
        export, sent = room.open("ann"), []
        content = np.random.default_rng(1).bytes(3 * KEPT + 7)
        export.write(content)

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(complete_reply(export, {"A": "b"}, "x/y")(SCOPE, receive, send))
        headers = dict(sent[0]["headers"])
        assert headers[b"content-length"] == b"%d" % len(content)
        assert (headers[b"a"], headers[b"content-type"]) == (b"b", b"x/y")
        assert b"".join(message["body"] for message in sent[1:]) == content
        assert max(len(message["body"]) for message in sent[1:]) <= PART
        assert not room._open
        assert not room._on_disk

    @pytest.mark.parametrize("how", ["hangs up", "breaks"])
    def test_whoever_ends_it_nothing_is_left(self, tmp_path: Path, how: str) -> None:
        """A client that takes two parts and is gone, and a connection that fails. Would catch a file, or a place, that
        stays with a reader who left."""
        room = space(tmp_path)
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
                await complete_reply(export, {}, "x/y")(SCOPE, leave, send)
            except OSError:
                assert how == "breaks"

        asyncio.run(run())
        assert sent == 3
        assert file.closed
        assert not room._open
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
            export, got, ahead = space(tmp_path).open("ann"), b"", []
            pages = PagedLines(export, counted())
            pages.write_page()
            async for part in pages.sent(asyncio.Semaphore(1)):
                got += part
                ahead.append(taken - len(got))
            assert got == b"".join(lines)
            assert max(ahead) < KEPT + max(sizes)
            export.close()

        asyncio.run(run())
        assert all(first != second for first, second in pairwise(lines))
