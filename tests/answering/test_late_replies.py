"""Replies that leave after their time: of every call that takes a key somebody knows whose reply it is."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from app.bootstrap.wiring import build
from app.services.idempotency import _session
from app.settings import Settings

pytestmark = pytest.mark.unit

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.slow
def test_the_session_of_every_reply_is_known(tmp_path: Path) -> None:
    """A reply is named by the path of its call: of what is created it says so itself, of all else the path does. An
    audit keeps its key with itself, and goes with it.
    Catches a route that takes a key and whose replies would keep all others from ever being removed.
    """
    paths = build(Settings(data_dir=tmp_path)).app.openapi()["paths"]
    operations = [(path, operation) for path, item in paths.items() for operation in item.values()]
    keyed = [
        (path, operation["responses"])
        for path, operation in operations
        if "Idempotency-Key" in {parameter["name"] for parameter in operation.get("parameters", ())}
    ]
    assert {path.split("/")[2] for path, _ in keyed} == {"sessions", "releases", "audits"}
    for path, responses in keyed:
        if path.startswith("/v1/audits"):
            continue
        reply = orjson.dumps({"id": ID}) if {"201", "202"} & responses.keys() else None
        assert _session(("ann", path.replace("{id}", ID), "k"), reply) == ID, path
