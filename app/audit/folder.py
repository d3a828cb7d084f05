"""A whole service replayed from a folder that an auditor keeps: its log, and the transcripts of all its sessions.

The folder has ``entries.ndjson``, the log's lines, ``sessions/ID.ndjson`` and ``releases/ID.ndjson``. Nothing else is
asked. The rules, in the order they are checked; the first that does not hold is the verdict:

1. The log's lines make the tree hash of the checkpoint that was signed and verified.
2. They keep the rules of a log (:mod:`app.audit.reading`),
3. those of the books among them (:mod:`app.audit.books`, rules 1 to 8).
4. Of each session, in the order of the log: its transcript is there, replays (:mod:`app.audit.replay`), and begins with
   the lines that the log has of it, byte for byte, entries and measurements each in their order. Its movements are what
   it was charged for (:mod:`app.audit.books`, rules 9 and 10).
5. A measurement that a session starts from and did not make is in the transcript of a session on the same data set,
   that made it and shares what it measures.
6. There are no other transcripts.
7. A trailer names the size of the smallest log that has all of the session, where it names any.

A transcript is fetched behind the log, and may go on beyond it. What of it the log does not have yet is told
(``entries_not_in_log``, ``movements_not_in_log``) and not refused: the next fetch brings it, or does not.

Memory: about 4 KiB for each session, 8 bytes for each movement and 200 for each measurement that sessions share; the
headers of data sets; and of one transcript at a time what its replay takes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from app.audit import records
from app.audit.books import Book, Books, Held, Movement, Opened, Tally
from app.audit.findings import Malformed, Unfollowed, taking_apart
from app.audit.log import Follower
from app.audit.notes import Checkpoint
from app.audit.reading import Reading, opened_of
from app.audit.replay import MEMORY_LIMIT, replay_file
from app.audit.threads import ENTRIES, Thread, Threads
from app.audit.watching import Differs, Lines, Watching
from app.privacy.exactness import ceil_to, floor_to
from app.privacy.ledger import SHOWN, Account

#: Hears of bytes read, and of bytes to read in all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class FolderVerdict:
    """The outcome of a folder's replay.

    Attributes:
        ok: whether all follows.
        log: the checkpoint that it was held against.
        datasets, sessions: a summary of each, in the order of the log; empty unless all follows.
        broken: what does not follow, and where; None where all does.
    """

    ok: bool
    log: Checkpoint
    datasets: list[dict[str, Any]] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    broken: Unfollowed | None = None

    def document(self) -> dict[str, Any]:
        """As JSON. Fields are only ever added.

        - ``ok``; ``problem``, a sentence, and ``where`` with ``dataset``, ``session``, ``movement`` (its number) and
          ``entry`` (its sequence), each null where it is of none; ``problem`` and ``where`` are null where all follows.
        - ``log``: ``origin``, ``size``, ``root`` (hexadecimal).
        - ``datasets``: of each ``dataset``, ``kind``, ``retired_at`` (null while it is not), ``sessions`` (releases
          not among them), ``open_sessions`` (nor here), ``releases``, ``open_releases``, ``answers``,
          ``measurements`` (answers and releases that were measured), ``forfeits``, ``movements``, ``epsilon``,
          ``delta``, ``order``, ``regime``, ``impure``; ``budget``, ``spent``, ``reserved`` and ``remaining``, each with
          ``renyi`` and ``pure``, exact amounts in the two sums, and ``epsilon``, that in the sum of the ``regime``,
          rounded against the spender; ``entries_not_in_log`` and ``movements_not_in_log``.
        - ``sessions``: of each ``session``, ``dataset``, ``release`` (whether it is of one), ``construction``,
          ``status``, ``opened_at``, ``entries``, ``answers``, ``measurements``, ``forfeits``, ``spent`` and
          ``reserved`` with ``renyi`` and ``pure`` (null where not all of its noise is pure), ``head_hash``,
          ``entries_not_in_log`` and ``movements_not_in_log``.

        Amounts and epsilons are decimal strings.
        """
        broken, where = self.broken, None
        if broken is not None:
            where = {name: getattr(broken, name) for name in ("dataset", "session", "movement", "entry")}
        return {
            "ok": self.ok,
            "problem": None if broken is None else broken.problem,
            "where": where,
            "log": {"origin": self.log.origin, "size": self.log.size, "root": self.log.root.hex()},
            "datasets": self.datasets,
            "sessions": self.sessions,
        }


def replay_folder(
    path: Path, state: Follower, progress: Progress | None = None, *, memory_limit: int = MEMORY_LIMIT
) -> FolderVerdict:
    """Replay everything in a folder.

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
    replaying = _FolderReplay(path, state, progress, memory_limit)
    try:
        with (path / "entries.ndjson").open("rb") as log:
            replaying.read_log(log)
            for _, broken in replaying.check_sessions(log):
                if broken is not None:
                    raise broken
    except Unfollowed as broken:
        return FolderVerdict(False, state.seen, broken=broken)
    return FolderVerdict(True, state.seen, replaying.datasets(), [*replaying.told.values()])


