"""The canonical form of queries over a finite universe: one form for equal weights, and the way back from its JSON.

However weights are spelled, as a product, a list of cells or an array, equal ones become the same query here: a
product where they are one, else a cut of an undirected graph, else cells or an array by their number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import StrictStr

from app.spaces.errors import InvalidQuery
from app.spaces.queries.forms import Along, Combinations, Form, Integers, Whole, ascending, kind_of, said
from app.spaces.queries.linear import (
    MOST_LOCAL,
    CompiledDense,
    CompiledLocal,
    CompiledPair,
    CompiledProduct,
    CompiledSparse,
    CompiledZero,
)
from app.spaces.query import Blobs, Query
from app.spaces.space import FACTOR_BITS, MAX_CELLS, Space
from app.spaces.table import TableSpace
from app.spaces.tensor import Array, Axis, IntArray, Members, count_of, index_set, listed_members

#: One cell in this many may be non-zero for a query to be kept as a list of cells.
SPARSE_FACTOR = 8
#: One weight of all cells alike is written out along an axis of so many values, or at most of so many.
SHORT, MOST_WRITTEN = 1 << 16, 1 << 22


def within(weights: Array, bits: int) -> bool:
    """Whether integer weights in units of 2^-bits lie in [-1, 1]. The least integer has no absolute value."""
    return bool(weights.min() >= -(1 << bits) and weights.max() <= 1 << bits)


def settled(space: Space, query: Query) -> Query:
    """A query, which structural zeros may answer: it is 0 whatever the records where nothing that it weighs can be.

    It keeps its form: what was asked stays told. Weights on single cells of large tables are not looked at.
    """
    if not isinstance(space, TableSpace) or not space.zeros or query.is_zero:
        return query
    if isinstance(query, CompiledSparse | CompiledDense) and space.cells > MOST_LOCAL:
        return query
    try:
        impossible = space.zeros.impossible(query.question)
    except InvalidQuery:
        # It tells too many cells apart, and is refused where it is answered.
        return query
    if impossible is not None and bool(query.selected(impossible).all()):
        object.__setattr__(query, "is_zero", True)
    return query


def product_query(
    space: Space,
    members: Mapping[int, Members],
    factors: Mapping[int, IntArray],
    scalar: int,
    bits: int,
    rounding: float,
) -> Query:
    """The canonical product query that weighs ``scalar * 2^-bits`` times its integer factors on the index sets.

    Equal weights have one form. Each factor is divided by the greatest common divisor of its weights, with the sign of
    the first; one that then holds 0 and 1 alone is an index set. The product of all divisors is written, in lowest
    terms, on the first factor that varies (on the first axis where none does). On the other factors the largest weight
    lies in [1, 2).
    """
    members = dict(members)
    if not all(map(count_of, members.values())) or not all(f.any() for f in factors.values()):
        return CompiledZero(space.shape, rounding)
    if not factors and scalar == 1 and bits == 0:
        return settled(space, CompiledProduct(_axes(space, members, {}, {}), rounding, space.shape, space.loops))
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
        carrier = min(varying, default=None)
        if carrier is None:
            carrier = carrier_of(space)
            varying[carrier] = np.zeros(space.shape[carrier], dtype=np.int64)
            varying[carrier][members.pop(carrier, slice(None))] = 1
        grids = {i: int(np.abs(v).max()).bit_length() - 1 for i, v in varying.items() if i != carrier}
        varying[carrier] = varying[carrier] * scalar
        grids[carrier] = bits - sum(grids.values())
    return settled(space, CompiledProduct(_axes(space, members, varying, grids), rounding, space.shape, space.loops))


def carrier_of(space: Space) -> int:
    """The axis on which one weight of all cells alike is written: the first that is short, or else not too long.

    Raises:
        InvalidQuery: when there is none.
    """
    for most in (SHORT, MOST_WRITTEN):
        for axis, length in enumerate(space.shape):
            if length <= most:
                return axis
    raise InvalidQuery(
        f"one weight for all cells alike is written on an axis of at most {MOST_WRITTEN:,} values, and there is none: "
        "ask with weights of 0 and 1, and multiply the answer"
    )


def _axes(
    space: Space, members: Mapping[int, Members], factors: Mapping[int, IntArray], grids: Mapping[int, int]
) -> tuple[Axis | None, ...]:
    """Axes of weights on their grids, of index sets, and None where every cell weighs one."""
    axes: list[Axis | None] = [None] * len(space.shape)
    for i, chosen in members.items():
        if count_of(chosen) < space.shape[i]:
            axes[i] = Axis(space.shape[i], index_set(space.shape[i], chosen))
    for i, vector in factors.items():
        axes[i] = Axis(space.shape[i], slice(0, space.shape[i]), vector, grids[i])
    return tuple(axes)


def pair_query(space: Space, left: Any, right: Any, *, bits: int, rounding: float) -> Query:
    """The undirected query of two sides: index arrays where ``bits`` is 0, else integer weights."""
    length = space.shape[0]
    left, right = (listed_members(side) for side in (left, right))
    if bits and all(bool(np.all((side == 0) | (side == 1 << bits))) for side in (left, right)):
        left, right, bits = np.flatnonzero(left), np.flatnonzero(right), 0
    if bits == 0:
        both = np.intersect1d(left, right, assume_unique=True)
        if not len(left) or not len(right) or (len(left) == len(right) == len(both) == 1):
            return CompiledZero(space.shape, rounding)
        # A node alone on its side has no pair with itself to lose: it is always written on both.
        left_alone, right_alone = len(left) - len(both), len(right) - len(both)
        if left_alone == 1 or right_alone == 1:
            everyone = np.union1d(left, right)
            left, right = everyone if right_alone == 1 else left, everyone if left_alone == 1 else right
            both = np.intersect1d(left, right, assume_unique=True)
        sides = [Axis(length, index_set(length, side)) for side in (left, right, both)]
        return CompiledPair.of(sides[0], sides[1], sides[2], rounding)
    # Rounded up, so that the weight u_i v_j + v_i u_j - w_i w_j never passes 1.
    both = -((-left * right) >> bits)
    touched = np.union1d(np.flatnonzero(left), np.flatnonzero(right))
    if not left.any() or not right.any() or len(touched) == 1:
        return CompiledZero(space.shape, rounding)
    sides = [Axis(length, slice(0, length), side, bits) for side in (left, right, both)]
    return CompiledPair.of(sides[0], sides[1], sides[2], rounding)


def dense_query(space: Space, weights: Array, bits: int, rounding: float) -> Query:
    """The canonical query of a weight for every cell, in units of 2^-bits."""
    count = int(np.count_nonzero(weights))
    entries = 2 * space.size if space.symmetric else space.size
    if space.symmetric and count and bool(np.all((weights == 0) | (weights == 1 << bits))):
        pair = _cut_of(space, np.flatnonzero(np.triu(weights)), rounding)
        if pair is not None:
            return pair
    if count * SPARSE_FACTOR <= entries:
        upper = np.triu(weights) if space.symmetric else weights
        positions = np.flatnonzero(upper)
        return cells_query(space, positions, upper.reshape(-1)[positions].astype(np.int64), bits, rounding)
    if not space.symmetric:
        supports = block_of(weights, count)
        if supports is not None:
            values = weights if count == space.cells else weights[np.ix_(*supports)]
            block = _block_product(space, supports, values, bits, rounding)
            if block is not None:
                return block
    return settled(space, CompiledDense(weights, bits, rounding, space.symmetric))


def cells_query(space: Space, positions: IntArray, weights: IntArray, bits: int, rounding: float) -> Query:
    """The canonical query of sorted distinct positions and their integer weights."""
    kept = weights != 0
    positions, weights = positions[kept], weights[kept]
    if not len(positions):
        return CompiledZero(space.shape, rounding)
    if space.symmetric and bool(np.all(weights == 1 << bits)):
        pair = _cut_of(space, positions, rounding)
        if pair is not None:
            return pair
    if not space.symmetric:
        supports = [np.unique(i) for i in np.unravel_index(positions, space.shape)]
        if math.prod(len(s) for s in supports) == len(positions):
            values = weights.reshape([len(s) for s in supports])
            block = _block_product(space, supports, values, bits, rounding)
            if block is not None:
                return block
    if len(positions) * SPARSE_FACTOR > space.size:
        dense = np.zeros(space.cells, dtype=np.int32)
        dense[positions] = weights
        dense = dense.reshape(space.shape)
        dense = dense + dense.T if space.symmetric else dense
        return settled(space, CompiledDense(dense, bits, rounding, space.symmetric))
    return settled(space, CompiledSparse(positions, weights, bits, rounding, space.shape, space.size, space.symmetric))


def local_query(space: Space, axes: tuple[int, ...], selection: Array) -> Query:
    """The canonical query that weighs one on these combinations of values of some attributes of a table, else zero."""
    for place in reversed(range(len(axes))):
        first = selection.take([0], axis=place)
        if bool((selection == first).all()):
            selection, axes = first.squeeze(place), axes[:place] + axes[place + 1 :]
    count = int(np.count_nonzero(selection))
    if not count:
        return CompiledZero(space.shape)
    supports = block_of(selection, count) if axes else []
    if supports is not None:
        return product_query(space, dict(zip(axes, supports, strict=True)), {}, 1, 0, 0.0)
    if len(axes) == len(space.shape):
        bits = space.axis_bits(1)
        return dense_query(space, selection.astype(np.int32) << bits, bits, 0.0)
    return settled(space, CompiledLocal(axes, selection, space.shape))


def block_of(weights: Array, count: int) -> list[IntArray] | None:
    """The index sets whose block is all that is not zero, which are ``count`` weights; None where it is no block."""
    if count == weights.size:
        return [np.arange(n) for n in weights.shape]
    mask, rank = weights != 0, weights.ndim
    # Around a block whole slabs are zero, one of them through the first zero: most that is no block is seen here.
    hole = np.unravel_index(int(mask.argmin()), mask.shape)
    if all(mask[(slice(None),) * i + (hole[i],)].any() for i in range(rank)):
        return None
    supports = [np.flatnonzero(mask.any(axis=tuple(j for j in range(rank) if j != i))) for i in range(rank)]
    return supports if math.prod(map(len, supports)) == count else None


def _block_product(space: Space, supports: list[IntArray], values: Array, bits: int, rounding: float) -> Query | None:
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
    # One more cell gives most blocks away that are no products.
    if first % corner or last != first // corner * opposite:
        return None
    outer: Array = np.full((), first // corner, dtype=np.int64)
    factors: dict[int, IntArray] = {}
    for i, (support, primitive) in enumerate(zip(supports, primitives, strict=True)):
        factors[i] = np.zeros(space.shape[i], dtype=np.int64)
        factors[i][support] = primitive
        outer = outer[..., None] * primitive
    if not np.array_equal(values, outer):
        return None
    return product_query(space, {}, factors, first // corner, bits, rounding)


def _cut_of(space: Space, positions: IntArray, rounding: float) -> Query | None:
    """The cut of an undirected graph that weighs exactly the listed pairs 1, if there is one.

    Of a cut (S, T) the pairs left out among its nodes are those within S - T and those within T - S.
    """
    rows, columns = np.divmod(positions, space.shape[1])
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
    return pair_query(space, nodes[side != 2], nodes[side != 1], bits=0, rounding=rounding)


class _Product(Form):
    axes: list[tuple[Whole, Along]]


class _Pair(Form):
    sides: tuple[Along, Along]
    bits: Whole = 0


class _Cells(Form):
    indices: Integers
    weights: Integers
    bits: Whole


class _Dense(Form):
    sha256: StrictStr
    bits: Whole


def read(space: Space, form: Mapping[str, Any], blobs: Blobs = MappingProxyType({})) -> Query:
    """The query of a canonical form of weights; ``blobs`` holds those of all cells by their SHA-256.

    Raises:
        InvalidQuery: when it is none of this space.
    """
    match kind_of(form):
        case "zero":
            return CompiledZero(space.shape)
        case _ if space.extent == "unbounded":
            pass
        case "product" if not space.symmetric:
            return _read_product(space, _Product.read(form))
        case "local" if space.kind == "table":
            local = Combinations.read(form)
            return local_query(space, tuple(local.axes), local.selection(space.shape))
        case "pair" if space.symmetric:
            pair = _Pair.read(form)
            if pair.bits not in (0, space.axis_bits(2)):
                raise InvalidQuery("canonical bits are not those of the capacity")
            n, bits = space.shape[0], pair.bits
            left, right = (_read_weights(s, n, bits, least=0) if bits else s.members(n) for s in pair.sides)
            return pair_query(space, left, right, bits=bits, rounding=0.0)
        case "sparse" if space.cells <= MAX_CELLS:
            cells = _Cells.read(form)
            positions, values, bits = ascending(cells.indices, space.cells), cells.weights, cells.bits
            if (
                bits != space.axis_bits(1)
                or positions.shape != values.shape
                or not within(values, bits)
                or (space.symmetric and bool((positions // space.shape[1] >= positions % space.shape[1]).any()))
            ):
                raise InvalidQuery("canonical cells are out of range")
            return cells_query(space, positions, values, bits, 0.0)
        case "dense":
            named = _Dense.read(form)
            blob, bits = blobs.get(named.sha256, b""), named.bits
            if bits != space.axis_bits(1) or len(blob) != 4 * space.cells:
                raise InvalidQuery("canonical weights are not there, or not one a cell")
            dense = np.frombuffer(blob, dtype="<i4").reshape(space.shape)
            if not within(dense, bits):
                raise InvalidQuery("canonical weights are out of range")
            if space.symmetric and (bool(np.diagonal(dense).any()) or not np.array_equal(dense, dense.T)):
                raise InvalidQuery("canonical weights are not symmetric with zero diagonal")
            return dense_query(space, dense, bits, 0.0)
    raise InvalidQuery("not a canonical query of this space")


def _read_product(space: Space, form: _Product) -> Query:
    """The product of a canonical form.

    Raises:
        InvalidQuery: when its numbers are out of range.
    """
    members: dict[int, Members] = {}
    factors: dict[int, IntArray] = {}
    largest, bits = 1, 0
    if len({axis for axis, _ in form.axes} & set(range(len(space.shape)))) < len(form.axes):
        raise InvalidQuery("canonical axes are out of range, or named twice")
    for i, axis in form.axes:
        if axis.weights is None:
            members[i] = axis.members(space.shape[i])
        else:
            factors[i] = _read_weights(axis, space.shape[i], FACTOR_BITS)
            largest *= int(np.abs(factors[i]).max())
            bits += axis.bits
    if bits > max(0, 61 - space.capacity_units.bit_length()) or largest > 1 << bits:
        raise InvalidQuery("canonical weights are out of range")
    return product_query(space, members, factors, 1, bits, 0.0)


def _read_weights(axis: Along, length: int, bits: int, least: int | None = None) -> IntArray:
    """The weights of the values along an axis.

    Raises:
        InvalidQuery: when they are out of range.
    """
    weights = said(axis.weights)
    if weights.shape != (length,) or not within(weights, bits) or (least is not None and weights.min() < least):
        raise InvalidQuery("a canonical weight is out of range")
    return weights
