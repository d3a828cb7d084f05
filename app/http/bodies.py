"""Reading request bodies within their limits."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from starlette.requests import Request

from app.services.answering import DenseBody
from app.services.errors import PayloadTooLarge
from app.spaces.errors import InvalidQuery, InvalidRequest

NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"


async def read(request: Request, limit: int) -> bytes:
    """The body's bytes.

    Raises:
        PayloadTooLarge: as soon as it passes the limit; a declared length is believed.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large(limit)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_large(limit)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def too_large(limit: int) -> PayloadTooLarge:
    """The refusal of a body over its limit."""
    return PayloadTooLarge(f"the body may have at most {limit:,} bytes", limit=limit)


def parse_json(body: bytes, depth: int) -> Any:
    """JSON no deeper than ``depth``.

    Raises:
        InvalidRequest: when it is none, or deeper.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    if body.count(b"[") + body.count(b"{") > depth and _deeper(document, depth):
        raise InvalidRequest(f"the body is nested deeper than {depth} levels")
    return document


def _deeper(document: Any, depth: int) -> bool:
    level = [document]
    for _ in range(depth + 1):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def fingerprint(document: Any) -> str:
    """What an idempotency key stands for: equal for equal JSON, however it is laid out."""
    return hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()


def dense_body(media_type: str, body: bytes, *, unverified: bool) -> DenseBody:
    """A dense query from an .npy or Arrow body.

    Raises:
        InvalidQuery: when the body is not what its media type says, or holds no numbers.
    """
    try:
        if media_type == NPY:
            array = np.load(io.BytesIO(body), allow_pickle=False)
        else:
            with pa.ipc.open_stream(body) as reader:
                table = reader.read_all()
            if table.num_columns != 1:
                raise InvalidQuery("an Arrow body has one column of weights")
            array = table.column(0).to_numpy()
    except (ValueError, EOFError, OSError, pa.ArrowException):
        raise InvalidQuery(f"the body is not a readable {media_type}") from None
    if not isinstance(array, np.ndarray):
        raise InvalidQuery("the body must hold one array")
    return DenseBody(array, unverified)
