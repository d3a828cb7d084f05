"""What is compared: the service's policy for graphs, and what else could be done with the same budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from app.privacy.calibration import per_hit, scale_for_cost
from app.privacy.costs import DiscreteLaplaceAnswer, renyi_cost
from app.privacy.ledger import Budget
from app.releases.synthetic_graph import NoisyDegrees, NoisyEdges, degrees_graph
from app.spaces.tensor import FloatArray
from benchmarks.research.flipped_graphs import from_flipped
from benchmarks.research.graphs_auto import make
from benchmarks.research.graphs_data import Answer, BoolArray, Graph, SingleArray, cut_sums


class Method(Protocol):
    """A way to answer cuts within a budget, one session."""

    name: str

    def answer(self, left: BoolArray, right: BoolArray) -> Answer:
        """The answer to a cut."""

    def expectation(self) -> FloatArray | SingleArray | None:
        """What is published by now about every pair, for an adversary; None where that is nothing."""


@runtime_checkable
class Batch(Protocol):
    """A method that answers many cuts at once, as it would one after another; without intervals."""

    def answers(self, lefts: BoolArray, rights: BoolArray) -> FloatArray:
        """The values of the answers, one a row."""


Make: TypeAlias = Callable[[Graph, float, float, int, int], Method]


def budget_of(epsilon: float, delta: float) -> Budget:
    """The budget as the ledger keeps it."""
    return Budget.of(Decimal(str(epsilon)), Decimal(str(delta)))


class _Batched:
    """What answers many at once also answers one."""

    def answers(self, lefts: BoolArray, rights: BoolArray) -> FloatArray:
        raise NotImplementedError

    def answer(self, left: BoolArray, right: BoolArray) -> Answer:
        return float(self.answers(left[None], right[None])[0]), math.nan, math.nan


@dataclass
class Gaussian(_Batched):
    """Each question by itself, with one k-th of the budget."""

    name: str
    of: Graph
    sigma: float
    rng: np.random.Generator
    clipped: bool

    @classmethod
    def maker(cls, name: str, *, clipped: bool) -> Make:
        def make(of: Graph, epsilon: float, delta: float, questions: int, seed: int) -> Gaussian:
            budget = budget_of(epsilon, delta)
            sigma = math.sqrt(float(budget.order) * questions / (2 * float(budget.total)))
            return cls(name, of, sigma, np.random.default_rng([seed, 1]), clipped)

        return make

    def answers(self, lefts: BoolArray, rights: BoolArray) -> FloatArray:
        values = self.of.truths(lefts, rights) + self.rng.normal(0, self.sigma, len(lefts))
        return np.clip(values, 0, self.of.cells(lefts, rights)) if self.clipped else values

    def expectation(self) -> None:
        return None


@dataclass
class Published(_Batched):
    """Weights of all pairs, released once; answers are put between nothing and all pairs."""

    name: str
    of: Graph
    weights: FloatArray | SingleArray

    def answers(self, lefts: BoolArray, rights: BoolArray) -> FloatArray:
        values = cut_sums(self.weights, lefts, rights, self.of.undirected)
        return np.clip(values, 0, self.of.cells(lefts, rights))

    def expectation(self) -> FloatArray | SingleArray:
        return self.weights


def noisy_degrees(of: Graph, epsilon: float, rng: np.random.Generator) -> NoisyDegrees:
    """Degrees with Laplace noise of scale 2/epsilon: an edge is counted by two of them."""
    scale = 2 / epsilon
    rows, columns = (of.matrix.sum(axis=axis, dtype=np.float64) for axis in (1, 0))
    left = rows + rng.laplace(0, scale, len(rows))
    right = left if of.undirected else columns + rng.laplace(0, scale, len(columns))
    return NoisyDegrees(left, right, scale * math.sqrt(2))


def noisy_edges(of: Graph, epsilon: float, rng: np.random.Generator) -> NoisyEdges:
    """Randomised response on every pair; an undirected pair has one bit."""
    flip = 1 / (1 + math.exp(epsilon))
    turned = rng.random(of.shape, dtype=np.float32) < flip
    if of.undirected:
        turned = np.triu(turned, 1)
        turned |= turned.T
    bits = (of.matrix.toarray().astype(np.bool_) ^ turned).astype(np.float32)
    return from_flipped(bits, flip, undirected=of.undirected, loops=of.bipartite)


def _zero(of: Graph, epsilon: float, delta: float, questions: int, seed: int) -> Published:
    """Zero, whatever is asked."""
    return Published("zero", of, np.zeros(of.shape, dtype=np.float32))


def _degrees(of: Graph, epsilon: float, delta: float, questions: int, seed: int) -> Published:
    """The whole pure epsilon on degrees, shrunk, and the capped product that has them."""
    degrees = noisy_degrees(of, epsilon, np.random.default_rng([seed, 2]))
    weights = degrees_graph(degrees, undirected=of.undirected, loops=of.bipartite)
    return Published("degrees", of, weights.astype(np.float32))


def _edges(of: Graph, epsilon: float, delta: float, questions: int, seed: int) -> Published:
    """The whole pure epsilon on edge noise: unbiased values."""
    edges = noisy_edges(of, epsilon, np.random.default_rng([seed, 3]))
    return Published("edges", of, edges.values)


def _edges_degrees(of: Graph, epsilon: float, delta: float, questions: int, seed: int) -> Published:
    """Four fifths of pure epsilon on edge noise, the rest on degrees; sums of rows and columns averaged by precision.

    What a sum moves by is spread evenly over its row or column.
    """
    rng = np.random.default_rng([seed, 4])
    edges, degrees = noisy_edges(of, 0.8 * epsilon, rng), noisy_degrees(of, 0.2 * epsilon, rng)
    rows, columns = of.shape
    moves = []
    for axis, measured, length in ((1, degrees.left, columns), (0, degrees.right, rows)):
        variance = length * edges.deviation**2
        trust = variance / (variance + degrees.deviation**2)
        moves.append(trust * (measured - edges.values.sum(axis=axis, dtype=np.float64)))
    total = (moves[0].sum() + moves[1].sum()) / 2
    down, across = (move + (total - move.sum()) / len(move) for move in moves)
    weights = edges.values + (down / columns)[:, None] + across / rows - total / (rows * columns)
    return Published("edges-degrees", of, weights.astype(np.float32))


class MultiplicativeWeights(_Batched):
    """The papers' construction: multiplicative weights behind online query response (Gupta, Roth, Ullman 2011).

    Every question is held against the hypothesis in a race of noisy comparisons; a hit costs one of ``UPDATES`` equal
    parts of the budget at the ledger's order, is answered by the noisy value that won, and moves the hypothesis until
    it says the same. When all are used the hypothesis answers. It is told the number of edges, and no weight passes
    one.

    Args:
        share: of pure epsilon, spent on degrees that the hypothesis begins with; 0 for one that begins uniform.
    """

    #: Hits that the budget is divided by, mean number of comparisons a question, and what T is beyond ln(RACERS/2),
    #: in units of the noise.
    UPDATES, RACERS, BEYOND = 128, 12, 5.0
    #: Most questions looked at ahead, which saves time and changes no answer.
    _AHEAD = 256

    def __init__(self, name: str, share: float, of: Graph, epsilon: float, delta: float, seed: int) -> None:
        self.name, self.of, self._rng = name, of, np.random.default_rng([seed, 5])
        budget = budget_of(epsilon, delta)
        left = budget.total
        if share:
            degrees = noisy_degrees(of, share * epsilon, self._rng)
            weights = degrees_graph(degrees, undirected=of.undirected, loops=of.bipartite)
            # At this order an edge costs twice what one sum with this noise does: it is in two.
            one = DiscreteLaplaceAnswer(Decimal(str(2 / (share * epsilon))), 1)
            left -= 2 * renyi_cost(one, budget.order)
        else:
            weights = np.ones(of.shape)
            if not of.bipartite:
                np.fill_diagonal(weights, 0)
        self._scale = float(scale_for_cost(per_hit(left, self.UPDATES), budget.order, "race"))
        self._threshold = (self.BEYOND + math.log(self.RACERS / 2)) * self._scale
        self._weights: SingleArray = weights.astype(np.float32)
        self.hits = 0
        self._settle()

    @classmethod
    def maker(cls, name: str, share: float) -> Make:
        def make(of: Graph, epsilon: float, delta: float, questions: int, seed: int) -> MultiplicativeWeights:
            return cls(name, share, of, epsilon, delta, seed)

        return make

    def answers(self, lefts: BoolArray, rights: BoolArray) -> FloatArray:
        truths, cells = self.of.truths(lefts, rights), self.of.cells(lefts, rights)
        found, done, ahead = np.empty(len(lefts)), 0, 8
        while done < len(lefts):
            over = self.hits >= self.UPDATES
            part = slice(done, len(lefts) if over else done + ahead)
            held = cut_sums(self._weights, lefts[part], rights[part], self.of.undirected)
            found[part] = held
            hit = None if over else self._race(truths[part] - held)
            if hit is None:
                done, ahead = done + len(held), min(2 * ahead, self._AHEAD)
                continue
            place, off = hit
            done, ahead = done + place, 8
            found[done] = np.clip(held[place] + off, 0, cells[done])
            self._update(lefts[done], rights[done], float(held[place]), float(held[place] + off))
            done += 1
        return found

    def expectation(self) -> SingleArray:
        return self._weights

    def _race(self, gaps: FloatArray) -> tuple[int, float] | None:
        """The first of these questions that hits, and the noisy gap that won."""
        racers = self._rng.poisson(self.RACERS, len(gaps))
        noisy = gaps[:, None] + self._rng.laplace(0, self._scale, (len(gaps), max(int(racers.max()), 1)))
        beyond = (np.abs(noisy) > self._threshold) & (np.arange(noisy.shape[1]) < racers[:, None])
        places = np.flatnonzero(beyond.any(axis=1))
        if not len(places):
            return None
        place = int(places[0])
        return place, float(noisy[place, int(np.argmax(beyond[place]))])

    def _update(self, left: BoolArray, right: BoolArray, held: float, value: float) -> None:
        """Scale the weights of the cut against all others, so that the cut has the value."""
        self.hits += 1
        edges = self.of.edges
        wanted, held = min(max(value, 1.0), edges - 1.0), min(max(held, 1e-6 * edges), edges - 1.0)
        factor = np.float32(wanted / (edges - wanted) * (edges - held) / held)
        blocks = [(left, right)]
        if self.of.undirected:  # the same pairs the other way round, but for those that are in the cut both ways
            blocks += [(right & ~left, left), (right & left, left & ~right)]
        for rows, columns in blocks:
            self._weights[np.ix_(rows, columns)] *= factor
        self._settle()

    def _settle(self) -> None:
        held = float(self._weights.sum(dtype=np.float64)) / (1 + self.of.undirected)
        self._weights *= np.float32(self.of.edges / max(held, 1e-300))
        np.minimum(self._weights, 1, out=self._weights)


def _auto(of: Graph, epsilon: float, delta: float, questions: int, seed: int) -> Method:
    """The service's own policy."""
    method: Method = make(of, epsilon, delta, questions, seed)
    return method


METHODS: dict[str, Make] = {
    "auto": _auto,
    "gaussian": Gaussian.maker("gaussian", clipped=False),
    "gaussian-clipped": Gaussian.maker("gaussian-clipped", clipped=True),
    "edges": _edges,
    "edges-degrees": _edges_degrees,
    "degrees": _degrees,
    "zero": _zero,
    "weights": MultiplicativeWeights.maker("weights", 0.0),
    "weights-degrees": MultiplicativeWeights.maker("weights-degrees", 0.3),
}
