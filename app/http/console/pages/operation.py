"""Operation: the last hour of the process's own metrics, and its settings without secrets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.http.console.gate import Admin, ConsoleRoute
from app.http.console.rendering import page
from app.http.dependencies import AppContext
from app.http.samples import Sample
from curator_client.figures import Span, figures_of, trace

router = APIRouter(prefix="/console/operation", include_in_schema=False, route_class=ConsoleRoute)

_HOUR, _MINUTE = 3600.0, 60.0
#: Reasons by which requests and connections are turned away: those of connections, and of exports and streams.
_CONNECTIONS, _EXPORTS = ("connections", "slow_request", "slow_reader"), ("exports", "streams")
_MEBI = 1024.0**2


@dataclass(frozen=True)
class Chart:
    """A small chart.

    Attributes:
        name: what it shows.
        read: its height at a sample and the one before.
        unit: of heights.
        hint: what to do when it is high.
        metric: a counter whose labels are told below, by how much each rose in the hour.
    """

    name: str
    read: Callable[[Sample, Sample], float]
    unit: str
    hint: str
    metric: str = ""


def _rate(metric: str, *labels: str) -> Callable[[Sample, Sample], float]:
    """How much a counter rises in a minute."""

    def read(before: Sample, at: Sample) -> float:
        risen = at.sum(metric, *labels) - before.sum(metric, *labels)
        return max(risen, 0.0) * _MINUTE / max(at.at - before.at, 1.0)

    return read


def _level(metric: str, *labels: str, part: float = 1.0) -> Callable[[Sample, Sample], float]:
    return lambda _, at: at.sum(metric, *labels) / part


def _mean(metric: str) -> Callable[[Sample, Sample], float]:
    """The mean of what a histogram took in between two samples, in milliseconds."""

    def read(before: Sample, at: Sample) -> float:
        number = at.sum(f"{metric}_count") - before.sum(f"{metric}_count")
        return 1000 * (at.sum(f"{metric}_sum") - before.sum(f"{metric}_sum")) / number if number > 0 else 0.0

    return read


_REFUSALS = "curator_refusals_total"
#: What docs/operations/watch.md says to watch.
CHARTS: Sequence[Chart] = (
    Chart(
        "Answers",
        _rate("curator_answers_total"),
        "a minute",
        "Many that were measured: hypotheses still learn, and budgets shrink.",
        "curator_answers_total",
    ),
    Chart("Turns", _mean("curator_turn_seconds"), "ms", "From taking a group of requests to its commit."),
    Chart(
        "Commits that failed", _rate("curator_commit_failures_total"), "a minute", "Must not rise: see the database."
    ),
    Chart("Late replies", _rate("curator_late_replies_total"), "a minute", "Raise CURATOR_ANSWER_DEADLINE_MS."),
    Chart("Turned away", _rate(_REFUSALS), "a minute", "Clients wait too long, or keys are guessed.", _REFUSALS),
    Chart("Waiting requests", _level("curator_waiting_requests"), "", "High for long: a lane is slow or stalled."),
    Chart(
        "Memory of sessions",
        _level("curator_session_memory_bytes", part=_MEBI),
        "MiB",
        "Near the limit, sessions leave memory and come back, which costs time.",
    ),
    Chart(
        "Sessions in memory",
        _level("curator_sessions_in_memory"),
        "",
        "One that several workers answer counts in each.",
    ),
    Chart("Database", _level("curator_database_bytes", part=_MEBI), "MiB", "Grows with records; at most a minute old."),
    Chart(
        "Releases waiting or made",
        _level("curator_releases", "queued", "running"),
        "",
        "Many: they wait for the one that is worked on.",
    ),
    Chart("Connections turned away", _rate(_REFUSALS, *_CONNECTIONS), "a minute", "Raise CURATOR_MAX_CONNECTIONS."),
    Chart("Exports turned away", _rate(_REFUSALS, *_EXPORTS), "a minute", "Raise CURATOR_EXPORT_LIMIT."),
)


@router.get("")
def operation(request: Request, context: AppContext, login: Admin) -> Response:
    """Twelve small charts over the last hour, and the settings."""
    samples = context.metrics.samples.all()
    return page(
        request,
        "operation.html.jinja",
        login,
        problem=context.lifecycle.ready(),
        charts=[_drawn(chart, samples) for chart in CHARTS] if len(samples) > 1 else [],
        settings=context.limits.shown(),
    )


def _drawn(chart: Chart, samples: Sequence[Sample]) -> dict[str, object]:
    until = samples[-1].at
    course = [(at.at, chart.read(before, at)) for before, at in itertools.pairwise(samples)]
    # A counter is drawn over the time in which it rose.
    course = [(before.at, height) for before, (_, height) in zip(samples, course, strict=False)]
    course.append((until, course[-1][1]))
    risen = []
    if chart.metric:
        first, last = samples[0].numbers.get(chart.metric, {}), samples[-1].numbers.get(chart.metric, {})
        risen = [(label, number - first.get(label, 0.0)) for label, number in sorted(last.items())]
    return {
        "name": chart.name,
        "svg": trace(chart.name, course, Span(max(samples[0].at, until - _HOUR), until), chart.unit),
        "now": figures_of(course[-1][1]),
        "unit": chart.unit,
        "hint": chart.hint,
        "risen": [(label.replace("_", " "), f"{number:,.0f}") for label, number in risen if number > 0],
    }
