"""Reading the upload of a data set: a multipart form with a declaration and a file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from app.declarations.errors import InvalidDataset, InvalidRequest
from app.declarations.imports import parse_yaml
from app.http import bodies, json_bodies
from app.http.context import Context
from app.http.headers import media_type


class Form(MultiPartParser):
    """A multipart form with fields in UTF-8."""

    def on_part_end(self) -> None:
        """End a part. A field that is not UTF-8, which the base class would read as Latin-1, is refused."""
        if self._current_part.file is None:
            try:
                self._current_part.data.decode()
            except UnicodeDecodeError:
                raise InvalidRequest("a field of the form is not valid UTF-8: send it as UTF-8") from None
        super().on_part_end()


async def read_upload(request: Request, context: Context) -> tuple[Any, UploadFile]:
    """The declared spec and the file of a multipart body, which stays in memory: private data touch no disk outside the
    vault.

    Raises:
        InvalidRequest: when the body is not a form with these two fields.
        InvalidDataset: when the spec is not JSON.
        PayloadTooLarge: when the body is larger than uploads may be.
        Unavailable: when the bodies of all requests leave no room for it.
    """
    spec, upload = await _read_form(request, context, whole=True)
    return _parsed(spec or "", context), upload


async def read_checked(request: Request, context: Context) -> tuple[Any, UploadFile]:
    """As :func:`read_upload`, of a form whose spec may be YAML, or be left out or empty: then it is None.

    Raises:
        InvalidRequest: when the body is not a form with a file and, if anything else, a spec.
        InvalidDataset: when the spec is neither JSON nor YAML.
        PayloadTooLarge: as :func:`read_upload`.
        Unavailable: as :func:`read_upload`.
    """
    spec, upload = await _read_form(request, context, whole=False)
    text = (spec or "").strip()
    if not text:
        return None, upload
    if text.startswith("{"):
        return _parsed(text, context), upload
    return await run_in_threadpool(parse_yaml, text, context.limits.max_json_depth), upload


def _parsed(spec: str, context: Context) -> Any:
    declared = spec.encode()
    json_bodies.weigh(declared)
    try:
        return json_bodies.parse_json(declared, context.limits.max_json_depth)
    except InvalidRequest as error:
        raise InvalidDataset(f"spec: {error.detail}") from None


async def _read_form(request: Request, context: Context, *, whole: bool) -> tuple[str | None, UploadFile]:
    """The field ``spec`` and the file ``data`` of a multipart body; unless ``whole``, the former may not be there."""
    limit, size = context.limits.max_body_bytes, 0
    if media_type(request) != "multipart/form-data":
        raise InvalidRequest("send multipart/form-data with the fields spec (JSON) and data (a file)")

    async def counted() -> AsyncGenerator[bytes, None]:
        nonlocal size
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise bodies.too_large(limit)
            context.body_memory.reserve(request.scope, len(part))
            yield part

    parser = Form(
        request.headers, counted(), max_files=1, max_fields=2, max_part_size=context.limits.max_query_body_bytes
    )
    parser.spool_max_size = limit + 1
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError):
        raise InvalidRequest("the multipart body cannot be read: is it complete?") from None
    spec, upload = form.get("spec"), form.get("data")
    if isinstance(spec, UploadFile):
        raise InvalidRequest("spec is a form field with JSON, not a file")
    names = sorted(name for name, _ in form.multi_items())
    if not isinstance(upload, UploadFile) or names not in (["data", "spec"], ["data", "spec"] if whole else ["data"]):
        needed = (
            "the fields spec (JSON) and data (a file with a name) are needed, each once"
            if whole
            else "the field data (a file with a name) is needed, and beside it at most a spec"
        )
        raise InvalidRequest(f"{needed}; is the body complete?")
    return spec, upload


@asynccontextmanager
async def in_memory(upload: UploadFile) -> AsyncIterator[Path]:
    """The path of an anonymous memory file with the upload's bytes, which is there while this is entered."""
    descriptor = await run_in_threadpool(into_memory, upload)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
        await upload.close()


def into_memory(upload: UploadFile) -> int:
    """The descriptor of an anonymous memory file with the upload's bytes, which the caller closes."""
    descriptor = os.memfd_create("upload", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            upload.file.seek(0)
            while block := upload.file.read(1 << 20):
                file.write(block)
        # What reads it maps it, and it is to be what was sent still when its commitment is made.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
