"""JSON replies, and how long ones leave: a client that reads slowly has what is left for it lie on disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.services.exports import PART, ExportSpace

#: In the scope of a request: the name of its principal.
PRINCIPAL = "principal"
#: Bytes of a reply that wait in memory for whoever reads it, however slowly: about what a connection holds anyway.
SHORT = 1 << 18
#: Seconds for which a longer one is sent from memory.
_FROM_MEMORY_SECONDS = 1.0


class LongReplies:
    """Sends long replies. For the event loop's thread alone.

    A reply leaves from memory for a second, as most do. What a client has not taken by then goes into a file, with its
    exports (:class:`app.services.exports.ExportSpace`). Nothing waits in memory while as much does as may.

    Args:
        space: where files are.
        memory: bytes of replies that may wait in memory.
    """

    def __init__(self, space: ExportSpace, memory: int) -> None:
        self._space, self._free = space, memory

    async def parts(self, body: bytes, principal: str) -> AsyncGenerator[bytes]:
        """The parts of a reply, each when the client has taken those before it.

        Raises:
            CuratorError: when there is no room for what a slow client leaves: its connection is cut off.
        """
        size, at, loop = len(body), 0, asyncio.get_running_loop()
        late = loop.time() + (_FROM_MEMORY_SECONDS if size <= self._free else 0.0)
        self._free -= size
        try:
            while at < size and loop.time() < late:
                yield body[at : at + PART]
                at += PART
            if at >= size:
                return
            export = self._space.open(principal)
            try:
                await run_in_threadpool(export.write, memoryview(body)[at:])
            except BaseException:
                export.close()
                raise
            del body
        finally:
            self._free += size
        try:
            parts = export.parts()
            while part := await run_in_threadpool(next, parts, b""):
                yield part
        finally:
            export.close()


class Reply(Response):
    """A reply that may be long."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        if len(self.body) <= SHORT:
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        replies: LongReplies = scope["app"].state.context.replies
        async with aclosing(replies.parts(self._taken(), scope.get(PRINCIPAL, ""))) as parts:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _taken(self) -> bytes:
        """The content, which this holds no longer."""
        body, self.body = bytes(self.body), b""
        return body


class JsonReply(Reply):
    """A reply of some content, or of bytes that are JSON already."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes that are sent."""
        return content if isinstance(content, bytes) else orjson.dumps(content)
