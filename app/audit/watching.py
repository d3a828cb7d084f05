"""A transcript held against the log while it replays: its lines against those that the log has of its session, what it
was charged for against the session's movements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from app.audit.books import Opened, Tally
from app.audit.replay import Replaying
from app.privacy.errors import PrivacyError
from app.privacy.ledger import NOTHING, Amounts
from curator_client.proofs.findings import Unfollowed


class Differs(Unfollowed):
    """A transcript does not begin with the lines of the log."""


class Lines:
    """The lines of a session under two hashes: header and entries, and measurements.

    A log has measurements before the entries of a step, a transcript each before its own entry: their orders among
    themselves are one.
    """

    def __init__(self) -> None:
        self._hashes = hashlib.sha256(), hashlib.sha256()

    def add(self, line: bytes, *, measured: bool) -> None:
        """Take in a line, without its end."""
        self._hashes[measured].update(line + b"\n")

    def digests(self) -> tuple[bytes, ...]:
        """Those of the lines so far."""
        return tuple(each.digest() for each in self._hashes)


class Watching:
    """Hears of a transcript's records, each of which follows, and holds them against the log.

    Args:
        opened: the session's header, as the log has it.
        entries: how many the log has of it.
        digests: of the lines that the log has of it.
        sizes: of the smallest log that has all of these, and of the log as it is kept.
        tally: of its movements.
        measured: hears of the hash of each measurement that the session made.
    """

    def __init__(
        self,
        opened: Opened,
        entries: int,
        digests: tuple[bytes, ...],
        sizes: tuple[int, int],
        tally: Tally,
        measured: Callable[[bytes], None],
    ) -> None:
        self._sizes = sizes
        self._opened, self._entries, self._digests, self.tally = opened, entries, digests, tally
        self._measured, self._lines = measured, Lines()
        self._compared = self._begun = False
        #: What was measured at the opening, and by the entries of a release, in all.
        self._made: Amounts | None = None
        self._whole, self._at = NOTHING, ""
        #: How many entries the log does not have, and whether the trailer names another size of it than that with all.
        self.beyond, self.misplaced = 0, False

    def __call__(self, line: bytes, record: dict[str, Any], state: Replaying) -> None:
        assert state.session is not None
        kind, sequence = record["record"], state.session.sequence
        if kind == "header":
            self._lines.add(line.rstrip(b"\n"), measured=False)
        elif kind == "measurement":
            if record["session"] == self._opened.session:
                self._measured(hashlib.sha256(line.rstrip(b"\n")).digest())
                if record["sequence"] == 0:
                    self._made = state.spent
                self._add(line, record["sequence"], measured=True)
        elif kind == "trailer":
            self._end(record, state)
        else:
            self._begin(state)
            self._add(line, sequence, measured=False)
            if sequence == self._entries:
                self._compare()
            if state.price is None:
                return
            if self._opened.release:
                self._whole, self._at = self._whole.plus(state.price), record["recorded_at"]
            else:
                self.tally.charge(state.price, sequence, record["recorded_at"])

    def _add(self, line: bytes, sequence: int, *, measured: bool) -> None:
        if sequence > self._entries:
            self._compare()
        self._lines.add(line.rstrip(b"\n"), measured=measured)

    def _compare(self) -> None:
        """Hold the lines up to the last one that the log has against those there."""
        if not self._compared and self._lines.digests() != self._digests:
            raise Differs("the transcript does not begin with the lines of the log")
        self._compared = True

    def _begin(self, state: Replaying) -> None:
        if not self._begun:
            assert state.session is not None
            purchase = state.session.plan.purchase
            self.tally.begin(self._made if self._made is not None else purchase.price if purchase else None)
        self._begun = True

    def _end(self, record: dict[str, Any], state: Replaying) -> None:
        sequence = record["entries"]
        self._begin(state)
        if sequence < self._entries:
            raise Unfollowed("the log has entries that the transcript lacks", entry=sequence + 1)
        self._compare()
        self.beyond = sequence - self._entries
        covering, kept = self._sizes
        told = record.get("log_size")
        self.misplaced = told is not None and (told <= kept if self.beyond else told != covering)
        if self._opened.release and sequence:
            self.tally.charge(self._whole, sequence, self._at)
        try:
            left = None if record["status"] == "open" else self._opened.holds.minus(state.paid)
        except PrivacyError:
            raise Unfollowed("the session spent more than it held") from None
        self.tally.end(left, sequence)
