"""What becomes of requests that end otherwise than they should."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.http.bodies import BodyMemory
from app.http.metrics import Metrics
from app.http.middleware import Observe

pytestmark = pytest.mark.unit


def test_a_request_that_a_stop_gives_up() -> None:
    """A drain ends before the request does, and the server cancels it. Catches a 500 without a word, which tells the
    client neither to come back nor that the request may have been carried out.
    """

    async def stuck(*_: Any) -> None:
        await asyncio.sleep(60)

    async def cancelled() -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        metrics = Metrics()
        observe = Observe(stuck, metrics, BodyMemory(1, metrics.refused))
        scope = {"type": "http", "method": "GET", "path": "/v1/sessions", "headers": []}
        task = asyncio.create_task(observe(scope, stuck, send))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        return sent

    start, body = asyncio.run(cancelled())
    assert start["status"] == 503
    assert b"retry-after" in dict(start["headers"])
    assert json.loads(body["body"])["type"] == "/problems/unavailable"
