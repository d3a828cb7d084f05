"""What the log of a service holds, and what an auditor who follows it takes for true.

A leaf is a line of canonical JSON: a transcript's header, entry or record of a measurement as it stands there, a
movement of a ledger, or a public event (a data set is registered or retired, a principal is created, gets another key
or loses it). No line has anything private, nor a key.

:class:`Follower` is the auditor's side as a state machine: bytes in, a new state or a named refusal out, no input or
output of its own. Its rules:

1. Only notes count that the one known key has signed for the one known origin.
2. A state is a size and a tree hash. It is replaced by a larger one that begins with it, and by no other.
3. A log that is smaller than what was seen has *shrunk*; one that does not begin with it, or has another hash at the
   same size, was *forked*. Both are final: somebody was shown another history.
4. Lines are taken when they make the tree hash that was signed, all of them or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from app.audit.merkle import Frontier, ProofRefused, check_consistency, leaf_hash
from app.audit.notes import Checkpoint, Verifier


class LogRefused(ValueError):
    """A log cannot be what it was."""


class LogShrank(LogRefused):
    """It has fewer leaves than it had."""


class LogForked(LogRefused):
    """It does not begin with what was seen of it."""


class LinesRefused(LogRefused):
    """Lines do not make the tree hash that was signed."""


def _line(document: Mapping[str, Any]) -> bytes:
    """Names, decimal strings and numbers as they came in JSON: sorted and compact, as measurements are."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def principal_record(
    *, event: Literal["created", "key replaced", "revoked"], name: str, role: str, recorded_at: str
) -> bytes:
    """The line of what became of a principal; of the key itself nothing is told."""
    return _line({"record": "principal", "event": event, "name": name, "role": role, "recorded_at": recorded_at})


def registration_record(*, declared: Mapping[str, Any], records: float | None, recorded_at: str) -> bytes:
    """The line of a data set that is registered: what was declared of it, and its size where that is public."""
    told = {} if records is None else {"records": records}
    document = {"record": "dataset", "event": "registered", "name": declared["name"], "declared": declared}
    return _line(document | told | {"recorded_at": recorded_at})


def retirement_record(*, name: str, recorded_at: str) -> bytes:
    """The line of a data set that is retired."""
    return _line({"record": "dataset", "event": "retired", "name": name, "recorded_at": recorded_at})


def movement_record(number: int, movement: Mapping[str, Any]) -> bytes:
    """The line of a movement of a ledger; ``number`` tells it from others like it."""
    return _line({"record": "movement", "number": number} | dict(movement))


@dataclass(frozen=True)
class Follower:
    """What an auditor holds for true of one log: the key it was told, and the last checkpoint that it verified.

    ``seen`` is None before the first one.
    """

    verifier: Verifier
    seen: Checkpoint | None = None

    def look(self, note: bytes) -> Checkpoint:
        """What a note says, if it can follow on what was seen as far as the sizes tell.

        Raises:
            NoteRefused: when it is no checkpoint that this log signed.
            LogShrank: when it is smaller.
            LogForked: when it is of the same size and has another hash.
        """
        found = self.verifier.checkpoint(note)
        if self.seen is not None:
            if found.size < self.seen.size:
                raise LogShrank(f"the log has {found.size} entries and had {self.seen.size}")
            if found.size == self.seen.size and found.root != self.seen.root:
                raise LogForked(f"two different logs of {found.size} entries are signed with one key")
        return found

    def check_growth(self, found: Checkpoint, proof: Sequence[bytes]) -> None:
        """Check by a proof of consistency that a checkpoint which was looked at begins with what was seen.

        Raises:
            LogForked: when it does not.
        """
        if self.seen is not None:
            try:
                check_consistency(self.seen.size, found.size, proof, self.seen.root, found.root)
            except ProofRefused as error:
                raise LogForked(f"the log does not begin with the {self.seen.size} entries seen: {error}") from None

    def follow(self, found: Checkpoint, lines: Iterable[bytes], tree: Frontier | None = None) -> Follower:
        """The state after all lines of a log from its first on, where they make the hash of a checkpoint that was
        looked at, and on their way that of the one seen before.

        ``tree`` is that of the lines which were read before, and takes in the others; without it there are none.

        Raises:
            LogForked: when they do not begin with what was seen.
            LinesRefused: when they do not make what was signed.
        """
        tree = Frontier() if tree is None else tree
        self._check_seen(tree)
        for line in lines:
            tree.append(leaf_hash(line))
            self._check_seen(tree)
        if tree.size != found.size or tree.root() != found.root:
            raise LinesRefused(f"{tree.size} lines do not make the log of {found.size} entries that was signed")
        return Follower(self.verifier, found)

    def _check_seen(self, tree: Frontier) -> None:
        if self.seen is not None and tree.size == self.seen.size and tree.root() != self.seen.root:
            raise LogForked(f"the first {tree.size} lines are not those that were seen")
