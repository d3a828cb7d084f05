"""The last act: one number of a transcript is changed, and more is asked for than the budget holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from app.audit.replay import Verdict
from app.verifying.transcript import replay_file
from curator_client import Curator, Refused


@dataclass(frozen=True)
class Cheats:
    """What became of them.

    Attributes:
        honest: the verdict on the transcript as it is.
        changed: from what to what a number was changed.
        altered: the verdict on that copy.
        entry: which entry was altered.
        wanted: the epsilon that was asked for.
        refusal: what the service said.
    """

    honest: Verdict
    changed: tuple[float, float]
    altered: Verdict
    entry: int
    wanted: float
    refusal: str | None

    @property
    def caught(self) -> bool:
        """Whether the true transcript replays, and neither cheat went through."""
        named = not self.altered.ok and self.altered.sequence == self.entry
        return self.honest.ok and named and self.refusal is not None


def cheat(curator: Curator, transcript: Path, dataset: str, wanted: float) -> Cheats:
    """Raise the first number of a transcript's last entry in a copy of it by one, replay both, and open a session for
    more than is left.
    """
    lines = transcript.read_bytes().splitlines()
    place = max(number for number, line in enumerate(lines) if b'"entry_hash"' in line)
    entry = json.loads(lines[place])
    before = float(entry["values"][0])
    entry["values"][0] = before + 1
    lines[place] = json.dumps(entry).encode()
    copy = transcript.with_name("altered.ndjson")
    copy.write_bytes(b"\n".join(lines) + b"\n")
    try:
        curator.session(dataset, epsilon=wanted)
        refusal = None
    except Refused as problem:
        refusal = problem.detail
    return Cheats(
        honest=replay_file(transcript),
        changed=(before, before + 1),
        altered=replay_file(copy),
        entry=int(entry["sequence"]),
        wanted=wanted,
        refusal=refusal,
    )
