"""Pieces: what one part of a table's measurement tells: noisy counts of a marginal's cells, or combinations of them.

They are released once and public for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array

from app.measurements.noise import Noise
from app.measurements.record import Measurement
from app.measurements.rows import Rows
from app.measurements.strategies.tables import Draws, Moment, TableStrategy
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal
from app.spaces.tensor import FloatArray, IntArray

#: Of a measurement of more cells than this so many sums are remembered.
_MANY, _MOST_SUMS = 1 << 14, 256
#: Weights on directions that rows do not tell apart are rounding below this part of all.
_UNTOLD = 1e-7


@dataclass(frozen=True, eq=False)
class _OfMarginal:
    """Released values of a marginal.

    ``units`` are the released values in units of 2^-bits counts: not clipped, so that each is unbiased. What was
    counted may have been multiplied before noise was added: a ``multiplier`` divides values and noise alike.

    Raises:
        ValueError: when the values are not of the shape that they should have.
    """

    marginal: Marginal
    noise: Noise
    units: IntArray
    multiplier: int = 1

    def __post_init__(self) -> None:
        units = np.array(self.units, dtype=np.int64)
        if units.shape != self.shape:
            raise ValueError(f"values of shape {units.shape} are not of shape {self.shape}")
        units.setflags(write=False)
        object.__setattr__(self, "units", units)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the values: a value for each cell."""
        return self.marginal.shape

    @property
    def _divisor(self) -> int:
        """The divisor of values and noise."""
        return self.multiplier

    @property
    def variance(self) -> float:
        """Variance of each value, in counts squared."""
        return self.noise.variance / self._divisor**2

    @lazy
    def values(self) -> FloatArray:
        """The released values in counts."""
        values = np.ldexp(self.units.astype(np.float64), -self.noise.bits) / self._divisor
        values.setflags(write=False)
        return values


@dataclass(frozen=True, eq=False)
class Counts(_OfMarginal):
    """A marginal, the noise it was released with, and what was released; with it the quantiles that its ranges are cut
    around, where some were drawn."""

    draws: Draws | None = field(default=None, kw_only=True)

    @lazy
    def _sums(self) -> dict[frozenset[int], FloatArray]:
        """Sums over many cells that were asked for."""
        return {}

    def onto(self, attributes: frozenset[int]) -> FloatArray:
        """The values summed over all attributes but the given ones."""
        kept = self._sums.get(attributes)
        if kept is None:
            outside = tuple(k for k, a in enumerate(self.marginal.attributes) if a not in attributes)
            kept = self.values.sum(axis=outside)
            if self.marginal.cells > _MANY and len(self._sums) < _MOST_SUMS:
                self._sums[attributes] = kept
        return kept


@dataclass(frozen=True, eq=False)
class Contrast(_OfMarginal):
    """Contrasts of a marginal, the noise they were released with, and what was released.

    With N the number of cells, ``units`` are N times the contrasts, times a multiplier, with noise, which does not sum
    to zero along the axes. The variance is that of noise in every cell of which the contrasts' noise is the part that
    does; that of a cell of the contrasts is less by (n - 1)/n for each axis of n cells.

    Raises:
        ValueError: when the values are not of the marginal's shape, or it has no attribute.
    """

    def __post_init__(self) -> None:
        if not self.marginal.attributes:
            raise ValueError("contrasts are of a marginal of one attribute or more")
        super().__post_init__()

    @property
    def _divisor(self) -> int:
        return self.multiplier * self.marginal.cells

    @lazy
    def values(self) -> FloatArray:
        """The contrasts in counts, made to sum to zero along each axis."""
        values = np.ldexp(self.units.astype(np.float64), -self.noise.bits) / self._divisor
        for axis in range(values.ndim):
            values = values - values.mean(axis=axis, keepdims=True)
        values.setflags(write=False)
        return np.asarray(values)


