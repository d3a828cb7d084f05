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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from app.audit import forms
from app.audit.books import Held, Movement, Opened, Tally
from app.audit.pins import Pin
from app.audit.replay import MEMORY_LIMIT, replay_stream
from app.audit.rules import Rules, opened_of
from app.audit.watching import Differs, Lines, Watching
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
        #: Measurements that the log does not have, and those of them that were found where they were made.
        self._missing: Mapping[bytes, Pin] = {}
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

    def check(self, kept: Kept) -> Iterator[None]:
        """Look at each session, and then at what is of several: a step at a time, so that whoever stops at the first
        that does not follow can do so.

        Raises:
            OSError: when something cannot be read.
            Undecided: when a replay itself fails.
        """
        self._missing = self._rules.pinned.missing
        for session, logged in self._logged.items():
            try:
                self._check(kept, session, logged)
            except Unfollowed as broken:
                broken.dataset, broken.session = logged.dataset, session
                self._tell(broken)
            yield
        for name, pin in self._missing.items() if self._only is None else ():
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

    def _check(self, kept: Kept, session: str, logged: _Logged) -> None:
        thread, held = self._rules.threads.sessions[session], self._rules.books.sessions.get(session)
        if held is None:
            raise Unfollowed("a session has no movement")
        opened = opened_of(forms.parse(kept.line_at(logged.header_at)), session)
        found = kept.transcript(session, release=thread.release)
        if found is None:
            raise Unfollowed("the transcript is missing")
        tally = Tally(opened, (Movement.read(forms.parse(kept.line_at(at))) for at in logged.movements))
        sizes = logged.size, self._rules.lines
        watching = Watching(opened, thread, logged.lines, sizes, tally, self._measured(opened))
        with found as file:
            try:
                verdict = replay_stream(file, kept.heard, memory_limit=self._memory_limit, watch=watching)
            except Differs:
                raise self._difference(kept, session, release=thread.release) from None
        if not verdict.ok:
            raise Unfollowed(f"the transcript does not replay: {verdict.problem}", entry=verdict.sequence)
        if watching.misplaced:
            self._misplaced.append(session)
        self.told[session] = _session(opened, held, verdict.summary, watching)

    def _measured(self, opened: Opened) -> Callable[[bytes], None]:
        """Notes what a session measured and the log does not have, by its hash."""

        def note(name: bytes) -> None:
            pin = self._missing.get(name)
            if pin is not None and opened.shares and pin.dataset == opened.public.spec.name:
                self._found.add(name)

        return note

    @staticmethod
    def _difference(kept: Kept, session: str, *, release: bool) -> Unfollowed:
        """Where a transcript and the log's lines of its session part."""
        threads, entries = Threads(), 0
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


def _session(opened: Opened, held: Held, found: dict[str, Any], watching: Watching) -> dict[str, Any]:
    """The summary of a session; see :meth:`app.audit.verdict.FolderVerdict.document`."""
    kinds = ("hypothesis", "estimate", "cached", "unverified", "measurement")
    answers = 0 if opened.release else sum(found[f"{kind}_answers"] for kind in kinds)
    share = held.share
    return {
        "session": opened.session,
        "dataset": held.dataset,
        "release": opened.release,
        "construction": opened.construction,
        "status": found["status"],
        "opened_at": opened.opened_at,
        "entries": found["entries"],
        "answers": answers,
        "measurements": found["measurement_answers"],
        "forfeits": found["forfeit_answers"],
        "spent": share.spent.document(),
        "reserved": share.reserved.document(),
        "head_hash": found["head_hash"],
        "entries_not_in_log": watching.beyond,
        "movements_not_in_log": watching.tally.missing,
    }
