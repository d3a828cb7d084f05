"""One transcript, replayed and held against the log's part of its session.

:class:`Due` is all that this takes, and :class:`Found` all that comes of it: neither knows other sessions, so that
whoever has several may have them replayed at once, and elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeAlias

from app.audit import forms
from app.audit.books import Movement, Opened, Tally
from app.audit.replay import replay_stream
from app.audit.watching import Watching
from curator_client.proofs.findings import Unfollowed

#: Of a replay's summary, what is told of a session: texts, and numbers of answers.
TEXTS = ("status", "head_hash")
ANSWERS = tuple(f"{kind}_answers" for kind in ("hypothesis", "estimate", "cached", "unverified", "measurement"))
NUMBERS = ("entries", "forfeit_answers", *ANSWERS)


@dataclass(frozen=True)
class Found:
    """What a transcript tells that follows.

    Attributes:
        summary: the session's :data:`TEXTS` and :data:`NUMBERS`.
        beyond: entries that the log does not have yet.
        missing: movements that it does not have yet.
        misplaced: whether the trailer names another size of the log than that with all of the session.
        made: those of the measurements that were sought that the session made.
    """

    summary: Mapping[str, Any]
    beyond: int
    missing: int
    misplaced: bool
    made: frozenset[bytes]


@dataclass(frozen=True)
class Due:
    """A transcript that is to be replayed, and what it is held against.

    Attributes:
        header: the log's line of its session's header.
        opened: the same, read.
        movements: the log's lines of its movements, to be read once.
        entries: how many entries the log has of it.
        digests: of its lines in the log (:meth:`app.audit.watching.Lines.digests`).
        sizes: of the smallest log that has all of these, and of the log as it is kept.
        sought: hashes of measurements of which it is to be told whether the session made them.
        transcript: to be opened once.
    """

    header: bytes
    opened: Opened
    movements: Iterable[bytes]
    entries: int
    digests: tuple[bytes, ...]
    sizes: tuple[int, int]
    sought: Collection[bytes]
    transcript: AbstractContextManager[BinaryIO] = field(repr=False)

    def replayed(self, memory_limit: int, heard: Callable[[int], None]) -> Found | Unfollowed:
        """What the transcript tells, or the first thing that does not follow of it: :class:`.watching.Differs` where it
        does not begin with the lines of the log.

        Args:
            memory_limit: most bytes to hold.
            heard: hears of how many bytes more were read.

        Raises:
            OSError: when the transcript cannot be read.
            Undecided: when the replay itself fails.
        """
        try:
            return self._replayed(memory_limit, heard)
        except Unfollowed as broken:
            return broken

    def _replayed(self, memory_limit: int, heard: Callable[[int], None]) -> Found:
        tally = Tally(self.opened, (Movement.read(forms.parse(line)) for line in self.movements))
        made = set[bytes]()

        def measured(name: bytes) -> None:
            if name in self.sought:
                made.add(name)

        watching = Watching(self.opened, self.entries, self.digests, self.sizes, tally, measured)
        with self.transcript as file:
            verdict = replay_stream(file, heard, memory_limit=memory_limit, watch=watching)
        if not verdict.ok:
            raise Unfollowed(f"the transcript does not replay: {verdict.problem}", entry=verdict.sequence)
        summary = {name: verdict.summary[name] for name in (*TEXTS, *NUMBERS)}
        return Found(summary, watching.beyond, tally.missing, watching.misplaced, frozenset(made))


#: Has transcripts replayed, and tells what becomes of each in their order: what does not follow as it comes is passed
#: on.
Replays: TypeAlias = Callable[[Iterator[Due | Unfollowed]], Iterator[Found | Unfollowed]]
