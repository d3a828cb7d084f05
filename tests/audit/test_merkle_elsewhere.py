"""The Merkle tree beside another implementation of RFC 6962 (pymerkle), on random leaves."""

from __future__ import annotations

import random

import pytest
from pymerkle import InmemoryTree
from pymerkle.proof import ConsistencyProof, InclusionProof, verify_consistency, verify_inclusion

from curator_client.proofs.merkle import (
    check_consistency,
    check_inclusion,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root,
)
from tests.audit.test_log import Kept

pytestmark = pytest.mark.unit

SIZE = 140


@pytest.fixture(scope="module")
def leaves() -> list[bytes]:
    rng = random.Random(1)
    return [rng.randbytes(rng.choice([0, 1, 31, 32, 64, 300])) for _ in range(SIZE)]


@pytest.fixture(scope="module")
def theirs(leaves: list[bytes]) -> InmemoryTree:
    tree = InmemoryTree(algorithm="sha256")
    for leaf in leaves:
        tree.append_entry(leaf)
    return tree


@pytest.fixture(scope="module")
def ours(leaves: list[bytes]) -> Kept:
    return Kept(leaves)


def test_tree_hashes(ours: Kept, theirs: InmemoryTree) -> None:
    """Of every size, of no leaves too. Catches leaves and nodes that are hashed without their prefixes, and another
    split of odd sizes.
    """
    for size in range(SIZE + 1):
        assert root(size, ours) == theirs.get_root(size)


def test_inclusion(ours: Kept, theirs: InmemoryTree, leaves: list[bytes]) -> None:
    """Proofs are the same hashes in the same order, and each takes the other's. Catches a path from the root down."""
    for size in range(1, SIZE + 1, 3):
        state = theirs.get_root(size)
        for index in range(0, size, 2):
            own = inclusion_proof(index, size, ours)
            told = theirs.prove_inclusion(index + 1, size)
            assert told.path == [leaf_hash(leaves[index]), *own]
            check_inclusion(leaf_hash(leaves[index]), index, size, told.path[1:], state)
            made = InclusionProof("sha256", True, size, index + 1, told.rule, [leaf_hash(leaves[index]), *own])
            verify_inclusion(leaf_hash(leaves[index]), root(size, ours), made, index=index + 1, size=size)


def test_consistency(ours: Kept, theirs: InmemoryTree) -> None:
    """Each takes the other's tree hashes under its own proofs: how they write these differs. Catches an earlier tree
    that is another one than the one of that size.
    """
    for second in range(1, SIZE + 1, 5):
        for first in range(1, second + 1, 4):
            old, new = theirs.get_root(first), theirs.get_root(second)
            check_consistency(first, second, consistency_proof(first, second, ours), old, new)
            told: ConsistencyProof = theirs.prove_consistency(first, second)
            verify_consistency(root(first, ours), root(second, ours), told, first, second)
