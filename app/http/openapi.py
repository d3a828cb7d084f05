"""The parts of the OpenAPI document that FastAPI cannot derive, as routes read bodies and parameters themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from pydantic import TypeAdapter

from app.curator.comparison import MOST_MECHANISMS
from app.curator.request import SessionRequest
from app.declarations.spec import spec_schema
from app.http import paging
from app.http.problems import MEDIA_TYPE, PROBLEMS
from app.services.cosignatures import MOST_LINES
from app.services.dummies import MOST_RECORDS, RECORDS, SEEDS
from app.services.release_request import ReleaseRequest
from app.services.releases import FILES
from app.spaces.queries.registry import QueryRequest
from app.spaces.queries.request import QueryModel

_REF = "#/components/schemas/{model}"
#: Schemas of names: of principals and data sets.
NAMED: dict[str, Any] = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"}
#: Of sessions, and of a ledger's entries and measurements.
SESSION: dict[str, Any] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
MOVEMENT: dict[str, Any] = {"type": "integer", "minimum": 0}
MEASUREMENT = MOVEMENT


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route with these statuses."""
    return {
        status: {
            "description": "; ".join(title for code, (at, title) in PROBLEMS.items() if at == status),
            "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="ProblemDocument")}}},
        }
        for status in statuses
    }


#: Which table of a document of several is meant.
TABLE: dict[str, Any] = {
    "name": "table",
    "in": "query",
    "required": False,
    "description": "of a SmartNoise or CSVW document with several tables: the name of one",
    "schema": {"type": "string"},
}


#: The public key of a witness, and which cosignatures a checkpoint is to have.
WITNESS: dict[str, Any] = {"type": "string", "pattern": r"^[!-*,-~]{1,255}\+[0-9a-f]{8}\+[A-Za-z0-9+/]{44}$"}
COSIGNED: dict[str, Any] = {
    "parameters": [
        {
            "name": "witnesses",
            "in": "query",
            "required": False,
            "description": "the newest checkpoint that so many have cosigned; the newest of all where it is left out",
            "schema": {"type": "integer", "minimum": 1, "maximum": MOST_LINES},
        },
        {
            "name": "witness",
            "in": "query",
            "required": False,
            "description": "whose cosignatures count, beside witnesses: NAME+HASH+KEY; all where none is named",
            "schema": {"type": "array", "items": WITNESS, "maxItems": MOST_LINES},
        },
    ]
}


#: Which table of what came of a release is meant.
PART: dict[str, Any] = {
    "name": "part",
    "in": "query",
    "required": False,
    "description": "the first of them that there is where none is named",
    "schema": {"type": "string", "enum": list(FILES)},
}


def multipart(*, draft: bool = False) -> dict[str, Any]:
    """The body of a registration, or of a check, whose declaration may be left out."""
    declaration = {"$ref": _REF.format(model="Declaration")}
    if draft:
        declaration = {
            "type": "string",
            "description": "the declaration as JSON or YAML, as far as it is known: what is left out is drafted; or a "
            "SmartNoise or CSVW document",
        }
    return {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["data"] if draft else ["spec", "data"],
                    "properties": {
                        "spec": declaration,
                        "data": {
                            "type": "string",
                            "format": "binary",
                            "description": "CSV, TSV, text, Excel (.xlsx), Parquet, .npy or .npz; the file's name "
                            "tells which. A "
                            "matrix: an array of its shape (.npy, .npz); Parquet with a column for each of its columns "
                            "and its rows in order; or columns row, column, value, with absent declared",
                        },
                    },
                },
                "encoding": {} if draft else {"spec": {"contentType": "application/json"}},
            }
        },
    }


def query_body(*, single: bool) -> dict[str, Any]:
    """The body of a query, or of a batch of them."""
    query = {"$ref": _REF.format(model="Query")}
    if single:
        binary = {"schema": {"type": "string", "format": "binary"}}
        content: dict[str, Any] = {
            "application/json": {"schema": query},
            "application/x-npy": binary,
            "application/vnd.apache.arrow.stream": binary,
        }
    else:
        schema = {
            "type": "object",
            "required": ["queries"],
            "additionalProperties": False,
            "properties": {"queries": {"type": "array", "minItems": 1, "items": query}},
        }
        content = {"application/json": {"schema": schema}}
    return {"required": True, "content": content}


def wanted_parameters() -> list[dict[str, Any]]:
    """The parameters of an array of weights, whose body cannot say what is wanted of the answer."""
    fields = QueryModel.model_json_schema()["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": f"of an array alone: {field['description']}",
            "schema": _parameter(field),
        }
        for name, field in fields.items()
    ]


