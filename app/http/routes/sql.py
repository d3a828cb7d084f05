"""Routes of SQL: a statement that is asked of a session, and one that is only translated."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.http import headers, schemas
from app.http.dependencies import HEAVY, AppContext, Asker, JsonModel, UseCases, idempotency_key
from app.http.openapi import problem_responses
from app.http.parameters import Route
from app.http.replies import JsonReply, Reply
from app.http.sql_tables import arrow_result
from app.http.statements import result_of

router = APIRouter(prefix="/v1", tags=["SQL"], route_class=Route, responses=problem_responses(401, 429))

Statement = Annotated[schemas.SqlRequest, Depends(JsonModel(schemas.SqlRequest))]
AskedStatement = Annotated[schemas.SqlQuestion, Depends(JsonModel(schemas.SqlQuestion))]


@router.post(
    "/datasets/{name}/sql",
    summary="What a statement of SQL would ask; nothing is asked",
    response_model=schemas.TranslatedView,
    responses=problem_responses(403, 404, 413, 422),
    dependencies=[HEAVY],
)
def translate(services: UseCases, actor: Asker, name: str, asked: Statement) -> Response:
    return JsonReply(services.sql.translate(actor, name, asked.statement))


@router.post(
    "/sessions/{id}/sql",
    summary="Ask a statement of SQL, or its price: EXPLAIN",
    response_model=schemas.SqlView,
    responses={200: {"content": {headers.ARROW: {}}}, **problem_responses(403, 404, 408, 409, 413, 422, 503)},
)
async def ask(request: Request, context: AppContext, actor: Asker, id: str, asked: AskedStatement) -> Response:
    key = idempotency_key(request, actor, asked.model_dump(exclude_none=True))
    result = await result_of(request, context, actor, id, asked.statement, asked.at_most, key)
    if headers.accepts_arrow(request):
        return Reply(await run_in_threadpool(arrow_result, result), media_type=headers.ARROW)
    return JsonReply(await run_in_threadpool(orjson.dumps, result))
