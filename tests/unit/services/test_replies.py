"""Replies that leave after their time: of every call that takes a key somebody knows whose reply it is."""

from __future__ import annotations

import re
from importlib import import_module

import orjson
import pytest

from app.services.replies import _session

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("resource", ["sessions", "queries", "releases"])
def test_the_session_of_every_reply_is_known(resource: str) -> None:
    """A reply is named by the path of its call: of what is created it says so itself, of all else the path does.
    Catches a route that takes a key and whose replies would keep all others from ever being removed.
    """
    source = import_module(f"app.http.routes.{resource}").__loader__.get_source(f"app.http.routes.{resource}")  # type: ignore[union-attr]
    handlers = [each for each in source.split("@app.")[1:] if "idempotency_key(" in each]
    assert handlers
    for handler in handlers:
        path = re.search(r'"(/v1/[^"]*)"', handler)
        assert path is not None
        creates = "status_code=201" in handler or "status_code=202" in handler
        reply = orjson.dumps({"id": ID}) if creates else None
        assert _session(("ann", path[1].replace("{id}", ID), "k"), reply) == ID, path[1]