def _parameter(field: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field in an address, where nothing is null."""
    kind = next((kind for kind in field.get("anyOf", ()) if kind.get("type") != "null"), field)
    return {name: value for name, value in kind.items() if name not in ("description", "title")}


def plan_body() -> dict[str, Any]:
    """The body of a plan: a session's, with one mechanism or a list of them."""
    one, several = ({"$ref": _REF.format(model=model)} for model in ("SessionRequest", "ComparisonRequest"))
    return {"required": True, "content": {"application/json": {"schema": {"anyOf": [one, several]}}}}


#: The parameters of dummy records.
DUMMY: dict[str, Any] = {
    "parameters": [
        {
            "name": "records",
            "in": "query",
            "required": False,
            "description": "how many",
            "schema": {"type": "integer", "minimum": 1, "maximum": MOST_RECORDS, "default": RECORDS},
        },
        {
            "name": "seed",
            "in": "query",
            "required": False,
            "description": "equal seeds give equal records",
            "schema": {"type": "integer", "minimum": 0, "maximum": SEEDS - 1, "default": 0},
        },
    ]
}


def page_parameters(after: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a list; ``after`` is the schema of its items' names."""
    return {
        "parameters": [
            {
                "name": "limit",
                "in": "query",
                "required": False,
                "description": "items of the page at most; it may have fewer and be followed by another",
                "schema": {"type": "integer", "minimum": 1, "maximum": paging.MOST, "default": paging.DEFAULT},
            },
            {
                "name": "after",
                "in": "query",
                "required": False,
                "description": "what the page follows on, as `next` of the page before has it",
                "schema": after,
            },
        ]
    }


def number_parameters(**least: int) -> dict[str, Any]:
    """Parameters that are numbers, all of them required, each with the least that it may be."""
    schemas = {name: {"type": "integer", "minimum": minimum} for name, minimum in least.items()}
    return {"parameters": [{"name": n, "in": "query", "required": True, "schema": s} for n, s in schemas.items()]}


#: What a schema calls the bounds of numbers that pydantic keeps as decimals.
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def _with_numbers(schema: Any) -> Any:
    """A schema of a declaration in which a number is a JSON number alone, with its bounds."""
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


def extra_schemas() -> dict[str, Any]:
    """Schemas of the bodies that routes read themselves, by their names in the document."""
    query = TypeAdapter(QueryRequest).json_schema(ref_template=_REF)
    session = SessionRequest.model_json_schema(ref_template=_REF)
    found: dict[str, Any] = {**query.pop("$defs", {}), **session.pop("$defs", {})}
    found["Query"], found["SessionRequest"] = query, session
    release = ReleaseRequest.model_json_schema(ref_template=_REF)
    found.update(release.pop("$defs", {}))
    found["ReleaseRequest"] = release
    declaration = _with_numbers(spec_schema(_REF))
    found |= declaration.pop("$defs")
    found["Declaration"] = {
        **declaration,
        "description": "What is declared of a data set, by its kind: docs/datasets.md.",
    }
    for field in session["properties"].values():
        # Where a string of digits would do as well, the document shows the number alone.
        number = next((kind for kind in field.get("anyOf", ()) if kind.get("type") == "number"), None)
        if number is not None and {"type": "string"} in field["anyOf"]:
            del field["anyOf"]
            field.update(number)
    mechanisms = {
        "type": "array",
        "minItems": 1,
        "maxItems": MOST_MECHANISMS,
        "items": session["properties"]["mechanism"],
        "description": "mechanisms to compare, in the place of mechanism",
    }
    found["ComparisonRequest"] = {
        **session,
        "title": "ComparisonRequest",
        "description": "A session asked for with several mechanisms, to compare their plans.",
        "properties": {"mechanisms": mechanisms}
        | {field: kind for field, kind in session["properties"].items() if field != "mechanism"},
        "required": ["mechanisms", *(field for field in session["required"] if field != "mechanism")],
    }
    name = NAMED
    found["PrincipalRequest"] = {
        "type": "object",
        "required": ["name", "role"],
        "additionalProperties": False,
        "properties": {"name": name, "role": {"enum": ["admin", "analyst", "auditor"]}},
    }
    found["GrantRequest"] = {
        "type": "object",
        "required": ["epsilon"],
        "additionalProperties": False,
        "properties": {"epsilon": {"type": "number", "minimum": 0}},
    }
    found["ProblemDocument"] = {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
        },
    }
    return found


def describe(app: FastAPI, generate: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The OpenAPI document, made at the first call.

    Args:
        app: the application, with all routes.
        generate: FastAPI's ``get_openapi``.
    """
    if app.openapi_schema is None:
        document = generate(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        components = document.setdefault("components", {})
        components.setdefault("schemas", {}).update(extra_schemas())
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        idempotency = {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "names this call: a repeat with the same key and body gets the same reply while the session "
            "is open, and for seven days after it was closed",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        }
        for path, item in document["paths"].items():
            for method, operation in item.items():
                if path.startswith("/v1") or path == "/metrics":
                    operation["security"] = [{"key": []}]
                if method == "post" and path.startswith("/v1/sessions"):
                    operation.setdefault("parameters", []).append(idempotency)
                # FastAPI validates nothing here: its own validation error cannot occur.
                responses = operation.get("responses", {})
                # Any request may come too slowly, over a connection too many, or with a key that sends too much.
                busy = (408, 429, 503) if "security" in operation else (408, 503)
                for status, words in problem_responses(*busy).items():
                    responses.setdefault(str(status), words)
                if "HTTPValidationError" in str(responses.get("422", "")):
                    del responses["422"]
        app.openapi_schema = document
    return app.openapi_schema
