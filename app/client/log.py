"""A service's log followed into a folder: what is in it, under the last checkpoint that was verified, and the
transcripts of all sessions and releases that it names.

The folder has the log's ``key`` as it was first told, the signed ``checkpoint`` that was verified last, and its
``entries.ndjson``. What comes after the lines of that checkpoint is what is left of a fetch that was interrupted; it is
not looked at. Beside them are ``sessions/ID.ndjson`` and ``releases/ID.ndjson``, and the ``frontier``: the peaks of the
tree over the verified lines, where these end, and how far the log has come with each session. It spares a fetch to read
those lines again. It is held against the checkpoint, and made anew from the lines where it is not there.

A checkpoint that contradicts what was seen before is kept as ``refused``: signed with the service's own key, it shows
to anybody that there are two histories.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

import orjson

from app.audit.findings import Unfollowed
from app.audit.log import Follower, LinesRefused, LogForked, LogShrank
from app.audit.merkle import Frontier, leaf_hash, peaks
from app.audit.notes import Checkpoint, NoteRefused, Verifier
from app.audit.records import parse
from app.audit.threads import Threads
from app.client.curator import Curator
from app.client.errors import NotVerified, Problem

if TYPE_CHECKING:
    from app.audit.folder import FolderVerdict

#: Records of a transcript that are in the log; weights and the trailer are not.
IN_THE_LOG = frozenset({"header", "answer", "forfeit", "release", "measurement"})


class Contradicted(NotVerified):
    """The log is not what it was, or not what was signed."""


@dataclass
class Reached:
    """How far the lines of a folder were read: their tree, where they end, and what they say of each session."""

    tree: Frontier = field(default_factory=Frontier)
    end: int = 0
    threads: Threads = field(default_factory=Threads)

    def passing(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Take in lines that are about to be verified."""
        for line in lines:
            self.end += len(line) + 1
            with suppress(Unfollowed, ValueError):  # lines that make no sense are told by a replay
                self.threads.take(parse(line), line)
            yield line

    def content(self) -> bytes:
        """As the file has it."""
        hashes = [each.hex() for each in self.tree.hashes]
        document = {"size": self.tree.size, "end": self.end, "peaks": hashes, "sessions": self.threads.document()}
        return orjson.dumps(document) + b"\n"

    @classmethod
    def read(cls, content: bytes) -> Self:
        """From the file.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: when it is none.
        """
        told = orjson.loads(content)
        size, end, hashes = told["size"], told["end"], [bytes.fromhex(each) for each in told["peaks"]]
        if type(size) is not int or type(end) is not int or len(hashes) != len(peaks(0, size)):
            raise ValueError("no frontier")
        return cls(Frontier(size, hashes), end, Threads.read(told["sessions"]))


@dataclass(frozen=True)
class Fetched:
    """Transcripts of a folder: how many were written, and of which sessions the service gave none."""

    written: int
    refused: tuple[str, ...]


