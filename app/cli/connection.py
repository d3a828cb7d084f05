"""The service that client commands call."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from app.cli.errors import Refusal
from app.cli.rendering import err

if TYPE_CHECKING:
    from curator_client import Curator


@contextmanager
def client(doing: str | None) -> Iterator[Curator]:
    """The service as the environment names it; the terminal shows ``doing`` while it works, if anything.

    Raises:
        Refusal: when the environment names no key.
    """
    from curator_client import Curator

    key = os.environ.get("CURATOR_API_KEY")
    if not key:
        raise Refusal("no key: set CURATOR_API_KEY to the one that the admin told you")
    url = os.environ.get("CURATOR_URL") or "http://127.0.0.1:8000"
    with Curator(url, key, retry_for=3.0) as curator, nullcontext() if doing is None else err.status(doing):
        yield curator
