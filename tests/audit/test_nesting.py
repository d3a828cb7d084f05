"""Two who read one line read the same in it, whichever JSON library they have."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.audit import forms
from curator_client.proofs import records
from curator_client.proofs.nesting import MOST_DEPTH, loads, parse_bounded

pytestmark = pytest.mark.unit

#: Where libraries differ unless they are told not to: whole numbers beyond 64 bits, numbers beyond double precision,
#: halves of letters, marks of the order of bytes, other encodings, names that are no JSON, names that come twice.
ODD = [
    *(b"%d" % number for number in (2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1)),
    *(b"%d" % number for number in (10**18, -(10**18), 10**19, 10**400)),
    *(b"-0", b"-0.0", b"0e400", b"1e400", b"-1e400", b"1e-400", b"1E+2", b"01", b"1.", b".5", b"+1", b"0x1", b"1_0"),
    *(b"9" * 4_300, b"9" * 5_000, b"0." + b"9" * 5_000),
    *(rb'"\ud800"', rb'"\udc00\ud800"', rb'"\ud83d\ude00"', rb'"\uD83D"', rb'"\\ud800"'),
    *(rb'"\u00e9"', rb'{"\ud800":1}'),
    *(b'"\xff"', b'"\xc3\xa9"', b'"\xed\xa0\x80"', b'"\x00"', b'"\x1f"', b'"\x7f"', rb'"\u0000"', rb'"\x41"', b"'a'"),
    *(b"\xef\xbb\xbf1", '"a"'.encode("utf-16"), '"a"'.encode("utf-32-le"), b"1\0", b"\0"),
    *(b"NaN", b"Infinity", b"-Infinity", b"nan", b"True", b"[1,]", b'{"a":1,}', b"[1 2]", b"", b" "),
    *(b"1 1", b" \t\r\n1 \n"),
    *(b'{"a":1,"a":2}', b'{"a":{"b":1},"a":{}}', b"{1:2}", b"// 1", b"[]", b"{}", b'""', b"\xc2\xa01", b"\x0c1"),
]  # fmt: skip


def read(content: bytes, by: Callable[[bytes], Any]) -> tuple[str, str]:
    """What a library makes of a document, types and signs of zero included; one word for all that it refuses."""
    try:
        return "read", repr(by(content))
    except ValueError:
        return "refused", ""


@pytest.mark.parametrize("content", ODD, ids=lambda content: repr(content[:20]))
def test_what_libraries_differ_in(content: bytes) -> None:
    """Catches a line that whoever replays takes for another than whoever follows the log, or refuses alone."""
    assert read(content, loads) == read(content, orjson.loads)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)


@given(
    JSON,
    st.booleans(),
    st.integers(0, 60),
    st.sampled_from([b"", b"\\", b"e", b"9" * 25, b"\xff", b'"', b"\\ud8", b"["]),
)
@example([], False, 0, b"")
def test_documents_whole_and_hurt(document: Any, escaped: bool, at: int, put: bytes) -> None:
    """Documents as any library writes them, and with something put into them."""
    content = json.dumps(document, ensure_ascii=escaped).encode(errors="surrogatepass")
    hurt = content[:at] + put + content[at:]
    assert read(hurt, loads) == read(hurt, orjson.loads)


def test_records() -> None:
    """Catches a replay that reads records otherwise than a follower of the log: other than objects, or deeper."""
    deep = b'{"a":' * MOST_DEPTH + b"1" + b"}" * MOST_DEPTH
    deeper = b'{"a":' * 2 + deep + b"}" * 2
    for line in (deep, deeper, b"[]", b"1", b'{"a":1e400}', b'{"value":0.1,"count":12}', b"[" * 10**6):
        assert read(line, records.parse) == read(line, forms.parse), line[:20]
    assert parse_bounded(deep)
    with pytest.raises(ValueError, match="nested deeper than 192"):
        records.parse(deeper)
