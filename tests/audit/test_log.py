"""The Merkle tree, its proofs, signed checkpoints, and the auditor who follows a log; by published vectors and by the
definitions of RFC 6962, written down once more as they stand there.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from curator_client.proofs.follower import Follower, LinesRefused, LogForked, LogShrank
from curator_client.proofs.merkle import (
    EMPTY_ROOT,
    Frontier,
    ProofRefused,
    Subtree,
    check_consistency,
    check_inclusion,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    peaks,
    root,
)
from curator_client.proofs.notes import Checkpoint, NoteMalformed, NoteRefused, NoteUnsigned, Signer, Verifier

pytestmark = pytest.mark.unit

#: The leaves that implementations of Certificate Transparency test with, and the tree hashes after each.
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
#: Published proofs: leaf and size, or two sizes, and the hashes.
INCLUSIONS = {
    (0, 1): [],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
}
CONSISTENCIES = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
}
MOST = 64
MANY = [f"leaf {number}".encode() for number in range(MOST)]


def h(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def mth(leaves: Sequence[bytes]) -> bytes:
    """Section 2.1, word for word."""
    if not leaves:
        return h(b"")
    if len(leaves) == 1:
        return h(b"\x00" + leaves[0])
    k = split(len(leaves))
    return h(b"\x01" + mth(leaves[:k]) + mth(leaves[k:]))


def split(n: int) -> int:
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def path(m: int, leaves: Sequence[bytes]) -> list[bytes]:
    """Section 2.1.1, word for word."""
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if m < k:
        return [*path(m, leaves[:k]), mth(leaves[k:])]
    return [*path(m - k, leaves[k:]), mth(leaves[:k])]


def subproof(m: int, leaves: Sequence[bytes], whole: bool) -> list[bytes]:
    """Section 2.1.2, word for word."""
    n = len(leaves)
    if m == n:
        return [] if whole else [mth(leaves)]
    k = split(n)
    if m <= k:
        return [*subproof(m, leaves[:k], whole), mth(leaves[k:])]
    return [*subproof(m - k, leaves[k:], False), mth(leaves[:k])]


class Kept:
    """Complete subtrees as a growing tree told of them; counts what is read."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.hashes: dict[Subtree, bytes] = {}
        self.tree, self.roots, self.most = Frontier(), [EMPTY_ROOT], 0
        for number, leaf in enumerate(leaves):
            self.hashes[Subtree(0, number)] = leaf_hash(leaf)
            self.hashes.update(self.tree.append(leaf_hash(leaf)))
            self.roots.append(self.tree.root())

    def __call__(self, places: Sequence[Subtree]) -> list[bytes]:
        self.most = max(self.most, len(places))
        return [self.hashes[place] for place in places]


KEPT = Kept(MANY)


def test_published_roots_and_proofs() -> None:
    """Catches prefixes left out or exchanged, and any other order of hashes than the world's."""
    kept = Kept(LEAVES)
    assert kept.roots[0].hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert [found.hex() for found in kept.roots[1:]] == ROOTS
    for (index, size), proof in INCLUSIONS.items():
        assert [each.hex() for each in inclusion_proof(index, size, kept)] == proof
    for (first, second), proof in CONSISTENCIES.items():
        assert [each.hex() for each in consistency_proof(first, second, kept)] == proof


def test_every_tree_and_proof_of_small_sizes() -> None:
    """Against the definitions. Catches a peak left out, a wrong split, a proof in another order, and a check that
    refuses what is right.
    """
    for size in range(MOST + 1):
        whole = mth(MANY[:size])
        assert KEPT.roots[size] == root(size, KEPT) == whole
        for index in range(size):
            proof = inclusion_proof(index, size, KEPT)
            assert proof == path(index, MANY[:size])
            check_inclusion(leaf_hash(MANY[index]), index, size, proof, whole)
        for first in range(size + 1):
            proof = consistency_proof(first, size, KEPT)
            assert proof == (subproof(first, MANY[:size], True) if first else [])
            check_consistency(first, size, proof, KEPT.roots[first], whole)


def test_a_tree_goes_on_from_its_peaks() -> None:
    """Catches a sequencer that cannot take over from another one."""
    for size in range(MOST):
        later = Frontier(size, KEPT(peaks(0, size)))
        made = [later.append(leaf_hash(leaf)) for leaf in MANY[size:]]
        assert later.root() == KEPT.roots[MOST]
        assert all(KEPT.hashes[place] == found for group in made for place, found in group)


