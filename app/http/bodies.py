"""Reading request bodies within limits of their size and of the memory for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.types import Scope

from app.http.headers import header
from app.services.errors import PayloadTooLarge, Unavailable

#: In the scope of a request that brings private data: how long it takes is told to nobody.
UNTOLD = "untold"


class BodyMemory:
    """Memory for the bodies of all requests under way, as they were sent and parsed. For the event loop's thread alone.

    A limit on each body does not bound the memory of many that are sent at once: this does.

    Args:
        size: bytes.
        refused: called with the reason, ``memory``, of each request that there is no memory for.
    """

    def __init__(self, size: int, refused: Callable[[str], None]) -> None:
        self.free, self._size, self._refused = size, size, refused

    def reserve_parsed(self, scope: Scope, size: int) -> None:
        """Reserve memory for what a body is parsed to, until :meth:`release`: half of all at most, so that a server
        with little memory takes such a body too.

        Raises:
            Unavailable: when there is not enough.
        """
        self.reserve(scope, min(size, self._size // 2))

    def reserve(self, scope: Scope, size: int) -> None:
        """Reserve memory for a part of a request's body, until :meth:`release`.

        Raises:
            Unavailable: when there is not enough.
        """
        if size > self.free:
            self._refused("memory")
            raise Unavailable("the bodies of other requests take all the room there is: send again a little later")
        self.free -= size
        scope["body_bytes"] = scope.get("body_bytes", 0) + size

    def release(self, scope: Scope) -> None:
        """Release what a request reserved, as it is done."""
        self.free += scope.pop("body_bytes", 0)

    def release_after(self, scope: Scope, work: asyncio.Future[None]) -> None:
        """Release what a request reserved when some work is done that outlives the request."""
        reserved = scope.pop("body_bytes", 0)

        def done(_: asyncio.Future[None]) -> None:
            self.free += reserved

        work.add_done_callback(done)


async def read(request: Request, limit: int, memory: BodyMemory) -> bytes:
    """The body's bytes.

    Raises:
        PayloadTooLarge: as soon as it passes ``limit`` bytes, or declares that it will.
        Unavailable: when the bodies of all requests leave no memory for it.
    """
    expect_at_most(request, limit)
    # Most often the first part is all there is. The others go into one array: in a list, a part of one byte would take
    # fifty.
    first, rest = b"", bytearray()
    async for part in request.stream():
        if len(first) + len(rest) + len(part) > limit:
            raise too_large(limit)
        memory.reserve(request.scope, len(part))
        if first:
            rest += part
        else:
            first = part
    return first + rest if rest else first


class Described:
    """A dependency that reads a body, and what the document says of it.

    Args:
        model: pydantic's type of it; None where the document says nothing of the body.
        required: whether it has to be there.
        media_type: how it is sent.
        encoding: how the fields of a form are.
    """

    def __init__(
        self,
        model: Any,
        *,
        required: bool = True,
        media_type: str = "application/json",
        encoding: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.required, self.media_type, self.encoding = model, required, media_type, encoding or {}


def expect_at_most(request: Request, limit: int) -> None:
    """Refuse a body that declares to pass ``limit`` bytes.

    Raises:
        PayloadTooLarge: when it does.
    """
    declared = header(request, b"content-length") or ""
    if declared.isdigit() and int(declared) > limit:
        raise too_large(limit)


def too_large(limit: int) -> PayloadTooLarge:
    """The refusal of a body over its limit."""
    return PayloadTooLarge(f"the body may have at most {limit:,} bytes", limit=limit)
