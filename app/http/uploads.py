"""Reading the upload of a data set: a multipart form with a declaration and a file, or with a declaration alone.

The file is held once: as it comes it is written to an anonymous memory file, which is what a reader gets. Private data
touch no disk outside the vault.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from app.declarations.errors import InvalidDataset, InvalidRequest
from app.declarations.imports import parse_yaml
from app.http import bodies, json_bodies, schemas
from app.http.context import Context
from app.http.dependencies import AppContext, Caller
from app.http.headers import media_type

MULTIPART = "multipart/form-data"
_WHOLE = (
    "the fields spec (JSON) and data (a file with a name) are needed, each once; data alone is left out where spec "
    "names a source"
)


class Form(MultiPartParser):
    """A multipart form with fields in UTF-8, and with one file, whose bytes are written to ``memory`` as they come.

    Args:
        request: that brings it.
        stream: its body.
        most_field: bytes that a field may have.
        most_fields: fields that there may be.
        memory: where the file goes.
        first: told the name and the text of the first field, before anything of what follows is taken; what it raises
            ends the reading. None takes all as it comes.
    """

    def __init__(
        self,
        request: Request,
        stream: AsyncGenerator[bytes, None],
        most_field: int,
        most_fields: int,
        memory: BinaryIO,
        first: Callable[[str, str], None] | None = None,
    ):
        super().__init__(request.headers, stream, max_files=1, max_fields=most_fields, max_part_size=most_field)
        self._memory, self._first = memory, first

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        """Take some of a part. The base class would keep what is a file's in one of its own."""
        if self._current_part.file is None:
            super().on_part_data(data, start, end)
            return
        self._begin("", "")
        self._memory.write(memoryview(data)[start:end])

    def on_part_end(self) -> None:
        """End a part. A field that is not UTF-8, which the base class would read as Latin-1, is refused."""
        if self._current_part.file is None:
            try:
                text = self._current_part.data.decode()
            except UnicodeDecodeError:
                raise InvalidRequest("a field of the form is not valid UTF-8: send it as UTF-8") from None
            self._begin(self._current_part.field_name, text)
        super().on_part_end()

    def _begin(self, name: str, text: str) -> None:
        """Tell of the first field, once; a file that comes before any field is told as one without a name."""
        if self._first is not None:
            first, self._first = self._first, None
            first(name, text)


@dataclass(frozen=True)
class Upload:
    """A declared spec, and the name and the path of the file, which is there until the endpoint has returned."""

    spec: Any
    filename: str
    path: Path


@dataclass(frozen=True)
class Registered:
    """A declared spec, and the name and the path of the file as of :class:`Upload`; no path where a source is named."""

    spec: Any
    filename: str
    path: Path | None


class RegistrationUpload(bodies.Described):
    """A multipart body with a spec and a file, or with a spec that names a source."""

    def __init__(self) -> None:
        encoding = {"spec": {"contentType": "application/json"}}
        super().__init__(schemas.RegistrationForm, media_type="multipart/form-data", encoding=encoding)

    async def __call__(self, request: Request, context: AppContext, actor: Caller) -> AsyncIterator[Registered]:
        """The upload.

        Raises:
            InvalidRequest: when the body is not a form with these fields.
            InvalidDataset: when the spec is not JSON.
            PayloadTooLarge: when the body is larger than uploads may be.
            Unavailable: when the bodies of all requests leave no room for it.
        """
        async with _read_form(request, context, whole=True) as (spec, filename, path):
            declared = parsed(spec or "", context)
            if path is None and not (isinstance(declared, dict) and "source" in declared):
                raise InvalidRequest(f"{_WHOLE}; is the body complete?")
            yield Registered(declared, filename, path)


