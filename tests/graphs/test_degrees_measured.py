"""Measurements of degrees: what they are, what an edge moves, what they cost, and how they are written."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.sparse import csr_array

from app.declarations.spec import parse_spec
from app.measurements.noise import Noise, NoiseKind
from app.measurements.pricing import Adjacency
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.spaces.dense import CountsTensor
from app.spaces.factory import space_of
from app.spaces.sparse import SparseTensor
from app.spaces.tensor import IntArray

pytestmark = pytest.mark.unit

GAUSSIAN = Noise("gaussian", Decimal("2.5"), 3)
BUDGET = {"epsilon": 1.0, "delta": 1e-9}
#: Of the smallest graphs of each kind in which two cells share an end and others do not.
SMALL = [((3, 3), "pairs"), ((3, 3), "arcs"), ((2, 3), "all")]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Edges, IntArray]:
    """The cells of a graph, and a matrix that holds them, symmetric where they are pairs."""
    kind = draw(st.sampled_from(["all", "arcs", "pairs"]))
    rows = draw(st.integers(2, 7))
    edges = Edges((rows, draw(st.integers(2, 7)) if kind == "all" else rows), kind)
    matrix = draw(arrays.arrays(np.int16, edges.shape, elements=st.integers(0, 300)))
    return edges, np.triu(matrix) + np.triu(matrix, 1).T if kind == "pairs" else matrix


@given(graphs())
def test_degrees_are_the_sums_of_cells(graph: tuple[Edges, IntArray]) -> None:
    """Of dense and of sparse data, summed cell by cell: a node's degree is the sum of all cells that it is an end of,
    apart by direction and side, without what stands on the diagonal of a graph. Would catch a loop that is counted, an
    undirected edge that counts twice or not at all, and sides that change places.
    """
    edges, matrix = graph
    left, right = np.zeros(edges.shape[0], int), np.zeros(edges.shape[1], int)
    for row, column in zip(*edges.ends(), strict=True):
        left[row] += matrix[row, column]
        right[column] += matrix[row, column]
    expected = left + right if edges.kind == "pairs" else np.concatenate([left, right])
    degrees = Degrees(edges)
    for tensor in (CountsTensor(matrix), SparseTensor(csr_array(matrix))):
        assert degrees.exact(None, tensor).tolist() == expected.tolist()
    assert degrees.cells == len(expected)
    sides = degrees.sides(expected.astype(float))
    assert [len(side) for side in sides] == list(edges.shape)
    assert sides[0].tolist() == (expected if edges.kind == "pairs" else left).tolist()
    assert sides[1].tolist() == (expected if edges.kind == "pairs" else right).tolist()


def law(kind: NoiseKind, scale: int) -> dict[int, mpmath.mpf]:
    """Discrete noise as it is defined, out to where nothing is left of it in 25 digits."""
    reach = 70 * scale if kind == "laplace" else 25 * scale
    weights = {
        n: mpmath.exp(-mpmath.mpf(abs(n)) / scale if kind == "laplace" else -mpmath.mpf(n * n) / (2 * scale * scale))
        for n in range(-reach, reach + 1)
    }
    whole = mpmath.fsum(weights.values())
    return {n: weight / whole for n, weight in weights.items()}


def neighbours(edges: Edges, gamma: int) -> list[IntArray]:
    """Every way in which cells of a small graph may move by gamma together: one by all of it, or two by parts of it,
    in either direction.
    """
    found = []
    for one in range(edges.cells):
        for other in range(edges.cells):
            for part in range(gamma + 1):
                for sign in (1, -1):
                    cells = np.zeros(edges.cells)
                    cells[one] += gamma - part
                    cells[other] += sign * part
                    found.append(edges.matrix(cells).astype(np.int64))
    return found


@pytest.mark.parametrize(("kind", "scale"), [("laplace", 3), ("gaussian", 2)])
@pytest.mark.parametrize(("shape", "cells"), SMALL)
def test_the_price_is_no_less_than_the_divergence(kind: NoiseKind, scale: int, shape: Any, cells: Any) -> None:
    """The Renyi divergence of the joint law of all degrees, over all outcomes, at neighbours that differ by three units
    in one cell, or in two: the price is not below it, and is reached. So is the pure price by the largest
    ratio. Would catch degrees that are charged at the sensitivity of one, and cells that share an end.
    """
    gamma, degrees = 3, Degrees(Edges(shape, cells))
    noise, order = Noise(kind, Decimal(scale), 0), Decimal("2.5")
    moves = {
        tuple(sorted(abs(degrees.exact(None, CountsTensor(m))).tolist())) for m in neighbours(degrees.edges, gamma)
    }
    with mpmath.workdps(25):
        chances, a = law(kind, scale), mpmath.mpf("2.5")

        def divergence(shift: int) -> mpmath.mpf:
            both = ((p, chances.get(n - shift)) for n, p in chances.items())
            return mpmath.log(mpmath.fsum(p**a * q ** (1 - a) for p, q in both if q is not None)) / (a - 1)

        each = {shift: divergence(shift) for shift in range(gamma + 1)}
        assert max(max(move) for move in moves) == gamma
        worst = max(mpmath.fsum(each[shift] for shift in move) for move in moves)
        price = Purchase.at(degrees, noise, Adjacency(gamma), order).price
        assert worst - mpmath.mpf("1e-15") <= float(price.renyi)
        assert float(price.renyi) == pytest.approx(float(worst), rel=1e-9)
    if kind == "laplace":
        assert price.pure is not None
        assert price.pure == Decimal(max(sum(move) for move in moves)) / scale
    else:
        assert price.pure is None


@settings(max_examples=20)
@given(st.integers(1, 8), st.integers(1, 400))
def test_the_price_is_that_of_dp_accounting(sensitivity: int, scale: int) -> None:
    """A library's price of two Laplace answers, and of Gaussian noise for an L2 distance of ``2^(1/2)`` gamma, on a
    fine grid where discrete noise is as good as continuous. Would catch a formula that is right for another mechanism.
    """
    bits, orders = 12, [2.0, 8.0, 40.0]
    fine = Decimal(scale) / 8
    units, gamma = Fraction(fine), Fraction(sensitivity, 8)
    events = {
        "laplace": LaplaceDpEvent(float(units / gamma)),
        "gaussian": GaussianDpEvent(float(units / gamma) / 2**0.5),
    }
    for kind, times in (("laplace", 2), ("gaussian", 1)):
        accountant = rdp_privacy_accountant.RdpAccountant(orders)
        accountant.compose(events[kind], times)
        noise = Noise(kind, fine, bits)  # type: ignore[arg-type]
        for order, theirs in zip(orders, accountant._rdp, strict=True):
            if theirs < 30:
                price = Purchase.at(
                    Degrees(Edges((2, 2), "all")), noise, Adjacency(int(gamma * 2**bits)), Decimal(order)
                ).price
                assert float(price.renyi) == pytest.approx(theirs, rel=2e-3)


@given(graphs(), st.data())
def test_documents_read_back_as_they_were(graph: tuple[Edges, IntArray], data: st.DataObject) -> None:
    """Would catch a sign that is lost, and two documents of one measurement."""
    degrees = Degrees(graph[0])
    bound = data.draw(st.sampled_from([127, 32768, 2**62]))
    units = data.draw(arrays.arrays(np.int64, degrees.cells, elements=st.integers(-bound, bound)))
    release = Measurement(degrees, GAUSSIAN, units)
    read = Measurement.read(release.document())
    assert (read.strategy, read.noise, read.units.tolist()) == (degrees, GAUSSIAN, units.tolist())
    assert read.document() == release.document()
    assert release.values.tolist() == (units / 8).tolist()


@pytest.mark.parametrize(
    "change",
    [
        {"values": "AQID"},  # three numbers for six degrees
        {"values": "AQIDBAUG\n"},
        {"values": "AQACAAMABAAFAAYA"},  # two bytes for each, where one holds them
        {"noise": {"bits": 53, "flips": 1 << 51, "kind": "flips"}},
        {"noise": None},
        {"degrees": {"cells": "pairs", "shape": [3, 4]}},
        {"degrees": {"cells": "pairs", "shape": [6]}},
        {"degrees": None},
    ],
)
def test_what_is_no_document_is_refused(change: dict[str, Any]) -> None:
    """Would catch a second way to write one measurement, by which its record would have two hashes."""
    document = Measurement(Degrees(Edges((3, 3), "arcs")), GAUSSIAN, np.arange(1, 7)).document()
    assert document["values"] == "AQIDBAUG"
    assert Measurement.read(document).units.tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(ValueError, match=r".+"):
        Measurement.read(document | change)


def test_degrees_are_of_their_graph() -> None:
    """Would catch degrees of another graph, and sums of a matrix that are refused."""
    graph = space_of(parse_spec({"name": "g", "kind": "graph", "nodes": 4, "budget": BUDGET}))
    matrix = {"name": "m", "kind": "matrix", "rows": 4, "columns": 4, "lower": 0, "upper": 1, "budget": BUDGET}
    Degrees.of(graph).check(graph)
    for degrees in (Degrees(Edges((5, 5), "pairs")), Degrees(Edges((4, 4), "arcs" if graph.symmetric else "pairs"))):
        with pytest.raises(ValueError, match="not those of this graph"):
            degrees.check(graph)
    entries = space_of(parse_spec(matrix))
    Degrees.of(entries).check(entries)
    with pytest.raises(ValueError, match="values of shape"):
        Measurement(Degrees.of(graph), GAUSSIAN, np.zeros(9))
