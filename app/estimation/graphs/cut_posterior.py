"""The posterior of cuts: what measured ones tell of others.

Before anything is measured a cut is what degrees let expect, and how it differs from that is a Gaussian process over
the questions. Its covariance has three parts: what cells differ by, which two cuts share where they share cells and
which does not change the degrees; the noise of the degrees; and what their posterior is off by. The first and the last
are multiplied by factors that are found by the likelihood of what was measured. Every measured cut then moves what is
expected of all others (Rasmussen and Williams 2006, 2.2 and 5.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from app.estimation.graphs.columns import Columns
from app.estimation.graphs.expectation import Expectation, SideModel
from app.spaces.cuts import CutQuestion
from app.spaces.lazy import lazy
from app.spaces.tensor import Axis, FloatArray

#: Measurements that are kept at most, and that factors are found from.
MOST_KEPT, MOST_FITTED = 1500, 300
#: Factors that are tried: of what cells differ by, and of what the posterior of degrees is off by.
_FACTORS, _SHAPE_FACTORS = 2.0 ** np.arange(-2, 16), 4.0 ** np.arange(6)
#: How far the logarithms of both are expected to be from where they start, as standard deviations.
_SPREAD, _SHAPE_SPREAD = 2.0, 2.5
#: Part of a variance that is added to it: what is singular in floating point is not certain.
_JITTER = 1e-6
#: So many questions must have been kept before another is compared with them.
_COMPARED = 10
_ROOM = 64


@dataclass(frozen=True, eq=False)
class _Vectors:
    """The vectors of a question over the nodes of one side, with their sums under all weightings, and by how much the
    question's expectation moves with the sums of the nodes of each.
    """

    sides: tuple[Axis, ...]
    sums: FloatArray
    slopes: FloatArray

    def own(self, model: SideModel) -> FloatArray:
        """The centred inner products of the vectors with each other under each weighting."""
        found = np.empty((3, len(self.sides), len(self.sides)))
        for k, a in enumerate(self.sides):
            for j, b in enumerate(self.sides[: k + 1]):
                places, weights = a.meeting(b)
                found[:, k, j] = found[:, j, k] = model.weightings[:, places] @ weights
        centred: FloatArray = found - np.einsum("kw,jw->wkj", self.sums, self.sums / model.totals)
        return centred


@dataclass(frozen=True, eq=False)
class Rows:
    """The covariance of a question with all that were kept, and with itself last: what cells differ by, the noise of
    degrees and what their posterior is off by, one below the other.

    Attributes:
        parts: these.
        vectors: of the question, over the nodes of each side, or of both.
        moved: by how much its expectation moves with the total.
    """

    parts: FloatArray
    vectors: list[_Vectors]
    moved: float

    def covariance(self, factor: float, shape_factor: float) -> FloatArray:
        """All three together."""
        return _combined(self.parts, factor, shape_factor)


@dataclass(frozen=True, eq=False)
class Known:
    """The posterior of a question, in cells: its mean, the standard deviation, and its covariances.

    Attributes:
        prior: what degrees let expect.
        projected: the covariances in terms of what was measured, one after another.
    """

    mean: float
    deviation: float
    prior: float
    rows: Rows
    projected: FloatArray


class _Family:
    """The vectors over the nodes of one side of all questions that were kept."""

    def __init__(self, model: SideModel, each: int) -> None:
        self.model, self._each = model, each
        self._columns = Columns(len(model.sums))
        self._sums = np.zeros((0, each, 3))
        self.slopes = np.zeros((0, each))

    def working_bytes(self, places: int) -> int:
        return self._columns.working_bytes(places)

    def has_room(self, sides: tuple[Axis, ...]) -> bool:
        return all(self._columns.has_room(side) for side in sides)

    def add(self, vectors: _Vectors) -> None:
        for side in vectors.sides:
            self._columns.add(side)
        self._sums = np.concatenate([self._sums, vectors.sums[None]])
        self.slopes = np.concatenate([self.slopes, vectors.slopes[None]])

    def products(self, vectors: _Vectors) -> FloatArray:
        """Centred inner products under each weighting: of each vector with each one of every question kept."""
        found = np.stack([self._columns.products(side, self.model.weightings) for side in vectors.sides], axis=1)
        found = found.reshape(3, len(vectors.sides), len(self._sums), self._each)
        centred: FloatArray = found - np.einsum("kw,qjw->wkqj", vectors.sums, self._sums / self.model.totals)
        return centred


class CutPosterior:
    """All that was measured of cuts."""

    def __init__(self, expected: Expectation) -> None:
        self.expected, self._pairs = expected, expected.kind == "pairs"
        models = (expected.left,) if self._pairs else (expected.left, expected.right)
        self._families = [_Family(model, 3 if self._pairs else 1) for model in models]
        self._start = math.sqrt(len(expected.left.sums) * len(expected.right.sums))
        self.factor, self.shape_factor = self._start, 1.0 if expected.certain else 4.0
        self.kept = 0
        #: What was last asked for, and how often anything was learnt: the same is asked for again and again.
        self._last: tuple[CutQuestion, int, Known] | None = None
        self._version = 0
        self._moves = np.zeros(0)
        self._parts = np.zeros((3, 0, 0))
        #: The Cholesky factor of what was kept, in the corner of one with room for more.
        self._root = self._grown = np.zeros((0, 0))
        self._residuals, self._solved, self._variances = np.zeros(0), np.zeros(0), np.zeros(0)

    def working_bytes(self, places: int, *, refitted: bool) -> int:
        """Bytes that a question which weighs so many nodes takes for a while, and what is new of keeping it.

        ``refitted`` says whether factors are found anew after that.
        """
        n, room = self.kept, self._parts.shape[1]
        grown = 4 * 8 * min(max(_ROOM, 2 * room), MOST_KEPT) ** 2 if n == room else 0
        fit = 4 * 8 * n**2 if refitted else 0
        own = sum(family.working_bytes(places) for family in self._families)
        return own + grown + fit + 256 * (n + 1)

    # ------------------------------------------------------------------ covariances

    @staticmethod
    def _sides(question: CutQuestion) -> list[tuple[Axis, ...]]:
        """The sides of a question over the nodes of each family."""
        if question.both is None:
            return [(question.left,), (question.right,)]
        return [(question.left, question.right, question.both)]

    def _vectors(self, question: CutQuestion) -> list[_Vectors]:
        if question.both is None:
            s, t = self.expected.of_rows(question.left), self.expected.of_columns(question.right)
            slopes = [np.array([t]), np.array([s])]
        else:
            s, t, w = (self.expected.of_rows(side) for side in self._sides(question)[0])
            slopes = [np.array([t, s, -w])]
        return [
            _Vectors(sides, np.array([a.summed(f.model.weightings) for a in sides]), each)
            for f, sides, each in zip(self._families, self._sides(question), slopes, strict=True)
        ]

    def _moved(self, question: CutQuestion) -> float:
        """By how much a question's expectation moves with the total."""
        found = 0.0
        for c, a, b in question.terms:
            s, t = self.expected.of_rows(a), self.expected.of_columns(b)
            found += c * (t * a.total / a.length + s * b.total / b.length - s * t)
        return found

    def rows(self, question: CutQuestion) -> Rows:
        """The covariances of a question."""
        vectors = self._vectors(question)
        parts = np.zeros((3, self.kept + 1))
        held = [f.products(v) for f, v in zip(self._families, vectors, strict=True)]
        own = [v.own(f.model)[:, :, None, :] for f, v in zip(self._families, vectors, strict=True)]
        grams = [np.concatenate([a, b], axis=2) for a, b in zip(held, own, strict=True)]
        parts[0] = _of_pairs(grams[0][0]) if self._pairs else (grams[0][0] * grams[1][0])[0, :, 0]
        for gram, family, v in zip(grams, self._families, vectors, strict=True):
            slopes = np.concatenate([family.slopes, v.slopes[None]])
            parts[1:] += np.einsum("k,wkqj,qj->wq", v.slopes, gram[1:], slopes)
        moved = self._moved(question)
        parts[1] += self.expected.total_variance * moved * np.append(self._moves, moved)
        return Rows(parts, vectors, moved)

    # ------------------------------------------------------------------ what is known

    def known(self, question: CutQuestion) -> Known:
        """The posterior of a question."""
        if self._last is not None and self._last[:2] == (question, self._version):
            return self._last[2]
        rows, prior = self.rows(question), self.expected.value(question)
        covariance = rows.covariance(self.factor, self.shape_factor)
        own, projected = float(covariance[-1]), np.zeros(0)
        mean, variance = prior, own
        if self.kept:
            projected = solve_triangular(self._root, covariance[:-1], lower=True, check_finite=False)
            mean += float(projected @ self._solved)
            variance -= float(projected @ projected)
        known = Known(mean, math.sqrt(max(variance, _JITTER * own, _JITTER)), prior, rows, projected)
        self._last = question, self._version, known
        return known

    def likeness(self, rows: Rows) -> float | None:
        """How much a question is like those that were kept: the mean square of its correlations with them, by what
        cells differ by, in multiples of what random sets of nodes have by chance; None where there is too little to
        compare.
        """
        own = np.einsum("ii->i", self._parts[0, : self.kept, : self.kept])
        # Of a question about all nodes degrees tell all: it is like none.
        told = own > _JITTER * own.max(initial=0.0)
        if int(told.sum()) < _COMPARED or not rows.parts[0, -1] > _JITTER * float(own.max()):
            return None
        squares = rows.parts[0, :-1][told] ** 2 / (own[told] * rows.parts[0, -1])
        return self._dimensions * float(squares.mean())

    @lazy
    def _dimensions(self) -> float:
        """Of how many dimensions the differences of cells from what degrees let expect about are."""
        sides = [side.weights for side in (self.expected.left, self.expected.right)]
        left, right = (float(each.sum()) ** 2 / max(float(each @ each), 1e-300) for each in sides)
        return left * right / (2 if self._pairs else 1)

    @property
    def is_full(self) -> bool:
        """Whether no more measurements are kept."""
        return self.kept >= MOST_KEPT

    def has_room(self, question: CutQuestion) -> bool:
        """Whether one more measurement may be kept."""
        if self.is_full:
            return False
        return all(f.has_room(sides) for f, sides in zip(self._families, self._sides(question), strict=True))

    def learn(self, known: Known, value: float, variance: float) -> None:
        """Keep a measured value of a question, in cells, whose noise has a variance; ``known`` is of this moment."""
        n, covariance = self.kept, known.rows.covariance(self.factor, self.shape_factor)
        for family, vectors in zip(self._families, known.rows.vectors, strict=True):
            family.add(vectors)
        self._make_room()
        self._parts[:, n, : n + 1] = self._parts[:, : n + 1, n] = known.rows.parts
        rest = covariance[-1] * (1 + _JITTER) + variance - float(known.projected @ known.projected)
        pivot = math.sqrt(max(rest, _JITTER * covariance[-1] + variance))
        residual = value - known.prior
        self._grown[n, :n], self._grown[n, n] = known.projected, pivot
        self._root = self._grown[: n + 1, : n + 1]
        self._solved = np.append(self._solved, (residual - float(known.projected @ self._solved)) / pivot)
        self._residuals = np.append(self._residuals, residual)
        self._variances = np.append(self._variances, variance)
        self._moves = np.append(self._moves, known.rows.moved)
        self.kept += 1
        self._version += 1

    def refit(self) -> None:
        """Find the factors anew, and what follows from them."""
        n = min(self.kept, MOST_FITTED)
        parts, residuals, variances = self._parts[:, :n, :n], self._residuals[:n], self._variances[:n]
        best, found = -math.inf, (self.factor, self.shape_factor)
        for factor, shape in self._tried():
            try:
                root = _root_of(parts, factor, shape, variances)
            except LinAlgError:
                continue
            solved = solve_triangular(root, residuals, lower=True, check_finite=False)
            likelihood = -0.5 * float(solved @ solved) - float(np.log(np.diag(root)).sum())
            likelihood += self._expected_factors(factor, shape)
            if likelihood > best:
                best, found = likelihood, (factor, shape)
        self.factor, self.shape_factor = found
        self._rebuild()

    def fit_alone(self, parts: FloatArray, residuals: FloatArray, variances: FloatArray) -> None:
        """Find the factors from questions that were each measured well enough to tell by itself; nothing is kept.

        Args:
            parts: the three parts of the variance of each.
            residuals: what was measured beside what degrees let expect.
            variances: of the measurements.
        """
        tried = [
            (self._likelihood_alone(factor, shape, parts, residuals, variances), factor, shape)
            for factor, shape in self._tried()
        ]
        _, self.factor, self.shape_factor = max(tried)
        self._rebuild()

    def _likelihood_alone(
        self, factor: float, shape: float, parts: FloatArray, residuals: FloatArray, variances: FloatArray
    ) -> float:
        total = _combined(parts, factor, shape) + variances
        return self._expected_factors(factor, shape) - 0.5 * float((residuals**2 / total + np.log(total)).sum())

    def _expected_factors(self, factor: float, shape: float) -> float:
        """The logarithm of how likely factors are before anything is measured."""
        return -0.5 * (math.log(factor / self._start) / _SPREAD) ** 2 - 0.5 * (math.log(shape) / _SHAPE_SPREAD) ** 2

    def _tried(self) -> Iterator[tuple[float, float]]:
        for shape in (1.0,) if self.expected.certain else _SHAPE_FACTORS:
            for factor in _FACTORS:
                yield float(factor), float(shape)

    def _rebuild(self) -> None:
        self._version += 1
        n = self.kept
        if not n:
            return
        self._grown[:n, :n] = _root_of(self._parts[:, :n, :n], self.factor, self.shape_factor, self._variances)
        self._root = self._grown[:n, :n]
        self._solved = solve_triangular(self._root, self._residuals, lower=True, check_finite=False)

    def _make_room(self) -> None:
        """Room for one more measurement."""
        n, room = self.kept, self._parts.shape[1]
        if n < room:
            return
        wider = min(max(_ROOM, 2 * room), MOST_KEPT)
        parts, grown = np.zeros((3, wider, wider)), np.zeros((wider, wider))
        parts[:, :n, :n] = self._parts[:, :n, :n]
        grown[:n, :n] = self._root
        self._parts, self._grown, self._root = parts, grown, grown[:n, :n]


