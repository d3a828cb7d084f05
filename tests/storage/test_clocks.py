"""The clock is set back: times in a transcript do not decrease, and nothing else depends on the time of day.

Keys are cached, rates limited and waits ended by a clock that nobody sets.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.http import problems
from app.services.errors import Unavailable
from app.services.upkeep import forfeit
from curator_client.log_report import report_of
from tests.kit.fetched import fetched
from tests.kit.servers import Caller, launching
from tests.kit.world import ADMIN, HIT, SHAPE, World, distinct_queries, query

pytestmark = pytest.mark.integration


def stamp(ahead: float) -> str:
    """The time as the records keep it, so many seconds ahead of now."""
    moment = datetime.now(UTC) + timedelta(seconds=ahead)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def set_clock(world: World, ahead: float) -> None:
    world.answering.context.clock = lambda: stamp(ahead)


def times(world: World, id: str) -> list[str]:
    return [entry["recorded_at"] for entry in world.entries(id)]


def test_a_real_server(tmp_path: Path, database: str | None) -> None:
    """Hours forward and back while it runs and between two runs. Catches times that go back in a transcript, a session
    that is stuck, keys and rates that depend on the time of day, and retries that get another answer.
    """
    clock = tmp_path / "clock"
    clock.write_text("0")
    questions = distinct_queries()
    with launching(tmp_path / "data", database) as launcher:
        if database is not None:
            launcher.start(migrate=True).wait_until_ended()
        server = launcher.start(clock=str(clock)).wait_until_ready()
        admin = Caller(server.url)
        counts = np.random.default_rng(5).integers(0, 200_000, SHAPE)
        assert admin.register("d", counts, budget={"epsilon": 4.0, "delta": 1e-6}).status_code == 201
        analyst = Caller(server.url, admin.add("ann"))
        body = {"dataset": "d", "mechanism": {"construction": "mw"}, "epsilon": 2.0, "max_queries": 100}
        path = f"/v1/sessions/{analyst.post('/v1/sessions', {**body, 'max_updates': 20}).json()['id']}"
        replies: dict[str, tuple[Any, bytes]] = {}
        for turn, shift in enumerate((3600, -3600, -86400, 7200, -3600, 0)):
            # In one step: the server may read it at any moment.
            (tmp_path / "next").write_text(str(shift))
            (tmp_path / "next").replace(clock)
            if turn == 4:
                server.kill()
                server = launcher.start(server.port, clock=str(clock)).wait_until_ready()
            for n in range(2):
                asked = next(questions)
                reply = analyst.post(f"{path}/queries", asked, f"{turn}-{n}")
                assert reply.status_code == 200, reply.text
                replies[f"{turn}-{n}"] = asked, reply.content
            for key, (asked, content) in replies.items():
                assert analyst.post(f"{path}/queries", asked, key).content == content
            assert analyst.http.get("/readyz").status_code == 200
            assert Caller(server.url, "cur_unknown").http.get("/v1/datasets").status_code == 401
        auditor = Caller(server.url, admin.add("auditor", "auditor"))
        (lines,) = auditor.audit().values()
        assert analyst.post(f"{path}/close", {}).status_code == 200
        auditor.audit()
        recorded = [line.split(b'"recorded_at":"')[1][:20] for line in lines if b'"recorded_at"' in line]
        assert len(recorded) == len(replies)
        assert recorded == sorted(recorded)
        assert recorded[-1].decode() > stamp(3600)


class TestTimesInATranscript:
    @pytest.mark.parametrize("again", ["in memory", "restored"])
    def test_do_not_decrease(self, worlds: Callable[..., World], database: str | None, again: str) -> None:
        world = worlds(database)
        world.register("d")
        ann = world.analyst("ann")
        id = world.open(ann, "d")
        world.noise.script.append(HIT)
        set_clock(world, 600)
        world.ask(ann, id, query(0))
        if again == "restored":
            world.stop()
            world = worlds(database)
        set_clock(world, -600)
        world.ask(ann, id, query(1))
        first, second = times(world, id)
        assert first == second > stamp(300)
        # What returns is not dated before it was charged for, also where the session is not in memory.
        world.close(ann, id)
        closed_at = world.built.services.sessions.get(ann, id)["closed_at"]
        assert closed_at == second
        # Others are not kept at that time.
        other = world.open(ann, "d")
        set_clock(world, 60)
        world.ask(ann, other, query(0))
        assert times(world, other)[0] < stamp(120)
        world.audit()

    @pytest.mark.postgres
    def test_of_two_processes_one_behind(self, worlds: Callable[..., World], postgres_url: str) -> None:
        """Catches a process that looks at its own clock alone, also when it gives up a round."""
        first, second = worlds(postgres_url), worlds(postgres_url)
        first.register("d")
        ann = first.analyst("ann")
        id = first.open(ann, "d")
        first.ask(ann, id, query(0))
        set_clock(second, 600)
        second.ask(ann, id, query(1))
        first.ask(ann, id, query(2))
        first.store.faults.append("before")
        set_clock(second, 1200)
        first.store.between = lambda: second.ask(ann, id, query(3))
        with pytest.raises(Unavailable):
            first.ask(ann, id, query(2, 1))
        found = first.entries(id)
        assert [entry["record"] for entry in found] == ["answer"] * 4 + ["forfeit"]
        assert times(first, id) == sorted(times(first, id))
        assert times(first, id)[-1] > stamp(900)
        first.audit()


def test_a_log_whose_clock_went_back(worlds: Callable[..., World], tmp_path: Path) -> None:
    """A session is opened by a clock that is an hour fast, its data set retired by the right one, and all of it then
    taken for an old copy. Catches an honest log that a replay refuses, as the session seems to be opened later.
    """
    world = worlds(None)
    services = world.built.services
    for name in ("d", "e"):
        world.register(name)
        for part in (services.opener, services.registration, services.retirement):
            part._clock = lambda: stamp(3600)
        world.ask(world.analyst("ann"), world.open(world.analyst("ann"), name), query(0))
        for part in (services.opener, services.registration, services.retirement):
            part._clock = lambda: stamp(0)
    services.retirement.retire(ADMIN, "d")
    forfeit(world.store, lambda: stamp(-3600), problems.document)
    kept = fetched(world, tmp_path / "kept")
    found = kept.replay()
    assert found.ok, found.document()
    assert report_of(tmp_path / "kept", replay=True)["holds"]
