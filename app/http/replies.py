"""JSON replies."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response


class JsonReply(Response):
    """A reply of some content, or of bytes that are JSON already."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes that are sent."""
        return content if isinstance(content, bytes) else orjson.dumps(content)
