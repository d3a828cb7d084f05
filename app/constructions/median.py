"""The median mechanism: all small databases that the answers so far allow, and the median of what they answer.

Source: GRU11 appendix A.1, algorithm 4 and theorem A.2 (after Roth and Roughgarden 2010).

**Exact.** The state is the set of all databases D of m records over the universe, as vectors of counts. A member
answers ``(n/m) f(D)``, the state the median of its members. An update drops the members on the wrong side of the
median, those at it too: at least half of them.

Why it works: for any k queries there is a D whose answers are all less than alpha off (draw m records of the data at
random; Hoeffding's bound and k failures of probability below 1/k). At an update the true answer lies more than alpha
beyond the median, so D lies strictly beyond it and stays. A set that is halved and never empty can be halved
``log2`` of its first size times. ``m = ceil(n^2 ln k/alpha^2)`` where weights lie in [0, 1],
``m = ceil(2 n^2 ln(2k)/alpha^2)`` where they lie in [-1, 1] (range 2 in Hoeffding's exponent, and k + k tails).

With ``step="projection"`` an update also drops every member that the measurement itself rules out: D is less than
alpha from the data, which lies in the certified half-space, so whatever is alpha or more outside it is not D. As
``T - L = alpha`` that is never less than the half.

**Sampled.** For larger universes the state is a sample of points of the simplex of mass n, cut by one half-space an
update: uniform at first, then hit-and-run inside what is left. It has no bound on its updates. Its random numbers are
no noise and protect nothing: they come from a generator seeded with the SHA-256 of the measurements so far, so that
the sample is a function of the transcript, and a replay draws the same one. Only additions, multiplications and
comparisons are made on them, in a fixed order, which machines agree on.

In both forms a padded mass gets a slack cell that no query touches.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from app.constructions import dense
from app.constructions.base import PARTS_BYTES, CellConstruction, MeasuredQuery, PublicFacts, Step, certified
from app.constructions.dumps import Dump
from app.spaces.errors import InvalidQuery
from app.spaces.query import LinearQuery
from app.spaces.space import Space
from app.spaces.tensor import Array, FloatArray, IntArray

#: Counts that the set of the exact form may have in all: members times cells.
MOST_COUNTS = 1 << 24
#: Records a member may have, so that its answers are exact in 64 bits.
MOST_RECORDS = 1 << 22
#: Bits that weights keep; finer ones occur over universes small enough that this is below half a unit of an answer.
WEIGHT_BITS = 40
#: Points of a sample.
POINTS = 256
#: Cells a sample may be taken over.
MOST_CELLS = 1 << 12
#: Moves of each point after an update, for each cell of the universe.
MOVES = 2
#: Most such moves of the points that a cut has left outside, on their way in.
APPROACH = 30


def cell_weights(space: Space, query: LinearQuery) -> tuple[IntArray, int]:
    """A query's weights over the universe (of an undirected graph the pairs i < j) as integers, and their bits."""
    weights = dense.integers(query)
    flat = weights[np.triu_indices(space.shape[0], 1)] if space.symmetric else weights.reshape(-1)
    excess = max(0, query.grid_bits - WEIGHT_BITS)
    # Shifted half up, as answers are.
    return (flat + ((1 << excess) >> 1)) >> excess, query.grid_bits - excess


def spread(space: Space, cells: FloatArray) -> FloatArray:
    """Counts over the universe as an array of the space's shape."""
    if not space.symmetric:
        return cells.reshape(space.shape)
    array = np.zeros(space.shape)
    array[np.triu_indices(space.shape[0], 1)] = cells
    return array + array.T


