"""A black-box audit of single rounds and of Poisson races against an adversary who adapts every query to the outcomes.

The adversary (`tests.kit.adversary`) reaches more than four fifths of the delta that single rounds are proven
to keep, so that small faults show. What races are proven to keep, the Renyi bound, is about twice what any adversary
can reach; they are held against that optimum, which is computed anew from the proof's model. Wrong alarms have
probability below 1e-6 a test. Beyond reach is a count drawn once and used in all rounds of a session: it alone tells
too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from app.curator.mechanisms.round import Hit, Miss, play, race
from app.privacy.costs import ConditionalRelease, renyi_cost
from app.privacy.errors import InfiniteCost
from app.privacy.exact import delta_of
from app.privacy.poisson import cut_delta
from app.privacy.race import PoissonCounts
from tests.kit.adversary import MOST_ASKED, UNIT, Ask, Mechanism, losses, race_optimum, strategy, told
from tests.kit.audits import RATE, hits_paid_for, noise, proven_delta, true_charges

pytestmark = pytest.mark.statistical

SCALE = UNIT / RATE
MEAN, CUT = Decimal(3), 20
"""What a race costs does not depend on its mean; a small one needs little noise."""

SINGLE = Mechanism(SCALE)
RACE = Mechanism(SCALE, float(MEAN))

System = Callable[[Fraction], Ask]
"""A system under audit, with noise of a scale."""


def single(scale: Fraction) -> Ask:
    """The shipped round."""
    values = iter(noise(scale))
    return lambda hypothesis, private, threshold: (play(hypothesis, private, next(values), threshold), None)


def drawn(values: Iterator[int], count: int, threshold: int) -> np.ndarray:
    """The noise of a race, fresh as far as it counts. The rest, which no race may look at, is far outside: one that
    did would always hit.
    """
    taken = np.full(CUT, 100 * threshold, dtype=np.int64)
    taken[:count] = [next(values) for _ in range(count)]
    return taken


def racing(scale: Fraction) -> Ask:
    """The shipped race."""
    values, counts = iter(noise(scale)), PoissonCounts(MEAN, CUT)

    def ask(hypothesis: int, private: int, threshold: int) -> tuple[Hit | Miss, None]:
        count = counts.take()
        return race(hypothesis, private, drawn(values, count, threshold), count, threshold), None

    return ask


def cut_of_races(epsilon: float) -> float:
    """What the cut of every draw of a session may add to delta here."""
    return float(cut_delta(MEAN, CUT, MOST_ASKED, Decimal(epsilon)))


def proven_for_races(hits: int, epsilon: float) -> float:
    """The Renyi cost of so many hits, converted (Canonne, Kamath, Steinke 2020)."""
    best = 1.0
    for hundredths in range(105, 450, 5):
        order = hundredths / 100
        try:
            cost = float(renyi_cost(ConditionalRelease(1 / RATE, "race"), Decimal(hundredths) / 100))
        except InfiniteCost:
            break
        exponent = (order - 1) * (hits * cost - epsilon) + order * math.log(1 - 1 / order) - math.log(order - 1)
        best = min(best, math.exp(exponent))
    return best


def promised_for_races(hits: int, epsilon: float) -> float:
    """The optimum over all adversaries, with the cut."""
    return race_optimum(float(RATE), hits, epsilon) + cut_of_races(epsilon)


def audit(system: System, believed: Mechanism, hits: int, epsilon: float, sessions: int) -> float:
    """Delta found at epsilon against an adversary who knows the mechanism."""
    plan = strategy(believed, hits, epsilon)
    p, q = (
        told(epsilon, list(losses(plan, believed, system(believed.scale), hits, sessions, first=first)))
        for first in (True, False)
    )
    return proven_delta(epsilon, [(p, q)], sessions, sessions)


@pytest.mark.parametrize(("hits", "epsilon", "sessions"), [(5, 1.0, 50_000), (2, 0.5, 40_000)])
def test_single_rounds_keep_their_promise(hits: int, epsilon: float, sessions: int) -> None:
    """And the audit is not idle: it finds more than two fifths of what is promised, at 1e-6."""
    promised = delta_of(RATE, hits, Fraction(epsilon))
    assert 2 / 5 * promised <= audit(single, SINGLE, hits, epsilon, sessions) <= promised


@pytest.mark.parametrize(("hits", "epsilon", "sessions"), [(10, 1.0, 7_000), (3, 0.5, 7_000)])
def test_races_keep_their_promise(hits: int, epsilon: float, sessions: int) -> None:
    assert audit(racing, RACE, hits, epsilon, sessions) <= promised_for_races(hits, epsilon)


@pytest.mark.parametrize(("hits", "epsilon"), [(1, 0.25), (3, 0.5), (10, 1.0), (10, 2.0), (20, 3.0)])
def test_no_adversary_reaches_what_races_are_proven_to_keep(hits: int, epsilon: float) -> None:
    """The optimum of the proof's model is below the Renyi bound: catches a cost formula that is too small. And ours,
    who sees no times of arrival, stays below the optimum.
    """
    assert (
        strategy(RACE, hits, epsilon).value < race_optimum(float(RATE), hits, epsilon) < proven_for_races(hits, epsilon)
    )


# Planted faults. Each must be found.


def test_single_noise_30_percent_too_small_is_found() -> None:
    assert audit(single, Mechanism(SCALE * Fraction(7, 10)), 5, 1.0, 15_000) > delta_of(RATE, 5, Fraction(1))


def test_forgotten_charges_are_found() -> None:
    """Every third hit is recorded without its charge: the account pays for ten, and fifteen are made."""

    def forgetful() -> Iterator[Decimal]:
        for number, cost in enumerate(true_charges()):
            yield cost
            if number % 2:
                yield Decimal(0)

    made = hits_paid_for(10, forgetful())
    assert hits_paid_for(10, true_charges()) == 10
    assert audit(single, SINGLE, made, 1.0, 35_000) > delta_of(RATE, 10, Fraction(1))


def test_race_noise_30_percent_too_small_is_found() -> None:
    smaller = Mechanism(SCALE * Fraction(7, 10), float(MEAN))
    assert audit(racing, smaller, 10, 1.0, 7_000) > promised_for_races(10, 1.0)


def test_a_race_that_tells_its_comparisons_is_found() -> None:
    """As by the time it takes, where it stops at the first value outside: each comparison is then a round by itself."""

    def telling(scale: Fraction) -> Ask:
        values, counts = iter(noise(scale)), PoissonCounts(MEAN, CUT)

        def ask(hypothesis: int, private: int, threshold: int) -> tuple[Hit | Miss, int]:
            count = counts.take()
            for compared in range(1, count + 1):
                outcome = play(hypothesis, private, next(values), threshold)
                if type(outcome) is Hit:
                    return outcome, compared
            return Miss(hypothesis), count

        return ask

    assert audit(telling, SINGLE, 10, 1.0, 25_000) > promised_for_races(10, 1.0)


def test_a_draw_used_twice_is_found() -> None:
    """Two queries far outside, the second about nothing private: where count and noise are those of the first, the two
    answers differ by the private value.
    """

    def again(scale: Fraction) -> Ask:
        values, counts = iter(noise(scale)), PoissonCounts(MEAN, CUT)
        kept: list[tuple[int, np.ndarray]] = []

        def ask(hypothesis: int, private: int, threshold: int) -> tuple[Hit | Miss, None]:
            if not kept:
                count = counts.take()
                kept.append((count, drawn(values, count, threshold)))
                return race(hypothesis, private, kept[0][1].copy(), count, threshold), None
            count, taken = kept.pop()
            return race(hypothesis, private, taken, count, threshold), None

        return ask

    def differ(system: System, *, first: bool, sessions: int) -> int:
        ask, seen = system(SCALE), 0
        far = 10 * RACE.threshold
        for _ in range(sessions):
            about, nothing = ask(-far, UNIT if first else 0, RACE.threshold)[0], ask(-far, 0, RACE.threshold)[0]
            if type(about) is Hit and type(nothing) is Hit:
                seen += about.value - nothing.value == UNIT
        return seen

    def found(system: System) -> float:
        p, q = (differ(system, first=first, sessions=2_000) for first in (True, False))
        return proven_delta(1.0, [(p, q)], 2_000, 2_000)

    assert found(racing) <= promised_for_races(2, 1.0) < found(again)


def test_a_race_that_looks_beyond_its_count_is_found() -> None:
    """The number of comparisons is then no secret: it is the cut."""

    def greedy(scale: Fraction) -> Ask:
        values, counts = iter(noise(scale)), PoissonCounts(MEAN, CUT)

        def ask(hypothesis: int, private: int, threshold: int) -> tuple[Hit | Miss, None]:
            count = counts.take()
            return race(hypothesis, private, drawn(values, count, threshold), CUT, threshold), None

        return ask

    ask, shipped = greedy(SCALE), racing(SCALE)
    far = RACE.threshold
    inside = [type(system(0, 0, 100 * far)[0]) for system in (ask, shipped) for _ in range(50)]
    assert set(inside[50:]) == {Miss}
    assert {type(ask(0, 0, far)[0]) for _ in range(50)} == {Hit}
    assert Miss in {type(shipped(0, 0, far)[0]) for _ in range(50)}
