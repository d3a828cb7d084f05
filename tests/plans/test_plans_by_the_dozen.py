"""Plans that take seconds, asked by the dozen by one analyst who hangs up, keep everybody else waiting for minutes.

They charge nothing, so nothing but the server itself bounds them. The work is an exact calibration's dynamic program.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.curator.errors import PlanInfeasible
from app.http import fair_queue
from app.patience import while_wanted
from app.privacy.exact import exact_scale
from app.services.errors import BudgetExhausted
from app.services.session_opening import Prepared
from tests.kit.patience import patience
from tests.kit.servers import Caller, launching
from tests.kit.world import World, make_world, open_session

pytestmark = pytest.mark.adversarial

ASKED = {"dataset": "d", "mechanism": {"construction": "mw"}, "epsilon": 1.0, "max_queries": 1000}
#: One such program takes a second or two.
COSTLY = {**ASKED, "calibration": "exact"}
#: Seconds of a quiet machine; whoever waits behind the attack waits there for a minute and more.
PROMPT = 10.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A service in this process."""
    made = make_world(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The updates of each exact program that is run."""
    run: list[int] = []

    def counted(epsilon: Decimal, delta: Decimal, updates: int) -> Decimal:
        run.append(updates)
        return exact_scale(epsilon, delta, updates)

    monkeypatch.setattr("app.curator.calibration._exact_scale", counted)
    return run


def test_a_plan_that_does_not_ask_for_it_runs_no_program(world: World, programs: list[int]) -> None:
    """Catches the exact scale beside each plan's own, for comparison: 1.7 s for 2,000 updates, where a plan takes 20
    ms.
    """
    world.register("d")
    for calibration in ("rdp", "jt2012", "gru2011"):
        plan = world.built.services.plans.plan({**ASKED, "max_updates": 2000, "calibration": calibration})
        assert plan["noise_scales"][calibration] == plan["noise_scale"]
        assert plan["noise_scales"]["exact"] is None
    assert programs == []
    plan = world.built.services.plans.plan({**ASKED, "max_updates": 20, "calibration": "exact"})
    assert plan["noise_scales"]["exact"] == plan["noise_scale"]
    assert set(programs) == {20}


def test_a_doomed_plan_runs_no_program(world: World, programs: list[int]) -> None:
    """`exact` of a part of epsilon is never planned: catches a search for what would do instead, by programs of its
    own, 6 to 33 s of them.
    """
    world.register("d")
    mechanisms = [{"construction": "median"}, {"construction": "mw"}, {"construction": "fk"}]
    for mechanism in mechanisms:
        with pytest.raises(PlanInfeasible, match="whole epsilon"):
            world.built.services.plans.plan({**COSTLY, "epsilon": 0.5, "mechanism": mechanism})
    words = {key: value for key, value in COSTLY.items() if key != "mechanism"}
    comparison = world.built.services.plans.compare({**words, "epsilon": 0.5, "mechanisms": mechanisms})
    assert comparison["best"] is None
    assert programs == []


def test_a_guarantee_takes_a_handful_of_programs(world: World, programs: list[int]) -> None:
    """Its number of updates is the least that will do, found next to a guess. Catches a search by doubling and
    halving, which runs one program after the other.
    """
    world.register("d", np.full((4, 8), 100))
    plan = world.built.services.plans.plan(COSTLY)
    assert plan["guaranteed"]
    # One for one update, which says in its own words why there can be no plan.
    assert len(set(programs)) <= 8
    fewer = world.built.services.plans.plan({**COSTLY, "max_updates": plan["max_updates"] - 1})
    # With 3 noise bounds for its threshold a guaranteed plan has twice the progress of this one, which has 2.
    assert plan["update_bound"] <= plan["max_updates"]
    assert fewer["update_bound"] / 4 > fewer["max_updates"]


def test_what_the_budget_does_not_hold_is_neither_planned_nor_measured(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches work of seconds (a plan, a norm of the data) for an opening that is refused afterwards, as often as one
    likes.
    """
    world.register("d", records_public=False)
    ann = world.analyst("ann")
    world.open(ann, "d", epsilon=0.9)

    def worked(*_: Any) -> Any:
        raise AssertionError("work for nothing")

    for name in ("plans.make_plan", "session_opening.measure"):
        monkeypatch.setattr(f"app.services.{name}", worked)
    norm = {"construction": "md", "potential": "lp", "p": 1.5, "ball_p": 1.5}
    for more in ({"epsilon": 0.2}, {"epsilon": 0.2, "mechanism": norm}, {"calibration": "exact"}):
        with pytest.raises(BudgetExhausted):
            open_session(world.built.services, ann, {**ASKED, "max_updates": 5, **more}, None)


def test_no_program_runs_while_the_data_set_is_held(world: World, programs: list[int]) -> None:
    """A session comes in between an exact one's plan and its opening. Catches a second plan, made while everybody
    with the same data set waits, and an exact session beside another.
    """
    world.register("d", records_public=True)
    ann = world.analyst("ann")
    prepared = world.built.services.opener.prepare(ann, {**COSTLY, "max_updates": 5}, None)
    assert isinstance(prepared, Prepared)
    programs.clear()
    world.open(ann, "d", epsilon=0.1, release="race")
    with pytest.raises(BudgetExhausted):
        world.built.services.opener.open(ann, prepared, None)
    assert programs == []


def test_a_program_can_be_given_up() -> None:
    """Catches one that, once begun, runs to its end for nobody."""
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks > 100:
            raise fair_queue.Abandoned

    with while_wanted(check), pytest.raises(fair_queue.Abandoned):
        exact_scale(Decimal(1), Decimal("1e-6"), 1999)
    assert checks == 101


def test_an_opening_is_given_up_while_noise_is_drawn(world: World) -> None:
    """Catches one that draws all of its noise, a minute of it, for nobody."""
    counts = {"attributes": [{"name": name, "size": 400} for name in "ab"], "capacity": 10**6}
    world.register("d", np.ones((400, 400), np.int64), **counts)
    ann = world.analyst("ann")
    asked = {"dataset": "d", "mechanism": {"construction": "histogram"}, "epsilon": 0.1}

    def check() -> None:
        if world.noise.drawn:
            raise fair_queue.Abandoned

    with pytest.raises(fair_queue.Abandoned):
        world.built.services.opener.prepare(ann, asked, None, check)
    assert world.noise.drawn == 1


class Attack:
    """Requests of one key, all at once, each on a connection of its own."""

    def __init__(self, port: int, key: str, bodies: list[dict[str, Any]]) -> None:
        self.lines = [socket.create_connection(("127.0.0.1", port)) for _ in bodies]
        for line, body in zip(self.lines, bodies, strict=True):
            content = json.dumps(body).encode()
            head = (
                f"POST /v1/plans HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            )
            line.sendall(head.encode() + content)

    def hang_up(self) -> None:
        for line in self.lines:
            line.close()

    def replies(self, seconds: float) -> list[bytes]:
        """What has come on each of the connections."""
        found = []
        deadline = time.monotonic() + seconds
        for line in self.lines:
            line.settimeout(max(0.01, deadline - time.monotonic()))
            with suppress(TimeoutError):
                found.append(line.recv(1 << 16))
        return found


def seconds(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_analyst_who_asks_for_costly_plans_and_hangs_up(tmp_path: Path) -> None:
    """Forty at once, a minute of work and more. Catches others that wait behind them, work that goes on for clients
    that have gone, a queue without end, and a server that cannot stop.
    """
    with launching(tmp_path / "data", None) as launcher:
        server = launcher.start().wait_until_ready()
        admin = Caller(server.url)
        for name in ("d", "e"):
            assert admin.register(name, np.full((4, 8), 1000)).status_code == 201
        ann, bob = admin.add("ann"), Caller(server.url, admin.add("bob"))

        def others_are_served(epsilon: float) -> None:
            plain = {**ASKED, "dataset": "e", "epsilon": epsilon, "max_updates": 10}
            assert seconds(lambda: bob.get("/readyz")) < patience(PROMPT)
            assert seconds(lambda: bob.post("/v1/plans", plain).raise_for_status()) < patience(PROMPT)
            assert seconds(lambda: bob.post("/v1/sessions", plain).raise_for_status()) < patience(PROMPT)

        attack = Attack(server.port, ann, [{**COSTLY, "max_updates": 1999 - number} for number in range(40)])
        others_are_served(0.1)
        refused = [reply for reply in attack.replies(0.5) if reply]
        assert len(refused) >= 40 - 2 - fair_queue.WAITING_EACH - 5  # those done by now left room for as many
        assert all(b" 429 " in reply.partition(b"\r\n")[0] for reply in refused if b" 200 " not in reply[:20])
        assert b"retry-after" in refused[-1].lower()
        attack.hang_up()
        others_are_served(0.2)

        # The work stops: a thread at it would take a whole processor, or what others leave of one.
        deadline, idle = time.monotonic() + patience(PROMPT), False
        while not idle and time.monotonic() < deadline:
            before = processor_seconds(server.pid)
            time.sleep(0.5)
            idle = processor_seconds(server.pid) - before < 0.05
        assert idle, "plans are made for nobody"

        # And the server ends while plans are under way, which charged nothing.
        last = Attack(server.port, ann, [{**COSTLY, "max_updates": 1900 - number} for number in range(20)])
        time.sleep(0.5)
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait_until_ended(fair_queue.DRAIN_SECONDS + PROMPT)
        assert any(b" 503 " in reply[:20] for reply in last.replies(0.1))
        last.hang_up()
