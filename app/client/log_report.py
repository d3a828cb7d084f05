"""A report of a log that is kept in a folder, without any service (:mod:`app.audit.report`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from app.audit.log import Follower, LinesRefused, LogForked, LogShrank
from app.audit.notes import Checkpoint, NoteRefused
from app.audit.replay import MEMORY_LIMIT, replay_file
from app.audit.report import Reader
from app.audit.report_checks import Verified
from app.client.errors import NotVerified
from app.client.log import LogFolder

#: Where transcripts lie in the folder, each named by its session or release.
_TRANSCRIPTS = ("sessions", "releases")


def report_of(
    folder: Path, *, earlier: Path | None = None, replay: bool = False, memory_limit: int = MEMORY_LIMIT
) -> dict[str, Any]:
    """The report of a folder that :meth:`app.client.log.LogFolder.fetch` keeps.

    Args:
        folder: the folder.
        earlier: a file with a signed checkpoint that was kept elsewhere, which the log is to begin with.
        replay: replay the transcripts that lie in the folder, each up to the last entry that is in the log.
        memory_limit: most bytes that a replay may take.

    Raises:
        NotVerified: when nothing is kept in the folder, or the earlier checkpoint is not one of the log's key.
        OSError: when something cannot be read.
    """
    kept, reader = LogFolder(folder), Reader()
    try:
        note = (folder / "checkpoint").read_bytes()
        verifier, checkpoint = kept.signed(note)
    except FileNotFoundError:
        raise NotVerified(f"nothing is kept in {folder}: fetch the log first") from None
    except NoteRefused as error:
        for line in kept.lines():
            reader.take(line)
        return reader.document(Verified(None, None, None, str(error)))
    before = None if earlier is None else _earlier(kept, earlier)
    problem, fork = _follow(Follower(verifier, before), note, kept, reader)
    refused = _refused(kept, folder / "refused")
    verified = Verified(verifier.name, verifier.text(), checkpoint, problem, before, fork, refused)
    return reader.document(verified, _replays(folder, reader, memory_limit) if replay else None)


def _follow(state: Follower, note: bytes, kept: LogFolder, reader: Reader) -> tuple[str | None, str | None]:
    """Read the lines of a checkpoint; why they are not those that were signed, and why they do not begin with what was
    seen before, where that is so.
    """
    alone, fork = Follower(state.verifier), None
    checkpoint = alone.look(note)

    def taken() -> Iterator[bytes]:
        for line in islice(kept.lines(), checkpoint.size):
            reader.take(line)
            yield line

    try:
        state.look(note)
    except (LogShrank, LogForked) as error:
        state, fork = alone, str(error)
    lines = taken()
    try:
        try:
            state.follow(checkpoint, lines)
        except LogForked as error:
            fork = str(error)
            deque(lines, maxlen=0)  # the rest is reported on all the same
            alone.follow(checkpoint, islice(kept.lines(), checkpoint.size))
    except LinesRefused as error:
        return str(error), fork
    return None, fork


def _earlier(kept: LogFolder, path: Path) -> Checkpoint:
    try:
        return kept.signed(path.read_bytes())[1]
    except NoteRefused as error:
        raise NotVerified(f"{path} is no checkpoint of this log: {error}") from None


def _refused(kept: LogFolder, path: Path) -> Checkpoint | None:
    """The checkpoint that contradicted what was seen, where one is kept that a key of the log has signed."""
    try:
        return kept.signed(path.read_bytes())[1]
    except (FileNotFoundError, NoteRefused):
        return None


def _replays(folder: Path, reader: Reader, memory_limit: int) -> dict[str, tuple[bool, str | None]]:
    """Verdicts over the transcripts of sessions that the log has told of; those of later ones are not looked at."""
    heads, found = reader.heads(), {}
    for path in sorted(path for place in _TRANSCRIPTS for path in (folder / place).glob("*.ndjson")):
        if path.stem in heads:
            head, entries = heads[path.stem]
            verdict = replay_file(path, head=head, entries=entries, memory_limit=memory_limit)
            where = f"entry {verdict.sequence}: " if verdict.sequence is not None else ""
            found[path.stem] = (verdict.ok, None if verdict.ok else f"{where}{verdict.problem}")
    return found
