"""An audit of rounds of the power method: an undirected graph with one edge more, against the graph without it.

Whole rounds are played with the service's own noise, on the terms of a plan that spends all of epsilon. The adversary
knows both graphs, and takes the likelihood of everything that was released in the one against the other: no event tells
more. Wrong alarms have a probability below 1e-6 a test.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.curator.dataset import PublicDataset
from app.curator.feasibility import find_plan
from app.curator.planners.power import PowerPlan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.measurements.record import Measurement
from app.measurements.strategies.products import Products
from app.releases.power import LowRank
from app.services.release_measuring import play
from app.spaces.dense import CountsTensor
from tests.kit.audits import proven_delta

pytestmark = pytest.mark.statistical

EPSILON, DELTA = 1.0, 1e-6
BUDGET = {"epsilon": EPSILON, "delta": DELTA}
SPEC = {"name": "g", "kind": "graph", "nodes": 3, "directed": False, "weighted": False, "budget": BUDGET}
STORIES = 600
THRESHOLDS = np.linspace(-2, 4, 7)


def graph(*, edge: bool) -> CountsTensor:
    """Nodes 0 and 1 are joined, or are not; 1 and 2 are."""
    return CountsTensor(np.array([[0, edge, 0], [edge, 0, 1], [0, 1, 0]], np.int8))


WITH, WITHOUT = graph(edge=True), graph(edge=False)


def proven() -> float:
    """What the adversary proves of delta at epsilon."""
    mechanism = {
        "construction": "workload",
        "method": "iterative_construction",
        "workload": {"cuts": "all"},
        "options": {"rounds": 1},
    }
    asked = {"dataset": "g", "epsilon": Decimal(1), "max_queries": 1, "mechanism": mechanism}
    plan = find_plan(PublicDataset(parse_spec(SPEC)), parse_request(asked))
    assert isinstance(plan, PowerPlan)
    noise, counts = SystemNoise(), []
    for data in (WITH, WITHOUT):
        evidence = np.zeros(STORIES)
        for story in range(STORIES):
            hypothesis = LowRank(plan.power.edges)
            made = play(partial(plan.power.play, hypothesis, lambda part: None), None, data, noise)
            evidence[story] = sum(likelihood(each.measurement) for each in made)  # type: ignore[arg-type]
        counts.append([int((evidence > threshold).sum()) for threshold in THRESHOLDS])
    return proven_delta(EPSILON, zip(*counts, strict=True), STORIES, STORIES)  # type: ignore[arg-type]


def likelihood(release: Measurement[Products]) -> float:
    """The logarithm of the ratio of densities of what was released, with the edge and without it."""
    first, second = (np.ldexp(release.strategy.exact(None, data), -release.noise.bits) for data in (WITH, WITHOUT))
    middle = (first + second) / 2
    return float((release.values - middle) @ (first - second) / release.variance)


def test_an_edge_is_hidden() -> None:
    """Would catch noise that is a few times too small."""
    assert proven() <= DELTA


def test_weights_of_unit_length_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit finds a sensitivity that forgets the largest weight: one of vectors of length 1 over 256 nodes, where
    every weight is 1/16, and the vectors that are used weigh up to 1.
    """
    honest = Products.squared_sensitivity.fget
    assert honest is not None
    monkeypatch.setattr(Products, "squared_sensitivity", property(lambda self: max(1, honest(self) // 256)))
    assert proven() > DELTA
