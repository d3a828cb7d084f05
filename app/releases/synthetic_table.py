"""Synthetic records: whole numbers of records in place of a table that was fitted, or in place of many local fits.

What is fitted is public, so all of this costs nothing; the generator's seed may be told with the records.

Records drawn independently from a fit would each marginal cell of expected count m miss by about the root of m, which
at usual budgets is more than the fit's own error. So nothing is drawn independently here:

- :func:`rounded` gives each cell of a dense table its fitted count rounded up or down. A systematic draw (Madow, "On
  the theory of systematic sampling II", 1949) starts; then records are moved between cells that were rounded up and
  cells that were rounded down where that brings the marginals nearer to those of the fit.
- :func:`from_marginals` makes records of a table of any width attribute by attribute. Each is given its values in
  proportion to the local fit of it together with a few earlier attributes that are most related to it, among the
  records that agree on these, again by systematic draws. Where a record would then have values that are declared not
  to occur together (which fits know of a few attributes at a time alone) it is given one of the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from app.patience import Progress
from app.spaces.tensor import FloatArray, IntArray
from app.spaces.zeros import NO_ZEROS, Zeros

#: Rounds of moves, and the part of the records that the first of them moves.
_ROUNDS, _MOVED = 200, 0.02
#: Marginals whose cells are off by so many records (root mean square) are near enough.
_NEAR = 0.5
#: Cells whose fraction is less than this are not rounded up by a move.
_LEAST_FRACTION = 0.02
#: Up to so many cells a local fit is asked for, and so many earlier attributes are taken into account.
_MOST_CELLS, _MOST_PARENTS = 2500, 2
#: No value has a smaller share among the records that agree on earlier attributes, unless nothing else is fitted.
_LEAST_SHARE = 1e-12
#: Records that are looked at together for what cannot be.
_CORRECTED = 1 << 14


def rounded(
    counts: FloatArray, records: int, rng: np.random.Generator, *, order: int = 3, progress: Progress | None = None
) -> IntArray:
    """Whole counts of the cells of a dense table, each its share of the records rounded up or down.

    Args:
        counts: not negative, one axis for each attribute; what they sum to does not matter, unless it is zero.
        records: what the result sums to.
        rng: decides what is rounded which way.
        order: the marginals of so many attributes are brought near to those of the shares.
        progress: told from time to time.

    Raises:
        ValueError: for counts that are negative or all zero, or a negative number of records.
    """
    if records < 0 or float(counts.min()) < 0 or not float(counts.sum()) > 0:
        raise ValueError("counts are not negative and not all zero, and records at least none")
    shares = counts * (records / counts.sum())
    whole = np.floor(shares)
    fractions = shares - whole
    up = _systematic(fractions.reshape(-1), records - int(whole.sum()), rng).reshape(counts.shape)
    moves = _Moves(fractions, order)
    now, part = moves.differences(up), _MOVED
    for number in range(_ROUNDS):
        trial = moves.moved(up, now, part, rng) if _mean_square(now) > _NEAR**2 else None
        if trial is None:
            break
        found = moves.differences(trial)
        if _mean_square(found) < _mean_square(now):
            up, now = trial, found
        else:
            part /= 2
            if part * records < 0.5:
                break
        if progress is not None and number % 10 == 0:
            progress(number / _ROUNDS)
    return np.asarray(whole + up).astype(np.int64)


def listed(counts: IntArray, rng: np.random.Generator) -> IntArray:
    """Whole counts of cells as records in random order: one row of codes each, a column for each attribute."""
    cells = np.flatnonzero(counts)
    rows = np.stack(np.unravel_index(np.repeat(cells, counts.reshape(-1)[cells]), counts.shape), axis=1)
    return np.asarray(rng.permutation(rows)).astype(np.int64)


class _Moves:
    """Which records to move so that marginals come nearer to those of the fractions.

    The error is the sum over the marginals of so many attributes of their squared differences. Its gradient at a cell
    is twice the sum of the differences of the marginal cells that the cell is counted in: a record leaves a cell where
    that is large for one where it is small.
    """

    def __init__(self, fractions: FloatArray, order: int) -> None:
        self._order = min(order, fractions.ndim)
        self._fractions = fractions
        self._open = fractions.reshape(-1) >= _LEAST_FRACTION

    def differences(self, up: FloatArray) -> list[FloatArray]:
        """By how much each marginal of the cells that were rounded up passes that of the fractions."""
        return list(_marginals(up - self._fractions, self._order, 0))

    def moved(
        self, up: FloatArray, differences: list[FloatArray], part: float, rng: np.random.Generator
    ) -> FloatArray | None:
        """The same with a part of the records moved; None where none can be."""
        gradient = np.zeros(up.shape)
        for difference in differences:
            gradient += difference
        slope, flat = gradient.reshape(-1), up.reshape(-1)
        taken, free = np.flatnonzero(flat > 0), np.flatnonzero((flat == 0) & self._open)
        # Half of the candidates at a time, so that rounds do not take the same ones again and again.
        taken, free = taken[rng.random(len(taken)) < 0.5], free[rng.random(len(free)) < 0.5]
        number = min(max(1, int(part * flat.sum())), len(taken), len(free))
        if not number:
            return None
        leave = taken[np.argpartition(-slope[taken], number - 1)[:number]]
        enter = free[np.argpartition(slope[free], number - 1)[:number]]
        trial = flat.copy()
        trial[leave], trial[enter] = 0.0, 1.0
        return trial.reshape(up.shape)


def _marginals(array: FloatArray, order: int, axis: int) -> Iterator[FloatArray]:
    """The sums of an array that keep so many of its axes from a given one on, summed axes having length one.

    Sums over one axis serve for all marginals that go on from there.
    """
    left = array.ndim - axis
    if order == 0:
        yield array.sum(axis=tuple(range(axis, array.ndim)), keepdims=True) if left else array
        return
    yield from _marginals(array, order - 1, axis + 1)
    if left > order:
        yield from _marginals(array.sum(axis=axis, keepdims=True), order, axis + 1)


def _mean_square(differences: list[FloatArray]) -> float:
    """Over all cells of all marginals, in records squared."""
    return sum(float(np.square(d).sum()) for d in differences) / sum(d.size for d in differences)


def _systematic(fractions: FloatArray, number: int, rng: np.random.Generator) -> FloatArray:
    """So many distinct cells, each with a probability that is its fraction (these sum to the number, or nearly so)."""
    total = float(fractions.sum())
    chosen = np.zeros(len(fractions))
    if number <= 0 or total <= 0:
        return chosen
    # Cells in the order of the array: runs of it, hence marginals on the first attributes, are met within one.
    ends = np.cumsum(fractions) * (number / total)
    hits = np.searchsorted(ends, np.arange(number) + rng.random(), side="left")
    chosen[np.minimum(hits, len(fractions) - 1)] = 1.0
    missing = number - int(chosen.sum())
    if missing:
        # Rounding has let two fall together: the largest fractions that are left.
        left = np.flatnonzero(chosen == 0)
        chosen[left[np.argsort(-fractions[left], kind="stable")[:missing]]] = 1.0
    return chosen


def from_marginals(
    fitted: Callable[[tuple[int, ...]], FloatArray],
    sizes: Sequence[int],
    records: int,
    rng: np.random.Generator,
    *,
    related: Sequence[tuple[int, int]] | None = None,
    zeros: Zeros = NO_ZEROS,
    progress: Progress | None = None,
) -> IntArray:
    """Records of a table of any width, one row of codes each.

    Args:
        fitted: the counts of the marginal on some of the attributes, which ascend.
        sizes: number of values of each attribute.
        records: how many.
        rng: decides what is rounded which way.
        related: the pairs of attributes whose relation is looked at; all if left out. Pairs that nothing was measured
            of together have none, and leaving them out saves time.
        zeros: what no record is.
        progress: told from time to time.

    Raises:
        ValueError: where nothing is known of the table's total, or for another table.
    """
    count = len(sizes)
    pairs = list(itertools.combinations(range(count), 2) if related is None else related)
    relation = np.zeros((count, count))
    for number, (one, other) in enumerate(pairs):
        if sizes[one] * sizes[other] <= _MOST_CELLS:
            relation[one, other] = relation[other, one] = _information(_ordered(fitted, (one, other)))
        if progress is not None and number % 50 == 0:
            progress(0.5 * number / len(pairs))
    rows = np.zeros((records, count), dtype=np.int64)
    done: list[int] = []
    # The attribute that has most to do with others comes first, then each that has most to do with one before it.
    attribute = int(relation.sum(axis=0).argmax())
    while True:
        parents = _parents(relation[attribute], done, sizes, sizes[attribute])
        table = _ordered(fitted, (*parents, attribute))
        rows[:, attribute] = _given(rows[:, list(parents)], table, rng)
        _correct(rows, attribute, table, parents, done, zeros, rng)
        done.append(attribute)
        if progress is not None:
            progress(0.5 + 0.5 * len(done) / count)
        if len(done) == count:
            return rows
        left = [a for a in range(count) if a not in done]
        attribute = left[int(relation[np.ix_(left, done)].max(axis=1).argmax())]


def _parents(relation: FloatArray, done: Sequence[int], sizes: Sequence[int], size: int) -> tuple[int, ...]:
    """The earlier attributes that an attribute's values are given by: the most related, as far as cells allow."""
    chosen: list[int] = []
    for other in sorted(done, key=lambda a: -relation[a]):
        fits = size * math.prod(sizes[a] for a in (*chosen, other)) <= _MOST_CELLS
        if relation[other] > 0 and fits and len(chosen) < _MOST_PARENTS:
            chosen.append(other)
    return tuple(chosen)


