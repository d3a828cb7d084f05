"""Routes of the page that shows the OpenAPI document and tries it out.

People paste keys into the page: all of it comes from this server, and the browser is told to let it load nothing else
and send nothing elsewhere.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

#: Images within the style sheet are written out as data.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Curator</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="icon" href="data:,">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""

_START = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
});
"""

#: Files of Swagger UI, as a package brings them, by their media types.
_FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}


#: The page at ``/docs``, and what it loads.
router = APIRouter(prefix="/docs", include_in_schema=False)


@router.get("")
async def page() -> Response:
    return Response(_PAGE, headers=_HEADERS, media_type="text/html")


@router.get("/start.js")
async def start() -> Response:
    return Response(_START, headers=_HEADERS, media_type="text/javascript")


@router.get("/{name}")
async def file(name: str) -> Response:
    if name not in _FILES:
        raise HTTPException(404)
    # Whole, whatever part of it is asked for: refusals of parts would be no problems.
    return Response(_content(name), headers=_HEADERS, media_type=_FILES[name])


@cache
def _content(name: str) -> bytes:
    return (resources.files("fastapi_offline") / "static" / name).read_bytes()
