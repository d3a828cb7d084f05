"""A folder that an auditor keeps, opened: ``entries.ndjson``, the log's lines, ``sessions/ID.ndjson`` and
``releases/ID.ndjson``. It is read by the rules of :mod:`app.audit.rules` and :mod:`app.audit.transcripts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from app.audit.replay import MEMORY_LIMIT
from app.audit.rules import Rules
from app.audit.transcripts import Transcripts
from app.audit.verdict import FolderVerdict
from curator_client.proofs import records
from curator_client.proofs.findings import Unfollowed
from curator_client.proofs.follower import Follower

#: Hears of bytes read, and of bytes to read in all.
Progress = Callable[[int, int], None]


class LogLines:
    """The lines of a log in an open file, as :class:`app.audit.transcripts.Kept` has them.

    Args:
        log: its ``entries.ndjson``, or a copy.
        size: how many lines of it are looked at.
        heard: hears of bytes read.
    """

    def __init__(self, log: BinaryIO, size: int, heard: Callable[[int], None]) -> None:
        self._log, self._size, self.heard = log, size, heard

    def lines(self) -> Iterator[bytes]:
        """The lines of the log that are looked at, without their ends.

        Raises:
            Unfollowed: before one that is longer than is read.
        """
        self._log.seek(0)
        try:
            for line in islice(records.whole_lines(self._log), self._size):
                yield line
                self.heard(len(line) + 1)
        except records.LineTooLong as error:
            raise Unfollowed(f"{error}: it is one of the log") from None

    def line_at(self, at: int) -> bytes:
        """The line of the log that begins behind so many bytes."""
        self._log.seek(at)
        return self._log.readline()


class Folder(LogLines):
    """An open folder, as :class:`app.audit.transcripts.Kept` has it.

    Args:
        path: the folder.
        log: its ``entries.ndjson``.
        size: how many lines of it are looked at.
        progress: hears of bytes read, and of bytes to read in all.
    """

    def __init__(self, path: Path, log: BinaryIO, size: int, progress: Progress | None = None) -> None:
        super().__init__(log, size, self._heard)
        self._path, self._progress = path, progress
        files = [file for folder in ("sessions", "releases") for file in sorted((path / folder).glob("[!.]*"))]
        self._files = dict.fromkeys(files)
        self._others = dict.fromkeys(files)
        # The log is read twice.
        self._done, self._total = 0, 2 * _size(path / "entries.ndjson") + sum(map(_size, files))

    def transcript(self, session: str, *, release: bool) -> AbstractContextManager[BinaryIO] | None:
        """A session's transcript; None where it is missing."""
        path = self._path / ("releases" if release else "sessions") / f"{session}.ndjson"
        self._others.pop(path, None)
        return path.open("rb") if path in self._files else None

    def others(self) -> Iterator[str]:
        """The names of transcripts that nobody has asked for."""
        return (path.name for path in self._others)

    def _heard(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)


@contextmanager
def opened(path: Path, size: int, progress: Progress | None = None) -> Iterator[Folder]:
    """A folder, with so many lines of its log, for as long as it is open.

    Raises:
        OSError: when there is none.
    """
    with (path / "entries.ndjson").open("rb") as log:
        yield Folder(path, log, size, progress)


def _size(path: Path) -> int:
    return path.stat().st_size


def replay_folder(
    path: Path, state: Follower, progress: Progress | None = None, *, memory_limit: int = MEMORY_LIMIT
) -> FolderVerdict:
    """Replay everything in a folder. The first thing that does not follow is the verdict.

    Args:
        path: the folder.
        state: what its owner holds for true of the log, with a checkpoint that was verified.
        progress: hears of bytes read and bytes to be read.
        memory_limit: most bytes that the replay of one transcript may hold.

    Raises:
        LogRefused: when the lines are not those that were signed.
        OSError: when something cannot be read.
        Undecided: when a replay itself fails.
    """
    assert state.seen is not None
    found: list[Unfollowed] = []
    rules = Rules(lambda broken, _: found.append(broken))
    transcripts = Transcripts(rules, memory_limit)

    def steps(folder: Folder) -> Iterator[None]:
        """All that is looked at, a step at a time. What breaks a rule is told once these are known to be the lines
        that were signed.
        """
        _follow(state, folder, rules)
        yield
        at = 0
        for line in folder.lines():
            taken = rules.take(line)
            if taken is not None:
                transcripts.take(at, *taken, line)
            at += len(line) + 1
            yield
        rules.end()
        yield
        yield from transcripts.check(folder)

    try:
        with opened(path, state.seen.size, progress) as folder:
            for _ in steps(folder):
                if found:
                    return FolderVerdict(False, state.seen, broken=found[0])
    except Unfollowed as broken:
        return FolderVerdict(False, state.seen, broken=broken)
    return FolderVerdict.of(state.seen, rules.books, transcripts.told)


def _follow(state: Follower, folder: Folder, rules: Rules) -> None:
    """Read the lines for the first time, and verify them."""

    def surveyed() -> Iterator[bytes]:
        for line in folder.lines():
            yield line
            rules.survey(line)

    assert state.seen is not None
    state.follow(state.seen, surveyed())
