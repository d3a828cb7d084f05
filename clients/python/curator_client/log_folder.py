"""A service's log as a folder keeps it: what is in it, under the last checkpoint that was verified, and the transcripts
of all sessions and releases that it names. Nothing here calls a service.

The folder has the log's ``key`` as it was first told, above it those for which it vouched since, the signed
``checkpoint`` that was verified last, and its ``entries.ndjson``. What comes after the lines of that checkpoint is what
is left of a fetch that was interrupted; it is not looked at. Beside them are ``sessions/ID.ndjson`` and
``releases/ID.ndjson``, and the ``frontier`` (:mod:`curator_client.frontier`). Where witnesses were asked for, what they
cosigned is kept as ``witnessed``.

A checkpoint that contradicts what was seen before is kept as ``refused``: signed with the service's own key, it shows
to anybody that there are two histories.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from curator_client import durable
from curator_client.errors import Contradicted, NotVerified
from curator_client.extras import server
from curator_client.frontier import Reached
from curator_client.models import JSON
from curator_client.proofs import records
from curator_client.proofs.commitment import FileDigest, opens
from curator_client.proofs.follower import Follower, LinesRefused, LogForked
from curator_client.proofs.key_changes import KeyChange
from curator_client.proofs.notes import Checkpoint, NoteRefused, NoteUnsigned, Verifier, note_at
from curator_client.proofs.presence import NoRecord, Presence, told_by
from curator_client.proofs.threads import Thread

#: Bytes that may have come into a transcript since the log was fetched.
SINCE_BYTES = 1 << 26


@dataclass
class Due:
    """A transcript that is to be fetched: whose, where to, how it is followed, and the most bytes that it can have by
    the log, None where it may have any number.
    """

    session: str
    path: Path
    thread: Thread
    most: int | None


class LogFolder:
    """A folder in which an auditor keeps a log. Nobody else writes to it. :class:`curator_client.Log` fetches into it,
    and gives verdicts.

    Args:
        path: the folder; it need not be there yet.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._entries = self._path / "entries.ndjson"

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._path

    @property
    def is_kept(self) -> bool:
        """Whether anything is."""
        return (self._path / "key").exists()

    def keep(self, state: Follower, note: bytes, reached: Reached) -> None:
        """Keep a checkpoint whose lines were verified, and by which keys it is known."""
        kept = self.is_kept
        if not kept or state.statements:
            # Before the checkpoint: the one that is there is signed with an older key, which stays in the list.
            led = [state.verifier, *(KeyChange.open(each).old for each in reversed(state.statements))]
            known = [*led, *(key for key in (self.keys() if kept else ()) if key not in led)]
            self.write("key", b"".join(key.text().encode() + b"\n" for key in known))
        self.write("checkpoint", note)
        self.write("frontier", reached.content())

    def write(self, name: str, content: bytes) -> None:
        """Write one of the folder's small files."""
        durable.write(self._path / name, content, mode=0o666)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Its lines, to be read and added to; they are durable once this is left."""
        with open(os.open(self._entries, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def keys(self) -> list[Verifier]:
        """The log's keys as far as they are known, the newest first.

        Raises:
            FileNotFoundError: when nothing is kept.
            NoteMalformed: when the folder has something else.
        """
        text = note_at(self._path / "key").decode(errors="replace")
        return [Verifier.parse(line) for line in text.rstrip("\n").split("\n")]

    def signed(self, note: bytes) -> tuple[Verifier, Checkpoint]:
        """The checkpoint in a note of this log, now or then, and by which of its keys.

        Raises:
            FileNotFoundError: when nothing is kept.
            NoteRefused: when no key that is known has signed it, or it is no checkpoint of this log.
        """
        keys = self.keys()
        for key in keys[:-1]:
            with suppress(NoteUnsigned):
                return key, key.checkpoint(note)
        return keys[-1], keys[-1].checkpoint(note)

    def due(self) -> tuple[Reached, list[Due]]:
        """Every transcript of which the log has more than it had when that was fetched; and how far the log was read,
        where ``fetched`` of each of their threads is to be kept (as ``frontier``).

        Raises:
            Contradicted: when the folder is not what was signed.
            NotVerified: when nothing is kept.
        """
        try:
            state = self.state()
            reached = self.reached(state)
            if state.seen is None or reached.tree.size != state.seen.size:
                raise self._nothing()
        except FileNotFoundError:
            raise self._nothing() from None
        except NoteRefused as error:
            raise Contradicted(f"{self._path}: {error}") from None
        found = []
        for session, thread in reached.threads.sessions.items():
            path = self._path / ("releases" if thread.release else "sessions") / f"{session}.ndjson"
            if thread.lines > thread.fetched or not path.exists():
                # Measurements of others that a session starts from are lines of the log, too.
                found.append(Due(session, path, thread, None if thread.weights else reached.end + SINCE_BYTES))
        return reached, found

    def replay(self, progress: Callable[[int, int], None] | None = None, *, memory_limit: int | None = None) -> Any:
        """Replay all that is kept: the log, the books of all data sets, every transcript. The verdict is the service's
        own (``app.audit.verdict``). Needs the extra ``replay``.

        Args:
            progress: hears of bytes read, and of bytes to read in all.
            memory_limit: most bytes that the replay of one transcript may hold; 4 GiB by default.

        Raises:
            Contradicted: when the folder's lines are not those that were signed.
            NotVerified: when nothing is kept.
            app.audit.failures.Undecided: when a replay itself fails, which is no verdict.
        """
        replay_folder = server("verifying.folder").replay_folder
        try:
            state = self.state()
            if state.seen is None:
                raise self._nothing()
            limit = server("audit.replay").MEMORY_LIMIT if memory_limit is None else memory_limit
            return replay_folder(self._path, state, progress, memory_limit=limit)
        except FileNotFoundError:
            raise self._nothing() from None
        except (LogForked, LinesRefused, NoteRefused) as error:
            raise Contradicted(f"{self._path}: {error}") from None

    def _nothing(self) -> NotVerified:
        return NotVerified(f"nothing is kept in {self._path}: fetch the log first")

    def verify(self, transcript: Path | str) -> tuple[Checkpoint, int]:
        """Check that a transcript is what the log says of its session, as far as it is kept: that its lines are there
        and no more entries of it, and that it is open or closed as the transcript says; under which checkpoint, and how
        many lines.

        Raises:
            Contradicted: when the folder's lines are not those that were signed.
            NotVerified: when nothing is kept, or the log as far as it is kept says something else.
        """
        with Path(transcript).open("rb") as file:
            try:
                sought = Presence(records.transcript_lines(file))
            except (NoRecord, records.LineTooLong) as error:
                raise NotVerified(str(error)) from None
        found = self.read(sought.look)
        problem = sought.problem()
        if problem is not None:
            raise NotVerified(
                f"{problem}, by the {found.size} entries of the log that are kept: fetch those that came since and the "
                "transcript anew, or it is not what the service recorded"
            )
        return found, sought.count

    def check_file(self, dataset: str, file: Path | str, key: bytes) -> Checkpoint:
        """Check that a file is the one that a data set was registered with, by the key of its commitment; under which
        checkpoint.

        Raises:
            ValueError: unless the key has 32 bytes.
            Contradicted: when the folder's lines are not those that were signed.
            NotVerified: when nothing is kept, no such data set was registered, or none with a commitment, as far as
                the log is kept, or it was another file or another key.
        """
        registered: list[JSON] = []

        def look(line: bytes) -> None:
            if b'"record":"dataset"' in line:  # others need not be read
                record = told_by(line)
                told = (record.get("record"), record.get("event"), record.get("name"))
                if told == ("dataset", "registered", dataset):
                    registered.append(record)

        found = self.read(look)
        if len(registered) != 1:
            times = f"{len(registered)} times" if registered else "not registered"
            raise NotVerified(f"{dataset!r} is {times} among the {found.size} entries of the log that are kept")
        committed = registered[0].get("commitment")
        if committed is None:
            raise NotVerified(f"{dataset!r} was registered without a commitment")
        with Path(file).open("rb") as opened:
            if not opens(committed, key, FileDigest.of(opened)):
                raise NotVerified(
                    f"{file} under this key does not give the commitment of {dataset!r}: it is another file, or "
                    "another key"
                )
        return found

    def read(self, look: Callable[[bytes], object]) -> Checkpoint:
        """Show every line of the log as it is kept, one by one, and verify them; under which checkpoint they stand.

        What is seen of them counts once this returns.

        Raises:
            Contradicted: when they are not those that were signed.
            NotVerified: when nothing is kept.
        """
        try:
            state = self.state()
            if state.seen is None:
                raise self._nothing()
            with self._entries.open("rb") as file:

                def looked(size: int) -> Iterator[bytes]:
                    for line in islice(whole_lines(file), size):
                        look(line)
                        yield line

                Follower(state.verifier).follow(state.seen, looked(state.seen.size))
        except FileNotFoundError:
            raise self._nothing() from None
        except (LinesRefused, NoteRefused) as error:
            raise Contradicted(f"{self._path}: {error}") from None
        return state.seen

    def lines(self) -> Iterator[bytes]:
        """The whole lines that lie in the folder, as they are; it is for others to say whether they were signed."""
        if self._entries.exists():
            with self._entries.open("rb") as file:
                yield from whole_lines(file)

    def state(self) -> Follower:
        """The folder's knowledge of the log."""
        note = self._path / "checkpoint"
        return Follower(*self.signed(note_at(note))) if note.exists() else Follower(self.keys()[0])

    def reached(self, state: Follower) -> Reached:
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


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """The whole lines of a file, without their ends.

    Raises:
        NotVerified: before one that is longer than is read.
    """
    try:
        yield from records.whole_lines(file)
    except records.LineTooLong as error:
        raise NotVerified(f"{file.name}: {error}") from None