@dataclass(frozen=True)
class _MedianBase(CellConstruction):
    """The common part of both forms: mass, cells, and the class of queries they were promised."""

    space: Space
    facts: PublicFacts
    step: Step
    progress: float
    queries: int
    signed: bool = True

    @property
    def mass(self) -> float:
        """Mass of the simplex in counts, the slack cell included."""
        assert self.facts.mass is not None, "the mass is public or bought before the first round"
        return max(self.facts.mass, 1.0)

    @property
    def dimension(self) -> int:
        """Cells, the slack cell included."""
        return self.space.size + (1 if self.facts.padded else 0)

    def admit(self, query: LinearQuery) -> None:
        """Refuse a negative weight where none was promised.

        Raises:
            InvalidQuery: saying so.
        """
        if not self.signed and query.range[0] < 0:
            raise InvalidQuery("this session was opened for queries without negative weights")

    def step_size(self, progress: float) -> None:
        """There is none: a measurement cuts, however far off it is."""
        return


@dataclass
class DatabasesState:
    """The databases that are left: one row a cell, one column a database, each entry a count of records."""

    members: npt.NDArray[np.int32]


def compositions(total: int, parts: int) -> npt.NDArray[np.int32]:
    """All vectors of ``parts`` counts that add up to ``total``, as columns, in ascending order."""
    rows: list[npt.NDArray[np.int32]] = []
    left = np.array([total], dtype=np.int32)
    for _ in range(parts - 1):
        choices = left.astype(np.int64) + 1
        starts = np.repeat(np.cumsum(choices) - choices, choices)
        taken = (np.arange(int(choices.sum())) - starts).astype(np.int32)
        rows = [np.repeat(row, choices) for row in rows] + [taken]
        left = np.repeat(left, choices) - taken
    return np.array([*rows, left])


def _size(m: int, d: int) -> float:
    """log2 of the number of databases of m records over d cells."""
    if min(m, d - 1) <= 64:
        return math.log2(math.comb(m + d - 1, min(m, d - 1)))
    nats = math.lgamma(m + d) - math.lgamma(m + 1) - math.lgamma(d)
    return nats / math.log(2) * (1 + 1e-12)


class BelowGrid(ValueError):
    """A plan's progress is less than rounding moves."""