class CheckUpload(bodies.Described):
    """A multipart body with a file, and a spec that may be YAML, or be left out or empty: then it is None."""

    def __init__(self) -> None:
        super().__init__(schemas.CheckForm, media_type="multipart/form-data")

    async def __call__(self, request: Request, context: AppContext, actor: Caller) -> AsyncIterator[Upload]:
        """The upload.

        Raises:
            InvalidRequest: when the body is not a form with a file and, if anything else, a spec.
            InvalidDataset: when the spec is neither JSON nor YAML.
            PayloadTooLarge: as :class:`RegistrationUpload`.
            Unavailable: as :class:`RegistrationUpload`.
        """
        async with _read_form(request, context, whole=False) as (spec, filename, path):
            assert path is not None
            yield Upload(await declared(spec or "", context), filename, path)


async def declared(text: str, context: Context) -> Any:
    """A declaration as far as it goes, or a document of another format, in JSON or YAML; None for no text.

    Raises:
        InvalidDataset: when it is neither.
    """
    text = text.strip()
    if not text:
        return None
    if text.startswith("{"):
        return parsed(text, context)
    return await run_in_threadpool(parse_yaml, text, context.limits.max_json_depth)


def parsed(spec: str, context: Context) -> Any:
    """A declaration that was sent as JSON.

    Raises:
        InvalidDataset: when it is none.
    """
    sent = spec.encode()
    json_bodies.weigh(sent)
    try:
        return json_bodies.parse_json(sent, context.limits.max_json_depth)
    except InvalidRequest as error:
        raise InvalidDataset(f"spec: {error.detail}") from None


@asynccontextmanager
async def _read_form(
    request: Request, context: Context, *, whole: bool
) -> AsyncIterator[tuple[str | None, str, Path | None]]:
    """The field ``spec`` of a multipart body, and name and path of the file ``data``; if ``whole``, the file may not be
    there, else the spec.
    """
    if media_type(request) != MULTIPART:
        raise InvalidRequest("send multipart/form-data with the fields spec (JSON) and data (a file)")
    async with read_multipart(request, context, most_fields=2) as (form, path):
        spec, upload = form.get("spec"), form.get("data")
        if isinstance(spec, UploadFile):
            raise InvalidRequest("spec is a form field with JSON, not a file")
        names = sorted(name for name, _ in form.multi_items())
        if whole and names == ["spec"]:
            yield spec, "", None
            return
        if not isinstance(upload, UploadFile) or names not in (
            ["data", "spec"],
            ["data", "spec"] if whole else ["data"],
        ):
            needed = _WHOLE if whole else "the field data (a file with a name) is needed, and beside it at most a spec"
            raise InvalidRequest(f"{needed}; is the body complete?")
        yield spec, upload.filename or "", path


@asynccontextmanager
async def read_multipart(
    request: Request, context: Context, *, most_fields: int, first: Callable[[str, str], None] | None = None
) -> AsyncIterator[tuple[FormData, Path]]:
    """A multipart body: its fields, and the path of the one file in it, whose name its part has.

    Args:
        request: that brings it.
        context: whose limits hold.
        most_fields: fields that there may be.
        first: as of :class:`Form`.

    Raises:
        InvalidRequest: when it cannot be read.
        PayloadTooLarge: when it is larger than uploads may be.
        Unavailable: when the bodies of all requests leave no room for it.
    """
    limit, size = context.limits.max_body_bytes, 0
    request.scope[bodies.UNTOLD] = True
    bodies.expect_at_most(request, limit)

    async def counted() -> AsyncGenerator[bytes, None]:
        nonlocal size
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise bodies.too_large(limit)
            context.body_memory.reserve(request.scope, len(part))
            yield part

    with open(os.memfd_create("upload", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb") as memory:
        reader = Form(request, counted(), context.limits.max_query_body_bytes, most_fields, memory, first)
        try:
            form = await reader.parse()
        except (MultiPartException, ValueError):
            raise InvalidRequest("the multipart body cannot be read: is it complete?") from None
        memory.flush()
        # What reads it maps it, and it is to be what was sent still when its commitment is made.
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        yield form, Path(f"/proc/self/fd/{memory.fileno()}")
