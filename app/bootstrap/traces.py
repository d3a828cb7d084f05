"""Spans for a collector of OpenTelemetry, by its protocol over HTTP in JSON (OTLP 1, `/v1/traces`).

All that is sent is made here, of the few words that :class:`app.services.tracing.Tracer` takes: there is nothing that
an error's text, a query or a name could come in by. Times are told in tenths of a second. What a collector does not
take is dropped, and nobody waits for it.
"""

from __future__ import annotations

import math
import queue
import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any

import httpx
import orjson
import structlog

from app.services.tracing import Part, Trace
from curator_client.version import __version__

logger = structlog.get_logger(__name__)

#: Spans that wait at most, and that are sent at a time; how often they are sent, and how long a collector may take.
MOST_WAITING, MOST_SENT, EVERY_SECONDS, PATIENCE_SECONDS = 8192, 512, 1.0, 5.0
#: Times are told in steps of so many nanoseconds.
STEP = 100_000_000
_SERVER, _INTERNAL = 2, 1


class Traces:
    """Sends spans to a collector.

    Args:
        url: where it takes traces.
    """

    def __init__(self, url: str) -> None:
        self._url, self._spans = url, queue.Queue[dict[str, Any] | None](MOST_WAITING)
        self._thread = threading.Thread(target=self._send, name="traces", daemon=True)
        self._resource = {
            "attributes": _attributes(
                {"service.name": "curator", "service.version": __version__, "service.instance.id": secrets.token_hex(8)}
            )
        }
        self._failing = False

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send what waits, if the collector takes it soon; then nothing more."""
        try:
            self._spans.put_nowait(None)
        except queue.Full:
            return
        if self._thread.is_alive():
            self._thread.join(PATIENCE_SECONDS)

    def follow(self) -> Trace | None:
        """See :class:`app.services.tracing.Tracer`; so the others."""
        return Trace(secrets.token_hex(16), secrets.token_hex(8))

    def request(self, own: Trace, began: float, method: str, route: str, status: int) -> None:
        words: dict[str, str | int] = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
        }
        self._put(f"{method} {route}", own, "", began, time.time(), words, _SERVER)

    def part(
        self, name: Part, within: Trace | None, began: float, ended: float, kind: str = "", outcome: str = ""
    ) -> None:
        trace, parent = (secrets.token_hex(16), "") if within is None else (within.trace, within.span)
        words = {f"curator.{key}": word for key, word in (("kind", kind), ("outcome", outcome)) if word}
        self._put(name, Trace(trace, secrets.token_hex(8)), parent, began, ended, words, _INTERNAL)

    def _put(
        self,
        name: str,
        own: Trace,
        parent: str,
        began: float,
        ended: float,
        words: Mapping[str, str | int],
        kind: int,
    ) -> None:
        span = {
            "traceId": own.trace,
            "spanId": own.span,
            "name": name,
            "kind": kind,
            # Whatever lies within another does so when it is told, too.
            "startTimeUnixNano": str(math.floor(began * 1e9 / STEP) * STEP),
            "endTimeUnixNano": str(math.ceil(max(began, ended) * 1e9 / STEP) * STEP),
            "attributes": _attributes(words),
        }
        if parent:
            span["parentSpanId"] = parent
        try:
            self._spans.put_nowait(span)
        except queue.Full:
            self._failed("too many wait")

    def _send(self) -> None:
        ending = False
        # Nothing of the environment says where it goes.
        with httpx.Client(timeout=PATIENCE_SECONDS, trust_env=False) as client:
            while not ending:
                spans = [self._spans.get()]
                until = time.monotonic() + EVERY_SECONDS
                while spans[-1] is not None and len(spans) < MOST_SENT:
                    try:
                        spans.append(self._spans.get(timeout=max(0.0, until - time.monotonic())))
                    except queue.Empty:
                        break
                ending = spans[-1] is None
                told = [span for span in spans if span is not None]
                if told:
                    self._post(client, told)

    def _post(self, client: httpx.Client, spans: list[dict[str, Any]]) -> None:
        scope = {"scope": {"name": "curator", "version": __version__}, "spans": spans}
        content = orjson.dumps({"resourceSpans": [{"resource": self._resource, "scopeSpans": [scope]}]})
        try:
            reply = client.post(self._url, content=content, headers={"Content-Type": "application/json"})
        except Exception as error:  # noqa: BLE001 - nothing ends the thread, an address that is none neither
            self._failed(type(error).__name__)
            return
        if reply.is_success:
            self._failing = False
        else:
            self._failed(f"status {reply.status_code}")

    def _failed(self, why: str) -> None:
        """Told once, until spans arrive again."""
        if not self._failing:
            logger.warning("spans do not reach the collector, and are dropped", why=why)
        self._failing = True


def _attributes(words: Mapping[str, str | int]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(word)} if isinstance(word, int) else {"stringValue": word}}
        for key, word in words.items()
    ]
