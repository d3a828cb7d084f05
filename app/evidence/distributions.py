"""How the records of a group are spread over the numbers of an attribute, from counts of ranges of these.

Each measurement divides the numbers into ranges, few or many, in its own way, and counts the records in each. All ends
of all ranges together divide the numbers into elementary ranges; what was measured are sums of these with independent
noise, so that generalised least squares tells the number of records below every end that it determines, and all their
covariances.

A quantile is where the number of records below passes its part of the total. Between two ends the records are taken to
be spread as the base says. An interval holds every range that the quantile may lie in: it begins where the number below
may have come up to the part, and ends where it must have passed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.evidence.measurements import Partition
from app.spaces.tensor import Array, FloatArray, IntArray

#: No more elementary ranges are told apart.
MOST_RANGES = 256
#: Directions of so small a part of what is measured best, in standard deviations, are not measured at all.
_UNKNOWN = 1e-11
#: What is known exactly counts as this part of the least variance.
_EXACT = 1e-6


@dataclass(frozen=True, eq=False)
class Ranges:
    """Counts of the ranges that a measurement divides the numbers into.

    Attributes:
        ends: the places behind the last number of each, ascending; the last one is the number of places.
        values: a row a group, a column a range.
        variances: of each.
    """

    ends: IntArray
    values: FloatArray
    variances: FloatArray

    def onto(self, ends: IntArray) -> Ranges | None:
        """The same over ranges that end at some of these places alone; None where that is a single one."""
        kept = np.flatnonzero(np.isin(self.ends, ends))
        if len(kept) < 2:
            return None
        begins = np.concatenate([[0], kept[:-1] + 1])
        return Ranges(
            self.ends[kept],
            np.add.reduceat(self.values, begins, axis=1),
            np.add.reduceat(self.variances, begins, axis=1),
        )


def ranges_of(partition: Partition, places: int) -> IntArray | None:
    """The ends of the ranges that a partition divides the first places into; None where its cells are no ranges."""
    labels = partition.labels[:places]
    changes = np.flatnonzero(np.diff(labels)) + 1
    if len(np.unique(labels)) != len(changes) + 1:
        return None
    return np.append(changes, places)


@dataclass(frozen=True, eq=False)
class Distribution:
    """The numbers of records below some places, of one group.

    Attributes:
        ends: the places, from 0 to the number of all.
        below: the numbers of records; the last is the total.
        covariance: of these.
    """

    ends: IntArray
    below: FloatArray
    covariance: FloatArray

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.below[-1])

    def errors(self, level: float) -> FloatArray:
        """Standard deviations of the numbers below less a part of the total."""
        last = self.covariance[-1, -1]
        squares = np.diag(self.covariance) - 2 * level * self.covariance[:, -1] + level**2 * last
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    def quantile(self, level: float, base: FloatArray) -> int:
        """The place of a quantile.

        Args:
            level: the part of the records that lie below.
            base: positive, how records are spread between two ends.
        """
        rising = np.maximum.accumulate(self.below)
        falling = np.minimum.accumulate(self.below[::-1])[::-1]
        below, goal = (rising + falling) / 2, level * self.total
        after = int(np.clip(np.searchsorted(below, goal), 1, len(below) - 1))
        first, stop = int(self.ends[after - 1]), int(self.ends[after])
        inside = below[after] - below[after - 1]
        part = (goal - below[after - 1]) / inside if inside > 0 else 0.5
        spread = np.cumsum(base[first:stop])
        return first + min(int(np.searchsorted(spread, part * spread[-1])), stop - first - 1)

    def interval(self, level: float, quantile: float) -> tuple[int, int]:
        """The first and the last place where a quantile may be, so many deviations to either side."""
        goal, reach = level * self.total, quantile * self.errors(level)
        may, must = self.below + reach >= goal, self.below - reach > goal
        may[-1] = must[-1] = True
        may[0] = must[0] = False
        return int(self.ends[int(may.argmax()) - 1]), int(self.ends[int(must.argmax())]) - 1


def distributions(measured: Sequence[Ranges], places: int, total: float | None, base: FloatArray) -> list[Distribution]:
    """What measurements tell of each group.

    Args:
        measured: all of the same groups.
        places: how many numbers there are.
        total: the number of records of a single group where that is known exactly.
        base: how records may be spread, by which ends are chosen where there are too many.
    """
    ends = np.unique(np.concatenate([m.ends for m in measured]))
    if len(ends) > MOST_RANGES:
        ends = _chosen(ends, base)
        measured = [m for m in (m.onto(ends) for m in measured) if m is not None]
    sums = [_sums(m.ends, ends) for m in measured]
    if total is not None:
        sums.append(np.ones((1, len(ends))))
    design = np.concatenate(sums)
    lower = np.tril(np.ones((len(ends), len(ends))))
    found = []
    for group in range(len(measured[0].values)):
        values = np.concatenate([m.values[group] for m in measured])
        variances = np.concatenate([m.variances[group] for m in measured])
        if total is not None:
            values = np.append(values, total)
            variances = np.append(variances, float(variances.min()) * _EXACT)
        found.append(_solved(design, values, variances, lower, ends))
    return found


def _chosen(ends: IntArray, base: FloatArray) -> IntArray:
    """Some of many ends, with about as many records between any two."""
    spread = np.cumsum(base)[ends - 1]
    wanted = np.linspace(0, spread[-1], MOST_RANGES + 1)[1:]
    return np.unique(np.append(ends[np.minimum(np.searchsorted(spread, wanted), len(ends) - 1)], ends[-1]))


def _sums(own: IntArray, ends: IntArray) -> FloatArray:
    """Which elementary ranges each of some ranges is made of."""
    place: Array = np.searchsorted(own, ends)
    return np.asarray(place[None, :] == np.arange(len(own))[:, None], dtype=np.float64)


def _solved(
    design: FloatArray, values: FloatArray, variances: FloatArray, lower: FloatArray, ends: IntArray
) -> Distribution:
    scales = np.sqrt(variances)
    # By singular values, which see a weak measurement beside what is known exactly: squared, they would not.
    scaled = design / scales[:, None]
    rows, strengths, directions = np.linalg.svd(scaled, full_matrices=len(design) < len(ends))
    known = np.zeros(len(directions), dtype=bool)
    known[: len(strengths)] = strengths > _UNKNOWN * strengths[0]
    steps = lower @ (directions[known].T / strengths[known[: len(strengths)]])
    # A number below is determined where none of what is unknown has a part in it.
    told = np.abs(lower @ directions[~known].T).max(axis=1, initial=0.0) < 1e-6
    told[-1] = True
    below = (steps @ (rows[:, : len(strengths)].T @ (values / scales))[known[: len(strengths)]])[told]
    covariance = steps[told] @ steps[told].T
    nothing = np.zeros((1, len(below)))
    return Distribution(
        ends=np.append(0, ends[told]),
        below=np.append(0.0, below),
        covariance=np.block([[np.zeros((1, 1)), nothing], [nothing.T, covariance]]),
    )
