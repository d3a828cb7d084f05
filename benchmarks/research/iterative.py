"""Iterative constructions on real tables: a release played in memory, with the noise of a generator that has a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.constructions.mechanism import Method
from app.curator.dataset import PublicDataset
from app.curator.mechanisms.release import job_of
from app.curator.opening import Opening, Pins
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.releases.finishing import finish
from app.releases.table_results import Answers
from app.services.release_measuring import Ready, measured_for
from app.services.release_request import parse_release
from app.spaces.records import RecordsTensor
from app.spaces.tensor import IntArray
from benchmarks.research.regret_data import World

METHOD: Method = "iterative_construction"


class SeededNoise:
    """Noise of a generator with a seed, for comparisons alone: it protects nothing."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def laplace(self, scale: Any, ahead: int = 0) -> _Drawn:
        """Rounded Laplace noise."""
        return _Drawn(lambda n: self._rng.laplace(0, float(scale), n))

    def gaussian(self, scale: Any, ahead: int = 0) -> _Drawn:
        """Rounded normal noise."""
        return _Drawn(lambda n: self._rng.normal(0, float(scale), n))

    def poisson(self, mean: Any, cut: int) -> Any:
        """Never: there is no race."""
        raise AssertionError("rounds race nothing")

    def flips(self, probability: Any) -> Any:
        """Never: no bit is flipped."""
        raise AssertionError("rounds flip no bits")

    def choose(self, scores: IntArray, scale: Any) -> int:
        """The exponential mechanism by Gumbel noise."""
        return int(np.argmax(scores / float(scale) + self._rng.gumbel(size=len(scores))))


class _Drawn:
    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def take(self, n: int) -> IntArray:
        drawn: IntArray = np.rint(self._draw(n)).astype(np.int64)
        return drawn


def simulate(
    world: World,
    workload: Mapping[str, Any],
    epsilon: float,
    delta: float,
    seed: int,
    construction: str | None = None,
    rounds: int | None = None,
) -> Sequence[Answers]:
    """The answers of a release of a whole budget; the number of records is public.

    Args:
        world: the table.
        workload: as a release is asked for; attributes are called a0, a1 and so on.
        epsilon: of the budget.
        delta: of the budget.
        seed: of the noise.
        construction: ``mw`` or ``fk``; None for the service's choice.
        rounds: how many; None for the service's choice.
    """
    attributes = [{"name": f"a{k}", "size": size} for k, size in enumerate(world.sizes)]
    budget = {"epsilon": epsilon, "delta": delta}
    spec = {"name": "table", "kind": "table", "attributes": attributes, "budget": budget, "records_public": True}
    dataset = PublicDataset(parse_spec(spec), records=float(len(world.records)))
    given = {"construction": construction, "rounds": rounds}
    options = {name: value for name, value in given.items() if value is not None}
    asked = {"dataset": "table", "method": METHOD, "workload": dict(workload), "epsilon": epsilon} | options
    request = parse_request(parse_release(asked).session())
    plan = make_plan(dataset, request)
    data = RecordsTensor([np.ascontiguousarray(column) for column in world.records.T], world.sizes)
    opening = Opening(dataset, request, plan, None, Pins((), ()))
    made = [each.measurement for each in measured_for(Ready(opening, [], data), SeededNoise(seed))]
    found = finish(job_of(opening, [], made, seed), lambda part: None).answers
    return [each for each in found if isinstance(each, Answers)]
