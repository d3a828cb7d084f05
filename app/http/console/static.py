"""What pages load: the style sheet, fonts and scripts, under an address that changes with them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import Response

from app.services.errors import NotFound

FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".woff2": "font/woff2",
}
#: A year: what is there never changes, since its address would.
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable", "Cross-Origin-Resource-Policy": "same-origin"}

router = APIRouter(prefix="/console/static", include_in_schema=False)


@cache
def assets() -> dict[str, bytes]:
    """All files by name."""
    files = (path for path in sorted(FOLDER.rglob("*")) if path.suffix in _TYPES)
    return {path.name: path.read_bytes() for path in files}


@cache
def version() -> str:
    """The part of the address that stands for what all files hold."""
    whole = hashlib.sha256()
    for name, content in assets().items():
        whole.update(f"{name} {len(content)} ".encode() + content)
    return whole.hexdigest()[:16]


def address(name: str) -> str:
    """Where a file is."""
    return f"/console/static/{version()}/{name}"


@router.get("/{of}/{name}")
async def file(of: str, name: str) -> Response:
    """A file of this version of the service."""
    content = assets().get(name)
    if content is None or of != version():
        raise NotFound("there is no such file of the console")
    return Response(content, media_type=_TYPES[Path(name).suffix], headers=_FOR_EVER)
