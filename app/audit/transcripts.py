"""The transcripts of a log's sessions, held against its lines; whoever reads the log has looked at these by
:mod:`app.audit.rules`.

What breaks a rule goes to the sink of those. The rules, behind those of the lines, in the order they are checked:

6. Of each session, in the order of the log: its transcript is there, replays (:mod:`app.audit.replay`), and begins with
   the lines that the log has of it, byte for byte, entries and measurements each in their order. Its movements are what
   it was charged for (:mod:`app.audit.books`, rules 9 and 10).
7. A measurement that a session starts from and the log does not have is in the transcript of a session on the same data
   set, that made it and shares what it measures.
8. There are no other transcripts.
9. A trailer names the size of the smallest log that has all of the session, where it names any.

A transcript is fetched behind the log, and may go on beyond it. What of it the log does not have yet is told
(``entries_not_in_log``, ``movements_not_in_log``) and not refused: the next fetch brings it, or does not.

Memory: about 4 KiB for each session, 8 bytes for each movement and 200 for each measurement that sessions share; the
headers of data sets; and of one transcript at a time what its replay takes.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from app.audit import forms
from app.audit.against_log import ANSWERS, Due, Found, Replays
from app.audit.books import Held, Opened
from app.audit.replay import MEMORY_LIMIT
from app.audit.rules import Rules, opened_of
from app.audit.watching import Differs, Lines
from curator_client.proofs import records
from curator_client.proofs.findings import Unfollowed
from curator_client.proofs.threads import ENTRIES, Threads


class Kept(Protocol):
    """What an auditor keeps, opened by somebody else: a log, and a transcript of each session of it."""

    def line_at(self, at: int) -> bytes:
        """The line of the log that begins behind so many bytes."""

    def lines(self) -> Iterable[bytes]:
        """All lines of the log, without their ends."""

    def transcript(self, session: str, *, release: bool) -> AbstractContextManager[BinaryIO] | None:
        """A session's transcript; None where it is missing."""

    def others(self) -> Iterable[str]:
        """The names of transcripts that nobody has asked for."""

    def heard(self, count: int) -> None:
        """That so many bytes more of a transcript were read."""


@dataclass(slots=True)
class _Logged:
    """The log's part of a session: its data set, where its header and its movements stand, and its transcript's lines,
    under one hash; and the size of the log with the last of these.
    """

    header_at: int
    dataset: str
    lines: Lines
    movements: array[int]
    size: int = 0


