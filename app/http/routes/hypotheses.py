"""The route of hypotheses: synthetic data as an array or a table."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.constructions.base import DenseHypothesis
from app.http.context import Context
from app.http.exports import complete_reply, open_export
from app.http.fair_queue import Work
from app.http.headers import ARROW, NPY, PARQUET, negotiated
from app.http.openapi import problem_responses
from app.services.exports import Export
from app.services.hypothesis_files import Format, write_hypothesis
from app.services.principals import Principal

#: Media types, and the formats that they stand for; the first is sent where any will do.
FORMATS: dict[str, Format] = {NPY: "npy", ARROW: "arrow", PARQUET: "parquet"}
#: Those of a hypothesis that is no array.
_TABLES = (ARROW, PARQUET)


def add_routes(app: FastAPI, context: Context) -> None:
    """Add these routes."""

    @app.get(
        "/v1/sessions/{id}/hypothesis",
        tags=["sessions"],
        summary="The public hypothesis: synthetic data",
        response_class=Response,
        responses={
            200: {"content": {media_type: {} for media_type in FORMATS}},
            **problem_responses(401, 404, 422),
        },
    )
    async def hypothesis(request: Request, id: str) -> Response:
        actor = await context.authenticator.authenticate(request, heavy=True)
        with open_export(context, actor) as export:
            async with context.exports.turn(request, actor) as work:
                headers, media_type = await run_in_threadpool(_write, context, actor, id, request, export, work)
                export.release_memory()
            return complete_reply(export, headers, media_type)


def _write(
    context: Context, actor: Principal, id: str, request: Request, export: Export, work: Work
) -> tuple[dict[str, str], str]:
    """Write a session's hypothesis; headers and media type of the reply."""

    def reserve(size: int) -> None:
        work.idle += export.reserve_memory(size, work.check)

    row, session = context.services.sessions.state(actor, id, reserve, work.check)
    shown = session.exported()
    offered = FORMATS if isinstance(shown, DenseHypothesis) else {kind: FORMATS[kind] for kind in _TABLES}
    media_type = negotiated(request, tuple(offered), "this hypothesis")
    facts = {"session": row.id, "updates": str(session.updates_used)}
    write_hypothesis(export, shown, session.dataset.space.names, offered[media_type], facts, work.check)
    return {"Curator-Updates": str(session.updates_used), "Curator-Sequence": str(session.sequence)}, media_type
