"""Lists a page at a time: which page a request asks for, and the link to the next one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from starlette.requests import Request
from starlette.responses import Response

from app.declarations.errors import InvalidRequest
from app.services.pages import Page

#: Items of a page: by default, and at most.
DEFAULT, MOST = 100, 1000
#: What the number of a ledger's entry looks like.
NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class PageRequest:
    """The page asked for: at most ``limit`` items after the one named ``after``, the first ones if it is empty."""

    limit: int
    after: str


def parse(request: Request, names: re.Pattern[str]) -> PageRequest:
    """The page that a request asks for.

    Args:
        request: with ``limit`` and ``after`` in its address, or without.
        names: what the names of items look like.

    Raises:
        InvalidRequest: when either is malformed, or there twice.
    """
    limit, after = (only(request, name) for name in ("limit", "after"))
    if limit is not None and (not re.fullmatch("[0-9]{1,4}", limit) or not 1 <= int(limit) <= MOST):
        raise InvalidRequest(f"limit: how many items a page has at most, 1 to {MOST:,}")
    if after is not None and not names.fullmatch(after):
        raise InvalidRequest("after: what the link to the next page says")
    return PageRequest(DEFAULT if limit is None else int(limit), after or "")


def only(request: Request, name: str) -> str | None:
    """A parameter of the address, None where it is not there.

    Raises:
        InvalidRequest: when it is there twice.
    """
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise InvalidRequest(f"{name}: say it once")
    return values[0] if values else None


def reply(
    request: Request, asked: PageRequest, page: Page, name: str = "items", head: Mapping[str, Any] | None = None
) -> Response:
    """The reply with a page and the address of the next one, in the body and as a link (RFC 8288).

    Args:
        request: of which this is the reply.
        asked: the page that it asked for.
        page: the page's items.
        name: the field that has the items.
        head: fields before it.
    """
    document, headers = {**(head or {}), name: page.items}, {}
    if page.after is not None:
        path = quote(request.scope["path"], safe="/")
        document["next"] = f"{path}?{urlencode({'limit': asked.limit, 'after': page.after})}"
        headers["Link"] = f'<{document["next"]}>; rel="next"'
    return Response(orjson.dumps(document), 200, headers, "application/json")