@dataclass(frozen=True)
class Median(_MedianBase):
    """The exact form, for universes of a few cells."""

    def records(self, progress: float) -> int:
        """m: records of a member. The progress is reduced by two units of the answer grid for what rounding adds.

        Raises:
            BelowGrid: when nothing is left of it.
        """
        alpha = progress - 2 * 2.0**-self.space.answer_bits
        if alpha <= 0:
            raise BelowGrid("no progress beyond rounding")
        ratio = (self.mass / alpha) ** 2
        factor = 2 * math.log(2 * self.queries) if self.signed else math.log(max(self.queries, 2))
        return math.ceil(ratio * factor)

    def size(self, progress: float) -> float:
        """log2 of the number of databases of m records: ``C(m + d - 1, d - 1)``."""
        return _size(self.records(progress), self.dimension)

    @property
    def infeasible(self) -> str | None:
        """Why the set cannot be kept: its size, or a mass that is not known."""
        if self.facts.mass is None:
            return (
                "the set of the median mechanism is sized by the number of records, and what a session bought might "
                "make one that does not fit: declare the number public, let a session of another mechanism buy it first"
            )
        try:
            m = self.records(self.progress)
        except BelowGrid:
            return "the noise is below the answer grid"
        if self._fits(m, self.dimension):
            return None
        return (
            f"the set of the median mechanism would have 2^{_size(m, self.dimension):.4g} databases of {m:,} records "
            f"over {self.dimension:,} cells, where databases times cells may be {MOST_COUNTS:,} and records "
            f"{MOST_RECORDS:,}; with so much noise it fits over at most {self.most_cells:,} cells"
        )

    @staticmethod
    def _fits(records: int, dimension: int) -> bool:
        return records <= MOST_RECORDS and _size(records, dimension) + math.log2(dimension) <= math.log2(MOST_COUNTS)

    @property
    def most_cells(self) -> int | None:
        """The most cells, the slack cell left out, over which the databases of this plan fit; None without a mass."""
        if self.facts.mass is None:
            return None
        try:
            m = self.records(self.progress)
        except BelowGrid:
            return None
        dimension = 0
        while self._fits(m, dimension + 1) and dimension < self.dimension:
            dimension += 1
        return max(0, dimension - (self.dimension - self.space.size))

    def nbytes(self, updates: int) -> int:
        """The first set, and what an answer takes beside it."""
        if self.infeasible is not None:
            return 0
        return round(2 ** self.size(self.progress)) * (4 * self.dimension + 32)

    def working_bytes(self, state: DatabasesState, query: LinearQuery) -> int:
        """A copy of the members that stay, and some numbers for each member."""
        return int(state.members.nbytes + 64 * state.members.shape[1]) + PARTS_BYTES

    def start(self) -> DatabasesState:
        """All databases of m records."""
        return DatabasesState(compositions(self.records(self.progress), self.dimension))

    def _totals(self, state: DatabasesState, query: LinearQuery) -> tuple[IntArray, int]:
        """f(D) of every member, exact in units of 2^-bits."""
        weights, bits = cell_weights(self.space, query)
        totals = np.zeros(state.members.shape[1], dtype=np.int64)
        for cell in np.flatnonzero(weights):
            totals += weights[cell] * state.members[cell]
        return totals, bits

    def _scale(self, bits: int) -> float:
        """Counts of a unit of a member's answer: ``(n/m) 2^-bits``."""
        return math.ldexp(self.mass / self.records(self.progress), -bits)

    def answer(self, state: DatabasesState, query: LinearQuery) -> float:
        """The median of the members' answers, in counts."""
        totals, bits = self._totals(state, query)
        return twice_median(totals) / 2 * self._scale(bits)

    def update(self, state: DatabasesState, measurement: MeasuredQuery) -> None:
        """Drop the members on the wrong side, in place.

        Where no member is on the right side, which the bound excludes while noises keep theirs, the set stays.
        """
        totals, bits = self._totals(state, measurement.query)
        middle, scale = twice_median(totals), self._scale(bits)
        present = middle / 2 * scale
        side = 1 if measurement.value > present else -1
        kept = side * (2 * totals - middle) > 0
        if self.step == "projection":
            edge = certified(measurement, present) - side * self.progress
            nearer = kept & (side * (totals - edge / scale) > 0)
            kept = nearer if nearer.any() else kept
        if kept.any():
            state.members = np.ascontiguousarray(state.members[:, kept])

    def dump(self, state: DatabasesState) -> Dump:
        """The members."""
        return Dump({"members": state.members})

    def load(self, dump: Dump) -> DatabasesState:
        """The state that :meth:`dump` wrote."""
        return DatabasesState(dump.arrays["members"])

    def bound(self, progress: float) -> float | None:
        """log2 of the first set's size (theorem A.2, for the set as multisets)."""
        if self.facts.mass is None:
            return None
        try:
            return self.size(progress)
        except BelowGrid:
            return None

    def dense(self, state: DatabasesState) -> FloatArray:
        """The mean of the members in counts, the slack cell left out. (Their medians are the answers, not its.)"""
        mean = state.members.mean(axis=1) * self._scale(0)
        return spread(self.space, mean[: self.space.size])


def twice_median(values: IntArray) -> int:
    """The sum of the two middle values: twice the median, and as such a whole number."""
    count = len(values)
    low, high = (count - 1) // 2, count // 2
    ordered = np.partition(values, (low, high))
    return int(ordered[low]) + int(ordered[high])


@dataclass(frozen=True, eq=False)
class Cut:
    """A half-space ``side * <weights, z> >= side * edge``; weights over all cells, the slack cell's 0."""

    weights: FloatArray
    side: int
    edge: float

    def slack(self, points: FloatArray) -> FloatArray:
        """How far inside each point is; negative outside."""
        return self.side * (inner(points, self.weights) - self.edge)


