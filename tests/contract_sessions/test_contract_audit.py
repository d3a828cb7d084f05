"""A black-box audit of tests with a fresh measurement behind a hit: real rounds, noise of the real law, a real
account.

Two neighbouring tables, the one with a record more in its first cell, are asked for the same marginal over and over,
where the record decides at which side of the threshold the distance stands. The adversary knows the mechanism, so he
knows the privacy loss of what he was told: of misses by their number, of hits by their number and by what was measured.
"The loss is above epsilon" is his event; for a miss that shows its noisy distance, and for a measurement whose noise is
that of the test, he has events of their own. What he proves may not pass the delta that the ledger's order promises for
the hits that were paid for (docs/privacy.md). The planted faults at the end make it fail.

Wrong alarms have probability below 1e-6 a test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from app.curator.mechanisms.round import play_marginal
from app.privacy.costs import ConditionalRelease, DiscreteGaussianAnswer, Release, renyi_cost
from app.privacy.errors import InsufficientBudget
from app.privacy.exactness import EXACT
from app.privacy.ledger import Amounts
from app.privacy.race import PoissonCounts
from tests.kit.audits import gaussian, laplace, proven_delta

pytestmark = pytest.mark.statistical

SCALE, ORDER, THRESHOLD = Fraction(4), Decimal(2), 40
#: Far more than what is measured costs: where the test dominates, a hit that is charged without it is seen.
SIGMA = Fraction(30)
MEAN, CUT = Decimal(4), 40
MOST_MISSES = 400
EPSILONS = (0.25, 1.0, 2.0)

#: (private, expected, noise, count, threshold, fresh) -> what was measured, or None; and what else is told.
Round = Callable[..., tuple[np.ndarray | None, int | None]]


def shipped(
    private: np.ndarray, expected: np.ndarray, noise: np.ndarray, count: int, threshold: int, fresh: np.ndarray
) -> tuple[np.ndarray | None, int | None]:
    return play_marginal(private, expected, noise, count, threshold, fresh), None


def both() -> Decimal:
    test, measured = ConditionalRelease(SCALE, "single"), DiscreteGaussianAnswer(SIGMA, 1)
    return EXACT.add(renyi_cost(test, ORDER), renyi_cost(measured, ORDER))


@dataclass(frozen=True)
class System:
    """The thing under audit; its parts are exchanged one at a time to plant a fault."""

    round: Round = shipped
    release: Release = "single"
    price: Callable[[], Decimal] = both
    #: How far below the threshold the distance stands in the second world.
    margin: int = 0

    @property
    def due(self) -> Decimal:
        """What a hit costs."""
        test, measured = ConditionalRelease(SCALE, self.release), DiscreteGaussianAnswer(SIGMA, 1)
        return EXACT.add(renyi_cost(test, ORDER), renyi_cost(measured, ORDER))

    def hits(self, paid: int) -> int:
        """How many hits a share pays for that was reserved for so many."""
        held, price, made = Amounts(self.due * paid), Amounts(self.price()), 0
        while True:
            try:
                held = held.minus(price)
            except InsufficientBudget:
                return made
            made += 1


#: The second world's counts. A record more is one nearer to what is expected.
COUNTS = np.array([100, 50])


@dataclass(frozen=True)
class Seen:
    """What the adversary was told in one world."""

    losses: np.ndarray
    tells: dict[str, int]


def above(distance: int) -> float:
    """The probability that a comparison comes out."""
    r, gap = math.exp(-1 / float(SCALE)), THRESHOLD - distance
    return r ** (gap + 1) / (1 + r) if gap >= 0 else 1 - r ** (-gap) / (1 + r)


def hit_chance(distance: int, release: Release) -> float:
    chance = above(distance)
    return chance if release == "single" else 1 - math.exp(-float(MEAN) * chance)


class Stream:
    """Noise of one law, drawn many values at a time."""

    def __init__(self, law: Callable[[Fraction, int, np.random.Generator], np.ndarray], scale: Fraction) -> None:
        self._law, self._scale, self._random = law, scale, np.random.default_rng(7)
        self._values, self._at = np.zeros(0, np.int64), 0

    def take(self, number: int) -> np.ndarray:
        if self._at + number > len(self._values):
            self._values, self._at = self._law(self._scale, 1 << 16, self._random), 0
        self._at += number
        return self._values[self._at - number : self._at]


def sessions(system: System, paid: int, number: int, *, first: bool) -> Seen:
    """Play sessions, each to its last paid hit or the most misses."""
    made, race, far = system.hits(paid), system.release == "race", THRESHOLD - system.margin
    private, expected = COUNTS + np.array([int(first), 0]), COUNTS + np.array([far, 0])
    chances = [hit_chance(far - int(more), system.release) for more in (True, False)]
    missed, hit = math.log((1 - chances[0]) / (1 - chances[1])), math.log(chances[0] / chances[1])
    counts, test, fresh = PoissonCounts(MEAN, CUT), Stream(laplace, SCALE), Stream(gaussian, SIGMA)
    losses, edges, shown = [], 0, 0
    for _ in range(number):
        loss, left, misses, edge, total, told_of = 0.0, made, 0, False, 0, 0
        while left and misses < MOST_MISSES:
            noise, count = test.take(CUT if race else 1), counts.take() if race else 1
            found, told = system.round(private, expected, noise, count, THRESHOLD, fresh.take(2))
            if told is not None:
                total, told_of = total + told, told_of + 1
            if found is None:
                misses += 1
                loss += missed
                continue
            left -= 1
            # ln of the densities of what was measured around 101 and around 100.
            loss += hit + (2 * (int(found[0]) - int(COUNTS[0])) - 1) / (2 * float(SIGMA) ** 2)
            # The least that a measurement with the test's noise can be: in the first world one more.
            edge = edge or int(found[0]) - int(COUNTS[0]) == 1
        losses.append(loss)
        edges += edge
        # Misses that show their distance do so around a mean, which a record moves.
        shown += bool(told_of) and total / told_of < far - 0.5
    return Seen(np.array(losses), {"a value next to the threshold": edges, "the mean of what was shown": shown})


def promised(system: System, paid: int, epsilon: float) -> float:
    """Delta at an epsilon of so many hits' divergence at the order (Canonne, Kamath, Steinke 2020, proposition 12)."""
    a, divergence = float(ORDER), float(system.due) * paid
    return math.exp((a - 1) * (divergence + math.log(1 - 1 / a) - epsilon) - math.log(a))


