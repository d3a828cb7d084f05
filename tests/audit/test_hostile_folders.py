"""Would show a command that a stranger's folder brings down: with a stack trace, an exit code that no document knows,
or memory that grows with a line.

Folders are damaged at random and signed all the same, as whoever holds the log's key can.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.audit import writing
from app.cli import main
from app.report.checks import Verified
from app.report.page import page
from app.report.reader import Reader
from curator_client.proofs import records
from tests.kit.forger import keep
from tests.kit.logs import honest

pytestmark = pytest.mark.unit

LINES = honest().lines
NUMBERS: list[Any] = [1e-300, 5e-324, 1e300, -1, 2**63, 2**64, 10**30, 0.1, -0.0]
VALUES: list[Any] = [
    *NUMBERS,
    True,
    None,
    "",
    "1e-300",
    "NaN",
    "1E+999999999",
    "9" * 70,
    [],
    {},
    [[]],
    {"a": {}},
    "\u202e",
]
DEEP = [b"[" * depth + b"]" * depth for depth in (150, 250, 900, 5000)]
NONSENSE = [
    b"",
    b"null",
    b"[]",
    b"3",
    b"\xff",
    *DEEP,
    *(b'{"record":"log key","statement":%b}' % deep for deep in DEEP),
]


def places(document: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of everything in a document."""
    items: Any = document.items() if isinstance(document, dict) else enumerate(document[:5])
    found = [at] if at else []
    if isinstance(document, dict | list):
        for name, value in items:
            found += places(value, (*at, name)) if isinstance(value, dict | list) else [(*at, name)]
    return found


def changed(line: bytes, place: tuple[Any, ...], value: Any) -> bytes:
    """A line with another value there."""
    document = inner = orjson.loads(line)
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize("value", [1e-300, 1e300, 10**30, "1e-300", "NaN", True, None, [], {}])
def test_no_value_of_a_line_brings_a_report_down(value: Any) -> None:
    """Every sixth place of every line in turn. An amount of 1e-300 used to."""
    start = VALUES.index(value) % 6
    for number, line in enumerate(LINES):
        for place in places(orjson.loads(line))[start::6]:
            reader = Reader()
            lines = [*LINES[:number], changed(line, place, value), *LINES[number + 1 :]]
            for each in lines:
                reader.survey(each)
            for each in lines:
                reader.take(each)
            reader.end()
            document = reader.document(Verified(None, None, None, "not looked at"))
            orjson.dumps(document)
            assert page(document)


def damaged(rng: random.Random, content: bytes) -> bytes:
    found = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(found) + 1)
        match rng.randrange(3):
            case 0:
                found[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                del found[place : place + rng.randrange(1, 20)]
            case _:
                found[place:place] = bytes(rng.choices(b'"\0{}[]0+= \xff', k=3))
    return bytes(found).replace(b"\n", b" ")


def damaged_folder(rng: random.Random, folder: Path) -> list[bytes]:
    """A folder in which something is wrong; its lines."""
    lines = [*LINES]
    for _ in range(rng.choice([0, 1, 1, 3])):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0 | 1 | 2:
                try:
                    lines[at] = changed(lines[at], rng.choice(places(orjson.loads(lines[at]))), rng.choice(VALUES))
                except (ValueError, IndexError, TypeError):
                    lines[at] = b"{}"
            case 3:
                lines[at] = rng.choice(NONSENSE)
            case 4:
                lines.insert(at, rng.choice(lines))
            case _:
                lines[at] = damaged(rng, lines[at])
    keep(folder, lines)
    for place in ("sessions", "releases"):
        (folder / place).mkdir()
        told = [line for line in lines if b'"record":"movement"' not in line]
        (folder / place / "s1.ndjson").write_bytes(b"".join(line + b"\n" for line in told))
    for name in ("key", "checkpoint", "refused", "frontier", "entries.ndjson"):
        path = folder / name
        match rng.randrange(12):
            case 0:
                path.write_bytes(damaged(rng, path.read_bytes() if path.exists() else b"x" * 50))
            case 1:
                path.write_bytes(rng.choice([b"", bytes(9), b"\xff" * 9, *DEEP]))
            case 2 if rng.random() < 0.3:
                path.unlink(missing_ok=True)
                path.mkdir()
    return lines


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code of a command, and what it said."""
    monkeypatch.setattr(sys, "argv", ["curator", "audit", *words])
    code: Any = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    told = capsys.readouterr()
    return int(code or 0), told.out + told.err


def commands(folder: Path, transcript: Path, other: Path, rng: random.Random) -> list[list[str]]:
    made = str(folder.parent / "made")
    return [
        [
            "report",
            str(folder),
            "--html",
            made,
            *rng.choice([[], ["--replay"], ["--earlier", str(other / "checkpoint")]]),
        ],
        ["replay", str(folder), *rng.choice([[], ["--json"]])],
        ["replay", str(transcript)],
        ["verify", str(folder), str(transcript)],
        ["compare", str(folder), str(rng.choice([other, other / "checkpoint", transcript]))],
        ["commitment", str(folder), "people", str(transcript), "--key", "00" * 32],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_every_folder_ends_in_a_documented_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    rng, codes = random.Random(seed), Counter[int]()
    keep(tmp_path / "other", LINES[: rng.randrange(1, len(LINES))])
    for number in range(3):
        folder, transcript = tmp_path / f"log{number}", tmp_path / f"t{number}.ndjson"
        lines = damaged_folder(rng, folder)
        transcript.write_bytes(b"".join(line + b"\n" for line in lines))
        for words in commands(folder, transcript, tmp_path / "other", rng):
            code, told = run(monkeypatch, capsys, *words)
            assert code in (0, 1, 3), (words, told)
            assert "Traceback" not in told
            codes[code] += 1
    assert codes[1] > 2


def test_a_line_without_end_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of 200 MB took a gigabyte."""
    monkeypatch.setattr(records, "MOST_LINE", 1 << 20)
    folder, transcript = (
        keep(tmp_path / "log", [*LINES, b'{"a":"%b"}' % bytes(2 << 20).replace(b"\0", b"x")]),
        tmp_path / "t",
    )
    keep(tmp_path / "other", LINES)
    (folder / "sessions").mkdir()
    (folder / "releases").mkdir()
    transcript.write_bytes(b'{"record":"header"}\n' + b"x" * (2 << 20))
    rng = random.Random(1)
    for words in commands(folder, transcript, tmp_path / "other", rng):
        code, told = run(monkeypatch, capsys, *words)
        assert code == 1, (words, told)
        if words[0] != "replay" or words[1] == str(folder):
            assert "and is not read" in " ".join(told.split()), words


def test_lines_of_a_transcript_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch records behind long weights that are taken for a part of them, and a last line without its end."""
    monkeypatch.setattr(records, "MOST_LINE", 1 << 10)
    weights = writing.weights_record("a" * 64, bytes(5000))
    (tmp_path / "t").write_bytes(b"{}\n" + weights + b"\n[1]\n" + weights + b"\n[2]")
    with (tmp_path / "t").open("rb") as file:
        assert [*records.transcript_lines(file)] == [b"{}", records.WEIGHTS_HEAD, b"[1]", records.WEIGHTS_HEAD, b"[2]"]
    (tmp_path / "t").write_bytes(b"{}\n" + b"x" * 2000)
    with (tmp_path / "t").open("rb") as file, pytest.raises(records.LineTooLong, match="line 2 has more"):
        [*records.transcript_lines(file)]