@dataclass
class SampleState:
    """Points of the simplex inside all cuts, one a row, and the digest of the measurements that made the cuts."""

    points: FloatArray
    cuts: list[Cut] = field(default_factory=list)
    seed: bytes = b""


def inner(points: FloatArray, weights: FloatArray) -> FloatArray:
    """<weights, z> of every row, summed in an order that does not depend on the machine's linear algebra."""
    result: FloatArray = (points * weights).sum(axis=1)
    return result


class _Uniform:
    """Uniform numbers in [0, 1) from a seed: 53 bits of a PCG64 stream, the same everywhere and for all time."""

    def __init__(self, seed: bytes) -> None:
        self._bits = np.random.PCG64(int.from_bytes(hashlib.sha256(seed).digest()))

    def draw(self, *shape: int) -> FloatArray:
        raw: npt.NDArray[np.uint64] = self._bits.random_raw(math.prod(shape))
        return np.ldexp((raw >> np.uint64(11)).astype(np.float64), -53).reshape(shape)


@dataclass(frozen=True)
class SampledMedian(_MedianBase):
    """The sampled form.

    With ``step="projection"`` a cut is the half-space that the measurement certifies, with ``step="paper"`` it goes
    through the median.
    """

    @property
    def infeasible(self) -> str | None:
        """Why no sample can be taken: too many cells."""
        if self.dimension <= MOST_CELLS:
            return None
        return f"a sample of the median mechanism is taken over at most {MOST_CELLS:,} cells, not {self.dimension:,}"

    def nbytes(self, updates: int) -> int:
        """Points and cuts."""
        return 8 * POINTS * (self.dimension + 2 * updates) + 8 * self.dimension * updates

    def working_bytes(self, state: SampleState, query: LinearQuery) -> int:
        """Copies of the points, and for each point and cut what a step works out."""
        cuts = len(state.cuts) + 1
        return 8 * (POINTS * (4 * self.dimension + 12 * cuts) + 4 * cuts * self.dimension) + PARTS_BYTES

    def start(self) -> SampleState:
        """Points drawn uniformly from the simplex: the gaps between sorted uniform numbers."""
        ends = _Uniform(b"start").draw(POINTS, self.dimension - 1)
        ends.sort(axis=1)
        edges = np.concatenate([np.zeros((POINTS, 1)), ends, np.ones((POINTS, 1))], axis=1)
        return SampleState(np.diff(edges, axis=1) * self.mass)

    def _weights(self, query: LinearQuery) -> FloatArray:
        integers, bits = cell_weights(self.space, query)
        weights = np.zeros(self.dimension)
        weights[: self.space.size] = np.ldexp(integers.astype(np.float64), -bits)
        return weights

    def answer(self, state: SampleState, query: LinearQuery) -> float:
        """The median of the points' answers, in counts."""
        return _median(inner(state.points, self._weights(query)))

    def update(self, state: SampleState, measurement: MeasuredQuery) -> None:
        """Cut, bring the points inside, and let each of them walk, in place."""
        query = measurement.query
        released = struct.pack("<d", measurement.value)
        state.seed = hashlib.sha256(state.seed + query.digest + released).digest()
        random = _Uniform(state.seed)
        weights = self._weights(query)
        answers = inner(state.points, weights)
        present = _median(answers)
        side = 1 if measurement.value > present else -1
        edges = [present]
        if self.step == "projection":
            edges = [certified(measurement, present), present]
        for edge in edges:
            cut = Cut(weights, side, edge)
            points = self._inside(state, cut, random)
            if points is not None:
                state.points, state.cuts = points, [*state.cuts, cut]
                self._walk(state, random)
                return

    def _inside(self, state: SampleState, cut: Cut, random: _Uniform) -> FloatArray | None:
        """The points after those outside one more cut have walked inside; None where none of them arrives."""
        points, cuts = state.points.copy(), [*state.cuts, cut]
        slacks = np.stack([c.slack(points) for c in cuts], axis=1)
        columns = np.stack([c.side * c.weights for c in cuts], axis=1)
        for _ in range(APPROACH * self.dimension):
            outside = np.flatnonzero(slacks[:, -1] < 0)
            if not len(outside):
                return points
            move(points, slacks, columns, outside, random)
        arrived = np.flatnonzero(slacks[:, -1] >= 0)
        if not len(arrived):
            return None
        lost = np.flatnonzero(slacks[:, -1] < 0)
        points[lost] = points[arrived[(random.draw(len(lost)) * len(arrived)).astype(np.int64)]]
        return points

    def _walk(self, state: SampleState, random: _Uniform) -> None:
        slacks = np.stack([c.slack(state.points) for c in state.cuts], axis=1)
        columns = np.stack([c.side * c.weights for c in state.cuts], axis=1)
        everyone = np.arange(POINTS)
        for _ in range(MOVES * self.dimension):
            move(state.points, slacks, columns, everyone, random)

    def dump(self, state: SampleState) -> Dump:
        """Points, cuts and the digest."""
        weights = np.array([cut.weights for cut in state.cuts]).reshape(-1, self.dimension)
        edges = np.array([(cut.side, cut.edge) for cut in state.cuts], dtype=np.float64).reshape(-1, 2)
        return Dump({"points": state.points, "weights": weights, "edges": edges}, {"seed": state.seed.hex()})

    def load(self, dump: Dump) -> SampleState:
        """The state that :meth:`dump` wrote."""
        rows = zip(dump.arrays["weights"], dump.arrays["edges"].tolist(), strict=True)
        cuts = [Cut(weights, int(side), edge) for weights, (side, edge) in rows]
        return SampleState(dump.arrays["points"], cuts, bytes.fromhex(dump.words["seed"]))

    def bound(self, progress: float) -> None:
        """None is known."""
        return

    def dense(self, state: SampleState) -> FloatArray:
        """The mean of the sample in counts, the slack cell left out. (Its medians are the answers, not its mean's.)"""
        mean = state.points.sum(axis=0) / POINTS
        return spread(self.space, mean[: self.space.size])


