"""What is counted: requests, public outcomes, commits. Nothing here depends on a private number but through
recorded outcomes; durations are wall time and say so in docs/privacy.md.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]


class Metrics:
    """One process' counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._answers = Counter("curator_answers_total", "Answers by source", ["source"], registry=self.registry)
        self._by_source = {
            source: self._answers.labels(source) for source in ("hypothesis", "measurement", "cached", "unverified")
        }
        self._requests = Counter(
            "curator_requests_total",
            "Requests by route, method and status",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._group = Histogram(
            "curator_group_size",
            "Requests a transaction carried",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self.registry,
        )
        self._turn = Histogram("curator_turn_seconds", "Time from taking a group to its commit", registry=self.registry)
        self._failures = Counter(
            "curator_commit_failures_total", "Commits that failed and were tried again", registry=self.registry
        )
        self._late = Counter(
            "curator_late_replies_total",
            "Replies that were not there at the answering deadline",
            registry=self.registry,
        )
        self._refusals = Counter(
            "curator_refusals_total",
            "Requests and connections turned away, by reason",
            ["reason"],
            registry=self.registry,
        )
        for reason in ("rate", "login", "queue", "memory", "connections", "slow_request", "slow_reader"):
            self._refusals.labels(reason)
        self._seen: dict[tuple[str, str, int], Counter] = {}

    def answered(self, source: str, number: int) -> None:
        """Count so many answers."""
        self._by_source[source].inc(number)

    def group(self, size: int, seconds: float) -> None:
        """Count a transaction."""
        self._group.observe(size)
        self._turn.observe(seconds)

    def commit_failed(self) -> None:
        """Count a failed commit."""
        self._failures.inc()

    def late(self) -> None:
        """Count a reply that missed the answering deadline."""
        self._late.inc()

    def refused(self, reason: str) -> None:
        """Count what was turned away so that others are served."""
        self._refusals.labels(reason).inc()

    def request(self, route: str, method: str, status: int) -> None:
        """Count a request."""
        key = (route, method, status)
        counter = self._seen.get(key)
        if counter is None:
            counter = self._seen[key] = self._requests.labels(route, method, str(status))
        counter.inc()

    def exposition(self) -> bytes:
        """Prometheus text."""
        return generate_latest(self.registry)
