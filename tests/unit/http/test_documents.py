"""Long replies: the same bytes as in one piece, without ever being one piece in memory."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.responses import Response

from app.http import documents


def sent(reply: Response) -> tuple[dict[str, str], list[bytes]]:
    """Headers and body of a reply, as a server would send them."""
    headers: dict[str, str] = {}
    body: list[bytes] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers.update({name.decode(): value.decode() for name, value in message["headers"]})
        else:
            body.append(message["body"])

    async def receive() -> Any:
        await asyncio.Event().wait()

    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    asyncio.run(reply(scope, receive, send))
    return headers, body


def item(number: int) -> dict[str, Any]:
    return {"session": f"{number:032x}", "amount": "0.1", "sequence": None, "text": '"é,'}


@pytest.mark.parametrize("head", [{}, {"dataset": "d", "sum": "0.3"}])
@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1000, 20_000])
def test_the_same_document_as_in_one_piece(head: dict[str, Any], count: int) -> None:
    """Around the sizes of parts, in memory and on disk. Would catch a comma too many between parts or before an empty
    list, an item lost or told twice, and a length that is not the body's."""
    headers, body = sent(documents.reply(documents.write(head, "entries", map(item, range(count)))))
    text = b"".join(body)
    assert json.loads(text) == {**head, "entries": [item(i) for i in range(count)]}
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(text)
    assert sum(map(bool, body)) == max(1, -(-len(text) // (1 << 18)) if len(text) > 1 << 20 else 1)


def test_a_long_one_is_never_whole_in_memory() -> None:
    """Some 20 MB of text, of items that come one by one: would catch a list of all of them, or all of the text."""
    tracemalloc.start()
    try:
        file = documents.write({}, "items", map(item, range(200_000)))
        reply = documents.reply(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.seek(0, 2) > 15_000_000
    assert peak < 4_000_000
    file.close()
    del reply


def test_what_breaks_off_leaves_no_file_open() -> None:
    """A database that fails in the middle: would catch half a document that is told, or a file nobody closes."""
    opened: list[Any] = []

    def items() -> Iterator[Any]:
        yield from map(item, range(600))
        raise OSError

    with pytest.MonkeyPatch.context() as patch:
        make = documents.tempfile.SpooledTemporaryFile
        patch.setattr(documents.tempfile, "SpooledTemporaryFile", lambda size: opened.append(make(size)) or opened[0])
        with pytest.raises(OSError):
            documents.write({}, "items", items())
    assert opened[0].closed
    file = documents.write({}, "items", map(item, range(20_000)))
    sent(documents.reply(file))
    assert file.closed
