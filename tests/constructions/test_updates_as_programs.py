"""Updates as what they are said to be: solutions of convex programs, found here by a generic solver."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from app.constructions.base import MeasuredQuery, PublicFacts, certified
from app.constructions.frieze_kannan import CutState, FriezeKannan
from app.constructions.multiplicative_weights import MultiplicativeWeights, WeightsState
from app.spaces.query import Query
from app.spaces.tensor import DenseTensor
from tests.kit.strategies import BUDGET, Universe, queries, universe

pytestmark = [pytest.mark.unit, pytest.mark.slow]

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x0", "size": 3}, {"name": "x1", "size": 2}],
        "budget": BUDGET,
    }
)
GRAPH = universe({"name": "g", "kind": "graph", "nodes": 4, "budget": BUDGET})
BIPARTITE = universe({"name": "b", "kind": "bipartite", "left": 2, "right": 3, "budget": BUDGET})
SMALL = st.sampled_from([TABLE, GRAPH, BIPARTITE])


def flat(u: Universe, array: np.ndarray) -> np.ndarray:
    """A dense array as a vector over the universe."""
    return np.array([array[cell] for cell in u.cells])


def shaped(u: Universe, vector: np.ndarray) -> np.ndarray:
    array = np.zeros(u.space.shape)
    for cell, value in zip(u.cells, vector, strict=True):
        array[cell] = value
        if u.undirected:
            array[cell[::-1]] = value
    return array


def weights_of(u: Universe, query: Query) -> np.ndarray:
    found = u.weights(query)
    return np.array([float(found[c]) for c in u.cells])


@st.composite
def problems(draw: st.DrawFn, *, padded: bool) -> tuple[Universe, Query, np.ndarray, float, float, float]:
    """(space, query, hypothesis over the cells, slack, mass, target as a part of the reachable range)."""
    u = draw(SMALL)
    query = u.compiled(draw(queries(u)))
    assume(not query.is_zero)
    parts = draw(st.lists(st.floats(0.05, 1), min_size=len(u.cells) + 1, max_size=len(u.cells) + 1))
    if not padded:
        parts[-1] = 0.0
    mass = draw(st.sampled_from([1.0, 37.0, 1e6]))
    vector = np.array(parts) / sum(parts) * mass
    return u, query, vector[:-1], float(vector[-1]), mass, draw(st.floats(0.1, 0.9))


def entropic(f: np.ndarray, h: np.ndarray, target: float) -> np.ndarray:
    """argmin KL(z || h) over the simplex with <f, z> = target, unit mass, by sequential quadratic programming."""
    d = len(h)
    result = minimize(
        lambda z: float((z * np.log(z / h)).sum()),
        h,
        jac=lambda z: np.log(z / h) + 1,
        bounds=[(1e-12, 1.0)] * d,
        constraints=[
            {"type": "eq", "fun": lambda z: z.sum() - 1, "jac": lambda z: np.ones(d)},
            {"type": "eq", "fun": lambda z: f @ z - target, "jac": lambda z: f},
        ],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return result.x


@settings(max_examples=60)
@given(problems(padded=False) | problems(padded=True), st.booleans())
def test_the_entropic_projection_is_the_solvers(problem: Any, exact: bool) -> None:
    """argmin KL(z || h) on the half-space, within the simplex and its slack cell. Would catch a rate of another
    equation, a slack cell that takes no part, and symmetric arrays that are counted twice."""
    u, query, h, slack, mass, part = problem
    f = weights_of(u, query)
    all_f, all_h = np.append(f, 0.0), np.append(h, slack)
    if slack == 0:
        all_f, all_h = f, h
    low, high = all_f.min(), all_f.max()
    assume(high - low > 0.01)
    target = low + part * (high - low)
    present = float(all_f @ all_h) / mass
    assume(abs(target - present) > 1e-3)
    noise = 0.0 if exact else 0.01 * mass
    value = target * mass + math.copysign(noise, target - present)
    construction = MultiplicativeWeights(u.space, PublicFacts(mass, padded=slack > 0), "projection", 1.0)
    state = WeightsState(DenseTensor(shaped(u, h)), slack)
    construction.update(state, MeasuredQuery(query, value, noise))
    found = np.append(flat(u, state.tensor.array), state.slack) if slack else flat(u, state.tensor.array)
    truth = entropic(all_f, all_h / mass, target) * mass
    np.testing.assert_allclose(found, truth, atol=1e-6 * mass)
    assert found.sum() == pytest.approx(mass, rel=1e-13)
    assert f @ flat(u, state.tensor.array) == pytest.approx(target * mass, abs=1e-9 * mass)


@settings(max_examples=60)
@given(SMALL, st.data())
def test_the_euclidean_projection_is_the_solvers(u: Universe, d) -> None:
    """argmin ||z - h||^2 on the half-space. Would catch a division by another norm, such as that of a symmetric array
    with both its halves."""
    query = u.compiled(d.draw(queries(u)))
    assume(query.norm2sq > 0.01)
    f = weights_of(u, query)
    h = np.array(d.draw(st.lists(st.floats(-5, 5), min_size=len(f), max_size=len(f))))
    target = float(f @ h) + d.draw(st.floats(0.5, 5)) * d.draw(st.sampled_from([-1, 1]))
    side = math.copysign(1.0, target - float(f @ h))
    result = minimize(
        lambda z: float(((z - h) ** 2).sum()),
        h,
        jac=lambda z: 2 * (z - h),
        constraints=[{"type": "ineq", "fun": lambda z: side * (f @ z - target), "jac": lambda z: side * f}],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    construction = FriezeKannan(u.space, PublicFacts(), "projection", 1.0)
    state = CutState(DenseTensor(shaped(u, h)))
    construction.update(state, MeasuredQuery(query, target + 0.25 * side, 0.25))
    np.testing.assert_allclose(flat(u, construction.dense(state)), result.x, atol=1e-6)


@settings(max_examples=100)
@given(problems(padded=False) | problems(padded=True))
def test_the_ratio_of_odds_is_the_root(problem: Any) -> None:
    """For a 0/1 query the closed form and the general equation give one hypothesis: a query of the same weights, but
    for one that is a hair below one and sends it down the other path."""
    u, _, h, slack, mass, part = problem
    cells = u.cells
    chosen = [c for i, c in enumerate(cells) if i % 2 == 0]
    plain = u.compiled({"type": "sparse", "indices": [list(c) for c in chosen], "weights": [1.0] * len(chosen)})
    almost = [1.0] * (len(chosen) - 1) + [1 - 2.0**-20]
    other = u.compiled({"type": "sparse", "indices": [list(c) for c in chosen], "weights": almost})
    assert plain.digest != other.digest
    construction = MultiplicativeWeights(u.space, PublicFacts(mass, padded=slack > 0), "projection", 1.0)
    arrays = []
    for query in (plain, other):
        state = WeightsState(DenseTensor(shaped(u, h)), slack)
        construction.update(state, MeasuredQuery(query, part * mass, 0.0))
        arrays.append(np.append(flat(u, state.tensor.array), state.slack))
    np.testing.assert_allclose(arrays[0], arrays[1], atol=4e-6 * mass)
    touched = np.array([c in chosen for c in cells] + [False])
    before = np.append(h, slack)
    odds = lambda a: a[touched].sum() / a[~touched].sum()  # noqa: E731
    factor = (part / (1 - part)) / odds(before)
    np.testing.assert_allclose(
        arrays[0][touched] / before[touched], arrays[0][touched][0] / before[touched][0], rtol=1e-9
    )
    assert odds(arrays[0]) / odds(before) == pytest.approx(factor, rel=1e-9)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_what_a_measurement_certifies(value: float, present: float, bound: float) -> None:
    """Every x with |<f, x> - value| <= bound that lies on the value's side of the present answer is kept, and the
    edge never passes the value or the present answer."""
    query = TABLE.compiled({"type": "predicate", "where": {}})
    edge = certified(MeasuredQuery(query, value, bound), present)
    assert min(value, present) <= edge <= max(value, present)
    if value > present:
        assert edge == max(present, value - bound)
    else:
        assert edge == min(present, value + bound)


# ------------------------------------------------------------------------------------------ the papers' own steps


@given(problems(padded=False), st.floats(0.01, 0.5), st.booleans())
def test_the_papers_multiplicative_weights(problem: Any, part: float, up: bool) -> None:
    """GRU11 algorithm 5 as printed: r = f or 1 - f, h <- h exp(-(alpha/2n) r), normalised. Would catch a step of
    twice or half the length, and the wrong sign."""
    u, query, h, _, mass, _ = problem
    f = weights_of(u, query)
    assume(f.min() >= 0)
    alpha = part * mass
    r = 1 - f if up else f  # the hypothesis answers too little: everything but the query shrinks
    printed = h * np.exp(-alpha / (2 * mass) * r)
    printed *= mass / printed.sum()
    construction = MultiplicativeWeights(u.space, PublicFacts(mass), "paper", alpha)
    state = WeightsState(DenseTensor(shaped(u, h)), 0.0)
    value = float(f @ h) + (alpha if up else -alpha)
    construction.update(state, MeasuredQuery(query, value, 0.0))
    np.testing.assert_allclose(flat(u, state.tensor.array), printed, rtol=1e-12)
    assert construction.step_size(alpha) == alpha / (2 * mass)
    assert construction.bound(alpha) == pytest.approx(4 * mass**2 * math.log(len(u.cells)) / alpha**2)


@given(SMALL, st.data(), st.floats(0.1, 10), st.booleans())
def test_the_papers_frieze_kannan(u: Universe, d, alpha: float, up: bool) -> None:
    """GRU11 algorithm 2 as printed: start at 0, h <- h + (alpha/|X|) f where the hypothesis answers too little, else
    minus."""
    query = u.compiled(d.draw(queries(u)))
    assume(not query.is_zero)
    f = weights_of(u, query)
    construction = FriezeKannan(u.space, PublicFacts(5.0), "paper", alpha)
    state = construction.start()
    assert not construction.dense(state).any()
    for times in (1, 2):
        value = construction.answer(state, query) + (1 if up else -1)
        construction.update(state, MeasuredQuery(query, value, 0.0))
        printed = times * (1 if up else -1) * alpha / len(u.cells) * f
        np.testing.assert_allclose(flat(u, construction.dense(state)), printed, rtol=1e-12, atol=1e-15)
    assert construction.step_size(alpha) == alpha / len(u.cells)


def test_frieze_kannan_bounds_are_those_of_the_squared_norm() -> None:
    """||x||_2^2 |X| / alpha^2: at most n for edge weights in [0, 1] (and no more than all of them), n^2 for counts."""
    for u, mass, squared in ((TABLE, 7.0, 49.0), (GRAPH, 4.0, 4.0), (GRAPH, 99.0, 6.0), (BIPARTITE, 5.0, 5.0)):
        construction = FriezeKannan(u.space, PublicFacts(mass), "paper", 1.0)
        assert construction.bound(0.5) == pytest.approx(squared * len(u.cells) / 0.25)


# ------------------------------------------------------------------------------------------ potentials


@pytest.mark.slow
@settings(max_examples=150)
@given(SMALL, st.data(), st.sampled_from(["projection", "paper"]), st.booleans())
def test_every_update_lowers_the_potential_by_what_is_proved(u: Universe, d, step: Any, padded: bool) -> None:
    """KL(x || h) falls by alpha^2/(2 n^2) at a projection and alpha^2/(4 n^2) at the papers' step, ||x - h||^2 by
    alpha^2/||f||^2 and alpha^2/|X|, when the true gap is above alpha and the noise within its bound. Would catch any
    update that the bound's proof does not cover."""
    n = len(u.cells)
    counts = np.array(d.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), dtype=float)
    assume(counts.sum() > 0)
    slack = d.draw(st.floats(0.5, 9)) if padded else 0.0
    mass = counts.sum() + slack
    parts = np.array(d.draw(st.lists(st.floats(0.01, 1), min_size=n + 1, max_size=n + 1)))
    if not padded:
        parts[-1] = 0.0
    h = parts / parts.sum() * mass
    query = u.compiled(d.draw(queries(u)))
    f = weights_of(u, query)
    gap = float(f @ counts - f @ h[:-1])
    assume(abs(gap) > 0.05)
    # T = 3L and the gap is above alpha = 2L; the noise may take the value further out, or back as far as a hit allows.
    noise = abs(gap) / 4.5
    alpha = 2 * noise
    off = d.draw(st.floats(-1, 1)) * noise
    value = float(f @ counts) + math.copysign(1, gap) * off
    assume(abs(value - f @ h[:-1]) > 3 * noise)

    weights = MultiplicativeWeights(u.space, PublicFacts(mass, padded=padded), step, alpha)
    state = WeightsState(DenseTensor(shaped(u, h[:-1])), h[-1])
    weights.update(state, MeasuredQuery(query, value, noise))
    after = np.append(flat(u, state.tensor.array), state.slack)
    x = np.append(counts, slack)
    kept = x > 0

    def divergence(z: np.ndarray) -> float:
        return float((x[kept] / mass * np.log(x[kept] / z[kept])).sum())

    proven = alpha**2 / mass**2 * (0.25 if step == "paper" else 0.5)
    assert divergence(h) - divergence(after) >= proven * (1 - 1e-9) - 1e-12

    cuts = FriezeKannan(u.space, PublicFacts(mass), step, alpha)
    dense = CutState(DenseTensor(shaped(u, h[:-1])))
    cuts.update(dense, MeasuredQuery(query, value, noise))
    before2 = float(((counts - h[:-1]) ** 2).sum())
    after2 = float(((counts - flat(u, cuts.dense(dense))) ** 2).sum())
    proven2 = alpha**2 / (n if step == "paper" else query.norm2sq)
    assert before2 - after2 >= proven2 * (1 - 1e-9) - 1e-9


