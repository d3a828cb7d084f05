"""Inner products of many kept vectors over the nodes of a graph with a new one, under several weightings.

Most vectors are sets. These are kept as bits, node by node, so that a product takes time by the nodes of the new
vector alone: of a million nodes 1,500 sets take 188 megabytes, and one is never written out.
"""

from __future__ import annotations

import numpy as np

from app.spaces.tensor import Axis, FloatArray

#: Bits are unpacked for about so many entries at a time.
_BLOCK = 1 << 21
#: Room is made for so many sets at a time at least.
_LEAST = 64
#: Bytes of vectors that are no sets which are kept at most.
MOST_REAL = 64 << 20


class Columns:
    """Vectors over so many nodes, in the order in which they were added."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._bits = np.zeros((length, 0), np.uint8)
        self._sets: list[int] = []
        self._real: list[tuple[int, FloatArray]] = []
        self.count = 0

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return self._bits.nbytes + 8 * self._length * len(self._real)

    def working_bytes(self, places: int) -> int:
        """Bytes that products with a vector of so many places take for a while, and room for one more set if there is
        none.
        """
        full = len(self._sets) == 8 * self._bits.shape[1]
        room = self._length * max(_LEAST // 8, 2 * self._bits.shape[1]) if full else 0
        return room + 16 * min(_BLOCK, (places + 1) * (len(self._sets) + 8))

    def has_room(self, side: Axis) -> bool:
        """Whether a vector may be added: any set, and others while they are few."""
        return side.weights is None or 8 * self._length * (len(self._real) + 1) <= MOST_REAL

    def add(self, side: Axis) -> None:
        """Keep one more."""
        if side.weights is None:
            place = len(self._sets)
            if place == 8 * self._bits.shape[1]:
                wider = np.zeros((self._length, max(_LEAST // 8, 2 * self._bits.shape[1])), np.uint8)
                wider[:, : self._bits.shape[1]] = self._bits
                self._bits = wider
            self._bits[side.places, place // 8] |= np.uint8(1 << place % 8)
            self._sets.append(self.count)
        else:
            self._real.append((self.count, side.real_vector()))
        self.count += 1

    def products(self, side: Axis, weightings: FloatArray) -> FloatArray:
        """For each weighting (a row, a weight for each node) the weighted inner products with all vectors."""
        found = np.zeros((len(weightings), self.count))
        weighed = weightings[:, side.places] * side.own
        if self._sets:
            wide = -(-len(self._sets) // 8)
            sums = np.zeros((len(weightings), 8 * wide))
            step = max(1, _BLOCK // (8 * wide))
            for start in range(0, len(side.places), step):
                held = self._bits[side.places[start : start + step], :wide]
                told = np.unpackbits(held, axis=1, bitorder="little").astype(np.float64)
                # Not by a library that begins threads, which wait for one another where several lanes are busy: this is
                # as fast as it is with one of them.
                sums += np.einsum("wp,pc->wc", weighed[:, start : start + step], told)
            found[:, self._sets] = sums[:, : len(self._sets)]
        for place, vector in self._real:
            found[:, place] = weighed @ vector[side.places]
        return found
