"""Synthetic graphs: weights whose cuts are near those of a private graph, of noisy values of all its pairs.

What is done here is post-processing: it costs no privacy beyond the noisy values, and beyond the noisy degrees where
there are any.

* ``spectral_graph`` removes noise: degrees make a base ``min(1, a_i c_j)``; of what the noisy values have beyond it
  those singular values are kept that rise above the noise, shrunk by what noise adds to them (Gavish, Donoho 2017);
  the result is brought within bounds without changing degrees. This controls ``|A(S, T)| / (|S||T|)^(1/2)``. Where
  sums between groups of nodes are known, too (:mod:`.noisy_blocks`), the base has a factor for each two groups, and
  the result keeps these sums as it keeps degrees.
* ``nearest_graph`` is that of Gupta, Roth, Ullman (2012, on randomised response): weights within bounds whose largest
  difference from the noisy values, over all cuts, is the least there is. It keeps all noise that looks like a graph, so
  its cuts err by up to twice the noise's cut norm; what removes noise errs less wherever noise outweighs structure.

Measured by `benchmarks/research/synthetic_graphs.py`: bounds imposed cell by cell are ruinous in a sparse graph (what
is cut off below zero adds up), and accurate degrees matter most: they take noise of a few edges a node, where sums of
noisy pairs have that of all pairs of the node. At epsilon 2 and 4 the largest error of ``spectral_graph`` with degrees
was 3 to 21% below that of the better of edges alone and degrees alone; at 1/2 and 1 it was from 11% below to 8% above
that of degrees alone, to which edges then add little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.sparse.linalg import eigsh, svds

from app.geometry.cut_norm import Bordered, CutNorm, SingleArray, cut_norm, random_signs, settle
from app.geometry.norms import FloatArray
from app.patience import Progress
from app.releases.noisy_blocks import NoisyBlocks

#: Sides up to which all singular values are computed at once.
SMALL = 1200
#: Singular values sought at first in larger matrices; four times as many as long as all are above the noise.
_FIRST = 48
#: Rounds of fitting that margins take at most, and the error of a degree, in edges, that ends them.
_FITS, _CLOSE = 40, 0.05
#: Signs that the search for the nearest graph keeps, the part of them turned over in each round, and moves of a round.
_KEPT, _TURNED, _MOVES = 32, 0.1, 3
#: In averages of cuts and of weights the newest of t rounds has the weight ``_NEWEST / (t + _NEWEST)``.
_NEWEST = 5
#: The unit roundoff of double precision.
_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, eq=False)
class NoisyEdges:
    """Unbiased values of all pairs of a graph, with independent noise.

    Attributes:
        values: one a pair (a row is a source or left node); symmetric if undirected. The diagonal is zero without
            loops.
        deviation: standard deviation of the noise of each, in edges.
        undirected: whether a pair and its reverse are one, with one noise.
        loops: whether the diagonal belongs to the graph.
    """

    values: FloatArray
    deviation: float
    undirected: bool = False
    loops: bool = True

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or not np.all(np.isfinite(self.values)):
            raise ValueError("values of pairs are a matrix of finite numbers")
        if not self.deviation > 0:
            raise ValueError("the noise has a positive standard deviation")
        if not self.loops and (self.values.shape[0] != self.values.shape[1] or np.any(self.values.diagonal() != 0)):
            raise ValueError("without loops the values are a square matrix with a zero diagonal")
        if self.undirected and (self.loops or not np.array_equal(self.values, self.values.T)):
            raise ValueError("values of an undirected graph are symmetric, without loops")


@dataclass(frozen=True, eq=False)
class NoisyDegrees:
    """Unbiased degrees of a graph with independent noise.

    Attributes:
        left: out-degrees, degrees of the left side, or degrees of an undirected graph.
        right: in-degrees or degrees of the right side; those of ``left`` again for an undirected graph.
        deviation: standard deviation of the noise of each, in edges.
    """

    left: FloatArray
    right: FloatArray
    deviation: float


@dataclass(frozen=True, eq=False)
class NearestGraph:
    """Weights near noisy values in cut norm.

    Attributes:
        weights: one a pair, within the bounds.
        distance: the cut norm of weights less values, from below and above.
        least: no weights within the bounds have a smaller distance than this.
    """

    weights: FloatArray
    distance: CutNorm
    least: float


def spectral_graph(
    edges: NoisyEdges, degrees: NoisyDegrees | None = None, blocks: Sequence[NoisyBlocks] = ()
) -> FloatArray:
    """Weights in [0, 1] that keep of the noisy values what is above the noise.

    Degrees are the averages, by precision, of those measured and of the sums of noisy values; they are shrunk towards
    their mean by the part of their variance that is noise. The base has these degrees (``capped_product``). To the base
    are added the singular vectors of ``values - base`` whose singular value y, in units of the noise's deviation times
    the root of the longer side, is above ``1 + beta^(1/2)``, beta the ratio of the sides, with
    ``((y^2 - beta - 1)^2 - 4 beta)^(1/2) / y`` for y: the best for the mean squared error (Gavish, Donoho 2017,
    equation 7). Then ``within_bounds``.

    Sums between groups are averaged by precision with those of the noisy values. They tell of the degrees of groups,
    and the base has them; what the values have beyond the base is nothing between two groups together, and the result
    has the degrees and the sums of the base.

    Args:
        edges: noisy values of all pairs.
        degrees: noisy degrees, measured apart, whose noise is independent of that of the pairs.
        blocks: noisy sums between groups of nodes, measured apart.
    """
    base = _base(edges, degrees, blocks)
    rest = edges.values - base
    for block in blocks:
        cells = block.cells(loops=edges.loops)
        mean = np.divide(block.sums(rest), cells, out=np.zeros_like(cells), where=block.known & (cells > 0))
        rest -= block.spread(mean)
    rows, columns = rest.shape
    unit = edges.deviation * math.sqrt(max(rows, columns))
    beta = min(rows, columns) / max(rows, columns)
    left, values, right = _above(rest, unit * (1 + math.sqrt(beta)), symmetric=edges.undirected)
    squares = (values / unit) ** 2
    shrunk = np.sqrt(np.maximum((squares - beta - 1) ** 2 - 4 * beta, 0)) / np.sqrt(squares) * unit
    weights = base + (left * shrunk) @ right
    if edges.undirected:
        weights = (weights + weights.T) / 2
    like = base if blocks else None
    return within_bounds(weights, undirected=edges.undirected, loops=edges.loops, like=like, blocks=blocks)


def degrees_share(epsilon: float) -> float:
    """The part of epsilon that is best spent on degrees where the rest is spent on edges: 0.6/epsilon, 0.3 to 0.9.

    What small budgets buy of edges is below the noise, what they buy of degrees is not. Found by trying on two graphs
    (`benchmarks/research/synthetic_graphs.py`), not derived.
    """
    return min(0.9, max(0.3, 0.6 / epsilon))


def degrees_graph(degrees: NoisyDegrees, *, undirected: bool = False, loops: bool = True) -> FloatArray:
    """Weights in [0, 1] of noisy degrees alone: the base of ``spectral_graph``."""
    left, right = _reconciled(degrees.left, degrees.deviation**2, degrees.right, degrees.deviation**2)
    return capped_product(left, right, undirected=undirected, loops=loops)


def capped_product(
    left: FloatArray,
    right: FloatArray,
    *,
    undirected: bool = False,
    loops: bool = True,
    blocks: Sequence[tuple[NoisyBlocks, FloatArray]] = (),
) -> FloatArray:
    """``min(1, a_i c_j)`` with these sums of rows and columns, by iterative proportional fitting.

    Sums that cannot be had (a degree above the number of other nodes) are approached.

    Args:
        left: sums of rows, at least 0.
        right: sums of columns, at least 0, of the same total.
        undirected: whether weights are symmetric.
        loops: whether the diagonal has weights.
        blocks: groups of nodes, and the sums between them of those that were measured, each at least 0: there is a
            factor more for each. What does not agree with sums of rows and columns is approached.
    """
    total = float(left.sum())
    if total <= 0:
        return np.zeros((len(left), len(right)))
    rows, columns = left / math.sqrt(total), right / math.sqrt(total)
    factors = [(block, np.ones_like(wanted)) for block, wanted in blocks]
    product = partial(_product, loops=loops, factors=factors)
    for _ in range(_FITS):
        for (block, wanted), (_, factor) in zip(blocks, factors, strict=True):
            factor *= np.where(block.known, _ratio(wanted, block.sums(product(rows, columns))), 1.0)
        weights = product(rows, columns)
        sums, across = weights.sum(axis=1), weights.sum(axis=0)
        if max(np.abs(sums - left).max(), np.abs(across - right).max()) <= _CLOSE:
            break
        if undirected:
            rows = columns = rows * np.sqrt(_ratio(left, sums))
            continue
        rows = rows * _ratio(left, sums)
        columns = columns * _ratio(right, product(rows, columns).sum(axis=0))
    return product(rows, columns)


def within_bounds(
    weights: FloatArray,
    *,
    undirected: bool = False,
    loops: bool = True,
    like: FloatArray | None = None,
    blocks: Sequence[NoisyBlocks] = (),
) -> FloatArray:
    """The nearest weights from 0 to 1, by squared distance, with the same sums of rows and columns.

    They are ``clip(weights + a_i + c_j, 0, 1)``; a and c are found by Newton steps on one side at a time. Clipping
    alone would add what it cuts off below zero to every cut of a sparse graph. Sums that cannot be had are approached.

    Args:
        weights: to be brought within bounds.
        undirected: whether they are symmetric.
        loops: whether the diagonal has weights.
        like: weights whose sums are to be kept, in place of these.
        blocks: groups of nodes; measured sums between them are kept, too, by a term more for each two groups.
    """
    if not loops:
        weights = weights.copy()
        np.fill_diagonal(weights, 0)
    like = weights if like is None else like
    left, right = like.sum(axis=1), like.sum(axis=0)
    kept = [block.sums(like) for block in blocks]
    rows, columns = np.zeros(len(left)), np.zeros(len(right))
    for _ in range(_FITS):
        for block, wanted in zip(blocks, kept, strict=True):
            moved, _, _ = _clipped(weights, rows, columns, loops, axis=1)
            held = block.sums(moved)
            free = block.sums(((moved > 0.0) & (moved < 1.0)).astype(np.float64))
            step = np.where(block.known, (wanted - held) / np.maximum(free, 1), 0.0)
            if np.abs(step).max() > 0:
                weights = weights + block.spread(step)
        moved, sums, free = _clipped(weights, rows, columns, loops, axis=1)
        if max(np.abs(left - sums).max(), np.abs(right - moved.sum(axis=0)).max()) <= _CLOSE:
            return moved
        step = (left - sums) / np.maximum(free, 1)
        if undirected:
            rows = columns = rows + step / 2
            continue
        rows = rows + step
        _, sums, free = _clipped(weights, rows, columns, loops, axis=0)
        columns = columns + (right - sums) / np.maximum(free, 1)
    return _clipped(weights, rows, columns, loops, axis=1)[0]


def nearest_graph(
    edges: NoisyEdges,
    *,
    rounds: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> NearestGraph:
    """Weights from 0 to 1 nearest to the noisy values in cut norm: ``min max_(S,T) |(x - z)(S, T)|``.

    A game: one side chooses weights, the other an average W of signed cuts. Each round looks for cuts by which the
    weights are off most (local search from cuts of the rounds before, some nodes turned over) and moves the weights
    against their average, with a step that reaches for a target between the best distance and the best bound (Polyak
    1969); they start from ``within_bounds``. For any W no weights are nearer than ``min_x <W, x - z>``, which is a
    minimum cell by cell. Of the best weights and their average those are taken that are nearer; ``cut_norm`` certifies
    their distance.

    Args:
        edges: noisy values of all pairs. Pairs of an undirected graph are cut as those of a symmetric matrix.
        rounds: each takes some products of the matrix with 32 columns.
        seed: of the search; the same for the same result.
        progress: told the part that is done, from 0 to 1.
    """
    rng = np.random.default_rng(seed)
    values, outside = edges.values, np.zeros_like(edges.values, dtype=np.bool_)
    if not edges.loops:
        np.fill_diagonal(outside, True)
    weights = within_bounds(values, undirected=edges.undirected, loops=edges.loops)
    signs = random_signs((values.shape[1] + 1, _KEPT), rng)
    average, mean = np.zeros_like(values), weights
    best, distance, least = weights, math.inf, 0.0
    for number in range(rounds):
        bordered = Bordered(weights - values)
        turned = np.where(rng.random(signs.shape, dtype=np.float32) < _TURNED, -signs, signs)
        rows, signs, found = settle(bordered, turned, _MOVES if number else 4 * _MOVES)
        if (off := float(found.max()) / 4) < distance:
            best, distance = weights, off
        cuts = _average(rows, signs, edges.undirected)
        cuts[outside] = 0
        newest = _NEWEST / (number + _NEWEST)
        average = (1 - newest) * average + newest * cuts
        least = max(least, _least(average, values, number + 1))
        mean = (1 - newest) * mean + newest * weights
        gained = float(np.vdot(cuts, weights - values))
        target = (min(distance, gained) + least) / 2
        weights = np.clip(weights - (gained - target) / float(np.vdot(cuts, cuts) or 1.0) * cuts, 0.0, 1.0)
        weights[outside] = 0
        if progress is not None:
            progress((number + 1) / rounds)
    _, _, found = settle(Bordered(mean - values), random_signs(signs.shape, rng), 8 * _MOVES)
    if float(found.max()) / 4 < distance:
        best = mean
    return NearestGraph(best, cut_norm(best - values, seed=seed), least)


def drawn_graph(weights: FloatArray, rng: np.random.Generator, *, undirected: bool = False) -> FloatArray:
    """A graph of edges 0 and 1: every pair is drawn by itself, an edge with the probability that is its weight.

    A cut of mass m then errs by at most ``m^(1/2)`` in standard deviation. What is drawn protects nothing.
    """
    edges = (rng.random(weights.shape) < weights).astype(np.float64)
    if undirected:
        edges = np.triu(edges, 1)
        edges += edges.T
    return edges


def _base(edges: NoisyEdges, degrees: NoisyDegrees | None, blocks: Sequence[NoisyBlocks]) -> FloatArray:
    """The weights that degrees let expect, and sums between groups where there are any."""
    left, left_variance, right, right_variance = _degrees(edges, degrees)
    left, right = _reconciled(left, left_variance, right, right_variance)
    product = partial(capped_product, undirected=edges.undirected, loops=edges.loops)
    if not blocks:
        return product(left, right)
    averaged = []
    for block in blocks:
        noise = edges.deviation**2 * block.cells(loops=edges.loops)
        if edges.undirected:
            # Within a group the noise of a pair counts twice.
            np.fill_diagonal(noise, 2 * noise.diagonal())
        averaged.append(block.beside(block.sums(edges.values), noise))
        left = averaged[-1].told(left, left_variance, axis=0)
        right = averaged[-1].told(right, right_variance, axis=1)
    total = float(left.sum() + right.sum()) / 2
    left, right = (side * (total / held) if (held := float(side.sum())) > 0 else side for side in (left, right))
    plain = product(left, right)
    return product(left, right, blocks=[(block, block.expected(block.sums(plain))) for block in averaged])


def _degrees(edges: NoisyEdges, degrees: NoisyDegrees | None) -> tuple[FloatArray, float, FloatArray, float]:
    """Sums of rows and their variance, and of columns, by the noisy values and by measured degrees together."""
    rows, columns = (size - (not edges.loops) for size in edges.values.shape)
    left, right = edges.values.sum(axis=1), edges.values.sum(axis=0)
    left_variance, right_variance = edges.deviation**2 * max(columns, 1), edges.deviation**2 * max(rows, 1)
    if degrees is not None:
        left, left_variance = _combined(left, left_variance, degrees.left, degrees.deviation**2)
        right, right_variance = _combined(right, right_variance, degrees.right, degrees.deviation**2)
    return left, left_variance, right, right_variance


def _combined(one: FloatArray, variance: float, other: FloatArray, other_variance: float) -> tuple[FloatArray, float]:
    """The average by precision of independent estimates, and its variance."""
    both = variance + other_variance
    return (one * other_variance + other * variance) / both, variance * other_variance / both


def _reconciled(
    left: FloatArray, left_variance: float, right: FloatArray, right_variance: float
) -> tuple[FloatArray, FloatArray]:
    """Degrees shrunk towards their mean, none negative, of one total: that of both sides, averaged by precision."""
    by_right = left_variance * len(left)
    by_left = right_variance * len(right)
    total = (float(left.sum()) * by_left + float(right.sum()) * by_right) / (by_left + by_right)
    total = max(total, 0.0)
    return _shrunk(left, left_variance, total), _shrunk(right, right_variance, total)


def _shrunk(degrees: FloatArray, variance: float, total: float) -> FloatArray:
    """Degrees shrunk linearly towards their mean (empirical Bayes), made non-negative, and scaled to a total."""
    mean = float(degrees.mean())
    signal = max(float(degrees.var()) - variance, 0.0)
    shrunk = np.maximum(mean + signal / (signal + variance) * (degrees - mean), 0)
    held = float(shrunk.sum())
    return shrunk * (total / held) if held > 0 else np.full(len(degrees), total / len(degrees))


def _product(
    rows: FloatArray, columns: FloatArray, *, loops: bool, factors: Sequence[tuple[NoisyBlocks, FloatArray]]
) -> FloatArray:
    weights: FloatArray = np.multiply.outer(rows, columns)
    for block, factor in factors:
        weights *= block.spread(factor)
    np.minimum(weights, 1, out=weights)
    if not loops:
        np.fill_diagonal(weights, 0)
    return weights


def _ratio(wanted: FloatArray, held: FloatArray) -> FloatArray:
    result: FloatArray = np.divide(wanted, held, out=np.ones_like(wanted), where=held > 0)
    return result


def _clipped(
    weights: FloatArray,
    rows: FloatArray,
    columns: FloatArray,
    loops: bool,
    axis: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``clip(weights + a_i + c_j, 0, 1)``, its sums along an axis, and how many entries are strictly within."""
    # Sums of a and c first: of an undirected graph the result is then symmetric to the last bit.
    moved = np.add.outer(rows, columns)
    moved += weights
    free = np.count_nonzero((moved > 0.0) & (moved < 1.0), axis=axis)
    np.clip(moved, 0.0, 1.0, out=moved)
    if not loops:
        np.fill_diagonal(moved, 0)
    return moved, moved.sum(axis=axis), free.astype(np.float64)