def _ordered(fitted: Callable[[tuple[int, ...]], FloatArray], attributes: Sequence[int]) -> FloatArray:
    """The counts of the marginal on attributes in any order, not negative."""
    order = sorted(attributes)
    counts = np.maximum(fitted(tuple(order)), 0.0)
    return np.asarray(counts.transpose([order.index(a) for a in attributes]))


def _information(counts: FloatArray) -> float:
    """The mutual information of two attributes by a table of their counts, in nats."""
    shares = counts / counts.sum()
    apart = shares.sum(axis=1, keepdims=True) * shares.sum(axis=0, keepdims=True)
    positive = shares > 0
    return max(0.0, float((shares[positive] * np.log(shares[positive] / apart[positive])).sum()))


def _given(earlier: IntArray, table: FloatArray, rng: np.random.Generator) -> IntArray:
    """Values of an attribute for records whose earlier attributes are known.

    The records are put in order of their group (those that agree on the earlier attributes), in random order within
    one. Value by value the wanted numbers of the groups are summed up; in each group the ends of these sums, with one
    random offset for all, tell how many records get each value: the number wanted, rounded up or down.

    Args:
        earlier: one row a record, a column for each axis of the table but the last.
        table: fitted counts, the last axis the attribute's values.
    """
    records, size = len(earlier), table.shape[-1]
    flat = table.reshape(-1, size)
    groups = np.zeros(records, dtype=np.int64)
    for column, cells in zip(earlier.T, table.shape[:-1], strict=True):
        groups = groups * cells + column
    sums = flat.sum(axis=1, keepdims=True)
    alone = flat.sum(axis=0) + _LEAST_SHARE
    shares = np.where(sums > _LEAST_SHARE, flat, alone)
    shares = shares / shares.sum(axis=1, keepdims=True)
    order = rng.permutation(records)
    order = order[np.argsort(groups[order], kind="stable")]
    ordered = groups[order]
    counts = np.bincount(ordered, minlength=len(flat))
    # The offset grows by the golden section from group to group: roundings of one value do not all go the same way.
    offsets = (rng.random() + np.arange(len(flat)) * 0.6180339887498949) % 1.0
    starts = np.cumsum(counts) - counts
    ends = starts[:, None] + np.cumsum(shares, axis=1) * counts[:, None]
    ends[:, -1] = starts + counts
    found = np.searchsorted(ends.reshape(-1), np.arange(records) + offsets[ordered], side="right")
    values = np.zeros(records, dtype=np.int64)
    values[order] = np.clip(found - ordered * size, 0, size - 1)
    return values


