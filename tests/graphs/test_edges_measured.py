"""Measurements of all cells: which cells there are, how values are written, and that bits are unbiased."""

from __future__ import annotations

import base64
import itertools
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.sparse import csr_array

from app.estimation.flips import flips_quantile
from app.measurements.noise import FLIP_BITS, BitFlips, Noise
from app.measurements.record import Measurement
from app.measurements.strategies.edges import Edges
from app.spaces.dense import CountsTensor
from app.spaces.sparse import SparseTensor

pytestmark = pytest.mark.unit

LAPLACE = Noise("laplace", Decimal("2.5"), 3)
QUARTER = BitFlips(1 << 51)


@st.composite
def kinds_of_cells(draw: st.DrawFn) -> Edges:
    kind = draw(st.sampled_from(["all", "arcs", "pairs"]))
    rows = draw(st.integers(1 if kind == "all" else 2, 9))
    columns = draw(st.integers(1, 9)) if kind == "all" else rows
    return Edges((rows, columns), kind)


def listed(edges: Edges) -> list[tuple[int, int]]:
    """The cells one by one, as they are defined."""
    every = [(i, j) for i in range(edges.shape[0]) for j in range(edges.shape[1])]
    if edges.kind == "all":
        return every
    return [(i, j) for i, j in every if (i < j if edges.kind == "pairs" else i != j)]


@given(kinds_of_cells())
def test_cells_are_the_entries_row_by_row(edges: Edges) -> None:
    """Would catch a pair that is measured twice or not at all, a loop among the cells, and positions, ends and number
    that are not of the same order.
    """
    cells = listed(edges)
    rows, columns = edges.ends()
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == cells
    assert edges.cells == len(cells)
    assert edges.positions(rows, columns).tolist() == list(range(len(cells)))


@given(kinds_of_cells(), st.data())
def test_exact_cells_are_those_of_the_data(edges: Edges, data: st.DataObject) -> None:
    """Dense and sparse data hold the same cells, in the type that they are kept in. Would catch an undirected edge that
    counts twice, and one that is kept in the other direction alone.
    """
    matrix = data.draw(arrays.arrays(np.int16, edges.shape, elements=st.integers(-300, 300)))
    if edges.kind != "all":
        np.fill_diagonal(matrix, 0)
    if edges.kind == "pairs":
        matrix = np.triu(matrix) + np.triu(matrix).T
    expected = [int(matrix[cell]) for cell in listed(edges)]
    for tensor in (CountsTensor(matrix), SparseTensor(csr_array(matrix))):
        found = edges.exact(None, tensor)
        assert found.tolist() == expected
        assert found.dtype == matrix.dtype
    values = np.array(expected, dtype=np.float64)
    assert np.array_equal(edges.matrix(values), matrix)


@given(kinds_of_cells(), st.data())
def test_documents_read_back_as_they_were(edges: Edges, data: st.DataObject) -> None:
    """Values of every width are written in the fewest bytes and read back. Would catch a sign that is lost, bytes in
    the wrong order, and two documents of one measurement.
    """
    bound = data.draw(st.sampled_from([127, 128, 32768, 2**31, 2**62]))
    units = data.draw(arrays.arrays(np.int64, edges.cells, elements=st.integers(-bound, bound)))
    bits = data.draw(arrays.arrays(np.uint8, edges.cells, elements=st.integers(0, 1)))
    for release in (Measurement(edges, LAPLACE, units), Measurement(edges, QUARTER, bits)):
        read = Measurement.read(release.document())
        assert (read.strategy, read.noise, read.units.tolist()) == (edges, release.noise, release.units.tolist())
        assert read.document() == release.document()
    most = max(abs(int(units.max())), abs(int(units.min()) + 1))
    width = next(width for width in (1, 2, 4, 8) if most < 2 ** (8 * width - 1))
    assert len(base64.b64decode(Measurement(edges, LAPLACE, units).document()["values"])) == width * edges.cells


def encoded(values: bytes) -> str:
    return base64.b64encode(values).decode()