def _above(matrix: FloatArray, threshold: float, *, symmetric: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The singular values above a threshold, with their vectors: columns on the left, rows on the right."""
    size, count = min(matrix.shape), _FIRST
    while size > SMALL and count < size // 4:
        # From a fixed start, so that the same matrix gives the same vectors.
        start = np.random.default_rng(0).standard_normal(size)
        if symmetric:
            found, vectors = eigsh(matrix, k=count, which="LM", v0=start, tol=1e-4)
            left, values, right = vectors, np.abs(found), (vectors * np.sign(found)).T
        else:
            left, values, right = svds(matrix, k=count, v0=start, tol=1e-4)
        if values.min() < threshold:
            break
        count *= 4
    else:
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
    kept = values > threshold
    return left[:, kept], values[kept], right[kept]


def _average(rows: SingleArray, columns: SingleArray, undirected: bool) -> FloatArray:
    """The average of the signed cuts that pairs of signs of the bordered matrix stand for."""
    result: FloatArray = ((rows[:-1] - rows[-1]) @ (columns[:-1] - columns[-1]).T).astype(np.float64)
    result /= 4 * rows.shape[1]
    return (result + result.T) / 2 if undirected else result


def _least(cuts: FloatArray, values: FloatArray, rounds: int) -> float:
    """``min <W, x - z>`` over weights x within bounds, less what rounding may have added to it and to the average W."""
    terms = np.minimum(cuts * (0.0 - values), cuts * (1.0 - values))
    return float(terms.sum()) - 4 * (terms.size + rounds) * _ROUNDOFF * float(np.abs(terms).sum())
