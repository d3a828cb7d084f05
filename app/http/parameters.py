"""Parameters as routes declare them: what is said of one that cannot be read, or that is there twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from fastapi import Query
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from app.declarations.errors import InvalidRequest


@dataclass(frozen=True)
class Refused:
    """What is said of a parameter that is missing or cannot be read, behind its name.

    Args:
        words: what it should be.
        digits: most digits of a whole number, which is then written with nothing else.
    """

    words: str
    digits: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if self.digits is None:
            return handler(source)
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def _check(self, value: Any) -> Any:
        if not re.fullmatch(f"[0-9]{{1,{self.digits}}}", value):
            raise ValueError(self.words)
        return value


#: A number of something that is counted from 0 on.
NUMBER = Refused("a number from 0 on, of at most 18 digits", digits=18)
Number = Annotated[int, Query(ge=0), NUMBER]


def refusal(route: Any, error: RequestValidationError) -> InvalidRequest:
    """The refusal of the first parameter of a route that cannot be read, in its own words."""
    first = error.errors()[0]
    name = first["loc"][1]
    said = [each.field_info.metadata for each in get_flat_params(route.dependant) if each.alias == name]
    words = (each.words for metadata in said for each in metadata if isinstance(each, Refused))
    return InvalidRequest(f"{name}: {next(words, first['msg'])}")


class Route(APIRoute):
    """A route whose address says each parameter once, but for lists."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler of a request, over parameters that are looked at."""
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive))

        return handler


class _Request(Request):
    @cached_property
    def query_params(self) -> QueryParams:
        return _Parameters(self.scope["query_string"])


class _Parameters(QueryParams):
    def get(self, key: Any, default: Any = None) -> Any:
        """The one value of a parameter.

        Raises:
            InvalidRequest: when there are several.
        """
        if len(self.getlist(key)) > 1:
            raise InvalidRequest(f"{key}: say it once")
        return super().get(key, default)