def adversary(
    construction: MultiplicativeWeights, truth: np.ndarray, asked: list[Query], noise: float, most: int
) -> int:
    """Updates until no query's gap is above T = 3L with the measurement off by L, or ``most``."""
    state, updates = construction.start(), 0
    exact = [float(q.inner(DenseTensor(truth))) for q in asked]
    while updates < most:
        gaps = [t - construction.answer(state, q) for q, t in zip(asked, exact, strict=True)]
        at = int(np.argmax(np.abs(gaps)))
        if abs(gaps[at]) + noise <= 3 * noise:
            break
        updates += 1
        value = exact[at] + math.copysign(noise, gaps[at])
        construction.update(state, MeasuredQuery(asked[at], value, noise))
    return updates


@pytest.mark.slow
def test_a_padded_mass_needs_its_slack_cell() -> None:
    """The mass is known as an upper bound of 150 where 100 records are there. With the slack cell the updates stop
    before the bound; without it x lies outside the simplex and an adversary who asks for cells goes on far past it.
    Shows that the slack is not decoration."""
    u = universe({"name": "t", "kind": "table", "attributes": [{"name": "x0", "size": 8}], "budget": BUDGET})
    truth = np.array([30.0, 20, 15, 12, 10, 6, 4, 3])
    asked = [u.compiled({"type": "predicate", "where": {"x0": {"equals": i}}}) for i in range(8)]
    asked.append(u.compiled({"type": "predicate", "where": {}}))
    noise = 1.5
    counts = []
    for padded in (True, False):
        construction = MultiplicativeWeights(u.space, PublicFacts(150.0, padded=padded), "projection", 2 * noise)
        bound = construction.bound(2 * noise)
        assert bound is not None
        # Without the slack it would never end: twice the bound is proof enough.
        counts.append(adversary(construction, truth, asked, noise, math.ceil(2 * bound)) / bound)
    assert 0 < counts[0] <= 1
    assert counts[1] >= 2


