"""The documents say what is true now."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from app.constructions import median, refit
from app.curator import plan, promises
from app.settings import settings_table
from benchmarks.document import filled

pytestmark = pytest.mark.unit

#: What a document calls by its path from the root, as a Python module, or by a link.
_PATH = re.compile(r"(?<![\w/.-])((?:app|benchmarks|clients|deploy|docs|migrations|tests)/[\w./*-]*[\w*])")
_MODULE = re.compile(r"(?<![\w/.-])((?:app|benchmarks|tests)(?:\.[a-z_]+)+)")
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
#: A file that is called by its name alone.
_NAME = re.compile(r"`(\w+\.py)`")


def missing(root: Path, document: Path) -> Iterator[str]:
    """What a document names of the repository and is not in it."""
    text = document.read_text()
    for path in _PATH.findall(text):
        if not any(root.glob(path)):
            yield path
    for module in _MODULE.findall(text):
        path = module.replace(".", "/")
        if not module.endswith(".py") and not (root / path).is_dir() and not (root / f"{path}.py").is_file():
            yield module
    for link in _LINK.findall(text):
        if not (document.parent / link).exists():
            yield link
    for name in _NAME.findall(text):
        if not any(next((root / folder).rglob(name), None) for folder in ("app", "benchmarks", "clients", "tests")):
            yield name


class TestPaths:
    def test_everything_named_is_there(self, root: Path) -> None:
        """Catches a file, folder or module that was moved or renamed while a document sends readers where it was."""
        others = (root / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "benchmarks/README"))
        documents = [*(root / "docs").rglob("*.md"), *others]
        assert len(documents) > 20
        wrong = {str(path.relative_to(root)): found for path in documents if (found := [*missing(root, path)])}
        assert wrong == {}

    def test_what_is_not_there_is_noticed(self, root: Path, tmp_path: Path) -> None:
        """Catches a check that would take any path."""
        document = tmp_path / "page.md"
        document.write_text(
            "`app/http/doors.py::Door`, (tests/nothing), docs/*.txt, `python -m benchmarks.nothing`, `doors.py`, "
            "[it](nowhere.md#top), [that](https://a.example/b), app.http.app, `app/http/app.py`, docs/*.md, `app.py`."
        )
        assert [*missing(root, document)] == [
            "app/http/doors.py",
            "tests/nothing",
            "docs/*.txt",
            "benchmarks.nothing",
            "nowhere.md",
            "doors.py",
        ]


def test_every_benchmark_is_in_the_list(root: Path) -> None:
    """Catches a module of which a newcomer does not read what it measures, and one that is gone."""
    folder = root / "benchmarks"
    modules = {path.stem for path in folder.rglob("*.py")} - {"__init__", "__main__"}
    listed = re.findall(r"`([a-z_]+)(?: COMMIT)?`", (folder / "README.md").read_text())
    assert sorted(set(listed) - {"service", "research", "compared", "tools"}) == sorted(modules)


class TestOperations:
    def test_every_setting_is_in_the_table_as_it_is(self, root: Path) -> None:
        """Catches a setting added, dropped, renamed or given another default without its row in the documents."""
        text = (root / "docs" / "reference" / "settings.md").read_text()
        rows = [line for line in text.splitlines() if line.startswith("| `CURATOR_")]
        assert rows == [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in settings_table()]


def test_tables_are_as_measured(root: Path) -> None:
    """Catches a table made prettier by hand, and a new measurement that its document does not know of."""
    shown = 0
    for path in sorted((root / "docs").rglob("*.md")):
        text = path.read_text()
        shown += text.count("<!-- /table -->")
        assert filled(text) == text, f"{path.name}: run python -m benchmarks.document"
    assert shown > 15


def test_a_table_of_other_numbers_is_noticed(tmp_path: Path) -> None:
    """Catches a check that would take any table."""
    result = {"columns": ["what", "ms"], "rows": [["a", 0.12345], ["b|c", 12345.6], ["d", None]]}
    (tmp_path / "x.json").write_text(json.dumps(result))
    text = "Before\n<!-- table x -->\n| old | 1 |\n<!-- /table -->\nafter"
    made = filled(text, tmp_path)
    assert made != text
    assert "| a | 0.123 |\n| b\\|c | 12,346 |\n| d |  |" in made
    assert filled(made, tmp_path) == made
    assert "| 0.123 |\n" in filled("<!-- table x | ms -->\n<!-- /table -->", tmp_path)


def test_limits_of_mechanisms_are_the_codes(root: Path) -> None:
    """Catches a size or tolerance that is changed and still stands as it was in docs/mechanisms.md."""
    text = " ".join((root / "docs" / "mechanisms.md").read_text().split())
    assert (
        f"2^{median.MOST_COUNTS.bit_length() - 1} counts and m 2^{median.MOST_RECORDS.bit_length() - 1} records" in text
    )
    assert f"keeps {median.POINTS} points over at most {median.MOST_CELLS:,} cells" in text
    assert f"an answer 2^{round(math.log2(refit.SLACK))} of L" in text
    assert f"than {refit._CLOSE:.0e} of L, or after {refit._MOST_STEPS} steps".replace("e-0", "e-") in text
    assert promises.MOST_UPDATES == 10**7
    assert "above 10^7" in text
    for status in get_args(plan.BoundStatus):
        assert f"| `{status}` |" in text


def test_odds_are_those_of_epsilon(root: Path) -> None:
    """Bayes' rule with the largest ratio of likelihoods. Catches a table for those who decide that says too little."""
    text = (root / "docs" / "explanation" / "deciding.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) in 100 \| ([\d.]+) in 100 \|$", text, re.MULTILINE)
    assert len(rows) == 5
    for epsilon, *told in rows:
        for before, after in zip((0.01, 0.5), told, strict=True):
            odds = before / (1 - before) * math.exp(float(epsilon))
            assert abs(100 * odds / (1 + odds) - float(after)) <= 0.05