def test_a_proof_takes_few_readings() -> None:
    """Catches a proof that reads as many hashes as there are leaves."""
    big = Kept([b"%d" % number for number in range(3000)])
    for size in (2048, 2049, 2999, 3000):
        for index in (0, 1, size // 3, size - 1):
            inclusion_proof(index, size, big)
            consistency_proof(index, size, big)
    assert big.most <= 24


@pytest.mark.parametrize(
    "ask",
    [
        lambda: inclusion_proof(-1, 3, KEPT),
        lambda: inclusion_proof(3, 3, KEPT),
        lambda: consistency_proof(4, 3, KEPT),
        lambda: consistency_proof(-1, 3, KEPT),
    ],
)
def test_what_cannot_be_proven(ask: Callable[[], list[bytes]]) -> None:
    with pytest.raises(ValueError, match=r"leaf|tree"):
        ask()


sizes = st.integers(1, MOST)


@st.composite
def mutated(draw: st.DrawFn, proof: list[bytes]) -> list[bytes]:
    """Another proof than this one: a bit turned over, a hash left out, one more, two exchanged."""
    kind = draw(st.sampled_from(["bit", "drop", "add", "swap"] if proof else ["add"]))
    changed = list(proof)
    at = draw(st.integers(0, max(0, len(proof) - 1)))
    if kind == "bit":
        bit = draw(st.integers(0, 255))
        number = int.from_bytes(changed[at], "big") ^ (1 << bit)
        changed[at] = number.to_bytes(32, "big")
    elif kind == "drop":
        del changed[at]
    elif kind == "add":
        changed.insert(at, draw(st.sampled_from([*proof, bytes(32), KEPT.roots[3]])))
    else:
        other = draw(st.integers(0, len(proof) - 1))
        changed[at], changed[other] = changed[other], changed[at]
    return changed


@given(st.data(), sizes)
def test_changed_proofs_of_inclusion_are_refused(data: st.DataObject, size: int) -> None:
    """Catches a check that does not look at every hash, at the length, at the number or at the leaf."""
    index = data.draw(st.integers(0, size - 1))
    proof, leaf = inclusion_proof(index, size, KEPT), leaf_hash(MANY[index])
    changed = data.draw(mutated(proof))
    if changed != proof:
        with pytest.raises(ProofRefused):
            check_inclusion(leaf, index, size, changed, KEPT.roots[size])
    other = data.draw(st.integers(-1, size))
    if other != index:
        with pytest.raises(ProofRefused):
            check_inclusion(leaf, other, size, proof, KEPT.roots[size])
        with pytest.raises(ProofRefused):
            check_inclusion(leaf_hash(b"other"), index, size, proof, KEPT.roots[size])


@given(st.data(), sizes)
def test_changed_proofs_of_consistency_are_refused(data: st.DataObject, second: int) -> None:
    """Catches a check that a log with another beginning, or a shorter one, would pass."""
    first = data.draw(st.integers(1, second))
    proof = consistency_proof(first, second, KEPT)
    changed = data.draw(mutated(proof))
    if changed != proof:
        with pytest.raises(ProofRefused):
            check_consistency(first, second, changed, KEPT.roots[first], KEPT.roots[second])
    for old, new in ((bytes(32), KEPT.roots[second]), (KEPT.roots[first], bytes(32))):
        with pytest.raises(ProofRefused):
            check_consistency(first, second, proof, old, new)
    if first < second:
        with pytest.raises(ProofRefused):
            check_consistency(second, first, proof, KEPT.roots[second], KEPT.roots[first])


# ------------------------------------------------------------------------------------------------------------ notes

SIGNER = Signer(bytes(range(32)), "example.org/log")
NOTE = SIGNER.note(3, KEPT.roots[3])


def test_a_note_is_written_as_specified() -> None:
    """By the specification's own words, with another reading of them. Catches a wrong hash of the key, a dash of
    another width, a signature of another text.
    """
    text, below = NOTE.decode().split("\n\n")
    assert text + "\n" == f"example.org/log\n3\n{base64.b64encode(KEPT.roots[3]).decode()}\n"
    dash, name, data = below.removesuffix("\n").split(" ")
    assert (dash, name) == ("—", "example.org/log")
    public = SIGNER.verifier.public_key
    raw = base64.b64decode(data)
    assert raw[:4] == hashlib.sha256(b"example.org/log\n\x01" + public).digest()[:4]
    Ed25519PublicKey.from_public_bytes(public).verify(raw[4:], (text + "\n").encode())
    assert SIGNER.verifier.text() == f"{name}+{raw[:4].hex()}+{base64.b64encode(bytes([1]) + public).decode()}"


def test_a_verifier_of_the_go_checksum_database() -> None:
    """A key and its hash as the world knows them (golang.org/x/mod/sumdb/note). Catches a key's hash of our own."""
    known = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    verifier = Verifier.parse(known)
    assert verifier.text() == known
    text = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
    signature = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
    note = f"{text}\n— PeterNeumann {signature}\n".encode()
    assert verifier.open(note) == text
    with pytest.raises(NoteUnsigned):
        verifier.open(note.replace(b"answer", b"Answer"))


def test_notes_and_keys_come_back() -> None:
    """Catches a parser that does not take what is written; another signature may stand beside."""
    verifier = Verifier.parse(SIGNER.verifier.text())
    assert verifier == SIGNER.verifier
    assert verifier.checkpoint(NOTE) == Checkpoint("example.org/log", 3, KEPT.roots[3])
    witnessed = NOTE + b"\xe2\x80\x94 witness " + base64.b64encode(bytes(40)) + b"\n"
    assert verifier.checkpoint(witnessed) == verifier.checkpoint(NOTE)


def test_an_origin_made_of_the_key() -> None:
    """Catches two services of one name, and a key in what is shown of its signer."""
    made = Signer(bytes(32))
    assert made.verifier.name.startswith("curator/")
    assert made.verifier.name != Signer(bytes(31) + b"\1").verifier.name
    assert made.verifier.checkpoint(made.note(0, EMPTY_ROOT)).size == 0
    assert "seed" not in repr(made)


@given(st.integers(0, len(NOTE) - 1), st.integers(1, 255))
def test_a_changed_note_is_refused(at: int, change: int) -> None:
    """Any byte of a note. Catches base64 of several spellings, and text that no signature covers."""
    changed = NOTE[:at] + bytes([NOTE[at] ^ change]) + NOTE[at + 1 :]
    with pytest.raises(NoteRefused):
        SIGNER.verifier.checkpoint(changed)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_other_bytes_are_a_note(data: bytes) -> None:
    """Catches another error than a refusal."""
    with pytest.raises(NoteRefused):
        SIGNER.verifier.checkpoint(data)
    with pytest.raises(NoteRefused):
        Verifier.parse(data.decode(errors="replace"))


@pytest.mark.parametrize(
    "text", ["a\n1\n", "a\n01\nAAAA\n", "a\n-1\nAAAA\n", "a b\n1\nAAAA\n", "a\n1\nAAAA\n", "a\n1\nx\n"]
)
def test_malformed_checkpoints(text: str) -> None:
    with pytest.raises(NoteMalformed):
        Checkpoint.parse(text)


def test_a_checkpoint_of_another_log() -> None:
    """Signed with the right key, under the right name, of another origin."""
    other = Checkpoint("example.org/other", 3, KEPT.roots[3]).text()
    with pytest.raises(NoteRefused, match="not of"):
        SIGNER.verifier.checkpoint(f"{other}\n".encode() + SIGNER.sign(other))


# ----------------------------------------------------------------------------------------------------- the auditor

START = Follower(SIGNER.verifier)


def followed(size: int) -> Follower:
    return START.follow(START.look(SIGNER.note(size, KEPT.roots[size])), MANY[:size])


def test_an_auditor_follows_a_log_that_grows() -> None:
    state = START
    for size in (0, 1, 5, 5, 64):
        found = state.look(SIGNER.note(size, KEPT.roots[size]))
        before = state.seen.size if state.seen else 0
        state.check_growth(found, consistency_proof(before, size, KEPT))
        state = state.follow(found, MANY[:size])
        assert state.seen == found


def test_an_auditor_refuses_another_history() -> None:
    """All of it signed with the right key. Catches a shorter log, another one of the same size, one that grew from
    another beginning by its proof and by its lines, and lines that were left out.
    """
    state = followed(5)
    with pytest.raises(LogShrank):
        state.look(SIGNER.note(4, KEPT.roots[4]))
    with pytest.raises(LogForked):
        state.look(SIGNER.note(5, KEPT.roots[4]))
    forged = [*MANY[:4], b"forged", *MANY[5:9]]
    other = Kept(forged)
    found = state.look(SIGNER.note(9, other.roots[9]))
    with pytest.raises(LogForked):
        state.check_growth(found, consistency_proof(5, 9, other))
    with pytest.raises(LogForked):
        state.follow(found, forged)
    honest = state.look(SIGNER.note(9, KEPT.roots[9]))
    for lines in (MANY[:8], MANY[:10], [*MANY[:8], b"forged"], []):
        with pytest.raises(LinesRefused):
            state.follow(honest, lines)


def test_another_key_is_no_other_log() -> None:
    """Catches an auditor who takes whichever key signs."""
    with pytest.raises(NoteUnsigned):
        START.look(replace(SIGNER, seed=bytes(32)).note(3, KEPT.roots[3]))
