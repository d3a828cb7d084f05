"""A client's demands on witnesses before it takes a checkpoint: enough of those that it knows must have cosigned one
that the checkpoint begins with.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from curator_client.errors import NotVerified
from curator_client.proofs.notes import NoteUnsigned, WitnessVerifier


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

    def check(self, note: bytes) -> None:
        """Check that enough of them have cosigned a checkpoint; the log's own signature is not checked.

        Raises:
            NotVerified: when they have not, or too long ago.
            NoteMalformed: when it is no note.
        """
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
