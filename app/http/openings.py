"""The ways a session is opened and closed and a release is asked for, by a route and by a page alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from app.declarations.errors import CuratorError
from app.http.context import Context
from app.http.tickets import answer
from app.services.answering.parked import TRIES, needs_others
from app.services.answering.tickets import Ticket
from app.services.errors import Unavailable
from app.services.idempotency import IdempotencyKey
from app.services.principals import Principal
from app.spaces.counts import NotCounted


async def open_session(
    request: Request, context: Context, actor: Principal, asked: dict[str, Any], key: IdempotencyKey | None
) -> bytes:
    """Open a session; its state, once it is stored.

    Raises:
        CuratorError: what it is refused with; then nothing was reserved.
    """
    return await _open(context.services.opener.prepare, request, context, actor, asked, key)


async def ask_for_release(
    request: Request, context: Context, actor: Principal, asked: dict[str, Any], key: IdempotencyKey | None
) -> bytes:
    """Reserve the share of a release and queue its work; its state, once it is stored.

    Raises:
        CuratorError: what it is refused with; then nothing was reserved.
    """
    reply = await _open(context.services.opener.prepare_release, request, context, actor, asked, key)
    context.services.jobs.wake()
    return reply


async def close_session(
    request: Request, context: Context, actor: Principal, id: str, key: IdempotencyKey | None = None
) -> bytes:
    """Close a session, and destroy the made-up records of one that rehearsed; its state, once it is stored.

    Raises:
        CuratorError: what it is refused with.
    """
    reply = await answer(context, request, actor, Ticket("close", id, actor.name, (), key))
    await run_in_threadpool(context.services.dummies.end_of, id)
    return reply


async def _open(
    prepare: Callable[..., Any],
    request: Request,
    context: Context,
    actor: Principal,
    asked: dict[str, Any],
    key: IdempotencyKey | None,
) -> bytes:
    for _ in range(TRIES):
        try:
            async with context.plans.turn(request, actor) as work:
                opening = await run_in_threadpool(prepare, actor, asked, key, work.check)
            if isinstance(opening, bytes):  # it was opened under this key before
                return opening
            # Outside the turn: another process may hold the data set for a while, and plans should not wait for that.
            return await run_in_threadpool(context.services.opener.open, actor, opening, key)
        except NotCounted as found:
            lacking = found
        await _counted(context, actor, lacking)
    raise needs_others()


async def _counted(context: Context, actor: Principal, lacking: NotCounted) -> None:
    """Wait until numbers are counted, with no turn, thread or data set held.

    Raises:
        Unavailable: when they cannot be counted, or it takes longer than clients wait.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[CuratorError | None] = loop.create_future()

    def end(error: CuratorError | None) -> None:
        if not done.done():
            done.set_result(error)

    def back(error: CuratorError | None) -> None:
        with suppress(RuntimeError):  # the loop has ended, and whoever waited with it
            loop.call_soon_threadsafe(end, error)

    context.services.answering.have_counted(actor.name, lacking, back)
    try:
        error = await asyncio.wait_for(done, context.limits.request_timeout_seconds)
    except TimeoutError:
        raise Unavailable(
            "the data set's records are still being counted: send the same request again, which goes on from there"
        ) from None
    if error is not None:
        raise error
