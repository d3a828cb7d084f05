"""Files that pages offer: an export that is the reader's, and a name for the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.http.context import Context
from app.http.exports import ExportResponse
from app.http.fair_queue import CostlyWork
from app.services.exports import Export
from app.services.principals import Principal


async def export(
    request: Request,
    context: Context,
    actor: Principal,
    name: str,
    make: Callable[[Export, CostlyWork], ExportResponse],
) -> Response:
    """The reply with a file that takes work, under the limits on those of the API.

    Args:
        request: that it answers.
        context: of the routes.
        actor: who reads it.
        name: of the file.
        make: the reply, by the export that it is written to and the work that it is.
    """
    context.authenticator.count_heavy(actor)
    opened = context.export_space.open(actor.name)
    try:
        async with context.exports.turn(request, actor) as work:
            reply = await run_in_threadpool(make, opened, work)
    except BaseException:
        opened.close()
        raise
    return as_file(reply, name)


def as_file(reply: Any, name: str) -> Response:
    """A reply that browsers keep as a file of this name."""
    safe = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in name)
    reply.headers["Content-Disposition"] = f'attachment; filename="{safe}"'
    kept: Response = reply
    return kept
