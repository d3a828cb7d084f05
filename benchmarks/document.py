"""Puts measured tables into the documents.

Run `python -m benchmarks.document`. Between ``<!-- table NAME | COLUMN | ... -->`` and ``<!-- /table -->`` stands what
`benchmarks/results/NAME.json` holds, of the named columns or of all. A test runs the same and finds nothing to change.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, ROOT

DOCS = ROOT / "docs"
_TABLE = re.compile(r"<!-- table ([^>]*?) -->\n.*?<!-- /table -->", re.DOTALL)


def cell(value: Any) -> str:
    """A value as tables show it: three digits, or whole from 100 on; nothing where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")


def table(document: dict[str, Any], columns: Sequence[str]) -> str:
    """A result as Markdown, of the given columns, in their order; of all where none are given."""
    places = [document["columns"].index(name) for name in columns] or range(len(document["columns"]))
    lines = [[document["columns"][i] or "what" for i in places], ["---"] * len(places)]
    lines += [[cell(row[i]) for i in places] for row in document["rows"]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def filled(text: str, results: Path = RESULTS) -> str:
    """A document with its tables as they were measured."""

    def fill(found: re.Match[str]) -> str:
        name, *columns = [part.strip() for part in found[1].split("|")]
        measured = json.loads((results / f"{name}.json").read_text())
        return f"<!-- table {found[1]} -->\n{table(measured, columns)}\n<!-- /table -->"

    return _TABLE.sub(fill, text)


def main() -> None:
    """Fill in all documents."""
    for path in sorted(DOCS.rglob("*.md")):
        path.write_text(filled(path.read_text()))


if __name__ == "__main__":
    main()
