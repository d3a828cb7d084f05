"""A space: the universe a data set's vector lives on, and the compiler of queries on it.

All figures here are public. ``capacity`` bounds the sum of absolute entries (enforced when data is registered);
every exactness argument rests on it:

- a query with ``r`` weighted axes keeps ``b`` bits an axis with ``capacity * 2^(data_bits + b*r) < 2^62``, so
  <f, x> and every partial sum of it is an exact 64-bit integer;
- answers are released on one grid ``2^-answer_bits`` with ``capacity * 2^answer_bits <= 2^46``, so that the
  float64 value of a hypothesis' answer is good to far less than a grid unit.

An exact value on a finer grid is rounded half up to the answer grid. That keeps the sensitivity where gamma is a
whole number of grid units: rounding maps two numbers at most that many units apart to two integers at most that
many units apart. Where gamma is none (a matrix on a grid finer than its answers'), it is rounded up to one.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, Self

import numpy as np
from scipy.sparse import csr_array

from app.spaces.errors import InvalidDataset, InvalidQuery
from app.spaces.queries import AnyQuery, Node
from app.spaces.queries import DenseQuery as DenseWords
from app.spaces.queries import SparseQuery as SparseWords
from app.spaces.query import Blobs, DenseQuery, PairQuery, ProductQuery, Query, SparseQuery, ZeroQuery
from app.spaces.tensor import Array, Axis, DenseTensor, FloatArray, IntArray, SparseTensor, chunks, index_set

#: Bits of the grid that weights and answers live on, where capacity leaves room for them.
DEFAULT_BITS = 20
#: Bits that the product of all weighted axes keeps at most: its weights stay exact in float64 and in JSON.
FACTOR_BITS = 53
#: Universes from here on are refused: positions must stay plain 64-bit integers with room to spare.
MAX_CELLS = 2**40
#: Products of weights, and of an error with a mass, may vanish in float64 where they are not zero; a bound must not.
UNDERFLOW = 2.0**-1000
#: Of a few such products and sums, each to the nearest number, and of one more with a mass: a bound stays above all.
ROUNDED_UP = 1 + 2.0**-40
#: One cell in this many may be non-zero for a query to be kept as a list of cells.
SPARSE_FACTOR = 8


def _check_weights(weights: FloatArray, low: float = -1.0) -> None:
    """Raise InvalidQuery unless all weights are finite and in [low, 1]."""
    if not weights.size:
        return
    smallest, largest = float(weights.min()), float(weights.max())
    # A NaN makes both comparisons false.
    if not (smallest >= low and largest <= 1.0):
        raise InvalidQuery(f"weights must be finite and lie in [{low:g}, 1]")


def bounding(error: float) -> float:
    """A bound on an error that was computed in float64, and on what multiplying it by a mass rounds away."""
    return error * ROUNDED_UP + UNDERFLOW


def rounding_error(largest: float, bits: int) -> float:
    """What rounding moved a weight by at most, from the largest such move in units of 2^-bits."""
    return bounding(largest * 2.0**-bits) if largest else 0.0


def _within(weights: Array, bits: int) -> bool:
    """Whether integer weights in units of 2^-bits lie in [-1, 1]. The least integer has no absolute value."""
    return bool(weights.min() >= -(1 << bits) and weights.max() <= 1 << bits)


def _block_of(weights: Array, count: int) -> list[IntArray] | None:
    """The index sets whose block is all that is not zero, which are ``count`` weights; None where it is no block."""
    if count == weights.size:
        return [np.arange(n) for n in weights.shape]
    mask, rank = weights != 0, weights.ndim
    # Around a block whole slabs are zero, one of them through the first zero: that is told in no time.
    hole = np.unravel_index(int(mask.argmin()), mask.shape)
    if all(mask[(slice(None),) * i + (hole[i],)].any() for i in range(rank)):
        return None
    supports = [np.flatnonzero(mask.any(axis=tuple(j for j in range(rank) if j != i))) for i in range(rank)]
    return supports if math.prod(map(len, supports)) == count else None


def _holds_booleans(weights: Sequence[Any]) -> bool:
    """Whether true or false stands among weights. NumPy takes them for 1 and 0 where there are numbers beside them."""
    kinds = set(map(type, weights))
    return bool in kinds or (list in kinds and any(_holds_booleans(part) for part in weights if type(part) is list))


def _vector(values: Sequence[float] | Array, length: int, what: str) -> FloatArray:
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (length,):
        raise InvalidQuery(f"{what}: {length} weights are needed, {vector.size} are given")
    return vector


def _members(asked: Literal["all"] | Sequence[Node], length: int, what: str) -> IntArray:
    """Sorted distinct positions along an axis without labels."""
    if asked == "all":
        return np.arange(length, dtype=np.int64)
    numbers = [v for v in asked if isinstance(v, int)]
    if len(numbers) < len(asked) or (numbers and not 0 <= min(numbers) <= max(numbers) < length):
        raise InvalidQuery(f"{what} are the integers 0..{length - 1}")
    return np.unique(np.array(numbers, dtype=np.int64))


@dataclass(frozen=True)
class Space(ABC):
    """Shape, neighbours and capacity of a data set's vector.

    ``unit`` is gamma in counts: the L1-distance of neighbouring data sets. Data are integers in units of
    ``2^-data_bits``. ``symmetric`` marks undirected graphs: arrays are symmetric with zero diagonal, the
    universe is the pairs i < j.
    """

    kind: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    capacity: int
    data_bits: int = 0
    unit: Fraction = Fraction(1)
    symmetric: bool = False

    @property
    def bounded(self) -> bool:
        """Whether the universe is finite, so that there are arrays of it; sizes mean something only then."""
        return True

    @property
    def signed(self) -> bool:
        """Whether entries may be negative, so that the data is no mass spread over cells."""
        return False

    @property
    def largest(self) -> Fraction | None:
        """Largest absolute entry that the data can have, in counts; None where only the mass bounds it."""
        return None

    @property
    def sensitivity(self) -> Fraction:
        """What neighbouring data can move an answer by, in counts: ``unit``, rounded up to the answer grid.

        Exact values on a finer grid are rounded to the answer grid, which moves two of them at most
        ``ceil(unit * 2^answer_bits)`` grid units apart.
        """
        return Fraction(math.ceil(self.unit * (1 << self.answer_bits)), 1 << self.answer_bits)

    @property
    def dense_bytes(self) -> int:
        """Bytes of one float64 array over the universe; 0 where there is none."""
        return 8 * self.cells if self.bounded else 0

    def norm2sq_bound(self, mass: float | None) -> float | None:
        """The best known upper bound on the sum of squared entries, in counts; ``mass`` bounds the sum of entries.

        With entries up to M it is at most ``M * mass`` and ``M^2 * size``, else at most ``mass^2``.
        """
        if self.largest is None:
            return None if mass is None else mass**2
        most = float(self.largest)
        every = most**2 * self.size
        return every if mass is None or self.signed else min(every, most * mass)

    @property
    def size(self) -> int:
        """Number of cells of the universe."""
        if self.symmetric:
            return self.shape[0] * (self.shape[0] - 1) // 2
        return math.prod(self.shape)

    @property
    def cells(self) -> int:
        """Number of entries of a dense array of the space's shape."""
        return math.prod(self.shape)

    @property
    def capacity_units(self) -> int:
        """Largest sum of absolute entries of a stored array, in data units."""
        return (self.capacity << self.data_bits) * (2 if self.symmetric else 1)

    @property
    def answer_bits(self) -> int:
        """Answers are whole multiples of 2^-answer_bits."""
        return max(0, min(DEFAULT_BITS, 46 - self.capacity.bit_length()))

    def axis_bits(self, weighted: int) -> int:
        """Bits each of ``weighted`` axes keeps, so that every sum is an exact 64-bit integer.

        Raises:
            InvalidQuery: when not even one bit an axis is left.
        """
        most = min(FACTOR_BITS, 61 - self.capacity_units.bit_length())
        bits = min(DEFAULT_BITS, most // max(weighted, 1))
        if bits < 1:
            raise InvalidQuery(
                f"{weighted} weighted axes leave no exact grid at this capacity: use 0/1 weights on some of them"
            )
        return bits

    @property
    def most_rounding(self) -> float:
        """The most that a query's :attr:`~app.spaces.query.Query.rounding` can be: every axis weighted, each weight
        half a unit off.

        An axis whose weights are rounded to 1 is no longer told in a compiled query, so this is not that query's own.
        """
        most = 0.0
        for weighted in range(1, max(len(self.shape), 1) + 1):
            try:
                bits = self.axis_bits(weighted)
            except InvalidQuery:
                break
            # Weights of pairs take each side twice and the product of both twice again, itself rounded up.
            units = 6.0 if self.symmetric and weighted == 2 else weighted / 2
            most = max(most, bounding(rounding_error(units, bits)))
        return most

    def with_capacity(self, capacity: int) -> Self:
        """The same space under another bound on its mass."""
        return replace(self, capacity=capacity)

    def tensor(self, array: Array | csr_array) -> DenseTensor | SparseTensor:
        """Private integers of this space, ready for exact contraction."""
        if isinstance(array, np.ndarray):
            return DenseTensor(array, wide=self.capacity_units << self.axis_bits(1) >= 2**53)
        return SparseTensor(array)

    def to_answer_grid(self, exact: int, query: Query) -> int:
        """An exact <f, x> in the query's own units, on the answer grid (rounded half up)."""
        shift = query.grid_bits + self.data_bits - self.answer_bits
        if shift <= 0:
            return exact << -shift
        return (exact + (1 << (shift - 1))) >> shift

    @abstractmethod
    def compile(self, words: AnyQuery) -> Query:
        """The query that ``words`` ask, as exact weights on this space.

        Raises:
            InvalidQuery: when they do not fit the space.
        """

    # ------------------------------------------------------------------ compilation shared by all spaces

    def _compile_common(self, words: AnyQuery) -> Query:
        if isinstance(words, SparseWords):
            return self._sparse(words)
        if isinstance(words, DenseWords):
            if _holds_booleans(words.weights):
                raise InvalidQuery("dense: weights must be numbers")
            try:
                weights = np.asarray(words.weights)
            except ValueError:
                raise InvalidQuery("dense: weights must be flat or nested as the shape") from None
            return self.compile_dense(weights)
        raise InvalidQuery(f"a {words.type} query does not fit a {self.kind} data set")

    def product(self, given: Mapping[int, IntArray | FloatArray]) -> Query:
        """A product query from, for each named axis, sorted indices (integers) or all weights (floats)."""
        members: dict[int, IntArray] = {}
        weighted: dict[int, FloatArray] = {}
        for i, values in given.items():
            if values.dtype.kind != "f":
                members[i] = values.astype(np.int64, copy=False)
                continue
            vector = values.astype(np.float64, copy=False)
            _check_weights(vector)
            zeros, ones = vector == 0, vector == 1
            if bool(np.all(zeros | ones)):
                members[i] = np.flatnonzero(ones)
            else:
                weighted[i] = vector
        if any(len(m) == 0 for m in members.values()):
            return ZeroQuery(self.shape)
        if not weighted:
            return ProductQuery(self._axes(members, {}, {}), 0.0, self.shape)
        # |prod w - prod w'| <= sum_i |w_i - w'_i| prod_{j != i} max(|w_j|, |w'_j|), the product taken factor by factor.
        errors: dict[int, float] = {}
        largest: dict[int, float] = {}
        while True:
            bits = self.axis_bits(len(weighted)) if weighted else 0
            integers = {}
            for i, vector in list(weighted.items()):
                scaled = np.ldexp(vector, bits)
                rounded = np.rint(scaled)
                errors[i] = rounding_error(float(np.abs(rounded - scaled).max()), bits)
                largest[i] = max(float(np.abs(vector).max()), float(np.abs(rounded).max()) * 2.0**-bits)
                integers[i] = rounded.astype(np.int64)
                if bool(np.all((rounded == 0) | (rounded == 1 << bits))):
                    # Now an index set: the other axes share its bits, as if it had been spelled as one.
                    members[i] = np.flatnonzero(rounded)
                    del weighted[i]
            if len(integers) == len(weighted):
                rounding = sum(e * math.prod(v for j, v in largest.items() if j != i) for i, e in errors.items())
                if any(errors.values()):
                    rounding = bounding(rounding)
                return self._from_axes(members, integers, bits, rounding)

    def _from_axes(
        self, members: dict[int, IntArray], weights: dict[int, IntArray], bits: int, rounding: float
    ) -> Query:
        """The canonical product query of index sets and integer weights on the grid 2^-bits."""
        return self._factored(members, weights, 1, bits * len(weights), rounding)

    def _factored(
        self, members: dict[int, IntArray], factors: dict[int, IntArray], scalar: int, bits: int, rounding: float
    ) -> Query:
        """The canonical product query that weighs ``scalar * 2^-bits`` times its integer factors on the index sets.

        Equal weights have one form. Factors are divided by what their weights have in common, the first of which
        becomes positive; those of 0 and 1 that are left are index sets. All that was divided out is written on the
        first factor that varies, on the first axis where none does, in lowest terms; on the others the largest
        weight lies in [1, 2).
        """
        if any(len(m) == 0 for m in members.values()) or not all(f.any() for f in factors.values()):
            return ZeroQuery(self.shape, rounding)
        varying: dict[int, IntArray] = {}
        for i, vector in sorted(factors.items()):
            divisor = int(np.gcd.reduce(vector)) * int(np.sign(vector[np.flatnonzero(vector)[0]]))
            scalar, primitive = scalar * divisor, vector // divisor
            if bool(np.all((primitive == 0) | (primitive == 1))):
                members[i] = np.flatnonzero(primitive)
            else:
                varying[i] = primitive
        common = min(bits, (scalar & -scalar).bit_length() - 1)
        scalar, bits = scalar >> common, bits - common
        grids = dict.fromkeys(varying, 0)
        if varying or scalar != 1 or bits:
            carrier = min(varying, default=0)
            if not varying:
                varying[0] = np.zeros(self.shape[0], dtype=np.int64)
                varying[0][members.pop(0, slice(None))] = 1
            grids = {i: int(np.abs(v).max()).bit_length() - 1 for i, v in varying.items() if i != carrier}
            varying[carrier] = varying[carrier] * scalar
            grids[carrier] = bits - sum(grids.values())
        return ProductQuery(self._axes(members, varying, grids), rounding, self.shape)

    def _axes(
        self, members: Mapping[int, IntArray], factors: Mapping[int, IntArray], grids: Mapping[int, int]
    ) -> tuple[Axis | None, ...]:
        """Axes of weights on their grids, of index sets, and None where every cell weighs one."""
        axes: list[Axis | None] = [None] * len(self.shape)
        for i, chosen in members.items():
            if len(chosen) < self.shape[i]:
                axes[i] = Axis(self.shape[i], index_set(self.shape[i], chosen))
        for i, vector in factors.items():
            axes[i] = Axis(self.shape[i], slice(0, self.shape[i]), vector, grids[i])
        return tuple(axes)

    def _sparse(self, words: SparseWords) -> Query:
        if len(words.indices) != len(words.weights):
            raise InvalidQuery("sparse: indices and weights must be of one length")
        weights = np.asarray(words.weights, dtype=np.float64)
        _check_weights(weights)
        if not len(weights):
            return ZeroQuery(self.shape)
        try:
            indices = np.asarray(words.indices, dtype=np.int64)
        except (ValueError, OverflowError):
            raise InvalidQuery("sparse: indices must be in range and of one form") from None
        if indices.ndim == 2:
            if indices.shape[1] != len(self.shape) or bool((indices < 0).any() | (indices >= self.shape).any()):
                raise InvalidQuery(f"sparse: per-axis indices must lie within the shape {list(self.shape)}")
            indices = np.ravel_multi_index(tuple(indices.T), self.shape).astype(np.int64)
        if bool((indices < 0).any() | (indices >= self.cells).any()):
            raise InvalidQuery(f"sparse: flat indices must lie in 0..{self.cells - 1}")
        if self.symmetric:
            rows, columns = np.divmod(indices, self.shape[1])
            if bool((rows == columns).any()):
                raise InvalidQuery("sparse: the diagonal is no part of an undirected graph")
            indices = np.minimum(rows, columns) * self.shape[1] + np.maximum(rows, columns)
        order = np.argsort(indices, kind="stable")
        indices, weights = indices[order], weights[order]
        if bool((np.diff(indices) == 0).any()):
            raise InvalidQuery("sparse: a cell is listed twice")
        bits = self.axis_bits(1)
        scaled = np.ldexp(weights, bits)
        rounded = np.rint(scaled)
        rounding = rounding_error(float(np.abs(rounded - scaled).max()), bits)
        return self._from_cells(indices, rounded.astype(np.int64), bits, rounding)

    def compile_dense(self, weights: Array) -> Query:
        """A query with a weight for every cell, flat (row-major) or of the space's shape.

        Raises:
            InvalidQuery: when the array is not numeric, of another size, or a weight is out of [-1, 1].
        """
        if weights.dtype.kind not in "fiu":
            raise InvalidQuery("dense: weights must be numbers")
        if weights.shape not in (self.shape, (self.cells,)):
            raise InvalidQuery(f"dense: {self.cells} weights in the shape {list(self.shape)} are needed")
        weights = weights.reshape(self.shape)
        _check_weights(weights)
        if self.symmetric and (bool(np.diagonal(weights).any()) or not np.array_equal(weights, weights.T)):
            raise InvalidQuery("dense: weights of an undirected graph must be symmetric with zero diagonal")
        if weights.dtype.itemsize > 8 and not np.array_equal(weights, weights.astype(np.float64)):
            raise InvalidQuery("dense: weights must be numbers of at most 64 bits")
        bits = self.axis_bits(1)
        integers, largest = np.empty(self.shape, dtype=np.int32), 0.0
        asked, kept = weights.reshape(-1), integers.reshape(-1)
        # Part by part: what is made on the way stays in caches, and takes no memory to speak of.
        for part in chunks(weights.size):
            scaled = np.ldexp(asked[part].astype(np.float64, copy=False), bits)
            rounded = np.rint(scaled)
            kept[part] = rounded
            scaled -= rounded
            largest = max(largest, float(scaled.max()), -float(scaled.min()))
        return self._from_dense(integers, bits, rounding_error(largest, bits))

    def _from_dense(self, weights: Array, bits: int, rounding: float) -> Query:
        count = int(np.count_nonzero(weights))
        entries = 2 * self.size if self.symmetric else self.size
        if self.symmetric and count and bool(np.all((weights == 0) | (weights == 1 << bits))):
            pair = self._cut_of(np.flatnonzero(np.triu(weights)), rounding)
            if pair is not None:
                return pair
        if count * SPARSE_FACTOR <= entries:
            upper = np.triu(weights) if self.symmetric else weights
            positions = np.flatnonzero(upper)
            return self._from_cells(positions, upper.reshape(-1)[positions].astype(np.int64), bits, rounding)
        if not self.symmetric:
            supports = _block_of(weights, count)
            if supports is not None:
                values = weights if count == self.cells else weights[np.ix_(*supports)]
                block = self._block(supports, values, bits, rounding)
                if block is not None:
                    return block
        return DenseQuery(weights, bits, rounding, self.symmetric)

    def _from_cells(self, positions: IntArray, weights: IntArray, bits: int, rounding: float) -> Query:
        """The canonical query of sorted distinct positions and their integer weights."""
        kept = weights != 0
        positions, weights = positions[kept], weights[kept]
        if not len(positions):
            return ZeroQuery(self.shape, rounding)
        if self.symmetric and bool(np.all(weights == 1 << bits)):
            pair = self._cut_of(positions, rounding)
            if pair is not None:
                return pair
        if not self.symmetric:
            supports = [np.unique(i) for i in np.unravel_index(positions, self.shape)]
            if math.prod(len(s) for s in supports) == len(positions):
                values = weights.reshape([len(s) for s in supports])
                block = self._block(supports, values, bits, rounding)
                if block is not None:
                    return block
        if len(positions) * SPARSE_FACTOR > self.size:
            dense = np.zeros(self.cells, dtype=np.int32)
            dense[positions] = weights
            dense = dense.reshape(self.shape)
            return DenseQuery(dense + dense.T if self.symmetric else dense, bits, rounding, self.symmetric)
        return SparseQuery(positions, weights, bits, rounding, self.shape, self.size, self.symmetric)

    def _block(self, supports: list[IntArray], values: Array, bits: int, rounding: float) -> Query | None:
        """The product query that a full block of cells spells, if it spells one."""
        first, last = int(values.reshape(-1)[0]), int(values.reshape(-1)[-1])
        corner, opposite, largest = 1, 1, 1
        primitives: list[IntArray] = []
        for i in range(values.ndim):
            profile = values[tuple(slice(None) if j == i else 0 for j in range(values.ndim))].astype(np.int64)
            primitive = profile // int(np.gcd.reduce(profile))
            corner, opposite = corner * int(primitive[0]), opposite * int(primitive[-1])
            largest *= int(np.abs(primitive).max())
            if largest > 1 << bits:
                return None
            primitives.append(primitive)
        # Most blocks that are no products are told by one more cell.
        if first % corner or last != first // corner * opposite:
            return None
        outer: Array = np.full((), first // corner, dtype=np.int64)
        factors: dict[int, IntArray] = {}
        for i, (support, primitive) in enumerate(zip(supports, primitives, strict=True)):
            factors[i] = np.zeros(self.shape[i], dtype=np.int64)
            factors[i][support] = primitive
            outer = outer[..., None] * primitive
        if not np.array_equal(values, outer):
            return None
        return self._factored({}, factors, first // corner, bits, rounding)

    def _cut_of(self, positions: IntArray, rounding: float) -> Query | None:
        """The cut of an undirected graph that weighs exactly the listed pairs 1, if there is one.

        Of a cut (S, T) the pairs left out among its nodes are those within S - T and those within T - S.
        """
        rows, columns = np.divmod(positions, self.shape[1])
        nodes, ends = np.unique(np.concatenate([rows, columns]), return_inverse=True)
        rows, columns = ends[: len(rows)], ends[len(rows) :]
        side = np.zeros(len(nodes), dtype=np.int8)  # 0: on both sides, 1: on the left alone, 2: on the right alone
        side[np.bincount(ends, minlength=len(nodes)) < len(nodes) - 1] = 2
        apart = np.flatnonzero(side)
        if len(apart):
            left = np.ones(len(nodes), dtype=bool)
            left[columns[rows == apart[0]]] = left[rows[columns == apart[0]]] = False
            side[left] = 1
        within = (side[rows] == side[columns]) & (side[rows] > 0)
        alone = [int(np.count_nonzero(side == s)) for s in (1, 2)]
        pairs = len(nodes) * (len(nodes) - 1) // 2 - sum(n * (n - 1) // 2 for n in alone)
        if bool(within.any()) or len(positions) != pairs:
            return None
        return self._pair(nodes[side != 2], nodes[side != 1], bits=0, rounding=rounding)

    # ------------------------------------------------------------------ canonical form, read back

    def from_canonical(self, form: Mapping[str, Any], blobs: Blobs) -> Query:
        """The query a canonical form stands for; ``blobs`` holds dense weights by SHA-256.

        The form is checked as any query is, and must be the canonical one of what it says.

        Raises:
            InvalidQuery: when it is not.
        """
        try:
            query = self._read_canonical(form, blobs)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise InvalidQuery(f"not a canonical query: {type(error).__name__}") from None
        if query.canonical != form:
            raise InvalidQuery("not the canonical form of what it says")
        return query

    def _read_axis(self, form: Mapping[str, Any], length: int, bits: int) -> tuple[IntArray | None, IntArray | None]:
        if "weights" in form:
            vector = np.array(form["weights"], dtype=np.int64)
            if vector.shape != (length,) or not _within(vector, bits) or (self.symmetric and vector.min() < 0):
                raise InvalidQuery("a canonical weight is out of range")
            return None, vector
        if "range" in form:
            start, stop = form["range"]
            if not 0 <= start < stop <= length:
                raise InvalidQuery("canonical indices are out of range")
            members = np.arange(start, stop)
        else:
            members = np.array(form["in"], dtype=np.int64)
        if len(members) and (members[0] < 0 or members[-1] >= length or bool((np.diff(members) <= 0).any())):
            raise InvalidQuery("canonical indices are out of range")
        return members.astype(np.int64), None

    def _read_canonical(self, form: Mapping[str, Any], blobs: Blobs) -> Query:
        bits = int(form.get("bits", 0))
        if not 0 <= bits <= DEFAULT_BITS:
            raise InvalidQuery("canonical bits are out of range")
        match form["type"]:
            case "zero":
                return ZeroQuery(self.shape)
            case "product" if not self.symmetric:
                members: dict[int, IntArray] = {}
                factors: dict[int, IntArray] = {}
                largest, bits = 1, 0
                if len(form["axes"]) > len(self.shape):
                    raise InvalidQuery("canonical axes are more than there are")
                for i, axis in form["axes"]:
                    index, vector = self._read_axis(axis, self.shape[i], FACTOR_BITS)
                    if index is not None:
                        members[i] = index
                    elif vector is not None:
                        factors[i] = vector
                        largest *= int(np.abs(vector).max())
                        bits += operator.index(axis["bits"])
                if bits > max(0, 61 - self.capacity_units.bit_length()) or largest > 1 << bits:
                    raise InvalidQuery("canonical weights are out of range")
                return self._factored(members, factors, 1, bits, 0.0)
            case "pair" if self.symmetric:
                if bits not in (0, self.axis_bits(2)):
                    raise InvalidQuery("canonical bits are not those of the capacity")
                sides = [self._read_axis(side, self.shape[0], bits) for side in form["sides"]]
                return self._pair(*[(i if i is not None else v) for i, v in sides], bits=bits, rounding=0.0)
            case "sparse":
                positions = np.array(form["indices"], dtype=np.int64)
                values = np.array(form["weights"], dtype=np.int64)
                if (
                    bits != self.axis_bits(1)
                    or positions.shape != values.shape
                    or bool((np.diff(positions) <= 0).any())
                    or positions[0] < 0
                    or positions[-1] >= self.cells
                    or not _within(values, bits)
                    or (self.symmetric and bool((positions // self.shape[1] >= positions % self.shape[1]).any()))
                ):
                    raise InvalidQuery("canonical cells are out of range")
                return self._from_cells(positions, values, bits, 0.0)
            case "dense":
                dense = np.frombuffer(blobs[form["sha256"]], dtype="<i4").reshape(self.shape)
                if bits != self.axis_bits(1) or not _within(dense, bits):
                    raise InvalidQuery("canonical weights are out of range")
                if self.symmetric and (bool(np.diagonal(dense).any()) or not np.array_equal(dense, dense.T)):
                    raise InvalidQuery("canonical weights are not symmetric with zero diagonal")
                return self._from_dense(dense, bits, 0.0)
        raise InvalidQuery("not a canonical query of this space")

    def _pair(self, left: Any, right: Any, *, bits: int, rounding: float) -> Query:
        """The undirected query of two sides: index arrays where ``bits`` is 0, else integer weights."""
        length = self.shape[0]
        if bits and all(bool(np.all((side == 0) | (side == 1 << bits))) for side in (left, right)):
            left, right, bits = np.flatnonzero(left), np.flatnonzero(right), 0
        if bits == 0:
            both = np.intersect1d(left, right, assume_unique=True)
            if not len(left) or not len(right) or (len(left) == len(right) == len(both) == 1):
                return ZeroQuery(self.shape, rounding)
            # A node alone on its side has no pair with itself to lose: it is always written on both.
            left_alone, right_alone = len(left) - len(both), len(right) - len(both)
            if left_alone == 1 or right_alone == 1:
                everyone = np.union1d(left, right)
                left, right = everyone if right_alone == 1 else left, everyone if left_alone == 1 else right
                both = np.intersect1d(left, right, assume_unique=True)
            sides = [Axis(length, index_set(length, side)) for side in (left, right, both)]
            return PairQuery.of(sides[0], sides[1], sides[2], rounding)
        # Rounded up, so that the weight u_i v_j + v_i u_j - w_i w_j never passes 1.
        both = -((-left * right) >> bits)
        touched = np.union1d(np.flatnonzero(left), np.flatnonzero(right))
        if not left.any() or not right.any() or len(touched) == 1:
            return ZeroQuery(self.shape, rounding)
        sides = [Axis(length, slice(0, length), side, bits) for side in (left, right, both)]
        return PairQuery.of(sides[0], sides[1], sides[2], rounding)


def check_cells(shape: tuple[int, ...]) -> None:
    """Refuse a universe too large to address.

    Raises:
        InvalidDataset: naming the size.
    """
    if math.prod(shape) > MAX_CELLS:
        raise InvalidDataset(
            f"the universe has {math.prod(shape):,} cells; at most {MAX_CELLS:,} can be addressed: declare fewer "
            "attributes or coarser bins",
            cells=math.prod(shape),
        )
