"""The checks of a log from outside of its lines: checkpoint and transcripts; and what remains to be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from curator_client.proofs.notes import Checkpoint

#: What no log shows, and who must be trusted with it.
TRUST = (
    "Whether an answer is the private data's own plus noise of the stated law, no record can show, as that is what the "
    "noise hides: the operator's program and its source of randomness are trusted with it.",
    "That everything that was computed from the data was recorded here, and that each line tells the truth when it is "
    "written, is the operator's word; the log shows that nothing of it was changed, removed or put in between since.",
    "That everybody is shown the same log, and that the key is the operator's, is for you to see to: compare origin, "
    "key, size and tree hash of the checkpoint with others who keep it, by another way than this service.",
)
#: What is said where no transcripts were looked at.
UNASKED = "No transcripts were replayed."
#: What a check does not see that has the log and its transcripts alone.
FILE = "Whether a private file is the one that was registered, and true, is not looked at: nothing private is."
#: What stays open without a checkpoint that was kept.
NOT_GROWN = (
    "Whether the log only grew since you last saw it: name a checkpoint that you kept yourself, elsewhere, and it is "
    "looked at, too."
)


@dataclass(frozen=True)
class Verified:
    """The outcome for the checkpoint and the lines, which whoever read them tells.

    Attributes:
        origin, key: of the log, as they were first told; None where they cannot be read.
        checkpoint: what was signed; None where there is no such thing.
        problem: why the lines are not those that were signed; None where they are.
        earlier: a checkpoint that was kept elsewhere.
        fork: why the log does not begin with that; None where it does.
        refused: a checkpoint that was signed with the same key and did not follow on what was seen before.
        told_by: where the key is from.
    """

    origin: str | None
    key: str | None
    checkpoint: Checkpoint | None
    problem: str | None = None
    earlier: Checkpoint | None = None
    fork: str | None = None
    refused: Checkpoint | None = None
    told_by: str = "in this folder"

    @property
    def contradicted(self) -> bool:
        """Whether the lines are not those that were signed, or two histories were."""
        return bool(self.checkpoint is None or self.problem or self.fork or self.refused)

    def checks(self, lines: int) -> list[dict[str, Any]]:
        """The checks, and whether each holds; ``lines`` is how many there are."""
        if self.checkpoint is None:
            return [check_of("signature", f"there is no checkpoint that the log's key has signed: {self.problem}", "")]
        found = [
            check_of("signature", None, f"The checkpoint is signed with the key of {self.origin} {self.told_by}."),
            check_of("lines", self.problem, f"All {lines:,} lines make the tree hash that was signed."),
        ]
        if self.earlier is not None:
            says = f"The log begins with the {self.earlier.size:,} entries of the earlier checkpoint."
            found.append(check_of("earlier", self.fork, says))
        if self.refused is not None:
            problem = (
                f"the folder keeps a checkpoint of {self.refused.size:,} entries, signed with the same key, that did "
                "not follow on what was seen before; two histories were signed"
            )
            found.append(check_of("refused", problem, ""))
        return found


def check_of(name: str, problem: str | None, says: str) -> dict[str, Any]:
    """A check that holds, and what it says then, or one that does not for some reason."""
    return {"check": name, "holds": problem is None, "says": says if problem is None else f"Not so: {problem}."}


def replay_check(
    replays: Mapping[str | None, str | None] | None, others: int = 0, unasked: str = UNASKED
) -> dict[str, Any]:
    """The outcome for the transcripts, as a check; of so many others nobody looked at theirs. ``unasked`` is said where
    none was looked at.
    """
    if replays is None:
        return {"check": "replay", "holds": None, "says": unasked}
    wrong = [(session, problem) for session, problem in replays.items() if problem is not None]
    problem, sessions = None, len(replays.keys() - {None})
    if wrong:
        session, first = wrong[0]
        of = "a file that is of no session" if session is None else f"that of {session}"
        problem = f"{len(wrong):,} of the transcripts of {sessions:,} sessions and releases, first {of}: {first}"
    says = (
        f"The transcripts of {sessions:,} sessions and releases are what the log has of them, and replay: plans, "
        "prices and answers follow, and movements are what they were charged for."
    )
    if others:
        says += f" Those of {others:,} others were not looked at."
    return check_of("replay", problem, says)
