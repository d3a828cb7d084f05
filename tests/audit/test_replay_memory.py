"""What a replay keeps of a long transcript."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.verifying.transcript import replay_file
from benchmarks.service.replay import make_transcript, replayed

pytestmark = pytest.mark.unit

#: Bytes beyond the program itself; the file alone is larger.
ROOM = 8 << 20


@pytest.mark.slow
def test_memory_grows_with_distinct_questions_alone(tmp_path: Path) -> None:
    """20,000 answers over 1,000 questions, in a process that may take less memory than the file is long. Catches
    whatever is kept of each answer: a line, a record, a query."""
    path = tmp_path / "t.ndjson"
    make_transcript(path, 100, 100)
    least = replayed(path)["peak"]
    make_transcript(path, 20_000, 1000)
    assert path.stat().st_size > ROOM
    found = replayed(path, ROOM)
    assert found["ok"], found["problem"]
    summary = found["summary"]
    assert (summary["cached_answers"], summary["queries"]) == (19_000, 1000)
    assert summary["hypothesis_answers"] > 500
    assert found["peak"] - least < 2 << 20


@pytest.mark.slow
def test_a_first_answer_takes_a_hundred_bytes(tmp_path: Path) -> None:
    """6,000 questions, each another one. Catches what is kept as Python's objects, which take several times that."""
    path = tmp_path / "t.ndjson"
    make_transcript(path, 100, 100)
    least = replayed(path)["peak"]
    make_transcript(path, 6000, 6000)
    found = replayed(path)
    assert found["ok"], found["problem"]
    assert found["summary"]["queries"] == 6000
    assert found["peak"] - least < 6000 * 150 + (5 << 18)


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    """Catches a bar that does not move, or stops before the end."""
    path, heard = tmp_path / "t.ndjson", list[tuple[int, int]]()
    make_transcript(path, 50, 10)
    assert replay_file(path, lambda done, total: heard.append((done, total))).ok
    size = path.stat().st_size
    assert heard[-1] == (size, size)
    assert [done for done, _ in heard] == sorted({done for done, _ in heard})
