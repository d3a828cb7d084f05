"""Routes of data sets: registration, descriptors, grants, ledgers, retirement."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from app.http import schemas
from app.http.dependencies import HEAVY, Admin, Caller, ExportTurn, JsonModel, UploadTurn, UseCases
from app.http.headers import ARROW, CSV, PARQUET, negotiated
from app.http.openapi import problem_responses
from app.http.paging import ByName, ByNumber, BySession
from app.http.parameters import Refused, Route
from app.http.replies import JsonReply
from app.http.uploads import CheckUpload, Registered, RegistrationUpload, Upload
from app.services.dummy_records import MOST_RECORDS, RECORDS, SEEDS, DummyFormat, encoded

#: Media types of dummy records, and the formats that they stand for; the first is sent where any will do.
FORMATS: dict[str, DummyFormat] = {CSV: "csv", ARROW: "arrow", PARQUET: "parquet"}

router = APIRouter(prefix="/v1/datasets", tags=["data sets"], route_class=Route, responses=problem_responses(401, 429))


@router.post(
    "",
    status_code=201,
    summary="Register a data set",
    response_model=schemas.RegisteredView,
    responses=problem_responses(403, 409, 413, 422),
    dependencies=[HEAVY],
)
def register(
    services: UseCases,
    actor: Admin,
    upload: Annotated[Registered, Depends(RegistrationUpload(), scope="function")],
    work: UploadTurn,
) -> Response:
    return JsonReply(services.registration.register(actor, upload.spec, upload.filename, upload.path), 201)


@router.post(
    "/check",
    summary="Check a declaration and its file, or draft one; nothing is registered or kept",
    response_model=schemas.CheckView,
    responses=problem_responses(403, 413, 422),
    dependencies=[HEAVY],
)
def check(
    services: UseCases,
    actor: Admin,
    upload: Annotated[Upload, Depends(CheckUpload(), scope="function")],
    work: UploadTurn,
    table: Annotated[
        str | SkipJsonSchema[None],
        Query(description="of a SmartNoise or CSVW document with several tables: the name of one"),
    ] = None,
) -> Response:
    return JsonReply(services.checks.check(actor, upload.spec, upload.filename, upload.path, table))


@router.get(
    "",
    summary="Public descriptors of all data sets, a page at a time",
    response_model=schemas.Datasets,
    responses=problem_responses(422),
)
def list_datasets(services: UseCases, actor: Caller, page: ByName) -> Response:
    return page.reply(services.datasets.list(page.after, page.limit, actor))


@router.get(
    "/{name}",
    summary="The public descriptor of a data set",
    response_model=schemas.DatasetView,
    responses=problem_responses(404),
)
def describe_dataset(services: UseCases, actor: Caller, name: str) -> Response:
    return JsonReply(services.datasets.describe(name, actor))


@router.get(
    "/{name}/dummy",
    summary="Made-up records like those of a data set, from its declaration alone",
    response_class=Response,
    responses={200: {"content": {media_type: {} for media_type in FORMATS}}, **problem_responses(403, 404, 422)},
    dependencies=[HEAVY],
)
def dummy(
    request: Request,
    services: UseCases,
    actor: Caller,
    work: ExportTurn,
    name: str,
    records: Annotated[
        int,
        Query(description="how many", json_schema_extra={"minimum": 1, "maximum": MOST_RECORDS}),
        Refused("a whole number", digits=19),
    ] = RECORDS,
    seed: Annotated[
        int,
        Query(description="equal seeds give equal records", json_schema_extra={"minimum": 0, "maximum": SEEDS - 1}),
        Refused("a whole number", digits=19),
    ] = 0,
) -> Response:
    media_type = negotiated(request, tuple(FORMATS), "a table")
    made = services.dummies.table(actor, name, records, seed)
    return Response(encoded(made, FORMATS[media_type]), media_type=media_type)


@router.get(
    "/{name}/grants",
    summary="What everybody may hold, holds and has spent, a page at a time",
    response_model=schemas.Grants,
    responses=problem_responses(403, 404, 422),
    dependencies=[HEAVY],
)
def list_grants(services: UseCases, actor: Admin, name: str, page: ByName) -> Response:
    return page.reply(services.grants.of_dataset(actor, name, page.after, page.limit))


@router.get(
    "/{name}/sessions",
    summary="Sessions on a data set, whose they are and what they cost, a page at a time; not what was asked",
    response_model=schemas.Holders,
    responses=problem_responses(403, 404, 422),
)
def list_holders(services: UseCases, actor: Admin, name: str, page: BySession) -> Response:
    return page.reply(services.sessions.of_dataset(actor, name, page.after, page.limit))


@router.put(
    "/{name}/grants/{principal}",
    summary="Cap what an analyst may hold and spend",
    response_model=schemas.GrantedView,
    responses=problem_responses(403, 404, 409, 413, 422),
)
def grant(
    services: UseCases,
    actor: Admin,
    name: str,
    principal: str,
    asked: Annotated[schemas.GrantRequest, Depends(JsonModel(schemas.GrantRequest))],
) -> Response:
    return JsonReply(services.grants.grant(actor, name, principal, asked.epsilon))


@router.get(
    "/{name}/ledger",
    summary="Where the budget stands, and its movements a page at a time, exact",
    response_model=schemas.LedgerView,
    responses=problem_responses(403, 404, 422),
    dependencies=[HEAVY],
)
def ledger(services: UseCases, actor: Caller, name: str, page: ByNumber) -> Response:
    stands, movements = services.datasets.ledger(actor, name, page.after, page.limit)
    return page.reply(movements, "entries", stands)


@router.post(
    "/{name}/commitment",
    summary="Reveal the commitment to the private file, with its key; the log says that it was",
    response_model=schemas.CommitmentView,
    responses=problem_responses(403, 404, 409, 413, 422),
    dependencies=[HEAVY],
)
def reveal(
    services: UseCases,
    actor: Admin,
    name: str,
    asked: Annotated[schemas.RevealRequest, Depends(JsonModel(schemas.RevealRequest, required=False))],
) -> Response:
    return JsonReply(services.commitments.reveal(actor, name))


@router.delete(
    "/{name}",
    summary="Retire a data set: its private file is destroyed",
    response_model=schemas.DatasetView,
    responses=problem_responses(403, 404),
)
def retire(services: UseCases, actor: Caller, name: str) -> Response:
    return JsonReply(services.retirement.retire(actor, name))
