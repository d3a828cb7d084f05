"""A service's log followed into a folder: what is in it, under the last checkpoint that was verified, and the
transcripts of all sessions and releases that it names.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from curator_client import durable
from curator_client.errors import Contradicted, NotVerified, ProtocolError, Refused
from curator_client.extras import server
from curator_client.frontier import Reached
from curator_client.log_routes import LogRoutes
from curator_client.models import JSON
from curator_client.proofs import records
from curator_client.proofs.commitment import FileDigest, opens
from curator_client.proofs.follower import Follower, LinesRefused, LogForked, LogShrank
from curator_client.proofs.key_changes import KeyChange
from curator_client.proofs.notes import Checkpoint, NoteRefused, NoteUnsigned, Verifier, note_at
from curator_client.proofs.presence import NoRecord, Presence, told_by
from curator_client.quorum import Quorum, check_connected

#: Bytes that a fetch may add to a log, and those of all transcripts that it writes, unless more is allowed.
MOST_BYTES = 1 << 34
#: Bytes that may have come into a transcript since the log was fetched.
SINCE_BYTES = 1 << 26


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

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._path

    def fetch(
        self,
        curator: LogRoutes,
        witnesses: Sequence[str] = (),
        need: int | None = None,
        max_age: float | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> Checkpoint:
        """Bring the folder up to date; the checkpoint that is verified then.

        Args:
            curator: the service.
            witnesses: public keys of witnesses, each NAME+HASH+KEY, known by another way than from the service. Nothing
                is taken that does not begin with what enough of them have cosigned.
            need: how many of them are enough; all, when it is left out.
            max_age: seconds that their cosignatures may lie back.
            most_bytes: that may be added to the log.

        Raises:
            ProtocolError: when more than that comes. The folder is what it was.
            NotVerified: when too few witnesses have cosigned what is shown. The folder is what it was.
            ValueError: when a witness' key is none, or more are needed than are named.
            Contradicted: when the log shrank or was forked since, is signed with another key, or its lines are not
                those that were signed. The folder is what it was.
        """
        quorum = Quorum.of(witnesses, need, max_age)
        self._path.mkdir(parents=True, exist_ok=True)
        kept = (self._path / "key").exists()
        try:
            state = self._state() if kept else Follower(Verifier.parse(curator.log_key()))
            cosigned = quorum.ask(curator) if quorum is not None else None
            note = curator.log_checkpoint()
            state = state.know(note, curator.log_key_statements)
            try:
                found, reached = self._follow(curator, state, note, most_bytes)
                if cosigned is not None:
                    told = state.verifier.checkpoint(cosigned)
                    durable.write(self._path / "witnessed", cosigned, mode=0o666)
                    check_connected(curator, state.verifier, told, found)
            except (LogShrank, LogForked):
                durable.write(self._path / "refused", note, mode=0o666)
                raise
        except (LogShrank, LogForked, LinesRefused, NoteRefused) as error:
            raise Contradicted(str(error)) from None
        if not kept or state.statements:
            # Before the checkpoint: the one that is there is signed with an older key, which stays in the list.
            led = [state.verifier, *(KeyChange.open(each).old for each in reversed(state.statements))]
            known = [*led, *(key for key in (self.keys() if kept else ()) if key not in led)]
            durable.write(self._path / "key", b"".join(key.text().encode() + b"\n" for key in known), mode=0o666)
        durable.write(self._path / "checkpoint", note, mode=0o666)
        durable.write(self._path / "frontier", reached.content(), mode=0o666)
        return found

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

    def fetch_transcripts(self, curator: LogRoutes, most_bytes: int = MOST_BYTES) -> Fetched:
        """Download the transcript of every session and release of which the log that was fetched has more than it had
        when its transcript was.

        Args:
            curator: the service.
            most_bytes: that they may have together.

        Raises:
            NotVerified: when nothing is kept.
            ProtocolError: when a transcript has more than is left of that, or more than it can have by the log: its
                lines are those of the log, what came into it since, and dense weights where one of them names some.
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
                    # Measurements of others that a session starts from are lines of the log, too.
                    told = most_bytes if thread.weights else min(most_bytes, reached.end + SINCE_BYTES)
                    most_bytes -= curator.transcript(session, path, most_bytes=told).stat().st_size
                    thread.fetched = thread.lines
                except Refused as problem:
                    if problem.type not in ("not-found", "forbidden"):
                        raise
                    refused.append(session)
        finally:
            durable.write(self._path / "frontier", reached.content(), mode=0o666)
        return Fetched(len(due) - len(refused), tuple(refused))

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
            state = self._state()
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

    def check_commitment(self, dataset: str, file: Path | str, key: bytes) -> Checkpoint:
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
            state = self._state()
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

    def _state(self) -> Follower:
        """The folder's knowledge of the log."""
        note = self._path / "checkpoint"
        return Follower(*self.signed(note_at(note))) if note.exists() else Follower(self.keys()[0])

    def _follow(self, curator: LogRoutes, state: Follower, note: bytes, most_bytes: int) -> tuple[Checkpoint, Reached]:
        """The checkpoint of a note, once the folder has all of its lines, and how far these were read."""
        found = state.look(note)
        before = state.seen.size if state.seen is not None else 0
        if 0 < before < found.size:
            state.check_growth(found, curator.log_consistency(before, found.size))
        with open(os.open(self._entries, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            reached = self._reached(state)
            file.seek(reached.end)
            kept = islice(whole_lines(file), before - reached.tree.size)
            lines = chain(kept, _added(curator, file, before, found.size, most_bytes))
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


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """The whole lines of a file, without their ends.

    Raises:
        NotVerified: before one that is longer than is read.
    """
    try:
        yield from records.whole_lines(file)
    except records.LineTooLong as error:
        raise NotVerified(f"{file.name}: {error}") from None


def _added(curator: LogRoutes, file: BinaryIO, start: int, end: int, most_bytes: int) -> Iterator[bytes]:
    """The entries of a log from one number up to another, each written to a file whose earlier lines have been read.

    Raises:
        ProtocolError: when they have more bytes than they may; the file has as many as it had.
    """
    began = file.tell()
    file.truncate(began)
    while start < end:
        page = curator.log_entries(start, end - 1)
        if file.tell() - began + sum(map(len, page)) > most_bytes:
            file.truncate(began)
            raise ProtocolError(f"the log has grown by more than {most_bytes:,} bytes: say so if it may")
        if max(map(len, page)) > records.MOST_LINE:
            file.truncate(began)
            raise ProtocolError(f"the log has a line of more than {records.MOST_LINE:,} bytes")
        for line in page:
            file.write(line + b"\n")
            yield line
        start += len(page)
