"""The parts of the OpenAPI document that FastAPI cannot derive: bodies, which dependencies read, and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import TypeAdapter
from starlette.routing import BaseRoute

from app.http.bodies import Described
from app.http.problems import MEDIA_TYPE, PROBLEMS
from app.http.schemas import Declaration, ProblemDocument
from app.spaces.queries.registry import QueryRequest

_REF = "#/components/schemas/{model}"
#: Requests whose numbers pydantic would take as strings of digits, too.
_WITH_NUMBERS = ("SessionRequest", "ComparisonRequest", "ReleaseRequest")


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route with these statuses."""
    return {
        status: {
            "description": "; ".join(title for code, (at, title) in PROBLEMS.items() if at == status),
            "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model=ProblemDocument.__name__)}}},
        }
        for status in statuses
    }


#: What a schema calls the bounds of numbers that pydantic keeps as decimals.
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def _with_numbers(schema: Any) -> Any:
    """A schema in which a number is a JSON number alone, with its bounds."""
    if isinstance(schema, list):
        return [_with_numbers(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {_BOUNDS.get(word, word): _with_numbers(part) for word, part in schema.items()}
    kinds = made.get("anyOf", [])
    if {"type": "string"} in kinds and any(kind.get("type") == "number" for kind in kinds):
        kinds.remove({"type": "string"})
        if len(kinds) == 1:
            del made["anyOf"]
            made |= kinds[0]
    return made


def _schemas(name: str, of: Any) -> dict[str, Any]:
    """The schema of a type and of its parts, by their names in the document."""
    schema = TypeAdapter(of).json_schema(ref_template=_REF)
    return {**schema.pop("$defs"), name: schema}


def declaration_schemas() -> dict[str, Any]:
    """The schemas of a declaration and of its parts."""
    return {
        # Values of conditions may be numbers or texts, which is no matter of how numbers are written.
        name: schema if name in ("Condition", "Where") else _with_numbers(schema)
        for name, schema in _schemas("Declaration", Declaration).items()
    }


def _bodies(dependant: Dependant) -> Iterator[Described]:
    """The bodies that a route's dependencies read, where the document says anything of them."""
    for each in dependant.dependencies:
        body: Any = each.call
        if isinstance(body, Described) and body.model is not None:
            yield body
        yield from _bodies(each)


def describe(app: FastAPI, routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The OpenAPI document of an application and all its routes, made at the first call."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=routes)
    described = [each for each in iter_route_contexts(routes) if isinstance(each.original_route, APIRoute)]
    bodies = {route.unique_id: body for route in described for body in _bodies(route.dependant)}
    models = [(name, TypeAdapter(body.model)) for name, body in bodies.items()]
    # Of what is said of a refusal no route has it as its model.
    models.append(("", TypeAdapter(ProblemDocument)))
    refs, found = TypeAdapter.json_schemas(
        [(name, "validation", adapter) for name, adapter in models], ref_template=_REF
    )
    schemas = document["components"]["schemas"]
    schemas |= {
        name: _with_numbers(schema) if name in _WITH_NUMBERS else schema for name, schema in found["$defs"].items()
    }
    schemas |= _schemas("Query", QueryRequest) | declaration_schemas()
    for item in document["paths"].values():
        for operation in item.values():
            # FastAPI's own refusal of a parameter cannot occur: it leaves in words of the service.
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
            body = bodies.get(operation["operationId"])
            if body is not None:
                content: dict[str, Any] = {"schema": refs[operation["operationId"], "validation"]}
                if body.encoding:
                    content["encoding"] = body.encoding
                operation["requestBody"] = {"required": body.required, "content": {body.media_type: content}}
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    app.openapi_schema = document
    return document