def move(points: FloatArray, slacks: FloatArray, columns: FloatArray, who: IntArray, random: _Uniform) -> None:
    """One step of hit-and-run for the points ``who``, in place: mass goes from one random cell to another.

    Along ``z + t (e_i - e_j)`` the amount t is uniform over what keeps the counts of both cells and all slacks from
    becoming negative. A slack that is negative already may only grow: so a point outside a cut comes nearer.

    Args:
        points: shape (points, cells).
        slacks: how far each point is inside each cut, shape (points, cuts); kept up to date.
        columns: by cell and cut, what a unit of mass in the cell adds to the slack.
        who: rows that move.
        random: where chance comes from.
    """
    cells = points.shape[1]
    if cells < 2:
        return
    chance = random.draw(3, len(who))
    i = (chance[0] * cells).astype(np.int64)
    j = (i + 1 + (chance[1] * (cells - 1)).astype(np.int64)) % cells
    slope = columns[i] - columns[j]
    room = np.maximum(slacks[who], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = room / np.abs(slope)
    low = -np.where(slope > 0, limit, np.inf).min(axis=1, initial=np.inf)
    high = np.where(slope < 0, limit, np.inf).min(axis=1, initial=np.inf)
    low = np.maximum(low, -points[who, i])
    high = np.minimum(high, points[who, j])
    amount = low + chance[2] * (high - low)
    points[who, i] = np.maximum(points[who, i] + amount, 0.0)
    points[who, j] = np.maximum(points[who, j] - amount, 0.0)
    slacks[who] += amount[:, None] * slope


def _median(values: Array) -> float:
    """The median of an even number of values: the mean of the two in the middle."""
    middle = len(values) // 2
    ordered = np.partition(values, (middle - 1, middle))
    return (float(ordered[middle - 1]) + float(ordered[middle])) / 2
