"""The calls by which the log is read, and by which a witness adds to it: all that following it needs of a client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class LogRoutes(Protocol):
    """A client, as far as the log is concerned: :class:`curator_client.Curator` says what calls give and raise."""

    def log_key(self) -> str:
        """The key that the log is signed with."""

    def log_key_statements(self) -> list[bytes]:
        """The signed notes by which each key vouched for the next."""

    def log_checkpoint(self, witnesses: int | None = None, keys: Sequence[str] = ()) -> bytes:
        """The signed checkpoint, of now or as witnesses have cosigned one."""

    def log_entries(self, start: int, end: int) -> list[bytes]:
        """A page of lines from one number up to another."""

    def log_consistency(self, first: int, second: int) -> list[bytes]:
        """The proof that a log begins with an earlier one."""

    def log_cosign(self, key: str, note: bytes) -> None:
        """Add a checkpoint that a witness has cosigned."""

    def transcript(self, id: str, path: Path, *, most_bytes: int) -> Path:
        """Download the transcript of a session or a release."""
