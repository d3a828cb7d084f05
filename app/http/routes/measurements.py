"""Routes of measurements: what was ever released of a data set."""

from __future__ import annotations

import re

import orjson
import pyarrow as pa
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.declarations.errors import InvalidRequest
from app.http import headers, schemas
from app.http.dependencies import Caller, ExportTurn, UseCases
from app.http.marginal_tables import FACTS, arrow_table
from app.http.openapi import problem_responses
from app.http.paging import ByNumber
from app.http.parameters import Route
from app.http.replies import JsonReply, Reply
from app.services.errors import NotFound
from app.services.measurements import Released

_ID = re.compile(r"[0-9a-f]{64}")


router = APIRouter(
    prefix="/v1/datasets/{name}/measurements",
    tags=["measurements"],
    route_class=Route,
    responses=problem_responses(401, 403, 404, 422, 429),
)


@router.get(
    "", summary="What was ever measured of a data set, a page at a time", response_model=schemas.MeasurementList
)
def list_measurements(services: UseCases, actor: Caller, name: str, page: ByNumber) -> Response:
    return page.reply(services.measurements.list(actor, name, page.after, page.limit))


@router.get(
    "/{id}",
    summary="A measurement with its values",
    response_model=schemas.ReleasedMeasurement,
    responses={200: {"content": {headers.ARROW: {}}}},
)
def get_measurement(
    request: Request, services: UseCases, actor: Caller, work: ExportTurn, name: str, id: str
) -> Response:
    if not _ID.fullmatch(id):
        raise NotFound("there is no such measurement of this data set")
    found = services.measurements.get(actor, name, id)
    if headers.accepts_arrow(request):
        return Reply(_arrow(found), media_type=headers.ARROW)
    return JsonReply(found.document())


def _arrow(found: Released) -> bytes:
    """A measurement of a table as the answer to a marginal is, a row a cell; of others a row a cell or degree, and what
    else is said as JSON in the metadata.

    Raises:
        InvalidRequest: when it is of several parts.
    """
    if found.space.kind != "table":
        return _of_graph(found)
    document = found.document()
    if "parts" in document:
        raise InvalidRequest("a measurement of several parts is no single table: leave the Accept header out")
    errors = [document["standard_error"]] * len(document["values"])
    return arrow_table(orjson.dumps(document | {"standard_errors": errors, "intervals": None}))


def _of_graph(found: Released) -> bytes:
    facts = found.view | {"standard_error": found.release.variance**0.5}
    table = found.table().replace_schema_metadata({FACTS: orjson.dumps(facts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