def what_transcripts_lack(
    path: Path, state: Follower, *, memory_limit: int = MEMORY_LIMIT
) -> Iterator[tuple[str | None, Unfollowed | None]]:
    """The same of the transcripts alone (rules 4 to 7), for whoever has read the log with the rules of
    :mod:`app.audit.reading`, and goes on behind what does not follow.

    Args:
        path: the folder.
        state: as of :func:`replay_folder`.
        memory_limit: most bytes that the replay of one transcript may hold.

    Returns:
        Each session, with what does not follow of it; and behind them what does not follow of others, None where it is
        of no session.

    Raises:
        OSError: when something cannot be read.
        Undecided: when a replay fails.
    """
    replaying = _FolderReplay(path, state, None, memory_limit)
    with (path / "entries.ndjson").open("rb") as log:
        replaying.read_what_follows(log)
        yield from replaying.check_sessions(log)


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


class _FolderReplay:
    def __init__(self, path: Path, state: Follower, progress: Progress | None, memory_limit: int) -> None:
        self._path, self._state, self._progress, self._memory_limit = path, state, progress, memory_limit
        self._reading, self._logged = Reading(), dict[str, _Logged]()
        #: Sessions whose trailers name another size of the log.
        self._misplaced: list[str] = []
        #: Measurements that sessions start from, by their hashes: who does, and on which data set; and those of them
        #: that were found where they were made.
        self._pinned: dict[bytes, tuple[str, str]] = {}
        self._found: set[bytes] = set()
        #: Summaries by session.
        self.told: dict[str, dict[str, Any]] = {}
        files = [*self._transcripts()]
        self._done, self._total = 0, 2 * _size(path / "entries.ndjson") + sum(map(_size, files))
        self._files = set(files)

    # ------------------------------------------------------------------ the log

    def read_log(self, log: BinaryIO) -> None:
        """Rules 1 to 3: the lines are those that were signed, they keep the rules of a log, and where what stands."""
        assert self._state.seen is not None
        broken: list[Unfollowed] = []

        def surveyed() -> Iterator[bytes]:
            for _, line in self._lines(log):
                yield line
                if not broken:
                    try:
                        self._reading.survey(line)
                    except Unfollowed as fault:  # to be told once these are known to be the lines that were signed
                        broken.append(fault)

        self._state.follow(self._state.seen, surveyed())
        for fault in broken:
            raise fault
        for number, (at, line) in enumerate(self._lines(log), 1):
            self._index(number, at, line)
        for fault in self._reading.end():
            raise fault

    def read_what_follows(self, log: BinaryIO) -> None:
        """Where what stands, of lines that whoever asks has looked at: those that break a rule are left out."""
        for _, line in self._lines(log):
            with suppress(Unfollowed):
                self._reading.survey(line)
        for number, (at, line) in enumerate(self._lines(log), 1):
            with suppress(Unfollowed):
                self._index(number, at, line)

    def _lines(self, log: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """The lines that were verified, each with where it begins."""
        assert self._state.seen is not None
        log.seek(0)
        at = 0
        try:
            for line in islice(records.whole_lines(log), self._state.seen.size):
                yield at, line
                at += len(line) + 1
                self._read(len(line) + 1)
        except records.LineTooLong as error:
            raise Unfollowed(f"{error}: it is one of the log") from None

    def _read(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _index(self, number: int, at: int, line: bytes) -> None:
        record, session = self._reading.take(line)
        if session is None:
            return
        kind = record["record"]
        if kind == "header":
            self._logged[session] = _Logged(at, _pins(record, session, self._pinned), Lines(), array("q"))
        logged = self._logged.get(session)
        if logged is None:
            raise Unfollowed("a record is of a session whose header does not follow", session=session)
        if kind == "movement":
            logged.movements.append(at)
        else:
            logged.lines.add(line, measured=kind == "measurement")
            logged.size = number

    @property
    def books(self) -> Books:
        """The books of all data sets."""
        return self._reading.books

    # ------------------------------------------------------------------ transcripts

    def check_sessions(self, log: BinaryIO) -> Iterator[tuple[str | None, Unfollowed | None]]:
        """Rules 4 to 7: each session with what does not follow of it, and then what does not follow of several."""
        for session, logged in self._logged.items():
            broken = None
            try:
                if session not in self.books.sessions:
                    raise Unfollowed("a session has no movement")
                opened = self._opened(log, session, logged)
                self.told[session] = self._check(log, opened, logged, self._reading.threads.sessions[session])
            except Unfollowed as fault:
                broken = fault
                broken.dataset, broken.session = logged.dataset, session
            yield session, broken
        for name, (session, dataset) in self._pinned.items():
            if name not in self._found:
                problem = (
                    f"the session starts from the measurement {name.hex()}, which no transcript of its data set has"
                )
                yield session, Unfollowed(problem, dataset=dataset, session=session)
        for path in self._files:
            yield None, Unfollowed(f"{path.name} is the transcript of no session of the log")
        # Last: a line that is missing from the log moves all those behind it.
        for session in self._misplaced:
            problem = "the trailer names a size of the log which is not that of the smallest one with all of it"
            yield session, Unfollowed(problem, dataset=self._logged[session].dataset, session=session)

    @staticmethod
    def _opened(log: BinaryIO, session: str, logged: _Logged) -> Opened:
        log.seek(logged.header_at)
        return opened_of(records.parse(log.readline()), session)

    def _check(self, log: BinaryIO, opened: Opened, logged: _Logged, thread: Thread) -> dict[str, Any]:
        path = self._path / ("releases" if thread.release else "sessions") / f"{opened.session}.ndjson"
        if path not in self._files:
            raise Unfollowed("the transcript is missing")
        self._files.remove(path)
        tally = Tally(opened, (self._movement(log, at) for at in logged.movements))
        assert self._state.seen is not None
        sizes = logged.size, self._state.seen.size
        watching = Watching(opened, thread, logged.lines, sizes, tally, self._measured(opened))
        before = self._done
        try:
            verdict = replay_file(
                path,
                lambda done, _: self._read(before + done - self._done),
                memory_limit=self._memory_limit,
                watch=watching,
            )
        except Differs:
            raise self._difference(log, opened.session, path) from None
        if not verdict.ok:
            raise Unfollowed(f"the transcript does not replay: {verdict.problem}", entry=verdict.sequence)
        if watching.misplaced:
            self._misplaced.append(opened.session)
        return _session(opened, self.books.sessions[opened.session], verdict.summary, watching)

    @staticmethod
    def _movement(log: BinaryIO, at: int) -> Movement:
        log.seek(at)
        return Movement.read(records.parse(log.readline()))

    def _measured(self, opened: Opened) -> Callable[[bytes], None]:
        """Notes what a session measured, by its hash."""

        def note(name: bytes) -> None:
            if opened.shares and self._pinned.get(name, ("", ""))[1] == opened.public.spec.name:
                self._found.add(name)

        return note

    def _difference(self, log: BinaryIO, session: str, path: Path) -> Unfollowed:
        """Where a transcript and the log's lines of its session part."""
        threads, entries = Threads(), 0
        with path.open("rb") as first, path.open("rb") as second:
            own = [_own_lines(first, session, measured=False), _own_lines(second, session, measured=True)]
            for _, line in self._lines(log):
                record = records.parse(line)
                if threads.take(record, line) != session or record["record"] == "movement":
                    continue
                if next(own[record["record"] == "measurement"], None) != line:
                    break
                entries = threads.sessions[session].entries
        return Unfollowed("the transcript does not have the line that the log has", entry=entries + 1)

    def _transcripts(self) -> Iterator[Path]:
        for folder in ("sessions", "releases"):
            yield from sorted((self._path / folder).glob("[!.]*"))

    # ------------------------------------------------------------------ summaries

    def datasets(self) -> list[dict[str, Any]]:
        """A summary of each data set."""
        counts = {name: dict.fromkeys(_COUNTS, 0) for name in self.books.books}
        for told in self.told.values():
            found, kind = counts[told["dataset"]], "releases" if told["release"] else "sessions"
            found[kind] += 1
            found[f"open_{kind}"] += told["status"] == "open"
            for name in _SUMMED:
                found[name] += told[name]
        return [_dataset(book, counts[name]) for name, book in self.books.books.items()]


#: What is counted of sessions one by one, and what is added up of them.
_SUMMED = ("answers", "measurements", "forfeits", "entries_not_in_log", "movements_not_in_log")
_COUNTS = ("sessions", "open_sessions", "releases", "open_releases", *_SUMMED)


def _size(path: Path) -> int:
    return path.stat().st_size


def _pins(record: dict[str, Any], session: str, pinned: dict[bytes, tuple[str, str]]) -> str:
    """Note the measurements of others that a header starts from; the data set that it names."""
    try:
        with taking_apart():
            dataset = str(record["dataset"]["name"])
            known = [bytes.fromhex(name) for name in record["evidence"]["known"]] if "evidence" in record else []
    except Malformed:
        raise Unfollowed("a header describes no session", session=session) from None
    for name in known:
        if pinned.setdefault(name, (session, dataset))[1] != dataset:
            raise Unfollowed("sessions on two data sets start from one measurement", session=session)
    return dataset


def _own_lines(file: BinaryIO, session: str, *, measured: bool) -> Iterator[bytes]:
    """The lines of a transcript that are in the log as its session's: its measurements, or the others."""
    for line in records.transcript_lines(file):
        if line != records.WEIGHTS_HEAD:
            record = records.parse(line)
            own = record["record"] == "measurement" and record.get("session") == session
            if own if measured else record["record"] in ("header", *ENTRIES):
                yield line


def _session(opened: Opened, held: Held, found: dict[str, Any], watching: Watching) -> dict[str, Any]:
    """The summary of a session; see :meth:`FolderVerdict.document`."""
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


def _dataset(book: Book, counts: dict[str, int]) -> dict[str, Any]:
    """The summary of a data set; see :meth:`FolderVerdict.document`."""
    account, spec = book.account, book.registered.public.spec
    budget = account.budget
    return {
        "dataset": spec.name,
        "kind": spec.kind,
        "retired_at": book.registered.retired_at,
        **counts,
        "movements": book.movements,
        "epsilon": str(budget.epsilon),
        "delta": str(budget.delta),
        "order": str(budget.order),
        "regime": account.regime,
        "impure": account.impure,
        "budget": {"renyi": str(budget.total), "pure": str(budget.epsilon), "epsilon": str(budget.epsilon)},
        "spent": _amounts(account, account.spent, account.pure_spent),
        "reserved": _amounts(account, account.reserved, account.pure_reserved),
        "remaining": {
            "renyi": str(account.remaining),
            "pure": str(account.pure_remaining),
            "epsilon": str(
                floor_to(account.pure_remaining, SHOWN) if account.regime == "pure" else account.remaining_epsilon
            ),
        },
    }


def _amounts(account: Account, renyi: Decimal, pure: Decimal) -> dict[str, str]:
    epsilon = ceil_to(pure, SHOWN) if account.regime == "pure" else account.budget.spent_epsilon(renyi)
    return {"renyi": str(renyi), "pure": str(pure), "epsilon": str(epsilon)}
