"""A black-box audit of the privacy of online query response: real rounds, noise of the real law, a real
account.

Sessions are played against two neighbouring data sets by an adversary who asks the worst query over and over: one
record moves the private value across the threshold, so that a miss raises the privacy loss by almost e0 and a hit
lowers it by e0. For an event E of transcripts, P[E] - e^epsilon Q[E] is a lower bound on delta; from counted
sessions it is bounded from below by Clopper-Pearson intervals (Bonferroni over all events looked at). It may not
pass the exact delta of the scale in use and of the number of hits paid for. The audit is worth something because
the planted faults at the end, each a plausible mistake, make it fail.

Wrong alarms have probability below 1e-6 a test. It sees no fault whose delta stays between that of this adversary
and the optimum, about 1.4 times as much; `test_adaptive_audit` sees smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from app.curator.mechanisms.round import Hit, Miss, play
from app.privacy.costs import DiscreteLaplaceAnswer, renyi_cost
from app.privacy.exact import delta_of
from tests.kit.audits import RATE, Kept, hits_paid_for, noise, proven_delta, true_charges

pytestmark = pytest.mark.statistical

GREATEST_MISSES = 60
MOST_COUNTED = 400
"""Sessions with more misses count as having so many."""

Round = Callable[[int, float, int, int], Hit | Miss]


@dataclass(frozen=True)
class Probe:
    """A query as the round sees it: its private value in either world and the hypothesis, in grid units."""

    first: float
    second: float
    hypothesis: int


@dataclass(frozen=True)
class Scenario:
    """What the adversary asks, in turn and for ever. `unit` is gamma in grid units, `threshold` is T."""

    probes: tuple[Probe, ...]
    unit: int
    threshold: int


def borderline(unit: int, *, first: float, second: float) -> Probe:
    """A value of 0 stands exactly on the upper threshold: noise above 0 is a hit."""
    return Probe(first, second, -10 * unit)


FINE = Scenario((borderline(1024, first=-1024, second=0),), 1024, 10240)
COARSE = Scenario((borderline(1, first=-0.6, second=0.4),), 1, 10)
"""The same on a grid as coarse as a record, values off the grid: rounded they are -1 and 0."""
TIED = Scenario((borderline(1, first=0.4, second=-0.4),), 1, 10)
"""Neighbours whose values round to the same grid point: nothing at all may tell them apart."""
PAIRED = Scenario((borderline(1024, first=1024, second=0), borderline(1024, first=0, second=0)), 1024, 10240)
"""Every other query asks about nothing private: its answer shows the noise itself."""


def shipped_round(hypothesis: int, value: float, noise: int, threshold: int) -> Hit | Miss:
    """Round the private value to the grid, then the round of the curator."""
    return play(hypothesis, round(value), noise, threshold)


@dataclass(frozen=True)
class System:
    """The thing under audit; its parts are exchanged one at a time to plant a fault."""

    round: Round = shipped_round
    scale: Fraction = 1 / RATE
    charges: Callable[[], Iterator[Decimal]] = true_charges
    stream: Callable[[Kept], Iterator[int]] = field(default=iter)


@dataclass(frozen=True)
class Counts:
    """What was seen in one world: sessions by number of misses, and sessions with a tell-tale hit."""

    sessions: int
    misses: np.ndarray
    tells: dict[str, int]


def observe(system: System, scenario: Scenario, hits: int, sessions: int, world: str) -> Counts:
    """Play sessions, each to its last paid hit, and count."""
    made = hits_paid_for(hits, system.charges())
    values = system.stream(noise(system.scale * scenario.unit))
    probes = [(getattr(probe, world), probe.hypothesis) for probe in scenario.probes]
    # What the adversary expects two answers to differ by in the first world, were their noises equal.
    twin = round(scenario.probes[0].first) - round(scenario.probes[-1].first)
    threshold, round_, cycle = scenario.threshold, system.round, len(probes)
    misses = np.zeros(MOST_COUNTED + 1, dtype=np.int64)
    edges = twins = 0
    for _ in range(sessions):
        left, asked, before, edge, same = made, 0, None, False, False
        while left:
            value, hypothesis = probes[asked % cycle]
            outcome = round_(hypothesis, value, next(values), threshold)
            asked += 1
            if type(outcome) is Hit:
                left -= 1
                edge = edge or abs(outcome.value - hypothesis) == threshold
                same = same or (asked % cycle == 0 and before is not None and before - outcome.value == twin)
                before = outcome.value
            else:
                before = None
        misses[min(asked - made, MOST_COUNTED)] += 1
        edges += edge
        twins += same
    tells = {"a hit on the threshold itself": edges}
    if cycle > 1:
        tells["two answers that differ by the private value"] = twins
    return Counts(sessions, misses, tells)


def lower_delta(epsilon: float, first: Counts, second: Counts) -> float:
    """Lower confidence bound on delta at epsilon: the best event, at least 0."""
    at_least = [int(first.misses[m:].sum()) for m in range(GREATEST_MISSES)]
    events = list(zip(at_least, (int(second.misses[m:].sum()) for m in range(GREATEST_MISSES)), strict=True))
    events += [(first.sessions - p, second.sessions - q) for p, q in events]
    events += [(first.tells[name], second.tells[name]) for name in first.tells]
    return proven_delta(epsilon, events, first.sessions, second.sessions)


def audit(
    system: System, scenario: Scenario, hits: int, epsilons: tuple[float, ...], sessions: int
) -> list[tuple[float, float]]:
    """(delta found, delta promised) at each epsilon."""
    first = observe(system, scenario, hits, sessions, "first")
    second = observe(system, scenario, hits, sessions, "second")
    return [(lower_delta(epsilon, first, second), delta_of(RATE, hits, Fraction(epsilon))) for epsilon in epsilons]


SHIPPED = System()
EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.5)


@pytest.mark.parametrize(("hits", "sessions"), [(2, 60_000), (5, 40_000), (10, 25_000)])
def test_the_shipped_round_keeps_its_promise(hits: int, sessions: int) -> None:
    """On the fine grid, and the audit is not idle: it finds at least half of the delta that is promised."""
    found = audit(SHIPPED, FINE, hits, EPSILONS, sessions)
    assert all(delta <= promised for delta, promised in found)
    least, promised = found[0]
    assert least >= promised / 2


@pytest.mark.parametrize("scenario", [COARSE, TIED, PAIRED], ids=["coarse", "tied", "paired"])
def test_the_shipped_round_keeps_its_promise_elsewhere(scenario: Scenario) -> None:
    """A grid as coarse as a record, values off the grid, queries about nothing in between."""
    assert all(delta <= promised for delta, promised in audit(SHIPPED, scenario, 3, EPSILONS, 20_000))


# Planted faults. Each must be found.


def assert_found(system: System, scenario: Scenario, hits: int, epsilon: float, sessions: int) -> None:
    ((delta, promised),) = audit(system, scenario, hits, (epsilon,), sessions)
    assert delta > promised


def test_noise_30_percent_too_small_is_found() -> None:
    assert_found(replace(SHIPPED, scale=SHIPPED.scale * Fraction(7, 10)), FINE, 5, 1.5, 30_000)


def test_noise_used_twice_is_found() -> None:
    def twice(values: Kept) -> Iterator[int]:
        return (value for value in values for _ in range(2))

    assert_found(replace(SHIPPED, stream=twice), PAIRED, 3, 1.0, 5_000)


def test_a_threshold_test_on_the_unrounded_value_is_found() -> None:
    """The released value is rounded, the comparison is not: the outcome then shows what the rounding was to hide."""

    def unrounded(hypothesis: int, value: float, noise: int, threshold: int) -> Hit | Miss:
        if abs(value + noise - hypothesis) > threshold:
            return Hit(round(value) + noise)
        return Miss(hypothesis)

    assert_found(replace(SHIPPED, round=unrounded), TIED, 3, 1.0, 5_000)


def test_a_hit_charged_as_a_plain_answer_is_found() -> None:
    """Plain Laplace answers cost less than half as much: the account pays for more than twice the hits."""

    def plain() -> Iterator[Decimal]:
        while True:
            yield renyi_cost(DiscreteLaplaceAnswer(4 * 1024, 1024), Decimal(2))

    assert_found(replace(SHIPPED, charges=plain), FINE, 3, 1.0, 30_000)
