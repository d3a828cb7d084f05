"""Cosignatures of witnesses and changes of a log's key: by the formats' own words, written down once more here, and by
everything that must be refused.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from app.audit.log import key_record
from curator_client.proofs.follower import Follower, LinesRefused, LogForked
from curator_client.proofs.key_changes import KeyChange, statement_in, vouched
from curator_client.proofs.notes import (
    Checkpoint,
    NoteMalformed,
    NoteRefused,
    NoteUnsigned,
    Signer,
    Verifier,
    Witness,
    WitnessVerifier,
)
from tests.audit.test_log import KEPT, MANY, NOTE, SIGNER, Kept

pytestmark = pytest.mark.unit

WITNESS = Witness(bytes(range(100, 132)), "example.org/witness")
TIME = 1_795_000_000
COSIGNED = WITNESS.cosign(NOTE, TIME)


def by_hand(seed: bytes, name: str, text: str, time: int) -> str:
    """The line of a cosignature, byte by byte as C2SP tlog-cosignature and signed-note say."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = key.public_key().public_bytes_raw()
    hashed = hashlib.sha256(name.encode() + b"\x0a" + b"\x04" + public).digest()
    signature = key.sign(b"cosignature/v1\x0a" + b"time " + str(time).encode() + b"\x0a" + text.encode())
    blob = hashed[:4] + struct.pack(">Q", time) + signature
    assert len(blob) == 76
    return f"\u2014 {name} {base64.b64encode(blob).decode()}\n"


def test_a_cosignature_is_written_as_specified() -> None:
    """Catches another kind of key, a time of another width or order, and a signature over another text."""
    text = NOTE.decode().split("\n\n")[0] + "\n"
    assert NOTE + by_hand(WITNESS.seed, "example.org/witness", text, TIME).encode() == COSIGNED
    line = WITNESS.verifier.text()
    name, told, key = line.split("+", 2)
    raw = base64.b64decode(key)
    assert (name, raw[0]) == ("example.org/witness", 4)
    assert told == hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4].hex()
    assert WitnessVerifier.parse(line) == WITNESS.verifier
    made = base64.b64decode(COSIGNED.decode().splitlines()[-1].split(" ")[2])
    seconds = int.from_bytes(made[4:12], "big")
    message = f"cosignature/v1\ntime {seconds}\n{text}".encode()
    Ed25519PublicKey.from_public_bytes(raw[1:]).verify(made[12:], message)


def test_the_lines_of_the_specification_have_this_form() -> None:
    """The example in tlog-cosignature: its key is not told, but the form of its blob is. Catches a form of our own."""
    line = "jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA=="
    blob = base64.b64decode(line)
    ours = base64.b64decode(COSIGNED.decode().splitlines()[-1].split(" ")[2])
    assert len(blob) == len(ours) == 4 + 8 + 64
    assert int.from_bytes(blob[4:12], "big") == 1679315147  # March 2023, when the example was written


def test_cosignatures_and_keys_come_back() -> None:
    """Catches a time that is lost, a key that reads as a log's, and a log's own signature hidden below others."""
    found = WITNESS.verifier.open(COSIGNED)
    assert (found.checkpoint, found.time) == (Checkpoint("example.org/log", 3, KEPT.roots[3]), TIME)
    assert NOTE + found.line == COSIGNED
    assert SIGNER.verifier.checkpoint(COSIGNED) == SIGNER.verifier.checkpoint(NOTE)
    later = WITNESS.cosign(COSIGNED, TIME + 5)
    assert WITNESS.verifier.open(later).time == TIME + 5
    assert Witness.parse(WITNESS.text()) == WITNESS
    assert "seed" not in repr(WITNESS)
    assert Witness(bytes(32)).verifier.name.startswith("witness/")
    with pytest.raises(NoteMalformed):
        Verifier.parse(WITNESS.verifier.text())
    with pytest.raises(NoteMalformed):
        WitnessVerifier.parse(SIGNER.verifier.text())
    with pytest.raises(NoteMalformed):
        WITNESS.cosign(f"a text\n\n{COSIGNED.decode().splitlines()[-1]}\n".encode(), TIME)


@pytest.mark.parametrize(
    "line",
    ["", "PRIVATE+KEY+", "PRIVATE+KEY+a b+00000000+AAAA", WITNESS.verifier.text(), WITNESS.text()[:-4] + "AAA="],
)
def test_other_lines_are_no_private_key(line: str) -> None:
    """Catches a key that is taken for another, and one that is told in the refusal."""
    with pytest.raises(NoteMalformed) as refusal:
        Witness.parse(line)
    assert base64.b64encode(WITNESS.seed).decode()[2:20] not in str(refusal.value)


