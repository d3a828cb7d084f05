"""The last hour of the process's own metrics, in memory: what an operator without a monitoring system looks at.

It keeps numbers that `/metrics` tells anybody who may read it, and none besides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

#: Seconds between two samples, and samples that are kept: an hour of them, and the one before.
SECONDS, MOST = 15.0, 241


class Number(Protocol):
    """A number of a metric, as the library tells it."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def value(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """All numbers at a moment, in seconds since 1970: by the metric's name, and by what its labels say."""

    at: float
    numbers: Mapping[str, Mapping[str, float]]

    def sum(self, metric: str, *labels: str) -> float:
        """A metric, summed over its labels or over those that are named."""
        found = self.numbers.get(metric, {})
        return sum(found.get(label, 0.0) for label in labels) if labels else sum(found.values())


class Samples:
    """The samples of the last hour, the newest last."""

    def __init__(self) -> None:
        self._kept: deque[Sample] = deque(maxlen=MOST)

    def take(self, at: float, told: Iterable[Number]) -> None:
        """Keep a sample."""
        numbers: dict[str, dict[str, float]] = {}
        for each in told:
            # Requests are told apart by routes, too, and histograms by their buckets: no chart is of these.
            if each.name.endswith("_bucket"):
                continue
            label = each.labels.get("status") or "/".join(each.labels.values())
            kept = numbers.setdefault(each.name, {})
            kept[label] = kept.get(label, 0.0) + each.value
        self._kept.append(Sample(at, numbers))

    def all(self) -> list[Sample]:
        """Those that are kept."""
        return list(self._kept)
