"""A report of a log that is kept in a folder, without any service (:mod:`app.report.reader`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curator_client.errors import NotVerified
from curator_client.extras import server
from curator_client.log_folder import LogFolder
from curator_client.proofs.follower import Follower
from curator_client.proofs.notes import Checkpoint, NoteRefused, note_at


def report_of(
    folder: Path, *, earlier: Path | None = None, replay: bool = False, memory_limit: int | None = None
) -> dict[str, Any]:
    """The report of a folder that :meth:`curator_client.log.LogFolder.fetch` keeps.

    Args:
        folder: the folder.
        earlier: a file with a signed checkpoint that was kept elsewhere, which the log is to begin with.
        replay: hold the transcripts against the log, too, as :meth:`curator_client.log.LogFolder.replay` does.
        memory_limit: most bytes that a replay may take; 4 GiB by default.

    Raises:
        NotVerified: when nothing is kept in the folder, or the earlier checkpoint is not one of the log's key.
        Undecided: when a replay fails.
        OSError: when something cannot be read.
    """
    limit = server("audit.replay").MEMORY_LIMIT if memory_limit is None else memory_limit
    kept, reader = LogFolder(folder), server("report.reader").Reader(limit if replay else None)
    document: dict[str, Any]
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
        document = reader.document(server("report.checks").Verified(None, None, None, str(error)))
        return document
    before = None if earlier is None else _earlier(kept, earlier)
    followed = server("report.checking").followed
    problem, fork = followed(Follower(verifier, before), note, kept.lines, reader)
    refused = _refused(kept, folder / "refused")
    verified = server("report.checks").Verified(
        verifier.name, verifier.text(), checkpoint, problem, before, fork, refused
    )
    reader.end()
    if not replay:
        document = reader.document(verified)
        return document
    with server("verifying.folder").opened(folder, checkpoint.size) as files:
        document = reader.document(verified, reader.replay(files))
    return document


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
