"""What the proofs of the update bounds count on, from their definitions: how far a hypothesis is from the data.

A proof has a distance (a Bregman divergence D(x; h), or the logarithm of how many databases are left), and each update
made at a gap of at least alpha lowers it by a stated amount. Distances are computed from the data and from what the
public hypothesis says, by formulas of the papers and plain loops, with none of the code they are held against.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import root

from app.constructions.base import Construction, ListedHypothesis
from app.spaces.query import Query
from tests.questions.rows import Cells, Elements, Row, Vector, diagonal_weights, told_diagonal


@dataclass(frozen=True)
class Update:
    """One update: of which query, at which true gap, and how far the measurement certifies that the answer is off.

    ``gap`` and ``certified`` are sizes, in counts; ``progress`` is the alpha that the construction steps with.
    """

    query: Query
    gap: float
    certified: float
    progress: float


class Proof(ABC):
    """The argument for one row's bound."""

    def __init__(self, row: Row) -> None:
        self.row = row

    @abstractmethod
    def distance(self, construction: Construction, state: Any) -> float:
        """How far the hypothesis is from the data; never negative."""

    @abstractmethod
    def owed(self, update: Update) -> float:
        """What an update lowers the distance by, at least."""

    @abstractmethod
    def least(self, progress: float, queries: list[Query]) -> float:
        """What any update with one of the queries lowers it by, at least: what the bound is made of."""


def smooth(rate: float, gap: float, zeta: float, mu: float) -> float:
    """What a step of a fixed rate lowers D(x; h) by: ``rate gap - rate^2 zeta^2/(2 mu)``, as Psi* is 1/mu-smooth."""
    return rate * gap - (rate * zeta) ** 2 / (2 * mu)


class Entropic(Proof):
    """KL(x/n || h/n) over the cells and the slack cell: GRU11 theorem 4.6 with algorithm 5's step; Pinsker."""

    @property
    def papers_rate(self) -> bool:
        """Whether the paper's step is GRU11's alpha/(2n), whatever the query; else JT12's mu alpha/zeta^2."""
        return self.row.construction == "mw"

    def _shares(self, cells: Vector) -> Vector:
        n = self.row.facts.mass
        assert n is not None
        return np.append(cells, n - cells.sum()) / n if self.row.padding else cells / n

    def distance(self, construction: Construction, state: Any) -> float:
        assert isinstance(self.row.of, Cells)
        x = self._shares(self.row.of.vector)
        return relative_entropy(x, self._shares(self.row.of.listed(construction.export(state))))

    def zeta(self, query: Query) -> float:
        """Half of the spread of the weights: over the simplex a constant moves nothing."""
        assert isinstance(self.row.of, Cells)
        weights = self.row.of.weights(query)
        weights = np.append(weights, 0.0) if self.row.padding else weights
        return float(weights.max() - weights.min()) / 2

    def owed(self, update: Update) -> float:
        n, zeta = self.row.facts.mass, self.zeta(update.query)
        assert n is not None
        gap, alpha, certified = (v / n for v in (update.gap, update.progress, update.certified))
        if self.row.step == "projection":
            return certified**2 / (2 * zeta**2)
        if self.papers_rate:
            # e^y <= 1 + y + y^2 for |y| <= 1.
            return alpha / 2 * gap - (alpha / 2) ** 2
        return smooth(alpha / zeta**2, gap, zeta, 1.0)

    def least(self, progress: float, queries: list[Query]) -> float:
        alpha = progress / float(self.row.facts.mass or 0)
        if self.row.step == "paper" and self.papers_rate:
            return alpha**2 / 4
        return alpha**2 / (2 * max(map(self.zeta, queries)) ** 2)


def relative_entropy(x: Vector, h: Vector) -> float:
    """``sum x ln(x/h)`` of two distributions."""
    there = x > 0
    if (h[there] <= 0).any():
        return math.inf
    return float((x[there] * np.log(x[there] / h[there])).sum())


class Euclidean(Proof):
    """``||x - h||_2^2`` over the universe: GRU11 theorem 4.4."""

    def distance(self, construction: Construction, state: Any) -> float:
        assert isinstance(self.row.of, Cells)
        return float(((self.row.of.vector - self.row.of.listed(construction.export(state))) ** 2).sum())

    def _square(self, query: Query) -> float:
        assert isinstance(self.row.of, Cells)
        return float((self.row.of.weights(query) ** 2).sum())

    def owed(self, update: Update) -> float:
        square, size = self._square(update.query), self.row.of.space.size
        if self.row.step == "projection":
            return update.certified**2 / square
        rate = update.progress / size
        return 2 * rate * update.gap - rate**2 * square

    def least(self, progress: float, queries: list[Query]) -> float:
        if self.row.step == "paper":
            return progress**2 / self.row.of.space.size
        return progress**2 / max(map(self._square, queries))


