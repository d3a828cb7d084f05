"""Request headers: how a body is declared, and what is accepted of it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.types import Scope

from app.declarations.errors import InvalidRequest

NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
#: Media types that are read as JSON. The second is what curl and urllib declare unless told otherwise.
_JSON = ("application/json", "application/x-www-form-urlencoded")
#: Headers that state the encoding of a body, and the value that is accepted. The HTTP parser decodes chunks, and
#: refuses other encodings only where they come last.
_PLAIN = {b"transfer-encoding": b"chunked", b"content-encoding": b"identity"}


def header(request: Request, name: bytes) -> str | None:
    """The first header of this name in lower case. The framework's own look-up costs several times as much."""
    for key, value in request.scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def media_type(request: Request) -> str:
    """The declared media type of the body, in lower case without parameters; empty where none is declared."""
    return (header(request, b"content-type") or "").partition(";")[0].strip().lower()


def accepts_arrow(request: Request) -> bool:
    """Whether the reply is wanted as an Arrow stream, which ``Accept`` then names before JSON."""
    for part in (header(request, b"accept") or "").split(","):
        wanted = part.partition(";")[0].strip().lower()
        if wanted in ("application/json", "application/*", "*/*"):
            return False
        if wanted == ARROW:
            return True
    return False


def negotiated(request: Request, offered: Sequence[str], what: str) -> str:
    """The media type that something is sent as: the first acceptable one, the first offered where anything will do.

    Raises:
        InvalidRequest: naming what is offered.
    """
    for part in (header(request, b"accept") or "*/*").split(","):
        wanted = part.partition(";")[0].strip().lower()
        if wanted in offered:
            return wanted
        if wanted in ("*/*", "application/*", "application/octet-stream", ""):
            return offered[0]
    raise InvalidRequest(f"Accept: {what} is sent as one of {', '.join(offered)}")


def expect_json(declared: str) -> None:
    """Refuse a body whose media type is declared to be something else than JSON.

    Raises:
        InvalidRequest: saying what to send.
    """
    if declared and declared not in _JSON and not declared.endswith("+json"):
        raise InvalidRequest("the body must be JSON: send it with Content-Type: application/json")


def expect_plain(scope: Scope) -> None:
    """Refuse a request whose body is compressed or otherwise encoded: nothing here would decode it.

    Raises:
        InvalidRequest: naming the header to leave out.
    """
    for name, value in scope["headers"]:
        plain = _PLAIN.get(name)
        if plain is not None and value.strip().lower() != plain:
            raise InvalidRequest(
                f"{name.decode().title()} other than {plain.decode()} is not taken: send the body as it is"
            )