# ------------------------------------------------------------------------------------------ low rank and dense


@settings(max_examples=60)
@given(st.sampled_from([GRAPH, BIPARTITE]), st.data(), st.sampled_from(["projection", "paper"]))
def test_a_low_rank_hypothesis_equals_its_dense_twin(u: Universe, d, step: Any) -> None:
    """The same measurements on rank-one terms and on an array. Would catch an undirected diagonal that the terms have
    and the universe has not, and a hypothesis that changes when it is turned into an array."""
    construction = FriezeKannan(u.space, PublicFacts(5.0), step, 1.0)
    low, dense = construction.start(), CutState(DenseTensor(np.zeros(u.space.shape)))
    for _ in range(d.draw(st.integers(1, 8))):
        query = u.compiled(d.draw(queries(u)))
        value = construction.answer(low, query) + d.draw(st.sampled_from([-3.0, 2.0, 7.0]))
        assert construction.answer(dense, query) == pytest.approx(construction.answer(low, query), rel=1e-9, abs=1e-9)
        for state in (low, dense):
            construction.update(state, MeasuredQuery(query, value, 0.5))
        np.testing.assert_allclose(construction.dense(low), construction.dense(dense), rtol=1e-9, atol=1e-9)


def test_a_low_rank_hypothesis_turns_dense_when_that_is_smaller() -> None:
    """Many cuts of a graph of 40 nodes: would catch a term list that outgrows the matrix, and a wrong matrix."""
    u = universe({"name": "g", "kind": "graph", "nodes": 40, "budget": BUDGET})
    construction = FriezeKannan(u.space, PublicFacts(300.0), "projection", 1.0)
    low, dense = construction.start(), CutState(DenseTensor(np.zeros(u.space.shape)))
    rng = np.random.default_rng(7)
    kinds = set()
    for i in range(30):
        left, right = (np.flatnonzero(rng.random(40) < 0.5).tolist() for _ in range(2))
        query = u.compiled({"type": "cut", "left": left, "right": right})
        for state in (low, dense):
            construction.update(state, MeasuredQuery(query, 50.0 + i, 1.0))
        kinds.add(type(low.tensor))
        np.testing.assert_allclose(construction.dense(low), construction.dense(dense), rtol=1e-9, atol=1e-9)
    assert len(kinds) == 2


