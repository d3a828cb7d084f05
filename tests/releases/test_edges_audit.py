"""An audit of edges: an undirected graph with one edge more, against the graph without it.

All that is left of the budget buys a release, again and again while the books admit one: plan, exact values, noise and
price are those of the service. The adversary counts how often the pair was released as an edge, and how often its ends
had the degrees that they have with it, or more. Whatever is released,
an event may be e^epsilon times as likely with the edge as without, and no more but for delta. The planted faults make
that fail. Wrong alarms have a probability below 1e-6 a test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.curator.dataset import PublicDataset
from app.curator.feasibility import find_plan
from app.curator.planners.cells import EdgePlan
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.measurements.noise import BitFlips
from app.measurements.record import Purchase
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.measurements.strategy import Strategy
from app.privacy.errors import InsufficientBudget
from app.privacy.flips import Flips
from app.privacy.ledger import Account, Amounts, Share
from app.services.measuring import measured_all
from app.spaces.dense import CountsTensor
from tests.kit.audits import proven_delta

pytestmark = pytest.mark.statistical

EPSILON, DELTA = 1.0, 1e-6
#: Stories of edges alone; how many are told side by side; and how often that is done of edges and degrees.
STORIES, TOGETHER, TIMES = 9000, 50, 480
NODES = 3 * TOGETHER
SPEC = {"name": "g", "kind": "graph", "nodes": NODES, "weighted": False, "budget": {"epsilon": EPSILON, "delta": DELTA}}
#: No release is bought with less of epsilon than this.
LEAST = Decimal("0.01")


def graph(*, edge: bool) -> CountsTensor:
    """Nodes 0 and 1 are joined, or are not; 1 and 2 are."""
    return CountsTensor(np.array([[0, edge, 0], [edge, 0, 1], [0, 1, 0]], np.int8))


def charged(cost: Amounts) -> Amounts:
    """What the books say of a price."""
    return cost


def bought(epsilon: str | None, books: Callable[[Amounts], Amounts], method: str = "auto") -> list[Purchase[Strategy]]:
    """What is measured while the books admit it, and three times at most: with this epsilon each time, or with all that
    is left.
    """
    spec = parse_spec(SPEC)
    account, found = Account(PublicDataset(spec).budget), []
    for _ in range(3):
        left = account.whole
        asked = {
            "dataset": "g",
            "epsilon": Decimal(epsilon) if epsilon else max(LEAST, (left and left.pure) or LEAST),
            "max_queries": 1,
            "mechanism": {"construction": "workload", "method": method, "workload": {"cuts": "all"}, "options": {}},
        }
        plan = find_plan(PublicDataset(spec, left=left), parse_request(asked))
        assert isinstance(plan, EdgePlan)
        share = Share.of(books(plan.holds))
        try:
            account = account.reserve(share.reserved)
        except InsufficientBudget:
            break
        account = account.charge(share, books(plan.price)).give_back(share.charge(books(plan.price)))
        found += plan.buys
    return found


def side_by_side(*, edge: bool) -> CountsTensor:
    """Stories as parts of one graph that have no edge between them: what is measured of one says nothing of the others,
    and noise is of the same law.
    """
    return CountsTensor(np.kron(np.eye(TOGETHER, dtype=np.int8), graph(edge=edge).array))


def delta_of(due: list[Purchase[Strategy]], noise: SystemNoise) -> float:
    """What the adversary proves, by how often the pair was released as an edge."""
    ends, counts = np.arange(TOGETHER) * 3, []
    for edge in (True, False):
        data, ones = side_by_side(edge=edge), np.zeros(2 * len(due) + 1, int)
        for _ in range(STORIES // TOGETHER):
            number = np.zeros(TOGETHER, int)
            for made in measured_all(noise, None, data, due):
                assert isinstance(made.measurement.strategy, Edges)
                matrix = made.measurement.strategy.matrix(made.measurement.units.astype(float))
                number += matrix[ends, ends + 1].astype(int)
                if made.measurement.strategy.kind == "arcs":
                    number += matrix[ends + 1, ends].astype(int)
            ones += np.bincount(number, minlength=len(ones))
        counts.append(ones)
    events = [(int(first), int(second)) for first, second in zip(*counts, strict=True)]
    events += [(int(counts[0][n:].sum()), int(counts[1][n:].sum())) for n in range(len(counts[0]))]
    return proven_delta(EPSILON, events, STORIES, STORIES)


def delta_beside(due: list[Purchase[Strategy]], noise: SystemNoise) -> float:
    """What the adversary proves of edges and degrees together, by how much of what was released speaks for the edge."""
    ends, counts = np.arange(TOGETHER) * 3, []
    for edge in (True, False):
        data, seen = side_by_side(edge=edge), np.zeros(4, int)
        for _ in range(TIMES):
            bits, sums = (made.measurement for made in measured_all(noise, None, data, due))
            assert isinstance(bits.strategy, Edges)
            assert isinstance(sums.strategy, Degrees)
            pairs = bits.units[bits.strategy.positions(ends, ends + 1)].astype(int)
            seen += np.bincount(pairs + (sums.units[ends] >= 1) + (sums.units[ends + 1] >= 2), minlength=4)
        counts.append(seen)
    events = [(int(counts[0][n:].sum()), int(counts[1][n:].sum())) for n in range(4)]
    return proven_delta(EPSILON, events, TIMES * TOGETHER, TIMES * TOGETHER)


@pytest.mark.parametrize(("epsilon", "times"), [(None, 1), ("0.5", 3)])
def test_an_edge_is_hidden(epsilon: str | None, times: int) -> None:
    """All of epsilon at once; or as many halves by the Renyi sum as the books admit, which are three as together they
    are within epsilon by the pure one. Would catch an edge that is released as it is, and a bit that is turned over too
    rarely.
    """
    due = bought(epsilon, charged)
    assert len(due) == times
    assert all(isinstance(buy.noise, BitFlips) for buy in due)
    assert delta_of(due, SystemNoise()) <= DELTA


class Rarely(SystemNoise):
    """A planted fault: bits are turned over as for an epsilon that is 30% larger."""

    def flips(self, probability: Any) -> Flips:
        odds = math.exp(1.3 * math.log(float(1 / Fraction(probability) - 1)))
        return Flips(Fraction(math.ceil(2**40 / (1 + odds)), 2**40))


def test_too_few_flips_are_found() -> None:
    """The audit finds a probability that is 30% too small in the sense of epsilon."""
    assert delta_of(bought(None, charged), Rarely()) > DELTA


def test_a_pair_drawn_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit finds an undirected graph of which both directions are released, each with all of epsilon."""
    monkeypatch.setattr(Edges, "of", classmethod(lambda cls, space: Edges(space.shape, "arcs")))
    due = bought(None, charged)
    assert isinstance(due[0].strategy, Edges)
    assert due[0].strategy.kind == "arcs"
    assert delta_of(due, SystemNoise()) > DELTA


def test_a_forgotten_price_is_found() -> None:
    """The audit finds books in which a release costs nothing, so that there is another one after it."""
    due = bought(None, lambda _: Amounts.none(pure=True))
    assert len(due) == 3
    assert delta_of(due, SystemNoise()) > DELTA


def test_an_edge_is_hidden_among_degrees() -> None:
    """All of epsilon for degrees and edges together. Would catch degrees that are released as they are, and noise of
    both for all of epsilon each.
    """
    due = bought(None, charged, "synthetic_graph")
    assert [buy.noise.kind for buy in due] == ["flips", "laplace"]
    assert delta_beside(due, SystemNoise()) <= DELTA


def test_degrees_charged_as_one_answer_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit finds degrees whose price is that of an edge with one end."""

    monkeypatch.setattr(Degrees, "events", lambda degrees, noise, adjacency: degrees.edges.events(noise, adjacency))
    assert delta_beside(bought(None, charged, "synthetic_graph"), SystemNoise()) > DELTA