def test_a_signature_of_a_log_is_no_cosignature() -> None:
    """One key as a log's and a witness'. Catches kinds that are not told apart: a log that vouches for itself."""
    own = Witness(SIGNER.seed, "example.org/log")
    with pytest.raises(NoteUnsigned):
        own.verifier.open(NOTE)
    with pytest.raises(NoteUnsigned):
        Verifier(WITNESS.verifier.name, WITNESS.verifier.public_key).open(COSIGNED)


@given(st.integers(len(NOTE), len(COSIGNED) - 1), st.integers(1, 255))
def test_a_changed_cosignature_is_refused(at: int, change: int) -> None:
    """Any byte of the line. Catches a time that no signature covers."""
    changed = COSIGNED[:at] + bytes([COSIGNED[at] ^ change]) + COSIGNED[at + 1 :]
    with pytest.raises(NoteRefused):
        WITNESS.verifier.open(changed)


@given(st.integers(0, NOTE.index(b"\n\n")), st.integers(1, 255))
def test_a_changed_checkpoint_is_not_cosigned(at: int, change: int) -> None:
    changed = COSIGNED[:at] + bytes([COSIGNED[at] ^ change]) + COSIGNED[at + 1 :]
    with pytest.raises(NoteRefused):
        WITNESS.verifier.open(changed)


# --------------------------------------------------------------------------------------------- changes of the log's key

ORIGIN = "example.org/log"
KEYS = [replace(SIGNER, seed=bytes([number]) * 32) for number in range(4)]
CHANGES = [KeyChange.signed(10 * (at + 1), KEYS[at], KEYS[at + 1]) for at in range(3)]
LINES = [key_record(statement=each, recorded_at="2026-01-01T00:00:00Z") for each in CHANGES]


def test_a_statement_is_signed_by_both() -> None:
    """By hand. Catches one signature for both, and a text that could be taken for a checkpoint."""
    text, below = CHANGES[0].decode().split("\n\n")
    assert text.split("\n")[1:] == [ORIGIN, "10", KEYS[0].verifier.text(), KEYS[1].verifier.text()]
    for line, key in zip(below.splitlines(), KEYS, strict=False):
        raw = base64.b64decode(line.split(" ")[2])
        Ed25519PublicKey.from_public_bytes(key.verifier.public_key).verify(raw[4:], (text + "\n").encode())
    with pytest.raises(NoteMalformed):
        Checkpoint.parse(text + "\n")
    assert KeyChange.open(CHANGES[0]) == KeyChange(10, KEYS[0].verifier, KEYS[1].verifier)
    assert statement_in(LINES[0]) == CHANGES[0]
    assert orjson.loads(LINES[0])["record"] == "log key"
    assert statement_in(MANY[0]) is None


def stated(size: int, old: Signer, new: Signer, *signers: Signer) -> bytes:
    """A statement signed by whoever signs it."""
    text = KeyChange(size, old.verifier, new.verifier).text()
    return f"{text}\n".encode() + b"".join(each.sign(text) for each in signers)


OTHER = replace(KEYS[1], origin="example.org/other")
PLANTED: dict[str, list[bytes]] = {
    "nothing": [],
    "signed by the old key alone": [stated(10, KEYS[0], KEYS[1], KEYS[0])],
    "signed by the new key alone": [stated(10, KEYS[0], KEYS[1], KEYS[1])],
    "a new key that vouches for itself": [stated(10, KEYS[1], KEYS[1], KEYS[1])],
    "the new key under the old one's name": [stated(10, KEYS[0], KEYS[1], KEYS[1], KEYS[1])],
    "a key of another log": [KeyChange.signed(10, KEYS[0], OTHER)],
    "of another origin": [KeyChange.signed(10, replace(KEYS[0], origin=OTHER.origin), OTHER)],
    "from another key": [KeyChange.signed(10, KEYS[2], KEYS[1])],
    "to another key": [KeyChange.signed(10, KEYS[0], KEYS[3])],
    "backwards": [KeyChange.signed(10, KEYS[1], KEYS[0])],
    "another text": [CHANGES[0].replace(b"\n10\n", b"\n11\n")],
    "a line more": [stated(10, KEYS[0], KEYS[1]).replace(b"\n\n", b"\nmore\n\n")],
    "no note": [b"no note"],
    "a checkpoint": [KEYS[0].note(3, KEPT.roots[3])],
}


