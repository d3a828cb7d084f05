"""A transcript in a file, replayed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.audit.replay import MEMORY_LIMIT, Verdict, replay_stream


def replay_file(
    path: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    head: str | None = None,
    entries: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Verdict:
    """Check a transcript file as :func:`app.audit.replay.replay` does; ``progress`` hears of bytes read and bytes in
    all.

    Raises:
        OSError: when the file cannot be read.
        Undecided: when the replay itself fails.
    """
    total, done = path.stat().st_size, 0

    def heard(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    with path.open("rb") as file:
        return replay_stream(file, heard, head=head, entries=entries, memory_limit=memory_limit)
