"""Draws docs/img/income.svg, the picture of README.md: the first act of the demonstration, asked of a real server.

Run `python -m benchmarks.income`. The survey is that of the demonstration; its numbers differ from run to run, as noise
does.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from app.demo.page import forest_of
from app.demo.server import running_server
from app.demo.survey import survey
from app.demo.tables import ask_means
from curator_client import Curator
from curator_client.figures import standing_alone

PICTURE = Path(__file__).parents[1] / "docs" / "img" / "income.svg"
#: Of the means; they are all that is asked.
EPSILON, DELTA = 0.25, 1e-9


def drawn() -> str:
    """The picture of means that were asked just now, as a file of its own."""
    couples = survey(0)
    with (
        tempfile.TemporaryDirectory(prefix="curator-income-") as scratch,
        running_server(Path(scratch)) as server,
        Curator(server.url, server.admin_key) as curator,
    ):
        curator.register(couples.spec(EPSILON, DELTA), couples.file, filename="couples.csv")
        return standing_alone(forest_of(ask_means(curator, couples, EPSILON)))


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
    print(f"Wrote {PICTURE.name}.")
