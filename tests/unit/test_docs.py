"""The documents say what is true now."""

from __future__ import annotations

from pathlib import Path

from app.settings import settings_table


class TestOperations:
    def test_every_setting_is_in_the_table_as_it_is(self, root: Path) -> None:
        """Catches a setting added, dropped, renamed or given another default without its row in the documents."""
        text = (root / "docs" / "operations.md").read_text()
        rows = [line for line in text.splitlines() if line.startswith("| `CURATOR_")]
        assert rows == [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in settings_table()]
