"""RFC 9457 problem details: the only place that knows status codes."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response

from app.declarations.errors import CuratorError

MEDIA_TYPE = "application/problem+json"

#: Problem code: status and title.
PROBLEMS: dict[str, tuple[int, str]] = {
    "unauthenticated": (401, "No valid API key"),
    "forbidden": (403, "Not allowed for this key"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "Method not allowed"),
    "request-timeout": (408, "The request came too slowly"),
    "conflict": (409, "In conflict with what is there"),
    "budget-exhausted": (409, "The budget does not hold so much"),
    "updates-exhausted": (409, "All updates are used"),
    "queries-exhausted": (409, "All queries are asked"),
    "session-closed": (409, "The session is closed"),
    "release-ended": (409, "The release was ended"),
    "idempotency-conflict": (409, "The idempotency key was used with another body"),
    "payload-too-large": (413, "The body is too large"),
    "invalid-request": (422, "The request cannot be read"),
    "invalid-query": (422, "The query does not fit"),
    "sql-refused": (422, "The statement has no meaning here"),
    "invalid-dataset": (422, "The data set cannot be taken"),
    "plan-infeasible": (422, "No plan keeps this promise"),
    "too-many-requests": (429, "Too many requests"),
    "release-failed": (500, "The release failed"),
    "audit-failed": (500, "The audit failed"),
    "unavailable": (503, "Not available now"),
    "source-moved": (503, "The records are not what was registered"),
    "source-unavailable": (503, "The records cannot be counted now"),
    "release-too-long": (504, "The release took too long"),
}


def _number(value: object) -> object:
    """Large integers as floats, as not every reader of JSON keeps them exact (RFC 8259, section 6); the detail does."""
    return float(value) if isinstance(value, int) and abs(value) > 2**53 else value


def document(error: CuratorError) -> dict[str, Any]:
    """A refusal as a problem document."""
    status, title = PROBLEMS[error.code]
    return {
        **{name: _number(value) for name, value in error.extra.items()},
        "type": f"/problems/{error.code}",
        "title": title,
        "status": status,
        "detail": error.detail,
    }


def response(error: CuratorError) -> Response:
    """A refusal as a response."""
    body = document(error)
    headers = {}
    retry_after = error.extra.get("retry_after")
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    if body["status"] == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(orjson.dumps(body), body["status"], headers, MEDIA_TYPE)
