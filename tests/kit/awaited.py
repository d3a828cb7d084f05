"""The client to be awaited, called as if it blocked: the same tests serve both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self

from curator_client import AsyncCurator


class Awaited:
    """An asynchronous object whose methods are waited for, and give others like it.

    Args:
        target: the object.
        runner: of the loop that all of them share.
    """

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target, self._runner = target, runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return self._given(found)

        def call(*arguments: Any, **named: Any) -> Any:
            return self._given(found(*arguments, **named))

        return call

    def __enter__(self) -> Self:
        self._runner.run(self._target.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._target.__aexit__(kind, error, trace))

    def _given(self, result: Any) -> Any:
        if inspect.isawaitable(result):

            async def waiting() -> Any:
                return await result

            return self._given(self._runner.run(waiting()))
        if isinstance(result, AsyncIterator):
            return self._each(result)
        if isinstance(result, list):
            return [self._given(each) for each in result]
        if result is self._target:
            return self
        mine = type(result).__module__.startswith("curator_client._async")
        return Awaited(result, self._runner) if mine else result

    def _each(self, result: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield self._given(anext(result))
            except StopAsyncIteration:
                return


def awaited(*arguments: Any, **named: Any) -> Any:
    """As ``Curator(...)``: it is of no class that types know, but has its methods."""
    runner = asyncio.Runner()

    class Closing(Awaited):
        def __exit__(self, *error: Any) -> None:
            super().__exit__(*error)
            runner.close()

    return Closing(AsyncCurator(*arguments, **named), runner)
