"""The demonstration as it ships: a server, five acts, a page; and that nothing else remains."""

from __future__ import annotations

import csv
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.demo.test_papers import servers_of
from tests.kit.patience import patience
from tests.kit.servers import Command

pytestmark = pytest.mark.integration

#: Of the session with a promise: fewer than its drawing has points.
QUESTIONS = 24


def start(folder: Path, *arguments: str) -> Command:
    """The demonstration with its temporary files under ``folder``, and what it says beside that."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
    said = folder.with_name(f"{folder.name}-said")
    said.mkdir()
    words = ["demo", "--questions", str(QUESTIONS), "--out", str(said / "out"), *arguments]
    return Command(said, words, {**environment, "TMPDIR": str(folder), "COLUMNS": "80"})


def test_it_ends_with_a_page(tmp_path: Path) -> None:
    """Exit code 0 means: the promise kept, 85% of 3,000 intervals right, a changed number found and too much refused.

    The promise may fail with the probability that it states; what so few questions can reach of it is below one in a
    thousand. Catches files that are missing, a page that needs something from elsewhere, and what is left behind.
    """
    demo = start(tmp_path)
    done = demo.ended(240)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    out = tmp_path.with_name(f"{tmp_path.name}-said") / "out"
    assert {file.name for file in out.iterdir()} == {
        "index.html",
        "report.html",
        "income.svg",
        "tables.csv",
        "tables.ndjson",
    }
    page = (out / "index.html").read_text()
    assert not re.search(r"<script|<link|<img|https?://(?!www\.w3\.org/)", page)
    assert (page.count("<svg"), page.count('class="truth"')) == (2, 8)
    with (out / "tables.csv").open() as file:
        rows = list(csv.DictReader(file))
    told = re.search(r"84 tables of ([\d,]+) counts", output)
    assert told is not None, output
    assert len(rows) == int(told[1].replace(",", ""))
    held = sum(float(row["low"]) <= float(row["truth"]) <= float(row["high"]) for row in rows) / len(rows)
    said = re.search(r"([\d.]+)% of all\s+intervals hold", output)
    assert said is not None, output
    assert float(said[1]) == pytest.approx(100 * held, abs=0.051)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []
    assert servers_of(tmp_path) == []


def test_it_stays_until_it_is_interrupted(tmp_path: Path) -> None:
    """With --stay the server answers after the page is there, and ends with the demonstration."""
    demo = start(tmp_path, "--stay")
    said = tmp_path.with_name(f"{tmp_path.name}-said")
    deadline = time.monotonic() + patience(240)
    while "stays up" not in (said / "log").read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert servers_of(tmp_path) != []
    os.kill(demo.pid, signal.SIGINT)
    done = demo.ended(90)
    assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (0, False)
    assert servers_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
