"""Finds sentences of the documents that are longer than 25 words.

Run `python docs/reading.py [PAGE ...]`: each such sentence with its page and its words, the longest first; of all
pages where none is named. Code, tables, headings and lists of definitions are left out; a formula is one word.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
MOST_WORDS = 25
_BLOCKS = re.compile(r"^(?:```.*?^```|:::.*?^:::|<!--.*?-->|\$\$.*?\$\$|\([\w-]+\)=)$", re.MULTILINE | re.DOTALL)
#: Lines further in than any list are formulas.
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+(?=\n|\Z)")
_LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+|^>\s?|^: ", re.MULTILINE)
_ENDS = re.compile(r"(?<=[.!?:;])[\"')*_]*\s+(?=[\"'(*_`]*[\w`∎])")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page of Markdown, whatever stands in code, tables and headings left out.

    A colon or a semicolon ends one: what follows is read by itself.
    """
    text = _INDENTED.sub("", _BLOCKS.sub("", re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)))
    text = re.sub(r"`[^`]*`", "code", _LINK.sub(r"\1", text))
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s|#|:\s)", text)
    for paragraph in paragraphs:
        plain = _ITEM.sub("", paragraph).strip()
        if plain and not plain.startswith(("#", "|")):
            yield from (found for found in _ENDS.split(" ".join(plain.split())) if found)


def words(sentence: str) -> int:
    """How many words a sentence has; what has no letter is none."""
    return sum(any(letter.isalpha() for letter in word) for word in sentence.split())


def long_ones(text: str) -> list[tuple[int, str]]:
    """The sentences that are too long, each after its number of words."""
    return [(count, sentence) for sentence in sentences(text) if (count := words(sentence)) > MOST_WORDS]


def main() -> None:
    """Print them."""
    pages = [Path(name) for name in sys.argv[1:]] or sorted(DOCS.rglob("*.md"))
    found = [(*one, page) for page in pages for one in long_ones(page.read_text())]
    for count, sentence, page in sorted(found, key=lambda one: -one[0]):
        print(f"{page}: {count} words: {sentence}")
    print(f"{len(found)} sentences above {MOST_WORDS} words in {len(pages)} pages")


if __name__ == "__main__":
    main()
