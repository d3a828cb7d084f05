"""Hashes kept in tiles, against the tree by its definition."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_client.proofs.merkle import Subtree, consistency_proof, inclusion_proof, root
from curator_client.proofs.tiles import TILE_BYTES, WIDTH, Tile, begun, grown, home, subtree_hash
from tests.audit.test_log import mth

pytestmark = pytest.mark.unit


def leaf(number: int) -> bytes:
    return hashlib.sha256(b"\0" + b"%d" % number).digest()


def tree(sizes: Sequence[int]) -> dict[Tile, bytes]:
    """The tiles of a tree that grew to some sizes, one after another."""
    tiles: dict[Tile, bytes] = {}
    before = 0
    for size in sizes:
        added = b"".join(leaf(number) for number in range(before, size))
        tiles |= grown(before, {tile: tiles[tile] for tile in begun(before)}, added)
        before = size
    return tiles


def reader(tiles: dict[Tile, bytes]):  # type: ignore[no-untyped-def]
    return lambda places: [subtree_hash(place, tiles[home(place)]) for place in places]


@given(st.lists(st.integers(0, 700), min_size=1, max_size=5), st.data())
def test_however_it_grows_it_is_the_tree(sizes: list[int], data: st.DataObject) -> None:
    """Catches hashes that depend on how many leaves came at a time, tiles that are lost or told complete too early, and
    subtrees within a tile, or above one, that are not the tree's.
    """
    sizes = sorted(sizes)
    tiles, size = tree(sizes), sizes[-1]
    assert tiles == tree([size])
    assert set(begun(size)) == {tile for tile, held in tiles.items() if len(held) < TILE_BYTES}
    earlier = data.draw(st.integers(0, size))
    assert root(earlier, reader(tiles)) == mth([b"%d" % number for number in range(earlier)])


def test_three_levels_of_tiles() -> None:
    """A tree of more than 256 complete tiles, by hashing all of its levels. Catches wrong numbers of higher tiles."""
    size = WIDTH * WIDTH + 2 * WIDTH + 5
    tiles = tree([WIDTH * WIDTH - 1, WIDTH * WIDTH + WIDTH, size])
    assert begun(size) == [Tile(0, WIDTH + 2), Tile(1, 1), Tile(2, 0)]
    assert {tile: len(tiles[tile]) // 32 for tile in begun(size)} == {(0, 258): 5, (1, 1): 2, (2, 0): 1}
    levels = [[leaf(number) for number in range(size)]]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = zip(below[::2], below[1::2], strict=False)
        levels.append([hashlib.sha256(b"\1" + left + right).digest() for left, right in pairs])
    for level, hashes in enumerate(levels):
        for number in {0, len(hashes) // 2, len(hashes) - 1} if hashes else ():
            assert reader(tiles)([Subtree(level, number)]) == [hashes[number]]
    # Proofs ask for what is there, and for nothing else.
    for first in (1, WIDTH, WIDTH * WIDTH - 3, size - 1):
        consistency_proof(first, size, reader(tiles))
        inclusion_proof(first, size, reader(tiles))


def test_what_a_tile_lacks_is_refused() -> None:
    """Catches a hash over fewer leaves than a subtree has, and growth on top of a hole."""
    tiles = tree([5])
    with pytest.raises(LookupError):
        subtree_hash(Subtree(1, 2), tiles[Tile(0, 0)])
    with pytest.raises(LookupError):
        subtree_hash(Subtree(0, 5), tiles[Tile(0, 0)])
    with pytest.raises(LookupError):
        grown(6, tiles, leaf(6))
    # What another process has added meanwhile is not looked at.
    assert grown(3, tiles, leaf(3)) == tree([4])
