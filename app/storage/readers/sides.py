"""Nodes of one side as the unit of privacy: of each node's edges no more are kept than is declared.

Which ones depends on that node's own edges and on a random key, and on nothing else: the node's edges are ranked by
AES-256(key, node and other end), and the first of them are kept. A block holds both ends in full, and a block cipher
gives different blocks different ranks, so that there are no ties. So a node whose edges are added or removed brings or
takes so many edges at most, and moves those of no other node (docs/privacy.md, section 2.2).

Weights decide nothing: a node whose weights change keeps the same edges.

The key is made for one file and forgotten with it: nothing is ever ranked again. Edges are ten million and more, and of
two numbers each: a cipher ranks a block of them at once, where :mod:`.persons` hashes texts one by one.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from app.storage.readers.columns import BATCH_ROWS
from app.storage.readers.persons import places

KEY_BYTES = 32


def kept_of_each(nodes: NDArray[np.int64], ends: NDArray[np.int64], most: int, key: bytes) -> NDArray[np.bool_]:
    """Which edges are among the first of their node.

    Args:
        nodes: of each edge the end that it belongs to, from 0.
        ends: the other end of each; no edge twice.
        most: how many edges of a node are kept.
        key: random bytes that do not depend on the data, ``KEY_BYTES`` of them.
    """
    keep: NDArray[np.bool_] = np.bincount(nodes)[nodes] <= most if len(nodes) else np.ones(0, np.bool_)
    ranked = np.flatnonzero(~keep)
    if not len(ranked):
        return keep
    whose = nodes[ranked]
    ranks = _ranks(whose, ends[ranked], key)
    order = np.lexsort((ranks[:, 1], ranks[:, 0], whose))
    keep[ranked[order]] = places(whose[order]) < most
    return keep


def _ranks(nodes: NDArray[np.int64], ends: NDArray[np.int64], key: bytes) -> NDArray[np.uint64]:
    """For each edge its block of 128 bits, enciphered, as two numbers of which the first counts more."""
    # Each block by itself: what is wanted is one permutation of blocks, and nothing is hidden by it.
    encryptor = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305
    found = np.empty((len(nodes), 2), np.uint64)
    for start in range(0, len(nodes), BATCH_ROWS):
        part = slice(start, start + BATCH_ROWS)
        blocks = np.column_stack((nodes[part], ends[part])).astype("<u8")
        found[part] = np.frombuffer(encryptor.update(blocks.tobytes()), ">u8").reshape(-1, 2)
    return found