@dataclass(frozen=True, eq=False)
class Combination(_OfMarginal):
    """Rows over the cells of a marginal, the noise they were released with, and what was released: their sums.

    Raises:
        ValueError: when the rows are over other cells, or there are other values than rows.
    """

    rows: Rows = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.rows.cells != self.marginal.cells:
            raise ValueError("rows have a weight for each cell of their marginal")
        super().__post_init__()

    @property
    def shape(self) -> tuple[int, ...]:
        """A value for each row."""
        return (self.rows.count,)

    def along(self, axis: int) -> tuple[IntArray, FloatArray] | None:
        """The matrix that rows are of along one axis, alike for each place along the others, and their values in the
        marginal's shape with a place for each row along this one; None where they are not alike."""
        shape = self.marginal.shape
        matrix = self.rows.alike(shape, axis)
        if matrix is None:
            return None
        return matrix, self.values.reshape((*shape[:axis], len(matrix), *shape[axis + 1 :]))

    @property
    def variance_per_cell(self) -> float:
        """The variance that counts of the cells would have that told as much of them in all (the trace of what is known
        of them divided by their number)."""
        return self.variance * self.rows.cells / float(np.square(self.rows.weights.astype(np.float64)).sum())

    @lazy
    def estimate(self) -> FloatArray:
        """Least squares estimates of the counts of all cells, flat: any of those that fit best, where not all can be
        told apart."""
        root, _ = self.rows.inverse
        return np.asarray(root @ (root.T @ (self.rows.matrix.T.astype(np.float64) @ self.values)))

    def weighed(self, weights: csr_array) -> tuple[FloatArray, FloatArray]:
        """Best linear unbiased values of sums of the cells and their variances, in counts; NaN where the rows do not
        determine them.

        With y the values of rows M of variance s^2 these are ``w (M'M)^-1 M'y`` and ``s^2 w (M'M)^-1 w'`` (Gauss and
        Markov).

        Args:
            weights: a row for each sum, a column for each cell of the marginal.
        """
        root, unseen = self.rows.inverse
        values = np.asarray(weights @ self.estimate)
        variances = self.variance * np.einsum("ij,ij->i", *[np.asarray(weights @ root)] * 2)
        if unseen is not None:
            lost = np.abs(np.asarray(weights @ unseen)).max(axis=1, initial=0.0)
            scale = np.sqrt(np.asarray(weights.multiply(weights).sum(axis=1)).reshape(-1))
            untold = lost > _UNTOLD * scale * float(np.abs(unseen).max(initial=0.0))
            values[untold] = variances[untold] = np.nan
        return values, variances

    def shares(self, weights: csr_array) -> FloatArray:
        """The weights of the rows' values in the estimate of an estimable sum, a row of weights on the cells."""
        root, _ = self.rows.inverse
        return np.asarray(self.rows.matrix.astype(np.float64) @ (root @ np.asarray(weights @ root).reshape(-1)))

    def onto(self, attributes: frozenset[int]) -> tuple[FloatArray, FloatArray]:
        """Estimates of the marginal summed over all attributes but the given ones, and their variances; NaN where the
        rows do not determine them."""
        outside = tuple(k for k, a in enumerate(self.marginal.attributes) if a not in attributes)
        kept = self.marginal.onto(attributes)
        places = np.expand_dims(np.arange(kept.cells).reshape(kept.shape), outside)
        rows = np.broadcast_to(places, self.marginal.shape).reshape(-1)
        cells = np.arange(self.marginal.cells)
        values, variances = self.weighed(
            csr_array((np.ones(len(cells)), (rows, cells)), shape=(kept.cells, len(cells)))
        )
        return values.reshape(kept.shape), variances.reshape(kept.shape)


#: What one part of a release tells.
Piece = Counts | Contrast | Combination


def pieces_of(measurement: Measurement[TableStrategy]) -> list[tuple[Moment | None, Piece]]:
    """Parts that were measured independently of one another: counts or combinations of them, or a moment."""
    found: list[tuple[Moment | None, Piece]] = []
    noise = measurement.added
    for part, own, draws in measurement.strategy.told(measurement.units):
        if part.rows is not None:
            found.append((None, Combination(part.marginal, noise, own, part.multiplier, rows=part.rows)))
        elif part.residual:
            found.append((None, Contrast(part.marginal, noise, own, part.multiplier)))
        else:
            found.append((part.moment, Counts(part.marginal, noise, own, part.multiplier, draws=draws)))
    return found


def counts_of(measurement: Measurement[TableStrategy]) -> Counts:
    """The counts that were all that was measured.

    Raises:
        ValueError: when there is more, or it is no count.
    """
    if measurement.strategy.plain is None:
        raise ValueError("not a measurement of counts alone")
    (counts,) = counts_in(measurement)
    return counts


def counts_in(measurement: Measurement[TableStrategy]) -> tuple[Counts, ...]:
    """The measured counts of one marginal or of several.

    Raises:
        ValueError: when there is anything but counts.
    """
    found = tuple(piece for moment, piece in pieces_of(measurement) if moment is None and isinstance(piece, Counts))
    if len(found) < len(measurement.strategy.parts):
        raise ValueError("not a measurement of counts alone")
    return found
