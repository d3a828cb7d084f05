"""The ways a session is opened and closed and a release is asked for, by a route and by a page alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from app.http.context import Context
from app.http.tickets import answer
from app.services.answering.tickets import Ticket
from app.services.idempotency import IdempotencyKey
from app.services.principals import Principal


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
    async with context.plans.turn(request, actor) as work:
        opening = await run_in_threadpool(prepare, actor, asked, key, work.check)
    if isinstance(opening, bytes):  # it was opened under this key before
        return opening
    # Outside the turn: another process may hold the data set for a while, and plans should not wait for that.
    return await run_in_threadpool(context.services.opener.open, actor, opening, key)
