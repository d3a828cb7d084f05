"""A report of a log that is kept in a folder, without any service (:mod:`app.report.reader`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from app.audit.replay import MEMORY_LIMIT
from app.client.errors import NotVerified
from app.client.log import LogFolder
from app.report.checks import Verified
from app.report.reader import Reader
from app.verifying.folder import opened
from curator_client.proofs.follower import Follower, LinesRefused, LogForked, LogShrank
from curator_client.proofs.notes import Checkpoint, NoteRefused, note_at


def report_of(
    folder: Path, *, earlier: Path | None = None, replay: bool = False, memory_limit: int = MEMORY_LIMIT
) -> dict[str, Any]:
    """The report of a folder that :meth:`app.client.log.LogFolder.fetch` keeps.

    Args:
        folder: the folder.
        earlier: a file with a signed checkpoint that was kept elsewhere, which the log is to begin with.
        replay: hold the transcripts against the log, too, as :meth:`app.client.log.LogFolder.replay` does.
        memory_limit: most bytes that a replay may take.

    Raises:
        NotVerified: when nothing is kept in the folder, or the earlier checkpoint is not one of the log's key.
        Undecided: when a replay fails.
        OSError: when something cannot be read.
    """
    kept, reader = LogFolder(folder), Reader(memory_limit if replay else None)
    try:
        note = note_at(folder / "checkpoint")
        verifier, checkpoint = kept.signed(note)
    except FileNotFoundError:
        raise NotVerified(f"nothing is kept in {folder}: fetch the log first") from None
    except NoteRefused as error:
        for line in kept.lines():
            reader.survey(line)
        for line in kept.lines():
            reader.take(line)
        reader.end()
        return reader.document(Verified(None, None, None, str(error)))
    before = None if earlier is None else _earlier(kept, earlier)
    problem, fork = _follow(Follower(verifier, before), note, kept, reader)
    refused = _refused(kept, folder / "refused")
    verified = Verified(verifier.name, verifier.text(), checkpoint, problem, before, fork, refused)
    reader.end()
    if not replay:
        return reader.document(verified)
    with opened(folder, checkpoint.size) as files:
        return reader.document(verified, reader.replay(files))


def _follow(state: Follower, note: bytes, kept: LogFolder, reader: Reader) -> tuple[str | None, str | None]:
    """Read the lines of a checkpoint; why they are not those that were signed, and why they do not begin with what was
    seen before, where that is so.
    """
    alone, fork = Follower(state.verifier), None
    checkpoint = alone.look(note)

    def surveyed() -> Iterator[bytes]:
        for line in islice(kept.lines(), checkpoint.size):
            reader.survey(line)
            yield line

    try:
        state.look(note)
    except (LogShrank, LogForked) as error:
        state, fork = alone, str(error)
    lines, problem = surveyed(), None
    try:
        try:
            state.follow(checkpoint, lines)
        except LogForked as error:
            fork = str(error)
            deque(lines, maxlen=0)  # the rest is reported on all the same
            alone.follow(checkpoint, islice(kept.lines(), checkpoint.size))
    except LinesRefused as error:
        problem = str(error)
    for line in islice(kept.lines(), checkpoint.size):
        reader.take(line)
    return problem, fork


def _earlier(kept: LogFolder, path: Path) -> Checkpoint:
    try:
        return kept.signed(note_at(path))[1]
    except NoteRefused as error:
        raise NotVerified(f"{path} is no checkpoint of this log: {error}") from None


def _refused(kept: LogFolder, path: Path) -> Checkpoint | None:
    """The checkpoint that contradicted what was seen, where one is kept that a key of the log has signed."""
    try:
        return kept.signed(note_at(path))[1]
    except (FileNotFoundError, NoteRefused):
        return None
