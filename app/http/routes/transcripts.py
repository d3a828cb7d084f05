"""The route of transcripts."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.http.context import Context
from app.http.exports import ExportResponse, PagedLines, open_export
from app.http.openapi import problem_responses

#: Pages of transcripts that are read from the database at a time, in all. A page is as long as its longest record.
PAGES = 2


def add_routes(app: FastAPI, context: Context) -> None:
    """Add these routes."""

    reading = asyncio.Semaphore(PAGES)

    @app.get(
        "/v1/sessions/{id}/transcript",
        tags=["audit"],
        summary="The transcript: header, entries, trailer",
        response_class=Response,
        responses={200: {"content": {"application/x-ndjson": {}}}, **problem_responses(401, 404)},
    )
    async def transcript(request: Request, id: str) -> Response:
        actor = await context.authenticator.authenticate(request, heavy=True)
        with open_export(context, actor) as export:
            async with context.exports.turn(request, actor):
                pages = PagedLines(export, await run_in_threadpool(context.services.sessions.transcript, actor, id))
                await run_in_threadpool(pages.write_page)
            return ExportResponse(export, pages.sent(reading), {}, "application/x-ndjson")