@pytest.mark.parametrize(
    "change",
    [
        {"values": encoded(b"\xff")},  # padding that is not zero
        {"values": encoded(b"\xe0\x00")},  # a byte too many
        {"values": "4A"},  # no padding of base64
        {"values": "4A==\n"},
        {"values": 4},
        {"noise": {"bits": 53, "flips": 1 << 52, "kind": "flips"}},  # one half
        {"noise": {"bits": 52, "flips": 1, "kind": "flips"}},
        {"noise": {"bits": 53, "flips": 1.0, "kind": "flips"}},
        {"noise": {"bits": 3, "kind": "laplace", "scale": "2.5"}},  # three numbers in one byte
        {"edges": {"cells": "pairs", "shape": [3, 4]}},
        {"edges": {"cells": "loops", "shape": [3, 3]}},
        {"edges": {"cells": "pairs", "shape": [1, 1]}},
        {"edges": {"cells": "pairs", "shape": [3, 3.0]}},
        {"edges": None},
    ],
)
def test_what_is_no_document_is_refused(change: dict[str, Any]) -> None:
    """Would catch a second way to write one measurement, by which its record would have two hashes."""
    document = Measurement(Edges((3, 3), "pairs"), QUARTER, np.array([1, 1, 1])).document()
    assert Measurement.read(document).units.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match=r".+"):
        Measurement.read(document | change)


def test_numbers_that_take_more_bytes_than_they_need_are_refused() -> None:
    """Would catch a second form of small numbers."""
    release = Measurement(Edges((1, 2), "all"), LAPLACE, np.array([1, -2]))
    assert release.document()["values"] == encoded(b"\x01\xfe")
    with pytest.raises(ValueError, match="as few bytes"):
        Measurement.read(release.document() | {"values": encoded(b"\x01\x00\xfe\xff")})


@given(st.integers(1, 2**52 - 2**40))
def test_a_flipped_bit_is_unbiased(flips: int) -> None:
    """The mean of the value of a bit that was turned over is what it was before, and its variance is that which is
    stated. Would catch an estimator of another probability, and one of 1 for 0.
    """
    noise = BitFlips(flips)
    p = float(noise.probability)
    zero, one = noise.unbiased(np.array([0, 1], np.uint8))
    for bit in (0, 1):
        chance = 1 - p if bit else p  # of a released 1
        mean = chance * one + (1 - chance) * zero
        assert mean == pytest.approx(bit, abs=1e-9 * one)
        square = chance * one**2 + (1 - chance) * zero**2 - mean**2
        assert square == pytest.approx(noise.variance, rel=1e-6)


@pytest.mark.parametrize("units", [[0, 1], [0, 1, 2]])
def test_values_that_are_none_are_refused(units: list[int]) -> None:
    """Would catch bits of two, and a value too few."""
    with pytest.raises(ValueError, match=r"values of shape|0 or 1"):
        Measurement(Edges((3, 3), "pairs"), QUARTER, np.array(units))


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.01, 0.08, 0.31])
@pytest.mark.parametrize("weights", [(1.0,), (1.0, 1.0, 1.0), (0.25, 0.5, 1.0, 1.0), (1.0,) * 9])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_errors_of_few_bits_reach_as_far_as_all_that_can_be_turned(
    probability: float, weights: tuple[float, ...], confidence: float
) -> None:
    """Whatever the bits are the interval holds, and of some it could not be narrower. Would catch the quantile of a
    normal law, and that of bits which are all alike."""
    noise = BitFlips(int(probability * 2**FLIP_BITS))
    p, few = float(noise.probability), len(weights) <= 8
    deviation = math.sqrt(noise.variance * sum(w * w for w in weights))
    reach = flips_quantile(noise, len(weights), confidence, weights=weights if few else ()) * deviation
    least, states = 1.0, list(itertools.product((0, 1), repeat=len(weights)))
    # Of bits that weigh alike it matters how many are 1.
    for bits in states if few else [(1,) * k + (0,) * (len(weights) - k) for k in range(len(weights) + 1)]:
        inside = below = 0.0
        for turned in states:
            chance = math.prod(p if t else 1 - p for t in turned)
            told = noise.unbiased(np.array(bits) ^ np.array(turned))
            error = abs(float(told @ np.array(weights)) - float(np.array(bits) @ np.array(weights)))
            inside += chance * (error <= reach + 1e-9)
            below += chance * (error <= reach * (1 - 1e-6))
        assert inside >= confidence - 1e-9
        least = min(least, below)
    assert least < confidence