class LogFolder:
    """A folder in which an auditor keeps a log. Nobody else writes to it.

    Args:
        path: the folder; :meth:`fetch` makes it.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._entries = self._path / "entries.ndjson"

    def fetch(self, curator: Curator) -> Checkpoint:
        """Bring the folder up to date; the checkpoint that is verified then.

        Raises:
            Contradicted: when the log shrank or was forked since, is signed with another key, or its lines are not
                those that were signed. The folder is what it was.
        """
        self._path.mkdir(parents=True, exist_ok=True)
        kept = (self._path / "key").exists()
        try:
            state = self._state() if kept else Follower(Verifier.parse(curator.log_key()))
            note = curator.log_checkpoint()
            try:
                found, reached = self._follow(curator, state, note)
            except (LogShrank, LogForked):
                (self._path / "refused").write_bytes(note)
                raise
        except (LogShrank, LogForked, LinesRefused, NoteRefused) as error:
            raise Contradicted(str(error)) from None
        if not kept:
            _write(self._path / "key", state.verifier.text().encode() + b"\n")
        _write(self._path / "checkpoint", note)
        _write(self._path / "frontier", reached.content())
        return found

    def fetch_transcripts(self, curator: Curator) -> Fetched:
        """Download the transcript of every session and release of which the log that was fetched has more than it had
        when its transcript was.

        Raises:
            NotVerified: when nothing is kept.
        """
        try:
            state = self._state()
            reached = self._reached(state)
            if state.seen is None or reached.tree.size != state.seen.size:
                raise self._nothing()
        except FileNotFoundError:
            raise self._nothing() from None
        except NoteRefused as error:
            raise Contradicted(f"{self._path}: {error}") from None
        due = []
        for session, thread in reached.threads.sessions.items():
            path = self._path / ("releases" if thread.release else "sessions") / f"{session}.ndjson"
            if thread.lines > thread.fetched or not path.exists():
                due.append((session, thread, path))
        refused: list[str] = []
        try:
            for session, thread, path in due:
                path.parent.mkdir(exist_ok=True)
                try:
                    curator.transcript(session, path)
                    thread.fetched = thread.lines
                except Problem as problem:
                    if problem.type not in ("not-found", "forbidden"):
                        raise
                    refused.append(session)
        finally:
            _write(self._path / "frontier", reached.content())
        return Fetched(len(due) - len(refused), tuple(refused))

    def replay(
        self, progress: Callable[[int, int], None] | None = None, *, memory_limit: int | None = None
    ) -> FolderVerdict:
        """Replay all that is kept: the log, the books of all data sets, every transcript.

        Args:
            progress: hears of bytes read, and of bytes to read in all.
            memory_limit: most bytes that the replay of one transcript may hold; 4 GiB by default.

        Raises:
            Contradicted: when the folder's lines are not those that were signed.
            NotVerified: when nothing is kept.
        """
        # Imported here: the audit loads all that computes plans and hypotheses, which a fetch does not need.
        from app.audit.folder import replay_folder
        from app.audit.replay import MEMORY_LIMIT

        try:
            state = self._state()
            if state.seen is None:
                raise self._nothing()
            limit = MEMORY_LIMIT if memory_limit is None else memory_limit
            return replay_folder(self._path, state, progress, memory_limit=limit)
        except FileNotFoundError:
            raise self._nothing() from None
        except (LogForked, LinesRefused, NoteRefused) as error:
            raise Contradicted(f"{self._path}: {error}") from None

    def _nothing(self) -> NotVerified:
        return NotVerified(f"nothing is kept in {self._path}: fetch the log first")

    def verify(self, transcript: Path | str) -> tuple[Checkpoint, int]:
        """Check that the lines of a transcript are in the log as it is kept; under which checkpoint, and how many.

        Raises:
            Contradicted: when the folder's lines are not those that were signed.
            NotVerified: when nothing is kept, or a line of the transcript is not in the log as far as it is kept.
        """
        needed: dict[bytes, int] = {}
        with Path(transcript).open("rb") as file:
            for number, line in enumerate(file, start=1):
                line = line.rstrip(b"\n")
                try:
                    kind = parse(line).get("record")
                except ValueError:
                    raise NotVerified(f"line {number} of the transcript is no record") from None
                if kind in IN_THE_LOG:
                    needed.setdefault(leaf_hash(line), number)
        count = len(needed)
        try:
            state = self._state()
            if state.seen is None:
                raise self._nothing()
            with self._entries.open("rb") as file:

                def looked() -> Iterator[bytes]:
                    for line in islice(_lines(file), state.seen.size if state.seen else 0):
                        needed.pop(leaf_hash(line), None)
                        yield line

                Follower(state.verifier).follow(state.seen, looked())
        except FileNotFoundError:
            raise self._nothing() from None
        except (LinesRefused, NoteRefused) as error:
            raise Contradicted(f"{self._path}: {error}") from None
        if needed:
            raise NotVerified(
                f"line {min(needed.values())} of the transcript is not among the {state.seen.size} entries of the log "
                "that are kept: fetch those that came since, or it is not what the service recorded"
            )
        return state.seen, count

    def _state(self) -> Follower:
        """What the folder holds for true."""
        verifier = Verifier.parse((self._path / "key").read_text().strip())
        note = self._path / "checkpoint"
        return Follower(verifier, verifier.checkpoint(note.read_bytes()) if note.exists() else None)

    def _follow(self, curator: Curator, state: Follower, note: bytes) -> tuple[Checkpoint, Reached]:
        """What a note says, when the folder has all of its lines, and how far these were read."""
        found = state.look(note)
        before = state.seen.size if state.seen is not None else 0
        if 0 < before < found.size:
            state.check_growth(found, curator.log_consistency(before, found.size))
        with open(os.open(self._entries, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            reached = self._reached(state)
            file.seek(reached.end)
            kept = islice(_lines(file), before - reached.tree.size)
            lines = chain(kept, _added(curator, file, before, found.size))
            state.follow(found, reached.passing(lines), reached.tree)
            file.flush()
            os.fsync(file.fileno())
        return found, reached

    def _reached(self, state: Follower) -> Reached:
        """How far the folder's lines were read and verified; not at all where that is not known."""
        with suppress(OSError, AttributeError, KeyError, TypeError, ValueError):
            found = Reached.read((self._path / "frontier").read_bytes())
            seen = state.seen
            if (
                seen is not None
                and (found.tree.size, found.tree.root()) == (seen.size, seen.root)
                and 0 <= found.end <= self._entries.stat().st_size
            ):
                return found
        return Reached()


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The whole lines of a file, without their ends."""
    while (line := file.readline()).endswith(b"\n"):
        yield line[:-1]


def _added(curator: Curator, file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """The entries of a log from one number up to another, each written to a file whose earlier lines have been read."""
    file.truncate(file.tell())
    while start < end:
        page = curator.log_entries(start, end - 1)
        for line in page:
            file.write(line + b"\n")
            yield line
        start += len(page)


def _write(path: Path, content: bytes) -> None:
    """Give a whole file its name, durably."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
