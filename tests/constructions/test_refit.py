"""Refits against generic solvers of the problem they state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize, root

from app.constructions.base import Construction, MeasuredQuery, PublicFacts
from app.constructions.mechanism import parse_mechanism
from app.constructions.refit import SLACK, Kept, euclidean
from app.constructions.registry import construct
from app.spaces.query import Query
from app.spaces.tensor import DenseTensor
from tests.kit.strategies import BUDGET, Universe, universe

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x", "size": 4}, {"name": "y", "size": 3}],
        "budget": BUDGET,
    }
)
BIPARTITE = universe({"name": "b", "kind": "bipartite", "left": 5, "right": 6, "budget": BUDGET})
GRAPH = universe({"name": "g", "kind": "graph", "nodes": 6, "budget": BUDGET})
MECHANISMS = {
    "mw": {"construction": "mw"},
    "fk": {"construction": "fk"},
    "lp": {"construction": "md", "potential": "lp"},
    "rows": {"construction": "md", "potential": "group", "axis": "rows"},
    "schatten": {"construction": "md", "potential": "schatten"},
}


def forms(u: Universe) -> list[Query]:
    """A few queries that overlap, of every form."""
    rng = np.random.default_rng(6)
    weights = rng.uniform(-1, 1, u.space.shape)
    if u.undirected:
        weights = np.triu(weights, 1) + np.triu(weights, 1).T
    found: list[dict[str, Any]] = [
        {"type": "dense", "weights": weights.tolist()},
        {"type": "sparse", "indices": [list(u.cells[1]), list(u.cells[4])], "weights": [1.0, -0.5]},
    ]
    if u is TABLE:
        found += [
            {"type": "predicate", "where": {"x": {"in": [0, 1]}}},
            {"type": "predicate", "where": {"x": {"in": [1, 2]}, "y": {"in": [0, 1]}}},
            {"type": "product", "weights": {"x": [-0.5, 0.25, 1.0, 0.0], "y": [0.5, 1.0, 0.25]}},
        ]
    else:
        found += [
            {"type": "cut", "left": [0, 1], "right": [1, 2]},
            {"type": "cut", "left": [1, 2, 3], "right": "all"},
            {
                "type": "rank_one",
                "left": [0.25] * u.space.shape[0],
                "right": np.linspace(0, 1, u.space.shape[1]).tolist(),
            },
        ]
    return [u.compiled(words) for words in found]


def weights_of(u: Universe, query: Query) -> np.ndarray:
    return np.array([float(w) for w in u.weights(query).values()])


def shown(u: Universe, construction: Construction, state: Any) -> np.ndarray:
    dense = construction.dense(state)
    return np.array([dense[c] for c in u.cells])


def counts(u: Universe) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 6 if u is TABLE else 2, len(u.cells)).astype(float)


def made(u: Universe, mechanism: dict[str, Any], padding: float = 0.0) -> Construction:
    facts = PublicFacts(float(counts(u).sum()) + padding, padded=padding > 0)
    return construct(parse_mechanism({**mechanism, "step": "refit"}), u.space, facts, 1.0, 100)


def play(u: Universe, construction: Construction, off: float) -> tuple[Any, list[MeasuredQuery]]:
    """All forms twice, so that released values contradict each other."""
    rng = np.random.default_rng(8)
    x, state, taken = counts(u), construction.start(), []
    for query in [*forms(u), *forms(u)]:
        taken.append(MeasuredQuery(query, float(weights_of(u, query) @ x) + off * rng.uniform(-1, 1), 0.5))
        construction.update(state, taken[-1])
    return state, taken


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("u", [TABLE, BIPARTITE, GRAPH], ids=lambda u: str(u.declared["name"]))
def test_agrees_with_all_released_values(name: str, u: Universe) -> None:
    """Values that belong to one data set are met together, also the first after the last update; the half-space step
    keeps only the last. Would catch measurements that are forgotten, and a coefficient on the wrong query."""
    construction = made(u, MECHANISMS[name])
    state, taken = play(u, construction, off=0.0)
    residuals = [construction.answer(state, m.query) - m.value for m in taken]
    # kappa moves an answer by 2^-8 of the bound for each natural logarithm of tilt, or for a coefficient of the
    # size of the largest residual.
    assert np.abs(residuals).max() <= 0.05


EUCLIDEAN = [(name, u) for name in ("fk", "lp", "rows") for u in (TABLE, BIPARTITE, GRAPH)]
# What the Schatten norm has on the diagonal of an undirected graph is not shown.
EUCLIDEAN += [("schatten", u) for u in (TABLE, BIPARTITE)]


@pytest.mark.parametrize(("name", "u"), EUCLIDEAN, ids=lambda of: of if isinstance(of, str) else of.declared["name"])
def test_euclidean_refit_is_the_least(name: str, u: Universe) -> None:
    """The last refit of Frieze/Kannan and mirror descent against least squares over all cells, to 1e-6. Would catch
    weights that are not 1/variance, another kappa, and a hypothesis that is not the refit's own."""
    construction = made(u, MECHANISMS[name])
    partial = construct(parse_mechanism({**MECHANISMS[name], "step": "full"}), u.space, PublicFacts(99.0), 1.0, 100)
    rng, x = np.random.default_rng(9), counts(u)
    state = construction.start()
    queries = [*forms(u), *forms(u)]
    taken = [MeasuredQuery(q, float(weights_of(u, q) @ x) + rng.uniform(-0.5, 0.5), 0.5) for q in queries]
    for measurement in taken[:-1]:
        construction.update(state, measurement)
    # The own step that precedes a refit (Frieze/Kannan's refit starts where it stands).
    if name != "fk":
        partial.update(state, taken[-1])
    h = shown(u, construction, state)
    f = np.array([weights_of(u, m.query) for m in taken])
    y = np.array([m.value for m in taken])
    residuals = y - f @ h
    # Over both halves of a symmetric matrix the squared distance counts each pair twice.
    doubled = 0.5 if u.undirected and name == "rows" else 1.0
    lengths = (f**2).sum(axis=1) * doubled
    kappa = SLACK * (lengths / (0.5 * np.maximum(np.abs(residuals), 0.5))).min()

    fresh = made(u, MECHANISMS[name])
    other = fresh.start()
    for measurement in taken:
        fresh.update(other, measurement)
    mine = shown(u, fresh, other)
    stiff = math.sqrt(kappa / doubled)
    stacked = np.vstack([f / 0.5, stiff * np.eye(len(h))]), np.concatenate([y / 0.5, stiff * h])
    assert mine == pytest.approx(np.linalg.lstsq(*stacked)[0], rel=1e-6, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("padding", [0.0, 4.0])
@pytest.mark.parametrize("u", [TABLE, BIPARTITE, GRAPH], ids=lambda u: str(u.declared["name"]))
def test_entropic_refit_is_the_least(u: Universe, padding: float) -> None:
    """Multiplicative weights against a generic solver of the stated problem, slack cell included, to 1e-6. Would catch
    weights that are not 1/variance, another kappa, a slack cell that is left out, and steps that stop early."""
    construction = made(u, MECHANISMS["mw"], padding)
    rng, x = np.random.default_rng(10), counts(u)
    mass = float(x.sum()) + padding
    queries = [*forms(u), *forms(u)]
    taken = [MeasuredQuery(q, float(weights_of(u, q) @ x) + rng.uniform(-0.5, 0.5), 0.5) for q in queries]
    state = construction.start()
    for measurement in taken[:-1]:
        construction.update(state, measurement)
    last = taken[-1]
    full = construct(
        parse_mechanism({"construction": "mw", "step": "full"}),
        u.space,
        PublicFacts(mass, padded=padding > 0),
        1.0,
        100,
    )
    full.update(state, last)

    def cells(of: Construction, at: Any) -> np.ndarray:
        inside = shown(u, of, at)
        return np.append(inside, at.slack) if padding else inside

    h = cells(construction, state)
    f = np.array([weights_of(u, m.query) for m in taken])
    if padding:
        f = np.hstack([f, np.zeros((len(f), 1))])
    y = np.array([m.value for m in taken])
    kappa = SLACK / 0.5

    def objective(logs: np.ndarray) -> tuple[float, np.ndarray]:
        """In unconstrained logarithms: the convex problem has one stationary point inside the simplex."""
        z = np.exp(logs - logs.max())
        z *= mass / z.sum()
        residuals = (f @ z - y) / 0.5
        slopes = f.T @ residuals / 0.5 + kappa * (np.log(z / h) + 1)
        value = float(residuals @ residuals) / 2 + kappa * float(z @ np.log(z / h))
        return value, z * (slopes - float(z @ slopes) / mass)

    def conditions(logs: np.ndarray) -> np.ndarray:
        """The gradient, a cell's by its mass, and the sum: zero at the solution alone."""
        z = np.exp(logs)
        slopes = f.T @ ((f @ z - y) / 0.5) / 0.5 + kappa * (np.log(z / h) + 1)
        apart = slopes - float(z @ slopes) / mass
        return apart + (z.sum() - mass)

    rough = minimize(objective, np.log(h), jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 10_000}).x
    rough = rough - rough.max()
    found = root(conditions, rough + math.log(mass / np.exp(rough).sum()), tol=1e-14)
    assert np.abs(found.fun).max() <= 1e-8
    best = np.exp(found.x)
    again = made(u, MECHANISMS["mw"], padding)
    other = again.start()
    for measurement in taken:
        again.update(other, measurement)
    mine = cells(again, other)
    assert mine.sum() == pytest.approx(mass)
    divergence = float((mine * np.log(mine / h)).sum())
    value = float((((f @ mine - y) / 0.5) ** 2).sum() / 2) + kappa * divergence
    assert value == pytest.approx(objective(found.x)[0], rel=1e-6)
    assert mine == pytest.approx(best, rel=1e-6, abs=1e-6 * mass)


