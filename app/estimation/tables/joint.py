"""Several numbers of each of many groups that are known together, with the covariances of their noise.

Of each group a source tells some of the same few numbers, or none; sources are independent of one another. What they
tell together is the best linear unbiased estimate: generalised least squares, taken source by source (Kalman's update),
which needs no inverse of a covariance that has none. Where a number is known exactly, or follows from another, it does
so afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.spaces.tensor import Array, FloatArray, IntArray

#: Directions of a smaller part of the correlations of some numbers are what rounding left of zero.
_ROUNDING = 1e-11
#: Truths that are told apart at once, of fewer than 2^31 groups.
_BITS = 32


@dataclass(frozen=True, eq=False)
class Joint:
    """Numbers of groups and the covariances of their noise; NaN where a number is not known.

    Attributes:
        values: a row a group, a column a number.
        covariances: a matrix a group.
    """

    values: FloatArray
    covariances: FloatArray

    @classmethod
    def of_rows(cls, values: Sequence[FloatArray], covariances: Sequence[Sequence[FloatArray]]) -> Joint:
        """From arrays over all groups, one for each number and for each two of them."""
        flat = np.stack([np.reshape(v, -1) for v in values], axis=-1).astype(np.float64)
        rows = [np.stack([np.reshape(c, -1) for c in row], axis=-1) for row in covariances]
        joint = cls(flat, np.stack(rows, axis=-2).astype(np.float64))
        unknown = ~joint.known
        joint.values[unknown] = np.nan
        joint.covariances[unknown[:, :, None] | unknown[:, None, :]] = np.nan
        return joint

    @classmethod
    def of_one(cls, place: int, count: int, values: Array, variances: Array) -> Joint:
        """A single one of so many numbers."""
        single = np.full((np.size(values), count), np.nan)
        single[:, place] = np.reshape(values, -1)
        matrices = np.full((*single.shape, count), np.nan)
        matrices[:, place, place] = np.reshape(variances, -1)
        return cls(single, matrices)

    @property
    def variances(self) -> FloatArray:
        """Of each number of each group."""
        return np.asarray(np.diagonal(self.covariances, axis1=1, axis2=2))

    @property
    def known(self) -> Array:
        """Which numbers of which groups are known."""
        return ~np.isnan(self.variances)

    def some(self, places: Array) -> Joint:
        """Those groups alone."""
        return Joint(self.values[places], self.covariances[places])

    def mapped(self, onto: FloatArray) -> Joint:
        """Sums of the numbers of each group with the weights of each row."""
        return Joint(self.values @ onto.T, onto @ self.covariances @ onto.T)

    def placed(self, places: Sequence[int], count: int) -> Joint:
        """The same numbers in these places, of so many."""
        values = np.full((len(self.values), count), np.nan)
        covariances = np.full((*values.shape, count), np.nan)
        values[:, places] = self.values
        covariances[:, np.array(places)[:, None], places] = self.covariances
        return Joint(values, covariances)

    def weighed(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sums of the numbers of each group with weights, a row a group or one for all, and their variances."""
        rows = np.broadcast_to(weights, self.values.shape)
        variances = np.einsum("gi,gij,gj->g", rows, self.covariances, rows)
        return np.einsum("gi,gi->g", rows, self.values), np.maximum(variances, 0.0)


def pooled(sources: Sequence[Joint]) -> Joint:
    """The best linear unbiased values from independent sources, of the same numbers of the same groups."""
    if len(sources) == 1:
        return sources[0]
    groups, count = sources[0].values.shape
    values, covariances = np.full((groups, count), np.nan), np.full((groups, count, count), np.nan)
    which = np.stack([t.known for t in sources], axis=1).reshape(groups, -1)
    # Groups of which the same is known are taken together.
    firsts, members = _alike(which)
    for kind, known in enumerate(which[firsts].reshape(-1, len(sources), count)):
        places = np.flatnonzero(members == kind)
        held: list[int] = []
        state = Joint(np.zeros((len(places), count)), np.zeros((len(places), count, count)))
        for source, own in zip(sources, known, strict=True):
            if own.any():
                _take(state, held, source.some(places), np.flatnonzero(own).tolist())
        unheld = [k for k in range(count) if k not in held]
        state.values[:, unheld] = state.covariances[:, unheld] = state.covariances[:, :, unheld] = np.nan
        values[places], covariances[places] = state.values, state.covariances
    return Joint(values, covariances)


