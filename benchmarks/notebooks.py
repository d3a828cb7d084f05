"""Runs the notebooks of the tutorials at a real server, and writes what they show into them.

Run `python -m benchmarks.notebooks [PAGE ...]`, of all where none is named. Each runs in an empty folder, with a server
of its own and an admin's key in its environment. A page registers itself what it asks about.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from app.demo.server import running_server
from benchmarks.harness import ROOT

PAGES = tuple(ROOT / "docs" / "tutorials" / f"{name}.ipynb" for name in ("analyst", "graph"))


def run(page: str) -> Any:
    """A notebook as it is when it was run, at a server that is started for it.

    Args:
        page: its text.

    Raises:
        nbclient.exceptions.CellExecutionError: when a cell fails.
    """
    notebook = nbformat.reads(page, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="curator-notebook-") as folder:
        (served := Path(folder) / "served").mkdir()
        (work := Path(folder) / "work").mkdir()
        client = NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            resources={"metadata": {"path": str(work)}},
            extra_arguments=["--log-level=ERROR"],
            coalesce_streams=True,
        )
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
        with running_server(served) as server:
            client.execute(
                env={
                    **environment,
                    "CURATOR_URL": server.url,
                    "CURATOR_API_KEY": server.admin_key,
                    "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "clients" / "python"))),
                }
            )
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return notebook


def main() -> None:
    """Run the pages and write down what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path, nargs="*", default=PAGES, help="which of them")
    for page in parser.parse_args().pages:
        shown: str = nbformat.writes(run(page.read_text()))  # type: ignore[no-untyped-call]
        page.write_text(shown + "\n")


if __name__ == "__main__":
    main()
