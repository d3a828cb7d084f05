"""The whole table that noisy marginals tell of: all cells, from what was measured and what tables are like.

What was measured arrives as residuals: for a set C of attributes the marginal on C made to sum to zero along each axis
(:mod:`app.estimation.tables.residuals`), with independent noise of variance 1/w_C a cell before it was centred. In
orthonormal bases of the attributes' axes, of which the first vector is constant, a table x of counts has one
coefficient for each choice of a basis vector an axis. Those that vary over C and over nothing else are what the
residual on C tells, each with an error of its own, of precision ``p = w_C * (product of the sizes outside C)``. So with
c(x) the coefficients, y the measured ones, the data say ``1/2 sum of p (c(x) - y)^2``, and passing between counts and
coefficients takes one small matrix an axis.

:func:`fit` looks for tables in the form of a log-linear model,

    x = total * b exp(U' theta) / sum of b exp(U' theta),

b being a base (the product of the one-way marginals) and U' theta the sum of the basis tables, each times its theta. It
takes the theta with the least

    1/2 sum of p (c(x) - y)^2  +  1/2 sum of theta^2 / tau_C^2,    tau_C^2 = kappa^2 * (product of the sizes outside C),

the mode of the posterior where theta is normal a priori (a log-linear model with random effects). A cell of the
marginal on C then departs from what fewer attributes say by a factor whose logarithm has standard deviation kappa, the
same for large cells and small: what is in proportion to the cell is taken for structure and what is in proportion to
the noise is not. kappa falls with the number of attributes: effects of many are rarer than those of few. Its values
were chosen on two surveys and then looked at on two other tables (``benchmarks/research/releases.py``).

:func:`projection` is the nearest table in the sense of the data alone (Nikolov, Talwar, Zhang, "The geometry of
differential privacy", STOC 2013): the least ``1/2 sum of p (c(x) - y)^2`` over all tables that are not negative and sum
to the total. It comes with a proof of how near it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import minimize

from app.estimation.pooling import Pooled
from app.estimation.tables.residuals import Residuals
from app.patience import Progress
from app.spaces.tensor import Array, FloatArray

#: A table of more cells is not held: its arrays take about a gibibyte together.
MOST_CELLS = 1 << 22
#: kappa for effects of one attribute and of two; each further attribute multiplies it by the decline.
_SINGLE, _PAIR, _DECLINE = 3.0, 0.5, 0.3
#: No value of an attribute counts less than this in the base, in records.
_LEAST_COUNT = 0.3
#: Exponents end so far below the largest one: less would be lost in the sum, and slow to compute.
_LOWEST = 60.0
#: Evaluations in a row with one preconditioner, and what one of these rows must gain of the objective to be followed by
#: another.
_ROW, _GAIN = 100, 5e-4
#: The search is given up after so many evaluations, most of what it gains being had far earlier.
_MOST_EVALUATIONS = 500
#: How many numbers the search remembers of its past, and of how many steps at most.
_MOST_REMEMBERED, _MOST_PAST = 1 << 25, 20
#: Evaluations of the search for a start.
_START = 60

#: After so many steps of a projection it is looked at how near it is.
_PROVEN = 20


@dataclass(frozen=True, eq=False)
class KnownResidual:
    """The known values of one residual.

    Attributes:
        attributes: C, ascending; none for the total.
        values: one axis for each attribute, in counts. What does not sum to zero along an axis is ignored.
        precision: w_C, one over the variance of each value before it was centred; positive.
    """

    attributes: tuple[int, ...]
    values: FloatArray
    precision: float

    def __post_init__(self) -> None:
        if list(self.attributes) != sorted(set(self.attributes)) or self.values.ndim != len(self.attributes):
            raise ValueError("a residual has one axis for each of its attributes, which ascend")
        if not 0 < self.precision < math.inf:
            raise ValueError("a precision is positive and finite")


def residuals_of(attributes: Sequence[int], values: FloatArray, variance: float) -> list[KnownResidual]:
    """The residuals of all sets of a measured marginal's attributes.

    Summing values over axes multiplies their variance by the cells that are merged; what comes from different sets is
    uncorrelated.

    Args:
        attributes: ascending.
        values: counts with independent noise, one axis for each attribute.
        variance: of the noise of each.
    """
    found = []
    for chosen in itertools.product((False, True), repeat=len(attributes)):
        part = values
        for axis, kept in enumerate(chosen):
            part = part - part.mean(axis=axis, keepdims=True) if kept else part.sum(axis=axis, keepdims=True)
        merged = math.prod(n for n, kept in zip(values.shape, chosen, strict=True) if not kept)
        axes = tuple(a for a, kept in zip(attributes, chosen, strict=True) if kept)
        shape = [n for n, kept in zip(values.shape, chosen, strict=True) if kept]
        found.append(KnownResidual(axes, part.reshape(shape), 1 / (variance * merged)))
    return found


def known_of(residuals: Residuals) -> list[KnownResidual]:
    """The residuals over single values from a table's measurements.

    What is known of coarser cells alone, or stays apart, is left out, as is a total that is exact.
    """
    return [KnownResidual(*told) for told in residuals.singly()]


def combined(known: Iterable[KnownResidual]) -> list[KnownResidual]:
    """Independent residuals of one set of attributes averaged by precision, for each set."""
    found: dict[tuple[int, ...], Pooled] = {}
    for residual in known:
        found.setdefault(residual.attributes, Pooled(np.zeros(()))).learn(residual.values, residual.precision)
    return [KnownResidual(attributes, each.values, each.precision) for attributes, each in found.items()]


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted table.

    Attributes:
        counts: one axis for each attribute, positive, in records; they sum to the total.
        discrepancy: the mean of ``p (c(x) - y)^2`` over all coefficients that were measured: about 1 for the true
            table, less where noise was fitted.
        evaluations: how many tables were looked at.
        converged: whether the search ended because it gained no more.
    """

    counts: FloatArray
    discrepancy: float
    evaluations: int
    converged: bool

    def marginal(self, attributes: Sequence[int]) -> FloatArray:
        """The counts summed over all other attributes, for ascending ones."""
        return np.asarray(self.counts.sum(axis=tuple(a for a in range(self.counts.ndim) if a not in attributes)))


