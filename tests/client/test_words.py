"""Questions in words: what they ask, on one line, whatever is in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_client.conditions import col
from curator_client.questions import Question, blocks, by, cut, degrees, question, where
from curator_client.words import words

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            where(inlf=1).by("educ", "kidlt6", bins={"educ": [0, 12, 13, 16, 19]}).mean("faminc"),
            "Mean of faminc by educ (4 groups) and kidlt6, where inlf is 1",
        ),
        (where().count(), "Number of records"),
        (by("a", "b", "c").count(), "Number of records by a, b and c"),
        (
            where(sex="female", age=(30, 65)).count(),
            "Number of records, where sex is female, and age is at least 30 and below 65",
        ),
        (where(a=[1, 2, 3]).median("x"), "Median of x, where a is 1, 2 or 3"),
        (where(a=list(range(20))).sum("x"), "Sum of x, where a is 0, 1, 2, 3, 4, 5 or 14 more"),
        (where(col("a") != 1).variance("x"), "Variance of x, where a is not 1"),
        (where(~(col("a") >= 1)).count(), "Number of records, where not (a is at least 1)"),
        (where(a=None).count(), "Number of records, where a has no value"),
        (where(~col("a").missing()).count(), "Number of records, where a has a value"),
        (
            where((col("a") == 1) & (col("b") == 2) | (col("c") == 3), d=4).count(),
            "Number of records, where ((a is 1 and b is 2) or c is 3), and d is 4",
        ),
        (where().quantile("x", [0.1, 0.9]), "Quantiles 0.1 and 0.9 of x"),
        (where().quantile("x", 0.9), "Quantile 0.9 of x"),
        (where(a=1).share(col("b").at("upper")), "Share with b is at its upper bound, where a is 1"),
        (where().ratio("x", "y").weighted(), "Weighted ratio of x to y"),
        (where().hierarchy("state"), "Number of records at each level of state"),
        (cut([1, 2, 3]), "Cut from nodes 1, 2 and 3 to all nodes"),
        (cut([7], []), "Cut from node 7 to no node"),
        (blocks({"a": [1], "b": [2]}), "Totals between 2 groups"),
        (blocks({"a": [1], "b": [2]}, only="within"), "Total within each of 2 groups"),
        (degrees("out", bins=[0, 1, 2]), "Number of nodes by degree (out) in 3 bins"),
        (where().count().unverified(), "Number of records, as the hypothesis has it"),
    ],
)
def test_words(asked: Question[Any], told: str) -> None:
    """Would catch a condition that is not told, and a sentence with two readings."""
    assert str(asked) == told


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("marital-status", "marital-status"),
        ("where inlf is 1", '"where inlf is 1"'),
        ("and", '"and"'),
        ("1", '"1"'),
        ("", '""'),
        ('a"b', r'"a\"b"'),
        ("a\nb", r'"a\nb"'),
        ("a\u202eb", r'"a\u202eb"'),
        ("<b>", '"<b>"'),
        ("Größe", "Größe"),
    ],
)
def test_names_that_would_break_the_sentence_are_quoted(name: str, told: str) -> None:
    """Would catch a label that is read as a condition, and marks that turn the text of a page around."""
    assert str(where().mean(name)) == f"Mean of {told}"
    assert str(where(x=name).count()) == f"Number of records, where x is {told}"


_KEYS = st.sampled_from(
    [
        "all",
        "any",
        "not",
        "equals",
        "in",
        "between",
        "ge",
        "lt",
        "at",
        "a",
        "b",
        "type",
        "of",
        "where",
        "group_by",
        "attributes",
        "bins",
        "q",
        "left",
        "right",
        "weights",
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=20,
)
_TYPES = st.sampled_from(
    [
        "predicate",
        "marginal",
        "sum",
        "mean",
        "variance",
        "quantile",
        "share",
        "ratio",
        "hierarchy",
        "product",
        "cut",
        "blocks",
        "degrees",
        "rank_one",
        "sparse",
        "dense",
        "elements",
        "other",
    ]
)


@given(_TYPES, st.dictionaries(_KEYS | st.sampled_from(["per", "only", "side", "indices", "attribute"]), _JSON))
def test_words_of_anything_are_one_line(kind: str, fields: dict[str, Any]) -> None:
    """Whatever is asked, words are found and printable. Would catch an error of the page that shows them."""
    told = words(fields | {"type": kind})
    assert told
    assert told.isprintable()


def test_deep_conditions_are_cut_short() -> None:
    """Would catch a question that is taken by the service, and ends whoever tells it."""
    deep: dict[str, Any] = {"a": 1}
    for _ in range(100):
        deep = {"not": {"any": [deep]}}
    assert "(further conditions)" in words({"type": "predicate", "where": deep})


def test_every_documented_question_has_words(root: Path) -> None:
    """Each example of docs/asking.md. Would catch a new form that people are told nothing of."""
    blocks_ = re.findall(r"^```json\n(.*?)^```$", (root / "docs" / "asking.md").read_text(), re.MULTILINE | re.DOTALL)
    questions = [document for document in map(json.loads, blocks_) if "kind" not in document]
    assert len(questions) > 20
    for document in questions:
        told = str(question(document))
        assert "something" not in told
        assert "of the type" not in told
        for name in document.get("where", {}).keys() - {"all", "any", "not"}:
            assert name in told
