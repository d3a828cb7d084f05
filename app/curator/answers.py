"""The answers that a session has given, by the digests of their queries, in little memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from app.spaces.tensor import Array, FloatArray

#: What an answer takes in memory, about: in a dictionary, with a digest and a pair of numbers of its own; and settled.
RECENT_BYTES = 256
SETTLED_BYTES = 48
#: Answers that stay in the dictionary, and how many more for each one that is settled: settling passes over all.
_RECENT = 512
_SHARE = 1 / 16
_DIGEST_BYTES, _HEAD_BYTES = 32, 8

#: Value, and error bound where there is one.
Given = tuple[float, float | None]


class FirstAnswers:
    """Value and error bound by SHA-256 digest: the latest ones in a dictionary, the others in sorted arrays.

    An answer is looked up for every query that comes, and kept as long as its session is in memory. Arrays take a fifth
    of what a dictionary does, and are written to a snapshot and read from it as they are.
    """

    def __init__(self) -> None:
        self._recent: dict[bytes, Given] = {}
        #: Sorted by the first eight bytes of the digests, with the others and the numbers beside them.
        self._heads = np.zeros(0, np.uint64)
        self._tails = np.zeros((0, _DIGEST_BYTES - _HEAD_BYTES), np.uint8)
        self._told = np.zeros((0, 2))

    def __len__(self) -> int:
        return len(self._recent) + len(self._heads)

    @property
    def nbytes(self) -> int:
        """About what they take in memory."""
        return RECENT_BYTES * len(self._recent) + SETTLED_BYTES * len(self._heads)

    def get(self, digest: bytes) -> Given | None:
        """The answer to the query of this digest, if there is one."""
        found = self._recent.get(digest)
        if found is not None or not len(self._heads):
            return found
        head, tail = int.from_bytes(digest[:_HEAD_BYTES], "little"), digest[_HEAD_BYTES:]
        at = int(self._heads.searchsorted(np.uint64(head)))
        while at < len(self._heads) and int(self._heads[at]) == head:
            if self._tails[at].tobytes() == tail:
                value, bound = self._told[at].tolist()
                return value, None if math.isnan(bound) else bound
            at += 1
        return None

    def add(self, digest: bytes, value: float, error_bound: float | None) -> None:
        """Keep the first answer to a query."""
        self._recent[digest] = (value, error_bound)
        if len(self._recent) > max(_RECENT, _SHARE * len(self._heads)):
            self._settle()

    def add_all(self, answers: Sequence[tuple[bytes, float, float | None]]) -> None:
        """The same of many at once: digest, value and error bound of each."""
        for digest, value, error_bound in answers:
            self._recent[digest] = (value, error_bound)
        if len(self._recent) > _RECENT:
            self._settle()

    def arrays(self) -> tuple[Array, FloatArray]:
        """All of them: digests, a row of bytes each, and value and error bound (NaN for none) beside them."""
        self._settle()
        heads = self._heads.astype("<u8").view(np.uint8).reshape(-1, _HEAD_BYTES)
        return np.concatenate([heads, self._tails], axis=1), self._told

    @classmethod
    def of(cls, digests: Array, told: FloatArray) -> FirstAnswers:
        """What :meth:`arrays` gave.

        Raises:
            ValueError: when the arrays are no such pair.
        """
        if digests.shape != (len(told), _DIGEST_BYTES) or told.shape != (len(digests), 2):
            raise ValueError("answers are a digest and two numbers each")
        made = cls()
        made._insert(digests, told)
        return made

    def _settle(self) -> None:
        """Put what is in the dictionary where it belongs in the arrays."""
        if self._recent:
            digests = np.frombuffer(b"".join(self._recent), np.uint8).reshape(-1, _DIGEST_BYTES)
            # No bound is NaN here; one that is known is finite.
            self._insert(digests, np.array(list(self._recent.values()), dtype=np.float64))
            self._recent = {}

    def _insert(self, digests: Array, told: FloatArray) -> None:
        heads = np.ascontiguousarray(digests[:, :_HEAD_BYTES]).view("<u8").reshape(-1).astype(np.uint64)
        order = np.argsort(heads, kind="stable")
        heads = heads[order]
        at = self._heads.searchsorted(heads)
        self._heads = np.insert(self._heads, at, heads)
        self._tails = np.insert(self._tails, at, digests[order, _HEAD_BYTES:], axis=0)
        self._told = np.insert(self._told, at, told[order], axis=0)
