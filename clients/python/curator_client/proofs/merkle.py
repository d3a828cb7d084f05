"""The Merkle tree of RFC 6962, section 2: leaves in their order under one hash, which tells of every later change.

A tree only grows. Its *complete subtrees* never change once they are complete: the one of ``level`` l and ``number`` i
has the leaves from i 2^l up to (i + 1) 2^l. Every tree hash, and every hash of a proof, is made of at most log2(n) of
them, so that whoever keeps their hashes proves anything about any size with so many readings. Reading is
:class:`Subtrees`; nothing here does it.

Proofs are checked by the algorithms of RFC 9162, sections 2.1.3.2 and 2.1.4.2, which take the tree's hashes from
nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

HASH_BYTES = 32
#: The tree hash of no leaves.
EMPTY_ROOT = hashlib.sha256(b"").digest()


class ProofRefused(ValueError):
    """A proof does not show what it is to show."""


class Subtree(NamedTuple):
    """A complete subtree, by its height over the leaves and its number among those of the same height."""

    level: int
    number: int


class Subtrees(Protocol):
    """Reads hashes of complete subtrees."""

    def __call__(self, places: Sequence[Subtree]) -> Sequence[bytes]:
        """Their hashes, in the same order."""


def leaf_hash(data: bytes) -> bytes:
    """The hash of a leaf."""
    return hashlib.sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash over two subtrees."""
    return hashlib.sha256(b"\1" + left + right).digest()


def peaks(start: int, end: int) -> list[Subtree]:
    """The largest complete subtrees over the leaves from ``start`` up to ``end``, left to right.

    ``start`` is a multiple of a power of two that is not below ``end - start``, as with every node of a tree.
    """
    found: list[Subtree] = []
    while start < end:
        level = (end - start).bit_length() - 1
        found.append(Subtree(level, start >> level))
        start += 1 << level
    return found


def join(hashes: Sequence[bytes]) -> bytes:
    """The hash of a tree from those of its peaks, left to right."""
    if not hashes:
        return EMPTY_ROOT
    joined = hashes[-1]
    for left in reversed(hashes[:-1]):
        joined = node_hash(left, joined)
    return joined


def root(size: int, read: Subtrees) -> bytes:
    """The tree hash of the first ``size`` leaves."""
    return join(read(peaks(0, size)))


class Frontier:
    """A growing tree of which the peaks are kept, and nothing else.

    Args:
        size: the number of leaves so far.
        hashes: those of the peaks, left to right.
    """

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        self.size, self._peaks = size, list(hashes)

    def append(self, leaf: bytes) -> list[tuple[Subtree, bytes]]:
        """Take in the hash of the next leaf; the subtrees that it completes above itself, lowest first."""
        made: list[tuple[Subtree, bytes]] = []
        level, index, top = 0, self.size, leaf
        while index & 1:
            top = node_hash(self._peaks.pop(), top)
            level, index = level + 1, index >> 1
            made.append((Subtree(level, index), top))
        self._peaks.append(top)
        self.size += 1
        return made

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """Those of the peaks, left to right."""
        return tuple(self._peaks)

    def root(self) -> bytes:
        """The tree hash of all leaves so far."""
        return join(self._peaks)


def _split(width: int) -> int:
    """How many of ``width`` > 1 leaves are under the left child: the largest power of two below."""
    return 1 << (width - 1).bit_length() - 1


def _read_nodes(spans: Sequence[tuple[int, int]], read: Subtrees) -> list[bytes]:
    """The hashes of nodes, each by its first leaf and the one after its last, in one reading."""
    places = [peaks(*span) for span in spans]
    hashes = iter(read([place for group in places for place in group]))
    return [join([next(hashes) for _ in group]) for group in places]


def inclusion_proof(index: int, size: int, read: Subtrees) -> list[bytes]:
    """PATH(index, D[size]) of RFC 6962, section 2.1.1: from the leaf's sibling up.

    Raises:
        ValueError: unless 0 <= index < size.
    """
    if not 0 <= index < size:
        raise ValueError("a leaf lies within its tree")
    start, end = 0, size
    siblings: list[tuple[int, int]] = []
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            siblings.append((middle, end))
            end = middle
        else:
            siblings.append((start, middle))
            start = middle
    return _read_nodes(siblings[::-1], read)


def consistency_proof(first: int, second: int, read: Subtrees) -> list[bytes]:
    """PROOF(first, D[second]) of RFC 6962, section 2.1.2; empty where either tree tells it all: of no leaves, or both
    of one size.

    Raises:
        ValueError: unless 0 <= first <= second.
    """
    if not 0 <= first <= second:
        raise ValueError("an earlier tree is not larger than a later one")
    if first in (0, second):
        return []
    start, end, known = 0, second, True
    nodes: list[tuple[int, int]] = []
    while first != end:
        middle = start + _split(end - start)
        if first <= middle:
            nodes.append((middle, end))
            end = middle
        else:
            nodes.append((start, middle))
            start, known = middle, False
    if not known:
        nodes.append((start, end))
    return _read_nodes(nodes[::-1], read)


def check_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Check that the leaf of this hash is number ``index`` under the tree hash ``root`` of ``size`` leaves.

    Raises:
        ProofRefused: when the proof does not show it.
    """
    _check_lengths([leaf, root, *proof])
    if not 0 <= index < size:
        raise ProofRefused("the leaf does not lie within the tree")
    node, last, found = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            raise ProofRefused("the proof is longer than the tree is high")
        if node & 1 or node == last:
            found = node_hash(sibling, found)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        node, last = node >> 1, last >> 1
    if last != 0 or found != root:
        raise ProofRefused("the leaf is not under the tree hash")


def check_consistency(first: int, second: int, proof: Sequence[bytes], old: bytes, new: bytes) -> None:
    """Check that the tree of ``second`` leaves begins with that of ``first`` leaves; ``old`` and ``new`` are their
    tree hashes.

    Raises:
        ProofRefused: when the proof does not show it.
    """
    _check_lengths([old, new, *proof])
    if not 0 <= first <= second:
        raise ProofRefused("the later tree is smaller")
    if first in (0, second):
        if proof or old != (EMPTY_ROOT if first == 0 else new):
            raise ProofRefused("trees of one size have different hashes" if not proof else "the proof is too long")
        return
    path = list(proof)
    if first & (first - 1) == 0:
        path.insert(0, old)
    if not path:
        raise ProofRefused("the proof is empty")
    node, last = first - 1, second - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    before = after = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise ProofRefused("the proof is longer than the tree is high")
        if node & 1 or node == last:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            after = node_hash(after, sibling)
        node, last = node >> 1, last >> 1
    if last != 0 or before != old or after != new:
        raise ProofRefused("the later tree does not begin with the earlier one")


def _check_lengths(hashes: Iterable[bytes]) -> None:
    if any(len(each) != HASH_BYTES for each in hashes):
        raise ProofRefused(f"a hash has {HASH_BYTES} bytes")
