"""Routes of SQL: a statement that is asked of a session, and one that is only translated."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from app.http import headers, schemas
from app.http.context import Context
from app.http.dependencies import HEAVY, AppContext, Asker, JsonModel, UseCases, idempotency_key
from app.http.openapi import problem_responses
from app.http.parameters import Route
from app.http.replies import JsonReply
from app.http.sql_tables import arrow_result
from app.http.tickets import answer
from app.services.answering.tickets import Ticket
from app.services.idempotency import IdempotencyKey
from app.services.principals import Principal
from app.services.sql import Asked, answered, check_prices, explained
from app.sql.statement import Select

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
async def ask(
    request: Request, context: AppContext, services: UseCases, actor: Asker, id: str, asked: AskedStatement
) -> Response:
    key = idempotency_key(request, actor, asked.model_dump(exclude_none=True))
    read = await run_in_threadpool(services.sql.read, actor, id, asked.statement, asked.at_most)
    select = read.statement
    if isinstance(select, Select):
        context.authenticator.count(request, actor, len(select.questions))
        result = await _result(request, context, actor, id, read, key)
    else:
        assert read.told is not None
        result = read.told
    if headers.accepts_arrow(request):
        return Response(await run_in_threadpool(arrow_result, result), media_type=headers.ARROW)
    return JsonReply(result)


async def _result(
    request: Request, context: Context, actor: Principal, id: str, read: Asked, key: IdempotencyKey | None
) -> dict[str, Any]:
    """The result of a statement that asks. What was answered under its key is given again, whatever it cost now."""
    select = read.statement
    assert isinstance(select, Select)
    known = None if select.explain else await run_in_threadpool(context.services.sql.known, key)
    if known is None:
        priced = await answer(context, request, actor, Ticket("prices", id, actor.name, select.questions))
        prices = orjson.loads(priced)["prices"]
        if select.explain:
            return explained(select, prices)
        check_prices(read, prices)
        known = await answer(context, request, actor, Ticket("batch", id, actor.name, _held(select), key))
    answers = orjson.loads(known)["answers"]
    return await run_in_threadpool(answered, select, answers)


def _held(select: Select) -> list[dict[str, Any]]:
    """The questions of a statement, none of which may cost more than all: what was priced may cost more by now."""
    held = {} if select.at_most is None else {"at_most": select.at_most}
    return [question | held for question in select.questions]
