"""JSON replies."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response


def json_reply(content: Any, status: int = 200) -> Response:
    """A reply of some content."""
    return encoded_reply(orjson.dumps(content), status)


def encoded_reply(content: bytes, status: int = 200) -> Response:
    """A reply of content that is JSON already."""
    return Response(content, status, media_type="application/json")
