"""What readiness asks of the database, and what it does not."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable

import pytest

from tests.kit.world import World

pytestmark = pytest.mark.integration


def test_readiness_reads_no_declaration(worlds: Callable[..., World]) -> None:
    """It is asked every few seconds, and declarations may be long. Catches one that is read: here that cannot be done.
    What it promises it keeps: a file that is lost is missed."""
    world = worlds(None)
    world.register("d")
    with sqlite3.connect(world.folder / "curator.sqlite3") as connection:
        connection.execute("UPDATE datasets SET spec = 'no JSON', bought = 'none'")
        ((entry,),) = connection.execute("SELECT vault_entry FROM datasets").fetchall()
    connection.close()
    assert world.built.context.lifecycle.ready() is None
    (world.folder / "vault" / json.loads(entry)["file_name"]).unlink()
    assert "private files" in world.built.context.lifecycle.ready()