@pytest.mark.parametrize("statements", PLANTED.values(), ids=PLANTED.keys())
def test_planted_statements_are_refused(statements: list[bytes]) -> None:
    """Catches an auditor who takes a new key which the old one did not vouch for, or that did not consent."""
    with pytest.raises(NoteRefused):
        vouched(KEYS[0].verifier, KEYS[1].note(3, KEPT.roots[3]), statements)


@pytest.mark.parametrize(
    "order", [(1, 0), (0, 2), (2, 1, 0), (0, 0), (0, 2, 1), (1, 2, 0)], ids=lambda order: "".join(map(str, order))
)
def test_statements_in_another_order(order: Sequence[int]) -> None:
    """Whatever note they are shown for. Catches statements that are left out, repeated or exchanged."""
    for signer in KEYS[1:]:
        with pytest.raises(NoteRefused):
            vouched(KEYS[0].verifier, signer.note(3, KEPT.roots[3]), [CHANGES[at] for at in order])


def test_statements_whose_sizes_go_back() -> None:
    later = KeyChange.signed(5, KEYS[1], KEYS[2])
    with pytest.raises(NoteRefused, match="follow"):
        vouched(KEYS[0].verifier, KEYS[2].note(3, KEPT.roots[3]), [CHANGES[0], later])


@pytest.mark.parametrize("known", range(3))
@pytest.mark.parametrize("signing", range(1, 4))
def test_a_chain_leads_from_the_known_key_to_the_signing_one(known: int, signing: int) -> None:
    """Catches a chain that must be followed from its beginning or to its end, and statements that are not kept."""
    note = KEYS[signing].note(3, KEPT.roots[3])
    if signing <= known:
        with pytest.raises(NoteUnsigned):
            vouched(KEYS[known].verifier, note, CHANGES)
    else:
        found = vouched(KEYS[known].verifier, note, CHANGES)
        assert found == (KEYS[signing].verifier, tuple(CHANGES[known:signing]))


def unasked() -> list[bytes]:
    raise AssertionError("statements are asked for where the known key has signed")


def log_of(lines: Sequence[bytes], signer: Signer) -> tuple[bytes, list[bytes]]:
    """A checkpoint of a log, and its lines."""
    return signer.note(len(lines), Kept(lines).roots[-1]), list(lines)


def test_a_follower_takes_a_key_that_the_log_tells_of() -> None:
    """Catches a new key without its line, with the line of another change, with one too many after it, and lines in
    another order; a key that is not kept; and a state that forgets what was seen.
    """
    start, before = Follower(KEYS[0].verifier), MANY[:5]
    note, lines = log_of(before, KEYS[0])
    state = start.know(note, unasked)
    assert state is start
    state = state.follow(state.look(note), lines)
    for changes in ([LINES[0]], LINES[:2], LINES[:3]):
        note, lines = log_of([*before, *changes, MANY[6]], KEYS[len(changes)])
        known = state.know(note, lambda: CHANGES)
        later = known.follow(known.look(note), lines)
        assert (later.verifier, later.statements) == (KEYS[len(changes)].verifier, ())
        assert later.seen == known.look(note)
    wrong: list[list[bytes]] = [
        [],
        [LINES[1]],
        [LINES[0], LINES[1]],
        [LINES[0], b'{"record":"log key","nonsense":1}'],
        [LINES[0], b'{"record":"log key",'],
    ]
    for changes in wrong:
        note, lines = log_of([*before, *changes], KEYS[1])
        known = state.know(note, lambda: CHANGES)
        with pytest.raises(LinesRefused, match="key"):
            known.follow(known.look(note), lines)
    note, lines = log_of([*before, LINES[1], LINES[0]], KEYS[2])
    known = state.know(note, lambda: CHANGES)
    with pytest.raises(LinesRefused, match="key"):
        known.follow(known.look(note), lines)
    note, lines = log_of([*MANY[:4], b"forged", LINES[0]], KEYS[1])
    known = state.know(note, lambda: CHANGES)
    with pytest.raises(LogForked):
        known.follow(known.look(note), lines)


@pytest.mark.parametrize("told", PLANTED.values(), ids=PLANTED.keys())
def test_a_follower_keeps_its_key(told: list[bytes]) -> None:
    """Catches the rule of the state machine left out for one of the planted statements."""
    note = KEYS[1].note(3, KEPT.roots[3])
    ask: Callable[[], list[bytes]] = lambda: told  # noqa: E731
    with pytest.raises(NoteRefused):
        Follower(KEYS[0].verifier).know(note, ask)
