"""The context of the routes: the use cases, and what HTTP adds to them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from app.http.authentication import Authenticator, RateLimits
from app.http.bodies import BodyMemory
from app.http.deadline import Deadline
from app.http.delivery import Delivery
from app.http.fair_queue import FairQueue
from app.http.metrics import Metrics
from app.http.replies import LongReplies
from app.http.streams import Streams
from app.services.exports import ExportSpace
from app.services.services import Services
from app.services.tracing import Tracer


class Limits(RateLimits, Protocol):
    """The operator's limits."""

    @property
    def max_body_bytes(self) -> int: ...
    @property
    def max_query_body_bytes(self) -> int: ...
    @property
    def max_json_depth(self) -> int: ...
    @property
    def request_timeout_seconds(self) -> float: ...
    @property
    def metrics_open(self) -> bool: ...
    @property
    def log_level(self) -> str: ...
    @property
    def console(self) -> bool: ...
    @property
    def console_plain_http(self) -> bool: ...
    @property
    def contact(self) -> str | None: ...
    def shown(self) -> list[tuple[str, str, str]]: ...


class Lifecycle(Protocol):
    """The start and the end of what lies behind the routes."""

    def start(self) -> None:
        """Begin to serve."""

    def stop(self) -> None:
        """Finish what was begun, and let go of everything."""

    def ready(self) -> str | None:
        """Why the service cannot work now, in words for its operator; None when it can."""


@dataclass(frozen=True)
class Context:
    """The parts that every route can reach.

    Args:
        services: the use cases.
        lifecycle: starts, stops and checks what lies behind them.
        limits: what the operator allows.
        authenticator: tells who is asking, and counts their requests.
        plans: queue of requests that search for a plan.
        exports: queue of requests that make an export.
        uploads: queue of requests that have a file read.
        export_space: memory and disk of exports.
        replies: sends long replies.
        body_memory: memory of request bodies.
        delivery: brings replies from the lanes to the event loop.
        streams: of events.
        deadline: holds replies to queries back, where the operator says so.
        metrics: counts.
        tracer: follows requests, where the operator says so.
        pages: held while a page of a transcript is read from the database, for those that are read at a time in all. A
            page is as long as its longest record.
    """

    services: Services
    lifecycle: Lifecycle
    limits: Limits
    authenticator: Authenticator
    plans: FairQueue
    exports: FairQueue
    uploads: FairQueue
    export_space: ExportSpace
    replies: LongReplies
    body_memory: BodyMemory
    delivery: Delivery
    streams: Streams
    deadline: Deadline
    metrics: Metrics
    tracer: Tracer
    pages: asyncio.Semaphore

    def drain(self) -> None:
        """The server drains: what waits or streams ends."""
        for each in (self.plans, self.exports, self.uploads, self.streams):
            each.drain()
