"""`curator audit report` over folders that were kept, and others: what is made, and the exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.cli import main
from curator_client.proofs.notes import Signer
from tests.kit.forger import SIGNER, keep
from tests.kit.logs import Writer, honest

pytestmark = pytest.mark.unit


class Made:
    """What a command made: its exit code, what it printed and said in all, the page and the document."""

    def __init__(self, code: Any, printed: str, aside: str, folder: Path) -> None:
        self.code, self.printed, self.told = code, printed, " ".join((printed + aside).split())
        self._folder = folder

    @property
    def page(self) -> str:
        return (self._folder / "made.html").read_text()

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads((self._folder / "made.json").read_bytes())
        return found

    def says(self, check: str) -> tuple[bool | None, str]:
        found = next(each for each in self.document["checks"] if each["check"] == check)
        return found["holds"], found["says"]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command over a folder."""

    def run(folder: Path, *more: str) -> Made:
        for name in ("made.html", "made.json"):
            (tmp_path / name).unlink(missing_ok=True)
        files = ("--html", str(tmp_path / "made.html"), "--json", str(tmp_path / "made.json"))
        monkeypatch.setattr(sys, "argv", ["curator", "audit", "report", str(folder), *files, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Made(ended.value.code, captured.out, captured.err, tmp_path)

    return run


def test_a_log_that_holds(tmp_path: Path, report: Any) -> None:
    """Catches a failure where all is well, and what an interrupted fetch left being reported on."""
    folder = keep(tmp_path / "log", honest().lines)
    with (folder / "entries.ndjson").open("ab") as file:
        file.write(b'{"record":"principal","half":')
    made = report(folder)
    assert made.code == 0, made.told
    assert made.document["holds"]
    assert made.document["log"]["lines"] == len(honest().lines)
    assert "All that was checked holds" in made.page
    assert made.says("replay") == (None, "No transcripts were replayed.")


def test_something_does_not_follow(tmp_path: Path, report: Any) -> None:
    """Signed, and wrong all the same. Catches an operator's signature that is taken for the truth."""
    log = honest()
    log.move("charge", "s1", "0.3")
    made = report(keep(tmp_path / "log", log.lines))
    assert made.code == 1
    assert "moves after its last movement" in made.told
    assert "Something does not follow" in made.page
    assert made.says("lines")[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[0].replace(b"ana", b"eva"), *lines[1:]],
        lambda lines: lines[:-1],
        lambda lines: [*lines[:3], *lines[4:], lines[3]],
    ],
)
def test_other_lines_than_those_that_were_signed(tmp_path: Path, report: Any, change: Any) -> None:
    """A line that was changed, cut off, or moved. Catches lines that are not compared, and a page that is not made."""
    lines = honest().lines
    folder = keep(tmp_path / "log", lines)
    (folder / "entries.ndjson").write_bytes(b"".join(line + b"\n" for line in change(lines)))
    made = report(folder)
    assert made.code == 3
    assert made.says("lines")[0] is False
    assert made.document["contradicted"]
    assert "not the lines that were signed" in made.page


def test_another_key(tmp_path: Path, report: Any) -> None:
    """Catches a checkpoint that somebody else signed, and a key that is none."""
    folder = keep(tmp_path / "log", honest().lines)
    for key in (Signer(bytes(32)).verifier.text(), "no key", "\x00"):
        (folder / "key").write_text(key)
        made = report(folder)
        assert made.code == 3, made.told
        assert made.says("signature")[0] is False
        assert made.document["log"]["lines"] == len(honest().lines)


def test_an_earlier_checkpoint(tmp_path: Path, report: Any) -> None:
    """Catches a log that does not begin with what was signed before, is shorter than that, or is taken for forked when
    it only grew; and a checkpoint of another log.
    """
    lines = honest().lines
    folder = keep(tmp_path / "log", lines)
    earlier = keep(tmp_path / "earlier", lines[:5]) / "checkpoint"
    made = report(folder, "--earlier", str(earlier))
    assert (made.code, made.says("earlier")[0]) == (0, True)
    other = Writer()
    other.principal("created", "eva")
    forked = keep(tmp_path / "forked", [*other.lines, *lines[1:5]]) / "checkpoint"
    longer = keep(tmp_path / "longer", [*lines, *other.lines]) / "checkpoint"
    same = keep(tmp_path / "same", [*other.lines, *lines[1:]]) / "checkpoint"
    for note in (forked, longer, same):
        made = report(folder, "--earlier", str(note))
        assert made.code == 3, made.told
        assert made.says("earlier")[0] is False
        assert made.says("lines")[0]
        assert made.document["log"]["lines"] == len(lines)
    stranger = keep(tmp_path / "stranger", lines, Signer(bytes(32))) / "checkpoint"
    assert report(folder, "--earlier", str(stranger)).code == 1


def test_a_checkpoint_that_was_refused(tmp_path: Path, report: Any) -> None:
    """Catches two histories that are kept silent; and garbage, or another's note, that is taken for one."""
    folder = keep(tmp_path / "log", honest().lines)
    (folder / "refused").write_bytes(Signer(bytes(32)).note(3, bytes(32)))
    assert report(folder).code == 0
    (folder / "refused").write_bytes(SIGNER.note(3, bytes(32)))
    made = report(folder)
    assert made.code == 3
    assert "two histories" in made.told


def test_transcripts_that_do_not_replay(tmp_path: Path, report: Any) -> None:
    """Catches transcripts that are not looked at, one that is missing, and one of a session that is not in the log."""
    folder = keep(tmp_path / "log", honest().lines)
    (folder / "sessions").mkdir()
    for name in ("s1", "elsewhere"):
        (folder / "sessions" / f"{name}.ndjson").write_bytes(b"nothing\n")
    assert report(folder).code == 0
    made = report(folder, "--replay")
    assert made.code == 1
    assert made.says("replay")[0] is False
    assert "3 of the transcripts of 2 sessions" in made.says("replay")[1]
    assert all(session["replay"]["ok"] is False for session in made.document["datasets"][0]["sessions"]["first"])


def test_what_is_not_understood(tmp_path: Path, report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches other exit codes than those documented, and files that are made of nothing."""
    folder = keep(tmp_path / "log", honest().lines)
    assert report(tmp_path / "nowhere").code == 1
    assert not (tmp_path / "made.html").exists()
    assert report(folder, "--memory-limit", "much").code == 2
    assert report(folder, "--html", "-", "--json", "-").code == 2
    monkeypatch.setattr(sys, "argv", ["curator", "audit", "report", str(folder)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


def test_standard_output(tmp_path: Path, report: Any) -> None:
    """Catches anything beside the document on standard output."""
    folder = keep(tmp_path / "log", honest().lines)
    made = report(folder, "--json", "-")
    assert orjson.loads(made.printed)["holds"] is True
    assert "made.html" in made.told
