"""Forms that bring a file. Private data go where uploads of the API go: into memory that has no name.

A form says whose it is before it brings anything: the token is its first field, and the reading of a body ends there
where the token is missing or another one's. So nobody has this server hold a file by making a browser of an admin send
one. A token in the address would be in logs and histories, and one in a header would need a script.

Nothing of a file is kept from one form to the next, neither on disk nor in memory: between a check and a registration
it is sent again. A browser that runs the page's script keeps the choice of the file, which stands outside of what a
check replaces; in any other it is chosen again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import UploadFile
from starlette.requests import Request

from app.declarations.errors import InvalidRequest
from app.http.console.gate import FORM_FIELDS, Admin, Form, check_token, expect_same_origin
from app.http.dependencies import AppContext
from app.http.headers import media_type
from app.http.uploads import MULTIPART, read_multipart


@dataclass(frozen=True)
class FileForm:
    """The fields of a form, and name and path of its file, which is there until the page was made; an empty name where
    none was chosen."""

    form: Form
    filename: str
    path: Path


async def read_file_form(request: Request, context: AppContext, login: Admin) -> AsyncIterator[FileForm]:
    """A form of an admin's log-in, with a file.

    Raises:
        Forbidden: when no page of this server sent it, or its first field is not the log-in's token.
        InvalidRequest: when it cannot be read.
        PayloadTooLarge: when it is larger than uploads may be.
        Unavailable: when the bodies of all requests leave no room for it.
    """
    expect_same_origin(request)
    if media_type(request) != MULTIPART:
        raise InvalidRequest(f"a form with a file is sent as {MULTIPART}")

    def first(name: str, text: str) -> None:
        check_token(Form([(name, text)]), login)

    async with read_multipart(request, context, most_fields=FORM_FIELDS, first=first) as (sent, path):
        items = sent.multi_items()
        names = [value.filename or "" for _, value in items if isinstance(value, UploadFile)]
        texts = [(name, value) for name, value in items if isinstance(value, str) and "\0" not in name + value]
        # A line of a text ends as browsers write it, and not as whoever typed it.
        fields = [(name, value.replace("\r\n", "\n").replace("\r", "\n")) for name, value in texts]
        form = Form(fields)
        check_token(form, login)  # of a form without any field nothing was told
        yield FileForm(form, names[0] if names else "", path)
