"""The notebooks of the tutorials run, and show what stands in them; noise alone differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from benchmarks.notebooks import PAGES, run
from tests.docs.shapes import shape

pytestmark = pytest.mark.integration


def shown(notebook: Any) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """Of each cell its text, and of what it showed the kinds, with the words that are not noise's."""
    return [
        (
            cell.source,
            [
                (kind, shape(text))
                for output in cell.outputs
                for kind, text in output.get("data", {"text": output.get("text", "")}).items()
                # Pictures move with the noise. The text beside each of them names the table.
                if kind != "text/html"
            ],
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.usefixtures("forked_servers")
def test_every_cell_runs_and_shows_what_stands_there(page: Path) -> None:
    """Would catch a cell that fails, and one that shows something else than the page says."""
    written = page.read_text()
    assert shown(run(written)) == shown(nbformat.reads(written, as_version=4))
    assert '"image/' not in written  # pictures of tables are drawn by the client, and need no library


def test_a_cell_that_fails_is_noticed() -> None:
    """Would catch pages that are written whatever happens."""
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        run(nbformat.writes(page))
