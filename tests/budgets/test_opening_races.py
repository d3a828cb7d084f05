"""Openings beside sessions that close at the same moment, on a database where both write at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.storage.store import SqlTransaction
from curator_client.log_report import report_of
from tests.kit.fetched import fetched
from tests.kit.world import World, make_world

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

PURE = {"mechanism": {"construction": "laplace"}, "epsilon": 0.25, "max_queries": 2, "max_updates": None}


@pytest.fixture
def world(tmp_path: Path, postgres_url: str) -> Iterator[World]:
    made = make_world(tmp_path / "data", postgres_url)
    yield made
    made.stop()


@pytest.mark.parametrize("before", [2, 3, 4])
def test_a_session_that_closes_in_the_midst_of_an_opening(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """The last session that holds something closes before one of the statements by which an opening looks at what is
    left: the first two while it is prepared, the others under the lock. Catches a header that says what an audit knows
    to be wrong."""
    world.register("table")
    ann, bob = world.analyst("ann"), world.analyst("bob")
    first, looks = world.open(ann, "table", **PURE), []

    def closing(look: Callable[..., Any]) -> Callable[..., Any]:
        def looked(tx: SqlTransaction, dataset: str) -> Any:
            looks.append(dataset)
            if len(looks) == before:
                world.close(ann, first)
            return look(tx, dataset)

        return looked

    with monkeypatch.context() as patch:
        for name in ("holdings", "taken"):
            patch.setattr(SqlTransaction, name, closing(getattr(SqlTransaction, name)))
        world.open(bob, "table", **PURE)
    assert len(looks) == 4
    world.audit()
    kept = fetched(world, tmp_path / "kept")
    found = kept.replay().document()
    assert found["ok"], (found["problem"], found["where"])
    document = report_of(kept.path)
    assert document["holds"], document["checks"]
