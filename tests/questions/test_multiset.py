"""Multisets: queries by element, their canonical bytes, and look-ups in private counts.

The oracle is a dictionary; the canonical bytes are held against an independent RFC 8785 writer.
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from app.curator.dataset import PublicDataset
from app.curator.facts import grid_of, measure
from app.declarations.spec import parse_spec
from app.spaces.counts import Entries
from app.spaces.elements import ElementsTensor
from app.spaces.errors import InvalidQuery
from app.spaces.factory import space_of
from app.spaces.queries.cells import dense_of
from app.spaces.queries.elements import CompiledElements
from app.spaces.queries.linear import CompiledZero
from app.spaces.queries.registry import from_canonical, parse_query
from app.storage.private_data import ElementsData

pytestmark = pytest.mark.unit

WORDS = {"name": "words", "kind": "multiset", "budget": {"epsilon": 1.0, "delta": 1e-6}}
SPACE = space_of(parse_spec(WORDS))

#: All text there is, with the characters that writers of JSON treat each in their own way often.
TEXT = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('\x00\x1f"\\/\x7f\u2028é\U0001f600'))
)
WEIGHTS = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-9, 2.0**-20, 1 / 3]), st.floats(-1, 1))
ASKED = st.dictionaries(TEXT, WEIGHTS, min_size=1, max_size=6)


def private(counts: dict[str, int]) -> ElementsTensor:
    """A private multiset in the vault's layout."""
    counts = {element: count for element, count in counts.items() if count}
    order = sorted(counts, key=lambda element: element.encode())
    names = [element.encode() for element in order]
    offsets = np.concatenate([[0], np.cumsum([len(n) for n in names], dtype=np.int64)]).astype(np.int64)
    blob = np.frombuffer(b"".join(names), np.uint8)
    data = ElementsData(blob, offsets, np.array([counts[e] for e in order], np.int64), sum(counts.values()))
    return ElementsTensor(data)


def compiled(weights: dict[str, float]) -> Any:
    return parse_query({"type": "elements", "weights": weights}).compiled(SPACE)


@given(ASKED, st.dictionaries(TEXT, st.integers(0, 10**6), max_size=8))
def test_answers_are_a_dictionary_s(asked: dict[str, float], counts: dict[str, int]) -> None:
    """Would catch an element that another one's bytes are a prefix of, an unknown element that counts, a weight on the
    wrong element after sorting, an inexact sum, and a rounding bound that does not hold."""
    known = [e for e in list(asked)[::2] if e]
    counts = {e: c for e, c in (counts | dict.fromkeys(known, 77)).items() if e}
    query = compiled(asked)
    exact = Fraction(query.exact(private(counts)), 1 << query.grid_bits)
    if isinstance(query, CompiledElements):
        weights = dict(zip(query.elements, query.weights.tolist(), strict=True))
        assert exact == sum(Fraction(w, 1 << query.grid_bits) * counts.get(e, 0) for e, w in weights.items())
    asked_for = sum(Fraction(w) * counts.get(e, 0) for e, w in asked.items())
    assert abs(exact - asked_for) <= Fraction(query.rounding) * sum(counts.values())


@given(ASKED)
@example({"\ue000": 1.0, "\U00010000": 1.0})
def test_the_canonical_form_is_one_and_in_rfc_8785_bytes(asked: dict[str, float]) -> None:
    """Would catch an escape that the standard does not ask for or in capitals, elements sorted by UTF-16 units, a zero
    weight that stays in the form, and a form that depends on how the query was spelled."""
    query = compiled(asked)
    assert query.canonical_bytes == rfc8785.dumps(query.canonical)
    assert json.loads(query.canonical_bytes) == query.canonical
    again = compiled(dict(reversed(asked.items())) | {"never asked for": 0.0})
    assert again.digest == query.digest
    assert from_canonical(SPACE, json.loads(query.canonical_bytes), {}).canonical_bytes == query.canonical_bytes
    if isinstance(query, CompiledElements):
        names = [e.encode() for e in query.elements]
        assert names == sorted(set(names))
        assert all(query.weights)


@given(ASKED)
def test_range_and_norm(asked: dict[str, float]) -> None:
    """Would catch a range over the named elements alone: all others weigh zero."""
    query = compiled(asked)
    weights = [round(w * 2**20) / 2**20 for w in asked.values()]
    assert query.range == (min([0.0, *weights]), max([0.0, *weights]))
    assert query.norm2sq == pytest.approx(sum(w * w for w in weights), abs=1e-12)
    assert query.is_zero == (not any(weights))


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    """Would catch an element whose canonical form has no bytes, after its noise was taken."""
    for element in ("\ud800", "a\udfffb"):
        with pytest.raises(InvalidQuery, match="surrogate"):
            compiled({element: 1.0})


