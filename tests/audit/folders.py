"""Folders that an auditor keeps, checked as the service does, by whoever replays their transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.audit.against_log import Replays
from app.audit.replay import MEMORY_LIMIT
from app.report.checking import Task, checked
from app.verifying.folder import opened
from curator_client.log_folder import LogFolder


def found_of(folder: Path, replays: Replays | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is found of a folder, and its report."""
    note = (folder / "checkpoint").read_bytes()
    verifier, checkpoint = LogFolder(folder).signed(note)
    with opened(folder, checkpoint.size) as kept:
        return checked(Task(verifier.text(), note), kept, MEMORY_LIMIT, lambda *_: None, replays)