# ------------------------------------------------------------------------------------------ numerical corners


def test_weights_a_hair_apart_keep_the_hypothesis_finite() -> None:
    """Reaching a target between 1 - 2^-20 and 1 takes a rate of millions, whose exponential is no number. Would catch
    infinities, and a stop far before the target."""
    u = universe({"name": "t", "kind": "table", "attributes": [{"name": "x0", "size": 3}], "budget": BUDGET})
    query = u.compiled({"type": "product", "weights": {"x0": [1.0, 1 - 2.0**-20, 0.0]}})
    mass = 1e9
    construction = MultiplicativeWeights(u.space, PublicFacts(mass), "projection", 1.0)
    state = construction.start()
    target = mass * (1 - 2.0**-24)
    construction.update(state, MeasuredQuery(query, target, 0.0))
    assert np.isfinite(state.tensor.array).all()
    assert construction.answer(state, query) == pytest.approx(target, rel=1e-9)
    assert state.tensor.array.sum() == pytest.approx(mass, rel=1e-13)


def test_a_certificate_beyond_the_boundary_never_steps_back() -> None:
    """The hypothesis holds all but a trace of its mass where the query looks, and the measurement asks for more. Would
    catch a target clipped to the inside of where the hypothesis already is."""
    u = universe({"name": "t", "kind": "table", "attributes": [{"name": "x0", "size": 2}], "budget": BUDGET})
    query = u.compiled({"type": "predicate", "where": {"x0": {"equals": 0}}})
    construction = MultiplicativeWeights(u.space, PublicFacts(100.0), "projection", 1.0)
    state = WeightsState(DenseTensor(np.array([100.0 - 1e-9, 1e-9])), 0.0)
    construction.update(state, MeasuredQuery(query, 150.0, 1.0))
    assert state.tensor.array[1] <= 1e-9


@pytest.mark.parametrize("mass", [0.0, 0.25, 1.0])
def test_masses_below_one(mass: float) -> None:
    """A weighted graph may weigh less than one edge in all: its simplex has that mass and no other. Without any mass
    the hypothesis is some point."""
    construction = MultiplicativeWeights(GRAPH.space, PublicFacts(mass), "projection", 1.0)
    start = construction.dense(construction.start())
    assert flat(GRAPH, start).sum() == pytest.approx(mass or 1.0)
