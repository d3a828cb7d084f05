"""A ticket's way through the lane of its session, and the reply that comes of it."""

from __future__ import annotations

import asyncio

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from app.http.context import Context
from app.services.answering.tickets import Ticket
from app.services.errors import QueueFull, Unavailable
from app.services.principals import Principal


async def answer(context: Context, request: Request, actor: Principal, ticket: Ticket) -> bytes:
    """Queue a ticket, wait until its lane is done with it, and give the JSON of the reply. Of what a client leaves by
    hanging up, what was begun is finished and recorded, and nothing more is begun.

    Where there is a deadline, the reply or refusal goes out then, and not before.

    Raises:
        QueueFull: when too many tickets of the session wait.
        Unavailable: when the wait was too long; the ticket is dealt with all the same.
        CuratorError: whatever the lane refused it with.
    """
    moment = context.deadline.set()
    ticket.waiter = asyncio.get_running_loop().create_future()
    answering = context.services.answering
    lost: asyncio.Future[None] | None = request.scope.get("state", {}).get("lost")

    def leave(_: object) -> None:
        ticket.left = True

    if lost is not None:
        lost.add_done_callback(leave)
    try:
        if ticket.kind != "close" and answering.knows(ticket.session):
            answering.submit(actor, ticket)
        else:
            await run_in_threadpool(answering.submit, actor, ticket)
    except QueueFull:
        context.metrics.refused("queue")
        raise
    late: Unavailable | None = None
    try:
        await context.delivery.wait(ticket.waiter, context.limits.request_timeout_seconds)
    except TimeoutError:
        late = Unavailable(
            "the answer is not there yet; it will be recorded: send the same request again with its Idempotency-Key"
        )
        if ticket.prices:
            # Nobody is told of it any more, and nothing is to be recorded.
            ticket.left = True
            late = Unavailable("to reckon the price takes longer than a request may: ask for that of fewer questions")
        if not ticket.delivered:
            # The lane holds the body until it is done with the ticket; until then its memory is in use.
            ticket.waiter = asyncio.get_running_loop().create_future()
            context.body_memory.release_after(request.scope, ticket.waiter)
    finally:
        if lost is not None:
            lost.remove_done_callback(leave)  # what was promised to be recorded is, whoever hangs up afterwards
    await context.deadline.keep(moment)
    if late is not None:
        raise late
    error, ticket.error = ticket.error, None
    try:
        if error is not None:
            raise error
    finally:
        del error  # its traceback holds this frame: what was asked would stay in memory until cycles are looked for
    assert ticket.reply is not None
    return ticket.reply