@dataclass(frozen=True, eq=False)
class Projection:
    """The nearest table, or one that is nearly so.

    Attributes:
        counts: one axis for each attribute, not negative, in records.
        slack: by how much the counts sum to less than the bound; 0 where the total is exact.
        distance: half of the sum of ``p (c(x) - y)^2``.
        gap: the distance is at most this above the least there is.
        evaluations: how many tables were looked at.
        converged: whether the gap is as small as was asked for.
    """

    counts: FloatArray
    slack: float
    distance: float
    gap: float
    evaluations: int
    converged: bool


class _Coordinates:
    """Counts of a table's cells and their coefficients, in orthonormal bases of its axes.

    Args:
        shares: for each attribute the shares of its values, positive. Within the vectors that sum to zero the basis is
            that of the covariance of these shares, so that the coefficients of a table with independent attributes are
            uncorrelated: the search has less to untangle. Any basis gives the same problem.
    """

    def __init__(self, shares: Sequence[FloatArray]) -> None:
        self.sizes = tuple(len(share) for share in shares)
        self._bases = [_basis(share) for share in shares]
        self._squares = [basis * basis for basis in self._bases]

    def coefficients(self, counts: FloatArray) -> FloatArray:
        """The coefficients of counts, in the same shape."""
        return self._along(counts, [basis.T for basis in self._bases])

    def counts(self, coefficients: FloatArray) -> FloatArray:
        """The counts that have these coefficients."""
        return self._along(coefficients, self._bases)

    def curvatures(self, counts: FloatArray) -> FloatArray:
        """By how much each coefficient of x grows with its own theta: its variance over the cells, times the total."""
        means = self.coefficients(counts)
        spread = self._along(counts, [squares.T for squares in self._squares])
        return np.asarray(np.maximum(spread - means * means / counts.sum(), 0.0))

    def place(self, attributes: Sequence[int]) -> tuple[slice | int, ...]:
        """Where the coefficients are that vary over these attributes and over nothing else."""
        return tuple(slice(1, None) if a in attributes else 0 for a in range(len(self.sizes)))

    def outside(self, attributes: Sequence[int]) -> int:
        """The product of the sizes of all other attributes."""
        return math.prod(n for a, n in enumerate(self.sizes) if a not in attributes)

    def known(self, residuals: Iterable[KnownResidual]) -> tuple[FloatArray, FloatArray]:
        """The measured coefficients and their precisions, 0 where nothing was measured."""
        measured, precisions = np.zeros(self.sizes), np.zeros(self.sizes)
        for residual in residuals:
            values, outside = residual.values, self.outside(residual.attributes)
            for attribute in residual.attributes:
                # Each step takes the first axis and puts it last.
                values = np.tensordot(values, self._bases[attribute][1:], axes=(0, 1))
            measured[self.place(residual.attributes)] = values / math.sqrt(outside)
            precisions[self.place(residual.attributes)] = residual.precision * outside
        return measured, precisions

    def _along(self, array: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
        """An array with each axis multiplied by a matrix from the right."""
        for size, matrix in zip(self.sizes, matrices, strict=True):
            array = array.reshape(size, -1).T @ matrix
        return array.reshape(self.sizes)


def _basis(shares: FloatArray) -> FloatArray:
    """An orthonormal basis of an axis, one vector a row, the first one constant."""
    size = len(shares)
    start = np.linalg.qr(np.column_stack([np.ones(size), np.eye(size)[:, 1:]]))[0].T
    start[0] = size**-0.5
    within = start[1:]
    covariance = (within * shares) @ within.T - np.outer(within @ shares, within @ shares)
    start[1:] = np.linalg.eigh(covariance)[1].T @ within
    return np.ascontiguousarray(start)


def spread_of(order: int) -> float:
    """kappa: the standard deviation, a priori, of the logarithm by which the cells of a marginal on so many attributes
    depart from what fewer attributes say."""
    return _SINGLE if order == 1 else _PAIR * _DECLINE ** (order - 2)


def fit(
    sizes: Sequence[int],
    known: Iterable[KnownResidual],
    total: float,
    base: FloatArray | None = None,
    *,
    possible: Array | None = None,
    evaluations: int = _MOST_EVALUATIONS,
    progress: Progress | None = None,
) -> Fit:
    """The most plausible table (module docstring).

    Args:
        sizes: number of values of each attribute, at most 2^22 cells together.
        known: what was measured; of the total nothing is taken in, since it is given.
        total: number of records, positive: exact, or the best estimate.
        base: positive, in the shape of the table; the product of the one-way marginals if left out.
        possible: which cells can hold a record; all if left out.
        evaluations: how many tables are looked at, at most, after the start.
        progress: told from time to time.

    Raises:
        ValueError: for a table of too many cells, residuals of another table, or a total or base that is not positive.
    """
    residuals = [residual for residual in _checked(sizes, known, total) if residual.attributes]
    shares = _shares(sizes, residuals, total)
    if base is None:
        start = np.ones(())
        for share in shares:
            start = start[..., None] * share
    else:
        if base.shape != tuple(sizes) or not bool((base > 0).all()):
            raise ValueError("a base is positive, in the shape of the table")
        start = base
        shares = [start.sum(axis=tuple(b for b in range(start.ndim) if b != a)) for a in range(start.ndim)]
        shares = [share / share.sum() for share in shares]
    model = _Model(_Coordinates(shares), residuals, total, np.log(start / start.sum()), possible)
    return model.searched(model.paired(), evaluations, progress)


def _checked(sizes: Sequence[int], known: Iterable[KnownResidual], total: float) -> list[KnownResidual]:
    """The known residual of each set of attributes, once all of it was seen to be of this table."""
    if math.prod(sizes) > MOST_CELLS:
        raise ValueError(f"a table of {math.prod(sizes)} cells is not held: {MOST_CELLS} at most")
    if not 0 < total < math.inf:
        raise ValueError("a total is positive")
    residuals = list(known)
    for residual in residuals:
        named = residual.attributes
        if any(a >= len(sizes) for a in named) or residual.values.shape != tuple(sizes[a] for a in named):
            raise ValueError("attributes are not those of this table")
    return combined(residuals)


def _shares(sizes: Sequence[int], residuals: Iterable[KnownResidual], total: float) -> list[FloatArray]:
    """The shares of the values of each attribute as its own residual tells them, equal ones where nothing does."""
    shares = [np.full(n, 1 / n) for n in sizes]
    for residual in residuals:
        if len(residual.attributes) == 1:
            values = residual.values - residual.values.mean() + total / len(residual.values)
            counts = np.maximum(_nearest(values, total), _LEAST_COUNT)
            shares[residual.attributes[0]] = counts / counts.sum()
    return shares


def _nearest(values: FloatArray, total: float) -> FloatArray:
    """The nearest values that are not negative and have a given positive sum."""
    # What is subtracted from all rises until those that stay positive have the sum (Michelot, 1986).
    level, count = (float(values.sum()) - total) / values.size, values.size
    while True:
        among = values > level
        left = int(np.count_nonzero(among))
        # Fewer each time; but rounding may let one in again that lies at the level, and take it out, for ever.
        if left >= count:
            return np.asarray(np.maximum(values - level, 0.0))
        level, count = (float(values[among].sum()) - total) / left, left


class _Model:
    """A log-linear model over a base, and what was measured of it."""

    def __init__(
        self,
        coordinates: _Coordinates,
        residuals: Sequence[KnownResidual],
        total: float,
        logarithms: FloatArray,
        possible: Array | None,
    ) -> None:
        self._possible = possible
        self._coordinates, self._residuals, self._total, self._logarithms = coordinates, residuals, total, logarithms
        measured, precisions = coordinates.known(residuals)
        spreads, orders = np.zeros(coordinates.sizes), np.zeros(coordinates.sizes, dtype=np.int8)
        for residual in residuals:
            place, order = coordinates.place(residual.attributes), len(residual.attributes)
            spreads[place] = spread_of(order) ** 2 * coordinates.outside(residual.attributes)
            orders[place] = order
        self._active = np.flatnonzero(precisions)
        self._measured, self._precisions = measured.reshape(-1)[self._active], precisions.reshape(-1)[self._active]
        # 1/tau^2, one a theta.
        self._penalties = 1 / spreads.reshape(-1)[self._active]
        self._orders = orders.reshape(-1)[self._active]
        self._evaluations = 0

    def counts(self, theta: FloatArray) -> tuple[FloatArray, float]:
        """The table for theta, and the logarithm of what its cells were divided by."""
        self._evaluations += 1
        exponents = self._logarithms + self._coordinates.counts(self._full(theta))
        if self._possible is not None:
            exponents[~self._possible] = -np.inf
        largest = float(exponents.max())
        exponents -= largest
        np.maximum(exponents, -_LOWEST, out=exponents)
        counts = np.exp(exponents, out=exponents)
        if self._possible is not None:
            counts *= self._possible
        mass = float(counts.sum())
        counts *= self._total / mass
        return counts, largest + math.log(mass)

    def paired(self) -> FloatArray:
        """A start: the table nearest to the base, in relative entropy, with the measured marginals of at most two
        attributes, measured values counting in proportion to their precision.

        That is a convex problem, and one that finds at once the cells that hold nothing, to which the search would
        come in many small steps: ``total * ln Z(theta) - <theta, y> + 1/2 sum of ridge * theta^2``
        (:mod:`app.estimation.tables.dual`), the ridge being the variance over the typical deviation of a measured pair.
        """
        theta = np.zeros(len(self._active))
        pairs = [r.precision for r in self._residuals if len(r.attributes) == 2]
        chosen = np.flatnonzero(self._orders <= 2)
        if not pairs or not len(chosen):
            return theta
        ridge = math.exp(0.5 * float(np.mean(np.log(pairs)))) / self._precisions[chosen]
        measured = self._measured[chosen]
        scale = 1 / np.sqrt(self._curvatures(self.counts(theta)[0])[chosen] + ridge)

        def value(scaled: FloatArray) -> tuple[float, FloatArray]:
            theta[chosen] = scaled * scale
            counts, log = self.counts(theta)
            gradient = self._seen(counts)[chosen] - measured + ridge * theta[chosen]
            level = self._total * log + float(theta[chosen] @ (0.5 * ridge * theta[chosen] - measured))
            return level, gradient * scale

        found = self._minimum(value, np.zeros(len(chosen)), _START)
        theta[chosen] = found * scale
        return theta

    def searched(self, theta: FloatArray, evaluations: int, progress: Progress | None) -> Fit:
        """The fit that a search from theta ends at."""
        level, begun, converged = math.inf, self._evaluations, not len(theta)
        while self._evaluations - begun < evaluations and not converged:
            curvatures = self._curvatures(self.counts(theta)[0])
            scale = 1 / np.sqrt(self._penalties + self._precisions * curvatures**2)
            room = min(_ROW, evaluations - (self._evaluations - begun))
            found = self._minimum(partial(self._value, scale=scale), theta / scale, room)
            theta = found * scale
            before, level = level, self._value(found, scale)[0]
            converged = before - level <= _GAIN * level
            if progress is not None:
                progress(min(1.0, (self._evaluations - begun) / evaluations))
        counts = self.counts(theta)[0]
        misses = self._precisions * np.square(self._seen(counts) - self._measured)
        return Fit(counts, float(misses.mean()) if len(misses) else 0.0, self._evaluations, converged)

    def _value(self, scaled: FloatArray, scale: FloatArray) -> tuple[float, FloatArray]:
        """The objective and its gradient by theta / scale."""
        theta = scaled * scale
        counts = self.counts(theta)[0]
        seen = self._seen(counts)
        missed = seen - self._measured
        pulls = self._precisions * missed
        # The coefficients move with theta by the covariance of the basis tables under x.
        cells = self._coordinates.counts(self._full(pulls))
        cells *= counts
        gradient = self._seen(cells) - seen * (float(cells.sum()) / self._total) + self._penalties * theta
        return 0.5 * float(pulls @ missed + theta @ (self._penalties * theta)), gradient * scale

    def _seen(self, counts: FloatArray) -> FloatArray:
        """The coefficients that were measured, of these counts."""
        return self._coordinates.coefficients(counts).reshape(-1)[self._active]

    def _curvatures(self, counts: FloatArray) -> FloatArray:
        return self._coordinates.curvatures(counts).reshape(-1)[self._active]

    def _full(self, values: FloatArray) -> FloatArray:
        full = np.zeros(math.prod(self._coordinates.sizes))
        full[self._active] = values
        return full

    def _minimum(
        self, value: Callable[[FloatArray], tuple[float, FloatArray]], start: FloatArray, steps: int
    ) -> FloatArray:
        past = max(2, min(_MOST_PAST, _MOST_REMEMBERED // max(len(start), 1)))
        options = {"maxiter": steps, "maxfun": steps, "maxcor": past, "ftol": 1e-9, "gtol": 1e-6}
        return np.asarray(minimize(value, start, jac=True, method="L-BFGS-B", options=options).x)


def projection(
    sizes: Sequence[int],
    known: Iterable[KnownResidual],
    total: float,
    *,
    at_most: bool = False,
    possible: Array | None = None,
    tolerance: float = 1e-3,
    evaluations: int = 2000,
    progress: Progress | None = None,
) -> Projection:
    """The nearest table to what was measured that is not negative and sums to the total (module docstring).

    By accelerated projected gradients, begun anew whenever a step leads uphill (O'Donoghue, Candes, "Adaptive restart
    for accelerated gradient schemes", 2015). For counts x and gradient g no table of the total has a distance less than
    that of x by more than ``<g, x> - total * min g``: that is the gap.

    Args:
        sizes: number of values of each attribute, at most 2^22 cells together.
        known: what was measured; the residual of no attributes counts where the total is a bound.
        total: number of records, positive.
        at_most: whether the total is only a bound: then one more cell, which no marginal counts, holds the rest.
        possible: which cells can hold a record; all if left out.
        tolerance: the search ends where the gap is at most this part of half the number of measured coefficients, which
            is about what the distance of the true table is.
        evaluations: and after so many tables in any case.
        progress: told from time to time.

    Raises:
        ValueError: for a table of too many cells, residuals of another table, or a total that is not positive.
    """
    residuals = [residual for residual in _checked(sizes, known, total) if residual.attributes or at_most]
    shares = _shares(sizes, residuals, total)
    coordinates = _Coordinates(shares)
    measured, precisions = coordinates.known(residuals)
    steepest = float(precisions.max()) or 1.0
    enough = tolerance * 0.5 * max(1, int(np.count_nonzero(precisions)))
    cells = math.prod(sizes)
    # The last cell is the slack; where there is none it stays zero.
    free = np.append(np.ones(cells, bool) if possible is None else possible.reshape(-1), at_most)
    point = np.zeros(cells + 1)
    point[:cells][free[:cells]] = total / np.count_nonzero(free[:cells])

    def looked(point: FloatArray) -> tuple[float, FloatArray]:
        missed = coordinates.coefficients(point[:cells].reshape(coordinates.sizes)) - measured
        slope = np.zeros(cells + 1)
        slope[:cells] = coordinates.counts(precisions * missed).reshape(-1)
        return 0.5 * float((precisions * missed * missed).sum()), slope

    def onto(point: FloatArray) -> FloatArray:
        found = np.zeros(cells + 1)
        found[free] = _nearest(point[free], total)
        return found

    ahead, momentum, looks, steps = point, 1.0, 0, 0
    kept, least, gap = point, math.inf, math.inf
    while looks < evaluations:
        if steps % _PROVEN == 0:
            level, slope = looked(point)
            looks += 1
            lowest = float(slope[free].min())
            bound = float(slope @ point) - total * lowest
            if bound < gap:
                kept, least, gap = point, level, bound
            if gap <= enough:
                break
            if progress is not None:
                progress(looks / evaluations)
        slope = looked(ahead)[1]
        looks, steps = looks + 1, steps + 1
        after = onto(ahead - slope / steepest)
        if momentum > 1 and float(slope @ (after - point)) > 0:
            ahead, momentum = point, 1.0
            continue
        grown = (1 + math.sqrt(1 + 4 * momentum * momentum)) / 2
        ahead = after + (momentum - 1) / grown * (after - point)
        point, momentum = after, grown
    counts = kept[:cells].reshape(coordinates.sizes)
    return Projection(counts, float(kept[cells]), least, max(gap, 0.0), looks, gap <= enough)
