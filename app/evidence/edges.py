"""Measurements of graphs and matrices: every cell of the universe, released once with noise of its own.

A cell is an entry of the adjacency matrix, or of the matrix. An undirected graph has one for each unordered pair of
nodes, which is measured once; a graph has none for loops. Neighbours differ by gamma in the L1 norm over the cells,
so that is the sensitivity of all of them together; they may differ in several cells, each by less.

Numbers get Laplace or Gaussian noise. Bits, the edges of a graph without weights, may be released by randomised
response instead: each is turned over with the same probability.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, ndtr

from app.evidence.measurements import Noise
from app.evidence.tails import normal_quantile
from app.spaces.lazy import lazy
from app.spaces.space import Space
from app.spaces.tensor import FloatArray, IntArray

#: Which entries are cells: ``all`` of them, ``arcs`` (all but the diagonal) or ``pairs`` (those above the diagonal).
CellKind = Literal["all", "arcs", "pairs"]
BitArray = npt.NDArray[np.uint8]

#: Probabilities of turning a bit over are multiples of 2^-53: each is a floating-point number.
FLIP_BITS = 53
#: Of so many bits every number of ones is looked at.
_FEW_BITS = 32


@dataclass(frozen=True)
class Edges:
    """What is measured: the cells of a graph or a matrix, row by row.

    Attributes:
        shape: rows and columns of the matrix.
        kind: which of its entries are cells.

    Raises:
        ValueError: when it is not of this form.
    """

    shape: tuple[int, int]
    kind: CellKind

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or any(type(n) is not int or n < 1 for n in self.shape):
            raise ValueError("a matrix has rows and columns")
        if self.kind not in ("all", "arcs", "pairs") or (self.kind != "all" and self.shape[0] != self.shape[1]):
            raise ValueError("edges between the nodes of one set are a square matrix's")
        if self.cells < 1:
            raise ValueError("there is no cell to be measured")

    @classmethod
    def of(cls, space: Space) -> Edges:
        """The cells of a graph or matrix. Loops hold no data."""
        rows, columns = space.shape
        if space.kind != "graph":
            return cls((rows, columns), "all")
        return cls((rows, columns), "pairs" if space.symmetric else "arcs")

    @property
    def cells(self) -> int:
        """Number of values that are released."""
        rows, columns = self.shape
        if self.kind == "all":
            return rows * columns
        return rows * (rows - 1) // (2 if self.kind == "pairs" else 1)

    def check(self, space: Space) -> None:
        """Raise ValueError unless they are the cells of this space."""
        if space.extent == "unbounded" or len(space.shape) != 2 or Edges.of(space) != self:
            raise ValueError("the cells are not those of this graph or matrix")

    def positions(self, rows: IntArray, columns: IntArray) -> IntArray:
        """Where entries stand among the cells; each must be one."""
        n = self.shape[1]
        rows, columns = rows.astype(np.int64), columns.astype(np.int64)
        if self.kind == "all":
            return rows * n + columns
        if self.kind == "arcs":
            return rows * (n - 1) + columns - (columns > rows)
        return rows * (n - 1) - rows * (rows + 1) // 2 + columns - 1

    def ends(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Row and column of every cell."""
        rows, columns = self.shape
        each = np.arange(rows, dtype=np.int32)
        if self.kind == "all":
            return np.repeat(each, columns), np.tile(np.arange(columns, dtype=np.int32), rows)
        if self.kind == "arcs":
            first = np.repeat(each, columns - 1)
            second = np.tile(np.arange(columns - 1, dtype=np.int32), rows)
            return first, second + (second >= first)
        counts = rows - 1 - each
        first = np.repeat(each, counts)
        begins = np.cumsum(counts, dtype=np.int64) - counts
        return first, (np.arange(self.cells) - np.repeat(begins - each - 1, counts)).astype(np.int32)

    def flattened(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The cells of a matrix of this shape."""
        if self.kind == "all":
            return matrix.reshape(-1)
        rows, columns = np.ogrid[: self.shape[0], : self.shape[1]]
        return matrix[rows < columns] if self.kind == "pairs" else matrix[rows != columns]

    def matrix(self, values: FloatArray) -> FloatArray:
        """The matrix of values of all cells, symmetric where they are pairs; what is no cell is zero."""
        if self.kind == "all":
            return values.reshape(self.shape)
        made = np.zeros(self.shape)
        rows, columns = np.ogrid[: self.shape[0], : self.shape[1]]
        if self.kind == "arcs":
            made[rows != columns] = values
            return made
        made[rows < columns] = values
        made += made.T
        return made

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"cells": self.kind, "shape": list(self.shape)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Edges:
        """From JSON.

        Raises:
            KeyError, TypeError, ValueError: when it is none.
        """
        rows, columns = document["shape"]
        return cls((rows, columns), document["cells"])


@dataclass(frozen=True)
class BitFlips:
    """Randomised response: each bit is turned over with probability ``flips / 2^53`` (Warner 1965).

    Raises:
        ValueError: unless the probability is positive and less than one half.
    """

    flips: int

    def __post_init__(self) -> None:
        if type(self.flips) is not int or not 0 < self.flips < 1 << (FLIP_BITS - 1):
            raise ValueError("a bit is turned over with a probability below one half")

    @property
    def kind(self) -> Literal["flips"]:
        """Beside the laws of noise that is added."""
        return "flips"

    @property
    def probability(self) -> Fraction:
        """p, exactly."""
        return Fraction(self.flips, 1 << FLIP_BITS)

    @property
    def scale(self) -> Decimal:
        """p; it takes 53 bits."""
        return Decimal(float(self.probability))

    @property
    def variance(self) -> float:
        """Variance of the unbiased value of a bit, ``p (1-p) / (1-2p)^2``, in edges squared."""
        p = self.probability
        return float(p * (1 - p) / (1 - 2 * p) ** 2)

    def unbiased(self, bits: BitArray) -> FloatArray:
        """``(bit - p) / (1 - 2p)``: a released bit is 1 with probability ``p + (1-2p) x``, so its mean is x."""
        p = self.probability
        return np.array([float(-p / (1 - 2 * p)), float((1 - p) / (1 - 2 * p))])[bits]

    def quantile(self, cells: int, confidence: float, part: float = 1.0, weights: tuple[float, ...] = ()) -> float:
        """How many standard deviations the error of a sum of so many bits reaches with a probability at most, whatever
        the bits are.

        ``part`` is that of its variance which is left where degrees help to tell the sum. What they change has the same
        part of each bit's error in it, and beside it many small ones, taken for normal. ``weights`` are those of the
        bits where these are few.
        """
        if weights:
            return _weighed_quantile(float(self.probability), weights, confidence, min(max(round(part, 3), 0.001), 1.0))
        return _flips_quantile(float(self.probability), cells, confidence, min(max(round(part, 3), 0.001), 1.0))

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"bits": FLIP_BITS, "flips": self.flips, "kind": "flips"}


@lru_cache(maxsize=1024)
def _flips_quantile(p: float, cells: int, confidence: float, part: float) -> float:
    """Of m bits of which k are 1 the error is that of ``Bin(m-k, p) - Bin(k, p)``: most skewed where all are alike, of
    few the worst k is looked for."""
    deviation = math.sqrt(cells * p * (1 - p))
    found = 0.0
    for ones in range(cells // 2 + 1) if cells <= _FEW_BITS else (0,):
        # Beyond it there is nothing to speak of.
        most = min(cells - ones, math.ceil(cells * p + 12 * deviation) + 40)
        law = np.convolve(_binomial(cells - ones, p, most), _binomial(ones, p, ones)[::-1])
        errors = (np.arange(-ones, most + 1) - (cells - 2 * ones) * p) / deviation
        found = max(found, _reached(np.asarray(math.sqrt(part) * errors), law, math.sqrt(1 - part), confidence + 1e-12))
    return found if cells <= _FEW_BITS else max(found, normal_quantile(confidence))


@lru_cache(maxsize=1024)
def _weighed_quantile(p: float, weights: tuple[float, ...], confidence: float, part: float) -> float:
    """The same of few bits with weights: for all that they can be, all that can be turned over."""
    many = np.arange(1 << len(weights))
    states = (many[:, None] >> np.arange(len(weights))) & 1
    turned = states.sum(axis=1)
    law = p**turned * (1 - p) ** (len(weights) - turned)
    weighed = np.array(weights)
    deviation = math.sqrt(p * (1 - p) * float(weighed @ weighed))
    # A bit that is 1 errs the other way.
    errors = ((states - p) * weighed) @ (1 - 2 * states).T / deviation
    spread = math.sqrt(1 - part)
    return max(_reached(math.sqrt(part) * column, law, spread, confidence + 1e-12) for column in errors.T)


def _reached(values: FloatArray, law: FloatArray, spread: float, confidence: float) -> float:
    """The least r that a value and normal noise beside it lie within with a probability."""
    if not spread:
        order = np.argsort(np.abs(values))
        place = int(np.searchsorted(np.cumsum(law[order]), confidence))
        return float(np.abs(values)[order][min(place, len(order) - 1)]) * (1 + 1e-9)
    low, high = 0.0, float(np.abs(values).max()) + 10 * spread
    while high > low * (1 + 1e-6) + 1e-9:
        middle = (low + high) / 2
        within = float(law @ (ndtr((middle - values) / spread) - ndtr((-middle - values) / spread)))
        low, high = (low, middle) if within >= confidence else (middle, high)
    return high


def _binomial(n: int, p: float, most: int) -> FloatArray:
    """How likely 0, 1, ... up to most of n are."""
    k = np.arange(most + 1)
    chosen = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(np.exp(chosen + k * math.log(p) + (n - k) * math.log1p(-p)))


def read_noise(document: Mapping[str, Any]) -> Noise | BitFlips:
    """The noise of a document.

    Raises:
        KeyError, TypeError, ValueError: when it is none.
    """
    if document["kind"] != "flips":
        return Noise.read(document)
    if document["bits"] != FLIP_BITS:
        raise ValueError("probabilities of turning a bit over are multiples of 2^-53")
    return BitFlips(document["flips"])


@dataclass(frozen=True)
class EdgeBuy:
    """A measurement to be made of all cells, and its noise."""

    strategy: Edges
    noise: Noise | BitFlips

    @property
    def kind(self) -> str:
        """The law of the noise."""
        return self.noise.kind

    @property
    def scale(self) -> Decimal:
        """The noise's parameter: b, sigma or p."""
        return self.noise.scale


@dataclass(frozen=True, eq=False)
class EdgeRelease:
    """The cells that were measured, the noise, and what was released.

    Attributes:
        strategy: the cells.
        noise: of each.
        units: the released values, one a cell: bits, or whole units of 2^-bits, not clipped, so that each is unbiased.

    Raises:
        ValueError: when there are other values than cells, or they are none of this noise.
    """

    strategy: Edges
    noise: Noise | BitFlips
    units: IntArray | BitArray

    def __post_init__(self) -> None:
        units: npt.NDArray[Any] = np.array(self.units, dtype=np.uint8 if self.binary else np.int64)
        if units.shape != (self.strategy.cells,):
            raise ValueError(f"{self.strategy.cells} cells have no values of shape {units.shape}")
        if self.binary and units.max() > 1:
            raise ValueError("bits are 0 or 1")
        units.setflags(write=False)
        object.__setattr__(self, "units", units)

    @property
    def binary(self) -> bool:
        """Whether bits were released."""
        return isinstance(self.noise, BitFlips)

    @property
    def variance(self) -> float:
        """Variance of each unbiased value, in counts squared."""
        return self.noise.variance

    @lazy
    def values(self) -> FloatArray:
        """The unbiased value of each cell, in counts."""
        noise = self.noise
        if isinstance(noise, BitFlips):
            values = noise.unbiased(self.units)  # type: ignore[arg-type]
        else:
            values = np.ldexp(self.units.astype(np.float64), -noise.bits)
        values.setflags(write=False)
        return values

    def document(self) -> dict[str, Any]:
        """As JSON: values in base64. Bits are packed, the first of eight in the highest place; numbers are
        little-endian and signed, of the least number of bytes (1, 2, 4 or 8) that holds them all.
        """
        values = _base64(np.packbits(self.units)) if self.binary else packed_numbers(self.units.astype(np.int64))
        return {"edges": self.strategy.document(), "noise": self.noise.document(), "values": values}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> EdgeRelease:
        """From JSON.

        Raises:
            ValueError: when it is none.
        """
        try:
            edges, noise = Edges.read(document["edges"]), read_noise(document["noise"])
            cells = edges.cells
            if isinstance(noise, BitFlips):
                packed = binascii.a2b_base64(document["values"], strict_mode=True)
                if len(packed) != -(-cells // 8) or (cells % 8 and packed[-1] & (0xFF >> cells % 8)):
                    raise ValueError("bits are packed, and padded with zeros")
                return cls(edges, noise, np.unpackbits(np.frombuffer(packed, np.uint8), count=cells))
            return cls(edges, noise, unpacked_numbers(document["values"], cells))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("not the document of a measurement") from error


_WIDTHS = (1, 2, 4, 8)


def packed_numbers(units: IntArray) -> str:
    """Whole numbers in base64: little-endian and signed, of the least number of bytes (1, 2, 4 or 8) that holds all."""
    return _base64(units.astype(_width(units)))


def unpacked_numbers(text: str, count: int) -> IntArray:
    """So many whole numbers, as :func:`packed_numbers` wrote them.

    Raises:
        TypeError, ValueError: when they are written in any other way.
    """
    packed = binascii.a2b_base64(text, strict_mode=True)
    width = len(packed) // count
    if width not in _WIDTHS or len(packed) != width * count:
        raise ValueError("numbers take 1, 2, 4 or 8 bytes each")
    units = np.frombuffer(packed, f"<i{width}")
    if _width(units) != units.dtype:
        raise ValueError("numbers take as few bytes as hold them")
    return units.astype(np.int64)


def _base64(values: npt.NDArray[Any]) -> str:
    return binascii.b2a_base64(values.tobytes(), newline=False).decode("ascii")


def _width(units: npt.NDArray[Any]) -> np.dtype[Any]:
    """The least type that holds numbers."""
    low, high = int(units.min()), int(units.max())
    for width in _WIDTHS:
        if -(1 << (8 * width - 1)) <= low and high < 1 << (8 * width - 1):
            return np.dtype(f"<i{width}")
    raise ValueError("numbers are 64-bit integers")
