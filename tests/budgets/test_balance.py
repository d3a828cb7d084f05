"""A sum that stands for sessions is wrong, whoever made it so: its data set spends nothing until somebody looked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from app.services.balance import Balance
from app.services.errors import Unavailable
from app.services.hourly import Hourly
from app.storage.database import make_engines
from tests.kit.world import HIT, World, eventually, make_world, query

pytestmark = pytest.mark.integration

#: Wrong sums, and what is said of each.
PLANTED = {
    "UPDATE standing SET held = '0.000000000000000000000001' WHERE dataset = 'first'": "what openings are admitted by",
    "DELETE FROM standing WHERE dataset = 'first'": "what openings are admitted by",
    "UPDATE ledger_sums SET spent = '0' WHERE dataset = 'first'": "what is shown",
    "UPDATE ledger_sums SET reserved = '7' WHERE dataset = 'first'": "what is shown",
    # What one session holds is another amount than any sum has.
    "UPDATE sessions SET reserved = '0' WHERE dataset = 'first'": "what openings are admitted by",
}


@pytest.fixture
def make(tmp_path: Path, database: str | None) -> Iterator[Callable[[], World]]:
    """make(): the service, started anew over the same data."""
    made: list[World] = []

    def start() -> World:
        if made:
            made[-1].stop()
        made.append(make_world(tmp_path / "data", database))
        return made[-1]

    yield start
    made[-1].stop()


def change(tmp_path: Path, database: str | None, *statements: str) -> None:
    reading, writing = make_engines(database or f"sqlite:///{tmp_path / 'data' / 'curator.sqlite3'}")
    with writing.begin() as connection:
        for statement in statements:
            assert connection.execute(text(statement)).rowcount
    reading.dispose()
    writing.dispose()


def prepared(world: World) -> tuple[Any, dict[str, str]]:
    """An analyst with a session on each of two data sets, of which something was spent, and closed ones."""
    ann, sessions = world.analyst("ann"), {}
    for name in ("first", "second"):
        world.register(name)
        world.close(ann, world.open(ann, name, epsilon=0.1))
        sessions[name] = world.open(ann, name, epsilon=0.2)
        world.noise.script.append(HIT)
        world.ask(ann, sessions[name], query(0))
    last, _ = world.store.last_movement()

    def summed() -> bool:
        with world.store.read() as tx:
            return tx.summed_to() == last

    eventually(summed)
    return ann, sessions


@pytest.mark.parametrize("statement", PLANTED)
def test_a_wrong_sum_is_found_at_a_start_and_nothing_is_spent(
    tmp_path: Path, database: str | None, make: Callable[[], World], statement: str
) -> None:
    """Catches a start that trusts its sums, a refusal of another data set, noise that is drawn all the same, and an
    answer that costs nothing and is refused.
    """
    world = make()
    ann, sessions = prepared(world)
    world.stop()
    change(tmp_path, database, statement)
    with capture_logs() as logs:
        world = make()
        eventually(lambda: any(log.get("dataset") == "first" for log in logs))
    (told,) = [log for log in logs if log["log_level"] == "error"]
    assert told["event"] == "the sums of a budget are not those of its sessions"
    assert PLANTED[statement] in told["sums"]
    drawn = world.noise.drawn
    with pytest.raises(Unavailable, match="operator"):
        world.open(ann, "first", epsilon=0.01)
    with pytest.raises(Unavailable, match="operator"):
        world.ask(ann, sessions["first"], query(1))
    assert world.noise.drawn == drawn
    assert world.ask(ann, sessions["first"], query(0))["source"] == "cached"
    world.ask(ann, sessions["second"], query(1))
    world.open(ann, "second", epsilon=0.01)


def test_releases_are_refused_too_and_a_sum_that_is_right_again_is_used(
    tmp_path: Path, database: str | None, make: Callable[[], World]
) -> None:
    """Catches a release that draws noise on such a data set, and a refusal that outlasts its reason."""
    world = make()
    ann, _ = prepared(world)
    balance = next(
        task._work.__self__  # type: ignore[attr-defined]
        for task in world.built.context.lifecycle._background
        if isinstance(task, Hourly) and isinstance(getattr(task._work, "__self__", None), Balance)
    )
    never = threading.Event()
    balance.look(never)
    change(tmp_path, database, "UPDATE ledger_sums SET spent = '9' || spent WHERE dataset = 'first'")
    services = world.built.services
    words = {"dataset": "first", "method": "gaussian", "workload": {"marginals": 1}, "epsilon": 0.1}
    ready = services.opener.prepare_release(ann, words, None)
    balance.look(never)
    drawn = world.noise.drawn
    with pytest.raises(Unavailable, match="operator"):
        services.opener.open(ann, ready, None)
    with pytest.raises(Unavailable, match="operator"):
        services.opener.prepare_release(ann, words, None)
    assert world.noise.drawn == drawn
    change(tmp_path, database, "UPDATE ledger_sums SET spent = substr(spent, 2) WHERE dataset = 'first'")
    balance.look(never)
    release = json.loads(services.opener.open(ann, ready, None))["id"]
    world.open(ann, "first", epsilon=0.01)
    balance.look(never)
    services.jobs.wake()
    eventually(lambda: services.releases.standing(ann, release).ended)
    world.audit()
