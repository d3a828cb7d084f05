"""A log and its transcripts, checked by whoever has them at hand: its report, and the verdict with it.

The rules and their words are those of a replay (:mod:`app.audit`); the first thing that a report finds is what a replay
stops at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from app.audit.against_log import Replays
from app.audit.transcripts import Kept
from app.audit.verdict import FolderVerdict
from app.report.checks import FILE, NOT_GROWN, TRUST, Verified
from app.report.reader import Reader
from curator_client.proofs.findings import Unfollowed
from curator_client.proofs.follower import Follower, LinesRefused, LogForked, LogShrank
from curator_client.proofs.notes import Checkpoint, Verifier

#: What is being looked at, in this order.
Stage = Literal["lines", "books", "replay"]
#: Hears of how much was looked at, and of how much there is, lines of the log and then sessions; and of what does not
#: follow, as far as it is known.
Progress = Callable[[Stage, int, int, dict[str, Any] | None], None]
#: Sessions of which a result tells, the newest ones.
MOST_SESSIONS = 100
#: What is counted of sessions, and told of a data set when all of its sessions were looked at.
_COUNTED = (
    *("sessions", "open_sessions", "releases", "open_releases", "answers", "measurements", "forfeits"),
    *("entries_not_in_log", "movements_not_in_log"),
)


@dataclass(frozen=True)
class Task:
    """What is to be checked.

    Attributes:
        key: the log's, as verifiers take it: NAME+HASH+KEY.
        note: a checkpoint that is signed with it.
        earlier: one that was kept elsewhere, which the log is to begin with; its signature was checked.
        session: the one whose transcript alone is replayed; all of them where it is None.
    """

    key: str
    note: bytes
    earlier: Checkpoint | None = None
    session: str | None = None


def followed(
    state: Follower,
    note: bytes,
    lines: Callable[[], Iterable[bytes]],
    reader: Reader,
    heard: Callable[[str], None] = lambda _: None,
) -> tuple[str | None, str | None]:
    """Read the lines of a checkpoint; why they are not those that were signed, and why they do not begin with what was
    seen before, where that is so.

    Args:
        state: the log's key, and what was seen before.
        note: the checkpoint.
        lines: all lines that there are, each time anew.
        reader: takes them in, twice.
        heard: hears of either as soon as it is found.

    Raises:
        NoteRefused: when the key has not signed the note.
    """
    alone, fork = Follower(state.verifier), None
    checkpoint = alone.look(note)

    def surveyed() -> Iterator[bytes]:
        for line in islice(lines(), checkpoint.size):
            reader.survey(line)
            yield line

    try:
        state.look(note)
    except (LogShrank, LogForked) as error:
        state, fork = alone, str(error)
        heard(fork)
    looked, problem = surveyed(), None
    try:
        try:
            state.follow(checkpoint, looked)
        except LogForked as error:
            fork = str(error)
            heard(fork)
            deque(looked, maxlen=0)  # the rest is reported on all the same
            alone.follow(checkpoint, islice(lines(), checkpoint.size))
    except LinesRefused as error:
        problem = str(error)
        heard(problem)
    for line in islice(lines(), checkpoint.size):
        reader.take(line)
    return problem, fork


def checked(
    task: Task, kept: Kept, memory_limit: int, progress: Progress, replays: Replays | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is found of a log, in short, and its report. Where the log itself does not hold, nothing is replayed.

    Args:
        task: what is to be checked.
        kept: the log's lines, and the transcripts.
        memory_limit: most bytes that the replay of one transcript may hold.
        progress: hears of what was looked at.
        replays: has transcripts replayed; one after another and here where left out.

    Raises:
        NoteRefused: when the key has not signed the checkpoint.
        OSError: when something cannot be read.
        Undecided: when a replay fails.
    """
    verifier = Verifier.parse(task.key)
    checkpoint, reader = verifier.checkpoint(task.note), Reader(memory_limit, only=task.session, bounded=False)
    passes, problems = 0, list[str]()

    def found() -> dict[str, Any] | None:
        # What breaks a rule is told once these are known to be the lines that were signed, or not to be.
        return None if passes < 2 else finding_of(reader.broken, problems[0] if problems else None)

    def lines() -> Iterator[bytes]:
        nonlocal passes
        passes += 1
        stage: Stage = "lines" if passes == 1 else "books"
        try:
            for number, line in enumerate(kept.lines(), start=1):
                progress(stage, number, checkpoint.size, found())
                yield line
        except Unfollowed as broken:  # a line that is too long to be read
            reader.rules.sink(broken, None)

    problem, fork = followed(Follower(verifier, task.earlier), task.note, lines, reader, problems.append)
    reader.end()
    if task.session is not None and task.session not in reader.rules.threads.sessions:
        reader.rules.sink(Unfollowed("the log does not have the session", check="chains", session=task.session), None)
    replayed = None
    if problem is None and fork is None and reader.broken is None:
        replayed = reader.replay(kept, lambda done, of: progress("replay", done, of, found()), replays)
    verified = Verified(
        verifier.name, verifier.text(), checkpoint, problem, task.earlier, fork, told_by="of this service"
    )
    document = reader.document(verified, replayed, "No transcripts were replayed: the log itself must hold first.")
    return _found(task, checkpoint, verified, reader, document), document


def finding_of(broken: Unfollowed | None, problem: str | None = None) -> dict[str, Any] | None:
    """What does not follow, and where, in a replay's words; ``problem`` stands before what the lines say themselves."""
    if broken is None and problem is None:
        return None
    where = {name: getattr(broken, name, None) for name in ("dataset", "session", "movement", "entry")}
    return {"problem": problem if problem is not None or broken is None else broken.problem, "where": where}


def _found(
    task: Task, checkpoint: Checkpoint, verified: Verified, reader: Reader, document: dict[str, Any]
) -> dict[str, Any]:
    """A report in short."""
    told = reader.told
    books = FolderVerdict.of(checkpoint, reader.rules.books, told)
    datasets = books.datasets
    if task.session is not None:
        own = reader.rules.books.sessions.get(task.session)
        datasets = [
            {name: value for name, value in each.items() if name not in _COUNTED}
            for each in datasets
            if own is not None and each["dataset"] == own.dataset
        ]
    not_checked = [*TRUST, FILE, *([NOT_GROWN] if task.earlier is None else [])]
    held = all(check["holds"] is not False for check in document["checks"])
    log = document["log"]
    return {
        "verdict": "holds" if held else "does not hold",
        "contradicted": verified.contradicted,
        "finding": None if held else finding_of(reader.broken, verified.fork or verified.problem),
        "checks": document["checks"],
        "not_checked": not_checked,
        "log": {
            **{name: log[name] for name in ("origin", "key", "size", "root", "first_at", "last_at")},
            "checkpoint": task.note.decode(),
        },
        "earlier_size": None if task.earlier is None else task.earlier.size,
        "datasets": datasets,
        "replayed": len(told),
        "sessions": books.sessions[-MOST_SESSIONS:],
    }
