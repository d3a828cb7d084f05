"""Lists a page at a time: which page a request asks for, and the link to the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import orjson
from fastapi import Depends, Query
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from app.declarations.spec import NAME
from app.http.parameters import Refused
from app.services.pages import Page
from app.services.sessions import SESSION_ID

After = TypeVar("After", str, int)

#: Items of a page: by default, and at most.
DEFAULT, MOST = 100, 1000

_Limit = Annotated[
    int,
    Query(ge=1, le=MOST, description="items of the page at most; it may have fewer and be followed by another"),
    Refused(f"how many items a page has at most, 1 to {MOST:,}", digits=len(str(MOST))),
]
_AFTER = Query(description="what the page follows on, as `next` of the page before has it")
_LINK = "what the link to the next page says"


@dataclass(frozen=True)
class PageRequest(Generic[After]):
    """The page asked for: at most ``limit`` items after the one named ``after``, the first ones if it is empty or 0."""

    request: Request
    limit: int
    after: After

    def reply(self, page: Page, name: str = "items", head: Mapping[str, Any] | None = None) -> Response:
        """The reply with a page and the address of the next one, in the body and as a link (RFC 8288).

        Args:
            page: the page's items.
            name: the field that has the items.
            head: fields before it.
        """
        document, headers = {**(head or {}), name: page.items}, {}
        if page.after is not None:
            path = quote(self.request.scope["path"], safe="/")
            document["next"] = f"{path}?{urlencode({'limit': self.limit, 'after': page.after})}"
            headers["Link"] = f'<{document["next"]}>; rel="next"'
        return Response(orjson.dumps(document), 200, headers, "application/json")


async def _by_name(
    request: Request,
    limit: _Limit = DEFAULT,
    after: Annotated[
        Annotated[str, Field(pattern=f"^{NAME.pattern}$")] | SkipJsonSchema[None], _AFTER, Refused(_LINK)
    ] = None,
) -> PageRequest[str]:
    return PageRequest(request, limit, after or "")


async def _by_session(
    request: Request,
    limit: _Limit = DEFAULT,
    after: Annotated[
        Annotated[str, Field(pattern=f"^{SESSION_ID.pattern}$")] | SkipJsonSchema[None], _AFTER, Refused(_LINK)
    ] = None,
) -> PageRequest[str]:
    return PageRequest(request, limit, after or "")


async def _by_number(
    request: Request,
    limit: _Limit = DEFAULT,
    after: Annotated[Annotated[int, Field(ge=0)] | SkipJsonSchema[None], _AFTER, Refused(_LINK, digits=18)] = None,
) -> PageRequest[int]:
    return PageRequest(request, limit, after or 0)


#: Pages of what is told apart by its name, by the id of a session, and by a number.
ByName = Annotated[PageRequest[str], Depends(_by_name)]
BySession = Annotated[PageRequest[str], Depends(_by_session)]
ByNumber = Annotated[PageRequest[int], Depends(_by_number)]
