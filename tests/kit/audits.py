"""What the audits share: noise, and the lower bound on delta that counted sessions prove."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

from app.privacy.costs import ConditionalRelease, renyi_cost
from app.privacy.errors import InsufficientBudget
from app.privacy.ledger import Account, Amounts, Budget, Share

Integers = npt.NDArray[np.int64]

RATE = Fraction(1, 4)
"""e0 of every session: b = 4 gamma."""
ALARM = 1e-6
"""Greatest probability of a wrong alarm of one test."""


def laplace(scale: Fraction, n: int, random: np.random.Generator) -> Integers:
    """So many values of the law of :class:`~app.privacy.noise.DiscreteLaplace`, which draws ten times as slowly: the
    difference of two geometric numbers. `tests/privacy/test_noise.py` holds both against their probabilities."""
    odds = -math.expm1(-1 / float(scale))
    return random.geometric(odds, n) - random.geometric(odds, n)


def gaussian(scale: Fraction, n: int, random: np.random.Generator) -> Integers:
    """The same of :class:`~app.privacy.noise.DiscreteGaussian`, for scales of few thousands."""
    values = np.arange(-round(12 * scale), round(12 * scale) + 1)
    chances = np.exp(-((values / float(scale)) ** 2) / 2)
    return random.choice(values, n, p=chances / chances.sum())


class Kept:
    """Noise of a law and scale, kept so that several tests can start at its beginning.

    Both worlds and all tests see the same values. That is sound: each interval is about one binomial count alone, and
    the intervals are combined by the union bound.
    """

    def __init__(self, scale: Fraction) -> None:
        self._scale, self._random = scale, np.random.default_rng(5)
        self._values: list[int] = []

    def __iter__(self) -> Iterator[int]:
        position = 0
        while True:
            if position == len(self._values):
                self._values += laplace(self._scale, 1 << 16, self._random).tolist()
            yield from self._values[position : (position := len(self._values))]


_pools: dict[Fraction, Kept] = {}


def noise(scale: Fraction) -> Kept:
    """The noise of this scale in grid units that all tests share."""
    return _pools.setdefault(scale, Kept(scale))


def proven_delta(epsilon: float, events: Iterable[tuple[int, int]], first: int, second: int) -> float:
    """Lower confidence bound on delta at epsilon, wrong with probability at most `ALARM`: the best event, at least 0.

    For any event E a private mechanism has P[E] <= e^epsilon Q[E] + delta, either way round. Clopper-Pearson
    intervals, Bonferroni over all events, both directions, and both counts of each.

    Args:
        epsilon: at which delta is bounded.
        events: how many sessions showed each event, in the first world and in the second.
        first: sessions played in the first world.
        second: in the second.
    """
    counts = list(events)
    level = ALARM / (4 * len(counts))
    best = 0.0
    for p, q in counts:
        for (hit, of), (against, out_of) in (((p, first), (q, second)), ((q, second), (p, first))):
            low = beta.ppf(level, hit, of - hit + 1) if hit else 0.0
            high = beta.ppf(1 - level, against + 1, out_of - against) if against < out_of else 1.0
            best = max(best, float(low - math.exp(epsilon) * high))
    return best


def hits_paid_for(hits: int, charges: Iterator[Decimal]) -> int:
    """Hits until the account of a session that reserved `hits` true costs refuses another charge."""
    order = Decimal(2)
    cost = renyi_cost(ConditionalRelease(1 / RATE), order)
    budget = Budget(Decimal(10), Decimal("0.01"), order, hits * cost)
    account = Account(budget).reserve(Amounts(budget.total))
    made = 0
    while True:
        try:
            account = account.charge(Share.of(Amounts(account.reserved)), Amounts(next(charges)))
        except InsufficientBudget:
            return made
        made += 1


def true_charges() -> Iterator[Decimal]:
    while True:
        yield renyi_cost(ConditionalRelease(1 / RATE), Decimal(2))
