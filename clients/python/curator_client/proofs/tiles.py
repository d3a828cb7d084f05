"""The hashes of a Merkle tree in tiles, as https://c2sp.org/tlog-tiles has them: few rows for many leaves.

A tile has the hashes of up to 256 leaves (level 0), or of 256 complete tiles of the level below, one after another.
Number n of a level has those from n * 256 on. It is complete with 256 hashes, and then never changes; the last one of
each level grows at its end. The hashes between two levels of tiles are in none of them: they are computed while they
are read, from at most 255 of a tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from curator_client.proofs.merkle import HASH_BYTES, Subtree

#: Levels of the tree within a tile, and hashes of a complete tile.
HEIGHT = 8
WIDTH = 1 << HEIGHT
TILE_BYTES = WIDTH * HASH_BYTES


class Tile(NamedTuple):
    """A tile, by its level and its number among those of the level."""

    level: int
    number: int


def home(place: Subtree) -> Tile:
    """The tile from which the hash of a complete subtree is made."""
    level, height = divmod(place.level, HEIGHT)
    return Tile(level, place.number << height >> HEIGHT)


def subtree_hash(place: Subtree, tile: bytes) -> bytes:
    """The hash of a complete subtree, from the hashes of its :func:`home`.

    Raises:
        LookupError: when the tile does not reach so far.
    """
    height = place.level % HEIGHT
    start = (place.number << height) % WIDTH * HASH_BYTES
    held = tile[start : start + (HASH_BYTES << height)]
    if len(held) != HASH_BYTES << height:
        raise LookupError(f"the tile lacks hashes of the subtree {tuple(place)}")
    return _fold(held)


def begun(size: int) -> list[Tile]:
    """The tiles of a tree of ``size`` leaves that are begun and not complete, one a level at most."""
    found, level = [], 0
    while size:
        if size % WIDTH:
            found.append(Tile(level, size >> HEIGHT))
        level, size = level + 1, size >> HEIGHT
    return found


def grown(size: int, tiles: Mapping[Tile, bytes], leaves: bytes) -> dict[Tile, bytes]:
    """The tiles that change when a tree of ``size`` leaves grows, as they are then.

    Args:
        size: leaves before.
        tiles: those of :func:`begun`. What has come to them since is not looked at.
        leaves: the hashes of the leaves that are added, one after another.

    Raises:
        LookupError: when a tile lacks hashes.
    """
    changed: dict[Tile, bytes] = {}
    level = 0
    while leaves:
        number, held = divmod(size, WIDTH)
        before = tiles[Tile(level, number)][: held * HASH_BYTES] if held else b""
        if len(before) != held * HASH_BYTES:
            raise LookupError(f"tile {number} of level {level} lacks hashes")
        hashes, complete = before + leaves, []
        for start in range(0, len(hashes), TILE_BYTES):
            part = hashes[start : start + TILE_BYTES]
            changed[Tile(level, number)] = part
            if len(part) == TILE_BYTES:
                complete.append(_fold(part))
            number += 1
        level, size, leaves = level + 1, size >> HEIGHT, b"".join(complete)
    return changed


def _fold(hashes: bytes) -> bytes:
    """The hash over a power of two of hashes."""
    step = 2 * HASH_BYTES
    while len(hashes) > HASH_BYTES:
        # As :func:`~curator_client.proofs.merkle.node_hash` does: one for each leaf that comes in, so it stands here
        # once more.
        hashes = b"".join([sha256(b"\1" + hashes[at : at + step]).digest() for at in range(0, len(hashes), step)])
    return hashes
