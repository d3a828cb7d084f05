"""Rounds of the power method: what products of cells with weights move by, what they cost, and what rounds learn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from app.audit import writing
from app.audit.replay import Verdict, replay
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.feasibility import find_plan
from app.curator.mechanisms.protocol import Measured
from app.curator.opening import Opening, Pins
from app.curator.planners.power import PowerPlan
from app.curator.request import SessionRequest, parse_request
from app.declarations.spec import parse_spec
from app.measurements.noise import Noise
from app.measurements.pricing import Adjacency
from app.measurements.record import Measurement
from app.measurements.strategies.edges import Edges
from app.measurements.strategies.products import Products
from app.privacy.costs import DiscreteGaussianAnswer
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts, total
from app.releases.finishing import Job, finish
from app.releases.power import LowRank, started
from app.releases.workloads import Cuts
from app.services.release_measuring import play
from app.spaces.dense import CountsTensor
from app.spaces.sparse import SparseTensor
from curator_client.proofs import records
from tests.kit import noise as told_noise

pytestmark = pytest.mark.unit

NOW = "2026-01-01T00:00:00Z"
BUDGET = {"epsilon": 8.0, "delta": 1e-6}
N = 24
GRAPH = {"name": "g", "kind": "graph", "nodes": N, "weighted": False, "budget": BUDGET}
ARCS = GRAPH | {"directed": True}
SIDES = {"name": "b", "kind": "bipartite", "left": N, "right": 9, "weighted": False, "budget": BUDGET}
MATRIX = {
    "name": "m",
    "kind": "matrix",
    "rows": N,
    "columns": 9,
    "lower": -1,
    "upper": 1,
    "grid": 0.5,
    "budget": BUDGET,
}
KINDS = ("all", "arcs", "pairs")


def request(spec: dict[str, Any], method: str = "iterative_construction", **options: Any) -> SessionRequest:
    mechanism = {"construction": "workload", "method": method, "workload": {"rank_one": "all"}, "options": options}
    return parse_request({"dataset": spec["name"], "epsilon": Decimal(4), "max_queries": 1, "mechanism": mechanism})


def planned(spec: dict[str, Any], **options: Any) -> PowerPlan:
    plan = find_plan(PublicDataset(parse_spec(spec)), request(spec, **options))
    assert isinstance(plan, PowerPlan), plan
    return plan


def data(spec: dict[str, Any]) -> CountsTensor:
    """Two blocks of different sizes, in units of the data's grid."""
    rows, columns = PublicDataset(parse_spec(spec)).space.shape
    matrix = ((np.arange(rows)[:, None] < rows // 3) == (np.arange(columns) < columns // 3)).astype(np.int64)
    if spec["kind"] == "graph":
        np.fill_diagonal(matrix, 0)
    return CountsTensor(matrix * (2 if spec["kind"] == "matrix" else 1))


def products(kind: Any, n: int, bits: int, seed: int, side: str) -> Products:
    """With weights up to 1 and at least one of them 1."""
    rng, unit = np.random.default_rng(seed), 1 << bits
    u, v = (rng.integers(-unit, unit + 1, n) for _ in range(2))
    u[rng.integers(n)], v[rng.permutation(n)[:2]] = unit, unit
    if kind == "pairs":
        u = v
    return Products(Edges((n, n), kind), bits, u if side in ("left", "both") else None, v if side != "left" else None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["right", "left", "both"])
@settings(max_examples=5, deadline=None)
@given(n=st.integers(2, 4), bits=st.integers(0, 6), seed=st.integers(0, 10**6))
def test_no_move_of_gamma_passes_the_sensitivity_and_some_reach_it(
    kind: Any, side: str, n: int, bits: int, seed: int
) -> None:
    """Every cell moved alone by gamma, and gamma split over two cells, by brute force on the service's own sums. Would
    catch a sensitivity that forgets the largest weight, or that a pair is in two sums, or the grid of two weights.
    """
    if kind == "pairs" and side == "left":
        return
    asked, gamma, moves = products(kind, n, bits, seed, side), 2, []
    edges = asked.edges
    cells = np.eye(edges.cells)
    shapes = [gamma * cell for cell in cells]
    shapes += [a - b for a, b in itertools.combinations(cells, 2)]
    for shape in shapes:
        matrix = edges.matrix(shape).astype(np.int64)
        dense, sparse = (
            asked.exact(None, CountsTensor(matrix)),
            asked.exact(None, SparseTensor(csr_array(matrix))),
        )
        assert np.array_equal(dense, sparse)
        moves.append(sum(int(each) ** 2 for each in dense))
    most = gamma**2 * asked.squared_sensitivity
    assert max(moves) <= most
    noise = Noise("gaussian", Decimal(3), asked.grid_bits)
    event = asked.events(noise, Adjacency(gamma))[0][0]
    assert (event.sigma, event.sensitivity_squared) == (3 * 2**asked.grid_bits, most)
    # Weights of 1 where the cells' ends are: a pair has two of them, a sum of both sides needs them at one cell.
    if side != "both":
        assert max(moves) == most


def test_a_diagonal_is_no_edge() -> None:
    """Would catch loops of a graph that are counted, and those of a matrix that are not."""
    loops = CountsTensor(np.diag([1, 2, 3]))
    for kind in KINDS:
        for side in ("right", "both"):
            assert kind == "all" or not products(kind, 3, 2, 1, side).exact(None, loops).any()
    ones = np.ones(3, np.int64)
    assert Products(Edges((3, 3), "all"), 0, ones, ones).exact(None, loops).tolist() == [6]
    assert Products(Edges((3, 3), "arcs"), 0, ones, ones).exact(None, loops).tolist() == [0]


@pytest.mark.parametrize(
    ("kind", "bits", "left", "right"),
    [
        ("all", 2, [5, 0], [1, 1]),  # a weight above 1
        ("all", 2, [-5, 0], None),
        ("all", 2, None, [-(2**63), 1]),  # which has no absolute value in 64 bits
        ("all", 2, None, None),
        ("all", 21, None, [1, 1]),
        ("all", 2, None, [1, 1, 1]),
        ("pairs", 2, [1, 1], None),
        ("pairs", 2, [1, 1], [1, 2]),
    ],
)
def test_weights_that_are_not_priced_are_refused(kind: Any, bits: int, left: Any, right: Any) -> None:
    """Would catch a weight above 1 in a stranger's record, whose price would be too low, and two ends that differ."""
    weights = [None if side is None else np.array(side, np.int64) for side in (left, right)]
    with pytest.raises(ValueError, match=r"weight"):
        Products(Edges((2, 2), kind), bits, *weights)


def test_a_record_is_read_as_it_was_written() -> None:
    """Would catch a weight, value or digit that a record loses."""
    for side in ("left", "right", "both"):
        asked = products("all", 4, 9, 3, side)
        made = Measurement(asked, Noise("gaussian", Decimal("2.5"), 9), np.arange(asked.cells) - 2)
        measured = Measured(made, Amounts(Decimal("0.1")))
        again = Measured.read(measured.document())
        assert again.document() == measured.document()
        assert isinstance(again.measurement.strategy, Products)
        assert np.array_equal(again.measurement.values, made.units / 512)


@pytest.mark.parametrize("spec", [GRAPH, ARCS, SIDES, MATRIX])
@pytest.mark.parametrize("rounds", [1, 3])
def test_all_measurements_together_cost_nearly_the_share_and_no_more(spec: dict[str, Any], rounds: int) -> None:
    """Would catch a step that is not counted, more noise than is needed by a percent, and a price of other noise."""
    plan = planned(spec, rounds=rounds)
    power = plan.power
    cost = total([power.price] * rounds)
    assert plan.max_updates == power.measurements == 3 * rounds
    assert Decimal("0.99") * plan.reserved < cost.renyi <= plan.reserved
    gamma = 4 if spec is MATRIX else 1
    twice = 2 if spec is GRAPH else 1
    units = power.step.scale * 2**power.step.bits
    squared = gamma**2 * 4**power.bits * twice
    assert power.step_price == Amounts.of(DiscreteGaussianAnswer(units, squared), plan.order)
    # Of Gaussian noise the divergence of order a is a D^2/(2 sigma^2).
    by_hand = float(plan.order) * (2 if spec is MATRIX else 1) ** 2 / 2 / float(power.query.scale) ** 2
    assert float(power.query_price.renyi) == pytest.approx(by_hand, rel=1e-9)
    assert plan.document()["rounds"]["papers_epsilon"] == pytest.approx(
        4 / (4 * math.sqrt(rounds * math.log(1e6))), rel=1e-5
    )


def test_what_does_not_belong_to_it_is_refused() -> None:
    """Would catch an option that is silently ignored, and a table that cannot be held."""
    dataset = PublicDataset(parse_spec(GRAPH))
    for options, word in (({"construction": "mw"}, "fk"), ({"rounding": "edges"}, "rounding")):
        with pytest.raises(PlanInfeasible, match=word):
            find_plan(dataset, request(GRAPH, **options))
    large = GRAPH | {"nodes": 3000}
    with pytest.raises(PlanInfeasible):
        find_plan(PublicDataset(parse_spec(large)), request(large))


@pytest.mark.parametrize("spec", [GRAPH, ARCS, SIDES, MATRIX])
def test_without_noise_rounds_find_the_singular_vectors(spec: dict[str, Any]) -> None:
    """Two blocks are of rank two: four rounds without noise leave little of them, on every kind of data. Would catch a
    product on the wrong side, a step by the wrong sign, and a hypothesis that is not taken off.
    """
    power = planned(spec, rounds=4).power
    exact, hypothesis = data(spec), started(power.edges, [])
    made = play(partial(power.play, hypothesis, lambda part: None), None, exact, told_noise.Noise())
    truth = exact.array / (2 if spec is MATRIX else 1)
    assert np.linalg.norm(truth - hypothesis.matrix, 2) < 0.15 * np.linalg.norm(truth, 2)
    assert all(power.admits(k, each.measurement, each.price) for k, each in enumerate(made))  # type: ignore[arg-type]
    # What is made of the records is what the rounds had.
    job = Job("iterative_construction", {}, Cuts(True), None, [], [each.measurement for each in made], 0)  # type: ignore[arg-type]
    outcome = finish(job, lambda part: None)
    assert outcome.edges is not None
    assert np.array_equal(outcome.edges.values, power.edges.flattened(hypothesis.matrix))
    assert outcome.summary["rounds"] == len(outcome.summary["coefficients"]) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_learnt_query_agrees_with_its_value_at_the_nearest_point(kind: Any) -> None:
    """The oracle is least squares over the cells themselves. Would catch a norm that counts a pair twice or a loop."""
    hypothesis, edges = LowRank(Edges((4, 4), kind)), Edges((4, 4), kind)
    rng = np.random.default_rng(5)
    present = rng.normal(size=edges.cells)
    hypothesis.matrix = edges.matrix(present.copy()).copy()
    asked = products(kind, 4, 3, 7, "both")
    assert asked.left is not None
    assert asked.right is not None
    query = edges.flattened(np.outer(asked.left, asked.right) / 64)
    hypothesis.learn(Measurement(asked, Noise("gaussian", Decimal(1), 6), np.array([640])))
    expected = present + np.linalg.lstsq(query[None], [10 - query @ present], rcond=None)[0]
    assert np.allclose(edges.flattened(hypothesis.matrix), expected)


def transcript(spec: dict[str, Any], forge: Callable[[list[Measured]], list[Measured]]) -> Verdict:
    """The verdict on a release of two rounds that was recorded as ``forge`` makes of it, all hashes good."""
    dataset, asked, plan = PublicDataset(parse_spec(spec)), request(spec, rounds=2), planned(spec, rounds=2)
    opening = Opening(dataset, asked, plan, evidence=Pins((), ())).document()
    hypothesis = started(plan.power.edges, [])
    made = play(partial(plan.power.play, hypothesis, lambda part: None), None, data(spec), told_noise.Noise())
    lines = [writing.header(session="s", opening=opening, opened_at=NOW)]
    head = records.sha256(lines[0])
    told = forge(made)
    for sequence, each in enumerate(told, start=1):
        line = writing.measurement_record(session="s", sequence=sequence, measured=each.document(), recorded_at=NOW)
        sealed = writing.release_entry(
            sequence=sequence, recorded_at=NOW, previous_hash=head, measurement=records.sha256(line)
        )
        lines += [line, sealed.line]
        head = sealed.entry_hash
    digest = writing.HypothesisDigest(opening).hexdigest()
    lines.append(
        writing.trailer(entries=len(told), head_hash=head, hypothesis_digest=digest, updates=len(told), status="closed")
    )
    return replay(line + b"\n" for line in lines)


@pytest.mark.parametrize("spec", [GRAPH, SIDES, MATRIX])
def test_an_honest_release_replays(spec: dict[str, Any]) -> None:
    """Would catch a plan that is not found again, and a rule that refuses what rounds measure."""
    verdict = transcript(spec, lambda made: made)
    assert verdict.ok, verdict
    assert verdict.summary["updates"] == 6


def quieter(made: list[Measured]) -> list[Measured]:
    release = made[1].measurement
    assert isinstance(release.strategy, Products)
    noise = Noise("gaussian", release.noise.scale / 2, release.noise.bits)
    return [made[0], Measured(Measurement(release.strategy, noise, release.units), made[1].price), *made[2:]]


def cheaper(made: list[Measured]) -> list[Measured]:
    return [Measured(made[0].measurement, Amounts(floor_to(Fraction(made[0].price.renyi) / 2))), *made[1:]]


NO_ROUND = "a measurement is none that a round could have made"


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (quieter, NO_ROUND),
        (cheaper, NO_ROUND),
        (lambda made: [made[1], made[0], *made[2:]], NO_ROUND),  # the wrong side
        (lambda made: [*made, made[0]], NO_ROUND),
        (lambda made: made[:-1], "the release lacks a measurement that was due"),
    ],
)
def test_rounds_that_the_plan_does_not_allow_are_found(forge: Any, problem: str) -> None:
    """Would catch an audit that believes any noise, price, side or number of measurements."""
    assert transcript(SIDES, forge).problem == problem
