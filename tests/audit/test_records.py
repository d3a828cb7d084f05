"""Entries are written from a template: their bytes must be those of the RFC 8785 library."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from app.audit import writing
from curator_client.proofs import records
from tests.kit.strategies import queries, universes

pytestmark = pytest.mark.unit

HASHES = st.binary(min_size=32, max_size=32).map(lambda b: b.hex())
TIMES = st.datetimes().map(lambda t: t.isoformat() + "Z")
VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**50), 2**50).map(lambda n: n / 2**20),
    st.sampled_from([0.0, -0.0, 5e-324, 1e21, 1e-7, 123456789.0, 2.0**62, -1.5]),
)


@pytest.mark.slow
@given(
    st.data(),
    st.integers(1, 2**53 - 1),
    VALUES,
    st.sampled_from(["hypothesis", "measurement", "cached"]),
    st.none() | VALUES.map(abs),
    st.booleans(),
    TIMES,
    HASHES,
)
def test_an_answer_is_what_the_library_writes(
    d: Any, sequence: int, value: float, source: str, bound: float | None, unverified: bool, at: str, previous: str
) -> None:
    """Every field of any answer. Would catch keys out of order, a number in Python's own notation (1e+21), and a hash
    of other bytes than the ones that are stored."""
    u = d.draw(universes())
    query = u.compiled(d.draw(queries(u)))
    sealed = writing.answer_entry(
        sequence=sequence,
        query=query.canonical_bytes,
        values=[value],
        source=source,
        error_bound=bound,
        unverified=unverified,
        recorded_at=at,
        previous_hash=previous,
    )
    document = {
        "record": "answer",
        "sequence": sequence,
        "query": query.canonical,
        "value": value,
        "source": source,
        "error_bound": bound,
        "recorded_at": at,
        "previous_hash": previous,
    }
    if unverified:
        document["unverified"] = True
    assert sealed.entry_hash == hashlib.sha256(rfc8785.dumps(document)).hexdigest()
    assert sealed.line == rfc8785.dumps(document | {"entry_hash": sealed.entry_hash})
    assert records.parse(sealed.line) == json.loads(sealed.line)


NUMBERS = st.one_of(
    VALUES, st.integers(-(2**53) + 1, 2**53 - 1), st.sampled_from([1e-5, 1.5e-7, 0.1234567890123456, 1e15, 1e16, 2**53])
)
DOCUMENTS = st.recursive(
    NUMBERS | st.none() | st.booleans() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(NUMBERS, max_size=6)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["type", "where", "é", "\U0001f600", "\uffff", "1e5"]), DOCUMENTS, max_size=4))
def test_words_are_what_the_library_writes(asked: dict[str, Any]) -> None:
    """Would catch 1.0 beside 1, exponents in another form, and keys in the order of another encoding: the faster
    library would write all of these otherwise. Only numbers of which JSON loses digits are not kept."""
    kept = writing.words(asked)
    if kept is None:
        assert any(abs(number) >= 2**53 for number in numbers_of(asked))
    else:
        assert kept == rfc8785.dumps(asked)
        assert rfc8785.dumps(json.loads(kept)) == kept


def numbers_of(node: Any) -> list[float]:
    if isinstance(node, dict | list):
        return [n for child in (node.values() if isinstance(node, dict) else node) for n in numbers_of(child)]
    return [node] if isinstance(node, int | float) else []


@pytest.mark.parametrize("end", [9, 10**15, 2**53 - 1, -(2**53), 2**53, 2**64, 10**400, 1.0, -0.0, 2.5, 1e-7, 1e21])
@pytest.mark.parametrize("text", ["a", "1.5", "1e5", "9" * 16, "é"])
def test_numbers_and_texts_that_look_like_them(end: float, text: str) -> None:
    """Would catch a number that the faster library writes otherwise, or not in full, where the document is taken as it
    is: which it is by a look at the bytes alone."""
    asked = {"where": {text: {"in": [text, 1, True, None, end]}}, "type": "predicate"}
    assert writing.words(asked) == (None if abs(end) >= 2**53 else rfc8785.dumps(asked))


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({"weights": [0.5] * 15_000}, True),
        ({"weights": [0.5] * 20_000}, False),
        ({"weights": [[1]] * 40_000}, False),
        ({"a": "x" * (64 * 1024 - 8)}, True),
        ({"a": "x" * (64 * 1024 - 7)}, False),
        ({"weights": [[0.25] * 2000] * 2000}, False),
    ],
)
def test_long_words_are_left_out(asked: dict[str, Any], kept: bool) -> None:
    """Would catch a transcript that grows by the arrays that were sent, and a limit a byte off."""
    assert (writing.words(asked) is not None) is kept


@given(DOCUMENTS.map(lambda d: {"type": d}), HASHES)
def test_an_answer_has_its_words_in_the_chain(asked: dict[str, Any], previous: str) -> None:
    """Would catch the words outside of what the hash covers, or the hash out of its place in the line."""
    kept = writing.words(asked)
    sealed = writing.answer_entry(
        sequence=1,
        query=b"{}",
        values=[0.5],
        source="hypothesis",
        error_bound=None,
        unverified=False,
        recorded_at="2026-01-01T00:00:00Z",
        previous_hash=previous,
        asked=kept,
    )
    document = {
        "record": "answer",
        "sequence": 1,
        "query": {},
        "value": 0.5,
        "source": "hypothesis",
        "error_bound": None,
        "recorded_at": "2026-01-01T00:00:00Z",
        "previous_hash": previous,
    } | ({} if kept is None else {"asked": asked})
    assert sealed.entry_hash == hashlib.sha256(rfc8785.dumps(document)).hexdigest()
    assert sealed.line == rfc8785.dumps(document | {"entry_hash": sealed.entry_hash})


@given(st.integers(1, 2**53 - 1), TIMES, HASHES)
def test_a_forfeit_is_what_the_library_writes(sequence: int, at: str, previous: str) -> None:
    sealed = writing.forfeit_entry(sequence=sequence, recorded_at=at, previous_hash=previous)
    document = {"record": "forfeit", "sequence": sequence, "recorded_at": at, "previous_hash": previous}
    assert sealed.entry_hash == hashlib.sha256(rfc8785.dumps(document)).hexdigest()
    assert sealed.line == rfc8785.dumps(document | {"entry_hash": sealed.entry_hash})


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.binary(max_size=40))
def test_headers_and_weights_carry_any_text_and_bytes(name: str, blob: bytes) -> None:
    """Names of attributes and categories may be any text: would catch an encoding that loses or escapes it
    otherwise."""
    line = writing.header(
        session="s",
        opening={
            "dataset": {"domain": {"attributes": [{"name": name, "values": [name + "a", name]}]}, name: name},
            "bought": {"value": 3.0, "noise_scale": 0.5},
        },
        opened_at="now",
    )
    document = json.loads(line)
    assert rfc8785.dumps(document) == line
    assert document["dataset"][name] == name
    digest = hashlib.sha256(blob).hexdigest()
    read = json.loads(writing.weights_record(digest, blob))
    assert base64.b64decode(read["data"]) == blob
    assert read["sha256"] == digest


@pytest.mark.parametrize("line", [b"", b"5", b"[]", b'"x"', b"null", b"{", b'{"a":1}x', b"\xff", b'{"a":NaN}'])
def test_what_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        records.parse(line)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_json_number_is_not_recorded(value: float) -> None:
    """Would catch an entry that nobody can read again."""
    with pytest.raises(ValueError):
        writing.answer_entry(
            sequence=1,
            query=b"{}",
            values=[value],
            source="hypothesis",
            error_bound=None,
            unverified=False,
            recorded_at="",
            previous_hash="",
        )


def test_numbers_equal_across_types_are_written_each_as_its_own() -> None:
    """Catches a memory of written numbers that takes True, which only a forged record holds, for 1."""
    lines = [
        writing.answer_entry(
            sequence=1,
            query=b"{}",
            values=[value],
            source="hypothesis",
            error_bound=None,
            unverified=False,
            recorded_at="2026-01-01T00:00:00Z",
            previous_hash="0" * 64,
        ).line
        for value in (True, 1.0, 1)
    ]
    assert b'"value":true' in lines[0]
    assert b'"value":1}' in lines[1]
    assert lines[1] == lines[2]
