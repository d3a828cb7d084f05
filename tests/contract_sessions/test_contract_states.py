"""Contract sessions alone, whatever happens in whatever order: tests that hit and miss, single and in races, with a
public number of records and without; the fresh measurements behind hits; forfeits, closings, crashes and restarts.
Whatever is recorded replays, the log's books are the ledgers', and every bound is what the records make certain.

The machine is that of :mod:`tests.budgets.test_books_states` without what opens other sessions: there contracts are
rare among much else, here several go on over one data set and start from each other's measurements.
"""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from app.curator.mechanisms.contract import ContractMechanism
from tests.budgets.test_books_states import BUDGET, NUMBERS, Books, Opened
from tests.budgets.test_books_states import short_pauses as short_pauses
from tests.kit.world import HIT

pytestmark = [
    pytest.mark.stateful,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


class Contracts(Books):
    """Sessions with a contract, on two tables."""

    names = ("open", "bought")
    open = open_direct = open_evidence = open_pure = open_exact = None  # type: ignore[assignment]
    ask_for_a_release = work_on_a_release = cancel_a_release = crash_while_a_release_is_recorded = None  # type: ignore[assignment]
    unverified = open_contract = old_copy = retire = None  # type: ignore[assignment]

    @initialize(pure=st.booleans())
    def begin(self, pure: bool) -> None:
        self.world = self.made(None)
        self.ann = self.world.analyst("ann")
        for name in self.names:
            self.world.register(name, budget=BUDGET, records_public=(name == "open") == pure)
        for release in ("single", "race"):
            self.contract("open", 0.2, 3, release)

    @rule(
        dataset=st.sampled_from(["open", "bought"]),
        epsilon=st.sampled_from([0.1, 0.2]),
        updates=st.sampled_from([1, 3, None]),
        release=st.sampled_from(["single", "race"]),
    )
    def contract(self, dataset: str, epsilon: float, updates: int | None, release: str) -> None:
        self.begin_contract(dataset, epsilon, updates, release)

    def question(self, session: Opened, number: int) -> dict[str, Any]:
        """A marginal in the place of some: it is tested and measured in all of its cells."""
        if number in (3, 7):
            return {"type": "marginal", "attributes": ["a"] if number == 3 else ["a", "b"]}
        return super().question(session, number)

    @precondition(lambda self: self.sessions)
    @rule(number=NUMBERS, which=NUMBERS)
    def hit(self, number: int, which: int) -> None:
        """A surprise, as far as noise goes: what is measured behind it is learnt by all that is asked later."""
        self.world.noise.script.clear()
        self.world.noise.script.extend([HIT, 1])
        session = self.pick(number)
        question, key = self.question(session, which), self.key()
        ticket = self.world.submit(self.ann, session.id, question, key=key)
        self.settle(session, ticket, (question,), "ask", key)


TestContracts = Contracts.TestCase
TestContracts.settings = settings(
    max_examples=5, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_the_machine_sees_a_bound_that_is_not_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: bounds of half their size. Catches an end at which nothing is replayed."""
    machine = Contracts()
    machine.begin(pure=True)
    try:
        honest = ContractMechanism.bound_of
        monkeypatch.setattr(ContractMechanism, "bound_of", lambda *asked: honest(*asked) / 2)
        machine.hit(number=0, which=1)
        monkeypatch.undo()
        with pytest.raises(AssertionError):
            machine.world.audit()
    finally:
        monkeypatch.undo()
        machine.world.stop()
        shutil.rmtree(machine.folder)
