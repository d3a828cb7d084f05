"""Norms that potentials are built on: l_p, group (2, p) and Schatten p, and their duals.

Each is the l_p norm of an array's *magnitudes*: absolute entries, Euclidean norms of rows (or columns), or singular
values. All of them give 1 to an array with a single entry 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import svdvals
from scipy.sparse import csr_array

FloatArray: TypeAlias = npt.NDArray[np.float64]
Family: TypeAlias = Literal["lp", "group", "schatten"]
Side: TypeAlias = Literal["rows", "columns"]

#: Numbers of a part of an array that is worked on at a time.
PIECE = 1 << 14


def conjugate(p: float) -> float:
    """The exponent q of the dual norm, 1/p + 1/q = 1."""
    return math.inf if p == 1 else p / (p - 1)


def auto_exponent(count: int) -> float:
    """The p near 1 for ``count`` magnitudes: ``q = max(2, ln count)``, ``p = q/(q-1)``.

    Then ``max_i <= ||.||_q <= e max_i`` and ``||.||_1 / e <= ||.||_p <= ||.||_1``, so the pair is about as good as
    (L1, Linf), whose potential would not be strongly convex.
    """
    q = max(2.0, math.log(max(count, 1)))
    return q / (q - 1)


def pieces(*arrays: Any, written: int = 0) -> Iterator[tuple[FloatArray, ...]]:
    """Arrays of one shape (or that broadcast to it) in flat parts that stay in the processor's caches: what is made of
    a part takes no memory to speak of, however large the arrays are.

    The first ``written`` arrays may be changed through their parts, one part at a time.
    """
    if math.prod(np.broadcast_shapes(*(np.shape(array) for array in arrays))) <= PIECE and not written:
        joined = np.broadcast_arrays(*arrays)
        yield tuple(array.reshape(-1) for array in joined)
        return
    flags: list[Any] = [["readwrite"]] * written + [["readonly"]] * (len(arrays) - written)
    with np.nditer(
        arrays, ["external_loop", "buffered", "zerosize_ok", "delay_bufalloc"], flags, buffersize=PIECE, order="C"
    ) as parts:
        parts.reset()
        for part in parts:
            found: Any = part if len(arrays) > 1 else (part,)
            yield found


def vector_norm(magnitudes: npt.ArrayLike, p: float, copies: int = 1) -> float:
    """``(sum m^p / copies)^(1/p)`` of magnitudes, each of which stands ``copies`` times; the largest for p = inf.

    Magnitudes are divided by the largest first, so that no power overflows and none that matters underflows.
    """
    m = np.asarray(magnitudes, dtype=np.float64).reshape(-1)
    largest = max(float(m.max()), -float(m.min())) if m.size else 0.0
    if largest == 0.0 or p == math.inf:
        return largest
    if p == 1:
        return float(np.abs(m).sum()) / copies
    total = 0.0
    for (piece,) in pieces(m):
        size = np.abs(piece)
        size /= largest
        size **= p
        total += float(size.sum())
    return float(largest * (total / copies) ** (1 / p))


def row_norms(array: Any, side: Side = "rows") -> FloatArray:
    """Euclidean norms of the rows (or columns) of a matrix, dense or CSR."""
    if isinstance(array, csr_array):
        rows, columns = array.shape
        owner = np.repeat(np.arange(rows), np.diff(array.indptr)) if side == "rows" else array.indices
        squares = np.bincount(owner, np.square(array.data.astype(np.float64)), rows if side == "rows" else columns)
        return np.sqrt(squares)
    matrix = np.asarray(array, dtype=np.float64)
    result: FloatArray = np.sqrt(np.einsum("ij,ij->i" if side == "rows" else "ij,ij->j", matrix, matrix))
    return result


def singular_values(array: Any) -> FloatArray:
    """Singular values of a matrix, dense or CSR (made dense), by the backward stable LAPACK driver."""
    dense = array.toarray() if isinstance(array, csr_array) else array
    result: FloatArray = svdvals(np.asarray(dense, dtype=np.float64), overwrite_a=isinstance(array, csr_array))
    return result


@dataclass(frozen=True)
class Norm:
    """A norm by its family and exponent; ``side`` tells whose Euclidean norms a group norm takes."""

    family: Family
    p: float
    side: Side | None = None

    @property
    def name(self) -> str:
        """As facts name it: ``lp:1.1``, ``group:rows:1.2``, ``schatten:1.3``."""
        return ":".join([self.family, *([self.side] if self.side else []), repr(self.p)])

    @classmethod
    def parse(cls, name: str) -> Norm:
        """The norm that a name stands for.

        Raises:
            ValueError: when it stands for none.
        """
        match name.split(":"):
            case ["lp" | "schatten" as family, p]:
                norm = cls("lp" if family == "lp" else "schatten", float(p))
            case ["group", "rows" | "columns" as side, p]:
                norm = cls("group", float(p), "rows" if side == "rows" else "columns")
            case _:
                raise ValueError("not a norm")
        if not 1 <= norm.p < math.inf:
            raise ValueError("a norm's exponent is at least 1")
        return norm

    def magnitudes(self, array: Any) -> FloatArray:
        """Absolute values for the l_p norm; ``array`` is dense, or CSR whose absent entries are zero."""
        if self.family == "group":
            return row_norms(array, self.side or "rows")
        if self.family == "schatten":
            return singular_values(array)
        entries = array.data if isinstance(array, csr_array) else array
        return np.abs(np.asarray(entries, dtype=np.float64)).reshape(-1)

    def of(self, array: Any, copies: int = 1) -> float:
        """The norm of an array whose magnitudes each stand ``copies`` times."""
        return vector_norm(self.magnitudes(array), self.p, copies)
