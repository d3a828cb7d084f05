"""Replies that are as long as what they tell of: written piece by piece, and kept on disk where they grow long."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from typing import IO, Any

import orjson
from starlette.responses import Response, StreamingResponse

#: Items that are turned into text at a time.
_ITEMS = 500
#: Bytes of a document that stay in memory, and that are sent at a time of one that does not.
_IN_MEMORY, _PART = 1 << 20, 1 << 18


def write(head: Mapping[str, Any], name: str, items: Iterable[Any]) -> IO[bytes]:
    """A JSON document of the fields of ``head`` and, last, a list of that name.

    Public matter only: long ones are on disk.
    """
    with ExitStack() as undo:
        file = undo.enter_context(tempfile.SpooledTemporaryFile(_IN_MEMORY))
        file.write(orjson.dumps(head)[:-1] + b"," * bool(head) + orjson.dumps(name) + b":[")
        left, between = iter(items), b""
        while part := list(islice(left, _ITEMS)):
            file.write(between + orjson.dumps(part)[1:-1])
            between = b","
        file.write(b"]}")
        undo.pop_all()
    return file


def reply(file: IO[bytes]) -> Response:
    """The reply that sends a written document and closes it."""
    size = file.tell()
    file.seek(0)
    if size <= _IN_MEMORY:
        with file:
            return Response(file.read(), media_type="application/json")
    return StreamingResponse(_parts(file), headers={"Content-Length": str(size)}, media_type="application/json")


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while part := file.read(_PART):
            yield part
