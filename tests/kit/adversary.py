"""An adversary who chooses every query by what the answers so far have told.

Two neighbouring data sets, `first` and `second`, differ in one record; a query of the adversary's own sees it with
either sign, at a distance from the hypothesis that he chooses. He knows how the mechanism is made. So he knows, for
each query he may ask, the distribution of its outcome in both worlds, and after each outcome the privacy loss
ln(P/Q) of all outcomes so far. The event "loss above epsilon" is then the most telling one there is of his
sessions, and the one that is counted.

What he asks, as a function of the loss so far and the hits left, is the solution of a dynamic program: greatest
expectation of (1 - e^(epsilon - loss))+ under P, on a grid of losses, with linear interpolation. It is solved here
from the noise's probabilities alone. Were it solved badly, the audit would be weaker, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt

from app.curator.mechanisms.round import Hit, Miss

UNIT = 16
"""gamma in grid units."""
PRICE = 1e-3
"""What a query costs the adversary, as a delta: he stops where asking on brings less, so that sessions end."""
MOST_ASKED = 200
"""No session is longer."""

Floats = npt.NDArray[np.float64]
Ask = Callable[[int, int, int], tuple[Hit | Miss, int | None]]
"""(hypothesis, private value, threshold) -> outcome, and the number of comparisons where it shows."""


@dataclass(frozen=True)
class Mechanism:
    """What the adversary knows: noise of this scale in grid units; a race of this mean, or single."""

    scale: Fraction
    mean: float | None = None

    @property
    def threshold(self) -> int:
        """T in grid units: far enough that only one side of it matters."""
        return int(10 * self.scale)


@dataclass(frozen=True)
class Place:
    """A query: the second world's value is `-hypothesis` away from it; the first world's one `sign` record further.

    `miss` and `constant` are what a miss, and a hit beside what its value says, add to the loss.
    """

    hypothesis: int
    sign: int
    miss: float
    constant: float


@dataclass(frozen=True)
class Strategy:
    """Places, and which to ask at: `choice[hits_left - 1][loss on the grid]`, -1 to stop."""

    places: tuple[Place, ...]
    choice: tuple[list[int], ...]
    step: float
    middle: int
    value: float
    """P[E] - e^epsilon Q[E] in exact arithmetic, but for the price of queries: what the audit should about find."""

    def at(self, hits_left: int, loss: float) -> Place | None:
        """What to ask next; None to stop."""
        row = self.choice[hits_left - 1]
        chosen = row[min(max(round(loss / self.step) + self.middle, 0), len(row) - 1)]
        return None if chosen < 0 else self.places[chosen]


@dataclass(frozen=True)
class _Law:
    """Outcomes of a query: the losses and probabilities (under P) of its hits, and of its miss."""

    place: Place
    losses: Floats
    chances: Floats
    missed: float


def _law(mechanism: Mechanism, place: int, sign: int) -> _Law:
    """Of a query whose value stands `place` above the hypothesis in the second world."""
    scale, T = float(mechanism.scale), mechanism.threshold
    reach = T + int(30 * scale) + 10 * UNIT
    values = np.arange(-reach, reach + 1)
    values = values[np.abs(values) > T]
    ratio = math.exp(-1 / scale)
    below, above = np.abs(values - place), np.abs(values - place - sign * UNIT)
    chances = (1 - ratio) / (1 + ratio) * np.exp(-above / scale)
    p, q = float(chances.sum()), float(((1 - ratio) / (1 + ratio) * np.exp(-below / scale)).sum())
    if mechanism.mean is None:
        missed, missed_second, constant = 1 - p, 1 - q, 0.0
    else:
        # The first of a Poisson number of comparisons: a hit is any of them with the same conditional law.
        missed, missed_second = math.exp(-mechanism.mean * p), math.exp(-mechanism.mean * q)
        constant = math.log((1 - missed) / p) - math.log((1 - missed_second) / q)
        chances = chances * (1 - missed) / p
    miss = math.log(missed) - math.log(missed_second)
    return _Law(Place(-place, sign, miss, constant), (below - above) / scale + constant, chances, missed)


@cache
def strategy(mechanism: Mechanism, hits: int, epsilon: float) -> Strategy:
    """What the adversary does against this mechanism with so many hits to spend."""
    rate = UNIT / float(mechanism.scale)
    step = rate / 8
    T = mechanism.threshold
    places = [T - round(eighths * float(mechanism.scale) / 4) for eighths in range(-8, 13)]
    laws = [_law(mechanism, place, sign) for place in places for sign in (-1, 1)]
    middle = int((epsilon + 14 * rate + 4) / step)
    grid = np.arange(-middle, middle + 1) * step
    stopped: Floats = np.maximum(0.0, 1 - np.exp(epsilon - grid))
    value, choice = stopped, []
    for _ in range(hits):
        after = np.array([_after_hits(law, grid, value, step / 4) for law in laws]) - PRICE
        value = stopped
        for _ in range(MOST_ASKED):
            asked = after + [law.missed * np.interp(grid + law.place.miss, grid, value, right=1.0) for law in laws]
            better: Floats = np.maximum(stopped, asked.max(axis=0))
            done = float((better - value).max()) < 1e-6
            value = better
            if done:
                break
        choice.append(np.where(asked.max(axis=0) > stopped, asked.argmax(axis=0), -1).tolist())
    return Strategy(tuple(law.place for law in laws), tuple(choice), step, middle, float(value[middle]))


def _after_hits(law: _Law, grid: Floats, value: Floats, width: float) -> Floats:
    """The expectation over hits, their losses gathered in bins."""
    bins, which = np.unique(np.rint(law.losses / width).astype(int), return_inverse=True)
    weights = np.bincount(which, law.chances)
    parts = [w * np.interp(grid + b * width, grid, value, right=1.0) for b, w in zip(bins, weights, strict=True)]
    total: Floats = np.sum(parts, axis=0)
    return total


@cache
def race_optimum(rate: float, hits: int, epsilon: float) -> float:
    """About the greatest P[E] - e^epsilon Q[E] of any adversary against so many hits of races, from above.

    The model is that of the proof of the races' cost, with the time of arrival revealed: while nothing arrives the
    adversary sets the ratio r of the two hazards (first to second world), between e^-rate and e^rate; in time dt
    (of unit hazard in the second world) the loss grows by (1 - r) dt, and an arrival adds ln r. What he maximises is
    linear in the mixture of the two ends, so one of them is always best. On a grid of losses each end moves by one
    step; the loss of an arrival within a step is rounded up.
    """
    parts = 16
    step = rate / parts
    middle = int((epsilon + 16 * rate + 6) / step)
    grid = np.arange(-middle, middle + 1) * step
    # The chance of no arrival within a step, under the first world, at either end.
    rising = math.exp(-math.exp(-rate) * step / (1 - math.exp(-rate)))
    falling = math.exp(-math.exp(rate) * step / (math.exp(rate) - 1))
    value: Floats = np.maximum(0.0, 1 - np.exp(epsilon - grid))
    for _ in range(hits):
        lower = np.concatenate([np.full(parts - 1, value[0]), value[: 1 - parts]])
        upper = np.concatenate([value[parts:], np.ones(parts)])
        after_rise, after_fall = ((1 - rising) * lower).tolist(), ((1 - falling) * upper).tolist()
        now, moved = value.tolist(), 1.0
        while moved > 1e-9:
            moved = 0.0
            above = 1.0
            for i in range(len(now) - 1, -1, -1):
                better = rising * above + after_rise[i]
                moved, now[i] = max(moved, better - now[i]), max(now[i], better)
                above = now[i]
            below = now[0]
            for i in range(len(now)):
                better = falling * below + after_fall[i]
                moved, now[i] = max(moved, better - now[i]), max(now[i], better)
                below = now[i]
        value = np.array(now)
    return float(value[middle])


def losses(plan: Strategy, mechanism: Mechanism, ask: Ask, hits: int, sessions: int, *, first: bool) -> Iterator[float]:
    """The final privacy loss of each session, as the adversary counts it, in either world.

    Where the comparisons of a race show, each that did not come out counts as a miss of its own.
    """
    scale, threshold = float(mechanism.scale), mechanism.threshold
    for _ in range(sessions):
        left, loss, asked = hits, 0.0, 0
        while left and asked < MOST_ASKED:
            place = plan.at(left, loss)
            if place is None:
                break
            outcome, comparisons = ask(place.hypothesis, place.sign * UNIT if first else 0, threshold)
            asked += 1
            if type(outcome) is Hit:
                left -= 1
                value = outcome.value
                loss += (abs(value) - abs(value - place.sign * UNIT)) / scale + place.constant
                loss += place.miss * (comparisons - 1) if comparisons is not None else 0.0
            else:
                loss += place.miss * (1 if comparisons is None else comparisons)
        yield loss


def told(epsilon: float, found: Sequence[float]) -> int:
    """How many sessions ended above epsilon."""
    return sum(loss > epsilon for loss in found)
