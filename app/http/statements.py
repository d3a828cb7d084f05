"""The way of a statement of SQL: read, priced, and asked where it asks."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from app.http.context import Context
from app.http.replies import SHORT
from app.http.tickets import answer
from app.services.answering.tickets import Ticket
from app.services.idempotency import IdempotencyKey
from app.services.principals import Principal
from app.services.sql import Asked, answered, check_prices, explained
from app.sql.statement import Select


async def result_of(
    request: Request,
    context: Context,
    actor: Principal,
    id: str,
    statement: str,
    at_most: float | None,
    key: IdempotencyKey | None,
    *,
    explain: bool = False,
) -> dict[str, Any]:
    """The result of a statement in a session, or with ``explain`` its price. Each of its questions counts as a request.

    Raises:
        CuratorError: what it is refused with; then nothing was asked.
    """
    read = await run_in_threadpool(context.services.sql.read, actor, id, statement, at_most, explain=explain)
    if isinstance(read.statement, Select):
        context.authenticator.count(request, actor, len(read.statement.questions))
        return await _asked(request, context, actor, id, read, key)
    assert read.told is not None
    return read.told


async def _asked(
    request: Request, context: Context, actor: Principal, id: str, read: Asked, key: IdempotencyKey | None
) -> dict[str, Any]:
    """The result of a statement that asks. What was answered under its key is given again, whatever it cost now."""
    select = read.statement
    assert isinstance(select, Select)
    known = None if select.explain else await run_in_threadpool(context.services.sql.known, key)
    if known is None:
        asked = Ticket("prices", id, actor.name, select.questions, in_turn=True)
        priced = await answer(context, request, actor, asked)
        prices = orjson.loads(priced)["prices"]
        if select.explain:
            return explained(select, prices)
        check_prices(read, prices)
        # What was priced may cost more by now.
        batch = Ticket("batch", id, actor.name, select.questions, key, most=select.at_most)
        known = await answer(context, request, actor, batch)
    if len(known) <= SHORT:
        return _result(select, known)
    async with context.exports.turn(request, actor):
        return await run_in_threadpool(_result, select, known)


def _result(select: Select, known: bytes) -> dict[str, Any]:
    """The result of a statement by the reply to its questions."""
    return answered(select, orjson.loads(known)["answers"])