class Normed(Proof):
    """``D(x; h)`` of ``Psi = ||z||^2/(p-1)``, which is 2-strongly convex in the norm: JT12 theorem 3.2.

    ``Psi`` is homogeneous of degree two, so ``D(x; h) = Psi(x) + Psi(h) - <grad Psi(h), x>``. In the group and Schatten
    geometries an undirected graph is its full symmetric matrix and a query half of its own.
    """

    mu = 2.0

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        norm = row.parsed.norm(row.of.space)
        assert norm is not None
        self.p, self.q, self.family, self.columns = norm.p, norm.p / (norm.p - 1), norm.family, norm.side == "columns"
        self._dual: Vector | None = None
        self._zetas: dict[bytes, float] = {}

    @property
    def halved(self) -> bool:
        return self.row.of.space.symmetric and self.family != "lp"

    def seen(self, cells: Vector, *, half: bool = False) -> Vector:
        """Cells as the norm sees them: a list of entries, or a matrix."""
        if self.family == "lp":
            return cells
        assert isinstance(self.row.of, Cells)
        matrix = self.row.of.spread(cells)
        return matrix / 2 if half and self.halved else matrix

    def magnitudes(self, z: Vector) -> Vector:
        if self.family == "lp":
            return np.abs(z)
        if self.family == "group":
            return np.sqrt((z**2).sum(axis=0 if self.columns else 1))
        return np.linalg.svd(z, compute_uv=False)

    def norm(self, z: Vector, p: float) -> float:
        return float((self.magnitudes(z) ** p).sum() ** (1 / p))

    def value(self, z: Vector) -> float:
        """Psi(z)."""
        return self.norm(z, self.p) ** 2 / (self.p - 1)

    def _powers(self, z: Vector, exponent: float) -> Vector:
        """z with its magnitudes raised, its directions kept."""
        if self.family == "lp":
            return np.sign(z) * np.abs(z) ** exponent
        if self.family == "schatten":
            left, values, right = np.linalg.svd(z, full_matrices=False)
            return np.asarray(left @ np.diag(values**exponent) @ right)
        sizes = self.magnitudes(z)
        factors = np.array([0.0 if s == 0 else s ** (exponent - 1) for s in sizes])
        return z * (factors[None, :] if self.columns else factors[:, None])

    def link(self, z: Vector) -> Vector:
        """grad Psi."""
        size = self.norm(z, self.p)
        return 2 / (self.p - 1) * size ** (2 - self.p) * self._powers(z, self.p - 1) if size else np.zeros(z.shape)

    def inverse(self, theta: Vector) -> Vector:
        """grad Psi*, the inverse of the link."""
        size = self.norm(theta, self.q)
        if not size:
            return np.zeros(theta.shape)
        return (self.p - 1) / 2 * size ** (2 - self.q) * self._powers(theta, self.q - 1)

    def query(self, query: Query) -> Vector:
        """A query as the norm sees it."""
        assert isinstance(self.row.of, Cells)
        seen = self.seen(self.row.of.weights(query), half=True)
        if self.family == "schatten" and self.halved:
            seen = seen + np.diag(diagonal_weights(query, len(seen)))
        return seen

    def zeta(self, query: Query) -> float:
        """The query's dual norm."""
        if query.digest not in self._zetas:
            self._zetas[query.digest] = self.norm(self.query(query), self.q)
        return self._zetas[query.digest]

    def distance(self, construction: Construction, state: Any) -> float:
        assert isinstance(self.row.of, Cells)
        x = self.seen(self.row.of.vector)
        h = self.seen(self.row.of.listed(construction.export(state)))
        if self.family == "schatten" and self.halved:
            h = h + np.diag(told_diagonal(self.row.of, construction, state))
        theta = self._symmetric_dual(h) if self.family == "group" and self.halved else self.link(h)
        # Psi(h) = <theta, h> - Psi*(theta), and <theta, h> = 2 Psi(h).
        size = self.norm(theta, self.q) ** 2 * (self.p - 1) / 4
        return self.value(x) + size - float((theta * x).sum())

    def _symmetric_dual(self, h: Vector) -> Vector:
        """The symmetric theta whose hypothesis has the symmetric part h, which is all that answers and exports tell.

        It is the gradient of a convex function of the pairs: there is one, and a root search finds it from the last.
        """
        upper = np.triu_indices(len(h), 1)
        scale = float(np.abs(h).max())
        if scale == 0.0:
            self._dual = None
            return np.zeros(h.shape)

        def spread(pairs: Vector) -> Vector:
            theta = np.zeros(h.shape)
            theta[upper] = pairs
            return theta + theta.T

        def missing(pairs: Vector) -> Vector:
            made = self.inverse(spread(pairs))
            return np.asarray((made + made.T)[upper] / 2 - h[upper]) / scale

        for start in (self._dual, self.link(h)[upper], 2 / (self.p - 1) * h[upper]):
            if start is not None:
                found = root(missing, start, tol=1e-12)
                if float(np.abs(missing(found.x)).max()) < 1e-9:
                    self._dual = found.x
                    return spread(found.x)
        raise AssertionError("no theta was found for the hypothesis")

    def owed(self, update: Update) -> float:
        zeta = self.zeta(update.query)
        if self.row.step == "projection":
            return self.mu * update.certified**2 / (2 * zeta**2)
        return smooth(self.mu * update.progress / zeta**2, update.gap, zeta, self.mu)

    def least(self, progress: float, queries: list[Query]) -> float:
        return self.mu * progress**2 / (2 * max(map(self.zeta, queries)) ** 2)


