"""docs/privacy.md names tests that exist, and shows the study of reply times as it was measured."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.unit

_TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


@pytest.fixture(scope="module")
def document(root: Path) -> str:
    return (root / "docs" / "privacy.md").read_text()


@cache
def names_in(path: Path) -> frozenset[str]:
    """Tests of a file: functions, methods as Class::method, and classes that are made by assignment."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(name for name in found if name.startswith(("test_", "Test")))


def claims(document: str) -> list[str]:
    table = document[document.index("| claim | proof | guarded by |") :]
    return [line for line in table.splitlines()[2:] if line.startswith("|")]


@pytest.mark.slow
def test_every_test_named_exists(root: Path, document: str) -> None:
    """Catches a test that was renamed or dropped while the document goes on naming it."""
    named = _TEST.findall(document)
    assert len(named) > 60
    missing = [
        f"{path}::{name}" for path, name in named if not (root / path).is_file() or name not in names_in(root / path)
    ]
    assert missing == []


def test_every_claim_has_its_proof_and_its_test(document: str) -> None:
    """Catches a claim without a test, and one whose proof is in no section of the document."""
    sections = set(re.findall(r"^##+ (\d+(?:\.\d+)?)\.? ", document, re.MULTILINE))
    for line in claims(document):
        _, claim, proofs, tests, _ = line.split("|")
        assert claim.strip()
        cited = re.findall(r"\d+(?:\.\d+)?", proofs)
        assert cited, line
        assert set(cited) <= sections, line
        words = _TEST.sub("", tests)
        assert _TEST.search(tests), line
        assert not words.replace(",", "").strip(), line


def test_sections_that_are_cited_are_there(document: str) -> None:
    sections = set(re.findall(r"^##+ (\d+(?:\.\d+)?)\.? ", document, re.MULTILINE))
    assert set(re.findall(r"[Ss]ections? (\d+(?:\.\d+)?)", document)) <= sections


def timing_rows(measured: dict[str, Any]) -> list[str]:
    """The study's rows as the document shows them."""
    return [
        f"| {name} | {deadline} | {first:.2f} | {second:.2f} | {share:.3f} | {p:.2g} |"
        for name, deadline, _, _, first, second, _, _, share, p in measured["rows"]
    ]


def test_propositions_are_numbered_once(root: Path, document: str) -> None:
    """Catches two proofs of one number, and a decision that cites one that is not there."""
    numbers = re.findall(r"^\*\*Proposition (\w+)\.\*\*", document, re.MULTILINE)
    assert len(numbers) > 20
    assert len(set(numbers)) == len(numbers)
    for decision in sorted((root / "docs" / "decisions").glob("*.md")):
        if "privacy.md" in (text := decision.read_text()):
            assert set(re.findall(r"privacy\.md[^\n]*?proposition (\w+)", text)) <= set(numbers), decision.name


def test_reply_times_are_shown_as_measured(root: Path, document: str) -> None:
    """Catches a new measurement that the document does not know of, and numbers made prettier by hand."""
    measured = json.loads((root / "benchmarks" / "results" / "timing.json").read_text())
    shown = document[document.index("<!-- timing -->") : document.index("<!-- /timing -->")]
    assert [line for line in shown.splitlines() if line.startswith("| ")][1:] == timing_rows(measured)