@pytest.mark.parametrize(
    "form",
    [
        {"bits": 20, "elements": ["b", "a"], "type": "elements", "weights": [1, 1]},
        {"bits": 20, "elements": ["a", "a"], "type": "elements", "weights": [1, 1]},
        {"bits": 20, "elements": ["a", "b"], "type": "elements", "weights": [1, 0]},
        {"bits": 20, "elements": ["a"], "type": "elements", "weights": [1, 1]},
        {"bits": 20, "elements": ["a"], "type": "elements", "weights": [2**20 + 1]},
        {"bits": 20, "elements": ["a"], "type": "elements", "weights": [-(2**20) - 1]},
        {"bits": 20, "elements": ["a"], "type": "elements", "weights": [-(2**63)]},
        {"bits": 20, "elements": ["a", "b"], "type": "elements", "weights": [1, -(2**63)]},
        {"bits": 19, "elements": ["a"], "type": "elements", "weights": [1]},
        {"bits": 20, "elements": [1], "type": "elements", "weights": [1]},
        {"bits": 20, "elements": ["a"], "type": "elements", "weights": [0.5]},
        {"bits": 20, "elements": [], "type": "elements", "weights": []},
        {"bits": 20, "elements": ["a"], "type": "elements", "weights": [1], "more": 1},
        {"bits": 20, "indices": [0], "type": "sparse", "weights": [1]},
        {"axes": [], "type": "product"},
        {},
    ],
)
def test_forms_that_are_not_canonical_are_refused(form: dict[str, Any]) -> None:
    """Would catch a transcript whose queries are not what their bytes say."""
    with pytest.raises(InvalidQuery):
        from_canonical(SPACE, form, {})


def test_other_queries_do_not_fit() -> None:
    """Would catch a multiset that is taken for an array of one cell."""
    for words in (
        {"type": "dense", "weights": [1.0]},
        {"type": "sparse", "indices": [0], "weights": [1.0]},
        {"type": "predicate", "where": {}},
        {"type": "cut", "left": "all", "right": "all"},
    ):
        with pytest.raises(InvalidQuery, match="does not fit a multiset"):
            parse_query(words).compiled(SPACE)
    with pytest.raises(InvalidQuery):
        dense_of(SPACE, np.ones(1))
    with pytest.raises(InvalidQuery):
        compiled({"a": 1.5})
    assert isinstance(compiled({"a": 0.0}), CompiledZero)


def test_no_array_is_ever_sized_after_a_multiset() -> None:
    """Would catch a descriptor that claims one cell, and memory counted for it."""
    assert SPACE.dense_bytes == 0
    found = PublicDataset(parse_spec(WORDS)).descriptor()
    assert (found["cells"], found["shape"]) == (None, [])
    assert PublicDataset.from_descriptor(found).space == SPACE


@given(st.dictionaries(TEXT.filter(bool), st.integers(1, 9), max_size=5))
def test_the_mass_is_the_number_of_occurrences(counts: dict[str, int]) -> None:
    """Would catch a count of distinct elements, or one that moves by more than its sensitivity."""
    assert measure(SPACE, private(counts), "mass") == sum(counts.values())
    assert grid_of(SPACE, "mass") == (0, 1)


@given(ASKED, st.dictionaries(TEXT.filter(bool), st.integers(0, 9), max_size=5), TEXT.filter(bool))
def test_one_element_moves_an_answer_by_at_most_gamma(asked: dict[str, float], counts: Any, element: str) -> None:
    """Would catch a weight above 1 after rounding, and two elements that are taken for one."""
    query = compiled(asked)
    other = Counter(counts) + Counter([element])
    first, second = (SPACE.to_answer_grid(query.exact(private(dict(c))), query) for c in (counts, other))
    assert abs(first - second) <= SPACE.sensitivity * 2**SPACE.answer_bits
    assert SPACE.sensitivity == 1


def test_a_private_multiset_shows_nothing() -> None:
    """Would catch an element or a count in a log line."""
    assert "secret" not in repr(private({"secret": 12345}))
    assert "12345" not in repr(private({"secret": 12345}))


@given(st.sets(st.text("ab\u00e9", min_size=1, max_size=4), max_size=60), st.text("ab\u00e9", max_size=4))
def test_every_element_of_many_is_found_and_no_other(elements: set[str], other: str) -> None:
    """Would catch an element lost between the landmarks of a look-up, at either end, and a neighbour's count taken."""
    counts = {element: i + 1 for i, element in enumerate(sorted(elements))}
    tensor = private(counts)
    asked = [*counts, other, "b" * 9, ""]
    found = next(tensor.tell([Entries(np.array(asked, dtype=object))])).tolist()
    assert found == [counts.get(element, 0) for element in asked]
