"""A session's transcript in a file, checked as far as is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from curator_client.errors import NotVerified
from curator_client.extras import server
from curator_client.models import JSON
from curator_client.progress import Progress, heard_by
from curator_client.proofs import chain, records
from curator_client.proofs.findings import Unfollowed
from curator_client.seen import SeenEntries
from curator_client.verdict import NEVER, Verdict

_NO_REPLAY = 'that plans, prices, noise scales and free answers follow: verify(replay=True), with the extra "replay"'
_NO_LOG = 'that the log has the same: verify(log=FOLDER), as an auditor keeps one, with the extra "log"'


class Checks:
    """What is found, check by check, of a transcript that one session's client has fetched.

    Args:
        session: its id.
        head: the newest entry that was told of, None where none was.
        told: all that were.
    """

    def __init__(self, session: str, head: tuple[int, str] | None, told: SeenEntries) -> None:
        self._session, self._head, self._told = session, head, told
        self._checked: list[str] = []
        self._left: list[str] = []
        self._summary: dict[str, Any] = {}
        self._replayed = self._logged = False

    def look(self, path: Path) -> None:
        """Look at its chain, and for what was told.

        Raises:
            NotVerified: when one does not hold.
        """
        what = f"the transcript of session {self._session}"
        try:
            with path.open("rb") as file:
                found = chain.follow(records.transcript_lines(file))
        except Unfollowed as broken:
            where = "" if broken.entry is None else f"entry {broken.entry}: "
            raise NotVerified(f"{what}: {where}{broken.problem}") from None
        except records.LineTooLong as error:
            raise NotVerified(f"{what}: {error}") from None
        if found.session != self._session:
            raise NotVerified(f"the transcript is not that of session {self._session}")
        with path.open("rb") as file:
            count = self._told.check(records.transcript_lines(file))
        self._checked += [
            f"the chain of {found.entries} entries: each carries the hash before it and its own",
            f"{count} entries that this client was told of are there, as they were told",
        ]
        newest = 0 if self._head is None else self._head[0]
        if found.entries > newest:
            behind = found.entries - newest
            self._left.append(f"that the {behind} entries behind {newest} came so: nobody told this client")
        self._summary = {
            "session": found.session,
            "entries": found.entries,
            "head_hash": found.head,
            "status": found.status,
        }

    def replay(self, path: Path, progress: Callable[[int, int | None], None] | None, memory_limit: int | None) -> None:
        """Replay it; as :func:`replayed`."""
        entries, head = (None, None) if self._head is None else self._head
        what = f"the transcript of session {self._session}"
        self._summary = replayed(path, what, head, entries, progress, memory_limit)
        self._checked.append(follows(self._summary))
        self._replayed = True

    def found(self, verdict: Verdict) -> None:
        """Take in what the log that is kept has of it."""
        self._checked += verdict.checked
        self._summary |= verdict.summary
        self._logged = True

    def shown(self, log: JSON) -> None:
        """Take in what the log shows to any caller."""
        self._checked.append(f"a log of {log['size']} entries, of one key and no smaller than was shown before")
        if log["proven"] is not None:
            (self._checked if log["proven"] else self._left).append("that the log begins with what was shown before")
        self._left.append("that the records are in the log: an auditor keeps it, and verify(log=FOLDER) looks there")
        self._summary["log"] = {"size": log["size"]}
        self._logged = True

    def verdict(self) -> Verdict:
        """All of it."""
        left = [*self._left, *(() if self._replayed else (_NO_REPLAY,)), *(() if self._logged else (_NO_LOG,)), NEVER]
        return Verdict(self._checked, left, self._summary)


def replayed(
    path: Path,
    what: str,
    head: str | None,
    entries: int | None,
    progress: Callable[[int, int | None], None] | None,
    memory_limit: int | None,
) -> dict[str, Any]:
    """The summary of a transcript that replays.

    Raises:
        MissingExtra: without the extra ``replay``.
        NotVerified: when it does not.
    """
    replay_file = server("verifying.transcript").replay_file
    limit = server("audit.replay").MEMORY_LIMIT if memory_limit is None else memory_limit
    verdict = replay_file(path, progress, head=head, entries=entries, memory_limit=limit)
    if not verdict.ok:
        where = "" if verdict.sequence is None else f"entry {verdict.sequence}: "
        raise NotVerified(f"{what}: {where}{verdict.problem}")
    summary: dict[str, Any] = verdict.summary
    return summary


def replay(
    transcript: Path | str,
    *,
    head: str | None = None,
    entries: int | None = None,
    progress: Progress = False,
    memory_limit: int | None = None,
) -> Verdict:
    """Replay a transcript by itself: its chain, its plan, and every answer that follows from earlier ones. Needs the
    extra ``replay``.

    Args:
        transcript: the file.
        head: an ``entry_hash`` that was kept while the session ran (:attr:`Session.head`); it must be in the chain.
        entries: how many entries there were at least; with ``head``, the number of the one that has the hash.
        progress: hears of bytes read and of bytes in all.
        memory_limit: most bytes that the replay may hold; 4 GiB by default.

    Raises:
        MissingExtra: without the extra.
        NotVerified: when something does not follow: the first, and where.
        app.audit.failures.Undecided: when the replay itself fails, which is no verdict.
        OSError: when the file cannot be read.
    """
    path = Path(transcript)
    found = replayed(path, str(path), head, entries, heard_by(progress), memory_limit)
    checked = [follows(found)]
    left = ["that this is what was told when it was asked: give head and entries that were kept then"]
    if head is not None:
        at, behind = found["kept_head_at"], found["entries"] - found["kept_head_at"]
        checked.append(f"the hash that was kept is that of entry {at}: all up to it is as it was then")
        left = [f"that the {behind} entries behind {at} came so"] if behind else []
    return Verdict(checked, [*left, "that the log has the same: Log.verify", NEVER], found)


def follows(summary: dict[str, Any]) -> str:
    """That a replay found nothing wrong."""
    return f"the plan, and prices, noise scales and free answers of {summary['entries']} entries follow"