def _alike(rows: Array) -> tuple[IntArray, IntArray]:
    """The first of each kind of rows of truths, and the kind of each row."""
    codes = np.zeros(len(rows), np.int64)
    for start in range(0, rows.shape[1], _BITS):
        some = rows[:, start : start + _BITS]
        # Kinds of what came before, and the truths behind them as the bits of a number.
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1) << some.shape[1]
        codes |= some @ (1 << np.arange(some.shape[1])[::-1])
    _, firsts, members = np.unique(codes, return_index=True, return_inverse=True)
    return firsts, members.reshape(-1)


def sharpened(covariances: FloatArray, bought: FloatArray) -> FloatArray:
    """Covariances after each number was told once more.

    Args:
        covariances: before, NaN of what is not known.
        bought: for each number of each group the variance of what is told of it alone, positive; infinite where nothing
            is.
    """
    found = covariances.copy()
    for k in range(bought.shape[1]):
        before = found[:, :, k].copy()
        unknown = np.isnan(before[:, k])
        moved = np.nan_to_num(before) / np.where(unknown, np.inf, before[:, k] + bought[:, k])[:, None]
        # What is not known stays so: NaN less anything.
        found = found - moved[:, :, None] * np.nan_to_num(before)[:, None, :]
        new = unknown & np.isfinite(bought[:, k])
        if new.any():
            others = ~np.isnan(np.diagonal(found, axis1=1, axis2=2))
            found[new, :, k] = found[new, k, :] = np.where(others[new], 0.0, np.nan)
            found[new, k, k] = bought[new, k]
    return found


def _take(state: Joint, held: list[int], source: Joint, numbers: list[int]) -> None:
    """Take some numbers of a source into what is held."""
    old, new = [k for k in numbers if k in held], [k for k in numbers if k not in held]
    values, covariances = state.values, state.covariances
    own = source.covariances
    if old:
        inverse = _inverse(covariances[:, old][:, :, old] + own[:, old][:, :, old])
        gain = covariances[:, :, old] @ inverse
        values += np.einsum("gij,gj->gi", gain, source.values[:, old] - values[:, old])
        covariances -= gain @ covariances[:, old, :]
    if new:
        values[:, new] = source.values[:, new]
        within = own[:, new][:, :, new].copy()
        if old:
            # What the source says of new numbers goes with what it says of old ones, which is now known better.
            slopes = own[:, new][:, :, old] @ _inverse(own[:, old][:, :, old])
            values[:, new] += np.einsum("gij,gj->gi", slopes, values[:, old] - source.values[:, old])
            between = slopes @ covariances[:, old, :]
            within += slopes @ (covariances[:, old][:, :, old] @ slopes.mT - own[:, old][:, :, new])
            covariances[:, new, :] = between
            covariances[:, :, new] = between.mT
        rows = np.array(new)
        covariances[:, rows[:, None], rows] = within
    held += new


def _inverse(matrices: FloatArray) -> FloatArray:
    """Pseudo-inverses of covariances."""
    scales = np.sqrt(np.maximum(np.diagonal(matrices, axis1=1, axis2=2), 0.0))
    scales = np.where(scales > 0, 1 / np.where(scales > 0, scales, 1.0), 0.0)
    both = scales[:, :, None] * scales[:, None, :]
    levels, vectors = np.linalg.eigh(matrices * both)
    inverse = np.where(levels > _ROUNDING, 1 / np.maximum(levels, _ROUNDING), 0.0)
    return np.asarray((vectors * inverse[:, None, :]) @ vectors.mT * both)
