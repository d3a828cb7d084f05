"""Sessions played in memory, and analysts who know the data and ask for the most updates.

A game runs the real core: plan, hypothesis, round and update are those of the server, and so is the noise. What
the server adds (durability, HTTP, the ledger's account) has no part in errors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from app.constructions.base import DenseHypothesis
from app.curator.dataset import PublicDataset
from app.curator.mechanisms.protocol import Answer, Test
from app.curator.mechanisms.round import Hit, play
from app.curator.opening import Opening
from app.curator.plan import Plan
from app.curator.planning import make_plan
from app.curator.request import SessionRequest, parse_request
from app.curator.session import Session
from app.privacy.noise import DiscreteLaplace
from app.spaces.counts import ExactCounts
from app.spaces.queries.cells import dense_of
from app.spaces.queries.weights import product
from app.spaces.query import Query, linear
from app.spaces.tensor import DenseTensor

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Noise is drawn in blocks of so many values.
BLOCK = 256
#: An analyst gives up after so many misses one after the other.
PATIENCE = 12
#: A session is too small when the analyst uses it up; the least that is not is found to within this factor.
RESOLUTION = 1.1
#: Where nothing is known yet, a search goes up by so much.
_STEP = 2.0


@dataclass(frozen=True)
class Private:
    """A data set: what is public of it, its exact numbers, and (for the analyst who knows it) its counts."""

    public: PublicDataset
    tensor: ExactCounts
    counts: FloatArray | None = None


@dataclass(frozen=True)
class Terms:
    """What a session is opened with, whatever its mechanism."""

    epsilon: float
    max_queries: int
    beta: float = 0.05
    calibration: str = "rdp"

    def plan(self, data: Private, mechanism: dict[str, Any], updates: int | None) -> tuple[SessionRequest, Plan]:
        """The request and its plan."""
        asked: dict[str, Any] = {
            "dataset": data.public.spec.name,
            "mechanism": mechanism,
            "epsilon": self.epsilon,
            "max_queries": self.max_queries,
            "beta": self.beta,
            "calibration": self.calibration,
        }
        if updates is not None:
            asked["max_updates"] = updates
        request = parse_request(asked)
        plan = make_plan(data.public, request)
        assert isinstance(plan, Plan)
        assert plan.purchase is None, "benchmarks give what a session would have to buy"
        return request, plan


class Game:
    """One session against one data set; keeps the largest error of any answer.

    With ``threshold`` (counts) the noise is switched off and T is as given, L half of it: the construction alone, and
    no privacy at all.
    """

    def __init__(
        self, data: Private, mechanism: dict[str, Any], terms: Terms, updates: int, threshold: float | None = None
    ) -> None:
        request, plan = terms.plan(data, mechanism, updates)
        if threshold is not None:
            units = round(math.ldexp(threshold, plan.answer_bits))
            plan = replace(plan, threshold_units=units, noise_bound_units=units // 2)
        self.data, self.plan = data, plan
        self.session = Session(Opening(data.public, request, plan))
        self._source = None if threshold is not None else DiscreteLaplace(plan.noise_scale_units)
        self._noise: Iterator[int] = iter(())
        self._known: set[bytes] = set()
        self.largest_error = 0.0

    @property
    def asked(self) -> int:
        """Different questions so far."""
        return len(self._known)

    def knows(self, query: Query) -> bool:
        """Whether the question was asked before: it is answered from the cache, whatever the hypothesis says by now."""
        return query.digest in self._known

    @property
    def threshold(self) -> float:
        """T in counts."""
        return math.ldexp(self.plan.threshold_units, -self.plan.answer_bits)

    @property
    def exhausted(self) -> bool:
        """Whether all updates are used."""
        return self.session.updates_left == 0

    def hypothesis(self) -> FloatArray:
        """The public hypothesis as counts."""
        found = self.session.exported()
        assert isinstance(found, DenseHypothesis)
        return found.array

    def _draw(self) -> int:
        if self._source is None:
            return 0
        found = next(self._noise, None)
        if found is None:
            self._noise = iter(self._source.take(BLOCK).tolist())
            found = next(self._noise)
        return found

    def ask(self, query: Query) -> tuple[bool, float]:
        """Ask; whether the answer was a measurement, and how far off it is."""
        space = self.data.public.space
        private = space.to_answer_grid(int(query.exact(self.data.tensor)), query)
        due = self.session.consider(query)
        hit = False
        if isinstance(due, Test):
            outcome = play(int(due.hypothesis[0]), private, self._draw(), self.plan.threshold_units)
            hit = isinstance(outcome, Hit)
            units = np.array([outcome.value], np.int64)
            answer = Answer(units, "measurement" if hit else "hypothesis", due.error_bound)
        else:
            assert isinstance(due, Answer)
            answer = due
        self.session.record(query, answer)
        self._known.add(query.digest)
        error = abs(self.session.real(int(answer.units[0]) - private))
        self.largest_error = max(self.largest_error, error)
        return hit, error


@dataclass(frozen=True)
class Chosen:
    """A query that an analyst has chosen, and its gap as the analyst, who knows the data, computes it."""

    query: Query
    gap: float


class Analyst(ABC):
    """Chooses queries of one class, knowing data and hypothesis."""

    @abstractmethod
    def choose(self, residual: FloatArray, target: float | None, rng: np.random.Generator) -> Chosen:
        """A query with a large gap to ``residual`` = x - h.

        Without a target the largest gap that is found; with one (where that is larger) a query whose gap is just
        above it and whose norm is large, so that the update it forces teaches little.
        """

    @abstractmethod
    def random(self, rng: np.random.Generator) -> Query:
        """A random query of the class."""


class CutAnalyst(Analyst):
    """Cuts from left nodes to exactly ``size`` right nodes of a bipartite graph, or blocks of a matrix.

    ``one_sided``: the left side is all of the nodes, which is the class of JT12 section 4.1; the largest gap is then
    exact (the ``size`` largest column sums). Else the left side is free, and sides are chosen in turn, each the best
    for the other, from several starts: everyone, the signs of the leading singular vector, and chance.
    """

    def __init__(self, data: Private, size: int, one_sided: bool) -> None:
        self.space, self.size, self.one_sided = data.public.space, size, one_sided

    def _columns(self, sums: FloatArray) -> IntArray:
        return np.argpartition(-sums, self.size - 1)[: self.size]

    def _climb(self, residual: FloatArray, sign: float, left: FloatArray) -> tuple[float, FloatArray, IntArray]:
        """The best sides from a start, each the best for the other."""
        best, columns = -math.inf, np.arange(self.size)
        while True:
            sums = sign * (left @ residual)
            found = self._columns(sums)
            gap = float(sums[found].sum())
            if self.one_sided or gap <= best * (1 + 1e-12):
                return max(gap, best), left, found if gap > best else columns
            best, columns = gap, found
            right = np.zeros(residual.shape[1])
            right[columns] = 1.0
            left = (sign * (residual @ right) > 0).astype(np.float64)

    def _largest(self, residual: FloatArray, rng: np.random.Generator) -> tuple[float, float, FloatArray, IntArray]:
        starts = [np.ones(len(residual))]
        if not self.one_sided:
            along = residual @ rng.standard_normal(residual.shape[1])
            for _ in range(3):
                along = residual @ (along @ residual)
                along /= max(float(np.abs(along).max()), 1e-300)
            starts += [(along > 0).astype(np.float64), (along < 0).astype(np.float64)]
        climbs = [(sign, *self._climb(residual, sign, start)) for sign in (1.0, -1.0) for start in starts]
        sign, gap, left, columns = max(climbs, key=lambda climb: climb[1])
        return gap, sign, left, columns

    def choose(self, residual: FloatArray, target: float | None, rng: np.random.Generator) -> Chosen:
        gap, sign, left, columns = self._largest(residual, rng)
        if target is not None and gap > target:
            signed = sign * residual
            if self.one_sided:
                # Windows of the sorted columns: their sums fall steadily from the largest.
                sums = signed.sum(axis=0)
                order = np.argsort(-sums)
                before = np.concatenate([[0.0], np.cumsum(sums[order])])
                windows = before[self.size :] - before[: -self.size]
                last = int(np.flatnonzero(windows >= target)[-1])
                gap, columns = float(windows[last]), order[last : last + self.size]
            else:
                # More nodes than do good, until only the target is left of the gap.
                gains = signed[:, columns].sum(axis=1)
                order = np.argsort(-gains)
                total = np.cumsum(gains[order])
                last = int(np.flatnonzero(total >= target)[-1])
                gap, left = float(total[last]), np.zeros(len(left))
                left[order[: last + 1]] = 1.0
        return Chosen(self._cut(np.flatnonzero(left), np.sort(columns)), gap)

    def _cut(self, left: IntArray, right: IntArray) -> Query:
        return product(self.space, {0: left, 1: right})

    def random(self, rng: np.random.Generator) -> Query:
        rows, columns = self.space.shape
        left = np.arange(rows) if self.one_sided else np.flatnonzero(rng.random(rows) < 0.5)
        return self._cut(left, np.sort(rng.choice(columns, self.size, replace=False)))


class FreeCutAnalyst(CutAnalyst):
    """Cuts (S, T) of any sizes, in a bipartite, directed or undirected graph; the left side given all, T free."""

    def __init__(self, data: Private) -> None:
        super().__init__(data, 1, one_sided=False)

    def _columns(self, sums: FloatArray) -> IntArray:
        found = np.flatnonzero(sums > 0)
        return found if len(found) else np.array([int(np.argmax(sums))])

    def random(self, rng: np.random.Generator) -> Query:
        return self._cut(*(np.flatnonzero(rng.random(length) < 0.5) for length in self.space.shape))


class SubsetAnalyst(Analyst):
    """Any subset of the cells of a table of one attribute: the 0/1 linear queries of GRU11."""

    def __init__(self, data: Private) -> None:
        self.space = data.public.space

    def choose(self, residual: FloatArray, target: float | None, rng: np.random.Generator) -> Chosen:
        sign = 1.0 if residual.clip(min=0).sum() >= (-residual).clip(min=0).sum() else -1.0
        order = np.argsort(-sign * residual)
        total = np.cumsum(sign * residual[order])
        last = int(np.argmax(total))
        if target is not None and total[last] > target:
            last = int(np.flatnonzero(total >= target)[-1])
        return Chosen(product(self.space, {0: np.sort(order[: last + 1])}), float(total[last]))

    def random(self, rng: np.random.Generator) -> Query:
        return product(self.space, {0: np.flatnonzero(rng.random(self.space.size) < 0.5)})


class DenseAnalyst(Analyst):
    """Any weights in [-1, 1] on the cells of a matrix; the largest gap is exact, the sum of absolute residuals.

    Random queries are those of JT12 section 4.2: Gaussian weights.
    """

    #: Standard deviations that a Gaussian weight of 1 stands for; beyond it weights are cut off.
    CUT = 4.5

    def __init__(self, data: Private) -> None:
        self.space = data.public.space

    def choose(self, residual: FloatArray, target: float | None, rng: np.random.Generator) -> Chosen:
        signs = np.where(residual > 0, 1.0, -1.0)
        gains = np.abs(residual)
        gap = float(gains.sum())
        if target is not None and gap > target:
            # The cells that gain most count against it until only the target is left: weights as large as can be.
            excess = gap - target
            order = np.argsort(-gains, axis=None)
            lost = 2 * np.cumsum(gains.ravel()[order])
            flipped = order[: int(np.searchsorted(lost, excess, side="right"))]
            signs.ravel()[flipped] *= -1.0
            gap = float((signs * residual).sum())
        return Chosen(dense_of(self.space, signs), gap)

    def random(self, rng: np.random.Generator) -> Query:
        weights = np.clip(rng.standard_normal(self.space.shape) / self.CUT, -1.0, 1.0)
        return dense_of(self.space, weights)


class RangeAnalyst(Analyst):
    """Ranges of an ordered attribute. The largest gap is exact: the largest sum of neighbouring residuals."""

    def __init__(self, data: Private) -> None:
        self.space = data.public.space

    def choose(self, residual: FloatArray, target: float | None, rng: np.random.Generator) -> Chosen:
        before = np.concatenate([[0.0], np.cumsum(residual)])
        best = (0.0, 0, 1)
        for signed in (before, -before):
            low = np.minimum.accumulate(signed)
            stop = int(np.argmax(signed - low))
            start = int(np.argmin(signed[: stop + 1]))
            best = max(best, (float(signed[stop] - signed[start]), start, max(stop, start + 1)))
        gap, start, stop = best
        return Chosen(product(self.space, {0: np.arange(start, stop)}), gap)

    def random(self, rng: np.random.Generator) -> Query:
        start, stop = np.sort(rng.choice(self.space.size + 1, 2, replace=False))
        return product(self.space, {0: np.arange(start, stop)})


class PairAnalyst(Analyst):
    """Predicates on two attributes of a table at a time, any values of either."""

    def __init__(self, data: Private) -> None:
        self.space = data.public.space

    def _pair(self, rng: np.random.Generator) -> tuple[int, int]:
        first, second = sorted(rng.choice(len(self.space.shape), 2, replace=False).tolist())
        return first, second

    def choose(self, residual: FloatArray, target: float | None, rng: np.random.Generator) -> Chosen:
        first, second = self._pair(rng)
        others = tuple(i for i in range(residual.ndim) if i not in (first, second))
        marginal = residual.sum(axis=others)
        best: tuple[float, FloatArray, FloatArray] = (-1.0, np.ones(1), np.ones(1))
        for signed in (marginal, -marginal):
            left, gap = np.ones(len(signed)), -1.0
            while True:
                right = (left @ signed > 0).astype(np.float64)
                left = (signed @ right > 0).astype(np.float64)
                found = float(left @ signed @ right)
                if found <= gap * (1 + 1e-12):
                    break
                gap = found
            best = max(best, (gap, left, right), key=lambda found: found[0])
        gap, left, right = best
        return Chosen(product(self.space, {first: np.flatnonzero(left), second: np.flatnonzero(right)}), gap)

    def random(self, rng: np.random.Generator) -> Query:
        asked = {i: np.flatnonzero(rng.random(self.space.shape[i]) < 0.5) for i in self._pair(rng)}
        return product(self.space, asked)


@dataclass(frozen=True)
class Played:
    """How a game ended. Errors are in counts; ``gap`` is what the last search for the largest gap found."""

    updates: int
    used: int
    asked: int
    error_bound: float
    largest_error: float
    gap: float
    exhausted: bool


def attack(
    game: Game,
    analyst: Analyst,
    rng: np.random.Generator,
    slow: bool,
    most: int = 100_000,
    starts: int = 1,
) -> Played:
    """Ask until the updates are used, no gap passes the threshold, or patience is gone.

    The slow analyst keeps to queries whose gap is one noise scale above the threshold, to force as many updates as
    can be; the other always asks the query with the largest gap. With more ``starts`` an analyst who looks at a
    random part of the class each time looks again before giving up. ``most`` bounds the questions of the whole game.
    """
    counts = game.data.counts
    assert counts is not None
    residual = counts - game.hypothesis()
    misses, gap, height = 0, 0.0, 1.0
    most = min(most, game.plan.max_queries)
    while not game.exhausted and game.asked < most and misses < PATIENCE * starts:
        # Slow while that succeeds.
        target = game.threshold + float(game.plan.scale) if slow and misses < PATIENCE // 2 else None
        if misses >= starts:
            # Another query almost as good: a repeated one is answered from the cache, whatever it would gain by now.
            blur = 2.0 ** (misses / starts - 6) * height
            blurred = residual + blur * rng.standard_normal(residual.shape)
            query = analyst.choose(blurred, target and target * (1 + 0.03 * misses), rng).query
            chosen = Chosen(query, abs(linear(query).inner(DenseTensor(residual))))
        else:
            chosen = analyst.choose(residual, target, rng)
            height = chosen.gap / (linear(chosen.query).norm2sq or 1.0)
        gap = gap if misses else 0.0
        known = game.knows(chosen.query)
        if not known or chosen.gap <= game.threshold:
            gap = max(gap, chosen.gap)
        if known or chosen.gap <= game.threshold:
            if starts == 1 and not misses and not known:
                break
            misses += 1
            continue
        hit, _ = game.ask(chosen.query)
        misses = 0 if hit else misses + 1
        if hit:
            residual = counts - game.hypothesis()
    session = game.session
    return Played(
        game.plan.max_updates,
        session.updates_used,
        game.asked,
        game.plan.error_bound,
        # A query with a larger gap would be answered with a measurement.
        max(game.largest_error, 0.0 if game.exhausted or gap > game.threshold else gap),
        gap,
        game.exhausted,
    )


def needed(run: Callable[[int], Played], most: int, guess: int) -> Played | None:
    """The least number of updates that the analyst does not use up, about, and how that game went; None above ``most``.

    A game that leaves updates over says more than that: with fewer the noise is less, so that no fewer are needed than
    it used. Where B alpha^2 is what the data asks for, the least lies near the geometric mean of the two. Noise
    differs from game to game, so this is the least that was found, to within ``RESOLUTION``.
    """
    low, high, best = 0, most + 1, None
    updates = max(1, min(guess, most))
    while True:
        played = run(updates)
        if played.exhausted:
            low = updates
        else:
            high, best = updates, played
        if best is None:
            if low >= most:
                return None
            updates = min(most, math.ceil(_STEP * low))
            continue
        floor = max(low, min(best.used, high - 1))
        if high <= max(floor + 1, RESOLUTION * floor):
            return best
        updates = min(high - 1, max(floor + 1, round(math.sqrt(high * max(floor, 1)))))
