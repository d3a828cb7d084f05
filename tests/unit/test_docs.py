"""The documents say what is true now."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import get_args

from app.constructions import median, refit
from app.curator import plan, promises
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
