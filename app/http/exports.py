"""Replies that send an export."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Annotated

from fastapi import Depends
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.http.dependencies import AppContext, Caller
from app.services.exports import KEPT, Export


async def open_export(context: AppContext, actor: Caller) -> AsyncIterator[Export]:
    """A new export, closed if the endpoint ends with an error; else by the reply that sends it.

    Raises:
        TooManyRequests: when the principal has as many as it may.
        Unavailable: when all principals together have.
    """
    export = context.export_space.open(actor.name)
    try:
        yield export
    except BaseException:
        export.close()
        raise


NewExport = Annotated[Export, Depends(open_export, scope="function")]


class ExportResponse(StreamingResponse):
    """Sends an export, part by part as the client takes them, and closes it however that ends."""

    def __init__(self, export: Export, content: AsyncIterator[bytes], headers: Mapping[str, str], media_type: str):
        super().__init__(content, headers=headers, media_type=media_type)
        self._export = export

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._export.close()


def complete_reply(export: Export, headers: Mapping[str, str], media_type: str) -> ExportResponse:
    """The reply that sends an export which is written to its end."""
    length = {"Content-Length": str(export.size)}
    return ExportResponse(export, _parts(export), {**headers, **length}, media_type)


async def _parts(export: Export) -> AsyncIterator[bytes]:
    parts = export.parts()
    while part := await run_in_threadpool(next, parts, b""):
        yield part


class PagedLines:
    """Lines that are written to an export a page at a time: the next page when the client has taken the last one."""

    def __init__(self, export: Export, lines: Iterator[bytes]) -> None:
        self._export, self._lines = export, lines

    def write_page(self) -> bool:
        """Write a page, or one line that is longer than one; False when no line is left."""
        export = self._export
        for line in self._lines:
            export.write(line)
            if export.size >= KEPT:
                break
        return export.size > 0

    async def sent(self, writing: asyncio.Semaphore) -> AsyncIterator[bytes]:
        """The bytes of all pages. The first has been written; ``writing`` is held while another one is."""
        more = True
        while more:
            async for part in _parts(self._export):
                yield part
            async with writing:
                more = await run_in_threadpool(self.write_page)