def _combined(parts: FloatArray, factor: float, shape_factor: float) -> FloatArray:
    """The three parts of a covariance together."""
    found: FloatArray = factor * parts[0] + parts[1] + shape_factor * parts[2]
    return found


def _root_of(parts: FloatArray, factor: float, shape_factor: float, variances: FloatArray) -> FloatArray:
    """The Cholesky factor of the covariance of measured values.

    Raises:
        LinAlgError: when it is none in floating point.
    """
    covariance = _combined(parts, factor, shape_factor)
    covariance[np.diag_indices(len(variances))] *= 1 + _JITTER
    covariance[np.diag_indices(len(variances))] += variances
    root: FloatArray = cholesky(covariance, lower=True, check_finite=False)
    return root


def _of_pairs(gram: FloatArray) -> FloatArray:
    """The products that one question shares with others on a symmetric matrix, from the inner products of their sides S
    and T and of both.

    Of two products ``a b'`` and ``c d'`` the symmetric cells share ``<a,c><b,d> + <a,d><b,c>``; a question is
    ``S T' - 1/2 W W'``.
    """
    (ss, st, sw), (ts, tt, tw), (ws, wt, ww) = (tuple(each.T) for each in gram)
    found: FloatArray = ss * tt + st * ts - sw * tw - ws * wt + 0.5 * ww * ww
    return found
