"""Iterative construction of a graph or a matrix: rounds that find by a noisy power method which rank-one query a
hypothesis errs on, measure it, and learn it.

Source: GRU11 section 6, an iterative database construction (IDC) with a private distinguisher; its construction is that
of Frieze and Kannan (section 4.2), as JT12 has it for matrices. A round multiplies the matrix of errors ``A - H`` by a
public vector, and by what came of that, with noise each time: so the vectors turn towards the largest singular value.
The next round starts from what the last step's product still lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from app.measurements.noise import Noise
from app.measurements.record import Measurement, Purchase, those
from app.measurements.strategies.edges import Edges
from app.measurements.strategies.products import Products
from app.measurements.strategy import Strategy
from app.patience import Progress
from app.privacy.ledger import Amounts
from app.releases.edge_results import EdgeValues
from app.releases.playing import Choose, Exact, Play
from app.spaces.tensor import FloatArray, IntArray

#: What was measured of a data set.
Known: TypeAlias = Measurement[Strategy]

#: Power steps of a round: one for either side.
STEPS = 2
#: Bits of weights. Rounding turns a vector by less than noise does.
WEIGHT_BITS = 10


@dataclass(frozen=True)
class PowerRounds:
    """The terms of all rounds of a release. A round makes two power steps and measures a rank-one query.

    Attributes:
        edges: the cells.
        bits: weights are whole units of 2^-bits.
        number: T, how many rounds there are.
        step: the noise of each value of a power step.
        query: the noise of a rank-one query's value.
        step_price: what a power step costs.
        query_price: what measuring a rank-one query costs.
    """

    edges: Edges
    bits: int
    number: int
    step: Noise
    query: Noise
    step_price: Amounts
    query_price: Amounts

    @property
    def measurements(self) -> int:
        """How many there are in all rounds together."""
        return self.number * (STEPS + 1)

    @property
    def price(self) -> Amounts:
        """The cost of a round."""
        return self.step_price.times(STEPS).plus(self.query_price)

    def start(self) -> IntArray:
        """The vector that the first round starts from: ones. Where entries are mostly of one sign, the largest singular
        value's vector is near to it.
        """
        return np.full(self.edges.shape[1], 1 << self.bits, np.int64)

    def spread(self, values: FloatArray) -> IntArray:
        """A vector of weights for a power step: in the direction of values, cut off at their root mean square.

        Noise is the same for all weights from -1 to 1. So what a step tells of a direction grows with the sum of
        weights along it, which is the larger the fewer weights are near 0.
        """
        typical = float(np.sqrt(np.mean(values**2)))
        return self.rounded(np.clip(values, -typical, typical))

    def rounded(self, values: FloatArray) -> IntArray:
        """A vector of weights in the direction of values, the largest of which weighs 1 or -1."""
        largest = float(np.abs(values).max())
        if largest == 0:
            return np.full(len(values), 1 << self.bits, np.int64)
        weights: IntArray = np.rint(np.ldexp(values / largest, self.bits)).astype(np.int64)
        return weights

    def play(self, hypothesis: LowRank, progress: Progress, exact: Exact, choose: Choose) -> Play:
        """The play of all rounds, in which nothing is chosen by what is exact.

        Args:
            hypothesis: what the first one is held against; it learns.
            progress: told from time to time.
            exact: not asked.
            choose: not asked.
        """
        weights = self.start()
        for number in range(self.number):
            directions: list[IntArray] = []
            gaps: FloatArray
            for step in range(STEPS):
                last = (yield self.step_of(step, weights)).of(Products)
                # What the hypothesis gives is public, so it is taken off after noise was added.
                gaps = last.values - hypothesis.of(last.strategy)
                weights = self.spread(gaps)
                directions.append(self.rounded(gaps))
            hypothesis.learn((yield self.query_of(*directions[-2:])).of(Products))
            weights = self.spread(last.values - hypothesis.of(last.strategy))
            progress((number + 1) / self.number)

    def step_of(self, step: int, weights: IntArray) -> Purchase[Products]:
        """The power step by these weights: the first of a round is by columns, the next by rows."""
        by_columns = step % 2 == 0 or self.edges.kind == "pairs"
        sides = (None, weights) if by_columns else (weights, None)
        return Purchase(Products(self.edges, self.bits, *sides), self.step, self.step_price)

    def query_of(self, left: IntArray, right: IntArray) -> Purchase[Products]:
        """The rank-one query of the last two vectors; of an undirected graph either end has the last one."""
        first = right if self.edges.kind == "pairs" else left
        return Purchase(Products(self.edges, self.bits, first, right), self.query, self.query_price)

    def admits(self, place: int, release: Measurement[Products], price: Amounts) -> bool:
        """Whether a measurement may be the one at this place among those of all rounds: of this side, with this noise,
        at this price. The weights are what a hypothesis in floating point led to, and are not found again.
        """
        products, step = release.strategy, place % (STEPS + 1)
        whole = step == STEPS
        by_columns = step % 2 == 0 or self.edges.kind == "pairs"
        sides = (whole or not by_columns, whole or by_columns)
        return (
            (products.edges, products.bits) == (self.edges, self.bits)
            and (products.left is not None, products.right is not None) == sides
            and release.noise == (self.query if whole else self.step)
            and price == (self.query_price if whole else self.step_price)
        )


class LowRank:
    """The hypothesis of Frieze and Kannan's construction: a sum of rank-one queries, kept as a matrix.

    Args:
        edges: the cells.
    """

    def __init__(self, edges: Edges) -> None:
        self.edges = edges
        self.matrix: FloatArray = np.zeros(edges.shape)

    def of(self, products: Products) -> FloatArray:
        """The products of its cells, in counts."""
        left, right = _weights(products)
        if right is None:
            assert left is not None
            along: FloatArray = left @ self.matrix
            return along
        values: FloatArray = self.matrix @ right
        return values if left is None else np.array([left @ values / self._times])

    @property
    def _times(self) -> int:
        """How many times the matrix has each cell."""
        return 2 if self.edges.kind == "pairs" else 1

    def learn(self, release: Measurement[Products]) -> float | None:
        """Go along a rank-one query to the value that was released for it, ``h + (y - <f,h>)/||f||^2 f`` (GRU11
        section 4.2; the whole way, as the noise of one value is small beside a query's norm).

        Returns:
            The coefficient of f; None where it is no rank-one query, or one of no cell.
        """
        left, right = _weights(release.strategy)
        if left is None or right is None:
            return None
        query = np.outer(left, right)
        if self.edges.kind != "all":
            np.fill_diagonal(query, 0.0)
        norm = float(np.vdot(query, query)) / self._times
        if norm == 0:
            return None
        coefficient = float(release.values[0] - self.of(release.strategy)[0]) / norm
        query *= coefficient
        self.matrix += query
        return coefficient


def _weights(products: Products) -> tuple[FloatArray | None, FloatArray | None]:
    """u and v."""
    left, right = (
        None if weights is None else np.ldexp(weights.astype(np.float64), -products.bits)
        for weights in (products.left, products.right)
    )
    return left, right


def low_rank(known: Sequence[Known], made: Sequence[Known], progress: Progress) -> tuple[EdgeValues, dict[str, Any]]:
    """The result of a release's rounds, a value for every cell, and its description.

    Values are sums of the queries that were learnt: they may lie beyond the bounds of the data, and are not unbiased.

    Args:
        known: what was measured of the data set before.
        made: what was measured for the release, in that order.
        progress: told how much is done, from 0 to 1.
    """
    rounds = those(made, Products)
    edges = rounds[0].strategy.edges
    hypothesis = started(edges, known)
    learnt = [hypothesis.learn(release) for release in rounds if release.strategy.whole]
    progress(1.0)
    told = {"rounds": len(learnt), "coefficients": [each or 0.0 for each in learnt]}
    return EdgeValues(edges, edges.flattened(hypothesis.matrix)), told


def started(edges: Edges, known: Sequence[Known]) -> LowRank:
    """The hypothesis before the first round: what rank-one queries that were measured before have taught.

    Args:
        edges: the cells.
        known: what was measured of the data set before.
    """
    hypothesis = LowRank(edges)
    for release in those(known, Products):
        if release.strategy.edges == edges:
            hypothesis.learn(release)
    return hypothesis
