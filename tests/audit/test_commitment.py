"""What a commitment binds to, and what shows of it."""

from __future__ import annotations

import hashlib
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_client.proofs.commitment import FileDigest, commitment, opens

pytestmark = pytest.mark.unit

KEYS, FILES = st.binary(min_size=32, max_size=32), st.binary(max_size=200)


def by_hand(key: bytes, content: bytes) -> str:
    """RFC 2104 from two calls of the hash, over the layout of docs/audit.md."""
    told = b"curator commitment to a private file, 1\0" + len(content).to_bytes(8, "big")
    told += hashlib.sha256(content).digest()
    inner, outer = (bytes(byte ^ pad for byte in key.ljust(64, b"\0")) for pad in (0x36, 0x5C))
    return hashlib.sha256(outer + hashlib.sha256(inner + told).digest()).hexdigest()


@given(KEYS, FILES)
def test_it_is_what_is_documented(key: bytes, content: bytes) -> None:
    """Catches another layout or another function, which nobody else could check a file by."""
    assert commitment(key, FileDigest.of(BytesIO(content))) == by_hand(key, content)


@given(KEYS, KEYS, FILES, FILES)
def test_it_binds(key: bytes, other: bytes, content: bytes, changed: bytes) -> None:
    """Catches a key or a file of which not every byte counts."""
    file, committed = FileDigest.of(BytesIO(content)), commitment(key, FileDigest.of(BytesIO(content)))
    assert opens(committed, key, file)
    assert opens(committed, other, file) == (key == other)
    assert opens(committed, key, FileDigest.of(BytesIO(changed))) == (content == changed)


def test_every_bit_counts() -> None:
    """Of key, file, length and commitment. Catches one that is cut, or a comparison of a part."""
    key, content = bytes(range(32)), b"age,sex\n39,male\n"
    file = FileDigest.of(BytesIO(content))
    committed = commitment(key, file)
    for at in range(256):
        flipped = bytearray(key)
        flipped[at // 8] ^= 1 << at % 8
        assert not opens(committed, bytes(flipped), file)
    for at in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[at // 8] ^= 1 << at % 8
        assert not opens(committed, key, FileDigest.of(BytesIO(flipped)))
    for length in (0, file.length - 1, file.length + 1, file.length << 8, file.length << 32):
        assert not opens(committed, key, file._replace(length=length))
    for at, digit in enumerate(committed):
        other = f"{(int(digit, 16) + 1) % 16:x}"
        assert not opens(committed[:at] + other + committed[at + 1 :], key, file)
    for cut in ("", committed[:-1], committed + "0", committed.upper(), "é" * 64):
        assert not opens(cut, key, file)


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64, 65])
def test_keys_of_other_lengths(length: int) -> None:
    """HMAC fills a short key up with zeros, and hashes a long one: two keys would give one commitment."""
    with pytest.raises(ValueError, match="32 bytes"):
        commitment(bytes(length), FileDigest(1, bytes(32)))


def test_nothing_shows_by_accident(tmp_path: Path) -> None:
    """Catches a length or a hash in a log line; and a file that is not read from its beginning to its end."""
    content = bytes(range(256)) * 5000
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file:
        found = FileDigest.of(file)
    assert found == (len(content), hashlib.sha256(content).digest())
    assert repr(found) == str(found) == f"{found}" == "<FileDigest>"