class Transcripts:
    """The transcripts of a log.

    Args:
        rules: those of its lines, which take in each line before it is taken here.
        memory_limit: most bytes that the replay of one transcript may hold.
        only: the session whose transcript alone is looked at; where it starts from measurements that the log does not
            have, nobody looks for them. All sessions where it is None.
    """

    def __init__(self, rules: Rules, memory_limit: int = MEMORY_LIMIT, only: str | None = None) -> None:
        self._rules, self._memory_limit, self._only = rules, memory_limit, only
        self._logged: dict[str, _Logged] = {}
        #: Sessions whose trailers name another size of the log.
        self._misplaced: list[str] = []
        #: Measurements that the log does not have and that were found where they were made.
        self._found: set[bytes] = set()
        #: Summaries by session, of those whose transcripts follow.
        self.told: dict[str, dict[str, Any]] = {}

    @property
    def sessions(self) -> Iterable[str]:
        """Those whose transcripts are looked at, in the order of the log."""
        return self._logged.keys()

    def take(self, at: int, record: Mapping[str, Any], session: str | None, line: bytes) -> None:
        """Take in a line of the log that follows, ``at`` so many bytes from its beginning."""
        if session is None or self._only not in (None, session):
            return
        kind = record["record"]
        if kind == "header":
            self._logged[session] = _Logged(at, record["dataset"]["name"], Lines(), array("q"))
        logged = self._logged.get(session)
        if logged is None:  # its header does not follow, which was told
            return
        if kind == "movement":
            logged.movements.append(at)
        else:
            logged.lines.add(line, measured=kind == "measurement")
            logged.size = self._rules.lines

    def check(self, kept: Kept, replays: Replays | None = None) -> Iterator[None]:
        """Look at each session, and then at what is of several: a step at a time, so that whoever stops at the first
        that does not follow can do so.

        Args:
            kept: the log and the transcripts.
            replays: has the transcripts replayed; one after another and here where left out.

        Raises:
            OSError: when something cannot be read.
            Undecided: when a replay itself fails.
        """
        missing = self._rules.pinned.missing
        sought: dict[str, set[bytes]] = {}
        for name, pin in missing.items():
            sought.setdefault(pin.dataset, set()).add(name)
        waiting = deque[tuple[str, Due | Unfollowed]]()

        def due() -> Iterator[Due | Unfollowed]:
            for session, logged in self._logged.items():
                waiting.append((session, self._due(kept, session, logged, sought)))
                yield waiting[-1][1]

        def here(each: Due | Unfollowed) -> Found | Unfollowed:
            return each if isinstance(each, Unfollowed) else each.replayed(self._memory_limit, kept.heard)

        for found in map(here, due()) if replays is None else replays(due()):
            session, asked = waiting.popleft()
            try:
                if isinstance(found, Differs):
                    raise self._difference(kept, session)
                if isinstance(found, Unfollowed):
                    raise found
                assert isinstance(asked, Due)
                self._take(asked, found)
            except Unfollowed as broken:
                broken.dataset, broken.session = self._logged[session].dataset, session
                self._tell(broken)
            yield
        for name, pin in missing.items() if self._only is None else ():
            if name not in self._found:
                problem = (
                    f"the session starts from the measurement {name.hex()}, which no transcript of its data set has"
                )
                self._tell(Unfollowed(problem, dataset=pin.dataset, session=pin.session))
                yield
        for other in kept.others():
            self._tell(Unfollowed(f"{other} is the transcript of no session of the log"))
            yield
        # Last: a line that is missing from the log moves all those behind it.
        for session in self._misplaced:
            problem = "the trailer names a size of the log which is not that of the smallest one with all of it"
            self._tell(Unfollowed(problem, dataset=self._logged[session].dataset, session=session))
            yield

    def _tell(self, broken: Unfollowed) -> None:
        broken.check = "replay"
        self._rules.sink(broken, None)

    def _due(self, kept: Kept, session: str, logged: _Logged, sought: Mapping[str, set[bytes]]) -> Due | Unfollowed:
        """What the transcript of a session is held against; or that there is none, or nothing to hold it against."""
        if session not in self._rules.books.sessions:
            return Unfollowed("a session has no movement")
        thread = self._rules.threads.sessions[session]
        try:
            header = kept.line_at(logged.header_at)
            opened = opened_of(forms.parse(header), session)
        except Unfollowed as broken:
            return broken
        found = kept.transcript(session, release=thread.release)
        if found is None:
            return Unfollowed("the transcript is missing")
        return Due(
            header.rstrip(b"\n"),
            opened,
            map(kept.line_at, logged.movements),
            thread.entries,
            logged.lines.digests(),
            (logged.size, self._rules.lines),
            sought.get(opened.public.spec.name, ()) if opened.shares else (),
            found,
        )

    def _take(self, due: Due, found: Found) -> None:
        """Take in what a transcript tells that follows."""
        session = due.opened.session
        if found.misplaced:
            self._misplaced.append(session)
        self._found |= found.made
        self.told[session] = _session(due.opened, self._rules.books.sessions[session], found)

    def _difference(self, kept: Kept, session: str) -> Unfollowed:
        """Where a transcript and the log's lines of its session part."""
        threads, entries = Threads(), 0
        release = self._rules.threads.sessions[session].release
        first, second = (kept.transcript(session, release=release) for _ in range(2))
        assert first is not None
        assert second is not None
        with first as entered, second as measured:
            own = [_own_lines(entered, session, measured=False), _own_lines(measured, session, measured=True)]
            for line in kept.lines():
                record = forms.parse(line)
                if threads.take(record, line) != session or record["record"] == "movement":
                    continue
                if next(own[record["record"] == "measurement"], None) != line:
                    break
                entries = threads.sessions[session].entries
        return Unfollowed("the transcript does not have the line that the log has", entry=entries + 1)


def _own_lines(file: BinaryIO, session: str, *, measured: bool) -> Iterator[bytes]:
    """The lines of a transcript that are in the log as its session's: its measurements, or the others."""
    for line in records.transcript_lines(file):
        if line != records.WEIGHTS_HEAD:
            record = forms.parse(line)
            own = record["record"] == "measurement" and record.get("session") == session
            if own if measured else record["record"] in ("header", *ENTRIES):
                yield line


def _session(opened: Opened, held: Held, found: Found) -> dict[str, Any]:
    """The summary of a session; see :meth:`app.audit.verdict.FolderVerdict.document`."""
    told, share = found.summary, held.share
    return {
        "session": opened.session,
        "dataset": held.dataset,
        "release": opened.release,
        "construction": opened.construction,
        "status": told["status"],
        "opened_at": opened.opened_at,
        "entries": told["entries"],
        "answers": 0 if opened.release else sum(told[name] for name in ANSWERS),
        "measurements": told["measurement_answers"],
        "forfeits": told["forfeit_answers"],
        "spent": share.spent.document(),
        "reserved": share.reserved.document(),
        "head_hash": told["head_hash"],
        "entries_not_in_log": found.beyond,
        "movements_not_in_log": found.missing,
    }
