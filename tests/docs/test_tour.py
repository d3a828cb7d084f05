"""The tour and the tutorials are what their commands print: all run, on real servers, and noise alone differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.demo.server import Server
from benchmarks.tour import PAGES, TOUR, TourFailed, blocks, taken, typed
from tests.docs.shapes import shape
from tests.kit.servers import shims

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.usefixtures("forked_servers")
def test_every_command_runs_and_prints_what_stands_there(page: Path) -> None:
    """Would catch a command that fails, an answer of another form than the one shown, and a transcript that does not
    replay."""
    text = page.read_text()
    now = taken(text, shims)
    assert [block[:2] for block in blocks(now)] == [block[:2] for block in blocks(text)]
    for (_, command, shown), (_, _, printed) in zip(blocks(text), blocks(now), strict=True):
        assert shape(printed) == shape(shown), command
    assert "Traceback" not in now


def test_the_tour_has_what_it_promises() -> None:
    """A tabulation, means by group, quantiles and drill-downs, on the command line and in Python, and no keys. Would
    catch a form of question that is no longer shown, and a block that nothing types."""
    text = TOUR.read_text()
    assert text.count("```") == sum(4 if shown else 2 for *_, shown in blocks(text))
    typed_in = {
        language: "".join(command for of, command, _ in blocks(text) if of == language)
        for language in ("bash", "python")
    }
    for word in (
        "dataset check",
        "dataset add",
        "--group-by",
        "--mean",
        "--quantile",
        "--sum",
        "--where",
        "=null",
        "any",
    ):
        assert word in typed_in["bash"]
    for word in ("check", "register", "group_by", "mean", "quantile", "sum", "variance", "where", "verify"):
        assert f"{word}(" in typed_in["python"]
    assert "5,634 records read" in text
    assert "the transcript replays" in text
    assert "entries replay" in text
    assert re.search(r"\d ± \d", text)
    assert "cur_" not in text
    assert not re.search(r"\b[\w-]{43}\b", text)


@pytest.mark.parametrize(
    ("language", "command"), [("bash", "false\n"), ("bash", "x=$(false)\n"), ("python", "1 / 0\n")]
)
def test_a_command_that_fails_is_noticed(tmp_path: Path, language: str, command: str) -> None:
    """Would catch a tour that is written down whatever happens."""
    with pytest.raises(TourFailed, match=language):
        typed(language, [command], Server("http://127.0.0.1:1", "key"), tmp_path)


def test_what_is_printed_stands_with_its_command(tmp_path: Path) -> None:
    """Would catch outputs that move to the next block."""
    parts = ["echo one; x=2\n", "true\n", "echo $x; echo three >&2\n"]
    assert typed("bash", parts, Server("http://127.0.0.1:1", "key"), tmp_path) == ["one\n", "", "2\nthree\n"]
