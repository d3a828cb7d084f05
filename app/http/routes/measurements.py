"""Routes of measurements: what was ever released of a data set."""

from __future__ import annotations

import re

import orjson
import pyarrow as pa
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.declarations.errors import InvalidRequest
from app.http import headers, paging, schemas
from app.http.context import Context
from app.http.marginal_tables import FACTS, arrow_table
from app.http.openapi import MEASUREMENT, page_parameters, problem_responses
from app.http.replies import json_reply
from app.services.errors import NotFound
from app.services.measurements import Released, ReleasedParts

_ID = re.compile(r"[0-9a-f]{64}")


def add_routes(app: FastAPI, context: Context) -> None:
    """Add these routes."""

    @app.get(
        "/v1/datasets/{name}/measurements",
        tags=["measurements"],
        summary="What was ever measured of a data set, a page at a time",
        response_model=schemas.MeasurementList,
        responses=problem_responses(401, 403, 404, 422),
        openapi_extra=page_parameters(MEASUREMENT),
    )
    async def list_measurements(request: Request, name: str) -> Response:
        actor = await context.authenticator.authenticate(request)
        asked = paging.parse(request, paging.NUMBER)
        page = await run_in_threadpool(
            context.services.measurements.list, actor, name, int(asked.after or 0), asked.limit
        )
        return paging.reply(request, asked, page)

    @app.get(
        "/v1/datasets/{name}/measurements/{id}",
        tags=["measurements"],
        summary="A measurement with its values",
        response_model=schemas.ReleasedMeasurement,
        responses={200: {"content": {headers.ARROW: {}}}, **problem_responses(401, 403, 404, 422)},
    )
    async def get_measurement(request: Request, name: str, id: str) -> Response:
        actor = await context.authenticator.authenticate(request)
        if not _ID.fullmatch(id):
            raise NotFound("there is no such measurement of this data set")
        found = await run_in_threadpool(context.services.measurements.get, actor, name, id)
        if headers.accepts_arrow(request):
            if not isinstance(found, ReleasedParts):
                return Response(await run_in_threadpool(_of_graph, found), media_type=headers.ARROW)
            if not found.plain:
                raise InvalidRequest("a measurement of several parts is no single table: leave the Accept header out")
            return Response(await run_in_threadpool(_arrow, found), media_type=headers.ARROW)
        return json_reply(await run_in_threadpool(found.document))


def _arrow(found: ReleasedParts) -> bytes:
    """A measurement as the answer to a marginal is: a row a cell."""
    document = found.document()
    errors = [document["standard_error"]] * len(document["values"])
    return arrow_table(orjson.dumps(document | {"standard_errors": errors, "intervals": None}))


def _of_graph(found: Released) -> bytes:
    """A measurement of a graph or a matrix: a row a cell or degree, and what else is said as JSON in the metadata."""
    facts = found.view | {"standard_error": found.release.variance**0.5}
    table = found.table().replace_schema_metadata({FACTS: orjson.dumps(facts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
