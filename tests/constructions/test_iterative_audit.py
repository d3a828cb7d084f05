"""An audit of the rounds of iterative constructions, on two tables of which one has a record more than the other.

The record makes one candidate's error larger and the other's smaller: the worst that one record can do to a choice. The
hypothesis stays as it is, so that all rounds are alike, and each proves, up to its confidence:

- range: by how much the odds of a choice differ between the tables, which is at most the epsilon of the choice;
- price: the Renyi divergence of a choice, which is at most what a round costs beside its measurement;
- noise: that what a measurement is off by follows its own law, whatever was chosen.

Wrong alarms have a probability below 1e-6 a test. Each alarm has a fault that was planted for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from app.bootstrap.noise import SystemNoise
from app.constructions.base import PublicFacts
from app.constructions.multiplicative_weights import MultiplicativeWeights
from app.declarations.spec import parse_spec
from app.measurements.noise import Noise
from app.measurements.pricing import Adjacency
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.tables import TableStrategy
from app.privacy.ledger import Amounts
from app.releases.candidates import Candidates
from app.releases.factorization import Paying
from app.releases.rounds import Hypothesis, Rounds, terms
from app.releases.workloads import Sums
from app.services.release_measuring import play
from app.spaces.factory import space_of
from app.spaces.questions import Product
from app.spaces.records import RecordsTensor

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

ROUNDS, ORDER, ALARM = 400, Decimal(3), 1e-7
SIZES = (2, 2)
SPACE = space_of(
    parse_spec(
        {
            "name": "table",
            "kind": "table",
            "budget": {"epsilon": 1, "delta": 1e-6},
            "attributes": [{"name": "a", "size": 2}, {"name": "b", "size": 2}],
        }
    )
)
FIRST = np.array([1.0, 0.0])
CANDIDATES = Candidates.of(Sums((Product.over({0: FIRST}), Product.over({1: FIRST}))), SIZES)


def _price(strategy: TableStrategy, kind: Any, scale: Decimal) -> Amounts:
    return Purchase.at(strategy, Noise(kind, Decimal(scale), 0), Adjacency(1), ORDER).price


#: The epsilon of a choice is about 2.2.
TERMS = terms(CANDIDATES, ROUNDS, Paying("gaussian", ROUNDS * Decimal("5.45"), ORDER))


class Frozen(Hypothesis):
    """A hypothesis that learns nothing."""

    def learn(self, release: Measurement[TableStrategy]) -> float | None:
        return None


@dataclass(frozen=True)
class Seen:
    """How often the first candidate was chosen, and what measurements were off by, in standard deviations."""

    first: int
    left: Any


def seen(more: int, rounds: Rounds, noise: SystemNoise) -> Seen:
    """All rounds on 60 records with a = 0 and 39 with b = 0, and so many more with both; the hypothesis has 50 each."""
    a = np.repeat([0, 1], [60 + more, 40]).astype(np.uint8)
    b = np.repeat([0, 1], [39 + more, 61]).astype(np.uint8)
    data = RecordsTensor([a, b], SIZES)
    hypothesis = Frozen(MultiplicativeWeights(SPACE, PublicFacts(100.0), "projection", 1.0))
    first, left = 0, []
    for measured in play(partial(rounds.play, hypothesis, lambda part: None), None, data, noise):
        marginal = measured.table.strategy.plain
        truth = np.array([60 + more, 40]) if marginal.attributes == (0,) else np.array([39 + more, 61])
        first += marginal.attributes == (0,)
        left.append((measured.table.units - truth) / float(rounds.noise.scale))
    return Seen(first, np.concatenate(left))


def interval(hits: int) -> tuple[float, float]:
    """Where a probability lies that made so many hits of all rounds, but for a probability of ALARM."""
    low = float(stats.beta.ppf(ALARM / 2, hits, ROUNDS - hits + 1)) if hits else 0.0
    high = float(stats.beta.ppf(1 - ALARM / 2, hits + 1, ROUNDS - hits)) if hits < ROUNDS else 1.0
    return low, high


def alarms(rounds: Rounds, noise: SystemNoise) -> set[str]:
    """What is wrong with rounds on these terms."""
    fewer, more = seen(0, rounds, noise), seen(1, rounds, noise)
    q, p = interval(fewer.first)[1], interval(more.first)[0]
    found = set()
    if p > q:
        if math.log(p / (1 - p)) - math.log(q / (1 - q)) > float(rounds.epsilon):
            found.add("range")
        order = float(ORDER)
        moment = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
        paid = rounds.price.renyi - _price(rounds.candidates.strategy(0), "gaussian", rounds.noise.scale).renyi
        if math.log(moment) / (order - 1) > float(paid):
            found.add("price")
    left = np.concatenate([fewer.left, more.left])
    size, shift = stats.chi2(len(left)).cdf(float(left @ left)), float(left.mean()) * math.sqrt(len(left))
    if not ALARM < size < 1 - ALARM or abs(shift) > stats.norm.isf(ALARM):
        found.add("noise")
    return found


class HalfTheSensitivity(SystemNoise):
    """A planted fault: scores are taken to move by half of what they do."""

    def choose(self, scores: Any, scale: Any) -> int:
        return super().choose(scores, scale / 2)


class OneNoiseForBoth(SystemNoise):
    """A planted fault: the noise that made a candidate's score the largest is that of its measurement too."""

    def __init__(self) -> None:
        self._drawn = 0.0

    def choose(self, scores: Any, scale: Any) -> int:
        drawn = np.random.default_rng().normal(size=len(scores))
        chosen = int(np.argmax(scores / float(scale) + drawn * math.pi / math.sqrt(6)))
        self._drawn = float(drawn[chosen])
        return chosen

    def gaussian(self, scale: Any, ahead: int = 1) -> Any:
        return _Told(round(self._drawn * float(scale)))


@dataclass
class _Told:
    value: int

    def take(self, n: int) -> Any:
        return np.full(n, self.value)


def test_rounds_are_as_private_as_they_are_charged() -> None:
    """Would catch what is planted below: choices that say more than their epsilon, choices that are not charged, and
    measurements that tell what a choice was made by.
    """
    assert 2 < TERMS.epsilon < 2.4
    assert alarms(TERMS, SystemNoise()) == set()


def test_a_sensitivity_that_is_half_of_what_it_is_is_found() -> None:
    """The odds move by twice the epsilon."""
    assert "range" in alarms(TERMS, HalfTheSensitivity())


def test_a_choice_that_is_not_charged_is_found() -> None:
    """The round costs its measurement alone."""
    measurement = _price(TERMS.candidates.strategy(0), "gaussian", TERMS.noise.scale)
    assert alarms(replace(TERMS, price=measurement), SystemNoise()) == {"price"}


def test_noise_that_serves_twice_is_found() -> None:
    """What was chosen for its noise has too much of it."""
    assert "noise" in alarms(TERMS, OneNoiseForBoth())