class Slots(Proof):
    """KL(p || D) over the slots of lecture 13: p gives the slot of an element its share of the data, and what the data
    has elsewhere evenly to the slots that are free in the end.

    ``final`` are the elements that have slots in the end: an element without one counts what a free slot does.
    """

    def __init__(self, row: Row, progress: float, final: Iterable[str]) -> None:
        super().__init__(row)
        self.progress, self.final = progress, list(final)

    @property
    def factor(self) -> float:
        return 4.0 if self.row.step == "paper" else 2.0

    @cached_property
    def slots(self) -> int:
        """The smallest s with ``s/(ln s + 1) >= c m/a^2``, by trying them all."""
        wanted = self.factor * self.row.mechanism["sparsity"] / (self.progress / float(self.row.facts.mass or 0)) ** 2
        return next(s for s in range(1, 10**6) if s / (math.log(s) + 1) >= wanted)

    def distance(self, construction: Construction, state: Any) -> float:
        assert isinstance(self.row.of, Elements)
        h = construction.export(state)
        assert isinstance(h, ListedHypothesis)
        n = float(self.row.facts.mass or 0)
        known = dict(zip(h.elements, h.counts.tolist(), strict=True))
        shares = np.array([self.row.of.data.get(e, 0) / n for e in self.final])
        masses = np.array([known.get(e, h.other) / n for e in self.final])
        free = self.slots - len(self.final)
        assert free > 0
        elsewhere, left = 1 - float(shares.sum()), free * h.other / n
        return relative_entropy(np.append(shares, elsewhere), np.append(masses, left))

    def owed(self, update: Update) -> float:
        n = float(self.row.facts.mass or 0)
        gap, alpha, certified = (v / n for v in (update.gap, update.progress, update.certified))
        if self.row.step == "projection":
            low, high = update.query.range
            return certified**2 / (2 * ((high - low) / 2) ** 2)
        return alpha / 2 * gap - (alpha / 2) ** 2

    def least(self, progress: float, queries: list[Query]) -> float:
        return (progress / float(self.row.facts.mass or 0)) ** 2 / self.factor


class Halving(Proof):
    """How often the set of databases can be halved before nothing is left of it: GRU11 theorem A.2."""

    def distance(self, construction: Construction, state: Any) -> float:
        return math.log2(construction.dump(state).arrays["members"].shape[1])

    def owed(self, update: Update) -> float:
        return 1.0

    def least(self, progress: float, queries: list[Query]) -> float:
        return 1.0


def proof_of(row: Row, progress: float, final: Iterable[str] = ()) -> Proof:
    """The argument for a row's bound at a progress; of slots, with the elements that have one in the end."""
    match row.construction:
        case "mw":
            return Entropic(row)
        case "fk":
            return Euclidean(row)
        case "smw":
            return Slots(row, progress, final)
        case "median":
            return Halving(row)
    return Entropic(row) if row.simplex else Normed(row)
