"""Where several workers count: a folder that does not outlive them."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest

from app.http.metrics import shared_folder, sharing

pytestmark = pytest.mark.unit


def test_nothing_is_left_behind() -> None:
    """Catches folders that pile up after servers that were killed, and one taken from a server that runs."""
    with sharing() as running:
        assert shared_folder() == running
        killed, starting = (running.with_name(f"curator-metrics-{uuid4().hex}") for _ in range(2))
        for folder in (killed, starting):
            folder.mkdir(mode=0o700)
            (folder / "counter_1.db").write_bytes(b"")
        for folder in (running, killed):
            os.utime(folder, (0, 0))
        with sharing():
            assert running.is_dir()
            assert starting.is_dir()
            assert not killed.exists()
        os.utime(starting, (0, 0))
    with sharing() as last:
        assert not any(folder.exists() for folder in (running, starting))
    assert not last.exists()
    assert shared_folder() is None


def test_it_is_private() -> None:
    with sharing() as folder:
        assert isinstance(folder, Path)
        assert folder.stat().st_mode & 0o777 == 0o700
