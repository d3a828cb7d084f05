"""What sessions of either special kind do to a data set's books: an exact calibration, which has no refunds, and
Poisson races, whose parts of delta are never given back.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from app.curator.errors import PlanInfeasible
from app.services.errors import BudgetExhausted
from tests.kit.noise import Noise
from tests.kit.world import ADMIN, HIT, World, ledger_of, make_world, public, query

pytestmark = pytest.mark.integration


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path, noise=Noise())
    yield made
    made.stop()


def ledger(world: World, dataset: str = "d") -> dict[str, Any]:
    return ledger_of(world.built.services, dataset)


def test_sessions_that_agree_count_each(world: World) -> None:
    """Three sessions of one analyst that spent the same, and two that hold the same. Catches what is summed once for
    all that agree: a data set, or a grant, would hold more than it has.
    """
    world.register("d")
    ann = world.analyst("ann")
    world.built.services.grants.grant(ADMIN, "d", "ann", 0.5)
    ids = [world.open(ann, "d", epsilon=0.1) for _ in range(5)]
    with pytest.raises(BudgetExhausted):  # of the grant
        world.open(ann, "d", epsilon=0.1)
    spent = Decimal(0)
    for id in ids[:3]:
        world.noise.script.append(HIT)
        assert world.ask(ann, id, query(0))["source"] == "measurement"
        spent += Decimal(world.close(ann, id)["spent"])
    held = sum(Decimal(m["amount"]) for id in ids[3:] for m in world.movements("d", id, "reserve"))
    books = ledger(world)
    assert (Decimal(books["spent"]), Decimal(books["reserved"])) == (spent, held)
    world.audit()


class TestExact:
    def test_closing_returns_nothing(self, world: World) -> None:
        """The program counts one session of at most B hits as all of (epsilon, delta): catches a refund, with which
        a second session could be opened on top of it.
        """
        world.register("d")
        ann = world.analyst("ann")
        id = world.open(ann, "d", calibration="exact", epsilon=1.0)
        assert Decimal(ledger(world)["remaining"]) == 0
        world.noise.script.append(HIT)
        assert world.ask(ann, id, query(0))["source"] == "measurement"
        state = world.close(ann, id)
        books = ledger(world)
        assert Decimal(books["spent"]) == Decimal(books["budget"]) == Decimal(state["spent"])
        assert (Decimal(books["reserved"]), Decimal(books["remaining"])) == (0, 0)
        assert world.movements("d", id, "return") == []
        for calibration in ("exact", "rdp"):
            with pytest.raises(BudgetExhausted):
                world.open(ann, "d", calibration=calibration, epsilon=1.0)
        with pytest.raises(BudgetExhausted):
            world.open(ann, "d", epsilon=1e-9)

    @pytest.mark.parametrize("earlier", [{"epsilon": 1e-6}, {"epsilon": 1e-6, "release": "race"}])
    def test_nothing_may_have_been_taken_before(self, world: World, earlier: dict[str, Any]) -> None:
        """Catches an exact session beside anything that spent, even beside a race that spent no update: its draws
        have used a part of delta.
        """
        world.register("d")
        ann = world.analyst("ann")
        id = world.open(ann, "d", **earlier)
        with pytest.raises(BudgetExhausted):
            world.open(ann, "d", calibration="exact", epsilon=1.0)
        if "release" not in earlier:
            world.noise.script.append(HIT)
        world.ask(ann, id, query(0))
        world.close(ann, id)
        with pytest.raises(BudgetExhausted):
            world.open(ann, "d", calibration="exact", epsilon=1.0)

    def test_a_session_of_misses_alone_is_in_the_way(self, world: World) -> None:
        """Its ledger is empty, its outcomes are not: catches a check of what is spent and reserved. One could ask
        with far less noise until a hit threatens, close, and begin again, all outside of the program.
        """
        world.register("d")
        ann = world.analyst("ann")
        id = world.open(ann, "d", max_updates=1, epsilon=1.0)
        assert world.ask(ann, id, query(0))["source"] == "hypothesis"
        world.close(ann, id)
        assert Decimal(ledger(world)["sum"]) == 0
        with pytest.raises(BudgetExhausted):
            world.open(ann, "d", calibration="exact", epsilon=1.0)

    def test_a_part_of_epsilon_is_refused(self, world: World) -> None:
        world.register("d")
        with pytest.raises(PlanInfeasible):
            world.open(world.analyst("ann"), "d", calibration="exact", epsilon=0.5)


class TestRaces:
    def test_a_part_of_delta_is_taken_once(self, world: World) -> None:
        """Catches an ordinal that goes back when a session closes, or stands still: two sessions would cut at the
        expense of one and the same part.
        """
        world.register("d")
        ann = world.analyst("ann")
        cuts = []
        for opened in range(1, 4):
            id = world.open(ann, "d", release="race", epsilon=0.1)
            cuts.append(world.built.services.sessions.get(ann, id)["plan"]["race"]["cut"])
            world.ask(ann, id, query(opened))
            world.close(ann, id)
            assert public(world, "d").race_sessions == opened
        assert cuts == sorted(cuts)
        assert cuts[0] < cuts[-1]
        world.audit()

    def test_a_refused_session_takes_none(self, world: World) -> None:
        """Nothing was drawn for it."""
        world.register("d")
        ann = world.analyst("ann")
        world.open(ann, "d", release="race", epsilon=0.9)
        with pytest.raises(BudgetExhausted):
            world.open(ann, "d", release="race", epsilon=0.9)
        assert public(world, "d").race_sessions == 1

    def test_a_restart_remembers(self, world: World, tmp_path: Path) -> None:
        world.register("d")
        world.open(world.analyst("ann"), "d", release="race", epsilon=0.1)
        world.stop()
        again = make_world(tmp_path, noise=Noise())
        try:
            assert public(again, "d").race_sessions == 1
        finally:
            again.stop()