def _correct(
    rows: IntArray,
    attribute: int,
    table: FloatArray,
    parents: Sequence[int],
    known: Sequence[int],
    zeros: Zeros,
    rng: np.random.Generator,
) -> None:
    """Give records that cannot be another value of an attribute, in place, in proportion to its fit.

    Args:
        rows: a row for each record.
        attribute: the last one that values were given of; some value of it can be beside each record's others.
        table: fitted counts, the last axis the attribute's values.
        parents: the attributes of the other axes.
        known: all attributes that had values before.
        zeros: what no record is.
        rng: decides.
    """
    for start in range(0, len(rows), _CORRECTED):
        part = rows[start : start + _CORRECTED]
        choices = zeros.choices(part, attribute, known)
        if choices is None:
            return
        wrong = choices.wrong(part[:, attribute])
        if len(wrong):
            index = tuple(part[wrong][:, list(parents)].T)
            weights = np.broadcast_to(table[index], (len(wrong), table.shape[-1]))
            # Where the fit has nothing in its place any value is as good.
            weights = (weights + _LEAST_SHARE) * choices.of(wrong)
            ends = np.cumsum(weights, axis=1)
            found = (ends <= rng.random(len(wrong))[:, None] * ends[:, -1:]).sum(axis=1)
            part[wrong, attribute] = found
