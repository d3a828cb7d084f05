"""What was checked, and what was not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

from curator_client.models import JSON
from curator_client.proofs.notes import Checkpoint

#: What no check of what a service shows can tell.
NEVER = "that noise was drawn at random and added to the true values: only who has the data could look"


class Verdict:
    """All that was ``checked`` holds: what does not is raised. What was not looked at stands in ``not_checked``, and is
    printed with it.

    Attributes:
        checked: what holds, a sentence each.
        not_checked: what was not looked at.
        summary: what was found on the way: numbers of entries, hashes, amounts.
    """

    checked: tuple[str, ...]
    not_checked: tuple[str, ...]
    summary: JSON

    def __init__(self, checked: Iterable[str], not_checked: Iterable[str], summary: JSON) -> None:
        self.checked, self.not_checked = tuple(checked), tuple(not_checked)
        self.summary = dict(summary)

    def __bool__(self) -> Literal[True]:
        return True

    def __repr__(self) -> str:
        return f"<Verdict: {len(self.checked)} checked, {len(self.not_checked)} not checked>"

    def __str__(self) -> str:
        return "\n".join(f"{what}: {each}" for what, items in self._parts() for each in items)

    def _repr_html_(self) -> str:
        from curator_client.figures import escaped

        return "".join(
            f"<p>{what}</p><ul>{''.join(f'<li>{escaped(each)}</li>' for each in items)}</ul>"
            for what, items in self._parts()
            if items
        )

    def _parts(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return ("checked", self.checked), ("not checked", self.not_checked)


class Fetched(int):
    """The size of a log that was fetched. It is the number itself, and knows what else came.

    Attributes:
        checkpoint: the one that was verified.
        written: how many transcripts were.
        refused: of which sessions the service gave none.
    """

    checkpoint: Checkpoint
    written: int
    refused: tuple[str, ...]

    @classmethod
    def of(cls, checkpoint: Checkpoint, written: int, refused: tuple[str, ...]) -> Self:
        """What was fetched under a checkpoint."""
        made = cls(checkpoint.size)
        made.checkpoint, made.written, made.refused = checkpoint, written, refused
        return made


def log_of(checkpoint: Checkpoint) -> JSON:
    """A checkpoint as a verdict's summary has it."""
    return {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
