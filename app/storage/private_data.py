"""The private numbers of a data set, in one of six layouts. What it holds is never shown: not in `repr`,
not in logs.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

IntArray: TypeAlias = NDArray[np.signedinteger] | NDArray[np.unsignedinteger]

#: One element in this many is a landmark of look-ups, and how a search halves what is behind one.
_STRIDE, _HALVES = 8, (4, 2, 1)
#: About what a landmark takes beside its letters; there may be nearly as many again that stand above all.
_MARK_BYTES = 64
#: Above the UTF-8 bytes of every text.
_ABOVE = b"\xff"


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

    Attributes:
        array: of the space's shape, read-only once opened from the vault. An undirected graph is the symmetric matrix
            with zero diagonal.
        mass: the sum of |x| over the universe in data units (an unordered pair counts once).
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

    Row i holds ``data[indptr[i]:indptr[i+1]]`` at columns ``indices[indptr[i]:indptr[i+1]]``, which ascend
    strictly. ``shape``: (rows, columns). An undirected graph holds both directions of an edge and no
    diagonal. ``mass`` as in ``DenseData``.
    """

    layout: ClassVar[Literal["csr"]] = "csr"
    shape: tuple[int, int]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: IntArray
    mass: int

    def matrix(self) -> csr_array:
        """The same numbers as a SciPy array; columns and numbers are not copied."""
        # SciPy has one type for both: of wider pointers it would make a copy of all columns.
        kind = np.int32 if len(self.data) <= np.iinfo(np.int32).max else np.int64
        return csr_array((self.data, self.indices, self.indptr.astype(kind)), shape=self.shape, copy=False)

    def arrays(self) -> dict[str, IntArray]:
        """The arrays to store, by field name."""
        return {"indptr": self.indptr, "indices": self.indices, "data": self.data}


@dataclass(frozen=True, eq=False, repr=False)
class RecordsData(_Concealed):
    """The records of a table, one column an attribute.

    `columns`: for each attribute, in the order declared, an unsigned integer a record, the position of its value.
    `mass` is the number of records.
    """

    layout: ClassVar[Literal["records"]] = "records"
    columns: tuple[NDArray[np.unsignedinteger], ...]
    mass: int

    def arrays(self) -> dict[str, IntArray]:
        """The arrays to store, by field name."""
        return {f"column{i}": column for i, column in enumerate(self.columns)}


@dataclass(frozen=True, eq=False, repr=False)
class ElementsData(_Concealed):
    """A multiset of strings: distinct elements in ascending order of their UTF-8 bytes, each with its count.

    Element i is ``blob[offsets[i]:offsets[i+1]]`` and occurs ``counts[i]`` >= 1 times. ``mass`` is the sum of
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

    @property
    def nbytes(self) -> int:
        """Bytes that it takes with the landmarks of look-ups, each a text of its own."""
        own = sum(array.nbytes for array in self.arrays().values())
        marks = -(-len(self.counts) // _STRIDE)
        return own + marks * _MARK_BYTES + len(self.blob) // _STRIDE

    def lookup(self, elements: Iterable[str]) -> NDArray[np.int64]:
        """The counts of ``elements`` in their order, 0 where absent: see ``_Search``."""
        keys = [element.encode("utf-8", "surrogatepass") for element in elements]
        return np.array([self._search.count(key) for key in keys], np.int64)

    @cached_property
    def _search(self) -> "_Search":
        return _Search(self)


class _Search:
    """Binary search (about 20 comparisons in 10^6 elements, most of them among landmarks, every eighth element, which
    are at hand as bytes) that takes the same steps whether an element is there or not, be it before, between or
    behind all others: how many depends on the number of elements alone, in powers of two.
    """

    def __init__(self, data: ElementsData) -> None:
        blob, offsets, counts = data.blob, data.offsets, data.counts
        lacking = _STRIDE - len(counts)
        if lacking > 0:
            blob = np.concatenate([blob, np.full(lacking, _ABOVE[0], np.uint8)])
            offsets = np.concatenate([offsets, offsets[-1] + np.arange(1, lacking + 1)])
            counts = np.concatenate([counts, np.zeros(lacking, counts.dtype)])
        self._blob, self._offsets, self._counts = blob.data, offsets.data, counts.data
        self._last = len(counts) - _STRIDE
        marks = [bytes(self._blob[offsets[i] : offsets[i + 1]]) for i in range(_STRIDE, len(counts), _STRIDE)]
        # One less than a power of two: each search among so many takes as many comparisons.
        self._marks = marks + [_ABOVE] * ((1 << len(marks).bit_length()) - 1 - len(marks))

    def count(self, key: bytes) -> int:
        """How often an element occurs."""
        # Longer elements are cut: in what order they and the key are shows in this much.
        most = len(key) + 1
        # Of the eight elements from here on the last that is not above the key is the key, if any is.
        place = min(bisect_right(self._marks, key) * _STRIDE, self._last)
        for step in _HALVES:
            place += step * (self._element(place + step, most) <= key)
        return self._counts[place] * (self._element(place, most) == key)

    def _element(self, index: int, most: int) -> bytes:
        """So many bytes of an element, or all it has."""
        start = self._offsets[index]
        return bytes(self._blob[start : min(self._offsets[index + 1], start + most)])


@dataclass(frozen=True, eq=False, repr=False)
class SourceData(_Concealed):
    """Where the records of a table are that stay there, and what they were: JSON in UTF-8, which the source that is
    named there reads. `mass` is the number of records.
    """

    layout: ClassVar[Literal["source"]] = "source"
    about: NDArray[np.uint8]
    mass: int

    def arrays(self) -> dict[str, IntArray]:
        """The arrays to store, by field name."""
        return {"about": self.about}


@dataclass(frozen=True, eq=False, repr=False)
class CodesData(_Concealed):
    """The records of a table in a Parquet file, one column an attribute, the position of its value.

    `about`: JSON in UTF-8, which ``app/storage/readers/codes.py`` writes and the key of the file is in. `file`: it,
    open. `mass` is the number of records.
    """

    layout: ClassVar[Literal["codes"]] = "codes"
    about: NDArray[np.uint8]
    mass: int
    file: BinaryIO

    def arrays(self) -> dict[str, IntArray]:
        """The arrays to store beside the file, by field name."""
        return {"about": self.about}


PrivateData: TypeAlias = DenseData | CsrData | RecordsData | ElementsData | SourceData | CodesData
