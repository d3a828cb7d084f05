"""The route of transcripts."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from app.http import files
from app.http.dependencies import HEAVY, AppContext, Caller, ExportTurn
from app.http.exports import ExportResponse, NewExport
from app.http.openapi import problem_responses
from app.http.parameters import Route

router = APIRouter(tags=["audit"], route_class=Route, responses=problem_responses(401, 429))


@router.get(
    "/v1/sessions/{id}/transcript",
    summary="The transcript: header, entries, trailer",
    response_class=Response,
    responses={200: {"content": {"application/x-ndjson": {}}}, **problem_responses(404)},
    dependencies=[HEAVY],
)
def transcript(context: AppContext, actor: Caller, export: NewExport, work: ExportTurn, id: str) -> ExportResponse:
    return files.transcript(context, actor, id, export)
