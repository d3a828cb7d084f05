"""What an auditor who follows a service's log takes for true.

:class:`Follower` is the auditor's side as a state machine: bytes in, a new state or a named refusal out, no input or
output of its own. Its rules:

1. Only notes count that the one known key has signed for the one known origin. Another key becomes the known one when
   the known one has vouched for it, in statements that both have signed, and these are lines of the log.
2. A state is a size and a tree hash. It is replaced by a larger one that begins with it, and by no other.
3. A log that is smaller than what was seen has *shrunk*; one that does not begin with it, or has another hash at the
   same size, was *forked*. Both are final: somebody was shown another history.
4. Lines are taken when they make the tree hash that was signed, all of them or none; after a change of the key, when
   the last changes that they tell of are those that were vouched for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from curator_client.proofs.key_changes import statement_in, vouched
from curator_client.proofs.merkle import Frontier, ProofRefused, check_consistency, leaf_hash
from curator_client.proofs.notes import Checkpoint, NoteUnsigned, Verifier


class LogRefused(ValueError):
    """A log cannot be what it was."""


class LogShrank(LogRefused):
    """It has fewer leaves than it had."""


class LogForked(LogRefused):
    """It does not begin with what was seen of it."""


class LinesRefused(LogRefused):
    """Lines do not make the tree hash that was signed, or do not tell of a change of the key."""


@dataclass(frozen=True)
class Follower:
    """An auditor's knowledge of one log: the key that is known of it, and the last checkpoint that it verified.

    ``seen`` is None before the first one. ``statements`` led to the key since ``seen``, and must be lines of the log.
    """

    verifier: Verifier
    seen: Checkpoint | None = None
    statements: tuple[bytes, ...] = ()

    def know(self, note: bytes, told: Callable[[], Sequence[bytes]]) -> Follower:
        """The state in which the key is known that a note is signed with.

        Args:
            note: what is to be looked at.
            told: asks for the statements of all changes of the key, when the known one has not signed the note.

        Raises:
            NoteRefused: when it is no note, or statements do not lead to the key that it is signed with.
        """
        try:
            self.verifier.open(note)
        except NoteUnsigned:
            verifier, statements = vouched(self.verifier, note, told())
            return Follower(verifier, self.seen, statements)
        return self

    def look(self, note: bytes) -> Checkpoint:
        """The checkpoint of a note, if it can follow on what was seen as far as the sizes tell.

        Raises:
            NoteRefused: when it is no checkpoint that this log signed.
            LogShrank: when it is smaller.
            LogForked: when it is of the same size and has another hash.
        """
        found = self.verifier.checkpoint(note)
        self.check_sizes(found)
        return found

    def check_sizes(self, found: Checkpoint) -> None:
        """Check that a checkpoint can follow on what was seen as far as the sizes tell.

        Raises:
            LogShrank: when it is smaller.
            LogForked: when it is of the same size and has another hash.
        """
        if self.seen is not None:
            if found.size < self.seen.size:
                raise LogShrank(f"the log has {found.size} entries and had {self.seen.size}")
            if found.size == self.seen.size and found.root != self.seen.root:
                raise LogForked(f"two different logs of {found.size} entries are signed with one key")

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
            LinesRefused: when they do not make what was signed, or do not tell of the changes of the key.
        """
        tree, changes = Frontier() if tree is None else tree, deque[bytes](maxlen=len(self.statements))
        self._check_seen(tree)
        for line in lines:
            tree.append(leaf_hash(line))
            self._check_seen(tree)
            if self.statements and (statement := statement_in(line)) is not None:
                changes.append(statement)
        if tree.size != found.size or tree.root() != found.root:
            raise LinesRefused(f"{tree.size} lines do not make the log of {found.size} entries that was signed")
        if tuple(changes) != self.statements:
            raise LinesRefused("the log does not tell of the change of its key that was shown, or tells of another")
        return Follower(self.verifier, found)

    def _check_seen(self, tree: Frontier) -> None:
        if self.seen is not None and tree.size == self.seen.size and tree.root() != self.seen.root:
            raise LogForked(f"the first {tree.size} lines are not those that were seen")
