"""The answers that a session has given, by the digests of their queries, in little memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from app.spaces.tensor import Array

#: What an answer takes in memory, about: in the dictionary, with a digest, a value and a bound of its own; and packed.
RECENT_BYTES = 256
PACKED_BYTES = 60
#: Answers that stay in the dictionary, and how many more for each one that is packed: packing passes over all.
_RECENT = 512
_SHARE = 1 / 16
_DIGEST_BYTES, _HEAD_BYTES = 32, 8

#: Values in units of the answer grid, and error bound where there is one.
Given = tuple[npt.NDArray[np.int64], float | None]


class FirstAnswers:
    """Values and error bound by SHA-256 digest: the latest ones in a dictionary, the others in sorted arrays.

    An answer is looked up for every query that comes, and kept as long as its session is in memory. Arrays take a
    quarter of what a dictionary does, and are written to a snapshot and read from it as they are.
    """

    def __init__(self) -> None:
        #: Values as little-endian int64, and bound.
        self._recent: dict[bytes, tuple[bytes, float | None]] = {}
        self._recent_bytes = 0
        #: Sorted by the first eight bytes of the digests; beside these the other bytes, the bound (NaN for none), and
        #: where the values begin among all values, and how many they are.
        self._heads = np.zeros(0, np.uint64)
        self._tails = np.zeros((0, _DIGEST_BYTES - _HEAD_BYTES), np.uint8)
        self._bounds = np.zeros(0)
        self._starts = np.zeros(0, np.int64)
        self._sizes = np.zeros(0, np.int32)
        self._units = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._recent) + len(self._heads)

    @property
    def nbytes(self) -> int:
        """About what they take in memory."""
        more = self._recent_bytes + self._units.nbytes - 8 * len(self)
        return RECENT_BYTES * len(self._recent) + PACKED_BYTES * len(self._heads) + max(0, more)

    def get(self, digest: bytes) -> Given | None:
        """The answer to the query of this digest, if there is one."""
        found = self._recent.get(digest)
        if found is not None:
            return np.frombuffer(found[0], "<i8"), found[1]
        if not len(self._heads):
            return None
        head, tail = int.from_bytes(digest[:_HEAD_BYTES], "little"), digest[_HEAD_BYTES:]
        at = int(self._heads.searchsorted(np.uint64(head)))
        while at < len(self._heads) and int(self._heads[at]) == head:
            if self._tails[at].tobytes() == tail:
                start, bound = int(self._starts[at]), float(self._bounds[at])
                return self._units[start : start + int(self._sizes[at])], None if math.isnan(bound) else bound
            at += 1
        return None

    def add(self, digest: bytes, units: npt.NDArray[np.int64], error_bound: float | None) -> None:
        """Keep the first answer to a query."""
        self._add(digest, units.astype("<i8", copy=False).tobytes(), error_bound)
        if len(self._recent) > max(_RECENT, _SHARE * len(self._heads)):
            self._pack()

    def add_all(self, answers: Sequence[tuple[bytes, bytes, float | None]]) -> None:
        """The same of many at once: digest, values (little-endian int64) and error bound of each."""
        for digest, units, error_bound in answers:
            self._add(digest, units, error_bound)
        if len(self._recent) > _RECENT:
            self._pack()

    def arrays(self) -> dict[str, Array]:
        """All of them, to be read again by :meth:`of`: a row of bytes for each digest, and beside it the bound, and the
        start and the number of its values among all values.
        """
        self._pack()
        heads = self._heads.astype("<u8").view(np.uint8).reshape(-1, _HEAD_BYTES)
        return {
            "digests": np.concatenate([heads, self._tails], axis=1),
            "bounds": self._bounds,
            "starts": self._starts,
            "sizes": self._sizes,
            "units": self._units,
        }

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> FirstAnswers:
        """Answers from what :meth:`arrays` gave.

        Raises:
            KeyError, ValueError: when they are no such arrays.
        """
        digests, bounds, units = arrays["digests"], arrays["bounds"], arrays["units"]
        starts, sizes = arrays["starts"], arrays["sizes"]
        if not digests.shape == (len(bounds), _DIGEST_BYTES) or not bounds.shape == starts.shape == sizes.shape:
            raise ValueError("an answer is a digest, a bound and a span of values")
        if units.ndim != 1 or (len(starts) and not (starts.min() >= 0 and (starts + sizes).max() <= len(units))):
            raise ValueError("the values of an answer lie among all values")
        made = cls()
        made._insert(digests, bounds, starts, sizes)
        made._units = units.astype(np.int64, copy=False)
        return made

    def _add(self, digest: bytes, units: bytes, error_bound: float | None) -> None:
        self._recent[digest] = units, error_bound
        self._recent_bytes += len(units)

    def _pack(self) -> None:
        """Put what is in the dictionary where it belongs in the arrays."""
        if not self._recent:
            return
        digests = np.frombuffer(b"".join(self._recent), np.uint8).reshape(-1, _DIGEST_BYTES)
        told = list(self._recent.values())
        sizes = np.array([len(units) // 8 for units, _ in told], np.int32)
        starts = len(self._units) + np.cumsum(sizes, dtype=np.int64) - sizes
        # No bound is NaN here; one that is known is finite.
        self._insert(digests, np.array([bound for _, bound in told], dtype=np.float64), starts, sizes)
        self._units = np.concatenate([self._units, np.frombuffer(b"".join(units for units, _ in told), "<i8")])
        self._recent, self._recent_bytes = {}, 0

    def _insert(self, digests: Array, bounds: Array, starts: Array, sizes: Array) -> None:
        heads = np.ascontiguousarray(digests[:, :_HEAD_BYTES]).view("<u8").reshape(-1).astype(np.uint64)
        order = np.argsort(heads, kind="stable")
        heads = heads[order]
        at = self._heads.searchsorted(heads)
        self._heads = np.insert(self._heads, at, heads)
        self._tails = np.insert(self._tails, at, digests[order, _HEAD_BYTES:], axis=0)
        self._bounds = np.insert(self._bounds, at, bounds[order])
        self._starts = np.insert(self._starts, at, starts[order])
        self._sizes = np.insert(self._sizes, at, sizes[order])