def test_impossible_values() -> None:
    """Values that no masses have (more than all, less than nothing, disjoint parts that exceed the whole) leave a
    finite hypothesis of the right mass with no cell lost for good."""
    construction = made(TABLE, MECHANISMS["mw"])
    mass = float(counts(TABLE).sum())
    state = construction.start()
    parts = [TABLE.compiled({"type": "predicate", "where": {"x": {"equals": i}}}) for i in range(4)]
    for query, value in ((parts[0], 3 * mass), (parts[1], -mass), (parts[2], 0.9 * mass), (parts[3], 0.9 * mass)):
        construction.update(state, MeasuredQuery(query, value, 0.5))
        h = shown(TABLE, construction, state)
        assert np.isfinite(h).all()
        assert h.sum() == pytest.approx(mass)
    # Later, truer values bring the cells back.
    for _ in range(2):
        for query in parts:
            construction.update(state, MeasuredQuery(query, mass / 4, 1e-3))
    assert construction.answer(state, parts[1]) == pytest.approx(mass / 4, rel=0.6)


def test_precise_measurements_weigh_more() -> None:
    """Of two that contradict each other the answer is the mean weighted by 1/bound^2."""
    query = BIPARTITE.compiled({"type": "cut", "left": [0, 1], "right": "all"})
    for name in ("fk", "lp", "schatten"):
        construction = made(BIPARTITE, MECHANISMS[name])
        state = construction.start()
        construction.update(state, MeasuredQuery(query, 10.0, 1.0))
        construction.update(state, MeasuredQuery(query, 4.0, 2.0))
        assert construction.answer(state, query) == pytest.approx((10 + 4 / 4) / (1 + 1 / 4), abs=0.1)


def test_nothing_new_changes_little() -> None:
    """The refit of a hypothesis that agrees with everything is itself."""
    kept = Kept()
    queries = forms(TABLE)
    h = counts(TABLE).reshape(TABLE.space.shape)

    def inner(left: Query, right: Query) -> float:
        return float(weights_of(TABLE, left) @ weights_of(TABLE, right))

    for query in queries:
        kept.keep(MeasuredQuery(query, query.inner(DenseTensor(h)), 1.0), inner)
    answers = np.array([q.inner(DenseTensor(h)) for q in queries])
    assert euclidean(kept, answers) == pytest.approx(0, abs=1e-12)
    assert kept.gram == pytest.approx(np.array([[inner(a, b) for b in queries] for a in queries]))


def test_refit_has_no_bound() -> None:
    for mechanism in MECHANISMS.values():
        assert made(TABLE, mechanism).bound(1.0) is None
        assert math.isfinite(made(TABLE, mechanism).step_size(1.0) or 0.0)
