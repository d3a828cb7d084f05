"""The route of hypotheses: synthetic data as an array or a table."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.constructions.base import DenseHypothesis
from app.http.dependencies import HEAVY, Caller, ExportTurn, UseCases
from app.http.exports import ExportResponse, NewExport, complete_reply
from app.http.headers import ARROW, NPY, PARQUET, negotiated
from app.http.openapi import problem_responses
from app.http.parameters import Route
from app.services.hypothesis_files import Format, write_hypothesis

#: Media types, and the formats that they stand for; the first is sent where any will do.
FORMATS: dict[str, Format] = {NPY: "npy", ARROW: "arrow", PARQUET: "parquet"}
#: Those of a hypothesis that is no array.
_TABLES = (ARROW, PARQUET)

router = APIRouter(tags=["sessions"], route_class=Route, responses=problem_responses(401, 429))


@router.get(
    "/v1/sessions/{id}/hypothesis",
    summary="The public hypothesis: synthetic data",
    response_class=Response,
    responses={200: {"content": {media_type: {} for media_type in FORMATS}}, **problem_responses(404, 422)},
    dependencies=[HEAVY],
)
def hypothesis(
    request: Request, services: UseCases, actor: Caller, export: NewExport, work: ExportTurn, id: str
) -> ExportResponse:
    def reserve(size: int) -> None:
        work.idle += export.reserve_memory(size, work.check)

    row, session = services.hypotheses.state(actor, id, reserve, work.check)
    shown = session.exported()
    offered = FORMATS if isinstance(shown, DenseHypothesis) else {kind: FORMATS[kind] for kind in _TABLES}
    media_type = negotiated(request, tuple(offered), "this hypothesis")
    facts = {"session": row.id, "updates": str(session.updates_used)}
    write_hypothesis(export, shown, session.dataset.space.names, offered[media_type], facts, work.check)
    headers = {"Curator-Updates": str(session.updates_used), "Curator-Sequence": str(session.sequence)}
    export.release_memory()
    return complete_reply(export, headers, media_type)
