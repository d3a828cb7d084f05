"""Waiting that lets others go on meanwhile. :mod:`curator_client._sync.waiting` has the same names for whoever blocks;
these two are written by hand, and every other module there is made of the one here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

T = TypeVar("T")

sleep = asyncio.sleep
#: Lets one in at a time, in the order in which they came.
Lock = asyncio.Lock


def place() -> object:
    """Where connections serve: in one process, and in one loop."""
    return os.getpid(), asyncio.get_running_loop()


async def apart(work: Callable[..., T], *arguments: Any) -> T:
    """What work gives that takes the processor for long, and looks at files: it is done beside the loop."""
    return await asyncio.to_thread(work, *arguments)


class _Context(Protocol):
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


C = TypeVar("C", bound=_Context)


class Opening(Generic[C]):
    """A session that is opened when this is awaited, or entered: then it is closed at the end."""

    def __init__(self, work: Coroutine[Any, Any, C]) -> None:
        self._work = work
        self._made: C | None = None

    def __await__(self) -> Generator[Any, Any, C]:
        return self._work.__await__()

    async def __aenter__(self) -> C:
        self._made = await self._work
        return await self._made.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._made is not None
        await self._made.__aexit__(kind, error, trace)


def opening(work: Coroutine[Any, Any, C]) -> Opening[C]:
    """The opening of a session that is opened by some work."""
    return Opening(work)
