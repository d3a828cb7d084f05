"""Dense kernels: what constructions that keep a number for every cell do with the weights of a query.

They work a part of an array at a time, and make no second array of its size. A query over an unbounded universe has no
weight for every cell, and no kernel takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from app.spaces.queries.linear import (
    CompiledDense,
    CompiledLocal,
    CompiledPair,
    CompiledProduct,
    CompiledSparse,
    CompiledZero,
    outer,
)
from app.spaces.query import FullQuery, Index, LinearQuery, PartedQuery
from app.spaces.tensor import DenseTensor, FloatArray, IntArray, LowRankTensor


def add_to(query: LinearQuery, array: FloatArray, scale: float) -> None:
    """Add ``scale * f`` into a dense array of the space's shape, in place."""
    match query:
        case PartedQuery():
            for part, weights in query.parts():
                weights *= scale
                array[part] += weights
        case CompiledSparse():
            flat = array.reshape(-1)
            flat[query.positions] += scale * query.real
            if query.symmetric:
                flat[query.mirrored] += scale * query.real
        case CompiledZero():
            return
        case _:
            raise _no_cells(query)


def add_terms(query: CompiledProduct | CompiledPair, terms: LowRankTensor, scale: float) -> None:
    """Add ``scale * f`` to a sum of rank-one terms; the space has two axes."""
    if isinstance(query, CompiledProduct):
        left, right = (
            np.ones(length) if axis is None else axis.real_vector()
            for axis, length in zip(query.axes, query.shape, strict=True)
        )
        terms.add(scale, left, right)
        return
    left, right, both = (axis.real_vector() for axis in (query.left, query.right, query.both))
    terms.add(scale, left, right)
    terms.add(scale, right, left)
    if both.any():
        terms.add(-scale, both, both)


def levels(query: LinearQuery, hypothesis: DenseTensor) -> tuple[FloatArray, FloatArray]:
    """Weights that occur and the hypothesis' mass at each; mass in no level weighs zero."""
    match query:
        case CompiledProduct():
            masses = hypothesis.weighted_block(query.axes)
            weights = outer([axis.real for axis in query.axes if axis is not None and axis.real is not None])
            return weights.reshape(-1), masses.reshape(-1)
        case CompiledLocal():
            return np.ones(1), np.array([query.inner(hypothesis)])
        case CompiledPair() if query.grid_bits == 0:
            return np.ones(1), np.array([query.inner(hypothesis)])
        case FullQuery():
            # A symmetric array holds each pair twice.
            flat = hypothesis.array.reshape(-1)
            return query.matrix().reshape(-1), flat / 2 if query.symmetric else flat
        case CompiledSparse():
            return query.real, hypothesis.gather(query.positions)
        case CompiledZero():
            return np.zeros(1), np.zeros(1)
        case _:
            raise _no_cells(query)


def scale_exp(query: LinearQuery, array: FloatArray, rate: float, top: float) -> None:
    """Multiply every cell of a dense array by ``exp(min(rate * weight - top, 0))``, in place."""
    match query:
        case CompiledProduct():
            _scale_parts(array, _factors(query, rate, top), top)
        case FullQuery():
            for part, factors in _factors(query, rate, top):
                array[part] *= factors
        case CompiledSparse():
            factors = np.exp(np.minimum(rate * query.real - top, 0.0))
            cells = query.positions
            if query.symmetric:
                cells, factors = np.concatenate([cells, query.mirrored]), np.concatenate([factors, factors])
            _scale_parts(array.reshape(-1), [(cells, factors)], top)
        case CompiledZero():
            array *= np.exp(min(-top, 0.0))
        case _:
            raise _no_cells(query)


def integers(query: LinearQuery) -> IntArray:
    """The weight of every cell, in the space's shape and in units of 2^-grid_bits."""
    match query:
        case CompiledProduct():
            product = np.ones((), dtype=np.int64)
            for axis, length in zip(query.axes, query.shape, strict=True):
                product = product[..., None] * (np.ones(length, dtype=np.int64) if axis is None else axis.vector())
            return product
        case CompiledPair():
            left, right, both = (axis.vector() for axis in (query.left, query.right, query.both))
            pairs = np.outer(left, right)
            pairs += pairs.T.copy()
            pairs -= np.outer(both, both)
            np.fill_diagonal(pairs, 0)
            return pairs
        case CompiledSparse():
            listed = np.zeros(query.shape, dtype=np.int64)
            flat = listed.reshape(-1)
            flat[query.positions] = query.weights
            if query.symmetric:
                flat[query.mirrored] = query.weights
            return listed
        case CompiledDense():
            return query.weights.astype(np.int64)
        case CompiledLocal():
            return query.matrix().astype(np.int64)
        case CompiledZero():
            return np.zeros(query.shape, dtype=np.int64)
        case _:
            raise _no_cells(query)


def matrix_of(query: LinearQuery, shape: tuple[int, ...]) -> FloatArray:
    """The weights of every cell as real numbers, in an array of the caller's own."""
    if isinstance(query, FullQuery):
        return query.matrix()
    weights = np.zeros(shape)
    add_to(query, weights, 1.0)
    return weights


def _factors(query: PartedQuery, rate: float, top: float) -> Iterator[tuple[Index, FloatArray]]:
    """``exp(min(rate * weight - top, 0))`` of every part."""
    for part, weights in query.parts():
        weights *= rate
        weights -= top
        np.minimum(weights, 0.0, out=weights)
        yield part, np.exp(weights, out=weights)


def _scale_parts(array: FloatArray, parts: Iterable[tuple[Any, FloatArray]], top: float) -> None:
    """Multiply parts of an array by their factors and all else, where weights are 0, by ``exp(min(-top, 0))``."""
    others = float(np.exp(min(-top, 0.0)))
    if others > 2.0**-64:
        if others != 1.0:
            array *= others
        for part, factors in parts:
            array[part] *= factors / others
    else:
        # Too small a factor to be divided out again: what it would swallow is set aside.
        kept = [(part, array[part] * factors) for part, factors in parts]
        array *= others
        for part, values in kept:
            array[part] = values


def _no_cells(query: LinearQuery) -> TypeError:
    return TypeError(f"{type(query).__name__} weighs no cells")
