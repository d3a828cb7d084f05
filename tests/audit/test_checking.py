"""What is found of a log, in short: what is told on the way, and what a check of one session says of others."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import pytest

from app.report.checking import Task, checked
from curator_client.proofs.merkle import Frontier, leaf_hash
from curator_client.proofs.notes import Checkpoint
from tests.kit.forger import SIGNER
from tests.kit.logs import honest

pytestmark = pytest.mark.unit
Told = list[tuple[str, int, int, Any]]


class Lines:
    """A log without transcripts."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines, self._file = lines, io.BytesIO(b"".join(line + b"\n" for line in lines))
        self.asked: list[str] = []

    def line_at(self, at: int) -> bytes:
        self._file.seek(at)
        return self._file.readline()

    def lines(self) -> Iterator[bytes]:
        return iter(self._lines)

    def transcript(self, session: str, *, release: bool) -> AbstractContextManager[BinaryIO] | None:
        self.asked.append(session)
        return None

    def others(self) -> Iterable[str]:
        return ()

    def heard(self, count: int) -> None:
        """Nobody listens."""


def signed(lines: list[bytes]) -> tuple[bytes, Checkpoint]:
    tree = Frontier()
    for line in lines:
        tree.append(leaf_hash(line))
    return SIGNER.note(tree.size, tree.root()), Checkpoint(SIGNER.verifier.name, tree.size, tree.root())


def check(lines: list[bytes], note: bytes, **task: Any) -> tuple[dict[str, Any], Told, Lines]:
    told: Told = []
    kept = Lines(lines)
    result, _ = checked(Task(SIGNER.verifier.text(), note, **task), kept, 1 << 30, lambda *each: told.append(each))
    return result, told, kept


def test_what_does_not_hold_is_told_before_the_end() -> None:
    """Whoever stops an audit is told whether what was checked by then holds. Catches a finding that is told only at the
    end, and one that is told while nobody knows whether these are the lines.
    """
    lines = honest().lines
    note, _ = signed(lines)
    result, told, kept = check([*lines[:-1], lines[-1].replace(b"ana", b"bob")], note)
    assert {finding is None for stage, _, _, finding in told if stage == "lines"} == {True}
    problems = {finding["problem"] for stage, _, _, finding in told if stage == "books"}
    assert problems == {result["finding"]["problem"]}
    assert "that was signed" in problems.pop()
    assert result["contradicted"]
    assert kept.asked == []
    assert {of for _, _, of, _ in told} == {len(lines)}


def test_growth_is_told_in_the_words_of_a_fork() -> None:
    """Catches a checkpoint that was kept and is not compared: here one of the same size, and one of an honest past."""
    lines = honest().lines
    note, whole = signed(lines)
    result, _, _ = check(lines, note, earlier=Checkpoint(whole.origin, whole.size, leaf_hash(b"other")))
    assert result["finding"]["problem"] == f"two different logs of {len(lines)} entries are signed with one key"
    _, part = signed(lines[:5])
    result, _, _ = check(lines, note, earlier=part)
    assert [each["holds"] for each in result["checks"] if each["check"] == "earlier"] == [True]


def test_one_session_alone() -> None:
    """Catches a check that asks for other transcripts, and one of a session that the log does not have, which holds."""
    lines = honest().lines
    note, _ = signed(lines)
    result, told, kept = check(lines, note, session="s1")
    assert kept.asked == ["s1"]
    assert result["finding"]["problem"] == "the transcript is missing"
    assert [each["dataset"] for each in result["datasets"]] == ["people"]
    assert told[-1][:3] == ("replay", 1, 1)
    result, _, kept = check(lines, note, session="gone")
    assert kept.asked == []
    assert (result["verdict"], result["finding"]["problem"]) == ("does not hold", "the log does not have the session")
    assert result["finding"]["where"]["session"] == "gone"
