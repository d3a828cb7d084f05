"""The documents say what is true now."""

from __future__ import annotations

import json
from pathlib import Path

from app.settings import settings_table
from benchmarks.document import filled


class TestOperations:
    def test_every_setting_is_in_the_table_as_it_is(self, root: Path) -> None:
        """Catches a setting added, dropped, renamed or given another default without its row in the documents."""
        text = (root / "docs" / "operations.md").read_text()
        rows = [line for line in text.splitlines() if line.startswith("| `CURATOR_")]
        assert rows == [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in settings_table()]


def test_tables_are_as_measured(root: Path) -> None:
    """Catches a table made prettier by hand, and a new measurement that its document does not know of."""
    shown = 0
    for path in sorted((root / "docs").glob("*.md")):
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
