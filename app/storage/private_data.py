"""The private array of a data set, in one of three layouts. What it holds is never shown: not in `repr`,
not in logs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

IntArray: TypeAlias = NDArray[np.signedinteger] | NDArray[np.unsignedinteger]

#: One element in this many is a landmark of look-ups.
_STRIDE = 8


class _Concealed:
    """Shows its type and nothing else, and is neither compared nor pickled, so that no value escapes by
    accident.
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(f"{type(self).__name__} is private and cannot be pickled")


@dataclass(frozen=True, eq=False, repr=False)
class DenseData(_Concealed):
    """Integers in data units, one a cell.

    `array`: shape of the space, read-only once opened from the vault. An undirected graph is the symmetric
    matrix with zero diagonal. `mass`: the sum of |x| over the universe in data units (an unordered pair
    counts once).
    """

    layout: ClassVar[Literal["dense"]] = "dense"
    array: IntArray
    mass: int

    def arrays(self) -> dict[str, IntArray]:
        """The arrays to store, by field name."""
        return {"array": self.array}


@dataclass(frozen=True, eq=False, repr=False)
class CsrData(_Concealed):
    """A sparse matrix by rows, integers in data units.

    Row i holds `data[indptr[i]:indptr[i+1]]` at columns `indices[indptr[i]:indptr[i+1]]`, which ascend
    strictly. `shape`: (rows, columns). An undirected graph holds both directions of an edge and no
    diagonal. `mass` as in `DenseData`.
    """

    layout: ClassVar[Literal["csr"]] = "csr"
    shape: tuple[int, int]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: IntArray
    mass: int

    def matrix(self) -> csr_array:
        """The same numbers as a SciPy array, not copied."""
        return csr_array((self.data, self.indices, self.indptr), shape=self.shape, copy=False)

    def arrays(self) -> dict[str, IntArray]:
        """The arrays to store, by field name."""
        return {"indptr": self.indptr, "indices": self.indices, "data": self.data}


@dataclass(frozen=True, eq=False, repr=False)
class ElementsData(_Concealed):
    """A multiset of strings: distinct elements in ascending order of their UTF-8 bytes, each with its count.

    Element i is `blob[offsets[i]:offsets[i+1]]` and occurs `counts[i]` >= 1 times. `mass` is the sum of
    the counts.
    """

    layout: ClassVar[Literal["elements"]] = "elements"
    blob: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    counts: IntArray
    mass: int

    def arrays(self) -> dict[str, IntArray]:
        """The arrays to store, by field name."""
        return {"blob": self.blob, "offsets": self.offsets, "counts": self.counts}

    def lookup(self, elements: Iterable[str]) -> NDArray[np.int64]:
        """The counts of `elements` in their order, 0 where absent, by binary search (about 20 comparisons
        in 10^6, most of them among the landmarks).
        """
        keys = [element.encode("utf-8", "surrogatepass") for element in elements]
        answer = np.zeros(len(keys), np.int64)
        sequence = _Elements(self.blob.data, self.offsets.data)
        for position, key in enumerate(keys):
            first = max(0, bisect_right(self._landmarks, key) - 1) * _STRIDE
            beyond = min(first + _STRIDE, len(sequence))
            found = bisect_left(sequence, key, first, beyond)
            if found < beyond and sequence[found] == key:
                answer[position] = self.counts[found]
        return answer

    @cached_property
    def _landmarks(self) -> list[bytes]:
        """Every eighth element, at hand as bytes: a search begins among these."""
        sequence = _Elements(self.blob.data, self.offsets.data)
        return [sequence[index] for index in range(0, len(sequence), _STRIDE)]


class _Elements:
    """The elements as a sequence of bytes, cut from the blob when asked for."""

    def __init__(self, blob: memoryview, offsets: memoryview) -> None:
        self._blob = blob
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._blob[self._offsets[index] : self._offsets[index + 1]])


PrivateData: TypeAlias = DenseData | CsrData | ElementsData
