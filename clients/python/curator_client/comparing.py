"""Two auditors' views of a log held against each other: whether one log begins with the other."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from curator_client.errors import Contradicted, NotVerified
from curator_client.log_folder import LogFolder, whole_lines
from curator_client.proofs.follower import Follower, LinesRefused, LogForked
from curator_client.proofs.notes import Checkpoint, NoteRefused, note_at


def compare(folder: LogFolder, other: Path) -> tuple[Checkpoint, Checkpoint]:
    """Check that the log in a folder and what another auditor has seen are one; both checkpoints, the smaller first.

    Args:
        folder: one's own, which is trusted for the log's keys.
        other: the other's folder, or only the ``checkpoint`` from it.

    Raises:
        Contradicted: when they are two histories, with the size up to which they are signed, and where lines are there
            the first that differs. Both signed notes are kept in the folder, below ``forked``.
        NotVerified: when nothing is kept, the other has seen more and does not show it, or shows what is not signed
            with a key that is known here, as anybody could have done.
    """
    ours, theirs = folder.path, other if other.is_dir() else None
    try:
        own_note = note_at(ours / "checkpoint")
        note = note_at(theirs / "checkpoint" if theirs else other)
    except FileNotFoundError as error:
        raise NotVerified(f"there is no {error.filename}: fetch the log first") from None
    try:
        verifier, own = folder.signed(own_note)
        try:
            _, found = folder.signed(note)
        except NoteRefused as error:
            raise NotVerified(f"{other}: {error}") from None
        if found.size > own.size and theirs is None:
            raise NotVerified(f"the other has seen {found.size} entries, and here are {own.size}: fetch the log first")
        smaller, larger, lines = (found, own, ours) if found.size <= own.size else (own, found, theirs)
        assert lines is not None
        with (lines / "entries.ndjson").open("rb") as file:
            Follower(verifier, smaller).follow(larger, islice(whole_lines(file), larger.size))
    except LogForked as fork:
        (ours / "forked").mkdir(exist_ok=True)
        (ours / "forked" / "own").write_bytes(own_note)
        (ours / "forked" / "other").write_bytes(note)
        where = _first_difference(ours, theirs, min(own.size, found.size))
        raise Contradicted(
            f"two histories are signed, of {own.size} entries here and {found.size} there: {fork}{where}; both notes "
            f"are in {ours / 'forked'}"
        ) from None
    except (LinesRefused, NoteRefused) as error:
        raise Contradicted(str(error)) from None
    return smaller, larger


def _first_difference(ours: Path, theirs: Path | None, size: int) -> str:
    """Which line is the first that differs, in words, where both are there."""
    if theirs is None:
        return ""
    with (ours / "entries.ndjson").open("rb") as own, (theirs / "entries.ndjson").open("rb") as other:
        pairs = zip(islice(whole_lines(own), size), whole_lines(other), strict=False)
        at = next((number for number, (one, two) in enumerate(pairs) if one != two), None)
    return "" if at is None else f"; entry {at} is the first that differs"
