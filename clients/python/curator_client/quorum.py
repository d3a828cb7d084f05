"""A client's demands on witnesses before it takes a checkpoint: enough of those that it knows must have cosigned one
that the checkpoint begins with.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from curator_client.errors import NotVerified, Refused
from curator_client.log_routes import LogRoutes
from curator_client.proofs.follower import Follower
from curator_client.proofs.notes import Checkpoint, NoteUnsigned, Verifier, WitnessVerifier


@dataclass(frozen=True)
class Quorum:
    """Witnesses that are known, how many of them are enough, and how many seconds their cosignatures may lie back."""

    witnesses: tuple[WitnessVerifier, ...]
    need: int
    max_age: float | None

    @staticmethod
    def of(lines: Sequence[str], need: int | None, max_age: float | None) -> Quorum | None:
        """The demand; None where no witness is named.

        Args:
            lines: their public keys, each NAME+HASH+KEY.
            need: how many are enough; all of them when it is left out.
            max_age: seconds; None for any age.

        Raises:
            ValueError: when a line is no key of a witness, one is there twice, or more are needed than are named.
        """
        witnesses = tuple(WitnessVerifier.parse(line) for line in lines)
        if len({each.public_key for each in witnesses}) < len(witnesses):
            raise ValueError("one witness is named twice")
        if not witnesses and (need is not None or max_age is not None):
            raise ValueError("name the witnesses by their keys")
        if need is not None and not 1 <= need <= len(witnesses):
            raise ValueError(f"of {len(witnesses)} witnesses 1 to {len(witnesses)} can be needed")
        return Quorum(witnesses, need or len(witnesses), max_age) if witnesses else None

    def ask(self, curator: LogRoutes) -> bytes:
        """The newest checkpoint that enough of them have cosigned; the log's own signature is not checked.

        Raises:
            NotVerified: when there is none, or none that is new enough.
            NoteMalformed: when what the service shows is no note.
        """
        try:
            note = curator.log_checkpoint(self.need, [each.text() for each in self.witnesses])
        except Refused as problem:
            if problem.type != "not-found":
                raise
            raise NotVerified(f"no checkpoint was cosigned by {self.need} of the witnesses named") from None
        times = []
        for witness in self.witnesses:
            with suppress(NoteUnsigned):  # it may be one of those that are not needed
                found = witness.open(note)
                if found.checkpoint.size:  # every log begins with an empty one
                    times.append(found.time)
        now = time.time()
        fresh = [at for at in times if self.max_age is None or abs(now - at) <= self.max_age]
        if len(fresh) < self.need:
            aged = "" if len(fresh) == len(times) else f" within {self.max_age:g} seconds"
            raise NotVerified(
                f"{len(fresh)} of the witnesses named have cosigned what is shown{aged}, and {self.need} are needed"
            )
        return note


def check_connected(curator: LogRoutes, verifier: Verifier, earlier: Checkpoint, later: Checkpoint) -> None:
    """Check by a proof of the service that one checkpoint begins with another; both were verified.

    Raises:
        LogShrank: when the later one is smaller.
        LogForked: when it does not.
    """
    state = Follower(verifier, earlier)
    state.check_sizes(later)
    if 0 < earlier.size < later.size:
        state.check_growth(later, curator.log_consistency(earlier.size, later.size))