def audit(system: System, paid: int, number: int) -> Iterator[tuple[float, float]]:
    """(delta found, delta promised) at each epsilon."""
    first, second = (sessions(system, paid, number, first=world) for world in (True, False))
    for epsilon in EPSILONS:
        events = [(int((first.losses > epsilon).sum()), int((second.losses > epsilon).sum()))]
        events += [(int((first.losses < -epsilon).sum()), int((second.losses < -epsilon).sum()))]
        events += [(first.tells[name], second.tells[name]) for name in first.tells]
        yield proven_delta(epsilon, events, number, number), promised(system, paid, epsilon)


@pytest.mark.parametrize("release", ["single", "race"])
def test_tests_with_a_measurement_keep_their_promise(release: Release) -> None:
    """And the audit is not idle: of the first epsilon it finds a part."""
    system = System(release=release)
    found = list(audit(replace(system, price=lambda: system.due), 8, 3000))
    assert all(delta <= most for delta, most in found)
    assert found[0][0] > 0.005


# Planted faults. Each must be found.


def assert_found(system: System, paid: int, number: int) -> None:
    assert any(delta > most for delta, most in audit(system, paid, number))


def test_a_statistic_released_on_a_miss_is_found() -> None:
    """A miss that shows how far the noisy distance was: it is an answer like any other, and nobody pays for it."""

    def talking(private, expected, noise, count, threshold, fresh):  # type: ignore[no-untyped-def]
        told = int(noise[0]) + int(np.abs(private - expected).sum())
        found = play_marginal(private, expected, noise, count, threshold, fresh)
        return found, told if found is None else None

    assert_found(System(round=talking, margin=30), 1, 120)


def test_noise_of_the_test_in_the_measurement_is_found() -> None:
    """Fresh noise that is not fresh: what was measured then shows by how much the threshold was passed."""

    def thrifty(private, expected, noise, count, threshold, fresh):  # type: ignore[no-untyped-def]
        again = np.full(len(private), noise[0])
        return play_marginal(private, expected, noise, count, threshold, again), None

    assert_found(System(round=thrifty), 1, 1500)


def test_a_measurement_charged_without_its_test_is_found() -> None:
    """The account then pays for many times the hits that it should."""
    assert_found(System(price=lambda: renyi_cost(DiscreteGaussianAnswer(SIGMA, 1), ORDER)), 2, 120)
