"""Every sentence of the documents is short enough to be read once, and docs/reading.py counts what readers read."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def reading(root: Path) -> ModuleType:
    """docs/reading.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("reading", root / "docs" / "reading.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of(count: int) -> str:
    """A sentence of so many words."""
    return " ".join(["So", *["on"] * (count - 2), "ended."])


def test_no_sentence_is_above_the_limit(root: Path, reading: ModuleType) -> None:
    """Catches a sentence that grew, or came, too long to be read once."""
    pages = [*sorted((root / "docs").rglob("*.md")), root / "README.md", root / "CONTRIBUTING.md"]
    assert len(pages) > 60
    found = {str(page.relative_to(root)): reading.long_ones(page.read_text()) for page in pages}
    assert {page: long for page, long in found.items() if long} == {}


@pytest.mark.parametrize(
    "page",
    [
        "{}",
        "Short. {} Short.",
        "# A heading\n\n{}",
        "- Short.\n- {}\n- Short.",
        "1. Short.\n   {}",
        "> {}",
        "A word\n: {}",
        "({})",
        "Short: *that*. {}",
        "**Short.** {}",
        "The proof ends. ∎ {}",
        "Short.\n{}\nShort.",
        "```\ncode\n```\n\n{}\n\n| a | b |\n|---|---|\n| c | d |",
        "(target)=\n{}",
    ],
)
def test_a_planted_sentence_is_noticed(reading: ModuleType, page: str) -> None:
    """Catches a counter that reads nothing, or passes over lists, definitions or brackets, where sentences stand."""
    longest = of(reading.MOST_WORDS)
    assert reading.long_ones(page.format(longest)) == []
    ((count, sentence),) = reading.long_ones(page.format(of(reading.MOST_WORDS + 1)))
    assert count == reading.MOST_WORDS + 1
    assert sentence.strip("()").endswith("ended.")


@pytest.mark.parametrize(
    "page",
    [
        "```python\n{}\n```",
        "# {}",
        "Before.\n## {}\nAfter.",
        "| a | {} |\n|---|---|\n| b | {} |",
        "Before.\n\n    {}\n\nAfter.",
        "Before.\n\n    {}\n",
        "<!-- {} -->",
        "$$\n{}\n$$",
        "---\ntitle: {}\n---\n\nShort.",
        "Short, by `{}` alone.",
        "Short, by [it](https://a.example/{}).",
    ],
)
def test_what_is_no_sentence_is_not_counted(reading: ModuleType, page: str) -> None:
    """Catches a counter that takes code, a table, a heading, a formula, a comment or an address for a sentence."""
    assert reading.long_ones(page.replace("{}", of(3 * reading.MOST_WORDS))) == []


def test_sentences_end_where_readers_stop(reading: ModuleType) -> None:
    """Catches sentences that are taken together, by each mark that ends one, and across items and paragraphs."""
    half = of(reading.MOST_WORDS - 5)
    for mark in (". ", "! ", "? ", ": ", "; ", ".\n", ".\n\n", "\n- ", "\n1. ", ".) ", '." ', ".** ", ". ∎ "):
        assert reading.long_ones(f"{half[:-1]}{mark}{half}") == [], mark
    assert len(reading.long_ones(f"{half[:-1]}, {half}")) == 1


def test_words_are_what_has_letters(reading: ModuleType) -> None:
    """Catches numbers and signs that are counted as words, and code or a link that counts for more than it shows."""
    assert [
        reading.words(found) for found in reading.sentences("Of 4,096 + 12 cells `a b c` and [two words](x.md).")
    ] == [6]
