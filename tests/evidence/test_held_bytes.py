"""What a session that answers from evidence takes in memory, by its own account and by what Python allocates."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from app.curator.dataset import PublicDataset
from app.curator.mechanisms.protocol import Buy, Measured
from app.curator.opening import Opening, Pins
from app.curator.planners.table import most_bytes
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.declarations.spec import parse_spec
from app.estimation.tables.posterior import Posterior
from app.measurements.noise import Noise
from app.measurements.record import Measurement
from app.spaces.dense import CountsTensor
from app.spaces.queries.registry import parse_query

pytestmark = [pytest.mark.unit, pytest.mark.slow]

ATTRIBUTES, SIZE = 6, 8


class Asked:
    """A session on a table, asked at random about some attributes at a time."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        attributes = [{"name": f"a{number}", "size": SIZE} for number in range(ATTRIBUTES)]
        budget = {"epsilon": 100.0, "delta": 1e-9}
        spec = parse_spec({"name": "d", "kind": "table", "budget": budget, "attributes": attributes})
        dataset = PublicDataset(spec)
        request = parse_request({"dataset": "d", "mechanism": {"construction": "evidence"}, "epsilon": 1.0})
        self._data = CountsTensor(self._rng.poisson(3.0, (SIZE,) * ATTRIBUTES))
        gc.collect()
        self._before = tracemalloc.get_traced_memory()[0]
        self.session = Session(Opening(dataset, request, make_plan(dataset, request), None, Pins((), ())))
        for buy in self.session.purchases():
            units = self._noisy(buy.strategy.exact(dataset.space, self._data), buy.noise)
            self.session.pin(Measured(Measurement(buy.strategy, buy.noise, units), buy.price))

    def _noisy(self, exact: Any, noise: Noise) -> Any:
        draw = self._rng.laplace if noise.kind == "laplace" else self._rng.normal
        return exact + np.rint(draw(0, float(noise.scale), len(exact))).astype(np.int64)

    def questions(self, together: int) -> Iterator[dict[str, Any]]:
        while True:
            some = sorted(self._rng.choice(ATTRIBUTES, together, replace=False))
            halves = {f"a{a}": np.flatnonzero(self._rng.random(SIZE) < 0.5).tolist() or [0] for a in some}
            yield {"type": "predicate", "where": {name: {"in": half} for name, half in halves.items()}}

    def ask(self, number: int, together: int) -> None:
        space = self.session.dataset.space
        questions = self.questions(together)
        while self.session.queries_asked < number:
            query = parse_query(next(questions)).compiled(space)
            due: Any = self.session.consider(query)
            if isinstance(due, Buy):
                exact = due.purchase.strategy.exact(space, self._data)
                due = self.session.apply(query, due, self._noisy(exact, due.purchase.added))
            self.session.record(query, due)

    @property
    def accounted(self) -> int:
        held = self.session.held_bytes
        assert held is not None
        return held + self.session.known_bytes

    @property
    def allocated(self) -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - self._before


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("number", "together"), [(30, 2), (120, 2), (30, 3), (90, 3)])
def test_it_is_what_is_allocated(number: int, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within what an account is for, and never beyond what is reserved for it. Catches sessions that fill memory
    unseen, and sessions that are dropped for what they do not hold. (Caches of the process are among what is
    allocated, as much as the half of a MiB that is counted for a state that knows nothing.)
    """
    asked = Asked()
    asked.ask(number, together)
    assert 0.7 * asked.allocated - (1 << 20) < asked.accounted < 1.5 * asked.allocated + (1 << 20)
    assert asked.accounted < most_bytes(asked.session.dataset.space)
    if together == 3 and number > 30:
        # The planted fault: an account that forgets what standard errors take.
        monkeypatch.setattr(Posterior, "nbytes", 0)
        assert 0.7 * asked.allocated - (1 << 20) > asked.accounted


def test_it_grows_with_what_is_learnt() -> None:
    """Catches an account that is made once."""
    asked = Asked()
    found = [asked.accounted]
    for number in (5, 20, 60):
        asked.ask(number, 3)
        found.append(asked.accounted)
    assert found == sorted(found)
    assert found[-1] > 3 * found[0]
