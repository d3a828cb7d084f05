"""Routes of principals: who may call the service."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.declarations.errors import InvalidRequest
from app.declarations.spec import NAME
from app.http import paging, schemas
from app.http.context import Context
from app.http.openapi import NAMED, page_parameters, problem_responses
from app.http.replies import json_reply
from app.http.requests import json_object, optional_json_body


def add_routes(app: FastAPI, context: Context) -> None:
    """Add these routes."""

    @app.get(
        "/v1/principals",
        tags=["principals"],
        summary="All principals, a page at a time",
        response_model=schemas.Principals,
        responses=problem_responses(401, 403, 422),
        openapi_extra=page_parameters(NAMED),
    )
    async def list_principals(request: Request) -> Response:
        actor = await context.authenticator.authenticate(request)
        asked = paging.parse(request, NAME)
        return paging.reply(
            request, asked, await run_in_threadpool(context.services.principals.list, actor, asked.after, asked.limit)
        )

    @app.post(
        "/v1/principals",
        status_code=201,
        tags=["principals"],
        summary="Add a principal; its key is shown this once",
        response_model=schemas.NewPrincipal,
        responses=problem_responses(401, 403, 409, 413, 422),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/PrincipalRequest"}}},
            }
        },
    )
    async def add_principal(request: Request) -> Response:
        actor = await context.authenticator.authenticate(request)
        actor.require("admin")
        asked = await json_object(request, context, actor)
        if set(asked) != {"name", "role"}:
            raise InvalidRequest("give name and role, and nothing else")
        return json_reply(
            await run_in_threadpool(context.services.principals.add, actor, asked["name"], asked["role"]), 201
        )

    @app.post(
        "/v1/principals/{name}/key",
        tags=["principals"],
        summary="Replace a principal's key; the new one is shown this once",
        response_model=schemas.NewPrincipal,
        responses=problem_responses(401, 403, 404, 409, 413, 422),
        openapi_extra={
            "requestBody": {
                "required": False,
                "content": {"application/json": {"schema": {"type": "object", "additionalProperties": False}}},
            }
        },
    )
    async def rotate_key(request: Request, name: str) -> Response:
        actor = await context.authenticator.authenticate(request)
        actor.require("admin")
        if await optional_json_body(request, context, actor) != {}:
            raise InvalidRequest("a new key takes no body, or {}")
        return json_reply(await run_in_threadpool(context.services.principals.rotate, actor, name))

    @app.delete(
        "/v1/principals/{name}",
        status_code=204,
        tags=["principals"],
        summary="Revoke a principal's key",
        responses=problem_responses(401, 403, 404, 409),
    )
    async def revoke_principal(request: Request, name: str) -> Response:
        actor = await context.authenticator.authenticate(request)
        await run_in_threadpool(context.services.principals.revoke, actor, name)
        return Response(status_code=204)
